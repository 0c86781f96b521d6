//! A mapped capture file, whose packets are read in place.

use crate::error::{CaptureReadError, SourceName};
use crate::faults::Faults;
use crate::mapped_bytes::MappedBytes;
use crate::totals::{EndReason, Truncation};
use crate::window::PacketWindow;
use std::fs::File;
use std::sync::Arc;
use weir_abi::{ARENA_BASE, ARENA_MAX, Descriptor};
use weir_os::memory::page_bytes;
use weir_units::Bytes;

/// The most bytes of a file that are mapped at once, unless a test sets another limit.
pub(crate) const WINDOW_BYTES: u64 = 1 << 30;

/// The number of bytes that are given back at once behind the reader. The pages stay in the page cache. Blocks in use
/// may still be read; their pages are then mapped again.
const RELEASE_BYTES: u64 = 4 << 20;

/// The result of a request for further bytes of a capture.
#[derive(Debug)]
pub(crate) enum Extend {
    /// The bytes are mapped now.
    Ready,
    /// The bytes are in another window, so the block has to end first.
    NewWindow,
    /// Memory is full, so blocks have to be dropped first.
    Full,
    /// The capture ends exactly at the offset.
    End,
    /// The capture ends before the bytes requested.
    Truncated(Truncation),
}

/// A regular file, of which one window at a time is mapped.
#[derive(Debug)]
pub(crate) struct MappedFile {
    name: SourceName,
    file: Arc<File>,
    /// The length of the file when it was opened, or less if it was cut since.
    size: u64,
    /// True if the file was cut short, or became unreadable, since it was opened.
    lost: bool,
    window_bytes: u64,
    /// The size of a page in bytes.
    page: u64,
    window: Option<Arc<PacketWindow>>,
    /// The offset up to which mapped pages are given back.
    released: u64,
    faults: Arc<Faults>,
}

impl MappedFile {
    pub(crate) fn new(name: SourceName, file: File, size: u64, window: Bytes) -> Self {
        let page = page_bytes() as u64;
        Self {
            name,
            file: Arc::new(file),
            size,
            lost: false,
            window_bytes: window.0.clamp(page, u64::from(ARENA_MAX) / 2).next_multiple_of(page),
            page,
            window: None,
            released: 0,
            faults: Arc::new(Faults::new()),
        }
    }

    pub(crate) fn faults(&self) -> &Faults {
        &self.faults
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn window(&self) -> Option<&Arc<PacketWindow>> {
        self.window.as_ref()
    }

    /// The bytes that are mapped now.
    pub(crate) fn mapped(&self) -> MappedBytes<'_> {
        match &self.window {
            Some(window) => {
                let start = window.file_offset();
                let end = start.saturating_add(window.len().0).min(self.size.max(start));
                // SAFETY: the window's mapping is as long as the window and is watched for lost pages. It lives as
                // long as `self.window`, which the borrow of `self` keeps.
                unsafe { MappedBytes::new(window.mapping().base().as_ptr(), start, end, ARENA_BASE) }
            }
            // SAFETY: no bytes are mapped.
            None => unsafe { MappedBytes::new(std::ptr::null(), 0, 0, ARENA_BASE) },
        }
    }

    /// Makes the bytes `offset..need` of the file accessible. The window is replaced only if `may_move` is true.
    pub(crate) fn extend(
        &mut self,
        offset: u64,
        need: u64,
        may_move: bool,
    ) -> Result<Extend, CaptureReadError> {
        let reason = || if self.lost { EndReason::Lost } else { EndReason::Cut };
        if offset == self.size && !self.lost {
            return Ok(Extend::End);
        }
        if need > self.size {
            return Ok(Extend::Truncated(Truncation { offset, reason: reason() }));
        }
        if self.mapped().holds(offset, need) {
            return Ok(Extend::Ready);
        }
        if !may_move {
            return Ok(Extend::NewWindow);
        }
        let start = offset - offset % self.page;
        let len = self.window_bytes.max((need - start).next_multiple_of(self.page)).min(self.size - start);
        let failed =
            |error| CaptureReadError::Map { file: self.name.clone(), offset: start, len: Bytes(len), error };
        let bytes =
            usize::try_from(len).map_err(|_| failed(std::io::Error::from_raw_os_error(libc::ENOMEM)))?;
        let window = PacketWindow::of_file(&self.file, start, bytes, &self.faults).map_err(failed)?;
        window.mapping().advise(0, bytes, libc::MADV_SEQUENTIAL);
        self.window = Some(Arc::new(window));
        self.released = start;
        Ok(Extend::Ready)
    }

    /// Gives back pages far behind `offset`, so that resident memory does not grow with the file.
    ///
    /// No pages are mapped ahead: at a page fault the kernel maps the neighbouring pages that are in the page cache,
    /// which takes half of the time of MADV_POPULATE_READ.
    pub(crate) fn release_behind(&mut self, offset: u64) {
        let Some(window) = &self.window else { return };
        let end = offset.saturating_sub(RELEASE_BYTES);
        if end < self.released.saturating_add(RELEASE_BYTES) {
            return;
        }
        let end = end - end % self.page;
        let index = |offset: u64| usize::try_from(offset - window.file_offset()).unwrap_or(usize::MAX);
        let (from, end_index) = (index(self.released), index(end));
        window.mapping().advise(from, end_index.saturating_sub(from), libc::MADV_DONTNEED);
        self.released = end;
    }

    /// Checks for bytes that the file has lost since it was opened. Returns the offset of the first one.
    pub(crate) fn check_lost(&mut self) -> Option<u64> {
        let now = self.file.metadata().map_or(u64::MAX, |metadata| metadata.len());
        let end = now.min(self.faults.lowest().unwrap_or(u64::MAX));
        if end < self.size {
            self.size = end;
            self.lost = true;
        }
        self.lost.then_some(self.size)
    }

    /// The offset in the file of a packet's end, for a packet of the present window.
    pub(crate) fn packet_end(&self, descriptor: &Descriptor) -> u64 {
        let start = self.window.as_ref().map_or(0, |window| window.file_offset());
        let distance = u64::from(descriptor.data.saturating_sub(ARENA_BASE));
        start.saturating_add(distance).saturating_add(u64::from(descriptor.cap_len))
    }
}
