//! The files of a ledger. `weir_ledger` defines the lines in them.
//!
//! A ledger is a folder of segments, `ledger-000001.jsonl` and so on. One node appends to it ([`LedgerWriter`]), and
//! any user with access may read it ([`LedgerReader`], [`verify`]).
//!
//! - [`LedgerWriter::commit`] returns when all entries are synced to the disk. A node commits once for each interval, so
//!   a node that is killed loses the entries of at most one interval.
//! - After a crash the last segment may end in the middle of a line. The next node moves these bytes to a file
//!   (`ledger-000001.torn`), truncates the segment, and records the recovery in the next entry.
//! - While nothing can be written, for instance because the disk is full, entries stay in memory. There are at most
//!   [`LedgerOptions::held_max`] of them (an entry about several idle sessions counts once for each). Beyond that
//!   number, entries with usage of the same session are merged into their sum, and an entry records how many were
//!   merged.
//! - A ledger that was changed after it was written is not continued. A ledger of an earlier format is continued in a
//!   new segment.

#![forbid(unsafe_code)]

mod backlog;
mod error;
mod folder;
mod lines;
mod reader;
mod recover;
mod storage;
mod writer;

pub use error::{CommitError, LedgerError, LedgerReadError};
pub use folder::{LedgerFolder, check, is_held};
pub use reader::{EntryFilter, LedgerReader, verify};
pub use storage::SegmentStorage;
pub use writer::{LedgerOptions, LedgerRecovery, LedgerWriter, NodeStart, PendingCounts};
