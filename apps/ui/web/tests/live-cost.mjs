// The cost of the page on a live node: node live-cost.mjs WEIR SOCKET NODE_PID SESSION, by `live_node.py`. The node has 200 sessions, of which
// SESSION has traffic, and an interval of the ledger of a second. Prints medians with quartiles, and the targets.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { start, stop } from "./browser.mjs";

const [weir, socket, pid, name] = process.argv.slice(2);
const ROUNDS = 7;
const ROUND_MS = 10_000;
const TICKS_PER_S = Number(execFileSync("getconf", ["CLK_TCK"]));
/** The share of a core with which a node may serve one page, and the browser show it. */
const [NODE_SHARE_MAX, BROWSER_SHARE_MAX, PAINT_MS_MAX] = [0.01, 0.1, 300];

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const quartiles = (values) => {
  const sorted = values.toSorted((a, b) => a - b);
  return [0.25, 0.5, 0.75].map((part) => sorted[Math.round(part * (sorted.length - 1))]);
};
function tell(what, values, scale, unit, most) {
  const [low, median, high] = quartiles(values);
  const text = (value) => (value * scale).toFixed(2);
  console.log(`${what}: median ${text(median)} ${unit} (quartiles ${text(low)} and ${text(high)}, ${values.length} rounds; target below ${text(most)} ${unit}): ${median < most ? "met" : "MISSED"}`);
}

/** Returns the processor time of the node's process in seconds, with that of threads that have ended. */
function nodeTime() {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").replace(/^.*\) /s, "").split(" ");
  return (Number(fields[11]) + Number(fields[12])) / TICKS_PER_S;
}

async function serve() {
  const process = spawn(weir, ["ui", "--socket", socket], { stdio: ["ignore", "pipe", "inherit"] });
  const address = await new Promise((resolve, reject) => {
    process.stdout.on("data", (data) => {
      const match = /http:\S+/.exec(String(data));
      if (match) resolve(match[0]);
    });
    process.on("exit", () => reject(new Error("weir ui has ended")));
  });
  return { process, address };
}

async function open(address) {
  const context = await (await start()).newContext({ viewport: { width: 1280, height: 900 } });
  const page = await context.newPage();
  await page.goto(address);
  await page.waitForFunction(() => document.querySelectorAll(".sessions tbody tr").length >= 200);
  return { context, page };
}

/** Returns the share of a core that the node takes for a round. */
async function nodeShare() {
  const [before, begin] = [nodeTime(), performance.now()];
  await wait(ROUND_MS);
  return (nodeTime() - before) / ((performance.now() - begin) / 1000);
}

// The node with a page and without one, by turns, since its load and that of the machine change.
const [extra, browserShares, paints, taken, without] = [[], [], [], [], []];
for (let round = 0; round < ROUNDS; round += 1) {
  const alone = await nodeShare();
  const ui = await serve();
  const { context, page } = await open(ui.address);
  await page.reload();
  await page.waitForFunction(() => document.querySelectorAll(".sessions tbody tr").length >= 200);
  paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
  await wait(3000);
  const debug = await context.newCDPSession(page);
  await debug.send("Performance.enable", { timeDomain: "threadTicks" });
  const busy = async () => Object.fromEntries((await debug.send("Performance.getMetrics")).metrics.map((it) => [it.name, it.value])).TaskDuration;
  const [before, begin] = [await busy(), performance.now()];
  const shared = await nodeShare();
  browserShares.push((await busy() - before) / ((performance.now() - begin) / 1000));
  extra.push(shared - alone);
  taken.push(shared);
  without.push(alone);
  await context.close();
  ui.process.kill();
  await wait(500);
}
tell("first contentful paint", paints, 1, "ms", PAINT_MS_MAX);
tell("browser, 200 sessions", browserShares, 100, "% of a core", BROWSER_SHARE_MAX);
tell("node, for one page", extra, 100, "% of a core", NODE_SHARE_MAX);
console.log(`node in all: median ${(100 * quartiles(taken)[1]).toFixed(2)} % with the page, ${(100 * quartiles(without)[1]).toFixed(2)} % without`);

// The plotted numbers against the ledger: processor time of a session over the same time.
const ui = await serve();
const { page } = await open(ui.address);
await wait(30_000);
const history = await page.evaluate(async (session) => {
  const headers = { Authorization: `Bearer ${sessionStorage.getItem("weir-secret")}` };
  return (await fetch(`/api/history?session=${session}`, { headers })).json();
}, name);
await wait(3000);
const { at_ms: at, columns: { cpu } } = history;
let [plotted, most] = [0, 0];
for (let n = 1; n < at.length; n += 1) {
  plotted += cpu[n] * ((at[n] - at[n - 1]) / 1000);
  most = Math.max(most, cpu[n]);
}
const time = (ms) => new Date(ms).toISOString();
const ledger = JSON.parse(execFileSync(weir, ["ledger", "--socket", socket, "--json", "--session", name, "--since", time(at[0]), "--until", time(at.at(-1))], { encoding: "utf8" }));
// The ledger counts whole intervals of a second, so either end can differ by one.
const interval = 2 * most;
console.log(`${name}, ${at.length - 1} s: ${plotted.toFixed(4)} s of processor time plotted, ${ledger[0].cpu_s.toFixed(4)} s in the ledger, may differ by ${interval.toFixed(4)} s`);
assert.ok(Math.abs(plotted - ledger[0].cpu_s) <= interval);
ui.process.kill();
await stop();
