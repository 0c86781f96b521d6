//! What counts against a module, over all of its instances.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A supervised module may exceed its limits for ever in one packet of so many. Each packet over the limit counts this much, each other one takes
/// one off again; what comes to more than the profile's strikes, times this, is a module that keeps exceeding.
const EXCESS: u64 = 64;

/// Shared by the instances of a module: it has the strikes of its profile once, however many threads it runs on.
#[derive(Debug, Default)]
pub(crate) struct StrikeCounter {
    /// Calls that were abandoned because of a limit.
    struck: AtomicU32,
    /// How far the packets of late were over the limits of a module that goes on then: see [`EXCESS`].
    excess: AtomicU64,
    /// It has ended; nothing of it is called any more.
    ended: AtomicBool,
    /// It gets no more packets and ticks, but it may still stop.
    unloaded: AtomicBool,
}

impl StrikeCounter {
    /// Counts a call that was abandoned because of a limit; with so many the module ends.
    pub(crate) fn strike(&self, strikes: u32) {
        if self.struck.fetch_add(1, Ordering::Relaxed).saturating_add(1) >= strikes {
            self.end();
        }
    }

    /// Counts calls of a supervised module, those over the limit and the others. Says whether it is unloaded from now on.
    pub(crate) fn weigh(&self, over: u64, within: u64, strikes: u32) -> bool {
        if over == 0 && self.excess.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let weigh = |excess: u64| excess.saturating_add(EXCESS.saturating_mul(over)).saturating_sub(within);
        let before = self.excess.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |e| Some(weigh(e)));
        let excess = weigh(before.unwrap_or_else(|excess| excess));
        excess > EXCESS * u64::from(strikes) && !self.unloaded.swap(true, Ordering::Relaxed)
    }

    /// The module ends, with all of its instances.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    pub(crate) fn is_unloaded(&self) -> bool {
        self.unloaded.load(Ordering::Relaxed)
    }

    /// How many strikes it has now.
    pub(crate) fn strikes(&self) -> u64 {
        let struck = self.struck.load(Ordering::Relaxed);
        self.excess.load(Ordering::Relaxed).div_ceil(EXCESS).max(struck.into())
    }
}
