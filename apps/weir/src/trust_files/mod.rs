//! Reads and writes files of keys, credentials, signatures and revocation lists.

mod passphrase;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_os::private;
use weir_trust::credential::{CREDENTIAL_BYTES_MAX, Credential};
use weir_trust::key::{FILE_BYTES_MAX, Identity, KeyFile, KeyFileError, PASSPHRASE_BYTES_MAX};
use weir_trust::revocation::{LIST_BYTES_MAX, RevocationList};
use weir_trust::signature::{ModuleSignature, SIGNATURE_BYTES_MAX};
use weir_units::Shown as _;
use zeroize::Zeroizing;

/// The error of a file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.shown())]
pub struct TrustFileError {
    path: PathBuf,
    why: String,
}

/// The mode of new files that other users may read, before the umask: credentials, lists, signatures.
const SHARED_MODE: u32 = 0o644;

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> TrustFileError {
    TrustFileError { path: path.to_owned(), why: why.to_string() }
}

/// Reads a text up to one byte more than `most`, so that the parser can reject a longer one.
fn read(path: &Path, most: usize) -> Result<Zeroizing<String>, TrustFileError> {
    let mut text = Zeroizing::new(String::new());
    let mut take = |source: &mut dyn Read| source.take(most as u64 + 1).read_to_string(&mut text);
    let read = if path == Path::new("-") {
        take(&mut io::stdin().lock())
    } else {
        File::open(path).and_then(|mut file| take(&mut file))
    };
    read.map_err(|error| wrong(path, &error))?;
    Ok(text)
}

/// Reads a text with a secret, up to one byte more than `most`. A file must be accessible to the user only. Pipes and terminals are
/// read without this check, also through a symbolic link, as a shell passes the pipe of `<(command)` as a symbolic link.
fn read_secret(path: &Path, most: usize) -> Result<Zeroizing<String>, TrustFileError> {
    let is_stream = path.metadata().is_ok_and(|known| {
        let kind = known.file_type();
        kind.is_fifo() || kind.is_char_device()
    });
    if path == Path::new("-") || is_stream {
        return read(path, most);
    }
    let file = private::open_secret(path).map_err(|error| wrong(path, &error))?;
    // Allocated at full size: a reallocation would leave an unwiped copy.
    let mut text = Zeroizing::new(String::with_capacity(most.saturating_add(1)));
    file.take(most as u64 + 1).read_to_string(&mut text).map_err(|error| wrong(path, &error))?;
    Ok(text)
}

/// Reads the file of a key pair, which only its owner may have access to.
pub fn key_file(path: &Path) -> Result<KeyFile, TrustFileError> {
    KeyFile::parse(&read_secret(path, FILE_BYTES_MAX)?).map_err(|error| wrong(path, &error))
}

/// Reads the identity in a key file. The passphrase of a sealed key is read from the file `passphrase`, or
/// else from the terminal.
pub fn identity_of(path: &Path, passphrase: Option<&Path>) -> Result<Identity, TrustFileError> {
    let file = key_file(path)?;
    let passphrase = match passphrase {
        _ if file.cost().is_none() => None,
        Some(from) => Some(passphrase_of(from)?),
        None => passphrase::ask(&shown(path)).map_err(|error| wrong(path, &error))?,
    };
    file.open(passphrase.as_ref().map(|text| text.as_bytes())).map_err(|error| match error {
        KeyFileError::NoPassphrase => {
            wrong(path, &format_args!("{error}: name a file with it with --passphrase-file FILE"))
        }
        error => wrong(path, &error),
    })
}

/// Asks for the passphrase of a new key at the terminal.
pub fn new_passphrase(path: &Path) -> Result<Zeroizing<String>, TrustFileError> {
    let no_terminal = || {
        wrong(path, &"there is no terminal to ask for its passphrase at: name a file with --passphrase-file")
    };
    passphrase::ask_new(&shown(path)).map_err(|error| wrong(path, &error))?.ok_or_else(no_terminal)
}

/// A path for a prompt, with control characters escaped.
fn shown(path: &Path) -> String {
    weir_units::shown(&path.to_string_lossy())
}

/// Reads a passphrase from the first line of a private file.
pub fn passphrase_of(path: &Path) -> Result<Zeroizing<String>, TrustFileError> {
    let text = read_secret(path, PASSPHRASE_BYTES_MAX + 2)?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(wrong(path, &"its first line is empty, where a passphrase should be"));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// Reads a credential.
pub fn credential_of(path: &Path) -> Result<Credential, TrustFileError> {
    // The text encoding is at most twice as long as the bytes.
    read(path, 2 * CREDENTIAL_BYTES_MAX)?
        .trim()
        .parse()
        .map_err(|error: weir_trust::credential::CredentialRefusal| wrong(path, &error))
}

/// Reads a revocation list; `None` if the file does not exist.
pub fn list_of(path: &Path) -> Result<Option<RevocationList>, TrustFileError> {
    if !path.exists() {
        return Ok(None);
    }
    let list = read(path, LIST_BYTES_MAX)?.parse();
    list.map(Some).map_err(|error: weir_trust::revocation::RevocationError| wrong(path, &error))
}

/// The default path of a module's signature, beside its file.
pub fn signature_of(module: &str) -> PathBuf {
    PathBuf::from(format!("{module}.sig"))
}

/// Reads the text of a module's signature, and checks its form.
pub fn signature_text(path: &Path) -> Result<String, TrustFileError> {
    let text = read(path, SIGNATURE_BYTES_MAX)?;
    // The node verifies the signature itself.
    text.parse::<ModuleSignature>().map_err(|error| wrong(path, &error))?;
    Ok(text.to_string())
}

/// Writes a signature. An existing file is only replaced if it is a signature by the same signer, as of an earlier version of the module.
pub fn write_signature(path: &Path, signature: &ModuleSignature) -> Result<(), TrustFileError> {
    let text = signature.to_string();
    if !path.exists() {
        return write_new(path, &text);
    }
    let before = read(path, SIGNATURE_BYTES_MAX)?.parse::<ModuleSignature>();
    if before.is_ok_and(|before| before.signer() == signature.signer()) {
        replace(path, &text)
    } else {
        Err(wrong(
            path,
            &"the file is not a signature by this key, and it is not overwritten: name another file with --out",
        ))
    }
}

/// Writes a private key to a new file, created with access for its owner only.
pub fn write_secret(path: &Path, text: &str) -> Result<(), TrustFileError> {
    write_all(path, private::create_secret(path).map_err(io::Error::from), text)
}

/// Writes a new file that other users may read, as far as the umask allows.
pub fn write_new(path: &Path, text: &str) -> Result<(), TrustFileError> {
    write_all(path, OpenOptions::new().write(true).create_new(true).mode(SHARED_MODE).open(path), text)
}

/// Writes a text to a file that was just created, and to the disk.
fn write_all(path: &Path, created: io::Result<File>, text: &str) -> Result<(), TrustFileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => wrong(path, &"the file exists already, and it is not overwritten"),
        _ => wrong(path, &error),
    };
    let mut file = created.map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

/// Locks the folder of a file until the result is dropped. Without the lock, two commands that read and replace the file at the same time
/// could lose a change.
pub fn lock_beside(path: &Path) -> Result<File, TrustFileError> {
    let folder = File::open(folder_of(path)).map_err(|error| wrong(path, &error))?;
    match folder.lock() {
        // A file system without locks is accepted, without the protection.
        Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(wrong(path, &error)),
        _ => Ok(folder),
    }
}

/// Returns the folder of a file; `.` for a file name alone.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces a file's content atomically.
pub fn replace(path: &Path, text: &str) -> Result<(), TrustFileError> {
    let failed = |error: io::Error| wrong(path, &error);
    let folder = folder_of(path);
    // The umask applies, as for a new file.
    let shared = std::fs::Permissions::from_mode(SHARED_MODE);
    let mut new =
        tempfile::Builder::new().prefix(".weir-").permissions(shared).tempfile_in(folder).map_err(failed)?;
    new.write_all(text.as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(failed)?;
    new.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
