//! The slice of a suspendable call: the fuel or time that the call may use before it is suspended.
//!
//! The module counts fuel itself, and calls the host function [`SUSPEND`](rewrite::SUSPEND) when its counter is used up.
//! The function finds out whether the allowance or the slice is used up. At the end of a slice the call is suspended: its
//! stack is kept, and the thread continues in the host. A resumed call gets a new slice.

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
    fuel: Global,
    /// The globals `slice_excess` and `allowance_excess` of [`crate::load::meter::SliceGlobals`]. `None` if the module has no
    /// allowance.
    excess_globals: Option<(Global, Global)>,
    /// The global with the mask of remaining packets.
    rest: Global,
    /// The fuel that a call gets when it has used up its allowance. `None` if such a call is aborted.
    refill: Option<i64>,
}

impl CallCounter {
    pub(crate) fn find(
        instance: Instance,
        mut store: impl AsContextMut,
        checks: Checks,
    ) -> wasmtime::Result<Self> {
        let missing =
            |name: &str| wasmtime::Error::msg(format!("the rewritten module has no export `{name}`"));
        let mut global = |name: &str| instance.get_global(&mut store, name).ok_or_else(|| missing(name));
        let excess_globals = match checks {
            Checks::Charged { .. } => {
                Some((global(rewrite::SLICE_EXCESS)?, global(rewrite::ALLOWANCE_EXCESS)?))
            }
            _ => None,
        };
        Ok(Self {
            fuel: global(rewrite::FUEL)?,
            excess_globals,
            rest: global(rewrite::REMAINING)?,
            refill: checks.refill().map(|refill| refill.min(ALLOWANCE_MAX).cast_signed()),
        })
    }

    /// Sets the globals for a call with this slice, whose allowance the module sets itself.
    pub(crate) fn set(&self, mut store: impl AsContextMut, slice: i64) {
        // Setting these globals cannot fail, because they are mutable and of type i64.
        match self.excess_globals {
            None => _ = self.fuel.set(&mut store, Val::I64(slice)),
            Some((slice_excess, _)) => {
                _ = self.fuel.set(&mut store, Val::I64(0));
                _ = slice_excess.set(&mut store, Val::I64(slice));
            }
        }
    }

    /// Returns the rest of the slice after a call that has returned.
    pub(crate) fn slice(&self, mut store: impl AsContextMut) -> i64 {
        let slice_excess =
            self.excess_globals.map_or(0, |(slice_excess, _)| read_global(slice_excess, &mut store));
        read_global(self.fuel, &mut store).saturating_add(slice_excess)
    }

    /// Returns the rest of the allowance after a call that has returned; for a batch, the rest for its last packet.
    pub(crate) fn allowance(&self, mut store: impl AsContextMut) -> i64 {
        let counter = read_global(self.fuel, &mut store);
        self.allowance_and_slice(counter, store).0
    }

    /// Returns the rest of the allowance and of the slice, for this value of the counter.
    fn allowance_and_slice(&self, counter: i64, mut store: impl AsContextMut) -> (i64, i64) {
        let Some((slice_excess, allowance_excess)) = self.excess_globals else { return (i64::MAX, counter) };
        match read_global(slice_excess, &mut store) {
            slice_excess if slice_excess > 0 => (counter, counter.saturating_add(slice_excess)),
            _ => (counter.saturating_add(read_global(allowance_excess, &mut store)), counter),
        }
    }

    /// Sets the globals `slice_excess` and `allowance_excess` for these rests of the allowance and of the slice. Returns the
    /// new counter, which is the smaller rest.
    fn set_remaining(&self, mut store: impl AsContextMut, allowance: i64, slice: i64) -> i64 {
        let fuel = allowance.min(slice);
        if let Some((slice_excess, allowance_excess)) = self.excess_globals {
            _ = slice_excess.set(&mut store, Val::I64(slice - fuel));
            _ = allowance_excess.set(&mut store, Val::I64(allowance - fuel));
        }
        fuel
    }
}

fn read_global(global: Global, store: impl AsContextMut) -> i64 {
    global.get(store).i64().unwrap_or(0)
}

/// The host function [`SUSPEND`](rewrite::SUSPEND), which a module calls when its counter, `value`, is below zero. Aborts
/// the call, suspends it, or lets it continue. Returns the new value of the counter.
pub(crate) async fn handle_used_up_counter(
    mut caller: Caller<'_, HostState>,
    value: i64,
) -> wasmtime::Result<i64> {
    let Some(counter) = caller.data().counter else { return Err(FaultKind::Limit.into()) };
    let (mut allowance, mut slice) = counter.allowance_and_slice(value, &mut caller);
    if allowance < 0 {
        let rest = read_global(counter.rest, &mut caller).cast_unsigned();
        caller.data_mut().count_exceeded_at(rest)?;
        allowance = counter.refill.unwrap_or(0);
    }
    if caller.data().must_interrupt.load(Ordering::Relaxed) {
        return Err(FaultKind::TimeOverrun.into());
    }
    if slice < 0 {
        let shared = Arc::clone(&caller.data().slice);
        let budget = lock(&shared).budget();
        if !budget.continues() {
            let view = SandboxView::read(&caller);
            lock(&shared).view = view;
            pause().await;
        }
        let shared = lock(&shared);
        match shared.order {
            ResumeOrder::Continue => {}
            ResumeOrder::Fail(fault) => return Err(fault.into()),
            ResumeOrder::Abort => return Err(CallAborted.into()),
        }
        // The code after this charge is executed even if its cost exceeds the new slice, because it has been charged
        // already.
        slice = slice.saturating_add(shared.full_fuel()).max(0);
    }
    Ok(counter.set_remaining(&mut caller, allowance, slice))
}

impl SandboxView {
    fn read(caller: &Caller<'_, HostState>) -> Self {
        let host = caller.data();
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
async fn pause() {
    let mut has_paused = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut has_paused, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
