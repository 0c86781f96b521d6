//! Flows of TCP and UDP, by addresses, ports and protocol.

use crate::flow_hash::hash_flow;
use weir_units::Timestamp;

/// The two ends of a flow, and its protocol. Both directions have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4FlowKey {
    /// The addresses: the smaller one first.
    pub hosts: [u32; 2],
    /// The ports: that of the first host in the upper half.
    pub ports: u32,
    pub protocol: u8,
}

impl Ipv4FlowKey {
    /// Returns the key of a packet's flow, and true if the packet goes from the second host to the first.
    #[inline]
    pub fn new(source: u32, destination: u32, ports: u32, protocol: u8) -> (Self, bool) {
        let flipped = ports.rotate_left(16);
        let is_flipped = source > destination || source == destination && ports > flipped;
        let key = match is_flipped {
            true => Self { hosts: [destination, source], ports: flipped, protocol },
            false => Self { hosts: [source, destination], ports, protocol },
        };
        (key, is_flipped)
    }

    #[inline]
    fn hash(&self) -> u32 {
        let hosts = u64::from(self.hosts[0]) << 32 | u64::from(self.hosts[1]);
        hash_flow(hosts, u64::from(self.ports) << 8 | u64::from(self.protocol))
    }
}

/// A flow.
#[derive(Clone, Copy, Debug)]
pub struct TrackedFlow {
    pub key: Ipv4FlowKey,
    /// The number; 0 for a place without a flow.
    pub aggregate: u32,
    /// The time of the latest packet.
    pub latest: Timestamp,
    /// The first packet went from the second host to the first.
    pub is_reverse: bool,
    /// A bit for each direction that has ended.
    pub closed: u8,
    /// The next flow of the same bucket.
    next: u32,
}

impl TrackedFlow {
    /// Returns a flow with the time of its first packet.
    pub fn new(key: Ipv4FlowKey, aggregate: u32, is_reverse: bool, latest: Timestamp) -> Self {
        Self { key, aggregate, latest, is_reverse, closed: 0, next: NONE }
    }
}

/// The place of a flow in a [`FlowTable`].
pub type FlowIndex = usize;

/// The end of a bucket.
const NONE: u32 = u32::MAX;
/// The most flows of a bucket. Traffic whose hashes were chosen to be equal could else make searches long.
const BUCKET_FLOWS_MAX: usize = 64;
/// The flows of which the oldest one is removed for a new one.
const EVICTION_CANDIDATES: usize = 8;
const BUCKETS_MIN: usize = 64;

/// A bounded table of flows: buckets with linked flows, at least as many as there are flows.
///
/// A full table removes a flow for each new one: of eight flows, another eight each time, the one without a packet for
/// the longest time. A full bucket removes its oldest flow.
#[derive(Debug)]
pub struct FlowTable {
    /// The first flow of each bucket.
    buckets: Vec<u32>,
    flows: Vec<TrackedFlow>,
    free: Vec<u32>,
    capacity: usize,
    /// The next flow that can be removed for a new one.
    hand: usize,
}

impl FlowTable {
    /// Returns a table for this number of flows.
    pub fn new(capacity: usize) -> Self {
        Self { buckets: vec![NONE; BUCKETS_MIN], flows: Vec::new(), free: Vec::new(), capacity, hand: 0 }
    }

    /// Returns the number of flows.
    pub fn len(&self) -> usize {
        self.flows.len() - self.free.len()
    }

    #[inline]
    fn bucket(&self, key: &Ipv4FlowKey) -> usize {
        key.hash() as usize & (self.buckets.len() - 1)
    }

    /// Returns the flow with a key.
    #[inline]
    pub fn find(&self, key: &Ipv4FlowKey) -> Option<FlowIndex> {
        let mut index = self.buckets[self.bucket(key)];
        while index != NONE {
            let flow = &self.flows[index as usize];
            if flow.key == *key {
                return Some(index as usize);
            }
            index = flow.next;
        }
        None
    }

    #[inline]
    pub fn get(&self, index: FlowIndex) -> &TrackedFlow {
        &self.flows[index]
    }

    #[inline]
    pub fn get_mut(&mut self, index: FlowIndex) -> &mut TrackedFlow {
        &mut self.flows[index]
    }

    /// Returns the indices of all flows.
    pub fn indices(&self) -> impl Iterator<Item = FlowIndex> {
        (0..self.flows.len()).filter(|index| self.flows[*index].aggregate != 0)
    }

    /// Returns a flow that has to be removed before a flow with this key is added.
    pub fn victim(&mut self, key: &Ipv4FlowKey) -> Option<FlowIndex> {
        if self.len() >= self.capacity {
            let count = self.flows.len();
            let candidates = (0..EVICTION_CANDIDATES.min(count)).map(|step| (self.hand + step) % count);
            let oldest = candidates
                .filter(|index| self.flows[*index].aggregate != 0)
                .min_by_key(|index| self.flows[*index].latest);
            self.hand = (self.hand + EVICTION_CANDIDATES) % count;
            return oldest.or_else(|| self.indices().next());
        }
        let (mut index, mut count, mut oldest) = (self.buckets[self.bucket(key)], 0, None);
        while index != NONE {
            let flow = &self.flows[index as usize];
            count += 1;
            let candidate = (flow.latest, index as usize);
            oldest = Some(oldest.map_or(candidate, |oldest: (Timestamp, usize)| oldest.min(candidate)));
            index = flow.next;
        }
        oldest.filter(|_| count >= BUCKET_FLOWS_MAX).map(|(_, index)| index)
    }

    /// Adds a flow, whose key is not in the table.
    pub fn insert(&mut self, flow: TrackedFlow) -> FlowIndex {
        if self.len() >= self.buckets.len() {
            self.buckets = vec![NONE; self.buckets.len() * 2];
            let flows: Vec<FlowIndex> = self.indices().collect();
            flows.into_iter().for_each(|index| self.link(index));
        }
        let index = match self.free.pop() {
            Some(index) => index as usize,
            None => {
                self.flows.push(flow);
                self.flows.len() - 1
            }
        };
        self.flows[index] = flow;
        self.link(index);
        index
    }

    /// Makes a flow the first one of its bucket.
    fn link(&mut self, index: FlowIndex) {
        let bucket = self.bucket(&self.flows[index].key);
        let first = u32::try_from(index).unwrap_or(NONE);
        self.flows[index].next = std::mem::replace(&mut self.buckets[bucket], first);
    }

    /// Removes a flow.
    pub fn remove(&mut self, index: FlowIndex) {
        let (bucket, removed) = (self.bucket(&self.flows[index].key), u32::try_from(index).unwrap_or(NONE));
        let next = self.flows[index].next;
        if self.buckets[bucket] == removed {
            self.buckets[bucket] = next;
        } else {
            let mut before = self.buckets[bucket];
            while before != NONE {
                let flow = &mut self.flows[before as usize];
                if flow.next == removed {
                    flow.next = next;
                    break;
                }
                before = flow.next;
            }
        }
        self.flows[index].aggregate = 0;
        self.free.push(removed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn key(number: u32) -> Ipv4FlowKey {
        Ipv4FlowKey { hosts: [number / 7, 9], ports: number, protocol: 6 }
    }

    fn flow(number: u32) -> TrackedFlow {
        TrackedFlow::new(key(number), number + 1, false, Timestamp(u64::from(number)))
    }

    #[test]
    fn both_directions_have_one_key() {
        let (one, is_flipped) = Ipv4FlowKey::new(5, 3, 0x0050_1234, 6);
        assert!(is_flipped);
        assert_eq!(Ipv4FlowKey::new(3, 5, 0x1234_0050, 6), (one, false));
        // Of a host with itself, the ports decide.
        let (same, is_flipped) = Ipv4FlowKey::new(5, 5, 0x1234_0050, 6);
        assert!(is_flipped);
        assert_eq!(Ipv4FlowKey::new(5, 5, 0x0050_1234, 6), (same, false));
    }

    #[test]
    fn the_table_is_a_map() {
        let mut table = FlowTable::new(10_000);
        let mut model = BTreeMap::new();
        let mut random = 1_u32;
        for _ in 0..50_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = random >> 16 & 0xfff;
            match (table.find(&key(number)), model.contains_key(&number)) {
                (Some(index), true) => {
                    assert_eq!(table.get(index).aggregate, number + 1);
                    if random & 1 == 0 {
                        table.remove(index);
                        model.remove(&number);
                    }
                }
                (None, false) => {
                    assert_eq!(table.victim(&key(number)), None);
                    table.insert(flow(number));
                    model.insert(number, ());
                }
                other => panic!("{number}: {other:?}"),
            }
            assert_eq!(table.len(), model.len());
        }
        let mut left: Vec<u32> = table.indices().map(|index| table.get(index).aggregate - 1).collect();
        left.sort_unstable();
        assert!(left.into_iter().eq(model.into_keys()));
    }

    #[test]
    fn a_full_table_removes_the_oldest_of_some_flows() {
        let mut table = FlowTable::new(16);
        for number in 0..1_000 {
            if let Some(victim) = table.victim(&key(number)) {
                // The first eight flows have been there for the longest time.
                assert!(number != 16 || table.get(victim).aggregate == 1);
                table.remove(victim);
            }
            table.insert(flow(number));
            assert!(table.len() <= 16);
        }
        assert!(table.find(&key(999)).is_some());
    }

    #[test]
    fn keys_with_equal_hashes_do_not_make_searches_long() {
        let mut table = FlowTable::new(100_000);
        let colliding = (0..3_000_000).filter(|number| key(*number).hash() & 0xfff == 77);
        let mut count = 0;
        for number in colliding {
            if let Some(victim) = table.victim(&key(number)) {
                assert_eq!(table.len(), BUCKET_FLOWS_MAX, "the only bucket is full");
                assert!(table.get(victim).latest < Timestamp(u64::from(number)));
                table.remove(victim);
            }
            table.insert(flow(number));
            count += 1;
            assert!(table.find(&key(number)).is_some(), "{number}");
        }
        assert!(count > 2 * BUCKET_FLOWS_MAX, "{count}");
    }

    #[test]
    fn similar_keys_are_in_different_buckets() {
        let mut table = FlowTable::new(100_000);
        for number in 0..65_536 {
            assert_eq!(table.victim(&key(number)), None, "no bucket is full");
            table.insert(flow(number));
        }
    }
}
