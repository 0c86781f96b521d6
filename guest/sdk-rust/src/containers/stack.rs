//! The stack.

/// Up to `CAPACITY` values, of which the last one comes out first.
///
/// A loop over a stack does the work of a function that calls itself, which has no bound. Each call becomes a push of its
/// arguments:
///
/// ```
/// use weir_guest::{BoundedIterator, containers::Stack};
/// # let (root, left, right) = (1usize, [0usize, 2, 0, 0], [0usize, 3, 0, 0]);
/// let mut calls = Stack::<usize, 64>::new(0);
/// let mut nodes = 0;
/// calls.push(root);
/// for _ in (0u32..).bounded::<1024>() {
///     let Some(node) = calls.pop() else { break };
///     if node != 0 {
///         nodes += 1;
///         // The call that is to be made last goes first.
///         calls.push(right[node]);
///         calls.push(left[node]);
///     }
/// }
/// # assert_eq!(nodes, 3);
/// ```
pub struct Stack<T, const CAPACITY: usize> {
    values: [T; CAPACITY],
    len: u32,
}

impl<T: Copy, const CAPACITY: usize> Stack<T, CAPACITY> {
    /// Returns an empty stack. `unused` fills it, and should be made of zeros.
    pub const fn new(unused: T) -> Self {
        const { assert!(CAPACITY > 0 && CAPACITY < 1 << 31, "a stack has at least one slot") };
        Self { values: [unused; CAPACITY], len: 0 }
    }

    /// Adds a value. Returns false if there is no room.
    #[inline]
    pub fn push(&mut self, value: T) -> bool {
        let Some(slot) = self.values.get_mut(self.len as usize) else { return false };
        *slot = value;
        self.len += 1;
        true
    }

    /// Takes the last value out.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        let last = self.len.checked_sub(1)?;
        let value = *self.values.get(last as usize)?;
        self.len = last;
        Some(value)
    }

    /// Returns the number of values.
    pub const fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if there is no value.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.len = 0;
    }
}
