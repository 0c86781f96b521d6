//! The node's folder of kept revocations: the state of each root, in a file of its own.
//!
//! A file is replaced whole, so that a crash leaves the old one or the new one. Lists that an earlier version kept (`ROOT.list`) are read, and removed once the state of their root is kept.

use crate::server::daemon::DaemonError;
use crate::server::trust::RemoteConfigError;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use weir_os::private::{PrivateError, PrivateFolder};
use weir_trust::grant::Second;
use weir_trust::key::PublicKey;
use weir_trust::revocation::{
    LIST_BYTES_MAX, Reception, RevocationList, Revocations, RootRevocations, STATE_BYTES_MAX,
};

/// The folder beneath that of the node's state.
const FOLDER: &str = "revoked";
/// The ending of a state's file.
const STATE: &str = "state";
/// The ending of a list that an earlier version kept.
const LIST: &str = "list";
/// The ending of a file that is being written.
const NEW: &str = "new";

/// Everything that was kept, of all roots, trusted or not.
///
/// # Errors
/// A file that cannot be read, or that is damaged: a node that goes on without it lets in peers whose credentials are revoked.
pub(crate) fn kept(state: &Path) -> Result<Revocations, DaemonError> {
    let folder = state.join(FOLDER);
    match PrivateFolder::open(&folder) {
        Ok(open) => read(&open),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Revocations::default()),
        Err(error) => Err(DaemonError::Read { path: folder, source: error.into() }),
    }
}

/// Checks that everything that was kept can be read, as [`kept`] does. Changes nothing.
///
/// # Errors
/// As [`kept`].
pub(crate) fn look(state: &Path) -> Result<(), DaemonError> {
    let folder = state.join(FOLDER);
    match PrivateFolder::look(&folder) {
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
    let has_ending =
        |path: &Path, ending: &str| path.extension().is_some_and(|extension| extension == ending);
    // A list adds to the state, so states come first.
    paths.sort_by_key(|path| !has_ending(path, STATE));
    let mut kept = Revocations::default();
    for path in paths {
        let wrong = |source| DaemonError::Trust { path: path.clone(), source };
        if has_ending(&path, NEW) {
            // It was not written to its end, as the node ended.
        } else if has_ending(&path, STATE) {
            let text = text_of(open, &path, STATE_BYTES_MAX)?;
            let (root, revoked) =
                RootRevocations::from_text(&text).map_err(|error| wrong(RemoteConfigError::State(error)))?;
            kept.insert(root, revoked);
        } else {
            let list: RevocationList = text_of(open, &path, LIST_BYTES_MAX)?
                .parse()
                .map_err(|error| wrong(RemoteConfigError::Kept(error)))?;
            // Nothing is forgotten here: the time is of no account.
            let roots = [*list.issuer().of()];
            let taken = kept.accept(&list, &Reception::new(&roots, Second::default()));
            taken.map_err(|error| wrong(RemoteConfigError::Kept(error)))?;
        }
    }
    Ok(kept)
}

fn text_of(folder: &PrivateFolder, path: &Path, most: usize) -> Result<String, DaemonError> {
    let mut text = String::new();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    folder
        .open_file(&name)
        .map_err(PrivateError::into)
        .and_then(|file| file.take(most as u64 + 1).read_to_string(&mut text))
        .map_err(|source| DaemonError::Read { path: path.to_owned(), source })?;
    Ok(text)
}

/// Keeps the state of a root in the place of the one before. When this returns it survives a crash.
pub(crate) fn keep(state: &Path, root: &PublicKey, revoked: &RootRevocations) -> io::Result<()> {
    let path = state.join(FOLDER);
    let folder = PrivateFolder::make(&path)?;
    folder.replace(&name_of(root, STATE), revoked.to_text(root).as_bytes())?;
    // All of it is in the state.
    match fs::remove_file(path.join(name_of(root, LIST))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The name of a root's file.
fn name_of(root: &PublicKey, ending: &str) -> String {
    let root = root.to_string();
    format!("{}.{ending}", root.rsplit(':').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trust::credential::PrefixId;
    use weir_trust::key::{Identity, SignatureContext};

    fn root(of: u8) -> Identity {
        Identity::from_seed(&[of; 32])
    }

    fn id(of: u8) -> PrefixId {
        PrefixId::of_root(&root(of).public())
    }

    fn state(of: u8, ids: &[u8]) -> Revocations {
        let (roots, mut known) = ([root(of).public()], Revocations::default());
        let ids = ids.iter().map(|of| id(*of)).collect();
        let list = RevocationList::sign(&root(of), 1, Second::default(), ids).unwrap();
        known.accept(&list, &Reception::new(&roots, Second::default())).unwrap();
        known
    }

    fn keep_all(folder: &Path, known: &Revocations) {
        for (root, revoked) in known.roots() {
            keep(folder, root, revoked).unwrap();
        }
    }

    #[test]
    fn a_kept_state_is_read_again_and_a_damaged_one_is_not_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(kept(folder.path()).unwrap(), Revocations::default());
        for known in [state(1, &[1]), state(2, &[2]), state(1, &[1, 3])] {
            keep_all(folder.path(), &known);
        }
        // As a crash leaves it.
        fs::write(folder.path().join(FOLDER).join("x.new"), "weir rev").unwrap();
        let both = kept(folder.path()).unwrap();
        let has = |of: u8, entry: u8| both.contains(&root(of).public(), &id(entry));
        assert!(has(1, 1) && has(1, 3) && has(2, 2) && !has(2, 1));
        let path = folder.path().join(FOLDER).join(name_of(&root(1).public(), STATE));
        let text = fs::read_to_string(&path).unwrap();
        let line = text.lines().find(|line| line.starts_with("weir-id")).unwrap();
        fs::write(&path, text.replace(&format!("{line}\n"), "")).unwrap();
        let error = kept(folder.path()).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("deliver"), "{error}");
    }

    #[test]
    fn a_state_is_private_and_one_that_is_a_link_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        keep_all(folder.path(), &state(1, &[1]));
        let path = folder.path().join(FOLDER).join(name_of(&root(1).public(), STATE));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o7777, 0o700);
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let error = kept(folder.path()).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        // A new one takes the place of the link, and does not follow it.
        keep_all(folder.path(), &state(1, &[2]));
        assert_eq!(kept(folder.path()).unwrap(), state(1, &[2]));
        assert!(fs::read_to_string(&elsewhere).unwrap().contains(&id(1).to_string()));
    }

    #[test]
    fn a_list_that_an_earlier_version_kept_becomes_part_of_the_state() {
        let folder = tempfile::tempdir().unwrap();
        let old = folder.path().join(FOLDER);
        fs::create_dir(&old).unwrap();
        let (key, path) = (root(1).public(), old.join(name_of(&root(1).public(), LIST)));
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
        // As it was, and beside a state of the same root.
        assert!(kept(folder.path()).unwrap().contains(&key, &id(5)));
        keep_all(folder.path(), &state(2, &[6]));
        let all = kept(folder.path()).unwrap();
        assert!(all.contains(&key, &id(5)) && all.contains(&root(2).public(), &id(6)));
        keep_all(folder.path(), &all);
        assert!(!path.exists());
        assert_eq!(kept(folder.path()).unwrap(), all);
    }
}
