//! Parsing of credentials; no signature is verified here.

use super::template::Contents;
use super::{
    BLOCKS_MAX, BlockError, CREDENTIAL_BYTES_MAX, ChainBlock, Credential, CredentialRefusal, DelegationId,
};
use crate::key::PublicKey;
use biscuit_auth::format::schema::proof;
use biscuit_auth::format::schema::public_key::Algorithm;
use biscuit_auth::format::schema::{Biscuit, Block, SignedBlock};
use prost::Message;

impl Credential {
    /// Parses the bytes of a token, and checks that it has the shape of a credential. The time is bounded by the number
    /// of bytes. [`Credential::verify`] then checks the signatures and the statements.
    ///
    /// # Errors
    /// Fails with a [`CredentialRefusal`] that depends on the bytes only, and neither on trusted keys nor on the time.
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
            // The decoder treats a missing part as empty. A token always has a proof.
            None => return Err(CredentialRefusal::NotAToken),
        }
        // Refuses parts that the decoder skips, such as fields of later versions, and other encodings of the token.
        if token.root_key_id.is_some() || token.encode_to_vec() != bytes {
            return Err(CredentialRefusal::Form);
        }
        let mut root = None;
        let mut blocks: Vec<ChainBlock> = Vec::with_capacity(count);
        for (block, signed) in std::iter::once(&token.authority).chain(&token.blocks).enumerate() {
            let signer = signer(block, signed)?;
            let contents = read_contents(&signed.block, block == 0)
                .map_err(|error| CredentialRefusal::Block { block, error })?;
            let signature = match (blocks.last(), signer) {
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
            let id = DelegationId::of_block(blocks.last().map(|before| before.id), signature);
            let Contents { holder, issued, grant, .. } = contents;
            blocks.push(ChainBlock { holder, issued, grant, id });
        }
        let root = root.ok_or(CredentialRefusal::Block { block: 0, error: BlockError::Missing("root") })?;
        Ok(Self { bytes: bytes.to_vec(), root, blocks })
    }
}

/// Returns the signer and the signature of a third-party block; `None` for other blocks.
fn signer(block: usize, signed: &SignedBlock) -> Result<Option<(PublicKey, &Vec<u8>)>, CredentialRefusal> {
    let wrong_algorithm = CredentialRefusal::Algorithm { block };
    let is_ed25519 = |algorithm: i32| algorithm == Algorithm::Ed25519 as i32;
    if !is_ed25519(signed.next_key.algorithm) {
        return Err(wrong_algorithm);
    }
    let Some(external) = &signed.external_signature else { return Ok(None) };
    if !is_ed25519(external.public_key.algorithm) {
        return Err(wrong_algorithm);
    }
    let key =
        external.public_key.key.as_slice().try_into().ok().and_then(|key| PublicKey::from_bytes(key).ok());
    Ok(Some((key.ok_or(wrong_algorithm)?, &external.signature)))
}

fn read_contents(bytes: &[u8], is_authority: bool) -> Result<Contents, BlockError> {
    let block = Block::decode(bytes).map_err(|_| BlockError::NotABlock)?;
    if block.encode_to_vec() != bytes {
        return Err(BlockError::Form);
    }
    Contents::read(&block, is_authority)
}
