//! Signatures of modules, as text files beside the modules.
//!
//! ```text
//! weir module signature 1
//! module e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
//! signer weir-key:…
//! signature …
//! ```
//!
//! The lines before `signature` are signed, in a context of their own; the signature is in base 32. The text names the
//! module by the SHA-256 of its bytes. So a new version of a module needs a new signature. It needs no new credential if
//! the credential names the signer.

use crate::base32;
use crate::grant::ModuleHash;
use crate::key::{Identity, PublicKey, Signature, SignatureContext};
use std::fmt;
use std::str::FromStr;

/// The maximum length of a signature's text, in bytes.
pub const SIGNATURE_BYTES_MAX: usize = 512;
/// The most signatures that are verified for one module.
pub const SIGNATURES_MAX: usize = 8;

const SIGNED: SignatureContext = SignatureContext::new("module");
const FIRST_LINE: &str = "weir module signature 1";

/// A valid signature of a module by a key. [`ModuleSignature::sign`] makes it; reading it from its text includes its
/// verification.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSignature {
    module: ModuleHash,
    signer: PublicKey,
    signature: Signature,
}

/// The reason for refusing a signature of a module.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// A text longer than [`SIGNATURE_BYTES_MAX`].
    #[error("the signature has {0} bytes; {SIGNATURE_BYTES_MAX} is the most")]
    TooLong(usize),
    /// More signatures than [`SIGNATURES_MAX`].
    #[error("there are {0} signatures; {SIGNATURES_MAX} is the most for one module")]
    TooMany(usize),
    /// A text that is not a signature of a module, or one of a later version.
    #[error("this is no signature of a module: one begins with `{FIRST_LINE}`, and `weir sign` makes it")]
    NotASignature,
    /// A line with an illegal content.
    #[error("line {line} of the signature should be {wanted}: was it copied whole?")]
    Line {
        /// The line, from 1.
        line: usize,
        /// The legal content.
        wanted: &'static str,
    },
    /// A signature that is not valid.
    #[error("the signature is forged or damaged: it was not made by {0}")]
    Forged(PublicKey),
    /// A valid signature, but of another module.
    #[error(
        "the signature by {signer} is of another module, {signed}, not of {module}: sign this one with `weir sign`, or leave the signature out"
    )]
    Another {
        /// The signer.
        signer: PublicKey,
        /// The module that was signed.
        signed: ModuleHash,
        /// The module for which the signature was supplied.
        module: ModuleHash,
    },
}

impl SignatureError {
    /// Returns true if a text is that of such an error.
    pub fn is_text(text: &str) -> bool {
        let beginnings = ["the signature ", "there are ", "this is no signature of a module", "line "];
        beginnings.iter().any(|begin| text.starts_with(begin)) && text.contains("signature")
    }
}

impl ModuleSignature {
    /// Signs a module, given as its bytes.
    pub fn sign(signer: &Identity, module: &[u8]) -> Self {
        let module = ModuleHash::of_bytes(module);
        let mut this = Self { module, signer: signer.public(), signature: Signature([0; 64]) };
        this.signature = signer.sign(SIGNED, this.signed_text().as_bytes());
        this
    }

    /// Returns the hash of the signed module.
    pub fn module(&self) -> &ModuleHash {
        &self.module
    }

    /// Returns the key that has signed.
    pub fn signer(&self) -> &PublicKey {
        &self.signer
    }

    fn signed_text(&self) -> String {
        format!("{FIRST_LINE}\nmodule {}\nsigner {}\n", self.module, self.signer)
    }
}

/// Verifies the signatures that were supplied for a module, and returns the signers.
///
/// # Errors
///
/// Fails for too many texts, a text that is not a valid signature, and a signature of another module. Keys are not
/// checked for trust here: the grant decides about them.
pub fn signers<T: AsRef<str>>(module: &ModuleHash, texts: &[T]) -> Result<Vec<PublicKey>, SignatureError> {
    if texts.len() > SIGNATURES_MAX {
        return Err(SignatureError::TooMany(texts.len()));
    }
    let mut signers = Vec::new();
    for text in texts {
        let signature: ModuleSignature = text.as_ref().parse()?;
        if signature.module != *module {
            let (signer, signed) = (signature.signer, signature.module);
            return Err(SignatureError::Another { signer, signed, module: *module });
        }
        signers.push(signature.signer);
    }
    Ok(signers)
}

impl fmt::Display for ModuleSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}signature {}", self.signed_text(), base32::encode(&self.signature.0))
    }
}

impl FromStr for ModuleSignature {
    type Err = SignatureError;

    /// Reads a signature, and verifies it.
    fn from_str(text: &str) -> Result<Self, SignatureError> {
        if text.len() > SIGNATURE_BYTES_MAX {
            return Err(SignatureError::TooLong(text.len()));
        }
        let mut lines = text.lines();
        if lines.next() != Some(FIRST_LINE) {
            return Err(SignatureError::NotASignature);
        }
        let mut value = |line, key: &str, wanted| {
            let wrong = SignatureError::Line { line, wanted };
            lines.next().and_then(|text| text.strip_prefix(key)).ok_or(wrong)
        };
        let wrong = |line, wanted| SignatureError::Line { line, wanted };
        let wanted = "`module` and the SHA-256 of its bytes";
        let module: ModuleHash = value(2, "module ", wanted)?.parse().map_err(|_| wrong(2, wanted))?;
        let wanted = "`signer` and a public key";
        let signer: PublicKey = value(3, "signer ", wanted)?.parse().map_err(|_| wrong(3, wanted))?;
        let wanted = "`signature` and the whole signature";
        let bytes = base32::decode(value(4, "signature ", wanted)?).and_then(|bytes| bytes.try_into().ok());
        let signature = Signature(bytes.ok_or(wrong(4, wanted))?);
        let this = Self { module, signer, signature };
        // Each signature has only one text, so that people read exactly what weir verifies.
        if this.to_string() != text {
            return Err(SignatureError::Forged(signer));
        }
        let signed = this.signed_text();
        signer.verify(SIGNED, signed.as_bytes(), &signature).map_err(|_| SignatureError::Forged(signer))?;
        Ok(this)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn person(number: u8) -> Identity {
        Identity::from_seed(&[number; 32])
    }

    fn read(text: &str) -> Result<ModuleSignature, SignatureError> {
        text.parse()
    }

    #[test]
    fn a_signature_is_written_and_read_again() {
        let signature = ModuleSignature::sign(&person(1), b"module");
        let text = signature.to_string();
        assert!(text.starts_with("weir module signature 1\nmodule "), "{text}");
        assert!(text.len() < SIGNATURE_BYTES_MAX);
        assert_eq!(read(&text), Ok(signature));
        let texts = [text, ModuleSignature::sign(&person(2), b"module").to_string()];
        let both = [person(1).public(), person(2).public()];
        assert_eq!(signers(&ModuleHash::of_bytes(b"module"), &texts), Ok(both.to_vec()));
        assert_eq!(signers::<String>(&ModuleHash::of_bytes(b"module"), &[]), Ok(Vec::new()));
    }

    #[test]
    fn a_text_that_is_no_signature_of_this_module_is_refused_with_a_reason() {
        let text = ModuleSignature::sign(&person(1), b"module").to_string();
        let other = ModuleSignature::sign(&person(1), b"other").to_string();
        let line = |text: &str, number: usize| text.lines().nth(number).unwrap().to_owned();
        let forged = SignatureError::Forged(person(1).public());
        // Another module under the same signature, another signer, the other module's signature.
        assert_eq!(read(&text.replace(&line(&text, 1), &line(&other, 1))), Err(forged.clone()));
        let by_other = text.replace(&line(&text, 2), &format!("signer {}", person(2).public()));
        assert_eq!(read(&by_other), Err(SignatureError::Forged(person(2).public())));
        assert_eq!(read(&text.replace(&line(&text, 3), &line(&other, 3))), Err(forged.clone()));
        // The same content in other words.
        for changed in
            [format!("{text}\n"), format!("{text}more"), text.replace('\n', "\r\n"), text.trim().to_owned()]
        {
            assert_eq!(read(&changed), Err(forged.clone()), "{changed:?}");
        }
        assert_eq!(
            read(&text.replace(&line(&text, 1), &line(&text, 1).to_uppercase().replace("MODULE", "module"))),
            Err(forged)
        );
        for (text, line) in [("module e3", 2), ("signer weir-key:", 3), ("signature a", 4)] {
            let whole = ModuleSignature::sign(&person(1), b"module").to_string();
            let cut: Vec<&str> = whole.lines().take(line - 1).chain([text]).collect();
            assert!(
                matches!(read(&cut.join("\n")), Err(SignatureError::Line { line: at, .. }) if at == line),
                "{text}"
            );
        }
        for nothing in ["", "weir module signature 2", "\0", "weir revocation list 1\n"] {
            assert_eq!(read(nothing), Err(SignatureError::NotASignature));
        }
        assert_eq!(read(&"x".repeat(1 << 20)), Err(SignatureError::TooLong(1 << 20)));
        let module = ModuleHash::of_bytes(b"module");
        assert!(matches!(signers(&module, &[&text, &other]), Err(SignatureError::Another { .. })));
        let many = vec![text; SIGNATURES_MAX + 1];
        assert_eq!(signers(&module, &many), Err(SignatureError::TooMany(9)));
    }

    #[test]
    fn a_signature_for_another_purpose_is_refused() {
        let mut signature = ModuleSignature::sign(&person(1), b"module");
        signature.signature =
            person(1).sign(SignatureContext::new("revocation list"), signature.signed_text().as_bytes());
        assert_eq!(read(&signature.to_string()), Err(SignatureError::Forged(person(1).public())));
    }

    proptest! {
        /// Cut, changed or other bytes: an error, and never a panic.
        #[test]
        fn no_text_causes_a_panic_and_no_changed_signature_is_valid(
            at in 0..300usize,
            with in any::<char>(),
            cut in any::<bool>(),
            other in "\\PC{0,80}",
        ) {
            let whole = ModuleSignature::sign(&person(1), b"module").to_string();
            let at = at % whole.len();
            let changed = if cut { whole[..at].to_owned() } else { format!("{}{with}{}", &whole[..at], &whole[at + 1..]) };
            if changed != whole {
                prop_assert!(read(&changed).is_err(), "{changed}");
            }
            prop_assert!(read(&other).is_err());
        }
    }

    #[test]
    fn the_text_of_every_error_is_recognised() {
        let key = crate::key::Identity::from_seed(&[1; 32]).public();
        let (signed, module) = (ModuleHash([1; 32]), ModuleHash([2; 32]));
        let all = [
            SignatureError::TooLong(9),
            SignatureError::TooMany(9),
            SignatureError::NotASignature,
            SignatureError::Line { line: 2, wanted: "a key" },
            SignatureError::Forged(key),
            SignatureError::Another { signer: key, signed, module },
        ];
        // A new error is added to the list when it is added here.
        let number = |error: &SignatureError| match error {
            SignatureError::TooLong(_) => 0,
            SignatureError::TooMany(_) => 1,
            SignatureError::NotASignature => 2,
            SignatureError::Line { .. } => 3,
            SignatureError::Forged(_) => 4,
            SignatureError::Another { .. } => 5,
        };
        for (index, error) in all.iter().enumerate() {
            assert!(number(error) == index && SignatureError::is_text(&error.to_string()), "{error}");
        }
        assert!(!SignatureError::is_text("there are too many sessions"));
    }
}
