//! Outputs that get their names when they are complete.

use super::{
    FILE_MODE, PrivateError, PrivateFolder, PrivateKind, check_file, create_named, effective_user,
    make_private, map_link_error, open_locked,
};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_units::Escape as _;

/// Appended to the name of an output until it is complete.
const PART_SUFFIX: &str = ".part";

/// The reason why an output cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("{}: {error}", .path.escaped())]
pub struct NamedOutputError {
    /// The file that is the cause: the output, or its `.part` file.
    pub path: PathBuf,
    /// The cause.
    pub error: PrivateError,
}

/// An output that gets its name when it is complete: until then it is `NAME.part`.
///
/// Two processes cannot write one output. A file or link of the name is replaced. A device or pipe of the name is written
/// in place. Nothing is changed before the first write: an output that is dropped before it leaves no file, and a `.part` file
/// of an earlier process stays as it is.
#[derive(Debug)]
pub struct NamedOutput {
    file: File,
    path: PathBuf,
    part: Part,
    has_begun: bool,
}

/// The file of an output until the output is complete.
#[derive(Debug)]
enum Part {
    /// The output itself: a device, a pipe, or an output that is complete.
    InPlace,
    /// A file beside it.
    Beside(PathBuf),
    /// A file of this name in a folder of weir's own, for an output of that name without the suffix.
    In(Arc<PrivateFolder>, String),
}

impl NamedOutput {
    /// Opens an output that the user names, and locks it for this process. Returns `None` if another process holds the lock.
    ///
    /// # Errors
    /// The path is a folder, or the file `NAME.part` cannot be created or is not a private file.
    pub fn create(path: &Path) -> Result<Option<Self>, NamedOutputError> {
        let failed = |path: &Path, error| NamedOutputError { path: path.to_owned(), error };
        match path.metadata() {
            Ok(metadata) if metadata.is_dir() => {
                return Err(failed(path, io::Error::from(ErrorKind::IsADirectory).into()));
            }
            Ok(metadata) if !metadata.is_file() || is_open_file(path) => {
                let file = create_named(path).map_err(|error| failed(path, error.into()))?;
                return Ok(Some(Self::in_place(file, path)));
            }
            _ => {}
        }
        if path.as_os_str().as_encoded_bytes().ends_with(PART_SUFFIX.as_bytes()) {
            let reason = "names that end in .part are those of unfinished files: choose another name";
            return Err(failed(path, io::Error::new(ErrorKind::InvalidInput, reason).into()));
        }
        let part = Self::part_of(path);
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
            let opened = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&part);
            let file = map_link_error(opened, PrivateKind::File)?;
            let metadata = file.metadata()?;
            check_file(&metadata)?;
            make_private(&file, &metadata)?;
            Ok(file)
        };
        let file = open_locked(open).map_err(|error| failed(&part, error))?;
        let made = |file| Self { file, path: path.to_owned(), part: Part::Beside(part), has_begun: false };
        Ok(file.map(made))
    }

    /// Opens the output `name` in a folder of weir's own, as [`create`](Self::create) does. A link or another user's file in the
    /// place of the `.part` file is replaced.
    ///
    /// # Errors
    /// The file `NAME.part` cannot be created.
    pub fn create_in(folder: &Arc<PrivateFolder>, name: &str) -> Result<Option<Self>, NamedOutputError> {
        let path = folder.path().join(name);
        let part = format!("{name}{PART_SUFFIX}");
        let file = folder.create_locked(&part).or_else(|_| {
            _ = folder.remove(&part);
            folder.create_locked(&part)
        });
        let file = file.map_err(|error| NamedOutputError { path: folder.path().join(&part), error })?;
        let made = |file| Self { file, path, part: Part::In(Arc::clone(folder), part), has_begun: false };
        Ok(file.map(made))
    }

    /// Converts an open file that is written in place, such as standard output. `path` is used in messages only.
    pub fn in_place(file: File, path: &Path) -> Self {
        Self { file, path: path.to_owned(), part: Part::InPlace, has_begun: false }
    }

    /// Returns the path of the `.part` file of the output with this path.
    pub fn part_of(path: &Path) -> PathBuf {
        let mut part = path.as_os_str().to_owned();
        part.push(PART_SUFFIX);
        PathBuf::from(part)
    }

    /// Returns the path of the complete output.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path at which the output is at present.
    pub fn present_path(&self) -> PathBuf {
        match &self.part {
            Part::InPlace => self.path.clone(),
            Part::Beside(part) => part.clone(),
            Part::In(folder, part) => folder.path().join(part),
        }
    }

    /// Returns true if the output is written in place, and so is never renamed.
    pub fn is_in_place(&self) -> bool {
        matches!(self.part, Part::InPlace)
    }

    /// Returns the open file for writing. The first call removes what an earlier process has written to the `.part` file.
    ///
    /// # Errors
    /// The file cannot be emptied.
    pub fn open(&mut self) -> io::Result<&File> {
        if !std::mem::replace(&mut self.has_begun, true) && !self.is_in_place() {
            self.file.set_len(0)?;
        }
        Ok(&self.file)
    }

    /// Gives the complete output its name. The lock is held until `self` is dropped.
    ///
    /// # Errors
    /// The file cannot be renamed. An earlier file of the name stays, and so does the `.part` file.
    pub fn complete(&mut self) -> io::Result<()> {
        self.open()?;
        match &self.part {
            Part::InPlace => return Ok(()),
            Part::Beside(part) => {
                // The user may have made an earlier file of the name readable for others. The mode of another user's file is no wish of
                // this one.
                if let Ok(earlier) = fs::symlink_metadata(&self.path)
                    && earlier.is_file()
                    && earlier.uid() == effective_user()
                {
                    self.file.set_permissions(Permissions::from_mode(earlier.mode() & 0o777))?;
                }
                let (ours, there) = (self.file.metadata()?, fs::symlink_metadata(part)?);
                if (ours.dev(), ours.ino()) != (there.dev(), there.ino()) {
                    return Err(io::Error::other("another process has replaced the .part file"));
                }
                fs::rename(part, &self.path)?;
            }
            Part::In(folder, part) => folder.rename(part, part.strip_suffix(PART_SUFFIX).unwrap_or(part))?,
        }
        self.part = Part::InPlace;
        Ok(())
    }

    /// Writes the whole content, and gives the output its name.
    ///
    /// # Errors
    /// The content cannot be written, or the file cannot be renamed. An earlier file of the name stays.
    pub fn write(mut self, content: &[u8]) -> io::Result<()> {
        if let Err(error) = self.open().and_then(|mut file| file.write_all(content)) {
            // A part of the content is of no use, and would keep its disk space.
            self.remove_part();
            return Err(error);
        }
        self.complete()
    }

    /// Removes the `.part` file. No error is returned: at worst, the file stays.
    fn remove_part(&self) {
        match &self.part {
            Part::InPlace => {}
            Part::Beside(part) => _ = fs::remove_file(part),
            Part::In(folder, part) => _ = folder.remove(part),
        }
    }
}

/// Returns true for a path that leads to an open file of a process, such as `/dev/stdout` and links to it. A rename would
/// replace the link.
pub fn is_open_file(path: &Path) -> bool {
    const LINKS_MAX: usize = 8;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Ok(folder) = folder.canonicalize() else { return false };
        if folder.starts_with("/proc") && folder.ends_with("fd") {
            return true;
        }
        match path.read_link() {
            Ok(target) => path = folder.join(target),
            Err(_) => return false,
        }
    }
    false
}

impl Drop for NamedOutput {
    /// Removes an output to which nothing was written, unless an earlier process has written to its `.part` file.
    fn drop(&mut self) {
        if !self.has_begun && self.file.metadata().is_ok_and(|metadata| metadata.len() == 0) {
            self.remove_part();
        }
    }
}
