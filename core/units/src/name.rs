//! Names of modules, sessions, record streams, fields and parameters.

use std::fmt;

/// A name that is safe as a file name, a column name, a command-line word and, with `-` as `_`, a C identifier:
/// lower-case ASCII letters, digits, `-` and `_`, beginning with a letter, at most [`Name::MAX`] characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(String);

/// The error for a text that is not a legal name; holds its first 80 characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a name: use lower-case letters, digits, `-` and `_`, beginning with a letter, at most {} characters", .0.escape_debug(), Name::MAX)]
pub struct NameError(pub String);

impl Name {
    /// The maximum length of a name, in characters.
    pub const MAX: usize = 48;

    /// Makes a name from a text.
    ///
    /// # Errors
    /// Fails for a text that is not a legal name.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let has_first_letter = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase());
        let is_legal =
            text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_');
        if has_first_letter && is_legal && text.len() <= Self::MAX {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError(text.chars().take(80).collect()))
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name as a C or Rust identifier: `table-size` becomes `table_size`.
    pub fn identifier(&self) -> String {
        self.0.replace('-', "_")
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Name {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_slashes_line_feeds_or_other_characters_are_refused() {
        for good in ["rtt", "syn-flood", "a", "x_1"] {
            assert_eq!(Name::new(good).map(|n| n.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "..", "a/b", "A", "1a", "-a", "a b", "a\n", "é", "a.b", &"x".repeat(49)] {
            assert!(Name::new(bad).is_err(), "{bad:?}");
        }
    }
}
