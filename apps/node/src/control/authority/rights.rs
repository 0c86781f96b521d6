//! The right over a session that each request needs, in one table.

use super::SessionOwner;
use crate::control::protocol::ControlRequest;
use crate::control::share::{ShareGrant, ShareableRight};
use weir_trust::credential::VerifiedCredential;
use weir_trust::key::PublicKey;

/// The right that a request needs from the holder of a credential. The node's operator needs none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needed {
    /// No right over a session: the answer or the effect concerns the holder alone.
    Nothing,
    /// The operator's right.
    Operator(&'static str),
    /// To have sessions: the new one is the holder's own.
    New,
    /// The session is the holder's own.
    Owner,
    /// The session is the holder's own, or its owner has their credential from the holder.
    Delegator,
    /// The session is the holder's own, or its owner has their credential from the holder and shares this right with them.
    Shared(ShareableRight),
}

/// The right that a request needs. Each request is named here, so that a new one cannot be forgotten.
pub(crate) fn needed(ask: &ControlRequest) -> Needed {
    match ask {
        // The answers hold what concerns the holder: see `snapshot`, `explain` and `statement`.
        ControlRequest::Show
        | ControlRequest::Watch { .. }
        | ControlRequest::Explain(_)
        | ControlRequest::Ledger(_) => Needed::Nothing,
        // A file is its sender's alone. The right to load it is asked for with the load.
        ControlRequest::Upload(_) => Needed::Nothing,
        // A list counts by its own signature.
        ControlRequest::Revoke => Needed::Nothing,
        // The answer has the revocations of the holder's root.
        ControlRequest::Revocations => Needed::Nothing,
        ControlRequest::Create(_) => Needed::New,
        ControlRequest::Change(change) if change.share.is_empty() && change.unshare.is_empty() => {
            Needed::Shared(ShareableRight::Manage)
        }
        // A share is the owner's to give.
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

/// The owner of a session, and the rights over it that they share.
#[derive(Clone, Debug)]
pub(crate) struct SharedRights {
    /// The owner.
    pub(crate) owner: SessionOwner,
    /// Their shares of it.
    pub(crate) share: Vec<ShareGrant>,
}

/// A holder's standing towards a session of which they are allowed to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionRights {
    /// It is their own.
    Own,
    /// Its owner has their credential from them.
    Delegator,
}

impl SharedRights {
    /// The holder's standing towards the session. None, where it does not concern them.
    pub(crate) fn standing(&self, credential: &VerifiedCredential) -> Option<SessionRights> {
        self.owner.standing(credential)
    }
}

impl SessionOwner {
    /// The standing of a credential's holder towards this owner's session. None, where it does not concern them.
    pub(crate) fn standing(&self, credential: &VerifiedCredential) -> Option<SessionRights> {
        if self.credential.id() == credential.id() {
            Some(SessionRights::Own)
        } else {
            self.is_under(credential).then_some(SessionRights::Delegator)
        }
    }
}

/// Returns true if the key is that of an earlier holder in the credential's chain.
pub(crate) fn is_from(credential: &VerifiedCredential, key: &PublicKey) -> bool {
    let chain = credential.chain();
    chain.iter().take(chain.len().saturating_sub(1)).any(|link| link.holder == *key)
}
