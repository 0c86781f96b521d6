// Common parts of all browser tests: a browser, and a page on a mock.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";
import { Mock } from "./mock.mjs";

export const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
export const isThere = existsSync(CHROMIUM);

const ARGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "--enable-precise-memory-info", "--js-flags=--expose-gc"];

let browser = null;

export async function start() {
  browser ??= await chromium.launch({ executablePath: CHROMIUM, args: ARGS });
  return browser;
}

export async function stop() {
  await browser?.close();
}

/** Opens a page on a new mock, and calls `test` with both. The page must have logged no error and run no foreign script. */
export async function withPage(options, test) {
  const { width = 1280, height = 900, colorScheme = "light", path = null, allowErrors = false, timezoneId = "Europe/Berlin", ...rest } = options;
  const mock = await new Mock(rest).start();
  const context = await (await start()).newContext({ viewport: { width, height }, colorScheme, timezoneId, acceptDownloads: true });
  await context.grantPermissions(["clipboard-read", "clipboard-write"], { origin: mock.origin });
  const page = await context.newPage();
  const errors = [];
  page.on("pageerror", (error) => errors.push(`${error}`));
  page.on("console", (message) => {
    if (message.type() === "error" && !/Failed to load resource|ERR_|Blocked script execution in/.test(message.text())) errors.push(message.text());
  });
  context.on("request", (request) => {
    if (!request.url().startsWith(`${mock.origin}/`) && !/^(?:blob|data|about|chrome-error):/.test(request.url())) errors.push(`a request to ${request.url()}`);
  });
  try {
    await page.goto(`${mock.origin}/#TOKEN`);
    if (path !== null) {
      await page.waitForSelector("h1:not(:text('Connecting'))");
      await page.evaluate((hash) => { location.hash = hash; }, path);
    }
    await test(page, mock, context);
    if (await page.evaluate(() => "pwned" in window)) throw new Error("foreign text was run as a script");
    if (errors.length > 0 && !allowErrors) throw new Error(`the page logged errors:\n${errors.join("\n")}`);
  } finally {
    await context.close();
    await mock.stop();
  }
}
