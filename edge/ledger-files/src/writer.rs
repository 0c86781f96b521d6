//! Appending to a ledger.

use crate::backlog::{Backlog, PendingEntry};
use crate::error::is_disk_full;
use crate::recover::{self, RecoveredEnd};
use crate::{CommitError, LedgerError, LedgerFolder, SegmentStorage};
use std::io;
use std::path::Path;
use weir_admission::Name;
use weir_ledger::{Digest, EntryRef, FORMAT, LedgerEvent, LedgerHead, LedgerText, append_line};
use weir_units::{Bytes, Timestamp};

/// The facts that a node records when it opens its ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeStart {
    /// The node's name, in every entry.
    pub node: Name,
    /// The version of weir.
    pub version: LedgerText,
    /// The hash of the node's configuration.
    pub configuration: Digest,
    /// The time of the node's start.
    pub at: Timestamp,
}

/// The settings of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerOptions {
    /// The size of a segment at which the entries of the next interval begin a new segment.
    pub segment_bytes: Bytes,
    /// The most entries in memory while they cannot be written; an entry about several idle sessions counts once for
    /// each. If there are more entries, a quarter of this number of sessions keep a sum of their own usage. The usage of
    /// all other sessions is added up in a common sum.
    pub held_max: usize,
}

impl Default for LedgerOptions {
    fn default() -> Self {
        Self { segment_bytes: Bytes(64 << 20), held_max: 16 << 10 }
    }
}

/// The state in which a ledger was found.
#[derive(Debug)]
pub struct LedgerRecovery {
    /// True if the ledger existed, and ended without an orderly stop of the node.
    pub crashed: bool,
    /// The number of bytes after the last complete line, which are moved to a file of their own.
    pub torn: Bytes,
    /// The last complete line.
    pub head: Option<LedgerHead>,
    /// The error if the first entries are still in memory, because the disk is full; else `None`.
    pub held: Option<CommitError>,
}

/// The numbers of entries that wait in memory, and of entries that were merged or lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingCounts {
    /// The number of entries; an entry about several idle sessions counts once for each.
    pub entries: usize,
    /// Entries with an interval's usage that were merged into others, because there were too many.
    pub merged: u64,
    /// Other entries that were lost, because there were too many.
    pub lost: u64,
}

/// A ledger that is open for writing.
///
/// Dropping it without [`LedgerWriter::stop`] counts as a crash.
#[derive(Debug)]
pub struct LedgerWriter<S: SegmentStorage = LedgerFolder> {
    storage: S,
    node: Name,
    segment_bytes: u64,
    /// The number of the current segment; 0 before the first.
    segment: u64,
    /// True if the segment gets no more lines, because it is in an earlier format.
    has_earlier_format: bool,
    /// The number of the segment's bytes that are synced.
    len: u64,
    /// True if a failed write may have left other bytes after the first `len`.
    is_dirty: bool,
    /// Bytes after the first `len` that a crash left. They are put aside before anything is written.
    torn: Vec<u8>,
    head: Option<LedgerHead>,
    /// The end time of the last written entry.
    end: Timestamp,
    backlog: Backlog,
}

impl LedgerWriter<LedgerFolder> {
    /// Opens the ledger in a folder, or begins one.
    ///
    /// # Errors
    /// As [`LedgerWriter::with_storage`], and if another node holds the folder.
    pub fn open(
        folder: &Path,
        start: NodeStart,
        options: LedgerOptions,
    ) -> Result<(Self, LedgerRecovery), LedgerError> {
        LedgerWriter::with_storage(LedgerFolder::open(folder)?, start, options)
    }
}

impl<S: SegmentStorage> LedgerWriter<S> {
    /// Continues the ledger in a storage, or begins one. Records a recovery from a crash, if there was one, and the
    /// start of the node. These entries are written when this function returns, unless the disk is full
    /// ([`LedgerRecovery::held`]).
    ///
    /// # Errors
    /// The ledger was changed, cannot be read, or cannot be written for another reason than a full disk.
    pub fn with_storage(
        storage: S,
        start: NodeStart,
        options: LedgerOptions,
    ) -> Result<(Self, LedgerRecovery), LedgerError> {
        let found = recover::find(&storage)?;
        found.check_number()?;
        let RecoveredEnd { segment, has_earlier_format, len, torn, head, end, stopped } = found;
        let NodeStart { node, version, configuration, at } = start;
        let torn_bytes = torn.len() as u64;
        let crashed = segment > 0 && !stopped;
        let mut ledger = Self {
            storage,
            node,
            segment_bytes: options.segment_bytes.0,
            segment,
            has_earlier_format,
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
            Err(error) if is_disk_full(&error.cause) => Some(error),
            Err(error) => return Err(LedgerError::Io(error.cause)),
        };
        Ok((ledger, LedgerRecovery { crashed, torn: Bytes(torn_bytes), head, held }))
    }

    /// Adds an event without duration. The event is in memory until [`Self::commit`].
    pub fn push_at(&mut self, at: Timestamp, event: LedgerEvent) {
        self.push(at, at, event);
    }

    /// Adds an event with duration. The event is in memory until [`Self::commit`]. An end before `begin` is replaced by
    /// `begin`.
    pub fn push(&mut self, begin: Timestamp, end: Timestamp, event: LedgerEvent) {
        self.backlog.push(PendingEntry { begin, end: end.max(begin), event });
    }

    /// Writes and syncs all added entries. The node calls this once in each interval. Returns the number and the hash of
    /// the last line.
    ///
    /// # Errors
    /// The entries could not be written and synced. They stay in memory, within the limit, and the next call tries
    /// again.
    pub fn commit(&mut self) -> Result<Option<LedgerHead>, CommitError> {
        self.write().map_err(|cause| {
            let PendingCounts { entries: held, merged, lost } = self.held();
            CommitError { cause, held, merged, lost }
        })?;
        Ok(self.head)
    }

    /// Records the orderly end of the node, and writes all remaining entries. The folder is free for another node
    /// when the ledger is dropped.
    ///
    /// # Errors
    /// As [`Self::commit`], which the caller can call again. Entries that are never written are lost; the ledger on the
    /// disk is valid without them.
    pub fn stop(&mut self, at: Timestamp) -> Result<Option<LedgerHead>, CommitError> {
        self.push_at(at, LedgerEvent::NodeStop);
        self.commit()
    }

    /// Returns the number and the hash of the last line that is written and synced.
    pub fn head(&self) -> Option<LedgerHead> {
        self.head
    }

    /// Returns the numbers of entries that wait to be written.
    pub fn held(&self) -> PendingCounts {
        PendingCounts { entries: self.backlog.weight(), merged: self.backlog.merged, lost: self.backlog.lost }
    }

    /// Writes and syncs the backlog, after removing the rest of a crash or a failed write.
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
        if self.segment == 0 || self.has_earlier_format || self.len >= self.segment_bytes.max(1) {
            let next = self.segment.checked_add(1).ok_or(io::ErrorKind::FileTooLarge)?;
            self.storage.create(next)?;
            (self.segment, self.has_earlier_format, self.len) = (next, false, 0);
        }
        let batch = self.encode_backlog();
        self.is_dirty = true;
        self.storage.write(self.len, &batch.bytes)?;
        self.storage.sync()?;
        self.is_dirty = false;
        self.len += batch.bytes.len() as u64;
        (self.head, self.end) = (batch.head, batch.end);
        self.backlog.clear();
        Ok(())
    }

    /// Encodes all waiting entries as lines that follow the last written line.
    fn encode_backlog(&self) -> Batch {
        let mut batch = Batch { bytes: Vec::new(), head: self.head, end: self.end };
        let loss_entry = self.backlog.loss_entry();
        let mut begins_segment = self.len == 0;
        for entry in self.backlog.iter().chain(loss_entry.as_ref()) {
            if std::mem::take(&mut begins_segment) {
                // The time is at least that of the last entry. So an entry about a clock that was set back comes after
                // the segment's first line.
                let at = entry.end.max(batch.end);
                let first_event = LedgerEvent::Segment { format: FORMAT, segment: self.segment };
                batch.add(&self.node, at, at, &first_event);
            }
            if entry.end < batch.end {
                let before = batch.end;
                batch.add(&self.node, entry.end, entry.end, &LedgerEvent::ClockSet { before });
            }
            batch.add(&self.node, entry.begin, entry.end, &entry.event);
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
        let hash = append_line(EntryRef { sequence, node, begin, end, event }, prev, &mut self.bytes);
        self.head = Some(LedgerHead { sequence, hash });
        self.end = end;
    }
}
