//! Files with keys, credentials and lists.

use super::passphrase;
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

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.shown())]
pub struct TrustFileError {
    path: PathBuf,
    why: String,
}

/// The mode of files that are made to be passed on, before the umask: credentials, lists, signatures.
const SHARED_MODE: u32 = 0o644;

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> TrustFileError {
    TrustFileError { path: path.to_owned(), why: why.to_string() }
}

/// A text of at most so many bytes; of a longer one enough to see that it is.
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

/// A text with a secret, of at most so many bytes. A file has to be the user's alone. A pipe or a terminal is read as it is, also by a link: a shell
/// names the pipe of `<(command)` by one.
fn read_secret(path: &Path, most: usize) -> Result<Zeroizing<String>, TrustFileError> {
    let is_stream = path.metadata().is_ok_and(|known| {
        let kind = known.file_type();
        kind.is_fifo() || kind.is_char_device()
    });
    if path == Path::new("-") || is_stream {
        return read(path, most);
    }
    let file = private::open_secret(path).map_err(|error| wrong(path, &error))?;
    // Where it does not have to grow: what is moved is left behind.
    let mut text = Zeroizing::new(String::with_capacity(most.saturating_add(1)));
    file.take(most as u64 + 1).read_to_string(&mut text).map_err(|error| wrong(path, &error))?;
    Ok(text)
}

/// A file of a key pair. Others than its owner may not read it.
pub fn key_file(path: &Path) -> Result<KeyFile, TrustFileError> {
    KeyFile::parse(&read_secret(path, FILE_BYTES_MAX)?).map_err(|error| wrong(path, &error))
}

/// The identity in a file, opened where it takes a passphrase with the one in another file, or with what is typed at the terminal.
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

/// A passphrase for a new key, from whoever sits at the terminal.
pub fn new_passphrase(path: &Path) -> Result<Zeroizing<String>, TrustFileError> {
    let nobody = || {
        wrong(path, &"there is no terminal to ask for its passphrase at: name a file with --passphrase-file")
    };
    passphrase::ask_new(&shown(path)).map_err(|error| wrong(path, &error))?.ok_or_else(nobody)
}

/// A path in a prompt: nothing of it commands the terminal.
fn shown(path: &Path) -> String {
    weir_units::shown(&path.to_string_lossy())
}

/// The first line of a file that others cannot read.
pub fn passphrase_of(path: &Path) -> Result<Zeroizing<String>, TrustFileError> {
    let text = read_secret(path, PASSPHRASE_BYTES_MAX + 2)?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(wrong(path, &"its first line is empty, where a passphrase should be"));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// A credential.
pub fn credential_of(path: &Path) -> Result<Credential, TrustFileError> {
    // As text it is longer than its bytes.
    read(path, 2 * CREDENTIAL_BYTES_MAX)?
        .trim()
        .parse()
        .map_err(|error: weir_trust::credential::CredentialRefusal| wrong(path, &error))
}

/// A list of what was taken back; nothing where there is no file yet.
pub fn list_of(path: &Path) -> Result<Option<RevocationList>, TrustFileError> {
    if !path.exists() {
        return Ok(None);
    }
    let list = read(path, LIST_BYTES_MAX)?.parse();
    list.map(Some).map_err(|error: weir_trust::revocation::RevocationError| wrong(path, &error))
}

/// The text of a module's signature: a whole one.
pub fn signature_text(path: &Path) -> Result<String, TrustFileError> {
    let text = read(path, SIGNATURE_BYTES_MAX)?;
    // What is no signature is not sent anywhere. Whether it is of this module is said there.
    text.parse::<ModuleSignature>().map_err(|error| wrong(path, &error))?;
    Ok(text.to_string())
}

/// Writes a signature, in the place of one of the same signer: that of an earlier version of the module.
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
            &"there is something else than a signature by this key, and it is not written over: name another file with --out",
        ))
    }
}

/// Writes a private key to a new file, which nobody else can read from the first moment on.
pub fn keep_secret(path: &Path, text: &str) -> Result<(), TrustFileError> {
    fill(path, private::create_secret(path).map_err(io::Error::from), text)
}

/// Writes a new file that is to be passed on: the umask decides about its readers.
pub fn write_new(path: &Path, text: &str) -> Result<(), TrustFileError> {
    fill(path, OpenOptions::new().write(true).create_new(true).mode(SHARED_MODE).open(path), text)
}

fn fill(path: &Path, created: io::Result<File>, text: &str) -> Result<(), TrustFileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => wrong(path, &"it is there already, and is not written over"),
        _ => wrong(path, &error),
    };
    let mut file = created.map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

/// Locks the folder of a file against other commands, until the result is dropped. Otherwise two commands that read and replace one file could lose a change.
pub fn lock_beside(path: &Path) -> Result<File, TrustFileError> {
    let folder = File::open(folder_of(path)).map_err(|error| wrong(path, &error))?;
    match folder.lock() {
        // A file system without locks: the command is as good as it was.
        Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(wrong(path, &error)),
        _ => Ok(folder),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Puts another text in a file's place, or leaves it as it is.
pub fn replace(path: &Path, text: &str) -> Result<(), TrustFileError> {
    let failed = |error: io::Error| wrong(path, &error);
    let folder = folder_of(path);
    // The umask takes from these, as from those of a new file.
    let shared = std::fs::Permissions::from_mode(SHARED_MODE);
    let mut new =
        tempfile::Builder::new().prefix(".weir-").permissions(shared).tempfile_in(folder).map_err(failed)?;
    new.write_all(text.as_bytes()).and_then(|()| new.as_file().sync_all()).map_err(failed)?;
    new.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
