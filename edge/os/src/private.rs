//! Creates and opens private files and folders. No other module does.
//!
//! Files have mode 0600 and folders 0700, independent of the umask. A file or folder is opened without following a
//! link. Its type, owner, number of links and mode are checked on the open descriptor. A [`PrivateFolder`] is opened once,
//! and its contents are reached through its descriptor, so that no file can be exchanged between a check and its use.
//!
//! | file or folder | created with | requirements on an existing one |
//! |---|---|---|
//! | a folder of weir's own ([`PrivateFolder::make`]) | 0700 | no link; owned by the effective user or root; not writable by other users: weir removes their write rights from a folder of the effective user, and refuses a folder of root with such rights |
//! | a file in it ([`PrivateFolder::create`], [`PrivateFolder::open_file`]) | 0600 | a regular file with one link, owned by the effective user or root; its mode becomes 0600 |
//! | a secret that a user names ([`open_secret`]) | | a regular file with one link, owned by the effective user or root; its mode must give other users no rights |
//! | an output that a user names ([`create_named`]) | 0600 | none: links, devices and pipes are the user's choice, and an existing file keeps its mode |
//! | an output that a user names and that is complete or missing ([`NamedOutput`]) | 0600 | a file or a link is replaced; a device or a pipe is written; the `.part` file is as a file in a folder of weir's own |
//!
//! [`PrivateFolder::open_read_only`] and [`check_makeable`] apply the same checks, without creating or changing
//! anything.
//!
//! A link to a folder of weir's own is followed only if root made the link and the effective user is not root: service
//! managers make such links.

mod named_output;

pub use named_output::{NamedOutput, NamedOutputError, is_open_file};

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_units::Escape as _;

/// The mode of a private file: only its owner reads and writes it.
pub const FILE_MODE: u32 = 0o600;
/// The mode of a private folder: only its owner lists, enters and changes it.
pub const FOLDER_MODE: u32 = 0o700;
/// The mode bits that give rights to others than the owner.
const ACCESS_BY_OTHERS: u32 = 0o077;
/// The mode bits that give write rights to others than the owner.
const WRITE_BY_OTHERS: u32 = 0o022;
/// Appended to the name of a file while its replacement is written.
const NEW_SUFFIX: &str = ".new";

/// The reason why a private file or folder is refused. In the texts, "it" is the path, which the caller puts in front.
#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    /// The system's error.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A symbolic link.
    #[error("it is a symbolic link, and links are not followed here: name the {} itself", .0.noun())]
    Link(PrivateKind),
    /// The path does not name an object of the required kind, which is the value.
    #[error("it is there and is not a {}", .0.noun())]
    Type(PrivateKind),
    /// A file with several names (hard links), by which another folder may give access to it.
    #[error(
        "it has {0} links, and must have one: copy it to a new file, and remove the others (`find / -xdev -samefile FILE` lists them)"
    )]
    Links(u64),
    /// The file or folder belongs to another user, who could change it at any time.
    #[error(
        "it belongs to user {owner}, and must belong to user {wanted}, which weir runs as{}: `chown {wanted}` it, or run weir as its owner",
        if *.wanted == 0 { "" } else { ", or to root" }
    )]
    Owner {
        /// The owner of the file or folder.
        owner: u32,
        /// The effective user.
        wanted: u32,
    },
    /// A secret is accessible to others than its owner.
    #[error(
        "others than its owner can read it: `chmod 600` it, and if they may have read it make a new one (its mode is {0:o})"
    )]
    Readable(u32),
    /// Others can write in a folder whose mode weir cannot change.
    #[error(
        "others than its owner can write in it (its mode is {0:o}): `chmod go-w` it, or name another folder"
    )]
    Writable(u32),
}

impl PrivateError {
    /// Returns the system's kind of error; [`ErrorKind::PermissionDenied`] for refusals by weir.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Io(error) => error.kind(),
            _ => ErrorKind::PermissionDenied,
        }
    }
}

impl From<PrivateError> for io::Error {
    fn from(error: PrivateError) -> Self {
        match error {
            PrivateError::Io(error) => error,
            error => Self::new(error.kind(), error),
        }
    }
}

/// A kind of file-system object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrivateKind {
    /// A regular file.
    File,
    /// A folder.
    Folder,
}

impl PrivateKind {
    fn noun(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "folder",
        }
    }
}

/// Returns the user that weir runs as.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Refuses files and folders that belong to another user than the effective user and root.
fn check_owner(metadata: &Metadata) -> Result<(), PrivateError> {
    let (owner, wanted) = (metadata.uid(), effective_user());
    if owner == wanted || owner == 0 { Ok(()) } else { Err(PrivateError::Owner { owner, wanted }) }
}

/// Refuses all but regular files with one name that belong to the effective user or root.
fn check_file(metadata: &Metadata) -> Result<(), PrivateError> {
    if !metadata.is_file() {
        return Err(PrivateError::Type(PrivateKind::File));
    }
    check_owner(metadata)?;
    // A file that was removed after it was opened has no name, which is harmless.
    if metadata.nlink() > 1 { Err(PrivateError::Links(metadata.nlink())) } else { Ok(()) }
}

/// Sets the mode of a file to [`FILE_MODE`], if it belongs to the effective user.
fn make_private(file: &File, metadata: &Metadata) -> io::Result<()> {
    if metadata.mode() & 0o7777 != FILE_MODE && metadata.uid() == effective_user() {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    Ok(())
}

/// Converts the system's errors for links and objects of another kind into errors of weir. `kind` is the required kind.
fn map_link_error(result: io::Result<File>, kind: PrivateKind) -> Result<File, PrivateError> {
    result.map_err(|error| match error.raw_os_error() {
        Some(libc::ELOOP) => PrivateError::Link(kind),
        Some(libc::ENOTDIR) if kind == PrivateKind::Folder => PrivateError::Type(kind),
        // A socket, or a device without a driver.
        Some(libc::ENXIO) => PrivateError::Type(kind),
        _ => error.into(),
    })
}

/// Opens a file with a secret, for reading.
///
/// # Errors
/// The file cannot be opened, is a link or no regular file, has another owner or several names, or is accessible to
/// others.
pub fn open_secret(path: &Path) -> Result<File, PrivateError> {
    // O_NONBLOCK, because opening a pipe without a writer would wait.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    check_secret(map_link_error(
        OpenOptions::new().read(true).custom_flags(flags).open(path),
        PrivateKind::File,
    )?)
}

/// Checks that an open file is private, and accessible to its owner only.
fn check_secret(file: File) -> Result<File, PrivateError> {
    let metadata = file.metadata()?;
    check_file(&metadata)?;
    let mode = metadata.mode() & 0o7777;
    if mode & ACCESS_BY_OTHERS == 0 { Ok(file) } else { Err(PrivateError::Readable(mode)) }
}

/// Opens an existing file of weir's own by its path for reading and writing. Unlike [`open_private`], does not change its
/// mode.
///
/// # Errors
/// As [`open_private`].
pub(crate) fn open_existing_private(path: &Path) -> Result<File, PrivateError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = map_link_error(options.open(path), PrivateKind::File)?;
    check_file(&file.metadata()?)?;
    Ok(file)
}

/// Opens a file of weir's own by its path with these options. Follows no link, and does not wait for the other end of a
/// pipe.
///
/// # Errors
/// The file cannot be opened or created, or is not a private file.
pub(crate) fn open_private(options: &mut OpenOptions, path: &Path) -> Result<File, PrivateError> {
    let file = map_link_error(
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path),
        PrivateKind::File,
    )?;
    let metadata = file.metadata()?;
    check_file(&metadata)?;
    make_private(&file, &metadata)?;
    Ok(file)
}

/// Creates a new file with a secret, for writing.
///
/// # Errors
/// The file exists already ([`ErrorKind::AlreadyExists`]), or cannot be created.
pub fn create_secret(path: &Path) -> Result<File, PrivateError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    // The umask may have removed rights of the owner.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// Opens an output that the user names, for writing. The path can also be a link, a pipe or a device. A missing file is
/// created private. An existing file keeps its mode, and is not truncated.
///
/// # Errors
/// The output cannot be opened or created.
pub fn create_named(path: &Path) -> io::Result<File> {
    // O_CREAT is always set: with it, the kernel protects other users' files in world-writable folders
    // (fs.protected_regular).
    OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path)
}

/// Opens an input that the user names, for reading. Links are followed, but the file must be a regular one. Never
/// waits: a pipe without a writer is refused at once.
///
/// # Errors
/// The input cannot be opened, or is not a regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path) {
        // A socket.
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => return Err(not_regular()),
        file => file?,
    };
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}

fn not_regular() -> io::Error {
    io::Error::new(
        ErrorKind::InvalidInput,
        "is not a regular file: copy its content to a file, and name that one",
    )
}

/// Locks an open file for this process, so that no second process writes it. Returns false if another process holds the
/// lock.
///
/// Returns true without a lock for a pipe or a device, which several processes may write, and for a file on a file system
/// that has no locks.
///
/// # Errors
/// The system does not report the type of the file.
pub fn lock(file: &File) -> io::Result<bool> {
    Ok(!file.metadata()?.is_file() || !matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Opens a file by `open`, and locks it for this process. Returns `None` if another process holds the lock.
fn open_locked(open: impl Fn() -> Result<File, PrivateError>) -> Result<Option<File>, PrivateError> {
    loop {
        let file = open()?;
        if !lock(&file)? {
            return Ok(None);
        }
        let metadata = file.metadata()?;
        // The previous holder of the lock may have renamed or removed the file meanwhile.
        match open()?.metadata()? {
            now if (now.dev(), now.ino()) == (metadata.dev(), metadata.ino()) => return Ok(Some(file)),
            _ => {}
        }
    }
}

/// Creates a private folder that the user names, with missing folders above it. An existing folder is unchanged.
///
/// # Errors
/// The folder cannot be created.
pub fn make_named_folder(path: &Path) -> io::Result<()> {
    make_folders(path, FOLDER_MODE)
}

/// Creates a folder and missing folders above it, with this mode independent of the umask. An existing folder is unchanged.
pub(crate) fn make_folders(path: &Path, mode: u32) -> io::Result<()> {
    let (Some(name), false) = (path.file_name(), path.is_dir()) else {
        // The path is an existing folder, is `/` or ends with `..`. If it does not exist, the system's error names the
        // reason.
        return path.metadata().map(drop);
    };
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_folders(above, mode)?;
    let above = open_named_folder(above)?;
    if make_in(&above, name)? {
        // The folder was created with rights for its owner alone, of which the umask may have removed some.
        let made = open_at(&above, name, OFlags::RDONLY | OFlags::DIRECTORY)?;
        made.set_permissions(Permissions::from_mode(mode))?;
    } else if !path.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    Ok(())
}

/// Opens a folder that the user names, to create other folders in it.
fn open_named_folder(path: &Path) -> io::Result<OwnedFd> {
    // O_PATH, because this process may lack the right to list the folder.
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags).open(path).map(OwnedFd::from)
}

/// Checks that a folder exists, or can be created with missing folders above it. Creates nothing.
///
/// # Errors
/// As [`make_named_folder`].
pub fn check_makeable(path: &Path) -> io::Result<()> {
    let mut above = path;
    loop {
        match above.metadata() {
            Ok(metadata) if !metadata.is_dir() => return Err(ErrorKind::NotADirectory.into()),
            Ok(_) if above == path => return Ok(()),
            Ok(_) => return crate::may_write(above),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            // The path is a link whose target does not exist.
            Err(_) if above.symlink_metadata().is_ok() => return Err(ErrorKind::NotADirectory.into()),
            Err(error) => match above.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => above = parent,
                Some(_) => above = Path::new("."),
                None => return Err(error),
            },
        }
    }
}

/// An open private folder.
#[derive(Debug)]
pub struct PrivateFolder {
    open: OwnedFd,
    path: PathBuf,
    /// True if the folder was opened to be read only: no file is created in it, and no mode is changed.
    is_read_only: bool,
}

impl PrivateFolder {
    /// Opens a folder of weir's own. Creates it if missing, with the folders above it.
    ///
    /// # Errors
    /// The folder cannot be created or opened, is a link, has another owner, or others can write in it.
    pub fn make(path: &Path) -> Result<Self, PrivateError> {
        make_named_folder(path)?;
        Self::open(path)
    }

    /// Opens a folder of weir's own.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn open(path: &Path) -> Result<Self, PrivateError> {
        Self::open_as(path, false)
    }

    /// Opens a folder of weir's own without changing it: modes stay, and no file is created. Returns `None` if the folder is
    /// missing and can be created.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn open_read_only(path: &Path) -> Result<Option<Self>, PrivateError> {
        match Self::open_as(path, true) {
            Err(PrivateError::Io(error)) if error.kind() == ErrorKind::NotFound => {
                check_makeable(path)?;
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    fn open_as(path: &Path, is_read_only: bool) -> Result<Self, PrivateError> {
        // `folder/` and `folder/.` would follow a link.
        let plain: PathBuf = path.components().collect();
        let as_link_error = |error: PrivateError| match error {
            // The kernel reports a link and a file by the same error.
            PrivateError::Type(PrivateKind::Folder)
                if plain.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink()) =>
            {
                PrivateError::Link(PrivateKind::Folder)
            }
            other => other,
        };
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let open = |path: &Path| {
            map_link_error(OpenOptions::new().read(true).custom_flags(flags).open(path), PrivateKind::Folder)
        };
        match open(&plain).map_err(as_link_error) {
            Err(PrivateError::Link(_)) if is_link_of_root(&plain) => {
                Self::checked(open(&plain.canonicalize()?)?, path, is_read_only)
            }
            other => Self::checked(other?, path, is_read_only),
        }
    }

    /// Opens the folder `name` in this folder. Creates it if missing.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_in(&self, name: &str) -> Result<Self, PrivateError> {
        make_in(&self.open, OsStr::new(name))?;
        self.open_in(name)
    }

    /// Opens the folder `name` in this folder.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn open_in(&self, name: &str) -> Result<Self, PrivateError> {
        open_folder_in(&self.open, name, &self.path.join(name), self.is_read_only)
    }

    /// Converts an open folder, after checking that private files may be created in it. `path` is used in messages only.
    ///
    /// # Errors
    /// The folder has another owner, or others can write in it and its mode cannot be changed.
    pub fn from_open(open: File, path: &Path) -> Result<Self, PrivateError> {
        Self::checked(open, path, false)
    }

    /// Checks the owner and the mode of an open folder, and removes the rights of others to write in it.
    fn checked(open: File, path: &Path, is_read_only: bool) -> Result<Self, PrivateError> {
        let metadata = open.metadata()?;
        check_owner(&metadata)?;
        let mode = metadata.mode() & 0o7777;
        let is_shared = mode & WRITE_BY_OTHERS != 0;
        // A world-writable folder, such as /tmp, is never weir's own, whichever user runs it.
        if is_shared && (metadata.uid() != effective_user() || mode & libc::S_ISVTX != 0) {
            return Err(PrivateError::Writable(mode));
        }
        let wanted = mode & !WRITE_BY_OTHERS | FOLDER_MODE;
        if mode != wanted && metadata.uid() == effective_user() && !is_read_only {
            open.set_permissions(Permissions::from_mode(wanted))?;
        }
        Ok(Self { open: open.into(), path: path.to_owned(), is_read_only })
    }

    /// Returns the path by which the folder was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file `name` for reading and writing. Creates it if missing, and does not truncate it.
    ///
    /// # Errors
    /// The file cannot be created or opened, or is not a private file.
    pub fn create(&self, name: &str) -> Result<File, PrivateError> {
        self.file(name, OFlags::RDWR | OFlags::CREATE)
    }

    /// Opens a file as [`create`](Self::create) does, and locks it for this process. Returns `None` if another process holds
    /// a lock on the file.
    ///
    /// # Errors
    /// The file cannot be created or opened, or is not a private file.
    pub fn create_locked(&self, name: &str) -> Result<Option<File>, PrivateError> {
        open_locked(|| self.create(name))
    }

    /// Creates a new file for reading and writing.
    ///
    /// # Errors
    /// The file exists already ([`ErrorKind::AlreadyExists`]), or cannot be created.
    pub fn create_new(&self, name: &str) -> Result<File, PrivateError> {
        self.file(name, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// The file cannot be opened, or is not a private file.
    pub fn open_file(&self, name: &str) -> Result<File, PrivateError> {
        self.file(name, OFlags::RDWR)
    }

    /// Opens a file with a secret, for reading. It is refused if others than its owner had access.
    ///
    /// # Errors
    /// As [`open_secret`].
    pub fn open_secret(&self, name: &str) -> Result<File, PrivateError> {
        check_secret(map_link_error(
            open_at(&self.open, OsStr::new(name), OFlags::RDONLY),
            PrivateKind::File,
        )?)
    }

    /// Opens a file with these flags, and checks that it is private. In a read-only folder the file is opened for
    /// reading.
    fn file(&self, name: &str, flags: OFlags) -> Result<File, PrivateError> {
        // A confined process may lack the right to open a file for writing.
        let flags = if self.is_read_only { OFlags::RDONLY } else { flags };
        let file = map_link_error(open_at(&self.open, OsStr::new(name), flags), PrivateKind::File)?;
        let metadata = file.metadata()?;
        check_file(&metadata)?;
        if !self.is_read_only {
            make_private(&file, &metadata)?;
        } else if effective_user() != 0 && metadata.mode() & libc::S_IWUSR == 0 {
            return Err(io::Error::from(ErrorKind::PermissionDenied).into());
        }
        Ok(file)
    }

    /// Replaces a file atomically by a file with these bytes. After a successful call, the new file survives a crash.
    ///
    /// # Errors
    /// The new file cannot be written; the earlier file stays.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), PrivateError> {
        let new = format!("{name}{NEW_SUFFIX}");
        match self.remove(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut file = self.create_new(&new)?;
        let written =
            file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| self.rename(&new, name));
        if let Err(error) = written {
            // On a full disk, an incomplete file would keep its disk space.
            _ = self.remove(&new);
            return Err(error.into());
        }
        Ok(self.sync()?)
    }

    /// Renames a file in this folder, replacing a file of the new name.
    ///
    /// # Errors
    /// The system's error.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.open, single_component(from)?, &self.open, single_component(to)?)?)
    }

    /// Removes a file. A link is removed itself, not its target.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.open, single_component(name)?, AtFlags::empty())?)
    }

    /// Syncs the folder: files created, renamed and removed in it so far stay so after a crash.
    ///
    /// # Errors
    /// The system's error.
    pub fn sync(&self) -> io::Result<()> {
        File::from(self.open.try_clone()?).sync_all()
    }
}

impl fmt::Display for PrivateFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.escaped().fmt(f)
    }
}

/// Opens the folder `name` of weir's own in a folder that the user names. Links in the path of the user's folder are
/// followed. Creates both folders if missing.
///
/// # Errors
/// As [`PrivateFolder::make`], for the folder `name`.
pub fn make_inside(named: &Path, name: &str) -> Result<PrivateFolder, PrivateError> {
    make_named_folder(named)?;
    let outer = open_named_folder(named)?;
    make_in(&outer, OsStr::new(name))?;
    open_folder_in(&outer, name, &named.join(name), false)
}

/// Creates a folder if missing. Returns whether it was missing.
fn make_in(outer: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    match rustix::fs::mkdirat(outer, single_component(name)?, FOLDER_MODE.into()) {
        Err(Errno::EXIST) => Ok(false),
        made => Ok(made.map(|()| true)?),
    }
}

/// Opens and checks the folder `name` of weir's own in an open folder.
fn open_folder_in(
    outer: &OwnedFd,
    name: &str,
    path: &Path,
    is_read_only: bool,
) -> Result<PrivateFolder, PrivateError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let open = map_link_error(open_at(outer, OsStr::new(name), flags), PrivateKind::Folder)?;
    PrivateFolder::checked(open, path, is_read_only)
}

/// Opens a file or folder in an open folder, without following a link or waiting for a pipe's other end.
fn open_at(folder: &OwnedFd, name: &OsStr, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(folder, single_component(name)?, flags, FILE_MODE.into())?.into())
}

/// Checks that a name is a single path component, so that it names nothing outside its folder.
fn single_component(name: &(impl AsRef<OsStr> + ?Sized)) -> io::Result<&OsStr> {
    let name = name.as_ref();
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(std::path::Component::Normal(only)), None) if only == name => Ok(name),
        _ => Err(ErrorKind::InvalidInput.into()),
    }
}

/// Returns true for a link that root owns, if the effective user is another one. Following the link is safe, because root
/// can change all of the user's files in any event.
fn is_link_of_root(path: &Path) -> bool {
    effective_user() != 0
        && path.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink() && metadata.uid() == 0)
}
