//! SHA-256 digests.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest as _;
use std::fmt;
use std::str::FromStr;
use weir_units::{bytes_of_hex, hex};

/// A SHA-256 digest (FIPS 180-4). Its text has 64 lower-case hexadecimal digits, as `sha256sum` prints them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileDigest(pub [u8; 32]);

/// The error for a text that is not a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 digest has 64 lower-case hexadecimal digits")]
pub struct FileDigestError;

impl FileDigest {
    /// Returns the digest of bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }
}

/// Computes the digest of bytes that come in parts.
#[derive(Clone, Default)]
pub struct FileHasher(sha2::Sha256);

impl FileHasher {
    /// Adds the next part.
    pub fn add(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// Returns the digest of all parts.
    pub fn finish(self) -> FileDigest {
        FileDigest(self.0.finalize().into())
    }
}

impl fmt::Debug for FileHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileHasher").finish_non_exhaustive()
    }
}

impl fmt::Display for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for FileDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for FileDigest {
    type Err = FileDigestError;

    fn from_str(text: &str) -> Result<Self, FileDigestError> {
        // Each digest has one text, so that records can be compared.
        let is_lower = !text.bytes().any(|byte| byte.is_ascii_uppercase());
        let bytes = bytes_of_hex(text).filter(|_| is_lower).ok_or(FileDigestError)?;
        bytes.try_into().map(Self).map_err(|_| FileDigestError)
    }
}

impl Serialize for FileDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for FileDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}
