// Text of other parties: modules, packets, holders, and the node itself.

import { whole } from "./units";

/**
 * Characters that are not shown as they are: control characters, and invisible ones that hide, reorder or break the
 * text around them. The list is that of `is_plain` in `core/units/src/text.rs`, and lone surrogates.
 */
const NOT_PLAIN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}\p{Surrogate}]/u;
const NOT_PLAIN_ALL = new RegExp(NOT_PLAIN.source, "gu");

const NAMED: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

/** Returns a text for display, in which every character that is not plain is escaped as weir's commands escape it. */
export function shown(text: unknown): string {
  const whole = typeof text === "string" ? text : stringOf(text);
  if (!NOT_PLAIN.test(whole)) return whole;
  return whole.replace(NOT_PLAIN_ALL, (c) => NAMED[c] ?? `\\u{${(c.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Returns true if a text can be pasted elsewhere: a shell would run what follows a line feed. */
export function isPlain(text: string): boolean {
  return !NOT_PLAIN.test(text);
}

function stringOf(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "object" ? (JSON.stringify(value) ?? "") : String(value);
}

/** Returns at most `max` characters of a text; a cut text ends with `…`. */
export function cut(text: string, max: number): string {
  if (text.length <= max) return text;
  const end = text.charCodeAt(max - 2) >= 0xd800 && text.charCodeAt(max - 2) < 0xdc00 ? max - 2 : max - 1;
  return `${text.slice(0, end)}…`;
}

/**
 * Returns a key or an identifier with its middle left out: `weir-key:5jfgyy…wctxsv`. The expiry after an identifier's `@`
 * is left out as well, because it is the same for many.
 */
export function shortKey(key: string): string {
  const colon = key.indexOf(":") + 1;
  const at = key.indexOf("@", colon);
  const name = at < 0 ? key : key.slice(0, at);
  return name.length - colon <= 14 ? name : `${name.slice(0, colon + 6)}…${name.slice(-6)}`;
}

/** Returns `1 packet`, `2 packets`. */
export function plural(count: number, noun: string): string {
  return `${whole(count)} ${noun}${count === 1 ? "" : "s"}`;
}
