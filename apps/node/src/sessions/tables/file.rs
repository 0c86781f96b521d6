//! The contents of an operator's table, read from a file.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_abi::limit;
use weir_units::Escape as _;

/// Maximum length of a table, in bytes.
const TABLE_BYTES_MAX: u64 = limit::TABLE_BYTES as u64;

/// Error of a table's file.
#[derive(Debug, thiserror::Error)]
pub enum TableFileError {
    /// The file cannot be read.
    #[error("{}: {source}", path.escaped())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The path is that of a folder, device or pipe, which might have no end.
    #[error("{}: is not a regular file, from which a table is read", .0.escaped())]
    NotRegular(PathBuf),
    /// The file is too long.
    #[error("{}: has {len} bytes, and {TABLE_BYTES_MAX} are the most for a table", path.escaped())]
    TooLong {
        /// Path of the file.
        path: PathBuf,
        /// Length of the file, in bytes.
        len: u64,
    },
    /// The file changes while it is read.
    #[error(
        "{}: was changed while it was read; write a new file and rename it to this name, so that the table is consistent",
        .0.escaped()
    )]
    Changing(PathBuf),
}

/// Reads a table's contents from a file. A change during the reading is detected by the file's size and modification
/// time.
///
/// # Errors
///
/// The file is not regular, too long for a table, or changes meanwhile; or an error of the operating system.
pub fn read_file(path: &Path) -> Result<Vec<u8>, TableFileError> {
    let failed = |source| TableFileError::Read { path: path.to_owned(), source };
    // Opening a pipe without a writer must not block.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    if !before.is_file() {
        return Err(TableFileError::NotRegular(path.to_owned()));
    }
    if before.len() > TABLE_BYTES_MAX {
        return Err(TableFileError::TooLong { path: path.to_owned(), len: before.len() });
    }
    let bytes = read_whole(&file, before.len()).map_err(failed)?;
    let after = file.metadata().map_err(failed)?;
    if bytes.len() as u64 != after.len() || stamp(&before) != stamp(&after) {
        return Err(TableFileError::Changing(path.to_owned()));
    }
    Ok(bytes)
}

/// Reads the file up to one byte beyond the length `len`, so that growth is detected.
fn read_whole(file: &File, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
    file.take(len + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns length and modification time of a file. If they are equal at two times, the file probably did not change
/// between.
fn stamp(metadata: &Metadata) -> (u64, i64, i64) {
    (metadata.len(), metadata.mtime(), metadata.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    #[test]
    fn a_file_is_read_whole() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"abc").unwrap();
        assert_eq!(read_file(file.path()).unwrap(), b"abc");
    }

    #[test]
    fn special_files_and_long_files_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [Path::new("/dev/zero"), &pipe, folder.path()] {
            let error = read_file(path).unwrap_err();
            assert!(matches!(&error, TableFileError::NotRegular(of) if of == path), "{error}");
        }
        let huge = folder.path().join("huge");
        File::create(&huge).unwrap().set_len(1 << 40).unwrap();
        let error = read_file(&huge).unwrap_err().to_string();
        assert!(
            error.ends_with("huge: has 1099511627776 bytes, and 67108864 are the most for a table"),
            "{error}"
        );
        let error = read_file(&folder.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none: No such file"), "{error}");
    }

    #[test]
    fn a_file_that_shrinks_or_grows_while_it_is_read_is_detected() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcdef").unwrap();
        file.rewind().unwrap();
        // As if the file had been longer, or shorter, when its length was read.
        assert_eq!(read_whole(&file, 10).unwrap().len(), 6);
        file.rewind().unwrap();
        assert_eq!(read_whole(&file, 3).unwrap().len(), 4);
        let before = stamp(&file.metadata().unwrap());
        file.set_len(3).unwrap();
        assert_ne!(stamp(&file.metadata().unwrap()), before);
    }
}
