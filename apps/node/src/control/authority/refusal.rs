//! Refusals of requests.

use crate::control::share::ShareGrant;
use weir_admission::Name;
use weir_trust::credential::CredentialRefusal as Worthless;
use weir_trust::grant::{GrantExcess, GrantPart};
use weir_trust::signature::SignatureError;

/// The refusal of a request. The requester can ask for less, or ask the grantor of the credential for more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    /// The credential is not valid.
    #[error(transparent)]
    Worthless(Box<Worthless>),
    /// The request exceeds the grant.
    #[error("the credential does not allow that: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Excess(Vec<GrantExcess>),
    /// The request exceeds the amount that is left of a ceiling in the chain.
    #[error(
        "the credential does not allow that: {part}: asked for {asked}; of the {given} given to {whose}, {} is left. Close another session, or {less}",
        left.as_deref().unwrap_or("less than that")
    )]
    UsedUp {
        /// Resource.
        part: GrantPart,
        /// Requested amount.
        asked: String,
        /// Granted amount.
        given: String,
        /// Holder of the ceiling.
        whose: String,
        /// Amount left; `None` if other holders share it, as it would tell the session's owner what they use.
        left: Option<String>,
        /// Advice to request less.
        less: &'static str,
    },
    /// A module signature is invalid.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// Only the operator may make the request.
    #[error("only the node's operator may {0}")]
    Operator(&'static str),
    /// The key is no longer an operator key.
    #[error("your key is none of the node's operators any more")]
    NoOperator,
    /// A delegator makes a request about a delegate's session for which the session's owner has not shared the right.
    #[error(
        "session `{session}` belongs to a holder who has their credential from you: you may close it and read its sums. For more its owner has to share it with you: `weir session change NAME --share {share}`"
    )]
    NotShared {
        /// Name of the session in the request.
        session: Name,
        /// Missing share.
        share: Box<ShareGrant>,
    },
    /// A delegator tries to share a session of another holder.
    #[error(
        "session `{0}` belongs to a holder who has their credential from you: only its owner shares rights over it"
    )]
    NotOwner(Name),
    /// The key of a share does not precede the session's owner in the chain.
    #[error(
        "session `{session}`: {share}: a session is shared only with those from whom its owner has the credential. Give rights to others with `weir delegate`"
    )]
    NotFrom {
        /// Name of the session in the request.
        session: Name,
        share: Box<ShareGrant>,
    },
    /// The request includes something that no credential can allow.
    #[error("session `{session}`: {what}; no credential allows that")]
    Never {
        /// Name of the session in the request.
        session: Name,
        /// Description of the request.
        what: String,
    },
    /// No session of this name concerns the holder.
    #[error(
        "there is no session `{0}` that the credential has to do with; `weir session list` shows those that there are"
    )]
    NoSession(Name),
}

impl RequestRefusal {
    /// Creates the refusal of a delegator without a share.
    pub(crate) fn not_shared(session: &Name, missing: ShareGrant) -> Self {
        Self::NotShared { session: session.clone(), share: Box::new(missing) }
    }

    /// Creates the refusal of a share for a key that does not precede the owner in the chain.
    pub(crate) fn not_from(session: &Name, share: &ShareGrant) -> Self {
        Self::NotFrom { session: session.clone(), share: Box::new(*share) }
    }
}

impl From<Worthless> for RequestRefusal {
    fn from(refusal: Worthless) -> Self {
        Self::Worthless(Box::new(refusal))
    }
}
