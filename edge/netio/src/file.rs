//! A capture file that is its own arena.

use crate::error::{CaptureReadError, SourceName};
use crate::faults::Faults;
use crate::memory::page_bytes;
use crate::totals::{EndReason, Truncation};
use crate::view::BytesView;
use crate::window::PacketWindow;
use std::fs::File;
use std::sync::Arc;
use weir_abi::{ARENA_BASE, ARENA_MAX, Descriptor};
use weir_units::Bytes;

/// The most bytes of a file that are mapped at once, unless a test says otherwise.
pub(crate) const WINDOW_BYTES: u64 = 1 << 30;

/// How much is mapped in at once, ahead of the reader: one call for many pages costs less than a fault for each few.
const AHEAD: u64 = 2 << 20;

/// What became of the wish to see more of a capture.
#[derive(Debug)]
pub(crate) enum Extend {
    /// The view shows it now.
    Ready,
    /// It is in another window: end the block first.
    NewWindow,
    /// There is no room: blocks have to be dropped first.
    Full,
    /// The capture ends exactly there.
    End,
    /// The capture ends before.
    Truncated(Truncation),
}

/// A regular file, of which one window at a time is mapped.
#[derive(Debug)]
pub(crate) struct MappedFile {
    name: SourceName,
    file: Arc<File>,
    /// As it was when it was opened, or less where the file has been cut since.
    size: u64,
    lost: bool,
    window_bytes: u64,
    page: u64,
    window: Option<Arc<PacketWindow>>,
    /// Offset up to which pages are mapped in.
    populated: u64,
    faults: Arc<Faults>,
}

impl MappedFile {
    pub(crate) fn new(name: SourceName, file: File, size: u64, window: Bytes) -> Self {
        let page = page_bytes();
        Self {
            name,
            file: Arc::new(file),
            size,
            lost: false,
            window_bytes: window.0.clamp(page, u64::from(ARENA_MAX) / 2).next_multiple_of(page),
            page,
            window: None,
            populated: 0,
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

    /// What is mapped now.
    pub(crate) fn view(&self) -> BytesView<'_> {
        match &self.window {
            Some(window) => {
                let start = window.file_offset();
                let end = start.saturating_add(window.len().0).min(self.size.max(start));
                // SAFETY: the window's mapping is as long as the window, lives as long as `self.window`, which `self` being
                // borrowed keeps, and is watched for lost pages.
                unsafe { BytesView::new(window.mapping().base().as_ptr(), start, end, ARENA_BASE) }
            }
            // SAFETY: no bytes at all.
            None => unsafe { BytesView::new(std::ptr::null(), 0, 0, ARENA_BASE) },
        }
    }

    /// Makes `offset..need` visible. Without `may_move`, only inside the present window.
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
        if self.view().holds(offset, need) {
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
        self.populated = start;
        Ok(Extend::Ready)
    }

    /// Maps the pages in that come next after `offset`.
    pub(crate) fn prepare(&mut self, offset: u64) {
        let Some(window) = &self.window else { return };
        if offset.saturating_add(AHEAD / 2) <= self.populated {
            return;
        }
        let from = self.populated.max(offset - offset % self.page);
        let distance = usize::try_from(from.saturating_sub(window.file_offset())).unwrap_or(usize::MAX);
        window.mapping().advise(
            distance,
            usize::try_from(AHEAD).unwrap_or(usize::MAX),
            libc::MADV_POPULATE_READ,
        );
        self.populated = from.saturating_add(AHEAD);
    }

    /// Looks whether the file has lost bytes since it was opened: the offset from which on, if so.
    pub(crate) fn lost_from(&mut self) -> Option<u64> {
        let now = self.file.metadata().map_or(u64::MAX, |metadata| metadata.len());
        let end = now.min(self.faults.lowest().unwrap_or(u64::MAX));
        if end < self.size {
            self.size = end;
            self.lost = true;
        }
        self.lost.then_some(self.size)
    }

    /// Where in the file a packet of the present window ends.
    pub(crate) fn packet_end(&self, descriptor: &Descriptor) -> u64 {
        let start = self.window.as_ref().map_or(0, |window| window.file_offset());
        let distance = u64::from(descriptor.data.saturating_sub(ARENA_BASE));
        start.saturating_add(distance).saturating_add(u64::from(descriptor.cap_len))
    }
}
