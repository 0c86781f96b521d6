//! Rates as exact fractions, and clocks that advance with the bytes sent.

use super::config::FRAME_MAX;
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// The time of a byte: `nanos` for every `bytes`. The fraction is exact, so a clock that runs for a year does not
/// drift by a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteTime {
    nanos: u64,
    bytes: u64,
}

impl ByteTime {
    /// The longest time of the fraction, `nanos`. With this limit and the longest frame, no product exceeds 64 bits.
    pub const PERIOD_MAX: Nanos = Nanos(10_000_000_000);

    /// The highest rate in bits per second, and the most bytes in a period. With this limit no product exceeds 64
    /// bits. It is far above the rate of any link.
    pub const AMOUNT_MAX: u64 = 1 << 60;

    /// The time of a byte at `rate`; `None` if the rate is zero or over [`ByteTime::AMOUNT_MAX`].
    pub fn of_rate(rate: BitsPerSecond) -> Option<ByteTime> {
        ByteTime::new(8 * Nanos::SECOND.0, rate.0)
    }

    /// The time of a byte at `limit` in each `period`; `None` if either is zero or over its maximum.
    pub fn of_period(limit: Bytes, period: Nanos) -> Option<ByteTime> {
        ByteTime::new(period.0, limit.0)
    }

    fn new(nanos: u64, bytes: u64) -> Option<ByteTime> {
        let is_legal =
            (1..=ByteTime::PERIOD_MAX.0).contains(&nanos) && (1..=ByteTime::AMOUNT_MAX).contains(&bytes);
        is_legal.then_some(ByteTime { nanos, bytes })
    }

    /// A number of bytes, and the time that they take.
    pub fn parts(self) -> (Bytes, Nanos) {
        (Bytes(self.bytes), Nanos(self.nanos))
    }

    /// The rate, rounded up to a whole bit per second; `None` if it exceeds 64 bits.
    pub fn rate(self) -> Option<BitsPerSecond> {
        let bits = u128::from(self.bytes) * 8 * u128::from(Nanos::SECOND.0);
        u64::try_from(bits.div_ceil(u128::from(self.nanos))).ok().map(BitsPerSecond)
    }

    /// The time that `bytes` take, rounded down and saturated to 64 bits.
    pub fn time(self, bytes: Bytes) -> Nanos {
        let time = u128::from(bytes.0) * u128::from(self.nanos) / u128::from(self.bytes);
        Nanos(u64::try_from(time).unwrap_or(u64::MAX))
    }
}

/// A point in virtual time: whole nanoseconds, and the remainder of the divisions so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VirtualTime {
    nanos: u64,
    /// The remainder in units of `1 / pace.bytes` nanoseconds, always under one nanosecond.
    rest: u64,
}

impl VirtualTime {
    /// A point at a whole nanosecond.
    pub fn at(time: Nanos) -> VirtualTime {
        VirtualTime { nanos: time.0, rest: 0 }
    }

    /// The time in whole nanoseconds, rounded down.
    pub fn time(self) -> Nanos {
        Nanos(self.nanos)
    }

    /// This point, or `time` if that is later.
    pub fn no_earlier_than(self, time: Nanos) -> VirtualTime {
        if time.0 > self.nanos { VirtualTime::at(time) } else { self }
    }

    /// This point plus the time of a frame of `length` bytes on the wire at `pace`. All steps since the clock was
    /// last set must have the same pace.
    pub fn after(self, length: u32, pace: ByteTime) -> VirtualTime {
        debug_assert!(length <= FRAME_MAX, "the product must fit into 64 bits");
        let product = u64::from(length) * pace.nanos + self.rest;
        VirtualTime { nanos: self.nanos.saturating_add(product / pace.bytes), rest: product % pace.bytes }
    }

    /// The next whole nanosecond. A clock is rounded up before its pace changes, since the remainder is in units of the
    /// old pace.
    pub fn rounded_up(self) -> VirtualTime {
        VirtualTime::at(Nanos(self.nanos.saturating_add(u64::from(self.rest > 0))))
    }

    /// Converts a clock from pace `old` to `new`. The clock stays ahead of `now` by the same number of bytes.
    pub fn rescaled(self, now: Nanos, old: ByteTime, new: ByteTime) -> VirtualTime {
        let ahead = u128::from(self.nanos.saturating_sub(now.0));
        if ahead == 0 {
            return self.rounded_up();
        }
        // Rounded up to a byte and to a nanosecond, in favour of other channels.
        let bytes = (ahead * u128::from(old.bytes)).div_ceil(u128::from(old.nanos));
        let ahead = bytes.saturating_mul(u128::from(new.nanos)).div_ceil(u128::from(new.bytes));
        VirtualTime::at(Nanos(now.0.saturating_add(u64::try_from(ahead).unwrap_or(u64::MAX))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_does_not_drift() {
        let pace = ByteTime::of_rate(BitsPerSecond(7_000_000)).expect("a rate");
        let clock = (0..7_000).fold(VirtualTime::at(Nanos(5)), |clock, _| clock.after(1_001, pace));
        assert_eq!(
            clock.time(),
            Nanos(5 + 8_008_000_000),
            "7,000 frames of 1,001 bytes at 7 Mbit/s take 8.008 s"
        );
    }

    #[test]
    fn a_byte_time_converts_to_a_rate_rounded_up() {
        let third = ByteTime::of_period(Bytes(25_000), Nanos(6_000_000)).expect("a pace");
        assert_eq!(
            third.rate(),
            Some(BitsPerSecond(33_333_334)),
            "rounded up, so that a sum of rates is never too small"
        );
        assert_eq!(third.time(Bytes(50_000)), Nanos(12_000_000));
        assert_eq!(ByteTime::of_rate(BitsPerSecond(0)), None);
        assert_eq!(ByteTime::of_period(Bytes(1), Nanos(ByteTime::PERIOD_MAX.0 + 1)), None);
    }

    #[test]
    fn a_rescaled_clock_is_as_many_bytes_ahead_as_before() {
        let [slow, fast] =
            [8_000, 80_000].map(|rate| ByteTime::of_rate(BitsPerSecond(rate)).expect("a rate"));
        let clock = VirtualTime::at(Nanos(3_000_000_000)).rescaled(Nanos(1_000_000_000), slow, fast);
        assert_eq!(clock.time(), Nanos(1_200_000_000));
        assert_eq!(
            VirtualTime::at(Nanos(7)).rescaled(Nanos(9), slow, fast).time(),
            Nanos(7),
            "what is behind stays"
        );
    }
}
