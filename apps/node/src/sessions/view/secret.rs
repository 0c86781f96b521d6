//! The secret from which the keys of all views of a node are derived.

use rand_core::{OsRng, RngCore};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use weir_os::private::{PrivateError, PrivateFolder};
use weir_units::Escape as _;
use zeroize::Zeroizing;

/// Name of the secret's file, in the state folder.
pub(super) const FILE: &str = "views.secret";
/// Beginning of the file's contents; hexadecimal digits follow.
const PREFIX: &str = "weir-views:";
const BYTES: usize = 32;

/// A secret that a node creates at its first start and keeps, so that pseudonyms of addresses stay the same over
/// restarts.
pub(crate) struct Secret(Zeroizing<[u8; BYTES]>);

/// Error of the secret for views: its file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file cannot be read or written.
    #[error("{}: {source}", path.escaped())]
    File {
        /// File of the secret.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The file is a symbolic link, belongs to another user, or has a second hard link.
    #[error("{}: the secret of the node's views is not used: {why}", path.escaped())]
    Foreign {
        /// File of the secret.
        path: PathBuf,
        /// Fault, and its remedy.
        why: PrivateError,
    },
    /// Other users can read the file.
    #[error(
        "{}: others than its owner can read it: `chmod 600` it; if they may have read it, remove it, and the node makes a new secret, with which addresses have other pseudonyms than before",
        .0.escaped()
    )]
    ReadableByOthers(PathBuf),
    /// The contents of the file are not a secret for views.
    #[error(
        "{}: that is no secret of a node's views: restore it from a copy, or remove it, and the node makes a new secret, with which addresses have other pseudonyms than before",
        .0.escaped()
    )]
    Damaged(PathBuf),
}

impl SecretError {
    /// Returns the corresponding kind of I/O error; [`io::ErrorKind::PermissionDenied`] if the file is refused because
    /// of its owner, links or mode.
    pub(crate) fn kind(&self) -> io::ErrorKind {
        match self {
            Self::File { source, .. } => source.kind(),
            Self::Foreign { .. } | Self::ReadableByOthers(_) => io::ErrorKind::PermissionDenied,
            Self::Damaged(_) => io::ErrorKind::InvalidData,
        }
    }
}

impl std::fmt::Debug for Secret {
    /// Writes the type's name without the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secret").finish_non_exhaustive()
    }
}

impl Secret {
    /// Reads the secret of a state folder, or creates it if the folder has none. No other process may use the folder.
    ///
    /// # Errors
    ///
    /// The file cannot be used. An unusable secret is never replaced.
    pub(crate) fn open(folder: &Path) -> Result<Self, SecretError> {
        let path = folder.join(FILE);
        let failed = |error| failed(&path, error);
        let folder = PrivateFolder::open(folder).map_err(failed)?;
        match Self::read(&folder, &path) {
            Err(SecretError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Self::make(&folder).map_err(failed)?;
                Self::read(&folder, &path)
            }
            read => read,
        }
    }

    /// Checks that the secret in a state folder is usable or missing.
    ///
    /// # Errors
    ///
    /// The secret exists, and is not usable.
    pub(crate) fn check(folder: &PrivateFolder) -> Result<(), SecretError> {
        match Self::read(folder, &folder.path().join(FILE)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns a secret for checks that show no packets.
    pub(crate) fn for_checks() -> Self {
        Self(Zeroizing::new([0; BYTES]))
    }

    pub(super) fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    fn read(folder: &PrivateFolder, path: &Path) -> Result<Self, SecretError> {
        let file = folder.open_secret(FILE).map_err(|error| failed(path, error))?;
        let mut text = Zeroizing::new(Vec::with_capacity(4096));
        file.take(4096).read_to_end(&mut text).map_err(|error| failed(path, error.into()))?;
        decode(&text).map(Self).ok_or_else(|| SecretError::Damaged(path.to_owned()))
    }

    /// Creates a secret. The file gets its name only when it is complete, even if the machine stops meanwhile.
    fn make(folder: &PrivateFolder) -> Result<(), PrivateError> {
        let mut secret = Zeroizing::new([0; BYTES]);
        OsRng.try_fill_bytes(&mut *secret).map_err(io::Error::other)?;
        folder.replace(FILE, &encode(&secret))
    }
}

/// Converts an error of the secret's file.
fn failed(path: &Path, error: PrivateError) -> SecretError {
    let path = path.to_owned();
    match error {
        PrivateError::Io(source) => SecretError::File { path, source },
        PrivateError::Readable(_) => SecretError::ReadableByOthers(path),
        PrivateError::Type(_) => SecretError::Damaged(path),
        why => SecretError::Foreign { path, why },
    }
}

fn encode(secret: &[u8; BYTES]) -> Zeroizing<Vec<u8>> {
    let mut text = Zeroizing::new(Vec::with_capacity(PREFIX.len() + 2 * BYTES + 1));
    text.extend_from_slice(PREFIX.as_bytes());
    for byte in secret {
        text.extend(
            [byte >> 4, byte & 15].map(|digit| if digit < 10 { b'0' + digit } else { b'a' + digit - 10 }),
        );
    }
    text.push(b'\n');
    text
}

fn decode(text: &[u8]) -> Option<Zeroizing<[u8; BYTES]>> {
    let digits = text.trim_ascii_end().strip_prefix(PREFIX.as_bytes())?;
    let (pairs, rest) = digits.as_chunks::<2>();
    let mut secret = Zeroizing::new([0; BYTES]);
    if pairs.len() != BYTES || !rest.is_empty() {
        return None;
    }
    let digit = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    for (byte, &[high, low]) in secret.iter_mut().zip(pairs) {
        *byte = digit(high)? << 4 | digit(low)?;
    }
    Some(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    const NEW: &str = "views.secret.new";

    fn said(folder: &Path) -> String {
        Secret::open(folder).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn the_secret_is_created_once_and_readable_by_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        // Left by a machine that stopped.
        std::fs::write(folder.path().join(NEW), "half").unwrap();
        let first = Secret::open(folder.path()).unwrap();
        let path = folder.path().join(FILE);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!folder.path().join(NEW).exists());
        assert_eq!(Secret::open(folder.path()).unwrap().bytes(), first.bytes());
        let other = tempfile::tempdir().unwrap();
        assert_ne!(Secret::open(other.path()).unwrap().bytes(), first.bytes());
        assert_eq!(format!("{first:?}"), "Secret { .. }");
    }

    #[test]
    fn an_unusable_secret_is_refused_and_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        Secret::open(folder.path()).unwrap();
        let path = folder.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        assert!(said(folder.path()).contains("others than its owner can read it: `chmod 600` it"));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        for wrong in ["", "weir-views:", &text[1..], &text.to_uppercase(), &text.replace('\n', "0")] {
            std::fs::write(&path, wrong).unwrap();
            assert!(said(folder.path()).contains("no secret of a node's views"), "{wrong}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), wrong);
        }
        let second = folder.path().join("second name");
        std::fs::hard_link(&path, &second).unwrap();
        assert!(said(folder.path()).contains("it has 2 links"), "{}", said(folder.path()));
        std::fs::remove_file(&second).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(said(folder.path()).contains("it is a symbolic link"), "{}", said(folder.path()));
        assert!(std::fs::symlink_metadata(&path).unwrap().is_symlink());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, &text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        // Only root can create a file of another user.
        if std::os::unix::fs::chown(&path, Some(54321), None).is_ok() {
            assert!(said(folder.path()).contains("it belongs to user 54321"), "{}", said(folder.path()));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
