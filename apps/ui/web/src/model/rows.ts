// Rows of followed streams, of which only the newest are kept.

import type { RowsLine, StreamInfo } from "../api";

/** The rows that are kept of a stream, and those that are shown at once. */
export const ROWS_MAX = 500;
export const ROWS_SHOWN = 100;
/** The streams that are kept; a session has fewer. */
const STREAMS_MAX = 64;

export interface Stream {
  info: StreamInfo;
  /** Newest last. Each row has a number, which identifies it. */
  rows: { id: number; row: Record<string, unknown> }[];
  total: number;
  skipped: number;
}

export class Streams {
  readonly all = new Map<string, Stream>();
  missed = 0;
  end: string | null = null;
  error: string | null = null;

  /** Takes a line of `/api/rows`. */
  take(line: RowsLine): void {
    if ("streams" in line) {
      for (const info of line.streams.slice(0, STREAMS_MAX)) this.all.set(info.name, { info, rows: [], total: 0, skipped: 0 });
    } else if ("stream" in line) {
      const stream = this.all.get(line.stream);
      if (!stream) return;
      for (const row of line.rows) stream.rows.push({ id: stream.total++, row });
      if (stream.rows.length > ROWS_MAX) stream.rows.splice(0, stream.rows.length - ROWS_MAX);
      stream.skipped += line.skipped;
    } else if ("missed" in line) this.missed += line.missed;
    else if ("end" in line) this.end = line.end;
    else if ("error" in line) this.error = line.error;
  }
}
