// A node or server that is lost, slow, silent, or sends nonsense; foreign text that tries to be more than text.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { stop, withPage } from "./browser.mjs";
import { HOSTILE_NAME } from "./data.mjs";
import { Mock } from "./mock.mjs";

after(stop);

const PAGES = ["#/node", `#/session/${encodeURIComponent(HOSTILE_NAME)}`, "#/session/alice", "#/credentials", "#/decisions", "#/ledger", "#/run"];

test("hostile names and texts of modules, packets and holders stay text on every page", () => withPage({ hostile: true }, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  for (const path of PAGES) {
    await page.evaluate((hash) => { location.hash = hash; }, path);
    await page.waitForTimeout(700);
    if (path.startsWith("#/session")) {
      assert.equal(await page.getByText("There is no session").count(), 0, path);
      await page.getByRole("button", { name: "Follow rows" }).click();
      await page.getByText("<img src=x").last().waitFor();
      await page.waitForTimeout(500);
      assert.ok(mock.log.includes(`GET /api/rows?session=${encodeURIComponent(path.includes("alice") ? "alice" : HOSTILE_NAME)}`));
    }
    if (path === "#/run") await page.getByRole("checkbox", { name: /rtt/ }).check();
    const found = await page.evaluate(() => ({
      elements: document.querySelectorAll("img, script:not([src='/app.js'])").length,
      text: /[\u0000-\u0008\u000b-\u001f\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText),
      wide: Math.max(0, document.documentElement.scrollWidth - innerWidth),
    }));
    assert.deepEqual(found, { elements: 0, text: false, wide: 0 }, path);
  }
  await page.getByRole("button", { name: "all" }).first().click();
  await page.getByRole("button", { name: "less" }).first().waitFor();
}));

test("a lost node is shown with the time since, the last state stays, and the page recovers", () => withPage({}, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  mock.lost = { why: "the node closed the connection\u202e", at: Date.now() - 65_000 };
  await page.getByText("The connection to the node is lost.").waitFor();
  await page.getByText(/Lost for 1 min \d+ s/).waitFor();
  assert.match(await page.locator(".connection").innerText(), /closed the connection\\u\{202e\}/);
  assert.ok(await page.locator(".sessions").getByRole("link", { name: "alice" }).isVisible());
  assert.match(await page.locator("main").getAttribute("class"), /stale/);
  assert.ok(await page.locator("main").evaluate((it) => getComputedStyle(it).filter.includes("grayscale")));
  mock.lost = null;
  await page.locator(".connection").waitFor({ state: "detached", timeout: 5000 });
}));

test("a server that ends and comes back is found again by itself", () => withPage({ allowErrors: true }, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  const port = mock.port;
  await mock.stop();
  await page.getByText("The connection to weir ui is lost.").waitFor();
  await page.waitForTimeout(1500);
  const again = await new Mock({}).start(port);
  try {
    await page.locator(".connection").waitFor({ state: "detached", timeout: 10_000 });
  } finally {
    await again.stop();
  }
}));

test("a server that is silent for five seconds counts as lost", () => withPage({}, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  mock.mute = true;
  await page.getByText("weir ui is silent").waitFor({ timeout: 8000 });
  mock.mute = false;
  await page.locator(".connection").waitFor({ state: "detached", timeout: 10_000 });
}));

for (const [what, raw] of Object.entries({
  "no JSON": "<html>\n", "another type": "[1]\n", "a null": "null\n", "an empty object": "{}\n",
  "a snapshot without parts": '{"snapshot":{"at_ns":1,"uptime_ns":1},"rates":{}}\n',
  "sessions that are none": '{"snapshot":{"node":"n","version":"1","at_ns":1,"uptime_ns":1,"cores":[],"interfaces":[],"memory":{},"sessions":[{"name":5}]},"rates":{"cores":[],"interfaces":[],"links":[],"sessions":[]}}\n',
})) {
  test(`a line that is ${what} counts as a lost connection, and the page recovers`, () => withPage({}, async (page, mock) => {
    await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
    mock.raw = raw;
    await page.getByText(/cannot read/).waitFor();
    mock.raw = null;
    await page.locator(".connection").waitFor({ state: "detached", timeout: 10_000 });
  }));
}

test("a snapshot whose parts lack fields is an error of the page's part, and the navigation goes on", () => withPage({ allowErrors: true }, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  const line = structuredClone(mock.node.line());
  line.snapshot.cores = [null];
  mock.raw = `${JSON.stringify(line)}\n`;
  await page.getByText(/This page cannot be shown|cannot read/).first().waitFor();
  await page.getByRole("link", { name: "Ledger" }).click();
  await page.getByText("The chain is whole").waitFor();
}));

test("an unknown secret stops all requests and says what to do", () => withPage({}, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  mock.secret = "another";
  for (const response of mock.watchers) response.end();
  await page.getByText("weir ui --address").waitFor({ timeout: 8000 });
  await page.waitForTimeout(300);
  const requests = () => mock.log.filter((line) => line.includes("/api/")).length;
  const before = requests();
  await page.getByRole("link", { name: "Ledger" }).click();
  await page.waitForTimeout(3000);
  assert.equal(requests(), before);
}));

test("an address that was used is refused", () => withPage({}, async (page, mock, context) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  const second = await context.newPage();
  await second.goto(`${mock.origin}/#TOKEN`);
  await second.getByText("this address was used already").waitFor();
  await second.getByText("weir ui --address").waitFor();
  const bare = await context.newPage();
  await bare.goto(mock.origin);
  await bare.getByText("Open a new address").waitFor();
}));

test("a slow server is waited for, with the frame of the page there at once", () => withPage({}, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  mock.delayMs = 2000;
  await page.getByRole("link", { name: "Ledger" }).click();
  await page.getByText("Loading …").waitFor();
  await page.getByText("The chain is whole").waitFor({ timeout: 6000 });
}));

test("a refused run and an error of a request are shown where they happen", () => withPage({ path: "#/run" }, async (page, mock) => {
  mock.refuse = "two runs are going on";
  await page.setInputFiles("#capture", { name: "x.pcap", mimeType: "", buffer: Buffer.alloc(10) });
  await page.getByRole("checkbox", { name: /rtt/ }).check();
  await page.getByRole("button", { name: "Run 1 module" }).click();
  await page.getByText("two runs are going on").waitFor();
  await page.getByRole("button", { name: /Close/ }).click();
}));

test("a session that is created or closed elsewhere appears and disappears", () => withPage({}, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  const [first] = mock.node.sessions.splice(0, 1);
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor({ state: "detached" });
  mock.node.sessions.push(first);
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
}));
