import { useMemo, useState } from "preact/hooks";
import { api, type Ledger, type LedgerTable } from "../api";
import { dateTime, fieldOf, secondsOfField, zone } from "../model/time";
import { columnsOf, compareCells, matching, rowName, sums, textOf, titleOf } from "../model/ledger";
import { shown } from "../model/text";
import { useLoaded } from "../parts/load";
import { SortHead, Table } from "../parts/table";
import { Foreign, Problem, Title } from "../parts/text";

const RANGES: [string, number | null][] = [["all", null], ["last hour", 3_600], ["last day", 86_400], ["last week", 604_800], ["last 30 days", 2_592_000]];

/** Usage by session and by holder, from the node's ledger; `holder` is the key of the holder to begin with, or empty. */
export function LedgerPage({ holder }: { holder: string }) {
  const [range, setRange] = useState<{ since: number | null; until: number | null }>({ since: null, until: null });
  const [by, setBy] = useState<"session" | "holder">(holder === "" ? "session" : "holder");
  const [wanted, setWanted] = useState(holder);
  const [all, setAll] = useState(false);
  const { value, problem, isLoading, reload } = useLoaded(() => api.ledger(range.since, range.until), [range.since, range.until]);
  const [failed, setFailed] = useState<string | null>(null);
  const download = (format: "csv" | "parquet") => {
    setFailed(null);
    save(format, range).catch((error: unknown) => setFailed(error instanceof Error ? error.message : String(error)));
  };
  const show = (next: "session" | "holder") => {
    setBy(next);
    setWanted("");
  };
  const table = value === null ? null : by === "session" ? value : value.holders;
  return (
    <>
      <Title side={<>
        <button type="button" onClick={reload}>Refresh</button>
        <button type="button" onClick={() => download("csv")}>Download CSV</button>
        <button type="button" onClick={() => download("parquet")}>Download Parquet</button>
      </>}>Ledger</Title>
      <section aria-label="Ledger">
        <RangeForm range={range} setRange={setRange} />
        {problem !== null && <Problem text={problem} />}
        {failed !== null && <Problem text={`The download failed: ${failed}`} />}
        {value !== null && <Verified verified={value.verified} />}
        <div class="title">
          <div class="segments" role="group" aria-label="Totals">
            <button type="button" aria-pressed={by === "session"} onClick={() => show("session")}>By session</button>
            <button type="button" aria-pressed={by === "holder"} onClick={() => show("holder")}>By holder</button>
          </div>
          <div class="side">
            <label class="check"><input type="checkbox" checked={all} onChange={(event) => setAll(event.currentTarget.checked)} /> all columns</label>
            <label><span class="hidden">Filter rows by name or key</span><input type="search" placeholder="Name or key" value={wanted} onInput={(event) => setWanted(event.currentTarget.value)} /></label>
          </div>
        </div>
        <p class="soft">{by === "session" ? "Requests of a holder outside of sessions, such as compiling, have a row of their own." : "A holder's row has the holder's own sessions and requests. Delegates have rows of their own."}</p>
        {table === null ? <p class="soft">{isLoading ? "Loading …" : ""}</p> : <Totals key={by} table={matching(table, wanted)} all={all} first={by === "session" ? "Session" : "Holder"} isFiltered={wanted.trim() !== ""} />}
      </section>
    </>
  );
}

async function save(format: "csv" | "parquet", range: { since: number | null; until: number | null }): Promise<void> {
  const blob = await (await api.ledgerFile(format, range.since, range.until)).blob();
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = `ledger.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function RangeForm({ range, setRange }: { range: { since: number | null; until: number | null }; setRange: (range: { since: number | null; until: number | null }) => void }) {
  const field = (seconds: number | null) => (seconds === null ? "" : fieldOf(seconds * 1000));
  const isReversed = range.since !== null && range.until !== null && range.until <= range.since;
  return (
    <div class="filters">
      <div class="field"><span id="presets">Time</span>
        <div class="segments" role="group" aria-labelledby="presets">{RANGES.map(([text, seconds]) => (
          <button type="button" aria-pressed={seconds === null && range.since === null && range.until === null}
            onClick={() => setRange({ since: seconds === null ? null : Math.floor(Date.now() / 1000) - seconds, until: null })}>{text}</button>
        ))}</div>
      </div>
      <label class="field"><span>From</span><input type="datetime-local" value={field(range.since)} onChange={(event) => setRange({ ...range, since: secondsOfField(event.currentTarget.value) })} /></label>
      <label class="field"><span>Until</span><input type="datetime-local" value={field(range.until)} onChange={(event) => setRange({ ...range, until: secondsOfField(event.currentTarget.value) })} /></label>
      {isReversed && <p class="bad">▲ The end is not after the beginning.</p>}
      {range.since !== null && <p class="soft">From {dateTime(range.since * 1000)}{range.until === null ? "" : ` until ${dateTime(range.until * 1000)}`}, {zone()}</p>}
    </div>
  );
}

const CHAIN = { whole: "The chain is whole", broken: "The chain is broken", unknown: "The chain is not verified" };

function Verified({ verified: { state, text } }: { verified: Ledger["verified"] }) {
  const words = Object.hasOwn(CHAIN, state) ? CHAIN[state] : CHAIN.unknown;
  const [name, sign] = state === "whole" ? ["good", "●"] : state === "broken" ? ["bad", "▲"] : ["soft", "○"];
  return <p role={state === "broken" ? "alert" : undefined}><span class={name}><span aria-hidden="true">{sign}</span> {words}.</span> <span class="soft"><Foreign text={text} max={240} /></span></p>;
}

function Totals({ table, all, first, isFiltered }: { table: LedgerTable; all: boolean; first: string; isFiltered: boolean }) {
  const [sort, setSort] = useState<{ key: string; direction: 1 | -1 }>({ key: "", direction: 1 });
  const columns = useMemo(() => columnsOf(table, all), [table, all]);
  const at = sort.key === "" ? 0 : (columns.find(({ key }) => key === sort.key)?.at ?? 0);
  const rows = table.rows.slice().sort((a, b) => compareCells(a[at] ?? null, b[at] ?? null) * sort.direction);
  const head = {
    sort,
    onSort: (key: string) => setSort({ key, direction: sort.key === key ? (sort.direction === 1 ? -1 : 1) : key === "" ? 1 : -1 }),
  };
  if (rows.length === 0) return <p class="soft">{isFiltered ? "No row has this name or key." : "The ledger has no usage in this time."}</p>;
  const total = sums(table);
  return (
    <Table label={`Totals by ${first.toLowerCase()}`} class="ledger">
      <thead><tr>
        <SortHead id="" title={first} {...head} />
        {columns.map((column) => <SortHead id={column.key} title={titleOf(column)} isNumber {...head} />)}
      </tr></thead>
      <tbody>{rows.slice(0, 5_000).map((row) => (
        <tr key={String(row[0])}><th scope="row"><span title={shown(row[0])}>{rowName(row[0])}</span></th>{columns.map((column) => <td class="n">{textOf(row[column.at] ?? null)}</td>)}</tr>
      ))}</tbody>
      <tfoot><tr><th scope="row">Sum</th>{columns.map((column) => <td class="n">{textOf(total[column.at] ?? null)}</td>)}</tr></tfoot>
    </Table>
  );
}
