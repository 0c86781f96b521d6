//! A trie with a stride of four bits in an array: in route look-ups.

#![cfg_attr(target_arch = "wasm32", no_std)]
#![forbid(unsafe_code)]

#[path = "../.weir/module.rs"]
mod module;

use weir_guest::{be32, flag, Packet, Verdict};

const NODES: usize = 64;

struct Trie {
    children: [[u8; 16]; NODES],
    routes: [u8; NODES],
}

impl Trie {
    fn start(&mut self) -> bool {
        let mut used = 1;
        for route in 1..8u8 {
            let mut node = 0;
            let prefix = u32::from(route) * 0x1111_0000;
            for level in 0..u32::from(route) % 5 {
                let nibble = (prefix >> (28 - 4 * level) & 15) as usize;
                if self.children[node][nibble] == 0 {
                    if used == NODES {
                        return false;
                    }
                    self.children[node][nibble] = used as u8;
                    used += 1;
                }
                node = usize::from(self.children[node][nibble]);
            }
            self.routes[node] = route;
        }
        true
    }

    fn packet(&mut self, p: &Packet) -> Verdict {
        if !p.has(flag::IPV4) {
            return Verdict::Pass;
        }
        let Some(address) = p.l3().and_then(|header| be32(header, 16)) else { return Verdict::Pass };
        let (mut node, mut best) = (0, 0);
        for nibble in (0..8).rev().map(|level| (address >> (4 * level) & 15) as usize) {
            if self.routes[node] != 0 {
                best = self.routes[node];
            }
            node = usize::from(self.children[node][nibble]);
            if node == 0 {
                break;
            }
        }
        if best == 7 {
            Verdict::Drop
        } else {
            Verdict::Pass
        }
    }
}

weir_guest::module! {
    state: Trie = Trie { children: [[0; 16]; NODES], routes: [0; NODES] };
    start: Trie::start;
    packet: Trie::packet;
}
