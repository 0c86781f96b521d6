//! Packets that a module keeps beyond a call: their bytes stay in place until the module releases them.

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
use wasmtime::Caller;
use weir_abi::host::HostFunction;
use weir_abi::{code, limit};
use weir_session::{KeptPacket, KeptPackets, RecordOrder};
use weir_units::Bytes;

/// The number of a handle's low bits, which hold the index of a slot. The bits above hold the number of the slot's use,
/// so the handle of a released packet is invalid.
const PLACE_BITS: u32 = 10;
/// The largest number of a slot's use, after which the numbers start again at 0.
const USE_MAX: u32 = (1 << (31 - PLACE_BITS)) - 1;

const _: () = assert!(limit::KEPT_PACKETS == 1 << PLACE_BITS);

/// A pin on a packet's memory, which does not change as long as this value exists. Memory is pinned in pieces of one
/// size, which several packets can share.
pub struct Pinned {
    /// The value whose lifetime pins the memory.
    pub hold: Box<dyn Any + Send>,
    /// The numbers of the pinned pieces. Empty if the memory never changes, so that nothing has to be pinned.
    pub pieces: Range<u32>,
    /// The size of a piece.
    pub piece: Bytes,
    /// The number of pieces of this memory that can be pinned at the same time, by all modules together.
    pub most: u32,
}

/// The reason why a packet's memory cannot be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPinned {
    /// This memory can never be pinned.
    Never,
    /// As many pieces are pinned now as can be.
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
    free: Vec<u32>,
    /// The number of kept packets.
    packets: u32,
    /// The number of kept packets in each piece.
    pieces: BTreeMap<u32, u32>,
    /// The size of all pinned pieces.
    bytes: Bytes,
    /// The orders and handles of packets that the current call has kept.
    new: Vec<(RecordOrder, i32)>,
}

/// A place for a kept packet.
#[derive(Default)]
struct Slot {
    /// The number of the current or next use of the slot.
    used: u32,
    /// The kept packet, if the slot is in use.
    pinned: Option<Pinned>,
    /// The packet's part in the session's limit. Dropping it gives it back.
    of_session: Option<KeptPacket>,
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pinned")
            .field("pieces", &self.pieces)
            .field("piece", &self.piece)
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
        for place in 0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX) {
            self.free_slot(place);
        }
        self.new.clear();
    }

    /// Returns the size of the pinned memory.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// Begins a call.
    pub(crate) fn enter(&mut self) {
        self.new.clear();
    }

    /// Releases the packets of this order that the aborted call has kept. Packets that it has released stay released.
    fn discard(&mut self, order: RecordOrder) {
        let new = std::mem::take(&mut self.new);
        for (_, handle) in new.into_iter().filter(|(kept, _)| *kept == order) {
            self.release(handle);
        }
    }

    /// Returns the index of a handle's slot, if the handle is still valid.
    fn place(&self, handle: i32) -> Option<u32> {
        let handle = u32::try_from(handle).ok()?;
        let (place, used) = (handle & (limit::KEPT_PACKETS - 1), handle >> PLACE_BITS);
        self.slots.get(place as usize).filter(|slot| slot.used == used && slot.pinned.is_some())?;
        Some(place)
    }

    fn holds(&self, handle: i32) -> bool {
        self.place(handle).is_some()
    }

    /// Releases a packet. Returns false if the handle is invalid.
    fn release(&mut self, handle: i32) -> bool {
        self.place(handle).is_some_and(|place| self.free_slot(place))
    }

    /// Releases the packet in a slot. Returns false if there is none.
    fn free_slot(&mut self, place: u32) -> bool {
        let Some(slot) = self.slots.get_mut(place as usize) else { return false };
        let Some(pinned) = slot.pinned.take() else { return false };
        slot.of_session = None;
        // The numbers of uses start again at 0, so a handle becomes valid again after 2 million uses of its slot.
        slot.used = if slot.used == USE_MAX { 0 } else { slot.used + 1 };
        for piece in pinned.pieces {
            if let Some(packets) = self.pieces.get_mut(&piece) {
                *packets -= 1;
                if *packets == 0 {
                    self.pieces.remove(&piece);
                    self.bytes.0 -= pinned.piece.0;
                }
            }
        }
        self.packets -= 1;
        self.free.push(place);
        true
    }

    /// Returns the size of the pieces of this packet that no other kept packet has pinned.
    fn added(&self, pinned: &Pinned) -> Bytes {
        let new = pinned.pieces.clone().filter(|piece| !self.pieces.contains_key(piece)).count() as u64;
        Bytes(new.saturating_mul(pinned.piece.0))
    }

    /// Stores a packet in a free slot, and returns its handle.
    fn insert(&mut self, order: RecordOrder, pinned: Pinned, of_session: Option<KeptPacket>) -> Option<i32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.slots.push(Slot::default());
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        let slot = self.slots.get_mut(place as usize)?;
        for piece in pinned.pieces.clone() {
            let packets = self.pieces.entry(piece).or_default();
            *packets += 1;
            if *packets == 1 {
                self.bytes.0 += pinned.piece.0;
            }
        }
        (slot.pinned, slot.of_session) = (Some(pinned), of_session);
        self.packets += 1;
        let handle = i32::try_from(slot.used << PLACE_BITS | place).ok()?;
        if self.new.len() >= 2 * limit::KEPT_PACKETS as usize {
            // At least half of these have been released since.
            let mut new = std::mem::take(&mut self.new);
            new.retain(|(_, handle)| self.holds(*handle));
            self.new = new;
        }
        self.new.push((order, handle));
        Some(handle)
    }
}

/// The host function `keep`.
pub(crate) fn keep(
    caller: &mut Caller<'_, HostState>,
    descriptor: u32,
    current: Option<u32>,
) -> Result<i32, FaultKind> {
    let host = caller.data();
    let Some((_, order)) = packet_at(host.phase, descriptor, current) else { return Ok(code::WHEN) };
    let most = host.admitted.manifest().keep.min(host.admitted.profile().keep).min(limit::KEPT_PACKETS);
    if most == 0 || host.kept.pinner.is_none() {
        return Ok(code::DENIED);
    }
    if host.kept.packets >= most {
        return Ok(code::FULL);
    }
    let described = guest_memory(caller, HostFunction::Keep)?.descriptor(descriptor)?;
    let private = caller.data().memory.map_or(0, |memory| memory.data_size(&*caller)) as u64;
    let host = caller.data_mut();
    let Some(pinner) = &host.kept.pinner else { return Ok(code::DENIED) };
    let pinned = match pinner(described.data, described.cap_len) {
        Ok(pinned) => pinned,
        Err(NotPinned::Never) => return Ok(code::DENIED),
        Err(NotPinned::Full) => return Ok(code::FULL),
    };
    // A module may pin at most half of the pieces, so that some are left for others. Pinned memory counts against the
    // module's own limit of memory.
    let added = host.kept.added(&pinned);
    let pieces = host.kept.pieces.len() as u64 + added.0 / pinned.piece.0.max(1);
    let memory = private.saturating_add(host.kept.bytes.0).saturating_add(added.0);
    if pieces > u64::from(pinned.most / 2) || memory > host.admitted.memory().0 {
        return Ok(code::FULL);
    }
    let of_session = match &host.kept.session_limit {
        None => None,
        Some(session_limit) => match session_limit.keep() {
            None => return Ok(code::FULL),
            kept => kept,
        },
    };
    // Pinned memory is also reserved from the session.
    if added.0 > 0 && host.holding.as_mut().is_some_and(|holding| !holding.set(Bytes(memory))) {
        return Ok(code::FULL);
    }
    Ok(host.kept.insert(order, pinned, of_session).unwrap_or(code::FULL))
}

/// The host function `release`.
pub(crate) fn release(host: &mut HostState, handle: i32) -> i32 {
    if host.releasing(|kept| kept.release(handle)) { code::OK } else { code::UNKNOWN }
}

impl HostState {
    /// Releases all kept packets, and sets the pinner for further ones.
    pub(crate) fn set_packet_pinner(&mut self, pinner: Option<PacketPinner>) {
        self.releasing(|kept| kept.replace_pinner(pinner));
    }

    /// Releases all kept packets.
    pub(crate) fn release_all_kept(&mut self) {
        self.releasing(Kept::clear);
    }

    /// Releases the packets of this order that the aborted call has kept.
    pub(crate) fn release_kept_of(&mut self, order: RecordOrder) {
        self.releasing(|kept| kept.discard(order));
    }

    /// Runs `act`, and gives the memory that it has unpinned back to the session's reservation.
    fn releasing<R>(&mut self, act: impl FnOnce(&mut Kept) -> R) -> R {
        let before = self.kept.bytes().0;
        let result = act(&mut self.kept);
        let unpinned = before.saturating_sub(self.kept.bytes().0);
        if let Some(holding) = self.holding.as_mut().filter(|_| unpinned > 0) {
            // A shrink always succeeds.
            _ = holding.set(Bytes(holding.bytes().0.saturating_sub(unpinned)));
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
        self.seen().kept
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
        Pinned { hold: Box::new(()), pieces: 0..1, piece: Bytes(4096), most: 64 }
    }

    #[test]
    fn released_packets_do_not_accumulate_in_a_call() {
        let mut kept = Kept::default();
        let first = kept.insert(RecordOrder::packet(0), pinned(), None).unwrap();
        for _ in 0..100_000 {
            let handle = kept.insert(RecordOrder::packet(0), pinned(), None).unwrap();
            assert!(kept.release(handle) && !kept.release(handle));
        }
        assert!(kept.new.len() <= 2 * limit::KEPT_PACKETS as usize, "{}", kept.new.len());
        // The packet that is still kept is released with the aborted call.
        kept.discard(RecordOrder::packet(0));
        assert!(!kept.release(first) && kept.bytes() == Bytes(0));
    }
}
