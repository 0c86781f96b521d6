//! The ledger: the usage of each session and the events on a node, in lines that are chained by their hashes.
//!
//! A ledger is a sequence of files (segments) of lines. A line has one [`LedgerEntry`] as JSON with its fields in a
//! fixed order, the hash of the line before it (`prev`), and its own hash. This is the SHA-256 of the line's bytes up
//! to, but not including, `,"hash"`. So the hash of a line also covers all lines before it. The following command
//! prints the hash of line 7, which stands at the end of line 7, and as `prev` in line 8:
//!
//! ```sh
//! sed -n 7p ledger-000001.jsonl | sed 's/,"hash":"[0-9a-f]*"}$//' | tr -d '\n' | sha256sum
//! ```
//!
//! The usage of a session in an interval is a line ([`LedgerEvent::Usage`]). Sessions that used only their reserved
//! memory share a line ([`LedgerEvent::Idle`]). The chain continues from one segment to the next; the first line of
//! each segment is a [`LedgerEvent::Segment`]. A [`LedgerHead`] is the number and the hash of the last line. A head that
//! is kept elsewhere proves later that no line up to it was changed or cut off ([`Verifier`]). Without a kept head, a
//! verifier cannot detect that lines were cut off at the end, or that all hashes were recomputed after a change.
//!
//! Pure: `weir-ledger-files` reads and writes the files.

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
pub use chain::{LINE_BYTES_MAX, LedgerLine, LedgerLineError, append_line, parse_line};
pub use decision::{Decision, DecisionList, DecisionOutcome, is_decision};
pub use digest::{Digest, HeadError, LedgerHead};
pub use entry::{
    CloseReason, CredentialHolder, EntryRef, FORMAT, LedgerEntry, LedgerEvent, SessionId, UnloadReason,
    VouchedObject,
};
pub use idle::{IDLE_MAX, Idle};
pub use memory::ByteSeconds;
pub use reserved::{RESERVED_MAX, Reserved, ReservedLink, ReservedProcessor, TooManyReserved};
pub use summary::{RequestsRow, SummaryRow, UsageSummary};
pub use table::{LedgerCell, LedgerColumn, LedgerTable};
pub use text::LedgerText;
pub use usage::{Usage, UsageCounter};
pub use verify::{
    ChainStart, Damage, LedgerProblem, LinePosition, LineResult, Torn, VerifiedLedger, Verifier,
    VerifyOptions,
};
pub use weir_units::{TimeError, parse_time, show_time};
