//! The errors of ledger files.

use std::fmt;
use std::io;
use std::path::PathBuf;
use weir_ledger::LedgerProblem;
use weir_units::Escape as _;

/// The reason why a ledger cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another process holds the ledger's lock.
    #[error(
        "the ledger in {} is being written by another node: stop the other node, or give this node a ledger folder of its own",
        .0.escaped()
    )]
    Busy(PathBuf),
    /// The folder cannot be created, or the lock cannot be taken.
    #[error("cannot open the ledger in {}: {source}; a node needs a folder that it can write, on a file system with locks", .path.escaped())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A segment cannot be read or written, for another reason than a full disk.
    #[error("cannot read or write the ledger: {0}")]
    Io(io::Error),
    /// The ledger was changed after it was written, in a way that no crash explains.
    #[error(
        "the ledger was changed: {0}; keep its folder as evidence under another name, and start the node with a new folder"
    )]
    Damaged(LedgerProblem),
    /// The ledger's last segment is empty and has the largest possible number.
    #[error(
        "the ledger has no number left for another segment: start the node with a new folder for its ledger"
    )]
    Exhausted,
}

/// The reason why entries were not written. The entries stay in memory, and the next [`crate::LedgerWriter::commit`]
/// tries again.
#[derive(Debug)]
pub struct CommitError {
    /// The system's error.
    pub cause: io::Error,
    /// Entries in memory; an entry about several idle sessions counts once for each.
    pub held: usize,
    /// Entries with an interval's usage that were merged into other entries since the last successful write.
    pub merged: u64,
    /// Other entries that were lost since the last successful write.
    pub lost: u64,
}

impl fmt::Display for CommitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cause, held, merged, lost } = self;
        match cause.kind() {
            io::ErrorKind::StorageFull => f.write_str("the ledger's disk is full: free some space")?,
            io::ErrorKind::QuotaExceeded => f.write_str("the ledger's disk quota is used up")?,
            io::ErrorKind::FileTooLarge => {
                f.write_str(
                    "the ledger would exceed the largest file size that is allowed here (see ulimit -f)",
                )?;
            }
            _ => write!(f, "the ledger cannot be written: {cause}")?,
        }
        write!(f, "; {held} entries wait in memory")?;
        if *merged > 0 {
            write!(f, ", {merged} were added to others")?;
        }
        if *lost > 0 {
            write!(f, ", {lost} were lost")?;
        }
        Ok(())
    }
}

impl std::error::Error for CommitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.cause)
    }
}

/// The reason why a ledger cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerReadError {
    /// The folder does not exist, or contains no ledger.
    #[error("there is no ledger in {}: the configuration of a node names the folder of its ledger", .0.escaped())]
    None(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .path.escaped())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The ledger was changed after it was written.
    #[error("the ledger was changed: {0}")]
    Damaged(LedgerProblem),
}

/// Returns true if an error is a lack of disk space, which may become free.
pub(crate) fn is_disk_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
