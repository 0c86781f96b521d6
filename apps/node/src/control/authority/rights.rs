//! The right over a session that each request needs, in one table.

use super::Owner;
use crate::control::protocol::Request;
use crate::control::share::{Right, Share};
use weir_trust::credential::Verified;
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
    Shared(Right),
}

/// The right that a request needs. Each request is named here, so that a new one cannot be forgotten.
pub(crate) fn needed(ask: &Request) -> Needed {
    match ask {
        // The answers hold what concerns the holder: see `snapshot`, `explain` and `statement`.
        Request::Show | Request::Watch { .. } | Request::Explain(_) | Request::Ledger(_) => Needed::Nothing,
        // A file is its sender's alone. The right to load it is asked for with the load.
        Request::Upload(_) => Needed::Nothing,
        // A list counts by its own signature.
        Request::Revoke => Needed::Nothing,
        // The answer has the revocations of the holder's root.
        Request::Revocations => Needed::Nothing,
        Request::Create(_) => Needed::New,
        Request::Change(change) if change.share.is_empty() && change.unshare.is_empty() => {
            Needed::Shared(Right::Manage)
        }
        // A share is the owner's to give.
        Request::Change(_) => Needed::Owner,
        Request::Close { .. } => Needed::Delegator,
        Request::Load { .. } | Request::Unload { .. } => Needed::Shared(Right::Manage),
        Request::Follow { .. } => Needed::Shared(Right::Follow),
        Request::PutTable { .. } | Request::RemoveTable { .. } => Needed::Operator("change named tables"),
        Request::Rate(_) => Needed::Operator("change links"),
        Request::Reload => Needed::Operator("have the configuration read again"),
    }
}

/// The owner of a session, and the rights over it that they share.
#[derive(Clone, Debug)]
pub(crate) struct Shared {
    /// The owner.
    pub(crate) owner: Owner,
    /// Their shares of it.
    pub(crate) share: Vec<Share>,
}

/// A holder's standing towards a session of which they are allowed to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It is their own.
    Own,
    /// Its owner has their credential from them.
    Delegator,
}

impl Shared {
    /// The holder's standing towards the session. None, where it does not concern them.
    pub(crate) fn standing(&self, credential: &Verified) -> Option<Standing> {
        self.owner.standing(credential)
    }
}

impl Owner {
    /// The standing of a credential's holder towards this owner's session. None, where it does not concern them.
    pub(crate) fn standing(&self, credential: &Verified) -> Option<Standing> {
        if self.credential.id() == credential.id() {
            Some(Standing::Own)
        } else {
            self.is_under(credential).then_some(Standing::Delegator)
        }
    }
}

/// Returns true if the key is that of an earlier holder in the credential's chain.
pub(crate) fn is_from(credential: &Verified, key: &PublicKey) -> bool {
    let chain = credential.chain();
    chain.iter().take(chain.len().saturating_sub(1)).any(|link| link.holder == *key)
}
