//! Revocation lists in the node's folder of state: what it has got once it still knows after a restart, whoever delivered it and whatever becomes of the files.

use crate::daemon::DaemonError;
use crate::trust::TrustError;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use weir_confine::private::{Folder, PrivateError};
use weir_trust::key::PublicKey;
use weir_trust::revocation::{LIST_BYTES_MAX, RevocationList};

/// The folder beneath that of the node's state.
const FOLDER: &str = "revoked";

/// The lists that were kept. Whether anybody still trusts their roots is for others to say.
///
/// # Errors
/// A file that cannot be read, or that is no list: whoever goes on without it lets in who was told to stay out.
pub(crate) fn kept(state: &Path) -> Result<Vec<RevocationList>, DaemonError> {
    let folder = state.join(FOLDER);
    let open = match Folder::open(&folder) {
        Ok(open) => open,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(DaemonError::Read { path: folder, source: error.into() }),
    };
    let entries =
        fs::read_dir(&folder).map_err(|source| DaemonError::Read { path: folder.clone(), source })?;
    let mut lists = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| DaemonError::Read { path: folder.clone(), source })?.path();
        // One that was not written to its end, as the node ended.
        if path.extension().is_some_and(|extension| extension == "new") {
            continue;
        }
        let mut text = String::new();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        open.open_file(&name)
            .map_err(PrivateError::into)
            .and_then(|file| file.take(LIST_BYTES_MAX as u64 + 1).read_to_string(&mut text))
            .map_err(|source| DaemonError::Read { path: path.clone(), source })?;
        let wrong = |error| DaemonError::Trust { path: path.clone(), source: TrustError::Kept(error) };
        lists.push(text.parse().map_err(wrong)?);
    }
    Ok(lists)
}

/// Keeps a list in the place of an older one of its root. When this returns it survives a crash.
pub(crate) fn keep(state: &Path, list: &RevocationList) -> io::Result<()> {
    let folder = Folder::make(&state.join(FOLDER))?;
    Ok(folder.replace(&name_of(list.root()), list.to_string().as_bytes())?)
}

/// The name of a root's file.
fn name_of(root: &PublicKey) -> String {
    let root = root.to_string();
    format!("{}.list", root.rsplit(':').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_trust::grant::Second;
    use weir_trust::key::Identity;

    fn list(of: u8, sequence: u64) -> RevocationList {
        let root = Identity::from_seed(&[of; 32]);
        RevocationList::sign(&root, sequence, Second::default(), [].into()).unwrap()
    }

    #[test]
    fn what_was_kept_is_there_again_and_what_is_damaged_is_not_passed_over() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(kept(state.path()).unwrap(), []);
        for list in [list(1, 1), list(2, 5), list(1, 2)] {
            keep(state.path(), &list).unwrap();
        }
        // As a crash leaves it.
        fs::write(state.path().join(FOLDER).join("x.new"), "weir rev").unwrap();
        let mut lists = kept(state.path()).unwrap();
        lists.sort_by_key(RevocationList::sequence);
        assert_eq!(lists, [list(1, 2), list(2, 5)]);
        let path = state.path().join(FOLDER).join(name_of(list(1, 1).root()));
        fs::write(&path, list(1, 2).to_string().replace("sequence 2", "sequence 3")).unwrap();
        let error = kept(state.path()).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("deliver"), "{error}");
    }

    #[test]
    fn a_list_is_private_and_one_that_is_a_link_is_refused() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let state = tempfile::tempdir().unwrap();
        keep(state.path(), &list(1, 1)).unwrap();
        let path = state.path().join(FOLDER).join(name_of(list(1, 1).root()));
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, 0o600);
        assert_eq!(path.parent().unwrap().metadata().unwrap().permissions().mode() & 0o7777, 0o700);
        let elsewhere = state.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        let error = kept(state.path()).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        // A new one takes the place of the link, and does not follow it.
        keep(state.path(), &list(1, 2)).unwrap();
        assert_eq!(kept(state.path()).unwrap(), [list(1, 2)]);
        assert!(fs::read_to_string(&elsewhere).unwrap().contains("sequence 1"));
    }
}
