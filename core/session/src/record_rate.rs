//! A limit on records, or bytes of records, per second: a token bucket. The caller passes the time, always of the same
//! clock.

use weir_units::Nanos;

/// The credit that one record takes. A rate of one record per second earns one unit of credit in each nanosecond, so
/// credit is always a whole number of units, and nothing is rounded.
const RECORD_CREDIT: u128 = Nanos::SECOND.0 as u128;

/// A limit on records, or on their bytes, per second.
///
/// A [new](Self::new) limiter begins without credit, and holds at most the credit of one second. So a rate can be
/// divided among several limiters, each of which can be replaced by a new one at any time. In `t` seconds, all of them
/// together accept at most the records that the rate allows in `t + 1` seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRate {
    /// Records per second; `None` is no limit.
    per_second: Option<u64>,
    /// The credit that is left; a record takes [`RECORD_CREDIT`].
    credit: u128,
    /// The time of the last update.
    updated: Nanos,
}

impl RecordRate {
    /// Makes a limiter that begins at `now` without credit. Without a rate it accepts everything.
    pub fn new(per_second: Option<u64>, now: Nanos) -> Self {
        Self { per_second, credit: 0, updated: now }
    }

    /// Makes a limiter that begins with the credit of one second, for a session whose holder cannot create it again and
    /// again.
    pub fn full(per_second: Option<u64>, now: Nanos) -> Self {
        let empty = Self::new(per_second, now);
        Self { credit: empty.credit_max(), ..empty }
    }

    /// Returns the rate.
    pub fn per_second(&self) -> Option<u64> {
        self.per_second
    }

    /// Changes the rate from `now` on. Unused credit stays, up to the credit of one second at the new rate.
    pub fn change(&mut self, per_second: Option<u64>, now: Nanos) {
        self.earn_credit(now);
        // If there was no rate, `earn_credit` has set the credit to 0, so the new rate begins without credit.
        self.per_second = per_second;
        self.credit = self.credit.min(self.credit_max());
    }

    /// Returns the number of records that would be accepted `now`; `None` without a rate.
    pub fn acceptable_now(&mut self, now: Nanos) -> Option<u64> {
        self.per_second?;
        self.earn_credit(now);
        Some(u64::try_from(self.credit / RECORD_CREDIT).unwrap_or(u64::MAX))
    }

    /// Accepts up to `wanted` records `now`, and returns the number accepted. A clock that goes backwards earns no
    /// credit.
    pub fn take(&mut self, wanted: u64, now: Nanos) -> u64 {
        if self.per_second.is_none() {
            return wanted;
        }
        self.earn_credit(now);
        let accepted = u64::try_from(self.credit / RECORD_CREDIT).unwrap_or(u64::MAX).min(wanted);
        self.credit -= u128::from(accepted) * RECORD_CREDIT;
        accepted
    }

    fn earn_credit(&mut self, now: Nanos) {
        let passed = now.0.saturating_sub(self.updated.0);
        self.updated = self.updated.max(now);
        // Both factors have 64 bits, so the product fits.
        let earned = u128::from(self.per_second.unwrap_or(0)) * u128::from(passed);
        self.credit = self.credit.saturating_add(earned).min(self.credit_max());
    }

    /// Returns the credit that the rate earns in one second, which is the most credit that a limiter holds; 0 without a
    /// rate.
    fn credit_max(&self) -> u128 {
        u128::from(self.per_second.unwrap_or(0)) * RECORD_CREDIT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn seconds(tenths: u64) -> Nanos {
        Nanos(tenths * Nanos::SECOND.0 / 10)
    }

    #[test]
    fn each_second_accepts_exactly_the_rate() {
        let mut rate = RecordRate::new(Some(10), seconds(0));
        assert_eq!(rate.take(5, seconds(0)), 0, "nothing has come yet");
        assert_eq!(rate.take(5, seconds(3)), 3);
        assert_eq!(rate.take(1, seconds(4)), 1);
        // Unused credit is at most that of a second.
        assert_eq!(rate.take(100, seconds(500)), 10);
        assert_eq!(rate.take(100, seconds(500)), 0);
        // A clock that goes backwards earns nothing, neither then nor when it has caught up.
        assert_eq!(rate.take(100, seconds(400)), 0);
        assert_eq!(rate.take(100, seconds(501)), 1);
    }

    #[test]
    fn a_full_limiter_begins_with_the_credit_of_a_second() {
        let mut rate = RecordRate::full(Some(10), seconds(5));
        assert_eq!(rate.acceptable_now(seconds(5)), Some(10));
        assert_eq!((rate.take(4, seconds(5)), rate.acceptable_now(seconds(5))), (4, Some(6)));
        assert_eq!(rate.acceptable_now(seconds(100)), Some(10));
        assert_eq!(RecordRate::full(None, seconds(0)).acceptable_now(seconds(0)), None);
    }

    #[test]
    fn parts_of_a_record_are_not_lost() {
        let mut rate = RecordRate::new(Some(3), Nanos(0));
        let accepted: u64 = (1..=1_000).map(|at| rate.take(1, Nanos(at * 10_000_000))).sum();
        assert_eq!(accepted, 30);
    }

    #[test]
    fn without_a_rate_all_records_are_accepted_and_at_a_rate_of_zero_none() {
        let mut rate = RecordRate::new(None, Nanos(0));
        assert_eq!(rate.take(u64::MAX, Nanos(0)), u64::MAX);
        rate.change(Some(0), seconds(10));
        assert_eq!(rate.take(1, seconds(10_000)), 0);
        // A limit set later holds from then on, and the highest rate does not overflow.
        rate.change(Some(u64::MAX), seconds(10_000));
        assert_eq!(rate.take(1, seconds(10_000)), 0);
        assert_eq!(rate.take(u64::MAX, Nanos(u64::MAX)), u64::MAX);
    }

    #[test]
    fn a_lower_rate_keeps_as_much_credit_as_fits() {
        let mut rate = RecordRate::new(Some(100), seconds(0));
        rate.change(Some(5), seconds(10));
        assert_eq!((rate.per_second(), rate.take(100, seconds(10))), (Some(5), 5));
        rate.change(Some(100), seconds(10));
        assert_eq!(rate.take(100, seconds(10)), 0, "a change brings nothing by itself");
    }

    proptest! {
        /// A rate is divided among several limiters. Each begins anew at any time and asks at any time. Together they
        /// take no more than the whole rate earns from the beginning on.
        #[test]
        fn a_divided_rate_that_begins_anew_takes_no_more_than_the_whole_rate(
            parts in prop::collection::vec(0..50u64, 1..5),
            asked in prop::collection::vec((0..5usize, 0..300_000_000u64, 0..200u64, 0..5u8), 1..200),
        ) {
            let whole: u64 = parts.iter().sum();
            let mut rates: Vec<_> = parts.iter().map(|part| RecordRate::new(Some(*part), Nanos(0))).collect();
            let (mut now, mut taken) = (0, 0);
            for (which, later, wanted, anew) in asked {
                now += later;
                let which = which % parts.len();
                if anew == 0 {
                    rates[which] = RecordRate::new(Some(parts[which]), Nanos(now));
                }
                taken += rates[which].take(wanted, Nanos(now));
                prop_assert!(u128::from(taken) * RECORD_CREDIT <= u128::from(whole) * u128::from(now));
            }
        }
    }
}
