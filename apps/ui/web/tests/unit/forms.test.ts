import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import type { ParameterInfo } from "../../src/api";
import { faultOf, limits } from "../../src/model/parameters";
import { changeOf, faultsOf, formOf } from "../../src/model/share";
import { countdown, dateTime, localTime, secondsOfField, fieldOf, span } from "../../src/model/time";
import type { SessionStatus, Snapshot } from "../../src/snapshot";

const EXAMPLE = JSON.parse(readFileSync("../../node/tests/snapshot.json", "utf8")) as Snapshot;
const session = (): SessionStatus => ({
  ...structuredClone(EXAMPLE.sessions[1] as SessionStatus),
  outputs: [{ name: "up", link: "eth1", tap: "weir0", reserved_bits: 25_000_000, cap_bits: 0, weight: 0, filter: "udp", waiting: 3, queue: 256, packets: 9, bytes: 9, wire_bytes: 9, drops: {} }],
});

test("a form begins with exact amounts, and without a change there is no request", () => {
  const form = formOf(session());
  assert.deepEqual([form.memory, form.cpu[0]?.period, form.cpu[0]?.slice, form.outputs[0]?.reserve, form.outputs[0]?.cap], ["32 MiB", "10 ms", "2 ms", "25 Mbit/s", ""]);
  assert.deepEqual(faultsOf(form), {});
  assert.equal(changeOf(session(), form, structuredClone(form)), null);
  assert.deepEqual(formOf({ ...session(), memory_reserved: 1025 }).memory, "1025 B");
});

test("a request has the differences alone, and an output keeps what the form does not have", () => {
  const [from, to] = [formOf(session()), formOf(session())];
  assert.ok(to.cpu[0] && to.outputs[0]);
  to.cpu[0].slice = " 3 ms ";
  to.outputs[0].cap = "40 Mbit/s";
  assert.deepEqual(changeOf(session(), from, to), {
    session: "modest",
    cpu: [{ name: "main", core: 1, borrow: false, period: "10 ms", slice: "3 ms" }],
    output: [{ name: "up", link: "eth1", weight: 0, queue: 256, reserve: "25 Mbit/s", cap: "40 Mbit/s", filter: "udp", tap: "weir0" }],
  });
  assert.deepEqual(changeOf(session(), to, from)?.cpu?.[0]?.slice, "2 ms", "the other way round it is undone");
});

test("faults are found before anything is sent", () => {
  const form = formOf(session());
  assert.ok(form.cpu[0] && form.outputs[0]);
  Object.assign(form, { memory: "lots" });
  Object.assign(form.cpu[0], { slice: "20 ms", weight: "0" });
  Object.assign(form.outputs[0], { cap: "1 Mbit/s", reserve: "fast" });
  assert.deepEqual(Object.keys(faultsOf(form)), ["memory", "slice main", "weight main", "reserve up"]);
  Object.assign(form.cpu[0], { slice: "", period: "10 ms" });
  assert.match(faultsOf(form)["slice main"] ?? "", /^Give/);
});

test("parameters are checked by the types and limits of the manifest", () => {
  const parameter = (type: string, more: Partial<ParameterInfo> = {}): ParameterInfo => ({ name: "p", type, description: "", default: "1", min: null, max: null, unit: null, ...more });
  const right: [ParameterInfo, string][] = [
    [parameter("u64", { min: 1, max: 65535 }), "53"], [parameter("u64", { max: "18446744073709551615" }), "18446744073709551615"], [parameter("i64", { min: -5 }), "-5"],
    [parameter("f64", { max: 0.5 }), "0.25"], [parameter("bool"), "true"], [parameter("duration", { min: "1s", max: "10m" }), "2 s"], [parameter("enum", { values: ["a"] }), "a"],
    [parameter("prefix"), "2001:db8::/32"], [parameter("prefix-list"), "10.0.0.0/8, 192.0.2.1"], [parameter("u64-list"), "53,123"], [parameter("string"), "any\\n"], [parameter("u64"), ""],
  ];
  for (const [it, value] of right) assert.equal(faultOf(it, value), null, `${it.type} ${value}`);
  const wrong: [ParameterInfo, string][] = [
    [parameter("u64", { max: 65535 }), "65536"], [parameter("u64"), "-1"], [parameter("u64"), "1e3"], [parameter("i64", { min: -5 }), "-6"], [parameter("f64"), "NaN"], [parameter("f64", { max: 0.5 }), "0.6"],
    [parameter("bool"), "yes"], [parameter("duration", { max: "10m" }), "11m"], [parameter("duration"), "5"], [parameter("enum", { values: ["a"] }), "b"], [parameter("prefix"), "10.0.0.0/33"],
    [parameter("prefix"), "300.0.0.1"], [parameter("prefix-list"), "10.0.0.0/8,"], [parameter("u64-list"), "53,,"], [parameter("string"), "x".repeat(5000)], [parameter("u64", { default: null }), ""],
  ];
  for (const [it, value] of wrong) assert.notEqual(faultOf(it, value), null, `${it.type} ${value}`);
  assert.equal(limits(1, 9, "packets"), "from 1 to 9 packets");
});

test("times are in the browser's zone", () => {
  assert.equal(process.env["TZ"], "Asia/Kolkata", "the test sets a zone of its own");
  assert.equal(dateTime(0), "1970-01-01 05:30:00");
  assert.equal(dateTime(NaN), "–");
  assert.equal(localTime("2026-11-28T10:00:00.123456789Z"), "2026-11-28 15:30:00.123456789");
  assert.equal(localTime("yesterday"), "yesterday");
  assert.equal(secondsOfField(fieldOf(1_800_000_000_000)), 1_800_000_000);
  assert.equal(secondsOfField(""), null);
  assert.deepEqual([span(0), span(61), span(3600), span(90_061)], ["0 s", "1 min 1 s", "1 h", "1 d 1 h"]);
  assert.deepEqual([countdown(100, 0), countdown(0, 5_000)], ["in 1 min 40 s", "5 s ago"]);
});
