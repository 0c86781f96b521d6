//! The longest matching prefix.

use crate::{Ip, Prefix, PrefixList};

#[derive(Clone, Copy)]
struct Slot {
    value: u32,
    /// Number of a node; 0: none.
    child: u16,
    /// The length of the prefix that filled the slot, and 1 more; 0: none.
    len: u8,
}

/// Numbers of the two nodes where IPv4 and IPv6 begin, and of the first node behind them.
const V4: usize = 0;
const V6: usize = 1;
const FIRST: usize = 2;

/// The most prefixes of a parameter, which has at most 64 KiB.
const PREFIXES: u32 = 64 * 1024 / 17;

/// Longest matching prefix of IPv4 and IPv6 addresses, with a number for each prefix. A trie with strides of 8 bits, in
/// which a prefix fills all slots that it covers (V. Srinivasan, G. Varghese, "Fast address lookups using controlled prefix
/// expansion", ACM TOCS 17, 1999). `NODES` is the number of its nodes, from 2 to 65535.
///
/// A node has 2 KiB, and two nodes are there from the start. An IPv4 prefix /8 needs no further node, /16 at most one, /24
/// two, /32 three; an IPv6 prefix /32 three, /48 five, /64 seven; prefixes share the nodes of their common beginning. A
/// prefix that is added again gets the new value. Prefixes cannot be removed: clear the trie, and add those that stay. As
/// in [`Prefix::contains`], an IPv6 prefix contains no IPv4 address.
pub struct Lpm<const NODES: usize> {
    nodes: [[Slot; 256]; NODES],
    len: u32,
}

impl<const NODES: usize> Lpm<NODES> {
    /// Returns a trie without prefixes.
    pub const fn new() -> Self {
        const { assert!(NODES >= FIRST && NODES <= 65535, "2 to 65535 nodes") };
        Self { nodes: [[Slot { value: 0, child: 0, len: 0 }; 256]; NODES], len: 0 }
    }

    /// Adds a prefix. Returns false if nodes lack.
    pub fn add(&mut self, prefix: &Prefix, value: u32) -> bool {
        let address = prefix.address().0;
        let bits = u32::from(prefix.bits()).min(128);
        let is_v4 = bits >= 96 && prefix.address().to_v4().is_some();
        let (mut node, mut at) = if is_v4 { (V4, 12) } else { (V6, 0) };
        for _ in 0..16 {
            if at >= 15 || bits <= 8 * (at as u32 + 1) {
                break;
            }
            let slot = &mut self.nodes[node % NODES][usize::from(address[at])];
            if slot.child == 0 {
                if self.len as usize >= NODES - FIRST {
                    return false;
                }
                slot.child = (FIRST + self.len as usize) as u16;
                self.len += 1;
            }
            node = slot.child.into();
            at += 1;
        }
        let free_bits = 8 * (at as u32 + 1) - bits;
        let count = if free_bits >= 8 { 256 } else { 1 << free_bits };
        let first = usize::from(address[at % 16]) & (256 - count);
        for i in 0..256 {
            let slot = &mut self.nodes[node % NODES][(first + i) % 256];
            if i < count && u32::from(slot.len) <= bits + 1 {
                slot.value = value;
                slot.len = (bits + 1) as u8;
            }
        }
        true
    }

    /// Adds the prefixes of a parameter, each with its number in the list, from 0. Returns false if nodes lack.
    pub fn load(&mut self, list: &PrefixList<'_>) -> bool {
        let mut prefixes = list.iter();
        for number in 0..PREFIXES {
            let Some(prefix) = prefixes.next() else { break };
            if !self.add(&prefix, number) {
                return false;
            }
        }
        true
    }

    /// Returns the value of the longest prefix that contains the address, in at most 16 steps; 4 for IPv4.
    #[inline]
    pub fn find(&self, ip: Ip) -> Option<u32> {
        let is_v4 = ip.to_v4().is_some();
        let (mut node, first) = if is_v4 { (V4, 12) } else { (V6, 0) };
        let mut found = None;
        for at in first..16 {
            let slot = self.nodes[node % NODES][usize::from(ip.0[at])];
            if slot.len != 0 {
                found = Some(slot.value);
            }
            if slot.child == 0 {
                break;
            }
            node = slot.child.into();
        }
        found
    }

    /// Removes all prefixes.
    pub fn clear(&mut self) {
        for node in &mut self.nodes {
            node.fill(Slot { value: 0, child: 0, len: 0 });
        }
        self.len = 0;
    }
}

impl<const NODES: usize> Default for Lpm<NODES> {
    fn default() -> Self {
        Self::new()
    }
}
