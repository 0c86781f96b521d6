// The cost of the page: 200 sessions that change each second, an hour in short time, and the first paint.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { stop, withPage } from "./browser.mjs";

after(stop);

async function metrics(session) {
  const { metrics: list } = await session.send("Performance.getMetrics");
  return Object.fromEntries(list.map(({ name, value }) => [name, value]));
}

test("200 sessions that change each second take less than 10 % of a core", () => withPage({ sessions: 200 }, async (page, _mock, context) => {
  await page.waitForFunction(() => document.querySelectorAll(".sessions tbody tr").length === 200);
  await page.waitForTimeout(3000);
  const session = await context.newCDPSession(page);
  // Processor time of the page's thread: time by the clock would grow with the load of the machine.
  await session.send("Performance.enable", { timeDomain: "threadTicks" });
  const before = await metrics(session);
  const begin = performance.now();
  await page.waitForTimeout(20_000);
  const now = await metrics(session);
  const seconds = (performance.now() - begin) / 1000;
  const share = (name) => (now[name] - before[name]) / seconds;
  console.log(`200 sessions: ${(100 * share("TaskDuration")).toFixed(1)} % of a core (script ${(100 * share("ScriptDuration")).toFixed(1)} %, layout ${(100 * share("LayoutDuration")).toFixed(1)} %, style ${(100 * share("RecalcStyleDuration")).toFixed(1)} %)`);
  assert.ok(share("TaskDuration") > 0 && share("TaskDuration") < 0.1);
}));

test("an hour of a session with rows grows by less than 20 MB", () => withPage({ sessions: 20, tickMs: 25, startMs: Date.now(), path: "#/session/bob" }, async (page, mock, context) => {
  mock.rowsPerLine = 100;
  await page.getByRole("button", { name: "Follow rows" }).click();
  const session = await context.newCDPSession(page);
  const used = async () => {
    await session.send("HeapProfiler.collectGarbage");
    await session.send("HeapProfiler.collectGarbage");
    const { usedSize } = await session.send("Runtime.getHeapUsage");
    const { nodes } = await session.send("Memory.getDOMCounters");
    return { bytes: usedSize, nodes };
  };
  await page.waitForTimeout(5000);
  const begin = mock.node.uptime;
  const before = await used();
  // 3,600 snapshots at 25 ms each.
  while (mock.node.uptime - begin < 3600) await page.waitForTimeout(1000);
  const now = await used();
  console.log(`an hour: ${((now.bytes - before.bytes) / 1e6).toFixed(1)} MB and ${now.nodes - before.nodes} nodes more, ${(now.bytes / 1e6).toFixed(1)} MB in all`);
  assert.ok(now.bytes - before.bytes < 20e6);
  assert.ok(now.nodes - before.nodes < 20_000);
}));

test("going from page to page keeps nothing", () => withPage({ sessions: 40 }, async (page, mock, context) => {
  await page.waitForSelector(".sessions tbody tr");
  const session = await context.newCDPSession(page);
  const used = async () => {
    await session.send("HeapProfiler.collectGarbage");
    await session.send("HeapProfiler.collectGarbage");
    const [{ usedSize }, { nodes, jsEventListeners }] = [await session.send("Runtime.getHeapUsage"), await session.send("Memory.getDOMCounters")];
    return { bytes: usedSize, nodes, jsEventListeners };
  };
  const round = async (n) => {
    for (const path of [`#/session/session-0${10 + (n % 20)}`, "#/credentials", "#/decisions", "#/ledger", "#/run", "#/node"]) {
      await page.evaluate((hash) => { location.hash = hash; }, path);
      await page.waitForTimeout(60);
    }
  };
  for (let n = 0; n < 5; n += 1) await round(n);
  await page.waitForTimeout(1500);
  const before = await used();
  for (let n = 0; n < 40; n += 1) await round(n);
  await page.waitForTimeout(1500);
  const now = await used();
  console.log(`40 rounds: ${((now.bytes - before.bytes) / 1e6).toFixed(1)} MB, ${now.nodes - before.nodes} nodes, ${now.jsEventListeners - before.jsEventListeners} listeners more`);
  assert.ok(now.bytes - before.bytes < 3e6 && now.nodes - before.nodes < 2_000 && now.jsEventListeners - before.jsEventListeners < 200);
}));

test("the first paint comes within 300 ms", () => withPage({}, async (page) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  const times = [];
  for (let n = 0; n < 5; n += 1) {
    await page.reload();
    await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
    times.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
  }
  times.sort((a, b) => a - b);
  console.log(`first contentful paint: median ${Math.round(times[2])} ms of ${times.map(Math.round).join(", ")}`);
  assert.ok(times[2] < 300);
}));
