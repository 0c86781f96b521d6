//! Reading a ledger, also while a node writes it.

use crate::folder::{open_to_read, segment_path, segments};
use crate::{LedgerReadError, lines};
use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use weir_admission::Name;
use weir_ledger::{Fed, LedgerCheck, LedgerEntry, LedgerEvent, VerifiedLedger, Verifier};
use weir_units::Timestamp;

/// Which entries are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryFilter {
    /// Only what is about sessions of this name.
    pub session: Option<Name>,
    /// Only what ends after this (0: from the beginning) …
    pub since: Timestamp,
    /// … and not after this.
    pub until: Timestamp,
}

impl Default for EntryFilter {
    /// All.
    fn default() -> Self {
        Self { session: None, since: Timestamp(0), until: Timestamp(u64::MAX) }
    }
}

impl EntryFilter {
    /// What is wanted of an entry: all or nothing; of one about several idle sessions, those that are wanted.
    pub fn pick(&self, entry: LedgerEntry) -> Option<LedgerEntry> {
        let is_late = entry.end > self.since || self.since == Timestamp(0);
        if !is_late || entry.end > self.until {
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

/// The entries of a ledger, in their order. Everything is verified on the way: after the first thing that is wrong there are no more entries.
#[derive(Debug)]
pub struct LedgerReader {
    folder: PathBuf,
    /// Segments to come, the last one first.
    to_come: Vec<u64>,
    current: Option<(PathBuf, BufReader<File>)>,
    line: Vec<u8>,
    verifier: Verifier,
    filter: EntryFilter,
    is_over: bool,
    /// Bytes that were read, and that there were when it was opened.
    read: u64,
    of: u64,
}

impl LedgerReader {
    /// Opens the ledger in a folder, without holding it.
    ///
    /// # Errors
    /// There is none.
    pub fn open(folder: &Path, filter: EntryFilter, check: LedgerCheck) -> Result<Self, LedgerReadError> {
        let mut to_come = match segments(folder) {
            Ok(numbers) => numbers,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(LedgerReadError::Io { path: folder.to_owned(), source }),
        };
        if to_come.is_empty() {
            return Err(LedgerReadError::None(folder.to_owned()));
        }
        to_come.reverse();
        let len = |number: &u64| segment_path(folder, *number).metadata().map_or(0, |found| found.len());
        let of = to_come.iter().map(len).sum();
        Ok(Self {
            folder: folder.to_owned(),
            to_come,
            current: None,
            line: Vec::new(),
            verifier: Verifier::new(check),
            filter,
            is_over: false,
            read: 0,
            of,
        })
    }

    /// How many bytes were read, and how many there are: as many as there were when it was opened, or more.
    pub fn progress(&self) -> (u64, u64) {
        (self.read, self.of.max(self.read))
    }

    /// Reads the rest, and says what the whole ledger is.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn finish(mut self) -> Result<VerifiedLedger, LedgerReadError> {
        loop {
            match self.step() {
                Ok(Some(fed)) if !self.is_tail(&fed) => {}
                Ok(_) => return self.verifier.finish().map_err(LedgerReadError::Wrong),
                // The verifier may still find that what is missing here comes later.
                Err(LedgerReadError::Wrong(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether it is what a node is just writing: the rest of that line, when it comes, is none of its own.
    fn is_tail(&self, fed: &Fed) -> bool {
        matches!(fed, Fed::Torn(_)) && self.to_come.is_empty()
    }

    /// The next line; nothing at the end of the ledger.
    fn step(&mut self) -> Result<Option<Fed>, LedgerReadError> {
        loop {
            if let Some((path, source)) = &mut self.current {
                let found = lines::next(source, &mut self.line)
                    .map_err(|source| LedgerReadError::Io { path: path.clone(), source })?;
                if found {
                    self.read += self.line.len() as u64;
                    return self.verifier.feed(&self.line).map(Some).map_err(LedgerReadError::Wrong);
                }
            }
            let Some(number) = self.to_come.pop() else { return Ok(None) };
            let path = segment_path(&self.folder, number);
            let file =
                open_to_read(&path).map_err(|source| LedgerReadError::Io { path: path.clone(), source })?;
            self.current = Some((path, BufReader::with_capacity(1 << 16, file)));
            self.verifier.segment(number);
        }
    }
}

impl Iterator for LedgerReader {
    type Item = Result<LedgerEntry, LedgerReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            match self.step() {
                Ok(Some(Fed::Entry(entry))) => {
                    if let Some(entry) = self.filter.pick(*entry) {
                        return Some(Ok(entry));
                    }
                }
                Ok(Some(fed)) if !self.is_tail(&fed) => {}
                Ok(_) => {
                    self.is_over = true;
                    return self.verifier.finish().err().map(|wrong| Err(LedgerReadError::Wrong(wrong)));
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

/// Reads the ledger in a folder, and says whether it is whole. The head that it returns is what the operator keeps elsewhere, to give it as
/// [`LedgerCheck::contains`] the next time.
///
/// # Errors
/// There is no ledger, or the first thing that is wrong with it.
pub fn verify(folder: &Path, check: LedgerCheck) -> Result<VerifiedLedger, LedgerReadError> {
    LedgerReader::open(folder, EntryFilter::default(), check)?.finish()
}
