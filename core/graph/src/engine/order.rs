//! The order in which packets of a batch would go through a graph one by one.
//!
//! Click takes a packet through the whole graph before the next one, and a packet that an element emits before a later
//! one of the same element. A batch goes through one element after the other. Each packet carries its [`Order`], so
//! that an element at which several ways join gets its packets in Click's order.

/// The place of a packet among all that come from one batch. Orders compare as the packets would come.
///
/// The number begins with the packet's index in the batch. If an element emits several packets for one, each of them
/// gets a part of the place of the one: a path in a tree, as in an order-maintenance list. The last bits have the depth
/// that is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order(u64);

/// The bits of the number that state how many bits of the path are left.
const LEFT_BITS: u32 = 6;

/// The bits of a packet's index in its batch.
const INDEX_BITS: u32 = 16;

/// The bits of the path below the index.
pub(super) const PATH_BITS: u32 = u64::BITS - LEFT_BITS - INDEX_BITS;

/// Returns the bits of the path that the order of one of so many packets takes.
pub(super) fn bits_of_parts(count: usize) -> u32 {
    usize::BITS - count.saturating_sub(1).leading_zeros()
}

/// The most packets of a batch at its start.
pub const FIRST_MAX: usize = 1 << INDEX_BITS;

impl Order {
    /// Returns the order of a packet that is first in its batch's graph, by its index: below [`FIRST_MAX`].
    #[inline]
    pub fn first(index: usize) -> Self {
        debug_assert!(index < FIRST_MAX);
        Self((index as u64) << (u64::BITS - INDEX_BITS) | u64::from(PATH_BITS))
    }

    /// Returns the order of one of several packets that come from this one.
    ///
    /// If packets were multiplied so often that no bits are left, all get the same order. A stable sort then keeps the
    /// order in which they came.
    pub fn part(self, index: usize, count: usize) -> Self {
        let left = self.0 & ((1 << LEFT_BITS) - 1);
        let bits = u64::from(bits_of_parts(count));
        if bits > left {
            return self;
        }
        let path = self.0 & !((1 << LEFT_BITS) - 1);
        let left = left - bits;
        Self(path | (index as u64) << (left + u64::from(LEFT_BITS)) | left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_between_their_packet_and_the_next() {
        let (this, next) = (Order::first(3), Order::first(4));
        let parts: Vec<Order> = (0..5).map(|index| this.part(index, 5)).collect();
        let below: Vec<Order> = (0..2).map(|index| parts[1].part(index, 2)).collect();
        let all = [Order::first(2), parts[0], below[0], below[1], parts[2], parts[3], parts[4], next];
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        assert_eq!(this.part(0, 1), this);
    }

    #[test]
    fn an_order_that_is_exhausted_stays_between_its_neighbours() {
        let mut order = Order::first(7);
        for _ in 0..100 {
            order = order.part(1, 2);
        }
        assert!(Order::first(7) < order && order < Order::first(8));
        assert_eq!(order.part(1, 2), order);
    }
}
