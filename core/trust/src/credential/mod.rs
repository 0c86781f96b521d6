//! Credentials: chains of grants, each signed by the holder of the one before it.
//!
//! A credential is a Biscuit token (<https://doc.biscuitsec.org/reference/specifications>) of at most [`BLOCKS_MAX`] blocks and [`CREDENTIAL_BYTES_MAX`] bytes. The first
//! block, the *authority*, is signed by an operator's root key and names that key, a grant and the key of its first holder. Each further one is a third-party block
//! that the holder of the block before it has signed, and names a grant and the next holder. The last holder is the credential's: a credential is of no use to whoever cannot
//! prove to be him, so it need not be kept secret.
//!
//! - [`Credential::mint`] and [`Credential::delegate`] make one; neither asks anybody.
//! - [`Credential::parse`] reads one: a bounded number of bytes against fixed templates (`template.rs`). Nothing in a token is evaluated, and what is not of one of
//!   those shapes is refused: rules, checks, scopes, unknown or doubled facts, first-party blocks, other algorithms, other versions.
//! - [`Credential::verify`] says what it is worth to a peer, at a node, at a time; or gives the [`CredentialRefusal`].
//!
//! A block that asks for more than the one before it gives is refused, not cut down to it: whoever delegates should learn that nobody gets what he wrote, and
//! whoever holds the credential should be able to go by its last block. What counts is the [meet](crate::grant::Grant::meet) of all blocks all the same.

mod dated;
mod mint;
mod prefix;
mod read;
mod refusal;
mod template;
mod verify;

pub use dated::{DatedId, DatedIdError};
pub use mint::MintError;
pub use prefix::{PrefixId, PrefixIdError, resource_name};
pub use refusal::{BlockError, CredentialRefusal};
pub use verify::{ChainBlock, Situation, VerifiedCredential};

use crate::base32;
use crate::grant::Grant;
use crate::key::PublicKey;
use std::fmt;
use std::str::FromStr;

/// The longest credential, in bytes: as much as a handshake carries.
pub const CREDENTIAL_BYTES_MAX: usize = 16 << 10;
/// The most blocks of a credential: an operator, and seven who pass it on.
pub const BLOCKS_MAX: usize = 8;

const PREFIX: &str = "weir-credential:";

/// A credential as it was read: of the right shape, but nothing in it has been verified. As text it is `weir-credential:` and letters and digits.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    bytes: Vec<u8>,
    root: PublicKey,
    links: Vec<ChainBlock>,
}

impl Credential {
    /// Its bytes, which [`Credential::parse`] reads.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The root key by which it says that it was signed. Only [`Credential::verify`] shows whether it was.
    pub fn claimed_root(&self) -> &PublicKey {
        &self.root
    }

    /// What it says of its chain, from the operator's block on. At least one link; only [`Credential::verify`] shows whether anybody meant it.
    pub fn claimed_links(&self) -> &[ChainBlock] {
        &self.links
    }

    /// Whom it says that it is for: the holder of its last block.
    pub fn claimed_holder(&self) -> &PublicKey {
        self.links.last().map_or(&self.root, |link| &link.holder)
    }

    /// The grant that all blocks together claim. Only [`Credential::verify`] shows that their holders signed them.
    ///
    /// # Errors
    /// [`CredentialRefusal::Circular`], [`CredentialRefusal::OverDelegated`], [`CredentialRefusal::Widened`].
    pub fn claimed_grant(&self) -> Result<Grant, CredentialRefusal> {
        self.joined()
    }

    /// What all blocks together say, or what is wrong with how they follow one another: who holds them, how often, and how much each asks for.
    ///
    /// # Errors
    /// [`CredentialRefusal::Circular`], [`CredentialRefusal::OverDelegated`], [`CredentialRefusal::Widened`].
    fn joined(&self) -> Result<Grant, CredentialRefusal> {
        let mut effective: Option<Grant> = None;
        for (block, link) in self.links.iter().enumerate() {
            let before = self.links.iter().take(block);
            let is_root_again = block > 0 && link.holder == self.root;
            if is_root_again || before.into_iter().any(|before| before.holder == link.holder) {
                return Err(CredentialRefusal::Circular { block, holder: link.holder });
            }
            let joined = match &effective {
                None => link.grant.clone(),
                Some(given) => {
                    let given = given.passed_on().ok_or(CredentialRefusal::OverDelegated { block })?;
                    if let Some(excess) = link.grant.excess(&given) {
                        return Err(CredentialRefusal::Widened { block, excess });
                    }
                    given.meet(&link.grant)
                }
            };
            effective = Some(joined);
        }
        effective.ok_or(CredentialRefusal::Blocks(0))
    }
}

impl fmt::Display for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", base32::encode(&self.bytes))
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("root", &self.root)
            .field("links", &self.links)
            .finish_non_exhaustive()
    }
}

impl FromStr for Credential {
    type Err = CredentialRefusal;

    fn from_str(text: &str) -> Result<Self, CredentialRefusal> {
        let text = text.trim().strip_prefix(PREFIX).ok_or(CredentialRefusal::Text)?;
        // Before anything is made of it.
        let bytes = text.len() / 8 * 5;
        if bytes > CREDENTIAL_BYTES_MAX {
            return Err(CredentialRefusal::TooLong(bytes));
        }
        Self::parse(&base32::decode(text).ok_or(CredentialRefusal::Text)?)
    }
}
