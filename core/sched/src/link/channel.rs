//! A channel: its queue, and its clocks.

use super::clock::{ByteTime, VirtualTime};
use super::counters::{ChannelCounters, LinkDropCause};
use super::terms::{ChannelTerms, LinkReservation, QUEUE_PACKETS_MAX};
use std::collections::VecDeque;
use weir_units::{BitsPerSecond, Nanos};

/// Room that a queue has from the start; a longer one grows, once.
const QUEUE_ROOM: u32 = 64;

/// A packet that waits.
#[derive(Debug)]
pub struct Queued<P> {
    pub packet: P,
    /// On the wire.
    pub length: u32,
    pub arrived: Nanos,
}

/// When the head of a queue begins and ends in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct Tags {
    pub start: VirtualTime,
    pub finish: VirtualTime,
}

/// An open channel.
#[derive(Debug)]
pub struct LinkChannel<P> {
    pub terms: ChannelTerms,
    queue: VecDeque<Queued<P>>,
    queued_bytes: u64,
    /// The virtual clock (auxVC): where the last packet that was sent by the reservation ends in the channel's own time, or when the first
    /// packet came after there were none, if that is later.
    pub clock: VirtualTime,
    /// The head's place on the virtual clock; None without a head or a reservation.
    pub tags: Option<Tags>,
    /// When the cap allows the next packet, without its burst.
    cap: VirtualTime,
    /// The head's start in the virtual time of the excess.
    pub excess_start: u128,
    pub counters: ChannelCounters,
}

impl<P> LinkChannel<P> {
    pub fn new(terms: ChannelTerms) -> Self {
        LinkChannel {
            terms,
            queue: VecDeque::with_capacity(terms.queue.packets.min(QUEUE_ROOM) as usize),
            queued_bytes: 0,
            clock: VirtualTime::default(),
            tags: None,
            cap: VirtualTime::default(),
            excess_start: 0,
            counters: ChannelCounters::default(),
        }
    }

    /// What is reserved; zero without a reservation.
    pub fn reserved(&self) -> BitsPerSecond {
        self.terms.reservation.map_or(BitsPerSecond(0), LinkReservation::bits_per_second)
    }

    /// How many packets wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// What waits, in bytes on the wire.
    pub fn waiting_bytes(&self) -> u64 {
        self.queued_bytes
    }

    pub fn push(&mut self, queued: Queued<P>) -> Result<(), (LinkDropCause, P)> {
        let limit = self.terms.queue;
        let cause = if self.queue.len() >= limit.packets.min(QUEUE_PACKETS_MAX) as usize {
            LinkDropCause::QueuePackets
        } else if self.queued_bytes + u64::from(queued.length) > limit.bytes.0 {
            LinkDropCause::QueueBytes
        } else {
            self.queued_bytes += u64::from(queued.length);
            self.queue.push_back(queued);
            return Ok(());
        };
        self.counters.dropped(cause, queued.length);
        Err((cause, queued.packet))
    }

    /// Takes the head, with its tags.
    pub fn pop(&mut self) -> Option<(Queued<P>, Option<Tags>)> {
        let head = self.queue.pop_front()?;
        self.queued_bytes -= u64::from(head.length);
        Some((head, self.tags.take()))
    }

    pub fn into_packets(self) -> Vec<P> {
        self.queue.into_iter().map(|queued| queued.packet).collect()
    }

    /// From when on the cap allows a packet.
    pub fn allowed_from(&self) -> Nanos {
        self.terms.cap.map_or(Nanos(0), |cap| Nanos(self.cap.time().0.saturating_sub(cap.tolerance().0)))
    }

    /// Counts a packet against the cap.
    pub fn charge_cap(&mut self, length: u32, now: Nanos) {
        if let Some(cap) = self.terms.cap {
            self.cap = self.cap.no_earlier_than(now).after(length, cap.pace());
        }
    }

    /// A packet came to an empty queue: time in which there was nothing to send is no credit.
    pub fn wake(&mut self, now: Nanos) {
        self.clock = self.clock.no_earlier_than(now);
        self.tag_head();
    }

    /// The head's place on the virtual clock: from where the last one ended, or from when the cap allows it, if that is later.
    pub fn tag_head(&mut self) {
        let allowed = self.allowed_from();
        self.tags = match (self.terms.reservation, self.queue.front()) {
            (Some(reservation), Some(head)) => {
                // The clock itself, or what the cap took would be credit once the cap is lifted.
                self.clock = self.clock.no_earlier_than(allowed);
                let start = self.clock;
                Some(Tags { start, finish: start.after(head.length, reservation.pace()) })
            }
            _ => None,
        };
    }

    /// From when on the head may be sent by the reservation: not before its start, but that its period's whole limit may go at once.
    pub fn conforms_from(&self) -> Option<Nanos> {
        let (reservation, tags) = (self.terms.reservation?, self.tags?);
        let ahead = Nanos(tags.finish.time().0.saturating_sub(reservation.period().0));
        Some(tags.start.time().min(ahead).max(self.allowed_from()))
    }

    /// New terms. Gives back until when the part of the old rate that is given up stays taken, as the virtual clock has gone ahead by it.
    pub fn change(&mut self, terms: ChannelTerms, now: Nanos) -> Nanos {
        let old = std::mem::replace(&mut self.terms, terms);
        self.cap = match (old.cap, terms.cap) {
            (Some(old), Some(new)) => self.cap.rescaled(now, old.pace(), new.pace()),
            _ => VirtualTime::default(),
        };
        let additional = (terms.queue.packets.min(QUEUE_ROOM) as usize).saturating_sub(self.queue.len());
        self.queue.reserve(additional);
        let ahead = self.tags.map_or(self.clock, |tags| tags.start);
        match (old.reservation, terms.reservation) {
            (Some(old), Some(new)) if old == new => now,
            (Some(old), Some(new)) if old.bits_per_second() <= new.bits_per_second() => {
                self.raise(old.pace(), new.pace(), now);
                now
            }
            (Some(_), Some(_)) => {
                // The head keeps its place, and what comes after it counts by the new rate.
                self.clock = self.clock.rounded_up();
                self.tags = self
                    .tags
                    .map(|tags| Tags { start: tags.start.rounded_up(), finish: tags.finish.rounded_up() });
                self.tags.map_or(self.clock, |tags| tags.finish).time()
            }
            (Some(_), None) => {
                self.tags = None;
                ahead.rounded_up().time()
            }
            (None, Some(_)) => {
                self.clock = VirtualTime::at(now);
                self.tag_head();
                now
            }
            (None, None) => now,
        }
    }

    /// A higher rate counts from now on: what the clock is ahead stays the same number of bytes; a head that is due already keeps its
    /// deadline, or gets the earlier one that the new rate gives it, but none in the past, as that would be due at the new rate for the old
    /// one's time.
    fn raise(&mut self, old: ByteTime, new: ByteTime, now: Nanos) {
        self.clock = self.clock.rescaled(now, old, new);
        let (Some(tags), Some(head)) = (self.tags, self.queue.front()) else { return };
        self.tags = Some(if tags.start.time() > now {
            let start = tags.start.rescaled(now, old, new);
            Tags { start, finish: start.after(head.length, new) }
        } else {
            let latest = VirtualTime::at(now).after(head.length, new).time();
            let finish = tags.finish.rounded_up().time().min(latest).max(now);
            Tags { start: tags.start.rounded_up(), finish: VirtualTime::at(finish) }
        });
    }

    /// After a change of the cap: the head does not begin before it is allowed.
    pub fn respect_cap(&mut self) {
        let allowed = self.allowed_from();
        if self.tags.is_some_and(|tags| tags.start.time() < allowed) {
            self.tag_head();
        }
    }
}
