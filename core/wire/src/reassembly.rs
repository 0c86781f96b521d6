//! Datagrams from their fragments (RFC 791, 3.2; RFC 8200, 4.5), in bounded memory and time.
//!
//! Fragments are strangers' input, and have been a way to attack hosts for as long as there are any. So:
//!
//! - Fragments that overlap end their datagram: all of it is dropped, and what comes later of it too (RFC 5722; for IPv4 "teardrop" asks for the
//!   same). One that is repeated, byte by byte, does no harm and is dropped alone (RFC 8200, 4.5).
//! - What would be longer than an IP packet can be, ends in two places, is empty, or has a length that only a last fragment can have, is dropped.
//! - Memory is bounded. Where it is full, the source that holds the most loses its oldest datagram, so that whatever one source sends costs no
//!   other one anything that holds less.
//! - A datagram that is not whole after a while is given up. Time is packet time, so the same packets always have the same results.
//! - A packet costs no more than a few look-ups in ordered tables, whatever came before it: it has few datagrams forgotten, and the next ones have the
//!   rest. What is late is never put together, forgotten or not. A fragment for which that does not make enough room (none of a frame of Ethernet's
//!   usual length) is lost with its own datagram.

use crate::checksum::Update;
use crate::classify::size;
use crate::fragment::{Datagram, Fragment, fragment};
use std::collections::{BTreeMap, BTreeSet};
use weir_abi::{Descriptor, flag};
use weir_units::{Bytes, Nanos, Timestamp};

/// The longest IP packet.
const LONGEST: usize = 0xffff;
/// What it takes to remember a datagram or a fragment, besides the bytes in it.
const OVERHEAD: usize = 128;
/// Late datagrams that are forgotten for one packet, at most. More than one, which is as many as a packet can begin: so all of them go.
const LATE_MAX: usize = 4;
/// Datagrams that make room for one fragment, at most.
const DISPLACED_MAX: usize = 16;
/// They are enough for a frame of Ethernet's usual length with two tags, however little is held for each.
const _: () = assert!(DISPLACED_MAX * OVERHEAD >= 1522 + OVERHEAD);

/// How much is kept, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyLimits {
    /// Bytes of fragments that wait for others, with what it takes to remember them.
    pub bytes: Bytes,
    /// How long a datagram may take to become whole.
    pub lifetime: Nanos,
}

impl Default for ReassemblyLimits {
    /// 1 MiB, and 30 seconds as Linux waits.
    fn default() -> Self {
        Self { bytes: Bytes(1 << 20), lifetime: Nanos(30 * Nanos::SECOND.0) }
    }
}

/// What became of fragments. Each that came is in one of these, or waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassemblyCounters {
    /// Datagrams that became whole.
    pub datagrams: u64,
    /// Fragments that they were in.
    pub fragments: u64,
    /// Fragments of datagrams that had overlapping ones, or two ends.
    pub overlapping: u64,
    /// Fragments of datagrams that took too long.
    pub late: u64,
    /// Fragments of datagrams for which there was no memory.
    pub displaced: u64,
    /// Fragments that cannot be right, or were not captured whole.
    pub malformed: u64,
    /// Fragments that had come before.
    pub repeated: u64,
}

impl ReassemblyCounters {
    /// Fragments that became part of nothing.
    pub fn lost(&self) -> u64 {
        self.overlapping + self.late + self.displaced + self.malformed + self.repeated
    }
}

/// What a packet led to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reassembled {
    /// It is no fragment.
    NoFragment,
    /// It waits for others, or is lost and counted.
    Nothing,
    /// A datagram is whole: its packet, as it would have been had it not been fragmented, with the link header of the first fragment.
    Whole(Vec<u8>),
}

/// A datagram that is not whole yet.
#[derive(Debug)]
struct Open {
    since: Timestamp,
    /// By where they belong.
    parts: BTreeMap<usize, Box<[u8]>>,
    /// What is in front of the first one's data, and where things are in it.
    front: Option<Front>,
    /// Where the last one ends.
    total: Option<usize>,
    data: usize,
    /// Bytes that it is charged for.
    charged: usize,
    /// Its fragments overlap.
    is_spoilt: bool,
}

#[derive(Debug)]
struct Front {
    bytes: Box<[u8]>,
    /// Where the IP header begins.
    ip: usize,
    header: usize,
    named_at: usize,
}

/// Fragments that wait for others.
#[derive(Debug)]
pub struct Reassembler {
    open: BTreeMap<Datagram, Open>,
    /// The same by age, and by source and age.
    ages: BTreeSet<(Timestamp, Datagram)>,
    of_source: BTreeSet<(u128, Timestamp, Datagram)>,
    /// Bytes that each source is charged for, and the sources by that.
    held: BTreeMap<u128, usize>,
    holders: BTreeSet<(usize, u128)>,
    charged: usize,
    limits: ReassemblyLimits,
    now: Timestamp,
    counters: ReassemblyCounters,
}

impl Reassembler {
    /// One without fragments.
    pub fn new(limits: ReassemblyLimits) -> Self {
        Self {
            open: BTreeMap::new(),
            ages: BTreeSet::new(),
            of_source: BTreeSet::new(),
            held: BTreeMap::new(),
            holders: BTreeSet::new(),
            charged: 0,
            limits,
            now: Timestamp(0),
            counters: ReassemblyCounters::default(),
        }
    }

    /// What became of fragments.
    pub fn counters(&self) -> ReassemblyCounters {
        self.counters
    }

    /// Fragments that wait for others.
    pub fn waiting(&self) -> u64 {
        self.open.values().map(|open| open.parts.len() as u64).sum()
    }

    /// Bytes of memory that it takes, about.
    pub fn memory(&self) -> Bytes {
        Bytes(self.charged as u64)
    }

    /// Takes a packet: all captured bytes of the one that `descriptor` describes.
    pub fn put(&mut self, packet: &[u8], descriptor: &Descriptor) -> Reassembled {
        self.pass(Timestamp(descriptor.ts_ns));
        let Ok(Some(fragment)) = fragment(packet, descriptor) else {
            // It says that it is one, and nothing can be found out about it.
            let is_fragment = descriptor.flags & flag::FRAGMENT != 0;
            self.counters.malformed += u64::from(is_fragment);
            return if is_fragment { Reassembled::Nothing } else { Reassembled::NoFragment };
        };
        let data = packet.get(fragment.data..fragment.end).unwrap_or_default();
        let ip = usize::from(descriptor.l3_offset);
        if !is_possible(&fragment, data.len(), ip) {
            self.counters.malformed += 1;
            return Reassembled::Nothing;
        }
        let key = fragment.datagram;
        let since = self.now;
        if self.open.get(&key).is_some_and(|open| self.is_late(open.since)) {
            self.counters.late += self.remove(&key);
        }
        let open = self.open.entry(key).or_insert_with(|| {
            self.ages.insert((since, key));
            self.of_source.insert((key.source(), since, key));
            Open::new(since)
        });
        if open.is_spoilt {
            self.counters.overlapping += 1;
            return Reassembled::Nothing;
        }
        let before = open.charged;
        match open.add(&fragment, data) {
            Added::Repeated => self.counters.repeated += 1,
            Added::Overlapping => {
                self.counters.overlapping += 1 + open.parts.len() as u64;
                open.spoil();
            }
            Added::Part => {
                if fragment.offset == 0 {
                    open.lead(packet, &fragment, ip);
                }
            }
        }
        let after = open.charged;
        let whole = open.whole(&key);
        self.charge(&key, before, after);
        if let Some((whole, parts)) = whole {
            self.remove(&key);
            self.counters.datagrams += 1;
            self.counters.fragments += parts;
            return Reassembled::Whole(whole);
        }
        for _ in 0..DISPLACED_MAX {
            if !self.is_over() || !self.displace() {
                return Reassembled::Nothing;
            }
        }
        if self.is_over() {
            self.counters.displaced += self.remove(&key);
        }
        Reassembled::Nothing
    }

    /// Time goes on: some of what has waited for too long is forgotten.
    pub fn pass(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        for _ in 0..LATE_MAX {
            let oldest = self.ages.first().filter(|(since, _)| self.is_late(*since));
            let Some(&(_, key)) = oldest else { return };
            self.counters.late += self.remove(&key);
        }
    }

    fn is_late(&self, since: Timestamp) -> bool {
        self.now.since(since) > self.limits.lifetime
    }

    /// There is more than there may be.
    fn is_over(&self) -> bool {
        self.charged as u64 > self.limits.bytes.0
    }

    /// The source that holds the most loses its oldest datagram. False where there is nothing.
    fn displace(&mut self) -> bool {
        let Some(&(_, source)) = self.holders.last() else { return false };
        let mut oldest = self.of_source.range((source, Timestamp(0), Datagram::LEAST)..);
        let Some(&(_, _, key)) = oldest.next().filter(|(of, ..)| *of == source) else { return false };
        self.counters.displaced += self.remove(&key);
        true
    }

    fn charge(&mut self, key: &Datagram, before: usize, after: usize) {
        let source = key.source();
        let held = self.held.remove(&source).unwrap_or(0);
        self.holders.remove(&(held, source));
        let held = held + after - before;
        if held > 0 {
            self.held.insert(source, held);
            self.holders.insert((held, source));
        }
        self.charged = self.charged + after - before;
    }

    /// Forgets a datagram, and says how many of its fragments had been waiting.
    fn remove(&mut self, key: &Datagram) -> u64 {
        let Some(open) = self.open.remove(key) else { return 0 };
        self.ages.remove(&(open.since, *key));
        self.of_source.remove(&(key.source(), open.since, *key));
        self.charge(key, open.charged, 0);
        open.parts.len() as u64
    }
}

/// Whether a fragment of so many bytes of data can be part of an IP packet.
fn is_possible(fragment: &Fragment, len: usize, ip: usize) -> bool {
    let headers = if fragment.datagram.is_v6 {
        // The fixed header does not count, nor will the fragment header be there.
        fragment.header.saturating_sub(ip + 40)
    } else {
        fragment.data.saturating_sub(ip)
    };
    len > 0
        && fragment.data + len == fragment.end
        && (!fragment.has_more || len.is_multiple_of(8))
        && headers + size(fragment.offset) + len <= LONGEST
}

/// What adding a fragment led to.
enum Added {
    Part,
    Repeated,
    Overlapping,
}

impl Open {
    fn new(since: Timestamp) -> Self {
        Self {
            since,
            parts: BTreeMap::new(),
            front: None,
            total: None,
            data: 0,
            charged: 0,
            is_spoilt: false,
        }
    }

    fn add(&mut self, fragment: &Fragment, data: &[u8]) -> Added {
        let begin = size(fragment.offset);
        let end = begin + data.len();
        if self.parts.get(&begin).is_some_and(|part| **part == *data)
            && fragment.has_more != (self.total == Some(end))
        {
            return Added::Repeated;
        }
        let before = self.parts.range(..=begin).next_back();
        let after = self.parts.range(begin..).next();
        let last = self.parts.last_key_value().map_or(0, |(at, part)| at + part.len());
        let overlaps = before.is_some_and(|(at, part)| at + part.len() > begin)
            || after.is_some_and(|(at, _)| *at < end)
            || match (fragment.has_more, self.total) {
                (true, Some(total)) => end >= total,
                (true, None) => false,
                (false, Some(_)) => true,
                (false, None) => last > end,
            };
        if overlaps {
            return Added::Overlapping;
        }
        if !fragment.has_more {
            self.total = Some(end);
        }
        self.parts.insert(begin, data.into());
        self.data += data.len();
        self.charged += data.len() + OVERHEAD;
        Added::Part
    }

    /// The first fragment has what comes before the data.
    fn lead(&mut self, packet: &[u8], fragment: &Fragment, ip: usize) {
        let bytes: Box<[u8]> = packet.get(..fragment.data).unwrap_or_default().into();
        self.charged += bytes.len();
        self.front = Some(Front { bytes, ip, header: fragment.header, named_at: fragment.named_at });
    }

    /// Nothing is kept of it but that it is not to be.
    fn spoil(&mut self) {
        (self.is_spoilt, self.charged, self.data) = (true, OVERHEAD, 0);
        self.parts.clear();
        self.front = None;
    }

    /// The packet, if it is whole, and how many fragments are in it.
    fn whole(&self, datagram: &Datagram) -> Option<(Vec<u8>, u64)> {
        let (front, total) = self.front.as_ref().zip(self.total)?;
        if self.data != total {
            return None;
        }
        let mut packet = Vec::with_capacity(front.bytes.len() + total);
        if datagram.is_v6 {
            packet.extend_from_slice(front.bytes.get(..front.header)?);
            *packet.get_mut(front.named_at)? = datagram.protocol;
            let len = front.header.checked_sub(front.ip + 40)? + total;
            let field = packet.get_mut(front.ip + 4..)?.first_chunk_mut()?;
            *field = u16::try_from(len).ok()?.to_be_bytes();
        } else {
            packet.extend_from_slice(&front.bytes);
            let header = packet.get_mut(front.ip..)?;
            let len = u16::try_from(header.len() + total).ok()?.to_be_bytes();
            let flags = [*header.get(6)? & 0xc0, 0];
            // A right checksum stays right, and a wrong one wrong.
            let mut update = Update::default();
            for (at, new) in (2..).zip(len).chain((6..).zip(flags)) {
                let old = std::mem::replace(header.get_mut(at)?, new);
                update.byte(at, old, new);
            }
            let field: &mut [u8; 2] = header.get_mut(10..)?.first_chunk_mut()?;
            *field = update.apply(u16::from_be_bytes(*field)).to_be_bytes();
        }
        self.parts.values().for_each(|part| packet.extend_from_slice(part));
        Some((packet, self.parts.len() as u64))
    }
}
