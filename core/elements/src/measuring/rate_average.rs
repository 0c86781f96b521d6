//! The moving average of a rate.

use weir_units::Timestamp;

/// The nanoseconds of an epoch.
const EPOCH: u64 = 1_000_000;

/// Epochs of a second.
const EPOCHS_PER_SECOND: u64 = 1000;

/// The weight of a new epoch is one sixteenth.
const WEIGHT_SHIFT: u32 = 4;

/// After so many empty epochs the average is 0.
const EMPTY_MAX: u64 = 100;

/// An exponentially weighted moving average of events for each millisecond, with `SCALE` bits behind the point.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateAverage<const SCALE: u32> {
    /// The time at which the present epoch ends.
    end: u64,
    /// The events of the present epoch.
    current: u64,
    average: u64,
}

impl<const SCALE: u32> RateAverage<SCALE> {
    /// Counts events.
    #[inline]
    pub fn count(&mut self, now: Timestamp, events: u64) {
        if now.0 >= self.end {
            self.end_epoch(now);
        }
        self.current = self.current.saturating_add(events);
    }

    fn end_epoch(&mut self, now: Timestamp) {
        let epoch = now.0 / EPOCH;
        if self.end > 0 {
            self.observe(self.current);
            let empty = epoch.saturating_sub(self.end / EPOCH);
            if empty >= EMPTY_MAX {
                self.average = 0;
            } else {
                (0..empty).for_each(|_| self.observe(0));
            }
        }
        self.current = 0;
        self.end = (epoch + 1).saturating_mul(EPOCH);
    }

    fn observe(&mut self, events: u64) {
        // Half of the divisor rounds.
        let scaled = (events.min(u64::MAX >> 24) << SCALE) + (1 << (WEIGHT_SHIFT - 1));
        let change = (scaled as i64).wrapping_sub(self.average as i64) >> WEIGHT_SHIFT;
        self.average = self.average.saturating_add_signed(change);
    }

    /// Returns the events of a second, times a power of two, as a decimal number.
    pub fn text(&mut self, now: Timestamp, shift: u32) -> String {
        self.count(now, 0);
        binary_fraction(self.average.saturating_mul(EPOCHS_PER_SECOND), SCALE.saturating_sub(shift))
    }
}

/// Returns a number with this many bits behind the point as a decimal number: the shortest one that is read as the same.
fn binary_fraction(number: u64, bits: u32) -> String {
    let one = 1_u128 << bits;
    let (whole, part) = (number >> bits, u128::from(number) % one);
    if part == 0 {
        return whole.to_string();
    }
    let mut power = 1;
    for digits in 1.. {
        power *= 10;
        let decimal = (part * power + one / 2) / one;
        if (decimal * one + power / 2) / power == part && decimal < power {
            return format!("{whole}.{decimal:0digits$}");
        }
    }
    String::new()
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

    #[test]
    fn fractions_are_short() {
        assert_eq!(binary_fraction(0, 4), "0");
        assert_eq!(binary_fraction(8, 4), "0.5");
        assert_eq!(binary_fraction(1, 10), "0.001");
        assert_eq!(binary_fraction(1023, 10), "0.999");
        assert_eq!(binary_fraction((7 << 4) + 1, 4), "7.06");
    }
}
