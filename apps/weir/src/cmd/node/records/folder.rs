//! The folder of fetched record files: `SESSION/MODULE-NUMBER/STREAM.parquet`. Until a file is complete and its hash is
//! checked, its name ends with `.part`, and a later call continues it. No symbolic link is followed.

use super::{StoredRecordsError, folder_error};
use crate::Failure;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use weir_ledger::Digest;
use weir_node::client::{ListedRecords, RecordsFetch, RecordsFetchError, RecordsFetched};
use weir_os::private::{PrivateError, PrivateFolder};

/// The file that is locked while a process fetches into the folder.
const LOCK: &str = ".weir-records.lock";
/// Appended to the name of a file until it is complete.
const PART_SUFFIX: &str = ".part";
/// Attempts to fetch a file whose hash is not the node's.
const ATTEMPTS: u32 = 2;

/// A locked folder of fetched record files.
#[derive(Debug)]
pub(super) struct RecordsFolder {
    folder: PrivateFolder,
    _lock: File,
}

/// The result of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileResult {
    /// The file is complete now.
    Fetched {
        /// The bytes received by this call.
        received: u64,
    },
    /// The file was complete already.
    Complete,
    /// The node does not store the file any more.
    Gone,
}

impl RecordsFolder {
    /// Opens and locks a folder, which is created if it is missing.
    pub(super) fn open(path: &Path) -> Result<Self, StoredRecordsError> {
        let folder = PrivateFolder::make(path).map_err(|error| folder_error(path, error))?;
        let lock = folder.create_locked(LOCK).map_err(|error| folder_error(&path.join(LOCK), error))?;
        let lock = lock.ok_or_else(|| StoredRecordsError::Locked(path.to_owned()))?;
        Ok(Self { folder, _lock: lock })
    }

    fn path(&self, file: &ListedRecords) -> PathBuf {
        self.folder.path().join(file.to_string())
    }

    /// Opens the folder of a file, by `open` for each step of the path.
    fn folder_of(
        &self,
        file: &ListedRecords,
        open: fn(&PrivateFolder, &str) -> Result<PrivateFolder, PrivateError>,
    ) -> Result<PrivateFolder, StoredRecordsError> {
        let step = |folder: &PrivateFolder, name: &str| {
            open(folder, name).map_err(|error| folder_error(&folder.path().join(name), error))
        };
        step(&step(&self.folder, file.session.as_str())?, &file.folder())
    }

    /// Returns the bytes that a fetch of a file would receive, by the lengths of existing files.
    pub(super) fn missing_bytes(&self, file: &ListedRecords) -> Result<u64, StoredRecordsError> {
        let folder = match self.folder_of(file, PrivateFolder::open_in) {
            Err(StoredRecordsError::Folder { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Ok(file.bytes);
            }
            folder => folder?,
        };
        let length = |name: &str| Some(folder.open_file(name).ok()?.metadata().ok()?.len());
        if length(&file.file) == Some(file.bytes) {
            return Ok(0);
        }
        let part = length(&part_name(file)).filter(|length| *length <= file.bytes);
        Ok(file.bytes - part.unwrap_or(0))
    }

    /// Fetches a file, unless the folder has it already. `show` gets the number of received bytes, and `warn` lines for
    /// the user.
    pub(super) fn fetch<S: Read + Write>(
        &self,
        client: &mut RecordsFetch<'_, S>,
        file: &ListedRecords,
        show: &mut dyn FnMut(u64),
        warn: &dyn Fn(&str),
    ) -> Result<FileResult, Failure> {
        let path = self.path(file);
        let error = |error| folder_error(&path, error);
        let folder = self.folder_of(file, PrivateFolder::make_in)?;
        match self.is_complete(&folder, client, file)? {
            Some(true) => return Ok(FileResult::Complete),
            Some(false) => {
                warn(&format!(
                    "weir: {file}: the file in the folder is another one than on the node, and is replaced"
                ));
            }
            None => {}
        }
        let io_error = |source: io::Error| StoredRecordsError::File { path: path.clone(), source };
        let mut part = folder.create(&part_name(file)).map_err(error)?;
        let mut at = part.metadata().map_err(io_error)?.len();
        if at > file.bytes {
            part.set_len(0).map_err(io_error)?;
            at = 0;
        }
        let (mut hash, mut received) = (hash_of(&mut part).map_err(io_error)?, 0u64);
        for attempt in 1.. {
            let end = client.fetch(file, at, &mut |bytes| {
                part.write_all(bytes)?;
                hash.update(bytes);
                received = received.saturating_add(bytes.len() as u64);
                show(received);
                Ok(())
            });
            let stated = match end {
                Ok(RecordsFetched::Whole(stated)) => stated,
                Ok(RecordsFetched::Gone) => {
                    // Without its end, a file has no footer, so nothing can be read from it.
                    folder.remove(&part_name(file)).map_err(io_error)?;
                    return Ok(FileResult::Gone);
                }
                Err(RecordsFetchError::Write(source)) => return Err(io_error(source).into()),
                Err(RecordsFetchError::Client(error)) => return Err(error.into()),
            };
            let digest = Digest(std::mem::take(&mut hash).finalize().into());
            if digest == stated {
                break;
            }
            part.set_len(0).and_then(|()| part.seek(SeekFrom::Start(0))).map_err(io_error)?;
            if attempt >= ATTEMPTS {
                folder.remove(&part_name(file)).map_err(io_error)?;
                return Err(StoredRecordsError::Digest { path, received: digest, stated }.into());
            }
            at = 0;
            warn(&format!(
                "weir: {file}: the received bytes are not those of the node's file, which has changed or was received incompletely before: it is fetched again from its beginning"
            ));
        }
        part.sync_all().map_err(io_error)?;
        folder.rename(&part_name(file), &file.file).and_then(|()| folder.sync()).map_err(io_error)?;
        Ok(FileResult::Fetched { received })
    }

    /// Returns true if the folder has the complete file, false if it has another file of its name, and `None` if it has
    /// none. Asks the node for the file's hash if the list does not have it.
    fn is_complete<S: Read + Write>(
        &self,
        folder: &PrivateFolder,
        client: &mut RecordsFetch<'_, S>,
        file: &ListedRecords,
    ) -> Result<Option<bool>, Failure> {
        let path = self.path(file);
        let io_error = |source: io::Error| StoredRecordsError::File { path: path.clone(), source };
        let mut existing = match folder.open_file(&file.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            existing => existing.map_err(|error| folder_error(&path, error))?,
        };
        if existing.metadata().map_err(io_error)?.len() != file.bytes {
            return Ok(Some(false));
        }
        let own = Digest(hash_of(&mut existing).map_err(io_error)?.finalize().into());
        if let Some(stated) = file.sha256 {
            return Ok(Some(own == stated));
        }
        match client.fetch(file, file.bytes, &mut |_| Ok(())) {
            Ok(RecordsFetched::Whole(stated)) => Ok(Some(own == stated)),
            // The node cannot say any more whether it is the same file, so it stays.
            Ok(RecordsFetched::Gone) => Ok(Some(true)),
            Err(RecordsFetchError::Write(source)) => Err(io_error(source).into()),
            Err(RecordsFetchError::Client(error)) => Err(error.into()),
        }
    }
}

fn part_name(file: &ListedRecords) -> String {
    format!("{}{PART_SUFFIX}", file.file)
}

/// Returns the state of the hash of a file's content. The file is read to its end.
fn hash_of(file: &mut File) -> io::Result<Sha256> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 << 10]);
    file.seek(SeekFrom::Start(0))?;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hash),
            length => hash.update(buffer.get(..length).unwrap_or_default()),
        }
    }
}
