//! Revocation lists in the node's folder of state: what it has got once it still knows after a restart, whoever delivered it and whatever becomes of the files.

use crate::daemon::DaemonError;
use crate::trust::TrustError;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
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
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(DaemonError::Read { path: folder, source }),
    };
    let mut lists = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| DaemonError::Read { path: folder.clone(), source })?.path();
        // One that was not written to its end, as the node ended.
        if path.extension().is_some_and(|extension| extension == "new") {
            continue;
        }
        let mut text = String::new();
        File::open(&path)
            .and_then(|file| file.take(LIST_BYTES_MAX as u64 + 1).read_to_string(&mut text))
            .map_err(|source| DaemonError::Read { path: path.clone(), source })?;
        let wrong = |error| DaemonError::Trust { path: path.clone(), source: TrustError::Kept(error) };
        lists.push(text.parse().map_err(wrong)?);
    }
    Ok(lists)
}

/// Keeps a list in the place of an older one of its root. When this returns it survives a crash.
pub(crate) fn keep(state: &Path, list: &RevocationList) -> io::Result<()> {
    let folder = state.join(FOLDER);
    fs::create_dir_all(&folder)?;
    let path = path_of(&folder, list.root());
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(list.to_string().as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, &path)?;
    File::open(&folder)?.sync_all()
}

fn path_of(folder: &Path, root: &PublicKey) -> PathBuf {
    let root = root.to_string();
    folder.join(format!("{}.list", root.rsplit(':').next().unwrap_or_default()))
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
        let path = path_of(&state.path().join(FOLDER), list(1, 1).root());
        fs::write(&path, list(1, 2).to_string().replace("sequence 2", "sequence 3")).unwrap();
        let error = kept(state.path()).unwrap_err().to_string();
        assert!(error.contains(&path.display().to_string()) && error.contains("deliver"), "{error}");
    }
}
