//! The ledger's files (their lines are those of `weir_admission::ledger`).
//!
//! A ledger is a folder of segments, `ledger-000001.jsonl` and so on, to which one node appends ([`LedgerWriter`]) while anybody may read ([`LedgerReader`], [`verify`]).
//!
//! - What [`LedgerWriter::commit`] has written is synced to the disk. A node that is killed loses what it has not committed: an interval.
//! - After a crash the last segment may end in the middle of a line. The next node cuts that off, puts the bytes aside (`ledger-000001.torn`), and says so in
//!   the next entry.
//! - While nothing can be written, because the disk is full for instance, entries stay in memory. There are at most [`LedgerOptions::held_max`] of them (one of several idle
//!   sessions counts once for each): usage of the same session is added up, so that its sum stays right, and an entry says how many were merged.
//! - A ledger that was changed is not gone on with. One of an earlier format is, in a new segment.

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
pub use writer::{Held, LedgerOptions, LedgerRecovery, LedgerWriter, Start};
