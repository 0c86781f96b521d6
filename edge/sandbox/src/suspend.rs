//! Calls that are suspended at the end of their slice, and resumed later.
//!
//! Such a call has a stack of its own, a fiber of wasmtime's. It owns the store while it is under way, and gives it back at its end, so nothing can
//! change the sandbox under it. A suspended call may be resumed on another thread: what is on its stack is wasmtime's and the module's own, and both
//! may move. It may be dropped with its instance: its stack is unwound then, without running any code of the module.

use crate::clock::thread_time;
use crate::entry::{Starting, accepted};
use crate::event::News;
use crate::fault::FaultKind;
use crate::host::{Host, Phase};
use crate::instance::{Batch, During, Instance, late_error};
use crate::slice::{Budget, GivenUp, Order, lock};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use wasmtime::{Store, TypedFunc, WasmParams, WasmResults};
use weir_abi::lost;
use weir_bounds::EntryPoint;
use weir_units::{Nanos, Timestamp};

/// What a module can be called for.
#[derive(Clone, Copy, Debug)]
pub enum Call {
    /// Its constructors and `weir_start`: once, before anything else.
    Start,
    /// As [`Instance::run`].
    Batch(Batch),
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
pub enum Step {
    /// To its end. Of a batch: the mask of the packets that are dropped.
    Done(u64),
    /// To the end of its slice.
    Suspended,
}

/// A call that has begun.
pub(crate) struct Task {
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
enum Errand {
    Start,
    Batch(Batch),
    Tick,
    Stop,
    Lost,
    News(EntryPoint),
}

pub(crate) type Running = Pin<Box<dyn Future<Output = (Store<Host>, wasmtime::Result<i64>)> + Send>>;

/// A function of the module that has been called and has not returned.
struct UnderWay {
    errand: Errand,
    phase: Phase,
    running: Running,
    is_resumed: bool,
    /// How long it has run since it was first resumed: time on the clock, and, from when that is more than a call may take, the thread's own.
    ran: Duration,
    used: Nanos,
}

/// Calls a function with all that it needs, and gives that back.
pub(crate) async fn enter<P, R>(
    mut store: Store<Host>,
    function: TypedFunc<P, R>,
    arguments: P,
    value: impl FnOnce(R) -> wasmtime::Result<i64>,
) -> (Store<Host>, wasmtime::Result<i64>)
where
    P: WasmParams + Sync,
    R: WasmResults + Sync,
{
    let result = function.call_async(&mut store, arguments).await;
    (store, result.and_then(value))
}

pub(crate) fn nothing((): ()) -> wasmtime::Result<i64> {
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
    pub fn begin(&mut self, call: Call, budget: Budget) -> Step {
        self.finish();
        if !self.checks.is_sliced() {
            return Step::Done(self.at_a_stroke(call));
        }
        let mask = if let Call::Batch(batch) = call { batch.mask } else { 0 };
        if let Call::Stop { .. } = call
            && !self.is_over()
        {
            self.begin_block();
        }
        self.task = Some(Task { call, mask, drops: 0, called: 0, under_way: None });
        self.go_on(budget)
    }

    /// Has a suspended call go on. Where there is none, nothing is done.
    pub fn resume(&mut self, budget: Budget) -> Step {
        self.go_on(budget)
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
        lock(&self.slice).grant(Budget::WHOLE, Order::GiveUp);
        if let Some(under_way) = task.under_way.take()
            // What is resumed with that order ends, and is not suspended again.
            && let Ok((errand, result)) = self.poll(under_way)
        {
            if result.as_ref().is_err_and(|error| error.is::<GivenUp>()) {
                match errand {
                    Errand::Batch(batch) => task.mask = self.lose_packet(batch, task.mask, &mut task.drops).1,
                    _ => self.take_back(),
                }
                self.empty_stack();
                self.untold = Some(lost::LIMIT);
                self.ended |= matches!(errand, Errand::Start);
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
        match self.begin(call, Budget::WHOLE) {
            Step::Done(drops) => drops,
            Step::Suspended => self.finish(),
        }
    }

    /// Brings a suspended call to its end.
    fn finish(&mut self) -> u64 {
        let mut drops = 0;
        while self.is_suspended() {
            if let Step::Done(dropped) = self.resume(Budget::WHOLE) {
                drops = dropped;
            }
        }
        drops
    }

    fn go_on(&mut self, budget: Budget) -> Step {
        let Some(mut task) = self.task.take() else { return Step::Done(0) };
        lock(&self.slice).grant(budget, Order::GoOn);
        let mut slice = lock(&self.slice).whole();
        loop {
            let under_way = task.under_way.take().or_else(|| self.next(&mut task, slice));
            let Some(under_way) = under_way else { break };
            match self.poll(under_way) {
                Err(suspended) => {
                    task.under_way = Some(suspended);
                    self.task = Some(task);
                    return Step::Suspended;
                }
                Ok((errand, result)) => slice = self.has_returned(&mut task, errand, result),
            }
            let rest = lock(&self.slice).rest(slice);
            match rest {
                Some(rest) => slice = rest,
                None if self.is_done(&task) => break,
                None => {
                    self.task = Some(task);
                    return Step::Suspended;
                }
            }
        }
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
        Step::Done(task.drops)
    }

    /// Whether nothing is left to call.
    fn is_done(&self, task: &Task) -> bool {
        let Some(wasm) = &self.wasm else { return true };
        match task.call {
            Call::Start => self.is_over() || task.called >= wasm.starts.len(),
            Call::Batch(_) => self.has_ended() || task.mask == 0,
            Call::Tick { .. } => self.has_ended() || task.called > 0 || wasm.tick.is_none(),
            Call::Stop { .. } => self.is_over() || task.called > 0 || wasm.stop.is_none(),
            Call::News(news) => self.has_ended() || task.called > 0 || !wasm.ears.has(news),
        }
    }

    /// Calls the next function. Nothing has run of it yet.
    fn next(&mut self, task: &mut Task, slice: i64) -> Option<UnderWay> {
        if self.is_done(task) {
            return None;
        }
        let before = match task.call {
            Call::Start | Call::Stop { .. } | Call::News(_) => 0,
            Call::Batch(batch) => batch.first + task.mask.trailing_zeros(),
            Call::Tick { before, .. } => before,
        };
        let periodic = Phase::Periodic { before };
        let wasm = self.wasm.as_ref()?;
        let mut store = self.store.take()?;
        let mut go = |phase| {
            store.data_mut().enter(phase);
            if let Some(counter) = wasm.counter {
                counter.set(&mut store, slice);
            }
            phase
        };
        let (errand, phase, running): (_, _, Running) = match (self.untold.take(), &wasm.lost, task.call) {
            (
                Some(cause),
                Some(lost),
                Call::Batch(_) | Call::Tick { .. } | Call::Stop { .. } | Call::News(_),
            ) => {
                let phase = go(periodic);
                (Errand::Lost, phase, Box::pin(enter(store, lost.clone(), cause, nothing)))
            }
            (_, _, Call::Start) => {
                let phase = go(Phase::Start);
                let running: Running = match wasm.starts.get(task.called)?.clone() {
                    Starting::Constructor(function) => Box::pin(enter(store, function, (), nothing)),
                    Starting::Start(function) => {
                        let value = |code: i32| accepted(code.into()).map(|()| 0);
                        Box::pin(enter(store, function, (), value))
                    }
                };
                task.called += 1;
                (Errand::Start, phase, running)
            }
            (_, _, Call::Batch(batch)) => {
                let Batch { descriptors, first, .. } = batch;
                let (mask, one_by_one) = (task.mask, wasm.one_by_one);
                let phase = go(Phase::Batch { descriptors, first, mask, one_by_one });
                let arguments = (descriptors.cast_signed(), mask.cast_signed());
                (Errand::Batch(batch), phase, Box::pin(enter(store, wasm.run.clone(), arguments, Ok)))
            }
            (_, _, Call::Tick { now, periods, .. }) => {
                task.called += 1;
                let (phase, tick) = (go(periodic), wasm.tick.clone()?);
                let arguments = (now.0.cast_signed(), periods.cast_signed());
                (Errand::Tick, phase, Box::pin(enter(store, tick, arguments, nothing)))
            }
            (_, _, Call::Stop { now }) => {
                task.called += 1;
                let (phase, stop) = (go(periodic), wasm.stop.clone()?);
                (Errand::Stop, phase, Box::pin(enter(store, stop, now.0.cast_signed(), nothing)))
            }
            (_, _, Call::News(news)) => {
                task.called += 1;
                let phase = go(periodic);
                (Errand::News(news.entry()), phase, wasm.ears.begin(store, news)?)
            }
        };
        Some(UnderWay { errand, phase, running, is_resumed: false, ran: Duration::ZERO, used: Nanos(0) })
    }

    /// Has a function go on until it returns, or is suspended again.
    fn poll(&mut self, mut call: UnderWay) -> Result<(Errand, wasmtime::Result<i64>), UnderWay> {
        let mut is_failed = false;
        loop {
            let begun = call.is_resumed.then(Instant::now);
            let clock = (call.ran > self.call_limit).then(thread_time);
            let watched = self.watch.as_ref().map(|watch| watch.begin(call.phase));
            let polled = call.running.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            let late = watched.and_then(|watched| watched.end());
            if let Poll::Ready((store, result)) = polled {
                self.store = Some(store);
                if is_failed {
                    lock(&self.slice).order = Order::GoOn;
                }
                let result = match late {
                    Some(late) => result.map_err(|error| late_error(error, late)),
                    None => result,
                };
                return Ok((call.errand, result));
            }
            call.is_resumed = true;
            call.ran += begun.map_or(Duration::ZERO, |begun| begun.elapsed());
            if let Some(clock) = clock {
                call.used = Nanos(call.used.0.saturating_add(thread_time().0.saturating_sub(clock.0)));
            }
            let Some(fault) = self.overdue(&call) else { return Err(call) };
            // Its slice is over all the same, for whatever is called next.
            lock(&self.slice).order = Order::Fail(fault);
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

    /// After a function has returned, or was lost. Says what is left of the slice.
    fn has_returned(&mut self, task: &mut Task, errand: Errand, result: wasmtime::Result<i64>) -> i64 {
        let error = match result {
            Ok(value) => {
                if let Errand::Batch(_) = errand {
                    self.counters.packets += u64::from(task.mask.count_ones());
                    task.drops |= value.cast_unsigned() & task.mask;
                    task.mask = 0;
                }
                let counter = self.wasm.as_ref().and_then(|wasm| wasm.counter);
                return match (counter, &mut self.store) {
                    (Some(counter), Some(store)) => counter.slice(store),
                    _ => 0,
                };
            }
            Err(error) => error,
        };
        match errand {
            Errand::Batch(batch) => task.mask = self.lose(&error, batch, task.mask, &mut task.drops),
            Errand::Start => self.lose_start(&error),
            Errand::Tick => self.lose_periodic(&error, During::Tick),
            Errand::Stop => self.lose_periodic(&error, During::Stop),
            Errand::News(entry) => self.lose_periodic(&error, During::News(entry)),
            Errand::Lost => {
                self.lose_periodic(&error, During::Lost);
                // Once is enough.
                self.untold = None;
            }
        }
        // What it had left is not known: it may have been in a register.
        0
    }
}
