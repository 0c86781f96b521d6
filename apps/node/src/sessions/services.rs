//! Services that the modules of a running session offer and use.

use crate::sessions::error::NodeError;
use crate::sessions::node::Node;
use weir_admission::Name;

impl Node {
    /// Applies the session's present offers and uses to its modules. Calls under way are completed.
    pub(crate) fn update_services(&self, session: &Name) -> Result<(), NodeError> {
        let state = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        for module in state.modules.values() {
            let uses = module.calls.iter().map(|name| state.spec.used(name)).collect();
            module.endpoint.change(uses, state.spec.offered(&module.services));
        }
        Ok(())
    }
}
