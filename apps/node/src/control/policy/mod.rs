//! An operator's policy: profiles, roots of trust, revocation lists and test cases, read from a folder and from a node's
//! configuration.
//!
//! - *Profiles*: limits and tier thresholds for modules (`weir_admission::Profile`).
//! - *Roots of trust*: keys whose credentials are valid on a node, each with a limit ([`Root`]). A credential allows a
//!   request that all grants of its chain and the limit of its root allow. The usage of all sessions under a root stays
//!   within the root's limit.
//! - *Compiler keys*, whose machine code the node runs.
//! - *Revocation lists* of these roots.
//!
//! Profiles, roots and revocation lists can be in a node's configuration, in files of one folder that the configuration
//! names (`[policy]`), or in both:
//!
//! ```text
//!   policy.d/profiles/NAME.toml    a profile, called NAME
//!   policy.d/roots/NAME.toml       a root: its key, and under [limit] the most that it may grant
//!   policy.d/compilers/NAME.toml   a compiler key, and what it is trusted for
//!   policy.d/revoked/NAME          a revocation list
//!   policy.d/cases/NAME.toml       test cases: requests with their expected results
//! ```
//!
//! *Test cases* are decided by the functions that decide on live requests ([`Policy::try_cases`]), before a policy takes
//! effect. A policy with a failing test case is refused.
//!
//! Files whose names begin with a dot or end with `~` are ignored. Any other unknown file is an error, so that no file
//! of an operator is silently without effect.

mod case;
mod error;
mod findings;
mod grant;
mod root;

pub use case::{Case, Expect};
pub(crate) use case::{CaseCredential, CaseKey};
pub use error::{PolicyError, PolicyProblem};
pub use findings::PolicyFinding;
pub use root::Root;

use crate::control::ShippedModules;
use crate::control::compiler_config::CompilerConfig;
use crate::control::config::{NodeConfiguration, RemoteConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use weir_admission::{Name, PROFILE_BYTES_MAX, Profile};
use weir_compilation::compiler_keys::CompilerKey;
use weir_trust::grant::{Grant, UnixSecond};
use weir_trust::key::PublicKey;
use weir_trust::revocation::{LIST_BYTES_MAX, ListReception, RevocationList, Revocations};

/// Maximum length of a root's file, in bytes.
const ROOT_BYTES_MAX: usize = 256 << 10;
/// Maximum length of a compiler's file, in bytes.
const COMPILER_BYTES_MAX: usize = 4 << 10;
/// Maximum length of a file with test cases, in bytes.
const CASES_BYTES_MAX: usize = 1 << 20;
/// Maximum number of files in one folder of a policy.
const FILES_MAX: usize = 1024;

/// An operator's policy.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// Profiles by name.
    pub profiles: BTreeMap<Name, Profile>,
    /// Roots whose credentials are valid on the node.
    pub roots: Vec<Root>,
    /// Keys of compilers, with the files that name them.
    pub compilers: Vec<(PathBuf, CompilerKey)>,
    /// Accepted revocations of these roots.
    pub revocations: Revocations,
    /// Files with revocation lists.
    pub lists: Vec<PathBuf>,
    /// Folder in which files that are added later are revocation lists as well.
    pub revoked: Option<PathBuf>,
    /// Test cases, all of which must have their expected results.
    pub cases: Vec<Case>,
    /// Files of the profiles, by name of the profile.
    profile_files: BTreeMap<Name, PathBuf>,
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
        for compiler in &config.compilers {
            policy.add_compiler(path, compiler.to_key())?;
        }
        if let Some(folder) = &config.policy {
            policy.read_folder(&beside(&folder.dir), shipped)?;
        }
        policy
            .lists
            .extend(config.remote.iter().flat_map(|remote| &remote.revocations).map(|file| beside(file)));
        policy.finish()?;
        policy.check_compilers(config.remote.is_some())?;
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
        for part in folder_entries(folder)? {
            match part.file_name().and_then(|name| name.to_str()) {
                Some("profiles") => {
                    for (file, name) in toml_files(&part)? {
                        self.add_profile(&file, name)?;
                    }
                }
                Some("roots") => {
                    for (file, name) in toml_files(&part)? {
                        let text = self.read_text(&file, ROOT_BYTES_MAX)?;
                        self.add_root(Root::parse(&file, name, &text, shipped)?)?;
                    }
                }
                Some("compilers") => {
                    for (file, _) in toml_files(&part)? {
                        let text = self.read_text(&file, COMPILER_BYTES_MAX)?;
                        let compiler: CompilerConfig =
                            toml::from_str(&text).map_err(|error| PolicyError::toml(&file, &text, &error))?;
                        self.add_compiler(&file, compiler.to_key())?;
                    }
                }
                Some("revoked") => self.lists.extend(folder_entries(&part)?),
                Some("cases") => cases = toml_files(&part)?,
                _ => return Err(PolicyError::new(&part, PolicyProblem::UnknownFile)),
            }
        }
        // Test cases refer to roots, so they are read last.
        for (file, _) in cases {
            let text = self.read_text(&file, CASES_BYTES_MAX)?;
            let read = Case::read(self, &file, &text, shipped)?;
            self.cases.extend(read);
        }
        Ok(())
    }

    fn add_root(&mut self, root: Root) -> Result<(), PolicyError> {
        if let Some(earlier) = self.roots.iter().find(|earlier| earlier.key == root.key) {
            let (what, first) = (root.key.to_string(), earlier.file.clone());
            return Err(PolicyError::new(&root.file, PolicyProblem::Duplicate { what, first }));
        }
        self.roots.push(root);
        Ok(())
    }

    fn add_compiler(&mut self, file: &Path, compiler: CompilerKey) -> Result<(), PolicyError> {
        if let Some((first, _)) = self.compilers.iter().find(|(_, earlier)| earlier.key == compiler.key) {
            let (what, first) = (compiler.key.to_string(), first.clone());
            return Err(PolicyError::new(file, PolicyProblem::Duplicate { what, first }));
        }
        self.compilers.push((file.to_owned(), compiler));
        Ok(())
    }

    /// Checks that the keys that can revoke compilers are roots, which can be in the configuration.
    fn check_compilers(&self, has_remote_access: bool) -> Result<(), PolicyError> {
        for (file, compiler) in &self.compilers {
            if compiler.revoked_by.is_some() && !has_remote_access {
                return Err(PolicyError::new(file, PolicyProblem::RevokedByWithoutRemote));
            }
            let unknown =
                compiler.revoked_by.filter(|root| self.roots.iter().all(|known| known.key != *root));
            if let Some(root) = unknown {
                return Err(PolicyError::new(file, PolicyProblem::RevokedByUnknown(root)));
            }
        }
        Ok(())
    }

    /// Checks references between files, and accepts the revocation lists.
    fn finish(&mut self) -> Result<(), PolicyError> {
        let profiles: Vec<Name> = self.profiles.keys().cloned().collect();
        self.roots.iter().try_for_each(|root| root.check_profiles(&profiles))?;
        let (keys, now) = (self.keys(), UnixSecond::containing(weir_datapath::clock::wall_clock()));
        for file in self.lists.clone() {
            let wrong = |wrong| PolicyError::new(&file, PolicyProblem::Revocation(wrong));
            let list: RevocationList = self.read_text(&file, LIST_BYTES_MAX)?.parse().map_err(wrong)?;
            let accepted = self.revocations.accept(&list, &ListReception::new(&keys, now)).map_err(wrong)?;
            if let Some(left_out) = accepted.left_out {
                return Err(wrong(left_out));
            }
        }
        Ok(())
    }

    fn add_profile(&mut self, file: &Path, name: Name) -> Result<(), PolicyError> {
        let text = self.read_text(file, PROFILE_BYTES_MAX)?;
        let profile = Profile::parse(&text).map_err(|error| PolicyError::new(file, error))?;
        if let Some(first) = self.profile_files.insert(name.clone(), file.to_owned()) {
            let what = format!("profile `{name}`");
            return Err(PolicyError::new(file, PolicyProblem::Duplicate { what, first }));
        }
        self.profiles.insert(name, profile);
        Ok(())
    }

    /// Returns the key of the root with this name, or with this text of its key.
    fn root_key(&self, called: &str) -> Option<PublicKey> {
        let is_called = |root: &&Root| {
            root.name.as_ref().is_some_and(|name| name.as_str() == called) || root.key.to_string() == called
        };
        self.roots.iter().find(is_called).map(|root| root.key)
    }

    fn read_text(&mut self, path: &Path, bytes_max: usize) -> Result<String, PolicyError> {
        let text = read_text(path, bytes_max)?;
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(text)
    }

    fn read_file(&mut self, path: &Path, bytes_max: usize) -> Result<Vec<u8>, PolicyError> {
        let bytes = read_file(path, bytes_max)?;
        self.bytes.extend_from_slice(&bytes);
        Ok(bytes)
    }
}

/// Returns the files with revocation lists that exist now: `files`, and the files in `folder`.
pub(crate) fn revocation_files(files: &[PathBuf], folder: Option<&Path>) -> BTreeSet<PathBuf> {
    let in_folder = folder.and_then(|folder| folder_entries(folder).ok()).unwrap_or_default();
    files.iter().cloned().chain(in_folder).collect()
}

/// Reads a file of at most `bytes_max` bytes.
fn read_file(path: &Path, bytes_max: usize) -> Result<Vec<u8>, PolicyError> {
    let wrong = |error| PolicyError::new(path, PolicyProblem::Read(error));
    let mut bytes = Vec::new();
    let file = weir_os::private::open_regular(path).map_err(wrong)?;
    file.take(bytes_max as u64 + 1).read_to_end(&mut bytes).map_err(wrong)?;
    if bytes.len() > bytes_max {
        return Err(PolicyError::new(path, PolicyProblem::TooLong(bytes_max)));
    }
    Ok(bytes)
}

/// Reads a text of at most `bytes_max` bytes.
pub(crate) fn read_text(path: &Path, bytes_max: usize) -> Result<String, PolicyError> {
    let no_text =
        |_| PolicyError::new(path, PolicyProblem::Read(io::Error::other("the file is not UTF-8 text")));
    String::from_utf8(read_file(path, bytes_max)?).map_err(no_text)
}

/// Returns the entries of a folder in the order of their names, without hidden files and editors' backups.
fn folder_entries(folder: &Path) -> Result<Vec<PathBuf>, PolicyError> {
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
            return Err(PolicyError::new(folder, PolicyProblem::TooManyFiles(FILES_MAX)));
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the files `NAME.toml` of a folder, each with its name. Any other file is an error.
fn toml_files(folder: &Path) -> Result<Vec<(PathBuf, Name)>, PolicyError> {
    let with_name = |path: PathBuf| {
        let file = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(stem) = file.strip_suffix(".toml") else {
            return Err(PolicyError::new(&path, PolicyProblem::UnknownFile));
        };
        let name = Name::new(stem).map_err(|_| PolicyError::new(&path, PolicyProblem::InvalidFileName))?;
        Ok((path, name))
    };
    folder_entries(folder)?.into_iter().map(with_name).collect()
}
