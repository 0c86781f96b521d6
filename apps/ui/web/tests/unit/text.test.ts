import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import { cut, shortKey, shown } from "../../src/model/text";

test("control characters and those that reorder text are escaped as weir's commands escape them", () => {
  // The example is that of `core/units/src/text.rs`.
  assert.equal(shown("a\u001b]0;t\u0007\r\n\u009b1mé\u202e"), "a\\u{1b}]0;t\\u{7}\\r\\n\\u{9b}1mé\\u{202e}");
  assert.equal(shown("plain, é, 日本, 😀"), "plain, é, 日本, 😀");
  assert.equal(shown("\u{e0041}\ud800"), "\\u{e0041}\\u{d800}");
  assert.equal(shown("<b>&amp;</b>"), "<b>&amp;</b>", "markup is text, and stays as it is");
});

test("the characters that are escaped are those of weir", () => {
  const source = readFileSync("../../../core/units/src/text.rs", "utf8");
  const body = /matches!\(c,([^)]*)\)/.exec(source)?.[1] ?? "";
  const ranges = [...body.matchAll(/'\\u\{([0-9a-f]+)\}'(?:\.\.='\\u\{([0-9a-f]+)\}')?/g)];
  assert.ok(ranges.length >= 12, "the list was found in the source");
  for (const [, first = "", last = first] of ranges) {
    for (const code of [parseInt(first, 16), parseInt(last, 16)]) assert.notEqual(shown(String.fromCodePoint(code)), String.fromCodePoint(code), first);
    for (const code of [parseInt(first, 16) - 1, parseInt(last, 16) + 1]) {
      const isListed = ranges.some(([, from = "", to = from]) => parseInt(from, 16) <= code && code <= parseInt(to, 16));
      assert.equal(shown(String.fromCodePoint(code)) !== String.fromCodePoint(code), isListed, code.toString(16));
    }
  }
});

test("values of any kind become text", () => {
  assert.equal(shown(null), "");
  assert.equal(shown({ a: [1] }), '{"a":[1]}');
  assert.equal(shown(0.5), "0.5");
  assert.equal(shown(true), "true");
});

test("long texts are cut, and never within a character of two units", () => {
  assert.equal(cut("abcdef", 6), "abcdef");
  assert.equal(cut("abcdefg", 6), "abcde…");
  assert.equal(cut("abcd😀fg", 6), "abcd…");
  assert.equal(shortKey("weir-key:5jfgyy7ctrjavpxvkb5rglwf7g"), "weir-key:5jfgyy…rglwf7g".replace("rglwf7g", "glwf7g"));
  assert.equal(shortKey("short"), "short");
  assert.equal(shortKey("weir-id:66efnngmdizrmuhrqijb3duroyfvtsr6@2026-12-15T00:00:00Z"), "weir-id:66efnn…fvtsr6");
});
