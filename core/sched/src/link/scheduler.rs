//! The scheduler of one link.

use super::admission::{ChannelRefused, LinkConfigError, LinkReservations, RateRefused};
use super::channel::{LinkChannel, QueuedPacket};
use super::clock::{ByteTime, VirtualTime};
use super::config::{CHANNELS_MAX, ChannelTerms, FRAME_MAX, LinkSchedulerConfig, Pacing};
use super::counters::{ChannelCounters, LinkDropCause};
use crate::heap::Heap;
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// The binary digits after the point in the virtual time of excess traffic, which is a fixed-point number of bytes /
/// weight. The step of a frame, of at most 2^20 bytes, then fits into 64 bits. Rounding 1 / weight down changes a step
/// by at most a fraction of 2^16 / 2^40.
const EXCESS_SHIFT: u32 = 40;

/// The identifier of a channel of one link. The identifier of a closed channel is not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    slot: u32,
    generation: u32,
}

impl ChannelId {
    /// The slot and its generation, for traces.
    pub(super) fn parts(self) -> (u32, u32) {
        (self.slot, self.generation)
    }

    pub(super) fn from_parts(slot: u32, generation: u32) -> ChannelId {
        ChannelId { slot, generation }
    }
}

/// The service class under which a packet was selected: its channel's reservation, or fair queueing of excess traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkClass {
    /// The packet conforms to the channel's reservation, and was sent by earliest virtual finish.
    Reserved,
    /// No head conformed, and start-time fair queueing of excess traffic selected the packet.
    Excess,
}

/// The next action of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDecision<P> {
    /// Send this packet, which the caller now owns.
    Send {
        /// The channel of the packet.
        channel: ChannelId,
        /// The packet.
        packet: P,
        /// The packet's length on the wire in bytes.
        length: u32,
        /// The service class under which it was selected.
        class: LinkClass,
    },
    /// Nothing may be sent before `until`. The caller asks again at `until`, or when a packet arrives or terms change.
    Wait {
        /// The time to ask again, on the caller's clock.
        until: Nanos,
    },
    /// No packet waits.
    Idle,
}

/// A packet that was not queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped<P> {
    /// The reason.
    pub cause: LinkDropCause,
    /// The packet.
    pub packet: P,
}

/// A channel that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedChannel<P> {
    /// The channel's counters.
    pub counters: ChannelCounters,
    /// The packets that waited, in order.
    pub unsent: Vec<P>,
}

struct Slot<P> {
    generation: u32,
    channel: Option<LinkChannel<P>>,
}

/// The scheduler of one output link. `P` is the caller's handle of a packet.
///
/// All times are on one clock of the caller, in nanoseconds since an arbitrary instant. A time before that of an
/// earlier call counts as the latest time so far.
///
/// A *head* is the first packet of a channel's queue. It *conforms* if the reservation of its channel may send it now
/// (see [`super`]).
pub struct LinkScheduler<P> {
    config: LinkSchedulerConfig,
    pace: ByteTime,
    reservations: LinkReservations,
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
    /// Heads that do not conform yet, by the time from which they conform.
    pending: Heap<Nanos>,
    /// Heads that conform, by their virtual finish.
    conforming: Heap<Nanos>,
    /// Heads that their cap excludes from excess traffic, by the time from which the cap allows them.
    capped: Heap<Nanos>,
    /// Heads that may be sent as excess traffic, by their start tag.
    excess: Heap<u128>,
    /// The virtual time of excess traffic: the start tag of the last packet sent. When no excess traffic waits any
    /// more, it is the latest virtual finish.
    excess_time: u128,
    /// The latest virtual finish of excess traffic.
    excess_latest: u128,
    /// The number of packets that wait in all channels.
    waiting: usize,
    /// The end of the transmission in progress.
    busy_until: VirtualTime,
    /// The time until which packets wait but none may be sent. The link does not make up for that time by sending back
    /// to back.
    blocked_until: Option<Nanos>,
    now: Nanos,
}

impl<P> LinkScheduler<P> {
    /// Creates a link without channels.
    pub fn new(config: LinkSchedulerConfig) -> Result<Self, LinkConfigError> {
        let pace = pace_of(config.rate, config.reservable)?;
        let longest = config.framing.on_wire(config.frame_max);
        if longest > FRAME_MAX {
            return Err(LinkConfigError::FrameTooLong { given: longest, most: FRAME_MAX });
        }
        if !(1..=CHANNELS_MAX).contains(&config.channels_max) {
            return Err(LinkConfigError::Channels { given: config.channels_max, most: CHANNELS_MAX });
        }
        let count = config.channels_max as usize;
        Ok(LinkScheduler {
            config,
            pace,
            reservations: LinkReservations::new(config.reservable, count),
            slots: (0..count).map(|_| Slot { generation: 0, channel: None }).collect(),
            free: (0..config.channels_max).rev().collect(),
            pending: Heap::new(count),
            conforming: Heap::new(count),
            capped: Heap::new(count),
            excess: Heap::new(count),
            excess_time: 0,
            excess_latest: 0,
            waiting: 0,
            busy_until: VirtualTime::default(),
            blocked_until: None,
            now: Nanos(0),
        })
    }

    /// The rate that can be reserved at `now`.
    pub fn unreserved(&mut self, now: Nanos) -> BitsPerSecond {
        let now = self.advance(now);
        self.reservations.unreserved(now)
    }

    /// The rate that can be reserved at `now`, without advancing the clock.
    pub fn unreserved_at(&self, now: Nanos) -> BitsPerSecond {
        self.reservations.unreserved_at(now)
    }

    /// Ends holds (see [`super`]) until `wanted` can be reserved, or no hold is left. This is for changes that lower
    /// some channels and raise others at once.
    pub fn release_held(&mut self, wanted: BitsPerSecond, now: Nanos) {
        let now = self.advance(now);
        self.reservations.release_held(wanted, now);
    }

    /// The rate that channels have reserved.
    pub fn reserved(&self) -> BitsPerSecond {
        self.reservations.reserved()
    }

    /// Changes the link's rate and its reservable part. The rest of the frame that is being sent is counted at the new
    /// rate. Each bound (see [`super`]) then holds with the lowest rate that the link has in the bound's interval.
    ///
    /// # Errors
    ///
    /// [`RateRefused`] if the rate is invalid, or more is reserved or held than the new rate allows. So no change of
    /// the rate breaks a guarantee.
    pub fn set_rate(
        &mut self,
        rate: BitsPerSecond,
        reservable: BitsPerSecond,
        now: Nanos,
    ) -> Result<(), RateRefused> {
        let now = self.advance(now);
        let pace = pace_of(rate, reservable)?;
        self.reservations.resize(reservable, now)?;
        self.busy_until = self.busy_until.rescaled(now, self.pace, pace);
        self.pace = pace;
        (self.config.rate, self.config.reservable) = (rate, reservable);
        Ok(())
    }

    /// Opens a channel if its reservation fits.
    pub fn open(&mut self, terms: ChannelTerms, now: Nanos) -> Result<ChannelId, ChannelRefused> {
        let now = self.advance(now);
        check_terms(&terms)?;
        let Some(slot) = self.free.last().copied() else {
            return Err(ChannelRefused::TooManyChannels { most: self.config.channels_max });
        };
        let channel = LinkChannel::new(terms);
        self.reservations.exchange(BitsPerSecond(0), channel.reserved(), now)?;
        self.free.pop();
        let entry = &mut self.slots[slot as usize];
        entry.channel = Some(channel);
        Ok(ChannelId { slot, generation: entry.generation })
    }

    /// Changes the terms of an open channel at once. Waiting packets stay, also beyond a smaller queue limit.
    /// Counters continue.
    pub fn change(&mut self, id: ChannelId, terms: ChannelTerms, now: Nanos) -> Result<(), ChannelRefused> {
        let now = self.advance(now);
        check_terms(&terms)?;
        let Some(channel) = find(&mut self.slots, id) else { return Err(ChannelRefused::NoSuchChannel) };
        let old = channel.reserved();
        let new = terms.reservation.map_or(BitsPerSecond(0), |reservation| reservation.bits_per_second());
        self.reservations.exchange(old, new, now)?;
        let until = channel.change(terms, now);
        channel.apply_cap();
        self.reservations.hold(BitsPerSecond(old.0.saturating_sub(new.0)), until, now);
        self.unblock(now);
        self.update_heaps(id.slot as usize, now);
        Ok(())
    }

    /// Closes a channel and returns its waiting packets. `None` if there is no such channel.
    pub fn close(&mut self, id: ChannelId, now: Nanos) -> Option<ClosedChannel<P>> {
        let now = self.advance(now);
        find(&mut self.slots, id)?;
        let slot = &mut self.slots[id.slot as usize];
        let channel = slot.channel.take()?;
        // A slot whose generations are exhausted is not used again, so that no identifier is reused.
        if let Some(generation) = slot.generation.checked_add(1) {
            slot.generation = generation;
            self.free.push(id.slot);
        }
        let ahead = channel.tags.map_or(channel.clock, |tags| tags.start).rounded_up().time();
        let rate = channel.reserved();
        // A reduction is never refused.
        let returned = self.reservations.exchange(rate, BitsPerSecond(0), now);
        debug_assert!(returned.is_ok());
        self.reservations.hold(rate, ahead, now);
        self.waiting -= channel.waiting();
        self.remove_from_heaps(id.slot as usize);
        Some(ClosedChannel { counters: channel.counters, unsent: channel.into_packets() })
    }

    /// Queues a packet. `length` is its length in bytes, not counting framing.
    pub fn enqueue(&mut self, id: ChannelId, packet: P, length: u32, now: Nanos) -> Result<(), Dropped<P>> {
        let now = self.advance(now);
        let on_wire = self.config.framing.on_wire(length);
        let is_too_long = length > self.config.frame_max;
        let Some(channel) = find(&mut self.slots, id) else {
            return Err(Dropped { cause: LinkDropCause::NoSuchChannel, packet });
        };
        if is_too_long {
            channel.counters.count_drop(LinkDropCause::TooLong, on_wire);
            return Err(Dropped { cause: LinkDropCause::TooLong, packet });
        }
        let queued = QueuedPacket { packet, length: on_wire, arrived: now };
        channel.push(queued).map_err(|(cause, packet)| Dropped { cause, packet })?;
        let is_head = channel.waiting() == 1;
        if self.waiting == 0 {
            self.busy_until = self.busy_until.no_earlier_than(now);
        }
        self.waiting += 1;
        if is_head {
            channel.wake(now);
            self.unblock(now);
            self.update_heaps(id.slot as usize, now);
        }
        Ok(())
    }

    /// Decides what to send now. With [`Pacing::Device`], the device must have space for a frame.
    pub fn next(&mut self, now: Nanos) -> LinkDecision<P> {
        let now = self.advance(now);
        if self.waiting == 0 {
            return LinkDecision::Idle;
        }
        self.promote(now);
        let is_busy = matches!(self.config.pacing, Pacing::Link { .. }) && now < self.busy_until.time();
        let choice = match (self.conforming.peek(), self.excess.peek()) {
            (Some((_, slot)), _) => Some((slot, LinkClass::Reserved)),
            (None, Some((_, slot))) => Some((slot, LinkClass::Excess)),
            (None, None) => None,
        };
        match choice {
            Some(_) if is_busy => LinkDecision::Wait { until: self.busy_until.time() },
            Some((slot, class)) => self.send(slot, class, now),
            None => {
                let times = [self.pending.peek(), self.capped.peek()];
                // A head that is neither conforming nor excess is in one of these heaps.
                let until =
                    times.into_iter().flatten().map(|(time, _)| time).min().unwrap_or(Nanos(u64::MAX));
                self.blocked_until = Some(until);
                LinkDecision::Wait { until: if is_busy { until.max(self.busy_until.time()) } else { until } }
            }
        }
    }

    /// The terms of a channel; `None` if there is no such channel.
    pub fn terms(&self, id: ChannelId) -> Option<&ChannelTerms> {
        self.get(id).map(|channel| &channel.terms)
    }

    /// The counters of a channel; `None` if there is no such channel.
    pub fn counters(&self, id: ChannelId) -> Option<&ChannelCounters> {
        self.get(id).map(|channel| &channel.counters)
    }

    /// Returns true if no packet waits in any channel.
    pub fn is_idle(&self) -> bool {
        self.waiting == 0
    }

    /// The number of packets that wait in a channel, and their bytes on the wire; `None` if there is no such channel.
    pub fn waiting(&self, id: ChannelId) -> Option<(usize, Bytes)> {
        self.get(id).map(|channel| (channel.waiting(), Bytes(channel.waiting_bytes())))
    }

    /// The configuration of the link.
    pub fn config(&self) -> &LinkSchedulerConfig {
        &self.config
    }

    fn get(&self, id: ChannelId) -> Option<&LinkChannel<P>> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.channel.as_ref().filter(|_| slot.generation == id.generation)
    }

    fn advance(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        self.now
    }

    /// Ends a time in which packets waited and no packet was allowed. The link does not make up for that time.
    fn unblock(&mut self, now: Nanos) {
        if let Some(until) = self.blocked_until.take() {
            self.busy_until = self.busy_until.no_earlier_than(until.min(now));
        }
    }

    /// Moves heads whose time has come to the heaps they can be sent from.
    fn promote(&mut self, now: Nanos) {
        while let Some((time, slot)) = self.pending.peek()
            && time <= now
        {
            self.unblock(now);
            self.pending.remove(slot);
            if let Some(tags) = self.slots[slot].channel.as_ref().and_then(|channel| channel.tags) {
                self.conforming.set(slot, tags.finish.time());
            }
        }
        while let Some((time, slot)) = self.capped.peek()
            && time <= now
        {
            self.unblock(now);
            self.capped.remove(slot);
            self.join_excess(slot);
        }
    }

    /// Puts a channel's head into the heaps where it belongs, and takes it out of the others.
    fn update_heaps(&mut self, slot: usize, now: Nanos) {
        let Some(channel) = self.slots[slot].channel.as_ref().filter(|channel| channel.waiting() > 0) else {
            return self.remove_from_heaps(slot);
        };
        match (channel.conforms_from(), channel.tags) {
            (Some(from), _) if from > now => {
                self.conforming.remove(slot);
                self.pending.set(slot, from);
            }
            (Some(_), Some(tags)) => {
                self.pending.remove(slot);
                self.conforming.set(slot, tags.finish.time());
            }
            _ => {
                self.pending.remove(slot);
                self.conforming.remove(slot);
            }
        }
        let allowed = channel.cap_allows_from();
        if channel.terms.weight == 0 {
            self.capped.remove(slot);
            self.leave_excess(slot);
        } else if allowed > now {
            self.leave_excess(slot);
            self.capped.set(slot, allowed);
        } else {
            self.capped.remove(slot);
            self.join_excess(slot);
        }
    }

    /// Removes a channel from every heap.
    fn remove_from_heaps(&mut self, slot: usize) {
        self.pending.remove(slot);
        self.conforming.remove(slot);
        self.capped.remove(slot);
        self.leave_excess(slot);
    }

    /// Adds a channel to excess traffic, at its own start tag or at the present virtual time, whichever is later. So
    /// time without packets gives no credit.
    fn join_excess(&mut self, slot: usize) {
        if let Some(channel) = self.slots[slot].channel.as_mut() {
            if !self.excess.contains(slot) {
                channel.excess_start = channel.excess_start.max(self.excess_time);
            }
            self.excess.set(slot, channel.excess_start);
        }
    }

    fn leave_excess(&mut self, slot: usize) {
        if self.excess.contains(slot) {
            self.excess.remove(slot);
            if self.excess.peek().is_none() {
                self.excess_time = self.excess_latest.max(self.excess_time);
            }
        }
    }

    /// Takes a channel's head out of its queue, counts it, and advances the clocks.
    fn send(&mut self, slot: usize, class: LinkClass, now: Nanos) -> LinkDecision<P> {
        let entry = &mut self.slots[slot];
        let id = ChannelId { slot: u32::try_from(slot).unwrap_or(u32::MAX), generation: entry.generation };
        let Some((channel, (sent, tags))) =
            entry.channel.as_mut().and_then(|channel| channel.pop().map(|popped| (channel, popped)))
        else {
            // Only slots with a head are in the heaps.
            debug_assert!(false, "slot {slot} has nothing to send");
            self.remove_from_heaps(slot);
            return LinkDecision::Idle;
        };
        match (class, tags) {
            (LinkClass::Reserved, Some(tags)) => {
                channel.clock = tags.finish;
                channel.counters.reserved.add(sent.length);
            }
            _ => {
                self.excess_time = channel.excess_start;
                let step =
                    u64::from(sent.length) * ((1 << EXCESS_SHIFT) / u64::from(channel.terms.weight.max(1)));
                channel.excess_start += u128::from(step);
                self.excess_latest = self.excess_latest.max(channel.excess_start);
                channel.counters.excess.add(sent.length);
            }
        }
        channel.counters.delays.add(Nanos(now.0.saturating_sub(sent.arrived.0)));
        channel.charge_cap(sent.length, now);
        channel.tag_head();
        self.waiting -= 1;
        if let Pacing::Link { catch_up } = self.config.pacing {
            let earliest_start = Nanos(now.0.saturating_sub(catch_up.0));
            self.busy_until = self.busy_until.no_earlier_than(earliest_start).after(sent.length, self.pace);
        }
        self.update_heaps(slot, now);
        LinkDecision::Send { channel: id, packet: sent.packet, length: sent.length, class }
    }
}

/// The time of a byte on a link of this rate, if `reservable` fits.
fn pace_of(rate: BitsPerSecond, reservable: BitsPerSecond) -> Result<ByteTime, LinkConfigError> {
    let pace = ByteTime::of_rate(rate).ok_or(LinkConfigError::NoRate)?;
    if reservable > rate {
        return Err(LinkConfigError::ReservableOverRate { reservable, rate });
    }
    Ok(pace)
}

/// Checks that the terms do not contradict each other.
fn check_terms(terms: &ChannelTerms) -> Result<(), ChannelRefused> {
    match (terms.reservation, terms.cap) {
        (None, _) if terms.weight == 0 => Err(ChannelRefused::NeitherReservationNorWeight),
        (Some(reservation), Some(cap)) if cap.bits_per_second() < reservation.bits_per_second() => {
            let (reserved, cap) = (reservation.bits_per_second(), cap.bits_per_second());
            Err(ChannelRefused::CapUnderReservation { reserved, cap })
        }
        _ => Ok(()),
    }
}

fn find<P>(slots: &mut [Slot<P>], id: ChannelId) -> Option<&mut LinkChannel<P>> {
    let slot = slots.get_mut(id.slot as usize)?;
    slot.channel.as_mut().filter(|_| slot.generation == id.generation)
}
