//! Answers requests for the credentials under which sessions run.

use super::Daemon;
use crate::control::authority::credential_tree::{TreeSession, credential_tree};
use crate::control::authority::{RequestRefusal, Requester};
use crate::control::protocol::CredentialTree;

impl Daemon {
    /// Returns the delegations under which sessions run, as far as the requester may see them. A node without remote access
    /// has none.
    ///
    /// # Errors
    /// The requester's right has ended.
    pub(crate) fn credentials(&self, requester: &Requester) -> Result<CredentialTree, RequestRefusal> {
        let requester = self.with_current_credential(requester)?;
        let Some(trust) = self.trust() else { return Ok(CredentialTree::default()) };
        let sessions: Vec<TreeSession> = self.with_node(|node| {
            let sessions = node.sessions.values();
            let concerning = sessions
                .filter_map(|session| TreeSession::new(&requester, session.owner.as_ref()?, &session.spec));
            concerning.collect()
        });
        let roots = trust.roots().iter().map(|root| (root, trust.limit(root)));
        let tree = credential_tree(&requester, &sessions, roots, trust.revocations());
        Ok(CredentialTree { node: trust.name().to_string(), ..tree })
    }
}
