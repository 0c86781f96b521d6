//! The folders and names under which record files lie.

use crate::RecordsError;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const LABEL_MAX: usize = 64;

/// Makes `dir`/`label` where it is not there yet, and returns it.
pub(crate) fn make(dir: &Path, label: &str) -> Result<PathBuf, RecordsError> {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    if label.is_empty() || label.len() > LABEL_MAX || !label.bytes().all(legal) {
        return Err(RecordsError::Label(label.chars().take(80).collect()));
    }
    fs::create_dir_all(dir).map_err(|source| RecordsError::Folder { path: dir.to_owned(), source })?;
    let path = dir.join(label);
    match DirBuilder::new().create(&path) {
        Ok(()) => Ok(path),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // The operator chose `dir`; what lies in it may have been put there by others, a link for instance.
            match fs::symlink_metadata(&path) {
                Ok(there) if there.is_dir() => Ok(path),
                Ok(_) => Err(RecordsError::NotAFolder(path)),
                Err(source) => Err(RecordsError::Folder { path, source }),
            }
        }
        Err(source) => Err(RecordsError::Folder { path, source }),
    }
}
