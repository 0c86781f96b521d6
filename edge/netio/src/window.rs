//! What sandboxes map at [`weir_abi::ARENA_BASE`].

use crate::faults::{Faults, WatchError, WatchGuard, register};
use crate::memory::Mapping;
use crate::pin::{Keeping, Pin, PinError};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_units::Bytes;

/// A range of a file that holds packets: of the capture file itself, or of a sealed memory file.
///
/// Map it `PROT_READ`, `MAP_SHARED`, so that its first byte is at [`weir_abi::ARENA_BASE`], and [`crate::watch`] the mapping.
#[derive(Debug)]
pub struct PacketWindow {
    id: u64,
    file: Arc<File>,
    file_offset: u64,
    // Dropped before `mapping`: what is not mapped must not be watched.
    watched: Option<(WatchGuard, Arc<Faults>)>,
    mapping: Mapping,
    keeping: Keeping,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl PacketWindow {
    /// `len` bytes of a file on disk from `file_offset` on (page aligned). Pages that it loses are noted in `faults`.
    pub(crate) fn of_file(
        file: &Arc<File>,
        file_offset: u64,
        len: usize,
        faults: &Arc<Faults>,
    ) -> io::Result<Self> {
        let mapping = Mapping::shared(file.as_fd(), file_offset, len, false)?;
        let start = mapping.base().addr().get();
        let guard =
            register(start..start.saturating_add(len), file_offset, faults).map_err(|error| match error {
                WatchError::Handler(error) => error,
                WatchError::Full => io::Error::other(error),
            })?;
        Ok(Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            file: Arc::clone(file),
            file_offset,
            watched: Some((guard, Arc::clone(faults))),
            mapping,
            keeping: Keeping::Everything,
        })
    }

    /// All of a sealed memory file, which `mapping` shows, and of which so much can be kept.
    pub(crate) fn of_memory(file: File, mapping: Mapping, keeping: Keeping) -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            file: Arc::new(file),
            file_offset: 0,
            watched: None,
            mapping,
            keeping,
        }
    }

    /// A number that no other window of this process has.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The file to map.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Where in the file to begin, in bytes; a multiple of the page size.
    pub fn file_offset(&self) -> u64 {
        self.file_offset
    }

    /// How much to map; at most [`weir_abi::ARENA_MAX`].
    pub fn len(&self) -> Bytes {
        // usize is not wider than u64 on any platform that this is built for.
        Bytes(u64::try_from(self.mapping.len()).unwrap_or(u64::MAX))
    }

    /// Always false: there are no windows without bytes.
    pub fn is_empty(&self) -> bool {
        self.mapping.len() == 0
    }

    /// Keeps `len` bytes at a guest address as they are, after the block that they are of is gone. The block must be there now: else they may have
    /// become something else already.
    ///
    /// # Errors
    /// [`PinError`], where this memory cannot be kept, or no more of it.
    pub fn pin(&self, address: u32, len: u32) -> Result<Pin, PinError> {
        self.keeping.pin(address, len)
    }

    /// The offset in its file up to which the file has all bytes now; nothing where none can go missing.
    pub(crate) fn end(&self) -> Option<u64> {
        let faults = self.faults()?;
        let len = self.file.metadata().map_or(u64::MAX, |metadata| metadata.len());
        Some(len.min(faults.lowest().unwrap_or(u64::MAX)))
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// Where missing pages are noted; nothing where none can go missing.
    pub(crate) fn faults(&self) -> Option<&Arc<Faults>> {
        self.watched.as_ref().map(|(_, faults)| faults)
    }
}
