//! Random choices, from one seed.

/// A source of random choices (xorshift64*).
pub struct Source(u64);

impl Source {
    /// Takes a seed other than 0.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn word(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from((self.word() >> 32) % end as u64).expect("below a usize")
    }

    pub fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    pub fn choose<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// A word that is often small, negative, or near a power of two.
    pub fn value(&mut self) -> u64 {
        let shift = self.below(64);
        match self.below(5) {
            0 => self.word(),
            1 => self.word() >> shift,
            2 => (self.word() >> shift).wrapping_neg(),
            3 => (1u64 << shift).wrapping_add(self.word() % 5).wrapping_sub(2),
            _ => self.word() % 300,
        }
    }
}
