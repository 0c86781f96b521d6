//! Hashing.

use crate::host::{self, Error};

/// Returns the XXH3-64 hash, computed by the host: for long or many bytes.
pub fn hash(bytes: &[u8], seed: u64) -> u64 {
    // SAFETY: the address and length are those of a slice, which the host only reads.
    unsafe { host::hash(bytes.as_ptr(), bytes.len() as u32, seed) }
}

const SHA1: u32 = 1;
const SHA256: u32 = 2;

/// Returns the SHA-1 digest, computed by the host, for formats that require it, such as Community ID. SHA-1 is not
/// collision-resistant.
///
/// # Errors
///
/// [`Error::Range`] for more than 64 KiB.
pub fn sha1(bytes: &[u8]) -> Result<[u8; 20], Error> {
    digest(SHA1, bytes)
}

/// Returns the SHA-256 digest, computed by the host.
///
/// # Errors
///
/// [`Error::Range`] for more than 64 KiB.
pub fn sha256(bytes: &[u8]) -> Result<[u8; 32], Error> {
    digest(SHA256, bytes)
}

fn digest<const LEN: usize>(algorithm: u32, bytes: &[u8]) -> Result<[u8; LEN], Error> {
    let mut out = [0; LEN];
    // SAFETY: address and length are those of a slice, which the host only reads; it writes as many bytes as the algorithm's digest has, `LEN`.
    let written = unsafe { host::digest(algorithm, bytes.as_ptr(), bytes.len() as u32, out.as_mut_ptr()) };
    Error::check(written).map(|_| out)
}

/// Returns a hash of a few words, without a call to the host; for two words the same as `weir_hash64` of `weir.h`. Not
/// for keys that an attacker chooses, unless a secret is among the words.
#[inline(always)]
pub fn hash_words(words: &[u64]) -> u64 {
    let added = words.iter().fold(0u64, |hash, word| {
        let hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        hash ^ (hash >> 32)
    });
    // Stafford's variant 13 of the MurmurHash3 finalizer.
    let hash = (added ^ (added >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_every_word_count() {
        assert_ne!(hash_words(&[1, 2]), hash_words(&[2, 1]));
        assert_ne!(hash_words(&[1, 2]), hash_words(&[1, 3]));
        assert_eq!(hash_words(&[1, 2]), hash_words(&[1, 2]));
    }
}
