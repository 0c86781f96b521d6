//! The rights that a node gives up before it reads anything that strangers wrote.

use super::DaemonError;
use crate::control::config::NodeConfiguration;
use crate::server::log::warn;
use std::io;
use std::path::{Path, PathBuf};
use weir_os::Files;
use weir_os::private::{PrivateError, PrivateFolder};
use weir_sandbox::Cache;
use weir_units::Shown as _;

/// Says at the start what would fail at a reload: a node that root has started may not read what is another user's alone.
pub(super) fn readable_again(config: &Path) {
    if let Err(error) = std::fs::File::open(config) {
        warn(&format_args!(
            "{}: {error}: the node cannot read it again, as it gives up the right to other users' files; `chown` it to the node's user, or let all read it",
            config.shown()
        ));
    }
}

/// Makes a folder of the node's own, or checks the one that is there: it is no link, and no other user's.
pub(super) fn make_private(folder: &Path) -> Result<(), DaemonError> {
    let refused = |why: PrivateError| DaemonError::Read { path: folder.to_owned(), source: why.into() };
    PrivateFolder::make(folder).map(drop).map_err(refused)
}

/// From here on this process writes beneath the node's own folders, and starts no program.
pub(super) fn confine(config: &NodeConfiguration, cache: Option<&Cache>) -> Result<(), DaemonError> {
    let mut folders = own_folders(config);
    folders.iter().try_for_each(|folder| make_private(folder))?;
    // The socket's folder is its group's to enter, and may be one that others use, too.
    let socket = folder_of_socket(config);
    weir_os::socket::make_folder(socket)
        .map_err(|source| DaemonError::Read { path: PathBuf::from(socket), source })?;
    folders.push(socket);
    folders.extend(cache.map(Cache::path));
    match weir_os::node(&folders)? {
        Files::Held => {}
        Files::HeldInPart => warn(&"this kernel is too old to close all files of others to the node"),
        Files::Open => warn(&"this kernel closes no files of others to the node: it has no Landlock"),
    }
    folders.iter().try_for_each(|folder| own(folder))
}

/// From here on this process has the rights of a node, writes nothing at all, and starts no program: a check. `is_of_another` is true where the node has another user, whose folders this one
/// need not be able to write in.
pub(super) fn confine_check(config: &NodeConfiguration, is_of_another: bool) -> Result<(), DaemonError> {
    weir_os::node(&[])?;
    let mut folders = own_folders(config);
    folders.push(folder_of_socket(config));
    folders.iter().filter(|folder| !is_of_another && folder.is_dir()).try_for_each(|folder| own(folder))
}

fn own_folders(config: &NodeConfiguration) -> Vec<&Path> {
    [config.node.state.as_path()].into_iter().chain(config.cpu.trace.as_deref()).collect()
}

fn folder_of_socket(config: &NodeConfiguration) -> &Path {
    let folder = config.node.socket.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Sees to it that a folder can be written without root's right to other users' files, which the node has given up.
fn own(folder: &Path) -> Result<(), DaemonError> {
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
