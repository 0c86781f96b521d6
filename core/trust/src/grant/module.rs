//! Which modules may be loaded.

use super::list;
use crate::key::PublicKey;
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// The SHA-256 (FIPS 180-4) of a module's bytes, as text in 64 hexadecimal digits: what `sha256sum` prints for the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModuleHash(pub [u8; 32]);

/// A text that is no hash of a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is no hash of a module: write the 64 hexadecimal digits that `sha256sum FILE` prints", .0.escape_debug())]
pub struct ModuleHashError(String);

impl ModuleHash {
    /// Of these bytes.
    pub fn of(module: &[u8]) -> Self {
        Self(Sha256::digest(module).into())
    }
}

impl fmt::Display for ModuleHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ModuleHash {
    type Err = ModuleHashError;

    fn from_str(text: &str) -> Result<Self, ModuleHashError> {
        let error = || ModuleHashError(text.chars().take(80).collect());
        let digits: Option<Vec<u8>> =
            text.chars().map(|digit| digit.to_digit(16).and_then(|value| u8::try_from(value).ok())).collect();
        let digits: [u8; 64] = digits.and_then(|digits| digits.try_into().ok()).ok_or_else(error)?;
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |byte, digit| byte << 4 | digit);
        }
        Ok(Self(bytes))
    }
}

/// What one block says of modules: those with one of these hashes, and those that one of these keys has signed. With neither it is no module.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleSet {
    /// The SHA-256 of their bytes.
    pub hashes: BTreeSet<ModuleHash>,
    /// Who vouches for them.
    pub signers: BTreeSet<PublicKey>,
}

impl ModuleSet {
    /// Whether the module with this hash, which these keys have signed, is in it.
    pub fn contains(&self, hash: &ModuleHash, signers: &[PublicKey]) -> bool {
        self.hashes.contains(hash) || signers.iter().any(|signer| self.signers.contains(signer))
    }

    /// Whether it names nothing that `other` does not name.
    fn is_at_most(&self, other: &Self) -> bool {
        self.hashes.is_subset(&other.hashes) && self.signers.is_subset(&other.signers)
    }

    /// Whether it asks for nothing that `other` may not give: where `other` names signers, a module may be named by its hash, since whether one of them
    /// has signed it is seen when it is loaded, and both sets have to contain it.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        let are_hashes_within = self.hashes.is_subset(&other.hashes) || !other.signers.is_empty();
        are_hashes_within && self.signers.is_subset(&other.signers)
    }
}

/// Which modules may be loaded: those in each of these sets, one for each block that restricts them. Without any it is every module. A set that contains
/// another one is left out, as it says nothing more, so that the order in which blocks were joined does not show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules(BTreeSet<ModuleSet>);

impl Modules {
    /// Every module, whoever wrote it: for administrators.
    pub fn any() -> Self {
        Self::default()
    }

    /// Whether it is every module.
    pub fn is_any(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the module with this hash, which these keys have signed, may be loaded.
    pub fn contains(&self, hash: &ModuleHash, signers: &[PublicKey]) -> bool {
        self.0.iter().all(|set| set.contains(hash, signers))
    }

    /// The modules that both allow.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        let all: BTreeSet<&ModuleSet> = self.0.union(&other.0).collect();
        let is_needed = |set: &&&ModuleSet| !all.iter().any(|other| other != *set && other.is_at_most(set));
        Self(all.iter().filter(is_needed).map(|set| (*set).clone()).collect())
    }

    /// The sets.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ModuleSet> {
        self.0.iter()
    }
}

impl fmt::Display for Modules {
    /// For people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_any() {
            return f.write_str("any");
        }
        for (at, set) in self.iter().enumerate() {
            let between = if at > 0 { ", and of these " } else { "" };
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
        assert_eq!(ModuleHash::of(b"").to_string(), text);
        assert_eq!(text.parse(), Ok(ModuleHash::of(b"")));
        assert_eq!(text.to_uppercase().parse(), Ok(ModuleHash::of(b"")));
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
        let (a, b) = (ModuleHash::of(b"a"), ModuleHash::of(b"b"));
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
