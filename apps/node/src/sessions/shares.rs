//! Checks, when the node is locked, that a request on a session is still permitted.

use crate::control::authority::{RequestRefusal, SessionOwner};
use crate::control::share::ShareGrant;
use crate::sessions::error::NodeError;
use crate::sessions::node::{Node, SessionState};
use weir_admission::Name;

impl SessionState {
    /// Checks that the owner still shares the right by which a request was permitted.
    ///
    /// # Errors
    ///
    /// The owner has withdrawn the share.
    pub(crate) fn check_shared(&self, by: Option<&ShareGrant>) -> Result<(), NodeError> {
        match by.filter(|by| !self.spec.share.contains(by)) {
            Some(by) => Err(Box::new(RequestRefusal::not_shared(&self.spec.name, *by)).into()),
            None => Ok(()),
        }
    }
}

/// The right by which a request was permitted: the owner of the session, and the share by which another holder than
/// the owner makes the request. Both are `None` for an operator.
pub(crate) type PermittedBy = (Option<SessionOwner>, Option<ShareGrant>);

impl Node {
    /// Returns the session of a request, if the request is still permitted. The result is valid while the caller holds
    /// the node lock.
    ///
    /// # Errors
    ///
    /// The session has been closed or belongs to another owner, or the share has been withdrawn.
    pub(crate) fn permitted_session(
        &self,
        session: &Name,
        (owner, by): &PermittedBy,
    ) -> Result<&SessionState, NodeError> {
        let state = match owner {
            Some(_) => self.session_of_owner(session, owner.as_ref())?,
            None => self.sessions.get(session).ok_or_else(|| NodeError::NoSession(session.clone()))?,
        };
        state.check_shared(by.as_ref())?;
        Ok(state)
    }
}
