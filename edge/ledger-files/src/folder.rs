//! The storage of a ledger's segments as files of a folder.

use crate::{LedgerError, SegmentStorage, recover};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_os::{lock::Locked, private};

/// The name of the file that the writer locks.
const LOCK: &str = "lock";

/// A folder of segments that is open for writing, by one process at a time. Its mode is 0700.
#[derive(Debug)]
pub struct LedgerFolder {
    folder: private::PrivateFolder,
    /// The number and the file of the current segment, opened on first use.
    current: Option<(u64, File)>,
    /// Held as long as the folder is open.
    _lock: Locked,
}

impl LedgerFolder {
    /// Opens a folder for writing, and creates it if missing.
    ///
    /// # Errors
    /// The folder cannot be created, another user owns it or a file in it, or another process holds its lock.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let refused = |source| LedgerError::Folder { path: path.to_owned(), source };
        let folder = private::PrivateFolder::make(path).map_err(|error| refused(error.into()))?;
        let lock = folder
            .create(LOCK)
            .map_err(|error| LedgerError::Folder { path: path.join(LOCK), source: error.into() })?;
        let lock = Locked::exclusive(lock).map_err(refused)?;
        let lock = lock.ok_or_else(|| LedgerError::Busy(path.to_owned()))?;
        Ok(Self { folder, current: None, _lock: lock })
    }

    /// Returns the file of the current segment.
    fn current(&mut self) -> io::Result<&File> {
        if self.current.is_none() {
            let number = *self.segments()?.last().ok_or(ErrorKind::NotFound)?;
            let file = with_segment_name(number, self.folder.open_file(&segment_name(number)))?;
            self.current = Some((number, file));
        }
        self.current.as_ref().map(|(_, file)| file).ok_or(ErrorKind::NotFound.into())
    }
}

impl SegmentStorage for LedgerFolder {
    fn segments(&self) -> io::Result<Vec<u64>> {
        segments(self.folder.path())
    }

    fn read(&self, segment: u64) -> io::Result<Box<dyn Read + '_>> {
        Ok(Box::new(with_segment_name(segment, self.folder.open_file(&segment_name(segment)))?))
    }

    fn create(&mut self, segment: u64) -> io::Result<()> {
        // The segment can exist already and be empty, if it was created just before a crash.
        let file = with_segment_name(segment, self.folder.create(&segment_name(segment)))?;
        if file.metadata()?.len() > 0 {
            return Err(ErrorKind::AlreadyExists.into());
        }
        self.folder.sync()?;
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
        let name = Path::new(&segment_name(number)).with_extension("torn");
        let mut file = self.folder.create(&name.to_string_lossy())?;
        file.seek(SeekFrom::End(0))?;
        file.write_all(bytes)?;
        file.sync_all()?;
        self.folder.sync()
    }
}

/// Opens a ledger's folder without changing it. Returns the folder, and true if a node holds its lock. Returns `None` if
/// the folder is missing and can be created.
fn open_read_only(path: &Path) -> Result<Option<(private::PrivateFolder, bool)>, LedgerError> {
    let refused = |path: PathBuf, source| LedgerError::Folder { path, source };
    let folder = private::PrivateFolder::open_read_only(path)
        .map_err(|error| refused(path.to_owned(), error.into()))?;
    let Some(folder) = folder else { return Ok(None) };
    let is_held = match folder.open_file(LOCK) {
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(refused(path.join(LOCK), error.into())),
        Ok(lock) => Locked::is_held(lock).map_err(|error| refused(path.to_owned(), error))?,
    };
    Ok(Some((folder, is_held)))
}

/// Returns true if a node holds the lock of the ledger in this folder. Changes nothing.
///
/// # Errors
/// [`LedgerError::Folder`] if another user owns the folder, or if it cannot be opened.
pub fn is_held(path: &Path) -> Result<bool, LedgerError> {
    Ok(open_read_only(path)?.is_some_and(|(_, is_held)| is_held))
}

/// Checks that a node can continue the ledger in this folder, or begin one. Changes nothing.
///
/// # Errors
/// The errors of [`LedgerWriter::open`](crate::LedgerWriter::open).
pub fn check(path: &Path) -> Result<(), LedgerError> {
    let Some((folder, is_held)) = open_read_only(path)? else { return Ok(()) };
    if is_held {
        return Err(LedgerError::Busy(path.to_owned()));
    }
    let read = |segment| -> io::Result<Box<dyn Read>> {
        Ok(Box::new(with_segment_name(segment, folder.open_file(&segment_name(segment)))?))
    };
    let found = recover::find_in(&segments(folder.path()).map_err(LedgerError::Io)?, &read)?;
    found.check_number()
}

/// Adds a segment's name to the error of opening its file.
fn with_segment_name(segment: u64, file: Result<File, private::PrivateError>) -> io::Result<File> {
    file.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", segment_name(segment))))
}

/// Opens a segment for reading. The file may belong to another user, because the hash chain shows changes of its
/// contents. No symbolic link is followed.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(ErrorKind::InvalidInput, "it is there and is not a file"));
    }
    Ok(file)
}

/// Returns the numbers of the segments in a folder, in rising order.
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

/// Returns the number of the segment in a file of this name; `None` for a file that is no segment.
fn segment_number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("ledger-")?.strip_suffix(".jsonl")?;
    let number = digits.parse().ok()?;
    // Each number has only one valid name: `ledger-1.jsonl` is not a segment.
    (segment_name(number) == name).then_some(number)
}
