//! Making credentials.

use super::template::Contents;
use super::{BLOCKS_MAX, Credential, CredentialRefusal};
use crate::grant::{Grant, GrantError, Second};
use crate::key::{Identity, PublicKey};
use biscuit_auth::builder::{Algorithm, BlockBuilder};
use biscuit_auth::datalog::SymbolTable;
use biscuit_auth::{BiscuitBuilder, KeyPair, PrivateKey, UnverifiedBiscuit};
use rand_core::{CryptoRng, RngCore};

/// Why no credential was made. To blame is whoever wanted it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// A grant that no block can have.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// It would hold for ever.
    #[error(
        "an operator's grant has to say until when it holds: what is granted for ever cannot be forgotten"
    )]
    Endless,
    /// Somebody else's.
    #[error(
        "the credential is held by {holder}, and only with that key it can be passed on; this key is {key}"
    )]
    NotHolder {
        /// Whose it is.
        holder: PublicKey,
        /// Who wanted to pass it on.
        key: PublicKey,
    },
    /// What was to be passed on, or what would have been made, would be refused everywhere.
    #[error("it would be refused: {0}")]
    Refused(#[from] CredentialRefusal),
    /// The library for tokens failed.
    #[error("the token could not be made")]
    Token,
}

impl Credential {
    /// A credential from an operator, as [`Credential::mint_at`], without the time of its signing: `all-before` in a revocation list revokes it, whatever the time.
    ///
    /// # Errors
    /// As [`Credential::mint_at`].
    pub fn mint(
        root: &Identity,
        holder: PublicKey,
        grant: Grant,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Self, MintError> {
        Self::minted(root, holder, grant, None, random)
    }

    /// A credential from an operator: `root` grants this to `holder`, at the time `issued`. `random` makes the throw-away key that keeps others from cutting blocks off.
    ///
    /// # Errors
    /// A grant that no block can have, or that does not say until when; and lists and filters that make it too long.
    pub fn mint_at(
        root: &Identity,
        holder: PublicKey,
        grant: Grant,
        issued: Second,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Self, MintError> {
        Self::minted(root, holder, grant, Some(issued), random)
    }

    fn minted(
        root: &Identity,
        holder: PublicKey,
        grant: Grant,
        issued: Option<Second>,
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

    /// A credential that is passed on, as [`Credential::delegate_at`], without the time of its signing.
    ///
    /// # Errors
    /// As [`Credential::delegate_at`].
    pub fn delegate(
        &self,
        holder: &Identity,
        next: PublicKey,
        grant: Grant,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Self, MintError> {
        self.delegated(holder, next, grant, None, random)
    }

    /// A credential for `next`, to whom its holder passes on this grant at the time `issued`. Takes no network.
    ///
    /// # Errors
    /// `holder` is not the last holder, the signatures do not hold, or the credential cannot be passed on any more. The grant is more than the holder has.
    pub fn delegate_at(
        &self,
        holder: &Identity,
        next: PublicKey,
        grant: Grant,
        issued: Second,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Self, MintError> {
        self.delegated(holder, next, grant, Some(issued), random)
    }

    fn delegated(
        &self,
        holder: &Identity,
        next: PublicKey,
        grant: Grant,
        issued: Option<Second>,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<Self, MintError> {
        grant.check()?;
        if holder.public() != *self.claimed_holder() {
            return Err(MintError::NotHolder { holder: *self.claimed_holder(), key: holder.public() });
        }
        if self.links.len() >= BLOCKS_MAX {
            return Err(CredentialRefusal::Blocks(self.links.len() + 1).into());
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
        delegated.joined()?;
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
