//! Kept packets: a module can keep a packet beyond the call, and the packet's bytes then stay in place until the module
//! releases the packet.

use crate::run::fault::FaultKind;
use crate::run::guest_memory::guest_memory;
use crate::run::host::{HostState, packet_at};
use crate::run::instance::Instance;
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use weir_abi::host::HostFunction;
use weir_abi::{code, limit};
use weir_session::{KeptPacket, KeptPackets, RecordOrder};
use weir_units::Bytes;

/// The number of a handle's low bits, which are the index of a slot. The bits above are the number of the slot's use, so
/// that the handle of a released packet is invalid.
const SLOT_BITS: u32 = 10;
/// The largest number of a slot's use, after which the numbers start again at 0.
const USE_MAX: u32 = (1 << (31 - SLOT_BITS)) - 1;

const _: () = assert!(limit::KEPT_PACKETS == 1 << SLOT_BITS);

/// A pin on a packet's memory: as long as this value exists, the packet's bytes do not change. Memory is pinned in pieces of
/// one size, such as the chunks of an arena, and several packets can share a piece.
pub struct Pinned {
    /// The value whose lifetime pins the memory.
    pub guard: Box<dyn Any + Send>,
    /// The numbers of the pinned pieces. Empty for memory that never changes, such as that of a capture file.
    pub pieces: Range<u32>,
    /// The size of a piece.
    pub piece_size: Bytes,
    /// The number of pieces of this memory that can be pinned at the same time, by all modules together.
    pub pieces_max: u32,
}

/// The reason why a packet's memory cannot be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPinned {
    /// This memory can never be pinned.
    Never,
    /// The most pieces that can be pinned at the same time are pinned already.
    Full,
}

/// A function that pins the memory of a packet of the current batch, given the packet's guest address and length.
pub type PacketPinner = Box<dyn Fn(u32, u32) -> Result<Pinned, NotPinned> + Send>;

/// The packets that an instance keeps.
#[derive(Default)]
pub(crate) struct Kept {
    pinner: Option<PacketPinner>,
    /// The session's limit of kept packets.
    pub(crate) session_limit: Option<Arc<KeptPackets>>,
    slots: Vec<Slot>,
    /// The indices of unused slots.
    free_slots: Vec<u32>,
    /// The number of kept packets.
    packet_count: u32,
    /// The number of kept packets in each piece.
    packets_by_piece: BTreeMap<u32, u32>,
    /// The size of all pinned pieces.
    bytes: Bytes,
    /// The packets that the current call has kept: their positions in the block, and handles.
    kept_in_call: Vec<(RecordOrder, i32)>,
}

/// A slot for a kept packet.
#[derive(Default)]
struct Slot {
    /// The number of the current or next use of the slot.
    use_number: u32,
    /// The kept packet, if the slot is in use.
    pinned: Option<Pinned>,
    /// The packet's part of the session's limit, given back when this value is dropped.
    session_share: Option<KeptPacket>,
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("pieces", &self.pieces)
            .field("piece_size", &self.piece_size)
            .finish_non_exhaustive()
    }
}

impl Kept {
    /// Releases all packets, and sets the pinner for further ones.
    fn replace_pinner(&mut self, pinner: Option<PacketPinner>) {
        self.clear();
        self.pinner = pinner;
    }

    /// Releases all packets.
    fn clear(&mut self) {
        for slot_index in 0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX) {
            self.free_slot(slot_index);
        }
        self.kept_in_call.clear();
    }

    /// Returns the size of the pinned memory.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Begins a call.
    pub(crate) fn begin_call(&mut self) {
        self.kept_in_call.clear();
    }

    /// Releases the packets at this position that the aborted call has kept. Packets that the call has released stay
    /// released.
    fn discard(&mut self, order: RecordOrder) {
        let new = std::mem::take(&mut self.kept_in_call);
        for (_, handle) in new.into_iter().filter(|(kept_at, _)| *kept_at == order) {
            self.release(handle);
        }
    }

    /// Returns the index of a handle's slot, if the handle is still valid.
    fn slot_of(&self, handle: i32) -> Option<u32> {
        let handle = u32::try_from(handle).ok()?;
        let (slot_index, use_number) = (handle & (limit::KEPT_PACKETS - 1), handle >> SLOT_BITS);
        self.slots
            .get(slot_index as usize)
            .filter(|slot| slot.use_number == use_number && slot.pinned.is_some())?;
        Some(slot_index)
    }

    fn is_valid(&self, handle: i32) -> bool {
        self.slot_of(handle).is_some()
    }

    /// Releases a packet. Returns false if the handle is invalid.
    fn release(&mut self, handle: i32) -> bool {
        self.slot_of(handle).is_some_and(|slot_index| self.free_slot(slot_index))
    }

    /// Releases the packet in a slot. Returns false if the slot has no packet.
    fn free_slot(&mut self, slot_index: u32) -> bool {
        let Some(slot) = self.slots.get_mut(slot_index as usize) else { return false };
        let Some(pinned) = slot.pinned.take() else { return false };
        slot.session_share = None;
        // The numbers of uses start again at 0, so a handle becomes valid again after 2 million uses of its slot.
        slot.use_number = if slot.use_number == USE_MAX { 0 } else { slot.use_number + 1 };
        for piece in pinned.pieces {
            if let Some(packets) = self.packets_by_piece.get_mut(&piece) {
                *packets -= 1;
                if *packets == 0 {
                    self.packets_by_piece.remove(&piece);
                    self.bytes.0 -= pinned.piece_size.0;
                }
            }
        }
        self.packet_count -= 1;
        self.free_slots.push(slot_index);
        true
    }

    /// Returns the size of those pieces of `pinned` that no other kept packet has pinned.
    fn added_bytes(&self, pinned: &Pinned) -> Bytes {
        let new =
            pinned.pieces.clone().filter(|piece| !self.packets_by_piece.contains_key(piece)).count() as u64;
        Bytes(new.saturating_mul(pinned.piece_size.0))
    }

    /// Stores a packet in a free slot, and returns its handle.
    fn insert(
        &mut self,
        order: RecordOrder,
        pinned: Pinned,
        session_share: Option<KeptPacket>,
    ) -> Option<i32> {
        let slot_index = match self.free_slots.pop() {
            Some(slot_index) => slot_index,
            None => {
                self.slots.push(Slot::default());
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        let slot = self.slots.get_mut(slot_index as usize)?;
        for piece in pinned.pieces.clone() {
            let packets = self.packets_by_piece.entry(piece).or_default();
            *packets += 1;
            if *packets == 1 {
                self.bytes.0 += pinned.piece_size.0;
            }
        }
        (slot.pinned, slot.session_share) = (Some(pinned), session_share);
        self.packet_count += 1;
        let handle = i32::try_from(slot.use_number << SLOT_BITS | slot_index).ok()?;
        if self.kept_in_call.len() >= 2 * limit::KEPT_PACKETS as usize {
            // At most `KEPT_PACKETS` of these handles are still valid, so at least half are removed.
            let mut new = std::mem::take(&mut self.kept_in_call);
            new.retain(|(_, handle)| self.is_valid(*handle));
            self.kept_in_call = new;
        }
        self.kept_in_call.push((order, handle));
        Some(handle)
    }
}

/// The host function `keep`.
pub(crate) fn keep(host: &mut HostState, descriptor: u32, current: Option<u32>) -> Result<i32, FaultKind> {
    let guest = guest_memory(host, HostFunction::Keep)?;
    let host = &*guest.host;
    let Some((_, order)) = packet_at(host.phase, descriptor, current) else { return Ok(code::WHEN) };
    let most = host.admitted.manifest().keep.min(host.admitted.profile().keep).min(limit::KEPT_PACKETS);
    if most == 0 || host.kept.pinner.is_none() {
        return Ok(code::DENIED);
    }
    if host.kept.packet_count >= most {
        return Ok(code::FULL);
    }
    let described = guest.batch_descriptor(descriptor)?;
    let private = host.private.len() as u64;
    let host = guest.host;
    let Some(pinner) = &host.kept.pinner else { return Ok(code::DENIED) };
    let pinned = match pinner(described.data, described.cap_len) {
        Ok(pinned) => pinned,
        Err(NotPinned::Never) => return Ok(code::DENIED),
        Err(NotPinned::Full) => return Ok(code::FULL),
    };
    // A module may pin at most half of the pieces, so that other modules can pin some. Pinned memory counts against the
    // module's own limit of memory.
    let added = host.kept.added_bytes(&pinned);
    let pieces = host.kept.packets_by_piece.len() as u64 + added.0 / pinned.piece_size.0.max(1);
    let others = host.kept.bytes.0.saturating_add(host.stream_memory().0);
    let memory = private.saturating_add(others).saturating_add(added.0);
    if pieces > u64::from(pinned.pieces_max / 2) || memory > host.admitted.memory().0 {
        return Ok(code::FULL);
    }
    let session_share = match &host.kept.session_limit {
        None => None,
        Some(session_limit) => match session_limit.keep() {
            None => return Ok(code::FULL),
            kept => kept,
        },
    };
    // Pinned memory is also reserved from the session.
    if added.0 > 0 && host.held_memory.as_mut().is_some_and(|held_memory| !held_memory.set(Bytes(memory))) {
        return Ok(code::FULL);
    }
    Ok(host.kept.insert(order, pinned, session_share).unwrap_or(code::FULL))
}

/// The host function `release`.
pub(crate) fn release(host: &mut HostState, handle: i32) -> i32 {
    if host.run_and_unreserve(|kept| kept.release(handle)) { code::OK } else { code::UNKNOWN }
}

impl HostState {
    /// Releases all kept packets, and sets the pinner for further ones.
    pub(crate) fn set_packet_pinner(&mut self, pinner: Option<PacketPinner>) {
        self.run_and_unreserve(|kept| kept.replace_pinner(pinner));
    }

    /// Releases all kept packets.
    pub(crate) fn release_all_kept(&mut self) {
        self.run_and_unreserve(Kept::clear);
    }

    /// Releases the packets at this position that the aborted call has kept.
    pub(crate) fn release_kept_at(&mut self, order: RecordOrder) {
        self.run_and_unreserve(|kept| kept.discard(order));
    }

    /// Runs `act`, which releases packets, and gives the memory that is then unpinned back to the session's reservation.
    fn run_and_unreserve<R>(&mut self, act: impl FnOnce(&mut Kept) -> R) -> R {
        let before = self.kept.bytes().0;
        let result = act(&mut self.kept);
        let unpinned = before.saturating_sub(self.kept.bytes().0);
        if let Some(held_memory) = self.held_memory.as_mut().filter(|_| unpinned > 0) {
            // A shrink always succeeds.
            _ = held_memory.set(Bytes(held_memory.bytes().0.saturating_sub(unpinned)));
        }
        result
    }
}

impl Instance {
    /// Sets the function that pins packets for the module. Without one, the module can keep no packets. Releases all
    /// packets kept so far.
    ///
    /// # Errors
    /// A call [is suspended](Self::is_suspended).
    pub fn set_packet_pinner(&mut self, pinner: Option<PacketPinner>) -> io::Result<()> {
        self.check_not_suspended()?;
        if let Some(host) = self.host_mut() {
            host.set_packet_pinner(pinner);
        }
        Ok(())
    }

    /// Returns the size of the packet memory that the module keeps pinned, in whole pieces.
    pub fn kept(&self) -> Bytes {
        self.view().kept
    }

    /// Releases all packets, because the module has ended. Another instance of the module may have ended it.
    pub(crate) fn release_kept(&mut self) {
        if let Some(host) = self.host_mut() {
            host.release_all_kept();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pinned() -> Pinned {
        Pinned { guard: Box::new(()), pieces: 0..1, piece_size: Bytes(4096), pieces_max: 64 }
    }

    #[test]
    fn released_packets_do_not_accumulate_in_a_call() {
        let mut kept = Kept::default();
        let first = kept.insert(RecordOrder::packet(0), pinned(), None).unwrap();
        for _ in 0..100_000 {
            let handle = kept.insert(RecordOrder::packet(0), pinned(), None).unwrap();
            assert!(kept.release(handle) && !kept.release(handle));
        }
        assert!(kept.kept_in_call.len() <= 2 * limit::KEPT_PACKETS as usize, "{}", kept.kept_in_call.len());
        // The packet that is still kept is released with the aborted call.
        kept.discard(RecordOrder::packet(0));
        assert!(!kept.release(first) && kept.bytes() == Bytes(0));
    }
}
