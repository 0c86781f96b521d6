//! Loops with a stated bound.

/// Adds `.bounded::<MAX>()` and `.at_most::<MAX>()` to every iterator.
///
/// weir runs a module without a meter if it can bound each call in advance, and the bounds are within the limits. So
/// every loop needs a visible limit: a constant, a parameter that is read right at the loop, the length of the packet
/// or of a slice of it, or a field of 8 or 16 bits. A loop without one, such as one that follows a list or a chain of
/// headers, gets a limit by this method:
///
/// ```
/// use weir_guest::BoundedIterator;
/// # let (next, first) = ([0usize, 3, 0, 2], 1);
/// let mut at = first;
/// for _ in (0u32..).bounded::<64>() {
///     if at == 0 {
///         break;
///     }
///     at = next[at];
/// }
/// ```
pub trait BoundedIterator: Iterator + Sized {
    /// Returns an iterator over the same items. If there are more than `MAX` items, the next one ends the call, and the
    /// module loses the packet of this call; in `weir_batch` it loses the batch.
    #[inline(always)]
    fn bounded<const MAX: u32>(self) -> Bounded<Self, MAX> {
        Bounded { items: self, begun: 0 }
    }

    /// Returns an iterator over the first `MAX` items. It ignores the others, so that no sender can make the module lose a
    /// packet by one more item.
    ///
    /// `take` does the same, but the compiler can join its count with that of the items, to a form in which weir does not
    /// find the bound.
    #[inline(always)]
    fn at_most<const MAX: u32>(self) -> AtMost<Self, MAX> {
        AtMost { items: self, begun: 0 }
    }
}

impl<I: Iterator> BoundedIterator for I {}

/// The iterator of [`bounded`](BoundedIterator::bounded).
#[derive(Clone, Debug)]
pub struct Bounded<I, const MAX: u32> {
    items: I,
    begun: u32,
}

impl<I: Iterator, const MAX: u32> Iterator for Bounded<I, MAX> {
    type Item = I::Item;

    #[inline(always)]
    fn next(&mut self) -> Option<I::Item> {
        let item = self.items.next();
        let is_past = self.begun >= MAX;
        // A fence for the compiler, which is no instruction of the program. Without the fence, the compiler may move
        // the count out of the loop or change it to a form in which weir's analysis does not find the bound.
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        self.begun = self.begun.wrapping_add(1);
        if is_past && item.is_some() {
            past_the_bound();
        }
        item
    }
}

/// The iterator of [`at_most`](BoundedIterator::at_most).
#[derive(Clone, Debug)]
pub struct AtMost<I, const MAX: u32> {
    items: I,
    begun: u32,
}

impl<I: Iterator, const MAX: u32> Iterator for AtMost<I, MAX> {
    type Item = I::Item;

    #[inline(always)]
    fn next(&mut self) -> Option<I::Item> {
        if self.begun >= MAX {
            return None;
        }
        // A fence for the compiler, as in `Bounded`.
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
        self.begun = self.begun.wrapping_add(1);
        self.items.next()
    }
}

#[cfg(target_arch = "wasm32")]
#[inline(always)]
fn past_the_bound() -> ! {
    core::arch::wasm32::unreachable()
}

#[cfg(not(target_arch = "wasm32"))]
fn past_the_bound() -> ! {
    panic!("a bounded loop went past its bound")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_items_as_the_bound_are_allowed() {
        assert_eq!((0..5).bounded::<5>().sum::<u32>(), 10);
        assert_eq!((0..4).bounded::<5>().count(), 4);
        assert_eq!((0..0).bounded::<0>().next(), None::<u32>);
        assert_eq!((0u32..).bounded::<3>().find(|n| *n == 2), Some(2));
    }

    #[test]
    fn items_beyond_the_bound_are_ignored() {
        assert_eq!((0..6).at_most::<5>().sum::<u32>(), 10);
        assert_eq!((0..4).at_most::<5>().count(), 4);
        assert_eq!((0..4).at_most::<0>().next(), None::<u32>);
    }

    #[test]
    #[should_panic(expected = "past its bound")]
    fn one_more_ends_the_call() {
        _ = (0..6).bounded::<5>().count();
    }
}
