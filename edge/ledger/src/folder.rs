//! Segments as files of a folder.

use crate::{LedgerError, Storage};
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write as _};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A ledger is for its owner to write and for its group to read.
const FILE_MODE: u32 = 0o640;
const FOLDER_MODE: u32 = 0o750;

/// A folder of segments, held by one writer at a time.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    /// The current segment, once it is needed.
    current: Option<(u64, File)>,
    /// Held as long as this is.
    _lock: File,
}

impl Folder {
    /// Takes a folder for writing; it is made where it is not there.
    ///
    /// # Errors
    /// It cannot be made, or another process writes there.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let refused = |source| LedgerError::Folder { path: path.to_owned(), source };
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(path).map_err(refused)?;
        let lock = options().write(true).create(true).open(path.join("lock")).map_err(refused)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path: path.to_owned(), current: None, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(LedgerError::Busy(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(refused(source)),
        }
    }

    fn current(&mut self) -> io::Result<&File> {
        if self.current.is_none() {
            let number = *self.segments()?.last().ok_or(ErrorKind::NotFound)?;
            let file = options().read(true).write(true).open(segment_path(&self.path, number))?;
            self.current = Some((number, file));
        }
        self.current.as_ref().map(|(_, file)| file).ok_or(ErrorKind::NotFound.into())
    }
}

impl Storage for Folder {
    fn segments(&self) -> io::Result<Vec<u64>> {
        segments(&self.path)
    }

    fn read(&self, segment: u64) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(open_to_read(&segment_path(&self.path, segment))?))
    }

    fn create(&mut self, segment: u64) -> io::Result<()> {
        let path = segment_path(&self.path, segment);
        let file = match options().read(true).write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                let file = options().read(true).write(true).open(&path)?;
                if file.metadata()?.len() > 0 {
                    return Err(error);
                }
                file
            }
            other => other?,
        };
        File::open(&self.path)?.sync_all()?;
        self.current = Some((segment, file));
        Ok(())
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.current()?.write_all_at(bytes, offset)
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.current()?.set_len(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.current()?.sync_data()
    }

    fn put_aside(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.current()?;
        let number = self.current.as_ref().map_or(0, |(number, _)| *number);
        let path = segment_path(&self.path, number).with_extension("torn");
        let mut file = options().append(true).create(true).open(path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        File::open(&self.path)?.sync_all()
    }
}

/// No link is followed: what lies in the folder may have been put there by others.
fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(FILE_MODE).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let file = options().read(true).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is there and is not a file"));
    }
    Ok(file)
}

/// The numbers of the segments in a folder, in rising order.
pub(crate) fn segments(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        numbers.extend(entry?.file_name().to_str().and_then(segment_number));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

pub(crate) fn segment_path(folder: &Path, number: u64) -> PathBuf {
    folder.join(segment_name(number))
}

fn segment_name(number: u64) -> String {
    format!("ledger-{number:06}.jsonl")
}

fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("ledger-")?.strip_suffix(".jsonl")?;
    let number = digits.parse().ok()?;
    // One number has one name.
    (segment_name(number) == name).then_some(number)
}
