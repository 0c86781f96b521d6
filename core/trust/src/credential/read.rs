//! From bytes to a credential, as far as that goes without a key.

use super::template::Contents;
use super::{
    BLOCKS_MAX, BlockError, CREDENTIAL_BYTES_MAX, ChainBlock, Credential, CredentialRefusal, PrefixId,
};
use crate::key::PublicKey;
use biscuit_auth::format::schema::proof;
use biscuit_auth::format::schema::public_key::Algorithm;
use biscuit_auth::format::schema::{Biscuit, Block, SignedBlock};
use prost::Message;

impl Credential {
    /// Reads a token's bytes and checks that it is of a credential's shape: nothing more than a bounded walk over them. Nothing that it says is true because
    /// of that; [`Credential::verify`] is next.
    ///
    /// # Errors
    /// Those [`CredentialRefusal`]s that need neither a key nor a time.
    pub fn parse(bytes: &[u8]) -> Result<Self, CredentialRefusal> {
        if bytes.len() > CREDENTIAL_BYTES_MAX {
            return Err(CredentialRefusal::TooLong(bytes.len()));
        }
        let token = Biscuit::decode(bytes).map_err(|_| CredentialRefusal::NotAToken)?;
        let count = 1 + token.blocks.len();
        if count > BLOCKS_MAX {
            return Err(CredentialRefusal::Blocks(count));
        }
        match token.proof.content {
            Some(proof::Content::NextSecret(_)) => {}
            Some(proof::Content::FinalSignature(_)) => return Err(CredentialRefusal::Sealed),
            // A required part that is missing is an empty one to the decoder; this one nothing is without.
            None => return Err(CredentialRefusal::NotAToken),
        }
        // What a decoder passes over, such as fields of later versions, and a second way to write the same.
        if token.root_key_id.is_some() || token.encode_to_vec() != bytes {
            return Err(CredentialRefusal::Form);
        }
        let mut root = None;
        let mut links: Vec<ChainBlock> = Vec::with_capacity(count);
        for (block, signed) in std::iter::once(&token.authority).chain(&token.blocks).enumerate() {
            let signer = signer(block, signed)?;
            let contents = contents(&signed.block, block == 0)
                .map_err(|error| CredentialRefusal::Block { block, error })?;
            let signature = match (links.last(), signer) {
                (None, None) => &signed.signature,
                (Some(before), Some((signer, signature))) => {
                    if signer != before.holder {
                        return Err(CredentialRefusal::Signer { block, signer, holder: before.holder });
                    }
                    signature
                }
                (None, Some(_)) => return Err(CredentialRefusal::Form),
                (Some(_), None) => return Err(CredentialRefusal::FirstParty { block }),
            };
            root = root.or(contents.root);
            let id = PrefixId::after(links.last().map(|before| before.id), signature);
            let Contents { holder, issued, grant, .. } = contents;
            links.push(ChainBlock { holder, issued, grant, id });
        }
        let root = root.ok_or(CredentialRefusal::Block { block: 0, error: BlockError::Missing("root") })?;
        Ok(Self { bytes: bytes.to_vec(), root, links })
    }
}

/// Who has signed a third-party block, and how; nothing for others.
fn signer(block: usize, signed: &SignedBlock) -> Result<Option<(PublicKey, &Vec<u8>)>, CredentialRefusal> {
    let other = CredentialRefusal::Algorithm { block };
    let is_ed25519 = |algorithm: i32| algorithm == Algorithm::Ed25519 as i32;
    if !is_ed25519(signed.next_key.algorithm) {
        return Err(other);
    }
    let Some(external) = &signed.external_signature else { return Ok(None) };
    if !is_ed25519(external.public_key.algorithm) {
        return Err(other);
    }
    let key =
        external.public_key.key.as_slice().try_into().ok().and_then(|key| PublicKey::from_bytes(key).ok());
    Ok(Some((key.ok_or(other)?, &external.signature)))
}

fn contents(bytes: &[u8], is_authority: bool) -> Result<Contents, BlockError> {
    let block = Block::decode(bytes).map_err(|_| BlockError::NotABlock)?;
    if block.encode_to_vec() != bytes {
        return Err(BlockError::Form);
    }
    Contents::read(&block, is_authority)
}
