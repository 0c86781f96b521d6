//! The batch driver: it maps a source's packets into a sandbox, and calls the module for each batch and tick. A
//! node's core threads and `weir run` run modules through it.

use crate::clock::ClockReading;
use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use weir_abi::ARENA_BASE;
use weir_netio::{Block, DescriptorRing, PacketWindow, PinError, WatchError, WatchGuard, WindowPart};
use weir_sandbox::{Area, BatchInput, Call, CallStep, FuelSlice, Instance, ModuleEvent, NotPinned, Pinned};
use weir_units::{Nanos, Timestamp};
use weir_wire::stream::TcpStreams;

/// The number of bytes of a capture file whose pages are given back at once, after their packets were processed.
const RELEASE_BYTES: usize = 4 << 20;

/// The reason why packets could not be passed to a sandbox.
#[derive(Debug, thiserror::Error)]
pub enum BatchError {
    /// The packets could not be mapped into the sandbox.
    #[error(
        "packets cannot be mapped into a sandbox: {0}; more address space may help (ulimit -v, vm.max_map_count)"
    )]
    Map(#[from] io::Error),
    /// The mapping could not be registered with the fault handler.
    #[error(transparent)]
    Watch(#[from] WatchError),
}

/// A module's verdict on a batch. Bit i stands for packet i of the batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchVerdict {
    /// Packets to drop.
    pub dropped: u64,
    /// Packets that the module did not process completely.
    pub unserved: u64,
}

/// A sandbox that a [`BatchDriver`] can drive: an instance in this process, or one in a process of its own.
/// Methods with the name of a method of [`Instance`] do the same as that method.
pub trait Sandbox {
    /// Maps the descriptors of all blocks read-only.
    ///
    /// # Errors
    /// [`io::Error`] if the mapping fails.
    fn map_descriptors(&mut self, ring: &DescriptorRing) -> io::Result<()>;

    /// Maps a window, the range of a file that holds a block's packets, in place of the previous window. Returns the
    /// guard of the mapping, if the mapping is in this process.
    ///
    /// # Errors
    /// [`BatchError`] if the window cannot be mapped or watched.
    fn map_window(&mut self, window: &Arc<PacketWindow>) -> Result<Option<WatchGuard>, BatchError>;

    /// Gives back the pages of a part of the mapped window, which stays readable. `part` is in bytes from the window's
    /// beginning. Does nothing if the sandbox does not support it.
    fn release_packets(&mut self, _part: Range<usize>) {}

    /// Calls [`Instance::begin`] or its remote counterpart.
    fn begin(&mut self, call: Call, budget: FuelSlice) -> CallStep;

    /// Calls [`Instance::resume`] or its remote counterpart.
    fn resume(&mut self, budget: FuelSlice) -> CallStep;

    /// Aborts a suspended call and returns the packets that the module had dropped by then.
    fn abort(&mut self) -> u64;

    /// Returns true if a call is suspended.
    fn is_suspended(&self) -> bool;

    /// Starts a new record allowance, as [`Instance::begin_block`] does.
    fn begin_block(&mut self);

    /// Returns and clears the packets that the module did not process completely.
    fn take_unserved(&mut self) -> u64;

    /// Returns true if the module follows TCP streams.
    fn has_streams(&self) -> bool;

    /// Returns true if the module's stop is complete.
    fn is_stopped(&self) -> bool;
}

impl Sandbox for Instance {
    fn map_descriptors(&mut self, ring: &DescriptorRing) -> io::Result<()> {
        let len = usize::try_from(ring.len().0).unwrap_or(usize::MAX);
        Self::map_descriptors(self, Area { fd: ring.fd(), offset: 0, len, is_fixed: false }).map(|_| ())
    }

    fn map_window(&mut self, window: &Arc<PacketWindow>) -> Result<Option<WatchGuard>, BatchError> {
        let addresses = self.map_packet_areas(&areas_of(window))?;
        let memory = Arc::clone(window);
        self.set_packet_pinner(Some(Box::new(move |address, len| pin(&memory, address, len))))?;
        Ok(Some(weir_netio::watch(addresses, window)?))
    }

    fn release_packets(&mut self, part: Range<usize>) {
        Self::release_packets(self, part);
    }

    fn begin(&mut self, call: Call, budget: FuelSlice) -> CallStep {
        Self::begin(self, call, budget)
    }

    fn resume(&mut self, budget: FuelSlice) -> CallStep {
        Self::resume(self, budget)
    }

    fn abort(&mut self) -> u64 {
        Self::abort(self)
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

    fn has_streams(&self) -> bool {
        Self::has_streams(self)
    }

    fn is_stopped(&self) -> bool {
        Self::is_stopped(self)
    }
}

/// A sandbox with the packets mapped into it, the calls to be made, and the packet time.
#[derive(Debug)]
pub struct BatchDriver<S = Instance> {
    // Declared before `instance`, so it is dropped first: addresses must not be watched after the sandbox has
    // unmapped them.
    window: Option<(Arc<PacketWindow>, Option<WatchGuard>)>,
    /// The number of bytes at the beginning of the window whose pages were given back.
    released: usize,
    /// The sandbox.
    pub instance: S,
    /// The ring whose descriptors are mapped; `None` if the last mapping failed, so that the module has no descriptors.
    ring: Option<DescriptorRing>,
    clock: PacketClock,
    /// The times at which TCP streams that have timed out are searched; without ticks in a module without streams.
    sweep_clock: PacketClock,
    /// Calls still to be made, in order.
    calls: VecDeque<Call>,
    /// The block of the batch in progress, kept in memory until the batch is done or aborted.
    block: Option<Arc<Block>>,
    /// Packets of the present batch that the module dropped.
    dropped: u64,
    /// Packets of the present batch for which the module was not called, because the batch was aborted.
    skipped: u64,
}

impl<S: Sandbox> BatchDriver<S> {
    /// Creates a driver for the source of `ring`. Ticks come every `tick` nanoseconds of packet time.
    ///
    /// # Errors
    ///
    /// [`BatchError`] if the descriptors cannot be mapped.
    pub fn new(mut instance: S, ring: &DescriptorRing, tick: Option<u64>) -> Result<Self, BatchError> {
        instance.map_descriptors(ring)?;
        let (clock, calls) = (PacketClock::new(tick), VecDeque::new());
        let sweep_period = instance.has_streams().then_some(TcpStreams::sweep_period().0);
        let sweep_clock = PacketClock::new(sweep_period);
        let ring = Some(ring.clone());
        Ok(Self {
            window: None,
            released: 0,
            instance,
            ring,
            clock,
            sweep_clock,
            calls,
            block: None,
            dropped: 0,
            skipped: 0,
        })
    }

    /// Returns true if the module read zeros in place of bytes that the capture file lost while it was mapped.
    pub fn has_lost_bytes(&self) -> bool {
        matches!(&self.window, Some((_, Some(guard))) if guard.has_lost_pages())
    }

    /// Maps the window of a block, the range of a file that holds its packets. The previous window is unmapped. Does
    /// nothing if the window is mapped already.
    pub fn map_block(&mut self, block: &Block) -> Result<(), BatchError> {
        if !self.ring.as_ref().is_some_and(|ring| block.is_in_ring(ring)) {
            let ring = block.ring();
            self.ring = None;
            self.instance.map_descriptors(&ring)?;
            self.ring = Some(ring);
        }
        let window = block.window();
        if self.window.as_ref().is_some_and(|(mapped, _)| mapped.id() == window.id()) {
            self.release_before(block);
            return Ok(());
        }
        // `map_window` unmaps the old window. The watch of the old window must end before that, and its memory must
        // live until after that.
        let _mapped = self.window.take().map(|(window, _)| window);
        let guard = self.instance.map_window(window)?;
        self.window = Some((Arc::clone(window), guard));
        self.released = 0;
        Ok(())
    }

    /// Gives back the mapped pages of a capture file before a block, once there are many. Otherwise each sandbox would
    /// keep the whole file resident.
    fn release_before(&mut self, block: &Block) {
        // Only a file's pages can be given back: the next access maps them again.
        if block.window().is_fixed() {
            return;
        }
        let Some(first) = block.descriptors().first() else { return };
        let start = usize::try_from(first.data.saturating_sub(ARENA_BASE)).unwrap_or(0);
        if start.saturating_sub(self.released) >= RELEASE_BYTES {
            self.instance.release_packets(self.released..start);
            self.released = start;
        }
    }

    /// The monotonic time at which the next tick is due. `None` if the module has no ticks, or no packet has come
    /// yet.
    pub fn next_tick(&mut self, at: ClockReading) -> Option<Nanos> {
        let (tick, sweep) = (self.clock.due(at), self.sweep_clock.due(at));
        [tick, sweep].into_iter().flatten().min()
    }

    /// Starts processing the packets of a batch that are in the mask, with the ticks that fall between them.
    ///
    /// Runs until the batch is done or the budget is used up. Returns true if the batch is done. The block must be
    /// [mapped](Self::map_block); its packets stay in memory until the batch is done or aborted.
    pub fn begin(
        &mut self,
        block: &Arc<Block>,
        batch: usize,
        mask: u64,
        budget: &dyn Fn() -> Option<FuelSlice>,
    ) -> bool {
        self.queue_calls(block, batch, mask);
        self.block = Some(Arc::clone(block));
        self.resume_calls(budget)
    }

    /// Processes the packets of a batch that are in the mask to completion. Returns the packets that the module
    /// drops.
    pub fn run(&mut self, block: &Block, batch: usize, mask: u64) -> u64 {
        self.queue_calls(block, batch, mask);
        self.finish();
        self.dropped
    }

    fn queue_calls(&mut self, block: &Block, batch: usize, mask: u64) {
        let Self { clock, sweep_clock, calls, .. } = self;
        calls_for(block, batch, mask, [clock, sweep_clock], |call| calls.push_back(call));
        (self.dropped, self.skipped) = (0, 0);
        // An aborted call can have left unserved packets of an earlier batch.
        self.instance.take_unserved();
    }

    /// Runs all queued calls to completion.
    fn finish(&mut self) {
        // With this budget no call is suspended, but a remote instance can return before it is done.
        while !self.resume_calls(&|| Some(FuelSlice::UNLIMITED)) {}
    }

    /// The verdict on the batch that [`begin`](Self::begin) started, once it is done or aborted.
    pub fn verdict(&mut self) -> BatchVerdict {
        BatchVerdict { dropped: self.dropped, unserved: self.instance.take_unserved() | self.skipped }
    }

    /// Starts the tick that is due by the clocks, if any, although no packet has come. Returns true if the tick is
    /// done, or none is due.
    pub fn begin_tick(&mut self, at: ClockReading, budget: &dyn Fn() -> Option<FuelSlice>) -> bool {
        let sweep = self.sweep_clock.advance_by_clocks(at);
        self.calls.extend(sweep.map(sweep_before_packets));
        let tick = self.clock.advance_by_clocks(at);
        self.calls.extend(tick.map(tick_before_packets));
        self.resume_calls(budget)
    }

    /// Runs the tick that is due by the clocks, if any, to completion.
    pub fn tick(&mut self, at: ClockReading) {
        self.begin_tick(at, &|| Some(FuelSlice::UNLIMITED));
        self.finish();
    }

    /// Runs the tick that the module would miss because the wall clock was set back. Call it before a block whose
    /// first time stamp is `first`.
    pub fn catch_up(&mut self, at: ClockReading, first: Timestamp) {
        // A module that lags gets packets older than the wall clock, never newer ones.
        let was_set_back = at.wall.0 < self.clock.now;
        let at = ClockReading { wall: at.wall.min(first), ..at };
        let sweep = if was_set_back { self.sweep_clock.overdue(at) } else { None };
        self.calls.extend(sweep.map(sweep_before_packets));
        let tick = if was_set_back { self.clock.overdue(at) } else { None };
        self.calls.extend(tick.map(tick_before_packets));
        self.finish();
    }

    /// Starts delivering an event to the module, if the module exports a handler. Returns true if the event is
    /// delivered.
    pub fn begin_event(&mut self, event: ModuleEvent, budget: &dyn Fn() -> Option<FuelSlice>) -> bool {
        // Records that the handler emits have an allowance of their own.
        self.instance.begin_block();
        self.calls.push_back(Call::Event(event));
        self.resume_calls(budget)
    }

    /// Starts the next part of the module's stop, after the last packet. Returns true if the part is done. Further parts
    /// follow, until the sandbox [is stopped](Sandbox::is_stopped); the caller takes the output in between.
    pub fn begin_stop(&mut self, budget: &dyn Fn() -> Option<FuelSlice>) -> bool {
        self.calls.push_back(Call::Stop { now: Timestamp(self.clock.now) });
        self.resume_calls(budget)
    }

    /// Continues with the queued calls and returns true when all are done.
    ///
    /// Asks for a budget before each call, and stops when there is none. At least one call is made, with one unit of
    /// fuel if the budget is used up.
    pub fn resume_calls(&mut self, budget: &dyn Fn() -> Option<FuelSlice>) -> bool {
        let mut is_first = true;
        loop {
            // Checked before the budget, because the last call may have used up the budget exactly.
            if self.calls.is_empty() && !self.instance.is_suspended() {
                self.block = None;
                return true;
            }
            let minimum = is_first.then_some(FuelSlice { fuel: 1, until: None });
            let Some(budget) = budget().or(minimum) else { return false };
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

    /// Returns true if a batch was started and is neither done nor aborted.
    pub fn has_begun_packets(&self) -> bool {
        self.block.is_some()
    }

    /// Aborts the suspended call and discards the queued calls. Returns the number of packets for which the module was
    /// not called.
    pub fn abort(&mut self) -> u64 {
        self.dropped |= self.instance.abort();
        let uncalled =
            self.calls.drain(..).map(|call| if let Call::Batch(batch) = call { batch.mask } else { 0 });
        // All calls are for one batch, so their masks are disjoint.
        self.skipped = uncalled.fold(0, |all, mask| all | mask);
        self.block = None;
        self.skipped.count_ones().into()
    }

    /// Runs the next part of the module's stop to completion.
    pub fn stop(&mut self) {
        self.begin_stop(&|| Some(FuelSlice::UNLIMITED));
        self.finish();
    }
}

/// The call for a tick that comes before all packets of the next block.
fn tick_before_packets((now, periods): (u64, u64)) -> Call {
    Call::Tick { now: Timestamp(now), periods, before: 0 }
}

/// The call for a search for streams that comes before all packets of the next block.
fn sweep_before_packets((now, periods): (u64, u64)) -> Call {
    Call::Sweep { now: Timestamp(now), periods, before: 0 }
}

/// Pins the memory that holds a packet, so that the packet can be kept.
fn pin(window: &PacketWindow, address: u32, len: u32) -> Result<Pinned, NotPinned> {
    let pin = window.pin(address, len).map_err(|error| match error {
        PinError::Never => NotPinned::Never,
        PinError::Full => NotPinned::Full,
    })?;
    let (pieces, piece, most) = (pin.pieces(), pin.piece(), pin.pieces_max());
    // A file needs no guard, and so no memory for one.
    let guard: Box<dyn Any + Send> = if pieces.is_empty() { Box::new(()) } else { Box::new(pin) };
    Ok(Pinned { guard, pieces, piece_size: piece, pieces_max: most })
}

/// The areas of a window that a sandbox maps, one behind the other.
pub fn areas_of(window: &PacketWindow) -> Vec<Area<'_>> {
    let is_fixed = window.is_fixed();
    window.parts().map(|WindowPart { fd, offset, len }| Area { fd, offset, len, is_fixed }).collect()
}

/// A mask of bits 0 to `i` - 1.
fn mask_below(i: usize) -> u64 {
    1u64.checked_shl(u32::try_from(i).unwrap_or(u32::MAX)).map_or(u64::MAX, |bit| bit - 1)
}

/// Emits the calls for the packets of a batch that are in the mask, split where a tick of the module, or a search for
/// streams that have timed out, falls between packets. Both depend on packet times alone, and not on the division of packets
/// into batches, which depends on the source's pace.
fn calls_for(
    block: &Block,
    batch: usize,
    mask: u64,
    [tick_clock, sweep_clock]: [&mut PacketClock; 2],
    mut emit: impl FnMut(Call),
) {
    let batch = block.batch(batch);
    let mask = mask & batch.mask;
    let number = |i: usize| u32::try_from(batch.first + i).unwrap_or(u32::MAX);
    let call = |mask| Call::Batch(BatchInput { descriptors: batch.guest_address, mask, first: number(0) });
    let mut from = 0;
    if tick_clock.is_due(batch.latest) || sweep_clock.is_due(batch.latest) {
        let packets = block.descriptors().iter().skip(batch.first).take(batch.count);
        for (i, descriptor) in packets.enumerate() {
            let sweep = sweep_clock.advance_to(descriptor.ts_ns);
            let tick = tick_clock.advance_to(descriptor.ts_ns);
            if sweep.is_none() && tick.is_none() {
                continue;
            }
            emit(call(mask & mask_below(i) & !mask_below(from)));
            from = i;
            if let Some((now, periods)) = sweep {
                emit(Call::Sweep { now: Timestamp(now), periods, before: number(i) });
            }
            if let Some((now, periods)) = tick {
                emit(Call::Tick { now: Timestamp(now), periods, before: number(i) });
            }
        }
    }
    emit(call(mask & !mask_below(from)));
    tick_clock.advance(batch.latest);
    sweep_clock.advance(batch.latest);
}

/// Packet time: the latest time stamp so far, and the time of the next tick.
///
/// Ticks fall on multiples of the period by the wall clock. When the wall clock is set back, the next multiple can be
/// far away. So a tick also comes when a period has passed by the monotonic clock since the last tick. Packet time then
/// continues from the wall clock's earlier time.
#[derive(Debug)]
struct PacketClock {
    /// The latest time stamp so far, in nanoseconds.
    now: u64,
    /// The period of ticks in nanoseconds; `None` without ticks.
    period: Option<u64>,
    /// The packet time of the next tick; 0 before the first packet, and the maximum without ticks.
    next: u64,
    /// The number of ticks so far, including those between packets and the start with the first packet.
    ticks: u64,
    /// The value of `ticks` at the last check, and the monotonic time when its last increment was noticed.
    last_tick: (u64, Nanos),
}

impl PacketClock {
    fn new(period: Option<u64>) -> Self {
        // The first packet sets `next`, so it is due at once.
        let next = if period.is_some() { 0 } else { u64::MAX };
        Self { now: 0, period, next, ticks: 0, last_tick: (0, Nanos(0)) }
    }

    fn is_due(&self, latest: Timestamp) -> bool {
        self.period.is_some() && latest.0 >= self.next
    }

    fn advance(&mut self, latest: Timestamp) {
        self.now = self.now.max(latest.0);
    }

    /// Advances to a packet of time `ts`. Returns the time of the tick that comes before the packet, and the number of
    /// periods since the previous tick.
    fn advance_to(&mut self, ts: u64) -> Option<(u64, u64)> {
        let period = self.period?;
        if ts < self.next {
            return None;
        }
        let begun = ts / period;
        let periods = begun - (self.next / period).wrapping_sub(1).min(begun);
        let is_first_packet = self.next == 0;
        self.next = (begun + 1).saturating_mul(period);
        self.ticks += 1;
        (!is_first_packet).then_some((begun * period, periods))
    }

    /// Records the monotonic time of the last tick.
    fn note_tick(&mut self, monotonic: Nanos) {
        if self.last_tick.0 != self.ticks {
            self.last_tick = (self.ticks, monotonic);
        }
    }

    /// The monotonic time at which the next tick is due.
    fn due(&mut self, at: ClockReading) -> Option<Nanos> {
        let period = self.period.filter(|_| self.next != 0)?;
        self.note_tick(at.monotonic);
        let by_wall_clock = at.monotonic.0.saturating_add(self.next.saturating_sub(at.wall.0));
        let latest = self.last_tick.1.0.saturating_add(period).max(at.monotonic.0);
        Some(Nanos(by_wall_clock.min(latest)))
    }

    /// Advances to the present time without a packet. Returns the time of the tick that is due, and the number of
    /// periods since the previous tick.
    fn advance_by_clocks(&mut self, at: ClockReading) -> Option<(u64, u64)> {
        self.note_tick(at.monotonic);
        let tick = self.advance_to(at.wall.0);
        self.note_tick(at.monotonic);
        let tick = tick.or_else(|| self.overdue(at));
        self.advance(at.wall);
        tick
    }

    /// The tick that is due because a period has passed by the monotonic clock, although no multiple of the period has
    /// been reached by the wall clock.
    fn overdue(&mut self, at: ClockReading) -> Option<(u64, u64)> {
        let period = self.period.filter(|_| self.next != 0)?;
        self.note_tick(at.monotonic);
        if at.wall.0 >= self.next || at.monotonic.0.saturating_sub(self.last_tick.1.0) < period {
            return None;
        }
        let begun = at.wall.0 / period;
        (self.now, self.next) = (at.wall.0, (begun + 1).saturating_mul(period));
        self.ticks += 1;
        self.note_tick(at.monotonic);
        Some((begun * period, 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_come_at_multiples_of_the_period_and_once_for_a_gap() {
        let mut clock = PacketClock::new(Some(10));
        assert_eq!(clock.advance_to(25), None, "the first packet only sets the phase");
        assert_eq!(clock.advance_to(29), None);
        assert_eq!(clock.advance_to(30), Some((30, 1)));
        assert_eq!(clock.advance_to(25), None, "time going backwards does not tick");
        assert_eq!(clock.advance_to(71), Some((70, 4)));
        assert_eq!(clock.advance_to(79), None);
        assert_eq!(clock.advance_to(80), Some((80, 1)));
        let (now, periods) = clock.advance_to(u64::MAX).unwrap();
        assert_eq!((now, periods), (u64::MAX / 10 * 10, u64::MAX / 10 - 8));
        assert_eq!(PacketClock::new(None).advance_to(u64::MAX), None);
    }

    const SECOND: u64 = 1_000_000_000;

    /// A clock with a period of one second whose first packet came at wall time 1000 s and monotonic time 50 s.
    fn started_clock() -> PacketClock {
        let mut clock = PacketClock::new(Some(SECOND));
        assert_eq!(clock.advance_by_clocks(moment(1000, 50)), None);
        clock
    }

    fn moment(wall: u64, monotonic: u64) -> ClockReading {
        ClockReading { wall: Timestamp(wall * SECOND), monotonic: Nanos(monotonic * SECOND) }
    }

    /// Advances once for each second of the monotonic clock, to the given wall times. Returns each tick's time in
    /// seconds and its periods.
    fn ticks(clock: &mut PacketClock, walls: impl IntoIterator<Item = u64>) -> Vec<(u64, u64)> {
        let ticks = walls.into_iter().zip(51..).filter_map(|(wall, monotonic)| {
            let at = moment(wall, monotonic);
            let due = clock.due(at).unwrap();
            let tick = clock.advance_by_clocks(at);
            assert_eq!(tick.is_some(), due == at.monotonic, "the tick comes when it is due");
            assert!(
                clock.due(at).unwrap().0 <= at.monotonic.0 + SECOND,
                "the next tick is due within a period"
            );
            tick.map(|(now, periods)| (now / SECOND, periods))
        });
        ticks.collect()
    }

    #[test]
    fn a_clock_that_is_set_back_takes_no_tick_away() {
        let walls = (1001..1004).chain(400..404);
        let expected = [(1001, 1), (1002, 1), (1003, 1), (400, 1), (401, 1), (402, 1), (403, 1)];
        assert_eq!(ticks(&mut started_clock(), walls), expected);
        // Also when the clock is set back by less than a period: the next tick comes within a period of the last one.
        let mut clock = started_clock();
        assert_eq!(clock.advance_by_clocks(moment(1001, 51)), Some((1001 * SECOND, 1)));
        let half = |wall: u64, monotonic| ClockReading {
            wall: Timestamp(wall * SECOND + SECOND / 2),
            monotonic: Nanos(monotonic),
        };
        assert_eq!(clock.due(half(1000, 51 * SECOND)), Some(Nanos(52 * SECOND)));
        assert_eq!(clock.advance_by_clocks(half(1001, 52 * SECOND)), Some((1001 * SECOND, 1)));
        assert_eq!(clock.due(half(1001, 52 * SECOND)), Some(Nanos(52 * SECOND + SECOND / 2)));
    }

    #[test]
    fn a_clock_that_is_set_forward_gives_one_tick_for_all_periods() {
        let walls = [1001, 4602, 4603];
        assert_eq!(ticks(&mut started_clock(), walls), [(1001, 1), (4602, 3601), (4603, 1)]);
        // Forward and back again.
        let walls = [1001, 4602, 1003, 1004];
        assert_eq!(ticks(&mut started_clock(), walls), [(1001, 1), (4602, 3601), (1003, 1), (1004, 1)]);
    }

    #[test]
    fn a_tick_that_came_between_packets_is_the_last_one() {
        let mut clock = started_clock();
        assert_eq!(clock.advance_to(1001 * SECOND), Some((1001 * SECOND, 1)));
        assert_eq!(clock.advance_by_clocks(moment(1001, 51)), None);
        assert_eq!(clock.due(moment(1001, 51)), Some(Nanos(52 * SECOND)));
        // Further packets have earlier time stamps.
        assert_eq!(clock.advance_to(500 * SECOND), None);
        assert_eq!(clock.overdue(moment(500, 52)), Some((500 * SECOND, 1)));
        assert_eq!(clock.advance_to(501 * SECOND), Some((501 * SECOND, 1)));
        assert_eq!(clock.overdue(moment(501, 53)), None);
    }

    #[test]
    fn a_mask_selects_the_packets_before_a_given_one() {
        assert_eq!(
            [mask_below(0), mask_below(1), mask_below(63), mask_below(64)],
            [0, 1, u64::MAX >> 1, u64::MAX]
        );
    }

    /// A block with packets at these times, in seconds.
    fn block(times: &[u32]) -> Block {
        let mut bytes = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x01\0\0\0".to_vec();
        for time in times {
            bytes.extend_from_slice(&time.to_le_bytes());
            bytes.extend_from_slice(&[0, 0, 0, 0, 14, 0, 0, 0, 14, 0, 0, 0]);
            bytes.extend_from_slice(&[0; 14]);
        }
        let mut capture = weir_netio::Capture::open(weir_netio::CaptureInput::Bytes(bytes)).unwrap();
        match capture.next_block().unwrap() {
            weir_netio::CaptureNext::Block(block) => block,
            other => panic!("{other:?}"),
        }
    }

    /// The ticks and sweeps between packets that are divided into blocks in this way, each with its kind, its time in
    /// seconds, its periods, and the number of the packet before which it comes; and the packets that are passed on.
    fn calls(times: &[u32], block_packets: usize) -> (Vec<(&'static str, u64, u64, usize)>, usize) {
        let mut clocks = [PacketClock::new(Some(10 * SECOND)), PacketClock::new(Some(3 * SECOND))];
        let (mut between, mut packets) = (Vec::new(), 0);
        for (number, times) in times.chunks(block_packets).enumerate() {
            let block = block(times);
            for batch in 0..block.batch_count() {
                let [tick_clock, sweep_clock] = &mut clocks;
                calls_for(&block, batch, u64::MAX, [tick_clock, sweep_clock], |call| {
                    let at = |before: u32| number * block_packets + usize::try_from(before).unwrap();
                    match call {
                        Call::Tick { now, periods, before } => {
                            between.push(("tick", now.0 / SECOND, periods, at(before)));
                        }
                        Call::Sweep { now, periods, before } => {
                            between.push(("sweep", now.0 / SECOND, periods, at(before)));
                        }
                        Call::Batch(batch) => packets += usize::try_from(batch.mask.count_ones()).unwrap(),
                        _ => unreachable!("only these are made of packets"),
                    }
                });
            }
        }
        (between, packets)
    }

    #[test]
    fn ticks_and_sweeps_do_not_depend_on_the_division_of_packets_into_batches() {
        let times: Vec<u32> = (0..300).map(|at| 1_000 + at / 7 + 40 * (at / 100)).collect();
        let (between, packets) = calls(&times, times.len());
        assert_eq!(packets, times.len());
        assert!(between.iter().filter(|call| call.0 == "sweep").count() > 10, "{between:?}");
        assert!(between.iter().filter(|call| call.0 == "tick").count() > 4, "{between:?}");
        for block_packets in [1, 2, 17, 64, 65, 100, 299] {
            assert_eq!(calls(&times, block_packets), (between.clone(), packets), "{block_packets}");
        }
    }
}
