//! Public keys, and verification of signatures.

use super::SignatureContext;
use super::identity::envelope_bytes;
use crate::base32;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::VerifyingKey;
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

const PREFIX: &str = "weir-key:";
/// The length of the checksum. Key and checksum fill exactly 56 characters. The checksum of a wrong key matches with a
/// probability of 2^-24.
const CHECKSUM_BYTES: usize = 3;
const TEXT_CHARACTERS: usize = (32 + CHECKSUM_BYTES) * 8 / 5;

/// A public key, which names an identity. Its text is `weir-key:` and 56 lower-case letters and digits, which
/// include a checksum against copying errors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// The reason why bytes or a text are not a public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A text without the prefix `weir-key:`.
    #[error("a public key begins with `weir-key:`; `weir key show FILE` prints it")]
    Prefix,
    /// A text that is too short or too long.
    #[error(
        "a public key has {TEXT_CHARACTERS} characters after `weir-key:`, this one has {0}: was it copied whole?"
    )]
    Length(usize),
    /// A character that is not in the alphabet.
    #[error("`{}` at character {at} is in no public key: there are only lower-case letters and the digits 2 to 7", .found.escape_debug())]
    Character {
        /// The position after `weir-key:`, from 1.
        at: usize,
        /// The character.
        found: char,
    },
    /// A checksum that does not match.
    #[error("a character of this public key is wrong or in another's place: copy it again")]
    Checksum,
    /// Bytes that are not the public key of a private key. Signatures could be forged for some of them.
    #[error("these bytes are not a legal Ed25519 public key")]
    Weak,
}

/// A signature of [`super::Identity::sign`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature(pub [u8; 64]);

/// The error for a signature that is invalid for this key, message and context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the signature is not by {0}, or what it signs was changed")]
pub struct BadSignature(pub PublicKey);

impl PublicKey {
    /// Makes a key from its 32 bytes.
    ///
    /// # Errors
    /// [`KeyError::Weak`] for bytes that are not a point of the curve, for points of small order (a signature
    /// for such a key can be valid for any message), and for a second encoding of a point, as an identity has one name.
    pub fn from_bytes(bytes: [u8; 32]) -> Result<Self, KeyError> {
        let key = VerifyingKey::from_bytes(&bytes).map_err(|_| KeyError::Weak)?;
        let is_only_encoding = key.to_edwards().compress().to_bytes() == bytes;
        if key.is_weak() || !is_only_encoding { Err(KeyError::Weak) } else { Ok(Self(bytes)) }
    }

    pub(super) fn from_verifying(key: &VerifyingKey) -> Self {
        Self(key.to_bytes())
    }

    /// Returns the 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Checks that this key made a signature, for this message in this context. The check is strict: a changed encoding
    /// of a valid signature is not valid.
    ///
    /// # Errors
    /// [`BadSignature`] if the key did not make the signature, or made it for another message or context.
    pub fn verify(
        &self,
        context: SignatureContext,
        message: &[u8],
        signature: &Signature,
    ) -> Result<(), BadSignature> {
        self.verify_bytes(&context.signed(message), signature)
    }

    /// Checks that this key made a signature of a DSSE envelope v1, as [`super::Identity::sign_envelope`] does.
    ///
    /// # Errors
    /// [`BadSignature`] if the key did not make the signature, or made it for another payload or type.
    pub fn verify_envelope(
        &self,
        payload_type: &str,
        payload: &[u8],
        signature: &Signature,
    ) -> Result<(), BadSignature> {
        self.verify_bytes(&envelope_bytes(payload_type, payload), signature)
    }

    fn verify_bytes(&self, bytes: &[u8], signature: &Signature) -> Result<(), BadSignature> {
        let bad = BadSignature(*self);
        let key = VerifyingKey::from_bytes(&self.0).map_err(|_| bad)?;
        let signature = ed25519_dalek::Signature::from_bytes(&signature.0);
        key.verify_strict(bytes, &signature).map_err(|_| bad)
    }

    /// Returns the key as PEM (RFC 8410, SubjectPublicKeyInfo), for other programs.
    pub fn to_pem(&self) -> String {
        // SEQUENCE { SEQUENCE { OID 1.3.101.112 }, BIT STRING }
        const PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
        let text = STANDARD.encode([PREFIX.as_slice(), &self.0].concat());
        format!("-----BEGIN PUBLIC KEY-----\n{text}\n-----END PUBLIC KEY-----\n")
    }

    fn checksum(&self) -> [u8; CHECKSUM_BYTES] {
        let hash = Sha256::new().chain_update(b"weir public key 1\0").chain_update(self.0).finalize();
        [hash[0], hash[1], hash[2]]
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", base32::encode(&[self.0.as_slice(), &self.checksum()].concat()))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let text = text.trim().strip_prefix(PREFIX).ok_or(KeyError::Prefix)?;
        let known = |c: char| c.is_ascii_lowercase() || ('2'..='7').contains(&c);
        if let Some((at, found)) = text.chars().enumerate().find(|(_, c)| !known(*c)) {
            return Err(KeyError::Character { at: at + 1, found });
        }
        if text.len() != TEXT_CHARACTERS {
            return Err(KeyError::Length(text.len()));
        }
        let bytes = base32::decode(text).ok_or(KeyError::Checksum)?;
        let (key, checksum) = bytes.split_first_chunk().ok_or(KeyError::Checksum)?;
        // The checksum is checked before the point, because a copying error usually makes both illegal, and the user
        // should read that it is a copying error.
        if checksum != Self(*key).checksum() {
            return Err(KeyError::Checksum);
        }
        Self::from_bytes(*key)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Identity;
    use super::*;

    #[test]
    fn a_key_is_written_and_read_again() {
        let key = Identity::from_seed(&[7; 32]).public();
        let text = key.to_string();
        assert_eq!(text.len(), "weir-key:".len() + 56);
        assert_eq!(text.parse(), Ok(key));
        assert_eq!(format!(" {text}\n").parse(), Ok(key));
        assert_eq!(PublicKey::from_bytes(*key.as_bytes()), Ok(key));
    }

    #[test]
    fn an_error_in_a_text_is_named() {
        let text = Identity::from_seed(&[7; 32]).public().to_string();
        let read = |text: &str| text.parse::<PublicKey>();
        assert_eq!(read(&text[5..]), Err(KeyError::Prefix));
        assert_eq!(read(&text[..40]), Err(KeyError::Length(31)));
        assert_eq!(read(&format!("{text}a")), Err(KeyError::Length(57)));
        assert_eq!(read("weir-key:A"), Err(KeyError::Character { at: 1, found: 'A' }));
        assert_eq!(read("weir-key:ab1"), Err(KeyError::Character { at: 3, found: '1' }));
        assert_eq!(read("weir-key:é"), Err(KeyError::Character { at: 1, found: 'é' }));
        let mut swapped = text.into_bytes();
        let at = (20..60).find(|at| swapped[*at] != swapped[at + 1]).unwrap();
        swapped.swap(at, at + 1);
        assert_eq!(read(&String::from_utf8(swapped).unwrap()), Err(KeyError::Checksum));
    }

    #[test]
    fn keys_without_a_private_key_are_refused() {
        // The neutral element and the point of order 2; a coordinate that is on no curve; p + 1, the neutral element's
        // second encoding.
        let mut order_two = [0xff; 32];
        (order_two[0], order_two[31]) = (0xec, 0x7f);
        let mut one = [0; 32];
        one[0] = 1;
        let mut two = [0; 32];
        two[0] = 2;
        let mut second = [0xff; 32];
        (second[0], second[31]) = (0xee, 0x7f);
        for bytes in [one, order_two, [0; 32], second, two] {
            assert_eq!(PublicKey::from_bytes(bytes), Err(KeyError::Weak), "{bytes:?}");
        }
        // p + 3 is a second encoding of y = 3 if that is on the curve, and otherwise on no curve.
        for low in 0xed_u8..=0xff {
            let mut bytes = [0xff; 32];
            (bytes[0], bytes[31]) = (low, 0x7f);
            assert_eq!(PublicKey::from_bytes(bytes), Err(KeyError::Weak), "{low}");
        }
    }
}
