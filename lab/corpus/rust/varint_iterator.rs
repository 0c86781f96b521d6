//! Variable-length numbers out of an iterator over bytes: in QUIC and protocol buffers.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{Packet, Verdict};

fn varint(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn packet(_: &mut (), p: &Packet) -> Verdict {
    let mut bytes = p.payload().iter().copied();
    let mut sum = 0u64;
    while let Some(value) = varint(&mut bytes) {
        sum = sum.wrapping_add(value);
    }
    if sum == 42 {
        Verdict::Drop
    } else {
        Verdict::Pass
    }
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
