//! The delegation chain of a credential.

use weir_trust::credential::{DelegationId, VerifiedCredential};
use weir_trust::grant::{CpuShare, Grant};

/// Returns the delegation chain of a credential, root first: the identifier of each delegation, with its CPU share if the
/// grant states one.
///
/// The first identifier names a *party*. Parties get shares of resources such as memory for queues, whatever the number
/// of holders in a party. Without a limit for the root in the node's configuration, all holders under one grant of the
/// operator are one party. With such a limit, the chain begins with the root's identifier, so that all holders under the
/// root are one party: the root's owner can make any number of grants.
pub(crate) fn delegation_chain(
    credential: &VerifiedCredential,
) -> impl Iterator<Item = (DelegationId, Option<CpuShare>)> {
    let limit = credential.limit();
    let root =
        (*limit != Grant::default()).then(|| (DelegationId::of_root(credential.root()), limit.ceilings.cpu));
    root.into_iter()
        .chain(credential.chain().iter().map(|delegation| (delegation.id, delegation.grant.ceilings.cpu)))
}
