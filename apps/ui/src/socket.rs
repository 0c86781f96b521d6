//! The local socket at which a running `weir ui` gives new addresses to the same user.

use crate::Ui;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weir_os::socket::SocketFile;

/// The longest line with an address, in bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// The longest wait for an address.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The begin and the end of a socket's file name, around the port of the page.
const NAME: (&str, &str) = ("ui-", ".sock");

/// The error of a missing runtime folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no folder for the page's socket: set XDG_RUNTIME_DIR to a folder of your own")]
pub struct SocketFolderError;

/// Returns the folder of the sockets: in the user's runtime folder, which only the user can enter.
///
/// # Errors
/// The user has no runtime folder.
pub fn socket_folder() -> Result<PathBuf, SocketFolderError> {
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let runtime = runtime.map(PathBuf::from).filter(|folder| folder.is_absolute());
    runtime.map(|folder| folder.join("weir")).ok_or(SocketFolderError)
}

/// Serves addresses of the page at a port, in a thread, until the returned file is dropped.
pub(crate) fn serve(folder: &Path, port: u16, ui: &Arc<Ui>) -> Result<SocketFile, crate::UiError> {
    let (begin, end) = NAME;
    let (listener, file) = weir_os::socket::listen(&folder.join(format!("{begin}{port}{end}")))?;
    let ui = Arc::clone(ui);
    std::thread::Builder::new().name("weir-ui-address".to_owned()).spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            // An error means that the other program has gone.
            let _ = stream.set_write_timeout(Some(TIMEOUT));
            let _ = writeln!(stream, "{}\t{}", ui.address(), ui.node_text);
        }
    })?;
    Ok(file)
}

/// A page that is being served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedPage {
    /// A new address of the page, which opens one browser.
    pub address: String,
    /// Text that names the node.
    pub node: String,
}

/// Requests a new address of each page that a `weir ui` of this user serves, in the order of the ports.
///
/// # Errors
/// The folder cannot be read.
pub fn request_addresses(folder: &Path) -> io::Result<Vec<ServedPage>> {
    let entries = match folder.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let port = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        name.strip_prefix(NAME.0)?.strip_suffix(NAME.1)?.parse::<u16>().ok()
    };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut sockets: Vec<(u16, PathBuf)> = paths.filter_map(|path| Some((port(&path)?, path))).collect();
    sockets.sort();
    // A socket without an answer belongs to a program that has ended.
    Ok(sockets.iter().filter_map(|(_, path)| request_address(path).ok().flatten()).collect())
}

fn request_address(path: &Path) -> io::Result<Option<ServedPage>> {
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let mut line = String::new();
    Read::by_ref(&mut stream).take(LINE_BYTES_MAX).read_to_string(&mut line)?;
    let parts = line.trim_end().split_once('\t');
    Ok(parts.map(|(address, node)| ServedPage { address: address.to_owned(), node: node.to_owned() }))
}
