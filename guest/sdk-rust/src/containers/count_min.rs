//! The count-min sketch.

use super::{nth, Key};
use core::marker::PhantomData;

/// Number of rows.
const ROWS: usize = 4;

/// Estimated counts of any number of keys, in 32 * `WIDTH` bytes (G. Cormode, S. Muthukrishnan, "An improved data stream
/// summary: the count-min sketch and its applications", J. Algorithms 55, 2005), with conservative update (C. Estan, G.
/// Varghese, "New directions in traffic measurement and accounting", SIGCOMM 2002).
///
/// An estimate is never too low. With a probability of 98 % it is too high by at most 2.72 * [`total`](Self::total) /
/// `WIDTH`.
pub struct CountMin<K, const WIDTH: usize> {
    rows: [[u64; WIDTH]; ROWS],
    total: u64,
    keys: PhantomData<K>,
}

impl<K: Key, const WIDTH: usize> CountMin<K, WIDTH> {
    /// Returns a sketch without amounts.
    pub const fn new() -> Self {
        const { assert!(WIDTH > 0, "a sketch has at least one column") };
        Self { rows: [[0; WIDTH]; ROWS], total: 0, keys: PhantomData }
    }

    #[inline(always)]
    fn estimate_of(&self, hash: u64) -> u64 {
        let mut lowest = u64::MAX;
        for i in 0..ROWS {
            lowest = lowest.min(self.rows[i][nth(hash, i as u32, WIDTH)]);
        }
        lowest
    }

    /// Returns the estimate of a key.
    #[inline]
    pub fn estimate(&self, key: &K) -> u64 {
        self.estimate_of(key.hash())
    }

    /// Adds an amount to a key's count. Returns the estimate with this amount.
    #[inline]
    pub fn add(&mut self, key: &K, amount: u64) -> u64 {
        let hash = key.hash();
        let count = self.estimate_of(hash).wrapping_add(amount);
        for i in 0..ROWS {
            let cell = &mut self.rows[i][nth(hash, i as u32, WIDTH)];
            *cell = count.max(*cell);
        }
        self.total = self.total.wrapping_add(amount);
        count
    }

    /// Returns the sum of all amounts since [`clear`](Self::clear).
    pub const fn total(&self) -> u64 {
        self.total
    }

    /// Removes all amounts.
    pub fn clear(&mut self) {
        for row in &mut self.rows {
            row.fill(0);
        }
        self.total = 0;
    }
}

impl<K: Key, const WIDTH: usize> Default for CountMin<K, WIDTH> {
    fn default() -> Self {
        Self::new()
    }
}
