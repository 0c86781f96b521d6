//! The right over a session that each request needs, in one table.

use super::SessionOwner;
use crate::control::protocol::ControlRequest;
use crate::control::share::{ShareGrant, ShareableRight};
use weir_trust::credential::VerifiedCredential;
use weir_trust::key::PublicKey;

/// The right that a request needs from the holder of a credential. The operator needs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// No right over a session: the answer or the effect concerns the holder alone.
    Nothing,
    /// The operator's right.
    Operator(&'static str),
    /// The right to have sessions. The new session belongs to the holder.
    New,
    /// The session belongs to the holder.
    Owner,
    /// The session belongs to the holder, or to a delegate of the holder.
    Delegator,
    /// The session belongs to the holder, or to a delegate who shares this right with the holder.
    Shared(ShareableRight),
}

/// Returns the right that a request needs. Each request is listed here, so that a new one cannot be forgotten.
pub(crate) fn needed(ask: &ControlRequest) -> Needed {
    match ask {
        // The answers contain what concerns the holder: see `snapshot`, `explain` and `ledger_view`.
        ControlRequest::Show
        | ControlRequest::Watch { .. }
        | ControlRequest::Explain(_)
        | ControlRequest::Ledger(_) => Needed::Nothing,
        // An uploaded file belongs to its sender alone. The right to load it is checked with the load.
        ControlRequest::Upload(_) => Needed::Nothing,
        // A list is valid by its own signature, no matter which peer delivers it.
        ControlRequest::Revoke => Needed::Nothing,
        // The answer has the revocations of the holder's root.
        ControlRequest::Revocations => Needed::Nothing,
        ControlRequest::Create(_) => Needed::New,
        ControlRequest::Change(change) if change.share.is_empty() && change.remove_share.is_empty() => {
            Needed::Shared(ShareableRight::Manage)
        }
        // Only the owner gives shares.
        ControlRequest::Change(_) => Needed::Owner,
        ControlRequest::Close { .. } => Needed::Delegator,
        ControlRequest::Load { .. } | ControlRequest::Unload { .. } => Needed::Shared(ShareableRight::Manage),
        ControlRequest::Follow { .. } => Needed::Shared(ShareableRight::Follow),
        ControlRequest::PutTable { .. } | ControlRequest::RemoveTable { .. } => {
            Needed::Operator("change named tables")
        }
        ControlRequest::Rate(_) => Needed::Operator("change links"),
        ControlRequest::Reload => Needed::Operator("have the configuration read again"),
    }
}

/// The owner of a session, and the rights over the session that the owner shares.
#[derive(Clone, Debug)]
pub(crate) struct SharedRights {
    pub(crate) owner: SessionOwner,
    /// Shares of the session.
    pub(crate) share: Vec<ShareGrant>,
}

/// A holder's relation to a session of which the holder may know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionRelation {
    /// The session belongs to the holder.
    Own,
    /// The session belongs to a delegate of the holder.
    Delegator,
}

impl SharedRights {
    /// Returns the relation of a credential's holder to the session, or `None` if the session does not concern the holder.
    pub(crate) fn relation(&self, credential: &VerifiedCredential) -> Option<SessionRelation> {
        self.owner.relation(credential)
    }
}

impl SessionOwner {
    /// Returns the relation of a credential's holder to this owner's session, or `None` if the session does not concern the
    /// holder.
    pub(crate) fn relation(&self, credential: &VerifiedCredential) -> Option<SessionRelation> {
        if self.credential.id() == credential.id() {
            Some(SessionRelation::Own)
        } else {
            self.is_under(credential).then_some(SessionRelation::Delegator)
        }
    }
}

/// Returns true if the key is that of an earlier holder in the credential's chain.
pub(crate) fn is_from(credential: &VerifiedCredential, key: &PublicKey) -> bool {
    let chain = credential.chain();
    chain.iter().take(chain.len().saturating_sub(1)).any(|link| link.holder == *key)
}
