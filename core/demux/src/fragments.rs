//! Fragments of a datagram: later fragments go to the channels that the first fragment went to. Filters cannot select
//! them, because later fragments have no ports.
//!
//! The table has a bounded size and is set-associative, like a processor cache. The set of a datagram follows from its
//! source and a secret key. If a set is full, the source with the most entries in the set loses its oldest entry. So:
//!
//! - A packet displaces an entry of another source only if that source has at least as many entries in the set as the
//!   packet's own source, whose new entry is counted.
//! - The entry of a source with only one open datagram is displaced only if all [`WAYS`] entries of its set belong to
//!   different sources. An attacker who does not know the key needs, on average, as many forged source addresses within a
//!   lifetime as the table has entries.
//!
//! If a first fragment arrives for a datagram that is already open, it is a repetition, or an attacker has guessed the
//! datagram's identification. Later fragments then go only to the channels of both first fragments, so that no channel
//! receives packets that its filter does not select.
//!
//! Identifications are reused. So if a first fragment arrives more than a second after a last fragment, it begins a new
//! datagram. If it arrives within that second, it is handled as for an open datagram: an attacker could have forged the
//! last fragment, to make their own first fragment begin a new datagram. (A host reuses an IPv4 identification within a second only if
//! it sends more than 65,536 fragmented datagrams of a protocol to another host in that second.)
//!
//! One attack remains. An attacker who forges eight more datagrams of a source, between two fragments of one datagram
//! of that source, displaces the entry of that datagram. Later fragments can then go to the channels of the attacker's
//! own first fragment. In bounded memory, the only remedy would be to give later fragments to no channel.
//!
//! Time is the time of the packets, so the same packets always give the same results.

use crate::ChannelSet;
use weir_abi::{Descriptor, flag};
use weir_units::{Nanos, Timestamp};
use weir_wire::{Datagram, Fragment, MoreHeader};

/// The number of entries in each set of the table.
pub const WAYS: usize = 8;

/// The time after a datagram's last fragment from which its identification may be reused.
const REUSE_AFTER: Nanos = Nanos::SECOND;

/// Counters of fragments, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounters {
    /// First fragments.
    pub first: u64,
    /// Later fragments that went to the channels of their first fragment.
    pub followed: u64,
    /// Later fragments whose datagram has no entry, because the first fragment is missing, or the entry has expired or
    /// was displaced. They go to the channels that the filters select.
    pub unknown: u64,
    /// Entries that were displaced before their lifetime ended.
    pub displaced: u64,
    /// First fragments of datagrams that were already open.
    pub repeated: u64,
}

impl FragmentCounters {
    /// The sum of both counters.
    #[must_use]
    pub fn plus(self, other: &Self) -> Self {
        Self {
            first: self.first.saturating_add(other.first),
            followed: self.followed.saturating_add(other.followed),
            unknown: self.unknown.saturating_add(other.unknown),
            displaced: self.displaced.saturating_add(other.displaced),
            repeated: self.repeated.saturating_add(other.repeated),
        }
    }
}

/// An open datagram.
#[derive(Clone, Copy, Debug)]
struct Entry {
    datagram: Datagram,
    /// The time of the first fragment.
    since: Timestamp,
    /// The channels that later fragments go to.
    channels: ChannelSet,
    /// The time of the last fragment, if it has arrived.
    ended: Option<Timestamp>,
}

/// The table of open datagrams, with the channels of their first fragments.
#[derive(Debug)]
pub struct Fragments {
    sets: Vec<[Option<Entry>; WAYS]>,
    lifetime: Nanos,
    key: u64,
    counters: FragmentCounters,
}

impl Fragments {
    /// Creates a table with at least `datagrams` entries. An entry expires `lifetime` after the first fragment; Linux
    /// waits for 30 s. `key` should be random if packets are untrusted.
    pub fn new(datagrams: usize, lifetime: Nanos, key: u64) -> Self {
        let sets = datagrams.div_ceil(WAYS).max(1);
        Self { sets: vec![[None; WAYS]; sets], lifetime, key, counters: FragmentCounters::default() }
    }

    /// Handles a packet after the filters were evaluated. `wanted` holds the channels that the filters select. They are
    /// remembered for a first fragment. For a later fragment of an open datagram, `wanted` is replaced by the channels
    /// of the first fragment. For other packets, `wanted` does not change. `head` holds the first bytes of the packet
    /// that `descriptor` describes.
    ///
    /// # Errors
    ///
    /// [`MoreHeader`] if `head` is too short: repeat the call with `min(cap_len, PEEK_MAX)` bytes. Nothing has changed
    /// then.
    pub fn apply(
        &mut self,
        descriptor: &Descriptor,
        head: &[u8],
        wanted: &mut ChannelSet,
    ) -> Result<(), MoreHeader> {
        if descriptor.flags & flag::FRAGMENT == 0 {
            return Ok(());
        }
        match weir_wire::fragment(head, descriptor)? {
            Some(fragment) => self.apply_fragment(&fragment, Timestamp(descriptor.ts_ns), wanted),
            None => self.counters.unknown += u64::from(descriptor.flags & flag::LATER_FRAGMENT != 0),
        }
        Ok(())
    }

    /// Removes channels from all entries. New channels with the same numbers then receive no fragments of datagrams that
    /// belonged to the removed ones.
    pub fn remove_channels(&mut self, channels: &ChannelSet) {
        self.sets.iter_mut().flatten().flatten().for_each(|entry| entry.channels.remove_all(channels));
    }

    /// The counters of fragments, by outcome.
    pub fn counters(&self) -> FragmentCounters {
        self.counters
    }

    /// The bytes of memory that the table takes. They do not change.
    pub fn memory(&self) -> usize {
        self.sets.len() * size_of::<[Option<Entry>; WAYS]>()
    }

    /// Handles a fragment, as described at [`Fragments::apply`].
    #[cold]
    fn apply_fragment(&mut self, fragment: &Fragment, now: Timestamp, wanted: &mut ChannelSet) {
        let datagram = fragment.datagram;
        let index = self.set_of(&datagram);
        let lifetime = self.lifetime;
        let Some(set) = self.sets.get_mut(index) else { return };
        let is_expired = |entry: &Entry| now.since(entry.since) > lifetime;
        let known = set.iter_mut().flatten().find(|entry| entry.datagram == datagram && !is_expired(entry));
        let new = Entry { datagram, since: now, channels: *wanted, ended: None };
        if fragment.offset > 0 {
            match known {
                Some(entry) => {
                    *wanted = entry.channels;
                    if !fragment.has_more {
                        entry.ended = Some(now);
                    }
                    self.counters.followed += 1;
                }
                None => self.counters.unknown += 1,
            }
            return;
        }
        self.counters.first += 1;
        match known {
            Some(entry) if entry.ended.is_some_and(|ended| now.since(ended) > REUSE_AFTER) => *entry = new,
            Some(entry) => {
                entry.channels.keep(wanted);
                self.counters.repeated += 1;
            }
            None => {
                let free = set.iter().position(|entry| entry.as_ref().is_none_or(is_expired));
                self.counters.displaced += u64::from(free.is_none());
                let way = free.unwrap_or_else(|| victim(set, &datagram));
                if let Some(entry) = set.get_mut(way) {
                    *entry = Some(new);
                }
            }
        }
    }

    /// The index of a datagram's set.
    fn set_of(&self, datagram: &Datagram) -> usize {
        let source = datagram.source();
        let half = |shift: u32| u64::try_from(source >> shift & u128::from(u64::MAX)).unwrap_or(0);
        // Folded multiplications, as in the flow hash. The key enters both factors, so that a sender cannot choose
        // either factor.
        let fold = |a: u64, b: u64| {
            let (low, high) = a.carrying_mul(b, 0);
            low ^ high
        };
        let mixed = fold(half(0) ^ self.key, 0xa409_3822_299f_31d0 ^ self.key.rotate_left(32));
        let mixed = fold(mixed ^ half(64), 0x1319_8a2e_0370_7344 ^ self.key.rotate_left(17));
        let sets = u64::try_from(self.sets.len()).unwrap_or(1);
        usize::try_from(mixed.carrying_mul(sets, 0).1).unwrap_or(0)
    }
}

/// The index of the entry that is displaced from a full set for a new datagram: the oldest entry of the source with the
/// most entries. The new datagram is counted as an entry of its source.
fn victim(set: &[Option<Entry>; WAYS], new: &Datagram) -> usize {
    let entries =
        || set.iter().enumerate().filter_map(|(way, entry)| entry.as_ref().map(|entry| (way, entry)));
    let entries_of = |source: u128| {
        entries().filter(|(_, entry)| entry.datagram.source() == source).count()
            + usize::from(new.source() == source)
    };
    entries()
        .max_by_key(|(way, entry)| {
            (entries_of(entry.datagram.source()), std::cmp::Reverse((entry.since, *way)))
        })
        .map_or(0, |(way, _)| way)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::{LinkType, Meta, classify};

    const SECOND: u64 = 1_000_000_000;

    fn set(channels: &[usize]) -> ChannelSet {
        channels.iter().copied().collect()
    }

    /// A packet at a time in seconds, with the classifier's descriptor.
    fn packet(at: u64, link_type: LinkType, head: Vec<u8>) -> (Descriptor, Vec<u8>) {
        let len = u32::try_from(head.len()).unwrap();
        let (ts, wire_len) = (Timestamp(at * SECOND), len + 1000);
        let meta = Meta { ts, cap_len: len, wire_len, link_type, interface: 0, number: 0, data: 0 };
        (classify(&head, &meta).unwrap(), head)
    }

    /// An IPv4 fragment at a time in seconds: the first, a later one, or the last.
    fn part(at: u64, src: u32, id: u16, offset: u8, more: u8) -> (Descriptor, Vec<u8>) {
        let mut head = vec![0x45, 0, 0, 100];
        head.extend(id.to_be_bytes());
        head.extend([more << 5, offset, 64, 17, 0, 0]);
        head.extend(src.to_be_bytes());
        head.extend([10, 0, 0, 9]);
        packet(at, LinkType::Ipv4, head)
    }

    fn v4(at: u64, src: u32, id: u16, is_later: bool) -> (Descriptor, Vec<u8>) {
        part(at, src, id, if is_later { 10 } else { 0 }, 1)
    }

    fn put(
        table: &mut Fragments,
        (descriptor, head): &(Descriptor, Vec<u8>),
        selected: &[usize],
    ) -> ChannelSet {
        let mut wanted = set(selected);
        table.apply(descriptor, head, &mut wanted).unwrap();
        wanted
    }

    fn table() -> Fragments {
        Fragments::new(1024, Nanos(30 * SECOND), 7)
    }

    #[test]
    fn later_fragments_go_to_the_channels_of_their_first_fragment() {
        let mut table = table();
        assert_eq!(put(&mut table, &v4(0, 1, 5, false), &[3, 9]), set(&[3, 9]));
        assert_eq!(put(&mut table, &v4(1, 1, 5, true), &[9, 10]), set(&[3, 9]));
        // With another identification, source or VLAN, the filters decide.
        assert_eq!(put(&mut table, &v4(1, 1, 6, true), &[10]), set(&[10]));
        assert_eq!(put(&mut table, &v4(1, 2, 5, true), &[10]), set(&[10]));
        let (_, head) = v4(1, 1, 5, true);
        let frame = [&[0; 12][..], &[0x81, 0, 0xe0, 1, 8, 0], &head].concat();
        assert_eq!(put(&mut table, &packet(1, LinkType::Ethernet, frame), &[10]), set(&[10]));
        // A removed channel receives nothing any more; after the lifetime the entry has expired.
        table.remove_channels(&set(&[3]));
        assert_eq!(put(&mut table, &v4(30, 1, 5, true), &[]), set(&[9]));
        assert_eq!(put(&mut table, &v4(31, 1, 5, true), &[]), set(&[]));
        let counters = FragmentCounters { first: 1, followed: 2, unknown: 4, ..FragmentCounters::default() };
        assert_eq!(table.counters(), counters);
    }

    #[test]
    fn the_channels_of_an_unfragmented_packet_do_not_change() {
        let mut table = table();
        assert_eq!(put(&mut table, &part(0, 1, 5, 0, 0), &[1]), set(&[1]));
        assert_eq!(table.counters(), FragmentCounters::default());
        // A descriptor with headers beyond `head`: more bytes are requested.
        let (later, head) = v4(0, 1, 5, true);
        let mut wanted = set(&[1]);
        assert_eq!(table.apply(&later, &head[..19], &mut wanted), Err(MoreHeader));
        // And a descriptor that contradicts the packet.
        let later = Descriptor { cap_len: 19, ..later };
        assert_eq!(put(&mut table, &(later, head[..19].to_vec()), &[1]), set(&[1]));
        assert_eq!(table.counters().unknown, 1);
    }

    #[test]
    fn a_sender_that_guesses_a_datagrams_identification_does_not_receive_the_rest() {
        let mut table = table();
        put(&mut table, &part(0, 1, 5, 0, 1), &[1, 2]);
        // An attacker forges the sender's address and number, with ports that the attacker's channel selects.
        put(&mut table, &part(0, 1, 5, 0, 1), &[2, 7]);
        assert_eq!(put(&mut table, &part(0, 1, 5, 10, 1), &[7]), set(&[2]));
        assert_eq!(put(&mut table, &part(0, 1, 5, 20, 0), &[]), set(&[2]));
        // The number is reused for another datagram.
        put(&mut table, &part(2, 1, 5, 0, 1), &[3]);
        assert_eq!(put(&mut table, &part(2, 1, 5, 10, 0), &[]), set(&[3]));
        let counters = table.counters();
        assert_eq!((counters.first, counters.repeated, counters.followed), (3, 1, 3));
    }

    #[test]
    fn a_sender_that_forges_the_end_of_a_datagram_does_not_receive_the_rest() {
        let mut table = table();
        put(&mut table, &part(0, 1, 5, 0, 1), &[1]);
        // An attacker forges a last fragment, and then a first one with ports that the attacker's channel selects.
        put(&mut table, &part(0, 1, 5, 100, 0), &[]);
        put(&mut table, &part(0, 1, 5, 0, 1), &[7]);
        assert_eq!(put(&mut table, &part(0, 1, 5, 10, 1), &[]), set(&[]));
        // Repeated last fragments do not block the number for longer than a second after the latest of them.
        put(&mut table, &part(1, 1, 5, 20, 0), &[]);
        put(&mut table, &part(3, 1, 5, 0, 1), &[1]);
        assert_eq!(put(&mut table, &part(3, 1, 5, 10, 0), &[]), set(&[1]));
    }

    #[test]
    fn ipv6_fragments_are_identified_by_their_fragment_header_after_other_headers() {
        let fragment = |offset: u8, id: u8| {
            let mut head = vec![0x60, 0, 0, 0, 0, 100, 0, 64];
            head.extend([[1; 16], [2; 16]].concat());
            // Hop-by-hop options of 16 bytes, an atomic fragment header, and the fragment header.
            head.extend([44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            head.extend([44, 0, 0, 0, 9, 9, 9, id]);
            head.extend([17, 0, offset, 1, 0, 0, 0, id]);
            packet(0, LinkType::Ipv6, head)
        };
        let mut table = table();
        put(&mut table, &fragment(0, 1), &[1]);
        assert_eq!(put(&mut table, &fragment(8, 1), &[]), set(&[1]));
        assert_eq!(put(&mut table, &fragment(8, 2), &[]), set(&[]));
        for len in 0..fragment(8, 1).1.len() {
            let (descriptor, head) = fragment(8, 1);
            let mut wanted = set(&[]);
            assert_eq!(table.apply(&descriptor, &head[..len], &mut wanted), Err(MoreHeader));
            let cut = Descriptor { cap_len: u32::try_from(len).unwrap(), ..descriptor };
            assert_eq!(put(&mut table, &(cut, head[..len].to_vec()), &[]), set(&[]));
        }
    }

    #[test]
    fn a_flood_from_one_source_displaces_no_other_source() {
        let mut table = table();
        for src in 0..100 {
            put(&mut table, &v4(0, src, 1, false), &[1]);
        }
        let kept_before = |table: &mut Fragments| {
            (0..100).filter(|&src| !put(table, &v4(2, src, 1, true), &[]).is_empty()).collect::<Vec<_>>()
        };
        let before = kept_before(&mut table);
        // A hundred sources in 128 sets of eight: none is displaced.
        assert_eq!(before.len(), 100);
        for id in 0..u16::MAX {
            put(&mut table, &v4(1, 5000, id, false), &[2]);
        }
        assert_eq!(kept_before(&mut table), before);
        assert_eq!(put(&mut table, &v4(1, 5000, u16::MAX - 1, true), &[]), set(&[2]));
    }

    #[test]
    fn displacing_entries_takes_about_as_many_sources_as_there_are_entries() {
        let displaced_by = |sources: u32| {
            let mut table = table();
            for src in 0..100 {
                put(&mut table, &v4(0, src, 1, false), &[1]);
            }
            for src in 0..sources {
                put(&mut table, &v4(1, 0x1000_0000 + src * 77, 1, false), &[2]);
            }
            (0..100).filter(|&src| put(&mut table, &v4(2, src, 1, true), &[]).is_empty()).count()
        };
        let (few, many) = (displaced_by(256), displaced_by(4096));
        assert!(few < 10 && many > 50, "{few} and {many} of 100");
        let memory = table().memory();
        assert!(memory < 1024 * 300, "{memory}");
    }
}
