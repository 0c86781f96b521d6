//! How many records may be taken in a second: a token bucket over whatever time its holder says it is.

use weir_units::Nanos;

/// What one record takes of the credit. So much comes in a second for each record of the rate, and no rounding loses any.
const RECORD: u128 = Nanos::SECOND.0 as u128;

/// Counts records, or their bytes, against a rate. A [new](Self::new) one begins empty and holds what a second brings: however a rate is divided among several, and however often one of
/// them begins anew, in `t` seconds no more are taken than the rate allows in `t + 1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordRate {
    /// Records in a second; as many as come where there is none.
    per_second: Option<u64>,
    /// What has come and was not taken, in parts of [`RECORD`].
    credit: u128,
    /// When it was reckoned last.
    at: Nanos,
}

impl RecordRate {
    /// This many records in a second, from `now` on; without a number as many as come.
    pub fn new(per_second: Option<u64>, now: Nanos) -> Self {
        Self { per_second, credit: 0, at: now }
    }

    /// A rate that begins with the credit of one second, for a session that cannot be created again at will.
    pub fn full(per_second: Option<u64>, now: Nanos) -> Self {
        let empty = Self::new(per_second, now);
        Self { credit: empty.room(), ..empty }
    }

    /// The rate.
    pub fn per_second(&self) -> Option<u64> {
        self.per_second
    }

    /// From `now` on it is this many. What was not taken stays, as far as the new rate has room for it.
    pub fn change(&mut self, per_second: Option<u64>, now: Nanos) {
        self.gain(now);
        // Without a rate there was no credit, and none is made up for afterwards.
        self.per_second = per_second;
        self.credit = self.credit.min(self.room());
    }

    /// How many may be taken `now`; as many as come where there is no rate.
    pub fn room_now(&mut self, now: Nanos) -> Option<u64> {
        self.per_second?;
        self.gain(now);
        Some(u64::try_from(self.credit / RECORD).unwrap_or(u64::MAX))
    }

    /// Of `wanted` records, how many may be taken `now`. Time that goes backwards brings nothing.
    pub fn take(&mut self, wanted: u64, now: Nanos) -> u64 {
        if self.per_second.is_none() {
            return wanted;
        }
        self.gain(now);
        let taken = u64::try_from(self.credit / RECORD).unwrap_or(u64::MAX).min(wanted);
        self.credit -= u128::from(taken) * RECORD;
        taken
    }

    fn gain(&mut self, now: Nanos) {
        let passed = now.0.saturating_sub(self.at.0);
        self.at = self.at.max(now);
        // Of 64 bits each, so their product has room.
        let gained = u128::from(self.per_second.unwrap_or(0)) * u128::from(passed);
        self.credit = self.credit.saturating_add(gained).min(self.room());
    }

    /// The most that it holds.
    fn room(&self) -> u128 {
        u128::from(self.per_second.unwrap_or(0)) * RECORD
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
    fn in_each_second_so_many_are_taken_and_no_more() {
        let mut rate = RecordRate::new(Some(10), seconds(0));
        assert_eq!(rate.take(5, seconds(0)), 0, "nothing has come yet");
        assert_eq!(rate.take(5, seconds(3)), 3);
        assert_eq!(rate.take(1, seconds(4)), 1);
        // What nobody takes for long is a second's at most.
        assert_eq!(rate.take(100, seconds(500)), 10);
        assert_eq!(rate.take(100, seconds(500)), 0);
        // Time that goes backwards brings nothing, neither then nor when it has come back.
        assert_eq!(rate.take(100, seconds(400)), 0);
        assert_eq!(rate.take(100, seconds(501)), 1);
    }

    #[test]
    fn a_full_one_begins_with_what_a_second_brings() {
        let mut rate = RecordRate::full(Some(10), seconds(5));
        assert_eq!(rate.room_now(seconds(5)), Some(10));
        assert_eq!((rate.take(4, seconds(5)), rate.room_now(seconds(5))), (4, Some(6)));
        assert_eq!(rate.room_now(seconds(100)), Some(10));
        assert_eq!(RecordRate::full(None, seconds(0)).room_now(seconds(0)), None);
    }

    #[test]
    fn parts_of_a_record_are_not_lost() {
        let mut rate = RecordRate::new(Some(3), Nanos(0));
        let taken: u64 = (1..=1_000).map(|at| rate.take(1, Nanos(at * 10_000_000))).sum();
        assert_eq!(taken, 30);
    }

    #[test]
    fn without_a_rate_all_are_taken_and_with_none_in_a_second_not_one() {
        let mut rate = RecordRate::new(None, Nanos(0));
        assert_eq!(rate.take(u64::MAX, Nanos(0)), u64::MAX);
        rate.change(Some(0), seconds(10));
        assert_eq!(rate.take(1, seconds(10_000)), 0);
        // A limit that comes later is one from then on, and what comes of the highest of all has room.
        rate.change(Some(u64::MAX), seconds(10_000));
        assert_eq!(rate.take(1, seconds(10_000)), 0);
        assert_eq!(rate.take(u64::MAX, Nanos(u64::MAX)), u64::MAX);
    }

    #[test]
    fn a_lower_rate_leaves_what_it_has_room_for() {
        let mut rate = RecordRate::new(Some(100), seconds(0));
        rate.change(Some(5), seconds(10));
        assert_eq!((rate.per_second(), rate.take(100, seconds(10))), (Some(5), 5));
        rate.change(Some(100), seconds(10));
        assert_eq!(rate.take(100, seconds(10)), 0, "a change brings nothing by itself");
    }

    proptest! {
        /// A rate that is divided among several, each of which begins anew again and again and asks when it likes: what they take
        /// together is what the whole rate brings from the beginning on.
        #[test]
        fn however_it_is_divided_and_begun_anew_it_is_no_more(
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
                prop_assert!(u128::from(taken) * RECORD <= u128::from(whole) * u128::from(now));
            }
        }
    }
}
