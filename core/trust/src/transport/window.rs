//! The window of received message numbers, against replay (RFC 6479: a sliding window of words that are not shifted).

const WORDS: u8 = 17;
const BITS: u64 = u64::BITS as u64;

/// The number of latest message numbers for which the window knows whether they were received.
pub const WINDOW: u64 = (WORDS as u64 - 1) * BITS;

/// The set of received numbers. The window knows the latest [`WINDOW`] numbers up to the highest received one; all lower
/// numbers count as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplayWindow {
    /// One more than the highest received number.
    next: u64,
    /// A bit for each number of the last words; the word of number n is n / 64 modulo [`WORDS`].
    seen: [u64; WORDS as usize],
}

impl ReplayWindow {
    /// Returns true if the number is above the window's lower end and was not received yet.
    pub fn is_new(&self, number: u64) -> bool {
        if number >= self.next {
            // The highest number is never used, because its successor could not be counted.
            return number < u64::MAX;
        }
        if self.next - number > WINDOW {
            return false;
        }
        let (word, bit) = word_and_bit(number);
        self.seen.get(word).is_some_and(|seen| seen & bit == 0)
    }

    /// Returns true if the number is higher than all received ones.
    pub(crate) fn is_newest(&self, number: u64) -> bool {
        number >= self.next
    }

    /// Returns one more than the highest received number.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Marks the number as received, and returns true. Returns false, without a change, for a number that is not new.
    pub fn accept(&mut self, number: u64) -> bool {
        if !self.is_new(number) {
            return false;
        }
        if number >= self.next {
            // The words of the newly covered numbers still have bits of numbers that are now below the window.
            let first = self.next.div_ceil(BITS);
            let fresh = (number / BITS + 1).saturating_sub(first).min(u64::from(WORDS));
            for word in 0..fresh {
                let (word, _) = word_and_bit((number / BITS - word) * BITS);
                if let Some(seen) = self.seen.get_mut(word) {
                    *seen = 0;
                }
            }
            self.next = number + 1;
        }
        let (word, bit) = word_and_bit(number);
        if let Some(seen) = self.seen.get_mut(word) {
            *seen |= bit;
        }
        true
    }
}

/// Returns the index of a number's word, and the mask of its bit in the word.
fn word_and_bit(number: u64) -> (usize, u64) {
    let word = usize::try_from(number / BITS % u64::from(WORDS)).unwrap_or(0);
    (word, 1 << (number % BITS))
}
