//! Authorisation: every request, local or remote, is checked against its requester's rights before the request has any
//! effect.
//!
//! - [`Requester`]: the operator, who may make any request; or the holder of a credential
//!   ([`weir_trust::credential`]), who may make the requests that the credential's grants allow.
//! - [`permit`] decides on a request, and returns the request to carry out: with the node's names for sessions, and
//!   with the credential's filters and view in its channels.
//! - [`ceilings`] checks the usage of all sessions together against the ceilings of each delegation in a chain. For
//!   example, ten delegates of one holder share the resources of that holder.

pub(crate) mod ceilings;
pub(crate) mod credential_tree;
pub(crate) mod explain;
mod permit;
mod refusal;
mod rights;
mod snapshot;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use crate::control::delegation::delegation_chain;
pub(crate) use permit::{
    HashAndSigners, Permitted, PermittedSession, check_by_hash, followable_session, hash_and_signers, permit,
};
pub use refusal::{RefusalText, RequestRefusal};
pub(crate) use rights::{Needed, SessionRelation, SharedRights, needed};
pub(crate) use snapshot::snapshot_of;

use std::sync::Arc;
use weir_admission::Name;
use weir_ledger::{CredentialHolder, LedgerText};
use weir_trust::credential::{DatedId, DelegationId, VerifiedCredential, resource_name};
use weir_trust::key::PublicKey;

/// The requester of a request, who has been authenticated.
#[derive(Clone, Debug)]
pub(crate) enum Requester {
    /// The operator: a user of the node's local socket, or a remote peer with an operator key of the configuration.
    Operator(Option<PublicKey>),
    /// The holder of a credential, who has proven the possession of its key.
    Holder(Arc<VerifiedCredential>),
}

impl Requester {
    /// Returns the [delegation chain](delegation_chain) of a holder, whose members share the limits on requests and
    /// compile time. Empty for the operator.
    pub(crate) fn chain(&self) -> Vec<DelegationId> {
        match self {
            Self::Operator(_) => Vec::new(),
            Self::Holder(credential) => delegation_chain(credential).map(|(id, _)| id).collect(),
        }
    }
}

/// Returns a holder's key, and the identifiers of the holder's delegation chain with the times at which the delegations
/// expire, in the form of the ledger.
pub(crate) fn in_ledger(credential: &VerifiedCredential) -> (LedgerText, Vec<LedgerText>) {
    let ids = DatedId::of_chain(credential.chain()).map(|id| LedgerText::new(&id.to_string()));
    (LedgerText::new(&credential.holder().to_string()), ids.collect())
}

/// Authorises a holder's request, as if its session belonged to the holder and were the only session of the node.
/// Returns the request to carry out. Only measurements and tests call this function.
///
/// # Errors
///
/// The credential does not allow the request.
pub fn authorise(
    credential: &Arc<VerifiedCredential>,
    request: crate::control::protocol::ControlRequest,
    body: Option<&[u8]>,
) -> Result<crate::control::protocol::ControlRequest, RequestRefusal> {
    let own = |given: &Name| {
        let owner = SessionOwner { credential: Arc::clone(credential), session_name: given.clone() };
        Some(SharedRights { owner, share: Vec::new() })
    };
    let permitted = permit(&Requester::Holder(Arc::clone(credential)), request, body, &own, &|_| None)?;
    if let (crate::control::protocol::ControlRequest::Create(spec), Some(owner)) =
        (&permitted.request, &permitted.owner)
    {
        ceilings::check(owner, spec, std::iter::empty())?;
    }
    Ok(permitted.request)
}

/// The owner of a session that does not belong to the operator.
#[derive(Clone, Debug)]
pub(crate) struct SessionOwner {
    /// Credential by which the session was created.
    pub(crate) credential: Arc<VerifiedCredential>,
    /// Name that the owner gave the session.
    pub(crate) session_name: Name,
}

impl SessionOwner {
    /// Returns the node's name for a session that a holder calls `session_name`.
    pub(crate) fn name_of(credential: &VerifiedCredential, session_name: &Name) -> Name {
        resource_name(credential.id(), credential.holder(), session_name)
    }

    /// Returns the node's name of the session.
    pub(crate) fn name(&self) -> Name {
        Self::name_of(&self.credential, &self.session_name)
    }

    /// Returns the identifier of the credential, with the time at which it expires.
    pub(crate) fn dated_id(&self) -> Option<DatedId> {
        DatedId::of_chain(self.credential.chain()).last()
    }

    /// Returns the owner in the form of the ledger.
    pub(crate) fn in_ledger(&self) -> CredentialHolder {
        let (key, credentials) = in_ledger(&self.credential);
        CredentialHolder { called: self.session_name.clone(), key, credentials }
    }

    /// Returns the requester as the owner of the session into which the request loads a module, or `None` for other
    /// requests. An explanation uses this hypothetical owner if there is no such session.
    pub(crate) fn hypothetical(
        credential: &Arc<VerifiedCredential>,
        request: &crate::control::protocol::ControlRequest,
    ) -> Option<Self> {
        let given = request
            .session()
            .filter(|_| matches!(request, crate::control::protocol::ControlRequest::Load { .. }))?;
        Some(Self { credential: Arc::clone(credential), session_name: given.clone() })
    }

    /// Returns true if this owner is the holder of `credential`, or a delegate of that holder.
    pub(crate) fn is_under(&self, credential: &VerifiedCredential) -> bool {
        self.credential.chain().iter().any(|block| block.id == credential.id())
    }
}
