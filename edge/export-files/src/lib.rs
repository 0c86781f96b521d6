//! Rows in the formats of other tools, in files ([`ExportFiles`]) and on the way to a collector ([`IpfixCollector`]).
//!
//! A file is `NAME.part` until it is complete, and has mode 0600 ([`weir_os::private`]), as files of records have. Rows that were
//! [flushed](ExportFiles::flush) survive a crash of the process: the `.part` file has them.

#![forbid(unsafe_code)]

mod collector;
mod error;
mod file;
mod files;
mod recovery;

pub use collector::{CollectorAddress, CollectorError, CollectorTotals, IpfixCollector};
pub use error::ExportError;
pub use files::{ExportFiles, ExportOutcome, ExportedRows, FileNames};
pub use recovery::recover;

use weir_admission::DeclaredStream;

/// A format of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// Zeek's logs, one for each kind of rows.
    Zeek,
    /// Suricata's `eve.json`.
    Eve,
    /// IPFIX files (RFC 5655), one for each stream.
    Ipfix,
}

/// A stream whose rows are exported.
#[derive(Clone, Copy, Debug)]
pub struct ExportStream<'a> {
    /// The index of its module.
    pub module: usize,
    /// The label of its module.
    pub label: &'a str,
    /// The index of the stream in the module's manifest.
    pub index: u16,
    /// The stream.
    pub declared: &'a DeclaredStream,
}

/// The observation domain of IPFIX messages: one for all streams of a file or collector.
const OBSERVATION_DOMAIN: u32 = 1;
