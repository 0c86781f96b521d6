//! Which numbers came already (RFC 6479: a sliding window of words that are not shifted).

const WORDS: u8 = 16;
const BITS: u64 = u64::BITS as u64;

/// How far behind the highest number one may come and still be told from one that came before.
pub const WINDOW: u64 = (WORDS as u64 - 1) * BITS;

/// Numbers that were taken: exactly, for those that are less than [`WINDOW`] behind the highest one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayWindow {
    /// One more than the highest number that was taken.
    next: u64,
    /// A bit for each number of the last words; the word of number n is n / 64 modulo [`WORDS`].
    seen: [u64; WORDS as usize],
}

impl ReplayWindow {
    /// Whether that number has not come, and is not so far behind that it may have.
    pub fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            // The last one is never given: one more than it could not be counted.
            return number < u64::MAX;
        }
        if self.next - number > WINDOW {
            return false;
        }
        let (word, bit) = place(number);
        self.seen.get(word).is_some_and(|seen| seen & bit == 0)
    }

    /// Takes that number; false where it is not new, and then nothing changes.
    pub fn accept(&mut self, number: u64) -> bool {
        if !self.is_new(number) {
            return false;
        }
        if number >= self.next {
            // Words that begin with this step were those of numbers that are too far behind now.
            let first = self.next.div_ceil(BITS);
            let fresh = (number / BITS + 1).saturating_sub(first).min(u64::from(WORDS));
            for word in 0..fresh {
                let (word, _) = place((number / BITS - word) * BITS);
                if let Some(seen) = self.seen.get_mut(word) {
                    *seen = 0;
                }
            }
            self.next = number + 1;
        }
        let (word, bit) = place(number);
        if let Some(seen) = self.seen.get_mut(word) {
            *seen |= bit;
        }
        true
    }
}

/// Which word, and which bit in it.
fn place(number: u64) -> (usize, u64) {
    let word = usize::try_from(number / BITS % u64::from(WORDS)).unwrap_or(0);
    (word, 1 << (number % BITS))
}
