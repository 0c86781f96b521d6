//! The compilers of modules: the configuration section `[compilation]`, and compiler keys.

use crate::control::quantity;
use serde::Deserialize;
use std::collections::BTreeSet;
use weir_compilation::compiler_keys::{CompilerKey, VouchedFor};
use weir_trust::grant::UnixSecond;
use weir_trust::key::PublicKey;

/// The configuration section `[compilation]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CompilationConfig {
    /// True if the node compiles modules. Without it, the node runs only bundles with machine code of trusted compilers.
    pub compile: bool,
    /// Number of trusted compiler keys that must have signed each record of a bundle.
    pub signatures: u8,
}

/// The maximum of [`CompilationConfig::signatures`].
pub const SIGNATURES_MAX: u8 = 8;

impl Default for CompilationConfig {
    fn default() -> Self {
        Self { compile: true, signatures: 1 }
    }
}

/// A compiler key, as `[[compiler]]` of a configuration or `compilers/NAME.toml` of a policy describes it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CompilerConfig {
    /// Public key.
    #[serde(with = "quantity::text")]
    pub key: PublicKey,
    /// Statements for which the key is trusted: `semantics`, `bounds`, or both.
    #[serde(deserialize_with = "trusted_for")]
    pub trusted_for: BTreeSet<VouchedFor>,
    /// First second in which the key is not trusted any more; without an end by default.
    #[serde(default, with = "quantity::maybe")]
    pub expires: Option<UnixSecond>,
    /// Root of trust whose revocation lists can revoke the key; none by default.
    #[serde(default, with = "quantity::maybe")]
    pub revoked_by: Option<PublicKey>,
}

impl CompilerConfig {
    /// Returns the key for decisions.
    pub fn to_key(&self) -> CompilerKey {
        let Self { key, trusted_for, expires, revoked_by } = self.clone();
        CompilerKey { key, trusted_for, expires, revoked_by }
    }
}

fn trusted_for<'de, D: serde::Deserializer<'de>>(from: D) -> Result<BTreeSet<VouchedFor>, D::Error> {
    let given = BTreeSet::deserialize(from)?;
    if given.is_empty() {
        return Err(serde::de::Error::custom(
            "`trusted_for` must be a list of \"semantics\", \"bounds\", or both",
        ));
    }
    Ok(given)
}

#[cfg(test)]
mod tests {
    use crate::control::config::NodeConfiguration;
    use weir_compilation::compiler_keys::VouchedFor;
    use weir_trust::key::Identity;

    fn key(seed: u8) -> String {
        Identity::from_seed(&[seed; 32]).public().to_string()
    }

    #[test]
    fn compilers_are_read_with_their_trust_and_end() {
        let (one, root) = (key(1), key(2));
        let text = format!(
            "[compilation]\ncompile = false\nsignatures = 2\n\
             [[compiler]]\nkey = \"{one}\"\ntrusted_for = [\"bounds\"]\nexpires = \"2027-12-31\"\nrevoked_by = \"{root}\"\n\
             [[compiler]]\nkey = \"{root}\"\ntrusted_for = [\"semantics\", \"bounds\"]\n"
        );
        let config = NodeConfiguration::parse(&text).unwrap();
        assert_eq!((config.compilation.compile, config.compilation.signatures), (false, 2));
        let [limited, other] = [0, 1].map(|at| config.compilers[at].to_key());
        assert_eq!(limited.trusted_for.into_iter().collect::<Vec<_>>(), [VouchedFor::Bounds]);
        assert_eq!(limited.expires.unwrap().to_string(), "2027-12-31T00:00:00Z");
        assert_eq!(limited.revoked_by.unwrap().to_string(), root);
        assert_eq!((other.trusted_for.len(), other.expires, other.revoked_by), (2, None, None));
    }

    #[test]
    fn errors_say_what_a_compiler_needs() {
        let with = |more: &str| format!("[[compiler]]\nkey = \"{}\"\n{more}", key(1));
        for (text, says) in [
            (with(""), "missing field `trusted_for`"),
            (with("trusted_for = []"), "must be a list of \"semantics\", \"bounds\", or both"),
            (with("trusted_for = [\"memory\"]"), "unknown variant `memory`"),
            (with("trusted_for = [\"bounds\"]\nexpires = \"soon\""), "not a time between"),
            (with("trusted_for = [\"bounds\"]\nrevoked_by = \"me\""), "begins with `weir-key:`"),
            ("[[compiler]]\nkey = \"weir-key:no\"\ntrusted_for = [\"bounds\"]".to_owned(), "weir-key:"),
            ("[compilation]\nsignatures = 0".to_owned(), "`signatures` is 0; it must be from 1 to 8"),
            ("[compilation]\nsignatures = 9".to_owned(), "`signatures` is 9; it must be from 1 to 8"),
            ("[compilation]\ncompiler = true".to_owned(), "unknown field `compiler`"),
        ] {
            let error = NodeConfiguration::parse(&text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
