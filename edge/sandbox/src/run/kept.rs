//! Packets that a module keeps: their bytes stay in place until the module releases them.

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

/// Bits of a handle for the slot. The bits above count the uses of the slot, so the handle of a released packet is
/// invalid.
const PLACE_BITS: u32 = 10;
const USE_MAX: u32 = (1 << (31 - PLACE_BITS)) - 1;

const _: () = assert!(limit::KEPT_PACKETS == 1 << PLACE_BITS);

/// Keeps a packet's memory unchanged while it exists. Memory is pinned in pieces, which several packets can share.
pub struct Pinned {
    /// The value whose lifetime pins the memory.
    pub hold: Box<dyn Any + Send>,
    /// Numbers of the pinned pieces; empty if nothing has to be pinned.
    pub pieces: Range<u32>,
    /// The size of a piece.
    pub piece: Bytes,
    /// The total number of pieces of this memory that can be pinned at one time.
    pub most: u32,
}

/// The reason why a packet's memory cannot be pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPinned {
    /// This memory can never be pinned.
    Never,
    /// The limit of pinned pieces is reached for now.
    Full,
}

/// Pins the memory of a packet of the current batch, by its guest address and length.
pub type PacketPinner = Box<dyn Fn(u32, u32) -> Result<Pinned, NotPinned> + Send>;

/// The packets that an instance keeps.
#[derive(Default)]
pub(crate) struct Kept {
    pinner: Option<PacketPinner>,
    /// The session's count of kept packets.
    pub(crate) session_limit: Option<Arc<KeptPackets>>,
    slots: Vec<Slot>,
    free: Vec<u32>,
    packets: u32,
    /// The number of kept packets in each piece.
    pieces: BTreeMap<u32, u32>,
    bytes: Bytes,
    /// Packets kept in the current call.
    new: Vec<(RecordOrder, i32)>,
}

#[derive(Default)]
struct Slot {
    used: u32,
    pinned: Option<Pinned>,
    /// The packet's place in the session's count, returned on release.
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

    /// Releases the packets that an aborted call kept. Packets that it released stay released.
    fn discard(&mut self, order: RecordOrder) {
        let new = std::mem::take(&mut self.new);
        for (_, handle) in new.into_iter().filter(|(kept, _)| *kept == order) {
            self.release(handle);
        }
    }

    /// Returns the slot of this handle if the handle is still valid.
    fn place(&self, handle: i32) -> Option<u32> {
        let handle = u32::try_from(handle).ok()?;
        let (place, used) = (handle & (limit::KEPT_PACKETS - 1), handle >> PLACE_BITS);
        self.slots.get(place as usize).filter(|there| there.used == used && there.pinned.is_some())?;
        Some(place)
    }

    fn holds(&self, handle: i32) -> bool {
        self.place(handle).is_some()
    }

    /// Releases a packet. Returns false if the handle is invalid.
    fn release(&mut self, handle: i32) -> bool {
        self.place(handle).is_some_and(|place| self.free_slot(place))
    }

    fn free_slot(&mut self, place: u32) -> bool {
        let Some(there) = self.slots.get_mut(place as usize) else { return false };
        let Some(pinned) = there.pinned.take() else { return false };
        there.of_session = None;
        // The use count wraps around, so a handle could become valid again after 2 million uses of its slot.
        there.used = if there.used == USE_MAX { 0 } else { there.used + 1 };
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

    /// Returns the memory that pinning this packet would add.
    fn added(&self, pinned: &Pinned) -> Bytes {
        let new = pinned.pieces.clone().filter(|piece| !self.pieces.contains_key(piece)).count() as u64;
        Bytes(new.saturating_mul(pinned.piece.0))
    }

    fn insert(&mut self, order: RecordOrder, pinned: Pinned, of_session: Option<KeptPacket>) -> Option<i32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.slots.push(Slot::default());
                u32::try_from(self.slots.len() - 1).ok()?
            }
        };
        let there = self.slots.get_mut(place as usize)?;
        for piece in pinned.pieces.clone() {
            let packets = self.pieces.entry(piece).or_default();
            *packets += 1;
            if *packets == 1 {
                self.bytes.0 += pinned.piece.0;
            }
        }
        (there.pinned, there.of_session) = (Some(pinned), of_session);
        self.packets += 1;
        let handle = i32::try_from(there.used << PLACE_BITS | place).ok()?;
        if self.new.len() >= 2 * limit::KEPT_PACKETS as usize {
            // Most of these have been released since.
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
    // One module has at most half of the pieces, so that others get some, and its pinned memory counts as its own.
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
    // The memory is reserved from the session too.
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

    /// Releases the packets that an aborted call kept.
    pub(crate) fn release_kept_of(&mut self, order: RecordOrder) {
        self.releasing(|kept| kept.discard(order));
    }

    /// Runs `act`, and returns the memory that it releases to the session.
    fn releasing<R>(&mut self, act: impl FnOnce(&mut Kept) -> R) -> R {
        let before = self.kept.bytes().0;
        let result = act(&mut self.kept);
        let less = before.saturating_sub(self.kept.bytes().0);
        if let Some(holding) = self.holding.as_mut().filter(|_| less > 0) {
            // A shrink always succeeds.
            _ = holding.set(Bytes(holding.bytes().0.saturating_sub(less)));
        }
        result
    }
}

impl Instance {
    /// Sets the pinner for packets that the module wants to keep; without one, none can be kept. Releases all packets
    /// kept so far. An error while a call [is suspended](Self::is_suspended).
    pub fn set_packet_pinner(&mut self, pinner: Option<PacketPinner>) -> io::Result<()> {
        self.check_not_suspended()?;
        if let Some(host) = self.host_mut() {
            host.set_packet_pinner(pinner);
        }
        Ok(())
    }

    /// Returns the size of the packet memory that the module keeps, in whole pieces.
    pub fn kept(&self) -> Bytes {
        self.seen().kept
    }

    /// Releases the packets of a module that has ended, on whatever thread it ended.
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
    fn packets_released_in_a_call_are_forgotten() {
        let mut kept = Kept::default();
        let first = kept.insert(RecordOrder::packet(0), pinned(), None).unwrap();
        for _ in 0..100_000 {
            let handle = kept.insert(RecordOrder::packet(0), pinned(), None).unwrap();
            assert!(kept.release(handle) && !kept.release(handle));
        }
        assert!(kept.new.len() <= 2 * limit::KEPT_PACKETS as usize, "{}", kept.new.len());
        // Packets that an aborted call kept are still known.
        kept.discard(RecordOrder::packet(0));
        assert!(!kept.release(first) && kept.bytes() == Bytes(0));
    }
}
