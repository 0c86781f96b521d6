//! Packets on their way to another thread.
//!
//! The buffers of packets belong to one thread. So the bytes of a batch are copied once, into one buffer that moves to
//! the other thread. The packets there refer to parts of it, as to those of any source. A packet that had a buffer of its
//! own gets one again, from the pool of the other thread, since elements are likely to write to it further.

use super::{
    ANNOTATION_BYTES, BUFFER_BYTES, GraphPacket, NOT_SET, PacketPool, PacketType, SourceBlock, Storage,
    narrow,
};
use std::collections::VecDeque;
use std::ops::Range;
use std::rc::Rc;
use weir_units::Timestamp;

/// The alignment of storage. A packet keeps its position's remainder.
const ALIGNMENT: usize = 8;

/// The bytes from which on a buffer takes no further packet. It lives as long as one of its packets.
const SENT_BYTES_MAX: usize = 32 << 10;

/// Everything about a packet but its bytes. Positions count from the start of the common buffer.
#[derive(Clone, Debug)]
struct TransferredHead {
    room: Range<u32>,
    known_from: u32,
    start: u32,
    link_header: u32,
    network_header: u32,
    transport_header: u32,
    time: Timestamp,
    annotations: [u8; ANNOTATION_BYTES],
    device: u16,
    packet_type: PacketType,
    /// The packet had a buffer, and can have one of ordinary length again.
    has_buffer: bool,
}

/// Packets that can move to another thread, with their bytes in one buffer.
#[derive(Clone, Debug, Default)]
pub struct TransferredPackets {
    bytes: Vec<u8>,
    heads: VecDeque<TransferredHead>,
}

impl TransferredPackets {
    /// Adds a copy of a packet, with the bytes that were stripped from its start.
    pub fn add(&mut self, packet: &GraphPacket) {
        let state = &*packet.0;
        let (first, end) = (state.room.start as usize, state.end as usize);
        let gap = first.wrapping_sub(self.bytes.len()) % ALIGNMENT;
        self.bytes.resize(self.bytes.len() + gap, 0);
        let begin = narrow(self.bytes.len());
        self.bytes.extend_from_slice(state.stored().get(first..end).unwrap_or_default());
        let moved = |position: u32| match position {
            NOT_SET => NOT_SET,
            // A header behind the end, of a packet that was cut, stays behind it.
            _ => position.checked_sub(state.room.start).map_or(NOT_SET, |offset| begin + offset),
        };
        self.heads.push_back(TransferredHead {
            room: begin..narrow(self.bytes.len()),
            known_from: moved(state.known_from),
            start: moved(state.start),
            link_header: moved(state.link_header),
            network_header: moved(state.network_header),
            transport_header: moved(state.transport_header),
            time: state.time,
            annotations: state.annotations,
            device: state.device,
            packet_type: state.packet_type,
            has_buffer: !matches!(state.storage, Storage::Source(_)) && end - first <= BUFFER_BYTES,
        });
    }

    /// Returns the number of packets.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns true if there is no packet.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Returns true if further packets belong into another buffer.
    pub fn is_full(&self) -> bool {
        self.bytes.len() >= SENT_BYTES_MAX
    }

    /// Removes the last packet. Returns false if there is none.
    pub fn drop_last(&mut self) -> bool {
        self.heads.pop_back().is_some()
    }
}

/// Packets that came from another thread, and are taken one by one.
#[derive(Default)]
pub struct ArrivedPackets {
    source: Option<Rc<SourceBlock>>,
    heads: VecDeque<TransferredHead>,
}

impl ArrivedPackets {
    /// Returns the packets that were sent.
    pub fn of(sent: TransferredPackets) -> Self {
        Self { source: Some(Rc::new(SourceBlock::from(sent.bytes))), heads: sent.heads }
    }

    /// Returns the number of packets that are left.
    pub fn len(&self) -> usize {
        self.heads.len()
    }

    /// Returns true if no packet is left.
    pub fn is_empty(&self) -> bool {
        self.heads.is_empty()
    }

    /// Removes the last packet. Returns false if there is none.
    pub fn drop_last(&mut self) -> bool {
        self.heads.pop_back().is_some()
    }

    /// Removes and returns the first packet.
    pub fn next(&mut self, pool: &mut PacketPool) -> Option<GraphPacket> {
        let head = self.heads.pop_front()?;
        let source = if self.heads.is_empty() { self.source.take() } else { self.source.clone() };
        let source = source?;
        // The room of a buffer begins at its first byte.
        let (mut state, first) = if head.has_buffer {
            let bytes =
                source.bytes().get(head.room.start as usize..head.room.end as usize).unwrap_or_default();
            let mut packet = pool.of_length(bytes.len(), 0);
            packet.bytes_mut().copy_from_slice(bytes);
            (packet.0, head.room.start)
        } else {
            let mut state = pool.state();
            state.storage = Storage::Source(source);
            state.end = head.room.end;
            state.room = head.room;
            (state, 0)
        };
        let moved = |position: u32| if position == NOT_SET { NOT_SET } else { position - first };
        state.start = moved(head.start);
        state.known_from = moved(head.known_from);
        state.link_header = moved(head.link_header);
        state.network_header = moved(head.network_header);
        state.transport_header = moved(head.transport_header);
        state.time = head.time;
        state.annotations = head.annotations;
        state.device = head.device;
        state.packet_type = head.packet_type;
        Some(GraphPacket(state))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotations::PAINT;

    /// Returns everything that an element can see of a packet.
    fn seen(packet: &mut GraphPacket) -> impl PartialEq + std::fmt::Debug + use<> {
        let headers = [packet.link_bytes(), packet.network_bytes(), packet.transport_bytes()]
            .map(|it| it.map(<[u8]>::to_vec));
        let offsets = (packet.network_offset(), packet.transport_offset(), packet.position() % ALIGNMENT);
        let other = (packet.time(), packet.device(), packet.packet_type(), *packet.annotations());
        let known = packet.stripped(1).map(<[u8]>::to_vec);
        let stripped = packet.headroom();
        let bytes = packet.bytes().to_vec();
        packet.unstrip(stripped);
        (headers, offsets, other, known, bytes, packet.bytes().to_vec())
    }

    #[test]
    fn a_packet_is_the_same_on_the_other_side() {
        let mut pool = PacketPool::default();
        let source = Rc::new(SourceBlock::from((0..100).collect::<Vec<u8>>()));
        let mut all = Vec::new();
        for index in 0..40 {
            let mut packet = if index % 2 == 0 {
                pool.of_source(Rc::clone(&source), index..index + 50)
            } else {
                pool.of_bytes(&[7; 50][..index + 5])
            };
            packet.annotation_mut(PAINT)[0] = 3;
            packet.set_time(Timestamp(index as u64));
            packet.set_device(4);
            packet.set_packet_type(PacketType::Outgoing);
            packet.set_link_header(0);
            if index % 3 > 0 {
                packet.set_network_header(2, 20);
            }
            packet.strip(index % 4);
            // The transport header can be behind the end then.
            packet.truncate_by(if index % 5 == 0 { packet.len() - 1 } else { 0 });
            all.push(packet);
        }
        let mut sent = TransferredPackets::default();
        all.iter().for_each(|packet| sent.add(packet));
        assert_eq!(sent.len(), all.len());
        let mut received = ArrivedPackets::of(sent);
        for (index, mut packet) in all.into_iter().enumerate() {
            let mut other = received.next(&mut pool).unwrap();
            assert_eq!(seen(&mut other), seen(&mut packet), "packet {index}");
            pool.discard(packet);
        }
        assert!(received.next(&mut pool).is_none());
    }

    #[test]
    fn writes_to_received_packets_are_not_seen_in_others() {
        let mut pool = PacketPool::default();
        let mut sent = TransferredPackets::default();
        for byte in 1..4 {
            sent.add(&pool.of_bytes(&[byte; 3]));
        }
        assert!(sent.drop_last());
        let mut received = ArrivedPackets::of(sent);
        let mut first = received.next(&mut pool).unwrap();
        let last = received.next(&mut pool).unwrap();
        first.append(2);
        first.bytes_mut()[..3].fill(9);
        assert_eq!((&first.bytes()[..3], last.bytes()), (&[9; 3][..], &[2; 3][..]));
        let mut sent = TransferredPackets::default();
        let source = Rc::new(SourceBlock::from(vec![1, 2, 3, 4]));
        sent.add(&pool.of_source(Rc::clone(&source), 0..3));
        sent.add(&pool.of_source(source, 1..4));
        let mut received = ArrivedPackets::of(sent);
        let mut first = received.next(&mut pool).unwrap();
        let last = received.next(&mut pool).unwrap();
        first.bytes_mut().fill(9);
        assert_eq!((first.bytes(), last.bytes()), (&[9; 3][..], &[2, 3, 4][..]));
        assert!(received.is_empty() && !received.drop_last());
    }
}
