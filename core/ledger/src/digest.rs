//! SHA-256 hashes, and the head of a ledger: the number and hash of its last line.

use super::wire::Ascii;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::Digest as _;
use std::fmt;
use std::str::FromStr;

/// A SHA-256 hash (FIPS 180-4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The hash before the first line of a ledger.
    pub const NONE: Digest = Digest([0; 32]);

    /// Returns the hash of these bytes.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(sha2::Sha256::digest(bytes).into())
    }

    /// Returns 64 lower-case hexadecimal digits, as `sha256sum` writes them.
    pub(super) fn digits(&self) -> Ascii<64> {
        let digit = |half: u8| if half < 10 { b'0' + half } else { b'a' + half - 10 };
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(&self.0) {
            pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
        }
        Ascii(digits)
    }
}

impl fmt::Display for Digest {
    /// Writes 64 lower-case hexadecimal digits, as `sha256sum` writes them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.digits().as_str())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Digest {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Self, HeadError> {
        let digits = text.as_bytes();
        if digits.len() != 64 || !digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')) {
            return Err(HeadError);
        }
        let value = |digit: u8| if digit <= b'9' { digit - b'0' } else { digit - b'a' + 10 };
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().fold(0, |byte, digit| byte << 4 | value(*digit));
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.digits().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The number and hash of the last line of a ledger. A copy of the head that is kept elsewhere proves later that all
/// lines up to this line are unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LedgerHead {
    /// The line's sequence number.
    pub sequence: u64,
    /// The line's hash.
    pub hash: Digest,
}

/// The error for a text that is neither a head nor a hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a ledger's head: write it as it was printed, a number, a colon and 64 hexadecimal digits")]
pub struct HeadError;

impl fmt::Display for LedgerHead {
    /// Writes the head as `17:5f3c…`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.sequence, self.hash)
    }
}

impl FromStr for LedgerHead {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Self, HeadError> {
        let (sequence, hash) = text.trim().split_once(':').ok_or(HeadError)?;
        if !sequence.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(HeadError);
        }
        Ok(Self { sequence: sequence.parse().map_err(|_| HeadError)?, hash: hash.parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_printed_head_is_read_again() {
        let head = LedgerHead { sequence: 17, hash: Digest::of_bytes(b"abc") };
        let text = "17:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!((head.to_string().as_str(), text.parse()), (text, Ok(head)));
        for wrong in
            ["", "17", "17:", ":ba", "+1:00", &text[..66], &text.to_uppercase(), &text.replace("17", "-1")]
        {
            assert_eq!(wrong.parse::<LedgerHead>(), Err(HeadError), "{wrong}");
        }
    }
}
