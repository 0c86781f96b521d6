import { useEffect, useRef, useState } from "preact/hooks";
import { query, type RowsLine, type StreamInfo } from "../api";
import { readLines } from "../lines";
import { ROWS_MAX, ROWS_SHOWN, Streams, type Stream } from "../model/rows";
import { cut, plural, shown } from "../model/text";
import { localTime } from "../model/time";
import { whole } from "../model/units";
import { Table } from "./table";
import { Foreign, Problem } from "./text";

/** The rows of a session's streams as they arrive. Following begins with a button, since the node notes and pays it. */
export function Rows({ session, streams, isHidden }: { session: string; streams: string[]; isHidden: boolean }) {
  const [isOn, setOn] = useState(false);
  return (
    <section aria-labelledby="rows">
      <div class="title"><h2 id="rows">Rows</h2>
        <div class="side">{streams.length > 0 && <button type="button" aria-pressed={isOn} onClick={() => setOn(!isOn)}>{isOn ? "Stop" : "Follow rows"}</button>}</div>
      </div>
      {streams.length === 0 && <p class="soft">{isHidden ? "The holder of this session does not share its rows." : "No module of this session has a record stream."}</p>}
      {streams.length > 0 && !isOn && <p class="soft">{plural(streams.length, "stream")}: {streams.slice(0, 12).map((name) => shown(name)).join(", ")}</p>}
      {isOn && <Following session={session} />}
    </section>
  );
}

function Following({ session }: { session: string }) {
  const streams = useRef(new Streams());
  const [, setVersion] = useState(0);
  const [problem, setProblem] = useState<string | null>(null);
  const [isConnected, setConnected] = useState(false);
  const [chosen, setChosen] = useState<string | null>(null);
  useEffect(() => {
    const abort = new AbortController();
    let frame = 0;
    // Lines can come faster than the screen changes.
    const refresh = () => {
      if (frame === 0) frame = window.setTimeout(() => { frame = 0; setVersion((n) => n + 1); }, 200);
    };
    readLines(`/api/rows${query({ session })}`, abort.signal, (line) => {
      if (typeof line !== "object" || line === null) return;
      streams.current.take(line as RowsLine);
      setConnected(true);
      refresh();
    }).then(
      () => {
        const { end, error } = streams.current;
        if (!abort.signal.aborted && end === null && error === null) setProblem("weir ui has ended the connection");
      },
      (error: unknown) => {
        if (!abort.signal.aborted) setProblem(error instanceof Error ? error.message : String(error));
      },
    );
    return () => {
      abort.abort();
      clearTimeout(frame);
    };
  }, [session]);
  const { all, missed, end, error } = streams.current;
  const name = chosen ?? all.keys().next().value ?? null;
  const stream = name === null ? undefined : all.get(name);
  return (
    <>
      {problem !== null && <Problem text={problem} />}
      {error !== null && <Problem text={error} />}
      {end !== null && <p role="status"><Foreign text={end} max={200} />.</p>}
      {missed > 0 && <p class="bad">▲ The node left out {whole(missed)} rows, because they came faster than they were read.</p>}
      {!isConnected && problem === null && <p class="soft">Waiting for the first rows …</p>}
      {all.size > 1 && (
        <div class="segments" role="group" aria-label="Stream">
          {[...all.values()].map((it) => (
            <button type="button" aria-pressed={it.info.name === name} onClick={() => setChosen(it.info.name)}>{cut(shown(it.info.name), 40)} <span class="soft">{whole(it.total)}</span></button>
          ))}
        </div>
      )}
      {stream && <StreamTable key={stream.info.name} stream={stream} version={stream.total + stream.skipped} />}
    </>
  );
}

/** `version` tells that the stream, which is the same object, has other rows. */
function StreamTable({ stream }: { stream: Stream; version: number }) {
  const [paused, setPaused] = useState<Stream["rows"] | null>(null);
  // While rows stand still, more of them can be read.
  const rows = (paused ?? stream.rows.slice(-ROWS_SHOWN)).slice().reverse();
  const columns = stream.info.columns.slice(0, 64);
  const later = paused === null ? 0 : stream.total - 1 - (paused.at(-1)?.id ?? -1);
  return (
    <>
      <div class="title"><h3><Foreign text={stream.info.name} max={60} /></h3>
        <div class="side">
          <span class="soft">{whole(stream.total)} rows{stream.skipped > 0 ? `, ${whole(stream.skipped)} more left out` : ""}{later > 0 ? `, ${whole(later)} since the pause` : ""}</span>
          <button type="button" aria-pressed={paused !== null} onClick={() => setPaused(paused === null ? stream.rows.slice() : null)}>{paused === null ? "Pause" : "Go on"}</button>
        </div>
      </div>
      <Table label={`Rows of ${shown(stream.info.name)}`} class="rows">
        <thead><tr>{columns.map((column) => <th scope="col" class={isNumber(column.type) ? "n" : ""}>{cut(shown(column.name), 40)}{unitOf(column) ? <span class="soft"> {cut(shown(unitOf(column)), 12)}</span> : null}</th>)}</tr></thead>
        <tbody>{rows.map(({ id, row }) => (
          <tr key={id}>{columns.map((column) => <td class={isNumber(column.type) ? "n" : ""}><Foreign text={cellOf(column.type, row[column.name])} max={60} /></td>)}</tr>
        ))}</tbody>
      </Table>
      <p class="soft">{rows.length === 0 ? "No row has arrived yet." : `The newest ${whole(rows.length)} rows, newest first; at most ${ROWS_MAX} are kept.`}</p>
    </>
  );
}

/** Returns the unit of a column; times have it with their digits, and the unit 1 is none. */
function unitOf({ type, unit }: StreamInfo["columns"][number]): string {
  return type.startsWith("time") || unit === "1" ? "" : unit;
}

/** Returns a cell for display. A floating-point number has six digits: the others are hardly ever meant. */
function cellOf(type: string, value: unknown): unknown {
  if (type.startsWith("time")) return localTime(value);
  return typeof value === "number" && !Number.isInteger(value) ? Number(value.toPrecision(6)) : value;
}

function isNumber(type: string): boolean {
  return /^[uif]\d+$|^duration|^count/.test(type);
}
