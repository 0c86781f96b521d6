//! Pseudorandom numbers from a seed (SplitMix64).

pub struct Random(pub u64);

impl Random {
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from `least` to `most`.
    pub fn within(&mut self, least: u64, most: u64) -> u64 {
        least + self.any() % (most.max(least) - least + 1)
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.any().is_multiple_of(n)
    }
}
