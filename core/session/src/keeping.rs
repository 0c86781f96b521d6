//! How many packets all modules of a session together may keep at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The packets that the modules of a session keep, on however many cores. What is kept is counted until it is let go of, whatever becomes of its module.
#[derive(Debug, Default)]
pub struct KeptPackets {
    state: Mutex<KeptState>,
}

/// How things are with them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptState {
    /// So many may be kept; as many as each module may for itself where there is no number.
    pub most: Option<u64>,
    /// So many are.
    pub kept: u64,
    /// So often one more was wanted, and not kept.
    pub refused: u64,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct KeptPacket(Arc<KeptPackets>);

/// More are kept than there are to be: let go of some first. To blame is whoever asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its modules keep {kept} packets now, and {most} is less")]
pub struct StillKept {
    /// So many are kept.
    pub kept: u64,
    /// So many were to be allowed.
    pub most: u64,
}

impl KeptPackets {
    /// This many at most.
    pub fn new(most: Option<u64>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(KeptState { most, ..KeptState::default() }) })
    }

    /// One more; nothing where that is one too many.
    pub fn keep(self: &Arc<Self>) -> Option<KeptPacket> {
        let mut state = self.lock();
        if state.most.is_some_and(|most| state.kept >= most) {
            state.refused = state.refused.saturating_add(1);
            return None;
        }
        state.kept = state.kept.saturating_add(1);
        Some(KeptPacket(Arc::clone(self)))
    }

    /// From now on it is this many.
    ///
    /// # Errors
    ///
    /// More are kept: those who share what there is would have more together than that.
    pub fn change(&self, most: Option<u64>) -> Result<(), StillKept> {
        let mut state = self.lock();
        if let Some(most) = most.filter(|most| *most < state.kept) {
            return Err(StillKept { kept: state.kept, most });
        }
        state.most = most;
        Ok(())
    }

    /// How things are now.
    pub fn state(&self) -> KeptState {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, KeptState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for KeptPacket {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.kept = state.kept.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_are_kept_at_once_and_each_counts_until_it_is_let_go_of() {
        let packets = KeptPackets::new(Some(2));
        let (one, two) = (packets.keep().unwrap(), packets.keep().unwrap());
        assert!(packets.keep().is_none());
        drop(one);
        let three = packets.keep().unwrap();
        assert_eq!(packets.state(), KeptState { most: Some(2), kept: 2, refused: 1 });
        // Fewer only when there are no more.
        assert_eq!(packets.change(Some(1)), Err(StillKept { kept: 2, most: 1 }));
        assert_eq!(packets.state().most, Some(2));
        drop(two);
        assert_eq!(packets.change(Some(1)), Ok(()));
        assert!(packets.keep().is_none());
        drop(three);
        assert_eq!(packets.state(), KeptState { most: Some(1), kept: 0, refused: 2 });
        assert!(KeptPackets::new(Some(0)).keep().is_none());
        let any = KeptPackets::new(None);
        let many: Vec<_> = (0..5000).filter_map(|_| any.keep()).collect();
        assert_eq!((many.len(), any.state().kept), (5000, 5000));
    }
}
