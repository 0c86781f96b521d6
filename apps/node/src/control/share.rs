//! Shares: rights over a session that its owner gives to earlier holders in the chain of the owner's credential.

use crate::control::spec::{SessionSpec, SpecError};
use std::fmt;
use std::str::FromStr;
use weir_trust::key::PublicKey;

/// Maximum number of shares of one session: two for each earlier holder that a chain can have.
pub const SHARES_MAX: usize = 16;

/// A right that can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShareableRight {
    /// The right to read the records of the session's modules, and to see the session's parts.
    Follow,
    /// The right to load and unload modules, to change the session, and to see its parts.
    Manage,
}

impl ShareableRight {
    /// Returns the word for the right in a share's text.
    pub fn word(self) -> &'static str {
        match self {
            Self::Follow => "follow",
            Self::Manage => "manage",
        }
    }
}

/// A share: a right over a session, for the holder of a key. Its text is `follow=KEY` or `manage=KEY`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareGrant {
    /// Shared right.
    pub right: ShareableRight,
    /// The key of an earlier holder in the chain of the session owner's credential.
    pub key: PublicKey,
}

/// Error of a text that is not a share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a share: write follow=KEY or manage=KEY, with the public key of an earlier holder of your credential", .0.escape_debug())]
pub struct ShareError(String);

impl fmt::Display for ShareGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.right.word(), self.key)
    }
}

impl FromStr for ShareGrant {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        let error = || ShareError(text.chars().take(80).collect());
        let (word, key) = text.split_once('=').ok_or_else(error)?;
        let right =
            [ShareableRight::Follow, ShareableRight::Manage].into_iter().find(|right| right.word() == word);
        Ok(Self { right: right.ok_or_else(error)?, key: key.parse().map_err(|_| error())? })
    }
}

impl SessionSpec {
    /// Checks that the session gives at most [`SHARES_MAX`] shares, rights over it, to earlier holders.
    pub(crate) fn check_share_count(&self) -> Result<(), SpecError> {
        let count = self.share.len();
        if count > SHARES_MAX {
            return Err(SpecError::TooMany { session: self.name.clone(), what: "share", count });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::spec::Change;
    use weir_trust::key::Identity;

    fn key(number: u8) -> PublicKey {
        Identity::from_seed(&[number; 32]).public()
    }

    #[test]
    fn a_share_reads_as_it_was_written() {
        for right in [ShareableRight::Follow, ShareableRight::Manage] {
            let share = ShareGrant { right, key: key(1) };
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        for text in ["", "follow", "follow=", "own=x", &format!("read={}", key(1)), &key(1).to_string()] {
            assert!(text.parse::<ShareGrant>().unwrap_err().to_string().contains("is not a share"), "{text}");
        }
    }

    #[test]
    fn shares_are_added_and_withdrawn_one_by_one() {
        let follow = ShareGrant { right: ShareableRight::Follow, key: key(1) };
        let manage = ShareGrant { right: ShareableRight::Manage, key: key(1) };
        let mut spec: SessionSpec = toml::from_str(&format!("name = \"s\"\nshare = [\"{follow}\"]")).unwrap();
        let change = |share: Vec<ShareGrant>, remove_share: Vec<ShareGrant>| {
            let change: Change = serde_json::from_str(r#"{"session": "s"}"#).unwrap();
            Change { share, remove_share, ..change }
        };
        spec = spec.changed(&change(vec![manage, follow], vec![])).unwrap();
        assert_eq!(spec.share, [follow, manage]);
        spec = spec.changed(&change(vec![], vec![follow])).unwrap();
        assert_eq!(spec.share, [manage]);
        let error = spec.changed(&change(vec![], vec![follow])).unwrap_err().to_string();
        assert!(error.contains("there is no share `follow="), "{error}");
        let many = (0..17).map(|number| ShareGrant { right: ShareableRight::Follow, key: key(number) });
        let error = spec.changed(&change(many.collect(), vec![])).unwrap_err().to_string();
        assert!(error.contains("has 18 shares"), "{error}");
    }
}
