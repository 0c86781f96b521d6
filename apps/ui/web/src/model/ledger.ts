// Tables of the ledger: the columns that say something, and sums.

import type { LedgerTable } from "../api";
import { shown } from "./text";
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

/** Returns the columns; with `all` false without those in which every value is 0 or missing. */
export function columnsOf(table: LedgerTable, all: boolean): Column[] {
  const columns = table.columns.map((column, n) => ({ ...column, at: n + 1 }));
  return all ? columns : columns.filter(({ at }) => table.rows.some((row) => row[at] !== null && row[at] !== undefined && row[at] !== 0));
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
