// The page on a live node: node live.mjs ADDRESS CAPTURE. The node has a session `alice` with traffic.

import assert from "node:assert/strict";
import { start, stop } from "./browser.mjs";

const [address, capture] = process.argv.slice(2);
const context = await (await start()).newContext({ viewport: { width: 1280, height: 900 } });
const page = await context.newPage();
const errors = [];
page.on("pageerror", (error) => errors.push(`${error}`));
page.on("console", (message) => {
  if (message.type() === "error" && !/Failed to load resource/.test(message.text())) errors.push(message.text());
});

const started = Date.now();
await page.goto(address);
await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
console.log(`measured: the session list after ${Date.now() - started} ms`);
assert.equal(await page.evaluate(() => location.hash), "#/node");

// The address opens one browser.
const second = await context.newPage();
await second.goto(address);
await second.getByText("weir ui --address").first().waitFor();
await second.close();

// A link in a new tab works, since another tab of this browser is connected.
const [tab] = await Promise.all([context.waitForEvent("page"), page.getByRole("link", { name: "Ledger", exact: true }).click({ button: "middle" })]);
await tab.getByText("The chain is whole").waitFor();
await tab.close();

// A session: its numbers come from the node.
await page.locator(".sessions").getByRole("link", { name: "alice" }).click();
await page.getByRole("heading", { name: "alice" }).waitFor();
await page.getByText("emitter").first().waitFor();
await page.locator("figure.chart canvas").first().waitFor();
await page.getByRole("button", { name: "Follow rows" }).click();
await page.locator("section", { has: page.getByRole("heading", { name: "Rows", exact: true }) }).locator("tbody tr").first().waitFor();

// A share is checked, changed and changed back.
const form = page.locator("form.share");
await form.getByLabel("Slice").fill("19.9 ms");
await form.getByText(/Would be refused/).waitFor();
await form.getByLabel("Slice").fill("6 ms");
await form.getByText("Admission would accept this.").waitFor();
await form.getByRole("button", { name: "Apply" }).click();
await form.getByText("The share is changed.").waitFor();
await form.getByRole("button", { name: "Undo" }).click();
await form.getByText("The earlier share is back.").waitFor();

// The decisions and the ledger follow after an interval of the ledger.
await page.waitForTimeout(1500);
await page.goto(`${new URL(address).origin}/#/decisions`);
await page.getByLabel("Outcome").selectOption("all");
await page.locator(".decisions").getByText("alice").first().waitFor();
await page.goto(`${new URL(address).origin}/#/ledger`);
await page.getByRole("cell", { name: "alice" }).or(page.getByRole("rowheader", { name: "alice" })).first().waitFor();

// A run over a capture ends with a report.
await page.goto(`${new URL(address).origin}/#/run`);
await page.locator("input[type=file]").setInputFiles(capture);
await page.getByRole("checkbox", { name: /rtt/ }).check();
await page.getByRole("button", { name: /^Run/ }).click();
await page.locator("iframe").waitFor({ timeout: 60000 });
const report = page.frameLocator("iframe");
await report.locator("h1", { hasText: capture.split("/").at(-1) }).waitFor({ timeout: 60000 });
await page.getByText(/ read, .+ packets$/).waitFor();
await page.getByRole("button", { name: "Close, and delete" }).click();

// So does a run over an interface of the node, in a session of its own that is closed at the end.
await page.getByRole("button", { name: "Interface" }).click();
await page.getByLabel("Seconds").fill("3");
await page.getByRole("button", { name: "None" }).click();
await page.getByRole("checkbox", { name: /port-count/ }).check();
await page.locator("summary", { hasText: "port-count" }).click();
await page.getByRole("textbox", { name: "ports" }).fill("1,53");
await page.getByRole("button", { name: /^Run/ }).click();
await page.locator("iframe").waitFor({ timeout: 60000 });
await report.locator("h1").first().waitFor({ timeout: 60000 });
await page.getByRole("link", { name: "Node", exact: true }).click();
await page.locator(".sessions tbody tr").nth(0).waitFor();
await page.waitForFunction(() => document.querySelectorAll(".sessions tbody tr").length === 1);

assert.deepEqual(errors, []);
await stop();
