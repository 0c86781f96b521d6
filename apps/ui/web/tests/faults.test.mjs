// A node or server that is lost, slow, silent, or sends nonsense; foreign text that tries to be more than text.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, test } from "node:test";
import { stop, withPage } from "./browser.mjs";
import { HOSTILE_NAME } from "./data.mjs";
import { Mock } from "./mock.mjs";

after(stop);

const share = (page) => page.locator("form.share");
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
    if (path === "#/run") {
      await page.getByRole("checkbox", { name: /rtt/ }).check();
      await page.getByText("2 parameters").click();
    }
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
}));

test("a link that is opened in a new tab works while another tab is connected, and not after it", () => withPage({}, async (page, mock, context) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  const [tab] = await Promise.all([context.waitForEvent("page"), page.getByRole("link", { name: "Ledger" }).click({ button: "middle" })]);
  await tab.getByText("The chain is whole").waitFor();
  assert.equal(await tab.evaluate(() => location.hash), "#/ledger");
  await tab.close();
  // A page without the channel's other end, such as a new browser, gets the advice.
  await page.goto("about:blank");
  const bare = await context.newPage();
  await bare.goto(`${mock.origin}/#/ledger`);
  await bare.getByText("Open a new address").waitFor();
}));

/** Asks for a secret as the page does, and returns everything that arrives within a second. */
const ask = (page) => page.evaluate(() => new Promise((resolve) => {
  const heard = [];
  const channel = new BroadcastChannel("weir-tabs");
  channel.onmessage = ({ data }) => heard.push(data);
  channel.postMessage({ ask: "me" });
  setTimeout(() => resolve(heard), 1000);
}));

test("the secret goes to no other origin, to no report, and to no page of a server that has taken the port", () => withPage({ allowErrors: true }, async (page, mock, context) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  const inside = await context.newPage();
  await inside.goto(`${mock.origin}/icon.svg`);
  assert.deepEqual(await ask(inside), [{ to: "me", secret: mock.secret }], "a page of this origin hears it: the test can hear");
  // The server of another user, at another port.
  const other = await new Mock({}).start();
  const foreign = await context.newPage();
  await foreign.goto(`${other.origin}/icon.svg`);
  assert.deepEqual(await ask(foreign), []);
  const report = await context.newPage();
  await report.goto(`${mock.origin}/report/TICKET`);
  assert.equal(await report.evaluate(() => self.origin), "null", "a report has an origin of its own, and runs no scripts");
  await report.close();
  await foreign.close();
  await other.stop();
  // The server has ended, and another user serves at the same port: the tab has lost its connection, so it tells nothing.
  const port = mock.port;
  await mock.stop();
  await page.getByText("The connection to weir ui is lost.").waitFor();
  const thief = createServer((_, response) => {
    response.writeHead(200, { "Content-Type": "text/html" });
    response.end("<!doctype html>");
  });
  await new Promise((resolve) => thief.listen(port, "127.0.0.1", resolve));
  const stolen = await context.newPage();
  await stolen.goto(`http://127.0.0.1:${port}/`);
  assert.deepEqual(await ask(stolen), []);
  thief.closeAllConnections();
  await new Promise((resolve) => thief.close(resolve));
  await mock.start(port);
}));

test("a credential that expires while the page is open: the reason, what to do, and what still works", () => withPage({}, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  const why = (second) => `expired: block 0 held until 2026-11-28T14:53:16Z, and it is 2026-11-28T14:53:${second}Z. Ask for a new credential`;
  mock.lost = { why: why(16), at: Date.now() };
  mock.nodeError = why(16);
  const bar = page.locator(".connection");
  await bar.getByText("Your credential has expired.").waitFor();
  const alert = await bar.getByRole("alert").innerText();
  mock.lost.why = why(17);
  await bar.getByText(why(17)).waitFor();
  assert.equal(await bar.getByRole("alert").innerText(), alert, "the time in the reason is not announced each second");
  await bar.getByText("start weir ui with it").waitFor();
  // The last state stays, marked as such, and nothing can be applied.
  assert.match(await page.locator("main").getAttribute("class"), /stale/);
  await page.locator(".sessions").getByRole("link", { name: "alice" }).click();
  await share(page).getByLabel("Slice").fill("4 ms");
  await share(page).getByText("Would be refused: expired").waitFor();
  assert.ok(await share(page).getByRole("button", { name: "Apply" }).isDisabled());
  for (const name of ["Credentials", "Decisions", "Ledger"]) {
    await page.getByRole("link", { name, exact: true }).click();
    await page.locator("main").getByText("expired: block 0").waitFor();
  }
  assert.equal(await page.getByText("chain is broken").count(), 0);
  // A run over a capture needs no node.
  await page.getByRole("link", { name: "Run", exact: true }).click();
  await page.setInputFiles("#capture", { name: "x.pcap", mimeType: "", buffer: Buffer.alloc(100, 1) });
  await page.getByRole("button", { name: "Run 3 modules" }).click();
  await page.getByText(/12.345 packets/).waitFor();
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
  await page.getByRole("button", { name: "Run 3 modules" }).click();
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
