//! Events of TCP streams, which `weir_stream` gets.

/// An event of a TCP stream: 128 bytes, little-endian, naturally aligned. The host writes it before the call, at
/// [`STREAMS_BASE`](crate::STREAMS_BASE).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct TcpStreamEvent {
    /// Packet time of the event, in ns since 1970.
    pub ts_ns: u64,
    /// Guest address of the bytes.
    pub data: u32,
    /// The number of bytes; 0 for all kinds but [`kind::BYTES`].
    pub len: u32,
    /// Missing bytes of a gap, or differing bytes of a conflict.
    pub missing: u32,
    /// Number of the stream, from 0; no other stream has it between the first event and the last.
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
    /// The tunnel of the first packet, a number of [`tunnel`](crate::tunnel); 0 where the manifest chooses the
    /// outermost layer.
    pub tunnel: u8,
    /// 4 or 6.
    pub ip_version: u8,
    /// Tag control information of the outermost VLAN tag of the first packet; 0 without a tag.
    pub vlan_tci: u16,
    /// Reserved: zeros.
    pub spare: [u32; 9],
}

/// The size of an event in bytes.
pub const EVENT_BYTES: usize = size_of::<TcpStreamEvent>();
const _: () = assert!(EVENT_BYTES == 128);

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

/// Results of `weir_stream`.
pub mod reply {
    /// Nothing changes.
    pub const CONTINUE: i32 = 0;
    /// The packet that caused the event is dropped.
    pub const DROP: i32 = 1;
    /// No more bytes, gaps and conflicts of this direction.
    pub const SKIP: i32 = 2;
    /// No more events of this stream.
    pub const IGNORE: i32 = 4;
}
