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
