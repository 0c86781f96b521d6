//! The node's folder of revocations: one file for each root.
//!
//! A file is replaced atomically, so a crash leaves the old or the new file. Earlier versions of weir stored whole lists
//! (`ROOT.list`). Such a file is read, and is removed when the revocations of its root are written in the present format.

use crate::server::daemon::DaemonError;
use crate::server::trust::RemoteConfigError;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use weir_os::private::{PrivateError, PrivateFolder};
use weir_trust::grant::UnixSecond;
use weir_trust::key::PublicKey;
use weir_trust::revocation::{
    LIST_BYTES_MAX, ListReception, RevocationList, Revocations, RootRevocations, STATE_BYTES_MAX,
};

/// The name of the folder within the node's state folder.
const FOLDER: &str = "revoked";
/// The file extension of a root's revocations.
const STATE_EXTENSION: &str = "state";
/// The file extension of a list that an earlier version stored.
const LIST_EXTENSION: &str = "list";
/// The file extension of a file that is being written.
const NEW_EXTENSION: &str = "new";

/// Reads the stored revocations of all roots, trusted or not. `state` is the node's state folder.
///
/// # Errors
/// A file cannot be read, or is damaged. The node must not start without that file, as it would accept revoked credentials.
pub(crate) fn read_all(state: &Path) -> Result<Revocations, DaemonError> {
    let folder = state.join(FOLDER);
    match PrivateFolder::open(&folder) {
        Ok(open) => read(&open),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Revocations::default()),
        Err(error) => Err(DaemonError::Read { path: folder, source: error.into() }),
    }
}

/// Checks that the stored revocations can be read, without creating the folder.
///
/// # Errors
/// A file cannot be read, or is damaged.
pub(crate) fn check(state: &Path) -> Result<(), DaemonError> {
    let folder = state.join(FOLDER);
    match PrivateFolder::open_read_only(&folder) {
        Ok(Some(open)) => read(&open).map(drop),
        Ok(None) => Ok(()),
        Err(error) => Err(DaemonError::Read { path: folder, source: error.into() }),
    }
}

fn read(open: &PrivateFolder) -> Result<Revocations, DaemonError> {
    let folder = open.path().to_owned();
    let entries =
        fs::read_dir(&folder).map_err(|source| DaemonError::Read { path: folder.clone(), source })?;
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| DaemonError::Read { path: folder.clone(), source })?.path();
        paths.push(path);
    }
    let has_extension =
        |path: &Path, extension: &str| path.extension().is_some_and(|found| found == extension);
    // Files in the present format are read first, since lists add entries to them.
    paths.sort_by_key(|path| !has_extension(path, STATE_EXTENSION));
    let mut stored = Revocations::default();
    for path in paths {
        let damaged = |source| DaemonError::Trust { path: path.clone(), source };
        if has_extension(&path, NEW_EXTENSION) {
            // The file was left incomplete by a crash, and is ignored.
        } else if has_extension(&path, STATE_EXTENSION) {
            let text = read_text(open, &path, STATE_BYTES_MAX)?;
            let (root, revoked) = RootRevocations::from_text(&text)
                .map_err(|error| damaged(RemoteConfigError::StoredRevocations(error)))?;
            stored.insert(root, revoked);
        } else {
            let list: RevocationList = read_text(open, &path, LIST_BYTES_MAX)?
                .parse()
                .map_err(|error| damaged(RemoteConfigError::StoredList(error)))?;
            // Entries are kept even if they have expired, so the time of reception does not matter.
            let roots = [*list.issuer().affected_root()];
            let accepted = stored.accept(&list, &ListReception::new(&roots, UnixSecond::default()));
            accepted.map_err(|error| damaged(RemoteConfigError::StoredList(error)))?;
        }
    }
    Ok(stored)
}

fn read_text(folder: &PrivateFolder, path: &Path, bytes_max: usize) -> Result<String, DaemonError> {
    let mut text = String::new();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    folder
        .open_file(&name)
        .map_err(PrivateError::into)
        .and_then(|file| file.take(bytes_max as u64 + 1).read_to_string(&mut text))
        .map_err(|source| DaemonError::Read { path: path.to_owned(), source })?;
    Ok(text)
}

/// Replaces the stored revocations of a root. After this function has returned, the new revocations survive a crash.
pub(crate) fn write(state: &Path, root: &PublicKey, revoked: &RootRevocations) -> io::Result<()> {
    let path = state.join(FOLDER);
    let folder = PrivateFolder::make(&path)?;
    folder.replace(&file_name(root, STATE_EXTENSION), revoked.to_text(root).as_bytes())?;
    // The state contains all entries of the old list.
    match fs::remove_file(path.join(file_name(root, LIST_EXTENSION))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns the name of a root's file with this extension.
fn file_name(root: &PublicKey, extension: &str) -> String {
    let root = root.to_string();
    format!("{}.{extension}", root.rsplit(':').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trust::credential::DelegationId;
    use weir_trust::key::{Identity, SignatureContext};

    fn root(of: u8) -> Identity {
        Identity::from_seed(&[of; 32])
    }

    fn id(of: u8) -> DelegationId {
        DelegationId::of_root(&root(of).public())
    }

    fn state(of: u8, ids: &[u8]) -> Revocations {
        let (roots, mut known) = ([root(of).public()], Revocations::default());
        let ids = ids.iter().map(|of| id(*of)).collect();
        let list = RevocationList::sign(&root(of), 1, UnixSecond::default(), ids).unwrap();
        known.accept(&list, &ListReception::new(&roots, UnixSecond::default())).unwrap();
        known
    }

    fn write_all(folder: &Path, known: &Revocations) {
        for (root, revoked) in known.roots() {
            write(folder, root, revoked).unwrap();
        }
    }

    #[test]
    fn a_stored_state_is_read_again_and_a_damaged_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read_all(folder.path()).unwrap(), Revocations::default());
        for known in [state(1, &[1]), state(2, &[2]), state(1, &[1, 3])] {
            write_all(folder.path(), &known);
        }
        // An incomplete file, as a crash leaves it.
        fs::write(folder.path().join(FOLDER).join("x.new"), "weir rev").unwrap();
        let both = read_all(folder.path()).unwrap();
        let has = |of: u8, entry: u8| both.contains(&root(of).public(), &id(entry));
        assert!(has(1, 1) && has(1, 3) && has(2, 2) && !has(2, 1));
        let path = folder.path().join(FOLDER).join(file_name(&root(1).public(), STATE_EXTENSION));
        let text = fs::read_to_string(&path).unwrap();
        let line = text.lines().find(|line| line.starts_with("weir-id")).unwrap();
        fs::write(&path, text.replace(&format!("{line}\n"), "")).unwrap();
        let error = read_all(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("deliver"), "{error}");
    }

    #[test]
    fn a_state_file_is_private_and_a_symbolic_link_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        write_all(folder.path(), &state(1, &[1]));
        let path = folder.path().join(FOLDER).join(file_name(&root(1).public(), STATE_EXTENSION));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o7777, 0o700);
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let error = read_all(folder.path()).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        // Writing replaces the link, and does not follow it.
        write_all(folder.path(), &state(1, &[2]));
        assert_eq!(read_all(folder.path()).unwrap(), state(1, &[2]));
        assert!(fs::read_to_string(&elsewhere).unwrap().contains(&id(1).to_string()));
    }

    #[test]
    fn a_list_of_an_earlier_version_becomes_part_of_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join(FOLDER);
        fs::create_dir(&old).unwrap();
        let (key, path) = (root(1).public(), old.join(file_name(&root(1).public(), LIST_EXTENSION)));
        let signed = format!(
            "weir revocation list 1\nroot {key}\nsequence 7\nissued 2026-11-21T12:00:00Z\n{}\n",
            id(5)
        );
        let signature = root(1).sign(SignatureContext::new("revocation list"), signed.as_bytes());
        let digit = |bits: &[u8]| {
            let value =
                (0..5).fold(0, |value, at| value << 1 | usize::from(bits.get(at).copied().unwrap_or(0)));
            char::from(b"abcdefghijklmnopqrstuvwxyz234567"[value])
        };
        let bits: Vec<u8> =
            signature.0.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
        let text: String = bits.chunks(5).map(digit).collect();
        fs::write(&path, format!("{signed}signature {text}\n")).unwrap();
        // Alone, and beside a state file.
        assert!(read_all(folder.path()).unwrap().contains(&key, &id(5)));
        write_all(folder.path(), &state(2, &[6]));
        let all = read_all(folder.path()).unwrap();
        assert!(all.contains(&key, &id(5)) && all.contains(&root(2).public(), &id(6)));
        write_all(folder.path(), &all);
        assert!(!path.exists());
        assert_eq!(read_all(folder.path()).unwrap(), all);
    }
}
