//! The state of one stream and of its two directions.

use super::TcpEndpoints;
use super::pending::Pending;

/// One direction of a stream.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct StreamDirection {
    /// The number of bytes that were given or are missing: the offset of the next byte.
    pub(super) offset: u64,
    /// The sequence number of the next byte; valid if `is_known`.
    pub(super) next: u32,
    /// The sequence number behind the last byte that the receiver has room for; valid if `has_edge`.
    pub(super) edge: u32,
    /// The sequence number of the FIN; valid if `has_fin`.
    pub(super) fin: u32,
    /// The bytes that wait for earlier ones.
    pub(super) pending: Option<Box<Pending>>,
    /// True once a sequence number of this direction is known.
    pub(super) is_known: bool,
    pub(super) has_edge: bool,
    pub(super) has_fin: bool,
    /// True once the end of the direction was given.
    pub(super) has_ended: bool,
    /// True if no more bytes are wanted.
    pub(super) is_skipped: bool,
    /// True once a packet of this direction was seen.
    pub(super) is_seen: bool,
    /// The shift of the windows that this direction's sender announces; `None` until both SYNs were seen.
    pub(super) scale: Option<u8>,
}

impl StreamDirection {
    /// Returns the distance from the next byte to a sequence number; negative before it.
    pub(super) fn distance(&self, seq: u32) -> i64 {
        i64::from(seq.wrapping_sub(self.next).cast_signed())
    }

    /// Returns the offset in the direction of a sequence number at this distance.
    pub(super) fn offset_at(&self, distance: i64) -> u64 {
        self.offset.saturating_add_signed(distance)
    }

    /// Moves on by some bytes.
    pub(super) fn advance(&mut self, bytes: u64) {
        self.offset = self.offset.saturating_add(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
        let low = bytes as u32;
        self.next = self.next.wrapping_add(low);
    }

    /// Returns the number of bytes from the next byte to the receiver's edge, if it is known.
    pub(super) fn room(&self) -> Option<i64> {
        self.has_edge.then(|| self.distance(self.edge))
    }
}

/// The classes of streams, by which the place for a new stream is chosen: a stream of a lower class is evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rank {
    /// The stream has ended. Its place is kept for packets that come late.
    Closed,
    /// The handshake is not complete, and no bytes were seen.
    HalfOpen,
    /// No event of the stream is wanted.
    Ignored,
    /// Any other stream.
    Active,
}

/// One stream. Its first cache line is all that packets of ignored streams need.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct StreamState {
    pub(super) endpoints: TcpEndpoints,
    /// Bits of [`state`](super::state).
    pub(super) state: u8,
    /// True once the first event was given.
    pub(super) is_open: bool,
    pub(super) is_ignored: bool,
    pub(super) is_closed: bool,
    /// True once bytes of either direction were seen.
    pub(super) has_bytes: bool,
    pub(super) has_candidate: bool,
    /// The sequence number of a SYN that may open a new connection; valid if `has_candidate`.
    pub(super) candidate: u32,
    /// The direction from the client, and the one from the server.
    pub(super) directions: [StreamDirection; 2],
}

const _: () = assert!(std::mem::offset_of!(StreamState, candidate) <= 64 && size_of::<StreamState>() <= 192);

impl StreamState {
    /// Returns the class of the stream.
    pub(super) fn rank(&self) -> Rank {
        let is_half_open = !self.has_bytes && self.state & super::state::TWO_SIDED == 0;
        match () {
            () if self.is_closed => Rank::Closed,
            () if self.is_ignored => Rank::Ignored,
            () if is_half_open => Rank::HalfOpen,
            () => Rank::Active,
        }
    }

    /// Returns the direction with this index, 0 from the client and any other from the server.
    pub(super) fn direction(&mut self, index: usize) -> &mut StreamDirection {
        let [client, server] = &mut self.directions;
        if index == 0 { client } else { server }
    }
}
