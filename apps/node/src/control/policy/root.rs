//! Roots of trust: whose credentials count, and for how much.

use super::error::line_of;
use super::grant::GrantText;
use super::{PolicyError, PolicyProblem};
use crate::control::quantity::QuantityText;
use crate::sessions::workshop::ShippedProfiles;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use weir_admission::Name;
use weir_trust::grant::Grant;
use weir_trust::key::PublicKey;

/// An operator, of this node or of another organisation, whose credentials count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// What the policy calls it; nothing of those of the configuration.
    pub name: Option<Name>,
    /// Its key.
    pub key: PublicKey,
    /// What all its credentials together give here at most.
    pub limit: Grant,
    /// The file that says so.
    pub file: PathBuf,
}

/// `roots/NAME.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RootText {
    key: QuantityText<PublicKey>,
    limit: Option<toml::Spanned<GrantText>>,
}

impl Root {
    /// Reads the file of a root.
    pub(super) fn parse(
        file: &Path,
        name: Name,
        text: &str,
        shipped: ShippedProfiles,
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

    /// What it is called where there is more to say of it.
    pub fn shown(&self) -> String {
        match &self.name {
            Some(name) => format!("root `{name}`"),
            None => format!("root {}", self.key),
        }
    }

    /// Profiles that its limit names are among these.
    pub(super) fn check_profiles(&self, known: &[Name]) -> Result<(), PolicyError> {
        let missing = self.limit.profiles.iter().flatten().find(|name| !known.contains(name));
        missing.map_or(Ok(()), |name| {
            let wrong = PolicyProblem::NoProfile { name: name.clone(), known: known.to_vec() };
            Err(PolicyError::new(&self.file, wrong))
        })
    }
}
