//! A queue that shares time by weight: the unreserved time of a core among virtual CPUs, and the time of a virtual CPU
//! among its pools.
//!
//! Start-time fair queueing: Goyal, Guo and Vin, "A Hierarchical CPU Scheduler for Multimedia Operating Systems"
//! (OSDI 1996). The algorithm works for runs of unknown length and for an unknown amount of time to share, which varies
//! with the use of reservations. For any two members with work throughout an interval, `|used_a / weight_a - used_b /
//! weight_b| <= longest_run_a / weight_a + longest_run_b / weight_b`.

use crate::heap::Heap;

/// The binary digits after the point in virtual time, so that rounding is negligible even for a nanosecond at the
/// largest weight.
const SCALE: u32 = 20;

/// A member's position in virtual time: time divided by weight.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tag {
    start: u128,
}

/// A fair queue of members with work, least served first.
#[derive(Clone, Debug, Default)]
pub(super) struct FairQueue {
    queue: Heap<u128>,
    /// The virtual time of the queue: the start tag of the last run. A new member starts at this time,
    /// without credit or debt.
    now: u128,
}

impl FairQueue {
    pub(super) fn grow(&mut self, members: usize) {
        self.queue.grow(members);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.peek().is_none()
    }

    /// Adds `member`, which has work. Its earlier use stays in its tag, and counts until the virtual time
    /// of the queue has reached the tag.
    pub(super) fn enter(&mut self, member: usize, tag: &mut Tag) {
        if !self.queue.contains(member) {
            tag.start = tag.start.max(self.now);
            self.queue.set(member, tag.start);
        }
    }

    pub(super) fn leave(&mut self, member: usize) {
        self.queue.remove(member);
    }

    /// The member with the least use by its weight.
    pub(super) fn pick(&mut self) -> Option<usize> {
        let (start, member) = self.queue.peek()?;
        self.now = self.now.max(start);
        Some(member)
    }

    /// The time in nanoseconds that a member of this weight has used in advance: it has to wait until the others have
    /// used theirs.
    pub(super) fn ahead(&self, tag: &Tag, weight: u32) -> u64 {
        let ahead = tag.start.saturating_sub(self.now).saturating_mul(u128::from(weight.max(1))) >> SCALE;
        u64::try_from(ahead).unwrap_or(u64::MAX)
    }

    /// Charges `member` with a run of `used` nanoseconds. The member need not be in the queue any more.
    pub(super) fn charge(&mut self, member: usize, tag: &mut Tag, used: u64, weight: u32) {
        tag.start += (u128::from(used) << SCALE) / u128::from(weight.max(1));
        if self.queue.contains(member) {
            self.queue.set(member, tag.start);
        }
    }
}
