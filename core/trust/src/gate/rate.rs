//! Rate limits for many keys.

use std::collections::{BTreeMap, BTreeSet};
use weir_units::Nanos;

/// A rate with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The time between two events at the rate.
    pub every: Nanos,
    /// The number of events that can come at once. Zero counts as one.
    pub burst: u32,
}

impl RateLimit {
    /// Returns the time by which a key may be ahead of its schedule, in ns.
    fn tolerance(self) -> u64 {
        self.every.0.saturating_mul(u64::from(self.burst.saturating_sub(1)))
    }
}

/// The generic cell rate algorithm for a bounded number of keys. For each key it keeps the time at which the key is on
/// schedule again, the algorithm's *theoretical arrival time*. A key whose time is past has its whole burst, as a key
/// that is not remembered.
#[derive(Debug)]
pub struct RateLimiter<K> {
    rate: RateLimit,
    keys_max: usize,
    /// The time at which each key is on schedule again.
    due: BTreeMap<K, Nanos>,
    /// The same times in ascending order, to find the key that is on schedule first.
    by_time: BTreeSet<(Nanos, K)>,
}

impl<K: Ord + Copy> RateLimiter<K> {
    /// Makes a limiter that remembers at most `keys_max` keys; zero counts as one.
    pub fn new(rate: RateLimit, keys_max: usize) -> Self {
        Self { rate, keys_max: keys_max.max(1), due: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Returns true if the key may proceed now.
    pub fn may_proceed(&self, key: &K, now: Nanos) -> bool {
        self.wait(key, now).0 == 0
    }

    /// Returns the time until the key may proceed; zero if it may now.
    pub fn wait(&self, key: &K, now: Nanos) -> Nanos {
        let early = now.0.saturating_add(self.rate.tolerance());
        Nanos(self.due.get(key).map_or(0, |due| due.0.saturating_sub(early)))
    }

    /// Returns the time at which the key is on schedule again; zero for a key that is not remembered.
    pub fn due(&self, key: &K) -> Nanos {
        self.due.get(key).copied().unwrap_or(Nanos(0))
    }

    /// Forgets the key, so that it has its whole burst again.
    pub fn forget(&mut self, key: &K) {
        if let Some(due) = self.due.remove(key) {
            self.by_time.remove(&(due, *key));
        }
    }

    /// Charges the key for one event. Returns true if another key was forgotten before it was on schedule again.
    pub fn charge(&mut self, key: K, now: Nanos) -> bool {
        let due = match self.due.remove(&key) {
            Some(due) => {
                self.by_time.remove(&(due, key));
                due.max(now)
            }
            None => now,
        };
        let mut is_lost = false;
        while self.due.len() >= self.keys_max
            && let Some((time, other)) = self.by_time.pop_first()
        {
            self.due.remove(&other);
            is_lost |= time > now;
        }
        let due = Nanos(due.0.saturating_add(self.rate.every.0));
        self.due.insert(key, due);
        self.by_time.insert((due, key));
        is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = Nanos::MILLISECOND.0;

    fn try_at(rates: &mut RateLimiter<u32>, key: u32, now: u64) -> bool {
        let has = rates.may_proceed(&key, Nanos(now));
        if has {
            rates.charge(key, Nanos(now));
        }
        has
    }

    #[test]
    fn after_a_burst_events_proceed_at_the_rate() {
        let mut rates = RateLimiter::new(RateLimit { every: Nanos(10 * MS), burst: 3 }, 8);
        let turns: Vec<bool> = (0..5).map(|_| try_at(&mut rates, 1, 0)).collect();
        assert_eq!(turns, [true, true, true, false, false]);
        assert_eq!(
            [0, 4, 10].map(|ms| rates.wait(&1, Nanos(ms * MS))),
            [Nanos(10 * MS), Nanos(6 * MS), Nanos(0)]
        );
        // Another key has its own burst.
        assert!(try_at(&mut rates, 2, 0));
        let turns: Vec<bool> = (1..=40).map(|ms| try_at(&mut rates, 1, ms * MS)).collect();
        assert_eq!(turns.iter().filter(|turn| **turn).count(), 4);
        // After a long pause the whole burst is available again, and no more than that.
        let turns = (0..9).filter(|_| try_at(&mut rates, 1, 5_000 * MS)).count();
        assert_eq!(turns, 3);
    }

    #[test]
    fn the_number_of_keys_is_bounded_and_a_new_key_can_always_proceed() {
        let mut rates = RateLimiter::new(RateLimit { every: Nanos(10 * MS), burst: 1 }, 4);
        for key in 0..1000 {
            assert!(try_at(&mut rates, key, 0), "{key}");
            assert!(rates.due.len() <= 4 && rates.by_time.len() == rates.due.len());
        }
        // The latest keys are still remembered.
        assert!(!try_at(&mut rates, 999, MS));
    }

    #[test]
    fn a_key_that_is_on_schedule_is_forgotten_without_loss() {
        let mut rates = RateLimiter::new(RateLimit { every: Nanos(10 * MS), burst: 2 }, 2);
        assert!(!rates.charge(1, Nanos(0)) && !rates.charge(2, Nanos(0)));
        assert!(rates.charge(3, Nanos(MS)), "the first key was not on schedule again");
        assert!(!rates.charge(4, Nanos(100 * MS)));
    }
}
