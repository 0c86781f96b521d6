//! Packets that a module keeps: their bytes stay where they are until it lets go of them.

use crate::run::fault::FaultKind;
use crate::run::guest::guest;
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

/// A handle is a place, and above it how often that has been used: so one that was let go of names nothing any more.
const PLACE_BITS: u32 = 10;
const USE_MAX: u32 = (1 << (31 - PLACE_BITS)) - 1;

const _: () = assert!(limit::KEPT_PACKETS == 1 << PLACE_BITS);

/// Keeps a packet's memory as it is, for as long as it exists. Memory is kept in pieces, which several packets can have in common.
pub struct Pinned {
    /// What does so.
    pub hold: Box<dyn Any + Send>,
    /// Numbers of the pieces; none where nothing has to be kept.
    pub pieces: Range<u32>,
    /// How long a piece is.
    pub piece: Bytes,
    /// How many pieces of this memory can be kept in all, by everybody.
    pub most: u32,
}

/// Why a packet's memory cannot be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPinned {
    /// This memory never can.
    Never,
    /// No more of it, for now.
    Full,
}

/// Keeps the memory of a packet of the batch at hand, by its guest address and length.
pub type PacketPinner = Box<dyn Fn(u32, u32) -> Result<Pinned, NotPinned> + Send>;

/// What an instance keeps.
#[derive(Default)]
pub(crate) struct Kept {
    keeper: Option<PacketPinner>,
    /// What all modules of the session may keep together.
    pub(crate) together: Option<Arc<KeptPackets>>,
    places: Vec<Place>,
    free: Vec<u32>,
    packets: u32,
    /// How many of the packets lie in each piece.
    pieces: BTreeMap<u32, u32>,
    bytes: Bytes,
    /// What was kept in the call at hand.
    new: Vec<(RecordOrder, i32)>,
}

#[derive(Default)]
struct Place {
    used: u32,
    pinned: Option<Pinned>,
    /// It is one of the session's, until it is let go of.
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
    /// Lets go of everything; from now on packets are kept by this.
    fn replace_keeper(&mut self, keeper: Option<PacketPinner>) {
        self.clear();
        self.keeper = keeper;
    }

    /// Lets go of everything.
    fn clear(&mut self) {
        for place in 0..u32::try_from(self.places.len()).unwrap_or(u32::MAX) {
            self.empty(place);
        }
        self.new.clear();
    }

    /// How much memory is kept.
    pub(crate) fn bytes(&self) -> Bytes {
        self.bytes
    }

    /// A call begins.
    pub(crate) fn enter(&mut self) {
        self.new.clear();
    }

    /// Lets go of what a lost call has kept. What it has let go of stays so.
    fn abandon(&mut self, order: RecordOrder) {
        let new = std::mem::take(&mut self.new);
        for (_, handle) in new.into_iter().filter(|(kept, _)| *kept == order) {
            self.release(handle);
        }
    }

    /// The place that this handle is of, if nobody has used it since.
    fn place(&self, handle: i32) -> Option<u32> {
        let handle = u32::try_from(handle).ok()?;
        let (place, used) = (handle & (limit::KEPT_PACKETS - 1), handle >> PLACE_BITS);
        self.places.get(place as usize).filter(|there| there.used == used && there.pinned.is_some())?;
        Some(place)
    }

    fn holds(&self, handle: i32) -> bool {
        self.place(handle).is_some()
    }

    /// Lets go of a packet, if this is the handle of one.
    fn release(&mut self, handle: i32) -> bool {
        self.place(handle).is_some_and(|place| self.empty(place))
    }

    fn empty(&mut self, place: u32) -> bool {
        let Some(there) = self.places.get_mut(place as usize) else { return false };
        let Some(pinned) = there.pinned.take() else { return false };
        there.of_session = None;
        // The first use of a place after so many has a handle that was used once before: 2 million calls ago.
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

    /// How much more memory it would keep with this.
    fn added(&self, pinned: &Pinned) -> Bytes {
        let new = pinned.pieces.clone().filter(|piece| !self.pieces.contains_key(piece)).count() as u64;
        Bytes(new.saturating_mul(pinned.piece.0))
    }

    fn put(&mut self, order: RecordOrder, pinned: Pinned, of_session: Option<KeptPacket>) -> Option<i32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None => {
                self.places.push(Place::default());
                u32::try_from(self.places.len() - 1).ok()?
            }
        };
        let there = self.places.get_mut(place as usize)?;
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
            // Most of these it has let go of since.
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
    if most == 0 || host.kept.keeper.is_none() {
        return Ok(code::DENIED);
    }
    if host.kept.packets >= most {
        return Ok(code::FULL);
    }
    let described = guest(caller, HostFunction::Keep)?.descriptor(descriptor)?;
    let private = caller.data().memory.map_or(0, |memory| memory.data_size(&*caller)) as u64;
    let host = caller.data_mut();
    let Some(keeper) = &host.kept.keeper else { return Ok(code::DENIED) };
    let pinned = match keeper(described.data, described.cap_len) {
        Ok(pinned) => pinned,
        Err(NotPinned::Never) => return Ok(code::DENIED),
        Err(NotPinned::Full) => return Ok(code::FULL),
    };
    // One module has at most half of what can be kept, so that there is something for others; and pays for it with its memory.
    let added = host.kept.added(&pinned);
    let pieces = host.kept.pieces.len() as u64 + added.0 / pinned.piece.0.max(1);
    let memory = private.saturating_add(host.kept.bytes.0).saturating_add(added.0);
    if pieces > u64::from(pinned.most / 2) || memory > host.admitted.memory().0 {
        return Ok(code::FULL);
    }
    let of_session = match &host.kept.together {
        None => None,
        Some(together) => match together.keep() {
            None => return Ok(code::FULL),
            kept => kept,
        },
    };
    // The memory is its session's, too.
    if added.0 > 0 && host.holding.as_mut().is_some_and(|holding| !holding.set(Bytes(memory))) {
        return Ok(code::FULL);
    }
    Ok(host.kept.put(order, pinned, of_session).unwrap_or(code::FULL))
}

/// The host function `release`.
pub(crate) fn release(host: &mut HostState, handle: i32) -> i32 {
    if host.letting_go(|kept| kept.release(handle)) { code::OK } else { code::UNKNOWN }
}

impl HostState {
    /// Lets go of everything that is kept; from now on packets are kept by this.
    pub(crate) fn keep_by(&mut self, keeper: Option<PacketPinner>) {
        self.letting_go(|kept| kept.replace_keeper(keeper));
    }

    /// Lets go of everything that is kept.
    pub(crate) fn keep_nothing(&mut self) {
        self.letting_go(Kept::clear);
    }

    /// Lets go of what a lost call has kept.
    pub(crate) fn keep_none_of(&mut self, order: RecordOrder) {
        self.letting_go(|kept| kept.abandon(order));
    }

    /// Its session has the memory again that is not kept any more.
    fn letting_go<R>(&mut self, act: impl FnOnce(&mut Kept) -> R) -> R {
        let before = self.kept.bytes().0;
        let result = act(&mut self.kept);
        let less = before.saturating_sub(self.kept.bytes().0);
        if let Some(holding) = self.holding.as_mut().filter(|_| less > 0) {
            // Less than it holds is always there.
            _ = holding.set(Bytes(holding.bytes().0.saturating_sub(less)));
        }
        result
    }
}

impl Instance {
    /// From now on packets that the module wants to keep are kept by this; without it, none are. Whatever it has kept so far it has no longer. Not
    /// while a call [is suspended](Self::is_suspended).
    pub fn keep_by(&mut self, keeper: Option<PacketPinner>) -> io::Result<()> {
        self.is_at_rest()?;
        if let Some(host) = self.host_mut() {
            host.keep_by(keeper);
        }
        Ok(())
    }

    /// How much memory it keeps of the packets that it has seen, in whole pieces.
    pub fn kept(&self) -> Bytes {
        self.seen().kept
    }

    /// A module that has ended keeps nothing, on whichever thread it was ended.
    pub(crate) fn let_go(&mut self) {
        if let Some(host) = self.host_mut() {
            host.keep_nothing();
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
    fn what_was_let_go_of_in_a_call_is_not_remembered_for_ever() {
        let mut kept = Kept::default();
        let first = kept.put(RecordOrder::packet(0), pinned(), None).unwrap();
        for _ in 0..100_000 {
            let handle = kept.put(RecordOrder::packet(0), pinned(), None).unwrap();
            assert!(kept.release(handle) && !kept.release(handle));
        }
        assert!(kept.new.len() <= 2 * limit::KEPT_PACKETS as usize, "{}", kept.new.len());
        // What a lost call keeps is known all the same.
        kept.abandon(RecordOrder::packet(0));
        assert!(!kept.release(first) && kept.bytes() == Bytes(0));
    }
}
