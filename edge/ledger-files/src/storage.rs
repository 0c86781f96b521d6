//! What the writer needs of a disk.

use std::io::{self, Read};

/// Where segments lie. [`crate::LedgerFolder`] is a folder of files; tests have one in memory whose every call can fail.
///
/// Calls that write go to the current segment: the last one that was listed, or created since.
pub trait SegmentStorage {
    /// The numbers of the segments, in rising order.
    fn segments(&self) -> io::Result<Vec<u64>>;

    /// A segment's bytes, from its beginning.
    fn read(&self, segment: u64) -> io::Result<Box<dyn Read + '_>>;

    /// Makes an empty segment, which is the current one from then on. That it exists has to survive a crash. One that exists and is empty is
    /// taken as it is: an earlier attempt may have got so far.
    fn create(&mut self, segment: u64) -> io::Result<()>;

    /// Writes at this offset of the current segment. After an error any part of the bytes may have been written.
    fn write(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Cuts the current segment off at this length.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Returns when what was written to the current segment survives a crash.
    fn sync(&mut self) -> io::Result<()>;

    /// Keeps bytes of the current segment that are about to be cut off, in a file of their own beside it, and syncs that.
    fn put_aside(&mut self, bytes: &[u8]) -> io::Result<()>;
}
