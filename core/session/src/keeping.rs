//! The limit on packets that all modules of a session together keep at once.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The count of packets that the modules of a session keep, on any number of cores. A kept packet counts until it is
/// released, even after its module is gone.
#[derive(Debug, Default)]
pub struct KeptPackets {
    state: Mutex<KeptState>,
}

/// The limit on kept packets, and its use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptState {
    /// The limit. With `None`, each module may keep as many packets as its own limit allows.
    pub most: Option<u64>,
    /// The packets that are kept now.
    pub kept: u64,
    /// The number of packets that were not kept because the limit was reached.
    pub refused: u64,
}

/// The count of one kept packet. Dropping it releases the packet.
#[derive(Debug)]
pub struct KeptPacket(Arc<KeptPackets>);

/// The error for a new limit below the number of kept packets. The modules have to release packets first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("its modules keep {kept} packets now, which is more than the new limit, {most}")]
pub struct StillKept {
    /// The packets that are kept now.
    pub kept: u64,
    /// The requested limit.
    pub most: u64,
}

impl KeptPackets {
    /// Makes the count of a session that keeps no packet, with this limit.
    pub fn new(most: Option<u64>) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(KeptState { most, ..KeptState::default() }) })
    }

    /// Keeps one more packet. Returns `None` if the limit is reached.
    pub fn keep(self: &Arc<Self>) -> Option<KeptPacket> {
        let mut state = self.lock();
        if state.most.is_some_and(|most| state.kept >= most) {
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
    /// Fails if more packets are kept now. Otherwise sessions that share a limit could keep more packets than it allows.
    pub fn change(&self, most: Option<u64>) -> Result<(), StillKept> {
        let mut state = self.lock();
        if let Some(most) = most.filter(|most| *most < state.kept) {
            return Err(StillKept { kept: state.kept, most });
        }
        state.most = most;
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
        assert_eq!(packets.state(), KeptState { most: Some(2), kept: 2, refused: 1 });
        // A limit below the number of kept packets is refused.
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
