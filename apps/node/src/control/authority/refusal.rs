//! The refusal of a request for lack of a right, with the message for the requester.

use crate::control::share::ShareGrant;
use weir_admission::Name;
use weir_trust::credential::{CredentialRefusal, CredentialRefusalKind};
use weir_trust::grant::{GrantExcess, GrantPart, Resource};
use weir_trust::signature::SignatureError;

/// The refusal of a request for lack of a right. The requester can request less, or ask for a credential with a wider
/// grant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    /// The credential is not valid.
    #[error(transparent)]
    InvalidCredential(Box<CredentialRefusal>),
    /// The request exceeds the grant.
    #[error("the credential does not allow that: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Excess(Vec<GrantExcess>),
    /// The request exceeds the remaining amount of a ceiling of the chain or of the root.
    #[error(
        "the credential does not allow that: {part}: asked for {requested}; of the {given} given to {ceiling_holder}, {} is left. Close another session, or {advice}",
        left.as_deref().unwrap_or("less than that")
    )]
    CeilingExceeded {
        /// Resource.
        part: GrantPart,
        /// Requested amount.
        requested: String,
        /// Granted amount.
        given: String,
        /// Holder of the ceiling.
        ceiling_holder: String,
        /// Remaining amount; `None` if other holders share the ceiling, because the amount would reveal their usage.
        left: Option<String>,
        /// Advice on how to request less.
        advice: &'static str,
    },
    /// A module signature is invalid.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// Only the operator may make the request.
    #[error("only the node's operator may {0}")]
    OperatorOnly(&'static str),
    /// The key is no longer an operator key.
    #[error("your key is not an operator key of this node any more")]
    NotOperator,
    /// A delegator makes a request about a delegate's session for which the session's owner has not shared the right.
    #[error(
        "session `{session}` belongs to a delegate of yours: you may close the session and read its sums. For further rights the owner has to share the session: `weir session change NAME --share {share}`"
    )]
    NotShared {
        /// Name of the session in the request.
        session: Name,
        /// Missing share.
        share: Box<ShareGrant>,
    },
    /// A delegator tries to share a session of another holder.
    #[error("session `{0}` belongs to a delegate of yours: only its owner shares rights over the session")]
    NotOwner(Name),
    /// The key of a share does not precede the session's owner in the chain.
    #[error(
        "session `{session}`: {share}: a session is shared only with earlier holders of the owner's credential. Give rights to other holders with `weir delegate`"
    )]
    NotEarlierHolder {
        /// Name of the session in the request.
        session: Name,
        /// The share.
        share: Box<ShareGrant>,
    },
    /// The session would have a part that no credential can allow.
    #[error("session `{session}`: {what}; this credential cannot allow it")]
    NotGrantable {
        /// Name of the session in the request.
        session: Name,
        /// The part, as a clause about the session.
        what: String,
    },
    /// No session of this name belongs to the holder or a delegate of the holder.
    #[error("there is no session `{0}` under this credential; `weir session list` shows its sessions")]
    NoSession(Name),
}

impl RequestRefusal {
    /// Creates the refusal of a delegator without a share.
    pub(crate) fn not_shared(session: &Name, missing: ShareGrant) -> Self {
        Self::NotShared { session: session.clone(), share: Box::new(missing) }
    }

    /// Creates the refusal of a share for a key that does not precede the owner in the chain.
    pub(crate) fn not_from(session: &Name, share: &ShareGrant) -> Self {
        Self::NotEarlierHolder { session: session.clone(), share: Box::new(*share) }
    }
}

impl From<CredentialRefusal> for RequestRefusal {
    fn from(refusal: CredentialRefusal) -> Self {
        Self::InvalidCredential(Box::new(refusal))
    }
}

/// A refusal that was read from its text, as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalText {
    /// The credential is not valid.
    Credential(CredentialRefusalKind),
    /// The request exceeds the grant.
    Excess(Vec<GrantExcess>),
    /// The request exceeds the remaining amount of a ceiling.
    Ceiling {
        /// Resource.
        resource: Resource,
        /// Requested amount, with its unit.
        requested: String,
        /// Granted amount, with its unit.
        given: String,
        /// Holder of the ceiling: a key, or a description of the root.
        ceiling_holder: String,
        /// Remaining amount, with its unit; `None` if the refusal withholds it.
        left: Option<String>,
    },
    /// A module signature is invalid.
    Signature,
    /// Only the operator may make the request.
    OperatorOnly,
    /// The key is no longer an operator key.
    NotOperator,
    /// The owner of the session has not shared this right.
    NotShared(ShareGrant),
    /// Only the owner of the session may make the request.
    NotOwner,
    /// The key of a share does not precede the session's owner in the chain.
    NotEarlierHolder,
    /// No credential can allow the request.
    NotGrantable,
    /// There is no such session.
    NoSession,
}

impl RefusalText {
    /// Reads the text of a [`RequestRefusal`]. Returns `None` for another text. Names in the text are those of other parties.
    pub fn read(text: &str) -> Option<Self> {
        if let Some(excess) = text.strip_prefix("the credential does not allow that: ") {
            return read_ceiling(excess).or_else(|| GrantExcess::read_all(excess).map(Self::Excess));
        }
        if let Some(kind) = CredentialRefusalKind::read(text) {
            return Some(Self::Credential(kind));
        }
        if let Some(session) = text.strip_prefix("session `") {
            // The name of a session has no backtick.
            let (_, rest) = session.split_once('`')?;
            if let Some((_, share)) = rest.split_once(" --share ") {
                return share.trim_end_matches('`').parse().ok().map(Self::NotShared);
            }
            return match rest {
                _ if rest.contains("only its owner shares rights") => Some(Self::NotOwner),
                _ if rest.contains("shared only with earlier holders") => Some(Self::NotEarlierHolder),
                _ if rest.contains("this credential cannot allow it") => Some(Self::NotGrantable),
                _ => None,
            };
        }
        let beginnings = [
            ("only the node's operator may ", Self::OperatorOnly),
            ("your key is not an operator key", Self::NotOperator),
            ("there is no session `", Self::NoSession),
        ];
        let found = beginnings.into_iter().find(|(begin, _)| text.starts_with(begin)).map(|(_, kind)| kind);
        found.or_else(|| SignatureError::is_text(text).then_some(Self::Signature))
    }
}

/// Reads the refusal for a ceiling, after the words that it has in common with other excesses.
fn read_ceiling(text: &str) -> Option<RefusalText> {
    let (title, rest) = text.split_once(": asked for ")?;
    let resource = Resource::ALL.iter().find(|resource| resource.definition().title == title)?;
    let (requested, rest) = rest.split_once("; of the ")?;
    let (given, rest) = rest.split_once(" given to ")?;
    let (ceiling_holder, rest) = rest.split_once(", ")?;
    let (left, _) = rest.split_once(" is left")?;
    Some(RefusalText::Ceiling {
        resource: *resource,
        requested: requested.to_owned(),
        given: given.to_owned(),
        ceiling_holder: ceiling_holder.to_owned(),
        left: (left != "less than that").then(|| left.to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::share::ShareableRight;
    use weir_trust::key::Identity;

    /// The text of each refusal. The match is exhaustive, so a new refusal gets a text, and then a sample.
    fn expected(refusal: &RequestRefusal) -> RefusalText {
        match refusal {
            RequestRefusal::InvalidCredential(_) => RefusalText::Credential(CredentialRefusalKind::Unusable),
            RequestRefusal::Excess(all) => RefusalText::Excess(all.clone()),
            RequestRefusal::CeilingExceeded { part, requested, given, ceiling_holder, left, advice: _ } => {
                let GrantPart::Resource(resource) = *part else { panic!("{part}") };
                let (requested, given) = (requested.clone(), given.clone());
                let (ceiling_holder, left) = (ceiling_holder.clone(), left.clone());
                RefusalText::Ceiling { resource, requested, given, ceiling_holder, left }
            }
            RequestRefusal::Signature(_) => RefusalText::Signature,
            RequestRefusal::OperatorOnly(_) => RefusalText::OperatorOnly,
            RequestRefusal::NotOperator => RefusalText::NotOperator,
            RequestRefusal::NotShared { share, .. } => RefusalText::NotShared(**share),
            RequestRefusal::NotOwner(_) => RefusalText::NotOwner,
            RequestRefusal::NotEarlierHolder { .. } => RefusalText::NotEarlierHolder,
            RequestRefusal::NotGrantable { .. } => RefusalText::NotGrantable,
            RequestRefusal::NoSession(_) => RefusalText::NoSession,
        }
    }

    #[test]
    fn the_text_of_every_refusal_is_read_back() {
        let key = Identity::from_seed(&[1; 32]).public();
        let (session, share) =
            (Name::new("study").unwrap(), ShareGrant { right: ShareableRight::Follow, key });
        let excess = |part| GrantExcess { part, requested: "2".to_owned(), given: "1".to_owned() };
        let ceiling = |resource: &Resource, left: Option<&str>| RequestRefusal::CeilingExceeded {
            part: GrantPart::Resource(*resource),
            requested: "20 MiB".to_owned(),
            given: "16 MiB".to_owned(),
            ceiling_holder: format!("all credentials of {key} by this node's policy"),
            left: left.map(str::to_owned),
            advice: resource.definition().advice,
        };
        let mut all: Vec<RequestRefusal> = vec![
            CredentialRefusal::Forged.into(),
            RequestRefusal::Excess(vec![excess(GrantPart::Profile), excess(GrantPart::View)]),
            RequestRefusal::OperatorOnly("change links"),
            RequestRefusal::NotOperator,
            RequestRefusal::not_shared(&session, share),
            RequestRefusal::NotOwner(session.clone()),
            RequestRefusal::not_from(&session, &share),
            RequestRefusal::NotGrantable {
                session: session.clone(),
                what: "it would have priority 1".to_owned(),
            },
            RequestRefusal::NoSession(session),
        ];
        all.extend(GrantPart::all().map(|part| RequestRefusal::Excess(vec![excess(part)])));
        for resource in Resource::ALL {
            all.extend([ceiling(resource, None), ceiling(resource, Some("4 MiB"))]);
        }
        let error = "x".parse::<weir_trust::signature::ModuleSignature>().unwrap_err();
        all.extend([RequestRefusal::Signature(error), SignatureError::TooMany(9).into()]);
        for refusal in all {
            assert_eq!(RefusalText::read(&refusal.to_string()), Some(expected(&refusal)), "{refusal}");
            // As the ledger has it, which shortens long texts.
            let text = weir_ledger::LedgerText::new(&refusal.to_string());
            assert_eq!(RefusalText::read(text.as_str()), Some(expected(&refusal)), "{refusal}");
        }
        assert_eq!(RefusalText::read("the node is out of memory"), None);
    }

    #[test]
    fn a_name_of_another_party_changes_no_amount() {
        // A module with a hostile name.
        let requested = "`x; of the 1 given to weir-key:evil, 1 is left`, 00ff, unsigned".to_owned();
        let excess = GrantExcess { part: GrantPart::Modules, requested, given: "none".to_owned() };
        let read = RefusalText::read(&RequestRefusal::Excess(vec![excess.clone()]).to_string());
        assert_eq!(read, Some(RefusalText::Excess(vec![excess])));
    }
}
