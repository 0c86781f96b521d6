//! The captures beside the repository, in ../shared/traces, which may not be there.
//!
//! A test that compares weir with other programs over these captures takes [`compared`], and has `traces` in its name. In `make test` it
//! reads the sample, generated captures, or a few of the captures. `make test-traces` runs these tests over all.

use std::io::Write;
use std::path::{Path, PathBuf};

/// The environment variable that `make test-traces` sets to `all`.
const VARIABLE: &str = "WEIR_TRACES";

/// The captures that are compared without the variable: small ones with DNS, HTTP, TLS, QUIC, IPv6, tunnels, fragments, packets that are cut,
/// damaged packets, and other link types and formats.
const SOME: [&str; 18] = [
    "attack/log4j-exploit-sll.pcap",
    "attack/web-rce-scan.pcap",
    "encap/6in4.pcap",
    "encap/erspan.pcap",
    "encap/teredo.pcap",
    "encap/vlan-mixed.pcap",
    "encap/vxlan.pcap",
    "formats/linktype-null-http.pcap",
    "formats/pcapng-11-interfaces.pcapng",
    "formats/pcapng-be.pcapng",
    "robustness/suricata-verify/tcp-session-decode-malformed-ipv4.pcap",
    "robustness/tcpdump/bigtcp-ipv6-vxlan-ipv6.pcap",
    "robustness/zeek/383379789-decrypt-crash.pcap",
    "robustness/zeek/fuzz-72.pcap",
    "tcp/syn-retransmit-timestamps.pcap",
    "tcp/tls-73-ciphers.pcap",
    "udp/nfs-afs-fragments.pcap",
    "udp/quic-chromium-google.pcap",
];

/// A capture of the folder.
#[derive(Clone, Debug)]
pub struct Trace {
    /// The path in the folder.
    pub name: String,
    pub path: PathBuf,
    /// The counts of its index: packets, TCP, UDP, IPv6, SYN.
    pub counts: [u64; 5],
}

impl Trace {
    /// Returns true for a capture of damaged packets, or in a format that weir need not read.
    pub fn is_damaged(&self) -> bool {
        self.name.starts_with("robustness/")
    }

    /// Returns true if the index counts TCP packets, or if a tunnel can have some, which the index does not count.
    pub fn may_have_tcp(&self) -> bool {
        self.counts[1] > 0 || self.name.starts_with("encap/")
    }
}

/// Returns true if tests compare all captures of the folder.
pub fn are_all() -> bool {
    std::env::var_os(VARIABLE).is_some_and(|value| value == "all")
}

/// Returns the folder; `None` if it does not exist.
pub fn folder() -> Option<PathBuf> {
    let path = super::root().join("../shared/traces");
    let found = path.join("index.csv").is_file();
    assert!(found || !are_all(), "{VARIABLE} asks for the captures in ../shared/traces, and there are none");
    if !found {
        let _ = writeln!(std::io::stderr(), "skipped: there are no captures in ../shared/traces");
    }
    found.then_some(path)
}

/// Returns all captures of the folder.
pub fn index(folder: &Path) -> Vec<Trace> {
    let text = std::fs::read_to_string(folder.join("index.csv")).expect("the folder has an index");
    let trace = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let number = |at: usize| fields[at].parse().expect("a count");
        let counts = [number(1), number(4), number(5), number(6), number(7)];
        Trace { name: fields[0].to_owned(), path: folder.join(fields[0]), counts }
    };
    text.lines().skip(1).map(trace).collect()
}

/// Returns the captures to compare: all in `make test-traces`, else a few; none without the folder. Prints what is left out.
pub fn compared() -> Vec<Trace> {
    let Some(folder) = folder() else { return Vec::new() };
    let mut traces = index(&folder);
    if !are_all() {
        let all = traces.len();
        traces.retain(|trace| SOME.contains(&trace.name.as_str()));
        let left_out = all - traces.len();
        let _ =
            writeln!(std::io::stderr(), "skipped: {left_out} of {all} captures (make test-traces reads all)");
    }
    traces
}
