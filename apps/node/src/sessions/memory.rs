//! Memory of a node's sessions.

use crate::sessions::error::NodeError;
use crate::sessions::limits::SessionLimits;
use crate::sessions::node::Node;
use std::sync::Arc;
use weir_units::Bytes;
use {weir_admission::Name, weir_session::MemoryReservation};

impl Node {
    /// Returns the memory that sessions have reserved, and the memory that they can reserve.
    pub(crate) fn memory(&self) -> (Bytes, Bytes) {
        (self.memory.reserved(), self.memory.total())
    }

    /// Returns a session's memory.
    pub(crate) fn memory_of(&self, session: &Name) -> Result<Arc<MemoryReservation>, NodeError> {
        let state = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        Ok(Arc::clone(&state.memory))
    }

    /// Returns a session's limits beside memory.
    pub(crate) fn limits_of(&self, session: &Name) -> Result<Arc<SessionLimits>, NodeError> {
        let state = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        Ok(Arc::clone(&state.limits))
    }

    /// Releases memory that the receivers no longer need. Returns false if a receiver will need another call.
    pub(crate) fn release_unused(&self) -> bool {
        // Every receiver is called, even after one has returned false.
        self.sources.values().filter(|source| !source.release_unused()).count() == 0
    }

    /// Returns the sessions whose modules have changed their reservation since the last call.
    pub(crate) fn self_changed_reservations(&mut self) -> Vec<Name> {
        let mut changed = Vec::new();
        for (name, session) in &mut self.sessions {
            let memory = session.memory.state();
            if std::mem::replace(&mut session.spec.memory, memory.reserved) != memory.reserved {
                session.spec.memory_max_before = Some(memory.ceiling);
                changed.push(name.clone());
            }
        }
        changed
    }
}
