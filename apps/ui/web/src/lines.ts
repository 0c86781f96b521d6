// Newline-delimited JSON from the server, line by line.

import { ApiError, send } from "./api";

/** The longest line that is read, in characters. A snapshot of a node is at most 64 MiB. */
const LINE_MAX = 70_000_000;

/** Calls `handle` with each line of a stream, until it ends. Throws at an error or at a line that is not JSON. */
export async function readLines(path: string, signal: AbortSignal, handle: (line: unknown) => void): Promise<void> {
  const response = await send("GET", path, undefined, { signal });
  if (response.body === null) throw new ApiError(response.status, "weir ui has sent an empty answer");
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  // The parts of the line that has not ended yet. They are joined once, at its end.
  let parts: string[] = [];
  let length = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const [head = "", ...lines] = decoder.decode(value, { stream: true }).split("\n");
      parts.push(head);
      length += head.length;
      if (length > LINE_MAX) throw new ApiError(0, "weir ui has sent a line that is too long");
      if (lines.length === 0) continue;
      const next = lines.pop() ?? "";
      for (const line of [parts.join(""), ...lines]) if (line !== "") handle(parsed(line));
      [parts, length] = [[next], next.length];
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function parsed(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    throw new ApiError(0, "weir ui has sent a line that this page cannot read");
  }
}
