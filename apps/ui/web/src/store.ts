// The state that all pages show. Signals change only here and in the handlers of pages.

import { batch, computed, signal } from "@preact/signals";
import type { ApiState } from "./api";
import { Series, sampleOfNode, sampleOfSession } from "./model/samples";
import { LossMeter, type Loss } from "./model/losses";
import { hasRight, rowOf, type SessionRow } from "./model/sessions";
import type { SessionStatus, Snapshot, SnapshotRates } from "./snapshot";

/** The answer of `/api/state`; `null` until it has arrived. */
export const state = signal<ApiState | null>(null);
/** The latest snapshot and its rates; the last ones stay while a connection is lost. */
export const snapshot = signal<Snapshot | null>(null);
export const rates = signal<SnapshotRates | null>(null);
/** Losses and list rows by session, computed once for each snapshot. */
export const losses = signal<ReadonlyMap<string, readonly Loss[]>>(new Map());
export const rows = signal<ReadonlyMap<string, SessionRow>>(new Map());

/** A lost connection: to the node, or to `weir ui` itself; `sinceMs` is a time of `Date.now`. */
export type Lost = { part: "node" | "ui"; why: string; sinceMs: number };
export const lost = signal<Lost | null>(null);
/** The reason for which this tab can do nothing more; `null` normally. */
export const unknown = signal<string | null>(null);

/** The time, once a second, for countdowns. */
export const now = signal(Date.now());

/** True if the page can send requests that change something. */
export const mayManage = computed(() => state.value?.may_manage === true);
/** Returns true if the page can change a session. */
export function mayChange(session: SessionStatus): boolean {
  return mayManage.value && hasRight(session, "manage", state.value?.who ?? "");
}
/** True while `weir ui` answers this tab. */
export const isConnected = computed(() => snapshot.value !== null && lost.value?.part !== "ui" && unknown.value === null);
/** True while what is shown is not the present state. */
export const isStale = computed(() => lost.value !== null || unknown.value !== null);

/** The series that charts show: that of the node, and that of one session at a time. */
export const nodeSeries = new Series();
export const sessionSeries = { name: null as string | null, series: new Series() };
/** Counts changes of the series, which are plain arrays for the sake of speed. */
export const seriesVersion = signal(0);

const meter = new LossMeter();

/** Takes a snapshot as the present state. */
export function take(next: Snapshot, nextRates: SnapshotRates): void {
  const nextLosses = meter.update(next);
  const nextRows = new Map<string, SessionRow>();
  next.sessions.forEach((session, at) => {
    nextRows.set(session.name, rowOf(session, nextRates.sessions[at], nextLosses.get(session.name) ?? []));
  });
  const atMs = next.at_ns / 1e6;
  nodeSeries.add(atMs, sampleOfNode(next, nextRates));
  const at = next.sessions.findIndex((session) => session.name === sessionSeries.name);
  const [session, its] = [next.sessions[at], nextRates.sessions[at]];
  if (session && its) sessionSeries.series.add(atMs, sampleOfSession(session, its));
  batch(() => {
    snapshot.value = next;
    rates.value = nextRates;
    losses.value = nextLosses;
    rows.value = nextRows;
    lost.value = null;
    seriesVersion.value += 1;
  });
}

/** Notes that a connection is lost. The beginning stays if it was lost before. */
export function lose(part: Lost["part"], why: string, sinceMs: number): void {
  const before = lost.value;
  lost.value = { part, why, sinceMs: before ? Math.min(before.sinceMs, sinceMs) : sinceMs };
}

/** Begins the series of another session, with the samples that come from now on. */
export function followSeries(name: string): Series {
  if (sessionSeries.name !== name) {
    sessionSeries.name = name;
    sessionSeries.series = new Series();
  }
  return sessionSeries.series;
}
