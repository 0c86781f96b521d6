import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { CAUSE_NAMES, causeOf, isLoss } from "../../src/model/causes";
import { askedFor, eventOf, filtered, grouped, hintOf, outcomeOf, timesOf, whoOf } from "../../src/model/decisions";
import { columnsOf, matching, rowName, sums, textOf, titleOf } from "../../src/model/ledger";
import { LIMIT_KEYS, limitsOf } from "../../src/model/limits";
import { LossMeter, lossRate, lossWords } from "../../src/model/losses";
import { Streams, ROWS_MAX } from "../../src/model/rows";
import { SAMPLES_MAX, Series, promisedCpu, sampleOfSession } from "../../src/model/samples";
import { measure, order, rowOf, stateOf, type SessionRow } from "../../src/model/sessions";
import type { SessionStatus, Snapshot } from "../../src/snapshot";
import type { Decision } from "../../src/api";

/** The example of the protocol's documentation. */
const EXAMPLE = JSON.parse(readFileSync("../../node/tests/snapshot.json", "utf8")) as Snapshot;
const modest = () => structuredClone(EXAMPLE.sessions[1]) as SessionStatus;

test("every cause of loss of the ledger has words, with its unit", () => {
  const source = readFileSync("../../../core/ledger/src/cause.rs", "utf8");
  const causes = [...source.matchAll(/^\s+\w+ = "([a-z-]+)", (Packet|Record|Message);/gm)];
  assert.ok(causes.length >= 25);
  assert.deepEqual([...CAUSE_NAMES].sort(), causes.map(([, name = ""]) => name).sort());
  for (const [, name = "", unit = ""] of causes) assert.equal(causeOf(name).unit, `${unit.toLowerCase()}s`, name);
  assert.equal(causeOf("constructor").short, "constructor", "a name of an object's own is no cause");
  assert.ok(!isLoss("verdict"));
});

test("losses have a rate once there is an earlier snapshot of the same run", () => {
  const meter = new LossMeter();
  assert.equal(meter.update(EXAMPLE).get("modest")?.[0]?.rate, null);
  const later = structuredClone(EXAMPLE);
  later.uptime_ns += 2e9;
  const session = later.sessions[1];
  assert.ok(session?.channels[0]);
  session.channels[0].drops["lagged"] = 9;
  session.channels[0].drops["shed"] = 100;
  (session.used as { drops: Record<string, number> }).drops["verdict"] = 500;
  const losses = meter.update(later).get("modest") ?? [];
  assert.deepEqual(losses.find((loss) => loss.cause === "lagged"), { cause: "lagged", count: 9, rate: 2 });
  assert.equal(lossRate(losses), 52, "a verdict is no loss");
  assert.equal(lossWords(losses), "core overloaded, module lags");
  session.channels[0].drops["constructor"] = 5;
  assert.equal(meter.update({ ...later, uptime_ns: later.uptime_ns + 1e9 }).get("modest")?.find((loss) => loss.cause === "constructor")?.rate, 5);
  // A node that was started again counts anew.
  assert.equal(meter.update({ ...later, uptime_ns: 1 }).get("modest")?.[0]?.rate, null);
});

test("a bar shows received against promised", () => {
  const half = measure(0.1, 0.2, String);
  assert.deepEqual([half.fill, half.mark, half.promised], [0.5, 1, "0.2"]);
  const beyond = measure(0.4, 0.2, String);
  assert.deepEqual([beyond.fill, beyond.mark], [1, 0.5]);
  assert.deepEqual([measure(null, 0, String).fill, measure(null, 0, String).mark, measure(NaN, 1, String).fill], [0, -1, 0]);
});

test("a session's row says what it gets and what it lost", () => {
  const row = rowOf(modest(), { cpu: 0.21, spare: 0, packets: 500, drops: 5, records: 25, processors: [], channels: [], outputs: [], modules: [] }, [{ cause: "queue-full", count: 20, rate: 5 }]);
  assert.deepEqual([row.cpu.text, row.cpu.promised, row.memory.text, row.losses.text, row.cause, row.state], ["21.0 %", "20 %", "8 MiB", "5/s", "queue full", "running"]);
  assert.equal(promisedCpu(modest()), 0.2);
  const ended = { ...modest(), ended: [{ ...(modest().modules[0] as object), name: "\u001bx", state: "strikes" }] } as SessionStatus;
  assert.deepEqual(stateOf(ended), { text: "\\u{1b}x: strikes", isRunning: false });
});

test("rows are sorted by any column, and filtered by name, state and losses", () => {
  const rows = ["b", "a", "c"].map((name, n) => ({ name, state: "running", losses: { value: n, text: "" }, cpu: { value: [1, 1, 0][n] } }) as SessionRow);
  const all = { text: "", onlyLosing: false };
  assert.deepEqual(order(rows, { key: "name", direction: 1 }, all), ["a", "b", "c"]);
  assert.deepEqual(order(rows, { key: "cpu", direction: -1 }, all), ["a", "b", "c"], "equal values are in the order of names");
  assert.deepEqual(order(rows, { key: "losses", direction: -1 }, { text: "", onlyLosing: true }), ["c", "a"]);
  assert.deepEqual(order(rows, { key: "name", direction: 1 }, { text: " B ", onlyLosing: false }), ["b"]);
});

test("a series keeps an hour, continues a history and knows gaps", () => {
  const series = new Series();
  for (let n = 0; n < SAMPLES_MAX + 50; n += 1) series.add(n * 1000, n === 0 ? { cpu: 0 } : { cpu: n, late: n });
  assert.equal(series.at.length, SAMPLES_MAX);
  assert.deepEqual([series.at[0], series.column("cpu").length, series.column("cpu").at(-1)], [50, SAMPLES_MAX, SAMPLES_MAX + 49]);
  assert.equal(series.column("none")[5], null);
  series.add(SAMPLES_MAX * 1000, { cpu: 9 });
  assert.equal(series.at.length, SAMPLES_MAX, "an older sample is not added");
  const next = new Series();
  next.add(5000, { cpu: 5 });
  next.add(6000, { cpu: 6 });
  next.load({ at_ms: [3000, 4000, 5000], columns: { cpu: [3, null, 5], memory: [1, 2] } });
  assert.deepEqual([next.at, next.column("cpu"), next.column("memory")], [[3, 4, 5, 6], [3, null, 5, 6], [1, 2, null, null]]);
});

test("a series has a gap where samples are missing, and begins anew if the clock was set back", () => {
  const series = new Series();
  series.add(1000, { cpu: 1 });
  series.add(3000, { cpu: 3 });
  series.add(60_000, { cpu: 60 });
  assert.deepEqual([series.at, series.column("cpu")], [[1, 3, 4, 60], [1, 3, null, 60]]);
  series.add(59_000, { cpu: 59 });
  assert.equal(series.at.length, 4);
  const loaded = new Series();
  loaded.load({ at_ms: [1000, 3000, 60_000], columns: { cpu: [1, 3, 60] } });
  assert.deepEqual([loaded.at, loaded.column("cpu")], [[1, 3, 4, 60], [1, 3, null, 60]], "and in a history of the server, too");
  series.load({ at_ms: [1_000_000], columns: {} });
  series.add(5000, { cpu: 5 });
  assert.deepEqual([series.at, series.column("cpu")], [[5], [5]]);
});

test("a sample of a session is what the server's history has", () => {
  const sample = sampleOfSession(modest(), { cpu: 0.2, spare: 0, packets: 1, drops: null, records: 2, processors: [], channels: [], outputs: [], modules: [] });
  assert.deepEqual(sample, { cpu: 0.2, cpu_promised: 0.2, memory: 8388608, memory_promised: 33554432, bandwidth: 0, bandwidth_promised: 0, packets: 1, drops: null, records: 2 });
});

test("followed rows are bounded", () => {
  const streams = new Streams();
  streams.take({ streams: [{ name: "a.b", columns: [] }] });
  for (let n = 0; n < 20; n += 1) streams.take({ stream: "a.b", rows: Array.from({ length: 100 }, () => ({})), skipped: 1 });
  streams.take({ stream: "unknown", rows: [{}], skipped: 0 });
  streams.take({ missed: 12 });
  const stream = streams.all.get("a.b");
  assert.deepEqual([stream?.rows.length, stream?.total, stream?.skipped, streams.missed, stream?.rows.at(-1)?.id], [ROWS_MAX, 2000, 20, 12, 1999]);
});

test("decisions are told in words and filtered", () => {
  const decision: Decision = { begin_ms: 0, end_ms: 0, request: "create", session: "more", outcome: "refused", count: 1, who: "weir-key:abcdefghijklmnopqrstuv", credentials: [], reason: null, advice: [] };
  assert.equal(`${whoOf(decision)} asked ${askedFor(decision)}`, "weir-key:abcdef…qrstuv asked to create the session");
  assert.equal(askedFor({ ...decision, request: "constructor", session: null }), "for “constructor”");
  assert.equal(outcomeOf("\u202e"), "\\u{202e}");
  const list = [decision, { ...decision, outcome: "allowed", who: null }];
  assert.equal(filtered(list, { outcome: "refused", session: "", who: "" }).length, 1);
  assert.equal(filtered(list, { outcome: "all", session: "MO", who: "oper" }).length, 1);
});

test("every request of the node's ledger has words, and so has every entry without a request", () => {
  const plain: Decision = { begin_ms: 0, end_ms: 0, request: "", session: null, outcome: "allowed", count: 1, who: null, credentials: [], reason: null };
  const audit = readFileSync("../../node/src/control/audit.rs", "utf8");
  const words = [...audit.matchAll(/^ +ControlRequest::\w+.*=> \("([a-z-]+)", /gm)].map(([, word = ""]) => word);
  assert.ok(words.length >= 20);
  words.push(...[...audit.matchAll(/called\("(\([a-z ]+\))"\)/g)].map(([, word = ""]) => word));
  assert.ok(words.includes("(not read)"));
  for (const request of words) assert.doesNotMatch(askedFor({ ...plain, request }), /“/, request);
  const events = [...readFileSync("../src/ledger.rs", "utf8").matchAll(/request: "(\([a-z ]+\))"/g)].map(([, word = ""]) => word);
  assert.equal(events.length, 3);
  for (const request of events) assert.equal(typeof eventOf({ ...plain, request }), "string", request);
  assert.equal(eventOf({ ...plain, request: "constructor" }), null);
  const unlisted = { ...plain, request: "(not listed singly)", count: 40_012, who: null };
  assert.equal(eventOf(unlisted), "The node did not list 40\u202f012 requests one by one");
  assert.equal(timesOf(unlisted) + timesOf({ ...plain, count: 3 }) + timesOf({ ...plain, count: 1 }), ", 3 times");
  assert.deepEqual(filtered([unlisted], { outcome: "all", session: "", who: "operator" }), [], "it has no requester");
});

test("equal refusals are one, whatever the time in their reason", () => {
  const at = (end_ms: number, other: Partial<Decision> = {}): Decision => ({ begin_ms: end_ms - 1, end_ms, request: "connect", session: null, outcome: "refused", count: 2, who: "k", credentials: [], reason: `expired: it is 2026-11-28T14:53:${10 + end_ms}Z`, ...other });
  const list = [at(9), at(8, { who: "other" }), at(7, { outcome: "allowed" }), at(6), at(5, { outcome: "allowed" }), at(4, { reason: "revoked" })];
  const merged = grouped(list);
  assert.deepEqual(merged.map(({ begin_ms, end_ms, count }) => [begin_ms, end_ms, count]), [[5, 9, 4], [7, 8, 2], [6, 7, 2], [4, 5, 2], [3, 4, 2]]);
  assert.equal(list[0]?.count, 2, "the given list stays as it is");
});

test("an advised command says what is to fill in and who runs it", () => {
  assert.equal(hintOf("weir session change x --memory 1", false), "");
  assert.match(hintOf("weir grant --key KEY --to k --module MODULE", false), /^Fill in KEY and MODULE\. The root runs this/);
  assert.match(hintOf("weir delegate CREDENTIAL --key KEY --to k", false), /^Fill in KEY and CREDENTIAL\. The holder who has delegated/);
  assert.equal(hintOf("weir grant --key KEY --to k --module rtt", true), "Fill in KEY. The root runs this, with --out FILE. It keeps the other rights of the present credential.");
  assert.match(hintOf("weir delegate CREDENTIAL --key KEY --to k", true), /^Fill in KEY and CREDENTIAL\. The holder who has delegated runs this, with --out FILE\. It keeps/);
});

test("rows of the ledger are found by name or key, and their names and headings are for people", () => {
  const key = "weir-key:w3bx6j275uaeh2c6jh4fxme34epc2lua6j6ctzw2d3emz77catmor6sc";
  const table = { columns: [], rows: [["alice"], [key], [`(requests of ${key})`]] };
  assert.equal(matching(table, " W3BX ").rows.length, 2);
  assert.equal(matching(table, " ").rows.length, 3);
  assert.deepEqual(table.rows.map(([name]) => rowName(name)), ["alice", "weir-key:w3bx6j…mor6sc", "(requests of weir-key:w3bx6j…mor6sc)"]);
  const title = (key: string, title: string, unit: string) => titleOf({ key, title, unit });
  assert.deepEqual([title("cpu_s", "cpu", "s"), title("stolen_s", "stolen", "s"), title("packets_in", "packets in", "packets"), title("bytes_in", "bytes in", "B"), title("memory_mib_h", "memory mib h", "MiB·h"), title("x", "x", "")],
    ["CPU time, s", "stolen, s", "packets in", "bytes in", "memory, MiB·h", "x"]);
});

test("the ledger's columns without values are left out, and sums are right", () => {
  const table = { columns: [{ key: "a", title: "A", unit: "" }, { key: "b", title: "B", unit: "" }], rows: [["x", 1.5, 0], ["y", 2, null]] };
  assert.deepEqual(columnsOf(table, false).map(({ key, at }) => [key, at]), [["a", 1]]);
  assert.equal(columnsOf(table, true).length, 2);
  const about = { columns: ["id", "begin", "a"].map((key) => ({ key, title: key, unit: "" })), rows: [["x", 7, "t", 1]] };
  assert.deepEqual(columnsOf(about, false).map(({ key, at }) => [key, at]), [["a", 3]], "columns about the row are no usage");
  assert.deepEqual(columnsOf(about, true).map(({ at }) => at), [3, 1, 2], "and the last of all columns");
  assert.deepEqual(sums(table), [null, 3.5, 0]);
  assert.deepEqual([textOf(1234.5), textOf(0.0001), textOf(12.3456), textOf(null), textOf("\n")], ["1\u202f234.5", "0", "12.346", "–", "\\n"]);
});

test("the limits of a session are those of the table of resources", () => {
  const source = readFileSync("../../../core/trust/src/grant/resource.rs", "utf8");
  const keys = [...source.matchAll(/^\s+key: "([a-z_]+)"/gm)].map(([, key = ""]) => key).filter((key) => key.startsWith("record") || key.startsWith("kept"));
  assert.ok(keys.length >= 8);
  assert.deepEqual([...LIMIT_KEYS].sort(), [...new Set(keys)].sort());
  assert.deepEqual(limitsOf({ record_storage: 1e9, record_storage_used: 4e6, records_over_rate: 1200, writes: "ttl" }), [
    { title: "Records per second", limit: "none", use: "–", excess: "1\u202f200 lost" },
    { title: "Kept records", limit: "1 GB", use: "4 MB", excess: "" },
  ]);
});
