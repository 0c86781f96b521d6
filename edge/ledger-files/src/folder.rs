//! Segments as files of a folder.

use crate::{LedgerError, SegmentStorage, recover};
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use weir_os::{lock::Locked, private};

/// The name of the file on which the writer holds a lock.
const LOCK: &str = "lock";

/// A folder of segments, held by one writer at a time. Only its owner reads and writes it.
#[derive(Debug)]
pub struct LedgerFolder {
    folder: private::PrivateFolder,
    /// The current segment, once it is needed.
    current: Option<(u64, File)>,
    /// Held as long as this is.
    _lock: Locked,
}

impl LedgerFolder {
    /// Takes a folder for writing; it is made where it is not there.
    ///
    /// # Errors
    /// It cannot be made, another user owns it or a file in it, or another process writes there.
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

    fn current(&mut self) -> io::Result<&File> {
        if self.current.is_none() {
            let number = *self.segments()?.last().ok_or(ErrorKind::NotFound)?;
            let file = named(number, self.folder.open_file(&segment_name(number)))?;
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
        Ok(Box::new(named(segment, self.folder.open_file(&segment_name(segment)))?))
    }

    fn create(&mut self, segment: u64) -> io::Result<()> {
        // One that is there and empty was made just before a crash.
        let file = named(segment, self.folder.create(&segment_name(segment)))?;
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

/// The folder as [`LedgerFolder::open`] finds it, and whether a node holds it. Nothing is made or changed; there is none where it can be made.
fn look(path: &Path) -> Result<Option<(private::PrivateFolder, bool)>, LedgerError> {
    let refused = |path: PathBuf, source| LedgerError::Folder { path, source };
    let folder =
        private::PrivateFolder::look(path).map_err(|error| refused(path.to_owned(), error.into()))?;
    let Some(folder) = folder else { return Ok(None) };
    let is_held = match folder.open_file(LOCK) {
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(refused(path.join(LOCK), error.into())),
        Ok(lock) => Locked::is_held(lock).map_err(|error| refused(path.to_owned(), error))?,
    };
    Ok(Some((folder, is_held)))
}

/// Returns true where a node holds the ledger in this folder. Nothing is made or changed.
///
/// # Errors
/// As [`LedgerFolder::open`], but not that it is held.
pub fn is_held(path: &Path) -> Result<bool, LedgerError> {
    Ok(look(path)?.is_some_and(|(_, is_held)| is_held))
}

/// Checks that a node can go on with the ledger in this folder, or begin one. Nothing is made or changed.
///
/// # Errors
/// As [`Ledger::open`](crate::LedgerWriter::open).
pub fn check(path: &Path) -> Result<(), LedgerError> {
    let Some((folder, is_held)) = look(path)? else { return Ok(()) };
    if is_held {
        return Err(LedgerError::Busy(path.to_owned()));
    }
    let read = |segment| -> io::Result<Box<dyn Read>> {
        Ok(Box::new(named(segment, folder.open_file(&segment_name(segment)))?))
    };
    let found = recover::find_in(&segments(folder.path()).map_err(LedgerError::Io)?, &read)?;
    found.check_number()
}

/// An error with the segment that it is about.
fn named(segment: u64, file: Result<File, private::PrivateError>) -> io::Result<File> {
    file.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", segment_name(segment))))
}

/// Opens a segment of a ledger that may be another user's: it is read, and its hashes say whether it was changed. No link is followed.
pub(crate) fn open_to_read(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path)?;
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
