//! `RadixIPLookup`: looks up routes in a trie.

use super::lookup::{RouteIndex, build, lookup_manual};
use super::route::RouteKey;
use super::table::{HopNumber, RouteTable};
use weir_graph::engine::{Effects, ElementClass, ElementCost, OrderDependence};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "RadixIPLookup",
    ports: "1/-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: lookup_manual!(
        "looks up IPv4 routes in a trie",
        "RadixIPLookup",
        "\
The trie has a level for the first 8 bits of an address, and one for each 4 bits after them, so a lookup takes at most \
seven steps. A change touches the entries of one node. There can be as many next hops as routes."
    ),
    build: build::<RadixIndex>,
};

/// The bits of an address that the first level covers.
const FIRST_BITS: u32 = 8;
/// The bits of each further level.
const LEVEL_BITS: u32 = 4;
const NODE_LEN: usize = 1 << LEVEL_BITS;
/// The further levels.
const LEVELS: usize = ((u32::BITS - FIRST_BITS) / LEVEL_BITS) as usize;
/// The position of the bits of each further level in an address.
const SHIFTS: [u32; LEVELS] = [20, 16, 12, 8, 4, 0];

/// The addresses that are looked up together.
const TOGETHER: usize = 64;

/// An entry of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct RadixEntry {
    /// The next hop of the longest prefix that ends at this level; 0 for none.
    hop: HopNumber,
    /// The number of the node with longer prefixes; 0 for none.
    child: u32,
}

/// A trie.
#[derive(Debug)]
pub struct RadixIndex {
    first: Box<[RadixEntry; 1 << FIRST_BITS]>,
    /// The nodes of further levels. Number 0 is not used.
    nodes: Vec<[RadixEntry; NODE_LEN]>,
    /// The nodes that are not in use.
    free: Vec<u32>,
}

impl Default for RadixIndex {
    fn default() -> Self {
        Self {
            first: Box::new([RadixEntry::default(); 1 << FIRST_BITS]),
            nodes: vec![[RadixEntry::default(); NODE_LEN]],
            free: Vec::new(),
        }
    }
}

/// Returns the place of an address in a node of a further level.
#[inline]
fn place_in(address: u32, level: usize) -> usize {
    (address >> SHIFTS[level]) as usize % NODE_LEN
}

impl RadixIndex {
    #[inline]
    fn first_step(&self, address: u32) -> RadixEntry {
        self.first[(address >> (u32::BITS - FIRST_BITS)) as usize]
    }

    /// Returns the node below an entry, with the next hop so far if the node has none. Node 0 has neither, so that an
    /// address that is through needs no branch.
    #[inline]
    fn next_step(&self, step: RadixEntry, address: u32, level: usize) -> RadixEntry {
        let node = self.nodes.get(step.child as usize);
        let next = node.map_or(RadixEntry::default(), |node| node[place_in(address, level)]);
        RadixEntry { hop: if next.hop == 0 { step.hop } else { next.hop }, child: next.child }
    }

    fn entry(&mut self, node: u32, address: u32, level: usize) -> &mut RadixEntry {
        if node == 0 {
            &mut self.first[(address >> (u32::BITS - FIRST_BITS)) as usize]
        } else {
            &mut self.nodes[node as usize][place_in(address, level)]
        }
    }

    fn take_node(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.nodes.push([RadixEntry::default(); NODE_LEN]);
            u32::try_from(self.nodes.len() - 1).unwrap_or(0)
        })
    }
}

impl RouteIndex for RadixIndex {
    const CAPACITY_DEFAULT: u32 = 1 << 20;
    const CAPACITY_MAX: u32 = 1 << 22;

    fn update(&mut self, table: &RouteTable, key: RouteKey) {
        // The nodes on the way, with the entries that lead to them.
        let mut way = [0; LEVELS + 1];
        let levels = (key.length().max(FIRST_BITS) - FIRST_BITS).div_ceil(LEVEL_BITS);
        let depth = levels as usize;
        for level in 0..depth {
            let child = self.entry(way[level], key.prefix, level.wrapping_sub(1)).child;
            way[level + 1] = if child != 0 {
                child
            } else {
                let made = self.take_node();
                self.entry(way[level], key.prefix, level.wrapping_sub(1)).child = made;
                made
            };
        }
        // The prefixes that end in this node have lengths from `shortest` to `longest`.
        let longest = FIRST_BITS + LEVEL_BITS * levels;
        let shortest = if depth == 0 { 1 } else { longest - LEVEL_BITS + 1 };
        let step = 1 << (u32::BITS - longest);
        let count = 1 << (longest - key.length());
        for part in 0..count {
            let address = key.prefix + part * step;
            let hop = table.covering(RouteKey::of(address, longest), shortest).map_or(0, |stored| stored.hop);
            self.entry(way[depth], address, depth.wrapping_sub(1)).hop = hop;
        }
        // A node without routes and children goes.
        for level in (0..depth).rev() {
            let node = way[level + 1];
            if self.nodes[node as usize] != [RadixEntry::default(); NODE_LEN] {
                break;
            }
            self.free.push(node);
            self.entry(way[level], key.prefix, level.wrapping_sub(1)).child = 0;
        }
    }

    #[inline]
    fn lookup(&self, address: u32) -> HopNumber {
        let mut step = self.first_step(address);
        for level in 0..LEVELS {
            if step.child == 0 {
                break;
            }
            step = self.next_step(step, address, level);
        }
        step.hop
    }

    fn lookup_all(&self, addresses: &[u32], hops: &mut Vec<HopNumber>) {
        let mut steps = [RadixEntry::default(); TOGETHER];
        for addresses in addresses.chunks(TOGETHER) {
            // All addresses take a step before one takes the next, so that they wait for memory at the same time.
            let steps = &mut steps[..addresses.len()];
            let mut goes_on = false;
            for (step, address) in steps.iter_mut().zip(addresses) {
                *step = self.first_step(*address);
                goes_on |= step.child != 0;
            }
            for level in 0..LEVELS {
                if !goes_on {
                    break;
                }
                goes_on = false;
                for (step, address) in steps.iter_mut().zip(addresses) {
                    *step = self.next_step(*step, *address, level);
                    goes_on |= step.child != 0;
                }
            }
            hops.extend(steps.iter().map(|step| step.hop));
        }
    }
}
