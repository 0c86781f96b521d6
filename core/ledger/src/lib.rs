//! The ledger: what each session used, and what happened on the node, in lines that are chained by their hashes.
//!
//! A ledger is a row of files (segments) of lines. A line is one [`LedgerEntry`] as JSON with its fields in one fixed order, the hash of the line before
//! it, and last its own hash: SHA-256 over the line's bytes up to, but not including, `,"hash"`. So the hash of a line also holds for all lines before it, and
//!
//! ```sh
//! sed -n 7p ledger-000001.jsonl | sed 's/,"hash":"[0-9a-f]*"}$//' | tr -d '\n' | sha256sum
//! ```
//!
//! is what line 7 says at its end, and line 8 as `prev`. What a session used in an interval is a line ([`LedgerEvent::Usage`]), but those that used nothing but their
//! memory share one ([`LedgerEvent::Idle`]). The chain goes on from one segment to the next: the first line of each is an [`LedgerEvent::Segment`].
//! Whoever keeps a [`LedgerHead`] elsewhere can tell later that nothing before it was changed or cut off ([`Verifier`]); without one, a chain that was
//! computed anew from some line on, or that ends earlier, cannot be told from a true one.
//!
//! Pure: the files are those of `weir-ledger-files`.

#![forbid(unsafe_code)]

mod cause;
mod chain;
mod decision;
mod digest;
mod entry;
mod idle;
mod memory;
mod reserved;
mod summary;
mod table;
mod text;
mod usage;
mod verify;
mod wire;

pub use cause::{DropCause, DropCounts, LostUnit};
pub use chain::{LINE_BYTES_MAX, LedgerLine, LedgerLineError, seal, unseal};
pub use decision::{Decision, DecisionList, DecisionOutcome, is_decision};
pub use digest::{Digest, HeadError, LedgerHead};
pub use entry::{
    CloseReason, CredentialHolder, EntryRef, FORMAT, LedgerEntry, LedgerEvent, SessionId, Unloaded,
};
pub use idle::{IDLE_MAX, Idle};
pub use memory::ByteSeconds;
pub use reserved::{RESERVED_MAX, Reserved, ReservedLink, ReservedProcessor, TooManyReserved};
pub use summary::{RequestsRow, SummaryRow, UsageSummary};
pub use table::{LedgerCell, LedgerColumn, LedgerTable};
pub use text::LedgerText;
pub use usage::{Usage, UsageCounter};
pub use verify::{
    ChainStart, Damage, Fed, LedgerCheck, LedgerProblem, LinePosition, Torn, VerifiedLedger, Verifier,
};
pub use weir_units::{TimeError, parse_time, show_time};
