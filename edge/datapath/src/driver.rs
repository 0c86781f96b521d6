//! A module's instance before the packets of one source: what is mapped for it, and what time it is for it.

use crate::moment::Moment;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use weir_netio::{Block, DescriptorRing, PacketWindow, PinError, WatchError, WatchGuard};
use weir_sandbox::{Area, BatchInput, Call, CallStep, FuelSlice, Instance, News, NotPinned, Pinned};
use weir_units::{Nanos, Timestamp};

/// Why an instance could not go on. To blame is the node.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
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
pub struct BatchVerdict {
    /// They are to be dropped.
    pub dropped: u64,
    /// It has not seen them to their end.
    pub unserved: u64,
}

/// What a seat is for: a sandbox in this process, or in another.
pub trait Sandbox {
    /// Maps the descriptors of all blocks.
    ///
    /// # Errors
    /// They cannot be.
    fn map_descriptors(&mut self, ring: &DescriptorRing) -> io::Result<()>;

    /// Maps a window on the packets in place of the last one. Gives what watches over it, where it is mapped in this process.
    ///
    /// # Errors
    /// It cannot be.
    fn face(&mut self, window: &Arc<PacketWindow>) -> Result<Option<WatchGuard>, BatchError>;

    /// As [`Instance::begin`].
    fn begin(&mut self, call: Call, budget: FuelSlice) -> CallStep;

    /// As [`Instance::resume`].
    fn resume(&mut self, budget: FuelSlice) -> CallStep;

    /// As [`Instance::abandon`].
    fn abandon(&mut self) -> u64;

    /// As [`Instance::is_suspended`].
    fn is_suspended(&self) -> bool;

    /// As [`Instance::begin_block`].
    fn begin_block(&mut self);

    /// As [`Instance::take_unserved`].
    fn take_unserved(&mut self) -> u64;
}

impl Sandbox for Instance {
    fn map_descriptors(&mut self, ring: &DescriptorRing) -> io::Result<()> {
        let len = usize::try_from(ring.len().0).unwrap_or(usize::MAX);
        Self::map_descriptors(self, Area { fd: ring.fd(), offset: 0, len }).map(|_| ())
    }

    fn face(&mut self, window: &Arc<PacketWindow>) -> Result<Option<WatchGuard>, BatchError> {
        let len = usize::try_from(window.len().0).unwrap_or(usize::MAX);
        let addresses = self.map_packets(Area { fd: window.fd(), offset: window.file_offset(), len })?;
        let memory = Arc::clone(window);
        self.keep_by(Some(Box::new(move |address, len| pin(&memory, address, len))))?;
        Ok(Some(weir_netio::watch(addresses, window)?))
    }

    fn begin(&mut self, call: Call, budget: FuelSlice) -> CallStep {
        Self::begin(self, call, budget)
    }

    fn resume(&mut self, budget: FuelSlice) -> CallStep {
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
pub struct BatchDriver<O = Instance> {
    // Dropped before `instance`: addresses that the sandbox has given back must not be watched.
    window: Option<(Arc<PacketWindow>, Option<WatchGuard>)>,
    /// The sandbox.
    pub instance: O,
    /// The ring of the descriptors that it sees. `None` after they could not be mapped: then it sees none.
    ring: Option<DescriptorRing>,
    clock: Clock,
    /// What has been [begun](Self::begin) and is not at its end: the calls that are still to make, and the packets that they are for.
    calls: VecDeque<Call>,
    under_way: Option<Arc<Block>>,
    /// Packets of what has been begun that the module drops.
    dropped: u64,
    /// Packets of it that the module was not shown, because it was given up.
    skipped: u64,
}

impl<O: Sandbox> BatchDriver<O> {
    /// Puts an instance before the source of this ring; ticks come every `tick` nanoseconds of packet time.
    pub fn new(mut instance: O, ring: &DescriptorRing, tick: Option<u64>) -> Result<Self, BatchError> {
        instance.map_descriptors(ring)?;
        let (clock, calls) = (Clock::new(tick), VecDeque::new());
        let ring = Some(ring.clone());
        Ok(Self { window: None, instance, ring, clock, calls, under_way: None, dropped: 0, skipped: 0 })
    }

    /// Returns true if the module has read zeros in place of bytes that the file of its packets had lost.
    pub fn has_lost(&self) -> bool {
        matches!(&self.window, Some((_, Some(guard))) if guard.has_lost())
    }

    /// Makes a block's packets visible to the module. What was visible before is so no longer, where it is in another window.
    pub fn face(&mut self, block: &Block) -> Result<(), BatchError> {
        if !self.ring.as_ref().is_some_and(|ring| block.is_of(ring)) {
            let ring = block.ring();
            self.ring = None;
            self.instance.map_descriptors(&ring)?;
            self.ring = Some(ring);
        }
        let window = block.window();
        if self.window.as_ref().is_some_and(|(facing, _)| facing.id() == window.id()) {
            return Ok(());
        }
        // The old mapping is gone with this call, so its watch must not outlive it; and its memory is not given back before.
        let _mapped = self.window.take().map(|(window, _)| window);
        let guard = self.instance.face(window)?;
        self.window = Some((Arc::clone(window), guard));
        Ok(())
    }

    /// The time by the monotonic clock at which the next tick is due, where it is `at` now; nothing where the module has no ticks, or no packet has come yet.
    pub fn next_tick(&mut self, at: Moment) -> Option<Nanos> {
        self.clock.due(at)
    }

    /// Has the module see those packets of a batch that are in the mask, with the ticks that come between them: as much of it as the budget allows, where
    /// the module can be suspended. The block is one that it [faces](Self::face), and its packets stay where they are until all is done. Says whether it is.
    pub fn begin(
        &mut self,
        block: &Arc<Block>,
        batch: usize,
        mask: u64,
        budget: &dyn Fn() -> Option<FuelSlice>,
    ) -> bool {
        self.call_for(block, batch, mask);
        self.under_way = Some(Arc::clone(block));
        self.go_on(budget)
    }

    /// The same to its end. Returns the packets that the module drops.
    pub fn run(&mut self, block: &Block, batch: usize, mask: u64) -> u64 {
        self.call_for(block, batch, mask);
        self.finish();
        self.dropped
    }

    fn call_for(&mut self, block: &Block, batch: usize, mask: u64) {
        let Self { clock, calls, .. } = self;
        clock.cut(block, batch, mask, |call| calls.push_back(call));
        (self.dropped, self.skipped) = (0, 0);
        // What was given up before is nothing of these.
        self.instance.take_unserved();
    }

    /// Does all that has been begun.
    fn finish(&mut self) {
        // Nothing suspends it then; but a process of its own may have to be waited for again.
        while !self.go_on(&|| Some(FuelSlice::WHOLE)) {}
    }

    /// Of packets that have been [begun](Self::begin) and that the module is done with: which it drops, and which it has not seen to their end.
    pub fn verdict(&mut self) -> BatchVerdict {
        BatchVerdict { dropped: self.dropped, unserved: self.instance.take_unserved() | self.skipped }
    }

    /// Time goes on though no packet says so: begins the tick that is due, in the same way.
    pub fn begin_pass(&mut self, at: Moment, budget: &dyn Fn() -> Option<FuelSlice>) -> bool {
        let tick = self.clock.pass(at);
        self.calls.extend(tick.map(tick_between));
        self.go_on(budget)
    }

    /// The same to its end.
    pub fn pass(&mut self, at: Moment) {
        self.begin_pass(at, &|| Some(FuelSlice::WHOLE));
        self.finish();
    }

    /// A block is at hand that begins at this time. Gives the tick that the module would not get because the wall clock was set back.
    pub fn catch_up(&mut self, at: Moment, first: Timestamp) {
        // A module that is behind gets packets of an earlier time than the clock's, and never of a later one.
        let was_set_back = at.wall.0 < self.clock.now;
        let at = Moment { wall: at.wall.min(first), ..at };
        let tick = if was_set_back { self.clock.overdue(at) } else { None };
        self.calls.extend(tick.map(tick_between));
        self.finish();
    }

    /// Begins to tell the module something, where it wants to be told, in the same way.
    pub fn begin_news(&mut self, news: News, budget: &dyn Fn() -> Option<FuelSlice>) -> bool {
        // What it emits then has an allowance of its own.
        self.instance.begin_block();
        self.calls.push_back(Call::News(news));
        self.go_on(budget)
    }

    /// Begins to tell the module that no more packets come, in the same way.
    pub fn begin_stop(&mut self, budget: &dyn Fn() -> Option<FuelSlice>) -> bool {
        self.calls.push_back(Call::Stop { now: Timestamp(self.clock.now) });
        self.go_on(budget)
    }

    /// Goes on with what has been begun. The budget is asked for before each call, and is none when it is used up; at least one call is made.
    pub fn go_on(&mut self, budget: &dyn Fn() -> Option<FuelSlice>) -> bool {
        let mut is_first = true;
        loop {
            // Before the budget: the last call may have ended exactly with it.
            if self.calls.is_empty() && !self.instance.is_suspended() {
                self.under_way = None;
                return true;
            }
            let least = is_first.then_some(FuelSlice { fuel: 1, until: None });
            let Some(budget) = budget().or(least) else { return false };
            is_first = false;
            let step = match self.calls.pop_front_if(|_| !self.instance.is_suspended()) {
                Some(call) => self.instance.begin(call, budget),
                None => self.instance.resume(budget),
            };
            match step {
                CallStep::Suspended => return false,
                CallStep::Done(dropped) => self.dropped |= dropped,
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

    /// The same to its end.
    pub fn stop(&mut self) {
        self.begin_stop(&|| Some(FuelSlice::WHOLE));
        self.finish();
    }
}

/// A tick that is before all packets of its block.
fn tick_between((now, periods): (u64, u64)) -> Call {
    Call::Tick { now: Timestamp(now), periods, before: 0 }
}

/// Keeps a packet's memory.
fn pin(window: &PacketWindow, address: u32, len: u32) -> Result<Pinned, NotPinned> {
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
///
/// Ticks are at multiples of the period by the wall clock. Where that clock was set back, the next multiple can be far away; so a tick comes, too, when a
/// period has passed by the monotonic clock since the last one, and packet time goes on from the earlier time.
#[derive(Debug)]
struct Clock {
    now: u64,
    period: Option<u64>,
    next: u64,
    /// Ticks so far, those that came between packets too, and the first packet.
    ticks: u64,
    /// The number of ticks at the last look, and the time at which the last of them was noticed.
    noticed: (u64, Nanos),
}

impl Clock {
    fn new(period: Option<u64>) -> Self {
        // Due at once: the first packet says where the periods begin.
        let next = if period.is_some() { 0 } else { u64::MAX };
        Self { now: 0, period, next, ticks: 0, noticed: (0, Nanos(0)) }
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
        let call =
            |mask| Call::Batch(BatchInput { descriptors: batch.guest_address, mask, first: number(0) });
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
        self.ticks += 1;
        (!first).then_some((begun * period, periods))
    }

    /// Notes when the last tick was.
    fn notice(&mut self, steady: Nanos) {
        if self.noticed.0 != self.ticks {
            self.noticed = (self.ticks, steady);
        }
    }

    /// By the monotonic clock, when the next tick is due.
    fn due(&mut self, at: Moment) -> Option<Nanos> {
        let period = self.period.filter(|_| self.next != 0)?;
        self.notice(at.steady);
        let by_the_wall = at.steady.0.saturating_add(self.next.saturating_sub(at.wall.0));
        let latest = self.noticed.1.0.saturating_add(period).max(at.steady.0);
        Some(Nanos(by_the_wall.min(latest)))
    }

    /// Time has come so far, without a packet that says so: the tick that is due, and how many periods that is.
    fn pass(&mut self, at: Moment) -> Option<(u64, u64)> {
        self.notice(at.steady);
        let tick = self.reach(at.wall.0);
        self.notice(at.steady);
        let tick = tick.or_else(|| self.overdue(at));
        self.advance(at.wall);
        tick
    }

    /// The tick that is due because a period has passed by the monotonic clock, though none has by the wall clock.
    fn overdue(&mut self, at: Moment) -> Option<(u64, u64)> {
        let period = self.period.filter(|_| self.next != 0)?;
        self.notice(at.steady);
        if at.wall.0 >= self.next || at.steady.0.saturating_sub(self.noticed.1.0) < period {
            return None;
        }
        let begun = at.wall.0 / period;
        (self.now, self.next) = (at.wall.0, (begun + 1).saturating_mul(period));
        self.ticks += 1;
        self.notice(at.steady);
        Some((begun * period, 1))
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

    const SECOND: u64 = 1_000_000_000;

    /// A clock with a period of a second, of which the first packet came at second 1000 by the wall, and 50 by the monotonic clock.
    fn begun() -> Clock {
        let mut clock = Clock::new(Some(SECOND));
        assert_eq!(clock.pass(moment(1000, 50)), None);
        clock
    }

    fn moment(wall: u64, steady: u64) -> Moment {
        Moment { wall: Timestamp(wall * SECOND), steady: Nanos(steady * SECOND) }
    }

    /// Asks at each second of the monotonic clock, where the wall clock has this time; what ticks say, in seconds and periods.
    fn ticks(clock: &mut Clock, walls: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        let ticks = walls.into_iter().zip(51..).filter_map(|(wall, steady)| {
            let at = moment(wall, steady);
            let due = clock.due(at).unwrap();
            let tick = clock.pass(at);
            assert_eq!(tick.is_some(), due == at.steady, "it is due when it comes");
            assert!(clock.due(at).unwrap().0 <= at.steady.0 + SECOND, "the next one is due within a period");
            tick.map(|(now, periods)| (now / SECOND, periods))
        });
        ticks.collect()
    }

    #[test]
    fn a_clock_that_is_set_back_takes_no_tick_away() {
        let walls = (1001..1004).chain(400..404);
        let expected = [(1001, 1), (1002, 1), (1003, 1), (400, 1), (401, 1), (402, 1), (403, 1)];
        assert_eq!(ticks(&mut begun(), walls), expected);
        // By less than a period, too: no tick is later than a period after the last one.
        let mut clock = begun();
        assert_eq!(clock.pass(moment(1001, 51)), Some((1001 * SECOND, 1)));
        let half =
            |wall: u64, steady| Moment { wall: Timestamp(wall * SECOND + SECOND / 2), steady: Nanos(steady) };
        assert_eq!(clock.due(half(1000, 51 * SECOND)), Some(Nanos(52 * SECOND)));
        assert_eq!(clock.pass(half(1001, 52 * SECOND)), Some((1001 * SECOND, 1)));
        assert_eq!(clock.due(half(1001, 52 * SECOND)), Some(Nanos(52 * SECOND + SECOND / 2)));
    }

    #[test]
    fn a_clock_that_is_set_forward_gives_one_tick_for_all_periods() {
        let walls = [1001, 4602, 4603];
        assert_eq!(ticks(&mut begun(), walls), [(1001, 1), (4602, 3601), (4603, 1)]);
        // Forward and back again.
        let walls = [1001, 4602, 1003, 1004];
        assert_eq!(ticks(&mut begun(), walls), [(1001, 1), (4602, 3601), (1003, 1), (1004, 1)]);
    }

    #[test]
    fn a_tick_that_came_between_packets_is_the_last_one() {
        let mut clock = begun();
        assert_eq!(clock.reach(1001 * SECOND), Some((1001 * SECOND, 1)));
        assert_eq!(clock.pass(moment(1001, 51)), None);
        assert_eq!(clock.due(moment(1001, 51)), Some(Nanos(52 * SECOND)));
        // Packets go on coming, of times that are before.
        assert_eq!(clock.reach(500 * SECOND), None);
        assert_eq!(clock.overdue(moment(500, 52)), Some((500 * SECOND, 1)));
        assert_eq!(clock.reach(501 * SECOND), Some((501 * SECOND, 1)));
        assert_eq!(clock.overdue(moment(501, 53)), None);
    }

    #[test]
    fn a_mask_of_the_packets_before_one() {
        assert_eq!([below(0), below(1), below(63), below(64)], [0, 1, u64::MAX >> 1, u64::MAX]);
    }
}
