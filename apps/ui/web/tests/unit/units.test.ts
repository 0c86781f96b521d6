import assert from "node:assert/strict";
import test from "node:test";
import { bits, bytes, nanos, percent, perSecond, quantity, si, whole } from "../../src/model/units";

test("numbers have at most three digits and an SI prefix", () => {
  // The numbers of `grid.rs` of `weir top`.
  const expected: [number, string][] = [[0, "0"], [0.04, "0"], [7.5, "7.5"], [99.96, "100"], [999.4, "999"], [999.6, "1 k"], [12_345, "12.3 k"], [999_600, "1 M"], [4.5e6, "4.5 M"], [8e9, "8 G"], [1e17, "100 P"]];
  for (const [number, text] of expected) assert.equal(si(number), text);
  assert.equal(bits(24e6), "24 Mbit/s");
  assert.equal(perSecond(1234), "1.2 k/s");
  assert.equal(percent(0.125), "12.5 %");
  for (const text of [si(null), bits(undefined), percent(NaN), bytes(Infinity), nanos(null)]) assert.equal(text, "–");
});

test("memory has binary units", () => {
  assert.deepEqual([0, 1023, 1536, 64 * 2 ** 20, 2 ** 34].map(bytes), ["0 B", "1023 B", "1.5 KiB", "64 MiB", "16 GiB"]);
});

test("times and whole numbers are shown as weir shows them", () => {
  assert.deepEqual([0, 999, 1_500, 2e6, 61e9].map((ns) => nanos(ns)), ["0 ns", "999 ns", "1.5 us", "2 ms", "61 s"]);
  assert.equal(whole(1234567), "1\u202f234\u202f567");
});

test("quantities are read as weir reads them", () => {
  assert.deepEqual(["250ns", "1.5ms", "0.1s", "2 s", "1h"].map((text) => quantity(text, "time")), [250, 1.5e6, 1e8, 2e9, 3.6e12]);
  for (const text of ["", "5", "s", "1.s5", "-1s", "1d", "1 MiB", "2  s"]) assert.equal(quantity(text, "time"), null, text);
  assert.deepEqual(["4096", "64 KiB", "16MiB", "1 GB"].map((text) => quantity(text, "bytes")), [4096, 65536, 16 * 2 ** 20, 1e9]);
  assert.deepEqual(["9600bit/s", "64 kbit/s"].map((text) => quantity(text, "rate")), [9600, 64000]);
  assert.equal(quantity("5", "rate"), null);
});
