//! Windows: the file ranges that sandboxes map at [`weir_abi::ARENA_BASE`].

use crate::faults::{Faults, WatchError, WatchGuard, register};
use crate::memory::Mapping;
use crate::pin::{Pin, PinError, PinPolicy};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_units::Bytes;

/// A range of a file that holds packets: of the capture file itself, or of a sealed memory file. A window of several
/// packet sockets has a part for the ring of each, and the parts have the same length.
///
/// Map its [parts](Self::parts) `PROT_READ`, `MAP_SHARED`, one behind the other, so that the first byte is at
/// [`weir_abi::ARENA_BASE`], and [`crate::watch`] the mapping.
#[derive(Debug)]
pub struct PacketWindow {
    id: u64,
    /// The file of each part. All parts have the same length, and begin at `file_offset`.
    files: Box<[Arc<File>]>,
    file_offset: u64,
    // Declared before `mapping`, so it is dropped first: addresses must not be watched after they are unmapped.
    watched: Option<(WatchGuard, Arc<Faults>)>,
    mapping: Mapping,
    pinning: PinPolicy,
}

/// A part of a [`PacketWindow`].
#[derive(Clone, Copy, Debug)]
pub struct WindowPart<'a> {
    /// The file to map.
    pub fd: BorrowedFd<'a>,
    /// The offset in the file to map from, in bytes; a multiple of the page size.
    pub offset: u64,
    /// The number of bytes to map. If there are several parts, a multiple of the page size.
    pub len: usize,
}

static NEXT_ID: AtomicU64 = AtomicU64::new(1);

impl PacketWindow {
    /// Maps `len` bytes of a file on disk from `file_offset` on (page-aligned). Lost pages are recorded in `faults`.
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
            files: Box::new([Arc::clone(file)]),
            file_offset,
            watched: Some((guard, Arc::clone(faults))),
            mapping,
            pinning: PinPolicy::Free,
        })
    }

    /// Creates a window of a whole sealed memory file, mapped by `mapping`.
    pub(crate) fn of_memory(file: File, mapping: Mapping, pinning: PinPolicy) -> Self {
        Self::of_files([file], mapping, pinning)
    }

    /// Maps the rings of packet sockets, each of this length.
    pub(crate) fn of_rings(sockets: Vec<File>, ring_len: usize) -> io::Result<Self> {
        let fds: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        let mapping = Mapping::in_parts(&fds, ring_len)?;
        Ok(Self::of_files(sockets, mapping, PinPolicy::Never))
    }

    /// Creates a window with a part for each file.
    fn of_files(files: impl IntoIterator<Item = File>, mapping: Mapping, pinning: PinPolicy) -> Self {
        Self {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            files: files.into_iter().map(Arc::new).collect(),
            file_offset: 0,
            watched: None,
            mapping,
            pinning,
        }
    }

    /// A number that is unique among the windows of this process.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if nothing changes the bytes of a block's packets while the block is in use: the window is memory of
    /// this process or of the kernel, and not a file.
    pub fn is_fixed(&self) -> bool {
        self.watched.is_none()
    }

    /// The parts of the window, in the order of their addresses; usually one.
    pub fn parts(&self) -> impl Iterator<Item = WindowPart<'_>> {
        let (offset, len) = (self.file_offset, self.mapping.len() / self.files.len().max(1));
        self.files.iter().map(move |file| WindowPart { fd: file.as_fd(), offset, len })
    }

    /// The file of a part. A window of a file on disk has one part.
    pub(crate) fn file(&self, part: usize) -> &File {
        let Some(file) = self.files.get(part) else { unreachable!("the parts of a window do not change") };
        file
    }

    /// The offset in the file to map from, in bytes; a multiple of the page size.
    pub fn file_offset(&self) -> u64 {
        self.file_offset
    }

    /// The number of bytes to map; at most [`weir_abi::ARENA_MAX`].
    pub fn len(&self) -> Bytes {
        // usize is at most 64 bits wide on all supported platforms.
        Bytes(u64::try_from(self.mapping.len()).unwrap_or(u64::MAX))
    }

    /// Always false: every window has bytes.
    pub fn is_empty(&self) -> bool {
        self.mapping.len() == 0
    }

    /// Pins `len` bytes at a guest address, so that they stay unchanged after their block is dropped. The block must
    /// exist now: otherwise the memory may have been reused already.
    ///
    /// # Errors
    /// [`PinError`] if this memory cannot be pinned, or no more of it.
    pub fn pin(&self, address: u32, len: u32) -> Result<Pin, PinError> {
        self.pinning.pin(address, len)
    }

    /// The offset in the window's file from which on bytes are lost at present: the end of the file, or an earlier page that
    /// could not be read. `None` if the file cannot lose pages.
    pub(crate) fn lost_from(&self) -> Option<u64> {
        let faults = self.faults()?;
        let len = self.file(0).metadata().map_or(u64::MAX, |metadata| metadata.len());
        Some(len.min(faults.lowest().unwrap_or(u64::MAX)))
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    /// The record of lost pages; `None` if the window cannot lose pages.
    pub(crate) fn faults(&self) -> Option<&Arc<Faults>> {
        self.watched.as_ref().map(|(_, faults)| faults)
    }
}
