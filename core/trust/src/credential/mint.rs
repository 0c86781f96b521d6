//! Creation of credentials.

use super::template::Contents;
use super::{BLOCKS_MAX, Credential, CredentialRefusal};
use crate::grant::{Grant, GrantError, UnixSecond};
use crate::key::{Identity, PublicKey};
use biscuit_auth::builder::{Algorithm, BlockBuilder};
use biscuit_auth::datalog::SymbolTable;
use biscuit_auth::{BiscuitBuilder, KeyPair, PrivateKey, UnverifiedBiscuit};
use rand_core::{CryptoRng, RngCore};

/// The reason why a credential could not be made: an error of the issuer, or of the library ([`MintError::Token`]).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// A grant that no block can have.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// A root grant without an expiry time.
    #[error(
        "an operator's grant needs an expiry time: without it nodes could never forget a revocation of the grant"
    )]
    Endless,
    /// The credential belongs to another holder.
    #[error("only {holder}, the holder of the credential, can pass it on; this key is {key}")]
    NotHolder {
        /// The holder.
        holder: PublicKey,
        /// The key that tried to delegate.
        key: PublicKey,
    },
    /// The credential to be delegated, or the result, would be refused by every node.
    #[error("every node would refuse the credential: {0}")]
    Refused(#[from] CredentialRefusal),
    /// The Biscuit library failed.
    #[error("the token could not be made")]
    Token,
}

impl Credential {
    /// Makes a root credential: `root` gives `grant` to `holder`, at the time `issued`. A credential without this time
    /// is revoked by every `all-before` in a revocation list of the root. `random` makes the ephemeral key that keeps
    /// others from removing blocks.
    ///
    /// # Errors
    /// Fails for a grant that no block can have, for a grant without an expiry time, and if the credential would be too
    /// long.
    pub fn mint(
        root: &Identity,
        holder: PublicKey,
        grant: Grant,
        issued: Option<UnixSecond>,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Self, MintError> {
        grant.check()?;
        if grant.expires.is_none() {
            return Err(MintError::Endless);
        }
        let contents = Contents { root: Some(root.public()), holder, issued, grant };
        let next = KeyPair::new_with_rng(Algorithm::Ed25519, random);
        let token = BiscuitBuilder::new()
            .merge(block(&contents))
            .build_with_key_pair(&KeyPair::from(&private(root)?), SymbolTable::new(), &next)
            .and_then(|token| token.to_vec())
            .map_err(|_| MintError::Token)?;
        Ok(Self::parse(&token)?)
    }

    /// Delegates `grant` from `holder` to `next`, at the time `issued`: returns a credential with one more block. For
    /// `issued` and `random` see [`Credential::mint`].
    ///
    /// # Errors
    /// Fails if `holder` is not the holder of the credential, if a signature is not valid, if the credential cannot be
    /// delegated further, and if the grant is more than the holder's.
    pub fn delegate(
        &self,
        holder: &Identity,
        next: PublicKey,
        grant: Grant,
        issued: Option<UnixSecond>,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Self, MintError> {
        grant.check()?;
        if holder.public() != *self.claimed_holder() {
            return Err(MintError::NotHolder { holder: *self.claimed_holder(), key: holder.public() });
        }
        if self.blocks.len() >= BLOCKS_MAX {
            return Err(CredentialRefusal::Blocks(self.blocks.len() + 1).into());
        }
        self.check_signatures()?;
        let contents = Contents { root: None, holder: next, issued, grant };
        let key = KeyPair::new_with_rng(Algorithm::Ed25519, random);
        let append = || {
            let token = UnverifiedBiscuit::from(&self.bytes)?;
            let request = token.third_party_request()?;
            let signed = request.create_block(&private(holder)?, block(&contents))?.serialize()?;
            token.append_third_party_with_keypair(&signed, key)?.to_vec()
        };
        let delegated = Self::parse(&append().map_err(|_: biscuit_auth::error::Token| MintError::Token)?)?;
        // Only the checks count here: that `next` is new in the chain, that the holder may delegate, and that `grant` is not
        // more than the holder's.
        delegated.checked_meet()?;
        Ok(delegated)
    }
}

fn block(contents: &Contents) -> BlockBuilder {
    BlockBuilder { facts: contents.facts(), ..BlockBuilder::default() }
}

fn private(identity: &Identity) -> Result<PrivateKey, biscuit_auth::error::Format> {
    PrivateKey::from_bytes(identity.seed().as_slice(), Algorithm::Ed25519)
}

impl From<biscuit_auth::error::Format> for MintError {
    fn from(_: biscuit_auth::error::Format) -> Self {
        Self::Token
    }
}
