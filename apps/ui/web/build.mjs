// Bundles src into dist, or into the folder that is given. The same sources and the same versions give the same bytes; TOOLCHAIN names the version of Node.
import { build } from "esbuild";
import { copyFileSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { gzipSync } from "node:zlib";

const DIST = new URL(`${process.argv[2] ?? "dist"}/`, import.meta.url);
const GZIP_BYTES_MAX = 120_000;

/** The licences of the bundled packages ask for their notices in copies. */
const notice = ["preact", "@preact/signals", "@preact/signals-core", "uplot"].map((name) => {
  const folder = new URL(`node_modules/${name}/`, import.meta.url);
  const { version } = JSON.parse(readFileSync(new URL("package.json", folder), "utf8"));
  return `${name} ${version}\n\n${readFileSync(new URL("LICENSE", folder), "utf8").trim()}`;
}).join("\n\n").replaceAll("\r", "").replaceAll("*/", "* /");

rmSync(DIST, { recursive: true, force: true });
mkdirSync(DIST, { recursive: true });
await build({
  absWorkingDir: new URL(".", import.meta.url).pathname,
  entryPoints: { app: "src/main.tsx" },
  outdir: DIST.pathname,
  bundle: true,
  minify: true,
  format: "iife",
  target: ["es2022"],
  charset: "utf8",
  legalComments: "none",
  footer: { js: `/*!\nThis file contains:\n\n${notice}\n*/` },
  jsx: "automatic",
  jsxImportSource: "preact",
  define: { "process.env.NODE_ENV": '"production"' },
  logLevel: "warning",
});
for (const name of ["index.html", "icon.svg"]) copyFileSync(new URL(`static/${name}`, import.meta.url), new URL(name, DIST));

let total = 0;
for (const name of ["index.html", "app.js", "app.css", "icon.svg"]) {
  const bytes = readFileSync(new URL(name, DIST));
  const compressed = gzipSync(bytes, { level: 9 }).length;
  total += compressed;
  console.log(`${name.padEnd(11)} ${String(bytes.length).padStart(7)} B ${String(compressed).padStart(7)} B gzip`);
}
console.log(`total ${total} B gzip, at most ${GZIP_BYTES_MAX}`);
if (total > GZIP_BYTES_MAX) process.exit(1);
