//! Cryptography by the host: HMAC, HKDF, AES-128-GCM, and single AES-128 blocks.

use crate::host::{self, Error};

/// The request of a cryptographic host function.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct CryptoRequest {
    algorithm: u32,
    /// 0: the key is bytes of the module.
    key_kind: u32,
    key: *const u8,
    key_len: u32,
    nonce: *const u8,
    nonce_len: u32,
    aad: *const u8,
    aad_len: u32,
    input: *const u8,
    input_len: u32,
    output: *mut u8,
    output_len: u32,
}

const HMAC_SHA256: u32 = 1;
const HKDF_EXTRACT_SHA256: u32 = 1;
const HKDF_EXPAND_SHA256: u32 = 2;
const AEAD_AES128_GCM: u32 = 1;
const AES128: u32 = 1;

/// The most bytes that one call processes.
const BYTES: usize = 64 * 1024;
/// The bytes that SHA-256 processes for each 32 bytes of output of HKDF, beside the information.
const HKDF_STEP_BYTES: usize = 192;
/// The most bytes of output of HKDF.
const HKDF_OUTPUT_BYTES: usize = 255 * 32;
/// The bytes of the tag of AES-128-GCM.
const TAG_BYTES: usize = 16;

fn request(algorithm: u32, key: &[u8], input: &[u8], output: &mut [u8]) -> CryptoRequest {
    CryptoRequest {
        algorithm,
        key_kind: 0,
        key: key.as_ptr(),
        key_len: key.len() as u32,
        nonce: core::ptr::null(),
        nonce_len: 0,
        aad: core::ptr::null(),
        aad_len: 0,
        input: input.as_ptr(),
        input_len: input.len() as u32,
        output: output.as_mut_ptr(),
        output_len: output.len() as u32,
    }
}

/// The number of bytes that a call processes.
fn processed(first: usize, second: usize) -> Result<u32, Error> {
    match first.checked_add(second) {
        Some(sum) if sum <= BYTES => Ok(sum as u32),
        _ => Err(Error::Range),
    }
}

/// Returns the HMAC-SHA-256 (RFC 2104) of bytes.
///
/// # Errors
///
/// [`Error::Range`] if key and bytes have together more than 64 KiB.
pub fn hmac_sha256(key: &[u8], bytes: &[u8]) -> Result<[u8; 32], Error> {
    let len = processed(key.len(), bytes.len())?;
    let mut out = [0; 32];
    let request = request(HMAC_SHA256, key, bytes, &mut out);
    // SAFETY: all addresses and lengths are those of slices; the host writes only to `out`.
    Error::check(unsafe { host::hmac(&request, len) }).map(|_| out)
}

/// Returns a pseudorandom key from input keying material: HKDF-Extract with SHA-256 (RFC 5869).
///
/// # Errors
///
/// [`Error::Range`] if salt and material have together more than 64 KiB.
pub fn hkdf_extract(salt: &[u8], material: &[u8]) -> Result<[u8; 32], Error> {
    let len = processed(salt.len(), material.len())?;
    let mut out = [0; 32];
    let request = request(HKDF_EXTRACT_SHA256, material, salt, &mut out);
    // SAFETY: as in `hmac_sha256`.
    Error::check(unsafe { host::hkdf(&request, len) }).map(|_| out)
}

/// Fills `out` from a pseudorandom key: HKDF-Expand with SHA-256 (RFC 5869).
///
/// # Errors
///
/// [`Error::Range`] for more than 8160 bytes, or if SHA-256 would process more than 64 KiB: for each 32 bytes of output
/// the information and 192 bytes.
pub fn hkdf_expand(key: &[u8; 32], information: &[u8], out: &mut [u8]) -> Result<(), Error> {
    if information.len() > BYTES || out.len() > HKDF_OUTPUT_BYTES {
        return Err(Error::Range);
    }
    let len = (information.len() + HKDF_STEP_BYTES) * out.len().div_ceil(32);
    let request = request(HKDF_EXPAND_SHA256, key, information, out);
    // SAFETY: as in `hmac_sha256`.
    Error::check(unsafe { host::hkdf(&request, len as u32) }).map(|_| ())
}

/// Fills `out` from a secret: HKDF-Expand-Label of TLS 1.3 (RFC 8446, 7.1) with SHA-256 and an empty context. `label` is
/// without `tls13 `, and has at most 32 bytes.
///
/// # Errors
///
/// [`Error::Range`] for a longer label, and as [`hkdf_expand`].
pub fn hkdf_expand_label(secret: &[u8; 32], label: &str, out: &mut [u8]) -> Result<(), Error> {
    const PREFIX: &[u8] = b"tls13 ";
    const LABEL_BYTES: usize = 32;
    const START: usize = 3 + PREFIX.len();
    let Ok(out_len) = u16::try_from(out.len()) else { return Err(Error::Range) };
    // The context's length, 0, follows the label.
    let mut information = [0; START + LABEL_BYTES + 1];
    information[..2].copy_from_slice(&out_len.to_be_bytes());
    information[2] = PREFIX.len() as u8 + label.len().min(LABEL_BYTES) as u8;
    information[3..START].copy_from_slice(PREFIX);
    match information.get_mut(START..START + label.len()) {
        Some(place) if label.len() <= LABEL_BYTES => place.copy_from_slice(label.as_bytes()),
        _ => return Err(Error::Range),
    }
    hkdf_expand(secret, information.get(..START + label.len() + 1).unwrap_or_default(), out)
}

/// Decrypts AES-128-GCM into `out`, and returns the plaintext. The last 16 of `bytes` are the tag.
///
/// # Errors
///
/// [`Error::Forged`] if the tag does not match; `out` is then unchanged. [`Error::Range`] if `bytes` is shorter than a
/// tag, `out` is shorter than the plaintext, or associated data and `bytes` have together more than 64 KiB.
pub fn aes128_gcm_open<'o>(
    key: &[u8; 16],
    nonce: &[u8; 12],
    aad: &[u8],
    bytes: &[u8],
    out: &'o mut [u8],
) -> Result<&'o mut [u8], Error> {
    let len = processed(aad.len(), bytes.len())?;
    let plain =
        bytes.len().checked_sub(TAG_BYTES).and_then(|plain| out.get_mut(..plain)).ok_or(Error::Range)?;
    let request = CryptoRequest {
        nonce: nonce.as_ptr(),
        nonce_len: nonce.len() as u32,
        aad: aad.as_ptr(),
        aad_len: aad.len() as u32,
        ..request(AEAD_AES128_GCM, key, bytes, plain)
    };
    // SAFETY: as in `hmac_sha256`; the host writes only to `plain`.
    Error::check(unsafe { host::aead_open(&request, len) }).map(|_| plain)
}

/// Encrypts one block with AES-128.
///
/// # Errors
///
/// [`Error::Unknown`] in native builds, which have no host.
pub fn aes128_block(key: &[u8; 16], block: &[u8; 16]) -> Result<[u8; 16], Error> {
    let mut out = [0; 16];
    let request = request(AES128, key, block, &mut out);
    // SAFETY: as in `hmac_sha256`.
    Error::check(unsafe { host::aes_block(&request) }).map(|_| out)
}
