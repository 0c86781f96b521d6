//! The slice of a suspendable call: how long it may run before it is suspended.
//!
//! The module itself counts fuel, and calls the host when its counter is used up. The host decides whether that was
//! the allowance or the slice. At the end of a slice the call's stack stays as it is, and the caller continues. A
//! resumed call gets a new slice.

use crate::load::meter::ALLOWANCE_MAX;
use crate::load::rewrite::{self, Checks};
use crate::run::clock::Cycles;
use crate::run::fault::FaultKind;
use crate::run::host::HostState;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use wasmtime::{AsContextMut, Caller, Global, Instance, Val};
use weir_units::Bytes;

/// The time that a call may run before it is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuelSlice {
    /// Fuel, after which the call is suspended at its next check. Fuel used beyond that is debited from the next
    /// slice.
    pub fuel: u64,
    /// If the clock has not reached this value, the call continues with the same amount of fuel again. Without it,
    /// the clock is not read.
    pub until: Option<Cycles>,
}

impl FuelSlice {
    /// The slice of calls that run to completion.
    pub const UNLIMITED: Self = Self { fuel: ALLOWANCE_MAX, until: None };

    fn fuel(self) -> i64 {
        self.fuel.clamp(1, ALLOWANCE_MAX).cast_signed()
    }

    /// Returns whether the slice continues although its fuel has been used, or an unknown amount of it.
    fn continues(self) -> bool {
        self == Self::UNLIMITED || self.until.is_some_and(|until| Cycles::now() < until)
    }
}

/// The order for a suspended call when it is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResumeOrder {
    /// Continue.
    #[default]
    GoOn,
    /// End with this fault.
    Fail(FaultKind),
    /// End, because the module is closed.
    Abort,
}

/// The error of a call that ended because its module is closed.
#[derive(Debug, thiserror::Error)]
#[error("given up")]
pub(crate) struct CallAborted;

/// The state that a suspendable call shares with the thread that runs it.
#[derive(Debug, Default)]
pub(crate) struct SliceState {
    budget: Option<FuelSlice>,
    pub(crate) order: ResumeOrder,
    /// The sandbox's state when the call was suspended.
    pub(crate) seen: SandboxView,
}

/// Observable state of a sandbox, available also while a call is suspended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SandboxView {
    pub(crate) memory: usize,
    pub(crate) records_dropped: u64,
    pub(crate) records_discarded: u64,
    pub(crate) frames_dropped: u64,
    pub(crate) kept: Bytes,
    pub(crate) log_dropped: u64,
}

pub(crate) fn lock(shared: &Mutex<SliceState>) -> MutexGuard<'_, SliceState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SliceState {
    /// Starts a new slice.
    pub(crate) fn grant(&mut self, budget: FuelSlice, order: ResumeOrder) {
        (self.budget, self.order) = (Some(budget), order);
    }

    fn budget(&self) -> FuelSlice {
        self.budget.unwrap_or(FuelSlice::UNLIMITED)
    }

    /// Returns the slice of the next call when `left` remains, or nothing if the slice is over.
    pub(crate) fn rest(&self, left: i64) -> Option<i64> {
        let budget = self.budget();
        if left > 0 {
            return Some(left);
        }
        budget.continues().then(|| budget.fuel())
    }

    /// Returns the slice's full fuel.
    pub(crate) fn full_fuel(&self) -> i64 {
        self.budget().fuel()
    }
}

/// The globals that count a call's fuel.
#[derive(Clone, Copy)]
pub(crate) struct CallCounter {
    fuel: Global,
    /// The part that is not in the counter: see [`crate::load::meter::SliceGlobals`]. Without it there is no allowance.
    excess_globals: Option<(Global, Global)>,
    rest: Global,
    /// Fuel added when the allowance is used up.
    piece: Option<i64>,
}

impl CallCounter {
    pub(crate) fn of(
        instance: Instance,
        mut store: impl AsContextMut,
        checks: Checks,
    ) -> wasmtime::Result<Self> {
        let missing =
            |name: &str| wasmtime::Error::msg(format!("the rewritten module has no export `{name}`"));
        let mut global = |name: &str| instance.get_global(&mut store, name).ok_or_else(|| missing(name));
        let excess_globals = match checks {
            Checks::Charged { .. } => Some((global(rewrite::BEYOND)?, global(rewrite::HELD)?)),
            _ => None,
        };
        Ok(Self {
            fuel: global(rewrite::FUEL)?,
            excess_globals,
            rest: global(rewrite::REST)?,
            piece: checks.piece().map(|piece| piece.min(ALLOWANCE_MAX).cast_signed()),
        })
    }

    /// Sets the slice before a call.
    pub(crate) fn set(&self, mut store: impl AsContextMut, slice: i64) {
        // Both globals are mutable and of this type, so this cannot fail.
        match self.excess_globals {
            None => _ = self.fuel.set(&mut store, Val::I64(slice)),
            Some((beyond, _)) => {
                _ = self.fuel.set(&mut store, Val::I64(0));
                _ = beyond.set(&mut store, Val::I64(slice));
            }
        }
    }

    /// Returns the rest of the slice after a completed call.
    pub(crate) fn slice(&self, mut store: impl AsContextMut) -> i64 {
        let beyond = self.excess_globals.map_or(0, |(beyond, _)| read(beyond, &mut store));
        read(self.fuel, &mut store).saturating_add(beyond)
    }

    /// Returns the rest of the allowance, of the last packet or of the call, after a completed call.
    pub(crate) fn allowance(&self, mut store: impl AsContextMut) -> i64 {
        let left = read(self.fuel, &mut store);
        self.both(left, store).0
    }

    /// Returns the allowance and the slice when `left` is in the counter.
    fn both(&self, left: i64, mut store: impl AsContextMut) -> (i64, i64) {
        let Some((beyond, held)) = self.excess_globals else { return (i64::MAX, left) };
        match read(beyond, &mut store) {
            beyond if beyond > 0 => (left, left.saturating_add(beyond)),
            _ => (left.saturating_add(read(held, &mut store)), left),
        }
    }

    /// Splits allowance and slice into the counter, which is returned, and the part beside it.
    fn divide(&self, mut store: impl AsContextMut, allowance: i64, slice: i64) -> i64 {
        let fuel = allowance.min(slice);
        if let Some((beyond, held)) = self.excess_globals {
            _ = beyond.set(&mut store, Val::I64(slice - fuel));
            _ = held.set(&mut store, Val::I64(allowance - fuel));
        }
        fuel
    }
}

fn read(global: Global, store: impl AsContextMut) -> i64 {
    global.get(store).i64().unwrap_or(0)
}

/// The host function for a counter below zero. Returns the new counter.
pub(crate) async fn run_out(mut caller: Caller<'_, HostState>, left: i64) -> wasmtime::Result<i64> {
    let Some(counter) = caller.data().counter else { return Err(FaultKind::Limit.into()) };
    let (mut allowance, mut slice) = counter.both(left, &mut caller);
    if allowance < 0 {
        let rest = read(counter.rest, &mut caller).cast_unsigned();
        caller.data_mut().run_out_at(rest)?;
        allowance = counter.piece.unwrap_or(0);
    }
    if caller.data().overrun.load(Ordering::Relaxed) {
        return Err(FaultKind::Overrun.into());
    }
    if slice < 0 {
        let shared = Arc::clone(&caller.data().slice);
        let budget = lock(&shared).budget();
        if !budget.continues() {
            let seen = SandboxView::of(&caller);
            lock(&shared).seen = seen;
            pause().await;
        }
        let shared = lock(&shared);
        match shared.order {
            ResumeOrder::GoOn => {}
            ResumeOrder::Fail(fault) => return Err(fault.into()),
            ResumeOrder::Abort => return Err(CallAborted.into()),
        }
        // The next step has been charged already, so it is executed whatever its cost.
        slice = slice.saturating_add(shared.full_fuel()).max(0);
    }
    Ok(counter.divide(&mut caller, allowance, slice))
}

impl SandboxView {
    fn of(caller: &Caller<'_, HostState>) -> Self {
        let host = caller.data();
        Self {
            memory: host.memory.map_or(0, |memory| memory.data_size(caller)),
            records_dropped: host.records_dropped,
            records_discarded: host.records_discarded,
            frames_dropped: host.outgoing.dropped,
            kept: host.kept.bytes(),
            log_dropped: host.log_dropped,
        }
    }
}

/// Suspends the call: the caller continues until the call is resumed.
async fn pause() {
    let mut has_paused = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut has_paused, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
