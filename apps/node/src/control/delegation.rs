//! The delegation chain of a credential, for the fair division of resources.

use weir_trust::credential::{DelegationId, VerifiedCredential};
use weir_trust::grant::{CpuShare, Grant};

/// Returns the delegation chain of a credential, root first: the identifier of each delegation, with its CPU share if
/// the grant states one.
///
/// The first identifier names a *party*. Each party gets a share of resources such as memory for queues, whatever the
/// number of its holders. If the policy has no limit for the root, all holders under one grant of the root are one
/// party. If it has one, the chain begins with the root's identifier, and all holders under the root are one party:
/// otherwise the root could gain shares by making more grants.
pub(crate) fn delegation_chain(
    credential: &VerifiedCredential,
) -> impl Iterator<Item = (DelegationId, Option<CpuShare>)> {
    let limit = credential.limit();
    let root =
        (*limit != Grant::default()).then(|| (DelegationId::of_root(credential.root()), limit.ceilings.cpu));
    root.into_iter()
        .chain(credential.chain().iter().map(|delegation| (delegation.id, delegation.grant.ceilings.cpu)))
}
