//! `DirectIPLookup`: looks up routes in a table with an entry for each prefix of 24 bits.

use super::lookup::{RouteIndex, build, lookup_manual};
use super::route::RouteKey;
use super::table::{HopNumber, RouteTable};
use weir_graph::engine::{Effects, ElementClass, ElementCost, OrderDependence, Reason};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "DirectIPLookup",
    ports: "1/-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: lookup_manual!(
        "looks up IPv4 routes with one or two memory accesses",
        "DirectIPLookup",
        "\
A table has an entry for each of the 2^24 prefixes of 24 bits. Where there are longer prefixes, the entry refers to a \
second table with 256 entries. A lookup takes one access, or two; the tables take 32 MiB, and 512 bytes for each prefix \
of 24 bits with longer ones in it. There can be 32767 next hops, and 32768 such prefixes of 24 bits.

- P. Gupta, S. Lin, N. McKeown: \"Routing Lookups in Hardware at Memory Access Speeds\", INFOCOM 1998 (DIR-24-8)."
    ),
    build: build::<DirectIndex>,
};

/// The bits of an address that the first table covers.
const FIRST_BITS: u32 = 24;
const FIRST_LEN: usize = 1 << FIRST_BITS;
/// The entries of a part of the second table.
const SEGMENT_LEN: usize = 256;
/// The bit of an entry of the first table that refers to a segment. The other bits are its number.
const IS_SEGMENT: u16 = 0x8000;
const SEGMENTS_MAX: usize = 0x8000;

/// The tables. Entries are numbers of next hops.
pub struct DirectIndex {
    first: Box<[u16; FIRST_LEN]>,
    second: Vec<[u16; SEGMENT_LEN]>,
    /// The segments that are not in use.
    free: Vec<u16>,
}

impl Default for DirectIndex {
    fn default() -> Self {
        let first = vec![0; FIRST_LEN].into_boxed_slice();
        let first = first.try_into().expect("a slice of that length");
        Self { first, second: Vec::new(), free: Vec::new() }
    }
}

impl DirectIndex {
    /// Gives all addresses of a prefix a next hop.
    fn paint(&mut self, key: RouteKey, hop: u16) {
        let (first, last) = ((key.prefix >> 8) as usize, (key.last() >> 8) as usize);
        if key.length() <= FIRST_BITS {
            for place in first..=last {
                self.free_segment(place);
            }
            self.first[first..=last].fill(hop);
        } else {
            let segment = self.segment(first);
            let (from, to) = ((key.prefix & 0xff) as usize, (key.last() & 0xff) as usize);
            segment[from..=to].fill(hop);
        }
    }

    /// Returns the number of the next hop, from an entry of the first table.
    #[inline]
    fn second_step(&self, first: u16, address: u32) -> u16 {
        if first & IS_SEGMENT == 0 {
            return first;
        }
        let segment = self.second.get(usize::from(first & !IS_SEGMENT));
        segment.map_or(0, |segment| segment[(address & 0xff) as usize])
    }

    fn free_segment(&mut self, place: usize) {
        if self.first[place] & IS_SEGMENT != 0 {
            self.free.push(self.first[place] & !IS_SEGMENT);
            self.first[place] = 0;
        }
    }

    /// Returns the segment of an entry of the first table. Makes one if there is none.
    fn segment(&mut self, place: usize) -> &mut [u16; SEGMENT_LEN] {
        let entry = self.first[place];
        if entry & IS_SEGMENT != 0 {
            return &mut self.second[usize::from(entry & !IS_SEGMENT)];
        }
        // `check_room` has seen to it that the number fits.
        let number = self.free.pop().unwrap_or_else(|| {
            self.second.push([0; SEGMENT_LEN]);
            u16::try_from(self.second.len() - 1).unwrap_or(0)
        });
        self.first[place] = number | IS_SEGMENT;
        let segment = &mut self.second[usize::from(number)];
        *segment = [entry; SEGMENT_LEN];
        segment
    }
}

fn narrow(hop: HopNumber) -> u16 {
    u16::try_from(hop).unwrap_or(0)
}

impl RouteIndex for DirectIndex {
    const CAPACITY_DEFAULT: u32 = 1 << 20;
    const CAPACITY_MAX: u32 = 1 << 22;

    fn check_room(&self, key: RouteKey, hop: HopNumber) -> Result<(), Reason> {
        if hop >= u32::from(IS_SEGMENT) {
            return Err(format!("no room for a further next hop: there are {}", IS_SEGMENT - 1));
        }
        let needs_segment =
            key.length() > FIRST_BITS && self.first[(key.prefix >> 8) as usize] & IS_SEGMENT == 0;
        if needs_segment && self.free.is_empty() && self.second.len() >= SEGMENTS_MAX {
            return Err(format!(
                "no room for {key}: {SEGMENTS_MAX} prefixes of {FIRST_BITS} bits have longer ones in them"
            ));
        }
        Ok(())
    }

    fn update(&mut self, table: &RouteTable, key: RouteKey) {
        let covering = table.covering(key, 1).map_or(0, |stored| stored.hop);
        let around = RouteKey::of(key.prefix, FIRST_BITS);
        if key.length() > FIRST_BITS && table.get(key).is_none() && table.within(around).next().is_none() {
            // It was the last one of its segment.
            let hop = table.covering(around, 1).map_or(0, |stored| stored.hop);
            self.paint(around, narrow(hop));
            return;
        }
        self.paint(key, narrow(covering));
        for inner in table.within(key) {
            self.paint(inner.route.key, narrow(inner.hop));
        }
    }

    #[inline]
    fn lookup(&self, address: u32) -> HopNumber {
        let first = self.first[(address >> 8) as usize];
        u32::from(self.second_step(first, address))
    }

    fn lookup_all(&self, addresses: &[u32], hops: &mut Vec<HopNumber>) {
        // The accesses to the first table do not depend on each other, and no branch depends on them: a branch that the
        // processor predicts wrongly ends the waiting for all accesses behind it, which then begin late.
        hops.extend(addresses.iter().map(|address| u32::from(self.first[(address >> 8) as usize])));
        for (hop, address) in hops.iter_mut().zip(addresses) {
            *hop = u32::from(self.second_step(u16::try_from(*hop).unwrap_or(0), *address));
        }
    }
}
