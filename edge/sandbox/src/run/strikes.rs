//! Counts a module's strikes, for all of its instances together, and ends or unloads a module with too many.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The weight of a call over its limit against a call within its limit. Each call of a supervised module that is over its
/// limit adds this number to a sum; each other call subtracts 1. The module is unloaded when the sum exceeds the profile's
/// number of strikes times this number. So one call over its limit for every 64 within it is tolerated for ever.
const EXCESS_WEIGHT: u64 = 64;

/// The strike counters that all instances of a module share. The profile's number of strikes applies to all instances
/// together.
#[derive(Debug, Default)]
pub(crate) struct StrikeCounter {
    /// The number of calls aborted because of a limit.
    aborted_calls: AtomicU32,
    /// The weighted sum of calls over and within their limits, for a supervised module: see [`EXCESS_WEIGHT`].
    excess: AtomicU64,
    /// True if the module has ended: none of its functions is called again.
    ended: AtomicBool,
    /// True if the module was unloaded: it gets no more packets and ticks, but `weir_stop` is still called.
    unloaded: AtomicBool,
}

impl StrikeCounter {
    /// Counts a call that was aborted because of a limit. Ends the module after `strikes_max` such calls.
    pub(crate) fn strike(&self, strikes_max: u32) {
        if self.aborted_calls.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= strikes_max {
            self.end();
        }
    }

    /// Counts calls of a supervised module: `over` calls over their limit, and `within` other calls. Returns true if the
    /// module is unloaded because of these calls.
    pub(crate) fn count_calls(&self, over: u64, within: u64, strikes_max: u32) -> bool {
        if over == 0 && self.excess.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let updated =
            |excess: u64| excess.saturating_add(EXCESS_WEIGHT.saturating_mul(over)).saturating_sub(within);
        let before = self.excess.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |e| Some(updated(e)));
        let excess = updated(before.unwrap_or_else(|excess| excess));
        excess > EXCESS_WEIGHT * u64::from(strikes_max) && !self.unloaded.swap(true, Ordering::Relaxed)
    }

    /// Ends the module, with all of its instances.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn is_unloaded(&self) -> bool {
        self.unloaded.load(Ordering::Relaxed)
    }

    /// Returns the current number of strikes.
    pub(crate) fn strikes(&self) -> u64 {
        let aborted_calls = self.aborted_calls.load(Ordering::Relaxed);
        self.excess.load(Ordering::Relaxed).div_ceil(EXCESS_WEIGHT).max(aborted_calls.into())
    }
}
