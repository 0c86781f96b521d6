//! Authorisation: every request, local or remote, is checked against the rights of its requester before it has any effect.
//!
//! - [`Asker`]: the operator, who may do anything; or the holder of a credential ([`weir_trust::credential`]), who may
//!   do what its grants allow.
//! - [`permit`] turns a holder's request into one for this node: names become the node's own, and channels get the
//!   credential's filters. Unknown requests are refused.
//! - [`ceilings`] checks the usage of all sessions together against the ceilings of each delegation in a chain: ten
//!   delegates of one holder share the resources of that holder.

pub(crate) mod ceilings;
pub(crate) mod explain;
mod permit;
mod refusal;
mod rights;
mod snapshot;
#[cfg(test)]
pub(crate) mod tests;

pub(crate) use crate::control::delegation::delegation_chain;
pub(crate) use permit::{Permitted, Signed, check_known, permit, signed};
pub use refusal::RequestRefusal;
pub(crate) use rights::{Needed, SessionRelation, SharedRights, needed};
pub(crate) use snapshot::snapshot_of;

use std::sync::Arc;
use weir_admission::Name;
use weir_ledger::{CredentialHolder, LedgerText};
use weir_trust::credential::{DatedId, DelegationId, VerifiedCredential, resource_name};
use weir_trust::key::PublicKey;

/// The requester.
#[derive(Clone, Debug)]
pub(crate) enum Asker {
    /// The operator: a user of the node's local socket, or a remote peer with an operator key of the configuration.
    Operator(Option<PublicKey>),
    /// The holder of a credential, who has proven the possession of its key.
    Holder(Arc<VerifiedCredential>),
}

impl Asker {
    /// Returns the [delegation chain](delegation_chain) of a holder, which is charged for requests. Empty for the operator.
    pub(crate) fn chain(&self) -> Vec<DelegationId> {
        match self {
            Self::Operator(_) => Vec::new(),
            Self::Holder(credential) => delegation_chain(credential).map(|(id, _)| id).collect(),
        }
    }
}

/// Returns a holder's key, and the identifiers of the holder's delegation chain with the times at which they expire, in the
/// form of the ledger.
pub(crate) fn in_ledger(credential: &VerifiedCredential) -> (LedgerText, Vec<LedgerText>) {
    let ids = DatedId::of_chain(credential.chain()).map(|id| LedgerText::new(&id.to_string()));
    (LedgerText::new(&credential.holder().to_string()), ids.collect())
}

/// Authorises a holder's request, as if its session were the holder's own and the only session. Returns the request that
/// would be carried out. Serves measurements and tests.
///
/// # Errors
///
/// The credential does not allow the request.
pub fn authorise(
    credential: &Arc<VerifiedCredential>,
    ask: crate::control::protocol::ControlRequest,
    body: Option<&[u8]>,
) -> Result<crate::control::protocol::ControlRequest, RequestRefusal> {
    let own = |given: &Name| {
        let owner = SessionOwner { credential: Arc::clone(credential), given: given.clone() };
        Some(SharedRights { owner, share: Vec::new() })
    };
    let permitted = permit(&Asker::Holder(Arc::clone(credential)), ask, body, &own, &|_| None)?;
    if let (crate::control::protocol::ControlRequest::Create(spec), Some(owner)) =
        (&permitted.ask, &permitted.owner)
    {
        ceilings::check(owner, spec, std::iter::empty())?;
    }
    Ok(permitted.ask)
}

/// The owner of a session that does not belong to the operator.
#[derive(Clone, Debug)]
pub(crate) struct SessionOwner {
    /// Credential by which the session was created.
    pub(crate) credential: Arc<VerifiedCredential>,
    /// Name that the owner gave the session.
    pub(crate) given: Name,
}

impl SessionOwner {
    /// Returns the node's name for a holder's session `given`.
    pub(crate) fn name_of(credential: &VerifiedCredential, given: &Name) -> Name {
        resource_name(credential.id(), credential.holder(), given)
    }

    /// Returns the node's name of the session.
    pub(crate) fn name(&self) -> Name {
        Self::name_of(&self.credential, &self.given)
    }

    /// Returns the identifier of the credential, with the time at which it expires.
    pub(crate) fn dated_id(&self) -> Option<DatedId> {
        DatedId::of_chain(self.credential.chain()).last()
    }

    /// Returns the owner as the ledger names them.
    pub(crate) fn in_ledger(&self) -> CredentialHolder {
        let (key, credentials) = in_ledger(&self.credential);
        CredentialHolder { called: self.given.clone(), key, credentials }
    }

    /// Returns the requester as the owner of the session into which a request loads a module, or `None` for other requests.
    /// So the rights to load a module can be explained without a session.
    pub(crate) fn imagined(
        credential: &Arc<VerifiedCredential>,
        ask: &crate::control::protocol::ControlRequest,
    ) -> Option<Self> {
        let given =
            ask.session().filter(|_| matches!(ask, crate::control::protocol::ControlRequest::Load { .. }))?;
        Some(Self { credential: Arc::clone(credential), given: given.clone() })
    }

    /// Returns true if the session belongs to the holder of `credential`, or to a delegate of that holder. [`needed`] names
    /// the right that each request needs.
    pub(crate) fn is_under(&self, credential: &VerifiedCredential) -> bool {
        self.credential.chain().iter().any(|block| block.id == credential.id())
    }
}
