//! The ring buffer.

/// The last `CAPACITY` values.
pub struct Ring<T, const CAPACITY: usize> {
    values: [T; CAPACITY],
    first: u32,
    len: u32,
    overwritten: u64,
}

impl<T: Copy, const CAPACITY: usize> Ring<T, CAPACITY> {
    /// Returns an empty ring. `unused` fills it, and should be made of zeros.
    pub const fn new(unused: T) -> Self {
        const { assert!(CAPACITY > 0 && CAPACITY < 1 << 31, "a ring has at least one slot") };
        Self { values: [unused; CAPACITY], first: 0, len: 0, overwritten: 0 }
    }

    #[inline(always)]
    const fn slot(&self, i: usize) -> usize {
        (self.first as usize + i) % CAPACITY
    }

    /// Adds a value. Returns false if the oldest one was overwritten.
    #[inline]
    pub fn push(&mut self, value: T) -> bool {
        let slot = self.slot(self.len as usize);
        self.values[slot] = value;
        if (self.len as usize) < CAPACITY {
            self.len += 1;
            return true;
        }
        self.first = self.slot(1) as u32;
        self.overwritten += 1;
        false
    }

    /// Takes the oldest value out.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let value = self.values[self.slot(0)];
        self.first = self.slot(1) as u32;
        self.len -= 1;
        Some(value)
    }

    /// Returns the value number `i`; the oldest is 0.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&T> {
        if i < self.len as usize {
            Some(&self.values[self.slot(i)])
        } else {
            None
        }
    }

    /// Calls a function for each value, from the oldest to the newest.
    #[inline(always)]
    pub fn each(&mut self, mut function: impl FnMut(&mut T)) {
        for i in 0..CAPACITY {
            if i >= self.len as usize {
                break;
            }
            let slot = self.slot(i);
            function(&mut self.values[slot]);
        }
    }

    /// Returns the number of values.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there is no value.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of values that were overwritten since the start.
    pub const fn overwritten(&self) -> u64 {
        self.overwritten
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        (self.first, self.len) = (0, 0);
    }
}
