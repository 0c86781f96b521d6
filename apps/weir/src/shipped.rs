//! The modules that come with weir, as they are in guest/modules.

/// A shipped module.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// Its WebAssembly.
    pub wasm: &'static [u8],
}

macro_rules! shipped {
    ($($name:literal),* $(,)?) => {
        &[$(Shipped {
            name: $name,
            wasm: include_bytes!(concat!("../../../guest/modules/", $name, "/", $name, ".wasm")),
        }),*]
    };
}

/// All of them, in the order in which they run.
pub const ALL: &[Shipped] =
    shipped!["trajectory", "rtt", "worm", "lrd", "syn-flood", "port-count", "payload-match", "dscp-mark"];

/// The one of this name.
pub fn find(name: &str) -> Option<&'static Shipped> {
    ALL.iter().find(|shipped| shipped.name == name)
}
