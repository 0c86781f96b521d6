//! A cache of compiled modules, kept in a folder from one run of weir to the next.
//!
//! A user who can write in the cache's folder can make weir run arbitrary native code. The folder therefore belongs to
//! the effective user, has mode 0700, and is opened without following a link. All entries are reached through the open
//! folder. Under sudo the calling user's cache is not used. The name of an entry is a digest of all inputs that determine
//! the code. An entry ends with a digest of its contents.

use sha2::{Digest, Sha256};
use std::ffi::{CStr, OsString};
use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_os::private::{FOLDER_MODE, PrivateFolder, effective_user};
use weir_units::{Escape as _, hex};

/// The most entries of a cache: older ones are removed.
const ENTRIES_MAX: usize = 512;
/// The size beyond which an entry is not read.
const ENTRY_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of the user database that a static program reads.
const USERS_BYTES_MAX: u64 = 16 << 20;
const DIGEST_BYTES: usize = 32;

/// A folder of compiled modules.
#[derive(Debug)]
pub struct Cache {
    folder: PrivateFolder,
}

/// The reason why a cache cannot be used. Without a cache, weir compiles each module again.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The folder cannot be opened or created.
    #[error("{}: {source}", path.escaped())]
    Io {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Another user can write to the folder.
    #[error("{} belongs to user {owner} with mode {mode:o}, and is not used: it must belong to user {wanted} with mode 700", path.escaped())]
    Unsafe {
        /// The folder.
        path: PathBuf,
        /// The folder's owner.
        owner: u32,
        /// The folder's mode.
        mode: u32,
        /// The effective user.
        wanted: u32,
    },
    /// The user has no home folder.
    #[error("the user has no home folder to keep compiled modules in")]
    NoHome,
}

impl Cache {
    /// Opens the effective user's cache: `$XDG_CACHE_HOME/weir` or `~/.cache/weir`. Under sudo the variable is
    /// ignored.
    pub fn of_user() -> Result<Self, CacheError> {
        let parent = user_folder("XDG_CACHE_HOME", ".cache").ok_or(CacheError::NoHome)?;
        // The parent folder is not checked: only the owner and mode of the cache's own folder matter.
        let _ = weir_os::private::make_named_folder(&parent);
        Self::open(&parent.join("weir"))
    }

    /// Opens or creates a cache in this folder.
    pub fn open(path: &Path) -> Result<Self, CacheError> {
        let io = |source| CacheError::Io { path: path.to_owned(), source };
        match DirBuilder::new().mode(FOLDER_MODE).create(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(io(error)),
            _ => {}
        }
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let folder = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(io)?;
        // Correcting the mode would not help: users who could write in the folder may have written its entries.
        let meta = folder.metadata().map_err(io)?;
        let wanted = effective_user();
        if meta.uid() != wanted || meta.mode() & 0o077 != 0 {
            let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
            return Err(CacheError::Unsafe { path: path.to_owned(), owner, mode, wanted });
        }
        let folder = PrivateFolder::from_open(folder, path).map_err(|error| io(error.into()))?;
        Ok(Self { folder })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the code under this key, if there is a complete and unchanged entry.
    pub(crate) fn read(&self, key: &[u8; DIGEST_BYTES]) -> Option<Vec<u8>> {
        let file = self.folder.open_file(&entry_name(key)).ok()?;
        let mut bytes = Vec::new();
        file.take(ENTRY_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
        let code = bytes.len().checked_sub(DIGEST_BYTES)?;
        if bytes.len() as u64 > ENTRY_BYTES_MAX || Sha256::digest(&bytes[..code]).as_slice() != &bytes[code..]
        {
            return None;
        }
        bytes.truncate(code);
        Some(bytes)
    }

    /// Stores an entry. Callers may ignore an error: the next run compiles again.
    pub(crate) fn write(&self, key: &[u8; DIGEST_BYTES], code: &[u8]) -> io::Result<()> {
        let name = entry_name(key);
        let temporary = format!("{name}.{}", std::process::id());
        // A process with the same process id may have crashed while it wrote this file.
        _ = self.folder.remove(&temporary);
        let mut file = self.folder.create_new(&temporary)?;
        let written = file
            .write_all(code)
            .and_then(|()| file.write_all(&Sha256::digest(code)))
            .and_then(|()| self.folder.rename(&temporary, &name));
        match written {
            Ok(()) => self.trim(),
            Err(_) => _ = self.folder.remove(&temporary),
        }
        written
    }

    /// Removes the oldest entries beyond [`ENTRIES_MAX`].
    fn trim(&self) {
        let Ok(entries) = std::fs::read_dir(self.folder.path()) else { return };
        let mut entries: Vec<_> = entries
            .flatten()
            .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.file_name())))
            .collect();
        entries.sort();
        let surplus = entries.len().saturating_sub(ENTRIES_MAX);
        for (_, name) in entries.iter().take(surplus) {
            _ = name.to_str().map(|name| self.folder.remove(name));
        }
    }
}

/// Returns the effective user's folder for a kind of files, such as caches: the value of the environment variable
/// `variable`, or else the folder `in_home` in the user's home. Under sudo the variable is the calling user's, and is
/// ignored.
pub fn user_folder(variable: &str, in_home: &str) -> Option<PathBuf> {
    let under_sudo = std::env::var_os("SUDO_UID").is_some();
    let chosen = std::env::var_os(variable).map(PathBuf::from).filter(|p| !under_sudo && p.is_absolute());
    chosen.or_else(|| Some(home()?.join(in_home)))
}

/// Returns the file name of a key: its hexadecimal digits.
fn entry_name(key: &[u8; DIGEST_BYTES]) -> String {
    hex(key)
}

/// Returns the home folder of the effective user, from the user database. The environment could be that of another user.
///
/// In a statically linked program getpwuid_r(3) would load the system's modules of another libc, as in
/// [`weir_os::resolve`]. Such a program reads passwd(5) itself. For a user who is not in that file it takes `HOME`, if
/// that folder belongs to the user.
fn home() -> Option<PathBuf> {
    if !cfg!(target_feature = "crt-static") {
        return home_in_database();
    }
    let mut table = Vec::new();
    std::fs::File::open("/etc/passwd").ok()?.take(USERS_BYTES_MAX).read_to_end(&mut table).ok()?;
    home_in_table(&table, effective_user()).or_else(|| {
        let home = PathBuf::from(std::env::var_os("HOME")?);
        let owner = home.metadata().ok()?.uid();
        (home.is_absolute() && owner == effective_user()).then_some(home)
    })
}

/// The home folder of a user in a table in the format of passwd(5).
fn home_in_table(table: &[u8], user: u32) -> Option<PathBuf> {
    let user = user.to_string();
    let folder = table.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.split(|byte| *byte == b':').skip(2);
        let is_user = fields.next()? == user.as_bytes();
        is_user.then(|| fields.nth(2)).flatten()
    })?;
    let folder = PathBuf::from(OsString::from_vec(folder.to_vec()));
    folder.is_absolute().then_some(folder)
}

fn home_in_database() -> Option<PathBuf> {
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

/// A hasher for the inputs that determine compiled code. Its digest is the same in every process, unlike that of the
/// standard library's hashers.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_those_of_the_user_database() {
        let table = std::fs::read("/etc/passwd").unwrap();
        // The system's own reader is the oracle; a user who is only in another database has no line in the file.
        if let Some(home) = home_in_table(&table, effective_user()) {
            assert_eq!(Some(home), home_in_database());
        }
        let table = b"a:x:7:8:name:/home/a:/bin/sh\nshort:x:8\nb:x:70:8::relative:\nc:x:9:9:::\n";
        assert_eq!(home_in_table(table, 7), Some(PathBuf::from("/home/a")));
        for user in [0, 8, 70, 9] {
            assert_eq!(home_in_table(table, user), None, "{user}");
        }
    }

    #[test]
    fn a_leftover_of_a_crash_does_not_prevent_an_entry() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(&folder.path().join("cache")).unwrap();
        let key = [7; DIGEST_BYTES];
        let left = cache.path().join(format!("{}.{}", entry_name(&key), std::process::id()));
        std::fs::write(&left, b"half").unwrap();
        cache.write(&key, b"code").unwrap();
        assert_eq!(cache.read(&key).unwrap(), b"code");
        assert!(!left.exists());
    }
}
