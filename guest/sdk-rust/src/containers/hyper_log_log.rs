//! HyperLogLog.

use super::Key;
use core::marker::PhantomData;

/// Number of distinct keys, in `REGISTERS` bytes, a power of two from 2^4 to 2^16 (P. Flajolet, E. Fusy, O. Gandouet, F.
/// Meunier, "HyperLogLog: the analysis of a near-optimal cardinality estimation algorithm", AofA 2007), of 64-bit hashes.
/// It can be the value of a [`Map`](super::Map).
///
/// The standard error is 104 % / sqrt(`REGISTERS`): 13 % with 2^6, 3 % with 2^10, 0.8 % with 2^14. It is less for small
/// numbers.
#[derive(Debug)]
pub struct HyperLogLog<K, const REGISTERS: usize> {
    registers: [u8; REGISTERS],
    keys: PhantomData<K>,
}

impl<K, const REGISTERS: usize> Clone for HyperLogLog<K, REGISTERS> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K, const REGISTERS: usize> Copy for HyperLogLog<K, REGISTERS> {}

impl<K: Key, const REGISTERS: usize> HyperLogLog<K, REGISTERS> {
    const BITS: u32 = {
        assert!(
            REGISTERS.is_power_of_two() && REGISTERS >= 16 && REGISTERS <= 1 << 16,
            "2^4 to 2^16 registers"
        );
        REGISTERS.trailing_zeros()
    };

    /// Returns a count of no keys.
    pub const fn new() -> Self {
        Self { registers: [0; REGISTERS], keys: PhantomData }
    }

    /// Adds a key. Returns true if that changes the registers; false for a key that was added before.
    #[inline]
    pub fn add(&mut self, key: &K) -> bool {
        self.add_hash(key.hash())
    }

    #[inline(always)]
    fn add_hash(&mut self, hash: u64) -> bool {
        // The bit that is added ends the run of zeros.
        let rest = hash << Self::BITS | 1 << (Self::BITS - 1);
        let rank = 1 + rest.leading_zeros() as u8;
        let register = &mut self.registers[(hash >> (64 - Self::BITS)) as usize % REGISTERS];
        if rank <= *register {
            return false;
        }
        *register = rank;
        true
    }

    /// Returns the estimate. It takes some ns for each register.
    pub fn count(&self) -> f64 {
        let m = REGISTERS as f64;
        let alpha = match Self::BITS {
            4 => 0.673,
            5 => 0.697,
            6 => 0.709,
            _ => 0.7213 / (1.0 + 1.079 / m),
        };
        let mut sum = 0.0;
        let mut zeros = 0u32;
        for register in &self.registers {
            // 2^-register
            sum += f64::from_bits((1023 - u64::from(*register)) << 52);
            zeros += u32::from(*register == 0);
        }
        let estimate = alpha * m * m / sum;
        if estimate <= 2.5 * m && zeros != 0 {
            m * ln(m / f64::from(zeros))
        } else {
            estimate
        }
    }

    /// Adds the keys of another count.
    pub fn merge(&mut self, other: &Self) {
        for (own, other) in self.registers.iter_mut().zip(&other.registers) {
            *own = (*own).max(*other);
        }
    }

    /// Removes all keys.
    pub fn clear(&mut self) {
        self.registers.fill(0);
    }
}

impl<K: Key, const REGISTERS: usize> Default for HyperLogLog<K, REGISTERS> {
    fn default() -> Self {
        Self::new()
    }
}

/// Natural logarithm of a positive, normal number, with the same result on every machine: ln x = k ln 2 + 2 artanh((m - 1)
/// / (m + 1)), sqrt(1/2) <= m < sqrt 2.
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i32 - 1023;
    let mut m = f64::from_bits(bits & 0x000F_FFFF_FFFF_FFFF | 0x3FF0_0000_0000_0000);
    if m > core::f64::consts::SQRT_2 {
        m *= 0.5;
        exponent += 1;
    }
    let z = (m - 1.0) / (m + 1.0);
    let z2 = z * z;
    let mut sum = 0.0;
    for i in 0..13 {
        sum = sum * z2 + 1.0 / f64::from(25 - 2 * i);
    }
    f64::from(exponent) * core::f64::consts::LN_2 + 2.0 * z * sum
}
