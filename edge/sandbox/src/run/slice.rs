//! The slice of a suspendable call: the fuel or time that the call may use before it is suspended.
//!
//! The module counts fuel itself, and calls the host function [`SUSPEND`](rewrite::SUSPEND) when its counter is used up.
//! The function finds out whether the allowance or the slice is used up. At the end of a slice the call is suspended: its
//! stack is kept, and the thread continues in the host. A resumed call gets a new slice.

use crate::load::meter::ALLOWANCE_MAX;
use crate::load::rewrite::{self, Checks};
use crate::run::clock::Cycles;
use crate::run::entry::{Exports, Globals, HostGlobal};
use crate::run::fault::FaultKind;
use crate::run::host::HostState;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use wasmtime::{AsContextMut, Caller};
use weir_units::Bytes;
use weir_wire::stream::TcpStreamCounters;

/// The fuel or time that a call may use before it is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuelSlice {
    /// The fuel after which the call is suspended at its next charge. Excess fuel is subtracted from the next slice.
    pub fuel: u64,
    /// The end of the slice by the clock. A call that uses up `fuel` before this time gets the same fuel again. With `None`
    /// the clock is not read, and the slice ends when its fuel is used up.
    pub until: Option<Cycles>,
}

impl FuelSlice {
    /// The slice of a call that runs to completion.
    pub const UNLIMITED: Self = Self { fuel: ALLOWANCE_MAX, until: None };

    fn fuel(self) -> i64 {
        self.fuel.clamp(1, ALLOWANCE_MAX).cast_signed()
    }

    /// Returns true if the slice is not over when its fuel is used up, or when its remaining fuel is unknown.
    fn continues(self) -> bool {
        self == Self::UNLIMITED || self.until.is_some_and(|until| Cycles::now() < until)
    }
}

/// The order that a suspended call gets when it is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResumeOrder {
    /// The call continues.
    #[default]
    Continue,
    /// The call ends with this fault.
    Fail(FaultKind),
    /// The call ends without a fault, because the host [aborts](crate::Instance::abort) it.
    Abort,
}

/// The error of a call that the host has [aborted](crate::Instance::abort).
#[derive(Debug, thiserror::Error)]
#[error("aborted")]
pub(crate) struct CallAborted;

/// The state that a suspendable call shares with its instance, which resumes it.
#[derive(Debug, Default)]
pub(crate) struct SliceState {
    /// The current slice; `None` stands for [`FuelSlice::UNLIMITED`].
    budget: Option<FuelSlice>,
    /// The order for the next resumption.
    pub(crate) order: ResumeOrder,
    /// The observable state of the sandbox when the call was suspended.
    pub(crate) view: SandboxView,
}

/// The observable state of a sandbox, which the host can read also while a call is suspended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SandboxView {
    pub(crate) memory: usize,
    pub(crate) records_dropped: u64,
    pub(crate) records_discarded: u64,
    pub(crate) frames_dropped: u64,
    pub(crate) kept: Bytes,
    pub(crate) log_dropped: u64,
    pub(crate) streams: TcpStreamCounters,
}

pub(crate) fn lock(shared: &Mutex<SliceState>) -> MutexGuard<'_, SliceState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SliceState {
    /// Sets the slice and the order for the next resumption, or for the beginning of a call.
    pub(crate) fn grant(&mut self, budget: FuelSlice, order: ResumeOrder) {
        (self.budget, self.order) = (Some(budget), order);
    }

    fn budget(&self) -> FuelSlice {
        self.budget.unwrap_or(FuelSlice::UNLIMITED)
    }

    /// Returns the fuel for the next call of a function, or `None` if the slice is over. `left` is the rest of the slice's
    /// fuel; 0 if it is unknown.
    pub(crate) fn rest(&self, left: i64) -> Option<i64> {
        let budget = self.budget();
        if left > 0 {
            return Some(left);
        }
        budget.continues().then(|| budget.fuel())
    }

    /// Returns the fuel that a slice begins with.
    pub(crate) fn full_fuel(&self) -> i64 {
        self.budget().fuel()
    }
}

/// The globals of a sandbox that count the fuel of a suspendable call.
#[derive(Clone, Copy)]
pub(crate) struct CallCounter {
    /// The global with the counter.
    fuel: HostGlobal<i64>,
    /// The globals `slice_excess` and `allowance_excess` of [`crate::load::meter::ExcessGlobals`]. `None` if the module has no
    /// allowance.
    excess_globals: Option<(HostGlobal<i64>, HostGlobal<i64>)>,
    /// The global with the mask of remaining packets.
    rest: HostGlobal<i64>,
    /// The fuel that a call gets when it has used up its allowance. `None` if such a call is aborted.
    refill: Option<i64>,
}

impl CallCounter {
    pub(crate) fn find(exports: &mut Exports<'_>, checks: Checks) -> wasmtime::Result<Self> {
        let excess_globals = match checks {
            Checks::Charged { .. } => {
                Some((exports.global(rewrite::SLICE_EXCESS)?, exports.global(rewrite::ALLOWANCE_EXCESS)?))
            }
            _ => None,
        };
        Ok(Self {
            fuel: exports.global(rewrite::FUEL)?,
            excess_globals,
            rest: exports.global(rewrite::REMAINING)?,
            refill: checks.refill().map(|refill| refill.min(ALLOWANCE_MAX).cast_signed()),
        })
    }

    /// Sets the globals for a call with this slice, whose allowance the module sets itself.
    pub(crate) fn set(&self, globals: &mut Globals<'_>, slice: i64) {
        match self.excess_globals {
            None => globals.set(self.fuel, slice),
            Some((slice_excess, _)) => {
                globals.set(self.fuel, 0);
                globals.set(slice_excess, slice);
            }
        }
    }

    /// Returns the rest of the slice after a call that has returned.
    pub(crate) fn slice(&self, globals: &mut Globals<'_>) -> i64 {
        let slice_excess = self.excess_globals.map_or(0, |(slice_excess, _)| globals.get(slice_excess));
        globals.get(self.fuel).saturating_add(slice_excess)
    }

    /// Returns the rest of the allowance after a call that has returned; for a batch, the rest for its last packet.
    pub(crate) fn allowance(&self, globals: &mut Globals<'_>) -> i64 {
        let counter = globals.get(self.fuel);
        self.remaining(counter, globals).allowance
    }

    /// Returns the rest of the allowance and of the slice, for this value of the counter.
    fn remaining(&self, counter: i64, globals: &mut Globals<'_>) -> RemainingFuel {
        let Some((slice_excess, allowance_excess)) = self.excess_globals else {
            return RemainingFuel { allowance: i64::MAX, slice: counter };
        };
        match globals.get(slice_excess) {
            slice_excess if slice_excess > 0 => {
                RemainingFuel { allowance: counter, slice: counter.saturating_add(slice_excess) }
            }
            _ => RemainingFuel {
                allowance: counter.saturating_add(globals.get(allowance_excess)),
                slice: counter,
            },
        }
    }

    /// Sets the globals `slice_excess` and `allowance_excess` for these rests. Returns the new counter, which is the smaller
    /// rest.
    fn set_remaining(&self, globals: &mut Globals<'_>, remaining: RemainingFuel) -> i64 {
        let RemainingFuel { allowance, slice } = remaining;
        let fuel = allowance.min(slice);
        if let Some((slice_excess, allowance_excess)) = self.excess_globals {
            globals.set(slice_excess, slice - fuel);
            globals.set(allowance_excess, allowance - fuel);
        }
        fuel
    }
}

/// The rest of a call's allowance and of its slice, at a call of the host function [`SUSPEND`](rewrite::SUSPEND). A module
/// calls that function when its counter is below zero; the result is the new value of the counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RemainingFuel {
    allowance: i64,
    slice: i64,
}

impl RemainingFuel {
    /// Returns the rests for this value of the counter. A used-up allowance is refilled.
    ///
    /// # Errors
    /// The call must be aborted.
    pub(crate) fn find(globals: &mut Globals<'_>, value: i64) -> wasmtime::Result<Self> {
        let Some(counter) = globals.store.data().counter else { return Err(FaultKind::Limit.into()) };
        let mut this = counter.remaining(value, globals);
        if this.allowance < 0 {
            let rest = globals.get(counter.rest).cast_unsigned();
            globals.store.data_mut().count_exceeded_at(rest)?;
            this.allowance = counter.refill.unwrap_or(0);
        }
        if globals.store.data().must_interrupt.load(Ordering::Relaxed) {
            return Err(FaultKind::TimeOverrun.into());
        }
        Ok(this)
    }

    /// Returns true if the call must be suspended, because its slice is over. Stores the state of the sandbox then.
    pub(crate) fn must_suspend(self, host: &HostState) -> bool {
        if self.slice >= 0 {
            return false;
        }
        let mut shared = lock(&host.slice);
        let is_over = !shared.budget().continues();
        if is_over {
            shared.view = SandboxView::read(host);
        }
        is_over
    }

    /// Begins a new slice if the slice is used up, after the call has been resumed if it was suspended. Returns the new value of
    /// the counter.
    ///
    /// # Errors
    /// The call must be aborted.
    pub(crate) fn grant(mut self, globals: &mut Globals<'_>) -> wasmtime::Result<i64> {
        let Some(counter) = globals.store.data().counter else { return Err(FaultKind::Limit.into()) };
        if self.slice < 0 {
            let shared = Arc::clone(&globals.store.data().slice);
            let shared = lock(&shared);
            match shared.order {
                ResumeOrder::Continue => {}
                ResumeOrder::Fail(fault) => return Err(fault.into()),
                ResumeOrder::Abort => return Err(CallAborted.into()),
            }
            // The code after this charge is executed even if its cost exceeds the new slice, because it has been charged
            // already.
            self.slice = self.slice.saturating_add(shared.full_fuel()).max(0);
        }
        Ok(counter.set_remaining(globals, self))
    }
}

/// The host function [`SUSPEND`](rewrite::SUSPEND) for code of Cranelift.
pub(crate) async fn handle_used_up_counter(
    mut caller: Caller<'_, HostState>,
    value: i64,
) -> wasmtime::Result<i64> {
    let remaining = RemainingFuel::find(&mut globals_of(&mut caller), value)?;
    if remaining.must_suspend(caller.data()) {
        pause().await;
    }
    remaining.grant(&mut globals_of(&mut caller))
}

fn globals_of<'a>(caller: &'a mut Caller<'_, HostState>) -> Globals<'a> {
    Globals { store: caller.as_context_mut(), native: None }
}

impl SandboxView {
    fn read(host: &HostState) -> Self {
        Self {
            memory: host.private.len() + usize::try_from(host.stream_memory().0).unwrap_or(usize::MAX),
            streams: host.streams.as_ref().map(|streams| streams.counters()).unwrap_or_default(),
            records_dropped: host.records_dropped,
            records_discarded: host.records_discarded,
            frames_dropped: host.outgoing.dropped,
            kept: host.kept.bytes(),
            log_dropped: host.log_dropped,
        }
    }
}

/// Suspends the call, whose thread continues in the host, until the call is resumed.
pub(crate) async fn pause() {
    let mut has_paused = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut has_paused, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
