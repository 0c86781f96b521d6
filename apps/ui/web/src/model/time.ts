// Times in the browser's zone.

const TIME = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const DATE_TIME = new Intl.DateTimeFormat("en-CA", {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  hour12: false, hourCycle: "h23",
});

/** Returns `14:03:05`. */
export function clock(ms: number): string {
  return Number.isFinite(ms) && Math.abs(ms) < 8.64e15 ? TIME.format(ms) : "–";
}

/** Returns `2026-11-28 14:03:05`. */
export function dateTime(ms: number): string {
  return Number.isFinite(ms) && Math.abs(ms) < 8.64e15 ? DATE_TIME.format(ms).replace(", ", " ") : "–";
}

const ISO = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$/;

/** Returns a time of a row, as RFC 3339 has it, in the browser's zone with all of its digits; other texts unchanged. */
export function localTime(text: unknown): unknown {
  const match = typeof text === "string" ? ISO.exec(text) : null;
  return match === null ? text : `${dateTime(Date.parse(match[0]))}${match[1] ?? ""}`;
}

/** Returns a time as RFC 3339 has it in the browser's zone, without parts of a second; other texts unchanged. */
export function localSeconds(text: string): string {
  return ISO.test(text) ? dateTime(Date.parse(text)) : text;
}

/** Returns the name of the browser's zone with its present distance from UTC: `Europe/Berlin (UTC+1)`. */
export function zone(now = new Date()): string {
  const name = Intl.DateTimeFormat().resolvedOptions().timeZone || "local time";
  const minutes = -now.getTimezoneOffset();
  const sign = minutes < 0 ? "−" : "+";
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  const distance = rest === 0 ? `${hours}` : `${hours}:${String(rest).padStart(2, "0")}`;
  return name === "UTC" ? "UTC" : `${name} (UTC${sign}${distance})`;
}

/** Returns a length of time with its two largest units: `3 d 4 h`, `5 min 2 s`. */
export function span(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  const parts: [number, string][] = [
    [Math.floor(s / 86_400), "d"],
    [Math.floor(s / 3_600) % 24, "h"],
    [Math.floor(s / 60) % 60, "min"],
    [s % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  if (first < 0) return "0 s";
  return parts.slice(first, first + 2).filter(([count]) => count > 0).map(([count, unit]) => `${count} ${unit}`).join(" ");
}

/** Returns the time that is left until a moment, or the time since it. */
export function countdown(untilS: number, nowMs: number): string {
  const left = untilS - nowMs / 1000;
  return left > 0 ? `in ${span(left)}` : `${span(-left)} ago`;
}

/** Returns the value of a `datetime-local` field for a moment, in the browser's zone. */
export function fieldOf(ms: number): string {
  return dateTime(ms).replace(" ", "T").slice(0, 16);
}

/** Reads the value of a `datetime-local` field, in seconds since 1970; `null` if it is empty. */
export function secondsOfField(value: string): number | null {
  const ms = value === "" ? Number.NaN : new Date(value).getTime();
  return Number.isFinite(ms) ? Math.floor(ms / 1000) : null;
}
