//! The pace of requests from elsewhere: each takes processor time of the node, granted or refused.
//!
//! A request waits for its turn before it is read, by [virtual clocks](crate::server::fair) of its chain. It moves the clocks by a hundredth of a second, and by more if it is long. If
//! it takes more processor time than usual, it moves them again afterwards. So all requests under one first grant take a [small part of a core](CORE_PERCENT), an ancestor
//! never waits for its descendants, and siblings get equal parts. A flood is not answered faster than that, and waits in the sender's own buffers.

use crate::server::fair::Clocks;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_trust::credential::PrefixId;
use weir_units::Nanos;

/// Requests in a second of a holder, and of all descendants of a holder.
const EACH_SECOND: u64 = 100;
/// Requests that can come at once after a pause. A file of 8 MiB comes in 32 parts.
const AT_ONCE: u64 = 400;
/// Processor time of requests of a holder, and of all descendants of a holder, in percent of a core.
const CORE_PERCENT: u64 = 5;
/// A request counts once more for each so many bytes.
const BYTES_OF_ONE: usize = 64 << 10;
/// The time by which clocks are moved by one request.
const ONE: Nanos = Nanos(Nanos::SECOND.0 / EACH_SECOND);
/// The most by which a clock may be ahead of time.
const AHEAD_MAX: Nanos = Nanos(ONE.0 * (AT_ONCE - 1));
/// The longest wait of a request for its turn.
const WAITING_MAX: Duration = Duration::from_secs(5);
/// The time after which a request looks again, when another one is before it.
const LOOK: Nanos = Nanos::MILLISECOND;

/// The clocks, and the requests that wait.
#[derive(Debug)]
pub(super) struct RequestRateLimiter {
    begun: Instant,
    queue: Mutex<Queue>,
}

/// A request that did not get its turn. Nothing is wrong with what was asked; it is to be asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "more is asked than is answered under this credential, or those that share a grant with it ({EACH_SECOND} requests a second, less where they take long): try again in {} s",
    .after.as_secs() + 1
)]
pub(super) struct TooOften {
    after: Duration,
}

/// The cost of a request of so many bytes, before it is read.
pub(super) fn cost_of(bytes: usize) -> Nanos {
    Nanos(ONE.0.saturating_add(more_for(bytes).0))
}

/// The cost of so many more bytes.
pub(super) fn more_for(bytes: usize) -> Nanos {
    let times = u64::try_from(bytes / BYTES_OF_ONE).unwrap_or(u64::MAX);
    Nanos(ONE.0.saturating_mul(times))
}

/// The cost of a request that took so much processor time.
pub(super) fn cost_of_time(used: Nanos) -> Nanos {
    Nanos(used.0.saturating_mul(100 / CORE_PERCENT))
}

impl RequestRateLimiter {
    pub(super) fn new(begun: Instant) -> Self {
        Self { begun, queue: Mutex::default() }
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    /// Waits until the holder of a chain has its turn for something of this cost. The operator, who has no chain, never waits.
    pub(super) fn take(&self, chain: &[PrefixId], cost: Nanos) -> Result<(), TooOften> {
        if chain.is_empty() {
            return Ok(());
        }
        let until = Instant::now() + WAITING_MAX;
        let number = self.lock().enter(chain);
        loop {
            let wait = match self.lock().turn(number, cost, self.now()) {
                None => return Ok(()),
                Some(wait) => Duration::from_nanos(wait.0),
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.lock().leave(number);
                return Err(TooOften { after: wait });
            }
            std::thread::sleep(wait.min(left));
        }
    }

    /// Moves the clocks of a chain by what a request took beyond its cost.
    pub(super) fn charge(&self, chain: &[PrefixId], more: Nanos) {
        if more.0 > 0 {
            self.lock().charge(chain, more, self.now());
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Requests that wait. There are no more than connections.
#[derive(Debug, Default)]
struct Queue {
    clocks: Clocks,
    waiting: Vec<(u64, Vec<PrefixId>)>,
    next: u64,
}

impl Queue {
    fn enter(&mut self, chain: &[PrefixId]) -> u64 {
        self.next += 1;
        self.waiting.push((self.next, chain.to_vec()));
        self.next
    }

    fn leave(&mut self, number: u64) {
        self.waiting.retain(|(other, _)| *other != number);
    }

    fn charge(&mut self, chain: &[PrefixId], cost: Nanos, now: Nanos) {
        self.clocks.charge(chain.iter().map(|id| (*id, cost)), now);
    }

    /// The time after which a request is to look again; nothing where it has its turn now, and is charged.
    fn turn(&mut self, number: u64, cost: Nanos, now: Nanos) -> Option<Nanos> {
        let (_, chain) = self.waiting.iter().find(|(other, _)| *other == number)?;
        let beyond = |chain: &[PrefixId]| self.clocks.ahead(chain, now).0.saturating_sub(AHEAD_MAX.0);
        // Earlier requests of the same holder have their turns first.
        let before = self.waiting.iter().filter(|(other, chains)| *other < number && chains == chain).count();
        let rank = ONE.0.saturating_mul(u64::try_from(before).unwrap_or(u64::MAX));
        let wait = beyond(chain);
        if wait > 0 {
            return Some(Nanos(wait.saturating_add(rank)));
        }
        // Parties have nothing in common.
        let of_party = self.waiting.iter().filter(|(_, other)| other.first() == chain.first());
        let ready = of_party.filter(|(_, other)| beyond(other) == 0);
        let first = self.clocks.first(ready.map(|(number, chain)| (*number, chain.as_slice())));
        if first != Some(number) {
            return Some(Nanos(LOOK.0.max(rank)));
        }
        let chain = chain.clone();
        self.leave(number);
        self.charge(&chain, cost, now);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::fair::CLOCKS_MAX;
    use crate::server::fair::tests::{chain, numbered};
    use std::collections::BTreeMap;

    /// The answers to each holder. Each has so many connections, and asks over them as fast as it is answered.
    fn served(
        queue: &mut Queue,
        holders: &[(&'static str, usize)],
        cost: Nanos,
        (begin, end): (u64, u64),
    ) -> BTreeMap<&'static str, u64> {
        let mut waiting: Vec<(&str, u64, u64)> = Vec::new();
        for (word, connections) in holders {
            waiting.extend((0..*connections).map(|_| (*word, queue.enter(&chain(word)), begin)));
        }
        let mut served = BTreeMap::new();
        for now in (begin..end).step_by(usize::try_from(LOOK.0).unwrap()) {
            for (word, number, look) in &mut waiting {
                while *look <= now {
                    match queue.turn(*number, cost, Nanos(now)) {
                        Some(wait) => *look = now + wait.0.max(1),
                        None => {
                            *served.entry(*word).or_insert(0) += 1;
                            *number = queue.enter(&chain(word));
                        }
                    }
                }
            }
        }
        waiting.iter().for_each(|(_, number, _)| queue.leave(*number));
        served
    }

    const SECOND: u64 = Nanos::SECOND.0;

    #[test]
    fn a_holder_is_answered_at_a_pace_and_takes_nothing_from_others() {
        let mut queue = Queue::default();
        let asked = served(&mut queue, &[("a", 8), ("b", 1)], ONE, (0, 10 * SECOND));
        // All at once at first, and then so many in a second.
        let most = AT_ONCE + 10 * EACH_SECOND;
        assert!(asked["b"] >= most - 2 && asked["b"] <= most, "{asked:?}");
        assert!(asked["a"] > most / 2 && asked["a"] <= most, "{asked:?}");
        // A holder that asks seldom does not wait.
        let number = queue.enter(&chain("c"));
        assert_eq!(queue.turn(number, ONE, Nanos(10 * SECOND)), None);
    }

    #[test]
    fn a_delegator_is_answered_under_its_delegates_flood() {
        let mut queue = Queue::default();
        let flood = [("ab", 8), ("abc", 8), ("abd", 8), ("ac", 8)];
        served(&mut queue, &flood, ONE, (0, 10 * SECOND));
        // Their delegator has all of its own, at once, and they have nothing meanwhile that it could have.
        let number = queue.enter(&chain("a"));
        assert_eq!(queue.turn(number, ONE, Nanos(10 * SECOND)), None);
        let all: Vec<(&str, usize)> = flood.into_iter().chain([("a", 1)]).collect();
        let asked = served(&mut queue, &all, ONE, (10 * SECOND, 20 * SECOND));
        assert!(asked["a"] >= AT_ONCE + 10 * EACH_SECOND - 2, "{asked:?}");
        // Delegates all together have no more than one holder could, less what their delegator had.
        let rest: u64 = asked.iter().filter(|(word, _)| **word != "a").map(|(_, count)| count).sum();
        assert!(rest <= 10 * EACH_SECOND + 2, "{asked:?}");
    }

    #[test]
    fn a_delegator_in_the_middle_comes_before_its_delegates_and_siblings_get_equal_parts() {
        let mut queue = Queue::default();
        let holders = [("ab", 1), ("abc", 8), ("ae", 8), ("af", 1)];
        served(&mut queue, &[("abc", 8)], ONE, (0, 10 * SECOND));
        // Holders that had nothing so far come first, until all had as much.
        let asked = served(&mut queue, &holders, ONE, (10 * SECOND, 60 * SECOND));
        let all: u64 = asked.values().sum();
        assert!((40 * EACH_SECOND..=50 * EACH_SECOND + AT_ONCE).contains(&all), "{asked:?}");
        assert!(asked["ab"] > 20 * asked.get("abc").copied().unwrap_or(0).max(1), "{asked:?}");
        let [of_b, e, f] = [asked["ab"], asked["ae"], asked["af"]];
        assert!(e.abs_diff(f) <= 20 && of_b.abs_diff(e) <= AT_ONCE + 20, "{asked:?}");
    }

    #[test]
    fn requests_that_take_processor_time_are_answered_less_often() {
        let mut queue = Queue::default();
        // Each takes 8 ms.
        let cost = cost_of_time(Nanos(8 * Nanos::MILLISECOND.0));
        let asked = served(&mut queue, &[("ab", 8)], cost, (0, 100 * SECOND));
        let used = asked["ab"] * 8 * Nanos::MILLISECOND.0;
        let part = 100 * SECOND * CORE_PERCENT / 100;
        assert!(used <= part + AHEAD_MAX.0 * CORE_PERCENT / 100 + 8 * Nanos::MILLISECOND.0, "{used}");
        assert_eq!((cost_of(100), cost_of(1 << 20).0), (ONE, 17 * ONE.0));
    }

    #[test]
    fn requests_of_many_fresh_delegates_take_no_more_processor_time_together() {
        let mut queue = Queue::default();
        // Each delegate asks once, for what takes 8 ms, and is charged for that afterwards.
        let used = Nanos(8 * Nanos::MILLISECOND.0);
        let (mut now, mut all) = (0, 0);
        for number in 0..3 * CLOCKS_MAX {
            let chain: Vec<PrefixId> = chain("ab").into_iter().chain([numbered(number)]).collect();
            let number = queue.enter(&chain);
            while let Some(wait) = queue.turn(number, ONE, Nanos(now)) {
                now += wait.0;
            }
            queue.charge(&chain, Nanos(cost_of_time(used).0 - ONE.0), Nanos(now));
            all += used.0;
        }
        let part = now * CORE_PERCENT / 100;
        assert!(all <= part + AHEAD_MAX.0 * CORE_PERCENT / 100 + 2 * used.0, "{all} of {part}");
        // Their delegators are answered at once.
        for word in ["ab", "a"] {
            let number = queue.enter(&chain(word));
            assert!(
                queue.turn(number, ONE, Nanos(now)).is_none_or(|wait| wait.0 <= cost_of_time(used).0),
                "{word}"
            );
        }
    }

    #[test]
    fn who_waits_in_vain_is_told_when_to_ask_again_and_the_operator_never_waits() {
        let pace = RequestRateLimiter::new(Instant::now());
        pace.charge(&chain("a"), Nanos(60 * SECOND));
        let begin = Instant::now();
        assert!((0..2 * AT_ONCE).all(|_| pace.take(&[], ONE).is_ok()));
        assert_eq!(pace.take(&chain("b"), ONE), Ok(()));
        assert!(begin.elapsed() < WAITING_MAX);
        let error = pace.take(&chain("ab"), ONE).unwrap_err();
        assert!(begin.elapsed() >= WAITING_MAX);
        assert!(error.to_string().contains("100 requests a second"), "{error}");
        assert!((50..=52).contains(&error.after.as_secs()), "{error}");
        assert!(pace.lock().waiting.is_empty());
    }
}
