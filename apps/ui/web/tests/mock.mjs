// A mock of the server of `weir ui`, for tests: the interface of src/api.ts over Node's HTTP server, which tests script.

import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { FakeNode, history } from "./data.mjs";
import { MODULES, STREAMS, credentials, decisions, ledger, row } from "./answers.mjs";

export const CSP = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";
const TYPES = { "/": ["index.html", "text/html; charset=utf-8"], "/app.js": ["app.js", "text/javascript"], "/app.css": ["app.css", "text/css"], "/icon.svg": ["icon.svg", "image/svg+xml"] };
const REPORT = '<!doctype html><html lang="en"><title>Report</title><style>body{font:15px sans-serif}</style><h1>Report of a run</h1><p>12 packets</p><script>parent.pwned = 1</script></html>';

export class Mock {
  constructor(options = {}) {
    this.options = { sessions: 6, hostile: false, may_manage: true, tickMs: 1000, startMs: Date.now(), ...options };
    this.node = new FakeNode(this.options);
    this.tokens = new Set(["TOKEN"]);
    this.secret = "SECRET-1";
    this.lost = null;
    this.mute = false;
    this.raw = null;
    this.delayMs = 0;
    this.checkDelayMs = 0;
    this.refuse = null;
    /** The error of everything that asks the node. */
    this.nodeError = null;
    this.requests = [];
    this.log = [];
    this.revoked = new Set();
    this.runs = new Map();
    this.rowsPerLine = 20;
    this.watchers = new Set();
    this.open = new Set();
  }

  async start(port = 0) {
    this.server = createServer((request, response) => {
      this.handle(request, response).catch((error) => {
        this.log.push(`error ${error.stack}`);
        response.destroy();
      });
    });
    this.server.on("connection", (socket) => {
      this.open.add(socket);
      socket.on("close", () => this.open.delete(socket));
    });
    await new Promise((resolve) => this.server.listen(port, "127.0.0.1", resolve));
    this.port = this.server.address().port;
    this.timer = setInterval(() => this.tick(), this.options.tickMs);
    return this;
  }

  get origin() {
    return `http://127.0.0.1:${this.port}`;
  }

  async stop() {
    clearInterval(this.timer);
    for (const socket of this.open) socket.destroy();
    await new Promise((resolve) => this.server.close(resolve));
  }

  tick() {
    if (this.mute) return;
    if (this.lost === null) this.node.tick();
    for (const response of this.watchers) response.write(this.watchLine());
  }

  watchLine() {
    if (this.raw !== null) return this.raw;
    return `${JSON.stringify(this.lost === null ? this.node.line() : { lost: this.lost.why, since_s: Math.round((Date.now() - this.lost.at) / 1000) })}\n`;
  }

  async handle(request, response) {
    const url = new URL(request.url, this.origin);
    const path = url.pathname;
    this.log.push(`${request.method} ${request.url}`);
    if (this.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, this.delayMs));
    if (path in TYPES) {
      const [file, type] = TYPES[path];
      response.writeHead(200, { "Content-Type": type, "Content-Security-Policy": CSP, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store" });
      return response.end(readFileSync(new URL(`../dist/${file}`, import.meta.url)));
    }
    if (path.startsWith("/report/")) {
      response.writeHead(200, { "Content-Type": "text/html", "Content-Security-Policy": "sandbox allow-downloads; default-src 'none'; style-src 'unsafe-inline'" });
      return response.end(REPORT);
    }
    const json = (status, body) => {
      response.writeHead(status, { "Content-Type": "application/json" });
      response.end(JSON.stringify(body));
    };
    if (path === "/api/open") {
      const { token } = JSON.parse(await body(request));
      if (!this.tokens.delete(token)) return json(401, { error: "this address was used already" });
      return json(200, { secret: this.secret });
    }
    if (request.headers.authorization !== `Bearer ${this.secret}`) return json(401, { error: "weir ui was started anew and does not know this page" });
    return this.api(request, response, url, json);
  }

  async api(request, response, url, json) {
    const { hostile, may_manage } = this.options;
    const [, , what, number, part] = url.pathname.split("/");
    if (this.nodeError !== null && !["state", "watch", "history", "runs"].includes(what)) return json(502, { error: this.nodeError });
    switch (what) {
      case "state": return json(200, { node: "ix-1", address: "/run/weir/node.sock", weir: "0.1.0", who: this.who ?? (may_manage ? "the operator" : "holder weir-key:abc"), may_manage, run_interfaces: this.runInterfaces, modules: MODULES(hostile), run_bytes_max: 1e9 });
      case "watch": return this.stream(response, this.watchers, this.watchLine());
      case "history": return json(200, history(this.node, url.searchParams.get("session")));
      case "request": return this.request(JSON.parse(await body(request)), json);
      case "check": {
        const asked = JSON.parse(await body(request));
        if (this.checkDelayMs) await new Promise((resolve) => setTimeout(resolve, this.checkDelayMs));
        const slice = asked.change?.cpu?.[0]?.slice ?? "";
        return json(200, /^(9|10) ms/.test(slice) ? { refused: "core 1 has 32 % left; the session asks for 90 %" } : { refused: null });
      }
      case "rows": return this.rows(response);
      case "decisions": return json(200, decisions(hostile));
      case "ledger": return json(200, ledger(hostile));
      case "ledger.csv": case "ledger.parquet":
        response.writeHead(200, { "Content-Type": "application/octet-stream" });
        return response.end("session,cpu_s\nalice,12.5\n");
      case "credentials": return json(200, credentials(hostile, this.revoked));
      case "revoke": {
        const { id } = JSON.parse(await body(request));
        this.requests.push({ revoke: id });
        if (this.refuse) return json(200, { refused: { why: this.refuse } });
        this.revoked.add(id);
        return json(200, { done: { notes: [] } });
      }
      case "runs": return this.run(request, response, json, number, part);
      default: return json(404, { error: "there is no such resource" });
    }
  }

  request(asked, json) {
    this.requests.push(asked);
    if (this.refuse) return json(200, { refused: { why: this.refuse } });
    if (asked.close) this.node.sessions = this.node.sessions.filter((it) => it.name !== asked.close.session);
    if (asked.unload) {
      const session = this.node.sessions.find((it) => it.name === asked.unload.session);
      session.modules[0].state = "unloaded";
    }
    if (asked.change) {
      const session = this.node.sessions.find((it) => it.name === asked.change.session);
      if (asked.change.memory) session.memory_reserved = Number.parseInt(asked.change.memory, 10) * 2 ** 20;
      for (const cpu of asked.change.cpu ?? []) Object.assign(session.cpu[0], { slice_ns: Number.parseFloat(cpu.slice) * 1e6, period_ns: Number.parseFloat(cpu.period) * 1e6, borrow: cpu.borrow });
      for (const output of asked.change.output ?? []) Object.assign(session.outputs[0], { reserved_bits: Number.parseFloat(output.reserve ?? "0") * 1e6, cap_bits: Number.parseFloat(output.cap ?? "0") * 1e6 });
    }
    return json(200, { done: { notes: ["noted in the ledger"] } });
  }

  stream(response, set, first) {
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    response.write(first);
    set.add(response);
    response.on("close", () => set.delete(response));
  }

  rows(response) {
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    response.write(`${JSON.stringify(STREAMS)}\n`);
    let n = 0;
    const timer = setInterval(() => {
      const rows = Array.from({ length: this.rowsPerLine }, () => row(n++, this.options.hostile));
      response.write(`${JSON.stringify({ stream: "rtt.rtts", rows, skipped: this.rowsPerLine >= 100 ? 249_900 : 0 })}\n`);
      if (n > 1000) response.write(`${JSON.stringify({ missed: 12 })}\n`);
    }, 250);
    response.on("close", () => clearInterval(timer));
  }

  async run(request, response, json, number, part) {
    if (number === undefined) {
      const asked = JSON.parse(await body(request));
      this.requests.push(asked);
      if (this.refuse) return json(409, { error: this.refuse });
      this.runs.set("7", { asked, bytes: 0, ended: false });
      return json(200, { run: 7 });
    }
    const run = this.runs.get(number);
    if (request.method === "DELETE") {
      this.runs.delete(number);
      return json(200, { done: true });
    }
    if (part === "capture") {
      for await (const chunk of request) run.bytes += chunk.length;
      run.complete = true;
      return json(200, { done: true });
    }
    response.writeHead(200, { "Content-Type": "application/x-ndjson" });
    const total = run.asked.source.upload?.bytes ?? run.asked.source.interface.seconds * 1000;
    const isUpload = "upload" in run.asked.source;
    let step = 0;
    const timer = setInterval(() => {
      if (isUpload && !run.complete) return;
      step += 1;
      if (step < 4) response.write(`${JSON.stringify({ progress: { bytes: (total * step) / 4, bytes_total: total } })}\n`);
      else if (step === 4) response.write(`${JSON.stringify(this.runFails ? { failed: "the capture is no pcap" } : { done: { report: "/report/TICKET-7", summary: isUpload ? { capture: { packets: 12_345 } } : null } })}\n`);
      else response.write("{}\n");
    }, 150);
    response.on("close", () => {
      clearInterval(timer);
      run.ended = true;
    });
  }
}

async function body(request) {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text;
}

// `node tests/mock.mjs 8000` serves the made-up node for a look by hand; open http://127.0.0.1:8000/#TOKEN.
if (process.argv[1] === new URL(import.meta.url).pathname) {
  const mock = await new Mock({ sessions: 40 }).start(Number(process.argv[2] ?? 8000));
  console.log(`${mock.origin}/#TOKEN`);
}
