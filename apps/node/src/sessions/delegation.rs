//! Dependence of delegates' sessions on their delegators' sessions: when the last session of a holder closes, the
//! sessions of the holder's delegates close as well.

use crate::control::authority::SessionOwner;
use crate::sessions::node::Node;
use std::collections::BTreeSet;
use weir_admission::Name;
use weir_trust::credential::{DelegationId, VerifiedCredential};

impl Node {
    /// Returns the earlier delegations in the owner's chain whose holders have a session now.
    pub(crate) fn parents_of(&self, owner: Option<&SessionOwner>) -> BTreeSet<DelegationId> {
        let Some(owner) = owner else { return BTreeSet::new() };
        let own = owner.credential.id();
        let above = owner.credential.chain().iter().map(|link| link.id).filter(|id| *id != own);
        let holder_has_session = |id: &DelegationId| self.has_session(*id);
        above.filter(holder_has_session).collect()
    }

    /// Returns name and number of the delegates' sessions that have to close because the holder has no session any more.
    /// Empty if the holder still has a session.
    pub(crate) fn orphans_of(&self, holder: &VerifiedCredential) -> Vec<(Name, u64)> {
        if self.has_session(holder.id()) {
            return Vec::new();
        }
        let orphans = self.sessions.iter().filter(|(_, session)| session.parents.contains(&holder.id()));
        orphans.map(|(name, session)| (name.clone(), session.id)).collect()
    }

    fn has_session(&self, holder: DelegationId) -> bool {
        let mut owners = self.sessions.values().filter_map(|session| session.owner.as_ref());
        owners.any(|owner| owner.credential.id() == holder)
    }
}
