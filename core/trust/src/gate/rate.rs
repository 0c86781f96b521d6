//! How often something may be done, for each of many.

use std::collections::{BTreeMap, BTreeSet};
use weir_units::Nanos;

/// So often, and so many at once after a while without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The time between two.
    pub every: Nanos,
    /// How many can come at once; at least one.
    pub burst: u32,
}

impl RateLimit {
    /// How far ahead of its schedule somebody may be.
    fn tolerance(self) -> u64 {
        self.every.0.saturating_mul(u64::from(self.burst.saturating_sub(1)))
    }
}

/// The generic cell rate algorithm for as many as are remembered: for each, when it would be on schedule. Whose time is past has its whole
/// burst, and so is as one that is not there.
#[derive(Debug)]
pub struct RateLimiter<K> {
    rate: RateLimit,
    most: usize,
    due: BTreeMap<K, Nanos>,
    by_time: BTreeSet<(Nanos, K)>,
}

impl<K: Ord + Copy> RateLimiter<K> {
    /// Remembers at most `most` of them, and at least one.
    pub fn new(rate: RateLimit, most: usize) -> Self {
        Self { rate, most: most.max(1), due: BTreeMap::new(), by_time: BTreeSet::new() }
    }

    /// Whether it is its turn.
    pub fn has_turn(&self, who: &K, now: Nanos) -> bool {
        self.wait(who, now).0 == 0
    }

    /// How long it is until its turn; nothing where that is now.
    pub fn wait(&self, who: &K, now: Nanos) -> Nanos {
        let early = now.0.saturating_add(self.rate.tolerance());
        Nanos(self.due.get(who).map_or(0, |due| due.0.saturating_sub(early)))
    }

    /// The time at which it is on schedule again; the beginning of time where it is not remembered.
    pub fn due(&self, who: &K) -> Nanos {
        self.due.get(who).copied().unwrap_or(Nanos(0))
    }

    /// Forgets it: it has its whole burst again.
    pub fn forget(&mut self, who: &K) {
        if let Some(due) = self.due.remove(who) {
            self.by_time.remove(&(due, *who));
        }
    }

    /// It takes its turn. Whether somebody was forgotten for it who had not been on schedule.
    pub fn take(&mut self, who: K, now: Nanos) -> bool {
        let due = match self.due.remove(&who) {
            Some(due) => {
                self.by_time.remove(&(due, who));
                due.max(now)
            }
            None => now,
        };
        let mut is_lost = false;
        while self.due.len() >= self.most
            && let Some((time, other)) = self.by_time.pop_first()
        {
            self.due.remove(&other);
            is_lost |= time > now;
        }
        let due = Nanos(due.0.saturating_add(self.rate.every.0));
        self.due.insert(who, due);
        self.by_time.insert((due, who));
        is_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = Nanos::MILLISECOND.0;

    fn try_at(rates: &mut RateLimiter<u32>, who: u32, now: u64) -> bool {
        let has = rates.has_turn(&who, Nanos(now));
        if has {
            rates.take(who, Nanos(now));
        }
        has
    }

    #[test]
    fn a_burst_and_then_one_each_time() {
        let mut rates = RateLimiter::new(RateLimit { every: Nanos(10 * MS), burst: 3 }, 8);
        let turns: Vec<bool> = (0..5).map(|_| try_at(&mut rates, 1, 0)).collect();
        assert_eq!(turns, [true, true, true, false, false]);
        assert_eq!(
            [0, 4, 10].map(|ms| rates.wait(&1, Nanos(ms * MS))),
            [Nanos(10 * MS), Nanos(6 * MS), Nanos(0)]
        );
        // Another one has its own.
        assert!(try_at(&mut rates, 2, 0));
        let turns: Vec<bool> = (1..=40).map(|ms| try_at(&mut rates, 1, ms * MS)).collect();
        assert_eq!(turns.iter().filter(|turn| **turn).count(), 4);
        // After so long without, the whole burst is there again, and no more than that.
        let turns = (0..9).filter(|_| try_at(&mut rates, 1, 5_000 * MS)).count();
        assert_eq!(turns, 3);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_a_newcomer_always_has_its_turn() {
        let mut rates = RateLimiter::new(RateLimit { every: Nanos(10 * MS), burst: 1 }, 4);
        for who in 0..1000 {
            assert!(try_at(&mut rates, who, 0), "{who}");
            assert!(rates.due.len() <= 4 && rates.by_time.len() == rates.due.len());
        }
        // The latest ones are remembered still.
        assert!(!try_at(&mut rates, 999, MS));
    }

    #[test]
    fn who_is_on_schedule_is_forgotten_without_loss() {
        let mut rates = RateLimiter::new(RateLimit { every: Nanos(10 * MS), burst: 2 }, 2);
        assert!(!rates.take(1, Nanos(0)) && !rates.take(2, Nanos(0)));
        assert!(rates.take(3, Nanos(MS)), "the first had not been on schedule again");
        assert!(!rates.take(4, Nanos(100 * MS)));
    }
}
