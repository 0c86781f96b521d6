// Made-up answers of the other parts of the interface: decisions, ledger, credentials, modules, rows.

import { HOSTILE, id, key } from "./data.mjs";

export const MODULES = (hostile) => [
  { name: "rtt", version: "1.2.0", description: "TCP round-trip times from the SYN and the first ACK", parameters: [
    { name: "table-size", type: "u64", description: hostile ? HOSTILE : "Connections that are tracked at a time", default: "65536", min: 16, max: 1048576, unit: "connections" },
    { name: "timeout", type: "duration", description: "Time without a packet after which a connection is forgotten", default: "30s", min: "1s", max: "10m", unit: null },
  ] },
  { name: "port-count", version: "1.0.1", description: "UDP packets and bytes for a list of ports", parameters: [
    { name: "ports", type: "u64-list", description: "The ports that are counted", default: null, min: null, max: null, unit: null },
    { name: "network", type: "prefix", description: "Only packets of this network", default: "0.0.0.0/0", min: null, max: null, unit: null },
    { name: "mode", type: "enum", description: "The direction that counts", default: "both", min: null, max: null, unit: null, values: ["both", "source", "destination"] },
    { name: "strict", type: "bool", description: "Refuse fragments", default: "false", min: null, max: null, unit: null },
  ] },
  ...["dns", "flows", "http", "latency", "loss", "quic", "scan", "syn-flood", "talkers", "tls"].map((name) => ({ name, version: "1.0.0", description: `The shipped module ${name}`, is_default: ["dns", "flows", "tls"].includes(name), parameters: [] })),
];

export const decisions = (hostile, now = Date.now()) => ({ decisions: [
  { begin_ms: now - 60_000, end_ms: now - 20_000, request: "create", session: "more", outcome: "refused", count: 12, who: key(1), credentials: [id(1), id(2)], reason: hostile ? HOSTILE : "memory: asked for 1 GiB; of the 128 MiB given to this holder, 64 MiB is left",
    advice: [{ text: "give the credential 1 GiB of memory", command: hostile ? HOSTILE : `weir grant --key operator.key --to ${key(1)} --until 2027-01-01 --at ix-1 --any-module --memory 1GiB --out researcher.credential` }, { text: "or create the session with 64 MiB", command: "weir session create more --memory 64MiB" }] },
  { begin_ms: now - 120_000, end_ms: now - 120_000, request: "load", session: "alice", outcome: "failed", count: 1, who: null, credentials: [], reason: "the module was not admitted: no bound for the loop at hog.ts:12", advice: [] },
  { begin_ms: now - 130_000, end_ms: now - 130_000, request: "load", session: "alice", outcome: "allowed", count: 1, who: null, credentials: [], reason: null, advice: [] },
  { begin_ms: now - 700_000, end_ms: now - 200_000, request: "(not listed singly)", session: null, outcome: "refused", count: 40_012, who: null, credentials: [], reason: "40000 allowed, 7 refused or failed, 5 failed handshakes", advice: [] },
  { begin_ms: now - 900_000, end_ms: now - 900_000, request: "(end)", session: "dns-study", outcome: "closed", count: 1, who: null, credentials: [], reason: "the credential has expired", advice: [] },
  ...[0, 1, 2].map((n) => ({ begin_ms: now - 901_000 - n * 1000, end_ms: now - 901_000 - n * 1000, request: "connect", session: null, outcome: "refused", count: 1, who: key(3), credentials: [id(3)], reason: `expired: block 0 held until 2026-11-01T00:00:00Z, and it is 2026-11-01T00:00:0${9 - n}Z. Ask for a new credential`, advice: [{ text: "The credential has expired: its holder needs a new one.", command: `weir grant --key KEY --to ${key(3)} --until 2027-01-01T00:00:00Z --at ix-1 --module MODULE` }] })),
  ...Array.from({ length: 150 }, (_, n) => ({ begin_ms: now - 1e6 - n * 1000, end_ms: now - 1e6 - n * 1000, request: "change", session: `session-${n}`, outcome: "allowed", count: 1, who: key(n % 5), credentials: [id(n % 5)], reason: null, advice: [] })),
] });

const COLUMNS = [["cpu_s", "CPU time", "s"], ["compile_s", "of it compiling", "s"], ["packets_in", "in", "packets"], ["bytes_in", "in", "B"], ["packets_out", "out", "packets"], ["memory_mib_h", "memory", "MiB·h"], ["faults", "faults", ""], ["lost_queue_full", "queue-full", "packets"], ["refusals", "refusals", ""]]
  .map(([key, title, unit]) => ({ key, title, unit }));

export const ledger = (hostile) => ({
  columns: COLUMNS,
  rows: Array.from({ length: 8 }, (_, n) => [n === 1 && hostile ? HOSTILE : ["alice", "bob", "carol", "dns-study", "edge-monitor", "flow-export", "gone", "old-study"][n], 12.5 * (n + 1), n === 0 ? 0.25 : null, 1_234_567 * (n + 1), 987_654_321 * (n + 1), 0, 64.25 * n, 0, n === 1 ? 200_000 : 0, 0]),
  holders: { columns: COLUMNS, rows: [["the operator", 262.5, 0.25, 22_222_206, 17_777_777_778, 0, 900, 0, 200_000, 0], [key(1), 187.5, null, 22_222_206, 17_777_777_778, 0, 899, 0, 0, 0]] },
  verified: { state: "whole", text: "12 345 entries since 2026-11-01, hash 9f86d081884c7d65" },
});

const used = (resource, used_, granted, used_text, granted_text) => ({ resource, used: used_, granted, used_text, granted_text });

export const credentials = (hostile, revoked, now = Date.now()) => ({ left_out: 2, roots: [
  { root: key(10), policy_ceilings: [used("memory", 300e6, 1e9, "286.1 MiB", "953.7 MiB"), used("cpu", 420000, 900000, "42 % of a core", "90 % of a core")], grants: [
    { id: id(1), holder: key(1), expires_s: Math.floor(now / 1000) + 3_000_000, revoked: revoked.has(id(1)), allows: [["memory", hostile ? HOSTILE : "at most 128 MiB"], ["modules", "rtt, port-count"], ["interfaces", "eth0"], ["view", "payload=none"]],
      used: [used("memory", 125e6, 134e6, "119.2 MiB", "128 MiB"), used("cpu", 120000, 200000, "12 % of a core", "20 % of a core"), used("sessions", 2, 3, "2", "3"), used("bandwidth", 0, 0, "0 bit/s", "0 bit/s"), used("records per second", 150, null, "150", "any number of")],
      sessions: ["bob", "carol"], may_revoke: true, delegates: [
        { id: id(2), holder: key(2), expires_s: Math.floor(now / 1000) + 7_000, revoked: revoked.has(id(2)), allows: [["memory", "at most 64 MiB"]], used: [used("memory", 20e6, 67e6, "19.1 MiB", "64 MiB"), used("cpu", 30000, 50000, "3 % of a core", "5 % of a core")], sessions: ["carol"], may_revoke: true, delegates: [
          { id: id(4), holder: key(4), expires_s: Math.floor(now / 1000) - 60, revoked: false, allows: [], used: [], sessions: [], may_revoke: false, delegates: [] } ] } ] } ] },
  { root: key(11), policy_ceilings: [], grants: [] },
] });

export const STREAMS = { streams: [
  { name: "rtt.rtts", columns: [{ name: "time", type: "time-ns", unit: "" }, { name: "src", type: "ip", unit: "" }, { name: "dst", type: "ip", unit: "" }, { name: "host", type: "string", unit: "" }, { name: "rtt", type: "u64", unit: "ns" }] },
  { name: "rtt.findings", columns: [{ name: "time", type: "time-ns", unit: "" }, { name: "severity", type: "u8", unit: "" }, { name: "text", type: "string", unit: "" }] },
] };

export const row = (n, hostile) => ({ time: new Date(1.7e12 + n * 10).toISOString(), src: `192.0.2.${n % 250}`, dst: "198.51.100.7", host: hostile ? HOSTILE : `host-${n % 17}.example`, rtt: 1_000_000 + (n * 7919) % 9_000_000 });
