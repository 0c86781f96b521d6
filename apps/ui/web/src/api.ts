// The interface between this page and `weir ui`: all types, and all requests. This file and `snapshot.ts` are the
// contract; the server's tests read the same examples.

import type { Snapshot, SnapshotRates } from "./snapshot";

export interface ApiState {
  node: string;
  address: string;
  weir: string;
  who: string;
  may_manage: boolean;
  modules: ModuleInfo[];
  run_bytes_max: number | null;
  /** Interfaces that the user's credential names. Without this field, those of the node, if the user sees them. */
  run_interfaces?: string[];
}

export interface ModuleInfo {
  name: string;
  version: string;
  description: string;
  /** True if `weir run` runs the module when none is named. */
  is_default?: boolean;
  parameters: ParameterInfo[];
}

/** A parameter of a module's manifest. `type` is a name of `core/admission/src/parameter.rs`. */
export interface ParameterInfo {
  name: string;
  type: string;
  description: string;
  default: string | null;
  min: string | number | null;
  max: string | number | null;
  unit: string | null;
  values?: string[];
}

/** A line of `/api/watch`. */
export type WatchLine = { snapshot: Snapshot; rates: SnapshotRates } | { lost: string; since_s: number };

/** Columns of at most 3,600 numbers each; `null` for an unknown one. */
export interface History {
  at_ms: number[];
  columns: Record<string, (number | null)[]>;
}

/** The answer to a request to the node. */
export type Outcome = { done: { notes: string[] } } | { refused: { why: string } };

export interface CheckAnswer {
  refused: string | null;
}

/** A request of `docs/WIRE.md`. Quantities are texts with units. */
export type ControlRequest =
  | { change: ChangeRequest }
  | { close: { session: string } }
  | { unload: { session: string; module: string } };

export interface ChangeRequest {
  session: string;
  memory?: string;
  cpu?: ProcessorChange[];
  output?: OutputChange[];
}

export interface ProcessorChange {
  name: string;
  core: number;
  period?: string;
  slice?: string;
  borrow: boolean;
  weight?: number;
}

export interface OutputChange {
  name: string;
  link: string;
  reserve?: string;
  period?: string;
  cap?: string;
  weight: number;
  queue: number;
  filter?: string;
  tap?: string;
}

/** A line of `/api/rows`. */
export type RowsLine =
  | { streams: StreamInfo[] }
  | { stream: string; rows: Record<string, unknown>[]; skipped: number }
  | { missed: number }
  | { end: string }
  | { error: string };

export interface StreamInfo {
  name: string;
  columns: { name: string; type: string; unit: string }[];
}

/** `states_rights` is true if the command makes a credential with all other rights of the present one. */
export interface Advice {
  text: string;
  command: string | null;
  states_rights?: boolean;
}

export interface Decision {
  begin_ms: number;
  end_ms: number;
  request: string;
  session: string | null;
  outcome: string;
  count: number;
  who: string | null;
  credentials: string[];
  reason: string | null;
  advice?: Advice[];
}

/** A row has the name of the session or holder, and then a value for each column. */
export interface LedgerTable {
  columns: { key: string; title: string; unit: string }[];
  rows: (string | number | null)[][];
}

export interface Ledger extends LedgerTable {
  holders: LedgerTable;
  verified: { state: "whole" | "broken" | "unknown"; text: string };
}

export interface Used {
  resource: string;
  used: number;
  granted: number | null;
  used_text: string;
  granted_text: string;
}

export interface Credential {
  id: string;
  holder: string;
  expires_s: number | null;
  revoked: boolean;
  allows: [string, string][];
  used: Used[];
  sessions: string[];
  delegates: Credential[];
  may_revoke: boolean;
}

export interface Credentials {
  roots: { root: string; policy_ceilings: Used[]; grants: Credential[] }[];
  /** The delegations that the node leaves out, because there are too many. */
  left_out: number;
}

export interface RunRequest {
  source: { upload: { name: string; bytes: number } } | { interface: { name: string; seconds: number } };
  modules: { module: string; set: Record<string, string> }[];
}

/**
 * A line of `/api/runs/N/watch`. Progress is in bytes of the capture, or in milliseconds on an interface. The summary is
 * that of `weir run --json`, or null for an interface. A line without any of these checks that the page is open.
 */
export type RunLine =
  | { progress: { bytes: number; bytes_total: number } }
  | { done: { report: string; summary: { capture: { packets: number } } | null } }
  | { failed: string }
  | Record<string, never>;

/** The refusal of an API request, with a text for people. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

const SECRET = "weir-secret";
let secret = sessionStorage.getItem(SECRET);
let onUnknown: (why: string) => void = () => {};
let isShut = false;

/** Sets the function that is called once the server does not know this page any more. */
export function whenUnknown(handle: (why: string) => void): void {
  onUnknown = handle;
}

/** Exchanges the one-time token of the address for the secret of this tab. */
export async function open(token: string): Promise<void> {
  const answer = await request<{ secret: string }>("POST", "/api/open", { token });
  adopt(answer.secret);
}

/** Takes the secret of another tab. */
export function adopt(given: string): void {
  secret = given;
  sessionStorage.setItem(SECRET, given);
}

/** Returns the secret of this tab; null before it was opened, and once the server does not know it any more. */
export function secretOfTab(): string | null {
  return isShut ? null : secret;
}

/** Sends a request; throws an `ApiError` if the server is not there or refuses. */
export async function send(
  method: string,
  path: string,
  body?: BodyInit | null,
  options: { signal?: AbortSignal; type?: string; keepalive?: boolean } = {},
): Promise<Response> {
  // The server has said that it does not know this tab: more requests would only fill its log.
  if (isShut) throw new ApiError(401, "this address is not valid any more");
  const headers: Record<string, string> = {};
  if (secret !== null) headers["Authorization"] = `Bearer ${secret}`;
  if (options.type !== undefined) headers["Content-Type"] = options.type;
  const init: RequestInit = { method, headers, cache: "no-store", redirect: "error", credentials: "omit" };
  if (body !== undefined) init.body = body;
  if (options.signal) init.signal = options.signal;
  if (options.keepalive) init.keepalive = true;
  let response: Response;
  try {
    response = await fetch(path, init);
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new ApiError(0, "weir ui does not answer");
  }
  if (response.ok) return response;
  const why = await errorText(response);
  if (response.status === 401) {
    isShut = true;
    sessionStorage.removeItem(SECRET);
    onUnknown(why);
  }
  throw new ApiError(response.status, why);
}

async function errorText(response: Response): Promise<string> {
  try {
    const body: unknown = await response.json();
    if (typeof body === "object" && body !== null && "error" in body && typeof body.error === "string") return body.error;
  } catch {
    // The body is not the server's JSON, for instance because a proxy has answered.
  }
  return `weir ui answered with status ${response.status}`;
}

async function request<T>(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const options = { ...(signal ? { signal } : {}), ...(body === undefined ? {} : { type: "application/json" }) };
  const response = await send(method, path, body === undefined ? undefined : JSON.stringify(body), options);
  try {
    return (await response.json()) as T;
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(response.status, "weir ui has sent an answer that this page cannot read");
  }
}

/** Returns `?key=value&…` of the given values, without those that are null. */
export function query(values: Record<string, string | number | null>): string {
  const given = Object.entries(values).filter((pair): pair is [string, string | number] => pair[1] !== null);
  const text = given.map(([key, value]) => `${encodeURIComponent(key)}=${encodeURIComponent(value)}`).join("&");
  return text === "" ? "" : `?${text}`;
}

export const api = {
  state: () => request<ApiState>("GET", "/api/state"),
  history: (session: string | null, signal: AbortSignal) =>
    request<History>("GET", `/api/history${query({ session })}`, undefined, signal),
  request: (body: ControlRequest) => request<Outcome>("POST", "/api/request", body),
  check: (body: ControlRequest, signal: AbortSignal) => request<CheckAnswer>("POST", "/api/check", body, signal),
  decisions: (since_s: number) => request<{ decisions: Decision[] }>("GET", `/api/decisions${query({ since_s })}`),
  ledger: (since_s: number | null, until_s: number | null) =>
    request<Ledger>("GET", `/api/ledger${query({ since_s, until_s })}`),
  ledgerFile: (format: "csv" | "parquet", since_s: number | null, until_s: number | null) =>
    send("GET", `/api/ledger.${format}${query({ since_s, until_s })}`),
  credentials: () => request<Credentials>("GET", "/api/credentials"),
  revoke: (id: string) => request<Outcome>("POST", "/api/revoke", { id }),
  startRun: (body: RunRequest) => request<{ run: number }>("POST", "/api/runs", body),
  upload: (run: number, file: Blob, signal: AbortSignal) =>
    send("PUT", `/api/runs/${encodeURIComponent(run)}/capture`, file, { signal, type: "application/octet-stream" }),
  endRun: (run: number) => send("DELETE", `/api/runs/${encodeURIComponent(run)}`, undefined, { keepalive: true }),
};
