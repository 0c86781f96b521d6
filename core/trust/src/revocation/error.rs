//! Reasons for refusing a revocation list.

use super::list::{FIRST_LINE, LIST_BYTES_MAX};
use super::{DELEGATED_ENTRIES_MAX, LIST_IDS_MAX, ROOT_ENTRIES_MAX};
use crate::credential::DelegationId;
use crate::key::PublicKey;

/// The reason for refusing a list, or a part of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevocationError {
    /// A list longer than [`LIST_BYTES_MAX`].
    #[error("the revocation list has {0} bytes; {LIST_BYTES_MAX} is the most")]
    TooLong(usize),
    /// A list with more entries than [`LIST_IDS_MAX`].
    #[error(
        "the revocation list has {0} entries; {LIST_IDS_MAX} is the most. Revoke a credential earlier in the chain, or everything before a time with --all-before"
    )]
    TooMany(usize),
    /// A text that is not a revocation list, or one of a later version.
    #[error("this is no revocation list: one begins with `{FIRST_LINE}`")]
    NotAList,
    /// A line with an illegal content.
    #[error("line {line} of the revocation list should be {wanted}")]
    Line {
        /// The line, from 1.
        line: usize,
        /// The legal content.
        wanted: &'static str,
    },
    /// A signature that is not valid.
    #[error("the revocation list is forged or damaged: it was not signed by {0}")]
    Forged(PublicKey),
    /// A body that does not have the length and hash in the signed header.
    #[error("the revocation list is cut off or damaged: its header, signed by {0}, is of another body")]
    Body(PublicKey),
    /// A list of a root that the node does not trust.
    #[error("the revocation list is of {0}, which is no root of trust here")]
    UnknownRoot(PublicKey),
    /// A delegator's list from a peer that has not proven the delegator's right to revoke.
    #[error(
        "the revocation list is of {signer}, for credentials delegated from {own_block}: the signer has to deliver it, with its own --key and --credential"
    )]
    UnprovenRight {
        /// The signer.
        signer: PublicKey,
        /// The block beneath which the list revokes.
        own_block: DelegationId,
    },
    /// A key that is not the key of the list's signer.
    #[error("the revocation list is of {signer}, and the key is {key}: name the file of that key")]
    OtherSigner {
        /// The list's signer.
        signer: PublicKey,
        /// The key that was to sign.
        key: PublicKey,
    },
    /// No room for some entries of a root's list.
    #[error(
        "{left_out} entries of the revocation list found no room, as the node keeps {ROOT_ENTRIES_MAX} for this root: revoke everything before a time with `weir credential revoke --all-before TIME`, or wait until entries expire, and deliver the list again"
    )]
    Full {
        /// The number of entries that were left out.
        left_out: usize,
    },
    /// No room for some entries of a delegator's list.
    #[error(
        "{left_out} entries of the revocation list found no room in its signer's share of the {DELEGATED_ENTRIES_MAX} that the node keeps for delegators of this root: revoke a credential earlier in the chain, or ask the operator to revoke them"
    )]
    ShareFull {
        /// The number of entries that were left out.
        left_out: usize,
    },
}

impl RevocationError {
    /// The names of the counters of refused lists.
    pub const COUNTERS: [&str; 6] =
        ["malformed", "forged", "unknown-signer", "not-shown", "full", "share-full"];

    /// Returns the counter that counts this refusal.
    pub fn counter(&self) -> &'static str {
        match self {
            Self::TooLong(_) | Self::TooMany(_) | Self::NotAList | Self::Line { .. } => "malformed",
            Self::Forged(_) | Self::Body(_) => "forged",
            Self::UnknownRoot(_) => "unknown-signer",
            Self::UnprovenRight { .. } | Self::OtherSigner { .. } => "not-shown",
            Self::Full { .. } => "full",
            Self::ShareFull { .. } => "share-full",
        }
    }
}
