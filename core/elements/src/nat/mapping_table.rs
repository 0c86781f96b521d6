//! A bounded table of mappings, which rewriters can share.

use super::flow_id::FlowId;
use super::mapping::{FlowMapping, MappingTimeouts};
use std::collections::BTreeSet;
use weir_units::{Nanos, Timestamp};

/// The place of a mapping.
pub type MappingIndex = usize;

/// The end of a bucket.
const NONE: u32 = u32::MAX;
const BUCKETS_MIN: usize = 64;
/// The most ends in a bucket. Flows whose hashes were chosen to be equal could else make searches long.
const BUCKET_ENDS_MAX: usize = 64;
/// The number of ranges without a free value that are remembered.
const EXHAUSTED_RANGES: usize = 64;

/// The most mappings of a table without an argument, and with any argument.
pub const CAPACITY_DEFAULT: u32 = 1 << 20;
pub const CAPACITY_MAX: u32 = 1 << 24;

/// A rewriter that uses a table.
#[derive(Debug)]
struct MappingOwner {
    timeouts: MappingTimeouts,
    /// The number of mappings of each input.
    counts: Vec<u32>,
}

/// A range of ports or addresses for replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyRange {
    /// The map, and the identifier of replies. Its destination, or its port, is that of the range, and 0.
    pub map: u32,
    pub reply: FlowId,
    /// The first value, and the number of further values.
    pub base: u32,
    pub top: u32,
}

impl ReplyRange {
    fn place(map: u32, reply: FlowId) -> usize {
        reply.hash_in(map) as usize % EXHAUSTED_RANGES
    }
}

/// A bounded table of mappings: buckets with linked ends.
///
/// A full table removes a mapping for each new one: of those that are not guaranteed any more, the one that expires
/// first. If all are guaranteed, there is no new one.
#[derive(Debug)]
pub struct MappingTable {
    /// The first end of each bucket: twice the index of the mapping, and 1 for the direction of replies.
    buckets: Vec<u32>,
    mappings: Vec<FlowMapping>,
    free: Vec<u32>,
    /// The mappings by their expiry: those without a guarantee, and those with one. An expiry that got later is put into
    /// its place when it comes first.
    queues: [BTreeSet<(Timestamp, u32)>; 2],
    capacity: u32,
    owners: Vec<MappingOwner>,
    /// Ranges that had no free value. Removing a mapping removes the ranges in which it can be.
    exhausted: Vec<Option<ReplyRange>>,
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(NONE)
}

impl MappingTable {
    /// Returns an empty table.
    pub fn new(capacity: u32) -> Self {
        Self {
            buckets: vec![NONE; BUCKETS_MIN],
            mappings: Vec::new(),
            free: Vec::new(),
            queues: Default::default(),
            capacity: capacity.min(CAPACITY_MAX),
            owners: Vec::new(),
            exhausted: vec![None; EXHAUSTED_RANGES],
        }
    }

    /// Adds a rewriter, and returns its number.
    pub fn add_owner(&mut self, timeouts: MappingTimeouts, inputs: usize) -> u32 {
        self.owners.push(MappingOwner { timeouts, counts: vec![0; inputs] });
        narrow(self.owners.len() - 1)
    }

    /// Returns the number of mappings.
    pub fn len(&self) -> usize {
        self.mappings.len() - self.free.len()
    }

    /// Returns the most mappings.
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Sets the most mappings, and removes those that exceed it.
    pub fn set_capacity(&mut self, capacity: u32, now: Timestamp) {
        self.capacity = capacity.min(CAPACITY_MAX);
        self.reap(now);
    }

    /// Returns the number of mappings of a rewriter's input.
    pub fn count(&self, owner: u32, input: usize) -> u32 {
        self.owners.get(owner as usize).and_then(|owner| owner.counts.get(input)).copied().unwrap_or(0)
    }

    #[inline]
    fn bucket(&self, map: u32, flow: FlowId) -> usize {
        flow.hash_in(map) as usize & (self.buckets.len() - 1)
    }

    /// Returns the mapping of a flow, and true if the flow is that of its replies.
    #[inline]
    pub fn find(&self, map: u32, flow: FlowId) -> Option<(MappingIndex, bool)> {
        let mut at = self.buckets[self.bucket(map, flow)];
        while at != NONE {
            let (index, is_reply) = ((at >> 1) as usize, at & 1 == 1);
            let end = &self.mappings[index].ends[usize::from(is_reply)];
            if end.flow == flow && end.map == map {
                return Some((index, is_reply));
            }
            at = end.next;
        }
        None
    }

    #[inline]
    pub fn get(&self, index: MappingIndex) -> &FlowMapping {
        &self.mappings[index]
    }

    #[inline]
    pub fn get_mut(&mut self, index: MappingIndex) -> &mut FlowMapping {
        &mut self.mappings[index]
    }

    /// Returns the mappings of a rewriter, in their order in the table.
    pub fn owned(&self, owner: u32) -> impl Iterator<Item = &FlowMapping> {
        self.mappings.iter().filter(move |mapping| mapping.is_live && mapping.owner == owner)
    }

    /// Returns the time at which a mapping ends if nothing happens.
    pub fn end_of(&self, mapping: &FlowMapping) -> Timestamp {
        if mapping.is_guaranteed { self.best_effort_end(mapping) } else { mapping.expires }
    }

    fn timeouts(&self, mapping: &FlowMapping) -> (Nanos, Nanos) {
        self.owners.get(mapping.owner as usize).map_or_else(Default::default, |it| it.timeouts.of(mapping))
    }

    /// Returns the end of a mapping whose guarantee has not ended yet.
    fn best_effort_end(&self, mapping: &FlowMapping) -> Timestamp {
        let (timeout, guarantee) = self.timeouts(mapping);
        Timestamp(mapping.expires.0.saturating_add(timeout.0).saturating_sub(guarantee.0))
    }

    /// Adds a mapping. An earlier mapping with the same replies is removed. Returns `None` if there is no room.
    pub fn insert(&mut self, mut mapping: FlowMapping, now: Timestamp) -> Option<MappingIndex> {
        let (timeout, guarantee) = self.timeouts(&mapping);
        mapping.is_guaranteed = guarantee.0 > 0;
        let duration = if mapping.is_guaranteed { guarantee } else { timeout };
        mapping.expires = Timestamp(now.0.saturating_add(duration.0));
        self.insert_as_it_is(mapping, now)
    }

    /// Adds a mapping that has an expiry.
    pub fn insert_as_it_is(&mut self, mut mapping: FlowMapping, now: Timestamp) -> Option<MappingIndex> {
        let [forward, reply] = [&mapping.ends[0], &mapping.ends[1]].map(|end| (end.map, end.flow));
        if self.find(forward.0, forward.1).is_some() {
            return None;
        }
        if let Some((earlier, _)) = self.find(reply.0, reply.1) {
            self.remove(earlier);
        }
        if (self.len() + 1) * 2 > self.buckets.len() {
            self.grow();
        }
        for (map, flow) in [forward, reply] {
            self.relieve(map, flow, now)?;
        }
        mapping.is_live = true;
        mapping.queued = mapping.expires;
        let (owner, input) = (mapping.owner as usize, usize::from(mapping.input));
        let index = match self.free.pop() {
            Some(index) => {
                self.mappings[index as usize] = mapping;
                index as usize
            }
            None => {
                self.mappings.push(mapping);
                self.mappings.len() - 1
            }
        };
        // Of two equal ends, that of the replies counts.
        if forward != reply {
            self.link(index, false);
        }
        self.link(index, true);
        self.enqueue(index);
        if let Some(count) = self.owners.get_mut(owner).and_then(|it| it.counts.get_mut(input)) {
            *count += 1;
        }
        if self.len() > self.capacity as usize {
            self.end_guarantees(now);
            let victim = self.first(false).unwrap_or(index);
            self.remove(victim);
            if victim == index {
                return None;
            }
        }
        Some(index)
    }

    /// Makes room in the bucket of a flow, if it has too many ends.
    fn relieve(&mut self, map: u32, flow: FlowId, now: Timestamp) -> Option<()> {
        let (mut at, mut count) = (self.buckets[self.bucket(map, flow)], 0);
        let mut oldest: Option<(Timestamp, MappingIndex)> = None;
        while at != NONE {
            let (index, direction) = ((at >> 1) as usize, (at & 1) as usize);
            let mapping = &self.mappings[index];
            count += 1;
            if !mapping.is_guaranteed || mapping.expires <= now {
                let candidate = (self.end_of(mapping), index);
                oldest = Some(oldest.map_or(candidate, |oldest| oldest.min(candidate)));
            }
            at = mapping.ends[direction].next;
        }
        // Both ends of the new mapping can be in this bucket.
        if count + 2 > BUCKET_ENDS_MAX {
            self.remove(oldest?.1);
        }
        Some(())
    }

    fn grow(&mut self) {
        self.buckets = vec![NONE; self.buckets.len() * 2];
        for index in 0..self.mappings.len() {
            let mapping = &self.mappings[index];
            if mapping.is_live {
                let [forward, reply] = mapping.ends;
                if (forward.map, forward.flow) != (reply.map, reply.flow) {
                    self.link(index, false);
                }
                self.link(index, true);
            }
        }
    }

    /// Makes an end the first one of its bucket.
    fn link(&mut self, index: MappingIndex, is_reply: bool) {
        let end = self.mappings[index].ends[usize::from(is_reply)];
        let bucket = self.bucket(end.map, end.flow);
        let first = narrow(index << 1 | usize::from(is_reply));
        let next = std::mem::replace(&mut self.buckets[bucket], first);
        self.mappings[index].ends[usize::from(is_reply)].next = next;
    }

    /// Takes an end out of its bucket, if it is there.
    fn unlink(&mut self, index: MappingIndex, is_reply: bool) {
        let end = self.mappings[index].ends[usize::from(is_reply)];
        let this = narrow(index << 1 | usize::from(is_reply));
        let bucket = self.bucket(end.map, end.flow);
        let mut at = self.buckets[bucket];
        if at == this {
            self.buckets[bucket] = end.next;
        }
        while at != NONE && at != this {
            let before = &mut self.mappings[(at >> 1) as usize].ends[(at & 1) as usize];
            at = before.next;
            if at == this {
                before.next = end.next;
            }
        }
        for (reply, _) in range_keys(end.flow) {
            let place = ReplyRange::place(end.map, reply);
            if self.exhausted[place].is_some_and(|it| it.map == end.map && it.reply == reply) {
                self.exhausted[place] = None;
            }
        }
    }

    fn enqueue(&mut self, index: MappingIndex) {
        let mapping = &mut self.mappings[index];
        mapping.queued = mapping.expires;
        self.queues[usize::from(mapping.is_guaranteed)].insert((mapping.queued, narrow(index)));
    }

    fn dequeue(&mut self, index: MappingIndex) {
        let mapping = &self.mappings[index];
        self.queues[usize::from(mapping.is_guaranteed)].remove(&(mapping.queued, narrow(index)));
    }

    /// Has a mapping expire later, because of a packet.
    #[inline]
    pub fn touch(&mut self, index: MappingIndex, now: Timestamp) {
        let mapping = &self.mappings[index];
        let (timeout, guarantee) = self.timeouts(mapping);
        let is_guaranteed = guarantee.0 > 0;
        let duration = if is_guaranteed { guarantee } else { timeout };
        let expires = Timestamp(now.0.saturating_add(duration.0));
        if is_guaranteed == mapping.is_guaranteed && expires >= mapping.queued {
            self.mappings[index].expires = expires;
        } else {
            self.set_expiry(index, is_guaranteed, expires);
        }
    }

    fn set_expiry(&mut self, index: MappingIndex, is_guaranteed: bool, expires: Timestamp) {
        self.dequeue(index);
        let mapping = &mut self.mappings[index];
        mapping.is_guaranteed = is_guaranteed;
        mapping.expires = expires;
        self.enqueue(index);
    }

    /// Returns the mapping that expires first.
    fn first(&mut self, is_guaranteed: bool) -> Option<MappingIndex> {
        loop {
            let (queued, index) = *self.queues[usize::from(is_guaranteed)].first()?;
            let index = index as usize;
            if self.mappings[index].expires <= queued {
                return Some(index);
            }
            self.dequeue(index);
            self.enqueue(index);
        }
    }

    /// Ends the guarantees that have expired.
    fn end_guarantees(&mut self, now: Timestamp) {
        while let Some(index) = self.first(true)
            && self.mappings[index].expires <= now
        {
            let end = self.best_effort_end(&self.mappings[index]);
            self.set_expiry(index, false, end);
        }
    }

    /// Removes the mappings that have expired, and those that exceed the capacity.
    pub fn reap(&mut self, now: Timestamp) {
        self.end_guarantees(now);
        while let Some(index) = self.first(false)
            && self.mappings[index].expires <= now
        {
            self.remove(index);
        }
        while self.len() > self.capacity as usize
            && let Some(index) = self.first(false).or_else(|| self.first(true))
        {
            self.remove(index);
        }
    }

    /// Removes a mapping, and returns it.
    pub fn remove(&mut self, index: MappingIndex) {
        self.unlink(index, false);
        self.unlink(index, true);
        self.dequeue(index);
        let mapping = &mut self.mappings[index];
        mapping.is_live = false;
        mapping.edits = None;
        let (owner, input) = (mapping.owner as usize, usize::from(mapping.input));
        if let Some(count) = self.owners.get_mut(owner).and_then(|it| it.counts.get_mut(input)) {
            *count = count.saturating_sub(1);
        }
        self.free.push(narrow(index));
    }

    /// Removes the mappings for which a condition holds.
    pub fn remove_if(&mut self, condition: impl Fn(&FlowMapping) -> bool) {
        for index in 0..self.mappings.len() {
            if self.mappings[index].is_live && condition(&self.mappings[index]) {
                self.remove(index);
            }
        }
    }

    /// Removes and returns the mappings of a rewriter, in their order in the table.
    pub fn take_owned(&mut self, owner: u32) -> Vec<FlowMapping> {
        let mut taken = Vec::new();
        for index in 0..self.mappings.len() {
            if self.mappings[index].is_live && self.mappings[index].owner == owner {
                let edits = self.mappings[index].edits.take();
                self.remove(index);
                let mapping = &self.mappings[index];
                taken.push(FlowMapping { edits, is_live: false, ..*mapping });
            }
        }
        taken
    }

    /// Returns true if a range is known to have no free value.
    pub fn is_exhausted(&self, range: &ReplyRange) -> bool {
        self.exhausted[ReplyRange::place(range.map, range.reply)] == Some(*range)
    }

    /// Remembers that a range has no free value.
    pub fn note_exhausted(&mut self, range: ReplyRange) {
        self.exhausted[ReplyRange::place(range.map, range.reply)] = Some(range);
    }
}

/// Returns the identifiers of the ranges in which a reply can be, each with the value: the port and the address.
pub fn range_keys(reply: FlowId) -> [(FlowId, u32); 2] {
    [
        (FlowId { destination_port: 0, ..reply }, u32::from(reply.destination_port)),
        (FlowId { destination: 0, ..reply }, reply.destination),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::mapping::{FlowTracking, MappingEnd};
    use super::*;
    use std::collections::BTreeMap;

    fn flow(number: u32) -> FlowId {
        FlowId { source: number, destination: 7, source_port: 9, destination_port: 80 }
    }

    fn mapping(number: u32) -> FlowMapping {
        let reply = FlowId { source: 7, destination: number, source_port: 80, destination_port: 1024 };
        let ends = [MappingEnd::new(flow(number), 0, 0), MappingEnd::new(reply, 0, 1)];
        FlowMapping::new(ends, 0, 0, 6, FlowTracking::Plain)
    }

    fn table(capacity: u32, timeout: u64, guarantee: u64) -> MappingTable {
        let mut table = MappingTable::new(capacity);
        table.add_owner(MappingTimeouts::plain(Nanos(timeout), Nanos(guarantee)), 1);
        table
    }

    #[test]
    fn the_table_is_a_map_of_both_directions() {
        let mut table = table(10_000, 1 << 40, 0);
        let mut model: BTreeMap<u32, ()> = BTreeMap::new();
        let mut random = 1_u32;
        for step in 0..50_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let number = random >> 16 & 0xfff;
            match table.find(0, flow(number)) {
                Some((index, is_reply)) => {
                    assert!(!is_reply && model.contains_key(&number));
                    let reply = table.get(index).ends[1].flow;
                    assert_eq!(table.find(0, reply), Some((index, true)));
                    assert_eq!(table.find(1, reply), None);
                    if random & 1 == 0 {
                        table.remove(index);
                        model.remove(&number);
                    }
                }
                None => {
                    assert!(!model.contains_key(&number));
                    table.insert(mapping(number), Timestamp(step)).unwrap();
                    model.insert(number, ());
                }
            }
            assert_eq!(table.len(), model.len());
        }
        let found: std::collections::BTreeSet<u32> =
            table.owned(0).map(|mapping| mapping.ends[0].flow.source).collect();
        assert!(found.into_iter().eq(model.into_keys()));
    }

    #[test]
    fn a_full_table_removes_what_expires_first() {
        let mut table = table(3, 100, 0);
        let indices: Vec<MappingIndex> =
            (0..3).map(|n| table.insert(mapping(n), Timestamp(n.into())).unwrap()).collect();
        // The first one has another packet, so the second one goes.
        table.touch(indices[0], Timestamp(10));
        table.insert(mapping(3), Timestamp(11)).unwrap();
        let left: Vec<bool> = (0..4).map(|n| table.find(0, flow(n)).is_some()).collect();
        assert_eq!(left, [true, false, true, true]);
        assert_eq!(table.count(0, 0), 3);
    }

    #[test]
    fn guaranteed_mappings_stay_and_the_new_one_goes() {
        let mut table = table(2, 100, 10);
        table.insert(mapping(0), Timestamp(0)).unwrap();
        table.insert(mapping(1), Timestamp(1)).unwrap();
        assert!(table.insert(mapping(2), Timestamp(9)).is_none());
        assert_eq!(table.len(), 2);
        // The guarantee of the first one has ended.
        assert!(table.insert(mapping(3), Timestamp(10)).is_some());
        assert!(table.find(0, flow(0)).is_none() && table.find(0, flow(1)).is_some());
    }

    #[test]
    fn mappings_end_with_their_timeouts() {
        let mut table = table(10, 100, 10);
        let index = table.insert(mapping(0), Timestamp(0)).unwrap();
        table.insert(mapping(1), Timestamp(0)).unwrap();
        table.touch(index, Timestamp(50));
        table.reap(Timestamp(99));
        assert_eq!(table.len(), 2);
        table.reap(Timestamp(100));
        assert_eq!(table.len(), 1);
        table.reap(Timestamp(150));
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn equal_hashes_do_not_make_searches_long() {
        let mut table = table(100_000, 100, 0);
        let colliding = (0..4_000_000).filter(|number| flow(*number).hash_in(0) & 0x3fff == 77);
        let mut count = 0;
        for number in colliding {
            _ = table.insert(mapping(number), Timestamp(u64::from(number)));
            count += 1;
        }
        assert!(count > 2 * BUCKET_ENDS_MAX, "{count}");
        let mut longest = 0;
        for bucket in &table.buckets {
            let (mut at, mut length) = (*bucket, 0);
            while at != NONE {
                at = table.mappings[(at >> 1) as usize].ends[(at & 1) as usize].next;
                length += 1;
            }
            longest = longest.max(length);
        }
        assert!(longest <= BUCKET_ENDS_MAX, "{longest}");
    }

    #[test]
    fn equal_directions_are_one() {
        let same = FlowId { source: 7, destination: 7, source_port: 5, destination_port: 5 };
        let ends = [MappingEnd::new(same, 0, 0), MappingEnd::new(same, 0, 1)];
        let mut table = table(10, 100, 0);
        let index = table.insert(FlowMapping::new(ends, 0, 0, 6, FlowTracking::Plain), Timestamp(0)).unwrap();
        assert_eq!(table.find(0, same), Some((index, true)));
        table.remove(index);
        assert_eq!((table.find(0, same), table.len()), (None, 0));
    }
}
