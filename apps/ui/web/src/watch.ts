// The stream of snapshots, which is opened again whenever it ends.

import { api, ApiError } from "./api";
import { readLines } from "./lines";
import type { Snapshot, SnapshotRates } from "./snapshot";
import { lose, now, state, take, unknown } from "./store";

/** The server writes a line each second; without one for this long, the connection counts as lost. */
const SILENCE_MS = 5_000;
const PAUSE_MS = { first: 1_000, max: 15_000 };

/** Watches the node until this tab is unknown to the server. */
export async function watch(): Promise<void> {
  let pause = PAUSE_MS.first;
  while (unknown.value === null) {
    const why = await watchOnce(() => {
      pause = PAUSE_MS.first;
    });
    if (unknown.value !== null) return;
    lose("ui", why, Date.now());
    await sleep(pause);
    pause = Math.min(pause * 2, PAUSE_MS.max);
  }
}

/** Watches until the stream ends; returns the reason. */
async function watchOnce(onLine: () => void): Promise<string> {
  const abort = new AbortController();
  let timer = 0;
  let isSilent = false;
  const restart = () => {
    clearTimeout(timer);
    timer = window.setTimeout(() => {
      isSilent = true;
      abort.abort();
    }, SILENCE_MS);
  };
  restart();
  try {
    state.value = await api.state();
    await readLines("/api/watch", abort.signal, (line) => {
      restart();
      handle(line);
      onLine();
    });
    return "weir ui has ended the connection";
  } catch (error) {
    if (isSilent) return "weir ui is silent";
    return error instanceof ApiError ? error.message : "weir ui has sent something that this page cannot read";
  } finally {
    clearTimeout(timer);
    abort.abort();
  }
}

function handle(line: unknown): void {
  if (typeof line !== "object" || line === null) throw new ApiError(0, "weir ui has sent a line that this page cannot read");
  if ("lost" in line) {
    const since = "since_s" in line && typeof line.since_s === "number" ? line.since_s : 0;
    lose("node", String(line.lost), Date.now() - since * 1000);
  } else if ("snapshot" in line && "rates" in line && isSnapshot(line.snapshot) && isRates(line.rates)) {
    take(line.snapshot, line.rates);
  } else {
    throw new ApiError(0, "weir ui has sent a line that this page cannot read");
  }
}

/** Checks the parts without which a page could not be drawn; `weir ui` has read the whole as the node's own types. */
function isSnapshot(value: unknown): value is Snapshot {
  const it = value as Partial<Snapshot> | null;
  return (
    typeof it === "object" && it !== null && typeof it.at_ns === "number" && typeof it.uptime_ns === "number" &&
    [it.cores, it.interfaces, it.sessions].every((list) => Array.isArray(list)) && typeof it.memory === "object" &&
    (it.sessions ?? []).every((session) =>
      typeof session?.name === "string" && [session.cpu, session.channels, session.modules].every((list) => Array.isArray(list)))
  );
}

function isRates(value: unknown): value is SnapshotRates {
  const it = value as Partial<SnapshotRates> | null;
  return typeof it === "object" && it !== null && [it.cores, it.interfaces, it.links, it.sessions].every((list) => Array.isArray(list));
}

/** Starts the clock of countdowns and of the time since a loss. */
export function startClock(): void {
  setInterval(() => {
    now.value = Date.now();
  }, 1_000);
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
