//! The modules shipped with weir, built from guest/modules.

/// A shipped module.
#[derive(Clone, Copy, Debug)]
pub struct ShippedModule {
    /// The module's name.
    pub name: &'static str,
    /// The purpose, by which lists group modules.
    pub purpose: Purpose,
    /// The WebAssembly binary.
    pub wasm: &'static [u8],
    /// The source files: names and texts.
    pub sources: &'static [(&'static str, &'static str)],
}

/// The purpose of a shipped module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Delays and paths.
    Performance,
    /// Attacks and contents.
    Security,
    /// Amount and kind of the traffic.
    Traffic,
    /// Requests and answers of applications.
    Applications,
    /// Changes packets, answers them, or shows them.
    Packets,
    /// Loads for experiments.
    Load,
}

impl Purpose {
    /// All purposes, in the order of the list, with its heading for each.
    pub const ALL: &[(Self, &str)] = &[
        (Self::Performance, "Performance"),
        (Self::Security, "Security"),
        (Self::Traffic, "Traffic"),
        (Self::Applications, "Applications"),
        (Self::Packets, "Changing, sending and showing packets"),
        (Self::Load, "Loads for experiments"),
    ];
}

macro_rules! path {
    ($name:literal, $($file:literal),+) => { concat!("../../../guest/modules/", $name, "/", $($file),+) };
}

macro_rules! shipped {
    ($($name:literal for $purpose:ident in $source:literal $(with $header:literal)*),* $(,)?) => {
        &[$(ShippedModule {
            name: $name,
            purpose: Purpose::$purpose,
            wasm: include_bytes!(path!($name, $name, ".wasm")),
            sources: &[
                ($source, include_str!(path!($name, $source))),
                $(($header, include_str!(path!($name, $header))),)*
            ],
        }),*]
    };
}

/// All shipped modules.
pub const ALL: &[ShippedModule] = shipped![
    "latency" for Performance in "latency.c",
    "loss" for Performance in "loss.c",
    "rtt" for Performance in "rtt.c",
    "trajectory" for Performance in "trajectory.c",
    "scan" for Security in "scan.c",
    "beacon" for Security in "beacon.c",
    "worm" for Security in "worm.c",
    "flows" for Traffic in "flows.c",
    "talkers" for Traffic in "talkers.c",
    "entropy" for Traffic in "entropy.c",
    "dns" for Applications in "dns.c" with "findings.h" with "message.h" with "stream.h" with "text.h" with "transaction.h",
    "tls" for Applications in "tls.c" with "ciphers.h" with "ja4.h" with "parse.h" with "x509.h",
    "http" for Applications in "http.c",
    "quic" for Applications in "quic.c" with "hello.h" with "initial.h" with "ja4.h",
    "lrd" for Traffic in "lrd.c" with "estimate.h" with "wavelet.h",
    "syn-flood" for Security in "syn-flood.c",
    "port-count" for Traffic in "port-count.c",
    "payload-match" for Security in "payload-match.c",
    "dscp-mark" for Packets in "dscp-mark.c",
    "arm" for Packets in "arm.c",
    "packets" for Packets in "packets.c",
    "spin" for Load in "spin.c",
    "flood" for Load in "flood.c",
    "hog" for Load in "hog.ts",
];

/// The modules that `weir run` without `-m` runs, in this order.
pub const DEFAULT: [&str; 9] =
    ["flows", "dns", "tls", "http", "quic", "talkers", "scan", "latency", "syn-flood"];

impl ShippedModule {
    /// Returns true if `weir run` without `-m` runs the module.
    pub fn is_default(&self) -> bool {
        DEFAULT.contains(&self.name)
    }
}

/// Finds a shipped module by its name.
pub fn find(name: &str) -> Option<&'static ShippedModule> {
    ALL.iter().find(|shipped| shipped.name == name)
}
