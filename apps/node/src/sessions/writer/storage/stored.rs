//! Reading of stored record files: those of open sessions and of closed ones. Only complete files are read. Files and
//! folders are opened by their exact names in the list of files, so no other file can be reached, and no symbolic link
//! is followed.

use super::{ClosedFile, RecordStorage, SessionFolder};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use weir_admission::Name;
use weir_ledger::Digest;
use weir_os::private::PrivateFolder;
use weir_records::FileSummary;
use weir_trust::credential::DelegationId;
use weir_units::Timestamp;

/// The stored record files of all sessions of a node.
#[derive(Clone, Debug)]
pub(crate) struct StoredRecords(Arc<RecordStorage>);

/// A session with record files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredSession {
    /// The node's name of the session.
    pub(crate) name: Name,
    /// Credential of the session's owner: the last delegation of its chain. `None` for the operator.
    pub(crate) owner: Option<DelegationId>,
    /// Number of the open session of this name; `None` if the session is closed.
    pub(crate) opened: Option<u64>,
    /// Number of module folders whose files are still being written.
    pub(crate) open_folders: u64,
}

/// A complete record file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredFile {
    /// Name of its folder: `MODULE-NUMBER`.
    pub(crate) folder: Arc<str>,
    /// Name of the file.
    pub(crate) name: String,
    /// Time at which the file was completed.
    pub(crate) completed: Timestamp,
}

/// An open record file.
#[derive(Debug)]
pub(crate) struct OpenRecordFile {
    pub(crate) file: File,
    /// Length of the file in bytes.
    pub(crate) bytes: u64,
    /// Hash of the file, if it was computed before.
    pub(crate) digest: Option<Digest>,
    /// Time at which the file was created, if the file system knows it.
    pub(crate) created: Option<Timestamp>,
    stamp: FileStamp,
}

/// The metadata by which a change of a file is noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp {
    device: u64,
    inode: u64,
    len: u64,
    seconds: i64,
    nanos: i64,
}

impl FileStamp {
    fn new(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            seconds: metadata.mtime(),
            nanos: metadata.mtime_nsec(),
        }
    }
}

/// The summary and the digest of a file, as far as the node has computed them, with the stamp of the file at that time.
#[derive(Clone, Copy, Debug)]
struct FileContent {
    stamp: FileStamp,
    summary: Option<FileSummary>,
    digest: Option<Digest>,
}

/// A file in the index.
#[derive(Debug)]
struct IndexedFile {
    is_incomplete: bool,
    written_by: u64,
    content: Option<FileContent>,
}

/// The files of a session that are not open, by folder and name.
#[derive(Debug, Default)]
pub(super) struct FileIndex(BTreeMap<(Arc<str>, String), IndexedFile>);

impl FileIndex {
    pub(super) fn add(&mut self, file: &ClosedFile) {
        let ClosedFile { is_incomplete, written_by, .. } = *file;
        self.0.insert(key(&file.label, &file.name), IndexedFile { is_incomplete, written_by, content: None });
    }

    pub(super) fn remove(&mut self, file: &ClosedFile) {
        self.0.remove(&key(&file.label, &file.name));
    }

    /// Returns true if the index has a complete file of this name for a reader. `written_by` restricts the reader to
    /// the files of one open session.
    fn has(&self, folder: &str, name: &str, written_by: Option<u64>) -> bool {
        self.0.get(&key(&folder.into(), name)).is_some_and(|file| {
            !file.is_incomplete && written_by.is_none_or(|number| file.written_by == number)
        })
    }

    /// Returns what is known of a file's content, if the file has not changed since.
    fn content(&self, folder: &str, name: &str, stamp: FileStamp) -> Option<FileContent> {
        let file = self.0.get(&key(&folder.into(), name))?;
        file.content.filter(|content| content.stamp == stamp)
    }

    /// Changes what is known of a file's content. Does nothing if the file was deleted meanwhile.
    fn change(&mut self, folder: &str, name: &str, stamp: FileStamp, change: impl FnOnce(&mut FileContent)) {
        let Some(file) = self.0.get_mut(&key(&folder.into(), name)) else { return };
        let unknown = FileContent { stamp, summary: None, digest: None };
        let known = file.content.filter(|content| content.stamp == stamp);
        change(file.content.insert(known.unwrap_or(unknown)));
    }
}

fn key(folder: &Arc<str>, name: &str) -> (Arc<str>, String) {
    (Arc::clone(folder), name.to_owned())
}

impl SessionFolder {
    fn stored(&self, name: &Name) -> StoredSession {
        StoredSession {
            name: name.clone(),
            owner: self.holder.ids().last(),
            opened: self.session.as_ref().map(|session| session.number),
            open_folders: u64::try_from(self.open_folders.len()).unwrap_or(u64::MAX),
        }
    }
}

impl StoredRecords {
    pub(in crate::sessions::writer) fn of(storage: &Arc<RecordStorage>) -> Self {
        Self(Arc::clone(storage))
    }

    /// Returns the session with this name of the node, if it has a folder of record files.
    pub(crate) fn session(&self, name: &Name) -> Option<StoredSession> {
        self.0.lock().sessions.get(name).map(|folder| folder.stored(name))
    }

    /// Returns all sessions with record files that match.
    pub(crate) fn sessions(&self, matches: impl Fn(&StoredSession) -> bool) -> Vec<StoredSession> {
        let state = self.0.lock();
        state.sessions.iter().map(|(name, folder)| folder.stored(name)).filter(|it| matches(it)).collect()
    }

    /// Returns the complete files of a session, by folder and name. `written_by` restricts them to those of one open
    /// session.
    pub(crate) fn files(&self, session: &Name, written_by: Option<u64>) -> Vec<StoredFile> {
        let state = self.0.lock();
        let Some(folder) = state.sessions.get(session) else { return Vec::new() };
        let is_readable = |file: &&ClosedFile| {
            !file.is_incomplete && written_by.is_none_or(|number| file.written_by == number)
        };
        let readable = folder.closed.iter().filter(is_readable);
        let mut files: Vec<StoredFile> = readable
            .map(|file| StoredFile {
                folder: Arc::clone(&file.label),
                name: file.name.clone(),
                completed: Timestamp(file.time),
            })
            .collect();
        drop(state);
        let number = |file: &StoredFile| {
            file.folder.rsplit_once('-').and_then(|(_, number)| number.parse().ok()).unwrap_or(u64::MAX)
        };
        files.sort_by_cached_key(|file| {
            (file.completed, number(file), Arc::clone(&file.folder), file.name.clone())
        });
        files
    }

    /// Opens a complete file. Returns `None` if it is not stored, any more or for this reader.
    ///
    /// # Errors
    ///
    /// The file is stored and cannot be opened.
    pub(crate) fn open(
        &self,
        session: &Name,
        (folder, name): (&str, &str),
        written_by: Option<u64>,
    ) -> std::io::Result<Option<OpenRecordFile>> {
        let is_there = |files: &SessionFolder| files.index.has(folder, name, written_by);
        if !self.0.lock().sessions.get(session).is_some_and(is_there) {
            return Ok(None);
        }
        // No lock is held while files are opened. A file that is deleted meanwhile is missing, or stays readable.
        let opened = PrivateFolder::open(&self.0.folder(session))
            .and_then(|session| session.open_in(folder))
            .and_then(|folder| folder.open_file(name));
        let file = match opened {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let metadata = file.metadata()?;
        let stamp = FileStamp::new(&metadata);
        let state = self.0.lock();
        let known = state.sessions.get(session).and_then(|files| files.index.content(folder, name, stamp));
        let created = metadata.created().ok().map(|time| Timestamp(super::disk::nanos(time)));
        let digest = known.and_then(|content| content.digest);
        Ok(Some(OpenRecordFile { file, bytes: stamp.len, digest, created, stamp }))
    }

    /// Returns the summary of an open file, which is read from the file's footer once. `None` if the footer cannot be read.
    pub(crate) fn summary(
        &self,
        session: &Name,
        (folder, name): (&str, &str),
        open: &OpenRecordFile,
    ) -> Option<FileSummary> {
        let known = {
            let state = self.0.lock();
            state.sessions.get(session).and_then(|files| files.index.content(folder, name, open.stamp))
        };
        if let Some(summary) = known.and_then(|content| content.summary) {
            return Some(summary);
        }
        let summary = FileSummary::read(&open.file).ok()?;
        self.remember(session, (folder, name), open, |content| content.summary = Some(summary));
        Some(summary)
    }

    /// Remembers the hash of an open file's content.
    pub(crate) fn set_digest(
        &self,
        session: &Name,
        file: (&str, &str),
        open: &OpenRecordFile,
        digest: Digest,
    ) {
        // A file that was changed while it was read has another stamp now.
        if open.file.metadata().is_ok_and(|metadata| FileStamp::new(&metadata) == open.stamp) {
            self.remember(session, file, open, |content| content.digest = Some(digest));
        }
    }

    fn remember(
        &self,
        session: &Name,
        (folder, name): (&str, &str),
        open: &OpenRecordFile,
        add: impl FnOnce(&mut FileContent),
    ) {
        let mut state = self.0.lock();
        if let Some(files) = state.sessions.get_mut(session) {
            files.index.change(folder, name, open.stamp, add);
        }
    }
}
