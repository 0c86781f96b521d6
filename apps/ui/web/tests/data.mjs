// A made-up node whose counters grow: cores, interfaces, links, sessions with losses, hostile names.

/** A module's text full of markup, control characters and characters that reorder text. */
export const HOSTILE = `<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>\u001b[2J\u202e${"x".repeat(400)}`;
export const HOSTILE_NAME = "a/../%2e?x=<b>&\u202e";

const KEY = (n) => `weir-key:${"abcdefghijklmnopqrstuvwxyz234567".repeat(2).slice(n % 20, (n % 20) + 44)}${String(n).padStart(12, "a").replace(/[0189]/g, "q")}`;
const ID = (n) => `weir-id:${"nagnfhgkeattgkgho5dto3pwdwdt3bd7".slice(n % 9)}${"abcdefghi".slice(0, n % 9)}`;
export const key = KEY;
export const id = ID;

/** A repeatable source of numbers from 0 to 1. */
function random(seed) {
  let state = seed >>> 0 || 1;
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return state / 2 ** 32;
  };
}

export class FakeNode {
  constructor({ sessions = 6, hostile = false, startMs = Date.now() } = {}) {
    this.random = random(7);
    this.uptime = 372_350;
    this.atMs = startMs;
    this.hostile = hostile;
    this.sessions = Array.from({ length: sessions }, (_, n) => session(n, hostile, this.random));
    this.cores = [1, 2, 3].map((core) => ({ core, reserved_ppm: 500_000 + core * 100_000, reservable_ppm: 900_000, busy_ns: 2e15, overhead_ns: 3e12, stolen_ns: 1e12 }));
    this.interfaces = ["eth0", hostile ? HOSTILE : "eth1"].map((name, n) => ({ name, state: n === 0 ? "up" : "down: no carrier", packets: 9e9, bytes: 6.3e12, missed: n === 0 ? 1200 : 0, unmatched: 4e6, fragments: { first: 44, followed: 60 } }));
    this.links = [{ name: "eth2", state: "up", rate_bits: 1e9, reserved_bits: 4e8, reservable_bits: 9e8, packets: 5e8, bytes: 3e11, lost: 7 }];
    this.before = null;
    this.history = [];
    this.tick();
    this.tick();
  }

  /** Lets a second pass. */
  tick() {
    this.uptime += 1;
    this.atMs += 1000;
    const r = this.random;
    this.cores.forEach((core) => { core.busy_ns += (0.55 + 0.3 * r()) * 1e9; core.overhead_ns += 0.01e9; core.stolen_ns += core.core === 3 ? 0.08e9 : 0.002e9; });
    this.interfaces.forEach((it, n) => { if (n === 0) { const packets = Math.round(180_000 + 40_000 * r()); it.packets += packets; it.bytes += packets * 700; it.missed += Math.round(30 * r()); it.unmatched += 900; } });
    this.links.forEach((it) => { it.packets += 20_000; it.bytes += Math.round((0.5 + 0.1 * r()) * 1e9 / 8); });
    for (const it of this.sessions) grow(it, r);
    const now = this.snapshot();
    this.rates = rates(this.before, now);
    this.before = structuredClone(now);
    return { snapshot: now, rates: this.rates };
  }

  line() {
    return { snapshot: this.before, rates: this.rates };
  }

  snapshot() {
    return {
      node: this.hostile ? HOSTILE : "ix-1", version: "0.1.0", uptime_ns: this.uptime * 1e9, at_ns: Math.round(this.atMs * 1e6),
      views: [{ number: 1, interface: "eth0", view: "addresses=anonymised", owner: this.hostile ? HOSTILE : ID(1), packets: 1e9, readers: ["bob/rtt", "dns-study/rtt"] }],
      tables: [{ name: "blocked", publisher: "session alice", version: 12, bytes: 3072, readers: ["bob/rtt"], problems: this.hostile ? [HOSTILE] : [] }],
      remote: { connections: 412, half_open: 0, clients: 3, refused: this.hostile ? { [HOSTILE]: 4 } : { expired: 4 } },
      cores: this.cores, interfaces: this.interfaces, links: this.links,
      sessions: this.sessions.map(({ load, ...it }) => it), memory: { reserved: this.sessions.length * (64 << 20), reservable: 2 ** 34 },
    };
  }
}

const NAMES = ["alice", "bob", "carol", "dns-study", "edge-monitor", "flow-export"];

function session(n, hostile, r) {
  const name = hostile && n === 1 ? HOSTILE_NAME : n < NAMES.length ? NAMES[n] : `session-${String(n).padStart(3, "0")}`;
  const slice = [2e6, 1e6, 5e5, 4e6][n % 4];
  const isEnded = n % 37 === 5;
  const losing = n % 10 === 1;
  return {
    load: { cpu: losing ? 0.12 : (slice / 1e7) * (0.4 + 0.6 * r()), packets: 500 + Math.round(9_000 * r()), losing },
    name, ...(n % 3 === 0 ? {} : { credential: `${ID(n)} (until 2027-01-01)` }), id: 1, priority: n % 4,
    memory_reserved: 64 << 20, memory_used: Math.round((8 + 40 * r()) * 2 ** 20), memory_max: 128 << 20, memory_low: 0, memory_refused: 0, limits: { records_per_second: 1000, ...(losing ? { records_over_rate: 1234 } : {}), record_storage: 1e9, record_storage_used: 4e8 },
    cpu: [{ name: "main", core: 1 + (n % 3), period_ns: 1e7, slice_ns: slice, borrow: n % 2 === 0, weight: 100, used_ns: 5e11, spare_ns: 0, periods_missed: 3, overruns: 17 }],
    channels: [{ name: "main", interface: "eth0", filter: hostile ? HOSTILE : "tcp port 443", view: n % 2 ? "payload=none" : "", waiting: losing ? 4000 : 12, queue: 4096, packets: 1e8, bytes: 7e10, drops: losing ? { "queue-full": 2e5, lagged: 30 } : {}, findings: { "bad-udp": 3 } }],
    outputs: n % 2 ? [] : [{ name: "up", link: "eth2", tap: null, reserved_bits: 2e7, cap_bits: 6e7, weight: 0, filter: "", waiting: 3, queue: 256, packets: 1e7, bytes: 7e9, wire_bytes: 8e9, reserved_wire_bytes: 8e9, drops: {}, tap_packets: 0, tap_lost: 0 }],
    modules: [{ name: hostile ? HOSTILE : "rtt", module: "rtt 1.2.0", tier: ["proved", "metered", "supervised"][n % 3], bound: "at most 1.2 us for a packet", state: "running", packets: 1e8, records: 4e6, records_lost: 0, faults: losing ? 4 : 0, strikes: 0, back_end: "Cranelift", used_ns: 4e11, memory: 8 << 20, last_fault: hostile ? HOSTILE : losing ? "memory access out of bounds at rtt.c:118 in weir_packet" : null, streams: ["rtts", "findings"] }],
    ended: isEnded ? [{ name: "worm", module: "worm 1.0.0", tier: "metered", state: "ended: three calls were aborted", packets: 10, records: 0, records_lost: 0, faults: 3, strikes: 3, used_ns: 1e9, memory: 1 << 20, last_fault: "call aborted at its limit of fuel at worm.c:40", streams: [] }] : [],
    used: { cpu_ns: 5e11, packets_in: 1e8, drops: losing ? { "queue-full": 2e5, lagged: 30, "module-fault": 4 } : {} },
    findings: n % 5 === 0 ? { counts: { high: 1 }, latest: [{ module: "rtt", time_ns: Date.now() * 1e6, severity: 4, text: hostile ? HOSTILE : "handshakes with 192.0.2.9 take 40 times as long as before", filter: "tcp and host 192.0.2.9", evidence: "rtts" }] } : {},
  };
}

function grow(it, r) {
  const { cpu, packets, losing } = it.load;
  const wave = 0.8 + 0.4 * r();
  it.cpu[0].used_ns += cpu * wave * 1e9;
  it.used.cpu_ns += cpu * wave * 1.05e9;
  it.memory_used = Math.max(1 << 20, Math.min(it.memory_reserved, it.memory_used + Math.round((r() - 0.5) * 2 ** 18)));
  const got = Math.round(packets * wave);
  it.channels[0].packets += got;
  it.channels[0].bytes += got * 700;
  it.modules[0].packets += got;
  it.modules[0].records += Math.round(got / 40);
  it.modules[0].used_ns += cpu * wave * 1e9;
  if (losing) {
    const lost = Math.round(got * 0.2);
    it.channels[0].drops["queue-full"] += lost;
    it.used.drops["queue-full"] += lost;
  }
  for (const output of it.outputs) { output.packets += 1500; output.wire_bytes += Math.round(2.2e6 * wave); output.bytes += Math.round(2.1e6 * wave); }
}

/** The rates of `weir top`, for the fields that grow here. */
function rates(before, now) {
  const per = (a, b) => (a === undefined ? null : b - a);
  const sum = (counts) => Object.values(counts).reduce((total, count) => total + count, 0);
  const of = (list, name, key = "name") => list?.find((it) => it[key] === name);
  return {
    cores: now.cores.map((it) => { const b = of(before?.cores, it.core, "core"); return { busy: b ? (it.busy_ns - b.busy_ns) / 1e9 : null, overhead: b ? (it.overhead_ns - b.overhead_ns) / 1e9 : null, stolen: b ? (it.stolen_ns - b.stolen_ns) / 1e9 : null }; }),
    interfaces: now.interfaces.map((it) => { const b = of(before?.interfaces, it.name); return { packets: per(b?.packets, it.packets), bits: b ? (it.bytes - b.bytes) * 8 : null, missed: per(b?.missed, it.missed), unmatched: per(b?.unmatched, it.unmatched) }; }),
    links: now.links.map((it) => { const b = of(before?.links, it.name); return { packets: per(b?.packets, it.packets), bits: b ? (it.bytes - b.bytes) * 8 : null, drops: per(b?.lost, it.lost) }; }),
    views: now.views.map(() => 1800),
    sessions: now.sessions.map((it) => {
      const b = of(before?.sessions, it.name);
      const channel = { packets: per(b?.channels[0].packets, it.channels[0].packets), bits: b ? (it.channels[0].bytes - b.channels[0].bytes) * 8 : null, drops: b ? sum(it.channels[0].drops) - sum(b.channels[0].drops) : null };
      const used = b ? (it.cpu[0].used_ns - b.cpu[0].used_ns) / 1e9 : null;
      const module = { packets: per(b?.modules[0]?.packets, it.modules[0]?.packets ?? 0), records: per(b?.modules[0]?.records, it.modules[0]?.records ?? 0), used, per_packet: used === null || !channel.packets ? null : (used * 1e9) / channel.packets };
      return {
        cpu: b ? (it.used.cpu_ns - b.used.cpu_ns) / 1e9 : null, spare: 0, packets: channel.packets, drops: channel.drops, records: module.records,
        processors: [{ used, spare: 0, missed: 0 }], channels: [channel],
        outputs: it.outputs.map((output, n) => ({ packets: 1500, bits: b ? (output.wire_bytes - b.outputs[n].wire_bytes) * 8 : null, drops: 0 })), modules: it.modules.length ? [module] : [],
      };
    }),
  };
}

/** An hour of history in the form of `/api/history`. */
export function history(node, name) {
  const at_ms = Array.from({ length: 3600 }, (_, n) => node.atMs - (3600 - n) * 1000);
  const wave = (base, n, part) => base * (1 + part * Math.sin(n / 190) + part * 0.4 * Math.sin(n / 23));
  const columns = {};
  const column = (title, value) => { columns[title] = at_ms.map((_, n) => (n > 2000 && n < 2030 ? null : value(n))); };
  if (name === null) {
    node.cores.forEach((core) => { column(`core ${core.core} busy`, (n) => wave(0.6, n, 0.2)); column(`core ${core.core} promised`, () => core.reserved_ppm / 1e6); });
    node.interfaces.forEach((it, k) => { column(`interface ${it.name} bits`, (n) => wave(1e9, n, 0.2) * (k === 0 ? 1 : 0)); column(`interface ${it.name} missed`, () => 0); });
    node.links.forEach((it) => { column(`link ${it.name} bits`, (n) => wave(5e8, n, 0.1)); column(`link ${it.name} promised`, () => it.reserved_bits); });
  } else {
    column("cpu", (n) => wave(0.15, n, 0.4));
    column("cpu_promised", (n) => (n < 1200 ? 0.1 : 0.2));
    column("memory", (n) => wave(30 * 2 ** 20, n, 0.2));
    column("memory_promised", () => 64 << 20);
    column("bandwidth", (n) => wave(17e6, n, 0.3));
    column("bandwidth_promised", () => 2e7);
    column("packets", (n) => wave(6000, n, 0.3));
    column("drops", (n) => Math.max(0, wave(200, n, 3)));
    column("records", (n) => wave(150, n, 0.3));
  }
  return { at_ms, columns };
}
