//! Delegation between session owners. When the last session of a holder closes, the sessions of its delegates close as
//! well.

use crate::control::authority::SessionOwner;
use crate::sessions::node::Node;
use std::collections::BTreeSet;
use weir_admission::Name;
use weir_trust::credential::{DelegationId, VerifiedCredential};

impl Node {
    /// Returns the credentials above an owner's in its chain whose holders have a session now.
    pub(crate) fn parents_of(&self, owner: Option<&SessionOwner>) -> BTreeSet<DelegationId> {
        let Some(owner) = owner else { return BTreeSet::new() };
        let own = owner.credential.id();
        let above = owner.credential.chain().iter().map(|link| link.id).filter(|id| *id != own);
        let has_one = |id: &DelegationId| self.has_session(*id);
        above.filter(has_one).collect()
    }

    /// Returns the sessions of a holder's delegates, if the holder has no session any more.
    pub(crate) fn orphans_of(&self, gone: &VerifiedCredential) -> Vec<(Name, u64)> {
        if self.has_session(gone.id()) {
            return Vec::new();
        }
        let orphans = self.sessions.iter().filter(|(_, session)| session.parents.contains(&gone.id()));
        orphans.map(|(name, session)| (name.clone(), session.id)).collect()
    }

    fn has_session(&self, holder: DelegationId) -> bool {
        let mut owners = self.sessions.values().filter_map(|session| session.owner.as_ref());
        owners.any(|owner| owner.credential.id() == holder)
    }
}
