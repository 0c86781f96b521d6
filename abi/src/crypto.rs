//! The cryptographic host functions: their request, and the numbers in it.
//!
//! Each function gets the address of one [`CryptoRequest`]. A field that a function does not use is 0, so that it can
//! get a meaning later. The key is bytes of the module, which is the only [kind](key) of key at present. The field for the kind
//! leaves room for keys that a module cannot read.

/// The kinds of a key.
pub mod key {
    /// The key is bytes of the module: `key` is their address and `key_len` their number.
    pub const BYTES: u32 = 0;
}

/// The algorithms of `hmac`.
pub mod hmac {
    /// HMAC with SHA-256 (RFC 2104, FIPS 180-4); the result has 32 bytes.
    pub const SHA256: u32 = 1;
}

/// The algorithms of `hkdf`.
pub mod hkdf {
    /// The extract step of HKDF (RFC 5869) with SHA-256. The key is the input keying material, the input is the salt.
    pub const EXTRACT_SHA256: u32 = 1;
    /// The expand step with SHA-256. The key is the pseudorandom key, the input is the information.
    pub const EXPAND_SHA256: u32 = 2;
    /// The most bytes of output.
    pub const OUTPUT_BYTES: u32 = 255 * 32;
    /// The most bytes of a pseudorandom key: a block of SHA-256.
    pub const KEY_BYTES: u32 = 64;
    /// The bytes that SHA-256 processes for each 32 bytes of output, beside the information: the previous output, the
    /// counter, the padding, and the outer hash.
    pub const STEP_BYTES: u32 = 192;

    /// Returns the number of bytes that SHA-256 processes when it expands a key into `output` bytes with this number of
    /// bytes of information.
    pub const fn expanded(information: u32, output: u32) -> u32 {
        information.saturating_add(STEP_BYTES).saturating_mul(output.div_ceil(32))
    }
}

/// The algorithms of `aead_open`.
pub mod aead {
    /// AES-128 in Galois/Counter Mode (NIST SP 800-38D): a key of 16 bytes, a nonce of 12, a tag of 16.
    pub const AES128_GCM: u32 = 1;
    /// The bytes of a nonce.
    pub const NONCE_BYTES: u32 = 12;
    /// The bytes of the tag, which follows the ciphertext.
    pub const TAG_BYTES: u32 = 16;
}

/// The algorithms of `aes_block`.
pub mod aes {
    /// AES with a key of 128 bits (FIPS 197).
    pub const AES128: u32 = 1;
    /// The bytes of a block.
    pub const BLOCK_BYTES: u32 = 16;
}

/// The bytes of an AES-128 key.
pub const AES128_KEY_BYTES: u32 = 16;

/// The most bytes that one call processes: those of a packet.
pub const BYTES: u32 = 64 * 1024;

/// The size of a [`CryptoRequest`] in bytes.
pub const REQUEST_BYTES: usize = 48;

/// The request of a cryptographic host function, as it is in a module's memory. Lengths are in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct CryptoRequest {
    /// The number of the algorithm. Each function has its own numbers.
    pub algorithm: u32,
    /// The [kind](key) of the key.
    pub key_kind: u32,
    /// The address of the key.
    pub key: u32,
    /// The length of the key.
    pub key_len: u32,
    /// The address of the nonce.
    pub nonce: u32,
    /// The length of the nonce.
    pub nonce_len: u32,
    /// The address of the associated data, which is authenticated but not encrypted.
    pub aad: u32,
    /// The length of the associated data.
    pub aad_len: u32,
    /// The address of the input.
    pub input: u32,
    /// The length of the input.
    pub input_len: u32,
    /// The address of the output. It may overlap the input, which is read first.
    pub output: u32,
    /// The space at `output`; for `hkdf`'s expand step the number of bytes wanted.
    pub output_len: u32,
}
const _: () = assert!(size_of::<CryptoRequest>() == REQUEST_BYTES);

impl CryptoRequest {
    /// Reads a request from a module's memory.
    pub fn from_bytes(bytes: &[u8; REQUEST_BYTES]) -> Self {
        let mut words = bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut next = || words.next().unwrap_or(0);
        Self {
            algorithm: next(),
            key_kind: next(),
            key: next(),
            key_len: next(),
            nonce: next(),
            nonce_len: next(),
            aad: next(),
            aad_len: next(),
            input: next(),
            input_len: next(),
            output: next(),
            output_len: next(),
        }
    }
}
