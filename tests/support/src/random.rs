//! A random source whose sequence depends on its seed alone.

/// `SplitMix64`, by Steele, Lea and Flood. Any seed will do.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn from(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number of 0 … `end` − 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next_u64() % end
    }

    /// One of the choices.
    pub fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        let index = self.below(choices.len().try_into().expect("a length"));
        choices[usize::try_from(index).expect("an index")]
    }

    /// Whether something of this chance happens.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }
}
