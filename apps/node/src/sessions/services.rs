//! The update of services after a change of a session's offers and uses.

use crate::sessions::error::NodeError;
use crate::sessions::node::Node;
use weir_admission::Name;

impl Node {
    /// Applies the session's present offers and uses to its modules. Accepted calls are completed.
    pub(crate) fn update_services(&self, session: &Name) -> Result<(), NodeError> {
        let state = self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?;
        for module in state.modules.values() {
            let uses = module.calls.iter().map(|name| state.spec.service_use(name)).collect();
            module.endpoint.change(uses, state.spec.module_offers(&module.services));
        }
        Ok(())
    }
}
