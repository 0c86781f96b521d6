// The limits of a session beside processor time, memory and bandwidth, after the table of
// `core/trust/src/grant/resource.rs`.

import { si, UNKNOWN, whole } from "./units";

export interface Limit {
  title: string;
  limit: string;
  /** The present use of what can be given back; empty for rates. */
  use: string;
  /** The amount beyond the limit, since the session was created; empty for nothing. */
  excess: string;
}

interface Definition {
  key: string;
  title: string;
  used: string | null;
  excess: string;
  effect: string;
  format: (amount: number) => string;
}

// Records have decimal units, as weir prints them.
const bytes = (amount: number) => si(amount, "B");
const perSecond = (amount: number) => si(amount, "B/s");

const LIMITS: Definition[] = [
  { key: "records_per_second", title: "Records per second", used: null, excess: "records_over_rate", effect: "lost", format: whole },
  { key: "record_bytes", title: "Bytes of records", used: null, excess: "record_bytes_over_rate", effect: "lost", format: perSecond },
  { key: "record_storage", title: "Kept records", used: "record_storage_used", excess: "record_storage_deleted", effect: "deleted", format: bytes },
  { key: "kept_packets", title: "Kept packets", used: "kept_packets_used", excess: "kept_packets_refused", effect: "refused", format: whole },
];

/** The keys of all limits, for the test that compares them with the table. */
export const LIMIT_KEYS = LIMITS.flatMap(({ key, used, excess }) => [key, ...(used === null ? [] : [used]), excess]);

/** Returns the limits that a session has or has met. */
export function limitsOf(limits: Record<string, unknown>): Limit[] {
  const number = (key: string | null) => {
    const value = key === null ? null : limits[key];
    return typeof value === "number" ? value : null;
  };
  return LIMITS.filter(({ key, used, excess }) => [key, used, excess].some((it) => number(it) !== null)).map((it) => {
    const [limit, use, excess] = [number(it.key), number(it.used), number(it.excess) ?? 0];
    const amount = it.format === perSecond ? bytes(excess) : it.format(excess);
    return {
      title: it.title,
      limit: limit === null ? "none" : it.format(limit),
      use: it.used === null ? UNKNOWN : it.format(use ?? 0),
      excess: excess > 0 ? `${amount} ${it.effect}` : "",
    };
  });
}
