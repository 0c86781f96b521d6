//! The token bucket.

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;

/// Limits a rate: tokens are added at a rate, up to a burst. A bucket of zeros is a full one. Time is packet time; where it
/// goes back, no tokens are added.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokenBucket {
    /// Tokens that lack to the full bucket, in tokens / 10^9.
    missing: u64,
    last_ns: u64,
}

impl TokenBucket {
    /// The highest rate and burst, 17 GB a second in bytes. Higher ones count as this.
    pub const MAX: u64 = 1 << 34;

    /// Returns a full bucket.
    pub const fn new() -> Self {
        Self { missing: 0, last_ns: 0 }
    }

    /// Takes `amount` tokens at the time `now`, in ns. `rate` tokens a second are added, up to `burst`. Returns false, and
    /// takes none, if there are fewer.
    pub fn take(&mut self, now: u64, rate: u64, burst: u64, amount: u64) -> bool {
        let (rate, burst) = (rate.min(Self::MAX), burst.min(Self::MAX));
        if now > self.last_ns {
            // No product is above 2^34 * 10^9, which is below 2^64. After 2^34 seconds, 544 years, any bucket is full.
            let elapsed = now - self.last_ns;
            let (seconds, part) = (elapsed / SECOND, elapsed % SECOND * rate);
            let full = self.missing / SECOND; // whole tokens
            self.last_ns = now;
            self.missing = self.missing.saturating_sub(part);
            self.missing = if rate != 0 && seconds > full / rate {
                0
            } else {
                self.missing.saturating_sub(seconds.wrapping_mul(rate).wrapping_mul(SECOND))
            };
        }
        self.missing = self.missing.min(burst * SECOND); // the burst may have been lowered
        if amount > burst || amount * SECOND > burst * SECOND - self.missing {
            return false;
        }
        self.missing += amount * SECOND;
        true
    }
}
