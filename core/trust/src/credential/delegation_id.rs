//! Identifiers of delegations, and names of the resources that a holder creates under a delegation chain.

use crate::base32;
use crate::key::PublicKey;
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use weir_units::Name;

const BYTES: usize = 20;
const TEXT_PREFIX: &str = "weir-id:";
const TEXT_CHARACTERS: usize = BYTES * 8 / 5;

/// The identifier of a delegation: of one block of a chain with all blocks before it. Sessions are charged to the
/// identifiers of their chain. Revoking an identifier revokes its block and all blocks that follow. Its text is
/// `weir-id:` and 32 letters and digits.
///
/// The identifier is a hash of the signatures of these blocks: the root's signature of the first block, and the
/// external signatures of the other blocks. Biscuit's own revocation identifiers are the signatures by the token's
/// ephemeral keys, which cannot be used here: a party that has the token as it was before a block was appended (its
/// holder, or a node that received it) also has the ephemeral key, and can append the same block again under another
/// identifier. No other party can make a holder's signature, and Ed25519 signatures are deterministic. So a holder can
/// neither evade a revocation nor split an account.
///
/// A block contains its signing time, in seconds. So two delegations of the same grant to the same key have the same
/// signature and the same identifier only if they are signed within one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DelegationId([u8; BYTES]);

/// The error for a text that is not an identifier; holds its first 80 characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no identifier: write `weir-id:` and the 32 letters and digits that `weir credential show` prints", .0.escape_debug())]
pub struct DelegationIdError(String);

impl DelegationId {
    /// Returns the identifier of a block with this signature. `before` is the identifier of the block before it; `None`
    /// for the authority, the first block.
    pub(super) fn of_block(before: Option<Self>, signature: &[u8]) -> Self {
        let mut hash = Sha256::new().chain_update(b"weir credential prefix 1\0");
        if let Some(Self(before)) = before {
            // The input for the authority has no identifier, so it is shorter than the input for any other block.
            hash.update(before);
        }
        Self(truncated(&hash.chain_update(signature).finalize().into()))
    }

    /// Returns the identifier of a root, for accounts that all its credentials share. No credential has this
    /// identifier.
    pub fn of_root(root: &PublicKey) -> Self {
        let hash = Sha256::new().chain_update(b"weir credential root 1\0").chain_update(root.as_bytes());
        Self(truncated(&hash.finalize().into()))
    }

    /// Returns the identifier by which a compiler's key is revoked. No credential has this identifier.
    pub fn of_compiler(key: &PublicKey) -> Self {
        let hash = Sha256::new().chain_update(b"weir compiler key 1\0").chain_update(key.as_bytes());
        Self(truncated(&hash.finalize().into()))
    }

    /// Returns the 20 bytes.
    pub fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

fn truncated(hash: &[u8; 32]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(&hash[..BYTES]);
    bytes
}

impl fmt::Display for DelegationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TEXT_PREFIX}{}", base32::encode(&self.0))
    }
}

impl FromStr for DelegationId {
    type Err = DelegationIdError;

    fn from_str(text: &str) -> Result<Self, DelegationIdError> {
        let digits = text.trim().strip_prefix(TEXT_PREFIX).filter(|digits| digits.len() == TEXT_CHARACTERS);
        let bytes = digits.and_then(base32::decode).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| DelegationIdError(text.chars().take(80).collect()))
    }
}

/// Returns the node's name for a session, a table or another resource that a holder created under a chain with the name
/// `chosen` (dynamic resource naming, as in SANE). The result begins with `chosen`, cut to fit, and ends in 160 bits of
/// a hash of chain, holder and `chosen`. So resources of two holders or of two chains never have the same name, and a
/// name cannot be forged. The same three values always give the same name.
pub fn resource_name(chain: DelegationId, holder: &PublicKey, chosen: &Name) -> Name {
    let chosen = chosen.as_str();
    let hash: [u8; 32] = Sha256::new()
        .chain_update(b"weir resource name 1\0")
        .chain_update(chain.0)
        .chain_update(holder.as_bytes())
        .chain_update(chosen)
        .finalize()
        .into();
    let digits = base32::encode(&truncated(&hash));
    let beginning: String = chosen.chars().take(Name::MAX - digits.len() - 1).collect();
    // The beginning of a name, `-`, lower-case letters and digits are a legal name of at most 48 characters.
    Name::new(&format!("{beginning}-{digits}"))
        .unwrap_or_else(|_| unreachable!("the beginning of a legal name, `-` and base 32 are a legal name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Identity;
    use std::collections::BTreeSet;

    #[test]
    fn identifiers_are_written_and_read_again() {
        let id = DelegationId::of_block(None, b"signature");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_ne!(DelegationId::of_block(Some(id), b"signature"), id);
        for wrong in
            ["", "weir-id:", &id.to_string()[1..], &id.to_string()[..39], &format!("{id}a"), "weir-id:é"]
        {
            assert!(wrong.parse::<DelegationId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn resources_of_different_makers_have_different_names() {
        let name = |text: &str| Name::new(text).unwrap();
        let (a, b) = (DelegationId::of_block(None, b"a"), DelegationId::of_block(None, b"b"));
        let (me, you) = (Identity::from_seed(&[1; 32]).public(), Identity::from_seed(&[2; 32]).public());
        // Long names that differ only where they are cut, and one that equals another's whole name.
        let long = "x".repeat(48);
        let mine = resource_name(a, &me, &name("rtt"));
        let given = [name("rtt"), name("rt"), name(&long), name(&long[1..]), mine.clone()];
        let mut names = BTreeSet::new();
        for chain in [a, b] {
            for holder in [me, you] {
                names.extend(given.iter().map(|given| resource_name(chain, &holder, given)));
            }
        }
        assert_eq!(names.len(), 2 * 2 * given.len());
        assert_eq!(resource_name(a, &me, &name("rtt")), mine);
        assert!(mine.as_str().starts_with("rtt-") && mine.as_str().len() == 36, "{mine}");
        assert_eq!(resource_name(a, &me, &name(&long)).as_str().len(), Name::MAX);
    }
}
