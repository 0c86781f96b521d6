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
use weir_units::Escape as _;
use zeroize::Zeroizing;

/// The error of a file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.escaped())]
pub struct TrustFileError {
    path: PathBuf,
    why: String,
}

/// The mode of new files that other users may read, before the umask: credentials, lists, signatures.
const SHARED_MODE: u32 = 0o644;

fn file_error(path: &Path, why: &dyn std::fmt::Display) -> TrustFileError {
    TrustFileError { path: path.to_owned(), why: why.to_string() }
}

/// Reads the text of a file, or of standard input for `-`. Reads at most one byte more than `bytes_max`: from the
/// further byte the parser sees that the text is too long.
fn read(path: &Path, bytes_max: usize) -> Result<Zeroizing<String>, TrustFileError> {
    let mut text = Zeroizing::new(String::new());
    let mut read_limited =
        |source: &mut dyn Read| source.take(bytes_max as u64 + 1).read_to_string(&mut text);
    let read = if path == Path::new("-") {
        read_limited(&mut io::stdin().lock())
    } else {
        File::open(path).and_then(|mut file| read_limited(&mut file))
    };
    read.map_err(|error| file_error(path, &error))?;
    Ok(text)
}

/// Reads a text that contains a secret, at most one byte more than `bytes_max`. A regular file must be accessible to
/// its owner only. Pipes and terminals are read without this check, even through a symbolic link, because a shell
/// passes the pipe of `<(command)` as one.
fn read_secret(path: &Path, bytes_max: usize) -> Result<Zeroizing<String>, TrustFileError> {
    let is_stream = path.metadata().is_ok_and(|known| {
        let kind = known.file_type();
        kind.is_fifo() || kind.is_char_device()
    });
    if path == Path::new("-") || is_stream {
        return read(path, bytes_max);
    }
    let file = private::open_secret(path).map_err(|error| file_error(path, &error))?;
    // Allocated at full size: a reallocation would leave a copy of the secret that is not overwritten with zeros.
    let mut text = Zeroizing::new(String::with_capacity(bytes_max.saturating_add(1)));
    file.take(bytes_max as u64 + 1).read_to_string(&mut text).map_err(|error| file_error(path, &error))?;
    Ok(text)
}

/// Reads the file of a key pair. The file must be accessible to its owner only.
pub fn read_key_file(path: &Path) -> Result<KeyFile, TrustFileError> {
    KeyFile::parse(&read_secret(path, FILE_BYTES_MAX)?).map_err(|error| file_error(path, &error))
}

/// Reads the private key in a key file as an identity. If the key is encrypted, its passphrase is read from the file
/// `passphrase`, or, without that file, from the terminal.
pub fn read_identity(path: &Path, passphrase: Option<&Path>) -> Result<Identity, TrustFileError> {
    let file = read_key_file(path)?;
    let passphrase = match passphrase {
        _ if file.cost().is_none() => None,
        Some(from) => Some(read_passphrase(from)?),
        None => passphrase::prompt(&escaped_path(path)).map_err(|error| file_error(path, &error))?,
    };
    file.open(passphrase.as_ref().map(|text| text.as_bytes())).map_err(|error| match error {
        KeyFileError::NoPassphrase => file_error(
            path,
            &format_args!("{error}: name a file with the passphrase by --passphrase-file FILE"),
        ),
        error => file_error(path, &error),
    })
}

/// Asks on the terminal for the passphrase that will encrypt a new key. `path` is the key's file.
pub fn ask_new_passphrase(path: &Path) -> Result<Zeroizing<String>, TrustFileError> {
    let no_terminal = || {
        file_error(
            path,
            &"there is no terminal to ask for the key's passphrase on: name a file with the passphrase by --passphrase-file",
        )
    };
    passphrase::prompt_new(&escaped_path(path))
        .map_err(|error| file_error(path, &error))?
        .ok_or_else(no_terminal)
}

/// A path for a prompt, with control characters escaped.
fn escaped_path(path: &Path) -> String {
    weir_units::escaped(&path.to_string_lossy())
}

/// Reads a passphrase from the first line of a private file.
pub fn read_passphrase(path: &Path) -> Result<Zeroizing<String>, TrustFileError> {
    let text = read_secret(path, PASSPHRASE_BYTES_MAX + 2)?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(file_error(path, &"its first line is empty, where a passphrase should be"));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// Reads a credential.
pub fn read_credential(path: &Path) -> Result<Credential, TrustFileError> {
    // The text encoding is at most twice as long as the bytes.
    read(path, 2 * CREDENTIAL_BYTES_MAX)?
        .trim()
        .parse()
        .map_err(|error: weir_trust::credential::CredentialRefusal| file_error(path, &error))
}

/// Reads a revocation list; `None` if the file does not exist.
pub fn read_revocation_list(path: &Path) -> Result<Option<RevocationList>, TrustFileError> {
    if !path.exists() {
        return Ok(None);
    }
    let list = read(path, LIST_BYTES_MAX)?.parse();
    list.map(Some).map_err(|error: weir_trust::revocation::RevocationError| file_error(path, &error))
}

/// The default path of a module's signature, beside its file.
pub fn signature_path(module: &str) -> PathBuf {
    PathBuf::from(format!("{module}.sig"))
}

/// Reads the text of a module's signature, and checks its format. Does not verify the signature: the node does.
pub fn read_signature_text(path: &Path) -> Result<String, TrustFileError> {
    let text = read(path, SIGNATURE_BYTES_MAX)?;
    text.parse::<ModuleSignature>().map_err(|error| file_error(path, &error))?;
    Ok(text.to_string())
}

/// Writes a module's signature. An existing file is replaced if it is a signature by the same signer, for example of an
/// earlier version of the module.
///
/// # Errors
/// The existing file is something else; or the file cannot be written.
pub fn write_signature(path: &Path, signature: &ModuleSignature) -> Result<(), TrustFileError> {
    let text = signature.to_string();
    if !path.exists() {
        return write_new(path, &text);
    }
    let before = read(path, SIGNATURE_BYTES_MAX)?.parse::<ModuleSignature>();
    if before.is_ok_and(|before| before.signer() == signature.signer()) {
        replace_file(path, &text)
    } else {
        Err(file_error(
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

/// Writes a text to a newly created file, and flushes the file to the disk. `created` is the result of creating the
/// file.
fn write_all(path: &Path, created: io::Result<File>, text: &str) -> Result<(), TrustFileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            file_error(path, &"the file exists already, and it is not overwritten")
        }
        _ => file_error(path, &error),
    };
    let mut file = created.map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

/// Locks the folder that contains a file, until the returned value is dropped. Without the lock, of two commands that
/// read and replace the file at the same time, one could undo the change of the other.
pub fn lock_folder(path: &Path) -> Result<File, TrustFileError> {
    let folder = File::open(folder_of(path)).map_err(|error| file_error(path, &error))?;
    match folder.lock() {
        // On a file system that supports no locks, the command continues without one.
        Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(file_error(path, &error)),
        _ => Ok(folder),
    }
}

/// Returns the folder of a file; `.` for a file name alone.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Replaces a file's content atomically.
pub fn replace_file(path: &Path, text: &str) -> Result<(), TrustFileError> {
    let failed = |error: io::Error| file_error(path, &error);
    let folder = folder_of(path);
    // The umask restricts this mode, as in `write_new`.
    let shared = std::fs::Permissions::from_mode(SHARED_MODE);
    let mut new =
        tempfile::Builder::new().prefix(".weir-").permissions(shared).tempfile_in(folder).map_err(failed)?;
    new.write_all(text.as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(failed)?;
    new.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
