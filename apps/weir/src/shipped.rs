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
    /// Changes packets, or answers them.
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
        (Self::Packets, "Changing and sending packets"),
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

/// All shipped modules. `weir run` without `-m` runs the monitors among them, in this order.
pub const ALL: &[ShippedModule] = shipped![
    "trajectory" for Performance in "trajectory.c",
    "rtt" for Performance in "rtt.c",
    "worm" for Security in "worm.c",
    "lrd" for Traffic in "lrd.c" with "estimate.h" with "wavelet.h",
    "syn-flood" for Security in "syn-flood.c",
    "port-count" for Traffic in "port-count.c",
    "payload-match" for Security in "payload-match.c",
    "dscp-mark" for Packets in "dscp-mark.c",
    "arm" for Packets in "arm.c",
    "spin" for Load in "spin.c",
    "flood" for Load in "flood.c",
    "hog" for Load in "hog.ts",
];

/// Finds a shipped module by its name.
pub fn find(name: &str) -> Option<&'static ShippedModule> {
    ALL.iter().find(|shipped| shipped.name == name)
}
