//! Reassembly of datagrams from fragments (RFC 791, 3.2; RFC 8200, 4.5), in bounded memory and time.
//!
//! Fragments come from untrusted senders and have long been used to attack hosts. So:
//!
//! - Overlapping fragments end their datagram: all of it is dropped, including later fragments (RFC 5722; for IPv4
//!   because of the attack "teardrop"). Of an exact duplicate, only the duplicate itself is dropped (RFC 8200, 4.5).
//! - A fragment is dropped if it extends beyond the longest IP packet, states another end of the datagram, is empty, or
//!   has a length that only a last fragment can have.
//! - Memory is bounded. When it is full, the source that holds the most loses its oldest datagram, so no source can
//!   harm one that holds less.
//! - An incomplete datagram is dropped after a timeout. Time is packet time, so the same packets always give the same
//!   result.
//! - A packet takes a bounded number of lookups in ordered tables, because it evicts only a few datagrams; later
//!   packets evict the rest. A datagram that has timed out is never reassembled, even if it has not been evicted yet.
//!   If these evictions do not free enough memory for a fragment, the fragment is dropped together with its datagram.
//!   For an Ethernet frame of the usual length they always free enough.

use crate::checksum::ChecksumUpdate;
use crate::classify::to_usize;
use crate::fragment::{Datagram, Fragment, fragment};
use std::collections::{BTreeMap, BTreeSet};
use weir_abi::{Descriptor, flag};
use weir_units::{Bytes, Nanos, Timestamp};

/// The longest IP packet in bytes.
const IP_LEN_MAX: usize = 0xffff;
/// The memory in bytes that is charged for each waiting fragment in addition to its data. It also covers the entry of the
/// fragment's datagram. A rejected datagram, which has no fragments, is charged this much, too.
const OVERHEAD: usize = 128;
/// The most timed-out datagrams that one packet evicts. A packet begins at most one datagram, so evictions keep up with
/// arrivals.
const LATE_MAX: usize = 4;
/// The most datagrams evicted to make space for one fragment.
const DISPLACED_MAX: usize = 16;
/// Evicting [`DISPLACED_MAX`] datagrams frees enough memory for an Ethernet frame of the usual length with two tags,
/// even if each evicted datagram is charged only [`OVERHEAD`].
const _: () = assert!(DISPLACED_MAX * OVERHEAD >= 1522 + OVERHEAD);

/// The limits of reassembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyLimits {
    /// The memory for waiting fragments in bytes, overhead included.
    pub bytes: Bytes,
    /// The longest time from the arrival of any fragment of a datagram until the datagram is complete.
    pub lifetime: Nanos,
}

impl Default for ReassemblyLimits {
    /// 1 MiB, and 30 seconds as in Linux.
    fn default() -> Self {
        Self { bytes: Bytes(1 << 20), lifetime: Nanos(30 * Nanos::SECOND.0) }
    }
}

/// Counters of the outcomes of fragments. Each fragment is counted in one counter other than `datagrams`, or still
/// waits for others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassemblyCounters {
    /// Datagrams that became complete.
    pub datagrams: u64,
    /// Fragments of complete datagrams.
    pub fragments: u64,
    /// Fragments of datagrams whose fragments overlap, or state different ends of the datagram.
    pub overlapping: u64,
    /// Fragments of datagrams that timed out.
    pub late: u64,
    /// Fragments of datagrams that were evicted for lack of memory.
    pub displaced: u64,
    /// Fragments that are invalid, or were captured only in part.
    pub malformed: u64,
    /// Duplicate fragments.
    pub repeated: u64,
}

impl ReassemblyCounters {
    /// Fragments that did not become part of a datagram.
    pub fn lost(&self) -> u64 {
        self.overlapping + self.late + self.displaced + self.malformed + self.repeated
    }
}

/// The result of [`Reassembler::put`] for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reassembled {
    /// The packet is not a fragment.
    NoFragment,
    /// The fragment waits for others, or is lost and counted.
    Nothing,
    /// A datagram is complete: its packet, as if it had not been fragmented, with the link header of the first
    /// fragment.
    Whole(Vec<u8>),
}

/// A datagram that is not complete yet.
#[derive(Debug)]
struct PendingDatagram {
    /// The time at which the earliest fragment arrived.
    since: Timestamp,
    /// Fragments by their offset in the datagram.
    parts: BTreeMap<usize, Box<[u8]>>,
    /// The headers in front of the first fragment's data.
    front: Option<HeaderPart>,
    /// The length of the datagram, once its last fragment has arrived.
    total: Option<usize>,
    /// The sum of the lengths of `parts` in bytes.
    data: usize,
    /// The memory charged for the datagram in bytes.
    charged: usize,
    /// True if fragments of the datagram overlap, or state different ends of it. Further fragments of the datagram are
    /// dropped then.
    is_rejected: bool,
}

/// The headers of a first fragment.
#[derive(Debug)]
struct HeaderPart {
    bytes: Box<[u8]>,
    /// The offset of the IP header.
    ip: usize,
    /// The offset of the header that describes the fragment, as in [`Fragment`].
    header: usize,
    /// The offset of the next-header field that names the fragment header, as in [`Fragment`].
    next_header_at: usize,
}

/// A reassembler with its waiting fragments.
#[derive(Debug)]
pub struct Reassembler {
    pending: BTreeMap<Datagram, PendingDatagram>,
    /// The pending datagrams, the oldest first.
    by_age: BTreeSet<(Timestamp, Datagram)>,
    /// The pending datagrams by source, the oldest of each source first.
    by_source: BTreeSet<(u128, Timestamp, Datagram)>,
    /// The bytes charged to each source.
    bytes_by_source: BTreeMap<u128, usize>,
    /// The sources by the bytes charged to them.
    sources_by_bytes: BTreeSet<(usize, u128)>,
    /// The bytes charged to all sources.
    charged: usize,
    limits: ReassemblyLimits,
    /// The latest time stamp of all packets so far.
    now: Timestamp,
    counters: ReassemblyCounters,
}

impl Reassembler {
    /// Creates a reassembler without fragments.
    pub fn new(limits: ReassemblyLimits) -> Self {
        Self {
            pending: BTreeMap::new(),
            by_age: BTreeSet::new(),
            by_source: BTreeSet::new(),
            bytes_by_source: BTreeMap::new(),
            sources_by_bytes: BTreeSet::new(),
            charged: 0,
            limits,
            now: Timestamp(0),
            counters: ReassemblyCounters::default(),
        }
    }

    /// The counters so far.
    pub fn counters(&self) -> ReassemblyCounters {
        self.counters
    }

    /// The number of fragments that wait.
    pub fn waiting(&self) -> u64 {
        self.pending.values().map(|pending| pending.parts.len() as u64).sum()
    }

    /// The approximate memory of the waiting fragments.
    pub fn memory(&self) -> Bytes {
        Bytes(self.charged as u64)
    }

    /// Processes a packet. `packet` is all captured bytes of the packet that `descriptor` describes.
    pub fn put(&mut self, packet: &[u8], descriptor: &Descriptor) -> Reassembled {
        self.advance(Timestamp(descriptor.ts_ns));
        let Ok(Some(fragment)) = fragment(packet, descriptor) else {
            // The descriptor indicates a fragment, but its header cannot be read.
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
        if self.pending.get(&key).is_some_and(|pending| self.is_late(pending.since)) {
            self.counters.late += self.remove(&key);
        }
        let pending = self.pending.entry(key).or_insert_with(|| {
            self.by_age.insert((since, key));
            self.by_source.insert((key.source(), since, key));
            PendingDatagram::new(since)
        });
        if pending.is_rejected {
            self.counters.overlapping += 1;
            return Reassembled::Nothing;
        }
        let before = pending.charged;
        match pending.add(&fragment, data) {
            AddOutcome::Repeated => self.counters.repeated += 1,
            AddOutcome::Overlapping => {
                self.counters.overlapping += 1 + pending.parts.len() as u64;
                pending.reject();
            }
            AddOutcome::Waiting => {
                if fragment.offset == 0 {
                    pending.set_front(packet, &fragment, ip);
                }
            }
        }
        let after = pending.charged;
        let assembled = pending.assemble(&key);
        self.charge(&key, before, after);
        if let Some((packet, parts)) = assembled {
            self.remove(&key);
            self.counters.datagrams += 1;
            self.counters.fragments += parts;
            return Reassembled::Whole(packet);
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

    /// Advances the time, and evicts some datagrams that have timed out.
    pub fn advance(&mut self, now: Timestamp) {
        self.now = self.now.max(now);
        for _ in 0..LATE_MAX {
            let oldest = self.by_age.first().filter(|(since, _)| self.is_late(*since));
            let Some(&(_, key)) = oldest else { return };
            self.counters.late += self.remove(&key);
        }
    }

    fn is_late(&self, since: Timestamp) -> bool {
        self.now.since(since) > self.limits.lifetime
    }

    /// Returns true if the memory limit is exceeded.
    fn is_over(&self) -> bool {
        self.charged as u64 > self.limits.bytes.0
    }

    /// Evicts the oldest datagram of the source that holds the most memory. Returns false if no datagram is left.
    fn displace(&mut self) -> bool {
        let Some(&(_, source)) = self.sources_by_bytes.last() else { return false };
        let mut oldest = self.by_source.range((source, Timestamp(0), Datagram::LEAST)..);
        let Some(&(_, _, key)) = oldest.next().filter(|(owner, ..)| *owner == source) else { return false };
        self.counters.displaced += self.remove(&key);
        true
    }

    /// Changes the memory charged to a datagram from `before` to `after` bytes.
    fn charge(&mut self, key: &Datagram, before: usize, after: usize) {
        let source = key.source();
        let bytes_by_source = self.bytes_by_source.remove(&source).unwrap_or(0);
        self.sources_by_bytes.remove(&(bytes_by_source, source));
        let bytes_by_source = bytes_by_source + after - before;
        if bytes_by_source > 0 {
            self.bytes_by_source.insert(source, bytes_by_source);
            self.sources_by_bytes.insert((bytes_by_source, source));
        }
        self.charged = self.charged + after - before;
    }

    /// Removes a datagram. Returns the number of its fragments that were waiting.
    fn remove(&mut self, key: &Datagram) -> u64 {
        let Some(pending) = self.pending.remove(key) else { return 0 };
        self.by_age.remove(&(pending.since, *key));
        self.by_source.remove(&(key.source(), pending.since, *key));
        self.charge(key, pending.charged, 0);
        pending.parts.len() as u64
    }
}

/// Returns true if a fragment with `len` bytes of data can be part of an IP packet.
fn is_possible(fragment: &Fragment, len: usize, ip: usize) -> bool {
    let headers = if fragment.datagram.is_v6 {
        // The fixed header does not count, and the fragment header will not be in the datagram.
        fragment.header.saturating_sub(ip + 40)
    } else {
        fragment.data.saturating_sub(ip)
    };
    len > 0
        && fragment.data + len == fragment.end
        && (!fragment.has_more || len.is_multiple_of(8))
        && headers + to_usize(fragment.offset) + len <= IP_LEN_MAX
}

/// The result of adding a fragment to its datagram.
enum AddOutcome {
    /// The fragment was added.
    Waiting,
    /// The fragment is an exact duplicate.
    Repeated,
    /// The fragment overlaps another one, or states another end of the datagram.
    Overlapping,
}

impl PendingDatagram {
    fn new(since: Timestamp) -> Self {
        Self {
            since,
            parts: BTreeMap::new(),
            front: None,
            total: None,
            data: 0,
            charged: 0,
            is_rejected: false,
        }
    }

    fn add(&mut self, fragment: &Fragment, data: &[u8]) -> AddOutcome {
        let begin = to_usize(fragment.offset);
        let end = begin + data.len();
        if self.parts.get(&begin).is_some_and(|part| **part == *data)
            && fragment.has_more != (self.total == Some(end))
        {
            return AddOutcome::Repeated;
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
            return AddOutcome::Overlapping;
        }
        if !fragment.has_more {
            self.total = Some(end);
        }
        self.parts.insert(begin, data.into());
        self.data += data.len();
        self.charged += data.len() + OVERHEAD;
        AddOutcome::Waiting
    }

    /// Keeps the headers in front of the data of the first fragment.
    fn set_front(&mut self, packet: &[u8], fragment: &Fragment, ip: usize) {
        let bytes: Box<[u8]> = packet.get(..fragment.data).unwrap_or_default().into();
        self.charged += bytes.len();
        self.front =
            Some(HeaderPart { bytes, ip, header: fragment.header, next_header_at: fragment.next_header_at });
    }

    /// Drops the fragments and rejects further ones.
    fn reject(&mut self) {
        (self.is_rejected, self.charged, self.data) = (true, OVERHEAD, 0);
        self.parts.clear();
        self.front = None;
    }

    /// The reassembled packet and its number of fragments; `None` while fragments are missing.
    fn assemble(&self, datagram: &Datagram) -> Option<(Vec<u8>, u64)> {
        let (front, total) = self.front.as_ref().zip(self.total)?;
        if self.data != total {
            return None;
        }
        let mut packet = Vec::with_capacity(front.bytes.len() + total);
        if datagram.is_v6 {
            packet.extend_from_slice(front.bytes.get(..front.header)?);
            *packet.get_mut(front.next_header_at)? = datagram.protocol;
            let len = front.header.checked_sub(front.ip + 40)? + total;
            let field = packet.get_mut(front.ip + 4..)?.first_chunk_mut()?;
            *field = u16::try_from(len).ok()?.to_be_bytes();
        } else {
            packet.extend_from_slice(&front.bytes);
            let header = packet.get_mut(front.ip..)?;
            let len = u16::try_from(header.len() + total).ok()?.to_be_bytes();
            let flags = [*header.get(6)? & 0xc0, 0];
            // A right checksum stays right, and a wrong one wrong.
            let mut update = ChecksumUpdate::default();
            for (at, new) in (2..).zip(len).chain((6..).zip(flags)) {
                let old = std::mem::replace(header.get_mut(at)?, new);
                update.add_change(at, old, new);
            }
            let field: &mut [u8; 2] = header.get_mut(10..)?.first_chunk_mut()?;
            *field = update.apply(u16::from_be_bytes(*field)).to_be_bytes();
        }
        self.parts.values().for_each(|part| packet.extend_from_slice(part));
        Some((packet, self.parts.len() as u64))
    }
}
