//! Why a request is not permitted.

use crate::control::share::ShareGrant;
use weir_admission::Name;
use weir_trust::credential::CredentialRefusal as Worthless;
use weir_trust::grant::{GrantExcess, GrantPart};
use weir_trust::signature::SignatureError;

/// Why a request is not permitted. To blame is whoever asks; what to do is to ask for less, or to ask whoever granted the credential for more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    /// The credential is not worth anything, or not any more.
    #[error(transparent)]
    Worthless(Box<Worthless>),
    /// More than it allows.
    #[error("the credential does not allow that: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Excess(Vec<GrantExcess>),
    /// More than is left for one of those through whom the right came.
    #[error(
        "the credential does not allow that: {part}: asked for {asked}; of the {given} given to {whose}, {} is left. Close another session, or {less}",
        left.as_deref().unwrap_or("less than that")
    )]
    UsedUp {
        /// Of what.
        part: GrantPart,
        /// So much more is asked for,
        asked: String,
        /// where so much is given,
        given: String,
        /// to whom,
        whose: String,
        /// and so much is left. Nothing is said of it where others have a part of it of whom the session's owner knows nothing.
        left: Option<String>,
        /// How to ask for less.
        less: &'static str,
    },
    /// A signature of a module that is none.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// What only the operator may do.
    #[error("only the node's operator may {0}")]
    Operator(&'static str),
    /// Somebody's key is not the operator's any more.
    #[error("your key is none of the node's operators any more")]
    NoOperator,
    /// A delegator without a right that the owner of the session has to give.
    #[error(
        "session `{session}` belongs to a holder who has their credential from you: you may close it and read its sums. For more its owner has to share it with you: `weir session change NAME --share {share}`"
    )]
    NotShared {
        /// The session, as it was called.
        session: Name,
        /// The share that is missing.
        share: Box<ShareGrant>,
    },
    /// A delegator's request to share a session of another holder.
    #[error(
        "session `{0}` belongs to a holder who has their credential from you: only its owner shares rights over it"
    )]
    NotOwner(Name),
    /// A share for a key from which the session's owner has nothing.
    #[error(
        "session `{session}`: {share}: a session is shared only with those from whom its owner has the credential. Give rights to others with `weir delegate`"
    )]
    NotFrom {
        /// The session, as it was called.
        session: Name,
        /// The share.
        share: Box<ShareGrant>,
    },
    /// What a credential cannot allow.
    #[error("session `{session}`: {what}; no credential allows that")]
    Never {
        /// The session, as it was called.
        session: Name,
        /// What was asked for.
        what: String,
    },
    /// No session of the asker's.
    #[error(
        "there is no session `{0}` that the credential has to do with; `weir session list` shows those that there are"
    )]
    NoSession(Name),
}

impl RequestRefusal {
    /// The refusal of a delegator with whom a right is not shared.
    pub(crate) fn not_shared(session: &Name, missing: ShareGrant) -> Self {
        Self::NotShared { session: session.clone(), share: Box::new(missing) }
    }

    /// The refusal of a share for a key from which the owner of a session has nothing.
    pub(crate) fn not_from(session: &Name, share: &ShareGrant) -> Self {
        Self::NotFrom { session: session.clone(), share: Box::new(*share) }
    }
}

impl From<Worthless> for RequestRefusal {
    fn from(refusal: Worthless) -> Self {
        Self::Worthless(Box::new(refusal))
    }
}
