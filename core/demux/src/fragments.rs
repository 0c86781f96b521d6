//! Later fragments go where their first fragment went: they carry none of the ports that filters ask for.
//!
//! A table of bounded size, in sets as a processor's cache has them. Which set a datagram belongs to depends on its source and on a key that
//! strangers do not know. Where a set is full, the source that has the most entries in it loses its oldest one. So:
//!
//! - Whatever one source sends, it costs no other source an entry, unless that one has more entries in the set itself.
//! - To displace a datagram of a source that has no other one open, all [`WAYS`] places of its set have to be taken by different sources; for
//!   someone who forges addresses and does not know the key that takes, on average, as many forged sources in a lifetime as the table has
//!   entries.
//!
//! A second first fragment of a datagram that is under way comes from somebody who repeats himself, or who guesses: later fragments then go only
//! to channels that both went to, so that nobody is shown what his filter does not select. When the last fragment has come, a first one that comes
//! more than a second later begins anew: numbers come again. Not before: who guesses can send a last fragment, too, and what he wants to see comes soon
//! after its first one. (Of IPv4 a number comes again within a second where one host sends another more than 65,536 fragmented datagrams of a protocol in it.)
//!
//! Who can have a source's entries displaced, by forging eight more of its datagrams between two fragments of one, can make later fragments go where his own
//! first one goes. There is no remedy for that in bounded memory but to give later fragments to nobody.
//!
//! Time is packet time, so the same packets always have the same answers.

use crate::ChannelSet;
use weir_abi::{Descriptor, flag};
use weir_units::{Nanos, Timestamp};
use weir_wire::{Datagram, Fragment, MoreHeader};

/// Datagrams that can be open in a set.
pub const WAYS: usize = 8;

/// So long after the last fragment of a datagram another one of that number begins.
const AGAIN: Nanos = Nanos::SECOND;

/// Fragments by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FragmentCounters {
    /// First fragments.
    pub first: u64,
    /// Later fragments that went where their first one went.
    pub followed: u64,
    /// Later fragments whose first one did not come before them, or too long ago, or was displaced: they go where the filters say.
    pub unknown: u64,
    /// Datagrams that were displaced before their time was over.
    pub displaced: u64,
    /// First fragments of datagrams that were under way already.
    pub repeated: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    datagram: Datagram,
    since: Timestamp,
    channels: ChannelSet,
    /// When its last fragment came.
    ended: Option<Timestamp>,
}

/// Where first fragments went.
#[derive(Debug)]
pub struct Fragments {
    sets: Vec<[Option<Entry>; WAYS]>,
    lifetime: Nanos,
    key: u64,
    counters: FragmentCounters,
}

impl Fragments {
    /// A table for at least `datagrams` open datagrams, which are remembered for `lifetime` (Linux waits for 30 s). `key` should be random where strangers send
    /// packets.
    pub fn new(datagrams: usize, lifetime: Nanos, key: u64) -> Self {
        let sets = datagrams.div_ceil(WAYS).max(1);
        Self { sets: vec![[None; WAYS]; sets], lifetime, key, counters: FragmentCounters::default() }
    }

    /// For each packet, after the filters were asked: remembers what a first fragment's filters said, and puts that in place of what they said of a later
    /// one. `wanted` stays as it is for all other packets. `head` are the first bytes of the packet that `descriptor` describes.
    ///
    /// # Errors
    ///
    /// [`MoreHeader`] asks to be called again with `min(cap_len, PEEK_MAX)` bytes; nothing has changed then.
    pub fn follow(
        &mut self,
        descriptor: &Descriptor,
        head: &[u8],
        wanted: &mut ChannelSet,
    ) -> Result<(), MoreHeader> {
        if descriptor.flags & flag::FRAGMENT == 0 {
            return Ok(());
        }
        match weir_wire::fragment(head, descriptor)? {
            Some(fragment) => self.fragment(&fragment, Timestamp(descriptor.ts_ns), wanted),
            None => self.counters.unknown += u64::from(descriptor.flags & flag::LATER_FRAGMENT != 0),
        }
        Ok(())
    }

    /// Takes channels out of all that is remembered: their numbers may become those of somebody else, who may not see these packets.
    pub fn forget(&mut self, channels: &ChannelSet) {
        self.sets.iter_mut().flatten().flatten().for_each(|entry| entry.channels.remove_all(channels));
    }

    /// What became of the fragments.
    pub fn counters(&self) -> FragmentCounters {
        self.counters
    }

    /// Bytes that it takes, whatever comes.
    pub fn memory(&self) -> usize {
        self.sets.len() * size_of::<[Option<Entry>; WAYS]>()
    }

    #[cold]
    fn fragment(&mut self, fragment: &Fragment, now: Timestamp, wanted: &mut ChannelSet) {
        let datagram = fragment.datagram;
        let place = self.set_of(&datagram);
        let lifetime = self.lifetime;
        let Some(set) = self.sets.get_mut(place) else { return };
        let is_old = |entry: &Entry| now.since(entry.since) > lifetime;
        let known = set.iter_mut().flatten().find(|entry| entry.datagram == datagram && !is_old(entry));
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
            Some(entry) if entry.ended.is_some_and(|ended| now.since(ended) > AGAIN) => *entry = new,
            Some(entry) => {
                entry.channels.keep(wanted);
                self.counters.repeated += 1;
            }
            None => {
                let free = set.iter().position(|entry| entry.as_ref().is_none_or(is_old));
                self.counters.displaced += u64::from(free.is_none());
                let way = free.unwrap_or_else(|| displaced(set, &datagram));
                if let Some(entry) = set.get_mut(way) {
                    *entry = Some(new);
                }
            }
        }
    }

    fn set_of(&self, datagram: &Datagram) -> usize {
        let source = datagram.source();
        let half = |shift: u32| u64::try_from(source >> shift & u128::from(u64::MAX)).unwrap_or(0);
        // Folded multiplications, as in the flow hash; the key stands in both factors, so that none of them can be chosen.
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

/// Which entry of a full set makes room for a datagram: the oldest of the source with the most entries, the new one counted.
fn displaced(set: &[Option<Entry>; WAYS], new: &Datagram) -> usize {
    let entries =
        || set.iter().enumerate().filter_map(|(way, entry)| entry.as_ref().map(|entry| (way, entry)));
    let of = |source: u128| {
        entries().filter(|(_, entry)| entry.datagram.source() == source).count()
            + usize::from(new.source() == source)
    };
    entries()
        .max_by_key(|(way, entry)| (of(entry.datagram.source()), std::cmp::Reverse((entry.since, *way))))
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

    /// What the classifier finds in a packet that came at a time in seconds.
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

    fn put(table: &mut Fragments, (descriptor, head): &(Descriptor, Vec<u8>), said: &[usize]) -> ChannelSet {
        let mut wanted = set(said);
        table.follow(descriptor, head, &mut wanted).unwrap();
        wanted
    }

    fn table() -> Fragments {
        Fragments::new(1024, Nanos(30 * SECOND), 7)
    }

    #[test]
    fn later_fragments_go_where_their_first_one_went() {
        let mut table = table();
        assert_eq!(put(&mut table, &v4(0, 1, 5, false), &[3, 9]), set(&[3, 9]));
        assert_eq!(put(&mut table, &v4(1, 1, 5, true), &[9, 10]), set(&[3, 9]));
        // Another number, another source, another VLAN: what the filters say.
        assert_eq!(put(&mut table, &v4(1, 1, 6, true), &[10]), set(&[10]));
        assert_eq!(put(&mut table, &v4(1, 2, 5, true), &[10]), set(&[10]));
        let (_, head) = v4(1, 1, 5, true);
        let frame = [&[0; 12][..], &[0x81, 0, 0xe0, 1, 8, 0], &head].concat();
        assert_eq!(put(&mut table, &packet(1, LinkType::Ethernet, frame), &[10]), set(&[10]));
        // Who has gone gets nothing any more; and after the lifetime nobody is remembered.
        table.forget(&set(&[3]));
        assert_eq!(put(&mut table, &v4(30, 1, 5, true), &[]), set(&[9]));
        assert_eq!(put(&mut table, &v4(31, 1, 5, true), &[]), set(&[]));
        let counters = FragmentCounters { first: 1, followed: 2, unknown: 4, ..FragmentCounters::default() };
        assert_eq!(table.counters(), counters);
    }

    #[test]
    fn what_is_no_fragment_stays_as_the_filters_have_it() {
        let mut table = table();
        assert_eq!(put(&mut table, &part(0, 1, 5, 0, 0), &[1]), set(&[1]));
        assert_eq!(table.counters(), FragmentCounters::default());
        // A descriptor that says more than there is: the rest is asked for.
        let (later, head) = v4(0, 1, 5, true);
        let mut wanted = set(&[1]);
        assert_eq!(table.follow(&later, &head[..19], &mut wanted), Err(MoreHeader));
        // And one that says what is not so.
        let later = Descriptor { cap_len: 19, ..later };
        assert_eq!(put(&mut table, &(later, head[..19].to_vec()), &[1]), set(&[1]));
        assert_eq!(table.counters().unknown, 1);
    }

    #[test]
    fn whoever_guesses_a_datagram_is_not_shown_the_rest_of_it() {
        let mut table = table();
        put(&mut table, &part(0, 1, 5, 0, 1), &[1, 2]);
        // Somebody forges the sender's address and number, and ports that his own channel asks for.
        put(&mut table, &part(0, 1, 5, 0, 1), &[2, 7]);
        assert_eq!(put(&mut table, &part(0, 1, 5, 10, 1), &[7]), set(&[2]));
        assert_eq!(put(&mut table, &part(0, 1, 5, 20, 0), &[]), set(&[2]));
        // The number comes again, for another datagram.
        put(&mut table, &part(2, 1, 5, 0, 1), &[3]);
        assert_eq!(put(&mut table, &part(2, 1, 5, 10, 0), &[]), set(&[3]));
        let counters = table.counters();
        assert_eq!((counters.first, counters.repeated, counters.followed), (3, 1, 3));
    }

    #[test]
    fn whoever_forges_the_end_of_a_datagram_is_not_shown_the_rest_of_it() {
        let mut table = table();
        put(&mut table, &part(0, 1, 5, 0, 1), &[1]);
        // Somebody forges an end, and then a beginning with ports that his own channel asks for.
        put(&mut table, &part(0, 1, 5, 100, 0), &[]);
        put(&mut table, &part(0, 1, 5, 0, 1), &[7]);
        assert_eq!(put(&mut table, &part(0, 1, 5, 10, 1), &[]), set(&[]));
        // Ends without end do not keep the number from him who sends by it: not for longer than a second after the last of them.
        put(&mut table, &part(1, 1, 5, 20, 0), &[]);
        put(&mut table, &part(3, 1, 5, 0, 1), &[1]);
        assert_eq!(put(&mut table, &part(3, 1, 5, 10, 0), &[]), set(&[1]));
    }

    #[test]
    fn ipv6_fragments_are_known_by_their_fragment_header_behind_other_headers() {
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
            assert_eq!(table.follow(&descriptor, &head[..len], &mut wanted), Err(MoreHeader));
            let cut = Descriptor { cap_len: u32::try_from(len).unwrap(), ..descriptor };
            assert_eq!(put(&mut table, &(cut, head[..len].to_vec()), &[]), set(&[]));
        }
    }

    #[test]
    fn a_flood_of_one_source_costs_no_other_source_anything() {
        let mut table = table();
        for src in 0..100 {
            put(&mut table, &v4(0, src, 1, false), &[1]);
        }
        let kept_before = |table: &mut Fragments| {
            (0..100).filter(|&src| !put(table, &v4(2, src, 1, true), &[]).is_empty()).collect::<Vec<_>>()
        };
        let before = kept_before(&mut table);
        // A hundred sources in 128 sets of eight: nobody was displaced.
        assert_eq!(before.len(), 100);
        for id in 0..u16::MAX {
            put(&mut table, &v4(1, 5000, id, false), &[2]);
        }
        assert_eq!(kept_before(&mut table), before);
        assert_eq!(put(&mut table, &v4(1, 5000, u16::MAX - 1, true), &[]), set(&[2]));
    }

    #[test]
    fn a_flood_of_many_sources_needs_about_as_many_of_them_as_there_are_entries() {
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
