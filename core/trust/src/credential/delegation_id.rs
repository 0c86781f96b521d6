//! Names that come from a chain: of the chain itself, and of what was made under it.

use crate::base32;
use crate::key::PublicKey;
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use weir_units::Name;

const BYTES: usize = 20;
const TEXT_PREFIX: &str = "weir-id:";
const TEXT_CHARACTERS: usize = BYTES * 8 / 5;

/// The name of a credential's beginning up to one of its blocks, and so of that block in it: by it a session is charged, by it the block and all that follow
/// it are revoked. As text `weir-id:` and 32 letters and digits.
///
/// It is a hash of the signatures by which each holder passed the chain on: the root's for the authority, the external signatures for the others. Biscuit's own revocation
/// identifiers are the signatures by the token's throw-away keys. Those would not do: whoever has a token as it was before a block was appended to it
/// (from its holder, or from a node that he showed it to) has the throw-away key as well, and can append the same block once more with another identifier. The
/// signature of a holder nobody else can make, and nobody can make a second one of it. So a holder can neither shed a revocation nor split an account.
///
/// A holder who delegates the same grant to the same key twice within one second makes the same signature, and so the same identifier. A block has the time of its signing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PrefixId([u8; BYTES]);

/// A text that is no identifier.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no identifier: write `weir-id:` and the 32 letters and digits that `weir credential show` prints", .0.escape_debug())]
pub struct PrefixIdError(String);

impl PrefixId {
    /// Of the block that follows `before` and was passed on with this signature.
    pub(super) fn after(before: Option<Self>, signature: &[u8]) -> Self {
        let mut hash = Sha256::new().chain_update(b"weir credential prefix 1\0");
        if let Some(Self(before)) = before {
            // The authority's has nothing here; the two differ in their length.
            hash.update(before);
        }
        Self(first(&hash.chain_update(signature).finalize().into()))
    }

    /// Of a root: for what all credentials of one have in common, and none of them alone. Nobody can make a credential that has it.
    pub fn of_root(root: &PublicKey) -> Self {
        let hash = Sha256::new().chain_update(b"weir credential root 1\0").chain_update(root.as_bytes());
        Self(first(&hash.finalize().into()))
    }

    /// Its 20 bytes.
    pub fn as_bytes(&self) -> &[u8; BYTES] {
        &self.0
    }
}

fn first(hash: &[u8; 32]) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(&hash[..BYTES]);
    bytes
}

impl fmt::Display for PrefixId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TEXT_PREFIX}{}", base32::encode(&self.0))
    }
}

impl FromStr for PrefixId {
    type Err = PrefixIdError;

    fn from_str(text: &str) -> Result<Self, PrefixIdError> {
        let digits = text.trim().strip_prefix(TEXT_PREFIX).filter(|digits| digits.len() == TEXT_CHARACTERS);
        let bytes = digits.and_then(base32::decode).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| PrefixIdError(text.chars().take(80).collect()))
    }
}

/// The name by which a node knows a session, a table or another resource that the holder of a key made under a chain and called `given`: SANE's dynamic resource
/// naming. It begins with what it was called, cut to what fits, and ends in 160 bits of a hash of all three. So two makers, or two chains, never have a name in common, and
/// nobody can make a name that another one's resource has or will have; while whoever asks again under the same chain finds what he made.
pub fn resource_name(chain: PrefixId, holder: &PublicKey, given: &Name) -> Name {
    let given = given.as_str();
    let hash: [u8; 32] = Sha256::new()
        .chain_update(b"weir resource name 1\0")
        .chain_update(chain.0)
        .chain_update(holder.as_bytes())
        .chain_update(given)
        .finalize()
        .into();
    let digits = base32::encode(&first(&hash));
    let shown: String = given.chars().take(Name::MAX - digits.len() - 1).collect();
    // A name's beginning, `-`, lower-case letters and digits: a name, of 48 characters at most.
    Name::new(&format!("{shown}-{digits}"))
        .unwrap_or_else(|_| unreachable!("a name's beginning begins a name"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Identity;
    use std::collections::BTreeSet;

    #[test]
    fn identifiers_are_written_and_read_again() {
        let id = PrefixId::after(None, b"signature");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_ne!(PrefixId::after(Some(id), b"signature"), id);
        for wrong in
            ["", "weir-id:", &id.to_string()[1..], &id.to_string()[..39], &format!("{id}a"), "weir-id:é"]
        {
            assert!(wrong.parse::<PrefixId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn resources_of_different_makers_have_different_names() {
        let name = |text: &str| Name::new(text).unwrap();
        let (a, b) = (PrefixId::after(None, b"a"), PrefixId::after(None, b"b"));
        let (me, you) = (Identity::from_seed(&[1; 32]).public(), Identity::from_seed(&[2; 32]).public());
        // Long names that differ only where they are cut, and one that is another's whole name.
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
