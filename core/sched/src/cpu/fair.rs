//! Time that nobody has reserved, shared by weight.
//!
//! Start-time fair queueing: Goyal, Guo and Vin, "A Hierarchical CPU Scheduler for Multimedia Operating Systems" (OSDI 1996). It needs no
//! knowledge of how long a run will be, nor of how much time there is to share, which changes as the reserved come and go. For any two that
//! have work throughout an interval, `|used_a / weight_a - used_b / weight_b| <= longest_run_a / weight_a + longest_run_b / weight_b`.

use crate::heap::Heap;

/// Makes what a run of a nanosecond costs at the largest weight a large whole number, so that rounding does not count.
const SCALE: u32 = 20;

/// Where somebody stands in virtual time: time divided by weight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tag {
    start: u128,
}

/// Those who share, least served first.
#[derive(Clone, Debug, Default)]
pub(super) struct Fair {
    queue: Heap<u128>,
    /// Virtual time of the core: where whoever ran last began. Who comes new begins there, and so has neither credit nor debt.
    now: u128,
}

impl Fair {
    pub(super) fn grow(&mut self, members: usize) {
        self.queue.grow(members);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.peek().is_none()
    }

    /// `member` has work. One that rests only briefly still has behind it what it used before.
    pub(super) fn enter(&mut self, member: usize, tag: &mut Tag) {
        if !self.queue.contains(member) {
            tag.start = tag.start.max(self.now);
            self.queue.set(member, tag.start);
        }
    }

    pub(super) fn leave(&mut self, member: usize) {
        self.queue.remove(member);
    }

    /// Whoever has been served least.
    pub(super) fn pick(&mut self) -> Option<usize> {
        let (start, member) = self.queue.peek()?;
        self.now = self.now.max(start);
        Some(member)
    }

    /// By how much of its time somebody with this weight is ahead of the core.
    pub(super) fn ahead(&self, tag: &Tag, weight: u32) -> u64 {
        let ahead = tag.start.saturating_sub(self.now).saturating_mul(u128::from(weight.max(1))) >> SCALE;
        u64::try_from(ahead).unwrap_or(u64::MAX)
    }

    /// `member` ran for `used` nanoseconds, whether or not it is still in the queue.
    pub(super) fn charge(&mut self, member: usize, tag: &mut Tag, used: u64, weight: u32) {
        tag.start += (u128::from(used) << SCALE) / u128::from(weight.max(1));
        if self.queue.contains(member) {
            self.queue.set(member, tag.start);
        }
    }
}
