//! The refusal of a request for lack of a right, with the message for the requester.

use crate::control::share::ShareGrant;
use weir_admission::Name;
use weir_trust::credential::CredentialRefusal;
use weir_trust::grant::{GrantExcess, GrantPart};
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
