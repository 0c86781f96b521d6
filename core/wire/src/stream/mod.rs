//! TCP streams: the bytes of a connection in order (RFC 9293, 3.4 and 3.10.7), with bounded memory.
//!
//! [`TcpSegment::read`] finds the TCP segment in a packet. [`TcpStreams`] takes segments and gives [`TcpEvent`]s: bytes,
//! gaps, the end of a direction, and the end of the stream. Bytes that arrive in order are not copied: the event names
//! their place in the packet.
//!
//! All memory is allocated when [`TcpStreams`] is made: a table of streams in sets, and an allowance for bytes that
//! wait for earlier ones. A stream's set follows from the upper bits of its flow hash, and so does the part of the
//! allowance that it uses. So instances that share the flows by those bits give the same events as a single one.

mod connection;
mod delivery;
mod pending;
mod policy;
mod segment;
mod streams;

pub use policy::OverlapPolicy;
pub use policy::UnknownOverlapPolicy;
pub use segment::{NoSegment, StreamLayer, TcpSegment};
pub use streams::{ReadPayload, StreamKey, TcpStreams};

pub(crate) use weir_abi::stream::state;
use weir_units::{Bytes, Nanos};

/// The least number of streams of a table.
pub const TCP_STREAMS_MIN: u32 = 256;
/// The largest number of streams of a table.
pub const TCP_STREAMS_MAX: u32 = 1 << 22;
/// The most bytes of one event. Longer runs of waiting bytes are given in parts.
pub const TCP_EVENT_BYTES_MAX: usize = 64 * 1024;

/// The configuration of [`TcpStreams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpStreamConfig {
    /// The number of streams at a time; rounded up to a power of two.
    pub streams: u32,
    /// The memory for bytes that wait for earlier ones.
    pub buffer: Bytes,
    /// The number of bytes of each direction that are given; `None` for all.
    pub first: Option<u64>,
    /// The time after which a stream without packets ends.
    pub idle: Nanos,
    /// The choice between different bytes at the same place.
    pub overlap: OverlapPolicy,
    /// True if segments with other bytes than earlier ones cause an event.
    pub conflicts: bool,
}

impl TcpStreamConfig {
    /// Returns the number of streams that the table holds: a power of two.
    pub fn capacity(&self) -> u32 {
        self.streams.clamp(TCP_STREAMS_MIN, TCP_STREAMS_MAX).next_power_of_two()
    }

    /// Returns the memory that the streams take at most.
    pub fn memory(&self) -> Bytes {
        let table = u64::from(self.capacity()).saturating_mul(streams::bytes_of_stream(self.conflicts));
        Bytes(table.saturating_add(self.buffer.0))
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEventKind {
    /// The first event of a stream.
    Open,
    /// The next bytes of a direction.
    Bytes,
    /// Bytes of a direction that are missing.
    Gap,
    /// The end of a direction.
    Fin,
    /// A segment with other bytes than an earlier one at the same place.
    Conflict,
    /// The last event of a stream.
    End,
}

/// The cause of the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEndCause {
    /// Both directions have ended.
    Fin,
    /// A reset.
    Reset,
    /// No packet for the configured time.
    Timeout,
    /// Another stream needed the place.
    Evicted,
    /// No more packets follow.
    Stop,
    /// A new connection has the same addresses and ports.
    Reused,
}

/// The bytes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpEventBytes<'a> {
    /// None.
    None,
    /// Bytes of the packet that was given last, by their offset in the packet's payload.
    InPacket {
        /// The offset of the first byte.
        from: u32,
        /// The number of bytes.
        len: u32,
    },
    /// Bytes of earlier packets.
    Waiting(&'a [u8]),
}

/// The addresses and ports of a stream, and facts that do not change with each packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpEndpoints {
    /// The address of the client, as two big-endian halves; IPv4 as ::ffff:a.b.c.d.
    pub client: [u64; 2],
    /// The address of the server, in the same form.
    pub server: [u64; 2],
    /// The client's port.
    pub client_port: u16,
    /// The server's port.
    pub server_port: u16,
    /// The outermost VLAN tag of the first packet; 0 without a tag.
    pub vlan_tci: u16,
    /// The tunnel of the first packet, as in descriptors; 0 for none, or if streams are those of the outermost layer.
    pub tunnel: u8,
    /// True for IPv6.
    pub is_v6: bool,
    /// The time of the first packet, in ns.
    pub first_ns: u64,
    /// The flow hash.
    pub flow_hash: u64,
}

/// An event of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpEvent<'a> {
    /// The kind.
    pub kind: TcpEventKind,
    /// The number of the stream: less than the configured number of streams.
    pub stream: u32,
    /// True for the direction from the server to the client.
    pub from_server: bool,
    /// The time of the event, in ns.
    pub ts_ns: u64,
    /// The number of bytes of this direction before the event, missing ones included.
    pub offset: u64,
    /// The number of missing or different bytes, for a gap or a conflict.
    pub missing: u32,
    /// The cause, for the end of a stream.
    pub cause: Option<TcpEndCause>,
    /// The bytes.
    pub bytes: TcpEventBytes<'a>,
    /// The addresses and ports.
    pub endpoints: TcpEndpoints,
    /// Bits of [`state`](weir_abi::stream::state).
    pub state: u8,
}

/// The reply to an event: what the caller wants no more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpReply {
    /// No more bytes, gaps and conflicts of the event's direction.
    pub skip: bool,
    /// No more events of the stream.
    pub ignore: bool,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of [`TcpStreams`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct TcpStreamCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl TcpStreamCounters {
            /// Returns the names and values of all counters.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }

            /// Adds the counters of another table.
            pub fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }
        }
    };
}

counters! {
    /// Streams that began.
    opened,
    /// Streams that were evicted for lack of space in the table.
    evicted,
    /// Streams that ended without a packet for the configured time.
    timed_out,
    /// Bytes that are missing between others.
    missing_bytes,
    /// Segments that arrived before earlier bytes.
    out_of_order,
    /// Segments whose bytes had arrived before.
    retransmitted,
    /// Bytes that differ from earlier ones at the same place.
    conflicting_bytes,
    /// Segments outside of the receiver's window.
    out_of_window,
    /// Resets outside of the window.
    ignored_resets,
    /// Segments in fragments of datagrams, which are not reassembled here.
    fragments,
    /// Segments with a wrong checksum.
    bad_checksum,
    /// Runs of waiting bytes that were given up because the memory for them was full.
    no_memory,
    /// Segments without bytes that belong to no stream.
    no_stream,
}
