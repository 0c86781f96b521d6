//! The slice of a suspendable call: the fuel or time that it may use before it is suspended.
//!
//! The module counts fuel itself, and calls a host function when its counter is used up. The function finds out whether
//! the allowance or the slice is used up. At the end of a slice the call is suspended: its stack is kept, and the
//! thread continues in the host. A resumed call gets a new slice.

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

/// The fuel or time that a call may use before it is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuelSlice {
    /// The fuel after which the call is suspended at its next check. Fuel that the call uses beyond it is subtracted
    /// from the next slice.
    pub fuel: u64,
    /// The end of the slice by the clock. When the fuel is used up before, the call gets the same amount again. With
    /// `None` the clock is not read, and the slice ends with its fuel.
    pub until: Option<Cycles>,
}

impl FuelSlice {
    /// The slice of calls that run to completion.
    pub const UNLIMITED: Self = Self { fuel: ALLOWANCE_MAX, until: None };

    fn fuel(self) -> i64 {
        self.fuel.clamp(1, ALLOWANCE_MAX).cast_signed()
    }

    /// Returns true if the slice is not over although its fuel is used up, or it is unknown how much is left.
    fn continues(self) -> bool {
        self == Self::UNLIMITED || self.until.is_some_and(|until| Cycles::now() < until)
    }
}

/// The order to a suspended call when it is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResumeOrder {
    /// Continue.
    #[default]
    GoOn,
    /// End with this fault.
    Fail(FaultKind),
    /// End without a fault, because the caller [aborts](crate::Instance::abort) the call.
    Abort,
}

/// The error of a call that ended because its caller has [aborted](crate::Instance::abort) it.
#[derive(Debug, thiserror::Error)]
#[error("aborted")]
pub(crate) struct CallAborted;

/// The state that a suspendable call shares with its instance, which resumes it.
#[derive(Debug, Default)]
pub(crate) struct SliceState {
    /// The current slice; `None` stands for [`FuelSlice::UNLIMITED`].
    budget: Option<FuelSlice>,
    pub(crate) order: ResumeOrder,
    /// The sandbox's state when the call was suspended.
    pub(crate) seen: SandboxView,
}

/// The state of a sandbox that its host can read, also while a call is suspended.
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

    /// Returns the fuel for the next function call when `left` is left of the slice, or `None` if the slice is over.
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
    fuel: Global,
    /// The globals `beyond` and `held` of [`crate::load::meter::SliceGlobals`]. `None` if there is no allowance.
    excess_globals: Option<(Global, Global)>,
    /// The global with the mask of remaining packets.
    rest: Global,
    /// Fuel that is added when the allowance is used up.
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
        // Setting a global cannot fail, because both are mutable and of type i64.
        match self.excess_globals {
            None => _ = self.fuel.set(&mut store, Val::I64(slice)),
            Some((beyond, _)) => {
                _ = self.fuel.set(&mut store, Val::I64(0));
                _ = beyond.set(&mut store, Val::I64(slice));
            }
        }
    }

    /// Returns the rest of the slice after a call that has returned.
    pub(crate) fn slice(&self, mut store: impl AsContextMut) -> i64 {
        let beyond = self.excess_globals.map_or(0, |(beyond, _)| read(beyond, &mut store));
        read(self.fuel, &mut store).saturating_add(beyond)
    }

    /// Returns the rest of the allowance after a call that has returned; for a batch, that of its last packet.
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

    /// Sets the globals `beyond` and `held` for this allowance and slice, and returns the new counter, which is the
    /// smaller of the two.
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

/// The host function [`SUSPEND`](rewrite::SUSPEND), which a module calls when its counter `left` is below zero. Aborts
/// the call, suspends it, or lets it continue. Returns the new counter.
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
        // The code after this check has been charged already, so it is executed even if its cost exceeds the new slice.
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

/// Suspends the call, whose thread continues in the host, until the call is resumed.
async fn pause() {
    let mut has_paused = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut has_paused, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
