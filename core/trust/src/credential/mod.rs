//! Credentials: chains of grants, each signed by the holder of the grant before it.
//!
//! A credential is a Biscuit token (<https://doc.biscuitsec.org/reference/specifications>) of at most [`BLOCKS_MAX`]
//! blocks and [`CREDENTIAL_BYTES_MAX`] bytes. The first block, the *authority*, is signed by an operator's root key and
//! names that key, a grant and the key of the first holder. Each further block is a third-party block that the holder
//! of the block before it has signed, and names a grant and the next holder. The last holder is the holder of the
//! credential. A credential is useless without the holder's private key, so it need not be kept secret.
//!
//! - [`Credential::mint`] and [`Credential::delegate`] make credentials; neither needs a network.
//! - [`Credential::parse`] reads a credential: a bounded number of bytes against fixed templates (`template.rs`).
//!   Nothing in a token is evaluated. Parts that no template has are refused: rules, checks, scopes, unknown or
//!   duplicate facts, first-party blocks, other algorithms, other versions.
//! - [`Credential::verify`] returns the rights of a peer at a node at a time, or a [`CredentialRefusal`].
//!
//! A credential in which a block asks for more than the block before it gives is refused. So a delegator learns that the
//! grant has no effect, and a holder can rely on the last block. The effective rights are the
//! [meet](crate::grant::Grant::meet) of the grants of all blocks.

mod dated;
mod delegation_id;
mod mint;
mod read;
mod refusal;
mod template;
mod verify;

pub use dated::{DatedId, DatedIdError};
pub use delegation_id::{DelegationId, DelegationIdError, resource_name};
pub use mint::MintError;
pub use refusal::{BlockError, CredentialRefusal, CredentialRefusalKind};
pub use verify::{ChainBlock, VerificationContext, VerifiedCredential};

use crate::base32;
use crate::grant::Grant;
use crate::key::PublicKey;
use std::fmt;
use std::str::FromStr;

/// The longest credential, in bytes. A handshake can carry it.
pub const CREDENTIAL_BYTES_MAX: usize = 16 << 10;
/// The most blocks of a credential: an operator's, and seven delegations.
pub const BLOCKS_MAX: usize = 8;

const PREFIX: &str = "weir-credential:";

/// A credential that was parsed but not verified. Its text is `weir-credential:` and base 32.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential {
    bytes: Vec<u8>,
    root: PublicKey,
    blocks: Vec<ChainBlock>,
}

impl Credential {
    /// Returns the bytes, which [`Credential::parse`] reads.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the root key that the credential claims. Only [`Credential::verify`] checks the root's signature.
    pub fn claimed_root(&self) -> &PublicKey {
        &self.root
    }

    /// Returns the claimed chain, from the operator's block on; at least one block. Only [`Credential::verify`] checks
    /// the signatures.
    pub fn claimed_blocks(&self) -> &[ChainBlock] {
        &self.blocks
    }

    /// Returns the claimed holder: the holder of the last block.
    pub fn claimed_holder(&self) -> &PublicKey {
        self.blocks.last().map_or(&self.root, |block| &block.holder)
    }

    /// Returns the meet of the grants of all blocks. Only [`Credential::verify`] checks the signatures.
    ///
    /// # Errors
    /// [`CredentialRefusal::Circular`], [`CredentialRefusal::OverDelegated`], [`CredentialRefusal::Widened`].
    pub fn claimed_grant(&self) -> Result<Grant, CredentialRefusal> {
        self.checked_meet()
    }

    /// Returns the meet of the grants of all blocks. Checks that each block may follow the blocks before it: its holder
    /// is new, a further delegation is allowed, and its grant asks for no more than was given.
    ///
    /// # Errors
    /// [`CredentialRefusal::Circular`], [`CredentialRefusal::OverDelegated`], [`CredentialRefusal::Widened`].
    fn checked_meet(&self) -> Result<Grant, CredentialRefusal> {
        let mut effective: Option<Grant> = None;
        for (index, block) in self.blocks.iter().enumerate() {
            let mut before = self.blocks.iter().take(index);
            let is_root_again = index > 0 && block.holder == self.root;
            if is_root_again || before.any(|before| before.holder == block.holder) {
                return Err(CredentialRefusal::Circular { block: index, holder: block.holder });
            }
            let meet = match &effective {
                None => block.grant.clone(),
                Some(given) => {
                    let given = given.delegable().ok_or(CredentialRefusal::OverDelegated { block: index })?;
                    if let Some(excess) = block.grant.excess(&given) {
                        return Err(CredentialRefusal::Widened { block: index, excess });
                    }
                    given.meet(&block.grant)
                }
            };
            effective = Some(meet);
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
            .field("blocks", &self.blocks)
            .finish_non_exhaustive()
    }
}

impl FromStr for Credential {
    type Err = CredentialRefusal;

    fn from_str(text: &str) -> Result<Self, CredentialRefusal> {
        let text = text.trim().strip_prefix(PREFIX).ok_or(CredentialRefusal::Text)?;
        // The length is checked before memory is allocated.
        let bytes = text.len() / 8 * 5;
        if bytes > CREDENTIAL_BYTES_MAX {
            return Err(CredentialRefusal::TooLong(bytes));
        }
        Self::parse(&base32::decode(text).ok_or(CredentialRefusal::Text)?)
    }
}
