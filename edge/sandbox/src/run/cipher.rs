//! The cryptography of the host functions `hmac`, `hkdf`, `aead_open` and `aes_block`, on bytes of the host.

use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use ring::{aead as ring_aead, hkdf as ring_hkdf, hmac as ring_hmac};
use weir_abi::code;
use weir_abi::crypto::{AES128_KEY_BYTES, aead, aes as aes_numbers, hkdf, hmac};
use weir_abi::host::HostFunction;

/// The bytes and numbers that a request refers to, read from the module's memory.
#[derive(Debug)]
pub struct CipherInput<'a> {
    /// The number of the algorithm.
    pub algorithm: u32,
    /// The key.
    pub key: &'a [u8],
    /// The nonce.
    pub nonce: &'a [u8],
    /// The associated data.
    pub aad: &'a [u8],
    /// The input. The output replaces it.
    pub input: &'a mut Vec<u8>,
    /// The space for output.
    pub output_len: u32,
}

/// The number of bytes that a call works on, and that it writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CipherWork {
    /// The number of bytes that the call is charged for.
    pub charged: u64,
    /// The number of bytes that it writes when it succeeds.
    pub written: u32,
}

/// The lengths of a request.
#[derive(Clone, Copy, Debug)]
pub struct CipherLengths {
    /// Of the key.
    pub key: u32,
    /// Of the nonce.
    pub nonce: u32,
    /// Of the associated data.
    pub aad: u32,
    /// Of the input.
    pub input: u32,
    /// The space for output.
    pub output: u32,
}

/// Returns the work of a call with these lengths, before anything is read.
///
/// # Errors
/// [`code::UNKNOWN`] for another algorithm, and [`code::RANGE`] for lengths that the algorithm does not have.
pub fn work(function: HostFunction, algorithm: u32, lengths: CipherLengths) -> Result<CipherWork, i32> {
    let CipherLengths { key, nonce, aad, input, output } = lengths;
    let (is_valid, charged, written) = match (function, algorithm) {
        (HostFunction::Hmac, hmac::SHA256) | (HostFunction::Hkdf, hkdf::EXTRACT_SHA256) => {
            (nonce == 0 && aad == 0, u64::from(key) + u64::from(input), 32)
        }
        (HostFunction::Hkdf, hkdf::EXPAND_SHA256) => (
            nonce == 0 && aad == 0 && key <= hkdf::KEY_BYTES && output <= hkdf::OUTPUT_BYTES,
            hkdf::expanded(input, output).into(),
            output,
        ),
        (HostFunction::AeadOpen, aead::AES128_GCM) => (
            key == AES128_KEY_BYTES && nonce == aead::NONCE_BYTES && input >= aead::TAG_BYTES,
            u64::from(aad) + u64::from(input),
            input.saturating_sub(aead::TAG_BYTES),
        ),
        (HostFunction::AesBlock, aes_numbers::AES128) => (
            nonce == 0 && aad == 0 && key == AES128_KEY_BYTES && input == aes_numbers::BLOCK_BYTES,
            0,
            aes_numbers::BLOCK_BYTES,
        ),
        _ => return Err(code::UNKNOWN),
    };
    if is_valid && written <= output { Ok(CipherWork { charged, written }) } else { Err(code::RANGE) }
}

/// Replaces the input by the output. The lengths are those for which [`work`] has succeeded; with other lengths the result
/// is an error, too.
///
/// # Errors
/// [`code::FORGED`] for a tag that does not match; the input is then of no use. [`code::UNKNOWN`] and [`code::RANGE`] as
/// [`work`].
pub fn run(function: HostFunction, with: CipherInput<'_>) -> Result<(), i32> {
    let CipherInput { algorithm, key, nonce, aad, input, output_len } = with;
    match (function, algorithm) {
        (HostFunction::Hmac, hmac::SHA256) => replace(input, &hmac_sha256(key, input)),
        // Extraction is HMAC with the salt as the key.
        (HostFunction::Hkdf, hkdf::EXTRACT_SHA256) => replace(input, &hmac_sha256(input, key)),
        (HostFunction::Hkdf, hkdf::EXPAND_SHA256) => {
            let mut out = vec![0; output_len as usize];
            expand(key, input, &mut out)?;
            *input = out;
        }
        (HostFunction::AeadOpen, aead::AES128_GCM) => {
            let unbound =
                ring_aead::UnboundKey::new(&ring_aead::AES_128_GCM, key).map_err(|_| code::RANGE)?;
            let nonce = ring_aead::Nonce::try_assume_unique_for_key(nonce).map_err(|_| code::RANGE)?;
            // The comparison of the tags takes constant time.
            let opened = ring_aead::LessSafeKey::new(unbound).open_in_place(
                nonce,
                ring_aead::Aad::from(aad),
                input.as_mut_slice(),
            );
            let len = opened.map_err(|_| code::FORGED)?.len();
            input.truncate(len);
        }
        (HostFunction::AesBlock, aes_numbers::AES128) => {
            let key: [u8; AES128_KEY_BYTES as usize] = key.try_into().map_err(|_| code::RANGE)?;
            let block: [u8; aes_numbers::BLOCK_BYTES as usize] =
                input.as_slice().try_into().map_err(|_| code::RANGE)?;
            let mut block = Array(block);
            Aes128::new(&Array(key)).encrypt_block(&mut block);
            replace(input, &block.0);
        }
        _ => return Err(code::UNKNOWN),
    }
    Ok(())
}

fn replace(place: &mut Vec<u8>, with: &[u8]) {
    place.clear();
    place.extend_from_slice(with);
}

fn hmac_sha256(key: &[u8], input: &[u8]) -> [u8; 32] {
    let tag = ring_hmac::sign(&ring_hmac::Key::new(ring_hmac::HMAC_SHA256, key), input);
    tag.as_ref().try_into().unwrap_or_default()
}

/// A number of bytes that a key is expanded to.
struct Expanded(usize);

impl ring_hkdf::KeyType for Expanded {
    fn len(&self) -> usize {
        self.0
    }
}

fn expand(key: &[u8], information: &[u8], out: &mut [u8]) -> Result<(), i32> {
    let key = ring_hkdf::Prk::new_less_safe(ring_hkdf::HKDF_SHA256, key);
    let information = [information];
    let expanded = key.expand(&information, Expanded(out.len())).map_err(|_| code::RANGE)?;
    expanded.fill(out).map_err(|_| code::RANGE)
}
