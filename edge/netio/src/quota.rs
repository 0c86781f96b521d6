//! Memory quotas that selections share.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_units::Bytes;

/// A quota of memory that several selections share. A selection takes memory from the quota when it needs more for its
/// packets. It returns all memory at its end, because a page of a memory file stays in use once it is written.
#[derive(Debug)]
pub struct MemoryQuota {
    left: AtomicU64,
    /// The quota that this quota is a part of. Memory that is taken from the part is taken from the whole, too.
    whole: Option<Arc<Self>>,
}

impl MemoryQuota {
    /// Creates a quota of `bytes`, none of it taken.
    pub fn new(bytes: Bytes) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes.0), whole: None })
    }

    /// Creates a part of this quota. At most `bytes` can be taken from the part, as far as other parts leave them.
    pub fn part(self: &Arc<Self>, bytes: Bytes) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes.0), whole: Some(Arc::clone(self)) })
    }

    /// The memory that can still be taken, limited by the whole quota if this is a part.
    pub fn left(&self) -> Bytes {
        let left = Bytes(self.left.load(Ordering::Relaxed));
        self.whole.as_ref().map_or(left, |whole| left.min(whole.left()))
    }

    /// Takes `bytes`, or nothing. Returns true if they were taken.
    fn take(&self, bytes: u64) -> bool {
        let take = |left: u64| left.checked_sub(bytes);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return false;
        }
        let is_taken = self.whole.as_ref().is_none_or(|whole| whole.take(bytes));
        if !is_taken {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    /// Returns `bytes` that were taken.
    fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.whole {
            whole.give_back(bytes);
        }
    }
}

/// The use of a quota for pieces of memory of equal size, such as the chunks of an arena. Pieces with lower numbers are
/// used first, so one number tells which pieces were ever used.
#[derive(Debug)]
pub(crate) struct QuotaUse {
    quota: Option<Arc<MemoryQuota>>,
    piece_bytes: u64,
    /// The number of pieces charged, which are the first ones.
    charged: usize,
}

impl QuotaUse {
    /// Creates a use without pieces and without a quota.
    pub(crate) fn new(piece_bytes: usize) -> Self {
        Self { quota: None, piece_bytes: piece_bytes as u64, charged: 0 }
    }

    /// Charges the pieces to `quota` from now on, including those in use.
    pub(crate) fn set_quota(&mut self, quota: &Arc<MemoryQuota>) -> io::Result<()> {
        if !quota.take(self.piece_bytes * self.charged as u64) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.quota = Some(Arc::clone(quota));
        Ok(())
    }

    /// The bytes of all pieces in use.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.piece_bytes * self.charged as u64
    }

    /// Charges the pieces up to number `piece`. Returns false if the quota does not suffice.
    pub(crate) fn charge_up_to(&mut self, piece: usize) -> bool {
        let more = (piece + 1).saturating_sub(self.charged);
        let is_charged =
            more == 0 || self.quota.as_ref().is_none_or(|quota| quota.take(self.piece_bytes * more as u64));
        if is_charged {
            self.charged += more;
        }
        is_charged
    }
}

impl Drop for QuotaUse {
    fn drop(&mut self) {
        if let Some(quota) = &self.quota {
            quota.give_back(self.piece_bytes * self.charged as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_taken_from_a_part_is_taken_from_the_whole_and_comes_back() {
        let whole = MemoryQuota::new(Bytes(100));
        let (one, other) = (whole.part(Bytes(60)), whole.part(Bytes(60)));
        let mut first = QuotaUse::new(10);
        first.set_quota(&one).unwrap();
        assert!(
            (0..6).all(|piece| first.charge_up_to(piece)) && !first.charge_up_to(6) && first.charge_up_to(5)
        );
        assert_eq!((one.left(), other.left(), whole.left()), (Bytes(0), Bytes(40), Bytes(40)));
        let mut second = QuotaUse::new(10);
        // Four pieces without a quota; they are charged if the quota suffices.
        assert!(second.charge_up_to(4));
        assert_eq!(second.set_quota(&other).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        drop(second);
        let mut second = QuotaUse::new(10);
        second.set_quota(&other).unwrap();
        assert!(second.charge_up_to(3) && !second.charge_up_to(4));
        drop(first);
        assert!(second.charge_up_to(5) && !second.charge_up_to(6));
        drop(second);
        assert_eq!((one.left(), other.left(), whole.left()), (Bytes(60), Bytes(60), Bytes(100)));
    }
}
