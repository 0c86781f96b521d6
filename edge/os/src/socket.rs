//! Binds a node's socket to its path, replaces a stale socket there, and removes the socket at the end. Files of other
//! programs stay unchanged.
//!
//! A node holds a lock beside the socket (`PATH.lock`) as long as the socket exists, so that of several nodes started at
//! the same path only one continues. An earlier socket at the path is removed only if no server answers on it
//! (ECONNREFUSED), and the file at the path is still the one to which the connection was tried.

use crate::lock::Locked;
use crate::private::{self, PrivateError};
use std::fs::{OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use weir_units::Escape as _;

/// The mode of the socket: its owner and its group connect.
const SOCKET_MODE: u32 = 0o660;
/// The mode of the socket's folder, if weir creates it: the group must reach the socket.
const FOLDER_MODE: u32 = 0o750;
/// Appended to the socket's path for the path of its lock.
const LOCK_SUFFIX: &str = ".lock";
/// Connections that wait to be accepted.
const BACKLOG: libc::c_int = 128;
/// The most attempts to bind or lock, in case other programs bind or remove files at the same path at the same time.
const ATTEMPTS: usize = 8;

/// The reason why a node cannot bind its socket. Other programs' files are unchanged.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The system's error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// Another node holds the lock.
    #[error("another node is running here: it holds {}", .0.escaped())]
    Locked(PathBuf),
    /// The lock cannot be used.
    #[error("its lock {}: {source}", .path.escaped())]
    Lock {
        /// The lock's file.
        path: PathBuf,
        /// The reason.
        source: PrivateError,
    },
    /// The path names a file that is not a socket. The value is the kind of the file.
    #[error("there is a {0}, not a socket: it was left as it is; move it away, or name another `socket`")]
    Taken(&'static str),
    /// A server listens on the socket at the path.
    #[error("another node is running here, or another server: it listens on the socket")]
    Answered,
    /// The path names a socket that is not stale, but to which a client of a node cannot connect: for instance a
    /// datagram socket, or one to which this process may not connect.
    #[error(
        "there is a socket that is not a node's, or to which this process may not connect: it was left as it is; remove it, or name another `socket` ({0})"
    )]
    Foreign(io::Error),
    /// Other programs keep binding and removing sockets at the path.
    #[error("other programs bind sockets to this path at the same time: name another `socket`")]
    Contended,
}

/// The file of a bound socket. Dropping this value removes the file, if the path still names this socket. To be dropped
/// before the listener is closed: as long as the socket is open, no other file gets its inode number.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    /// The device and inode number of the socket's file.
    identity: (u64, u64),
    lock: Lock,
}

impl SocketError {
    /// Returns true if a running node or another server uses the path.
    pub fn is_taken_by_a_server(&self) -> bool {
        matches!(self, Self::Locked(_) | Self::Answered)
    }

    /// Returns true if this process lacks the rights to examine the socket or its lock.
    pub fn is_permission_denied(&self) -> bool {
        match self {
            Self::Io(error) | Self::Foreign(error) => error.kind() == ErrorKind::PermissionDenied,
            Self::Lock { source, .. } => source.kind() == ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            _ = std::fs::remove_file(&self.path);
        }
        self.lock.remove();
    }
}

/// Creates the folder of a socket, if missing, with rights for its group to enter it.
///
/// # Errors
/// The folder cannot be created.
pub fn make_folder(path: &Path) -> io::Result<()> {
    private::make_folders(path, FOLDER_MODE)
}

/// Checks that [`listen`] would bind a socket at this path. Creates and removes nothing.
///
/// # Errors
/// As [`listen`].
pub fn check(path: &Path) -> Result<(), SocketError> {
    let address = Address::from_path(path)?;
    refuse_other_files(path)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    private::check_makeable(folder)?;
    if folder.is_dir() {
        crate::may_write(folder)?;
    }
    Lock::check(path)?;
    // A stale socket is no obstacle: `listen` removes it.
    address.is_stale().map(drop)
}

/// Binds a socket to which its owner and group can connect. Creates its folder if missing, and removes a stale
/// socket.
///
/// # Errors
/// [`SocketError`] if a node, another server or another kind of file uses the path, or the system refuses a step.
pub fn listen(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        make_folder(folder)?;
    }
    // Checked first, so that the path of another kind of file leaves no lock beside it.
    refuse_other_files(path)?;
    let lock = Lock::take(path)?;
    let address = Address::from_path(path)?;
    for _ in 0..ATTEMPTS {
        let socket = stream_socket(0)?;
        if let Err(error) = address.pass_to(libc::bind, &socket) {
            if error.kind() != ErrorKind::AddrInUse {
                return Err(error.into());
            }
            remove_stale(path, &address)?;
            continue;
        }
        let identity = identity(path)?;
        // No client can connect before the socket listens, whatever mode the umask has given its file.
        std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
        // SAFETY: takes no pointers; the descriptor is open.
        if unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) } != 0 {
            return Err(io::Error::last_os_error().into());
        }
        return Ok((socket.into(), SocketFile { path: path.to_owned(), identity, lock }));
    }
    Err(SocketError::Contended)
}

/// Removes the socket at this path if no server answers on it.
fn remove_stale(path: &Path, address: &Address) -> Result<(), SocketError> {
    let Some(before) = if_exists(identity(path))? else { return Ok(()) };
    refuse_other_files(path)?;
    if !address.is_stale()? {
        return Ok(());
    }
    if if_exists(identity(path))? == Some(before) {
        _ = if_exists(std::fs::remove_file(path))?;
    }
    Ok(())
}

/// Fails if the path exists and is not a socket.
fn refuse_other_files(path: &Path) -> Result<(), SocketError> {
    let Some(metadata) = if_exists(path.symlink_metadata())? else { return Ok(()) };
    let found = metadata.file_type();
    let what = match () {
        () if found.is_socket() => return Ok(()),
        () if found.is_file() => "regular file",
        () if found.is_dir() => "folder",
        () if found.is_symlink() => "symbolic link",
        () if found.is_fifo() => "named pipe",
        () => "device",
    };
    Err(SocketError::Taken(what))
}

/// Converts the error of a file that does not exist to `None`.
fn if_exists<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the device and the inode number of a file.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    path.symlink_metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// The lock beside a socket, which this process holds.
#[derive(Debug)]
struct Lock {
    path: PathBuf,
    _held: Locked,
}

impl Lock {
    fn path_beside(socket: &Path) -> PathBuf {
        let mut path = socket.as_os_str().to_owned();
        path.push(LOCK_SUFFIX);
        PathBuf::from(path)
    }

    /// Checks that no node holds the lock, and that this process could take it.
    fn check(socket: &Path) -> Result<(), SocketError> {
        let path = Self::path_beside(socket);
        let file = match private::open_existing_private(&path) {
            Err(PrivateError::Io(error)) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(source) => return Err(SocketError::Lock { path, source }),
            Ok(file) => file,
        };
        match Locked::is_held(file) {
            Ok(false) => Ok(()),
            Ok(true) => Err(SocketError::Locked(path)),
            Err(error) => Err(SocketError::Lock { path, source: error.into() }),
        }
    }

    fn take(socket: &Path) -> Result<Self, SocketError> {
        let path = Self::path_beside(socket);
        for _ in 0..ATTEMPTS {
            let failed = |source| SocketError::Lock { path: path.clone(), source };
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(private::FILE_MODE);
            let file = private::open_private(&mut options, &path).map_err(failed)?;
            let held = Locked::exclusive(file).map_err(|error| failed(error.into()))?;
            let Some(file) = held else { return Err(SocketError::Locked(path)) };
            // The previous holder may have removed the lock file meanwhile. A lock on a removed file excludes no other node.
            let held = file.file().metadata().map(|metadata| (metadata.dev(), metadata.ino()))?;
            if if_exists(identity(&path))? == Some(held) {
                return Ok(Self { path, _held: file });
            }
        }
        Err(SocketError::Contended)
    }

    fn remove(&self) {
        _ = std::fs::remove_file(&self.path);
    }
}

fn stream_socket(flags: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: takes no pointers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | flags, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: socket(2) has just returned this descriptor, which has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The type of bind(2) and connect(2), which take the address of a socket.
type AddressCall = unsafe extern "C" fn(libc::c_int, *const libc::sockaddr, libc::socklen_t) -> libc::c_int;

/// The address of a Unix-domain socket: its path in the form that system calls take.
struct Address {
    bytes: libc::sockaddr_un,
    len: libc::socklen_t,
}

impl Address {
    fn from_path(path: &Path) -> io::Result<Self> {
        let path = path.as_os_str().as_bytes();
        // SAFETY: all zeros is a value of this plain C struct.
        let mut bytes: libc::sockaddr_un = unsafe { std::mem::zeroed() };
        // One byte is for the zero at the end.
        if path.is_empty() || path.len() >= bytes.sun_path.len() || path.contains(&0) {
            let most = bytes.sun_path.len() - 1;
            let why = format!("the path of a socket has 1 to {most} bytes, and no zero among them");
            return Err(io::Error::new(ErrorKind::InvalidInput, why));
        }
        bytes.sun_family = libc::sa_family_t::try_from(libc::AF_UNIX).map_err(io::Error::other)?;
        for (to, from) in bytes.sun_path.iter_mut().zip(path) {
            *to = libc::c_char::from_ne_bytes([*from]);
        }
        let len = std::mem::offset_of!(libc::sockaddr_un, sun_path) + path.len() + 1;
        Ok(Self { bytes, len: libc::socklen_t::try_from(len).map_err(io::Error::other)? })
    }

    /// Returns true if the path names a stale socket: one on which no server answers. Returns false if the path does not
    /// exist.
    ///
    /// # Errors
    /// A server answers, or a client of a node cannot connect to the socket.
    fn is_stale(&self) -> Result<bool, SocketError> {
        // Non-blocking: connecting to a server whose queue is full would wait.
        match self.pass_to(libc::connect, &stream_socket(libc::SOCK_NONBLOCK)?) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Ok(()) => Err(SocketError::Answered),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(SocketError::Answered),
            Err(error) => Err(SocketError::Foreign(error)),
        }
    }

    /// Calls bind(2) or connect(2) with this address.
    fn pass_to(&self, system_call: AddressCall, socket: &OwnedFd) -> io::Result<()> {
        let address = (&raw const self.bytes).cast();
        // SAFETY: the address is live for the time of the call and has at least `len` bytes; the descriptor is open.
        match unsafe { system_call(socket.as_raw_fd(), address, self.len) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}
