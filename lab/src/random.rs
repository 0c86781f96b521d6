//! Pseudorandom numbers that are the same in every run, for generated packets, addresses and filters.

/// The generator splitmix64 (S. Vigna).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number of 64 bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `end`, or 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.word() % end.max(1)).unwrap_or(0)
    }

    /// Returns true with a probability of one in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// An element of `choices`, which must not be empty.
    pub fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }

    pub fn byte(&mut self) -> u8 {
        self.word().to_le_bytes()[0]
    }

    /// A number of 16 bits.
    pub fn half_word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}
