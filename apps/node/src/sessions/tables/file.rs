//! A table's bytes out of a file.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_abi::limit;
use weir_units::Shown as _;

/// The most bytes of a table.
const MOST: u64 = limit::TABLE_BYTES as u64;

/// Why a file is no table. To blame is whoever named or wrote it.
#[derive(Debug, thiserror::Error)]
pub enum TableFileError {
    /// It cannot be read.
    #[error("{}: {source}", path.shown())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A folder, a device, a pipe or the like: it could have no end, or none yet.
    #[error("{}: is no regular file; a table is made of one", .0.shown())]
    NoFile(PathBuf),
    /// It is too long.
    #[error("{}: has {len} bytes, and {MOST} are the most for a table", path.shown())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// How long it is.
        len: u64,
    },
    /// Somebody writes it.
    #[error(
        "{}: was changed while it was read; write a new file beside it and rename that, so that a table is whole",
        .0.shown()
    )]
    Changing(PathBuf),
}

/// The bytes of a file, as they were at one time, as far as can be told.
///
/// # Errors
/// It is not a regular file, too long for a table, or changes meanwhile; what the system says.
pub fn read_file(path: &Path) -> Result<Vec<u8>, TableFileError> {
    let failed = |source| TableFileError::Read { path: path.to_owned(), source };
    // A pipe without a writer must not keep whoever opens it.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    if !before.is_file() {
        return Err(TableFileError::NoFile(path.to_owned()));
    }
    if before.len() > MOST {
        return Err(TableFileError::TooLong { path: path.to_owned(), len: before.len() });
    }
    let bytes = read_whole(&file, before.len()).map_err(failed)?;
    let after = file.metadata().map_err(failed)?;
    if bytes.len() as u64 != after.len() || stamp(&before) != stamp(&after) {
        return Err(TableFileError::Changing(path.to_owned()));
    }
    Ok(bytes)
}

/// What there is of it, up to a byte more than was said.
fn read_whole(file: &File, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(usize::try_from(len).unwrap_or_default());
    file.take(len + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What is another one when its contents may be.
fn stamp(of: &Metadata) -> (u64, i64, i64) {
    (of.len(), of.mtime(), of.mtime_nsec())
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
    fn what_is_no_file_or_too_long_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        for path in [Path::new("/dev/zero"), &pipe, folder.path()] {
            let error = read_file(path).unwrap_err();
            assert!(matches!(&error, TableFileError::NoFile(of) if of == path), "{error}");
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
    fn a_file_that_shrinks_or_grows_is_seen_to_do_so() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abcdef").unwrap();
        file.rewind().unwrap();
        // As if it had been longer, or shorter, when its length was asked for.
        assert_eq!(read_whole(&file, 10).unwrap().len(), 6);
        file.rewind().unwrap();
        assert_eq!(read_whole(&file, 3).unwrap().len(), 4);
        let before = stamp(&file.metadata().unwrap());
        file.set_len(3).unwrap();
        assert_ne!(stamp(&file.metadata().unwrap()), before);
    }
}
