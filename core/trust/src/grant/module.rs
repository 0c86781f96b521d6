//! Sets of modules that may be loaded.

use super::list;
use crate::digest::Sha256Digest;
use crate::key::PublicKey;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The SHA-256 (FIPS 180-4) of a module's bytes. Its text has 64 hexadecimal digits, as `sha256sum` prints them for the
/// file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleHash(pub [u8; 32]);

/// The error for a text that is not a hash of a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no hash of a module: write the 64 hexadecimal digits that `sha256sum FILE` prints", .0.escape_debug())]
pub struct ModuleHashError(String);

impl ModuleHash {
    /// Returns the hash of a module's bytes.
    pub fn of_bytes(module: &[u8]) -> Self {
        Self(Sha256::digest(module).into())
    }
}

impl fmt::Display for ModuleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Sha256Digest(self.0).fmt(f)
    }
}

impl FromStr for ModuleHash {
    type Err = ModuleHashError;

    fn from_str(text: &str) -> Result<Self, ModuleHashError> {
        let digest: Result<Sha256Digest, _> = text.parse();
        digest.map(|digest| Self(digest.0)).map_err(|_| ModuleHashError(text.chars().take(80).collect()))
    }
}

/// The modules that one block allows: modules with one of these hashes, and modules that one of these keys has signed.
/// An empty set contains no module.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleSet {
    /// SHA-256 hashes of modules.
    pub hashes: BTreeSet<ModuleHash>,
    /// Keys, whose signature makes a module a member of the set.
    pub signers: BTreeSet<PublicKey>,
}

impl ModuleSet {
    /// Returns true if the set contains the module with this hash, which these keys have signed.
    pub fn contains(&self, hash: &ModuleHash, signers: &[PublicKey]) -> bool {
        self.hashes.contains(hash) || signers.iter().any(|signer| self.signers.contains(signer))
    }

    /// Returns true if `other` names all hashes and signers of this set.
    fn is_at_most(&self, other: &Self) -> bool {
        self.hashes.is_subset(&other.hashes) && self.signers.is_subset(&other.signers)
    }

    /// Returns true if a block may state this set after a block with the set `other`. If `other` names signers, this set
    /// may name any hash. A module has to be in both sets, so its signature is still checked when it is loaded.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        let are_hashes_within = self.hashes.is_subset(&other.hashes) || !other.signers.is_empty();
        are_hashes_within && self.signers.is_subset(&other.signers)
    }
}

/// The modules that all blocks of a credential allow: the modules that are in every one of these sets. There is a set
/// for each block that restricts modules; without sets every module is allowed. A set that contains another one is
/// redundant and left out, so that the value does not depend on the order of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules(BTreeSet<ModuleSet>);

impl Modules {
    /// Returns the set of all modules, by any author: a right of administrators.
    pub fn any() -> Self {
        Self::default()
    }

    /// Returns true if all modules are allowed.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the module with this hash, which these keys have signed, may be loaded.
    pub fn contains(&self, hash: &ModuleHash, signers: &[PublicKey]) -> bool {
        self.0.iter().all(|set| set.contains(hash, signers))
    }

    /// Returns the modules that both values allow.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        let all: BTreeSet<&ModuleSet> = self.0.union(&other.0).collect();
        let is_needed = |set: &&&ModuleSet| !all.iter().any(|other| other != *set && other.is_at_most(set));
        Self(all.iter().filter(is_needed).map(|set| (*set).clone()).collect())
    }

    /// Returns the sets.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ModuleSet> {
        self.0.iter()
    }
}

impl fmt::Display for Modules {
    /// Writes the sets as text for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str("any");
        }
        for (index, set) in self.iter().enumerate() {
            let between = if index > 0 { ", and of these " } else { "" };
            let hashes = if set.hashes.is_empty() { String::new() } else { list(&set.hashes) };
            let signers = if set.signers.is_empty() {
                String::new()
            } else {
                format!("signed by {}", list(&set.signers))
            };
            let or = if hashes.is_empty() || signers.is_empty() { "" } else { " or " };
            let none = if hashes.is_empty() && signers.is_empty() { "none" } else { "" };
            write!(f, "{between}{hashes}{or}{signers}{none}")?;
        }
        Ok(())
    }
}

impl From<ModuleSet> for Modules {
    fn from(set: ModuleSet) -> Self {
        Self(BTreeSet::from([set]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Identity;

    #[test]
    fn a_hash_is_what_sha256sum_prints() {
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(ModuleHash::of_bytes(b"").to_string(), text);
        assert_eq!(text.parse(), Ok(ModuleHash::of_bytes(b"")));
        assert_eq!(text.to_uppercase().parse(), Ok(ModuleHash::of_bytes(b"")));
        for wrong in
            ["", "e3", &text[1..], &format!("{text}0"), &text.replace('e', "g"), &text.replace('e', "é")]
        {
            assert!(wrong.parse::<ModuleHash>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_module_has_to_be_in_each_set() {
        let signer = Identity::from_seed(&[1; 32]).public();
        let other = Identity::from_seed(&[2; 32]).public();
        let (a, b) = (ModuleHash::of_bytes(b"a"), ModuleHash::of_bytes(b"b"));
        let signed = Modules::from(ModuleSet { signers: [signer].into(), ..ModuleSet::default() });
        let named = Modules::from(ModuleSet { hashes: [a].into(), ..ModuleSet::default() });
        assert!(signed.contains(&b, &[other, signer]) && !signed.contains(&b, &[other]));
        let both = signed.meet(&named);
        assert!(both.contains(&a, &[signer]));
        assert!(!both.contains(&a, &[other]) && !both.contains(&b, &[signer]));
        assert!(Modules::any().contains(&b, &[]));
        assert!(!Modules::from(ModuleSet::default()).contains(&a, &[signer]), "no set, no module");
    }
}
