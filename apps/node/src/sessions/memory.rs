//! The memory of a node's sessions.

use crate::error::NodeError;
use crate::sessions::limits::SessionLimits;
use crate::sessions::node::Node;
use std::sync::Arc;
use weir_units::Bytes;
use {weir_admission::Name, weir_session::MemoryReservation};

impl Node {
    /// Memory that sessions have reserved, of what they can reserve.
    pub(crate) fn memory(&self) -> (Bytes, Bytes) {
        (self.memory.reserved(), self.memory.of())
    }

    /// A session's memory.
    pub(crate) fn memory_of(&self, session: &Name) -> Result<Arc<MemoryReservation>, NodeError> {
        let there = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        Ok(Arc::clone(&there.memory))
    }

    /// What a session is held to beside that.
    pub(crate) fn limits_of(&self, session: &Name) -> Result<Arc<SessionLimits>, NodeError> {
        let there = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        Ok(Arc::clone(&there.limits))
    }

    /// Lets go of what receivers have no use for any more. False while there is something that one of them is about to leave behind.
    pub(crate) fn tidy(&self) -> bool {
        // All of them do, whatever one says.
        self.sources.values().filter(|source| !source.tidy()).count() == 0
    }

    /// The sessions whose modules have changed what they reserve since this was asked last.
    pub(crate) fn changed_by_themselves(&mut self) -> Vec<Name> {
        let mut changed = Vec::new();
        for (name, session) in &mut self.sessions {
            let state = session.memory.state();
            if std::mem::replace(&mut session.spec.memory, state.reserved) != state.reserved {
                session.spec.memory_max_before = Some(state.ceiling);
                changed.push(name.clone());
            }
        }
        changed
    }
}
