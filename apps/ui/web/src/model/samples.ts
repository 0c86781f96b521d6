// The history of charts: columns of at most an hour. `sampleOfSession` and `sampleOfNode` compute the same numbers as
// the server's history, so that later samples continue it.

import type { History } from "../api";
import type { SessionRates, SessionStatus, Snapshot, SnapshotRates } from "../snapshot";

/** One hour at one second. */
export const SAMPLES_MAX = 3600;
/** The most columns that are kept; a node has few interfaces and links. */
const COLUMNS_MAX = 400;
/** Without samples for this long, the line of a chart is broken. */
const GAP_S = 3;
/** A clock that is set back by more than this begins a new series. */
const CLOCK_BACK_S = 60;

export type Sample = Record<string, number | null>;

/** Returns the promised share of cores: the sum of slice over period. */
export function promisedCpu(session: SessionStatus): number {
  return session.cpu.reduce((sum, cpu) => sum + (cpu.period_ns > 0 ? cpu.slice_ns / cpu.period_ns : 0), 0);
}

/** Returns the promised rate of all output channels, in bit/s. */
export function promisedBits(session: SessionStatus): number {
  return (session.outputs ?? []).reduce((sum, output) => sum + output.reserved_bits, 0);
}

/** Returns the sum of the known numbers; `null` if all are unknown. */
export function total(numbers: readonly (number | null)[]): number | null {
  const known = numbers.filter((number) => number !== null);
  return known.length === 0 ? null : known.reduce((sum, number) => sum + number, 0);
}

export function sampleOfSession(session: SessionStatus, rates: SessionRates): Sample {
  return {
    cpu: rates.cpu,
    cpu_promised: promisedCpu(session),
    memory: session.memory_used,
    memory_promised: session.memory_reserved,
    bandwidth: (session.outputs ?? []).length === 0 ? 0 : total(rates.outputs.map((output) => output.bits)),
    bandwidth_promised: promisedBits(session),
    packets: rates.packets,
    drops: rates.drops,
    records: rates.records,
  };
}

export function sampleOfNode(snapshot: Snapshot, rates: SnapshotRates): Sample {
  const sample: Sample = {};
  snapshot.cores.forEach((core, at) => {
    sample[`core ${core.core} busy`] = rates.cores[at]?.busy ?? null;
    sample[`core ${core.core} promised`] = core.reserved_ppm / 1e6;
  });
  snapshot.interfaces.forEach((it, at) => {
    sample[`interface ${it.name} bits`] = rates.interfaces[at]?.bits ?? null;
    sample[`interface ${it.name} missed`] = rates.interfaces[at]?.missed ?? null;
  });
  (snapshot.links ?? []).forEach((link, at) => {
    sample[`link ${link.name} bits`] = rates.links[at]?.bits ?? null;
    sample[`link ${link.name} promised`] = link.reserved_bits;
  });
  return sample;
}

/** Columns over time, of which the oldest samples are forgotten. */
export class Series {
  at: number[] = [];
  readonly columns = new Map<string, (number | null)[]>();

  /** Replaces everything by a history from the server; samples that are newer than it stay. */
  load(history: History): void {
    const newest = history.at_ms.at(-1) ?? 0;
    const later = this.at.findIndex((at) => at * 1000 > newest);
    const kept = later < 0 ? [] : this.at.slice(later).map((at, n) => [at, this.sampleAt(later + n)] as const);
    const times = history.at_ms.slice(-SAMPLES_MAX).map((ms) => ms / 1000);
    const columns = Object.entries(history.columns).slice(0, COLUMNS_MAX).map(([name, values]) => [name, values.slice(-SAMPLES_MAX)] as const);
    this.at = [];
    this.columns.clear();
    for (const [name] of columns) this.columns.set(name, []);
    times.forEach((at, n) => {
      const last = this.at.at(-1);
      if (last !== undefined && at - last > GAP_S) this.push(last + 1, {});
      this.push(at, Object.fromEntries(columns.map(([name, values]) => [name, values[n] ?? null])));
    });
    for (const [at, sample] of kept) this.add(at * 1000, sample);
  }

  /** Adds a sample, unless it is not newer than the last one. */
  add(atMs: number, sample: Sample): void {
    const [at, last] = [atMs / 1000, this.at.at(-1)];
    if (last !== undefined && at < last - CLOCK_BACK_S) {
      this.at = [];
      this.columns.clear();
    } else if (last !== undefined && at <= last) return;
    else if (last !== undefined && at - last > GAP_S) this.push(last + 1, {});
    this.push(at, sample);
  }

  private push(at: number, sample: Sample): void {
    for (const name of Object.keys(sample)) {
      if (!this.columns.has(name) && this.columns.size < COLUMNS_MAX) {
        this.columns.set(name, new Array<number | null>(this.at.length).fill(null));
      }
    }
    this.at.push(at);
    for (const [name, column] of this.columns) column.push(sample[name] ?? null);
    if (this.at.length <= SAMPLES_MAX) return;
    this.at.shift();
    for (const column of this.columns.values()) column.shift();
  }

  /** Returns a column; unknown numbers where there is none of this name. */
  column(name: string): (number | null)[] {
    return this.columns.get(name) ?? new Array<number | null>(this.at.length).fill(null);
  }

  private sampleAt(index: number): Sample {
    return Object.fromEntries([...this.columns].map(([name, column]) => [name, column[index] ?? null]));
  }
}
