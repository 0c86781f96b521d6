//! The bytes of a direction: which are given, which wait, and which are missing.

use super::pending::{Pending, RUN_OVERHEAD};
use super::segment::tcp;
use super::streams::{Queued, QueuedBytes, REMEMBERED, ReadPayload};
use super::{TcpEndCause, TcpEventKind, TcpSegment, TcpStreams};
use std::collections::{HashSet, VecDeque};

/// The number of parts of the memory for waiting bytes. Each part belongs to an equal range of flow hashes.
pub(super) const PARTS: usize = 64;
/// The farthest that a segment may lie ahead of the next byte, if the receiver's window is not known.
const AHEAD_MAX: i64 = 16 << 20;

impl TcpStreams {
    /// Processes the data and the FIN of a segment, whose first byte is `distance` behind the next byte.
    pub(super) fn process_data(
        &mut self,
        slot: u32,
        direction: u8,
        distance: i64,
        segment: &TcpSegment,
        read: ReadPayload<'_>,
    ) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let own = connection.direction(direction.into());
        let mut freed = 0;
        let mut len = i64::from(segment.len);
        // Nothing counts behind the FIN.
        if own.has_fin {
            len = len.min(own.distance(own.fin) - distance).max(0);
        }
        let end = distance + len;
        if distance > 0 {
            let farthest = own.room().unwrap_or(AHEAD_MAX);
            let is_outside = if len > 0 { distance >= farthest.max(1) } else { distance > farthest.max(0) };
            if is_outside {
                self.counters.out_of_window += 1;
                return;
            }
            len = len.min(farthest - distance).max(0);
        }
        let is_whole = len == i64::from(segment.len);
        if segment.flags & tcp::FIN != 0 && !own.has_fin && is_whole && end >= 0 {
            own.has_fin = true;
            own.fin =
                segment.seq.wrapping_add(segment.len).wrapping_add(u32::from(segment.flags & tcp::SYN != 0));
            let fin_offset = own.offset_at(end);
            if let Some(pending) = &mut own.pending {
                let before = pending.charged;
                pending.cut_back(fin_offset);
                freed = before.saturating_sub(pending.charged);
                if pending.is_empty() {
                    own.pending = None;
                }
            }
        }
        if len > 0 {
            connection.has_bytes = true;
        }
        if freed > 0 {
            let part = self.part_of(slot);
            if let Some(used) = self.used.get_mut(part) {
                *used = used.saturating_sub(freed.into());
            }
        }
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let own = connection.direction(direction.into());
        if len > 0 && end <= 0 {
            // A probe that keeps a connection alive repeats one byte at most.
            if !(len <= 1 && end == 0) {
                self.counters.retransmitted += 1;
                self.compare_remembered(slot, direction, segment, read);
            }
            return;
        }
        if own.is_skipped || own.has_ended {
            let ahead = u64::try_from(end.max(0)).unwrap_or(0);
            own.advance(ahead);
            self.end_direction(slot, direction);
            return;
        }
        if len > 0 {
            if distance > 0 {
                self.counters.out_of_order += 1;
            } else if distance < 0 {
                self.counters.retransmitted += 1;
            }
            let first_waiting = own.pending.as_deref().and_then(Pending::begin);
            let overlaps = first_waiting.is_some_and(|begin| own.offset_at(end) > begin);
            if distance > 0 || overlaps {
                self.store(slot, direction, distance, len, segment, read);
            } else {
                let from = u32::try_from(-distance).unwrap_or(0);
                let whole = u32::try_from(len).unwrap_or(0);
                let captured = segment.captured.min(whole).saturating_sub(from);
                if self.config.conflicts && distance == 0 {
                    self.remember(slot, direction, segment, read);
                }
                self.give(slot, direction, QueuedBytes::InPacket { from, len: captured }, captured.into());
                self.give_gap(slot, direction, u64::from(whole - from - captured));
            }
        }
        self.drain(slot, direction);
        self.end_direction(slot, direction);
    }

    /// Stores a segment that waits for earlier bytes, or that overlaps waiting ones.
    pub(super) fn store(
        &mut self,
        slot: u32,
        direction: u8,
        distance: i64,
        len: i64,
        segment: &TcpSegment,
        read: ReadPayload<'_>,
    ) {
        // Bytes before the next one were given already.
        let cut = (-distance).max(0);
        let from = u32::try_from(cut).unwrap_or(u32::MAX);
        let whole = u32::try_from(len).unwrap_or(0);
        let captured = segment.captured.min(whole).saturating_sub(from);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let own = connection.direction(direction.into());
        let (begin, end) = (own.offset_at(distance + cut), own.offset_at(distance + len));
        if !self.make_room(slot, direction, u64::from(captured) + u64::from(RUN_OVERHEAD)) {
            return;
        }
        // To make room, this direction can have given up holes, and so can have reached or passed the segment.
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let is_closed = connection.is_closed;
        let own = connection.direction(direction.into());
        if is_closed || own.is_skipped || own.has_ended || end <= own.offset {
            return;
        }
        let mut bytes = std::mem::take(&mut self.lent);
        bytes.clear();
        if captured > 0 {
            read(from, captured, &mut bytes);
        }
        let policy = self.config.overlap;
        let (part, now) = (self.part_of(slot), self.now);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let own = connection.direction(direction.into());
        let is_first = own.pending.is_none();
        let pending = own.pending.get_or_insert_default();
        if is_first {
            pending.since = now;
        }
        let before = u64::from(pending.charged);
        let conflicts = pending.add(begin, end, &bytes, policy);
        let after = u64::from(pending.charged);
        self.lent = bytes;
        if let Some(used) = self.used.get_mut(part) {
            *used = used.saturating_add(after).saturating_sub(before);
        }
        if is_first {
            self.add_holder(part, slot);
        }
        self.report_conflict(slot, direction, begin, conflicts);
        // A segment that covers several holes becomes several runs, each with an overhead.
        self.give_up_until(part, self.part_limit());
    }

    /// Makes room for waiting bytes of a stream: streams that have waited longest give up their holes. Returns false if
    /// there cannot be enough room.
    pub(super) fn make_room(&mut self, slot: u32, direction: u8, bytes: u64) -> bool {
        let part = self.part_of(slot);
        let limit = self.part_limit();
        let is_full = |this: &mut Self| {
            let own = this.connections.get_mut(slot as usize).map(|known| known.direction(direction.into()));
            own.is_some_and(|own| own.pending.as_deref().is_some_and(Pending::is_full))
        };
        if is_full(self) {
            self.counters.no_memory += 1;
            self.give_up_hole(slot, direction);
        }
        if bytes > limit {
            self.counters.no_memory += 1;
            return false;
        }
        self.give_up_until(part, limit - bytes)
    }

    /// The memory for waiting bytes of a part.
    fn part_limit(&self) -> u64 {
        self.config.buffer.0 / PARTS as u64
    }

    /// Lets the streams of a part that have waited longest give up their holes, until the part uses at most `limit`.
    /// Returns false if it still uses more.
    fn give_up_until(&mut self, part: usize, limit: u64) -> bool {
        while self.used.get(part).is_some_and(|used| *used > limit) {
            let Some(holder) = self.holders.get_mut(part).and_then(VecDeque::pop_front) else { return false };
            self.counters.no_memory += 1;
            for direction in [0, 1] {
                self.give_up_all_holes(holder, direction);
            }
        }
        true
    }

    /// Notes that a stream has waiting bytes. Outdated entries are removed before there are many.
    fn add_holder(&mut self, part: usize, slot: u32) {
        // Each stream with waiting bytes uses at least the overhead of a run in one part.
        let most = 2 * usize::try_from(self.part_limit() / u64::from(RUN_OVERHEAD)).unwrap_or(usize::MAX);
        let Some(holders) = self.holders.get_mut(part) else { return };
        if holders.len() >= most.max(8) {
            let mut known = HashSet::new();
            let connections = &self.connections;
            holders.retain(|holder| {
                let connection = connections.get(*holder as usize);
                let waits =
                    connection.is_some_and(|known| known.directions.iter().any(|own| own.pending.is_some()));
                waits && known.insert(*holder)
            });
        }
        holders.push_back(slot);
    }

    /// The part of the memory for waiting bytes that a stream uses.
    pub(super) fn part_of(&self, slot: u32) -> usize {
        let hash = self.connections.get(slot as usize).map_or(0, |known| known.endpoints.flow_hash);
        usize::try_from(hash >> (u64::BITS - PARTS.trailing_zeros())).unwrap_or(0)
    }

    /// Processes an acknowledgement of a direction. If it covers a hole, the receiver has the bytes, and the capture lacks
    /// them.
    pub(super) fn process_ack(&mut self, slot: u32, direction: u8, ack: u32) {
        loop {
            let Some(connection) = self.connections.get_mut(slot as usize) else { return };
            let own = connection.direction(direction.into());
            let Some(begin) = own.pending.as_deref().and_then(Pending::begin) else { break };
            let acknowledged = own.distance(ack);
            if acknowledged <= 0 || acknowledged > AHEAD_MAX << 6 || own.offset_at(acknowledged) < begin {
                break;
            }
            self.give_up_hole(slot, direction);
        }
    }

    /// Gives the first hole of a direction as a gap, and the bytes behind it.
    pub(super) fn give_up_hole(&mut self, slot: u32, direction: u8) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let own = connection.direction(direction.into());
        let Some(begin) = own.pending.as_deref().and_then(Pending::begin) else { return };
        let missing = begin.saturating_sub(own.offset);
        self.give_gap(slot, direction, missing);
        self.drain(slot, direction);
        self.end_direction(slot, direction);
    }

    pub(super) fn give_up_all_holes(&mut self, slot: u32, direction: u8) {
        while let Some(connection) = self.connections.get_mut(slot as usize) {
            if connection.direction(direction.into()).pending.is_none() {
                return;
            }
            self.give_up_hole(slot, direction);
        }
    }

    /// Gives the waiting bytes that are next.
    pub(super) fn drain(&mut self, slot: u32, direction: u8) {
        let part = self.part_of(slot);
        loop {
            let Some(connection) = self.connections.get_mut(slot as usize) else { return };
            let own = connection.direction(direction.into());
            let offset = own.offset;
            let Some(pending) = own.pending.as_deref_mut() else { return };
            if pending.begin().is_some_and(|begin| begin > offset) {
                return;
            }
            let before = u64::from(pending.charged);
            let run = pending.take_first();
            let after = u64::from(pending.charged);
            if pending.is_empty() {
                own.pending = None;
            }
            if let Some(used) = self.used.get_mut(part) {
                *used = used.saturating_sub(before.saturating_sub(after));
            }
            let Some(run) = run else { return };
            if run.end <= offset {
                continue;
            }
            let from =
                usize::try_from(offset.saturating_sub(run.begin)).unwrap_or(usize::MAX).min(run.bytes.len());
            let known = (run.bytes.len() - from) as u64;
            let unknown = run.end.saturating_sub(offset).saturating_sub(known);
            self.give(slot, direction, QueuedBytes::Waiting { bytes: run.bytes, from }, known);
            self.give_gap(slot, direction, unknown);
        }
    }

    /// Gives the end of a direction once all bytes before the FIN were given, and then the end of the stream.
    pub(super) fn end_direction(&mut self, slot: u32, direction: u8) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let own = connection.direction(direction.into());
        if !own.has_fin || own.has_ended || own.distance(own.fin) > 0 {
            return;
        }
        own.has_ended = true;
        let offset = own.offset;
        let both = connection.directions.iter().all(|direction| direction.has_ended);
        self.queue_event(slot, TcpEventKind::Fin, direction, offset, QueuedBytes::None, (0, None));
        if both {
            self.close(slot, TcpEndCause::Fin, false);
        }
    }

    pub(super) fn drop_pending(&mut self, slot: u32, direction: u8) {
        let part = self.part_of(slot);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let Some(pending) = connection.direction(direction.into()).pending.take() else { return };
        if let Some(used) = self.used.get_mut(part) {
            *used = used.saturating_sub(pending.charged.into());
        }
    }

    /// Queues the next `len` bytes of a direction, as far as they are wanted.
    pub(super) fn give(&mut self, slot: u32, direction: u8, bytes: QueuedBytes, len: u64) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let own = connection.direction(direction.into());
        let offset = own.offset;
        own.advance(len);
        if own.is_skipped || len == 0 {
            return;
        }
        let wanted = self.config.first.map_or(len, |first| first.saturating_sub(offset).min(len));
        own.is_skipped = self.config.first.is_some_and(|first| own.offset >= first);
        if own.is_skipped {
            self.drop_pending(slot, direction);
        }
        let cut = usize::try_from(wanted).unwrap_or(usize::MAX);
        let bytes = match bytes {
            QueuedBytes::Waiting { mut bytes, from } => {
                bytes.truncate(from.saturating_add(cut));
                QueuedBytes::Waiting { bytes, from }
            }
            QueuedBytes::InPacket { from, len } => {
                QueuedBytes::InPacket { from, len: len.min(u32::try_from(cut).unwrap_or(u32::MAX)) }
            }
            QueuedBytes::None => QueuedBytes::None,
        };
        if wanted > 0 {
            self.queue_event(slot, TcpEventKind::Bytes, direction, offset, bytes, (0, None));
        }
    }

    /// Queues a gap.
    pub(super) fn give_gap(&mut self, slot: u32, direction: u8, missing: u64) {
        if missing == 0 {
            return;
        }
        self.counters.missing_bytes = self.counters.missing_bytes.saturating_add(missing);
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        let own = connection.direction(direction.into());
        let offset = own.offset;
        own.advance(missing);
        let was_skipped = own.is_skipped;
        own.is_skipped |= self.config.first.is_some_and(|first| own.offset >= first);
        if own.is_skipped && !was_skipped {
            self.drop_pending(slot, direction);
        }
        if !was_skipped {
            let missing = u32::try_from(missing).unwrap_or(u32::MAX);
            self.queue_event(slot, TcpEventKind::Gap, direction, offset, QueuedBytes::None, (missing, None));
        }
    }

    pub(super) fn queue_event(
        &mut self,
        slot: u32,
        kind: TcpEventKind,
        direction: u8,
        offset: u64,
        bytes: QueuedBytes,
        (missing, cause): (u32, Option<TcpEndCause>),
    ) {
        let Some(connection) = self.connections.get_mut(slot as usize) else { return };
        if connection.is_ignored {
            return;
        }
        let event = Queued { slot, kind, direction, is_departed: false, cause, missing, offset, bytes };
        if !connection.is_open {
            connection.is_open = true;
            let open = Queued {
                kind: TcpEventKind::Open,
                direction: 0,
                cause: None,
                missing: 0,
                offset: 0,
                bytes: QueuedBytes::None,
                ..event
            };
            self.queue.push_back(open);
        }
        self.queue.push_back(event);
    }

    pub(super) fn report_conflict(&mut self, slot: u32, direction: u8, offset: u64, conflicts: u32) {
        self.counters.conflicting_bytes += u64::from(conflicts);
        if conflicts > 0 && self.config.conflicts {
            let facts = (conflicts, None);
            self.queue_event(slot, TcpEventKind::Conflict, direction, offset, QueuedBytes::None, facts);
        }
    }

    /// Remembers the bytes of a segment by their hash.
    pub(super) fn remember(&mut self, slot: u32, direction: u8, segment: &TcpSegment, read: ReadPayload<'_>) {
        let hash = self.hash_of(segment, read);
        let remembered =
            self.remembered.get_mut(slot as usize).and_then(|both| both.get_mut(usize::from(direction)));
        if let Some(remembered) = remembered {
            let at = usize::from(remembered.next) % REMEMBERED;
            if let Some(place) = remembered.segments.get_mut(at) {
                *place = (segment.seq, segment.captured, hash);
            }
            remembered.next = remembered.next.wrapping_add(1);
        }
    }

    /// Compares a segment with an earlier one of the same place and length.
    pub(super) fn compare_remembered(
        &mut self,
        slot: u32,
        direction: u8,
        segment: &TcpSegment,
        read: ReadPayload<'_>,
    ) {
        let known = self.remembered.get(slot as usize).and_then(|both| both.get(usize::from(direction)));
        let Some(known) = known.and_then(|known| {
            known
                .segments
                .iter()
                .find(|(seq, len, _)| (*seq, *len) == (segment.seq, segment.captured))
                .copied()
        }) else {
            return;
        };
        if segment.captured > 0 && self.hash_of(segment, read) != known.2 {
            let Some(connection) = self.connections.get_mut(slot as usize) else { return };
            let own = connection.direction(direction.into());
            let offset = own.offset_at(own.distance(segment.seq));
            self.report_conflict(slot, direction, offset, segment.captured);
        }
    }

    pub(super) fn hash_of(&mut self, segment: &TcpSegment, read: ReadPayload<'_>) -> u32 {
        let mut bytes = std::mem::take(&mut self.lent);
        bytes.clear();
        read(0, segment.captured, &mut bytes);
        let hash = hash(&bytes);
        self.lent = bytes;
        hash
    }
}

/// Hashes bytes, eight at a time. Only equality within one run matters.
fn hash(bytes: &[u8]) -> u32 {
    let (chunks, rest) = bytes.as_chunks::<8>();
    let mut sum = 0x9e37_79b9_7f4a_7c15_u64 ^ bytes.len() as u64;
    let mut add = |word: u64| {
        let (low, high) = (sum ^ word).carrying_mul(0xa076_1d64_78bd_642f, 0);
        sum = (low ^ high).wrapping_add(word);
    };
    for chunk in chunks {
        add(u64::from_le_bytes(*chunk));
    }
    let mut last = [0; 8];
    for (to, from) in last.iter_mut().zip(rest) {
        *to = *from;
    }
    add(u64::from_le_bytes(last));
    #[expect(clippy::cast_possible_truncation, reason = "the lower half is enough")]
    let low = (sum ^ sum >> 32) as u32;
    low
}
