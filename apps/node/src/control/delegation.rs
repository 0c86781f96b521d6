//! The delegation chain of a credential.

use weir_trust::credential::{DelegationId, VerifiedCredential};
use weir_trust::grant::{CpuShare, Grant};

/// Returns the delegation chain of a credential, root first: the identifier of each delegation, with its CPU share if the
/// grant states one.
///
/// The first identifier stands for the party that shares resources such as memory for queues with other parties. All
/// holders under one grant of the operator are one party. If the node limits the root, the root's identifier comes first:
/// all holders under the root are one party, since the root's owner can make any number of grants.
pub(crate) fn delegation_chain(
    credential: &VerifiedCredential,
) -> impl Iterator<Item = (DelegationId, Option<CpuShare>)> {
    let limit = credential.limit();
    let root =
        (*limit != Grant::default()).then(|| (DelegationId::of_root(credential.root()), limit.ceilings.cpu));
    root.into_iter().chain(credential.chain().iter().map(|link| (link.id, link.grant.ceilings.cpu)))
}
