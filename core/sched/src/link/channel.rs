//! A channel of a link: its queue and its clocks.

use super::clock::{ByteTime, VirtualTime};
use super::config::{ChannelTerms, LinkReservation, QUEUE_PACKETS_MAX};
use super::counters::{ChannelCounters, LinkDropCause};
use std::collections::VecDeque;
use weir_units::{BitsPerSecond, Nanos};

/// The greatest initial capacity of a queue in packets. A queue grows once it holds more.
const QUEUE_CAPACITY: u32 = 64;

/// A packet in a channel's queue.
#[derive(Debug)]
pub struct QueuedPacket<P> {
    pub packet: P,
    /// The length on the wire in bytes.
    pub length: u32,
    /// The time at which the packet was queued.
    pub arrived: Nanos,
}

/// The start and finish of a queue's head in virtual time.
#[derive(Clone, Copy, Debug)]
pub struct Tags {
    pub start: VirtualTime,
    pub finish: VirtualTime,
}

/// An open channel.
#[derive(Debug)]
pub struct LinkChannel<P> {
    pub terms: ChannelTerms,
    queue: VecDeque<QueuedPacket<P>>,
    /// The bytes on the wire of the packets in `queue`.
    queued_bytes: u64,
    /// The virtual clock (auxVC): the finish of the last packet that the reservation sent, or the arrival of the
    /// first packet after an empty queue, if that is later.
    pub clock: VirtualTime,
    /// The virtual start and finish of the head, the first packet of the queue; `None` without a head or a reservation.
    pub tags: Option<Tags>,
    /// The cap's clock: the time from which the cap would allow the next packet if it had no burst.
    cap_clock: VirtualTime,
    /// The head's start in the virtual time of excess traffic.
    pub excess_start: u128,
    pub counters: ChannelCounters,
}

impl<P> LinkChannel<P> {
    pub fn new(terms: ChannelTerms) -> Self {
        LinkChannel {
            terms,
            queue: VecDeque::with_capacity(terms.queue.packets.min(QUEUE_CAPACITY) as usize),
            queued_bytes: 0,
            clock: VirtualTime::default(),
            tags: None,
            cap_clock: VirtualTime::default(),
            excess_start: 0,
            counters: ChannelCounters::default(),
        }
    }

    /// The reserved rate; zero without a reservation.
    pub fn reserved(&self) -> BitsPerSecond {
        self.terms.reservation.map_or(BitsPerSecond(0), LinkReservation::bits_per_second)
    }

    /// The number of packets that wait.
    pub fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The bytes on the wire that wait.
    pub fn waiting_bytes(&self) -> u64 {
        self.queued_bytes
    }

    /// Appends a packet to the queue. If the queue is full, returns the packet and the cause.
    pub fn push(&mut self, queued: QueuedPacket<P>) -> Result<(), (LinkDropCause, P)> {
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
        self.counters.count_drop(cause, queued.length);
        Err((cause, queued.packet))
    }

    /// Takes the head, with its virtual start and finish.
    pub fn pop(&mut self) -> Option<(QueuedPacket<P>, Option<Tags>)> {
        let head = self.queue.pop_front()?;
        self.queued_bytes -= u64::from(head.length);
        Some((head, self.tags.take()))
    }

    /// The packets that wait, in order.
    pub fn into_packets(self) -> Vec<P> {
        self.queue.into_iter().map(|queued| queued.packet).collect()
    }

    /// The time from which the cap allows a packet.
    pub fn cap_allows_from(&self) -> Nanos {
        self.terms
            .cap
            .map_or(Nanos(0), |cap| Nanos(self.cap_clock.time().0.saturating_sub(cap.tolerance().0)))
    }

    /// Charges a packet to the cap.
    pub fn charge_cap(&mut self, length: u32, now: Nanos) {
        if let Some(cap) = self.terms.cap {
            self.cap_clock = self.cap_clock.no_earlier_than(now).after(length, cap.pace());
        }
    }

    /// Handles the first packet after an empty queue. Idle time gives no credit.
    pub fn wake(&mut self, now: Nanos) {
        self.clock = self.clock.no_earlier_than(now);
        self.tag_head();
    }

    /// Sets the head's virtual start and finish. The start is the virtual finish of the packet sent last, or the time
    /// from which the cap allows the head, if that is later.
    pub fn tag_head(&mut self) {
        let allowed = self.cap_allows_from();
        self.tags = match (self.terms.reservation, self.queue.front()) {
            (Some(reservation), Some(head)) => {
                // The clock itself is moved. Otherwise the time spent waiting for the cap would become credit once
                // the cap is lifted.
                self.clock = self.clock.no_earlier_than(allowed);
                let start = self.clock;
                Some(Tags { start, finish: start.after(head.length, reservation.pace()) })
            }
            _ => None,
        };
    }

    /// The time from which the reservation may send the head: its virtual start, or one period before its virtual
    /// finish, if that is earlier.
    pub fn conforms_from(&self) -> Option<Nanos> {
        let (reservation, tags) = (self.terms.reservation?, self.tags?);
        let period_before_finish = Nanos(tags.finish.time().0.saturating_sub(reservation.period().0));
        Some(tags.start.time().min(period_before_finish).max(self.cap_allows_from()))
    }

    /// Changes the terms. Returns the time until which the rate that the channel gives up has to be held, because its
    /// virtual clock is ahead of real time until then.
    pub fn change(&mut self, terms: ChannelTerms, now: Nanos) -> Nanos {
        let old = std::mem::replace(&mut self.terms, terms);
        self.cap_clock = match (old.cap, terms.cap) {
            (Some(old), Some(new)) => self.cap_clock.rescaled(now, old.pace(), new.pace()),
            _ => VirtualTime::default(),
        };
        let additional = (terms.queue.packets.min(QUEUE_CAPACITY) as usize).saturating_sub(self.queue.len());
        self.queue.reserve(additional);
        let start = self.tags.map_or(self.clock, |tags| tags.start);
        match (old.reservation, terms.reservation) {
            (Some(old), Some(new)) if old == new => now,
            (Some(old), Some(new)) if old.bits_per_second() <= new.bits_per_second() => {
                self.raise_rate(old.pace(), new.pace(), now);
                now
            }
            (Some(_), Some(_)) => {
                // The head keeps its tags, and later packets count by the new rate.
                self.clock = self.clock.rounded_up();
                self.tags = self
                    .tags
                    .map(|tags| Tags { start: tags.start.rounded_up(), finish: tags.finish.rounded_up() });
                self.tags.map_or(self.clock, |tags| tags.finish).time()
            }
            (Some(_), None) => {
                self.tags = None;
                start.rounded_up().time()
            }
            (None, Some(_)) => {
                self.clock = VirtualTime::at(now);
                self.tag_head();
                now
            }
            (None, None) => now,
        }
    }

    /// Applies a higher rate. The clock stays ahead by the same number of bytes. A head whose virtual start has come
    /// keeps its virtual finish, or gets that of the new rate if it is earlier. The finish is not before `now`, because
    /// the new rate must not count for time before the change.
    fn raise_rate(&mut self, old: ByteTime, new: ByteTime, now: Nanos) {
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

    /// After a change of the cap, moves the head's start to where the cap allows it.
    pub fn apply_cap(&mut self) {
        let allowed = self.cap_allows_from();
        if self.tags.is_some_and(|tags| tags.start.time() < allowed) {
            self.tag_head();
        }
    }
}
