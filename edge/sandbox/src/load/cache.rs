//! Compiled modules, kept between runs.
//!
//! Whoever can write here has weir run native code of theirs. So the folder belongs to the effective user, mode 0700, and is opened
//! without following a link; everything in it is reached through that one open folder. Under sudo the caller's cache is not used. An entry's
//! name is a digest of all that shaped the code, its end a digest of its contents.

use sha2::{Digest, Sha256};
use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_units::Shown as _;

const ENTRIES_MAX: usize = 512;
const ENTRY_BYTES_MAX: u64 = 64 << 20;
const DIGEST_BYTES: usize = 32;

/// A folder of compiled modules.
#[derive(Debug)]
pub struct Cache {
    folder: OwnedFd,
    path: PathBuf,
}

/// Why a cache cannot be used. weir runs without it, only slower.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// It cannot be opened or made.
    #[error("{}: {source}", path.shown())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Somebody else could write to it.
    #[error("{} belongs to user {owner} with mode {mode:o}, and is not used: it must belong to user {wanted} with mode 700", path.shown())]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// Its mode.
        mode: u32,
        /// The effective user.
        wanted: u32,
    },
    /// The user has no home folder.
    #[error("the user has no home folder to keep compiled modules in")]
    NoHome,
}

impl Cache {
    /// Opens the effective user's cache: `$XDG_CACHE_HOME/weir` or `~/.cache/weir`; under sudo always that of the effective user.
    pub fn of_user() -> Result<Self, CacheError> {
        let parent = user_folder("XDG_CACHE_HOME", ".cache").ok_or(CacheError::NoHome)?;
        // Made like any user's cache folder; what counts is checked on the last one.
        let _ = weir_os::private::make_named_folder(&parent);
        Self::open(&parent.join("weir"))
    }

    /// Opens or makes a cache in this folder.
    pub fn open(path: &Path) -> Result<Self, CacheError> {
        let io = |source| CacheError::Io { path: path.to_owned(), source };
        let name = CString::new(path.as_os_str().to_owned().into_vec()).map_err(|e| io(e.into()))?;
        // SAFETY: `name` is a C string that outlives the call.
        if unsafe { libc::mkdir(name.as_ptr(), 0o700) } != 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::AlreadyExists {
                return Err(io(error));
            }
        }
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: as above.
        let fd = unsafe { libc::open(name.as_ptr(), flags) };
        if fd < 0 {
            return Err(io(io::Error::last_os_error()));
        }
        // SAFETY: `open` has just returned this descriptor, and nobody else has it.
        let folder = unsafe { OwnedFd::from_raw_fd(fd) };
        let meta = File::from(folder.try_clone().map_err(io)?).metadata().map_err(io)?;
        let wanted = effective_user();
        if meta.uid() != wanted || meta.mode() & 0o077 != 0 {
            let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
            return Err(CacheError::Unsafe { path: path.to_owned(), owner, mode, wanted });
        }
        Ok(Self { folder, path: path.to_owned() })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The entry of this key, whole and unchanged, or nothing.
    pub(crate) fn read(&self, key: &[u8; DIGEST_BYTES]) -> Option<Vec<u8>> {
        let file = self.open_at(&entry_name(key)?, libc::O_RDONLY, 0).ok()?;
        let meta = file.metadata().ok()?;
        let ours = meta.is_file() && meta.uid() == effective_user() && meta.mode() & 0o022 == 0;
        if !ours || meta.len() > ENTRY_BYTES_MAX {
            return None;
        }
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).ok()?);
        file.take(ENTRY_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        let code = bytes.len().checked_sub(DIGEST_BYTES)?;
        if Sha256::digest(&bytes[..code]).as_slice() != &bytes[code..] {
            return None;
        }
        bytes.truncate(code);
        Some(bytes)
    }

    /// Keeps an entry. That it cannot be kept is no error: the next run compiles again.
    pub(crate) fn write(&self, key: &[u8; DIGEST_BYTES], code: &[u8]) -> io::Result<()> {
        let no_name = || io::Error::from(io::ErrorKind::InvalidInput);
        let name = entry_name(key).ok_or_else(no_name)?;
        let temporary = CString::new(format!("{}.{}", name.to_string_lossy(), std::process::id()))?;
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        let mut file = self.open_at(&temporary, flags, 0o600)?;
        let written = file.write_all(code).and_then(|()| file.write_all(&Sha256::digest(code)));
        let folder = self.folder.as_raw_fd();
        // SAFETY: an open folder and C strings that outlive the calls.
        let renamed = unsafe {
            if written.is_ok() {
                libc::renameat(folder, temporary.as_ptr(), folder, name.as_ptr())
            } else {
                libc::unlinkat(folder, temporary.as_ptr(), 0)
            }
        };
        written?;
        if renamed != 0 {
            return Err(io::Error::last_os_error());
        }
        self.trim();
        Ok(())
    }

    fn open_at(&self, name: &CStr, flags: libc::c_int, mode: libc::c_uint) -> io::Result<File> {
        let flags = flags | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        // SAFETY: an open folder and a C string that outlives the call.
        let fd = unsafe { libc::openat(self.folder.as_raw_fd(), name.as_ptr(), flags, mode) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `openat` has just returned this descriptor, and nobody else has it.
        Ok(unsafe { File::from_raw_fd(fd) })
    }

    /// Removes the oldest entries beyond [`ENTRIES_MAX`].
    fn trim(&self) {
        let through_folder = PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()));
        let Ok(entries) = std::fs::read_dir(through_folder) else { return };
        let mut entries: Vec<(std::time::SystemTime, OsString)> = entries
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.file_name())))
            .collect();
        entries.sort();
        let surplus = entries.len().saturating_sub(ENTRIES_MAX);
        for (_, name) in entries.into_iter().take(surplus) {
            let Ok(name) = CString::new(name.into_vec()) else { continue };
            // SAFETY: an open folder and a C string that outlives the call.
            unsafe { libc::unlinkat(self.folder.as_raw_fd(), name.as_ptr(), 0) };
        }
    }
}

/// The effective user's folder for files of one kind: the one that this variable names, or else this one in the user's home. Under sudo the variable
/// is the caller's, and is not asked.
pub fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let under_sudo = std::env::var_os("SUDO_UID").is_some();
    let chosen = std::env::var_os(variable).map(PathBuf::from).filter(|p| !under_sudo && p.is_absolute());
    chosen.or_else(|| Some(home()?.join(in_home)))
}

/// A file name for a key: its digits.
fn entry_name(key: &[u8; DIGEST_BYTES]) -> Option<CString> {
    CString::new(key.iter().map(|byte| format!("{byte:02x}")).collect::<String>()).ok()
}

fn effective_user() -> u32 {
    // SAFETY: has no preconditions and cannot fail.
    unsafe { libc::geteuid() }
}

/// The home folder of the effective user, from the user database: the environment may be another user's.
fn home() -> Option<PathBuf> {
    let mut buffer = vec![0; 16 * 1024];
    let mut found = std::ptr::null_mut();
    // SAFETY: all zeros is a valid value of this plain C struct.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    // SAFETY: all pointers are to live locals, and the length is the buffer's.
    let failed = unsafe {
        libc::getpwuid_r(effective_user(), &raw mut entry, buffer.as_mut_ptr(), buffer.len(), &raw mut found)
    };
    if failed != 0 || found.is_null() || entry.pw_dir.is_null() {
        return None;
    }
    // SAFETY: on success the field points to a C string in `buffer`.
    let folder = unsafe { CStr::from_ptr(entry.pw_dir) };
    let folder = PathBuf::from(OsString::from_vec(folder.to_bytes().to_vec()));
    folder.is_absolute().then_some(folder)
}

/// Hashes what wasmtime says shapes its code, with a digest that is the same in every process.
#[derive(Default)]
pub(crate) struct KeyHasher(Sha256);

impl KeyHasher {
    pub(crate) fn key(self) -> [u8; DIGEST_BYTES] {
        self.0.finalize().into()
    }
}

impl std::hash::Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        digest.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    }
}
