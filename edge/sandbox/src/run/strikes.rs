//! Strikes against a module, over all of its instances.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Weight of one excess. A supervised module may exceed its limits in one packet of `EXCESS` without end: each packet
/// over the limit adds `EXCESS`, each other packet subtracts 1. The module is unloaded when the sum exceeds the
/// profile's strikes times `EXCESS`.
const EXCESS: u64 = 64;

/// The strike counters that all instances of a module share: the module has its profile's strikes once, on however
/// many threads it runs.
#[derive(Debug, Default)]
pub(crate) struct StrikeCounter {
    /// Calls aborted because of a limit.
    struck: AtomicU32,
    /// Weighted excess of recent packets, for a module that continues over its limits: see [`EXCESS`].
    excess: AtomicU64,
    /// Set once the module has ended: none of its functions is called again.
    ended: AtomicBool,
    /// Set once the module gets no more packets and ticks; `weir_stop` is still called.
    unloaded: AtomicBool,
}

impl StrikeCounter {
    /// Counts a call aborted because of a limit. The module ends at `strikes` of them.
    pub(crate) fn strike(&self, strikes: u32) {
        if self.struck.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= strikes {
            self.end();
        }
    }

    /// Counts calls of a supervised module, those over the limit and the others. Returns whether these calls make the
    /// module unload.
    pub(crate) fn count_calls(&self, over: u64, within: u64, strikes: u32) -> bool {
        if over == 0 && self.excess.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let count_calls =
            |excess: u64| excess.saturating_add(EXCESS.saturating_mul(over)).saturating_sub(within);
        let before = self.excess.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |e| Some(count_calls(e)));
        let excess = count_calls(before.unwrap_or_else(|excess| excess));
        excess > EXCESS * u64::from(strikes) && !self.unloaded.swap(true, Ordering::Relaxed)
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
        let struck = self.struck.load(Ordering::Relaxed);
        self.excess.load(Ordering::Relaxed).div_ceil(EXCESS).max(struck.into())
    }
}
