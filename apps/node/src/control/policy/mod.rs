//! An operator's policy: profiles, roots of trust, revocations and cases.
//!
//! - *Profiles*: limits of modules (`weir_admission::Profile`).
//! - *Roots of trust*: keys whose credentials count on a node, each with a limit ([`Root`]). A credential allows what
//!   all of its blocks and the limit of its root allow. The usage of all sessions under a root stays within that limit.
//! - *Revocation lists* of these roots.
//!
//! Profiles, roots and revocation lists can be in a node's configuration, in files of one folder that the configuration
//! names (`[policy]`), or in both:
//!
//! ```text
//!   policy.d/profiles/NAME.toml    a profile; the file's name is the profile's
//!   policy.d/roots/NAME.toml       a root: its key, and under [limit] the most that it may grant
//!   policy.d/revoked/NAME          a revocation list
//!   policy.d/cases/NAME.toml       cases: requests, with the expected results
//! ```
//!
//! *Cases* are tried by the functions that decide on live requests ([`Policy::try_cases`]), before a policy takes
//! effect. A policy with a failing case is refused.
//!
//! Files whose names begin with a dot or end with `~` are ignored. Any other unknown file is an error, so that no file
//! of an operator is silently without effect.

mod case;
mod error;
mod findings;
mod grant;
mod root;

pub use case::{Case, Expect};
pub(crate) use case::{CaseKey, CaseSubject};
pub use error::{PolicyError, PolicyProblem};
pub use findings::PolicyFinding;
pub use root::Root;

use crate::control::ShippedModules;
use crate::control::config::{NodeConfiguration, RemoteConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use weir_admission::{Name, PROFILE_BYTES_MAX, Profile};
use weir_trust::grant::{Grant, Second};
use weir_trust::key::PublicKey;
use weir_trust::revocation::{LIST_BYTES_MAX, Reception, RevocationList, Revocations};

/// The longest file of a root, in bytes.
const ROOT_BYTES_MAX: usize = 256 << 10;
/// The longest file of cases, in bytes.
const CASES_BYTES_MAX: usize = 1 << 20;
/// The most files in one folder of a policy.
const FILES_MAX: usize = 1024;

/// An operator's policy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Profiles by name.
    pub profiles: BTreeMap<Name, Profile>,
    /// Roots whose credentials count.
    pub roots: Vec<Root>,
    /// Accepted revocations of these roots.
    pub revocations: Revocations,
    /// Files with revocation lists.
    pub lists: Vec<PathBuf>,
    /// Folder whose further files are revocation lists.
    pub revoked: Option<PathBuf>,
    /// Cases that the policy has to fulfil.
    pub cases: Vec<Case>,
    /// Files of the profiles.
    files: BTreeMap<Name, PathBuf>,
    /// Contents of all files, concatenated.
    pub(crate) bytes: Vec<u8>,
}

impl Policy {
    /// Reads the policy of a configuration in the file at `path`, with the folder that it names.
    ///
    /// # Errors
    ///
    /// The first fault found.
    pub fn from_config(
        config: &NodeConfiguration,
        path: &Path,
        shipped: ShippedModules,
    ) -> Result<Self, PolicyError> {
        let mut policy = Self::default();
        let beside = |file: &Path| path.parent().map_or_else(|| file.to_owned(), |folder| folder.join(file));
        for profile in &config.profiles {
            policy.add_profile(&beside(&profile.file), profile.name.clone())?;
        }
        for key in config.remote.iter().flat_map(|remote| &remote.roots) {
            let root = Root { name: None, key: *key, limit: Grant::default(), file: path.to_owned() };
            policy.add_root(root)?;
        }
        if let Some(folder) = &config.policy {
            policy.read_folder(&beside(&folder.dir), shipped)?;
        }
        policy
            .lists
            .extend(config.remote.iter().flat_map(|remote| &remote.revocations).map(|file| beside(file)));
        policy.finish()?;
        let has_no_peers = |remote: &RemoteConfig| policy.roots.is_empty() && remote.operators.is_empty();
        if config.remote.as_ref().is_some_and(has_no_peers) {
            return Err(PolicyError::new(path, PolicyProblem::NoRoots));
        }
        Ok(policy)
    }

    /// Reads the policy of a folder alone.
    ///
    /// # Errors
    ///
    /// The first fault found.
    pub fn read(folder: &Path, shipped: ShippedModules) -> Result<Self, PolicyError> {
        let mut policy = Self::default();
        policy.read_folder(folder, shipped)?;
        policy.finish()?;
        Ok(policy)
    }

    /// Returns the keys of the policy's roots.
    pub fn keys(&self) -> Vec<PublicKey> {
        self.roots.iter().map(|root| root.key).collect()
    }

    fn read_folder(&mut self, folder: &Path, shipped: ShippedModules) -> Result<(), PolicyError> {
        self.revoked = Some(folder.join("revoked"));
        let mut cases = Vec::new();
        for part in listed(folder)? {
            match part.file_name().and_then(|name| name.to_str()) {
                Some("profiles") => {
                    for (file, name) in named(&part)? {
                        self.add_profile(&file, name)?;
                    }
                }
                Some("roots") => {
                    for (file, name) in named(&part)? {
                        let text = self.text(&file, ROOT_BYTES_MAX)?;
                        self.add_root(Root::parse(&file, name, &text, shipped)?)?;
                    }
                }
                Some("revoked") => self.lists.extend(listed(&part)?),
                Some("cases") => cases = named(&part)?,
                _ => return Err(PolicyError::new(&part, PolicyProblem::Stray)),
            }
        }
        // Cases name roots, so they are read last.
        for (file, _) in cases {
            let text = self.text(&file, CASES_BYTES_MAX)?;
            let read = Case::read(self, &file, &text, shipped)?;
            self.cases.extend(read);
        }
        Ok(())
    }

    fn add_root(&mut self, root: Root) -> Result<(), PolicyError> {
        if let Some(earlier) = self.roots.iter().find(|earlier| earlier.key == root.key) {
            let (what, first) = (root.key.to_string(), earlier.file.clone());
            return Err(PolicyError::new(&root.file, PolicyProblem::Twice { what, first }));
        }
        self.roots.push(root);
        Ok(())
    }

    /// Checks references between files, and accepts the revocation lists.
    fn finish(&mut self) -> Result<(), PolicyError> {
        let profiles: Vec<Name> = self.profiles.keys().cloned().collect();
        self.roots.iter().try_for_each(|root| root.check_profiles(&profiles))?;
        let (keys, now) = (self.keys(), Second::of(weir_datapath::clock::wall_clock()));
        for file in self.lists.clone() {
            let wrong = |wrong| PolicyError::new(&file, PolicyProblem::Revocation(wrong));
            let list: RevocationList = self.text(&file, LIST_BYTES_MAX)?.parse().map_err(wrong)?;
            let accepted = self.revocations.accept(&list, &Reception::new(&keys, now)).map_err(wrong)?;
            if let Some(left_out) = accepted.left_out {
                return Err(wrong(left_out));
            }
        }
        Ok(())
    }

    fn add_profile(&mut self, file: &Path, name: Name) -> Result<(), PolicyError> {
        let text = self.text(file, PROFILE_BYTES_MAX)?;
        let profile = Profile::parse(&text).map_err(|error| PolicyError::new(file, error))?;
        if let Some(first) = self.files.insert(name.clone(), file.to_owned()) {
            let what = format!("profile `{name}`");
            return Err(PolicyError::new(file, PolicyProblem::Twice { what, first }));
        }
        self.profiles.insert(name, profile);
        Ok(())
    }

    /// Returns the key of a root by its name or its text.
    fn root_called(&self, called: &str) -> Option<PublicKey> {
        let is_called = |root: &&Root| {
            root.name.as_ref().is_some_and(|name| name.as_str() == called) || root.key.to_string() == called
        };
        self.roots.iter().find(is_called).map(|root| root.key)
    }

    fn text(&mut self, path: &Path, most: usize) -> Result<String, PolicyError> {
        let text = read_text(path, most)?;
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(text)
    }

    fn file(&mut self, path: &Path, most: usize) -> Result<Vec<u8>, PolicyError> {
        let bytes = read_file(path, most)?;
        self.bytes.extend_from_slice(&bytes);
        Ok(bytes)
    }
}

/// Returns the present files with revocation lists: `files`, and the files in `folder`.
pub(crate) fn lists_of(files: &[PathBuf], folder: Option<&Path>) -> BTreeSet<PathBuf> {
    let in_folder = folder.and_then(|folder| listed(folder).ok()).unwrap_or_default();
    files.iter().cloned().chain(in_folder).collect()
}

/// Reads a file of at most `most` bytes.
fn read_file(path: &Path, most: usize) -> Result<Vec<u8>, PolicyError> {
    let wrong = |error| PolicyError::new(path, PolicyProblem::Read(error));
    let mut bytes = Vec::new();
    let file = weir_os::private::open_regular(path).map_err(wrong)?;
    file.take(most as u64 + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() > most {
        return Err(PolicyError::new(path, PolicyProblem::TooLong(most)));
    }
    Ok(bytes)
}

/// Reads a text of at most `most` bytes.
pub(crate) fn read_text(path: &Path, most: usize) -> Result<String, PolicyError> {
    let no_text = |_| PolicyError::new(path, PolicyProblem::Read(io::Error::other("it is not UTF-8 text")));
    String::from_utf8(read_file(path, most)?).map_err(no_text)
}

/// Returns the entries of a folder in the order of their names, without the backups of editors.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, PolicyError> {
    let wrong = |error| PolicyError::new(folder, PolicyProblem::Read(error));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(wrong)? {
        let path = entry.map_err(wrong)?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if name.starts_with('.') || name.ends_with('~') {
            continue;
        }
        found.push(path);
        if found.len() > FILES_MAX {
            return Err(PolicyError::new(folder, PolicyProblem::Many(FILES_MAX)));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the files `NAME.toml` of a folder.
fn named(folder: &Path) -> Result<Vec<(PathBuf, Name)>, PolicyError> {
    let named = |path: PathBuf| {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(stem) = file.strip_suffix(".toml") else {
            return Err(PolicyError::new(&path, PolicyProblem::Stray));
        };
        let name = Name::new(stem).map_err(|_| PolicyError::new(&path, PolicyProblem::Name))?;
        Ok((path, name))
    };
    listed(folder)?.into_iter().map(named).collect()
}
