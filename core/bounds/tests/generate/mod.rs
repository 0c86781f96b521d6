//! Modules made from arbitrary bytes, for tests and fuzz targets: the same bytes give the same module.
//!
//! [`loops`] generates functions with the loops that LLVM emits, and with loops that look like them and are wrong;
//! [`smith`] generates any valid module.

#![allow(dead_code, reason = "each user of the generators uses a part")]

pub mod loops;
pub mod pieces;
pub mod shapes;
pub mod smith;
pub mod values;

/// The manifest of all generated modules. The answers of the imports depend on it.
pub const MANIFEST: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '1 MiB'\nkeep = 4\ntick = '1s'\n\
    [[parameter]]\nname = 'size'\ntype = 'u64'\ndefault = 9\n\
    [[parameter]]\nname = 'text'\ntype = 'string'\ndefault = 'abc'\n\
    [[parameter]]\nname = 'rate'\ntype = 'f64'\ndefault = 0.5\n\
    [[parameter]]\nname = 'large'\ntype = 'u64'\ndefault = 4294967299\n\
    [[stream]]\nname = 'rows'\n[[stream.field]]\nname = 'value'\ntype = 'u64'\n\
    [[stream]]\nname = 'texts'\n[[stream.field]]\nname = 'text'\ntype = 'string'\n\
    [[output]]\nname = 'frames'\n\
    [[table]]\nname = 'seen'\naccess = 'read'\nbytes = '8 KiB'\n\
    [[table]]\nname = 'shared'\naccess = 'publish'\nbytes = '1 KiB'\n\
    [[table]]\nname = 'told'\naccess = 'publish'\nbytes = '48 B'\n";

/// Appends a manifest to a module, as its custom section.
pub fn with_manifest(mut module: Vec<u8>, manifest: &str) -> Vec<u8> {
    let name = b"weir.manifest";
    let mut rest = 1 + name.len() + manifest.len();
    module.push(0);
    loop {
        let low = u8::try_from(rest & 0x7f).unwrap_or(0);
        rest >>= 7;
        module.push(if rest == 0 { low } else { low | 0x80 });
        if rest == 0 {
            break;
        }
    }
    module.push(u8::try_from(name.len()).unwrap_or(0));
    module.extend_from_slice(name);
    module.extend(manifest.bytes());
    module
}

/// The bytes of a module's text, with the manifest.
pub fn assembled(text: &str) -> Vec<u8> {
    with_manifest(wat::parse_str(text).unwrap_or_else(|error| panic!("{error}\n{text}")), MANIFEST)
}

/// Pseudorandom bytes for a seed (S. Vigna's SplitMix64).
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        out.extend((z ^ (z >> 31)).to_le_bytes());
    }
    out.truncate(len);
    out
}
