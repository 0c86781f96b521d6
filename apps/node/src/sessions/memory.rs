//! The memory of a node's sessions: lookups for requests, and reservations that modules have changed.

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

    /// Returns a session's limits on resources other than memory.
    pub(crate) fn limits_of(&self, session: &Name) -> Result<Arc<SessionLimits>, NodeError> {
        let state = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        Ok(Arc::clone(&state.limits))
    }

    /// Drops forwarding plans that are no longer in use, with the memory and devices of closed sessions. Returns false
    /// if a receive thread still uses an earlier plan, so that another call is necessary.
    pub(crate) fn release_unused(&self) -> bool {
        // Every receiver must be called, so `all`, which stops at the first false, does not fit here.
        self.sources.values().filter(|source| !source.release_unused()).count() == 0
    }

    /// Returns the sessions whose modules have changed the session's memory reservation since the last call, and
    /// writes the new reservations into the sessions' descriptions.
    pub(crate) fn reservations_changed_by_modules(&mut self) -> Vec<Name> {
        let mut changed = Vec::new();
        for (name, session) in &mut self.sessions {
            let memory = session.memory.state();
            if std::mem::replace(&mut session.spec.memory, memory.reserved) != memory.reserved {
                // Without `memory_max`, the ceiling would follow the reservation, so the present ceiling is retained.
                session.spec.retained_memory_max = Some(memory.ceiling);
                changed.push(name.clone());
            }
        }
        changed
    }
}
