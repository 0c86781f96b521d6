// Each action, also where it is refused, and by keyboard alone.

import assert from "node:assert/strict";
import { after, test } from "node:test";
import { stop, withPage } from "./browser.mjs";
import { id, key } from "./data.mjs";

after(stop);

const share = (page) => page.locator("form.share");

test("a share is checked as one types, applied, and undone", () => withPage({ path: "#/session/alice" }, async (page, mock) => {
  const form = share(page);
  const apply = form.getByRole("button", { name: "Apply" });
  assert.ok(await apply.isDisabled());
  await form.getByLabel("Slice").fill("9 ms");
  await form.getByText(/Would be refused: core 1 has 32 % left/).waitFor();
  assert.ok(await apply.isDisabled());
  await form.getByLabel("Slice").fill("20 ms");
  await form.getByText("This is not a time of at most the period").waitFor();
  assert.equal(await form.getByLabel("Slice").getAttribute("aria-invalid"), "true");
  await form.getByLabel("Slice").fill("4 ms");
  await form.getByLabel("Reserve").fill("30 Mbit/s");
  await form.getByText("Admission would accept this.").waitFor();
  await apply.click();
  await form.getByText("The share is changed.").waitFor();
  assert.deepEqual(mock.requests, [{ change: { session: "alice", cpu: [{ name: "main", core: 1, borrow: true, period: "10 ms", slice: "4 ms", weight: 100 }], output: [{ name: "up", link: "eth2", weight: 0, queue: 256, reserve: "30 Mbit/s", cap: "60 Mbit/s" }] } }]);
  assert.ok(await apply.isDisabled());
  await page.waitForTimeout(1500);
  assert.equal(await form.getByLabel("Slice").inputValue(), "4 ms");
  await form.getByText("40.0 %").waitFor();
  // The change can still be undone after a look at its effect elsewhere.
  await page.getByRole("link", { name: "Node", exact: true }).click();
  await page.locator(".sessions").getByRole("link", { name: "alice" }).click();
  await form.getByRole("button", { name: "Undo" }).click();
  await form.getByText("The earlier share is back.").waitFor();
  assert.equal(mock.requests[1].change.cpu[0].slice, "2 ms");
  assert.equal(mock.requests[1].change.output[0].reserve, "20 Mbit/s");
  await page.waitForTimeout(1500);
  assert.equal(await form.getByLabel("Slice").inputValue(), "2 ms");
  assert.equal(await form.getByRole("button", { name: "Undo" }).count(), 0);
}));

test("a session that replaced one of the same name gets neither its undo nor what was typed", () => withPage({ path: "#/session/alice" }, async (page, mock) => {
  const form = share(page);
  await form.getByLabel("Slice").fill("4 ms");
  await form.getByRole("button", { name: "Apply" }).click();
  await form.getByRole("button", { name: "Undo" }).waitFor();
  await form.getByLabel("Memory").fill("96 MiB");
  // The session is closed, and another one has its name.
  Object.assign(mock.node.sessions[0], { id: 2, memory_reserved: 32 << 20 });
  await page.waitForFunction(() => document.querySelector("form.share input").value === "32 MiB", null, { timeout: 4000 });
  assert.equal(await form.getByRole("button", { name: "Undo" }).count(), 0);
  assert.equal(await form.getByText("The share is changed.").count(), 0);
  assert.equal(mock.requests.length, 1);
}));

test("an answer of admission about an earlier text does not enable Apply", () => withPage({ path: "#/session/alice" }, async (page, mock) => {
  const form = share(page);
  mock.checkDelayMs = 900;
  await form.getByLabel("Slice").fill("3 ms");
  await page.waitForTimeout(600);
  await form.getByLabel("Slice").fill("9 ms");
  await page.waitForTimeout(500);
  assert.ok(await form.getByRole("button", { name: "Apply" }).isDisabled());
  await form.getByText(/Would be refused/).waitFor();
}));

test("a refused change says why, and nothing else is shown as done", () => withPage({ path: "#/session/alice" }, async (page, mock) => {
  mock.refuse = "another session has taken the memory meanwhile";
  const form = share(page);
  await form.getByLabel("Memory").fill("96 MiB");
  await form.getByText("Admission would accept this.").waitFor();
  await form.getByRole("button", { name: "Apply" }).click();
  await form.getByText("another session has taken the memory meanwhile").waitFor();
  assert.equal(await form.getByText("The share is changed.").count(), 0);
  await form.getByRole("button", { name: "Reset" }).click();
  assert.equal(await form.getByLabel("Memory").inputValue(), "64 MiB");
}));

test("the form follows a change by another user, unless something is typed", () => withPage({ path: "#/session/alice" }, async (page, mock) => {
  const form = share(page);
  mock.node.sessions[0].memory_reserved = 128 << 20;
  await page.waitForFunction(() => document.querySelector("form.share input").value === "128 MiB", null, { timeout: 4000 });
  await form.getByLabel("Memory").fill("100 MiB");
  mock.node.sessions[0].memory_reserved = 256 << 20;
  await form.getByText("The session was changed meanwhile.").waitFor();
  assert.equal(await form.getByLabel("Memory").inputValue(), "100 MiB");
  await form.getByRole("button", { name: "Take the present values" }).click();
  assert.equal(await form.getByLabel("Memory").inputValue(), "256 MiB");
}));

test("a session is closed after a confirmation, by keyboard alone", () => withPage({ path: "#/session/bob" }, async (page, mock) => {
  await page.getByRole("button", { name: "Close session" }).focus();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Close the session bob?" });
  await dialog.waitFor();
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Cancel", "the safe button has the focus");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.match(await page.evaluate(() => document.activeElement.textContent), /Close session/, "the focus is back");
  assert.deepEqual(mock.requests, []);
  await page.keyboard.press("Enter");
  await dialog.waitFor();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await page.waitForFunction(() => location.hash === "#/node");
  assert.deepEqual(mock.requests, [{ close: { session: "bob" } }]);
  await page.waitForFunction(() => ![...document.querySelectorAll(".sessions tbody th")].some((it) => it.textContent === "bob"), null, { timeout: 4000 });
}));

test("a module is unloaded after a confirmation; a refusal stays in the dialog", () => withPage({ path: "#/session/bob" }, async (page, mock) => {
  mock.refuse = "the session is busy";
  await page.getByRole("button", { name: "Unload rtt" }).click();
  await page.getByRole("button", { name: "Unload module" }).click();
  await page.getByRole("dialog").getByText("the session is busy").waitFor();
  mock.refuse = null;
  await page.getByRole("button", { name: "Unload module" }).click();
  await page.getByRole("dialog").waitFor({ state: "detached" });
  assert.deepEqual(mock.requests.at(-1), { unload: { session: "bob", module: "rtt" } });
}));

test("a credential is revoked only after the end of the holder's key was typed", () => withPage({ path: "#/credentials" }, async (page, mock) => {
  await page.getByRole("button", { name: `Revoke the credential of ${key(2)}` }).click();
  const dialog = page.getByRole("dialog");
  const revoke = dialog.getByRole("button", { name: "Revoke" });
  assert.ok(await revoke.isDisabled());
  await dialog.getByRole("textbox").fill("nope");
  await page.keyboard.press("Enter");
  assert.deepEqual(mock.requests, []);
  await dialog.getByRole("textbox").fill(key(2).slice(-4));
  await page.keyboard.press("Enter");
  await dialog.waitFor({ state: "detached" });
  assert.deepEqual(mock.requests, [{ revoke: id(2) }]);
  await page.getByText("▲ revoked").waitFor();
}));

test("a capture runs: parameters are checked, progress is shown, the report has no rights, and closing deletes it", () => withPage({ path: "#/run" }, async (page, mock) => {
  // The default modules of `weir run` are chosen.
  await page.getByRole("button", { name: "Run 3 modules" }).waitFor();
  assert.ok(await page.getByRole("checkbox", { name: /flows/ }).isChecked());
  await page.getByRole("button", { name: "None" }).click();
  await page.getByRole("button", { name: "Run", exact: true }).click();
  await page.getByText("▲ Choose a capture.").waitFor();
  await page.getByText("▲ Choose at least one module.").waitFor();
  await page.getByRole("checkbox", { name: /port-count/ }).check();
  await page.getByLabel("network").fill("10.0.0.0/40");
  await page.getByText("▲ This is not an IP prefix").waitFor();
  await page.getByRole("button", { name: "Run 1 module" }).click();
  await page.getByText("port-count, ports: This parameter must be given.").waitFor();
  assert.deepEqual(mock.requests, []);
  await page.getByLabel("network").fill("10.0.0.0/8");
  await page.getByRole("textbox", { name: "ports" }).fill("53,123");
  await page.getByLabel("mode").selectOption("source");
  await page.setInputFiles("#capture", { name: "x\u202e.pcap", mimeType: "application/octet-stream", buffer: Buffer.alloc(5_000_000, 1) });
  await page.getByText("x\\u{202e}.pcap").waitFor();
  await page.getByRole("button", { name: "Run 1 module" }).click();
  await page.getByText("Done").waitFor();
  await page.getByText(/12.345 packets/).waitFor();
  assert.deepEqual(mock.requests[0].modules, [{ module: "port-count", set: { ports: "53,123", network: "10.0.0.0/8", mode: "source" } }]);
  assert.equal(mock.runs.get("7").bytes, 5_000_000);
  const frame = page.locator("iframe.report");
  assert.equal(await frame.getAttribute("sandbox"), "allow-downloads");
  await page.frameLocator("iframe.report").getByText("Report of a run").waitFor();
  // Another page and back: the report is still there.
  await page.getByRole("link", { name: "Ledger" }).click();
  await page.getByRole("link", { name: "Run" }).click();
  await frame.waitFor();
  await page.getByRole("button", { name: "Close, and delete" }).click();
  await page.getByText("Drop a capture here").waitFor();
  await page.waitForTimeout(300);
  assert.equal(mock.runs.size, 0);
  assert.ok(mock.log.includes("DELETE /api/runs/7"));
}));

test("a capture is dropped on the page; a run that fails says why", () => withPage({ path: "#/run" }, async (page, mock) => {
  mock.runFails = true;
  await page.getByText("Drop a capture here").waitFor();
  const data = await page.evaluateHandle(() => {
    const transfer = new DataTransfer();
    transfer.items.add(new File([new Uint8Array(100)], "dropped.pcap"));
    return transfer;
  });
  await page.dispatchEvent(".drop", "drop", { dataTransfer: data });
  await page.getByText("dropped.pcap").waitFor();
  await page.getByRole("checkbox", { name: /rtt/ }).check();
  await page.getByRole("button", { name: "Run 4 modules" }).click();
  await page.getByText("the capture is no pcap").waitFor();
}));

test("an interface is the source of a run, and a run can be cancelled", () => withPage({ path: "#/run" }, async (page, mock) => {
  await page.getByRole("button", { name: "Interface" }).click();
  await page.getByLabel("Seconds").fill("5");
  // On a node, modules take memory and time from others: none is chosen by default.
  assert.equal(await page.getByRole("checkbox", { checked: true }).count(), 0);
  await page.getByRole("checkbox", { name: /flows/ }).check();
  await page.getByRole("button", { name: "Run 1 module" }).click();
  await page.getByRole("button", { name: "Cancel" }).click();
  await page.getByRole("heading", { name: "Packets" }).waitFor();
  await page.waitForTimeout(500);
  assert.deepEqual(mock.requests[0].source, { interface: { name: "eth0", seconds: 5 } });
  assert.equal(mock.runs.size, 0);
}));

test("a holder chooses an interface that the credential names, or types one that the page cannot know", () => withPage({}, async (page, mock) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  mock.runInterfaces = ["eth7"];
  const open = async () => {
    await page.evaluate(() => { location.hash = "#/run"; });
    await page.reload();
    await page.getByRole("button", { name: "Interface" }).click();
  };
  await open();
  assert.deepEqual(await page.getByRole("combobox", { name: "Interface" }).locator("option").allInnerTexts(), ["eth7"]);
  // A holder sees no interfaces of the node, and has no session here.
  mock.runInterfaces = undefined;
  [mock.node.interfaces, mock.node.sessions] = [[], []];
  await open();
  await page.getByRole("button", { name: /^Run/ }).click();
  await page.getByText("Choose an interface.").waitFor();
  await page.getByRole("textbox", { name: "Interface" }).fill(" eth3");
  await page.getByRole("button", { name: /^Run/ }).click();
  await page.waitForFunction(() => document.querySelector(".faults")?.textContent.includes("module"));
  assert.equal(mock.requests.length, 0, "no module is chosen");
  await page.getByRole("checkbox", { name: /dns/ }).check();
  await page.getByRole("button", { name: /^Run/ }).click();
  await page.getByText("Done").waitFor();
  assert.deepEqual(mock.requests[0].source, { interface: { name: "eth3", seconds: 30 } });
}));

test("a run ends when the page is closed", () => withPage({ path: "#/run" }, async (page, mock) => {
  await page.setInputFiles("#capture", { name: "x.pcap", mimeType: "", buffer: Buffer.alloc(100, 1) });
  await page.getByRole("button", { name: "Run 3 modules" }).click();
  await page.getByText("Done").waitFor();
  const run = mock.runs.get("7");
  await page.goto("about:blank");
  await new Promise((resolve) => setTimeout(resolve, 500));
  assert.ok(run.ended, "the stream has ended");
}));

test("without the right to manage there are no controls, and the page says why", () => withPage({ may_manage: false, path: "#/session/alice" }, async (page) => {
  await page.getByText("Your credential lets you look at this session, and not change it.").waitFor();
  assert.equal(await page.getByRole("button", { name: /Close session|Unload|Apply/ }).count(), 0);
  await page.getByText("who may look and not change").waitFor();
}));

test("all of the page is reached by keyboard, with a visible focus and without traps", () => withPage({}, async (page) => {
  await page.locator(".sessions").getByRole("link", { name: "alice" }).waitFor();
  await page.keyboard.press("Tab");
  assert.equal(await page.evaluate(() => document.activeElement.textContent), "Skip to the content");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.activeElement.id), "main");
  assert.equal(await page.evaluate(() => location.hash), "#/node");
  await page.evaluate(() => document.activeElement.blur());
  const wanted = await page.evaluate(() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")].filter((it) => !it.disabled && it.tabIndex >= 0 && it.offsetParent !== null).length);
  const seen = new Set();
  for (let n = 0; n < wanted + 10; n += 1) {
    await page.keyboard.press("Tab");
    const focus = await page.evaluate(() => {
      const it = document.activeElement;
      if (it === document.body) return null;
      it.dataset.n ??= String(Math.random());
      const style = getComputedStyle(it);
      return { n: it.dataset.n, isVisible: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2, text: it.outerHTML.slice(0, 80) };
    });
    if (focus === null) continue;
    assert.ok(focus.isVisible, focus.text);
    seen.add(focus.n);
  }
  assert.ok(seen.size >= wanted, `${seen.size} of ${wanted}`);
}));
