//! The file of a private key: a few lines of text, plain or sealed with a passphrase.
//!
//! ```text
//! weir private key 1
//! public weir-key:…
//! argon2id memory 65536 passes 3 salt …
//! sealed …
//! ```
//!
//! A file without a passphrase has a line `plain …` in place of the last two lines. Bytes are in base 32. A sealed key
//! is encrypted with ChaCha20-Poly1305 (RFC 8439), under a key that Argon2id (RFC 9106) derives from the passphrase and
//! the salt. The lines before `sealed` are authenticated as associated data. Each file has its own salt and so its own
//! derived key, which encrypts only one message: so the nonce is zero.

use super::{Identity, KeyError, PublicKey};
use crate::base32;
use argon2::{Algorithm, Argon2, Params, Version};
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{ChaCha20Poly1305, Key, Nonce};
use rand_core::{CryptoRng, RngCore};
use std::fmt::Write;
use std::ops::RangeInclusive;
use weir_units::Bytes;
use zeroize::Zeroizing;

/// The longest file of a private key, in bytes: twice the usual length.
pub const FILE_BYTES_MAX: usize = 1024;
/// The longest passphrase, in bytes.
pub const PASSPHRASE_BYTES_MAX: usize = 1024;

const FIRST_LINE: &str = "weir private key ";
const VERSION: &str = "1";
const SALT_BYTES: usize = 16;
const MEMORY_KIB: RangeInclusive<u32> = 8 << 10..=1 << 20;
const PASSES: RangeInclusive<u32> = 1..=16;

/// The cost of trying one passphrase, in memory and passes over it. An attacker with the file pays it for each guess,
/// and the owner for each use. A file can ask for 8 MiB to 1 GiB of memory, and for 1 to 16 passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassphraseCost {
    memory_kib: u32,
    passes: u32,
}

impl PassphraseCost {
    /// The cost that RFC 9106, section 4, recommends for limited memory: 64 MiB, three passes. The derivation uses one
    /// lane instead of four, because a single user waits for it.
    pub const RECOMMENDED: Self = Self { memory_kib: 64 << 10, passes: 3 };
    /// The lowest cost that a file can ask for.
    pub const MINIMUM: Self = Self { memory_kib: *MEMORY_KIB.start(), passes: *PASSES.start() };

    fn new(memory_kib: u32, passes: u32) -> Option<Self> {
        (MEMORY_KIB.contains(&memory_kib) && PASSES.contains(&passes)).then_some(Self { memory_kib, passes })
    }

    /// Returns the memory that the derivation of a key from the passphrase takes.
    pub fn memory(self) -> Bytes {
        Bytes(u64::from(self.memory_kib) << 10)
    }
}

/// The reason why the file of a private key could not be read or made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyFileError {
    /// A text that is not the file of a private key.
    #[error(
        "this is not the file of a private key: one begins with `weir private key 1`; `weir key new FILE` makes one"
    )]
    NotAKey,
    /// A file longer than [`FILE_BYTES_MAX`].
    #[error("the file has {0} bytes; that of a private key has at most {FILE_BYTES_MAX}")]
    TooLong(usize),
    /// A file of a later version of weir.
    #[error("the file is of version `{}`; this weir reads version {VERSION}", .0.escape_debug())]
    Version(String),
    /// A file whose end is missing.
    #[error("the file ends where {wanted} should follow, in line {line}: restore it from a copy")]
    Cut {
        /// The line, from 1.
        line: usize,
        /// The missing content.
        wanted: &'static str,
    },
    /// A line with an illegal content.
    #[error("line {line} should be {wanted}: restore the file from a copy")]
    Line {
        /// The line, from 1.
        line: usize,
        /// The legal content.
        wanted: &'static str,
    },
    /// A public key that is not legal.
    #[error("line 2: {0}")]
    Public(#[from] KeyError),
    /// A cost above the maximum, or below the safe minimum.
    #[error(
        "line 3 asks for {} of memory and {passes} passes; from {} to {} and from {} to {} are allowed", Bytes(u64::from(*memory_kib) << 10),
        Bytes(u64::from(*MEMORY_KIB.start()) << 10), Bytes(u64::from(*MEMORY_KIB.end()) << 10), PASSES.start(), PASSES.end()
    )]
    Cost {
        /// The memory, in KiB.
        memory_kib: u32,
        /// The passes over the memory.
        passes: u32,
    },
    /// The file is sealed, and no passphrase was given.
    #[error("the private key is sealed with a passphrase, and none was given")]
    NoPassphrase,
    /// The passphrase does not open the file.
    #[error("the passphrase is wrong, or the file was changed")]
    WrongPassphrase,
    /// The private key does not belong to the public key.
    #[error(
        "the private key in line 3 is not that of the public key in line 2: restore the file from a copy"
    )]
    Mismatch,
    /// A passphrase longer than [`PASSPHRASE_BYTES_MAX`].
    #[error("the passphrase has {0} bytes; {PASSPHRASE_BYTES_MAX} is the most")]
    LongPassphrase(usize),
    /// Not enough memory for the derivation.
    #[error("deriving the key from the passphrase takes {0} of memory, and there is less")]
    Memory(Bytes),
}

/// The file of a private key, parsed but not decrypted.
#[derive(Debug)]
pub struct KeyFile {
    public: PublicKey,
    secret: Secret,
}

enum Secret {
    Plain(Zeroizing<Vec<u8>>),
    Sealed { cost: PassphraseCost, salt: Vec<u8>, sealed: Vec<u8>, lines_before: String },
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if matches!(self, Self::Plain(_)) { "Plain" } else { "Sealed" })
    }
}

impl KeyFile {
    /// Parses a file's text. This is cheap, unlike [`KeyFile::open`], which derives a key.
    ///
    /// # Errors
    /// A [`KeyFileError`] for the first illegal line.
    pub fn parse(text: &str) -> Result<Self, KeyFileError> {
        if text.len() > FILE_BYTES_MAX {
            return Err(KeyFileError::TooLong(text.len()));
        }
        let mut lines = text.lines();
        let version =
            lines.next().and_then(|line| line.strip_prefix(FIRST_LINE)).ok_or(KeyFileError::NotAKey)?;
        if version != VERSION {
            return Err(KeyFileError::Version(version.chars().take(20).collect()));
        }
        let wanted = "`public` and a public key";
        let line = lines.next().ok_or(KeyFileError::Cut { line: 2, wanted })?;
        let public = line.strip_prefix("public ").ok_or(KeyFileError::Line { line: 2, wanted })?.parse()?;
        let wanted = "`plain …` or `argon2id memory … passes … salt …`";
        let line = lines.next().ok_or(KeyFileError::Cut { line: 3, wanted })?;
        let secret_part = if let Some(secret) = line.strip_prefix("plain ") {
            let secret = base32::decode(secret).ok_or(KeyFileError::Line { line: 3, wanted })?;
            Secret::Plain(Zeroizing::new(secret))
        } else {
            let (cost, salt) = read_derivation(line)?;
            let wanted = "`sealed` and the encrypted key";
            let cut = KeyFileError::Cut { line: 4, wanted };
            let sealed = lines.next().ok_or(cut)?.strip_prefix("sealed ").and_then(base32::decode);
            let sealed = sealed.ok_or(KeyFileError::Line { line: 4, wanted })?;
            Secret::Sealed { cost, sealed, lines_before: lines_before(&public, cost, &salt), salt }
        };
        match lines.next() {
            Some(_) => Err(KeyFileError::Line { line: text.lines().count(), wanted: "the end of the file" }),
            None => Ok(Self { public, secret: secret_part }),
        }
    }

    /// Returns the public key that the file names. Only opening the file proves that the private key belongs to it.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Returns the cost of opening the file; `None` for a file without a passphrase.
    pub fn cost(&self) -> Option<PassphraseCost> {
        match &self.secret {
            Secret::Plain(_) => None,
            Secret::Sealed { cost, .. } => Some(*cost),
        }
    }

    /// Opens the file: decrypts a sealed key, and returns the identity. The passphrase is ignored for a plain file.
    ///
    /// # Errors
    /// Fails if a passphrase is needed and missing or wrong, and if the file was damaged.
    pub fn open(&self, passphrase: Option<&[u8]>) -> Result<Identity, KeyFileError> {
        let secret = match &self.secret {
            Secret::Plain(secret) => secret.clone(),
            Secret::Sealed { cost, salt, sealed, lines_before } => {
                let passphrase = passphrase.ok_or(KeyFileError::NoPassphrase)?;
                let payload = Payload { msg: sealed, aad: lines_before.as_bytes() };
                let opened = cipher(passphrase, salt, *cost)?.decrypt(&Nonce::default(), payload);
                Zeroizing::new(opened.map_err(|_| KeyFileError::WrongPassphrase)?)
            }
        };
        let seed = secret.as_slice().try_into().map_err(|_| KeyFileError::Mismatch)?;
        let identity = Identity::from_seed(seed);
        if identity.public() == self.public { Ok(identity) } else { Err(KeyFileError::Mismatch) }
    }

    /// Returns the text of a file with the key in plain form: everyone who can read the file has the key.
    pub fn plain(identity: &Identity) -> Zeroizing<String> {
        let secret = Zeroizing::new(base32::encode(identity.seed().as_slice()));
        Zeroizing::new(format!(
            "{FIRST_LINE}{VERSION}\npublic {}\nplain {}\n",
            identity.public(),
            secret.as_str()
        ))
    }

    /// Returns the text of a file with the sealed key.
    ///
    /// # Errors
    /// Fails for a passphrase that is too long, and if there is not enough memory.
    pub fn sealed(
        identity: &Identity,
        passphrase: &[u8],
        cost: PassphraseCost,
        random: &mut (impl RngCore + CryptoRng),
    ) -> Result<String, KeyFileError> {
        let mut salt = [0; SALT_BYTES];
        random.fill_bytes(&mut salt);
        let mut text = lines_before(&identity.public(), cost, &salt);
        let seed = identity.seed();
        let payload = Payload { msg: seed.as_slice(), aad: text.as_bytes() };
        // Encryption only fails for a message of more than 256 GiB.
        let sealed = cipher(passphrase, &salt, cost)?.encrypt(&Nonce::default(), payload);
        let sealed = sealed.map_err(|_| KeyFileError::Mismatch)?;
        let _ = writeln!(text, "sealed {}", base32::encode(&sealed));
        Ok(text)
    }
}

fn lines_before(public: &PublicKey, cost: PassphraseCost, salt: &[u8]) -> String {
    let PassphraseCost { memory_kib, passes } = cost;
    let salt = base32::encode(salt);
    format!(
        "{FIRST_LINE}{VERSION}\npublic {public}\nargon2id memory {memory_kib} passes {passes} salt {salt}\n"
    )
}

fn read_derivation(line: &str) -> Result<(PassphraseCost, Vec<u8>), KeyFileError> {
    let wrong =
        || KeyFileError::Line { line: 3, wanted: "`plain …` or `argon2id memory … passes … salt …`" };
    let words: Vec<&str> = line.split(' ').collect();
    let ["argon2id", "memory", memory, "passes", passes, "salt", salt] = words.as_slice() else {
        return Err(wrong());
    };
    let memory_kib = memory.parse().map_err(|_| wrong())?;
    let passes = passes.parse().map_err(|_| wrong())?;
    let cost = PassphraseCost::new(memory_kib, passes).ok_or(KeyFileError::Cost { memory_kib, passes })?;
    let salt = base32::decode(salt).filter(|salt| salt.len() == SALT_BYTES).ok_or_else(wrong)?;
    Ok((cost, salt))
}

fn cipher(passphrase: &[u8], salt: &[u8], cost: PassphraseCost) -> Result<ChaCha20Poly1305, KeyFileError> {
    if passphrase.len() > PASSPHRASE_BYTES_MAX {
        return Err(KeyFileError::LongPassphrase(passphrase.len()));
    }
    let no_memory = |_| KeyFileError::Memory(cost.memory());
    let params = Params::new(cost.memory_kib, cost.passes, 1, Some(32)).map_err(no_memory)?;
    let mut key = Zeroizing::new([0; 32]);
    let derivation = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
    derivation.hash_password_into(passphrase, salt, key.as_mut()).map_err(no_memory)?;
    Ok(ChaCha20Poly1305::new(Key::from_slice(key.as_slice())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_core::{Error, impls};

    /// A counter as a random source, so that tests are repeatable.
    struct Counting(u64);

    impl RngCore for Counting {
        fn next_u32(&mut self) -> u32 {
            u32::try_from(self.next_u64()).unwrap_or_default()
        }
        fn next_u64(&mut self) -> u64 {
            self.0 += 1;
            self.0
        }
        fn fill_bytes(&mut self, dest: &mut [u8]) {
            impls::fill_bytes_via_next(self, dest);
        }
        fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
            self.fill_bytes(dest);
            Ok(())
        }
    }

    impl CryptoRng for Counting {}

    fn sealed() -> (Identity, String) {
        let identity = Identity::generate(&mut Counting(0));
        let text =
            KeyFile::sealed(&identity, b"open sesame", PassphraseCost::MINIMUM, &mut Counting(9)).unwrap();
        (identity, text)
    }

    #[test]
    fn a_plain_key_is_kept() {
        let identity = Identity::generate(&mut Counting(0));
        let file = KeyFile::parse(&KeyFile::plain(&identity)).unwrap();
        assert_eq!((file.public(), file.cost()), (identity.public(), None));
        assert_eq!(file.open(None).unwrap().seed(), identity.seed());
        assert_eq!(
            format!("{file:?}"),
            format!("KeyFile {{ public: {}, secret: Plain }}", identity.public())
        );
    }

    #[test]
    fn a_sealed_key_opens_with_its_passphrase_only() {
        let (identity, text) = sealed();
        let file = KeyFile::parse(&text).unwrap();
        assert_eq!((file.public(), file.cost()), (identity.public(), Some(PassphraseCost::MINIMUM)));
        assert_eq!(file.open(Some(b"open sesame")).unwrap().seed(), identity.seed());
        assert_eq!(file.open(None).unwrap_err(), KeyFileError::NoPassphrase);
        for wrong in [b"open sesame ".as_slice(), b"", b"Open sesame"] {
            assert_eq!(file.open(Some(wrong)).unwrap_err(), KeyFileError::WrongPassphrase);
        }
        let long = [b'x'; PASSPHRASE_BYTES_MAX + 1];
        assert_eq!(file.open(Some(&long)).unwrap_err(), KeyFileError::LongPassphrase(long.len()));
    }

    #[test]
    fn two_files_of_one_key_and_passphrase_have_nothing_in_common() {
        let (identity, first) = sealed();
        let second =
            KeyFile::sealed(&identity, b"open sesame", PassphraseCost::MINIMUM, &mut Counting(99)).unwrap();
        for line in [2, 3] {
            assert_ne!(first.lines().nth(line), second.lines().nth(line));
        }
    }

    #[test]
    fn a_changed_file_does_not_open() {
        let (_, text) = sealed();
        let other = Identity::from_seed(&[3; 32]).public().to_string();
        let public = text.lines().nth(1).unwrap().strip_prefix("public ").unwrap();
        for changed in [
            text.replace(public, &other),
            text.replace("passes 1", "passes 2"),
            text.replace("memory 8192", "memory 8193"),
        ] {
            assert_ne!(changed, text);
            let opened = KeyFile::parse(&changed).unwrap().open(Some(b"open sesame"));
            assert_eq!(opened.unwrap_err(), KeyFileError::WrongPassphrase, "{changed}");
        }
        let plain = KeyFile::plain(&Identity::from_seed(&[5; 32]))
            .replace(&Identity::from_seed(&[5; 32]).public().to_string(), &other);
        assert_eq!(KeyFile::parse(&plain).unwrap().open(None).unwrap_err(), KeyFileError::Mismatch);
    }

    #[test]
    fn an_error_in_a_file_is_named() {
        let (_, text) = sealed();
        let read = |text: &str| KeyFile::parse(text).unwrap_err();
        assert_eq!(read(""), KeyFileError::NotAKey);
        assert_eq!(read("-----BEGIN PRIVATE KEY-----"), KeyFileError::NotAKey);
        assert_eq!(read("weir private key 2\n"), KeyFileError::Version("2".to_owned()));
        assert_eq!(read(&"x".repeat(2000)), KeyFileError::TooLong(2000));
        let lines: Vec<&str> = text.lines().collect();
        for kept in 1..4 {
            let cut = read(&lines[..kept].join("\n"));
            assert!(matches!(cut, KeyFileError::Cut { line, .. } if line == kept + 1), "{cut}");
        }
        assert!(matches!(read(&text.replace("public", "pubic")), KeyFileError::Line { line: 2, .. }));
        assert!(matches!(read(&text.replace("argon2id", "md5")), KeyFileError::Line { line: 3, .. }));
        assert!(matches!(read(&text.replace("salt ", "salt a")), KeyFileError::Line { line: 3, .. }));
        assert!(matches!(read(&text.replace("sealed", "saved")), KeyFileError::Line { line: 4, .. }));
        assert!(matches!(read(&format!("{text}more\n")), KeyFileError::Line { line: 5, .. }));
        let expensive = read(&text.replace("memory 8192", "memory 4194304"));
        assert_eq!(
            expensive.to_string(),
            "line 3 asks for 4 GiB of memory and 1 passes; from 8 MiB to 1 GiB and from 1 to 16 are allowed"
        );
        assert!(matches!(read(&text.replace("memory 8192", "memory 8")), KeyFileError::Cost { .. }));
        assert!(matches!(read(&text.replace("passes 1", "passes 4294967295")), KeyFileError::Cost { .. }));
        assert!(matches!(read(&text.replace("passes 1", "passes -1")), KeyFileError::Line { line: 3, .. }));
    }

    #[test]
    fn no_truncated_sealed_file_opens() {
        let (_, text) = sealed();
        let whole = text.trim_end().len();
        // Cuts within the last line leave a shorter sealed text; those before it leave none.
        for end in (0..whole).step_by(7).chain([whole - 1]) {
            if let Ok(file) = KeyFile::parse(&text[..end]) {
                assert_eq!(file.open(Some(b"open sesame")).unwrap_err(), KeyFileError::WrongPassphrase);
            }
        }
    }
}
