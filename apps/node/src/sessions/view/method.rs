//! The method by which a node anonymises addresses, and its note in the state folder.
//!
//! When a node starts with another method than the noted one, it logs once that pseudonyms have changed. A state
//! folder with a secret but without a note was written by a version that did not use ipcrypt-pfx.

use super::secret;
use crate::log::warn;
use std::io::Read;
use std::path::Path;
use weir_os::private::{PrivateError, PrivateFolder};
use weir_units::Escape as _;

/// Name of the note in the state folder.
const FILE: &str = "views.method";
/// Name of the present method of `addresses=anonymised`.
const METHOD: &str = "ipcrypt-pfx\n";
/// Maximum number of bytes that are read of the note, more than any note has.
const NOTE_MAX: u64 = 64;

const CHANGED: &str = "addresses are anonymised by ipcrypt-pfx from now on, so `addresses=anonymised` shows other pseudonyms than before, also in running studies; \
     `addresses=crypto-pan` selects the earlier method";

/// Comparison of the noted method with the present method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// The same method.
    Same,
    /// The node has no secret for views yet, so there are no earlier pseudonyms.
    New,
    /// Another method.
    Other,
}

impl Method {
    /// Reads the note in the state folder.
    pub(crate) fn read(state: &Path) -> Self {
        let has_secret = std::fs::symlink_metadata(state.join(secret::FILE)).is_ok();
        match (noted(state), has_secret) {
            (Ok(text), _) if text == METHOD.as_bytes() => Self::Same,
            (_, true) => Self::Other,
            (_, false) => Self::New,
        }
    }

    /// Logs a change of the method, and writes the note, so that the change is logged only once.
    pub(crate) fn update(self, state: &Path) {
        if self == Self::Other {
            warn(&CHANGED);
        }
        if self != Self::Same
            && let Err(error) =
                PrivateFolder::open(state).and_then(|folder| folder.replace(FILE, METHOD.as_bytes()))
        {
            let path = state.join(FILE);
            warn(&format_args!(
                "{}: {error}; the next start will repeat the warning about anonymised addresses",
                path.escaped()
            ));
        }
    }
}

fn noted(state: &Path) -> Result<Vec<u8>, PrivateError> {
    let mut text = Vec::new();
    PrivateFolder::open(state)?.open_file(FILE)?.take(NOTE_MAX).read_to_end(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::view::Secret;
    use std::os::unix::fs::PermissionsExt;

    /// Starts a node, and returns the method that it found.
    fn start(state: &Path) -> Method {
        let before = Method::read(state);
        Secret::open(state).unwrap();
        before.update(state);
        before
    }

    #[test]
    fn a_change_of_method_is_reported_once_and_not_by_a_new_node() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(start(folder.path()), Method::New);
        assert_eq!(start(folder.path()), Method::Same);
        let note = folder.path().join(FILE);
        assert_eq!(std::fs::metadata(&note).unwrap().permissions().mode() & 0o777, 0o600);
        // The folder of an earlier version has a secret and no note.
        std::fs::remove_file(&note).unwrap();
        assert_eq!(start(folder.path()), Method::Other);
        assert_eq!(start(folder.path()), Method::Same);
        // The folder of another version has another note.
        std::fs::write(&note, "another-method\n").unwrap();
        assert_eq!(start(folder.path()), Method::Other);
        assert_eq!(start(folder.path()), Method::Same);
    }

    #[test]
    fn a_link_is_replaced_and_not_written_through() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        std::fs::write(&target, METHOD).unwrap();
        std::os::unix::fs::symlink(&target, folder.path().join(FILE)).unwrap();
        assert_eq!(start(folder.path()), Method::New);
        assert_eq!(std::fs::read_to_string(&target).unwrap(), METHOD);
        assert!(!std::fs::symlink_metadata(folder.path().join(FILE)).unwrap().is_symlink());
        assert_eq!(start(folder.path()), Method::Same);
    }
}
