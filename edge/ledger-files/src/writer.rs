//! Appending to a ledger.

use crate::backlog::{Backlog, Waiting};
use crate::error::lacks_room;
use crate::recover::{self, RecoveredEnd};
use crate::{CommitError, LedgerError, LedgerFolder, SegmentStorage};
use std::io;
use std::path::Path;
use weir_admission::Name;
use weir_ledger::{Digest, EntryRef, FORMAT, LedgerEvent, LedgerHead, LedgerText, seal};
use weir_units::{Bytes, Timestamp};

/// What a node says of itself when it opens its ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The node's name, in every entry.
    pub node: Name,
    /// The version of weir.
    pub version: LedgerText,
    /// The hash of its configuration.
    pub configuration: Digest,
    /// When it began.
    pub at: Timestamp,
}

/// How a ledger is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerOptions {
    /// A segment that has so many bytes gets no further interval: the next one begins a new segment.
    pub segment_bytes: Bytes,
    /// How many entries are held in memory while they cannot be written; one of several idle sessions counts once for each. Up to a quarter as many
    /// sessions keep sums of their own.
    pub held_max: usize,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self { segment_bytes: Bytes(64 << 20), held_max: 16 << 10 }
    }
}

/// What was found when a ledger was opened.
#[derive(Debug)]
pub struct LedgerRecovery {
    /// Whether there was a ledger, and it ended without saying that the node had stopped.
    pub crashed: bool,
    /// Bytes behind the last whole line, which are put aside.
    pub torn: Bytes,
    /// The last line that was there.
    pub head: Option<LedgerHead>,
    /// Why the first entries are still in memory, where they are: there is no room.
    pub held: Option<CommitError>,
}

/// What waits in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Entries; one of several idle sessions counts once for each.
    pub entries: usize,
    /// Intervals' usages of sessions that were added to others, because there were too many.
    pub merged: u64,
    /// Other entries that were lost, because there were too many.
    pub lost: u64,
}

/// A ledger that is open for writing.
///
/// A ledger that is dropped without [`LedgerWriter::stop`] looks as after a crash, which it is.
#[derive(Debug)]
pub struct LedgerWriter<S: SegmentStorage = LedgerFolder> {
    storage: S,
    node: Name,
    segment_bytes: u64,
    /// The current segment; 0 before the first.
    segment: u64,
    /// Whether it gets no more lines, because it is written in an earlier format.
    is_early: bool,
    /// The bytes of it that are synced.
    len: u64,
    /// Whether there may be other bytes behind them.
    is_dirty: bool,
    /// What a crash left behind them, to be put aside before anything is written.
    torn: Vec<u8>,
    head: Option<LedgerHead>,
    /// The end of the last entry.
    end: Timestamp,
    backlog: Backlog,
}

impl LedgerWriter<LedgerFolder> {
    /// Opens the ledger in a folder, or begins one.
    ///
    /// # Errors
    /// As [`LedgerWriter::with_storage`], and where another node holds the folder.
    pub fn open(
        folder: &Path,
        start: Start,
        options: LedgerOptions,
    ) -> Result<(Self, LedgerRecovery), LedgerError> {
        LedgerWriter::with_storage(LedgerFolder::open(folder)?, start, options)
    }
}

impl<S: SegmentStorage> LedgerWriter<S> {
    /// Goes on with the ledger that lies in a storage, or begins one: says whether it recovered from a crash, and that the node started. Both is
    /// written when this returns, unless there is no room ([`LedgerRecovery::held`]).
    ///
    /// # Errors
    /// The ledger was changed, or cannot be read, or not be written for another reason than a full disk.
    pub fn with_storage(
        storage: S,
        start: Start,
        options: LedgerOptions,
    ) -> Result<(Self, LedgerRecovery), LedgerError> {
        let found = recover::find(&storage)?;
        found.check_number()?;
        let RecoveredEnd { segment, is_early, len, torn, head, end, stopped } = found;
        let Start { node, version, configuration, at } = start;
        let torn_bytes = torn.len() as u64;
        let crashed = segment > 0 && !stopped;
        let mut ledger = Self {
            storage,
            node,
            segment_bytes: options.segment_bytes.0,
            segment,
            is_early,
            len,
            is_dirty: false,
            torn,
            head,
            end,
            backlog: Backlog::new(options.held_max),
        };
        if crashed || torn_bytes > 0 {
            ledger.push_at(at, LedgerEvent::Recovered { torn_bytes });
        }
        ledger.push_at(at, LedgerEvent::NodeStart { version, configuration });
        let held = match ledger.commit() {
            Ok(_) => None,
            Err(error) if lacks_room(&error.cause) => Some(error),
            Err(error) => return Err(LedgerError::Io(error.cause)),
        };
        Ok((ledger, LedgerRecovery { crashed, torn: Bytes(torn_bytes), head, held }))
    }

    /// Adds something that happened at once. It is in memory until [`Self::commit`].
    pub fn push_at(&mut self, at: Timestamp, event: LedgerEvent) {
        self.push(at, at, event);
    }

    /// Adds something that lasted. It is in memory until [`Self::commit`]. An end before the beginning is taken for the beginning.
    pub fn push(&mut self, begin: Timestamp, end: Timestamp, event: LedgerEvent) {
        self.backlog.push(Waiting { begin, end: end.max(begin), event });
    }

    /// Writes all that was added, and syncs it: for each interval, once. Returns the last line.
    ///
    /// # Errors
    /// Nothing of it is written, or nobody knows. All stays in memory, within its bound, and the next call tries again.
    pub fn commit(&mut self) -> Result<Option<LedgerHead>, CommitError> {
        self.write().map_err(|cause| {
            let Held { entries: held, merged, lost } = self.held();
            CommitError { cause, held, merged, lost }
        })?;
        Ok(self.head)
    }

    /// Says that the node ends in order, and writes all that is left. The folder is free for another node when the ledger is dropped.
    ///
    /// # Errors
    /// As of [`Self::commit`], which can be tried again. What is never written is lost; the ledger on the disk is whole up to there.
    pub fn stop(&mut self, at: Timestamp) -> Result<Option<LedgerHead>, CommitError> {
        self.push_at(at, LedgerEvent::NodeStop);
        self.commit()
    }

    /// The last line that is written and synced.
    pub fn head(&self) -> Option<LedgerHead> {
        self.head
    }

    /// What waits to be written.
    pub fn held(&self) -> Held {
        Held { entries: self.backlog.weight(), merged: self.backlog.merged, lost: self.backlog.lost }
    }

    fn write(&mut self) -> io::Result<()> {
        if !self.torn.is_empty() {
            recover::repair(&mut self.storage, self.len, &self.torn)?;
            self.torn = Vec::new();
        }
        if self.is_dirty {
            self.storage.truncate(self.len)?;
            self.is_dirty = false;
        }
        if self.backlog.is_empty() {
            return Ok(());
        }
        if self.segment == 0 || self.is_early || self.len >= self.segment_bytes.max(1) {
            let next = self.segment.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
            self.storage.create(next)?;
            (self.segment, self.is_early, self.len) = (next, false, 0);
        }
        let batch = self.seal_all();
        self.is_dirty = true;
        self.storage.write(self.len, &batch.bytes)?;
        self.storage.sync()?;
        self.is_dirty = false;
        self.len += batch.bytes.len() as u64;
        (self.head, self.end) = (batch.head, batch.end);
        self.backlog.clear();
        Ok(())
    }

    /// All that waits, as lines that follow the last one.
    fn seal_all(&self) -> Batch {
        let mut batch = Batch { bytes: Vec::new(), head: self.head, end: self.end };
        let confession = self.backlog.confession();
        let mut begins_segment = self.len == 0;
        for waiting in self.backlog.iter().chain(confession.as_ref()) {
            if std::mem::take(&mut begins_segment) {
                // Not before the last entry, so that the clock is set behind the segment's first line.
                let at = waiting.end.max(batch.end);
                let first = LedgerEvent::Segment { format: FORMAT, segment: self.segment };
                batch.add(&self.node, at, at, &first);
            }
            if waiting.end < batch.end {
                let before = batch.end;
                batch.add(&self.node, waiting.end, waiting.end, &LedgerEvent::ClockSet { before });
            }
            batch.add(&self.node, waiting.begin, waiting.end, &waiting.event);
        }
        batch
    }
}

/// Lines that are about to be written.
struct Batch {
    bytes: Vec<u8>,
    head: Option<LedgerHead>,
    end: Timestamp,
}

impl Batch {
    fn add(&mut self, node: &Name, begin: Timestamp, end: Timestamp, event: &LedgerEvent) {
        let (sequence, prev) = match self.head {
            Some(head) => (head.sequence.saturating_add(1), head.hash),
            None => (1, Digest::NONE),
        };
        let hash = seal(EntryRef { sequence, node, begin, end, event }, prev, &mut self.bytes);
        self.head = Some(LedgerHead { sequence, hash });
        self.end = end;
    }
}
