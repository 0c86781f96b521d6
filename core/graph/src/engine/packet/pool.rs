//! Making and discarding packets.

use super::{
    ANNOTATION_BYTES, GraphPacket, HEADROOM, NOT_SET, PacketType, SourceBlock, State, Storage, narrow,
};
use std::ops::Range;
use std::rc::Rc;
use weir_units::Timestamp;

#[cold]
fn new_state() -> Box<State> {
    Box::new(State {
        storage: Storage::Own,
        own: None,
        start: 0,
        end: 0,
        network_header: NOT_SET,
        transport_header: NOT_SET,
        annotations: [0; ANNOTATION_BYTES],
        device: 0,
        packet_type: PacketType::Host,
        turns: 0,
        link_header: NOT_SET,
        room: 0..0,
        known_from: 0,
        time: Timestamp(0),
    })
}

/// Packets that were discarded, for reuse: states, each with its buffer.
#[derive(Default)]
pub struct PacketPool {
    free: Vec<GraphPacket>,
}

/// The most discarded packets that are kept for reuse.
const FREE_MAX: usize = 1024;

impl PacketPool {
    #[inline]
    pub(super) fn state(&mut self) -> Box<State> {
        let mut state = match self.free.pop() {
            Some(packet) => packet.0,
            None => new_state(),
        };
        state.link_header = NOT_SET;
        state.network_header = NOT_SET;
        state.transport_header = NOT_SET;
        state.time = Timestamp(0);
        state.annotations = [0; ANNOTATION_BYTES];
        state.device = 0;
        state.packet_type = PacketType::Host;
        state
    }

    /// Returns a packet whose bytes are a range of a source's.
    ///
    /// # Panics
    ///
    /// Panics if the range is not within the first 4 GiB of the source.
    #[inline]
    pub fn of_source(&mut self, source: Rc<SourceBlock>, range: Range<usize>) -> GraphPacket {
        let mut state = self.state();
        let (start, end) = (narrow(range.start), narrow(range.end));
        state.room = start..end;
        (state.start, state.known_from, state.end) = (start, start, end);
        state.storage = Storage::Source(source);
        GraphPacket(state)
    }

    /// Returns a packet with a copy of these bytes, behind [`HEADROOM`].
    pub fn of_bytes(&mut self, bytes: &[u8]) -> GraphPacket {
        let mut packet = self.of_length(bytes.len(), HEADROOM);
        packet.bytes_mut().copy_from_slice(bytes);
        packet
    }

    /// Returns a packet of this length behind this headroom, whose bytes have any values.
    pub fn of_length(&mut self, length: usize, headroom: usize) -> GraphPacket {
        let mut state = self.state();
        let needed = headroom + length;
        state.take_buffer(needed);
        state.start = narrow(headroom);
        state.known_from = state.start;
        state.end = narrow(needed);
        GraphPacket(state)
    }

    /// Discards a packet.
    #[inline]
    pub fn discard(&mut self, mut packet: GraphPacket) {
        match &packet.0.storage {
            Storage::Own => {}
            Storage::Source(_) => packet.0.storage = Storage::Own,
            Storage::Shared(_) => packet.take_back_shared(),
        }
        if self.free.len() < FREE_MAX {
            self.free.push(packet);
        }
    }
}
