//! How much memory selections may come to have together.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_units::Bytes;

/// Memory that several selections share. Each takes of it what packets come to lie in that wait for their readers, and gives it back at its end: a page of a
/// memory file that was written once stays until then.
#[derive(Debug)]
pub struct PacketBuffers {
    left: AtomicU64,
    /// Of what this is a part: what is taken here is taken there as well.
    of: Option<Arc<Self>>,
}

impl PacketBuffers {
    /// So much, of which nothing is taken.
    pub fn new(bytes: Bytes) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes.0), of: None })
    }

    /// At most so much of this, where others have left it.
    pub fn part(self: &Arc<Self>, bytes: Bytes) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes.0), of: Some(Arc::clone(self)) })
    }

    /// What can be taken of it still, as far as it is a part as well.
    pub fn left(&self) -> Bytes {
        let left = Bytes(self.left.load(Ordering::Relaxed));
        self.of.as_ref().map_or(left, |whole| left.min(whole.left()))
    }

    /// Takes so much, or nothing.
    fn take(&self, bytes: u64) -> bool {
        let take = |left: u64| left.checked_sub(bytes);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return false;
        }
        let is_taken = self.of.as_ref().is_none_or(|whole| whole.take(bytes));
        if !is_taken {
            self.left.fetch_add(bytes, Ordering::Relaxed);
        }
        is_taken
    }

    fn give_back(&self, bytes: u64) {
        self.left.fetch_add(bytes, Ordering::Relaxed);
        if let Some(whole) = &self.of {
            whole.give_back(bytes);
        }
    }
}

/// Pieces of memory that are used from the first on, so that those that were ever used are the first so many.
#[derive(Debug)]
pub(crate) struct UsedSlots {
    room: Option<Arc<PacketBuffers>>,
    each: u64,
    pieces: usize,
}

impl UsedSlots {
    /// None is used yet; there may be as many as there are.
    pub(crate) fn of(each: usize) -> Self {
        Self { room: None, each: each as u64, pieces: 0 }
    }

    /// From now on as many as there is room for, with those that are used already.
    pub(crate) fn within(&mut self, room: &Arc<PacketBuffers>) -> io::Result<()> {
        if !room.take(self.each * self.pieces as u64) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.room = Some(Arc::clone(room));
        Ok(())
    }

    /// The bytes of all that is used.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.each * self.pieces as u64
    }

    /// Whether the piece of this number can be used.
    pub(crate) fn reaches(&mut self, piece: usize) -> bool {
        let more = (piece + 1).saturating_sub(self.pieces);
        let is_there = more == 0 || self.room.as_ref().is_none_or(|room| room.take(self.each * more as u64));
        if is_there {
            self.pieces += more;
        }
        is_there
    }
}

impl Drop for UsedSlots {
    fn drop(&mut self) {
        if let Some(room) = &self.room {
            room.give_back(self.each * self.pieces as u64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_of_a_part_is_taken_of_the_whole_and_comes_back() {
        let whole = PacketBuffers::new(Bytes(100));
        let (one, other) = (whole.part(Bytes(60)), whole.part(Bytes(60)));
        let mut first = UsedSlots::of(10);
        first.within(&one).unwrap();
        assert!((0..6).all(|piece| first.reaches(piece)) && !first.reaches(6) && first.reaches(5));
        assert_eq!((one.left(), other.left(), whole.left()), (Bytes(0), Bytes(40), Bytes(40)));
        let mut second = UsedSlots::of(10);
        // As many as were used before there was a limit, if there is room for them.
        assert!(second.reaches(4));
        assert_eq!(second.within(&other).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        drop(second);
        let mut second = UsedSlots::of(10);
        second.within(&other).unwrap();
        assert!(second.reaches(3) && !second.reaches(4));
        drop(first);
        assert!(second.reaches(5) && !second.reaches(6));
        drop(second);
        assert_eq!((one.left(), other.left(), whole.left()), (Bytes(60), Bytes(60), Bytes(100)));
    }
}
