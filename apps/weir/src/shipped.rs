//! The modules shipped with weir, built from guest/modules.

/// A shipped module.
#[derive(Clone, Copy, Debug)]
pub struct ShippedModule {
    /// The module's name.
    pub name: &'static str,
    /// The WebAssembly binary.
    pub wasm: &'static [u8],
    /// The source files: names and texts.
    pub sources: &'static [(&'static str, &'static str)],
}

macro_rules! path {
    ($name:literal, $($file:literal),+) => { concat!("../../../guest/modules/", $name, "/", $($file),+) };
}

macro_rules! shipped {
    ($($name:literal in $source:literal $(with $header:literal)*),* $(,)?) => {
        &[$(ShippedModule {
            name: $name,
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
    "trajectory" in "trajectory.c",
    "rtt" in "rtt.c",
    "worm" in "worm.c",
    "lrd" in "lrd.c" with "estimate.h" with "wavelet.h",
    "syn-flood" in "syn-flood.c",
    "port-count" in "port-count.c",
    "payload-match" in "payload-match.c",
    "dscp-mark" in "dscp-mark.c",
    "arm" in "arm.c",
    "spin" in "spin.c",
    "flood" in "flood.c",
    "hog" in "hog.ts",
];

/// Finds a shipped module by its name.
pub fn find(name: &str) -> Option<&'static ShippedModule> {
    ALL.iter().find(|shipped| shipped.name == name)
}
