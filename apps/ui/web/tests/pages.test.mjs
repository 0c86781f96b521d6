// Each page shows what the node has.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { stop, withPage } from "./browser.mjs";
import { key } from "./data.mjs";

after(stop);

test("the token leaves the address bar, and the sessions of the node appear", () => withPage({}, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  assert.equal(await page.evaluate(() => location.hash), "#/node");
  assert.equal(await page.evaluate(() => history.length), 2, "about:blank and the page: the token has no entry of its own");
  assert.deepEqual(mock.log.filter((line) => line.includes("TOKEN")), []);
  // A reload keeps the secret of the tab, without the token.
  await page.reload();
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  assert.match(await page.title(), /Node · ix-1/);
}));

test("the session list shows promised, received, and losses with their cause, and changes each second", () => withPage({}, async (page) => {
  const bob = page.locator(".sessions").getByRole("row", { name: /bob/ });
  await bob.getByText("queue full").waitFor({ timeout: 5000 });
  assert.match(await bob.innerText(), /▲ [\d.]+ ?k?\/s/);
  assert.match(await bob.innerText(), /% of 10 %/);
  const before = await bob.innerText();
  await page.waitForFunction((text) => [...document.querySelectorAll("tr")].some((row) => row.innerText.startsWith("bob") && row.innerText !== text), before, { timeout: 5000 });
  await page.getByRole("button", { name: "1 loses packets" }).click();
  assert.equal(await page.locator(".sessions tbody tr").count(), 1);
  await page.getByText("1 of 6 sessions shown").waitFor();
}));

test("rows are sorted by a button in the heading, and filtered by text", () => withPage({}, async (page) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  const names = () => page.locator(".sessions tbody th").allInnerTexts();
  await page.getByRole("button", { name: "Session", exact: true }).click();
  assert.equal((await names())[0], "flow-export");
  assert.equal(await page.getByRole("columnheader", { name: "Session" }).getAttribute("aria-sort"), "descending");
  await page.getByRole("button", { name: "Lost" }).focus();
  await page.waitForTimeout(2500);
  await page.keyboard.press("Enter");
  assert.equal((await names())[0], "bob");
  await page.getByRole("searchbox", { name: /Filter sessions/ }).fill("dns");
  assert.deepEqual(await names(), ["dns-study"]);
}));

test("the node's cores, links, interfaces, findings and refusals are there", () => withPage({}, async (page) => {
  await page.getByRole("heading", { name: "Cores" }).waitFor();
  await page.waitForTimeout(1500);
  assert.match(await page.getByRole("region", { name: "Cores" }).innerText(), /60\.0 % of 90\.0 %/);
  assert.match(await page.getByRole("region", { name: "Links" }).innerText(), /400 Mbit\/s of 900 Mbit\/s/);
  assert.match(await page.getByRole("region", { name: "Interfaces" }).innerText(), /down: no carrier/);
  await page.getByText("12 times").waitFor();
  await page.getByText(/handshakes with/).first().waitFor();
  assert.equal(await page.locator("figure.chart canvas").count(), 6);
}));

test("a session has charts of an hour with zoom, losses in words, modules, and their faults", () => withPage({ path: "#/session/bob" }, async (page) => {
  await page.getByRole("heading", { name: "bob" }).waitFor();
  await page.getByText("The channel's queue was full").waitFor();
  await page.getByRole("link", { name: /loses .*\/s: queue full/ }).click();
  await page.waitForFunction(() => document.getElementById("losses").getBoundingClientRect().top < innerHeight);
  assert.equal(await page.evaluate(() => location.hash), "#/session/bob");
  await page.getByText("rtt.c:118").waitFor();
  await page.getByText("at most 1.2 us for a packet").waitFor();
  // Only a session with an output channel has a bandwidth.
  assert.equal(await page.locator("figure.chart canvas").count(), 3);
  await page.evaluate(() => { location.hash = "#/session/alice"; });
  await page.locator("figure.chart", { hasText: "Bandwidth" }).waitFor();
  await page.evaluate(() => { location.hash = "#/session/bob"; });
  await page.getByRole("heading", { name: "bob" }).waitFor();
  await page.waitForTimeout(1500);
  assert.match(await page.locator("figure.chart").first().innerText(), /received\s+[\d.]+ %/);
  const box = await page.locator(".u-over").first().boundingBox();
  await page.mouse.move(box.x + 40, box.y + 30);
  await page.mouse.down();
  await page.mouse.move(box.x + 160, box.y + 30, { steps: 4 });
  await page.mouse.up();
  const selected = page.getByRole("button", { name: "selected, reset" });
  await selected.waitFor();
  await selected.click();
  assert.equal(await page.getByRole("button", { name: "1 h", exact: true }).getAttribute("aria-pressed"), "true");
  await page.getByRole("button", { name: "5 min", exact: true }).press("Enter");
  assert.equal(await page.getByRole("button", { name: "5 min", exact: true }).getAttribute("aria-pressed"), "true");
}));

test("rows appear as they arrive, pause, and are bounded", () => withPage({ path: "#/session/bob" }, async (page, mock) => {
  mock.rowsPerLine = 100;
  await page.getByRole("button", { name: "Follow rows" }).click();
  const table = page.getByRole("group", { name: /Rows of rtt.rtts/ });
  await table.getByText("192.0.2.").first().waitFor();
  await page.waitForTimeout(2000);
  assert.equal(await table.locator("tbody tr").count(), 100);
  assert.match(await table.innerText(), /2023-11-14 23:13/, "times are in the zone of the browser");
  await page.getByText(/more left out/).waitFor();
  await page.getByText(/The node left out/).waitFor({ timeout: 5000 });
  await page.getByRole("button", { name: "Pause" }).click();
  const first = await table.locator("tbody tr").first().innerText();
  await page.waitForTimeout(700);
  assert.equal(await table.locator("tbody tr").first().innerText(), first);
  assert.equal(await table.locator("tbody tr").count(), 500);
  await page.getByText(/since the pause/).waitFor();
  await page.getByRole("button", { name: "Go on" }).click();
  await page.getByRole("button", { name: /rtt.findings/ }).click();
  await page.getByText("No row has arrived yet.").waitFor();
  await page.getByRole("button", { name: "Stop" }).click();
  await page.waitForTimeout(300);
  assert.equal(await table.count(), 0);
}));

test("a session that is gone says where its usage is", () => withPage({ path: "#/session/gone" }, async (page) => {
  await page.getByText("There is no session of this name").waitFor();
  await page.evaluate(() => { location.hash = "#/session/%E0%A4%A"; });
  await page.getByText("There is no such page").waitFor();
}));

test("the tree of credentials has ceilings and expiry", () => withPage({ path: "#/credentials" }, async (page) => {
  await page.getByText("2 further credentials of this node cannot be shown at once.").waitFor();
  const child = page.getByRole("article", { name: `Credential of ${key(2)}` });
  await child.getByText(/expires in 1 h/).waitFor();
  assert.equal(await page.locator(".tree .tree .tree .credential").count(), 1, "three levels");
  assert.match(await child.innerText(), /19\.1 MiB of 64 MiB/);
  // The tree in words, and the way to the cost of a holder.
  await child.getByText("delegated by").waitFor();
  const first = page.getByRole("article", { name: `Credential of ${key(1)}` }).first();
  assert.match(await first.innerText(), /granted by the root[\s\S]*bandwidth\s+none/);
  await first.getByRole("link", { name: "usage" }).click();
  await page.getByRole("group", { name: "Totals by holder" }).waitFor();
  assert.deepEqual(await page.getByRole("group", { name: "Totals by holder" }).locator("tbody th").allInnerTexts(), [`${key(1).slice(0, 15)}…${key(1).slice(-6)}`]);
  await page.goBack();
  await page.getByText(/expired 1 min/).waitFor();
  await child.getByText("What it allows").click();
  await child.getByText("at most 64 MiB").waitFor();
}));

test("decisions are told in words, filtered, and their advice is copied", () => withPage({ path: "#/decisions" }, async (page) => {
  await page.getByText(/asked to create the session/).waitFor();
  // What was not carried out comes first; a program that tries again each second is one refusal.
  await page.getByText("5 decisions of 156").waitFor();
  await page.getByText("asked to connect, 3 times").waitFor();
  await page.getByText("The node ended the session").waitFor();
  await page.getByText("Fill in KEY and MODULE. The root runs this").waitFor();
  // A command that is selected by hand is one line.
  const selected = await page.locator(".command").first().evaluate((it) => {
    getSelection().selectAllChildren(it);
    return getSelection().toString();
  });
  assert.match(selected, /^weir grant --key operator\.key --to weir-key:\w+ --until 2027-01-01 --at ix-1 --any-module --memory 1GiB --out researcher\.credential$/);
  await page.getByLabel("Outcome").selectOption("all");
  await page.getByText("156 decisions").waitFor();
  assert.equal(await page.locator(".decisions > li").count(), 100);
  await page.getByRole("button", { name: "Show more" }).click();
  assert.equal(await page.locator(".decisions > li").count(), 156);
  await page.getByLabel("Outcome").selectOption("refused");
  await page.getByText("3 decisions of 156").waitFor();
  await page.getByRole("button", { name: "Copy the command" }).first().click();
  assert.match(await page.evaluate(() => navigator.clipboard.readText()), /^weir grant --key operator\.key/);
  await page.getByLabel("Outcome").selectOption("all");
  await page.getByRole("searchbox", { name: "Session" }).fill("session-14");
  await page.getByText("11 decisions of 156").waitFor();
  await page.getByRole("searchbox", { name: "Session" }).fill("");
  await page.getByRole("searchbox", { name: "Holder" }).fill("operator");
  await page.getByText("2 decisions of 156").waitFor();
}));

test("a command with control characters is shown escaped, and not copied", () => withPage({ path: "#/decisions", hostile: true }, async (page) => {
  const first = page.locator(".decisions > li").first();
  await first.getByText("It has control characters").waitFor();
  assert.equal(await first.getByRole("button", { name: "Copy the command" }).count(), 1, "that of the second advice");
}));

test("the ledger has totals by session and holder, sums, the state of its chain, and files", () => withPage({ path: "#/ledger" }, async (page, mock) => {
  await page.getByText("The chain is whole").waitFor();
  const table = page.getByRole("group", { name: "Totals by session" });
  assert.match(await table.locator("tfoot").innerText(), /450/);
  assert.equal(await page.getByRole("columnheader", { name: /refusals/ }).count(), 0);
  await page.getByLabel("all columns").check();
  assert.equal(await page.getByRole("columnheader", { name: /refusals/ }).count(), 1);
  await page.getByRole("button", { name: "CPU time, s" }).click();
  assert.equal(await table.locator("tbody th").first().innerText(), "old-study");
  await page.getByRole("button", { name: "By holder" }).click();
  await page.getByRole("rowheader", { name: "the operator" }).waitFor();
  await page.getByPlaceholder("Name or key").fill("operator");
  assert.equal(await page.getByRole("rowheader").count(), 2, "the row and the sum");
  await page.getByPlaceholder("Name or key").fill("");
  await page.getByRole("button", { name: "last hour" }).click();
  await page.waitForTimeout(200);
  assert.ok(mock.log.some((line) => /ledger\?since_s=\d+$/.test(line)));
  for (const format of ["CSV", "Parquet"]) {
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("button", { name: `Download ${format}` }).click()]);
    assert.equal(download.suggestedFilename(), `ledger.${format.toLowerCase()}`);
  }
}));

test("a row that comes into sight has its present values at once, and none is older than ten seconds", () => withPage({ sessions: 200 }, async (page) => {
  await page.waitForSelector("tr[data-name='session-199']");
  const row = page.locator("tr[data-name='session-199']");
  const seen = new Set();
  for (let n = 0; n < 24; n += 1) {
    seen.add(await row.innerText());
    await page.waitForTimeout(500);
  }
  assert.ok(seen.size >= 2 && seen.size <= 4, `${seen.size} texts in 12 s while out of sight`);
  await row.scrollIntoViewIfNeeded();
  const before = await row.innerText();
  await page.waitForFunction((text) => document.querySelector("tr[data-name='session-199']").innerText !== text, before, { timeout: 2500 });
}));

/** The example of the protocol, which lacks what serde leaves out, with unknown rates. */
function example(change = () => {}) {
  const snapshot = JSON.parse(readFileSync(new URL("../../../node/tests/snapshot.json", import.meta.url), "utf8"));
  change(snapshot);
  const unknown = { packets: null, bits: null, drops: null };
  const rates = {
    cores: snapshot.cores.map(() => ({ busy: null, overhead: null, stolen: null })),
    interfaces: snapshot.interfaces.map(() => ({ packets: null, bits: null, missed: null, unmatched: null })), links: [], views: [],
    sessions: snapshot.sessions.map((it) => ({ cpu: null, spare: null, packets: null, drops: null, records: null, processors: it.cpu.map(() => ({ used: null, spare: null, missed: null })), channels: it.channels.map(() => unknown), outputs: [], modules: it.modules.map(() => ({ packets: null, records: null, used: null, per_packet: null })) })),
  };
  return `${JSON.stringify({ snapshot, rates })}\n`;
}

test("the example snapshot of the protocol is shown, with unknown rates as such", () => withPage({}, async (page, mock) => {
  mock.raw = example();
  const link = page.locator(".sessions").getByRole("link", { name: "modest" });
  await link.waitFor();
  assert.match(await page.locator(".sessions").getByRole("row", { name: /modest/ }).innerText(), /– of 20 %/);
  await page.getByText("handshakes with 192.0.2.9").waitFor();
  await page.getByText("\\u{1b}[2J no clock").waitFor();
  await link.click();
  await page.getByText("Last fault of rtt: unreachable").waitFor();
  await page.getByText("The module trapped while it handled the packet.").waitFor();
  assert.equal(await page.locator("form.share").getByLabel("Slice").inputValue(), "2 ms");
  await page.getByText("This node does not state the weight.").waitFor();
}));

test("a delegate's session that its holder shares for following is followed, and has no controls but the end", () => withPage({ may_manage: true }, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  mock.who = `holder ${key(7)}`;
  const shared = (rights) => example(({ sessions: [session] }) => {
    session.share = rights.map((right) => `${right}=${key(7)}`);
    session.modules[0].streams = ["rows"];
  });
  mock.raw = shared(["follow"]);
  await page.reload();
  await page.locator(".sessions").getByRole("link", { name: "greedy" }).click();
  await page.getByText("does not share the right to change it").waitFor();
  assert.equal(await page.getByRole("button", { name: /Unload/ }).count() + await page.locator("form.share").count(), 0);
  await page.getByRole("button", { name: "Follow rows" }).waitFor();
  await page.getByRole("button", { name: "Close session" }).waitFor();
  // The right to manage gives the controls.
  mock.raw = shared(["manage"]);
  await page.locator("form.share").waitFor();
  await page.getByText("does not share its rows").waitFor();
}));

test("a holder sees neither cores nor the parts of a delegate's session", () => withPage({}, async (page, mock) => {
  mock.raw = example((snapshot) => {
    snapshot.cores = [];
    snapshot.sessions[0].sums_only = true;
  });
  const link = page.locator(".sessions").getByRole("link", { name: "greedy" });
  await link.waitFor();
  assert.equal(await page.getByRole("heading", { name: "Cores" }).count(), 0);
  await link.click();
  await page.getByText("only sums are shown").waitFor();
  await page.getByText("does not share the right to change it").waitFor();
  assert.equal(await page.getByRole("button", { name: /Unload/ }).count(), 0);
  assert.equal(await page.locator("form.share").count(), 0);
}));
