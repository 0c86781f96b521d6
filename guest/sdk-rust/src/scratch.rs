//! Memory for one call.

/// A buffer of `BYTES` bytes for data that one call needs beside its stack. The buffer is part of the module's state,
/// and each call reuses it from the beginning.
#[derive(Clone, Debug)]
pub struct Scratch<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Scratch<BYTES> {
    /// Makes the buffer, as a part of the module's first state.
    pub const fn new() -> Self {
        Self([0; BYTES])
    }

    /// Returns the whole buffer as free memory for the present call. No reference from an earlier call can still exist.
    pub fn begin(&mut self) -> Free<'_> {
        Free(&mut self.0)
    }
}

impl<const BYTES: usize> Default for Scratch<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

/// The part of a [`Scratch`] that the present call has not taken yet.
#[derive(Debug)]
pub struct Free<'a>(&'a mut [u8]);

impl<'a> Free<'a> {
    /// Takes `len` bytes, and sets them to zero; `None` if fewer bytes are left. The time for this is part of the
    /// module's bounds, so `len` should be a constant, or have a visible limit.
    pub fn take(&mut self, len: usize) -> Option<&'a mut [u8]> {
        if len > self.0.len() {
            return None;
        }
        let (taken, rest) = core::mem::take(&mut self.0).split_at_mut(len);
        self.0 = rest;
        taken.fill(0);
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taken_memory_is_zero_and_no_more_than_the_scratch_has() {
        let mut scratch = Scratch::<100>::new();
        for _ in 0..3 {
            let mut free = scratch.begin();
            let (a, b) = (free.take(60).unwrap(), free.take(40).unwrap());
            assert!(a.iter().chain(b.iter()).all(|byte| *byte == 0));
            assert!(free.take(1).is_none() && free.take(usize::MAX).is_none());
            assert_eq!(free.take(0).map(|none| none.len()), Some(0));
            a.fill(1);
            b.fill(2);
            assert!(a.iter().all(|byte| *byte == 1));
        }
    }
}
