//! Reading and verifying a ledger, also while a node writes it.

use crate::folder::{open_to_read, segment_path, segments};
use crate::{LedgerReadError, lines};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use weir_admission::Name;
use weir_ledger::{LedgerEntry, LedgerEvent, LineResult, VerifiedLedger, Verifier, VerifyOptions};
use weir_units::Timestamp;

/// A filter of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryFilter {
    /// The name of the sessions that entries have to be about; `None` for all entries.
    pub session: Option<Name>,
    /// Only entries that end after this time; 0 for all.
    pub since: Timestamp,
    /// Only entries that end at this time or before.
    pub until: Timestamp,
}

impl Default for EntryFilter {
    /// All entries.
    fn default() -> Self {
        Self { session: None, since: Timestamp(0), until: Timestamp(u64::MAX) }
    }
}

impl EntryFilter {
    /// Returns the entry if it matches the filter. Of an entry about several idle sessions, returns the part about
    /// matching sessions.
    pub fn pick(&self, entry: LedgerEntry) -> Option<LedgerEntry> {
        let ends_after_since = entry.end > self.since || self.since == Timestamp(0);
        if !ends_after_since || entry.end > self.until {
            return None;
        }
        let Some(name) = &self.session else { return Some(entry) };
        match entry.event {
            LedgerEvent::Idle { idle } => {
                Some(LedgerEntry { event: LedgerEvent::Idle { idle: idle.named(name)? }, ..entry })
            }
            LedgerEvent::Decision(ref decision) => decision
                .session
                .as_ref()
                .is_some_and(|session| session.as_str() == name.as_str())
                .then_some(entry),
            ref event if event.session().is_some_and(|session| session.name == *name) => Some(entry),
            _ => None,
        }
    }
}

/// An iterator over the entries of a ledger, in order. It verifies all lines that it reads, and ends after the first
/// error.
#[derive(Debug)]
pub struct LedgerReader {
    folder: PathBuf,
    /// The numbers of the segments that are not opened yet, the last segment first.
    unopened: Vec<u64>,
    current: Option<(PathBuf, BufReader<File>)>,
    /// The last line that was read.
    line: Vec<u8>,
    verifier: Verifier,
    filter: EntryFilter,
    is_over: bool,
    /// Bytes read so far.
    read: u64,
    /// Bytes of all segments when the ledger was opened.
    total: u64,
}

impl LedgerReader {
    /// Opens the ledger in a folder, without locking it.
    ///
    /// # Errors
    /// There is no ledger.
    pub fn open(folder: &Path, filter: EntryFilter, options: VerifyOptions) -> Result<Self, LedgerReadError> {
        let mut unopened = match segments(folder) {
            Ok(numbers) => numbers,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(LedgerReadError::Io { path: folder.to_owned(), source }),
        };
        if unopened.is_empty() {
            return Err(LedgerReadError::None(folder.to_owned()));
        }
        unopened.reverse();
        let len = |number: &u64| segment_path(folder, *number).metadata().map_or(0, |found| found.len());
        let total = unopened.iter().map(len).sum();
        Ok(Self {
            folder: folder.to_owned(),
            unopened,
            current: None,
            line: Vec::new(),
            verifier: Verifier::new(options),
            filter,
            is_over: false,
            read: 0,
            total,
        })
    }

    /// Returns the number of bytes read so far, and the total number when the ledger was opened. If more bytes were
    /// read, the total is their number.
    pub fn progress(&self) -> (u64, u64) {
        (self.read, self.total.max(self.read))
    }

    /// Reads and verifies the remaining lines, and returns the result for the whole ledger.
    ///
    /// # Errors
    /// The first error.
    pub fn finish(mut self) -> Result<VerifiedLedger, LedgerReadError> {
        loop {
            match self.step() {
                Ok(Some(result)) if !self.is_unfinished(&result) => {}
                Ok(_) => return self.verifier.finish().map_err(LedgerReadError::Damaged),
                // Reading goes on, because later lines can show the verifier the kind of the change.
                Err(LedgerReadError::Damaged(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns true for an incomplete line at the end of the last segment, which a node may just be writing. Reading
    /// ends with this line, because the rest of it would not be a line by itself.
    fn is_unfinished(&self, result: &LineResult) -> bool {
        matches!(result, LineResult::Torn(_)) && self.unopened.is_empty()
    }

    /// Reads and verifies the next line. Returns `None` at the end of the ledger.
    fn step(&mut self) -> Result<Option<LineResult>, LedgerReadError> {
        loop {
            if let Some((path, source)) = &mut self.current {
                let has_line = lines::read_line(source, &mut self.line)
                    .map_err(|source| LedgerReadError::Io { path: path.clone(), source })?;
                if has_line {
                    self.read += self.line.len() as u64;
                    return self.verifier.feed(&self.line).map(Some).map_err(LedgerReadError::Damaged);
                }
            }
            let Some(number) = self.unopened.pop() else { return Ok(None) };
            let path = segment_path(&self.folder, number);
            let file =
                open_to_read(&path).map_err(|source| LedgerReadError::Io { path: path.clone(), source })?;
            self.current = Some((path, BufReader::with_capacity(1 << 16, file)));
            self.verifier.begin_segment(number);
        }
    }
}

impl Iterator for LedgerReader {
    type Item = Result<LedgerEntry, LedgerReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            match self.step() {
                Ok(Some(LineResult::Entry(entry))) => {
                    if let Some(entry) = self.filter.pick(*entry) {
                        return Some(Ok(entry));
                    }
                }
                Ok(Some(result)) if !self.is_unfinished(&result) => {}
                Ok(_) => {
                    self.is_over = true;
                    return self.verifier.finish().err().map(|wrong| Err(LedgerReadError::Damaged(wrong)));
                }
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }
}

/// Reads and verifies the ledger in a folder. The operator keeps the returned head elsewhere, and passes it as
/// [`VerifyOptions::kept_head`] the next time.
///
/// # Errors
/// There is no ledger, or the first error in it.
pub fn verify(folder: &Path, options: VerifyOptions) -> Result<VerifiedLedger, LedgerReadError> {
    LedgerReader::open(folder, EntryFilter::default(), options)?.finish()
}
