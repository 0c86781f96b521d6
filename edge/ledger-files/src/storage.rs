//! The interface between the ledger's writer and a disk.

use std::io::{self, Read};

/// A storage of segments. [`crate::LedgerFolder`] stores them as files of a folder. Tests use a storage in memory in
/// which each call can fail.
///
/// Calls that write change the current segment. This is the segment that was created last, or else the last one of
/// [`segments`](Self::segments).
pub trait SegmentStorage {
    /// Returns the numbers of the segments, in rising order.
    fn segments(&self) -> io::Result<Vec<u64>>;

    /// Returns a reader of a segment's bytes, from its beginning.
    fn read(&self, segment: u64) -> io::Result<Box<dyn Read + '_>>;

    /// Creates an empty segment, which becomes the current one. When this returns, the segment survives a crash. A
    /// segment that exists already must be empty: an earlier attempt may have created it.
    fn create(&mut self, segment: u64) -> io::Result<()>;

    /// Writes at this offset of the current segment. After an error any part of the bytes may have been written.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Truncates the current segment to this length.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Returns once all writes to the current segment survive a crash.
    fn sync(&mut self) -> io::Result<()>;

    /// Appends bytes, which are about to be removed from the current segment, to a separate file beside it, and syncs
    /// that file.
    fn put_aside(&mut self, bytes: &[u8]) -> io::Result<()>;
}
