//! A module's instance before the packets of one source: what is mapped for it, and what time it is for it.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use weir_netio::{Block, DescriptorRing, PinError, WatchError, WatchGuard, Window};
use weir_sandbox::{Area, Batch, Budget, Call, Instance, News, NotPinned, Pinned, Step};
use weir_units::Timestamp;

/// Why an instance could not go on. To blame is the node.
#[derive(Debug, thiserror::Error)]
pub enum SeatError {
    /// The packets could not be mapped into the sandbox.
    #[error(
        "packets cannot be mapped into a sandbox: {0}; more address space may help (ulimit -v, vm.max_map_count)"
    )]
    Map(#[from] io::Error),
    /// The mapping could not be watched.
    #[error(transparent)]
    Watch(#[from] WatchError),
}

/// What a module has said of the packets of a batch: a bit of each packet's place in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// They are to be dropped.
    pub dropped: u64,
    /// It has not seen them to their end.
    pub unserved: u64,
}

/// What a seat is for: a sandbox in this process, or in another.
pub trait Occupant {
    /// Maps the descriptors of all blocks.
    ///
    /// # Errors
    /// They cannot be.
    fn map_descriptors(&mut self, ring: &DescriptorRing) -> io::Result<()>;

    /// Maps a window on the packets in place of the last one. Gives what watches over it, where it is mapped in this process.
    ///
    /// # Errors
    /// It cannot be.
    fn face(&mut self, window: &Arc<Window>) -> Result<Option<WatchGuard>, SeatError>;

    /// As [`Instance::begin`].
    fn begin(&mut self, call: Call, budget: Budget) -> Step;

    /// As [`Instance::resume`].
    fn resume(&mut self, budget: Budget) -> Step;

    /// As [`Instance::abandon`].
    fn abandon(&mut self) -> u64;

    /// As [`Instance::is_suspended`].
    fn is_suspended(&self) -> bool;

    /// As [`Instance::begin_block`].
    fn begin_block(&mut self);

    /// As [`Instance::take_unserved`].
    fn take_unserved(&mut self) -> u64;
}

impl Occupant for Instance {
    fn map_descriptors(&mut self, ring: &DescriptorRing) -> io::Result<()> {
        let len = usize::try_from(ring.len().0).unwrap_or(usize::MAX);
        Self::map_descriptors(self, Area { fd: ring.fd(), offset: 0, len }).map(|_| ())
    }

    fn face(&mut self, window: &Arc<Window>) -> Result<Option<WatchGuard>, SeatError> {
        let len = usize::try_from(window.len().0).unwrap_or(usize::MAX);
        let addresses = self.map_packets(Area { fd: window.fd(), offset: window.file_offset(), len })?;
        let memory = Arc::clone(window);
        self.keep_by(Some(Box::new(move |address, len| pin(&memory, address, len))))?;
        Ok(Some(weir_netio::watch(addresses, window)?))
    }

    fn begin(&mut self, call: Call, budget: Budget) -> Step {
        Self::begin(self, call, budget)
    }

    fn resume(&mut self, budget: Budget) -> Step {
        Self::resume(self, budget)
    }

    fn abandon(&mut self) -> u64 {
        Self::abandon(self)
    }

    fn is_suspended(&self) -> bool {
        Self::is_suspended(self)
    }

    fn begin_block(&mut self) {
        Self::begin_block(self);
    }

    fn take_unserved(&mut self) -> u64 {
        Self::take_unserved(self)
    }
}

/// An instance and its source.
#[derive(Debug)]
pub struct Seat<O = Instance> {
    // Dropped before `instance`: addresses that the sandbox has given back must not be watched.
    window: Option<(u64, Option<WatchGuard>)>,
    /// The sandbox.
    pub instance: O,
    /// Where the descriptors are that it sees.
    ring: DescriptorRing,
    clock: Clock,
    /// What has been [begun](Self::begin) and is not at its end: the calls that are still to make, and the packets that they are for.
    calls: VecDeque<Call>,
    under_way: Option<Arc<Block>>,
    /// Packets of what has been begun that the module drops.
    dropped: u64,
    /// Packets of it that the module was not shown, because it was given up.
    skipped: u64,
}

impl<O: Occupant> Seat<O> {
    /// Puts an instance before the source of this ring; ticks come every `tick` nanoseconds of packet time.
    pub fn new(mut instance: O, ring: &DescriptorRing, tick: Option<u64>) -> Result<Self, SeatError> {
        instance.map_descriptors(ring)?;
        let (clock, calls) = (Clock::new(tick), VecDeque::new());
        let ring = ring.clone();
        Ok(Self { window: None, instance, ring, clock, calls, under_way: None, dropped: 0, skipped: 0 })
    }

    /// Makes a block's packets visible to the module. What was visible before is so no longer, where it is in another window.
    pub fn face(&mut self, block: &Block) -> Result<(), SeatError> {
        if !block.is_of(&self.ring) {
            let ring = block.ring();
            self.instance.map_descriptors(&ring)?;
            self.ring = ring;
        }
        let window = block.window();
        if self.window.as_ref().is_some_and(|(id, _)| *id == window.id()) {
            return Ok(());
        }
        // The old mapping is gone with this call, so its watch must not outlive it.
        self.window = None;
        let guard = self.instance.face(window)?;
        self.window = Some((window.id(), guard));
        Ok(())
    }

    /// When the next tick is due; never where it has none, or none yet.
    pub fn next_tick(&self) -> Option<Timestamp> {
        (self.clock.next != u64::MAX).then_some(Timestamp(self.clock.next))
    }

    /// Begins what [`run`](Self::run) does, and does as much of it as the budget allows, where the module can be suspended. The packets stay where
    /// they are until all is done. Says whether it is.
    pub fn begin(
        &mut self,
        block: &Arc<Block>,
        batch: usize,
        mask: u64,
        budget: &dyn Fn() -> Option<Budget>,
    ) -> bool {
        let Self { clock, calls, .. } = self;
        clock.cut(block, batch, mask, |call| calls.push_back(call));
        self.under_way = Some(Arc::clone(block));
        (self.dropped, self.skipped) = (0, 0);
        // What was given up before is nothing of these.
        self.instance.take_unserved();
        self.go_on(budget)
    }

    /// Of packets that have been [begun](Self::begin) and that the module is done with: which it drops, and which it has not seen to their end.
    pub fn verdict(&mut self) -> Verdict {
        Verdict { dropped: self.dropped, unserved: self.instance.take_unserved() | self.skipped }
    }

    /// Begins what [`pass`](Self::pass) does, in the same way.
    pub fn begin_pass(&mut self, now: Timestamp, budget: &dyn Fn() -> Option<Budget>) -> bool {
        if let Some((at, periods)) = self.clock.reach(now.0) {
            self.calls.push_back(Call::Tick { now: Timestamp(at), periods, before: 0 });
        }
        self.clock.advance(now);
        self.go_on(budget)
    }

    /// Begins to tell the module something, where it wants to be told, in the same way.
    pub fn begin_news(&mut self, news: News, budget: &dyn Fn() -> Option<Budget>) -> bool {
        // What it emits then has an allowance of its own.
        self.instance.begin_block();
        self.calls.push_back(Call::News(news));
        self.go_on(budget)
    }

    /// Begins what [`stop`](Self::stop) does, in the same way.
    pub fn begin_stop(&mut self, budget: &dyn Fn() -> Option<Budget>) -> bool {
        self.calls.push_back(Call::Stop { now: Timestamp(self.clock.now) });
        self.go_on(budget)
    }

    /// Goes on with what has been begun. The budget is asked for before each call, and is none when it is used up; at least one call is made.
    pub fn go_on(&mut self, budget: &dyn Fn() -> Option<Budget>) -> bool {
        let mut is_first = true;
        loop {
            // Before the budget: the last call may have ended exactly with it.
            if self.calls.is_empty() && !self.instance.is_suspended() {
                self.under_way = None;
                return true;
            }
            let least = is_first.then_some(Budget { fuel: 1, until: None });
            let Some(budget) = budget().or(least) else { return false };
            is_first = false;
            let step = match self.calls.pop_front_if(|_| !self.instance.is_suspended()) {
                Some(call) => self.instance.begin(call, budget),
                None => self.instance.resume(budget),
            };
            match step {
                Step::Suspended => return false,
                Step::Done(dropped) => self.dropped |= dropped,
            }
        }
    }

    /// Whether packets have been begun, and are not at their end.
    pub fn has_begun_packets(&self) -> bool {
        self.under_way.is_some()
    }

    /// Gives up what has been begun. Packets of it that the module has not seen are lost, and counted by the instance or returned.
    pub fn give_up(&mut self) -> u64 {
        self.dropped |= self.instance.abandon();
        let unseen =
            self.calls.drain(..).map(|call| if let Call::Batch(batch) = call { batch.mask } else { 0 });
        // Of one batch, so no two have a packet in common.
        self.skipped = unseen.fold(0, |all, mask| all | mask);
        self.under_way = None;
        self.skipped.count_ones().into()
    }

    /// Tells the module that no more packets come.
    pub fn stop(&mut self) {
        let whole = || Some(Budget::WHOLE);
        let mut is_done = self.begin_stop(&whole);
        // Nothing suspends it then; but a process of its own may have to be waited for again.
        while !is_done {
            is_done = self.go_on(&whole);
        }
    }
}

impl Seat {
    /// Has the module see those packets of a batch that are in the mask, with the ticks that come between them. The block is one that it
    /// [faces](Self::face). Returns the packets that it drops.
    pub fn run(&mut self, block: &Block, batch: usize, mask: u64) -> u64 {
        let Self { clock, instance, .. } = self;
        let mut dropped = 0;
        clock.cut(block, batch, mask, |call| match call {
            Call::Tick { now, periods, before } => instance.tick(now, periods, before),
            Call::Batch(batch) => dropped |= instance.run(batch),
            Call::Start | Call::Stop { .. } | Call::News(_) => {}
        });
        dropped
    }

    /// Time goes on though no packet says so. Does nothing where no tick is due.
    pub fn pass(&mut self, now: Timestamp) {
        if let Some((at, periods)) = self.clock.reach(now.0) {
            self.instance.tick(Timestamp(at), periods, 0);
        }
        self.clock.advance(now);
    }
}

/// Keeps a packet's memory.
fn pin(window: &Window, address: u32, len: u32) -> Result<Pinned, NotPinned> {
    let pin = window.pin(address, len).map_err(|error| match error {
        PinError::Never => NotPinned::Never,
        PinError::Full => NotPinned::Full,
    })?;
    let (pieces, piece, most) = (pin.pieces(), pin.piece(), pin.most());
    Ok(Pinned { hold: Box::new(pin), pieces, piece, most })
}

/// Bits 0 to i - 1.
fn below(i: usize) -> u64 {
    1u64.checked_shl(u32::try_from(i).unwrap_or(u32::MAX)).map_or(u64::MAX, |bit| bit - 1)
}

/// Packet time: the latest time stamp so far, and when the next tick is due.
#[derive(Debug)]
struct Clock {
    now: u64,
    period: Option<u64>,
    next: u64,
}

impl Clock {
    fn new(period: Option<u64>) -> Self {
        // Due at once: the first packet says where the periods begin.
        Self { now: 0, period, next: if period.is_some() { 0 } else { u64::MAX } }
    }

    fn is_due(&self, latest: Timestamp) -> bool {
        self.period.is_some() && latest.0 >= self.next
    }

    fn advance(&mut self, latest: Timestamp) {
        self.now = self.now.max(latest.0);
    }

    /// The calls for those packets of a batch that are in the mask: where packet time passes a period, ticks come between the packets.
    fn cut(&mut self, block: &Block, batch: usize, mask: u64, mut make: impl FnMut(Call)) {
        let batch = block.batch(batch);
        let mask = mask & batch.mask;
        let number = |i: usize| u32::try_from(batch.first + i).unwrap_or(u32::MAX);
        let call = |mask| Call::Batch(Batch { descriptors: batch.guest_address, mask, first: number(0) });
        let mut from = 0;
        if self.is_due(batch.latest) {
            let packets = block.descriptors().iter().skip(batch.first).take(batch.count);
            for (i, descriptor) in packets.enumerate() {
                let Some((now, periods)) = self.reach(descriptor.ts_ns) else { continue };
                make(call(mask & below(i) & !below(from)));
                make(Call::Tick { now: Timestamp(now), periods, before: number(i) });
                from = i;
            }
        }
        make(call(mask & !below(from)));
        self.advance(batch.latest);
    }

    /// A packet of time `ts`: the tick that comes before it, and how many periods that is.
    fn reach(&mut self, ts: u64) -> Option<(u64, u64)> {
        let period = self.period?;
        if ts < self.next {
            return None;
        }
        let begun = ts / period;
        let periods = begun - (self.next / period).wrapping_sub(1).min(begun);
        let first = self.next == 0;
        self.next = (begun + 1).saturating_mul(period);
        (!first).then_some((begun * period, periods))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_at_multiples_of_the_period_and_once_for_a_gap() {
        let mut clock = Clock::new(Some(10));
        assert_eq!(clock.reach(25), None, "the first packet only says where we are");
        assert_eq!(clock.reach(29), None);
        assert_eq!(clock.reach(30), Some((30, 1)));
        assert_eq!(clock.reach(25), None, "time going backwards does not tick");
        assert_eq!(clock.reach(71), Some((70, 4)));
        assert_eq!(clock.reach(79), None);
        assert_eq!(clock.reach(80), Some((80, 1)));
        let (now, periods) = clock.reach(u64::MAX).unwrap();
        assert_eq!((now, periods), (u64::MAX / 10 * 10, u64::MAX / 10 - 8));
        assert_eq!(Clock::new(None).reach(u64::MAX), None);
    }

    #[test]
    fn a_mask_of_the_packets_before_one() {
        assert_eq!([below(0), below(1), below(63), below(64)], [0, 1, u64::MAX >> 1, u64::MAX]);
    }
}
