//! The table of streams, and the rules by which a segment changes a stream.

use super::connection::{Rank, StreamDirection, StreamState};
use super::delivery::PARTS;
use super::segment::{NoSegment, tcp};
use super::{
    TCP_EVENT_BYTES_MAX, TcpEndCause, TcpEndpoints, TcpEvent, TcpEventBytes, TcpEventKind, TcpReply,
    TcpSegment, TcpStreamConfig, TcpStreamCounters, state,
};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use weir_units::{Bytes, Nanos, Timestamp};

/// The number of streams of a set.
const WAYS: usize = 8;
/// The number of sweeps after which every set has been searched for streams that are over.
const SWEEPS: usize = 64;
/// The time between two sweeps.
pub(super) const SWEEP_PERIOD: Nanos = Nanos::SECOND;
/// The time for which bytes wait for earlier ones.
const HOLE_TIME: Nanos = Nanos(10 * Nanos::SECOND.0);
/// The number of segments of a direction whose bytes are remembered by their hash.
pub(super) const REMEMBERED: usize = 4;

/// Returns the memory that a stream takes in the table.
pub(super) const fn bytes_of_stream(conflicts: bool) -> u64 {
    let remembered = if conflicts { size_of::<[Remembered; 2]>() } else { 0 };
    (size_of::<StreamState>() + 2 * size_of::<u64>() + remembered) as u64
}

/// The key by which a table finds a stream. It is not 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamKey(u64);

/// A set of streams: keys and ranks together, so that a packet reads few cache lines.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
struct StreamSet {
    /// The [key](TcpStreams::key_of) of each stream; 0 for a free place.
    keys: [u64; WAYS],
    /// The class of each stream, above the time of its last packet in ns. The least one is evicted first.
    ranks: [u64; WAYS],
}

impl StreamSet {
    /// Returns the places of streams with this key, as bits. The function has no branches: they could not be predicted.
    #[inline(always)]
    fn ways_of(&self, StreamKey(key): StreamKey) -> u32 {
        self.keys.iter().rev().fold(0, |ways, known| ways << 1 | u32::from(*known == key))
    }
}

/// The number of bits of the time in a rank.
const RANK_SHIFT: u32 = 62;

/// Returns the rank of a stream of this class and time.
const fn rank_of(class: Rank, ts_ns: u64) -> u64 {
    (class as u64) << RANK_SHIFT | (ts_ns & ((1 << RANK_SHIFT) - 1))
}

/// Hashes of the last segments of a direction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Remembered {
    pub(super) segments: [(u32, u32, u32); REMEMBERED],
    pub(super) next: u8,
}

/// An event that was not given yet.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) slot: u32,
    pub(super) kind: TcpEventKind,
    pub(super) direction: u8,
    /// True if the stream has left its place: its endpoints are in `departed`.
    pub(super) is_departed: bool,
    pub(super) cause: Option<TcpEndCause>,
    /// Missing or different bytes.
    pub(super) missing: u32,
    pub(super) offset: u64,
    pub(super) bytes: QueuedBytes,
}

#[derive(Debug)]
pub(super) enum QueuedBytes {
    None,
    InPacket { from: u32, len: u32 },
    Waiting { bytes: Vec<u8>, from: usize },
}

/// A walk over all sets, or over some of them, that ends streams.
#[derive(Clone, Copy, Debug)]
struct Walk {
    next_set: usize,
    end_set: usize,
    now: u64,
    cause: TcpEndCause,
}

/// TCP streams with bounded memory. [`push`](Self::push) takes a segment, after which [`next`](Self::next) gives its
/// events, until there is none.
#[derive(Debug)]
pub struct TcpStreams {
    pub(super) config: TcpStreamConfig,
    sets: Vec<StreamSet>,
    pub(super) connections: Vec<StreamState>,
    /// For each stream and direction, if conflicts are reported.
    pub(super) remembered: Vec<[Remembered; 2]>,
    /// The secret of the streams' keys.
    secret: RandomState,
    /// The number of bits by which a flow hash is shifted to give a set.
    shift: u32,
    /// The memory used in each part for waiting bytes.
    pub(super) used: [u64; PARTS],
    /// The streams with waiting bytes of each part, the oldest first. An entry can be outdated.
    pub(super) holders: Vec<VecDeque<u32>>,
    pub(super) queue: VecDeque<Queued>,
    /// The event that was given last: its stream, direction, and whether it has left its place.
    given: Option<(u32, u8, bool)>,
    /// The endpoints and state of the stream that made room for another one.
    departed: (TcpEndpoints, u8),
    walk: Option<Walk>,
    /// The part of the sets of the next sweep.
    next_sweep: usize,
    pub(super) now: u64,
    pub(super) counters: TcpStreamCounters,
    /// The buffer of the waiting bytes that were given last.
    pub(super) lent: Vec<u8>,
}

/// The source of a segment's bytes: copies captured bytes of the data, from an offset on, to the end of a buffer.
pub type ReadPayload<'a> = &'a mut dyn FnMut(u32, u32, &mut Vec<u8>);

impl TcpStreams {
    /// The number of parts of the stop.
    pub const STOP_PARTS: u8 = 64;

    /// Makes an empty table. All of its memory but that of waiting bytes is allocated here.
    pub fn new(config: TcpStreamConfig) -> Self {
        let capacity = config.capacity() as usize;
        let sets = capacity / WAYS;
        let mut connections = Vec::new();
        connections.resize_with(capacity, StreamState::default);
        Self {
            config,
            sets: vec![StreamSet::default(); sets],
            connections,
            remembered: if config.conflicts { vec![Default::default(); capacity] } else { Vec::new() },
            secret: RandomState::new(),
            shift: u64::BITS - sets.trailing_zeros(),
            used: [0; PARTS],
            holders: vec![VecDeque::new(); PARTS],
            queue: VecDeque::new(),
            given: None,
            departed: (TcpEndpoints::default(), 0),
            walk: None,
            next_sweep: 0,
            now: 0,
            counters: TcpStreamCounters::default(),
            lent: Vec::new(),
        }
    }

    /// Returns the counters so far.
    pub fn counters(&self) -> TcpStreamCounters {
        self.counters
    }

    /// Returns the memory of the bytes that wait for earlier ones.
    pub fn waiting(&self) -> Bytes {
        Bytes(self.used.iter().sum())
    }

    /// Returns the period of [`sweep`](Self::sweep).
    pub const fn sweep_period() -> Nanos {
        SWEEP_PERIOD
    }

    /// Counts a TCP packet without a segment that can be used.
    pub fn count_unusable(&mut self, reason: NoSegment) {
        self.begin_packet();
        self.counters.fragments += u64::from(reason == NoSegment::Fragment);
    }

    /// Counts a segment that is left out because its checksum is wrong.
    pub fn count_bad_checksum(&mut self) {
        self.begin_packet();
        self.counters.bad_checksum += 1;
    }

    /// Returns true if no event is left.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.walk.is_none()
    }

    /// Returns a field of each cache line of the set of a packet's stream, for prefetching.
    #[inline(always)]
    pub fn set_lines(&self, flow_hash: u64) -> Option<[&u64; 2]> {
        let StreamSet { keys: [key, ..], ranks: [rank, ..] } = self.sets.get(self.set_of(flow_hash))?;
        Some([key, rank])
    }

    /// Returns a field of the first cache line of a stream's state, for prefetching after its set.
    #[inline(always)]
    pub fn stream_line(&self, key: StreamKey, flow_hash: u64) -> Option<&u64> {
        let index = self.set_of(flow_hash);
        let way = self.sets.get(index)?.ways_of(key).trailing_zeros() as usize;
        let slot = (way < WAYS).then_some(index * WAYS + way)?;
        Some(&self.connections.get(slot)?.endpoints.first_ns)
    }

    /// Returns the number of the set of a packet's stream. Packets of different sets do not change each other's streams.
    #[inline(always)]
    pub fn set_of(&self, flow_hash: u64) -> usize {
        usize::try_from(flow_hash >> self.shift).unwrap_or(0)
    }

    /// Begins a packet: discards the events that were not given, which belong to an earlier packet whose call was lost, or
    /// to a walk that was aborted. The next walk finds its streams.
    #[inline]
    fn begin_packet(&mut self) {
        if !self.queue.is_empty() {
            self.queue.clear();
        }
        self.given = None;
        self.walk = None;
    }

    /// Returns the key of a segment's stream, which is the same for both directions.
    ///
    /// Flow hashes have no secret, so a sender can choose packets of different streams with the same flow hash. The keys
    /// are hashes (SipHash-1-3) with a secret of the table, so that no sender can choose streams with the same key.
    #[inline(always)]
    pub fn key_of(&self, segment: &TcpSegment) -> StreamKey {
        let ends = [(segment.src, segment.src_port), (segment.dst, segment.dst_port)];
        let [(low, low_port), (high, high_port)] = if ends[0] <= ends[1] { ends } else { [ends[1], ends[0]] };
        let ports = u64::from(low_port) << 16 | u64::from(high_port);
        let hash = if segment.is_v6 {
            self.secret.hash_one((low, high, ports))
        } else {
            // The upper halves of all IPv4 addresses are equal, and 32 bits of the lower ones.
            self.secret.hash_one((low[1] << 32 | high[1] & 0xffff_ffff, ports))
        };
        StreamKey(hash.max(1))
    }

    /// Takes the segment of a stream whose events the module ignores, and returns true. Returns false for any other segment,
    /// which has to be [pushed](Self::push). Reads and changes only the stream's set.
    #[inline]
    pub fn take_ignored(&mut self, key: StreamKey, segment: &TcpSegment) -> bool {
        let index = self.set_of(segment.flow_hash);
        let Some(set) = self.sets.get_mut(index) else { return false };
        let way = set.ways_of(key).trailing_zeros() as usize;
        let Some(rank) = set.ranks.get_mut(way) else { return false };
        if *rank >> RANK_SHIFT != Rank::Ignored as u64 || segment.flags & tcp::SYN != 0 {
            return false;
        }
        // The place is kept, so that the stream is not mistaken for a new one.
        *rank = rank_of(Rank::Ignored, segment.ts_ns);
        true
    }

    /// Takes the segment of a packet, with its [key](Self::key_of). `read` gives its captured bytes, if they have to wait for
    /// earlier ones.
    pub fn push(&mut self, key: StreamKey, segment: &TcpSegment, read: ReadPayload<'_>) {
        self.begin_packet();
        self.now = segment.ts_ns;
        let set = self.set_of(segment.flow_hash);
        let Some((slot, direction)) = self.find(set, key, segment) else {
            self.push_unknown(set, key, segment, read);
            return;
        };
        let is_syn = segment.flags & tcp::SYN != 0;
        if connection_is_ignored(self.connections.get(slot as usize)) && !is_syn {
            self.touch(slot, segment.ts_ns);
            return;
        }
        if is_syn && self.is_new_connection(slot, direction, segment) {
            let cause = TcpEndCause::Reused;
            self.close(slot, cause, true);
            self.begin(slot, key, segment);
            let direction = self.direction_of(slot, segment);
            self.process(slot, direction, segment, read);
            return;
        }
        self.process(slot, direction, segment, read);
    }

    /// Finds the stream of a segment, and the segment's direction.
    #[inline]
    fn find(&self, set: usize, key: StreamKey, segment: &TcpSegment) -> Option<(u32, u8)> {
        let mut ways = self.sets.get(set)?.ways_of(key);
        while ways != 0 {
            let slot = set * WAYS + ways.trailing_zeros() as usize;
            ways &= ways - 1;
            let ends = &self.connections.get(slot)?.endpoints;
            let client = (ends.client, ends.client_port);
            let server = (ends.server, ends.server_port);
            let slot = u32::try_from(slot).ok()?;
            if (segment.src, segment.src_port) == client && (segment.dst, segment.dst_port) == server {
                return Some((slot, 0));
            }
            if (segment.src, segment.src_port) == server && (segment.dst, segment.dst_port) == client {
                return Some((slot, 1));
            }
        }
        None
    }

    fn direction_of(&self, slot: u32, segment: &TcpSegment) -> u8 {
        let ends = self.connections.get(slot as usize).map(|connection| connection.endpoints);
        u8::from(ends.is_some_and(|ends| (ends.client, ends.client_port) != (segment.src, segment.src_port)))
    }

    /// Takes a segment of no known stream.
    fn push_unknown(&mut self, set: usize, key: StreamKey, segment: &TcpSegment, read: ReadPayload<'_>) {
        let has_reset = segment.flags & tcp::RST != 0;
        if has_reset || (segment.flags & tcp::SYN == 0 && segment.len == 0) {
            self.counters.no_stream += 1;
            return;
        }
        let Some(ranks) = self.sets.get(set).map(|set| set.ranks) else { return };
        // A free place has the rank 0.
        let way = ranks.iter().enumerate().min_by_key(|(_, rank)| **rank).map_or(0, |(way, _)| way);
        let Ok(slot) = u32::try_from(set * WAYS + way) else { return };
        let is_taken = self.sets.get(set).is_some_and(|set| set.keys.get(way).is_some_and(|key| *key != 0));
        if is_taken {
            let is_closed = self.connections.get(slot as usize).is_none_or(|known| known.is_closed);
            self.counters.evicted += u64::from(!is_closed);
            self.close(slot, TcpEndCause::Evicted, true);
        }
        self.begin(slot, key, segment);
        let direction = self.direction_of(slot, segment);
        self.process(slot, direction, segment, read);
    }

    /// Begins a stream in a place that is free.
    fn begin(&mut self, slot: u32, StreamKey(key): StreamKey, segment: &TcpSegment) {
        let is_from_client = match segment.flags & (tcp::SYN | tcp::ACK) {
            tcp::SYN => true,
            bits if bits & tcp::SYN != 0 => false,
            // Without a handshake, a well-known port is that of the server.
            _ => {
                let well_known = |port: u16| port < 1024;
                !well_known(segment.src_port) || well_known(segment.dst_port)
            }
        };
        let source = (segment.src, segment.src_port);
        let destination = (segment.dst, segment.dst_port);
        let (client, server) = if is_from_client { (source, destination) } else { (destination, source) };
        let connection = StreamState {
            endpoints: TcpEndpoints {
                client: client.0,
                server: server.0,
                client_port: client.1,
                server_port: server.1,
                vlan_tci: segment.vlan_tci,
                tunnel: segment.tunnel,
                is_v6: segment.is_v6,
                first_ns: segment.ts_ns,
                flow_hash: segment.flow_hash,
            },
            ..StreamState::default()
        };
        if let Some(place) = self.connections.get_mut(slot as usize) {
            *place = connection;
        }
        if let Some(remembered) = self.remembered.get_mut(slot as usize) {
            *remembered = Default::default();
        }
        if let Some(place) =
            self.sets.get_mut(slot as usize / WAYS).and_then(|set| set.keys.get_mut(slot as usize % WAYS))
        {
            *place = key;
        }
        self.counters.opened += 1;
    }

    /// Frees a place. A later packet of the stream begins a new one.
    fn free(&mut self, set: usize, way: usize) {
        let Some(set) = self.sets.get_mut(set) else { return };
        for field in [&mut set.keys, &mut set.ranks] {
            if let Some(value) = field.get_mut(way) {
                *value = 0;
            }
        }
    }

    /// Updates the time and the class of a stream.
    fn touch(&mut self, slot: u32, ts_ns: u64) {
        let Some(class) = self.connections.get(slot as usize).map(StreamState::rank) else { return };
        let at = slot as usize;
        if let Some(rank) = self.sets.get_mut(at / WAYS).and_then(|set| set.ranks.get_mut(at % WAYS)) {
            *rank = rank_of(class, ts_ns);
        }
    }

    /// Returns true if a SYN of a known stream opens a new connection with the same addresses and ports. A SYN alone
    /// does not end a connection that is in progress (RFC 5961, 4): its answer must confirm it. If packets of one
    /// direction only are captured, no answer can come, and the SYN is enough.
    fn is_new_connection(&mut self, slot: u32, direction: u8, segment: &TcpSegment) -> bool {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return false };
        let is_two_sided = connection.state & state::TWO_SIDED != 0;
        let is_closed = connection.is_closed;
        let has_bytes = connection.has_bytes || connection.is_ignored;
        let (has_candidate, candidate) = (connection.has_candidate, connection.candidate);
        let own = connection.direction(direction.into());
        if segment.flags & tcp::ACK != 0 {
            // The answer to a SYN that was not believed.
            return has_candidate && candidate.wrapping_add(1) == segment.ack;
        }
        let first = own.next.wrapping_sub(1);
        let is_repeated = own.is_known && first == segment.seq && own.offset == 0;
        if is_repeated {
            return false;
        }
        if is_closed || !own.is_known && has_bytes && !is_two_sided {
            return true;
        }
        if !has_bytes {
            // A client that tries again: the later SYN counts. A simultaneous open: the other side's first SYN.
            return own.is_known && !is_two_sided;
        }
        if !is_two_sided {
            return true;
        }
        connection.candidate = segment.seq;
        connection.has_candidate = true;
        false
    }

    /// Processes a segment of a stream.
    fn process(&mut self, slot: u32, direction: u8, segment: &TcpSegment, read: ReadPayload<'_>) {
        let at = slot as usize;
        let Some(connection) = self.connections.get_mut(at) else { return };
        if connection.is_closed {
            self.touch(slot, segment.ts_ns);
            return;
        }
        let (is_syn, is_ack) = (segment.flags & tcp::SYN != 0, segment.flags & tcp::ACK != 0);
        let [client, server] = &mut connection.directions;
        let (own, other) = if direction == 0 { (client, server) } else { (server, client) };
        own.is_seen = true;
        if other.is_seen {
            connection.state |= state::TWO_SIDED;
        }
        let mut seq = segment.seq;
        if is_syn {
            seq = seq.wrapping_add(1);
            connection.state |= if direction == 0 { state::SYN } else { state::SYN_ACK };
            if !own.is_known || own.offset == 0 && !connection.has_bytes {
                (own.next, own.is_known) = (seq, true);
            }
            own.scale = segment.scale;
            if connection.state & (state::SYN | state::SYN_ACK) == state::SYN | state::SYN_ACK {
                // Windows are scaled only if both sides ask for it (RFC 7323, 2.2).
                let both = own.scale.is_some() && other.scale.is_some();
                if !both {
                    (own.scale, other.scale) = (Some(0), Some(0));
                }
            } else {
                own.scale = own.scale.or(Some(0));
            }
        }
        if !own.is_known {
            (own.next, own.is_known) = (seq, true);
        }
        let has_both_syns = connection.state & (state::SYN | state::SYN_ACK) == state::SYN | state::SYN_ACK;
        if is_ack {
            if !other.is_known {
                (other.next, other.is_known) = (segment.ack, true);
            }
            if has_both_syns {
                let scale = if is_syn { 0 } else { own.scale.unwrap_or(0) };
                let edge = segment.ack.wrapping_add(u32::from(segment.window) << scale);
                if !other.has_edge || edge.wrapping_sub(other.edge).cast_signed() > 0 {
                    (other.edge, other.has_edge) = (edge, true);
                }
            }
        }
        if segment.flags & tcp::RST != 0 {
            self.process_reset(slot, direction, segment);
            return;
        }
        let distance = own.distance(seq);
        if segment.len > 0 || segment.flags & tcp::FIN != 0 {
            self.process_data(slot, direction, distance, segment, read);
        }
        if is_ack {
            self.process_ack(slot, 1 - direction, segment.ack);
        }
        self.touch(slot, segment.ts_ns);
    }

    /// Processes a reset, which counts only inside the window (RFC 9293, 3.10.7.4).
    fn process_reset(&mut self, slot: u32, direction: u8, segment: &TcpSegment) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let has_bytes = connection.has_bytes;
        let [client, server] = &mut connection.directions;
        let (own, other) = if direction == 0 { (client, server) } else { (server, client) };
        let distance = own.distance(segment.seq);
        let room = own.room().unwrap_or(i64::from(u16::MAX)).max(0);
        let is_in_window = own.has_fin || (-1..=room.max(1)).contains(&distance);
        // The answer to a SYN has no sequence number of its own, but acknowledges the SYN.
        let answers_syn =
            !has_bytes && segment.flags & tcp::ACK != 0 && other.is_known && other.next == segment.ack;
        if !is_in_window && !answers_syn {
            self.counters.ignored_resets += 1;
            return;
        }
        self.close(slot, TcpEndCause::Reset, false);
        self.touch(slot, segment.ts_ns);
    }

    /// Ends a stream. Bytes that still wait are given, unless the stream was reset. `leaves` says that another stream
    /// takes its place.
    pub(super) fn close(&mut self, slot: u32, cause: TcpEndCause, leaves: bool) {
        let at = slot as usize;
        let Some(connection) = self.connections.get(at) else { return };
        let was_closed = connection.is_closed;
        if !was_closed {
            for direction in [0, 1] {
                if cause == TcpEndCause::Reset || connection_is_ignored(self.connections.get(at)) {
                    self.drop_pending(slot, direction);
                } else {
                    self.give_up_all_holes(slot, direction);
                }
            }
        }
        let Some(connection) = self.connections.get_mut(at) else { return };
        // Giving up holes can have ended both directions, and with them the stream.
        let ends_now = !connection.is_closed;
        connection.is_closed = true;
        let (is_open, is_ignored) = (connection.is_open, connection.is_ignored);
        let departed = (connection.endpoints, connection.state);
        if ends_now && is_open && !is_ignored {
            self.queue_event(slot, TcpEventKind::End, 0, 0, QueuedBytes::None, (0, Some(cause)));
        }
        if leaves {
            self.departed = departed;
            for event in self.queue.iter_mut().filter(|event| event.slot == slot) {
                event.is_departed = true;
            }
        }
    }

    /// Begins the search for streams that are over, in a part of the table; `periods` sweeps are due.
    pub fn sweep(&mut self, now: Timestamp, periods: u64) {
        self.queue.clear();
        self.given = None;
        self.now = now.0;
        let sets = self.sets.len();
        let parts = usize::try_from(periods).unwrap_or(usize::MAX).clamp(1, SWEEPS);
        let part = sets.div_ceil(SWEEPS);
        let first = (self.next_sweep * part).min(sets);
        // A sweep ends at the end of the table; the next one begins at its beginning.
        let end = if parts >= SWEEPS { sets } else { (first + parts * part).min(sets) };
        let first = if parts >= SWEEPS { 0 } else { first };
        self.next_sweep = if end >= sets { 0 } else { self.next_sweep + parts };
        self.walk = Some(Walk { next_set: first, end_set: end, now: now.0, cause: TcpEndCause::Timeout });
    }

    /// Begins the end of all streams in a part of the table, which is an equal range of flow hashes. There are
    /// [`STOP_PARTS`](Self::STOP_PARTS).
    pub fn stop(&mut self, now: Timestamp, part: u8) {
        self.queue.clear();
        self.given = None;
        self.now = now.0;
        let begin = |part: usize| part * self.sets.len() / usize::from(Self::STOP_PARTS);
        let part = usize::from(part);
        let (next_set, end_set) = (begin(part), begin(part + 1));
        self.walk = Some(Walk { next_set, end_set, now: now.0, cause: TcpEndCause::Stop });
    }

    /// Returns the next event. `reply` is the reply to the event before.
    #[inline]
    pub fn next(&mut self, reply: TcpReply) -> Option<TcpEvent<'_>> {
        // After most packets, nothing is left.
        if self.given.is_none() && self.is_idle() { None } else { self.next_queued(reply) }
    }

    fn next_queued(&mut self, reply: TcpReply) -> Option<TcpEvent<'_>> {
        if (reply.skip || reply.ignore)
            && let Some((slot, direction, is_departed)) = self.given
        {
            self.apply(reply, slot, direction, is_departed);
        }
        self.given = None;
        while self.queue.is_empty() {
            if !self.walk_one() {
                return None;
            }
        }
        let event = self.queue.pop_front()?;
        let (endpoints, state) = if event.is_departed {
            self.departed
        } else {
            self.connections
                .get(event.slot as usize)
                .map_or_else(Default::default, |c| (c.endpoints, c.state))
        };
        self.given = Some((event.slot, event.direction, event.is_departed));
        let Queued { slot, kind, direction, cause, missing, offset, bytes, is_departed } = event;
        let bytes = match bytes {
            QueuedBytes::None => TcpEventBytes::None,
            QueuedBytes::InPacket { from, len } => TcpEventBytes::InPacket { from, len },
            QueuedBytes::Waiting { bytes, from } => {
                let end = from.saturating_add(TCP_EVENT_BYTES_MAX).min(bytes.len());
                self.lent.clear();
                self.lent.extend_from_slice(bytes.get(from..end).unwrap_or_default());
                if end < bytes.len() {
                    let offset = offset.saturating_add((end - from) as u64);
                    let bytes = QueuedBytes::Waiting { bytes, from: end };
                    let rest = Queued { slot, kind, direction, is_departed, cause, missing, offset, bytes };
                    self.queue.push_front(rest);
                }
                TcpEventBytes::Waiting(&self.lent)
            }
        };
        Some(TcpEvent {
            kind,
            stream: slot,
            from_server: direction != 0,
            ts_ns: self.now,
            offset,
            missing,
            cause,
            bytes,
            endpoints,
            state,
        })
    }

    /// Applies a reply to the rest of the events of a stream, and to later packets.
    fn apply(&mut self, reply: TcpReply, slot: u32, direction: u8, is_departed: bool) {
        let is_of_stream = |event: &Queued| event.slot == slot && event.is_departed == is_departed;
        if reply.ignore {
            self.queue.retain(|event| !is_of_stream(event));
        } else {
            let is_data = |event: &Queued| {
                matches!(event.kind, TcpEventKind::Bytes | TcpEventKind::Gap | TcpEventKind::Conflict)
            };
            self.queue
                .retain(|event| !(is_of_stream(event) && event.direction == direction && is_data(event)));
        }
        if is_departed {
            return;
        }
        if reply.skip {
            self.drop_pending(slot, direction);
            if let Some(connection) = self.connections.get_mut(slot as usize) {
                connection.direction(direction.into()).is_skipped = true;
            }
        }
        if reply.ignore {
            for direction in [0, 1] {
                self.drop_pending(slot, direction);
            }
            if let Some(connection) = self.connections.get_mut(slot as usize) {
                connection.is_ignored = true;
            }
            self.touch(slot, self.now);
        }
    }

    /// Looks at the next set of a walk. Returns false at its end.
    fn walk_one(&mut self) -> bool {
        let Some(walk) = &mut self.walk else { return false };
        let (set, now, cause) = (walk.next_set, walk.now, walk.cause);
        if set >= walk.end_set {
            self.walk = None;
            return false;
        }
        walk.next_set += 1;
        let Some(StreamSet { keys, ranks }) = self.sets.get(set).copied() else { return false };
        for (way, (key, rank)) in keys.iter().zip(ranks).enumerate() {
            let Ok(slot) = u32::try_from(set * WAYS + way) else { continue };
            if *key == 0 || rank >> RANK_SHIFT == Rank::Closed as u64 {
                continue;
            }
            let age = now.saturating_sub(rank & ((1 << RANK_SHIFT) - 1));
            if cause == TcpEndCause::Stop || age >= self.config.idle.0 {
                self.counters.timed_out += u64::from(cause == TcpEndCause::Timeout);
                self.close(slot, cause, false);
                self.free(set, way);
                continue;
            }
            for direction in [0, 1] {
                let waits_long = self.connections.get(slot as usize).is_some_and(|known| {
                    let own: &StreamDirection =
                        known.directions.get(usize::from(direction)).unwrap_or(&known.directions[0]);
                    own.pending
                        .as_deref()
                        .is_some_and(|pending| now.saturating_sub(pending.since) >= HOLE_TIME.0)
                });
                if waits_long {
                    self.give_up_all_holes(slot, direction);
                }
            }
        }
        true
    }
}

fn connection_is_ignored(connection: Option<&StreamState>) -> bool {
    connection.is_none_or(|connection| connection.is_ignored)
}
