//! What credentials allow on this node, as it is now.

use super::{Daemon, lock, now};
use crate::control::authority::ceilings::UsageReader;
use crate::control::authority::{self, Asker, SessionOwner, SharedRights, explain};
use crate::control::protocol::{ControlRequest, Explain, Explanation, RequestVerdict};
use crate::error::NodeError;
use crate::sessions::node::Node;
use std::sync::Arc;
use weir_admission::Name;
use weir_trust::credential::{Credential, VerifiedCredential};
use weir_trust::grant::Second;

/// Why nothing is explained.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unexplained {
    /// Nobody is let in here.
    #[error("this node is not reached from elsewhere, so credentials are worth nothing here")]
    Alone,
    /// No credential.
    #[error("which credential? Whoever uses the node's own socket has none, and names one")]
    Which,
    /// Somebody else's.
    #[error("who comes with a credential can ask about that one; about others only the node's operator can")]
    Others,
    /// None at all.
    #[error(transparent)]
    Credential(#[from] weir_trust::credential::CredentialRefusal),
    /// Whoever asks has no right any more.
    #[error(transparent)]
    Refused(#[from] crate::control::authority::RequestRefusal),
}

impl Daemon {
    /// What a credential allows, with what is used, and what would come of a request: decided by what decides on requests, and nothing is done.
    pub(crate) fn explain(
        &self,
        asker: &Asker,
        Explain { credential, ask }: Explain,
        body: Option<&[u8]>,
    ) -> Result<Explanation, Unexplained> {
        let trust = self.trust().ok_or(Unexplained::Alone)?;
        let at = Second::of(now());
        let reader =
            if matches!(asker, Asker::Operator(_)) { UsageReader::Operator } else { UsageReader::Holder };
        let holder = match (asker, credential) {
            (Asker::Holder(_), None) => self.current(asker)?,
            (Asker::Holder(_), Some(_)) => return Err(Unexplained::Others),
            (Asker::Operator(_), None) => return Err(Unexplained::Which),
            (Asker::Operator(_), Some(text)) => {
                let credential: Credential = text.parse()?;
                match trust.verify(&credential, credential.claimed_holder(), at) {
                    Ok(verified) => Asker::Holder(Arc::new(verified)),
                    Err(refusal) => return Ok(explain::worthless(&credential, &refusal, trust.name(), at)),
                }
            }
        };
        let Asker::Holder(verified) = &holder else { return Err(Unexplained::Which) };
        let explained = self.with_node(|node| {
            let sessions = node.sessions.values();
            let owned = sessions.filter_map(|session| Some((session.owner.as_ref()?, &session.spec)));
            explain::explanation(verified, owned, trust.name(), at, reader)
        });
        let verdict = ask.map(|ask| RequestVerdict { refused: self.would_refuse(verified, ask, body) });
        Ok(Explanation { verdict, ..explained })
    }

    /// Why a request would be refused.
    fn would_refuse(
        &self,
        holder: &Arc<VerifiedCredential>,
        ask: ControlRequest,
        body: Option<&[u8]>,
    ) -> Option<String> {
        let imagined = SessionOwner::imagined(holder, &ask);
        let owner_of = |name: &Name| {
            let imagined = || imagined.clone().filter(|owner| owner.name() == *name);
            self.shared(name).or_else(|| Some(SharedRights { owner: imagined()?, share: Vec::new() }))
        };
        let asker = Asker::Holder(Arc::clone(holder));
        let permitted = match authority::permit(&asker, ask, body, &owner_of, &self.setup.shipped) {
            Ok(permitted) => permitted,
            Err(refusal) => return Some(refusal.to_string()),
        };
        let premises = self.with_node(Node::premises);
        let would = || match &permitted.ask {
            ControlRequest::Create(spec) => {
                // His right first: what the node has is for whoever may ask for it.
                lock(&self.node).hold(permitted.owner.as_ref(), spec)?;
                premises.check(spec)?;
                let node = lock(&self.node);
                if node.sessions.contains_key(&spec.name) {
                    return Err(NodeError::Exists(spec.name.clone()));
                }
                Ok(())
            }
            ControlRequest::Change(change) => self.wanted_for(change, &premises).map(drop),
            _ => Ok(()),
        };
        would().err().map(|error| error.for_holder())
    }
}
