//! The distribution of values.

/// Number of buckets.
const BUCKETS: usize = 16 * 61;

/// Distribution of 64-bit values, such as times in ns, with a relative error of at most 1/32: 16 buckets of the same width
/// between a power of two and the next (log-linear, as in G. Tene's HdrHistogram). It has 7.6 KiB.
#[derive(Clone, Copy, Debug)]
pub struct Histogram {
    count: u64,
    min: u64,
    max: u64,
    buckets: [u64; BUCKETS],
}

impl Histogram {
    /// Returns a histogram without values.
    pub const fn new() -> Self {
        Self { count: 0, min: 0, max: 0, buckets: [0; BUCKETS] }
    }

    /// Number of a value's bucket: values below 16 have one each.
    #[inline(always)]
    const fn bucket(value: u64) -> usize {
        if value < 16 {
            return value as usize;
        }
        let shift = 59 - value.leading_zeros(); // leaves five bits, of which the first is 1
        16 * shift as usize + (value >> shift) as usize
    }

    /// The middle of a bucket.
    #[inline(always)]
    const fn middle(bucket: usize) -> u64 {
        if bucket < 16 {
            return bucket as u64;
        }
        let shift = bucket / 16 - 1;
        let first = (16 + bucket as u64 % 16) << shift;
        first + ((1 << shift) >> 1)
    }

    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        if self.count == 0 || value < self.min {
            self.min = value;
        }
        if self.count == 0 || value > self.max {
            self.max = value;
        }
        self.count += 1;
        self.buckets[Self::bucket(value) % BUCKETS] += 1;
    }

    /// Returns the number of values.
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Returns the lowest value, which is exact.
    pub const fn min(&self) -> Option<u64> {
        if self.count == 0 {
            None
        } else {
            Some(self.min)
        }
    }

    /// Returns the highest value, which is exact.
    pub const fn max(&self) -> Option<u64> {
        if self.count == 0 {
            None
        } else {
            Some(self.max)
        }
    }

    /// Returns the value that a share of all values does not exceed, from 0 to 1; 0 for an empty histogram.
    pub fn quantile(&self, share: f64) -> u64 {
        if self.count == 0 {
            return 0;
        }
        if share >= 1.0 {
            return self.max;
        }
        let rank = share * self.count as f64;
        if rank.is_nan() || rank <= 0.0 {
            return self.min;
        }
        let mut seen = 0u64;
        for bucket in 0..BUCKETS {
            seen = seen.wrapping_add(self.buckets[bucket]);
            if seen as f64 >= rank && seen != 0 {
                return Self::middle(bucket).max(self.min).min(self.max);
            }
        }
        self.max
    }

    /// Adds the values of another histogram.
    pub fn merge(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count = self.count.wrapping_add(other.count);
        for (own, other) in self.buckets.iter_mut().zip(&other.buckets) {
            *own = own.wrapping_add(*other);
        }
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        *self = Self::new();
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}
