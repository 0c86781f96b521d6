// Tables of the ledger: the columns that say something, and sums.

import type { LedgerTable } from "../api";
import { cut, shortKey, shown } from "./text";
import { localSeconds } from "./time";
import { UNKNOWN, whole } from "./units";

type Value = string | number | null;

/** A column of numbers; `at` is its place in each row, after the name. */
export interface Column {
  key: string;
  title: string;
  unit: string;
  at: number;
}

/** Columns about the row rather than its usage: last, and only with all columns. */
const ABOUT = new Set(["id", "begin", "end", "intervals"]);

/** Returns the rows whose name has a text, in any case. */
export function matching(table: LedgerTable, text: string): LedgerTable {
  const wanted = text.trim().toLowerCase();
  return wanted === "" ? table : { ...table, rows: table.rows.filter((row) => String(row[0]).toLowerCase().includes(wanted)) };
}

/** Returns the name of a row for display. Keys are shortened as on the other pages, so that they can be compared. */
export function rowName(name: unknown): string {
  return cut(shown(name).replace(/weir-key:[a-z0-9]+/g, shortKey), 48);
}

/** Returns the heading of a column with its unit, unless the title names the unit. */
export function titleOf({ key, title, unit }: Pick<Column, "key" | "title" | "unit">): string {
  const words = Object.hasOwn(TITLES, key) ? (TITLES[key] as string) : shown(title);
  return unit === "" || words.split(" ").includes(unit) || (unit === "B" && words.startsWith("bytes")) ? words : `${words}, ${shown(unit)}`;
}

const TITLES: Record<string, string> = { cpu_s: "CPU time", memory_mib_h: "memory" };

/** Returns the columns; with `all` false without those about the row, and those in which every value is 0 or missing. */
export function columnsOf(table: LedgerTable, all: boolean): Column[] {
  const columns = table.columns.map((column, n) => ({ ...column, at: n + 1 }));
  const ordered = [...columns.filter(({ key }) => !ABOUT.has(key)), ...columns.filter(({ key }) => ABOUT.has(key))];
  return all ? ordered : ordered.filter(({ key, at }) => !ABOUT.has(key) && table.rows.some((row) => row[at] !== null && row[at] !== undefined && row[at] !== 0));
}

/** Numbers that identify a row, or that belong to it alone, so that a sum of them says nothing. */
const WITHOUT_SUM = new Set(["id", "intervals"]);

/** Returns the sum of each column of amounts, in the places of a row; the first place is empty. */
export function sums(table: LedgerTable): Value[] {
  return [null, ...table.columns.map(({ key }, n) => {
    if (WITHOUT_SUM.has(key)) return null;
    const numbers = table.rows.map((row) => row[n + 1]).filter((value) => typeof value === "number");
    return numbers.length === 0 ? null : numbers.reduce((sum, value) => sum + value, 0);
  })];
}

/** Returns a value for display: a whole number, or one with at most three decimals. */
export function textOf(value: Value): string {
  if (value === null) return UNKNOWN;
  if (typeof value === "string") return shown(localSeconds(value));
  if (Number.isInteger(value)) return whole(value);
  const [integer = "0", decimals = ""] = value.toFixed(3).split(".");
  return `${whole(Number(integer))}.${decimals}`.replace(/\.?0+$/, "");
}

/** Compares two values for sorting; a missing one is the least. */
export function compareCells(a: Value, b: Value): number {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (a === null || b === null) return a === b ? 0 : a === null ? -1 : 1;
  const [left, right] = [String(a), String(b)];
  return left < right ? -1 : left > right ? 1 : 0;
}
