//! The modules that come with weir, as they are in guest/modules.

/// A shipped module.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its WebAssembly.
    pub wasm: &'static [u8],
    /// Its sources: file names and texts.
    pub sources: &'static [(&'static str, &'static str)],
}

macro_rules! path {
    ($name:literal, $($file:literal),+) => { concat!("../../../guest/modules/", $name, "/", $($file),+) };
}

macro_rules! shipped {
    ($($name:literal $(with $header:literal)*),* $(,)?) => {
        &[$(Shipped {
            name: $name,
            wasm: include_bytes!(path!($name, $name, ".wasm")),
            sources: &[
                (concat!($name, ".c"), include_str!(path!($name, $name, ".c"))),
                $(($header, include_str!(path!($name, $header))),)*
            ],
        }),*]
    };
}

/// All of them, in the order in which they run.
pub const ALL: &[Shipped] = shipped![
    "trajectory",
    "rtt",
    "worm",
    "lrd" with "estimate.h" with "wavelet.h",
    "syn-flood",
    "port-count",
    "payload-match",
    "dscp-mark",
];

/// The one of this name.
pub fn find(name: &str) -> Option<&'static Shipped> {
    ALL.iter().find(|shipped| shipped.name == name)
}
