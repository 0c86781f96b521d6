//! A packet in a graph.
//!
//! A packet owns its state and refers to its bytes. The bytes are those of a source, such as a capture file, or of a
//! buffer that clones can share. A write to bytes that others can see copies them first, once, into a buffer of the
//! packet with room before and behind them. So most packets are never copied. A packet that is discarded keeps its
//! buffer for the next packet.

mod pool;
mod source;
mod transferred;

use crate::annotations::{ANNOTATION_BYTES, Annotation};
use std::ops::Range;
use std::rc::Rc;
use weir_units::Timestamp;

pub use pool::PacketPool;
pub use source::SourceBlock;
pub use transferred::{ArrivedPackets, TransferredPackets};

/// The room before the bytes in a new buffer. It suffices for the headers that elements put before a packet, and keeps
/// the bytes behind an Ethernet header aligned to four.
pub const HEADROOM: usize = 66;

/// The bytes of a buffer for a packet of ordinary length: an Ethernet frame with its headroom.
const BUFFER_BYTES: usize = 2048;

/// The position of a header that is not known.
const NOT_SET: u32 = u32::MAX;

/// The receiver of a packet, as its source knows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketType {
    /// To this host.
    #[default]
    Host,
    /// To all.
    Broadcast,
    /// To a group.
    Multicast,
    /// To another host.
    OtherHost,
    /// From this host.
    Outgoing,
}

/// The place of a packet's bytes.
#[derive(Default)]
enum Storage {
    /// The packet's own buffer.
    #[default]
    Own,
    /// A buffer that clones of the packet share, or one that is longer than the packet's own.
    Shared(Rc<Box<[u8]>>),
    Source(Rc<SourceBlock>),
}

/// A buffer for a packet of ordinary length.
type OwnBuffer = Box<[u8; BUFFER_BYTES]>;

#[cold]
fn new_buffer() -> OwnBuffer {
    let buffer = vec![0; BUFFER_BYTES].into_boxed_slice();
    buffer.try_into().expect("a slice of that length")
}

/// Everything about a packet but its bytes. Positions count from the start of the storage.
///
/// The fields that most elements use are in the first 64 bytes, a line of the processor's cache: up to the annotation
/// PAINT and its neighbours.
#[repr(C, align(64))]
struct State {
    storage: Storage,
    /// The packet's buffer, also while its bytes are elsewhere.
    own: Option<OwnBuffer>,
    start: u32,
    end: u32,
    network_header: u32,
    transport_header: u32,
    annotations: [u8; ANNOTATION_BYTES],
    /// The number that the graph gave the device from which the packet came.
    device: u16,
    packet_type: PacketType,
    /// The number of times that the packet has begun a way around a cycle, since it was pushed.
    turns: u16,
    link_header: u32,
    /// The part of the storage that is the packet's, with the room before and behind its bytes.
    room: Range<u32>,
    /// The first byte of the room that has a value. Those before it are free for headers.
    known_from: u32,
    time: Timestamp,
}

impl State {
    /// Returns all bytes of the storage.
    #[inline]
    fn stored(&self) -> &[u8] {
        match &self.storage {
            Storage::Own => self.own.as_deref().map_or(&[], |buffer| buffer),
            Storage::Shared(buffer) => buffer,
            Storage::Source(source) => source.bytes(),
        }
    }

    /// Returns all bytes of the storage for writing; none if others can see them.
    #[inline]
    fn stored_mut(&mut self) -> &mut [u8] {
        match &mut self.storage {
            Storage::Own => self.own.as_deref_mut().map_or(&mut [], |buffer| buffer),
            Storage::Shared(buffer) => Rc::get_mut(buffer).map_or(&mut [], |buffer| buffer),
            Storage::Source(_) => &mut [],
        }
    }

    /// Takes a buffer with at least this number of bytes, which have any values, as the storage.
    #[inline]
    fn take_buffer(&mut self, bytes: usize) {
        if bytes <= BUFFER_BYTES {
            self.own.get_or_insert_with(new_buffer);
            self.storage = Storage::Own;
            self.room = 0..narrow(BUFFER_BYTES);
        } else {
            self.storage = Storage::Shared(Rc::new(vec![0; bytes].into()));
            self.room = 0..narrow(bytes);
        }
    }
}

/// A packet. It moves from element to element.
pub struct GraphPacket(Box<State>);

impl std::fmt::Debug for GraphPacket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packet")
            .field("time", &self.0.time)
            .field("bytes", &self.bytes())
            .finish_non_exhaustive()
    }
}

/// Converts a length or position to the 32 bits in which a packet keeps it.
///
/// # Panics
///
/// Panics if it does not fit: no buffer is longer than [`PACKET_BYTES_MAX`], and sources split longer storage.
#[inline]
fn narrow(position: usize) -> u32 {
    u32::try_from(position).expect("storage of less than 4 GiB")
}

/// Returns a count, or the limit if the count is greater.
#[inline]
fn at_most(count: usize, limit: u32) -> u32 {
    u32::try_from(count).map_or(limit, |count| count.min(limit))
}

/// The most bytes of a packet.
pub const PACKET_BYTES_MAX: usize = 1 << 20;

impl GraphPacket {
    /// Returns the bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let state = &*self.0;
        &state.stored()[state.start as usize..state.end as usize]
    }

    /// Returns the number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.0.end - self.0.start) as usize
    }

    /// Returns true for a packet without bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.end == self.0.start
    }

    /// Returns the bytes for writing. Copies them first if others can see them.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.make_unique();
        let range = self.0.start..self.0.end;
        self.storage_mut(range)
    }

    /// Returns the bytes from the network header on, for writing; `None` if no element has found it. Copies them first
    /// if others can see them.
    #[inline]
    pub fn network_bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.0.network_header > self.0.end {
            return None;
        }
        self.make_unique();
        let range = self.0.network_header..self.0.end;
        Some(self.storage_mut(range))
    }

    /// Copies the bytes if others can see them, with those that were stripped from their start: [`GraphPacket::unstrip`] can
    /// bring them back.
    #[inline]
    fn make_unique(&mut self) {
        if !matches!(self.0.storage, Storage::Own) {
            self.make_own();
        }
    }

    /// Copies the bytes of a shared buffer or of a source, with those that were stripped.
    #[inline(never)]
    fn make_own(&mut self) {
        let state = &mut *self.0;
        let (first, end) = (state.room.start, state.end);
        let place = narrow(HEADROOM).saturating_sub(state.start - first);
        let length = end - first;
        if let Storage::Source(source) = &state.storage
            && let Some(own) = &mut state.own
            && let Some(to) = own.get_mut(place as usize..(place + length) as usize)
        {
            // The usual case. All positions move by the same distance.
            to.copy_from_slice(&source.bytes()[first as usize..end as usize]);
            let distance = place.wrapping_sub(first);
            let moved = |position: u32| match position {
                NOT_SET => NOT_SET,
                _ => position.wrapping_add(distance),
            };
            state.link_header = moved(state.link_header);
            state.network_header = moved(state.network_header);
            state.transport_header = moved(state.transport_header);
            state.start = state.start.wrapping_add(distance);
            state.end = place + length;
            state.known_from = state.known_from.wrapping_add(distance);
            state.room = 0..narrow(BUFFER_BYTES);
            state.storage = Storage::Own;
        } else if !self.is_unique() {
            self.copy_with_room(self.headroom().max(HEADROOM), 0);
        }
    }

    /// Returns a range of the buffer of a packet that is unique.
    #[inline]
    fn storage_mut(&mut self, range: Range<u32>) -> &mut [u8] {
        let state = &mut *self.0;
        let range = range.start as usize..range.end as usize;
        match &mut state.storage {
            Storage::Own => state.own.as_deref_mut().map_or(&mut [], |own| &mut own[range]),
            _ => &mut state.stored_mut()[range],
        }
    }

    fn is_unique(&mut self) -> bool {
        match &mut self.0.storage {
            Storage::Own => true,
            Storage::Shared(buffer) => Rc::get_mut(buffer).is_some(),
            Storage::Source(_) => false,
        }
    }

    /// Copies the bytes to a buffer with at least this room before and behind them. The room before them gets the bytes
    /// that were stripped, as far as they fit.
    fn copy_with_room(&mut self, before: usize, behind: usize) {
        let length = self.len();
        let stripped = self.headroom().min(before);
        let state = &mut *self.0;
        let from = state.start as usize - stripped..state.end as usize;
        let (place, needed) = (before - stripped, before + length + behind);
        match std::mem::take(&mut state.storage) {
            Storage::Own if needed <= BUFFER_BYTES => {
                state.take_buffer(needed);
                state.stored_mut().copy_within(from, place);
            }
            Storage::Own => {
                let own = state.own.take();
                state.take_buffer(needed);
                let bytes = own.as_deref().map_or(&[][..], |own| &own[from]);
                state.stored_mut()[place..][..bytes.len()].copy_from_slice(bytes);
                state.own = own;
            }
            Storage::Shared(shared) => {
                state.take_buffer(needed);
                state.stored_mut()[place..before + length].copy_from_slice(&shared[from]);
            }
            Storage::Source(source) => {
                state.take_buffer(needed);
                state.stored_mut()[place..before + length].copy_from_slice(&source.bytes()[from]);
            }
        }
        let (old, new) = (state.start, narrow(before));
        // A header can lie before the bytes, if they were stripped. One that has no place in the new buffer is unknown.
        let moved = |position: u32| match position {
            NOT_SET => NOT_SET,
            _ => (position + new).checked_sub(old).unwrap_or(NOT_SET),
        };
        state.link_header = moved(state.link_header);
        state.network_header = moved(state.network_header);
        state.transport_header = moved(state.transport_header);
        state.known_from = (state.known_from + new).saturating_sub(old);
        state.start = new;
        state.end = new + narrow(length);
    }

    /// Returns the room before the bytes.
    #[inline]
    pub fn headroom(&self) -> usize {
        (self.0.start - self.0.room.start) as usize
    }

    /// Returns the room behind the bytes.
    #[inline]
    pub fn tailroom(&self) -> usize {
        (self.0.room.end - self.0.end) as usize
    }

    /// Removes bytes from the start: all of them if there are fewer.
    #[inline]
    pub fn strip(&mut self, count: usize) {
        self.0.start += at_most(count, self.0.end - self.0.start);
    }

    /// Removes bytes from the end: all of them if there are fewer.
    #[inline]
    pub fn truncate_by(&mut self, count: usize) {
        self.0.end -= at_most(count, self.0.end - self.0.start);
    }

    /// Adds bytes before the start. They have the values from before they were stripped, where they were, else any.
    /// They are not for writing: [`GraphPacket::prepend`] is.
    #[inline]
    pub fn unstrip(&mut self, count: usize) {
        if self.headroom() < count {
            let stripped = self.headroom();
            // What was stripped has to stay readable.
            self.0.start -= narrow(stripped);
            self.copy_with_room(HEADROOM + count, 0);
            self.0.start += narrow(stripped);
        }
        self.0.start -= narrow(count);
    }

    /// Adds bytes before the start, and returns all bytes for writing.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> &mut [u8] {
        if self.headroom() < count || !matches!(self.0.storage, Storage::Own) {
            self.make_room(count);
        }
        self.0.start -= narrow(count);
        self.0.known_from = self.0.known_from.min(self.0.start);
        let range = self.0.start..self.0.end;
        self.storage_mut(range)
    }

    #[inline(never)]
    fn make_room(&mut self, before: usize) {
        if self.headroom() < before || !self.is_unique() {
            self.copy_with_room(self.headroom().max(HEADROOM).max(before), 0);
        }
    }

    /// Makes a buffer that clones shared the packet's own again, if this is the last of them.
    #[inline(never)]
    fn take_back_shared(&mut self) {
        if let Storage::Shared(shared) = std::mem::take(&mut self.0.storage)
            && self.0.own.is_none()
            && let Ok(buffer) = Rc::try_unwrap(shared)
        {
            // A long buffer is not worth keeping.
            self.0.own = OwnBuffer::try_from(buffer).ok();
        }
    }

    /// Returns the bytes directly before the start, which were stripped; `None` if the packet has had fewer.
    #[inline]
    pub fn stripped(&self, count: usize) -> Option<&[u8]> {
        let state = &*self.0;
        let from = state.start.checked_sub(u32::try_from(count).ok()?)?;
        (from >= state.known_from).then(|| &state.stored()[from as usize..state.start as usize])
    }

    /// Adds bytes behind the end, and returns all bytes for writing. The new bytes have any values.
    pub fn append(&mut self, count: usize) -> &mut [u8] {
        if self.tailroom() < count || !self.is_unique() {
            self.copy_with_room(self.headroom().max(HEADROOM), count);
        }
        self.0.end += narrow(count);
        self.bytes_mut()
    }

    /// Moves the bytes so that they begin at this remainder of the position by the modulus. Copies them.
    pub fn align(&mut self, modulus: usize, remainder: usize) {
        let before = HEADROOM.next_multiple_of(modulus) + remainder;
        self.copy_with_room(before, 0);
    }

    /// Returns the position of the bytes' start in their storage. Storage is aligned to eight.
    #[inline]
    pub fn position(&self) -> usize {
        self.0.start as usize
    }

    /// Returns a second packet with the same bytes, which neither copies until one of them writes.
    pub fn duplicate(&mut self) -> GraphPacket {
        let state = &mut *self.0;
        let storage = match &state.storage {
            Storage::Own => {
                let shared: Rc<Box<[u8]>> =
                    Rc::new(state.own.take().map_or_else(Box::default, |own| own as _));
                state.storage = Storage::Shared(Rc::clone(&shared));
                Storage::Shared(shared)
            }
            Storage::Shared(buffer) => Storage::Shared(Rc::clone(buffer)),
            Storage::Source(source) => Storage::Source(Rc::clone(source)),
        };
        GraphPacket(Box::new(State { storage, own: None, room: state.room.clone(), ..*state }))
    }

    #[inline]
    fn offset(&self, header: u32) -> Option<usize> {
        (header != NOT_SET).then(|| header.saturating_sub(self.0.start) as usize)
    }

    #[inline]
    fn bytes_from(&self, header: u32) -> Option<&[u8]> {
        let state = &*self.0;
        (header != NOT_SET && header <= state.end)
            .then(|| &state.stored()[header as usize..state.end as usize])
    }

    /// Returns the bytes from the network header on; `None` if no element has found it.
    #[inline]
    pub fn network_bytes(&self) -> Option<&[u8]> {
        self.bytes_from(self.0.network_header)
    }

    /// Returns the bytes from the transport header on; `None` if no element has found it.
    #[inline]
    pub fn transport_bytes(&self) -> Option<&[u8]> {
        self.bytes_from(self.0.transport_header)
    }

    /// Returns the bytes from the network header on, and those from the transport header on; none for a header that no
    /// element has found.
    #[inline]
    pub fn headers(&self) -> (&[u8], &[u8]) {
        let state = &*self.0;
        let bytes = &state.stored()[..state.end as usize];
        let from = |header: u32| bytes.get(header as usize..).unwrap_or_default();
        (from(state.network_header), from(state.transport_header))
    }

    /// Returns the bytes from the link header on; `None` if no element has found it.
    #[inline]
    pub fn link_bytes(&self) -> Option<&[u8]> {
        self.bytes_from(self.0.link_header)
    }

    /// Returns the number of bytes from the network header on; `None` if no element has found it.
    #[inline]
    pub fn network_length(&self) -> Option<usize> {
        self.0.end.checked_sub(self.0.network_header).map(|length| length as usize)
    }

    /// Returns the offset of the network header from the start of the bytes: 0 if it was stripped.
    #[inline]
    pub fn network_offset(&self) -> Option<usize> {
        self.offset(self.0.network_header)
    }

    /// Returns the offset of the transport header from the start of the bytes: 0 if it was stripped.
    #[inline]
    pub fn transport_offset(&self) -> Option<usize> {
        self.offset(self.0.transport_header)
    }

    /// Sets the network header, at an offset from the start of the bytes, and the transport header behind it.
    #[inline]
    pub fn set_network_header(&mut self, offset: usize, header_bytes: usize) {
        let (start, length) = (self.0.start, self.0.end - self.0.start);
        let offset = at_most(offset, length);
        self.0.network_header = start + offset;
        self.0.transport_header = start + offset + at_most(header_bytes, length - offset);
    }

    /// Sets the link header, at an offset from the start of the bytes.
    #[inline]
    pub fn set_link_header(&mut self, offset: usize) {
        self.0.link_header = self.0.start + at_most(offset, self.0.end - self.0.start);
    }

    /// Forgets the network and the transport header.
    #[inline]
    pub fn clear_network_header(&mut self) {
        self.0.network_header = NOT_SET;
        self.0.transport_header = NOT_SET;
    }

    /// Returns the time stamp.
    #[inline]
    pub fn time(&self) -> Timestamp {
        self.0.time
    }

    /// Sets the time stamp.
    #[inline]
    pub fn set_time(&mut self, time: Timestamp) {
        self.0.time = time;
    }

    /// Returns the packet type.
    #[inline]
    pub fn packet_type(&self) -> PacketType {
        self.0.packet_type
    }

    /// Sets the packet type.
    #[inline]
    pub fn set_packet_type(&mut self, packet_type: PacketType) {
        self.0.packet_type = packet_type;
    }

    /// Sets the number of ways around a cycle to 0.
    pub(super) fn clear_turns(&mut self) {
        self.0.turns = 0;
    }

    /// Returns the number of ways around a cycle.
    pub(super) fn turns(&self) -> u16 {
        self.0.turns
    }

    /// Counts a way around a cycle, and returns the number of ways.
    pub(super) fn add_turn(&mut self) -> u16 {
        self.0.turns = self.0.turns.saturating_add(1);
        self.0.turns
    }

    /// Returns the number of the device from which the packet came; 0 for none.
    #[inline]
    pub fn device(&self) -> u16 {
        self.0.device
    }

    /// Sets the number of the device from which the packet came.
    #[inline]
    pub fn set_device(&mut self, device: u16) {
        self.0.device = device;
    }

    /// Returns the bytes of an annotation.
    #[inline]
    pub fn annotation(&self, annotation: Annotation) -> &[u8] {
        &self.0.annotations[usize::from(annotation.offset)..][..usize::from(annotation.size)]
    }

    /// Returns the bytes of an annotation for writing.
    #[inline]
    pub fn annotation_mut(&mut self, annotation: Annotation) -> &mut [u8] {
        &mut self.0.annotations[usize::from(annotation.offset)..][..usize::from(annotation.size)]
    }

    /// Returns all annotations.
    #[inline]
    pub fn annotations(&self) -> &[u8; ANNOTATION_BYTES] {
        &self.0.annotations
    }

    /// Returns all annotations for writing.
    #[inline]
    pub fn annotations_mut(&mut self) -> &mut [u8; ANNOTATION_BYTES] {
        &mut self.0.annotations
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::PAINT;

    #[test]
    fn a_write_copies_what_others_see() {
        let mut pool = PacketPool::default();
        let source = Rc::new(SourceBlock::from(vec![1, 2, 3, 4, 5, 6]));
        let mut packet = pool.of_source(Rc::clone(&source), 1..5);
        packet.strip(1);
        assert_eq!(packet.bytes(), [3, 4, 5]);
        let other = packet.duplicate();
        packet.bytes_mut()[0] = 9;
        assert_eq!(
            (packet.bytes(), other.bytes(), source.bytes()),
            (&[9, 4, 5][..], &[3, 4, 5][..], &[1, 2, 3, 4, 5, 6][..])
        );
        // A buffer is written in place if it has one reader.
        let before = packet.bytes().as_ptr();
        packet.bytes_mut()[1] = 8;
        assert_eq!(packet.bytes().as_ptr(), before);
        let clone = packet.duplicate();
        packet.bytes_mut()[2] = 7;
        assert_eq!((packet.bytes(), clone.bytes()), (&[9, 8, 7][..], &[9, 8, 5][..]));
    }

    #[test]
    fn a_buffer_that_was_shared_is_used_again() {
        let mut pool = PacketPool::default();
        let mut packet = pool.of_bytes(&[1, 2, 3]);
        let place = packet.bytes().as_ptr();
        let (other, third) = (packet.duplicate(), packet.duplicate());
        packet.bytes_mut()[0] = 9;
        assert_ne!(packet.bytes().as_ptr(), place);
        pool.discard(other);
        assert_eq!((packet.bytes(), third.bytes()), (&[9, 2, 3][..], &[1, 2, 3][..]));
        pool.discard(third);
        let next = pool.of_bytes(&[4]);
        assert_eq!((next.bytes().as_ptr(), next.bytes()), (place, &[4][..]));
    }

    #[test]
    fn packets_that_are_longer_than_a_buffer_are_written_and_shared() {
        let mut pool = PacketPool::default();
        let mut packet = pool.of_bytes(&[1; BUFFER_BYTES - HEADROOM]);
        let end = packet.append(5).len();
        packet.bytes_mut()[end - 1] = 2;
        let mut other = packet.duplicate();
        other.prepend(HEADROOM + 1)[0] = 3;
        assert_eq!((packet.len(), other.len()), (end, end + HEADROOM + 1));
        assert_eq!((packet.bytes()[0], packet.bytes()[end - 1]), (1, 2));
        assert_eq!((other.bytes()[0], other.bytes().last()), (3, Some(&2)));
        // The other packet is the last one with its buffer, and gets a longer one for the room.
        pool.discard(packet);
        other.strip(HEADROOM + 1);
        assert_eq!(other.bytes()[..BUFFER_BYTES - HEADROOM], [1; BUFFER_BYTES - HEADROOM]);
    }

    #[test]
    fn a_source_shows_no_bytes_before_or_behind_its_packet() {
        let mut pool = PacketPool::default();
        let mut packet = pool.of_source(Rc::new(vec![1, 2, 3, 4, 5, 6].into()), 2..4);
        assert_eq!((packet.headroom(), packet.tailroom()), (0, 0));
        packet.unstrip(2);
        assert_eq!(packet.bytes(), [0, 0, 3, 4]);
        assert_eq!(packet.append(1)[..4], [0, 0, 3, 4]);
    }

    #[test]
    fn stripped_bytes_come_back() {
        let mut pool = PacketPool::default();
        let mut packet = pool.of_source(Rc::new(vec![1, 2, 3, 4].into()), 0..4);
        packet.set_network_header(1, 2);
        packet.strip(3);
        packet.unstrip(5);
        assert_eq!(packet.bytes(), [0, 0, 1, 2, 3, 4]);
        assert_eq!((packet.network_offset(), packet.transport_offset()), (Some(3), Some(5)));
        assert_eq!(packet.network_bytes(), Some(&[2, 3, 4][..]));
    }

    #[test]
    fn a_write_keeps_stripped_bytes_and_headers_in_them() {
        let mut pool = PacketPool::default();
        let mut packet = pool.of_source(Rc::new(vec![1, 2, 3, 4, 5, 6].into()), 1..6);
        packet.set_network_header(1, 1);
        packet.strip(3);
        packet.bytes_mut()[0] = 9;
        assert_eq!(packet.network_bytes(), Some(&[3, 4, 9, 6][..]));
        packet.network_bytes_mut().unwrap()[0] = 8;
        packet.unstrip(3);
        assert_eq!(packet.bytes(), [2, 8, 4, 9, 6]);
        let other = packet.duplicate();
        packet.strip(2);
        packet.network_bytes_mut().unwrap()[1] = 7;
        assert_eq!((packet.bytes(), other.bytes()), (&[7, 9, 6][..], &[2, 8, 4, 9, 6][..]));
        assert_eq!(packet.transport_bytes(), Some(&[7, 9, 6][..]));
    }

    #[test]
    fn only_bytes_that_were_stripped_are_known_before_the_start() {
        let mut pool = PacketPool::default();
        let mut old = pool.of_bytes(&[9; 40]);
        old.prepend(20).fill(9);
        pool.discard(old);
        for mut packet in
            [pool.of_bytes(&[1, 2, 3, 4]), pool.of_source(Rc::new(vec![1, 2, 3, 4].into()), 0..4)]
        {
            assert_eq!(packet.stripped(1), None);
            packet.strip(2);
            assert_eq!((packet.stripped(2), packet.stripped(3)), (Some(&[1, 2][..]), None));
            // A copy, first for a write and then for room.
            packet.bytes_mut()[0] = 7;
            packet.unstrip(80);
            packet.strip(80);
            assert_eq!((packet.stripped(2), packet.stripped(3)), (Some(&[1, 2][..]), None));
            packet.prepend(2).copy_from_slice(&[5, 6, 7, 4]);
            packet.prepend(1)[0] = 8;
            packet.strip(2);
            assert_eq!((packet.stripped(2), packet.stripped(3)), (Some(&[8, 5][..]), None));
        }
    }

    #[test]
    fn no_network_header_is_writable_where_none_is_known() {
        let mut packet = PacketPool::default().of_bytes(&[1, 2]);
        assert_eq!(packet.network_bytes_mut(), None);
        packet.set_network_header(2, 0);
        assert_eq!(packet.network_bytes_mut(), Some(&mut [][..]));
        packet.truncate_by(1);
        assert_eq!(packet.network_bytes_mut(), None);
    }

    #[test]
    fn a_reused_packet_has_nothing_of_the_earlier_one() {
        let mut pool = PacketPool::default();
        let mut packet = pool.of_bytes(&[1, 2]);
        packet.annotation_mut(PAINT)[0] = 3;
        packet.set_time(Timestamp(5));
        packet.set_network_header(0, 1);
        pool.discard(packet);
        let packet = pool.of_bytes(&[7]);
        assert_eq!((packet.bytes(), packet.annotations()), (&[7][..], &[0; ANNOTATION_BYTES]));
        assert_eq!((packet.time(), packet.network_bytes()), (Timestamp(0), None));
    }
}
