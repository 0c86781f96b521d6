//! Private files and folders: the one place where weir creates and opens them.
//!
//! Files have mode 0600 and folders 0700, independent of the umask. A file or folder is opened without following a link, and checked on the open
//! descriptor: its type, its owner, its number of links, its mode. A [`PrivateFolder`] is opened once, and what is in it is reached through its descriptor, so
//! that nothing changes between a check and its use.
//!
//! | what | created with | an existing one has to be |
//! |---|---|---|
//! | a folder of weir's own ([`PrivateFolder::make`]) | 0700 | no link; owned by the effective user or root; others lose the right to write, root's must not give it |
//! | a file in it ([`PrivateFolder::create`], [`PrivateFolder::open_file`]) | 0600 | a regular file with one link, owned by the effective user or root; its mode becomes 0600 |
//! | a secret that a user names ([`open_secret`]) | | the same, and 0600 or less already |
//! | an output that a user names ([`create_named`]) | 0600 | anything: links, devices and pipes are the user's choice, and an existing file keeps its mode |
//!
//! [`PrivateFolder::look`] and [`check_makeable`] refuse the same, and neither make nor change anything.
//!
//! The one link that is followed is to a folder, made by root, where the effective user is not root: service managers make such links.

use std::ffi::{CString, OsStr};
use std::fmt;
use std::fs::{File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_units::Shown as _;

/// The mode of a private file: only its owner reads and writes it.
pub const FILE_MODE: u32 = 0o600;
/// The mode of a private folder: only its owner lists, enters and changes it.
pub const FOLDER_MODE: u32 = 0o700;
/// Rights of a mode that others than the owner have.
const OF_OTHERS: u32 = 0o077;
/// Rights to write of a mode that others than the owner have.
const WRITE_OF_OTHERS: u32 = 0o022;
/// Added to the name of a file while its replacement is written.
const NEW: &str = ".new";

/// Why a private file or folder is not used. The text says what to do, and leaves the path to the caller.
#[derive(Debug, thiserror::Error)]
pub enum PrivateError {
    /// The system refuses.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// A symbolic link.
    #[error("it is a symbolic link, and links are not followed here: name the {} itself", .0.noun())]
    Link(PrivateKind),
    /// Something else than a file or a folder.
    #[error("it is there and is not a {}", .0.noun())]
    Type(PrivateKind),
    /// More than one name leads to it: another folder may show it to others.
    #[error(
        "it has {0} links, and must have one: copy it to a new file, and remove the others (`find / -xdev -samefile FILE` lists them)"
    )]
    Links(u64),
    /// Another user owns it, and could change it at any time.
    #[error(
        "it belongs to user {owner}, and must belong to user {wanted}, which weir runs as{}: `chown {wanted}` it, or run weir as its owner",
        if *.wanted == 0 { "" } else { ", or to root" }
    )]
    Owner {
        /// Its owner.
        owner: u32,
        /// The effective user.
        wanted: u32,
    },
    /// Others than its owner can read or write a secret.
    #[error(
        "others than its owner can read it: `chmod 600` it, and if they may have read it make a new one (its mode is {0:o})"
    )]
    Readable(u32),
    /// Others can write in a folder that weir cannot change.
    #[error(
        "others than its owner can write in it (its mode is {0:o}): `chmod go-w` it, or name another folder"
    )]
    Writable(u32),
}

impl PrivateError {
    /// The system's kind of error; [`ErrorKind::PermissionDenied`] for what weir refuses itself.
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

/// A kind of private thing.
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

/// The user that weir runs as.
pub fn effective_user() -> u32 {
    // SAFETY: has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// Refuses what another user than the effective one and root owns.
fn check_owner(known: &Metadata) -> Result<(), PrivateError> {
    let (owner, wanted) = (known.uid(), effective_user());
    if owner == wanted || owner == 0 { Ok(()) } else { Err(PrivateError::Owner { owner, wanted }) }
}

/// Refuses what is no regular file of one name that belongs to the effective user or root.
fn check_file(known: &Metadata) -> Result<(), PrivateError> {
    if !known.is_file() {
        return Err(PrivateError::Type(PrivateKind::File));
    }
    check_owner(known)?;
    // A file that was removed while it was opened has none.
    if known.nlink() > 1 { Err(PrivateError::Links(known.nlink())) } else { Ok(()) }
}

/// Gives a file of the effective user the mode of private files, whatever it had.
fn make_private(file: &File, known: &Metadata) -> io::Result<()> {
    if known.mode() & 0o7777 != FILE_MODE && known.uid() == effective_user() {
        file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    }
    Ok(())
}

/// Turns the system's refusal to follow a link into ours.
fn opened(result: io::Result<File>, kind: PrivateKind) -> Result<File, PrivateError> {
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
/// It cannot be opened, is a link or no regular file, has another owner or several names, or others can read or write it.
pub fn open_secret(path: &Path) -> Result<File, PrivateError> {
    // Without waiting: it may be a pipe without a writer.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    secret(opened(OpenOptions::new().read(true).custom_flags(flags).open(path), PrivateKind::File)?)
}

fn secret(file: File) -> Result<File, PrivateError> {
    let known = file.metadata()?;
    check_file(&known)?;
    let mode = known.mode() & 0o7777;
    if mode & OF_OTHERS == 0 { Ok(file) } else { Err(PrivateError::Readable(mode)) }
}

/// Opens a file of weir's own by its path for reading and writing, as [`open_private`] does. It is not made, and keeps its mode.
///
/// # Errors
/// As [`open_private`].
pub(crate) fn look_at_private(path: &Path) -> Result<File, PrivateError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = opened(options.open(path), PrivateKind::File)?;
    check_file(&file.metadata()?)?;
    Ok(file)
}

/// Opens a file of weir's own by its path, without following a link or waiting, with these options.
///
/// # Errors
/// It cannot be opened or created, or is not a private file.
pub(crate) fn open_private(options: &mut OpenOptions, path: &Path) -> Result<File, PrivateError> {
    let file =
        opened(options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path), PrivateKind::File)?;
    let known = file.metadata()?;
    check_file(&known)?;
    make_private(&file, &known)?;
    Ok(file)
}

/// Creates a new file with a secret, for writing.
///
/// # Errors
/// It is there already ([`ErrorKind::AlreadyExists`]), or cannot be created.
pub fn create_secret(path: &Path) -> Result<File, PrivateError> {
    let file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(path)?;
    // Where the umask took rights from the owner.
    file.set_permissions(Permissions::from_mode(FILE_MODE))?;
    Ok(file)
}

/// Opens an output that the user names, for writing, and creates it private where it is not there. What is there keeps its mode, and its bytes
/// until they are written over: the path can also be a link, a pipe or a device.
///
/// # Errors
/// It cannot be opened or created.
pub fn create_named(path: &Path) -> io::Result<File> {
    // With O_CREAT in any case: so the kernel protects files of others in folders that everybody writes (fs.protected_regular).
    OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).open(path)
}

/// Opens an input that the user names, for reading, where it is a regular file, also by a link. Never waits: a FIFO without a writer is refused at once.
///
/// # Errors
/// It cannot be opened, or is no regular file.
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
        "is no regular file: copy its content to a file, and name that one",
    )
}

/// Locks an open file for this process, so that no second run writes it. Returns false where another process holds the lock. A pipe or a device is not
/// locked, as several processes may write it; a file system without locks is used without them.
///
/// # Errors
/// The system does not say what the file is.
pub fn lock(file: &File) -> io::Result<bool> {
    Ok(!file.metadata()?.is_file() || !matches!(file.try_lock(), Err(TryLockError::WouldBlock)))
}

/// Makes a folder that the user names, private, with the folders above it that are missing. One that is there stays as it is.
///
/// # Errors
/// It cannot be made.
pub fn make_named_folder(path: &Path) -> io::Result<()> {
    make_folders(path, FOLDER_MODE)
}

/// Makes a folder and those above it that are missing, with this mode whatever the umask.
pub(crate) fn make_folders(path: &Path, mode: u32) -> io::Result<()> {
    let (Some(name), false) = (path.file_name(), path.is_dir()) else {
        // It is there, or is `/` or ends with `..`: then the system says what is wrong with it.
        return path.metadata().map(drop);
    };
    let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    make_folders(above, mode)?;
    let above = place(above)?;
    if make_in(&above, name)? {
        // It was made for its owner alone, and the umask may have taken rights from the owner, too.
        let made = open_at(&above, name, libc::O_RDONLY | libc::O_DIRECTORY)?;
        made.set_permissions(Permissions::from_mode(mode))?;
    } else if !path.is_dir() {
        return Err(ErrorKind::NotADirectory.into());
    }
    Ok(())
}

/// A folder that the user names, as a place in which others are made.
fn place(path: &Path) -> io::Result<OwnedFd> {
    // It may be one that the user cannot list.
    let flags = libc::O_PATH | libc::O_DIRECTORY;
    OpenOptions::new().read(true).custom_flags(flags).open(path).map(OwnedFd::from)
}

/// Checks that a folder is there, or can be made with those above it that are missing. Makes nothing.
///
/// # Errors
/// As [`make_named_folder`].
pub fn check_makeable(path: &Path) -> io::Result<()> {
    let mut above = path;
    loop {
        match above.metadata() {
            Ok(known) if !known.is_dir() => return Err(ErrorKind::NotADirectory.into()),
            Ok(_) if above == path => return Ok(()),
            Ok(_) => return crate::may_write(above),
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            // A link to nothing has the name.
            Err(_) if above.symlink_metadata().is_ok() => return Err(ErrorKind::NotADirectory.into()),
            Err(error) => match above.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => above = parent,
                Some(_) => above = Path::new("."),
                None => return Err(error),
            },
        }
    }
}

/// A private folder, open.
#[derive(Debug)]
pub struct PrivateFolder {
    open: OwnedFd,
    path: PathBuf,
    /// Nothing in it is made, and no mode is changed.
    only_looks: bool,
}

impl PrivateFolder {
    /// Opens a folder of weir's own. Makes it where it is not there, with the folders above it.
    ///
    /// # Errors
    /// It cannot be made or opened, is a link, has another owner, or others can write in it.
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

    /// Opens a folder of weir's own to look at it: it and its files keep their modes, and none is made. Returns `None` where it is missing and can be made.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn look(path: &Path) -> Result<Option<Self>, PrivateError> {
        match Self::open_as(path, true) {
            Err(PrivateError::Io(error)) if error.kind() == ErrorKind::NotFound => {
                check_makeable(path)?;
                Ok(None)
            }
            opened => opened.map(Some),
        }
    }

    fn open_as(path: &Path, only_looks: bool) -> Result<Self, PrivateError> {
        // `folder/` and `folder/.` would follow a link.
        let plain: PathBuf = path.components().collect();
        let named = |error: PrivateError| match error {
            // The kernel says the same of a link as of a file.
            PrivateError::Type(PrivateKind::Folder)
                if plain.symlink_metadata().is_ok_and(|known| known.is_symlink()) =>
            {
                PrivateError::Link(PrivateKind::Folder)
            }
            other => other,
        };
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let open = |path: &Path| {
            opened(OpenOptions::new().read(true).custom_flags(flags).open(path), PrivateKind::Folder)
        };
        match open(&plain).map_err(named) {
            Err(PrivateError::Link(_)) if is_link_of_root(&plain) => {
                Self::checked(open(&plain.canonicalize()?)?, path, only_looks)
            }
            other => Self::checked(other?, path, only_looks),
        }
    }

    /// Opens a folder in this one. Makes it where it is not there.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn make_in(&self, name: &str) -> Result<Self, PrivateError> {
        make_in(&self.open, OsStr::new(name))?;
        self.open_in(name)
    }

    /// Opens a folder in this one.
    ///
    /// # Errors
    /// As [`make`](Self::make).
    pub fn open_in(&self, name: &str) -> Result<Self, PrivateError> {
        open_folder_in(&self.open, name, &self.path.join(name), self.only_looks)
    }

    /// Takes an open folder, if it is one to put private files into.
    fn checked(open: File, path: &Path, only_looks: bool) -> Result<Self, PrivateError> {
        let known = open.metadata()?;
        check_owner(&known)?;
        let mode = known.mode() & 0o7777;
        let is_shared = mode & WRITE_OF_OTHERS != 0;
        // A folder that all may write in, such as /tmp, is none of weir's own, whichever user runs it.
        if is_shared && (known.uid() != effective_user() || mode & libc::S_ISVTX != 0) {
            return Err(PrivateError::Writable(mode));
        }
        let wanted = mode & !WRITE_OF_OTHERS | FOLDER_MODE;
        if mode != wanted && known.uid() == effective_user() && !only_looks {
            open.set_permissions(Permissions::from_mode(wanted))?;
        }
        Ok(Self { open: open.into(), path: path.to_owned(), only_looks })
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens a file for reading and writing. Creates it where it is not there, and cuts nothing off what is.
    ///
    /// # Errors
    /// It cannot be created or opened, or is not a private file.
    pub fn create(&self, name: &str) -> Result<File, PrivateError> {
        self.file(name, libc::O_RDWR | libc::O_CREAT)
    }

    /// Opens a file as [`create`](Self::create) does, and locks it for this process. Returns `None` where another process holds the lock.
    ///
    /// # Errors
    /// It cannot be created or opened, or is not a private file.
    pub fn create_locked(&self, name: &str) -> Result<Option<File>, PrivateError> {
        loop {
            let file = self.create(name)?;
            if !lock(&file)? {
                return Ok(None);
            }
            let known = file.metadata()?;
            // The process that held the lock before may have given the file another name meanwhile, or removed it.
            match self.create(name)?.metadata()? {
                now if (now.dev(), now.ino()) == (known.dev(), known.ino()) => return Ok(Some(file)),
                _ => {}
            }
        }
    }

    /// Creates a new file for reading and writing.
    ///
    /// # Errors
    /// It is there already ([`ErrorKind::AlreadyExists`]), or cannot be created.
    pub fn create_new(&self, name: &str) -> Result<File, PrivateError> {
        self.file(name, libc::O_RDWR | libc::O_CREAT | libc::O_EXCL)
    }

    /// Opens a file for reading and writing.
    ///
    /// # Errors
    /// It cannot be opened, or is not a private file.
    pub fn open_file(&self, name: &str) -> Result<File, PrivateError> {
        self.file(name, libc::O_RDWR)
    }

    /// Opens a file with a secret, for reading: others than its owner must not have been able to read it.
    ///
    /// # Errors
    /// As [`open_secret`].
    pub fn open_secret(&self, name: &str) -> Result<File, PrivateError> {
        secret(opened(open_at(&self.open, OsStr::new(name), libc::O_RDONLY), PrivateKind::File)?)
    }

    fn file(&self, name: &str, flags: libc::c_int) -> Result<File, PrivateError> {
        // A process that is confined already opens no file to write it.
        let flags = if self.only_looks { libc::O_RDONLY } else { flags };
        let file = opened(open_at(&self.open, OsStr::new(name), flags), PrivateKind::File)?;
        let known = file.metadata()?;
        check_file(&known)?;
        if !self.only_looks {
            make_private(&file, &known)?;
        } else if effective_user() != 0 && known.mode() & libc::S_IWUSR == 0 {
            return Err(io::Error::from(ErrorKind::PermissionDenied).into());
        }
        Ok(file)
    }

    /// Writes a file that appears under its name whole or not at all, in the place of an earlier one. When this returns, it survives a crash.
    ///
    /// # Errors
    /// It cannot be written; then an earlier one stays.
    pub fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), PrivateError> {
        let new = format!("{name}{NEW}");
        match self.remove(&new) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        let mut file = self.create_new(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        self.rename(&new, name)?;
        Ok(self.sync()?)
    }

    /// Gives a file another name in this folder, in the place of what has that name.
    ///
    /// # Errors
    /// The system refuses.
    pub fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let (from, to, folder) = (c_string(from)?, c_string(to)?, self.open.as_raw_fd());
        // SAFETY: an open folder and C strings that outlive the call.
        done(unsafe { libc::renameat(folder, from.as_ptr(), folder, to.as_ptr()) })
    }

    /// Removes a file. A link is removed itself.
    ///
    /// # Errors
    /// The system refuses.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        let name = c_string(name)?;
        // SAFETY: an open folder and a C string that outlives the call.
        done(unsafe { libc::unlinkat(self.open.as_raw_fd(), name.as_ptr(), 0) })
    }

    /// Has names that were made, changed or removed survive a crash.
    ///
    /// # Errors
    /// The system refuses.
    pub fn sync(&self) -> io::Result<()> {
        File::from(self.open.try_clone()?).sync_all()
    }
}

impl fmt::Display for PrivateFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path.shown().fmt(f)
    }
}

/// Opens the folder `name` of weir's own in a folder that the user names, which is followed as it is. Makes both where they are not there.
///
/// # Errors
/// As [`PrivateFolder::make`], for the inner one.
pub fn make_inside(named: &Path, name: &str) -> Result<PrivateFolder, PrivateError> {
    make_named_folder(named)?;
    let outer = place(named)?;
    make_in(&outer, OsStr::new(name))?;
    open_folder_in(&outer, name, &named.join(name), false)
}

/// Makes a folder where it is not there. Returns whether it was not.
fn make_in(outer: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    let name = c_string(name)?;
    // SAFETY: an open folder and a C string that outlives the call.
    match done(unsafe { libc::mkdirat(outer.as_raw_fd(), name.as_ptr(), FOLDER_MODE) }) {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true),
    }
}

fn open_folder_in(
    outer: &OwnedFd,
    name: &str,
    path: &Path,
    only_looks: bool,
) -> Result<PrivateFolder, PrivateError> {
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let open = opened(open_at(outer, OsStr::new(name), flags), PrivateKind::Folder)?;
    PrivateFolder::checked(open, path, only_looks)
}

/// Opens what has this name in a folder, without following a link or waiting for a pipe's other end.
fn open_at(folder: &OwnedFd, name: &OsStr, flags: libc::c_int) -> io::Result<File> {
    let name = c_string(name)?;
    let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: an open folder and a C string that outlives the call; the mode is there for O_CREAT.
    let fd = unsafe { libc::openat(folder.as_raw_fd(), name.as_ptr(), flags, FILE_MODE) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `openat` has just returned this descriptor, and nothing else has it.
    Ok(unsafe { File::from_raw_fd(fd) })
}

/// A name in a folder: one component, so that it leads nowhere else.
fn c_string(name: impl AsRef<OsStr>) -> io::Result<CString> {
    let name = name.as_ref();
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(std::path::Component::Normal(only)), None) if only == name => {
            Ok(CString::new(only.as_bytes())?)
        }
        _ => Err(ErrorKind::InvalidInput.into()),
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// A link that root made, seen by a process that is not root: root can change all of its files anyway.
fn is_link_of_root(path: &Path) -> bool {
    effective_user() != 0 && path.symlink_metadata().is_ok_and(|known| known.is_symlink() && known.uid() == 0)
}
