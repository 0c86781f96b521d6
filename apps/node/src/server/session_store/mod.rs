//! The folder of saved sessions: one file for each session, and one for each module file that they use.
//!
//! ```text
//!   sessions/HASH.session    a session, as JSON; HASH is the hash of the node's name for the session
//!   sessions/HASH.wasm       a module; HASH is the hash of its bytes
//!   sessions/starts          points for starts after which the node soon crashed: see `start_guard`
//! ```
//!
//! All names are hashes, so no client chooses a path. Files are replaced atomically. The bytes of all files are limited
//! in total, under each root, and under each key of a delegation chain, so that delegation does not increase a holder's
//! limit. A session beyond a limit is not saved.

mod start_guard;

pub(crate) use start_guard::{NotedSurvival, StartGuard};

use crate::sessions::saved::SavedSession;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use weir_admission::{MODULE_BYTES_MAX, Name};
use weir_os::private::{PrivateError, PrivateFolder};
use weir_trust::credential::DelegationId;
use weir_trust::grant::ModuleHash;
use weir_units::{Bytes, hex};

/// The name of the folder in the state folder.
pub(crate) const FOLDER: &str = "sessions";
/// The maximum length of a session's file, in bytes.
const SESSION_BYTES_MAX: usize = 1 << 20;
/// The minimum number of bytes that a file counts as, which limits the number of files.
const FILE_BYTES_MIN: u64 = 4096;
/// The maximum number of bytes of the files under one key of a delegation chain.
const KEY_BYTES_MAX: u64 = 64 << 20;
/// The maximum number of bytes of the files under one root.
const ROOT_BYTES_MAX: u64 = 256 << 20;
/// The maximum number of bytes of all holders' files together. The operator's files have a separate limit of the same size.
const ALL_BYTES_MAX: u64 = 1 << 30;
/// The maximum number of entries of the folder that are read.
const ENTRIES_MAX: usize = 1 << 17;
/// The extension of a session's file.
const SESSION: &str = "session";
/// The extension of a module's file.
const MODULE: &str = "wasm";

/// The reason why a session is not saved, or cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    #[error("{0}")]
    File(#[from] PrivateError),
    #[error("its description is longer than {}", Bytes(SESSION_BYTES_MAX as u64))]
    TooLong,
    #[error("saved sessions and modules {0} have at most {1} together")]
    Full(&'static str, Bytes),
    #[error("its file is damaged: {0}")]
    Damaged(String),
    #[error(
        "{0}; its earlier file cannot be removed ({1}), so a restart restores the session as that file has it"
    )]
    Stays(PrivateError, io::Error),
}

impl StoreError {
    /// Returns true if the same attempt may succeed later. A file that could not be read because of a transient error stays.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::File(_) | Self::Stays(..))
    }
}

impl From<io::Error> for StoreError {
    fn from(error: io::Error) -> Self {
        Self::File(error.into())
    }
}

/// A saved session's share of the folder.
#[derive(Debug, Default)]
struct StoredSession {
    /// The root and the chain of its owner; empty for the operator.
    chain: Vec<DelegationId>,
    bytes: u64,
    /// The hash of the session's file; `None` before the file is written.
    written_hash: Option<[u8; 32]>,
    modules: BTreeMap<ModuleHash, u64>,
}

/// The folder of saved sessions.
#[derive(Debug)]
pub(crate) struct SessionStore {
    folder: PrivateFolder,
    /// Sessions by the names of their files, without the extension.
    sessions: BTreeMap<String, StoredSession>,
    /// Module files of the folder.
    modules: BTreeSet<ModuleHash>,
    /// Module files that are never removed, as a session that could not be read may use them.
    protected: BTreeSet<ModuleHash>,
}

/// A session's file that was found in the folder. Only the session's number was read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FoundSession {
    /// The session's number.
    number: u64,
    /// The name of the file without the extension.
    stem: String,
}

/// Returns the name of a session's file, without the extension.
fn stem_of(session: &Name) -> String {
    hex(&Sha256::new().chain_update(b"weir saved session 1\0").chain_update(session.as_str()).finalize())
}

/// Returns the number of bytes that a file of this length counts as.
fn size(bytes: usize) -> u64 {
    (bytes as u64).max(FILE_BYTES_MIN)
}

impl SessionStore {
    /// Opens the folder, and creates it if missing. `state` is the node's state folder.
    ///
    /// # Errors
    /// The folder cannot be used: it is a link, or belongs to another user.
    pub(crate) fn open(state: &Path) -> Result<Self, StoreError> {
        let folder = PrivateFolder::make(&state.join(FOLDER))?;
        Ok(Self { folder, sessions: BTreeMap::new(), modules: BTreeSet::new(), protected: BTreeSet::new() })
    }

    /// Reads the names of all files, and the number of each session. Returns the sessions in the order of their creation,
    /// and the reasons why others cannot be read. Damaged files are removed. If the system refuses to read a session's file, that
    /// file and all module files stay, as the session may use them.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub(crate) fn find(&mut self) -> Result<(Vec<FoundSession>, Vec<StoreError>), StoreError> {
        #[derive(Deserialize)]
        struct Numbered {
            number: u64,
        }
        let (mut found, mut unreadable, mut is_complete) = (Vec::new(), Vec::new(), true);
        for entry in std::fs::read_dir(self.folder.path())?.take(ENTRIES_MAX) {
            let name = entry?.file_name();
            let Some((stem, extension)) = name.to_str().and_then(|name| name.rsplit_once('.')) else {
                continue;
            };
            match extension {
                SESSION => {
                    let read = self.read_file(stem, SESSION, SESSION_BYTES_MAX).and_then(|bytes| {
                        let read = serde_json::from_slice::<Numbered>(&bytes);
                        read.map_err(|error| StoreError::Damaged(error.to_string()))
                    });
                    match read {
                        Ok(Numbered { number }) => found.push(FoundSession { number, stem: stem.to_owned() }),
                        Err(error) => {
                            is_complete &= self.remove_damaged(stem, &error);
                            unreadable.push(error);
                        }
                    }
                }
                MODULE => self.modules.extend(stem.parse::<ModuleHash>()),
                // An incomplete file, left by a crash.
                "new" => _ = self.folder.remove(&format!("{stem}.{extension}")),
                _ => {}
            }
        }
        if !is_complete {
            self.protected.clone_from(&self.modules);
        }
        found.sort();
        Ok((found, unreadable))
    }

    /// Removes a session's file after this error, if the error is not transient. Returns true if the file is removed.
    fn remove_damaged(&self, stem: &str, error: &StoreError) -> bool {
        if !error.is_transient() {
            _ = self.folder.remove(&format!("{stem}.{SESSION}"));
        }
        !error.is_transient()
    }

    fn read_file(&self, stem: &str, extension: &str, bytes_max: usize) -> Result<Vec<u8>, StoreError> {
        let mut bytes = Vec::new();
        let file = self.folder.open_file(&format!("{stem}.{extension}"))?;
        file.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
        if bytes.len() > bytes_max {
            return Err(StoreError::Damaged(format!("it is longer than {}", Bytes(bytes_max as u64))));
        }
        Ok(bytes)
    }

    /// Reads a session that was [found](Self::find). From now on the session's files count towards the limits, and stay until
    /// the session is removed.
    ///
    /// # Errors
    /// The file is damaged and has been removed; or it cannot be read now, and stays.
    pub(crate) fn read(&mut self, found: &FoundSession) -> Result<SavedSession, StoreError> {
        let damaged = |error: &dyn std::fmt::Display| StoreError::Damaged(error.to_string());
        let read = self.read_file(&found.stem, SESSION, SESSION_BYTES_MAX).and_then(|bytes| {
            let saved: SavedSession = serde_json::from_slice(&bytes).map_err(|error| damaged(&error))?;
            let is_own = stem_of(&saved.session.name) == found.stem && saved.number == found.number;
            if is_own && saved.is_valid() {
                Ok((saved, bytes))
            } else {
                Err(damaged(&"it is not of this form"))
            }
        });
        let (saved, bytes) = match read {
            Ok(read) => read,
            Err(error) => {
                if !self.remove_damaged(&found.stem, &error) {
                    self.protected.clone_from(&self.modules);
                }
                return Err(error);
            }
        };
        let mut modules = BTreeMap::new();
        for hash in saved.modules.iter().filter_map(|module| module.file) {
            let len =
                self.folder.open_file(&format!("{hash}.{MODULE}")).ok().and_then(|file| file.metadata().ok());
            modules.insert(hash, len.map_or(0, |known| known.len().max(FILE_BYTES_MIN)));
        }
        let (chain, written) = (saved.claimed_chain(), Some(Sha256::digest(&bytes).into()));
        let session = StoredSession { chain, bytes: size(bytes.len()), written_hash: written, modules };
        self.sessions.insert(found.stem.clone(), session);
        Ok(saved)
    }

    /// Reads the file of a saved module.
    ///
    /// # Errors
    /// The file is missing or damaged.
    pub(crate) fn read_module(&self, hash: &ModuleHash) -> Result<Vec<u8>, StoreError> {
        let bytes = self.read_file(&hash.to_string(), MODULE, MODULE_BYTES_MAX)?;
        if ModuleHash::of_bytes(&bytes) != *hash {
            return Err(StoreError::Damaged(format!("its SHA-256 is not {hash}")));
        }
        Ok(bytes)
    }

    /// Writes the file of a module, if the folder does not have it, for a session with this chain.
    ///
    /// # Errors
    /// The file would exceed a limit, or cannot be written.
    pub(crate) fn add_module(
        &mut self,
        session: &Name,
        chain: &[DelegationId],
        hash: ModuleHash,
        bytes: &[u8],
    ) -> Result<(), StoreError> {
        let stem = stem_of(session);
        let is_counted = self.sessions.get(&stem).is_some_and(|stored| stored.modules.contains_key(&hash));
        if !is_counted {
            self.check_limits(&stem, chain, 0, &BTreeMap::from([(hash, size(bytes.len()))]))?;
        }
        if !self.modules.contains(&hash) || self.read_module(&hash).is_err() {
            self.folder.replace(&format!("{hash}.{MODULE}"), bytes)?;
            self.modules.insert(hash);
        }
        let stored = self.sessions.entry(stem).or_default();
        stored.chain = chain.to_vec();
        stored.modules.insert(hash, size(bytes.len()));
        Ok(())
    }

    /// Writes a session, if it differs from its file. Module files that the session does not use any more are removed. Modules
    /// whose files are not in the folder are left out.
    ///
    /// # Errors
    /// The session's file would exceed a limit, or cannot be written. The earlier file is then removed, as the session may
    /// have had more rights when that file was written.
    pub(crate) fn write(&mut self, mut saved: SavedSession) -> Result<(), StoreError> {
        let stem = stem_of(&saved.session.name);
        let known = self.sessions.get(&stem).map(|stored| stored.modules.clone()).unwrap_or_default();
        saved.modules.retain(|module| module.file.is_none_or(|hash| known.contains_key(&hash)));
        let modules: BTreeMap<ModuleHash, u64> = saved
            .modules
            .iter()
            .filter_map(|module| module.file.and_then(|hash| Some((hash, *known.get(&hash)?))))
            .collect();
        let text = serde_json::to_vec(&saved).map_err(|error| StoreError::Damaged(error.to_string()))?;
        let chain = saved.claimed_chain();
        let fits = match text.len() {
            len if len > SESSION_BYTES_MAX => Err(StoreError::TooLong),
            len => self.check_limits(&stem, &chain, size(len), &modules),
        };
        if let Err(error) = fits {
            self.remove(&saved.session.name)?;
            return Err(error);
        }
        let written = Some(Sha256::digest(&text).into());
        // For example, a session that was just restored is equal to its file.
        if self.sessions.get(&stem).is_none_or(|stored| stored.written_hash != written) {
            let file = format!("{stem}.{SESSION}");
            if let Err(error) = self.folder.replace(&file, &text) {
                // The session and its modules still count, as the next attempt may succeed.
                if let Some(stored) = self.sessions.get_mut(&stem) {
                    stored.written_hash = None;
                }
                return Err(match self.folder.remove(&file).and_then(|()| self.folder.sync()) {
                    Err(stays) if stays.kind() != ErrorKind::NotFound => StoreError::Stays(error, stays),
                    _ => error.into(),
                });
            }
        }
        self.sessions
            .insert(stem, StoredSession { chain, bytes: size(text.len()), written_hash: written, modules });
        self.remove_unused_modules(known.into_keys());
        Ok(())
    }

    /// Removes a session's file, and its module files that no other session uses.
    ///
    /// # Errors
    /// The file cannot be removed.
    pub(crate) fn remove(&mut self, session: &Name) -> Result<(), StoreError> {
        let stem = stem_of(session);
        let removed_session = self.sessions.remove(&stem);
        match self.folder.remove(&format!("{stem}.{SESSION}")) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            removed => removed.is_ok().then(|| self.folder.sync()).transpose()?,
        };
        self.remove_unused_modules(removed_session.into_iter().flat_map(|stored| stored.modules.into_keys()));
        Ok(())
    }

    /// Removes all module files that no session uses. To be called after all sessions were read.
    pub(crate) fn remove_all_unused_modules(&mut self) {
        self.remove_unused_modules(self.modules.clone().into_iter());
    }

    fn remove_unused_modules(&mut self, candidates: impl Iterator<Item = ModuleHash>) {
        for hash in candidates {
            let is_used = self.sessions.values().any(|stored| stored.modules.contains_key(&hash));
            if !is_used && !self.protected.contains(&hash) && self.modules.remove(&hash) {
                _ = self.folder.remove(&format!("{hash}.{MODULE}"));
            }
        }
    }

    /// Removes the files of all these sessions and their modules. Returns the number of sessions.
    pub(crate) fn remove_all(&mut self, found: &[FoundSession]) -> usize {
        self.sessions.clear();
        for FoundSession { stem, .. } in found {
            _ = self.folder.remove(&format!("{stem}.{SESSION}"));
        }
        self.remove_all_unused_modules();
        found.len()
    }

    /// Returns the guard against repeated crashes after a start.
    pub(crate) fn guard(&self) -> StartGuard<'_> {
        StartGuard::new(&self.folder)
    }

    /// Checks that a session's file of `bytes` and these module files keep within the limits, beside the files of other
    /// sessions.
    fn check_limits(
        &self,
        stem: &str,
        chain: &[DelegationId],
        bytes: u64,
        modules: &BTreeMap<ModuleHash, u64>,
    ) -> Result<(), StoreError> {
        let total_under = |is_under: &dyn Fn(&StoredSession) -> bool| {
            let mut all = modules.clone();
            let mut sum = bytes;
            for (other, stored) in self.sessions.iter().filter(|(_, stored)| is_under(stored)) {
                // A module file counts once, however many sessions use it.
                all.extend(stored.modules.iter().map(|(hash, len)| (*hash, *len)));
                sum += if other == stem { 0 } else { stored.bytes };
            }
            all.values().fold(sum, |sum, len| sum.saturating_add(*len))
        };
        if total_under(&|stored| stored.chain.is_empty() == chain.is_empty()) > ALL_BYTES_MAX {
            return Err(StoreError::Full("on this node", Bytes(ALL_BYTES_MAX)));
        }
        for (depth, id) in chain.iter().enumerate() {
            let (of, limit) = match depth {
                0 => ("under this root", ROOT_BYTES_MAX),
                _ => ("under this credential", KEY_BYTES_MAX),
            };
            if total_under(&|stored| stored.chain.get(depth) == Some(id)) > limit {
                return Err(StoreError::Full(of, Bytes(limit)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
