//! The folders and names under which record files lie.

use crate::RecordsError;
use std::path::Path;
use weir_os::private::{self, PrivateError, PrivateFolder};

const LABEL_MAX: usize = 64;

/// Makes `dir`/`label` where it is not there yet, and opens it. `dir` is the user's choice; what lies in it may have been put there by others, a link
/// for instance.
pub(crate) fn make(dir: &Path, label: &str) -> Result<PrivateFolder, RecordsError> {
    let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    if label.is_empty() || label.len() > LABEL_MAX || !label.bytes().all(legal) {
        return Err(RecordsError::Label(label.chars().take(80).collect()));
    }
    private::make_named_folder(dir)
        .map_err(|source| RecordsError::Folder { path: dir.to_owned(), source })?;
    let path = || dir.join(label);
    private::make_inside(dir, label).map_err(|error| match error {
        PrivateError::Link(_) | PrivateError::Type(_) => RecordsError::NotAFolder(path()),
        error => RecordsError::Folder { path: path(), source: error.into() },
    })
}
