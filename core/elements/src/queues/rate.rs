//! Rates: a token bucket, and a process of evenly spaced events.

use weir_units::{Nanos, Timestamp};

/// The parts of a token that are counted.
const PARTS: i128 = Nanos::SECOND.0 as i128;

/// A token bucket. It fills with `rate` tokens a second, up to a capacity, and begins full.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: u64,
    capacity: u64,
    /// In parts of a token. Negative after a packet that took more than there was.
    level: i128,
    /// The time of the latest refill.
    at: Option<Timestamp>,
}

impl TokenBucket {
    /// Returns a full bucket.
    pub fn new(rate: u64, capacity: u64) -> Self {
        Self { rate, capacity, level: i128::from(capacity) * PARTS, at: None }
    }

    /// Returns the tokens of a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Sets rate and capacity. Tokens above the new capacity are lost.
    pub fn set_rate(&mut self, rate: u64, capacity: u64) {
        (self.rate, self.capacity) = (rate, capacity);
        self.level = self.level.min(i128::from(capacity) * PARTS);
    }

    /// Sets the number of tokens.
    pub fn set_level(&mut self, tokens: u64) {
        self.level = i128::from(tokens.min(self.capacity)) * PARTS;
    }

    /// Adds the tokens since the latest refill.
    pub fn refill(&mut self, now: Timestamp) {
        let since = self.at.map_or(0, |at| now.0.saturating_sub(at.0));
        self.at = Some(now);
        let added = i128::from(since) * i128::from(self.rate);
        self.level = self.level.saturating_add(added).min(i128::from(self.capacity) * PARTS);
    }

    /// Returns true if there is this number of tokens.
    pub fn contains(&self, tokens: u64) -> bool {
        self.level >= i128::from(tokens) * PARTS
    }

    /// Takes tokens, also more than there are.
    pub fn remove(&mut self, tokens: u64) {
        self.level -= i128::from(tokens) * PARTS;
    }

    /// Returns the time at which there will be this number of tokens, after the latest refill; `None` for never.
    pub fn time_of(&self, tokens: u64) -> Option<Timestamp> {
        let missing = i128::from(tokens) * PARTS - self.level;
        if self.rate == 0 || tokens > self.capacity {
            return None;
        }
        let rate = i128::from(self.rate);
        let wait = (missing.max(0) + rate - 1) / rate;
        Some(Timestamp(self.at?.0.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX))))
    }
}

/// Evenly spaced events: `rate` of them in each second. After a pause, at most those of a second are made up for.
#[derive(Clone, Copy, Debug)]
pub struct EvenRate {
    rate: u64,
    /// The second from which events are counted.
    second: Option<u64>,
    /// The events since then.
    count: i128,
}

impl EvenRate {
    /// Returns a process that has not begun.
    pub fn new(rate: u64) -> Self {
        Self { rate, second: None, count: 0 }
    }

    /// Returns the events of a second.
    pub fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns true if the next event is due.
    pub fn is_due(&mut self, now: Timestamp) -> bool {
        if self.rate == 0 {
            return false;
        }
        let (second, part) = (now.0 / Nanos::SECOND.0, now.0 % Nanos::SECOND.0);
        let rate = i128::from(self.rate);
        let expected = i128::from(part) * rate / PARTS;
        match self.second {
            // The events of the seconds that have passed were due. Those of the latest one are made up for.
            Some(from) => {
                let passed = i128::from(second.saturating_sub(from));
                if passed > 0 {
                    self.count = (self.count - rate.saturating_mul(passed)).max(expected - rate);
                }
            }
            None => self.count = expected,
        }
        self.second = Some(second);
        expected >= self.count
    }

    /// Counts events, also more than are due.
    pub fn count(&mut self, events: u64) {
        self.count += i128::from(events);
    }

    /// Returns the time of the next event, after a call of [`EvenRate::is_due`]; `None` for never.
    pub fn next_time(&self) -> Option<Timestamp> {
        let second = i128::from(self.second?) * PARTS;
        let rate = i128::from(self.rate);
        let at = second + (self.count.max(0) * PARTS + rate - 1) / rate.max(1);
        u64::try_from(at).ok().map(Timestamp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_rate_and_no_more_than_its_capacity_at_once() {
        let mut bucket = TokenBucket::new(3, 2);
        bucket.refill(Timestamp(0));
        assert!(bucket.contains(2) && !bucket.contains(3));
        bucket.remove(2);
        let mut times = Vec::new();
        while times.len() < 6 {
            let at = bucket.time_of(1).unwrap();
            bucket.refill(at);
            assert!(bucket.contains(1));
            bucket.remove(1);
            times.push(at.0);
        }
        assert_eq!(
            times,
            [333_333_334, 666_666_667, 1_000_000_000, 1_333_333_334, 1_666_666_667, 2_000_000_000]
        );
        bucket.refill(Timestamp(u64::MAX));
        assert!(bucket.contains(2) && !bucket.contains(3));
        assert_eq!(TokenBucket::new(0, 1).time_of(1), None);
    }

    #[test]
    fn events_are_evenly_spaced() {
        let mut events = EvenRate::new(4);
        let mut now = Timestamp(Nanos::SECOND.0);
        let mut times = Vec::new();
        while times.len() < 6 {
            assert!(events.is_due(now));
            events.count(1);
            times.push(now.0 / 1_000_000);
            assert!(!events.is_due(now));
            now = events.next_time().unwrap();
        }
        assert_eq!(times, [1000, 1250, 1500, 1750, 2000, 2250]);
    }

    #[test]
    fn a_pause_is_made_up_for_up_to_a_second() {
        let mut events = EvenRate::new(10);
        assert!(events.is_due(Timestamp(0)));
        events.count(1);
        let late = Timestamp(Nanos::SECOND.0 * 19 / 10);
        let mut made_up = 0;
        while events.is_due(late) {
            events.count(1);
            made_up += 1;
        }
        assert_eq!(made_up, 11);
        assert!(!EvenRate::new(0).is_due(late));
    }
}
