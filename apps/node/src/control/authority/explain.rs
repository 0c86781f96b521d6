//! Explanation of a credential on this node: its rights, the usage under it, and its shares.

use super::ceilings::UsageAudience;
use super::{SessionOwner, SessionRelation, ceilings};
use crate::control::protocol::{Explanation, RequestVerdict, SharedStatus};
use crate::control::share::ShareGrant;
use crate::control::spec::SessionSpec;
use weir_admission::Name;
use weir_trust::credential::{Credential, CredentialRefusal, DatedId, VerifiedCredential};
use weir_trust::explain;
use weir_trust::grant::{NodeName, UnixSecond};

/// Explains a valid credential. `sessions` are all sessions of the node that have an owner.
pub(crate) fn explanation<'a>(
    credential: &VerifiedCredential,
    sessions: impl Iterator<Item = (&'a SessionOwner, &'a SessionSpec)> + Clone,
    node: &NodeName,
    at: UnixSecond,
    audience: UsageAudience,
) -> Explanation {
    let allows = explain::grant(credential.grant(), true).into_iter();
    Explanation {
        node: node.to_string(),
        at: at.number(),
        holder: credential.holder().to_string(),
        root: credential.root().to_string(),
        chain: DatedId::of_chain(credential.chain()).map(|id| id.to_string()).collect(),
        invalid: None,
        allows: allows.map(|(part, words)| (part.to_string(), words)).collect(),
        shared: sessions.clone().flat_map(|(owner, spec)| shared(credential, owner, spec)).collect(),
        used: ceilings::usage(credential, sessions, audience),
        verdict: None,
    }
}

/// Returns the shares of a session that a holder may see: all of them if the session is the holder's own, and those
/// with the holder's key if it is a delegate's.
fn shared(credential: &VerifiedCredential, owner: &SessionOwner, spec: &SessionSpec) -> Vec<SharedStatus> {
    let (session, shares): (_, Vec<_>) = match owner.relation(credential) {
        Some(SessionRelation::Own) => (&owner.session_name, spec.share.iter().collect()),
        Some(SessionRelation::Delegator) => {
            (&spec.name, spec.share.iter().filter(|share| share.key == *credential.holder()).collect())
        }
        None => return Vec::new(),
    };
    let status =
        |share: &&ShareGrant| SharedStatus { session: session.to_string(), share: share.to_string() };
    shares.iter().map(status).collect()
}

/// Explains a request of an operator, who has no credential.
pub(crate) fn of_operator(node: &Name, at: UnixSecond, verdict: RequestVerdict) -> Explanation {
    Explanation {
        node: node.to_string(),
        at: at.number(),
        holder: "the operator".to_owned(),
        verdict: Some(verdict),
        ..Explanation::default()
    }
}

/// Explains a credential that is not valid.
pub(crate) fn invalid(
    credential: &Credential,
    refusal: &CredentialRefusal,
    node: &NodeName,
    at: UnixSecond,
) -> Explanation {
    Explanation {
        node: node.to_string(),
        at: at.number(),
        holder: credential.claimed_holder().to_string(),
        root: credential.claimed_root().to_string(),
        chain: DatedId::of_chain(credential.claimed_blocks()).map(|id| id.to_string()).collect(),
        invalid: Some(refusal.to_string()),
        ..Explanation::default()
    }
}
