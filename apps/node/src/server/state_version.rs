//! The version of a node's state folder.
//!
//! The file `version` states the format of the folder as a whole and the weir that last started on it:
//!
//! ```text
//! weir state 1
//! weir 0.1.0
//! ```
//!
//! The first two lines are the same in all formats. A folder without the file is of format 0, from weir 0.1 before
//! 2026-11-25. Besides, each file in the folder states its own version.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use weir_os::private::{PrivateError, PrivateFolder};
use weir_units::Escape as _;

/// The format of state folders that this weir writes. It reads all formats up to this one.
///
/// - 0: no file `version`.
/// - 1: `version`, and `sessions` with the sessions that requests have created.
pub(crate) const STATE_FORMAT: u32 = 1;
/// The name of the file in the state folder.
const FILE: &str = "version";
/// The maximum number of bytes that are read from the file. Later formats may add lines.
const FILE_BYTES_MAX: u64 = 4096;
/// The maximum length of a version's name, in bytes.
const WEIR_BYTES_MAX: usize = 32;
/// The version of this weir.
const OWN_VERSION: &str = env!("CARGO_PKG_VERSION");

/// The reason why a node must not use a state folder.
#[derive(Debug, thiserror::Error)]
pub enum StateVersionError {
    /// A later weir has used the folder.
    #[error(
        "{}: weir {weir} has used this state folder, in format {format}; this is weir {OWN_VERSION}, which reads formats up to {STATE_FORMAT}: start weir {weir} or later, or restore the copy of the folder that was made before the upgrade", path.escaped()
    )]
    Later {
        /// The folder.
        path: PathBuf,
        /// The folder's format.
        format: u32,
        /// The version of weir that last started on the folder.
        weir: String,
    },
    /// The file is not one that weir has written.
    #[error(
        "{}: it is damaged, so a later weir may have used this state folder: start the weir that used it last, or remove the file if that was weir {OWN_VERSION} or an earlier one", path.escaped()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or written.
    #[error("{}: {source}", path.escaped())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: PrivateError,
    },
}

impl StateVersionError {
    /// Returns the system's kind of error.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Later { .. } | Self::Damaged { .. } => ErrorKind::InvalidData,
            Self::File { source, .. } => source.kind(),
        }
    }
}

/// The contents of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct StateVersion {
    format: u32,
    weir: String,
}

impl StateVersion {
    /// Returns the contents that this weir writes.
    fn own() -> Self {
        Self { format: STATE_FORMAT, weir: OWN_VERSION.to_owned() }
    }

    fn to_text(&self) -> String {
        format!("weir state {}\nweir {}\n", self.format, self.weir)
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut lines = std::str::from_utf8(bytes).ok()?.split_inclusive('\n');
        let mut line = |prefix: &str| lines.next()?.strip_suffix('\n')?.strip_prefix(prefix);
        let (format, weir) = (line("weir state ")?, line("weir ")?);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-+".contains(&byte);
        let is_version = !weir.is_empty() && weir.len() <= WEIR_BYTES_MAX && weir.bytes().all(is_plain);
        (is_version && format.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| Some(Self { format: format.parse().ok()?, weir: weir.to_owned() }))?
    }
}

/// Reads the version of a folder; `None` for a folder of format 0.
fn read(folder: &PrivateFolder) -> Result<Option<StateVersion>, StateVersionError> {
    let path = || folder.path().join(FILE);
    let failed = |source: PrivateError| StateVersionError::File { path: path(), source };
    let file = match folder.open_file(FILE) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(failed)?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(|error| failed(error.into()))?;
    StateVersion::parse(&bytes).map(Some).ok_or_else(|| StateVersionError::Damaged { path: path() })
}

/// Checks that this weir can use a state folder. Changes nothing if the folder was opened read-only.
///
/// # Errors
/// A later weir has used the folder, or its version cannot be read.
pub(crate) fn check(folder: &PrivateFolder) -> Result<(), StateVersionError> {
    match read(folder)? {
        Some(StateVersion { format, weir }) if format > STATE_FORMAT => {
            Err(StateVersionError::Later { path: folder.path().to_owned(), format, weir })
        }
        _ => Ok(()),
    }
}

/// Brings a state folder to the format of this weir, and writes the format and this weir's version to it. Nothing is written
/// if the folder states both already.
///
/// # Errors
/// As [`check`]; also if the file cannot be written.
pub(crate) fn update(folder: &PrivateFolder) -> Result<(), StateVersionError> {
    check(folder)?;
    // Format 0 needs no other step: all of its files are part of format 1.
    if read(folder)?.as_ref() == Some(&StateVersion::own()) {
        return Ok(());
    }
    let written = folder.replace(FILE, StateVersion::own().to_text().as_bytes());
    written.map_err(|source| StateVersionError::File { path: folder.path().join(FILE), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_folder_of_a_later_version_is_refused_and_an_earlier_one_is_updated_once() {
        let outer = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::make(&outer.path().join("state")).unwrap();
        let file = folder.path().join(FILE);
        check(&folder).unwrap();
        assert!(!file.exists());
        update(&folder).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        assert_eq!(text, format!("weir state {STATE_FORMAT}\nweir {OWN_VERSION}\n"));
        let written = file.metadata().unwrap().modified().unwrap();
        update(&folder).unwrap();
        assert_eq!(file.metadata().unwrap().modified().unwrap(), written);

        // Another weir of the same format, with a line that this one does not know.
        fs::write(&file, "weir state 1\nweir 0.0.9\nmore 3\n").unwrap();
        update(&folder).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);

        let later = "weir state 4294967295\nweir 7.0.0-beta.1\nmore\n";
        fs::write(&file, later).unwrap();
        for error in [check(&folder).unwrap_err(), update(&folder).unwrap_err()] {
            let said = error.to_string();
            assert!(said.contains("weir 7.0.0-beta.1 has used") && said.contains(OWN_VERSION), "{said}");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), later);
    }

    #[test]
    fn a_damaged_version_is_refused_and_not_overwritten() {
        let outer = tempfile::tempdir().unwrap();
        let folder = PrivateFolder::make(&outer.path().join("state")).unwrap();
        let file = folder.path().join(FILE);
        let long = format!("weir state 1\nweir {}\n", "1".repeat(5000));
        for text in [
            "",
            "weir state 1",
            "weir state 1\n",
            "weir state 1\nweir 0.1.0",
            "weir state -1\nweir 0.1.0\n",
            "weir state 99999999999\nweir 0.1.0\n",
            "weir state 1\nweir \u{1b}[2J\n",
            &long,
        ] {
            fs::write(&file, text).unwrap();
            assert!(matches!(update(&folder), Err(StateVersionError::Damaged { .. })), "{text:?}");
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        fs::remove_file(&file).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
        assert!(matches!(check(&folder), Err(StateVersionError::File { .. })));
    }
}
