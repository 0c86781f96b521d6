//! `RangeIPLookup`: looks up routes in a sorted list of address ranges.

use super::lookup::{RouteIndex, build, lookup_manual};
use super::route::RouteKey;
use super::table::{HopNumber, RouteTable};
use weir_graph::engine::{Effects, ElementClass, ElementCost, OrderDependence};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "RangeIPLookup",
    ports: "1/-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E1,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: lookup_manual!(
        "looks up IPv4 routes in a compact list of ranges",
        "RangeIPLookup",
        "\
The routes are turned into a sorted list of address ranges with one next hop each. The first 16 bits of an address give \
its part of the list, in which at most 16 steps of a binary search find the range. The list takes 8 bytes for each \
range, and 256 KiB. Each handler that changes routes makes the whole list anew, so changes belong together in `ctrl`."
    ),
    build: build::<RangeIndex>,
};

/// The parts of the list, one for each value of the first bits of an address.
const PART_BITS: u32 = 16;
const PARTS: usize = 1 << PART_BITS;

/// The ranges. Each begins at an address, and ends before the next one.
#[derive(Debug)]
pub struct RangeIndex {
    starts: Vec<u32>,
    hops: Vec<HopNumber>,
    /// The index of the range with the first address of each part, and of the last range.
    parts: Vec<u32>,
    is_changed: bool,
}

impl Default for RangeIndex {
    fn default() -> Self {
        Self { starts: vec![0], hops: vec![0], parts: vec![0; PARTS + 1], is_changed: false }
    }
}

impl RangeIndex {
    /// Adds a range behind all others. One without addresses, or with the next hop of the last, is left out.
    fn add(&mut self, start: u32, hop: HopNumber) {
        while self.starts.last().is_some_and(|last| *last >= start) {
            self.starts.pop();
            self.hops.pop();
        }
        if self.hops.last() != Some(&hop) {
            self.starts.push(start);
            self.hops.push(hop);
        }
    }

    fn make(&mut self, table: &RouteTable) {
        self.starts.clear();
        self.hops.clear();
        self.add(0, 0);
        // The prefixes that contain the present address, the longest one last.
        let mut open: Vec<(u32, HopNumber)> = Vec::new();
        let close = |list: &mut Self, open: &mut Vec<(u32, HopNumber)>, until: Option<u32>| {
            while let Some((last, _)) = open.pop_if(|(last, _)| until.is_none_or(|until| *last < until)) {
                if let Some(next) = last.checked_add(1) {
                    list.add(next, open.last().map_or(0, |(_, hop)| *hop));
                }
            }
        };
        for stored in table.by_prefix().filter(|stored| stored.route.key != RouteKey::DEFAULT) {
            let key = stored.route.key;
            close(self, &mut open, Some(key.prefix));
            self.add(key.prefix, stored.hop);
            open.push((key.last(), stored.hop));
        }
        close(self, &mut open, None);
        let mut index = 0;
        for (part, place) in self.parts.iter_mut().enumerate() {
            let start = (part as u64) << (u32::BITS - PART_BITS);
            while self.starts.get(index + 1).is_some_and(|next| u64::from(*next) <= start) {
                index += 1;
            }
            *place = u32::try_from(index).unwrap_or(u32::MAX);
        }
    }
}

impl RouteIndex for RangeIndex {
    const CAPACITY_DEFAULT: u32 = 1 << 20;
    const CAPACITY_MAX: u32 = 1 << 22;

    fn update(&mut self, _: &RouteTable, _: RouteKey) {
        self.is_changed = true;
    }

    fn commit(&mut self, table: &RouteTable) {
        if std::mem::take(&mut self.is_changed) {
            self.make(table);
        }
    }

    #[inline]
    fn lookup(&self, address: u32) -> HopNumber {
        let part = (address >> (u32::BITS - PART_BITS)) as usize;
        let (from, to) = (self.parts[part] as usize, self.parts[part + 1] as usize);
        let Some(starts) = self.starts.get(from..=to) else { return 0 };
        // The first range of a part begins at or before it, so that there is one before each address.
        let behind = starts.partition_point(|start| *start <= address);
        self.hops.get(from + behind.saturating_sub(1)).copied().unwrap_or(0)
    }
}
