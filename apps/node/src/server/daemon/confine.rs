//! Confinement: the rights that the node's process gives up before it parses untrusted input.

use super::DaemonError;
use crate::control::config::NodeConfiguration;
use crate::log::warn;
use std::io;
use std::path::{Path, PathBuf};
use weir_os::FileConfinement;
use weir_os::private::{PrivateError, PrivateFolder};
use weir_sandbox::Cache;
use weir_units::Escape as _;

/// Warns if a later reload will not be able to read the configuration. A node that root has started gives up the right to
/// read files that only another user may read.
pub(super) fn warn_if_unreadable(config: &Path) {
    if let Err(error) = std::fs::File::open(config) {
        warn(&format_args!(
            "{}: {error}: a reload could not read it, as the node has given up root's access to other users' files; `chown` it to the node's user, or make it readable to all",
            config.escaped()
        ));
    }
}

/// Creates a private folder of the node, or checks that an existing one is no symbolic link and belongs to this user.
pub(super) fn make_private(folder: &Path) -> Result<PrivateFolder, DaemonError> {
    let read_error = |why: PrivateError| DaemonError::Read { path: folder.to_owned(), source: why.into() };
    PrivateFolder::make(folder).map_err(read_error)
}

/// Confines the process: it can write only within the node's folders, and can start no program.
pub(super) fn confine(config: &NodeConfiguration, cache: Option<&Cache>) -> Result<(), DaemonError> {
    let mut folders = own_folders(config);
    folders.iter().try_for_each(|folder| make_private(folder).map(drop))?;
    // The socket's folder is not private: the folder's group may enter it, and other programs may use it.
    let socket_folder = folder_of_socket(config);
    weir_os::socket::make_folder(socket_folder)
        .map_err(|source| DaemonError::Read { path: PathBuf::from(socket_folder), source })?;
    folders.push(socket_folder);
    folders.extend(cache.map(Cache::path));
    match weir_os::confine_node(&folders)? {
        FileConfinement::Full => {}
        FileConfinement::Partial => {
            warn(&"this kernel is too old to confine all of the node's access to files")
        }
        FileConfinement::None => {
            warn(&"this kernel does not confine the node's access to files: it has no Landlock")
        }
    }
    folders.iter().try_for_each(|folder| check_writable(folder))
}

/// Confines the process for a check: it has the rights of a node, but can write nothing. `is_other_user` is true if the
/// node runs as another user, so that this user need not be able to write in the node's folders.
pub(super) fn confine_check(config: &NodeConfiguration, is_other_user: bool) -> Result<(), DaemonError> {
    weir_os::confine_node(&[])?;
    let mut folders = own_folders(config);
    folders.push(folder_of_socket(config));
    folders
        .iter()
        .filter(|folder| !is_other_user && folder.is_dir())
        .try_for_each(|folder| check_writable(folder))
}

fn own_folders(config: &NodeConfiguration) -> Vec<&Path> {
    [config.node.state.as_path()].into_iter().chain(config.cpu.trace.as_deref()).collect()
}

fn folder_of_socket(config: &NodeConfiguration) -> &Path {
    let folder = config.node.socket.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Checks that the confined process can write in a folder.
fn check_writable(folder: &Path) -> Result<(), DaemonError> {
    let failed = |source| DaemonError::Read { path: folder.to_owned(), source };
    match weir_os::may_write(folder) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            use std::os::unix::fs::MetadataExt;
            let owner = std::fs::metadata(folder).map_err(failed)?.uid();
            Err(DaemonError::Foreign { path: folder.to_owned(), owner })
        }
        Err(error) => Err(failed(error)),
    }
}
