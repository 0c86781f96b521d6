//! Calls of a module: one state machine for those that run to completion and those that are suspended at the end of their slice, and resumed later.
//!
//! A call that can be suspended has a stack of its own, a fiber of wasmtime's. It owns the store while it is under way, and gives it back at its end, so nothing can
//! change the sandbox under it. A suspended call may be resumed on another thread: what is on its stack is wasmtime's and the module's own, and both
//! may move. It may be dropped with its instance: its stack is unwound then, without running any code of the module.

use crate::run::clock::thread_time;
use crate::run::entry::{Starting, accepted};
use crate::run::event::News;
use crate::run::fault::FaultKind;
use crate::run::host::{HostPhase, HostState};
use crate::run::instance::{BatchInput, During, Instance, Wasm, late_error};
use crate::run::slice::{CallAborted, FuelSlice, ResumeOrder, lock};
use crate::watchdog::{OverrunAction, WatchedSandbox};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use wasmtime::{Func, Store, TypedFunc, Val, WasmParams, WasmResults};
use weir_abi::lost;
use weir_units::{Nanos, Timestamp};

/// What a module can be called for.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// Its constructors and `weir_start`: once, before anything else.
    Start,
    /// As [`Instance::run`].
    Batch(BatchInput),
    /// As [`Instance::tick`].
    Tick {
        /// Packet time.
        now: Timestamp,
        /// How many periods have passed.
        periods: u64,
        /// Index in the block of the packet before which it is.
        before: u32,
    },
    /// As [`Instance::stop`].
    Stop {
        /// Packet time.
        now: Timestamp,
    },
    /// As [`Instance::tell_news`].
    News(News),
}

/// How far a call has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CallStep {
    /// To its end. Of a batch: the mask of the packets that are dropped.
    Done(u64),
    /// To the end of its slice.
    Suspended,
}

/// A call that has begun.
pub(crate) struct SuspendedCall {
    call: Call,
    /// Packets of a batch that are still to do.
    mask: u64,
    drops: u64,
    /// How many functions have been called for it, but for a batch.
    called: usize,
    under_way: Option<UnderWay>,
}

/// What a function of the module is called for.
#[derive(Clone, Copy)]
enum Invocation {
    /// By its place among those that are called before the first packet.
    Start(usize),
    Batch(BatchInput),
    Tick {
        now: Timestamp,
        periods: u64,
        before: u32,
    },
    Stop {
        now: Timestamp,
    },
    Lost {
        cause: i32,
        before: u32,
    },
    News(News),
}

impl Invocation {
    #[inline]
    const fn phase(self, one_by_one: bool) -> HostPhase {
        match self {
            Self::Start(_) => HostPhase::Start,
            Self::Batch(BatchInput { descriptors, first, mask }) => {
                HostPhase::Batch { descriptors, first, mask, one_by_one }
            }
            Self::Tick { before, .. } | Self::Lost { before, .. } => HostPhase::Periodic { before },
            Self::Stop { .. } | Self::News(_) => HostPhase::Periodic { before: 0 },
        }
    }

    const fn during(self) -> During {
        match self {
            Self::Start(_) => During::Start,
            Self::Batch(batch) => During::Packet(batch.first),
            Self::Tick { .. } => During::Tick,
            Self::Stop { .. } => During::Stop,
            Self::Lost { .. } => During::Lost,
            Self::News(news) => During::News(news.entry()),
        }
    }
}

/// A way to call a function of the module.
trait Way {
    /// What there is of the call then.
    type Called;

    fn call<P, R>(self, function: &TypedFunc<P, R>, arguments: P, value: Value<R>) -> Self::Called
    where
        P: WasmParams + Sync + 'static,
        R: WasmResults + Sync + 'static;

    /// The same for a function whose type is known only when it runs, and that gives nothing.
    fn call_untyped(self, function: Func, arguments: impl FnOnce(&HostState) -> Vec<Val>) -> Self::Called;
}

/// The value of what a function gives.
type Value<R> = fn(R) -> wasmtime::Result<i64>;

/// On the caller's stack, until it returns or is lost.
struct ToCompletion<'a>(&'a mut Store<HostState>);

impl Way for ToCompletion<'_> {
    type Called = wasmtime::Result<i64>;

    #[inline]
    fn call<P, R>(self, function: &TypedFunc<P, R>, arguments: P, value: Value<R>) -> Self::Called
    where
        P: WasmParams + Sync + 'static,
        R: WasmResults + Sync + 'static,
    {
        function.call(self.0, arguments).and_then(value)
    }

    fn call_untyped(self, function: Func, arguments: impl FnOnce(&HostState) -> Vec<Val>) -> Self::Called {
        let arguments = arguments(self.0.data());
        function.call(self.0, &arguments, &mut []).map(|()| 0)
    }
}

/// On a stack of its own, with all that it needs, which it gives back.
struct InSlices(Store<HostState>);

impl Way for InSlices {
    type Called = Running;

    fn call<P, R>(mut self, function: &TypedFunc<P, R>, arguments: P, value: Value<R>) -> Self::Called
    where
        P: WasmParams + Sync + 'static,
        R: WasmResults + Sync + 'static,
    {
        let function = function.clone();
        Box::pin(async move {
            let result = function.call_async(&mut self.0, arguments).await;
            (self.0, result.and_then(value))
        })
    }

    fn call_untyped(
        mut self,
        function: Func,
        arguments: impl FnOnce(&HostState) -> Vec<Val>,
    ) -> Self::Called {
        let arguments = arguments(self.0.data());
        Box::pin(async move {
            let result = function.call_async(&mut self.0, &arguments, &mut []).await;
            (self.0, result.map(|()| 0))
        })
    }
}

impl Wasm {
    /// Calls the function for an errand; nothing where the module does not have it, and then the way is not asked for.
    #[inline]
    fn call<W: Way>(&self, errand: Invocation, way: impl FnOnce() -> Option<W>) -> Option<W::Called> {
        Some(match errand {
            Invocation::Batch(BatchInput { descriptors, mask, .. }) => {
                way()?.call(&self.run, (descriptors.cast_signed(), mask.cast_signed()), Ok)
            }
            Invocation::Start(place) => match self.starts.get(place)? {
                Starting::Constructor(function) => way()?.call(function, (), nothing),
                Starting::Start(function) => {
                    way()?.call(function, (), |code| accepted(code.into()).map(|()| 0))
                }
            },
            Invocation::Tick { now, periods, .. } => {
                let tick = self.tick.as_ref()?;
                way()?.call(tick, (now.0.cast_signed(), periods.cast_signed()), nothing)
            }
            Invocation::Stop { now } => {
                let stop = self.stop.as_ref()?;
                way()?.call(stop, now.0.cast_signed(), nothing)
            }
            Invocation::Lost { cause, .. } => {
                let lost = self.lost.as_ref()?;
                way()?.call(lost, cause, nothing)
            }
            Invocation::News(news) => {
                let function = self.ears.of_news(news)?;
                way()?.call_untyped(function, |host| news.arguments(host))
            }
        })
    }
}

type Running = Pin<Box<dyn Future<Output = (Store<HostState>, wasmtime::Result<i64>)> + Send>>;

/// A function of the module that has been called and has not returned.
struct UnderWay {
    errand: Invocation,
    phase: HostPhase,
    running: Running,
    is_resumed: bool,
    /// How long it has run since it was first resumed: time on the clock, and, from when that is more than a call may take, the thread's own.
    ran: Duration,
    used: Nanos,
}

fn nothing((): ()) -> wasmtime::Result<i64> {
    Ok(0)
}

/// What a future gives that never waits for anything.
pub(crate) fn at_once<T>(future: impl Future<Output = wasmtime::Result<T>>) -> wasmtime::Result<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => Err(wasmtime::Error::msg("making a sandbox waits for something")),
    }
}

impl Instance {
    /// Begins a call, which runs to the end of its slice at most. Where the module was not loaded [for that](crate::Engine::load_suspendable), or has
    /// ended, it runs to its own end. A call that is still suspended is brought to its end before.
    ///
    /// While it is suspended the packets that it was called for stay where they are, nothing can be mapped, and nothing that it has emitted can be taken.
    /// It may be resumed on another thread, and dropped.
    pub fn begin(&mut self, call: Call, budget: FuelSlice) -> CallStep {
        if self.is_suspended() {
            self.finish();
        }
        if let Call::Batch(batch) = call
            && let Some(drops) = self.run_at_once(batch)
        {
            return CallStep::Done(drops);
        }
        let mask = if let Call::Batch(batch) = call { batch.mask } else { 0 };
        let task = SuspendedCall { call, mask, drops: 0, called: 0, under_way: None };
        if let Call::Stop { .. } = call
            && !self.is_done(&task)
        {
            self.begin_block();
        }
        self.go_on(task, budget)
    }

    /// Runs a batch by one call on the caller's stack, without a task: nearly all batches are done so. Returns nothing where the batch takes more than that.
    #[inline]
    fn run_at_once(&mut self, batch: BatchInput) -> Option<u64> {
        if self.checks.is_sliced() || self.untold.is_some() || batch.mask == 0 || self.has_ended() {
            return None;
        }
        match self.call_whole(Invocation::Batch(batch))? {
            Ok(dropped) => {
                let packets = batch.mask.count_ones();
                self.counters.packets += u64::from(packets);
                self.weigh(packets);
                if self.has_ended() {
                    self.let_go();
                }
                Some(dropped.cast_unsigned() & batch.mask)
            }
            Err(error) => Some(self.run_after(&error, batch)),
        }
    }

    /// Goes on with a batch after the loss of a packet.
    #[cold]
    fn run_after(&mut self, error: &wasmtime::Error, batch: BatchInput) -> u64 {
        let mut task = SuspendedCall {
            call: Call::Batch(batch),
            mask: batch.mask,
            drops: 0,
            called: 1,
            under_way: None,
        };
        task.mask = self.lose(error, batch, task.mask, &mut task.drops);
        match self.go_on(task, FuelSlice::WHOLE) {
            CallStep::Done(drops) => drops,
            CallStep::Suspended => self.finish(),
        }
    }

    /// Has a suspended call go on. Where there is none, nothing is done.
    pub fn resume(&mut self, budget: FuelSlice) -> CallStep {
        match self.task.take() {
            Some(task) => self.go_on(task, budget),
            None => CallStep::Done(0),
        }
    }

    /// Whether a call is suspended.
    pub fn is_suspended(&self) -> bool {
        self.task.is_some()
    }

    /// Gives up a suspended call: nothing of the module runs for it any more. The packet under way and those after it are lost, and counted so; that is no
    /// fault, but before its next call the module is told that it took too long. What it did before that is there; of a batch, the mask of the packets
    /// that are dropped is returned.
    pub fn abandon(&mut self) -> u64 {
        let Some(mut task) = self.task.take() else { return 0 };
        lock(&self.slice).grant(FuelSlice::WHOLE, ResumeOrder::GiveUp);
        if let Some(under_way) = task.under_way.take()
            // What is resumed with that order ends, and is not suspended again.
            && let Ok((errand, result)) = self.poll(under_way)
        {
            if result.as_ref().is_err_and(|error| error.is::<CallAborted>()) {
                match errand {
                    Invocation::Batch(batch) => {
                        task.mask = self.lose_packet(batch, task.mask, &mut task.drops).1
                    }
                    _ => self.take_back(),
                }
                self.empty_stack();
                self.untold = Some(lost::LIMIT);
                self.ended |= matches!(errand, Invocation::Start(_));
            } else {
                self.has_returned(&mut task, errand, result);
            }
        }
        self.counters.lost += u64::from(task.mask.count_ones());
        self.unserved |= task.mask;
        task.drops
    }

    /// Makes a call to its end.
    pub(crate) fn whole(&mut self, call: Call) -> u64 {
        match self.begin(call, FuelSlice::WHOLE) {
            CallStep::Done(drops) => drops,
            CallStep::Suspended => self.finish(),
        }
    }

    /// Brings a suspended call to its end.
    fn finish(&mut self) -> u64 {
        let mut drops = 0;
        while self.is_suspended() {
            if let CallStep::Done(dropped) = self.resume(FuelSlice::WHOLE) {
                drops = dropped;
            }
        }
        drops
    }

    /// Calls one function after the other until the call is done, or its slice is over. Only a module that can be suspended has slices.
    fn go_on(&mut self, mut task: SuspendedCall, budget: FuelSlice) -> CallStep {
        let is_done = if self.checks.is_sliced() {
            self.run_slice(&mut task, budget)
        } else {
            self.complete(&mut task)
        };
        if !is_done {
            self.task = Some(task);
            return CallStep::Suspended;
        }
        self.settle(&task);
        CallStep::Done(task.drops)
    }

    /// Calls functions to their ends, on the caller's stack, until the call is done, which is returned.
    #[inline]
    fn complete(&mut self, task: &mut SuspendedCall) -> bool {
        while let Some(errand) = self.next(task) {
            let Some(result) = self.call_whole(errand) else { break };
            self.has_returned(task, errand, result);
        }
        true
    }

    /// Calls functions until the call is done, which is returned, or this slice is over.
    fn run_slice(&mut self, task: &mut SuspendedCall, budget: FuelSlice) -> bool {
        let mut slice = {
            let mut shared = lock(&self.slice);
            shared.grant(budget, ResumeOrder::GoOn);
            shared.whole()
        };
        loop {
            let called = match task.under_way.take() {
                Some(under_way) => Some(self.poll(under_way)),
                None => self.next(task).and_then(|errand| self.call_in_slice(errand, slice)),
            };
            match called {
                None => return true,
                Some(Err(suspended)) => {
                    task.under_way = Some(suspended);
                    return false;
                }
                Some(Ok((errand, result))) => {
                    let is_whole = self.has_returned(task, errand, result);
                    // Of a call that was lost it is not known what it had left: that may have been in a register.
                    let left = if is_whole { self.left() } else { 0 };
                    let rest = lock(&self.slice).rest(left);
                    match rest {
                        Some(rest) => slice = rest,
                        None => return self.is_done(task),
                    }
                }
            }
        }
    }

    /// After the last function of a call.
    #[inline]
    fn settle(&mut self, task: &SuspendedCall) {
        match task.call {
            Call::Start => self.forget_exceeded(),
            Call::Batch(batch) => {
                self.unserved |= task.mask;
                self.weigh(batch.mask.count_ones());
            }
            Call::Tick { .. } | Call::News(_) if task.called > 0 => self.weigh(1),
            Call::Tick { .. } | Call::Stop { .. } | Call::News(_) => {}
        }
        if self.has_ended() {
            self.let_go();
        }
    }

    /// Whether nothing is left to call.
    #[inline]
    fn is_done(&self, task: &SuspendedCall) -> bool {
        let Some(wasm) = &self.wasm else { return true };
        match task.call {
            Call::Start => self.is_over() || task.called >= wasm.starts.len(),
            Call::Batch(_) => self.has_ended() || task.mask == 0,
            Call::Tick { .. } => self.has_ended() || task.called > 0 || wasm.tick.is_none(),
            Call::Stop { .. } => self.is_over() || task.called > 0 || wasm.stop.is_none(),
            Call::News(news) => self.has_ended() || task.called > 0 || !wasm.ears.has(news),
        }
    }

    /// What the module is called for next.
    #[inline]
    fn next(&mut self, task: &mut SuspendedCall) -> Option<Invocation> {
        if self.is_done(task) {
            return None;
        }
        let place = task.called;
        let before = match task.call {
            Call::Start | Call::Stop { .. } | Call::News(_) => 0,
            Call::Batch(batch) => batch.first + task.mask.trailing_zeros(),
            Call::Tick { before, .. } => before,
        };
        if let Some(cause) = self.untold.take()
            && self.wasm.as_ref().is_some_and(|wasm| wasm.lost.is_some())
        {
            return Some(Invocation::Lost { cause, before });
        }
        task.called += 1;
        Some(match task.call {
            Call::Start => Invocation::Start(place),
            Call::Batch(batch) => Invocation::Batch(BatchInput { mask: task.mask, ..batch }),
            Call::Tick { now, periods, before } => Invocation::Tick { now, periods, before },
            Call::Stop { now } => Invocation::Stop { now },
            Call::News(news) => Invocation::News(news),
        })
    }

    /// Calls a function, which runs until it returns; nothing where the module does not have it.
    #[inline]
    fn call_whole(&mut self, errand: Invocation) -> Option<wasmtime::Result<i64>> {
        let wasm = self.wasm.as_ref()?;
        let phase = errand.phase(wasm.one_by_one);
        let store = self.store.as_mut()?;
        store.data_mut().enter(phase);
        let (result, late) =
            watched(self.watch.as_ref(), phase, || wasm.call(errand, || Some(ToCompletion(store))));
        Some(settled(result?, late))
    }

    /// Calls a function, which runs until it returns, or to the end of this slice.
    fn call_in_slice(&mut self, errand: Invocation, slice: i64) -> Option<Returned> {
        let wasm = self.wasm.as_ref()?;
        let phase = errand.phase(wasm.one_by_one);
        let store = self.store.as_mut()?;
        store.data_mut().enter(phase);
        if let Some(counter) = wasm.counter {
            counter.set(&mut *store, slice);
        }
        let running = wasm.call(errand, || self.store.take().map(InSlices))?;
        Some(self.poll(UnderWay {
            errand,
            phase,
            running,
            is_resumed: false,
            ran: Duration::ZERO,
            used: Nanos(0),
        }))
    }

    /// What a call that came to its end has left of its slice.
    fn left(&mut self) -> i64 {
        let counter = self.wasm.as_ref().and_then(|wasm| wasm.counter);
        counter.zip(self.store.as_mut()).map_or(0, |(counter, store)| counter.slice(store))
    }

    /// Has a function go on until it returns, or is suspended again.
    fn poll(&mut self, mut call: UnderWay) -> Returned {
        let mut is_failed = false;
        loop {
            let begun = call.is_resumed.then(Instant::now);
            let clock = (call.ran > self.call_limit).then(thread_time);
            let (polled, late) = watched(self.watch.as_ref(), call.phase, || {
                call.running.as_mut().poll(&mut Context::from_waker(Waker::noop()))
            });
            if let Poll::Ready((store, result)) = polled {
                self.store = Some(store);
                if is_failed {
                    lock(&self.slice).order = ResumeOrder::GoOn;
                }
                return Ok((call.errand, settled(result, late)));
            }
            call.is_resumed = true;
            call.ran += begun.map_or(Duration::ZERO, |begun| begun.elapsed());
            if let Some(clock) = clock {
                call.used = Nanos(call.used.0.saturating_add(thread_time().0.saturating_sub(clock.0)));
            }
            let Some(fault) = self.overdue(&call) else { return Err(call) };
            // Its slice is over all the same, for whatever is called next.
            lock(&self.slice).order = ResumeOrder::Fail(fault);
            is_failed = true;
        }
    }

    /// Why a call is not resumed any more: what the watchdog does about one that is not suspended.
    fn overdue(&self, call: &UnderWay) -> Option<FaultKind> {
        let used = Duration::from_nanos(call.used.0);
        if used < self.call_limit {
            return None;
        }
        if self.checks.is_charged() {
            return Some(FaultKind::TimeOut);
        }
        let patience = self.watch.as_ref()?.patience(self.call_limit);
        (used >= patience).then_some(FaultKind::Overrun)
    }

    /// After a function has returned. Returns false if it was lost.
    #[inline]
    fn has_returned(
        &mut self,
        task: &mut SuspendedCall,
        errand: Invocation,
        result: wasmtime::Result<i64>,
    ) -> bool {
        match result {
            Ok(value) => {
                if let Invocation::Batch(_) = errand {
                    self.counters.packets += u64::from(task.mask.count_ones());
                    task.drops |= value.cast_unsigned() & task.mask;
                    task.mask = 0;
                }
                true
            }
            Err(error) => {
                match errand {
                    Invocation::Batch(batch) => {
                        task.mask = self.lose(&error, batch, task.mask, &mut task.drops)
                    }
                    Invocation::Start(_) => self.lose_start(&error),
                    _ => self.lose_periodic(&error, errand.during()),
                }
                if let Invocation::Lost { .. } = errand {
                    // Once is enough.
                    self.untold = None;
                }
                false
            }
        }
    }
}

/// A function that has returned, or was lost; or how far it has come.
type Returned = Result<(Invocation, wasmtime::Result<i64>), UnderWay>;

/// The one way into the sandbox: under the watchdog's eyes.
#[inline]
fn watched<R>(
    watch: Option<&WatchedSandbox>,
    phase: HostPhase,
    act: impl FnOnce() -> R,
) -> (R, Option<OverrunAction>) {
    let Some(watch) = watch else { return (act(), None) };
    let under_way = watch.begin(phase);
    let result = act();
    (result, under_way.end())
}

/// The result of a call, of which the watchdog may have been the end.
#[inline]
fn settled(result: wasmtime::Result<i64>, late: Option<OverrunAction>) -> wasmtime::Result<i64> {
    match late {
        None => result,
        Some(late) => result.map_err(|error| late_error(error, late)),
    }
}
