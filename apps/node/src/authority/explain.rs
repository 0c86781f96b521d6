//! What a credential allows here and now, in words.

use super::{Owner, ceilings};
use crate::protocol::Explanation;
use crate::spec::SessionSpec;
use weir_trust::credential::{Credential, DatedId, Refusal, Verified};
use weir_trust::explain;
use weir_trust::grant::{NodeName, Second};

/// Of a credential that is worth something. `sessions` are all of the node that are not the operator's.
pub(crate) fn explanation<'a>(
    credential: &Verified,
    sessions: impl Iterator<Item = (&'a Owner, &'a SessionSpec)> + Clone,
    node: &NodeName,
    at: Second,
) -> Explanation {
    let allows = explain::grant(credential.grant(), true).into_iter();
    Explanation {
        node: node.to_string(),
        at: at.number(),
        holder: credential.holder().to_string(),
        root: credential.root().to_string(),
        chain: DatedId::of_chain(credential.chain()).map(|id| id.to_string()).collect(),
        worthless: None,
        allows: allows.map(|(part, words)| (part.to_string(), words)).collect(),
        used: ceilings::usage(credential, sessions),
        verdict: None,
    }
}

/// Of one that is worth nothing.
pub(crate) fn worthless(
    credential: &Credential,
    refusal: &Refusal,
    node: &NodeName,
    at: Second,
) -> Explanation {
    Explanation {
        node: node.to_string(),
        at: at.number(),
        holder: credential.claimed_holder().to_string(),
        root: credential.claimed_root().to_string(),
        chain: DatedId::of_chain(credential.claimed_links()).map(|id| id.to_string()).collect(),
        worthless: Some(refusal.to_string()),
        ..Explanation::default()
    }
}
