//! The slice of a call that can be suspended: how long it may run now, and what happens at its end.
//!
//! The call itself counts, in fuel, and asks here when what it has is used up. Here it is seen whether that was its allowance or its slice. At the end
//! of a slice the call's stack is left where it is, and whoever called goes on; when the call is resumed it is given a new slice.

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

/// How long a call may run until it is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FuelSlice {
    /// In fuel: it is suspended at its next check after so much. What it has used beyond that is taken off its next slice.
    pub fuel: u64,
    /// If the clock does not show this yet, it goes on with as much fuel again. Without it, the clock is not looked at.
    pub until: Option<Cycles>,
}

impl FuelSlice {
    /// For calls that are not to be suspended.
    pub const WHOLE: Self = Self { fuel: ALLOWANCE_MAX, until: None };

    fn fuel(self) -> i64 {
        self.fuel.clamp(1, ALLOWANCE_MAX).cast_signed()
    }

    /// Whether it is not over, though so much fuel has been used, or it is not known how much.
    fn lasts(self) -> bool {
        self == Self::WHOLE || self.until.is_some_and(|until| Cycles::now() < until)
    }
}

/// What a call is to do when it is resumed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResumeOrder {
    /// Go on.
    #[default]
    GoOn,
    /// End with this fault.
    Fail(FaultKind),
    /// End, because its module is closed.
    GiveUp,
}

/// A call ended because its module is closed.
#[derive(Debug, thiserror::Error)]
#[error("given up")]
pub(crate) struct CallAborted;

/// What a call that can be suspended and the world outside tell each other.
#[derive(Debug, Default)]
pub(crate) struct SliceState {
    budget: Option<FuelSlice>,
    pub(crate) order: ResumeOrder,
    /// What could be seen of the sandbox when the call was suspended.
    pub(crate) seen: SandboxView,
}

/// What can be seen of a sandbox, also while a call of it is suspended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SandboxView {
    pub(crate) memory: usize,
    pub(crate) records_dropped: u64,
    pub(crate) frames_dropped: u64,
    pub(crate) kept: Bytes,
    pub(crate) log_dropped: u64,
}

pub(crate) fn lock(shared: &Mutex<SliceState>) -> MutexGuard<'_, SliceState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SliceState {
    /// A new slice.
    pub(crate) fn grant(&mut self, budget: FuelSlice, order: ResumeOrder) {
        (self.budget, self.order) = (Some(budget), order);
    }

    fn budget(&self) -> FuelSlice {
        self.budget.unwrap_or(FuelSlice::WHOLE)
    }

    /// What the slice has left for the next call, where that is so much; nothing if it is over.
    pub(crate) fn rest(&self, left: i64) -> Option<i64> {
        let budget = self.budget();
        if left > 0 {
            return Some(left);
        }
        budget.lasts().then(|| budget.fuel())
    }

    /// The whole of it.
    pub(crate) fn whole(&self) -> i64 {
        self.budget().fuel()
    }
}

/// Where a call is counted.
#[derive(Clone, Copy)]
pub(crate) struct CallCounter {
    fuel: Global,
    /// What is not in the counter: see [`crate::load::meter::Slice`]. Without them there is no allowance.
    apart: Option<(Global, Global)>,
    rest: Global,
    /// What a call is given beyond its allowance.
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
        let apart = match checks {
            Checks::Charged { .. } => Some((global(rewrite::BEYOND)?, global(rewrite::HELD)?)),
            _ => None,
        };
        Ok(Self {
            fuel: global(rewrite::FUEL)?,
            apart,
            rest: global(rewrite::REST)?,
            piece: checks.piece().map(|piece| piece.min(ALLOWANCE_MAX).cast_signed()),
        })
    }

    /// Before a call: it has so much for all that it does.
    pub(crate) fn set(&self, mut store: impl AsContextMut, slice: i64) {
        // All of them are mutable and of this type, so this cannot fail.
        match self.apart {
            None => _ = self.fuel.set(&mut store, Val::I64(slice)),
            Some((beyond, _)) => {
                _ = self.fuel.set(&mut store, Val::I64(0));
                _ = beyond.set(&mut store, Val::I64(slice));
            }
        }
    }

    /// After a call that came to its end: what it has left of its slice.
    pub(crate) fn slice(&self, mut store: impl AsContextMut) -> i64 {
        let beyond = self.apart.map_or(0, |(beyond, _)| read(beyond, &mut store));
        read(self.fuel, &mut store).saturating_add(beyond)
    }

    /// After a call that came to its end: what its last packet, or the call, has left of its allowance.
    pub(crate) fn allowance(&self, mut store: impl AsContextMut) -> i64 {
        let left = read(self.fuel, &mut store);
        self.both(left, store).0
    }

    /// The allowance and the slice, of which so much is in the counter.
    fn both(&self, left: i64, mut store: impl AsContextMut) -> (i64, i64) {
        let Some((beyond, held)) = self.apart else { return (i64::MAX, left) };
        match read(beyond, &mut store) {
            beyond if beyond > 0 => (left, left.saturating_add(beyond)),
            _ => (left.saturating_add(read(held, &mut store)), left),
        }
    }

    /// Divides what a call has into the counter, which it is given, and what is kept apart.
    fn divide(&self, mut store: impl AsContextMut, allowance: i64, slice: i64) -> i64 {
        let fuel = allowance.min(slice);
        if let Some((beyond, held)) = self.apart {
            _ = beyond.set(&mut store, Val::I64(slice - fuel));
            _ = held.set(&mut store, Val::I64(allowance - fuel));
        }
        fuel
    }
}

fn read(global: Global, store: impl AsContextMut) -> i64 {
    global.get(store).i64().unwrap_or(0)
}

/// The host function for a call whose counter is below zero. Gives what the counter is from then on.
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
        if !budget.lasts() {
            let seen = SandboxView::of(&caller);
            lock(&shared).seen = seen;
            pause().await;
        }
        let shared = lock(&shared);
        match shared.order {
            ResumeOrder::GoOn => {}
            ResumeOrder::Fail(fault) => return Err(fault.into()),
            ResumeOrder::GiveUp => return Err(CallAborted.into()),
        }
        // What is next has been charged for already, so it is done now, however much it is.
        slice = slice.saturating_add(shared.whole()).max(0);
    }
    Ok(counter.divide(&mut caller, allowance, slice))
}

impl SandboxView {
    fn of(caller: &Caller<'_, HostState>) -> Self {
        let host = caller.data();
        Self {
            memory: host.memory.map_or(0, |memory| memory.data_size(caller)),
            records_dropped: host.records_dropped,
            frames_dropped: host.outgoing.dropped,
            kept: host.kept.bytes(),
            log_dropped: host.log_dropped,
        }
    }
}

/// Has whoever called go on, until the call is resumed.
async fn pause() {
    let mut has_paused = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut has_paused, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
