//! The first rule that fits by `find` over an array: in access lists.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{be32, flag, Packet, Verdict};

#[derive(Clone, Copy)]
struct Rule {
    address: u32,
    mask: u32,
    port: u16,
    drop: bool,
}

const RULES: [Rule; 16] = {
    let mut rules = [Rule { address: 0x0a00_0000, mask: 0xff00_0000, port: 0, drop: false }; 16];
    let mut index = 0;
    while index < 16 {
        rules[index].address += (index as u32) << 16;
        rules[index].mask = 0xffff_0000;
        rules[index].port = 1000 + index as u16;
        rules[index].drop = index % 3 == 0;
        index += 1;
    }
    rules
};

fn packet(_: &mut (), p: &Packet) -> Verdict {
    if !p.has(flag::IPV4) {
        return Verdict::Pass;
    }
    let Some(source) = p.l3().and_then(|header| be32(header, 12)) else { return Verdict::Pass };
    match RULES.iter().find(|rule| source & rule.mask == rule.address && rule.port == p.dst_port) {
        Some(rule) if rule.drop => Verdict::Drop,
        _ => Verdict::Pass,
    }
}

weir_guest::module! {
    state: () = ();
    packet: packet;
}
