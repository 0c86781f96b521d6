//! The local socket at which a running `weir ui` gives new addresses to the same user.

use crate::Ui;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weir_os::socket::{SocketError, SocketFile};

/// The longest address, in bytes.
const ADDRESS_BYTES_MAX: u64 = 1024;
/// The longest wait for an address.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The error of a missing runtime folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no folder for the page's socket: set XDG_RUNTIME_DIR to a folder of your own")]
pub struct SocketPathError;

/// Returns the path of the socket in the user's runtime folder. Only the user can enter that folder.
///
/// # Errors
/// The user has no runtime folder.
pub fn socket_path() -> Result<PathBuf, SocketPathError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let runtime = runtime.map(PathBuf::from).filter(|folder| folder.is_absolute());
    runtime.map(|folder| folder.join("weir").join("ui.sock")).ok_or(SocketPathError)
}

/// Serves addresses at a socket, in a thread, until the returned file is dropped.
pub(crate) fn serve(path: &Path, ui: &Arc<Ui>) -> Result<SocketFile, crate::UiError> {
    let (listener, file) = weir_os::socket::listen(path)?;
    let ui = Arc::clone(ui);
    std::thread::Builder::new().name("weir-ui-address".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // An error means that the other program has gone.
            let _ = stream.set_write_timeout(Some(TIMEOUT));
            let _ = writeln!(stream, "{}", ui.address());
        }
    })?;
    Ok(file)
}

/// Requests a new address from the `weir ui` that runs at a socket; `None` if none runs there.
///
/// # Errors
/// The socket cannot be used.
pub fn request_address(path: &Path) -> Result<Option<String>, SocketError> {
    let failed = |source| SocketError::from(source);
    let mut stream = match UnixStream::connect(path) {
        Ok(stream) => stream,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(failed(error)),
    };
    stream.set_read_timeout(Some(TIMEOUT)).map_err(failed)?;
    let mut address = String::new();
    stream.by_ref().take(ADDRESS_BYTES_MAX).read_to_string(&mut address).map_err(failed)?;
    Ok(Some(address.trim().to_owned()).filter(|address| !address.is_empty()))
}
