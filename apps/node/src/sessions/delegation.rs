//! Who has his right from whom, among the sessions that there are: where the last session of somebody is closed, those that others made under it are closed, too.

use crate::control::authority::SessionOwner;
use crate::sessions::node::Node;
use std::collections::BTreeSet;
use weir_admission::Name;
use weir_trust::credential::{PrefixId, VerifiedCredential};

impl Node {
    /// Those from whom a session's owner has his right, and who have a session themselves now.
    pub(crate) fn parents_of(&self, owner: Option<&SessionOwner>) -> BTreeSet<PrefixId> {
        let Some(owner) = owner else { return BTreeSet::new() };
        let own = owner.credential.id();
        let above = owner.credential.chain().iter().map(|link| link.id).filter(|id| *id != own);
        let has_one = |id: &PrefixId| self.has_session(*id);
        above.filter(has_one).collect()
    }

    /// Sessions that were made under one of this holder's, where he has none any more.
    pub(crate) fn orphans_of(&self, gone: &VerifiedCredential) -> Vec<(Name, u64)> {
        if self.has_session(gone.id()) {
            return Vec::new();
        }
        let orphans = self.sessions.iter().filter(|(_, session)| session.parents.contains(&gone.id()));
        orphans.map(|(name, session)| (name.clone(), session.id)).collect()
    }

    fn has_session(&self, holder: PrefixId) -> bool {
        let mut owners = self.sessions.values().filter_map(|session| session.owner.as_ref());
        owners.any(|owner| owner.credential.id() == holder)
    }
}
