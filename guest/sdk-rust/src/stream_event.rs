//! The fields of the events of TCP streams, their constants, and the replies to them.

use core::ops::BitOr;

/// The fields of an event: 128 bytes, little-endian, naturally aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct StreamEventFields {
    /// Packet time of the event, in ns since 1970.
    pub ts_ns: u64,
    /// Guest address of the bytes: [`StreamEvent::bytes`](crate::StreamEvent::bytes) gives the bytes.
    pub data: u32,
    /// The number of bytes; 0 for all kinds but [`kind::BYTES`].
    pub len: u32,
    /// Missing bytes of a gap, or differing bytes of a conflict.
    pub missing: u32,
    /// Number of the stream, from 0, below the manifest's `streams`.
    pub stream: u32,
    /// Hash of the flow, as in descriptors, of the layer that the manifest chooses.
    pub flow_hash: u64,
    /// Bytes of this direction before the event, missing ones included.
    pub offset: u64,
    /// Time of the stream's first packet, in ns since 1970.
    pub first_ns: u64,
    /// Address of the client; IPv4 as `::ffff:a.b.c.d`.
    pub client: [u8; 16],
    /// Address of the server.
    pub server: [u8; 16],
    /// Port of the client.
    pub client_port: u16,
    /// Port of the server.
    pub server_port: u16,
    /// A number of [`kind`].
    pub kind: u8,
    /// 0 from the client, 1 from the server; 0 for [`kind::OPEN`] and [`kind::END`].
    pub direction: u8,
    /// A number of [`cause`], for [`kind::END`]; else 0.
    pub cause: u8,
    /// Bits of [`state`].
    pub state: u8,
    /// The tunnel of the first packet, a number of [`tunnel`](crate::tunnel).
    pub tunnel: u8,
    /// 4 or 6.
    pub ip_version: u8,
    /// Tag control information of the outermost VLAN tag of the first packet; 0 without a tag.
    pub vlan_tci: u16,
    /// Zeros.
    pub spare: [u32; 9],
}

/// Kinds of events.
pub mod kind {
    /// The first event of a stream, just before the first of another kind.
    pub const OPEN: u8 = 1;
    /// The next bytes of a direction, in order.
    pub const BYTES: u8 = 2;
    /// Bytes of a direction that were not captured, or that the view hides.
    pub const GAP: u8 = 3;
    /// The end of a direction: its FIN, after all bytes.
    pub const FIN: u8 = 4;
    /// A segment with other bytes than an earlier one at the same place.
    pub const CONFLICT: u8 = 5;
    /// The last event of a stream.
    pub const END: u8 = 6;
}

/// Causes of the end of a stream.
pub mod cause {
    /// Both directions have ended.
    pub const FIN: u8 = 1;
    /// A reset.
    pub const RST: u8 = 2;
    /// No packet for the time that the manifest states.
    pub const TIMEOUT: u8 = 3;
    /// Another stream needed the place.
    pub const EVICTED: u8 = 4;
    /// The module stops.
    pub const STOP: u8 = 5;
    /// A new connection has the same addresses and ports.
    pub const REUSED: u8 = 6;
}

/// Facts about a stream.
pub mod state {
    /// The client's SYN was seen.
    pub const SYN: u8 = 1;
    /// The server's SYN was seen.
    pub const SYN_ACK: u8 = 2;
    /// Packets of both directions were seen.
    pub const TWO_SIDED: u8 = 4;
}

/// The reply to an event. Replies are combined with `|`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamReply(i32);

impl StreamReply {
    /// Nothing changes.
    pub const CONTINUE: Self = Self(0);
    /// The packet that caused the event is dropped.
    pub const DROP: Self = Self(1);
    /// No more bytes, gaps and conflicts of this direction.
    pub const SKIP: Self = Self(2);
    /// No more events of this stream.
    pub const IGNORE: Self = Self(4);
}

impl BitOr for StreamReply {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl From<StreamReply> for i32 {
    fn from(reply: StreamReply) -> Self {
        reply.0
    }
}
