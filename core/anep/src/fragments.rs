//! Fragments of packets, and their reassembly.

use crate::option::OPTION_HEAD_BYTES;
use crate::{HEADER_BYTES, SEAL_BYTES};
use std::collections::BTreeMap;
use weir_trust::datagrams::PATH_BYTES_MIN;
use weir_trust::key::PublicKey;
use weir_units::Nanos;

/// The length of the value of a fragment option.
pub(crate) const VALUE_BYTES: usize = 8;
/// The shortest fragment but the last one of a packet. It bounds the number of fragments.
const CHUNK_BYTES_MIN: usize = 512;

const _: () = assert!(chunk_bytes(PATH_BYTES_MIN) >= CHUNK_BYTES_MIN);

/// Returns the length of the part of a packet that a fragment on this path carries.
pub(crate) const fn chunk_bytes(path_bytes: usize) -> usize {
    path_bytes.saturating_sub(HEADER_BYTES + OPTION_HEAD_BYTES + VALUE_BYTES + SEAL_BYTES)
}

/// The place of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FragmentPlace {
    /// The number of the packet, which its sender chooses.
    pub(crate) number: u32,
    /// The length of the packet.
    pub(crate) total: u16,
    /// The offset of the fragment in the packet.
    pub(crate) offset: u16,
}

impl FragmentPlace {
    pub(crate) fn read(value: &[u8]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h] = value.try_into().ok()?;
        Some(Self {
            number: u32::from_be_bytes([a, b, c, d]),
            total: u16::from_be_bytes([e, f]),
            offset: u16::from_be_bytes([g, h]),
        })
    }

    pub(crate) fn to_bytes(self) -> [u8; VALUE_BYTES] {
        let [a, b, c, d] = self.number.to_be_bytes();
        let ([e, f], [g, h]) = (self.total.to_be_bytes(), self.offset.to_be_bytes());
        [a, b, c, d, e, f, g, h]
    }
}

/// Limits on incomplete packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentLimits {
    /// The most incomplete packets of a peer. A further one displaces the oldest.
    pub packets: usize,
    /// The most bytes of incomplete packets of all peers, by the lengths of the complete packets. A further packet
    /// displaces the oldest one of the peer that has most.
    pub bytes: usize,
    /// The time for a packet to become complete.
    pub deadline: Nanos,
}

impl Default for FragmentLimits {
    /// Returns limits of four packets for each peer, 16 MiB, and two seconds.
    fn default() -> Self {
        Self { packets: 4, bytes: 16 << 20, deadline: Nanos(2 * Nanos::SECOND.0) }
    }
}

/// The reason why a fragment is refused. Its packet is discarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReassemblyFailure {
    /// The fragment is not within its packet, empty, or too short.
    #[error("a fragment of {bytes} bytes at {offset} does not fit into a packet of {total}")]
    Place {
        /// The length of the fragment.
        bytes: usize,
        /// The offset of the fragment.
        offset: u16,
        /// The length of the packet.
        total: u16,
    },
    /// The fragment overlaps another one, or states another length of the packet.
    #[error("a fragment contradicts another one of its packet")]
    Contradiction,
}

/// An incomplete packet.
#[derive(Debug)]
struct PartialPacket {
    bytes: Vec<u8>,
    /// The end of each fragment by its offset.
    parts: BTreeMap<usize, usize>,
    received: usize,
    until: Nanos,
}

/// The incomplete packets of all peers.
#[derive(Debug)]
pub(crate) struct FragmentStore {
    limits: FragmentLimits,
    packets: BTreeMap<(PublicKey, u32), PartialPacket>,
    bytes: usize,
    discarded: u64,
}

impl FragmentStore {
    pub(crate) fn new(limits: FragmentLimits) -> Self {
        Self { limits, packets: BTreeMap::new(), bytes: 0, discarded: 0 }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Stores an authenticated fragment. Returns the packet if it is complete.
    pub(crate) fn insert(
        &mut self,
        now: Nanos,
        peer: PublicKey,
        place: FragmentPlace,
        data: &[u8],
    ) -> Result<Option<Vec<u8>>, ReassemblyFailure> {
        self.expire(now);
        let FragmentPlace { number, total, offset } = place;
        let (from, end) = (usize::from(offset), usize::from(offset) + data.len());
        let is_last = end == usize::from(total);
        if data.is_empty() || end > usize::from(total) || (!is_last && data.len() < CHUNK_BYTES_MIN) {
            self.remove((peer, number));
            return Err(ReassemblyFailure::Place { bytes: data.len(), offset, total });
        }
        if !self.packets.contains_key(&(peer, number)) {
            self.make_room(peer, usize::from(total));
            let until = Nanos(now.0.saturating_add(self.limits.deadline.0));
            let bytes = vec![0; usize::from(total)];
            self.bytes += bytes.len();
            let packet = PartialPacket { bytes, parts: BTreeMap::new(), received: 0, until };
            self.packets.insert((peer, number), packet);
        }
        let Some(packet) = self.packets.get_mut(&(peer, number)) else { return Ok(None) };
        let before = packet.parts.range(..=from).next_back().map_or(0, |(_, end)| *end);
        let after = packet.parts.range(from..).next().map_or(usize::MAX, |(from, _)| *from);
        let is_other = packet.bytes.len() != usize::from(total);
        let Some(into) =
            packet.bytes.get_mut(from..end).filter(|_| before <= from && end <= after && !is_other)
        else {
            self.remove((peer, number));
            return Err(ReassemblyFailure::Contradiction);
        };
        into.copy_from_slice(data);
        packet.parts.insert(from, end);
        packet.received += data.len();
        if packet.received < packet.bytes.len() {
            return Ok(None);
        }
        self.bytes -= usize::from(total);
        Ok(self.packets.remove(&(peer, number)).map(|packet| packet.bytes))
    }

    /// Discards the packets that are late. Returns the time at which the next one is.
    pub(crate) fn expire(&mut self, now: Nanos) -> Option<Nanos> {
        let late = self.packets.iter().filter(|(_, packet)| packet.until <= now);
        let late: Vec<(PublicKey, u32)> = late.map(|(name, _)| *name).collect();
        late.into_iter().for_each(|name| self.remove(name));
        self.packets.values().map(|packet| packet.until).min()
    }

    pub(crate) fn forget(&mut self, peer: &PublicKey) {
        let of_peer: Vec<(PublicKey, u32)> = self.of_peer(*peer).map(|(name, _)| *name).collect();
        of_peer.into_iter().for_each(|name| self.remove(name));
    }

    /// Discards packets until there is room for a further one of this peer.
    fn make_room(&mut self, peer: PublicKey, bytes: usize) {
        while self.of_peer(peer).count() >= self.limits.packets.max(1) {
            self.remove_oldest(peer);
        }
        while self.bytes + bytes > self.limits.bytes && !self.packets.is_empty() {
            let mut of_peers = BTreeMap::from([(peer, bytes)]);
            for ((peer, _), packet) in &self.packets {
                *of_peers.entry(*peer).or_insert(0) += packet.bytes.len();
            }
            let most = of_peers.into_iter().filter(|(peer, _)| self.of_peer(*peer).next().is_some());
            match most.max_by_key(|(_, bytes)| *bytes) {
                Some((most, _)) => self.remove_oldest(most),
                None => return,
            }
        }
    }

    fn of_peer(&self, peer: PublicKey) -> impl Iterator<Item = (&(PublicKey, u32), &PartialPacket)> {
        self.packets.range((peer, 0)..=(peer, u32::MAX))
    }

    fn remove_oldest(&mut self, peer: PublicKey) {
        let oldest = self.of_peer(peer).min_by_key(|(_, packet)| packet.until).map(|(name, _)| *name);
        if let Some(oldest) = oldest {
            self.remove(oldest);
        }
    }

    fn remove(&mut self, name: (PublicKey, u32)) {
        if let Some(packet) = self.packets.remove(&name) {
            self.bytes -= packet.bytes.len();
            self.discarded += 1;
        }
    }
}
