//! The rate limiter of remote requests.
//!
//! Every request takes processor time of the node, even if it is refused. So a request waits for admission before it is
//! parsed, by the [virtual clocks](crate::server::chain_clocks) of its delegation chain. Admission advances the clocks by
//! [`REQUEST_COST`], and by more for a long body. The clocks advance again after a request that takes more processor time
//! than its cost stands for. Three properties follow:
//!
//! - All requests of one party (see [`delegation_chain`](crate::control::authority::delegation_chain)) take at most
//!   [`CORE_PERCENT`] of a core.
//! - A delegator never waits for its delegates.
//! - Siblings get equal rates.
//!
//! The node does not read faster than it admits, so a flood waits in the sender's own buffers.

use crate::server::chain_clocks::VirtualClocks;
use crate::sync::{OrderedMutex, rank};
use std::time::{Duration, Instant};
use weir_trust::credential::DelegationId;
use weir_units::Nanos;

/// The rate of requests of a holder, and of all its descendants together.
const REQUESTS_PER_SECOND: u64 = 100;
/// The number of requests that are admitted at once after a pause. A file of 8 MiB is uploaded in 32 parts.
const BURST: u64 = 400;
/// The processor time for requests of a holder, and of all its descendants together, in percent of a core.
const CORE_PERCENT: u64 = 5;
/// The number of bytes that cost as much as one request.
const BYTES_PER_REQUEST: usize = 64 << 10;
/// The time by which one request advances the clocks.
const REQUEST_COST: Nanos = Nanos(Nanos::SECOND.0 / REQUESTS_PER_SECOND);
/// The maximum lead of a clock at which requests are admitted.
const LEAD_MAX: Nanos = Nanos(REQUEST_COST.0 * (BURST - 1));
/// The maximum time for which a request waits for admission.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The time after which a request tries again while another request comes first.
const RETRY_INTERVAL: Nanos = Nanos::MILLISECOND;

/// Limits the rate of requests of each holder and of each party.
#[derive(Debug)]
pub(super) struct RequestRateLimiter {
    started: Instant,
    waiting: OrderedMutex<WaitingRequests, { rank::INDEPENDENT }>,
}

/// The error of a request that was not admitted in time. The client can send it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "too many requests under this credential, or under others of the same root's grant (at most {REQUESTS_PER_SECOND} requests a second, fewer if they take long): try again in {} s",
    .retry_after.as_secs() + 1
)]
pub(super) struct RateExceeded {
    retry_after: Duration,
}

/// Returns the cost of a request line of `bytes` bytes.
pub(super) fn cost_of_request(bytes: usize) -> Nanos {
    Nanos(REQUEST_COST.0.saturating_add(cost_of_extra_bytes(bytes).0))
}

/// Returns the cost of a body of `bytes` bytes.
pub(super) fn cost_of_extra_bytes(bytes: usize) -> Nanos {
    let times = u64::try_from(bytes / BYTES_PER_REQUEST).unwrap_or(u64::MAX);
    Nanos(REQUEST_COST.0.saturating_mul(times))
}

/// Returns the cost of a request that took `used` processor time.
pub(super) fn cost_of_cpu(used: Nanos) -> Nanos {
    Nanos(used.0.saturating_mul(100 / CORE_PERCENT))
}

impl RequestRateLimiter {
    pub(super) fn new(started: Instant) -> Self {
        Self { started, waiting: OrderedMutex::default() }
    }

    fn now(&self) -> Nanos {
        Nanos::from(self.started.elapsed())
    }

    /// Waits until a request of this cost is admitted. Requests of the operator, who has no chain, are admitted at once.
    pub(super) fn acquire(&self, chain: &[DelegationId], cost: Nanos) -> Result<(), RateExceeded> {
        if chain.is_empty() {
            return Ok(());
        }
        let until = Instant::now() + WAIT_MAX;
        let number = self.waiting.lock().enter(chain);
        loop {
            let wait = match self.waiting.lock().try_admit(number, cost, self.now()) {
                None => return Ok(()),
                Some(wait) => Duration::from_nanos(wait.0),
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                self.waiting.lock().leave(number);
                return Err(RateExceeded { retry_after: wait });
            }
            std::thread::sleep(wait.min(left));
        }
    }

    /// Advances the clocks of a chain by `extra_cost`: the cost of a request beyond the cost with which it was admitted.
    pub(super) fn charge(&self, chain: &[DelegationId], extra_cost: Nanos) {
        if extra_cost.0 > 0 {
            self.waiting.lock().charge(chain, extra_cost, self.now());
        }
    }
}

/// Requests that wait for admission, at most one for each connection.
#[derive(Debug, Default)]
struct WaitingRequests {
    clocks: VirtualClocks,
    /// The number and chain of each request.
    waiting: Vec<(u64, Vec<DelegationId>)>,
    last_number: u64,
}

impl WaitingRequests {
    fn enter(&mut self, chain: &[DelegationId]) -> u64 {
        self.last_number += 1;
        self.waiting.push((self.last_number, chain.to_vec()));
        self.last_number
    }

    fn leave(&mut self, number: u64) {
        self.waiting.retain(|(other, _)| *other != number);
    }

    fn charge(&mut self, chain: &[DelegationId], cost: Nanos, now: Nanos) {
        self.clocks.charge(chain.iter().map(|id| (*id, cost)), now);
    }

    /// Admits and charges a request, or returns the time after which it has to try again.
    fn try_admit(&mut self, number: u64, cost: Nanos, now: Nanos) -> Option<Nanos> {
        let (_, chain) = self.waiting.iter().find(|(other, _)| *other == number)?;
        let excess = |chain: &[DelegationId]| self.clocks.lead(chain, now).0.saturating_sub(LEAD_MAX.0);
        // Earlier requests of the same holder come first.
        let earlier =
            self.waiting.iter().filter(|(other, chains)| *other < number && chains == chain).count();
        let delay_for_earlier = REQUEST_COST.0.saturating_mul(u64::try_from(earlier).unwrap_or(u64::MAX));
        let wait = excess(chain);
        if wait > 0 {
            return Some(Nanos(wait.saturating_add(delay_for_earlier)));
        }
        // Different parties share no clocks.
        let of_party = self.waiting.iter().filter(|(_, other)| other.first() == chain.first());
        let ready = of_party.filter(|(_, other)| excess(other) == 0);
        let first = self.clocks.select(ready.map(|(number, chain)| (*number, chain.as_slice())));
        if first != Some(number) {
            return Some(Nanos(RETRY_INTERVAL.0.max(delay_for_earlier)));
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
    use crate::server::chain_clocks::CLOCKS_MAX;
    use crate::server::chain_clocks::tests::{chain, numbered};
    use std::collections::BTreeMap;

    /// Simulates holders that each send requests over a number of connections as fast as they are admitted. Returns the
    /// number of admitted requests of each.
    fn admitted_requests(
        queue: &mut WaitingRequests,
        holders: &[(&'static str, usize)],
        cost: Nanos,
        (begin, end): (u64, u64),
    ) -> BTreeMap<&'static str, u64> {
        let mut waiting: Vec<(&str, u64, u64)> = Vec::new();
        for (word, connections) in holders {
            waiting.extend((0..*connections).map(|_| (*word, queue.enter(&chain(word)), begin)));
        }
        let mut admitted = BTreeMap::new();
        for now in (begin..end).step_by(usize::try_from(RETRY_INTERVAL.0).unwrap()) {
            for (word, number, look) in &mut waiting {
                while *look <= now {
                    match queue.try_admit(*number, cost, Nanos(now)) {
                        Some(wait) => *look = now + wait.0.max(1),
                        None => {
                            *admitted.entry(*word).or_insert(0) += 1;
                            *number = queue.enter(&chain(word));
                        }
                    }
                }
            }
        }
        waiting.iter().for_each(|(_, number, _)| queue.leave(*number));
        admitted
    }

    const SECOND: u64 = Nanos::SECOND.0;

    #[test]
    fn the_rate_of_a_holder_is_limited_and_others_are_not_slowed() {
        let mut queue = WaitingRequests::default();
        let admitted = admitted_requests(&mut queue, &[("a", 8), ("b", 1)], REQUEST_COST, (0, 10 * SECOND));
        // First a burst, then the sustained rate.
        let most = BURST + 10 * REQUESTS_PER_SECOND;
        assert!(admitted["b"] >= most - 2 && admitted["b"] <= most, "{admitted:?}");
        assert!(admitted["a"] > most / 2 && admitted["a"] <= most, "{admitted:?}");
        // A holder with few requests does not wait.
        let number = queue.enter(&chain("c"));
        assert_eq!(queue.try_admit(number, REQUEST_COST, Nanos(10 * SECOND)), None);
    }

    #[test]
    fn a_delegator_is_served_during_a_flood_of_its_delegates() {
        let mut queue = WaitingRequests::default();
        let flood = [("ab", 8), ("abc", 8), ("abd", 8), ("ac", 8)];
        admitted_requests(&mut queue, &flood, REQUEST_COST, (0, 10 * SECOND));
        // The delegator is admitted at once, and gets its full rate; its delegates get only what it leaves.
        let number = queue.enter(&chain("a"));
        assert_eq!(queue.try_admit(number, REQUEST_COST, Nanos(10 * SECOND)), None);
        let all: Vec<(&str, usize)> = flood.into_iter().chain([("a", 1)]).collect();
        let admitted = admitted_requests(&mut queue, &all, REQUEST_COST, (10 * SECOND, 20 * SECOND));
        assert!(admitted["a"] >= BURST + 10 * REQUESTS_PER_SECOND - 2, "{admitted:?}");
        // All delegates together get no more than the rate of one holder, less what their delegator used.
        let rest: u64 = admitted.iter().filter(|(word, _)| **word != "a").map(|(_, count)| count).sum();
        assert!(rest <= 10 * REQUESTS_PER_SECOND + 2, "{admitted:?}");
    }

    #[test]
    fn an_intermediate_delegator_comes_before_its_delegates_and_siblings_get_equal_rates() {
        let mut queue = WaitingRequests::default();
        let holders = [("ab", 1), ("abc", 8), ("ae", 8), ("af", 1)];
        admitted_requests(&mut queue, &[("abc", 8)], REQUEST_COST, (0, 10 * SECOND));
        // Holders that used nothing so far come first, until all used the same.
        let admitted = admitted_requests(&mut queue, &holders, REQUEST_COST, (10 * SECOND, 60 * SECOND));
        let all: u64 = admitted.values().sum();
        assert!((40 * REQUESTS_PER_SECOND..=50 * REQUESTS_PER_SECOND + BURST).contains(&all), "{admitted:?}");
        assert!(admitted["ab"] > 20 * admitted.get("abc").copied().unwrap_or(0).max(1), "{admitted:?}");
        let [of_b, e, f] = [admitted["ab"], admitted["ae"], admitted["af"]];
        assert!(e.abs_diff(f) <= 20 && of_b.abs_diff(e) <= BURST + 20, "{admitted:?}");
    }

    #[test]
    fn expensive_requests_are_admitted_less_often() {
        let mut queue = WaitingRequests::default();
        // Each takes 8 ms.
        let cost = cost_of_cpu(Nanos(8 * Nanos::MILLISECOND.0));
        let admitted = admitted_requests(&mut queue, &[("ab", 8)], cost, (0, 100 * SECOND));
        let used = admitted["ab"] * 8 * Nanos::MILLISECOND.0;
        let part = 100 * SECOND * CORE_PERCENT / 100;
        assert!(used <= part + LEAD_MAX.0 * CORE_PERCENT / 100 + 8 * Nanos::MILLISECOND.0, "{used}");
        assert_eq!((cost_of_request(100), cost_of_request(1 << 20).0), (REQUEST_COST, 17 * REQUEST_COST.0));
    }

    #[test]
    fn many_new_delegates_take_no_more_processor_time_together_than_one() {
        let mut queue = WaitingRequests::default();
        // Each delegate sends one request, which takes 8 ms and is charged afterwards.
        let used = Nanos(8 * Nanos::MILLISECOND.0);
        let (mut now, mut all) = (0, 0);
        for number in 0..3 * CLOCKS_MAX {
            let chain: Vec<DelegationId> = chain("ab").into_iter().chain([numbered(number)]).collect();
            let number = queue.enter(&chain);
            while let Some(wait) = queue.try_admit(number, REQUEST_COST, Nanos(now)) {
                now += wait.0;
            }
            queue.charge(&chain, Nanos(cost_of_cpu(used).0 - REQUEST_COST.0), Nanos(now));
            all += used.0;
        }
        let part = now * CORE_PERCENT / 100;
        assert!(all <= part + LEAD_MAX.0 * CORE_PERCENT / 100 + 2 * used.0, "{all} of {part}");
        // Their delegators are admitted at once.
        for word in ["ab", "a"] {
            let number = queue.enter(&chain(word));
            assert!(
                queue
                    .try_admit(number, REQUEST_COST, Nanos(now))
                    .is_none_or(|wait| wait.0 <= cost_of_cpu(used).0),
                "{word}"
            );
        }
    }

    #[test]
    fn a_refused_request_is_told_when_to_retry_and_the_operator_never_waits() {
        let limiter = RequestRateLimiter::new(Instant::now());
        limiter.charge(&chain("a"), Nanos(60 * SECOND));
        let begin = Instant::now();
        assert!((0..2 * BURST).all(|_| limiter.acquire(&[], REQUEST_COST).is_ok()));
        assert_eq!(limiter.acquire(&chain("b"), REQUEST_COST), Ok(()));
        assert!(begin.elapsed() < WAIT_MAX);
        let error = limiter.acquire(&chain("ab"), REQUEST_COST).unwrap_err();
        assert!(begin.elapsed() >= WAIT_MAX);
        assert!(error.to_string().contains("100 requests a second"), "{error}");
        assert!((50..=52).contains(&error.retry_after.as_secs()), "{error}");
        assert!(limiter.waiting.lock().waiting.is_empty());
    }
}
