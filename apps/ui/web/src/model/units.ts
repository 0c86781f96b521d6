// Numbers with units, in the forms that weir prints: SI prefixes, and binary ones for memory.

import type { Rate } from "../snapshot";

/** Text for an unknown number. */
export const UNKNOWN = "–";

const SI: [number, string][] = [
  [1e15, "P"],
  [1e12, "T"],
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

const BINARY: [number, string][] = [
  [2 ** 40, "TiB"],
  [2 ** 30, "GiB"],
  [2 ** 20, "MiB"],
  [2 ** 10, "KiB"],
];

/** Returns three digits of a number that is at least 0: `7.5`, `12.3`, `999`. */
function digits(number: number): string {
  return (number < 99.95 ? number.toFixed(1) : number.toFixed(0)).replace(/\.0$/, "");
}

/** Returns a number with an SI prefix and a unit: `12.3 k`, `4.5 Mbit/s`. */
export function si(number: Rate | undefined, unit = ""): string {
  if (number === null || number === undefined || !Number.isFinite(number)) return UNKNOWN;
  // A number that would round to 1000 is shown with the next prefix.
  const [scale, prefix] = SI.find(([scale]) => Math.abs(number) >= scale * 0.9995) ?? [1, ""];
  const text = digits(number / scale);
  return prefix + unit === "" ? text : `${text} ${prefix}${unit}`;
}

/** Returns a rate of a counted thing: `12.3 k/s`. */
export function perSecond(rate: Rate | undefined): string {
  const text = si(rate);
  return text === UNKNOWN ? text : `${text}/s`;
}

/** Returns a rate in bits: `4.5 Mbit/s`. */
export function bits(rate: Rate | undefined): string {
  return si(rate, "bit/s");
}

/** Returns an amount of memory: `64 MiB`. */
export function bytes(amount: Rate | undefined): string {
  if (amount === null || amount === undefined || !Number.isFinite(amount)) return UNKNOWN;
  const [scale, unit] = BINARY.find(([scale]) => amount >= scale) ?? [1, "B"];
  return `${digits(amount / scale)} ${unit}`;
}

/** Returns a share as a percentage: `12.5 %`. */
export function percent(share: Rate | undefined): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return UNKNOWN;
  return `${(share * 100).toFixed(1)} %`;
}

/** Returns a whole number with groups of three digits: `1 234 567`. */
export function whole(count: number): string {
  return Math.round(count).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Returns a time in ns in the largest unit in which it is at least 1: `2 ms`. */
export function nanos(ns: number | null | undefined): string {
  if (ns === null || ns === undefined || !Number.isFinite(ns)) return UNKNOWN;
  const units: [number, string][] = [[1e9, "s"], [1e6, "ms"], [1e3, "us"]];
  const [scale, unit] = units.find(([scale]) => ns >= scale) ?? [1, "ns"];
  return `${Number((ns / scale).toFixed(3))} ${unit}`;
}

const PARSED: Record<string, number> = {
  ns: 1, us: 1e3, ms: 1e6, s: 1e9, m: 60e9, h: 3600e9,
  B: 1, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30, kB: 1e3, MB: 1e6, GB: 1e9,
  "bit/s": 1, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9,
};

const KINDS = { time: /^(?:ns|us|ms|s|m|h)$/, bytes: /^(?:|B|KiB|MiB|GiB|kB|MB|GB)$/, rate: /^[kMG]?bit\/s$/ };

/** Reads a quantity as weir reads it, such as `2 ms`, `64MiB` or `5 Mbit/s`; `null` if it is none of this kind. */
export function quantity(text: string, kind: keyof typeof KINDS): number | null {
  const match = /^(\d+(?:\.\d+)?) ?([A-Za-z/]*)$/.exec(text.trim());
  const [, number = "", unit = ""] = match ?? [];
  if (match === null || !KINDS[kind].test(unit)) return null;
  const value = Number(number) * (PARSED[unit] ?? 1);
  return Number.isFinite(value) && value <= Number.MAX_SAFE_INTEGER ? value : null;
}
