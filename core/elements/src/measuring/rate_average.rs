//! The moving average of a rate.

use crate::values::binary_fraction;
use weir_units::{Nanos, Timestamp};

/// The nanoseconds of an epoch: one millisecond.
const EPOCH: u64 = 1_000_000;

/// The weight of a new epoch is one sixteenth.
const WEIGHT_SHIFT: u32 = 4;

/// After so many empty epochs the average is 0.
const EMPTY_MAX: u64 = 100;

/// An exponentially weighted moving average of events for each epoch of `LENGTH` nanoseconds, with `SCALE` bits behind the
/// point. A new epoch has the weight 1/2^`SHIFT`.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateAverage<const SCALE: u32, const SHIFT: u32 = WEIGHT_SHIFT, const LENGTH: u64 = EPOCH> {
    /// The time at which the present epoch ends.
    end: u64,
    /// The events of the present epoch.
    current: u64,
    average: u64,
}

impl<const SCALE: u32, const SHIFT: u32, const LENGTH: u64> RateAverage<SCALE, SHIFT, LENGTH> {
    /// Epochs of a second.
    const EPOCHS_PER_SECOND: u64 = Nanos::SECOND.0 / LENGTH;

    /// Counts events.
    #[inline]
    pub fn count(&mut self, now: Timestamp, events: u64) {
        if now.0 >= self.end {
            self.end_epoch(now);
        }
        self.current = self.current.saturating_add(events);
    }

    fn end_epoch(&mut self, now: Timestamp) {
        let epoch = now.0 / LENGTH;
        if self.end > 0 {
            self.observe(self.current);
            let empty = epoch.saturating_sub(self.end / LENGTH);
            if empty >= EMPTY_MAX {
                self.average = 0;
            } else {
                (0..empty).for_each(|_| self.observe(0));
            }
        }
        self.current = 0;
        self.end = (epoch + 1).saturating_mul(LENGTH);
    }

    fn observe(&mut self, events: u64) {
        // Half of the divisor rounds.
        let scaled = (events.min(u64::MAX >> 24) << SCALE) + (1 << (SHIFT - 1));
        let change = (scaled as i64).wrapping_sub(self.average as i64) >> SHIFT;
        self.average = self.average.saturating_add_signed(change);
    }

    /// Returns the average of the epochs that have ended, with `SCALE` bits behind the point.
    pub fn scaled(&self) -> u64 {
        self.average
    }

    /// Returns the whole events of a second, by the epochs that have ended.
    pub fn per_second(&self) -> u64 {
        self.average.saturating_mul(Self::EPOCHS_PER_SECOND) >> SCALE
    }

    /// Returns the scaled average of this number of events each second.
    pub fn scaled_rate(events: u64) -> u64 {
        let scaled = (u128::from(events) << SCALE) / u128::from(Self::EPOCHS_PER_SECOND);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// Returns a scaled average as the events of a second, in a decimal number.
    pub fn scaled_text(average: u64) -> String {
        binary_fraction(average.saturating_mul(Self::EPOCHS_PER_SECOND), SCALE)
    }

    /// Returns the events of a second, times a power of two, as a decimal number.
    pub fn text(&mut self, now: Timestamp, shift: u32) -> String {
        self.count(now, 0);
        binary_fraction(self.average.saturating_mul(Self::EPOCHS_PER_SECOND), SCALE.saturating_sub(shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_even_rate_is_its_average_and_fades_in_a_pause() {
        let mut rate = RateAverage::<10>::default();
        // Four events a millisecond.
        for index in 1..4000_u64 {
            rate.count(Timestamp(index * EPOCH / 4), 1);
        }
        // The fixed point stays a little below the rate, as in Click.
        assert_eq!(rate.text(Timestamp(1000 * EPOCH), 0), "3993.164");
        let faded: f64 = rate.text(Timestamp(1010 * EPOCH), 0).parse().unwrap();
        assert!((1900.0..2400.0).contains(&faded), "{faded}");
        assert_eq!(rate.text(Timestamp(2000 * EPOCH), 0), "0");
    }
}
