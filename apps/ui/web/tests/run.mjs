// Runs all tests: those of the pure functions with Node's runner over sources without types, then those in a browser.

import { build } from "esbuild";
import { spawnSync } from "node:child_process";
import { readFileSync, readdirSync } from "node:fs";
import { CHROMIUM, isThere } from "./browser.mjs";

const HERE = new URL(".", import.meta.url).pathname;
const ROOT = new URL("..", import.meta.url).pathname;

await build({
  absWorkingDir: ROOT,
  entryPoints: readdirSync(new URL("unit/", import.meta.url)).filter((name) => name.endsWith(".test.ts")).map((name) => `tests/unit/${name}`),
  outdir: "out/unit", outExtension: { ".js": ".mjs" }, bundle: true, platform: "node", format: "esm", target: "node20", logLevel: "warning",
});
const test = (name, files) => {
  console.log(`== ${name}`);
  return spawnSync(process.execPath, ["--test", "--test-concurrency=1", "--test-reporter=spec", ...files], { stdio: "inherit", env: { ...process.env, TZ: "Asia/Kolkata" }, cwd: ROOT }).status === 0;
};
/** The committed files are those that the sources make, with the same version of Node. */
function isRebuilt() {
  console.log("== dist, byte for byte");
  const wanted = readFileSync(new URL("../TOOLCHAIN", import.meta.url), "utf8").trim();
  if (wanted !== `Node ${process.version}`) {
    console.log(`SKIPPED: this is Node ${process.version}, and TOOLCHAIN names ${wanted}`);
    return true;
  }
  if (spawnSync(process.execPath, ["build.mjs", "out/dist"], { stdio: "inherit", cwd: ROOT }).status !== 0) return false;
  const differing = ["index.html", "app.js", "app.css", "icon.svg"].filter((name) => !readFileSync(`${ROOT}dist/${name}`).equals(readFileSync(`${ROOT}out/dist/${name}`)));
  for (const name of differing) console.log(`dist/${name} is not what the sources make: npm run build`);
  return differing.length === 0;
}

const built = new URL("../out/unit/", import.meta.url);
let isRight = isRebuilt();
isRight = test("unit tests", readdirSync(built).filter((name) => name.endsWith(".mjs")).map((name) => new URL(name, built).pathname)) && isRight;
if (process.argv[2] === "unit") {
  console.log("== browser tests: not asked for");
} else if (isThere) {
  isRight = test("browser tests", readdirSync(HERE).filter((name) => name.endsWith(".test.mjs")).map((name) => HERE + name)) && isRight;
} else {
  console.log(`== browser tests: SKIPPED, ${CHROMIUM} is not there (apt-get install chromium)`);
}
process.exit(isRight ? 0 : 1);
