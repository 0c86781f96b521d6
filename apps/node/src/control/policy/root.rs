//! Roots of trust of a policy, with the limits of their grants.

use super::error::line_of;
use super::grant::GrantText;
use super::{PolicyError, PolicyProblem};
use crate::control::ShippedModules;
use crate::control::quantity::AsText;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use weir_admission::Name;
use weir_trust::grant::Grant;
use weir_trust::key::PublicKey;

/// A root of trust: the key of this node's operator or of another organisation, whose credentials are valid on this
/// node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Name in the policy; `None` for a root of the configuration.
    pub name: Option<Name>,
    /// Public key of the root.
    pub key: PublicKey,
    /// The most that all credentials of the root together allow on this node.
    pub limit: Grant,
    /// File that names the root.
    pub file: PathBuf,
}

/// Contents of `roots/NAME.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RootText {
    key: AsText<PublicKey>,
    limit: Option<toml::Spanned<GrantText>>,
}

impl Root {
    /// Parses the file of a root.
    pub(super) fn parse(
        file: &Path,
        name: Name,
        text: &str,
        shipped: ShippedModules,
    ) -> Result<Self, PolicyError> {
        let root: RootText = toml::from_str(text).map_err(|error| PolicyError::toml(file, text, &error))?;
        let limit = match &root.limit {
            None => Grant::default(),
            Some(limit) => limit.get_ref().grant(shipped).map_err(|wrong| PolicyError {
                line: Some(line_of(text, limit.span().start)),
                ..PolicyError::new(file, wrong)
            })?,
        };
        Ok(Self { name: Some(name), key: root.key.0, limit, file: file.to_owned() })
    }

    /// Returns the root's name or key for messages.
    pub fn in_words(&self) -> String {
        match &self.name {
            Some(name) => format!("root `{name}`"),
            None => format!("root {}", self.key),
        }
    }

    /// Checks that the profiles in the root's limit exist.
    pub(super) fn check_profiles(&self, known: &[Name]) -> Result<(), PolicyError> {
        let missing = self.limit.profiles.iter().flatten().find(|name| !known.contains(name));
        missing.map_or(Ok(()), |name| {
            let wrong = PolicyProblem::UnknownProfile { name: name.clone(), known: known.to_vec() };
            Err(PolicyError::new(&self.file, wrong))
        })
    }
}
