//! The scheduler of one link.

use super::admission::{ChannelRefused, LinkConfigError, LinkReservations, RateRefused};
use super::channel::{LinkChannel, Queued};
use super::clock::{ByteTime, VirtualTime};
use super::counters::{ChannelCounters, LinkDropCause};
use super::terms::{CHANNELS_MAX, ChannelTerms, FRAME_MAX, LinkSchedulerConfig, Pacing};
use crate::heap::Heap;
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// Virtual time of the excess is in bytes / weight x 2^40: a frame of 2^20 bytes stays in 64 bits, and a weight's reciprocal is off by at
/// most 2^16 / 2^40.
const EXCESS_SHIFT: u32 = 40;

/// A channel of one link. A closed channel's name is never given again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChannelId {
    slot: u32,
    generation: u32,
}

impl ChannelId {
    /// The slot and how often it was used before: for traces.
    pub(super) fn parts(self) -> (u32, u32) {
        (self.slot, self.generation)
    }

    pub(super) fn from_parts(slot: u32, generation: u32) -> ChannelId {
        ChannelId { slot, generation }
    }
}

/// Which of the two schedulers sent a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkClass {
    /// The channel's reservation.
    Reserved,
    /// What the reservations left.
    Excess,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkDecision<P> {
    /// Send this packet; it is the caller's.
    Send {
        /// Whose it is.
        channel: ChannelId,
        /// The packet.
        packet: P,
        /// Its length on the wire.
        length: u32,
        /// By what.
        class: LinkClass,
    },
    /// Nothing may be sent before `until`, unless a packet arrives or terms change.
    Wait {
        /// When to ask again, on the caller's clock.
        until: Nanos,
    },
    /// No packet waits.
    Idle,
}

/// A packet that was not queued, given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dropped<P> {
    /// Why.
    pub cause: LinkDropCause,
    /// The packet.
    pub packet: P,
}

/// A channel that was closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedChannel<P> {
    /// What it did.
    pub counters: ChannelCounters,
    /// What it had waiting, in order.
    pub unsent: Vec<P>,
}

struct Slot<P> {
    generation: u32,
    channel: Option<LinkChannel<P>>,
}

/// One output link. `P` is what the caller holds a packet by.
///
/// All times are on one clock of the caller's, in nanoseconds since any moment; a time before the latest that was given counts as the
/// latest.
pub struct LinkScheduler<P> {
    config: LinkSchedulerConfig,
    pace: ByteTime,
    ledger: LinkReservations,
    slots: Vec<Slot<P>>,
    free: Vec<u32>,
    /// Heads that will conform, by when.
    pending: Heap<Nanos>,
    /// Heads that conform, by their finish in virtual time.
    conforming: Heap<Nanos>,
    /// Heads that their cap keeps from the excess, by until when.
    capped: Heap<Nanos>,
    /// Heads that may be sent as excess, by their start in its virtual time.
    excess: Heap<u128>,
    /// Virtual time of the excess: the start of what was sent last, or after the end of a busy period the last finish in it.
    excess_time: u128,
    excess_latest: u128,
    waiting: usize,
    /// Until when the frame under way keeps the link.
    busy: VirtualTime,
    /// Until when nothing may be sent although packets wait: no time to catch up with.
    barred: Option<Nanos>,
    now: Nanos,
}

impl<P> LinkScheduler<P> {
    /// A link without channels.
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
            ledger: LinkReservations::new(config.reservable, count),
            slots: (0..count).map(|_| Slot { generation: 0, channel: None }).collect(),
            free: (0..config.channels_max).rev().collect(),
            pending: Heap::new(count),
            conforming: Heap::new(count),
            capped: Heap::new(count),
            excess: Heap::new(count),
            excess_time: 0,
            excess_latest: 0,
            waiting: 0,
            busy: VirtualTime::default(),
            barred: None,
            now: Nanos(0),
        })
    }

    /// What can still be reserved.
    pub fn left(&mut self, now: Nanos) -> BitsPerSecond {
        let now = self.advance(now);
        self.ledger.left(now)
    }

    /// The same, for those who only look.
    pub fn left_at(&self, now: Nanos) -> BitsPerSecond {
        self.ledger.left_at(now)
    }

    /// Has so much left to reserve, if it is not reserved: what is held for channels that sent ahead of their clocks is given out. Where one change lowers some channels and raises others.
    pub fn forgive(&mut self, wanted: BitsPerSecond, now: Nanos) {
        let now = self.advance(now);
        self.ledger.forgive(wanted, now);
    }

    /// What the channels have reserved.
    pub fn reserved(&self) -> BitsPerSecond {
        self.ledger.reserved()
    }

    /// Gives the link another rate from now on, of which so much can be reserved. What is left of the frame under way takes the time that it
    /// takes at the new rate. Every bound holds with the lowest rate of its interval.
    ///
    /// # Errors
    ///
    /// No link can have this rate, or more is promised, or held for those who were, than could be reserved then: so no change of the rate ever
    /// breaks a guarantee.
    pub fn set_rate(
        &mut self,
        rate: BitsPerSecond,
        reservable: BitsPerSecond,
        now: Nanos,
    ) -> Result<(), RateRefused> {
        let now = self.advance(now);
        let pace = pace_of(rate, reservable)?;
        self.ledger.resize(reservable, now)?;
        self.busy = self.busy.rescaled(now, self.pace, pace);
        self.pace = pace;
        (self.config.rate, self.config.reservable) = (rate, reservable);
        Ok(())
    }

    /// Opens a channel, if the link has left what it is to be guaranteed.
    pub fn open(&mut self, terms: ChannelTerms, now: Nanos) -> Result<ChannelId, ChannelRefused> {
        let now = self.advance(now);
        check(&terms)?;
        let Some(slot) = self.free.last().copied() else {
            return Err(ChannelRefused::TooManyChannels { most: self.config.channels_max });
        };
        let channel = LinkChannel::new(terms);
        self.ledger.exchange(BitsPerSecond(0), channel.reserved(), now)?;
        self.free.pop();
        let entry = &mut self.slots[slot as usize];
        entry.channel = Some(channel);
        Ok(ChannelId { slot, generation: entry.generation })
    }

    /// Gives an open channel new terms, from now on. What waits stays, also where the queue may now hold less. Counters run on.
    pub fn change(&mut self, id: ChannelId, terms: ChannelTerms, now: Nanos) -> Result<(), ChannelRefused> {
        let now = self.advance(now);
        check(&terms)?;
        let Some(channel) = find(&mut self.slots, id) else { return Err(ChannelRefused::NoSuchChannel) };
        let old = channel.reserved();
        let new = terms.reservation.map_or(BitsPerSecond(0), |reservation| reservation.bits_per_second());
        self.ledger.exchange(old, new, now)?;
        let until = channel.change(terms, now);
        channel.respect_cap();
        self.ledger.hold(BitsPerSecond(old.0.saturating_sub(new.0)), until, now);
        self.unbar(now);
        self.place(id.slot as usize, now);
        Ok(())
    }

    /// Closes a channel; what it had waiting is given back. None if there is no such channel.
    pub fn close(&mut self, id: ChannelId, now: Nanos) -> Option<ClosedChannel<P>> {
        let now = self.advance(now);
        find(&mut self.slots, id)?;
        let slot = &mut self.slots[id.slot as usize];
        let channel = slot.channel.take()?;
        // A slot that has used up its generations is not used again, so that no name is given twice.
        if let Some(generation) = slot.generation.checked_add(1) {
            slot.generation = generation;
            self.free.push(id.slot);
        }
        let ahead = channel.tags.map_or(channel.clock, |tags| tags.start).rounded_up().time();
        let rate = channel.reserved();
        // Nothing is taken, so there is nothing to refuse.
        let given_back = self.ledger.exchange(rate, BitsPerSecond(0), now);
        debug_assert!(given_back.is_ok());
        self.ledger.hold(rate, ahead, now);
        self.waiting -= channel.waiting();
        self.withdraw(id.slot as usize);
        Some(ClosedChannel { counters: channel.counters, unsent: channel.into_packets() })
    }

    /// Queues a packet of `length` bytes, without framing.
    pub fn enqueue(&mut self, id: ChannelId, packet: P, length: u32, now: Nanos) -> Result<(), Dropped<P>> {
        let now = self.advance(now);
        let on_wire = self.config.framing.on_wire(length);
        let is_too_long = length > self.config.frame_max;
        let Some(channel) = find(&mut self.slots, id) else {
            return Err(Dropped { cause: LinkDropCause::NoSuchChannel, packet });
        };
        if is_too_long {
            channel.counters.dropped(LinkDropCause::TooLong, on_wire);
            return Err(Dropped { cause: LinkDropCause::TooLong, packet });
        }
        let queued = Queued { packet, length: on_wire, arrived: now };
        channel.push(queued).map_err(|(cause, packet)| Dropped { cause, packet })?;
        let is_head = channel.waiting() == 1;
        if self.waiting == 0 {
            self.busy = self.busy.no_earlier_than(now);
        }
        self.waiting += 1;
        if is_head {
            channel.wake(now);
            self.unbar(now);
            self.place(id.slot as usize, now);
        }
        Ok(())
    }

    /// What to send now. Where the device paces, to be asked only when the device has room.
    pub fn next(&mut self, now: Nanos) -> LinkDecision<P> {
        let now = self.advance(now);
        if self.waiting == 0 {
            return LinkDecision::Idle;
        }
        self.promote(now);
        let is_busy = matches!(self.config.pacing, Pacing::Link { .. }) && now < self.busy.time();
        let choice = match (self.conforming.peek(), self.excess.peek()) {
            (Some((_, slot)), _) => Some((slot, LinkClass::Reserved)),
            (None, Some((_, slot))) => Some((slot, LinkClass::Excess)),
            (None, None) => None,
        };
        match choice {
            Some(_) if is_busy => LinkDecision::Wait { until: self.busy.time() },
            Some((slot, class)) => self.send(slot, class, now),
            None => {
                let times = [self.pending.peek(), self.capped.peek()];
                // What waits and is in neither of the other heaps is in one of these.
                let until =
                    times.into_iter().flatten().map(|(time, _)| time).min().unwrap_or(Nanos(u64::MAX));
                self.barred = Some(until);
                LinkDecision::Wait { until: if is_busy { until.max(self.busy.time()) } else { until } }
            }
        }
    }

    /// A channel's terms; None if there is no such channel.
    pub fn terms(&self, id: ChannelId) -> Option<&ChannelTerms> {
        self.get(id).map(|channel| &channel.terms)
    }

    /// What a channel did; None if there is no such channel.
    pub fn counters(&self, id: ChannelId) -> Option<&ChannelCounters> {
        self.get(id).map(|channel| &channel.counters)
    }

    /// How many packets a channel has waiting, and their bytes on the wire; None if there is no such channel.
    pub fn waiting(&self, id: ChannelId) -> Option<(usize, Bytes)> {
        self.get(id).map(|channel| (channel.waiting(), Bytes(channel.waiting_bytes())))
    }

    /// How the link was set up.
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

    /// What was barred is not any more: time up to now was lost to the link, and is not caught up with.
    fn unbar(&mut self, now: Nanos) {
        if let Some(until) = self.barred.take() {
            self.busy = self.busy.no_earlier_than(until.min(now));
        }
    }

    /// Moves heads whose time has come.
    fn promote(&mut self, now: Nanos) {
        while let Some((time, slot)) = self.pending.peek()
            && time <= now
        {
            self.unbar(now);
            self.pending.remove(slot);
            if let Some(tags) = self.slots[slot].channel.as_ref().and_then(|channel| channel.tags) {
                self.conforming.set(slot, tags.finish.time());
            }
        }
        while let Some((time, slot)) = self.capped.peek()
            && time <= now
        {
            self.unbar(now);
            self.capped.remove(slot);
            self.join_excess(slot);
        }
    }

    /// Puts a channel's head where it belongs.
    fn place(&mut self, slot: usize, now: Nanos) {
        let Some(channel) = self.slots[slot].channel.as_ref().filter(|channel| channel.waiting() > 0) else {
            return self.withdraw(slot);
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
        let allowed = channel.allowed_from();
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

    /// Takes a channel out of every heap.
    fn withdraw(&mut self, slot: usize) {
        self.pending.remove(slot);
        self.conforming.remove(slot);
        self.capped.remove(slot);
        self.leave_excess(slot);
    }

    /// A channel comes to the excess at its virtual time, however long it was away.
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

    fn send(&mut self, slot: usize, class: LinkClass, now: Nanos) -> LinkDecision<P> {
        let entry = &mut self.slots[slot];
        let id = ChannelId { slot: u32::try_from(slot).unwrap_or(u32::MAX), generation: entry.generation };
        let Some((channel, (sent, tags))) =
            entry.channel.as_mut().and_then(|channel| channel.pop().map(|popped| (channel, popped)))
        else {
            // Only slots with a head are in the heaps.
            debug_assert!(false, "slot {slot} has nothing to send");
            self.withdraw(slot);
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
            let floor = Nanos(now.0.saturating_sub(catch_up.0));
            self.busy = self.busy.no_earlier_than(floor).after(sent.length, self.pace);
        }
        self.place(slot, now);
        LinkDecision::Send { channel: id, packet: sent.packet, length: sent.length, class }
    }
}

/// The pace of a link of which so much can be reserved.
fn pace_of(rate: BitsPerSecond, reservable: BitsPerSecond) -> Result<ByteTime, LinkConfigError> {
    let pace = ByteTime::of_rate(rate).ok_or(LinkConfigError::NoRate)?;
    if reservable > rate {
        return Err(LinkConfigError::ReservableOverRate { reservable, rate });
    }
    Ok(pace)
}

/// Terms that could be kept on some link.
fn check(terms: &ChannelTerms) -> Result<(), ChannelRefused> {
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
