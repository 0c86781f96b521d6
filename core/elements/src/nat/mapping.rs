//! Mappings: the pairs of flows that rewriters turn into each other.

use super::flow_id::FlowId;
use super::stream_edits::StreamEdits;
use crate::ipv4::ChecksumChange;
use weir_units::{Nanos, Timestamp};

/// The state of a flow that its timeout depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowTracking {
    /// None: there is one timeout.
    Plain,
    /// The number of packets and their directions.
    Streaming,
    /// The data and the ends of a TCP connection.
    Tcp,
}

/// The timeouts of a rewriter. A mapping is guaranteed for a time after each packet; then it stays as long as there is
/// room, and at most for the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingTimeouts {
    /// The timeout of flows that are not tracked as TCP.
    pub plain: Nanos,
    /// The timeout of flows with at least three packets, and packets in both directions.
    pub streaming: Nanos,
    /// The guarantee of those.
    pub guarantee: Nanos,
    /// The timeout of TCP connections without data in one direction.
    pub tcp_no_data: Nanos,
    /// The timeout of TCP connections with data in both directions.
    pub tcp_data: Nanos,
    /// The timeout of TCP connections that have ended in both directions.
    pub tcp_done: Nanos,
    /// The guarantee of TCP connections.
    pub tcp_guarantee: Nanos,
}

impl MappingTimeouts {
    /// Returns the timeouts of a rewriter with one timeout and one guarantee.
    pub fn plain(timeout: Nanos, guarantee: Nanos) -> Self {
        Self {
            plain: timeout,
            streaming: timeout,
            guarantee,
            tcp_no_data: timeout,
            tcp_data: timeout,
            tcp_done: timeout,
            tcp_guarantee: guarantee,
        }
    }

    /// Returns the timeout of a flow and its guarantee.
    #[inline]
    pub fn of(&self, mapping: &FlowMapping) -> (Nanos, Nanos) {
        match mapping.tracking {
            FlowTracking::Plain => (self.plain, self.guarantee),
            FlowTracking::Streaming if mapping.state > STREAMING => (self.streaming, self.guarantee),
            FlowTracking::Streaming => (self.plain, self.guarantee),
            FlowTracking::Tcp if mapping.state & BOTH_DONE == BOTH_DONE => {
                (self.tcp_done, self.tcp_guarantee)
            }
            FlowTracking::Tcp if mapping.state & BOTH_DATA == BOTH_DATA => {
                (self.tcp_data, self.tcp_guarantee)
            }
            FlowTracking::Tcp => (self.tcp_no_data, self.tcp_guarantee),
        }
    }
}

/// The state of a streaming flow: twice the number of packets, up to this, and 1 for a reply.
const STREAMING: u8 = 6;
/// Bits of the state of a TCP connection, with the reply's bit above that of the forward direction.
const DONE: u8 = 1;
const BOTH_DONE: u8 = 3;
const DATA: u8 = 4;
const BOTH_DATA: u8 = 12;
/// Flags of TCP.
pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;

/// One direction of a mapping.
#[derive(Clone, Copy, Debug)]
pub struct MappingEnd {
    /// The packets of this direction, before they are rewritten.
    pub flow: FlowId,
    /// The map in which the flow is looked up.
    pub map: u32,
    /// The output of packets of this direction.
    pub output: u16,
    /// The next end of the same bucket.
    pub(super) next: u32,
}

impl MappingEnd {
    /// Returns an end that is in no bucket.
    pub fn new(flow: FlowId, map: u32, output: u16) -> Self {
        Self { flow, map, output, next: u32::MAX }
    }
}

/// A mapping.
#[derive(Debug)]
pub struct FlowMapping {
    /// The forward direction and that of replies.
    pub ends: [MappingEnd; 2],
    /// The change of the IP header, and that of the transport header with its pseudo-header, in the forward direction.
    pub changes: [ChecksumChange; 2],
    /// Packets stay as they are.
    pub is_identity: bool,
    /// The number of the rewriter in its table, and the input whose specification made the mapping.
    pub owner: u32,
    pub input: u16,
    pub protocol: u8,
    pub tracking: FlowTracking,
    pub(super) state: u8,
    /// The annotation that replies get.
    pub reply_annotation: u8,
    /// The mapping cannot be removed for another one.
    pub(super) is_guaranteed: bool,
    /// The mapping is in a table.
    pub(super) is_live: bool,
    /// The end of the guarantee, or else of the mapping.
    pub(super) expires: Timestamp,
    /// The place in the order of expiries: not later than the expiry.
    pub(super) queued: Timestamp,
    /// The edits of a TCP connection's streams, by their directions.
    pub edits: Option<Box<[StreamEdits; 2]>>,
}

impl FlowMapping {
    /// Returns a mapping that is in no table.
    pub fn new(ends: [MappingEnd; 2], owner: u32, input: u16, protocol: u8, tracking: FlowTracking) -> Self {
        let (old, new) = (ends[0].flow, ends[1].flow.reversed());
        let addresses = [(old.source, new.source), (old.destination, new.destination)];
        let ports = (old.ports(), new.ports());
        Self {
            ends,
            changes: [
                ChecksumChange::of(addresses),
                ChecksumChange::of(addresses.into_iter().chain([ports])),
            ],
            is_identity: old == new,
            owner,
            input,
            protocol,
            tracking,
            state: 0,
            reply_annotation: 0,
            is_guaranteed: false,
            is_live: false,
            expires: Timestamp(0),
            queued: Timestamp(0),
            edits: None,
        }
    }

    /// Returns the addresses and ports that packets of a direction get.
    #[inline]
    pub fn rewritten(&self, is_reply: bool) -> FlowId {
        self.ends[usize::from(!is_reply)].flow.reversed()
    }

    /// Counts a packet of a flow that is tracked by packets.
    #[inline]
    pub fn count_packet(&mut self, is_reply: bool) {
        self.state |= u8::from(is_reply);
        if self.state < STREAMING {
            self.state += 2;
        }
    }

    /// Takes note of the flags and the data of a TCP segment.
    #[inline]
    pub fn note_segment(&mut self, is_reply: bool, flags: u8, has_data: bool) {
        if flags & SYN != 0 && self.state & BOTH_DONE == BOTH_DONE {
            // A new connection has other sequence numbers.
            self.edits = None;
        }
        let shift = u8::from(is_reply);
        if flags & RST != 0 {
            self.state |= BOTH_DONE;
        } else if flags & FIN != 0 {
            self.state |= DONE << shift;
        } else if flags & SYN != 0 || has_data {
            self.state &= !(DONE << shift);
        }
        if has_data {
            self.state |= DATA << shift;
        }
    }

    /// Returns the edits of the streams, new ones if there are none.
    pub fn edits_mut(&mut self) -> &mut [StreamEdits; 2] {
        self.edits.get_or_insert_default()
    }

    /// Returns the changes of checksums for a direction.
    #[inline]
    pub fn changes_of(&self, is_reply: bool) -> [ChecksumChange; 2] {
        if is_reply { self.changes.map(ChecksumChange::reversed) } else { self.changes }
    }
}
