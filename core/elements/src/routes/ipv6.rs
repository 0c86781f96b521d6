//! A table of IPv6 prefixes, each with a value, in which the longest prefix of an address is looked up.

use super::table::{RouteTable, TableRow};
use core::net::Ipv6Addr;
use std::collections::BTreeMap;
use weir_graph::arguments::Ipv6Prefix;

/// The key of a prefix: the length, and the bits within it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ipv6Key {
    length: u8,
    bits: u128,
}

impl Ipv6Key {
    /// Returns the key of the prefix of a length, at most 128, that contains an address.
    fn of(address: Ipv6Addr, length: u8) -> Self {
        let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
        Self { length, bits: address.to_bits() & mask }
    }
}

impl From<Ipv6Prefix> for Ipv6Key {
    fn from(Ipv6Prefix { address, len }: Ipv6Prefix) -> Self {
        Self::of(address, len)
    }
}

/// A prefix with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Row<T> {
    /// The prefix.
    pub prefix: Ipv6Prefix,
    /// The value.
    pub value: T,
}

impl<T> TableRow for Ipv6Row<T> {
    type Key = Ipv6Key;

    fn key(&self) -> Ipv6Key {
        self.prefix.into()
    }
}

/// A table of prefixes. A lookup takes a search for each length that one of them has, at most 129.
#[derive(Debug)]
pub struct Ipv6PrefixTable<T> {
    rows: RouteTable<Ipv6Row<T>>,
    /// The number of prefixes of each length.
    lengths: BTreeMap<u8, usize>,
}

impl<T> Default for Ipv6PrefixTable<T> {
    fn default() -> Self {
        Self { rows: RouteTable::default(), lengths: BTreeMap::new() }
    }
}

impl<T> Ipv6PrefixTable<T> {
    /// Returns the number of prefixes.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if the table has exactly this prefix.
    pub fn contains(&self, prefix: Ipv6Prefix) -> bool {
        self.rows.get(prefix.into()).is_some()
    }

    /// Adds a prefix, or replaces its value.
    pub fn set(&mut self, prefix: Ipv6Prefix, value: T) {
        if !self.contains(prefix) {
            *self.lengths.entry(prefix.len).or_insert(0) += 1;
        }
        // Bits of the address outside the prefix mean nothing.
        let address = Ipv6Addr::from_bits(Ipv6Key::from(prefix).bits);
        self.rows.set(Ipv6Row { prefix: Ipv6Prefix { address, len: prefix.len }, value });
    }

    /// Removes a prefix. Returns false if the table does not have it.
    pub fn remove(&mut self, prefix: Ipv6Prefix) -> bool {
        let is_there = self.rows.remove(prefix.into()).is_some();
        if is_there && let Some(count) = self.lengths.get_mut(&prefix.len) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&prefix.len);
            }
        }
        is_there
    }

    /// Returns the value of the longest prefix that contains an address.
    pub fn lookup(&self, address: Ipv6Addr) -> Option<&T> {
        let mut longest_first = self.lengths.keys().rev();
        longest_first.find_map(|length| self.rows.get(Ipv6Key::of(address, *length))).map(|row| &row.value)
    }

    /// Returns the prefixes in the order of adding. One that was added after another was removed takes its place.
    pub fn in_order(&self) -> impl Iterator<Item = &Ipv6Row<T>> {
        self.rows.in_order()
    }
}

/// Returns a prefix as text.
pub fn show_prefix(prefix: Ipv6Prefix) -> String {
    format!("{}/{}", crate::values::ipv6(prefix.address), prefix.len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_prefix_counts_as_in_a_search_of_all() {
        let mut table = Ipv6PrefixTable::default();
        let mut all: Vec<(Ipv6Prefix, u32)> = Vec::new();
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            random >> 33
        };
        for step in 0..3000_u32 {
            // Addresses differ in a few bits, so that prefixes contain each other.
            let bits = u128::from(next() % 4) << 126 | u128::from(next() % 4) << 64 | u128::from(next() % 4);
            let address = Ipv6Addr::from_bits(bits);
            let length = usize::try_from(next() % 8).unwrap();
            let prefix = Ipv6Prefix { address, len: [0, 1, 2, 63, 64, 65, 127, 128][length] };
            let key = Ipv6Key::from(prefix);
            all.retain(|(other, _)| Ipv6Key::from(*other) != key);
            if next() % 3 == 0 {
                table.remove(prefix);
            } else {
                table.set(prefix, step);
                all.push((prefix, step));
            }
            let covers =
                |(prefix, _): &&(Ipv6Prefix, u32)| Ipv6Key::of(address, prefix.len) == Ipv6Key::from(*prefix);
            let longest = all.iter().filter(covers).max_by_key(|(prefix, _)| prefix.len);
            assert_eq!(table.lookup(address), longest.map(|(_, value)| value));
            assert_eq!(table.len(), all.len());
        }
    }
}
