//! Signatures of modules: who vouches for one, in a text beside it.
//!
//! ```text
//! weir module signature 1
//! module e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855
//! signer weir-key:…
//! signature …
//! ```
//!
//! What is signed are all lines before the last one, in a context of their own; the signature is in base 32. The module is named by the SHA-256 of its bytes, so that a
//! new version of it takes a new signature, and no new credential where that names the signer.

use crate::base32;
use crate::grant::ModuleHash;
use crate::key::{Identity, PublicKey, Signature, SignatureContext};
use std::fmt;
use std::str::FromStr;

/// The longest text of a signature, in bytes; each has one that is shorter.
pub const SIGNATURE_BYTES_MAX: usize = 512;
/// The most signatures that are looked at for one module.
pub const SIGNATURES_MAX: usize = 8;

const SIGNED: SignatureContext = SignatureContext::new("module");
const FIRST_LINE: &str = "weir module signature 1";

/// That a key has signed a module: it can only be made by [`ModuleSignature::sign`], or read from a text whose signature holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleSignature {
    module: ModuleHash,
    signer: PublicKey,
    signature: Signature,
}

/// Why a text is no signature of a module. To blame is who gives it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// Too long.
    #[error("the signature has {0} bytes; {SIGNATURE_BYTES_MAX} is the most")]
    TooLong(usize),
    /// Too many of them.
    #[error("there are {0} signatures; {SIGNATURES_MAX} is the most for one module")]
    TooMany(usize),
    /// Something else, or of a later version.
    #[error("this is no signature of a module: one begins with `{FIRST_LINE}`, and `weir sign` makes it")]
    NotASignature,
    /// A line that is not what it should be.
    #[error("line {line} of the signature should be {wanted}: was it copied whole?")]
    Line {
        /// Line, from 1.
        line: usize,
        /// What should be there.
        wanted: &'static str,
    },
    /// It does not hold.
    #[error("the signature is forged or damaged: it was not made by {0}")]
    Forged(PublicKey),
    /// It is of other bytes.
    #[error(
        "the signature by {signer} is of another module, {signed}, not of {module}: sign this one with `weir sign`, or leave the signature out"
    )]
    Another {
        /// Who has signed,
        signer: PublicKey,
        /// what,
        signed: ModuleHash,
        /// and what it was given for.
        module: ModuleHash,
    },
}

impl ModuleSignature {
    /// Signs a module, by its bytes.
    pub fn sign(signer: &Identity, module: &[u8]) -> Self {
        let module = ModuleHash::of(module);
        let mut this = Self { module, signer: signer.public(), signature: Signature([0; 64]) };
        this.signature = signer.sign(SIGNED, this.signed_text().as_bytes());
        this
    }

    /// Which module was signed.
    pub fn module(&self) -> &ModuleHash {
        &self.module
    }

    /// By whom.
    pub fn signer(&self) -> &PublicKey {
        &self.signer
    }

    fn signed_text(&self) -> String {
        format!("{FIRST_LINE}\nmodule {}\nsigner {}\n", self.module, self.signer)
    }
}

/// Those who have signed a module, by the texts that are given for it.
///
/// # Errors
///
/// Too many texts, one that is no signature, and one that is of another module. A key that nobody trusts is none: what it is worth says the grant.
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
        let mut after = |line, key: &str, wanted| {
            let wrong = SignatureError::Line { line, wanted };
            lines.next().and_then(|text| text.strip_prefix(key)).ok_or(wrong)
        };
        let wrong = |line, wanted| SignatureError::Line { line, wanted };
        let wanted = "`module` and the SHA-256 of its bytes";
        let module: ModuleHash = after(2, "module ", wanted)?.parse().map_err(|_| wrong(2, wanted))?;
        let wanted = "`signer` and a public key";
        let signer: PublicKey = after(3, "signer ", wanted)?.parse().map_err(|_| wrong(3, wanted))?;
        let wanted = "`signature` and the whole signature";
        let bytes = base32::decode(after(4, "signature ", wanted)?).and_then(|bytes| bytes.try_into().ok());
        let signature = Signature(bytes.ok_or(wrong(4, wanted))?);
        let this = Self { module, signer, signature };
        // One signature has one text: what people read in it cannot differ from what weir does.
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
        assert_eq!(signers(&ModuleHash::of(b"module"), &texts), Ok(both.to_vec()));
        assert_eq!(signers::<String>(&ModuleHash::of(b"module"), &[]), Ok(Vec::new()));
    }

    #[test]
    fn what_is_no_signature_of_this_module_is_refused_with_its_reason() {
        let text = ModuleSignature::sign(&person(1), b"module").to_string();
        let other = ModuleSignature::sign(&person(1), b"other").to_string();
        let line = |text: &str, number: usize| text.lines().nth(number).unwrap().to_owned();
        let forged = SignatureError::Forged(person(1).public());
        // Another module under the same signature, another signer, the other module's signature.
        assert_eq!(read(&text.replace(&line(&text, 1), &line(&other, 1))), Err(forged.clone()));
        let by_other = text.replace(&line(&text, 2), &format!("signer {}", person(2).public()));
        assert_eq!(read(&by_other), Err(SignatureError::Forged(person(2).public())));
        assert_eq!(read(&text.replace(&line(&text, 3), &line(&other, 3))), Err(forged.clone()));
        // The same in other words.
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
        let module = ModuleHash::of(b"module");
        assert!(matches!(signers(&module, &[&text, &other]), Err(SignatureError::Another { .. })));
        let many = vec![text; SIGNATURES_MAX + 1];
        assert_eq!(signers(&module, &many), Err(SignatureError::TooMany(9)));
    }

    #[test]
    fn what_was_signed_for_something_else_is_no_signature_of_a_module() {
        let mut signature = ModuleSignature::sign(&person(1), b"module");
        signature.signature =
            person(1).sign(SignatureContext::new("revocation list"), signature.signed_text().as_bytes());
        assert_eq!(read(&signature.to_string()), Err(SignatureError::Forged(person(1).public())));
    }

    proptest! {
        /// Cut, changed or other bytes: an error, and never a panic.
        #[test]
        fn no_bytes_panic_and_no_changed_ones_are_a_signature(
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
}
