// Pictures of each page for docs/UI.md: node pictures.mjs ADDRESS FOLDER CAPTURE SECONDS. `live_node.py` runs it on a live node.

import { start, stop } from "./browser.mjs";

const [address, folder, capture, seconds] = process.argv.slice(2);
/** The width without the gutter of the scroll bar. */
const WIDTH = 1265;
const context = await (await start()).newContext({ viewport: { width: WIDTH + 15, height: 1000 }, colorScheme: "light", timezoneId: "Europe/Berlin" });
const page = await context.newPage();

async function go(hash, height) {
  await page.setViewportSize({ width: WIDTH + 15, height });
  await page.evaluate((to) => { location.hash = to; }, hash);
  await page.waitForTimeout(3000);
}
const picture = (name, height) => page.screenshot({ path: `${folder}/ui-${name}.png`, clip: { x: 0, y: 0, width: WIDTH, height } });

await page.goto(address);
await page.locator(".sessions tbody tr").first().waitFor();
await page.waitForTimeout(1000 * Number(seconds));

await go("#/node", 2000);
await picture("node", 1750);

await go("#/session/crowded", 1500);
await page.locator("form.share").getByLabel("Slice").fill("49 ms");
await page.getByText(/Would be refused/).waitFor();
await picture("session", 1300);

await go("#/credentials", 900);
await picture("credentials", 900);

await go("#/decisions", 1000);
await page.getByLabel("Outcome").selectOption("refused");
await page.waitForTimeout(500);
await picture("decisions", 729);

await go("#/ledger", 800);
await picture("ledger", 800);

await go("#/run", 1900);
await page.locator("input[type=file]").setInputFiles(capture);
await page.locator("summary", { hasText: "latency" }).first().click();
await page.waitForTimeout(500);
await page.screenshot({ path: `${folder}/ui-run.png`, clip: { x: 0, y: 0, width: WIDTH, height: 1500 } });

await page.setViewportSize({ width: WIDTH + 15, height: 900 });
await page.getByRole("button", { name: /^Run/ }).click();
await page.locator("iframe").waitFor({ timeout: 60_000 });
await page.frameLocator("iframe").locator("h1").first().waitFor({ timeout: 60_000 });
await page.evaluate(() => scrollTo(0, 0));
await page.waitForTimeout(1000);
await picture("report", 900);

await stop();
