//! Files with keys, credentials and lists.

use super::passphrase;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use weir_trust::credential::{CREDENTIAL_BYTES_MAX, Credential};
use weir_trust::key::{FILE_BYTES_MAX, Identity, KeyFile, KeyFileError, PASSPHRASE_BYTES_MAX};
use weir_trust::revocation::{LIST_BYTES_MAX, RevocationList};
use weir_trust::signature::{ModuleSignature, SIGNATURE_BYTES_MAX};
use zeroize::Zeroizing;

/// A file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{}: {why}", path.display())]
pub struct FileError {
    path: PathBuf,
    why: String,
}

fn wrong(path: &Path, why: &dyn std::fmt::Display) -> FileError {
    FileError { path: path.to_owned(), why: why.to_string() }
}

/// A text of at most so many bytes; of a longer one enough to see that it is.
fn read(path: &Path, most: usize) -> Result<Zeroizing<String>, FileError> {
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

/// A file of a key pair. Others than its owner may not read it.
pub fn key_file(path: &Path) -> Result<KeyFile, FileError> {
    if path != Path::new("-") {
        let meta = path.metadata().map_err(|error| wrong(path, &error))?;
        if meta.permissions().mode() & 0o077 != 0 {
            return Err(wrong(
                path,
                &"others than its owner can read it: `chmod 600` it, and if they may have read it make a new one",
            ));
        }
    }
    KeyFile::parse(&read(path, FILE_BYTES_MAX)?).map_err(|error| wrong(path, &error))
}

/// The identity in a file, opened where it takes a passphrase with the one in another file, or with what is typed at the terminal.
pub fn identity_of(path: &Path, passphrase: Option<&Path>) -> Result<Identity, FileError> {
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
pub fn new_passphrase(path: &Path) -> Result<Zeroizing<String>, FileError> {
    let nobody = || {
        wrong(path, &"there is no terminal to ask for its passphrase at: name a file with --passphrase-file")
    };
    passphrase::ask_new(&shown(path)).map_err(|error| wrong(path, &error))?.ok_or_else(nobody)
}

/// A path in a prompt: nothing of it commands the terminal.
fn shown(path: &Path) -> String {
    weir_units::shown(&path.to_string_lossy())
}

/// The first line of a file.
pub fn passphrase_of(path: &Path) -> Result<Zeroizing<String>, FileError> {
    let text = read(path, PASSPHRASE_BYTES_MAX + 2)?;
    let line = text.lines().next().unwrap_or_default();
    if line.is_empty() {
        return Err(wrong(path, &"its first line is empty, where a passphrase should be"));
    }
    Ok(Zeroizing::new(line.to_owned()))
}

/// A credential.
pub fn credential_of(path: &Path) -> Result<Credential, FileError> {
    // As text it is longer than its bytes.
    read(path, 2 * CREDENTIAL_BYTES_MAX)?
        .trim()
        .parse()
        .map_err(|error: weir_trust::credential::Refusal| wrong(path, &error))
}

/// A list of what was taken back; nothing where there is no file yet.
pub fn list_of(path: &Path) -> Result<Option<RevocationList>, FileError> {
    if !path.exists() {
        return Ok(None);
    }
    let list = read(path, LIST_BYTES_MAX)?.parse();
    list.map(Some).map_err(|error: weir_trust::revocation::RevocationError| wrong(path, &error))
}

/// The text of a module's signature: a whole one.
pub fn signature_text(path: &Path) -> Result<String, FileError> {
    let text = read(path, SIGNATURE_BYTES_MAX)?;
    // What is no signature is not sent anywhere. Whether it is of this module is said there.
    text.parse::<ModuleSignature>().map_err(|error| wrong(path, &error))?;
    Ok(text.to_string())
}

/// Writes a signature, in the place of one of the same signer: that of an earlier version of the module.
pub fn write_signature(path: &Path, signature: &ModuleSignature) -> Result<(), FileError> {
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
pub fn keep_secret(path: &Path, text: &str) -> Result<(), FileError> {
    create(path, text, 0o600)
}

/// Writes a new file.
pub fn write_new(path: &Path, text: &str) -> Result<(), FileError> {
    create(path, text, 0o644)
}

fn create(path: &Path, text: &str, mode: u32) -> Result<(), FileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => wrong(path, &"it is there already, and is not written over"),
        _ => wrong(path, &error),
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)
}

/// Puts another text in a file's place, or leaves it as it is.
pub fn replace(path: &Path, text: &str) -> Result<(), FileError> {
    let failed = |error: io::Error| wrong(path, &error);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    new.write_all(text.as_bytes()).map_err(failed)?;
    new.as_file().set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(failed)?;
    new.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}
