//! The folders and names of record files.

use crate::RecordsError;
use std::path::Path;
use weir_os::private::{self, PrivateError, PrivateFolder};

/// The most characters of a label.
const LABEL_MAX: usize = 64;

/// Creates the folder `dir`/`label` if missing, and opens it. `dir` is the user's choice, and may contain files and links
/// of other users.
pub(crate) fn make(dir: &Path, label: &str) -> Result<PrivateFolder, RecordsError> {
    let is_valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_';
    if label.is_empty() || label.len() > LABEL_MAX || !label.bytes().all(is_valid) {
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

/// Returns the number after the highest one of the folders `dir`/`name`-N, so that no earlier file is replaced. 0 if there
/// is none, or the folder cannot be listed.
pub fn next_number(dir: &Path, name: &str) -> u64 {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let numbers = entries.flatten().filter_map(|entry| {
        entry.file_name().to_str()?.strip_prefix(name)?.strip_prefix('-')?.parse::<u64>().ok()
    });
    numbers.max().map_or(0, |number| number.saturating_add(1))
}
