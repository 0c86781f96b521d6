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
//! Time is packet time, so the same packets always have the same answers.

use crate::ChannelSet;
use weir_abi::{Descriptor, flag};
use weir_units::{Nanos, Timestamp};

/// Datagrams that can be open in a set.
pub const WAYS: usize = 8;

const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;
const IPV6_FRAGMENT: u8 = 44;
const IPV6_AUTHENTICATION: u8 = 51;

/// To which datagram a fragment belongs (RFC 791, 3.2; RFC 8200, 4.5), on its VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Datagram {
    src: u128,
    dst: u128,
    id: u32,
    vlan: Option<u16>,
    protocol: u8,
    is_v6: bool,
}

impl Datagram {
    /// Of a fragment, whose first bytes `head` were described by `descriptor`; nothing for what is no fragment.
    pub fn of(descriptor: &Descriptor, head: &[u8]) -> Option<Datagram> {
        if descriptor.flags & flag::FRAGMENT == 0 {
            return None;
        }
        let ip = head.get(usize::from(descriptor.l3_offset)..)?;
        let vlan = (descriptor.flags & flag::VLAN != 0).then_some(descriptor.vlan_tci & 0xfff);
        if descriptor.flags & flag::IPV6 == 0 {
            let header: &[u8; IPV4_HEADER] = ip.first_chunk()?;
            return Some(Datagram {
                src: u32::from_be_bytes(chunk(header, 12)?).into(),
                dst: u32::from_be_bytes(chunk(header, 16)?).into(),
                id: u16::from_be_bytes(chunk(header, 4)?).into(),
                vlan,
                protocol: header[9],
                is_v6: false,
            });
        }
        let header: &[u8; IPV6_HEADER] = ip.first_chunk()?;
        let fragment = ipv6_fragment(header[6], ip)?;
        Some(Datagram {
            src: u128::from_be_bytes(chunk(header, 8)?),
            dst: u128::from_be_bytes(chunk(header, 24)?),
            id: u32::from_be_bytes(chunk(fragment, 4)?),
            vlan,
            // What comes after the fragment header: the only thing that all fragments know of the rest.
            protocol: fragment[0],
            is_v6: true,
        })
    }

    /// Who has to answer for it: an address, or the network that a subscriber has in IPv6, on a VLAN.
    fn source(&self) -> u128 {
        let source = if self.is_v6 { self.src >> 64 } else { self.src };
        source << 32 | u128::from(self.is_v6) << 24 | self.vlan.map_or(1 << 16, u128::from)
    }
}

/// The first fragment header that says that there are more fragments than one. The classifier has found one: each header is at least eight bytes long,
/// so this ends with the bytes.
fn ipv6_fragment(mut next: u8, ip: &[u8]) -> Option<&[u8; 8]> {
    let mut at = IPV6_HEADER;
    loop {
        let header: &[u8; 8] = ip.get(at..)?.first_chunk()?;
        let len = match next {
            IPV6_FRAGMENT if header[2] != 0 || header[3] & 0xf9 != 0 => return Some(header),
            IPV6_FRAGMENT => 8,
            IPV6_AUTHENTICATION => (usize::from(header[1]) + 2) * 4,
            _ => (usize::from(header[1]) + 1) * 8,
        };
        next = header[0];
        at += len;
    }
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

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
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    datagram: Datagram,
    since: Timestamp,
    channels: ChannelSet,
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
    /// one. `wanted` stays as it is for all other packets.
    pub fn follow(&mut self, descriptor: &Descriptor, head: &[u8], wanted: &mut ChannelSet) {
        if descriptor.flags & flag::FRAGMENT != 0 {
            self.fragment(descriptor, head, wanted);
        }
    }

    /// Takes a channel out of all that is remembered: its number may become that of somebody else, who may not see these packets.
    pub fn forget(&mut self, channel: usize) {
        self.sets.iter_mut().flatten().flatten().for_each(|entry| entry.channels.remove(channel));
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
    fn fragment(&mut self, descriptor: &Descriptor, head: &[u8], wanted: &mut ChannelSet) {
        let now = Timestamp(descriptor.ts_ns);
        let is_later = descriptor.flags & flag::LATER_FRAGMENT != 0;
        let Some(datagram) = Datagram::of(descriptor, head) else {
            self.counters.unknown += u64::from(is_later);
            return;
        };
        let place = self.set_of(&datagram);
        let lifetime = self.lifetime;
        let Some(set) = self.sets.get_mut(place) else { return };
        let is_old = |entry: &Entry| now.since(entry.since) > lifetime;
        let known = set.iter_mut().flatten().find(|entry| entry.datagram == datagram && !is_old(entry));
        match (is_later, known) {
            (true, Some(entry)) => {
                *wanted = entry.channels;
                self.counters.followed += 1;
            }
            (true, None) => self.counters.unknown += 1,
            (false, Some(entry)) => {
                // The same number again, or the packet twice.
                *entry = Entry { datagram, since: now, channels: *wanted };
                self.counters.first += 1;
            }
            (false, None) => {
                self.counters.first += 1;
                let free = set.iter().position(|entry| entry.as_ref().is_none_or(is_old));
                self.counters.displaced += u64::from(free.is_none());
                let way = free.unwrap_or_else(|| displaced(set, &datagram));
                if let Some(entry) = set.get_mut(way) {
                    *entry = Some(Entry { datagram, since: now, channels: *wanted });
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

    const SECOND: u64 = 1_000_000_000;

    fn set(channels: &[usize]) -> ChannelSet {
        channels.iter().copied().collect()
    }

    /// An IPv4 fragment at a time in seconds.
    fn v4(at: u64, src: u32, id: u16, is_later: bool) -> (Descriptor, Vec<u8>) {
        let mut head = vec![0x45, 0, 0, 100];
        head.extend(id.to_be_bytes());
        head.extend([0x20, if is_later { 10 } else { 0 }, 64, 17, 0, 0]);
        head.extend(src.to_be_bytes());
        head.extend([10, 0, 0, 9]);
        let later = if is_later { flag::LATER_FRAGMENT } else { 0 };
        let flags = flag::IPV4 | flag::FRAGMENT | later;
        (Descriptor { ts_ns: at * SECOND, flags, ip_proto: 17, ..Descriptor::default() }, head)
    }

    fn put(table: &mut Fragments, (descriptor, head): &(Descriptor, Vec<u8>), said: &[usize]) -> ChannelSet {
        let mut wanted = set(said);
        table.follow(descriptor, head, &mut wanted);
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
        let (mut tagged, head) = v4(1, 1, 5, true);
        (tagged.flags, tagged.vlan_tci) = (tagged.flags | flag::VLAN, 0xe001);
        assert_eq!(put(&mut table, &(tagged, head), &[10]), set(&[10]));
        // Who has gone gets nothing any more; and after the lifetime nobody is remembered.
        table.forget(3);
        assert_eq!(put(&mut table, &v4(30, 1, 5, true), &[]), set(&[9]));
        assert_eq!(put(&mut table, &v4(31, 1, 5, true), &[]), set(&[]));
        let counters = FragmentCounters { first: 1, followed: 2, unknown: 4, displaced: 0 };
        assert_eq!(table.counters(), counters);
    }

    #[test]
    fn what_is_no_fragment_stays_as_the_filters_have_it() {
        let mut table = table();
        let (whole, head) = v4(0, 1, 5, false);
        let whole = Descriptor { flags: flag::IPV4, ..whole };
        assert_eq!(put(&mut table, &(whole, head), &[1]), set(&[1]));
        assert_eq!(table.counters(), FragmentCounters::default());
        // A descriptor that says more than there is.
        let (later, head) = v4(0, 1, 5, true);
        assert_eq!(put(&mut table, &(later, head[..19].to_vec()), &[1]), set(&[1]));
        assert_eq!(table.counters().unknown, 1);
    }

    #[test]
    fn ipv6_fragments_are_known_by_their_fragment_header_behind_other_headers() {
        let packet = |offset: u8, id: u8| {
            let mut head = vec![0x60, 0, 0, 0, 0, 40, 0, 64];
            head.extend([[1; 16], [2; 16]].concat());
            // Hop-by-hop options of 16 bytes, an atomic fragment header, and the fragment header.
            head.extend([44, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            head.extend([44, 0, 0, 0, 9, 9, 9, id]);
            head.extend([17, 0, offset, 1, 0, 0, 0, id]);
            let later = if offset == 0 { 0 } else { flag::LATER_FRAGMENT };
            (Descriptor { flags: flag::IPV6 | flag::FRAGMENT | later, ..Descriptor::default() }, head)
        };
        let mut table = table();
        put(&mut table, &packet(0, 1), &[1]);
        assert_eq!(put(&mut table, &packet(8, 1), &[]), set(&[1]));
        assert_eq!(put(&mut table, &packet(8, 2), &[]), set(&[]));
        for len in 0..packet(8, 1).1.len() {
            let (descriptor, head) = packet(8, 1);
            put(&mut table, &(descriptor, head[..len].to_vec()), &[]);
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
