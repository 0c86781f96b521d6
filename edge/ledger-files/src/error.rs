//! What can go wrong with a ledger.

use std::fmt;
use std::io;
use std::path::PathBuf;
use weir_ledger::LedgerProblem;
use weir_units::Shown as _;

/// Why a ledger cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// Another process holds it.
    #[error(
        "the ledger in {} is being written by another node: stop that one, or give this node a ledger folder of its own",
        .0.shown()
    )]
    Busy(PathBuf),
    /// The folder cannot be made, or the lock not taken.
    #[error("cannot open the ledger in {}: {source}; a node needs a folder that it can write, on a file system with locks", .path.shown())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A segment cannot be read or written, and not because the disk is full.
    #[error("cannot read or write the ledger: {0}")]
    Io(io::Error),
    /// The ledger is not as it was written, and no crash explains that.
    #[error(
        "the ledger was changed: {0}; keep its folder as evidence under another name, and start the node with a new one"
    )]
    Damaged(LedgerProblem),
    /// The ledger's last segment is empty and its number is the last one that there can be.
    #[error("the ledger has no number left for another segment: start a new one")]
    Exhausted,
}

/// Why entries were not written. They are held, and the next [`crate::LedgerWriter::commit`] tries again.
#[derive(Debug)]
pub struct CommitError {
    /// What the system said.
    pub cause: io::Error,
    /// Entries that are held in memory; one of several idle sessions counts once for each.
    pub held: usize,
    /// Intervals' usages of sessions that were added to others since nothing could be written.
    pub merged: u64,
    /// Other entries that were lost since nothing could be written.
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

/// Why a ledger cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum LedgerReadError {
    /// There is no such folder, or no ledger in it.
    #[error("there is no ledger in {}: a node's configuration says where it keeps its own", .0.shown())]
    None(PathBuf),
    /// A file cannot be read.
    #[error("cannot read {}: {source}", .path.shown())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The ledger is not as it was written.
    #[error("the ledger was changed: {0}")]
    Wrong(LedgerProblem),
}

/// Whether the system lacks room, which may come back, and nothing else is wrong.
pub(crate) fn lacks_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
