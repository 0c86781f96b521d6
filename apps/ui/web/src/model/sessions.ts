// The list of sessions: the numbers and texts of a row, and the order of rows.

import type { SessionRates, SessionStatus } from "../snapshot";
import type { Loss } from "./losses";
import { lossRate, lossWords } from "./losses";
import { promisedBits, promisedCpu, total } from "./samples";
import { shown } from "./text";
import { bits, bytes, percent, perSecond, si } from "./units";

/** A row of the list. Texts are complete; numbers are for sorting and bars. */
export interface SessionRow {
  name: string;
  state: string;
  isRunning: boolean;
  cpu: Measure;
  memory: Measure;
  bandwidth: Measure;
  packets: Cell;
  records: Cell;
  losses: Cell;
  cause: string;
}

export interface Cell {
  value: number;
  text: string;
}

/**
 * Returns true if a user may change or follow a session: one of the user's own, or a delegate's that shares this right. `who` is
 * the user's description in the state, which ends with the user's key. The shares of an own session are with other keys.
 */
export function hasRight(session: SessionStatus, right: "manage" | "follow", who: string): boolean {
  if (session.sums_only) return false;
  const key = /weir-key:\w+$/.exec(who)?.[0];
  const shares = (session.share ?? []).filter((share) => key !== undefined && share.endsWith(`=${key}`));
  return shares.length === 0 || shares.includes(`${right}=${key}`);
}

/** An amount that was received, beside the amount that was promised. */
export interface Measure extends Cell {
  promised: string;
  /** Shares of the bar's length, from 0 to 1; a mark of -1 is outside of the bar. */
  fill: number;
  mark: number;
}

/**
 * Returns an amount beside a promise. The bar's length stands for the larger one, so a session beyond its promise has a
 * full bar with the mark inside it.
 */
export function measure(
  received: number | null,
  promised: number,
  format: (amount: number | null) => string,
): Measure {
  const value = received ?? 0;
  const length = Math.max(value, promised);
  return {
    value,
    text: format(received),
    promised: promised > 0 ? format(promised).replace(".0 %", " %") : "",
    fill: length > 0 ? rounded(value / length) : 0,
    mark: promised > 0 && length > 0 ? rounded(promised / length) : -1,
  };
}

/** Returns a share in steps of 1/200, so that a bar changes only if its picture does. */
function rounded(share: number): number {
  return Number.isFinite(share) ? Math.round(Math.min(1, Math.max(0, share)) * 200) / 200 : 0;
}

/** Returns `running`, `no module`, or the name and state of the first module that does not run. */
export function stateOf(session: SessionStatus): { text: string; isRunning: boolean } {
  const modules = [...session.modules, ...(session.ended ?? [])];
  if (modules.length === 0) return { text: "no module", isRunning: true };
  const other = modules.find((module) => module.state !== "running");
  if (other === undefined) return { text: "running", isRunning: true };
  return { text: `${shown(other.name)}: ${shown(other.state)}`, isRunning: false };
}

export function rowOf(session: SessionStatus, rates: SessionRates | undefined, losses: readonly Loss[]): SessionRow {
  const state = stateOf(session);
  const lost = lossRate(losses);
  const sent = total((rates?.outputs ?? []).map((output) => output.bits));
  return {
    name: session.name,
    state: state.text,
    isRunning: state.isRunning,
    cpu: measure(rates?.cpu ?? null, promisedCpu(session), percent),
    memory: measure(session.memory_used, session.memory_reserved, bytes),
    bandwidth: measure((session.outputs ?? []).length === 0 ? 0 : sent, promisedBits(session), bits),
    packets: { value: rates?.packets ?? 0, text: si(rates?.packets) },
    records: { value: rates?.records ?? 0, text: si(rates?.records) },
    losses: { value: lost, text: lost > 0 ? perSecond(lost) : "0" },
    cause: lossWords(losses),
  };
}

export type SortKey = "name" | "state" | "cpu" | "memory" | "bandwidth" | "packets" | "records" | "losses";

/** The order in which a column is sorted first: names upwards, numbers with the largest first. */
export function firstDirection(key: SortKey): 1 | -1 {
  return key === "name" || key === "state" ? 1 : -1;
}

/** Returns the names of the rows that pass the filter, in order. */
export function order(
  rows: Iterable<SessionRow>,
  sort: { key: SortKey; direction: 1 | -1 },
  filter: { text: string; onlyLosing: boolean },
): string[] {
  const wanted = filter.text.trim().toLowerCase();
  const kept = [...rows].filter(
    (row) =>
      (!filter.onlyLosing || row.losses.value > 0) &&
      (wanted === "" || row.name.toLowerCase().includes(wanted) || row.state.toLowerCase().includes(wanted)),
  );
  const value = (row: SessionRow) => (sort.key === "name" || sort.key === "state" ? row[sort.key] : row[sort.key].value);
  kept.sort((a, b) => {
    const [left, right] = [value(a), value(b)];
    const compared = typeof left === "string" ? compare(left, right as string) : left - (right as number);
    return compared * sort.direction || compare(a.name, b.name);
  });
  return kept.map((row) => row.name);
}

/** `localeCompare` is ten times as slow, which counts for 200 rows a second. */
function compare(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}
