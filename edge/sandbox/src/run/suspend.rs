//! Calls of a module: one state machine for calls that run to completion, and for calls that are suspended at the end of a
//! slice and resumed later.
//!
//! A suspendable call has a stack of its own: a wasmtime fiber, or that of the verified machine code. The call owns the store while it is in progress and
//! returns the store at its end, so no other code can change the sandbox meanwhile. A suspended call may be resumed on
//! another thread, because its stack holds only values of wasmtime and the module, which may move between threads. A
//! suspended call may also be dropped with its instance. Its stack is then unwound without running code of the module.

use crate::run::call_method::{CallMethod, CallOwner, OnFiber, RunningCall, ToCompletion};
use crate::run::clock::thread_time;
use crate::run::entry::{Globals, StartFunction, Wasm, check_start_result};
use crate::run::event::ModuleEvent;
use crate::run::fault::FaultKind;
use crate::run::host::{HostPhase, HostState};
use crate::run::instance::{BatchInput, During, Instance, overrun_error};
use crate::run::native::NativeInstance;
use crate::run::slice::{CallAborted, FuelSlice, ResumeOrder, lock};
use crate::run::streams::InstanceStreams;
use crate::run::trace::{TraceStep, TracedCall};
use crate::watchdog::{CallGuard, OverrunAction};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use wasmtime::Store;
use weir_abi::lost;
use weir_units::{Nanos, Timestamp};

/// A call of a module.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// The start: constructors and `weir_start`. Once, before any other call.
    Start,
    /// A batch, as [`Instance::run`].
    Batch(BatchInput),
    /// A tick, as [`Instance::tick`].
    Tick {
        /// Packet time.
        now: Timestamp,
        /// The number of elapsed periods.
        periods: u64,
        /// Index in the block of the packet after the tick.
        before: u32,
    },
    /// The search for TCP streams that have timed out, with the events of their ends. For a module that follows streams.
    Sweep {
        /// Packet time.
        now: Timestamp,
        /// The number of elapsed periods of [`TcpStreams::sweep_period`](weir_wire::stream::TcpStreams::sweep_period).
        periods: u64,
        /// Index in the block of the packet after the sweep.
        before: u32,
    },
    /// The next part of the stop, until [`Instance::is_stopped`].
    Stop {
        /// Packet time.
        now: Timestamp,
    },
    /// An event, as [`Instance::handle_event`].
    Event(ModuleEvent),
}

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CallStep {
    /// The call is complete. The value is the mask of packets to drop; 0 for a call without packets.
    Done(u64),
    /// The call is suspended at the end of its slice.
    Suspended,
}

/// The progress of a [`Call`], which may need several calls of functions of the module. The call itself is a separate
/// argument everywhere, so that the compiler knows its kind.
#[derive(Clone, Copy)]
struct CallProgress {
    /// The mask of a batch's remaining packets.
    mask: u64,
    /// The mask of packets to drop so far.
    drops: u64,
    /// The number of functions called so far; calls of `weir_lost` are not counted.
    functions_called: usize,
}

impl CallProgress {
    /// Returns the next function to call for `call`, `weir_lost` excluded.
    #[inline(always)]
    const fn next(&mut self, call: Call) -> Option<Invocation> {
        let index = self.functions_called;
        self.functions_called += 1;
        Some(match call {
            Call::Start => Invocation::Start(index),
            Call::Batch(batch) => Invocation::Batch(BatchInput { mask: self.mask, ..batch }),
            Call::Tick { now, periods, before } => Invocation::Tick { now, periods, before },
            Call::Sweep { before, .. } => Invocation::StreamEvents { before },
            // The parts of a stop are chosen by the progress of the whole.
            Call::Stop { .. } => return None,
            Call::Event(event) => Invocation::Event(event),
        })
    }
}

/// A call that is suspended, or runs in slices.
pub(crate) struct SuspendedCall {
    call: Call,
    progress: CallProgress,
    /// The suspended call of a function.
    active: Option<ActiveCall>,
}

/// A call of one function of the module, as a part of a [`Call`].
#[derive(Clone, Copy)]
pub(crate) enum Invocation {
    /// A start function, by its index among the functions called before the first packet.
    Start(usize),
    Batch(BatchInput),
    Tick {
        now: Timestamp,
        periods: u64,
        before: u32,
    },
    /// Events of TCP streams without a packet.
    StreamEvents {
        before: u32,
    },
    Stop {
        now: Timestamp,
    },
    /// `weir_rest`.
    Rest {
        now: Timestamp,
    },
    Lost {
        cause: i32,
        before: u32,
    },
    Event(ModuleEvent),
}

impl Invocation {
    #[inline]
    const fn phase(self, has_packet_function: bool) -> HostPhase {
        match self {
            Self::Start(_) => HostPhase::Start,
            Self::Batch(BatchInput { descriptors, first, mask }) => {
                HostPhase::Batch { descriptors, first, mask, has_packet_function }
            }
            Self::Tick { before, .. } | Self::Lost { before, .. } | Self::StreamEvents { before } => {
                HostPhase::Periodic { before }
            }
            Self::Stop { .. } | Self::Rest { .. } | Self::Event(_) => HostPhase::Periodic { before: 0 },
        }
    }

    const fn during(self) -> During {
        match self {
            Self::Start(_) => During::Start,
            Self::Batch(batch) => During::Packet(batch.first),
            Self::Tick { .. } => During::Tick,
            Self::StreamEvents { .. } => During::StreamEvents,
            Self::Stop { .. } | Self::Rest { .. } => During::Stop,
            Self::Lost { .. } => During::Lost,
            Self::Event(event) => During::Event(event.entry()),
        }
    }
}

impl Wasm {
    /// Tells a module that follows TCP streams which packets of a batch may have events. If the module gets nothing but
    /// events, removes the other packets from the batch, and returns `None` if none is left.
    #[inline(always)]
    fn prepare_events(
        &self,
        invocation: Invocation,
        store: &mut Store<HostState>,
        native: Option<&mut NativeInstance>,
    ) -> Option<Invocation> {
        let (Invocation::Batch(batch), Some(global)) = (invocation, self.event_mask) else {
            return Some(invocation);
        };
        let mask = batch.mask & store.data().packets_with_events();
        Globals::new(store, native).set(global, mask.cast_signed());
        match (self.has_only_events, mask) {
            (false, _) => Some(invocation),
            (true, 0) => None,
            (true, mask) => Some(Invocation::Batch(BatchInput { mask, ..batch })),
        }
    }

    /// Calls the function of an invocation by a method, which `method` creates. Returns `None` without calling `method`
    /// if the module lacks the function.
    #[inline(always)]
    fn call<W: CallMethod>(
        &self,
        invocation: Invocation,
        method: impl FnOnce() -> Option<W>,
    ) -> Option<W::Output> {
        Some(match invocation {
            Invocation::Batch(BatchInput { descriptors, mask, .. }) => {
                method()?.call(&self.run, (descriptors.cast_signed(), mask.cast_signed()), Ok)
            }
            Invocation::Start(index) => match self.starts.get(index)? {
                StartFunction::Constructor(function) => method()?.call(function, (), no_value),
                StartFunction::Start(function) => {
                    method()?.call(function, (), |code| check_start_result(code.into()).map(|()| 0))
                }
            },
            Invocation::Tick { now, periods, .. } => {
                let tick = self.tick.as_ref()?;
                method()?.call(tick, (now.0.cast_signed(), periods.cast_signed()), no_value)
            }
            Invocation::StreamEvents { .. } => {
                let events = self.events.as_ref()?;
                method()?.call(events, (0, 0), |_| Ok(0))
            }
            Invocation::Stop { now } => {
                let stop = self.stop.as_ref()?;
                method()?.call(stop, now.0.cast_signed(), no_value)
            }
            Invocation::Rest { now } => {
                let rest = self.rest.as_ref()?;
                method()?.call(rest, now.0.cast_signed(), |is_unfinished| Ok(is_unfinished.into()))
            }
            Invocation::Lost { cause, .. } => {
                let lost = self.lost.as_ref()?;
                method()?.call(lost, cause, no_value)
            }
            Invocation::Event(event) => {
                let function = self.event_handlers.function_for(event)?;
                method()?.call_untyped(function, |host| event.arguments(host))
            }
        })
    }
}

/// A call of a function that is in progress or suspended.
struct ActiveCall {
    invocation: Invocation,
    phase: HostPhase,
    running: RunningCall,
    /// True if the function has been suspended before.
    was_suspended: bool,
    /// The wall-clock time for which the function has run, without its first slice.
    wall_time: Duration,
    /// The processor time that the function has used since `wall_time` exceeded the limit of a call.
    processor_time: Nanos,
}

fn no_value((): ()) -> wasmtime::Result<i64> {
    Ok(0)
}

/// Returns the result of a future that never waits.
pub(crate) fn poll_ready<T>(future: impl Future<Output = wasmtime::Result<T>>) -> wasmtime::Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => {
            Err(wasmtime::Error::msg("instantiation waits for an event, which weir does not expect"))
        }
    }
}

impl Instance {
    /// Begins a call, and runs it until it is complete or its slice is over. A module that was not loaded with
    /// [suspendable calls](crate::Engine::load_suspendable) runs the call to completion. If an earlier call is suspended, the
    /// earlier call is completed first.
    ///
    /// While a call is suspended, the packets of its batch must stay in place, no memory can be mapped, and records, frames
    /// and patches cannot be taken. The instance may be moved to another thread, or dropped.
    #[inline(always)]
    pub fn begin(&mut self, call: Call, budget: FuelSlice) -> CallStep {
        match call {
            Call::Batch(batch) => self.begin_batch(batch, budget),
            Call::Tick { now, periods, before } => self.begin_tick(now, periods, before, budget),
            Call::Start | Call::Sweep { .. } | Call::Stop { .. } | Call::Event(_) => {
                self.begin_call(call, budget)
            }
        }
    }

    // Batches and ticks, the frequent kinds of calls, have code of their own, in which no branch depends on the kind.
    #[inline(never)]
    fn begin_batch(&mut self, batch: BatchInput, budget: FuelSlice) -> CallStep {
        self.begin_call(Call::Batch(batch), budget)
    }

    #[inline(never)]
    fn begin_tick(&mut self, now: Timestamp, periods: u64, before: u32, budget: FuelSlice) -> CallStep {
        self.begin_call(Call::Tick { now, periods, before }, budget)
    }

    #[inline(always)]
    fn begin_call(&mut self, call: Call, budget: FuelSlice) -> CallStep {
        if self.is_suspended() {
            self.finish_suspended();
        }
        self.follow_slot();
        let mask = if let Call::Batch(batch) = call { batch.mask } else { 0 };
        let mut progress = CallProgress { mask, drops: 0, functions_called: 0 };
        match call {
            Call::Sweep { now, periods, .. } if !self.has_ended() => {
                self.with_streams(|streams| streams.sweep(now, periods));
            }
            Call::Stop { now } => self.begin_stop(now),
            _ => {}
        }
        if self.checks.has_suspendable_calls() {
            return self.run_task(SuspendedCall { call, progress, active: None }, budget);
        }
        while !self.is_complete(call, &progress) {
            if let Some(loss) = self.take_unreported_loss(call, &progress) {
                self.report_loss(loss, &mut progress);
                continue;
            }
            let Some(invocation) = self.next_function(call, &mut progress) else { break };
            let Some(result) = self.call_to_completion(invocation) else { break };
            self.process_result(&mut progress, invocation, result);
        }
        self.finish_call(call, &progress);
        CallStep::Done(progress.drops)
    }

    /// Resumes the suspended call. Does nothing if no call is suspended. A call in machine code that was withdrawn is
    /// [aborted](Self::abort) instead.
    pub fn resume(&mut self, budget: FuelSlice) -> CallStep {
        if self.has_withdrawn_code() {
            return CallStep::Done(self.abort());
        }
        match self.task.take() {
            Some(task) => self.run_task(task, budget),
            None => CallStep::Done(0),
        }
    }

    /// Returns whether a call is suspended.
    pub fn is_suspended(&self) -> bool {
        self.task.is_some()
    }

    /// Aborts the suspended call. The current packet and the packets after it are lost and counted; effects of earlier
    /// packets remain. Returns the mask of packets to drop.
    ///
    /// The abort is no fault. Before the module's next call, `weir_lost` tells the module that the call took too long.
    pub fn abort(&mut self) -> u64 {
        let Some(SuspendedCall { mut progress, active, .. }) = self.task.take() else { return 0 };
        lock(&self.slice).grant(FuelSlice::UNLIMITED, ResumeOrder::Abort);
        if let Some(active) = active
            // A call that is resumed with the order to abort is not suspended again.
            && let Ok((invocation, result)) = self.poll(active)
        {
            if result.as_ref().is_err_and(|error| error.is::<CallAborted>()) {
                match invocation {
                    Invocation::Batch(batch) => {
                        progress.mask =
                            self.lose_current_packet(batch, progress.mask, &mut progress.drops, true).1
                    }
                    _ => self.discard_call_effects(),
                }
                self.empty_stack();
                self.unreported_loss = Some(lost::LIMIT);
                self.start_failed |= matches!(invocation, Invocation::Start(_));
            } else {
                self.process_result(&mut progress, invocation, result);
            }
        }
        self.count_lost(progress.mask, true);
        progress.drops
    }

    /// Runs a call to completion.
    #[inline(always)]
    pub(crate) fn run_to_completion(&mut self, call: Call) -> u64 {
        match self.begin(call, FuelSlice::UNLIMITED) {
            CallStep::Done(drops) => drops,
            CallStep::Suspended => self.finish_suspended(),
        }
    }

    /// Runs a suspended call to completion.
    fn finish_suspended(&mut self) -> u64 {
        let mut drops = 0;
        while self.is_suspended() {
            if let CallStep::Done(dropped) = self.resume(FuelSlice::UNLIMITED) {
                drops = dropped;
            }
        }
        drops
    }

    /// Runs a slice of a call. Stores the call for [`Self::resume`] if it is not complete at the end of the slice.
    fn run_task(&mut self, mut task: SuspendedCall, budget: FuelSlice) -> CallStep {
        if !self.run_slice(&mut task, budget) {
            self.task = Some(task);
            return CallStep::Suspended;
        }
        self.finish_call(task.call, &task.progress);
        CallStep::Done(task.progress.drops)
    }

    /// Calls functions until the call is complete or this slice is over. Returns true if the call is complete.
    fn run_slice(&mut self, task: &mut SuspendedCall, budget: FuelSlice) -> bool {
        let mut slice = {
            let mut shared = lock(&self.slice);
            shared.grant(budget, ResumeOrder::Continue);
            shared.full_fuel()
        };
        loop {
            let outcome = match task.active.take() {
                Some(active) => Some(self.poll(active)),
                None => self
                    .next(task.call, &mut task.progress)
                    .and_then(|invocation| self.call_in_slice(invocation, slice)),
            };
            match outcome {
                None => return true,
                Some(Err(suspended)) => {
                    task.active = Some(suspended);
                    return false;
                }
                Some(Ok((invocation, result))) => {
                    let has_returned = self.process_result(&mut task.progress, invocation, result);
                    // After an aborted call the rest of the slice is unknown, because it may have been in a register.
                    let left = if has_returned { self.remaining_slice() } else { 0 };
                    let rest = lock(&self.slice).rest(left);
                    match rest {
                        Some(rest) => slice = rest,
                        None => return self.is_complete(task.call, &task.progress),
                    }
                }
            }
        }
    }

    /// Counts the calls over their limit and the unserved packets of a completed call.
    #[inline(always)]
    fn finish_call(&mut self, call: Call, progress: &CallProgress) {
        match call {
            Call::Start => self.forget_exceeded(),
            Call::Batch(batch) => {
                self.unserved |= progress.mask;
                self.count_exceeded(batch.mask.count_ones());
            }
            Call::Tick { .. } | Call::Event(_) if progress.functions_called > 0 => self.count_exceeded(1),
            Call::Tick { .. } | Call::Sweep { .. } | Call::Stop { .. } | Call::Event(_) => {}
        }
        if self.has_ended() {
            self.release_kept();
        }
    }

    /// Returns whether the call is complete: no further function has to be called for it.
    #[inline(always)]
    fn is_complete(&self, call: Call, progress: &CallProgress) -> bool {
        let Some(wasm) = &self.wasm else { return true };
        match call {
            Call::Start => self.is_terminated() || progress.functions_called >= wasm.starts.len(),
            Call::Batch(_) => progress.mask == 0 || self.has_ended(),
            Call::Tick { .. } => progress.functions_called > 0 || wasm.tick.is_none() || self.has_ended(),
            Call::Sweep { .. } => self.has_ended() || !self.has_stream_events(),
            Call::Stop { now } => {
                self.is_terminated() || self.next_in_part(now, progress.functions_called > 0).is_none()
            }
            Call::Event(event) => {
                self.has_ended() || progress.functions_called > 0 || !wasm.event_handlers.has(event)
            }
        }
    }

    /// Returns the next function to call, which is `weir_lost` if the module must be told of a loss first. Returns `None` if
    /// the call is complete.
    fn next(&mut self, call: Call, progress: &mut CallProgress) -> Option<Invocation> {
        if self.is_complete(call, progress) {
            return None;
        }
        let loss = self.take_unreported_loss(call, progress);
        loss.or_else(|| self.next_function(call, progress))
    }

    /// Returns the next function to call for a call that is not complete, `weir_lost` excluded.
    #[inline(always)]
    fn next_function(&self, call: Call, progress: &mut CallProgress) -> Option<Invocation> {
        let next = progress.next(call);
        let Call::Stop { now } = call else { return next };
        self.next_in_part(now, progress.functions_called > 1)
    }

    pub(crate) fn has_stream_events(&self) -> bool {
        self.host().and_then(|host| host.streams.as_ref()).is_some_and(|streams| streams.has_events())
    }

    pub(crate) fn with_streams(&mut self, act: impl FnOnce(&mut InstanceStreams)) {
        if let Some(streams) = self.host_mut().and_then(|host| host.streams.as_mut()) {
            act(streams);
        }
    }

    /// Returns the call of `weir_lost` if the module must be told of a loss first.
    #[inline(always)]
    fn take_unreported_loss(&mut self, call: Call, progress: &CallProgress) -> Option<Invocation> {
        let cause = self.unreported_loss.take()?;
        self.wasm.as_ref().is_some_and(|wasm| wasm.lost.is_some()).then(|| {
            let before = match call {
                Call::Start | Call::Stop { .. } | Call::Event(_) => 0,
                Call::Batch(batch) => batch.first + progress.mask.trailing_zeros(),
                Call::Tick { before, .. } | Call::Sweep { before, .. } => before,
            };
            Invocation::Lost { cause, before }
        })
    }

    /// Calls `weir_lost`. Losses are rare, so the call is not inlined.
    #[cold]
    fn report_loss(&mut self, loss: Invocation, progress: &mut CallProgress) {
        if let Some(result) = self.call_to_completion(loss) {
            self.process_result(progress, loss, result);
        }
    }

    /// Calls a function, and runs it to completion. Returns `None` if the module lacks the function.
    // Inlining this function where the kind of the invocation is known saves about 200 instructions in each batch or tick.
    #[inline(always)]
    fn call_to_completion(&mut self, invocation: Invocation) -> Option<wasmtime::Result<i64>> {
        let wasm = self.wasm.as_ref()?;
        let phase = invocation.phase(wasm.has_packet_function);
        let store = self.store.as_mut()?;
        store.data_mut().begin_call(phase);
        let Some(invocation) = wasm.prepare_events(invocation, store, self.native.as_mut()) else {
            return Some(Ok(0));
        };
        store.data_mut().trace(|host| TraceStep::Call(TracedCall::of(invocation, host)));
        let watch = self.watch.as_ref().map(|watch| watch.begin(phase));
        let (memory, native) = (wasm.memory, self.native.as_mut());
        let result = wasm.call(invocation, || Some(ToCompletion { store, memory, native }));
        let result = result.map(|result| with_overrun(result, watch.and_then(CallGuard::end)));
        if let Some(host) = self.host_mut() {
            host.trace(|_| TraceStep::End(result.as_ref().and_then(|result| result.as_ref().ok()).copied()));
        }
        result
    }

    /// Calls a function, and runs it until it returns or the slice is over. Returns `None` if the module lacks the function.
    fn call_in_slice(&mut self, invocation: Invocation, slice: i64) -> Option<PollOutcome> {
        let wasm = self.wasm.as_ref()?;
        let phase = invocation.phase(wasm.has_packet_function);
        let store = self.store.as_mut()?;
        store.data_mut().begin_call(phase);
        if let Some(counter) = wasm.counter {
            counter.set(&mut Globals::new(store, self.native.as_mut()), slice);
        }
        let Some(prepared) = wasm.prepare_events(invocation, store, self.native.as_mut()) else {
            return Some(Ok((invocation, Ok(0))));
        };
        let memory = wasm.memory;
        let running = wasm.call(prepared, || {
            let store = self.store.take()?;
            Some(OnFiber(CallOwner { native: self.native.take(), store, memory }))
        })?;
        Some(self.poll(ActiveCall {
            invocation,
            phase,
            running,
            was_suspended: false,
            wall_time: Duration::ZERO,
            processor_time: Nanos(0),
        }))
    }

    /// Returns the rest of the slice after a function has returned.
    fn remaining_slice(&mut self) -> i64 {
        let counter = self.wasm.as_ref().and_then(|wasm| wasm.counter);
        let Some((counter, store)) = counter.zip(self.store.as_mut()) else { return 0 };
        counter.slice(&mut Globals::new(store, self.native.as_mut()))
    }

    /// Resumes a function until it returns or is suspended again.
    fn poll(&mut self, mut call: ActiveCall) -> PollOutcome {
        let mut is_ordered_to_fail = false;
        loop {
            let resumed_at = call.was_suspended.then(Instant::now);
            let time_before = (call.wall_time > self.call_limit).then(thread_time);
            let watch = self.watch.as_ref().map(|watch| watch.begin(call.phase));
            let polled = call.running.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let overrun_action = watch.and_then(CallGuard::end);
            if let Poll::Ready((owner, result)) = polled {
                (self.store, self.native) = (Some(owner.store), owner.native);
                if is_ordered_to_fail {
                    lock(&self.slice).order = ResumeOrder::Continue;
                }
                return Ok((call.invocation, with_overrun(result, overrun_action)));
            }
            call.was_suspended = true;
            call.wall_time += resumed_at.map_or(Duration::ZERO, |at| at.elapsed());
            if let Some(time_before) = time_before {
                call.processor_time = Nanos(
                    call.processor_time.0.saturating_add(thread_time().0.saturating_sub(time_before.0)),
                );
            }
            let Some(fault) = self.overdue_fault(&call) else { return Err(call) };
            // The function is resumed with the order to fail. The slice is over for the next function, too.
            lock(&self.slice).order = ResumeOrder::Fail(fault);
            is_ordered_to_fail = true;
        }
    }

    /// Returns the fault with which a suspended function must be aborted, if its total time exceeds the limits that the
    /// watchdog applies to a function that is not suspended.
    fn overdue_fault(&self, call: &ActiveCall) -> Option<FaultKind> {
        let used = Duration::from_nanos(call.processor_time.0);
        if used < self.call_limit {
            return None;
        }
        if self.checks.is_charged() {
            return Some(FaultKind::TimeOut);
        }
        let interruption_time = self.watch.as_ref()?.interruption_time(self.call_limit);
        (used >= interruption_time).then_some(FaultKind::TimeOverrun)
    }

    /// Processes the result of a function. Returns false if the function was aborted.
    #[inline(always)]
    fn process_result(
        &mut self,
        progress: &mut CallProgress,
        invocation: Invocation,
        result: wasmtime::Result<i64>,
    ) -> bool {
        let value = match result {
            Ok(value) => value,
            Err(error) => {
                self.process_error(progress, invocation, &error);
                return false;
            }
        };
        if let Invocation::Batch(_) = invocation {
            self.counters.packets += u64::from(progress.mask.count_ones());
            progress.drops |= value.cast_unsigned() & progress.mask;
            progress.mask = 0;
        }
        if let Invocation::Rest { .. } = invocation {
            self.reply_at_stop(value != 0);
        }
        true
    }

    #[cold]
    fn process_error(
        &mut self,
        progress: &mut CallProgress,
        invocation: Invocation,
        error: &wasmtime::Error,
    ) {
        match invocation {
            Invocation::Batch(batch) => {
                progress.mask = self.handle_batch_fault(error, batch, progress.mask, &mut progress.drops);
            }
            Invocation::Start(_) => self.handle_start_fault(error),
            _ => self.handle_periodic_fault(error, invocation.during()),
        }
        if let Invocation::Lost { .. } = invocation {
            // `weir_lost` is called once for each loss.
            self.unreported_loss = None;
        }
    }
}

/// A function's result, or the function itself if it is suspended.
type PollOutcome = Result<(Invocation, wasmtime::Result<i64>), ActiveCall>;

/// Returns the result of a call. If the watchdog has acted on a call that failed, its error names the watchdog's reason.
#[inline]
fn with_overrun(
    result: wasmtime::Result<i64>,
    overrun_action: Option<OverrunAction>,
) -> wasmtime::Result<i64> {
    match overrun_action {
        None => result,
        Some(overrun_action) => result.map_err(|error| overrun_error(error, overrun_action)),
    }
}
