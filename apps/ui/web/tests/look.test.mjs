// Accessibility by axe, and widths from a phone to a wall display, for each page in light and dark.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { stop, withPage } from "./browser.mjs";

after(stop);

const AXE = readFileSync(new URL("../node_modules/axe-core/axe.min.js", import.meta.url), "utf8");
const PAGES = ["#/node", "#/session/bob", "#/session/alice", "#/credentials", "#/decisions", "#/ledger", "#/run"];

/** The policy of the page forbids injected scripts, so axe is evaluated by the debugger. */
async function violations(page) {
  const session = await page.context().newCDPSession(page);
  await session.send("Runtime.evaluate", { expression: AXE });
  const { result } = await session.send("Runtime.evaluate", { awaitPromise: true, returnByValue: true, expression: "axe.run(document, { resultTypes: ['violations'] }).then((it) => it.violations.map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 120)).join(' | ')}`))" });
  return result.value;
}

for (const colorScheme of ["light", "dark"]) {
  test(`axe finds nothing on any page, ${colorScheme}`, () => withPage({ colorScheme }, async (page, mock) => {
    await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
    for (const path of PAGES) {
      await page.evaluate((hash) => { location.hash = hash; }, path);
      await page.waitForTimeout(1200);
      if (path === "#/session/bob") await page.getByRole("button", { name: "Follow rows" }).click();
      if (path === "#/run") {
        for (const name of [/rtt/, /port-count/]) await page.getByRole("checkbox", { name }).check();
        await page.getByText("2 parameters").click();
      }
      await page.waitForTimeout(400);
      assert.deepEqual(await violations(page), [], path);
    }
    await page.getByRole("link", { name: "Credentials" }).click();
    await page.getByRole("button", { name: /Revoke the credential/ }).first().click();
    assert.deepEqual(await violations(page), [], "a dialog");
    await page.keyboard.press("Escape");
    mock.lost = { why: "the node closed the connection", at: Date.now() };
    await page.locator(".connection").waitFor();
    // Greyed contents are a state of the whole page, which the bar tells; axe judges the colours without the filter.
    assert.deepEqual(await violations(page), [], "a lost connection");
  }));
}

for (const width of [320, 375, 1024, 2560]) {
  test(`no page scrolls sideways at ${width} pixels`, () => withPage({ width, sessions: 30 }, async (page) => {
    await page.waitForSelector(".sessions tbody tr");
    for (const path of PAGES) {
      await page.evaluate((hash) => { location.hash = hash; }, path);
      await page.waitForTimeout(500);
      if (path === "#/session/bob") await page.getByRole("button", { name: "Follow rows" }).click();
      if (path === "#/run") await page.getByRole("checkbox", { name: /port-count/ }).check();
      await page.waitForTimeout(300);
      const [wide, size] = await page.evaluate(() => [Math.max(0, document.documentElement.scrollWidth - innerWidth), parseFloat(getComputedStyle(document.body).fontSize)]);
      assert.equal(wide, 0, path);
      assert.ok(width === 2560 ? size >= 18 : size === 15, `${size}`);
    }
  }));
}

test("the colour scheme is that of the system, until the user chooses another one, which stays", () => withPage({ colorScheme: "dark" }, async (page) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  const background = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  assert.equal(await background(), "rgb(14, 17, 22)");
  await page.getByLabel("Colours").selectOption("light");
  assert.equal(await background(), "rgb(246, 247, 249)");
  await page.reload();
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  assert.equal(await background(), "rgb(246, 247, 249)");
}));

test("the zone of the times is shown", () => withPage({ timezoneId: "Asia/Kolkata" }, async (page) => {
  await page.getByText("Times are in Asia/Calcutta (UTC+5:30).").or(page.getByText("Times are in Asia/Kolkata (UTC+5:30).")).waitFor();
}));
