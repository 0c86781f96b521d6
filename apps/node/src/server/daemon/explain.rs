//! Explains which requests a credential allows on this node now.

use super::{Daemon, now};
use crate::control::authority::ceilings::UsageAudience;
use crate::control::authority::{self, Requester, SessionOwner, SharedRights, explain};
use crate::control::protocol::{ControlRequest, Explain, Explanation, RequestVerdict};
use crate::sessions::node::Node;
use std::sync::Arc;
use weir_admission::Name;
use weir_trust::credential::Credential;
use weir_trust::grant::UnixSecond;

/// The error of a request to explain a credential.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ExplainError {
    /// The node has no remote access.
    #[error("this node has no remote access, so credentials have no effect here")]
    NoRemoteAccess,
    /// The operator has named no credential.
    #[error("name the credential to explain: clients of the node's own socket have none")]
    NoCredential,
    /// A holder has named a credential; only the operator may.
    #[error(
        "a holder can ask only about the credential that it has connected with; the node's operator can ask about any"
    )]
    NotOwn,
    /// The text is no valid credential.
    #[error(transparent)]
    Credential(#[from] weir_trust::credential::CredentialRefusal),
    /// The client's right has ended.
    #[error(transparent)]
    Refused(#[from] crate::control::authority::RequestRefusal),
}

impl Daemon {
    /// Returns the rights of a credential with their usage, and the decision on a request that is not executed. Real
    /// requests are decided by the same function.
    pub(crate) fn explain(
        &self,
        requester: &Requester,
        Explain { credential, request }: Explain,
        body: Option<&[u8]>,
    ) -> Result<Explanation, ExplainError> {
        let at = UnixSecond::containing(now());
        // The operator also asks about requests of their own.
        let request = match (requester, &credential, request) {
            (Requester::Operator(_), None, Some(request)) => {
                let verdict = RequestVerdict { refused: self.would_refuse(requester, request, body) };
                return Ok(explain::of_operator(&self.name(), at, verdict));
            }
            (_, _, request) => request,
        };
        let trust = self.trust().ok_or(ExplainError::NoRemoteAccess)?;
        let audience = if matches!(requester, Requester::Operator(_)) {
            UsageAudience::Operator
        } else {
            UsageAudience::Holder
        };
        let holder = match (requester, credential) {
            (Requester::Holder(_), None) => self.with_current_credential(requester)?,
            (Requester::Holder(_), Some(_)) => return Err(ExplainError::NotOwn),
            (Requester::Operator(_), None) => return Err(ExplainError::NoCredential),
            (Requester::Operator(_), Some(text)) => {
                let credential: Credential = text.parse()?;
                match trust.verify(&credential, credential.claimed_holder(), at) {
                    Ok(verified) => Requester::Holder(Arc::new(verified)),
                    Err(refusal) => return Ok(explain::invalid(&credential, &refusal, trust.name(), at)),
                }
            }
        };
        let Requester::Holder(verified) = &holder else { return Err(ExplainError::NoCredential) };
        let explained = self.with_node(|node| {
            let sessions = node.sessions.values();
            let owned = sessions.filter_map(|session| Some((session.owner.as_ref()?, &session.spec)));
            explain::explanation(verified, owned, trust.name(), at, audience)
        });
        let verdict =
            request.map(|request| RequestVerdict { refused: self.would_refuse(&holder, request, body) });
        Ok(Explanation { verdict, ..explained })
    }

    /// Returns the reason for which a request would be refused; `None` if it would be allowed. For requests to create or
    /// change a session, admission is included: the capacity of cores, memory and links at this time.
    fn would_refuse(
        &self,
        requester: &Requester,
        request: ControlRequest,
        body: Option<&[u8]>,
    ) -> Option<String> {
        let hypothetical = match requester {
            Requester::Holder(holder) => SessionOwner::hypothetical(holder, &request),
            Requester::Operator(_) => None,
        };
        let rights_over = |name: &Name| {
            let hypothetical = || hypothetical.clone().filter(|owner| owner.name() == *name);
            self.shared_rights(name)
                .or_else(|| Some(SharedRights { owner: hypothetical()?, share: Vec::new() }))
        };
        let permitted = match authority::permit(requester, request, body, &rights_over, &self.setup.shipped) {
            Ok(permitted) => permitted,
            Err(refusal) => return Some(refusal.to_string()),
        };
        if let Some(refusal) = self.records_refusal(requester, &permitted.request) {
            return Some(refusal.to_string());
        }
        let inventory = self.with_node(Node::inventory);
        let check = || match &permitted.request {
            ControlRequest::Create(spec) => {
                // The holder's right is checked first, so that a refusal reveals nothing about the node.
                self.node.lock().check_ceilings(permitted.owner.as_ref(), spec)?;
                inventory.check(spec)?;
                self.node.lock().check_new_session(spec)
            }
            ControlRequest::Change(change) => {
                self.filters_of_change(change, &inventory)?;
                self.node.lock().check_change(change)
            }
            _ => Ok(()),
        };
        let is_operator = matches!(requester, Requester::Operator(_));
        check().err().map(|error| if is_operator { error.to_string() } else { error.for_holder() })
    }
}
