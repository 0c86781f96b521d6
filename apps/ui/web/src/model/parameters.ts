// The values of a module's parameters: checks by the types and limits of its manifest, before anything is sent.

import type { ParameterInfo } from "../api";
import { quantity } from "./units";

/** Values longer than this are refused: a request's line is limited. */
const VALUE_MAX = 4096;

/** Returns the fault of a value; `null` if it can be sent. An empty value stands for the default. */
export function faultOf(parameter: ParameterInfo, value: string): string | null {
  if (value.trim() === "") return parameter.default === null ? "This parameter must be given." : null;
  if (value.length > VALUE_MAX) return `At most ${VALUE_MAX} characters.`;
  switch (parameter.type) {
    case "u64":
      return /^\d+$/.test(value.trim()) ? outside(parameter, BigInt(value.trim()), big) : "This is not a whole number.";
    case "i64":
      return /^-?\d+$/.test(value.trim()) ? outside(parameter, BigInt(value.trim()), big) : "This is not a whole number.";
    case "f64":
      return isNumber(value) ? outside(parameter, Number(value), Number) : "This is not a number.";
    case "duration": {
      const time = quantity(value, "time");
      if (time === null) return "This is not a time, such as 10 ms.";
      return outside(parameter, time, (limit) => quantity(String(limit), "time") ?? Number(limit));
    }
    case "bool":
      return /^(true|false)$/.test(value) ? null : "Choose true or false.";
    case "enum":
      return parameter.values?.includes(value) ? null : "Choose one of the values.";
    case "prefix":
      return isPrefix(value.trim()) ? null : "This is not an IP prefix, such as 10.0.0.0/8.";
    case "u64-list":
      return entries(value).every((entry) => /^\d+$/.test(entry)) ? null : "This is not a list such as 53,123.";
    case "prefix-list":
      return entries(value).every(isPrefix) ? null : "This is not a list of IP prefixes, such as 10.0.0.0/8,2001:db8::/32.";
    default:
      return null;
  }
}

function big(limit: string | number): bigint | null {
  return /^-?\d+$/.test(String(limit)) ? BigInt(limit) : null;
}

function outside<T extends bigint | number>(
  { min, max, unit }: ParameterInfo,
  value: T,
  read: (limit: string | number) => T | null,
): string | null {
  const [low, high] = [min === null ? null : read(min), max === null ? null : read(max)];
  const isInside = (low === null || value >= low) && (high === null || value <= high);
  return isInside ? null : `The value must be ${limits(min, max, unit)}.`;
}

/** Returns the limits of a parameter in words: `from 1 to 65535 packets`; empty without limits. */
export function limits(min: string | number | null, max: string | number | null, unit: string | null): string {
  // A duration has its unit with the number, and the unit 1 is none.
  const of = unit && unit !== "1" && unit !== "ns" ? ` ${unit}` : "";
  if (min !== null && max !== null) return `from ${min} to ${max}${of}`;
  if (min !== null) return `at least ${min}${of}`;
  return max !== null ? `at most ${max}${of}` : "";
}

function isNumber(text: string): boolean {
  return text.trim() !== "" && Number.isFinite(Number(text));
}

function entries(text: string): string[] {
  return text.split(",").map((entry) => entry.trim());
}

function isPrefix(text: string): boolean {
  const [address = "", length, ...more] = text.split("/");
  const isV4 = /^(\d{1,3}\.){3}\d{1,3}$/.test(address) && address.split(".").every((part) => Number(part) <= 255);
  const isV6 = /^[0-9a-fA-F:.]*:[0-9a-fA-F:.]*$/.test(address) && address.length >= 2;
  if (more.length > 0 || !(isV4 || isV6)) return false;
  return length === undefined || (/^\d{1,3}$/.test(length) && Number(length) <= (isV4 ? 32 : 128));
}
