// One run at a time: upload, progress, report. The server deletes capture and report when the stream of the run ends.

import { signal } from "@preact/signals";
import { api, ApiError, type RunLine, type RunRequest } from "./api";
import { readLines } from "./lines";

export interface Run {
  stage: "starting" | "uploading" | "running" | "done" | "failed";
  what: string;
  /** The part that was read, and all of it: bytes of a capture, or milliseconds on an interface. */
  read: number;
  readTotal: number;
  isCapture: boolean;
  /** Known at the end of a run over a capture. */
  packets: number | null;
  report: string | null;
  why: string | null;
}

export const run = signal<Run | null>(null);

let abort: AbortController | null = null;
let number: number | null = null;

function update(change: Partial<Run>): void {
  if (run.value !== null) run.value = { ...run.value, ...change };
}

function failed(error: unknown): void {
  update({ stage: "failed", why: error instanceof Error ? error.message : String(error) });
}

/** Starts a run; `file` is the capture of an upload. */
export async function startRun(request: RunRequest, file: File | null): Promise<void> {
  await endRun();
  const mine = new AbortController();
  abort = mine;
  const what = file === null ? ("interface" in request.source ? request.source.interface.name : "") : file.name;
  const readTotal = file === null ? ("interface" in request.source ? request.source.interface.seconds * 1000 : 0) : file.size;
  run.value = { stage: "starting", what, read: 0, readTotal, isCapture: file !== null, packets: null, report: null, why: null };
  try {
    const started = await api.startRun(request);
    if (mine.signal.aborted) {
      await api.endRun(started.run);
      return;
    }
    number = started.run;
    const path = `/api/runs/${encodeURIComponent(started.run)}/watch`;
    const watching = readLines(path, mine.signal, (line) => take(line as RunLine));
    update({ stage: file === null ? "running" : "uploading" });
    const upload = file === null ? Promise.resolve() : api.upload(started.run, file, mine.signal).then(() => {
      if (run.value?.stage === "uploading") update({ stage: "running" });
    });
    // An upload that fails ends the run; a stream that fails ends the upload.
    await Promise.all([upload, watching]);
    if (!mine.signal.aborted && run.value?.stage !== "failed") {
      const wasDone = run.value?.stage === "done";
      failed(new ApiError(0, wasDone ? "weir ui has ended, and deleted the report" : "weir ui has ended the run"));
    }
  } catch (error) {
    if (mine.signal.aborted) return;
    failed(error);
    void remove();
  }
}

function take(line: RunLine): void {
  if (run.value === null || typeof line !== "object" || line === null) return;
  if ("progress" in line) {
    update({ read: line.progress.bytes, readTotal: line.progress.bytes_total });
  } else if ("done" in line) {
    update({ stage: "done", read: run.value.readTotal, report: safeReport(line.done.report), packets: line.done.summary?.capture?.packets ?? null });
  } else if ("failed" in line) {
    update({ stage: "failed", why: String(line.failed) });
    void remove();
  }
}

/** The address of a report is one of this server's, and of a report. */
function safeReport(path: unknown): string | null {
  return typeof path === "string" && /^\/report\/[A-Za-z0-9_-]{1,128}$/.test(path) ? path : null;
}

/** Ends the run and removes capture and report; the page then is as before it. */
export async function endRun(): Promise<void> {
  abort?.abort();
  abort = null;
  run.value = null;
  await remove();
}

async function remove(): Promise<void> {
  const ended = number;
  number = null;
  if (ended === null) return;
  try {
    await api.endRun(ended);
  } catch {
    // The server ends a run by itself when its stream is closed.
  }
}
