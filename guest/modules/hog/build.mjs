// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Makes hog.wasm, or the file that is named: the compiler's module, without names, and the manifest as its last section.
// `npm ci` fetches the compiler, in the version of package-lock.json.

import asc from "assemblyscript/asc";
import { readFileSync, writeFileSync } from "node:fs";

const here = (name) => new URL(name, import.meta.url);

const OPTIONS = [
  "hog.ts",
  "--runtime", "incremental",
  // An abort has no host function to call: it traps.
  "--use", "abort=",
  "--exportStart", "_initialize",
  "-Oz", "--converge", "--noAssert",
  "--outFile", "hog.wasm",
];

let module;
const { error, stderr } = await asc.main(OPTIONS, {
  readFile: (name) => {
    try {
      return readFileSync(here(name), "utf8");
    } catch {
      return null;
    }
  },
  writeFile: (name, contents) => {
    if (name === "hog.wasm") module = contents;
  },
  listFiles: () => [],
});
if (error) {
  process.stderr.write(`${stderr}${error.message}\n`);
  process.exit(1);
}

/** A number as WebAssembly writes it: LEB128. */
function number(value) {
  const bytes = [];
  for (; value >= 0x80; value >>>= 7) bytes.push((value & 0x7f) | 0x80);
  return Buffer.from([...bytes, value]);
}

const name = Buffer.from("weir.manifest");
const section = Buffer.concat([number(name.length), name, readFileSync(here("weir.toml"))]);
writeFileSync(process.argv[2] ?? here("hog.wasm"), Buffer.concat([module, Buffer.from([0]), number(section.length), section]));
