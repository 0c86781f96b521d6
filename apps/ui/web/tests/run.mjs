// Runs all tests: those of the pure functions with Node's runner over sources without types, then those in a browser.

import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { CHROMIUM, isThere } from "./browser.mjs";

const HERE = new URL(".", import.meta.url).pathname;

await build({
  absWorkingDir: new URL("..", import.meta.url).pathname,
  entryPoints: readdirSync(new URL("unit/", import.meta.url)).filter((name) => name.endsWith(".test.ts")).map((name) => `tests/unit/${name}`),
  outdir: "out/unit", outExtension: { ".js": ".mjs" }, bundle: true, platform: "node", format: "esm", target: "node20", logLevel: "warning",
});
const test = (name, files) => {
  console.log(`== ${name}`);
  return spawnSync(process.execPath, ["--test", "--test-concurrency=1", "--test-reporter=spec", ...files], { stdio: "inherit", env: { ...process.env, TZ: "Asia/Kolkata" }, cwd: new URL("..", import.meta.url).pathname }).status === 0;
};
const built = new URL("../out/unit/", import.meta.url);
let isRight = test("unit tests", readdirSync(built).filter((name) => name.endsWith(".mjs")).map((name) => new URL(name, built).pathname));
if (process.argv[2] === "unit") {
  console.log("== browser tests: not asked for");
} else if (isThere) {
  isRight = test("browser tests", readdirSync(HERE).filter((name) => name.endsWith(".test.mjs")).map((name) => HERE + name)) && isRight;
} else {
  console.log(`== browser tests: SKIPPED, ${CHROMIUM} is not there (apt-get install chromium)`);
}
process.exit(isRight ? 0 : 1);
