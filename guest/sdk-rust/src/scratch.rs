//! Memory for one call.

/// Memory for a call beside its stack. It is part of the module's state, and costs no time until some of it is taken.
#[derive(Clone, Debug)]
pub struct Scratch<const BYTES: usize>([u8; BYTES]);

impl<const BYTES: usize> Scratch<BYTES> {
    /// Memory of so many bytes.
    pub const fn new() -> Self {
        Self([0; BYTES])
    }

    /// Returns all of it, for this call: no reference from an earlier call can still exist.
    pub fn begin(&mut self) -> Free<'_> {
        Free(&mut self.0)
    }
}

impl<const BYTES: usize> Default for Scratch<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

/// The rest of a [`Scratch`].
#[derive(Debug)]
pub struct Free<'a>(&'a mut [u8]);

impl<'a> Free<'a> {
    /// Takes `len` bytes, which are zeroed; `None` if fewer are left. Zeroing takes time,
    /// which is part of the module's bounds: so `len` should be a constant, or have a visible limit.
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
