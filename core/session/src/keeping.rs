//! The limit on packets that all modules of a session together keep at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The counter of packets that the modules of a session keep, on all cores together. A kept packet counts until it is
/// released, even after its module was unloaded.
#[derive(Debug, Default)]
pub struct KeptPackets {
    state: Mutex<KeptState>,
}

/// The limit on kept packets, and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptState {
    /// The limit. With `None`, each module may keep as many packets as its own limit allows.
    pub limit: Option<u64>,
    /// The packets that are kept now.
    pub kept: u64,
    /// The number of packets that were not kept because the limit was reached.
    pub refused: u64,
}

/// A kept packet, which counts until this value is dropped.
#[derive(Debug)]
pub struct KeptPacket(Arc<KeptPackets>);

/// The error for a new limit below the number of kept packets. The modules have to release packets first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its modules keep {kept} packets now, which is more than the new limit, {limit}")]
pub struct StillKept {
    /// The packets that are kept now.
    pub kept: u64,
    /// The requested limit.
    pub limit: u64,
}

impl KeptPackets {
    /// Makes a counter at zero with this limit; `None` for no limit.
    pub fn new(limit: Option<u64>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(KeptState { limit, ..KeptState::default() }) })
    }

    /// Keeps one more packet. Returns `None` if the limit is reached.
    pub fn keep(self: &Arc<Self>) -> Option<KeptPacket> {
        let mut state = self.lock();
        if state.limit.is_some_and(|limit| state.kept >= limit) {
            state.refused = state.refused.saturating_add(1);
            return None;
        }
        state.kept = state.kept.saturating_add(1);
        Some(KeptPacket(Arc::clone(self)))
    }

    /// Changes the limit.
    ///
    /// # Errors
    ///
    /// Fails if more packets are kept now than the new limit allows.
    pub fn change(&self, limit: Option<u64>) -> Result<(), StillKept> {
        let mut state = self.lock();
        if let Some(limit) = limit.filter(|limit| *limit < state.kept) {
            return Err(StillKept { kept: state.kept, limit });
        }
        state.limit = limit;
        Ok(())
    }

    /// Returns the present limit and use.
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
    fn kept_packets_are_limited_and_each_counts_until_it_is_released() {
        let packets = KeptPackets::new(Some(2));
        let (one, two) = (packets.keep().unwrap(), packets.keep().unwrap());
        assert!(packets.keep().is_none());
        drop(one);
        let three = packets.keep().unwrap();
        assert_eq!(packets.state(), KeptState { limit: Some(2), kept: 2, refused: 1 });
        // A limit below the number of kept packets is refused.
        assert_eq!(packets.change(Some(1)), Err(StillKept { kept: 2, limit: 1 }));
        assert_eq!(packets.state().limit, Some(2));
        drop(two);
        assert_eq!(packets.change(Some(1)), Ok(()));
        assert!(packets.keep().is_none());
        drop(three);
        assert_eq!(packets.state(), KeptState { limit: Some(1), kept: 0, refused: 2 });
        assert!(KeptPackets::new(Some(0)).keep().is_none());
        let any = KeptPackets::new(None);
        let many: Vec<_> = (0..5000).filter_map(|_| any.keep()).collect();
        assert_eq!((many.len(), any.state().kept), (5000, 5000));
    }
}
