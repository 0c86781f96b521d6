//! The right that each kind of request needs, in one table, and the relation of a holder to a session.

use super::SessionOwner;
use crate::control::protocol::ControlRequest;
use crate::control::share::{ShareGrant, ShareableRight};
use weir_trust::credential::VerifiedCredential;
use weir_trust::key::PublicKey;

/// The right that a holder needs for a request. The operator needs no right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// No right: the answer and the effect concern the holder alone.
    Nothing,
    /// The rights of the operator, so holders are refused. Contains the action, for the refusal.
    Operator(&'static str),
    /// No right over an existing session: the request creates a session of the holder.
    New,
    /// The session belongs to the holder.
    Owner,
    /// The session belongs to the holder, or to a delegate of the holder.
    Delegator,
    /// The session belongs to the holder, or to a delegate who shares this right with the holder.
    Shared(ShareableRight),
    /// The right to follow the session; or the session is a closed one of the holder. Closed sessions are unknown here,
    /// so this right is decided where the record files are known.
    StoredRecords,
}

/// Returns the right that a request needs. The match is exhaustive, so a new kind of request cannot be forgotten.
pub(crate) fn needed(request: &ControlRequest) -> Needed {
    match request {
        // The answers are reduced to the holder's own sessions: see `snapshot`, `explain`,
        // `credential_tree` and `ledger_view`.
        ControlRequest::Show
        | ControlRequest::Watch { .. }
        | ControlRequest::Explain(_)
        | ControlRequest::Credentials
        | ControlRequest::Ledger(_) => Needed::Nothing,
        // Only its sender can use an uploaded file. The right to load the module is checked when it is loaded.
        ControlRequest::Upload(_) => Needed::Nothing,
        // A revocation list is valid by its signature, whichever peer delivers it.
        ControlRequest::Revoke => Needed::Nothing,
        // The answer contains only revocations under the holder's root.
        ControlRequest::Revocations => Needed::Nothing,
        ControlRequest::Create(_) => Needed::New,
        ControlRequest::Change(change) if change.share.is_empty() && change.remove_share.is_empty() => {
            Needed::Shared(ShareableRight::Manage)
        }
        // Only the owner may change shares.
        ControlRequest::Change(_) => Needed::Owner,
        ControlRequest::Close { .. } => Needed::Delegator,
        ControlRequest::Load { .. } | ControlRequest::Unload { .. } => Needed::Shared(ShareableRight::Manage),
        ControlRequest::Follow { .. } => Needed::Shared(ShareableRight::Follow),
        ControlRequest::Records(_) | ControlRequest::FetchRecords(_) => Needed::StoredRecords,
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

/// The relation of a holder to a session that belongs to the holder or to a delegate of the holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionRelation {
    /// The session belongs to the holder.
    Own,
    /// The session belongs to a delegate of the holder.
    Delegator,
}

impl SharedRights {
    /// Returns the relation of a credential's holder to the session, or `None` if the session does not concern the
    /// holder.
    pub(crate) fn relation(&self, credential: &VerifiedCredential) -> Option<SessionRelation> {
        self.owner.relation(credential)
    }
}

impl SessionOwner {
    /// Returns the relation of a credential's holder to this owner's session, or `None` if the session does not
    /// concern the holder.
    pub(crate) fn relation(&self, credential: &VerifiedCredential) -> Option<SessionRelation> {
        if self.credential.id() == credential.id() {
            Some(SessionRelation::Own)
        } else {
            self.is_under(credential).then_some(SessionRelation::Delegator)
        }
    }
}

/// Returns true if the key is that of a holder who precedes the credential's holder in its chain.
pub(crate) fn has_delegator(credential: &VerifiedCredential, key: &PublicKey) -> bool {
    let chain = credential.chain();
    chain.iter().take(chain.len().saturating_sub(1)).any(|link| link.holder == *key)
}
