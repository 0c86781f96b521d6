//! An open capture, and how its packets get into blocks.

use crate::arena::Hold;
use crate::block::Block;
use crate::error::{CaptureReadError, SourceName};
use crate::file::{Extend, MappedFile};
use crate::format::AnyFormat;
use crate::reader::{FillPause, Filling, LARGE_RECORD, PacketReader};
use crate::ring::DescriptorRing;
use crate::stream::CaptureStream;
use crate::totals::{EndReason, PacketCounts, Totals, Truncation};
use crate::window::PacketWindow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_units::Bytes;

/// What [`Capture::next_block`] finds.
#[derive(Debug)]
pub enum CaptureNext {
    /// Packets.
    Block(Block),
    /// All room is taken by blocks in use: drop some first. Never said while there are none.
    Full,
    /// There are no more packets. [`Capture::totals`] says whether that is the capture's end, or it is truncated.
    End,
}

/// How far a capture has been read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureProgress {
    /// Bytes read; of a compressed capture, compressed ones.
    pub done: Bytes,
    /// Bytes there are; unknown for a pipe.
    pub total: Option<Bytes>,
}

/// An open capture.
#[derive(Debug)]
pub struct Capture {
    pub(crate) name: SourceName,
    pub(crate) format: AnyFormat,
    pub(crate) source: CaptureSource,
    pub(crate) total: Option<Bytes>,
    /// Device and inode number of a file.
    pub(crate) identity: Option<(u64, u64)>,
    /// Of a pipe: set where its rest was left unread, because the program was interrupted.
    pub(crate) pipe: Option<Arc<AtomicBool>>,
    pub(crate) ring: DescriptorRing,
    /// Offset of the next record.
    pub(crate) offset: u64,
    /// Where the last record began that was passed over: that is where a capture is cut whose end is inside it.
    pub(crate) skipped: u64,
    pub(crate) blocks: u64,
    pub(crate) counts: PacketCounts,
    pub(crate) filling: Option<Filling<Hold>>,
    pub(crate) ended: bool,
    pub(crate) truncated: Option<Truncation>,
    pub(crate) error: Option<CaptureReadError>,
}

/// Where its bytes are.
#[derive(Debug)]
pub(crate) enum CaptureSource {
    File(MappedFile),
    Stream(CaptureStream),
}

impl Capture {
    /// What messages call it.
    pub fn name(&self) -> &SourceName {
        &self.name
    }

    /// Whether `path` is the very file that this capture is read from.
    pub fn reads(&self, path: &Path) -> bool {
        let Ok(there) = std::fs::metadata(path) else { return false };
        there.is_file() && self.identity == Some((there.dev(), there.ino()))
    }

    /// Returns true for a pipe, FIFO, socket or device: its bytes come when its writer gives them.
    pub fn is_pipe(&self) -> bool {
        self.pipe.is_some()
    }

    /// Returns true where the rest of a pipe was left unread, because the program was interrupted.
    pub fn is_cut(&self) -> bool {
        self.pipe.as_ref().is_some_and(|cut| cut.load(Ordering::Relaxed))
    }

    /// Where the descriptors of all blocks are.
    pub fn descriptors(&self) -> &DescriptorRing {
        &self.ring
    }

    /// How far it has been read.
    pub fn progress(&self) -> CaptureProgress {
        let done = match &self.source {
            CaptureSource::File(file) => self.offset.min(file.size()),
            CaptureSource::Stream(stream) => stream.done(),
        };
        CaptureProgress { done: Bytes(done), total: self.total }
    }

    /// What it held, up to the last block that was handed out. It can become truncated later: a mapped file can lose pages
    /// for as long as its blocks are in use, so ask again when they are done.
    pub fn totals(&self) -> Totals {
        let lost = match &self.source {
            CaptureSource::File(file) => file.faults().lowest(),
            CaptureSource::Stream(_) => None,
        };
        let lost = lost.map(|offset| Truncation { offset, reason: EndReason::Lost });
        let truncated = match (self.truncated.clone(), lost) {
            (Some(ours), Some(lost)) => Some(if lost.offset < ours.offset { lost } else { ours }),
            (ours, lost) => ours.or(lost),
        };
        // Packets in a block that is still being filled are not counted yet.
        let counts = self.filling.as_ref().map_or(&self.counts, |filling| &filling.before);
        counts.totals(self.format.interfaces(), truncated)
    }

    /// Reads on.
    ///
    /// # Errors
    ///
    /// [`CaptureReadError`], once; afterwards the capture is at its end.
    pub fn next_block(&mut self) -> Result<CaptureNext, CaptureReadError> {
        if self.filling.is_none() && !self.ended {
            let Some(slot) = self.ring.take() else { return Ok(CaptureNext::Full) };
            self.filling = Some(Filling::new(slot, Hold::default(), self.counts));
        }
        if !self.fill_block() {
            return Ok(CaptureNext::Full);
        }
        let filled = self.filling.take().and_then(|filling| self.finish(filling));
        match (filled, self.error.take()) {
            (Some(block), error) => {
                self.error = error;
                Ok(CaptureNext::Block(block))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Ok(CaptureNext::End),
        }
    }

    /// Reads until the present block is complete, or the capture has ended; false where the arena has no room.
    fn fill_block(&mut self) -> bool {
        while !self.ended {
            let Some(filling) = &mut self.filling else { return true };
            if let CaptureSource::File(file) = &mut self.source {
                file.prepare(self.offset);
            }
            let count = filling.count;
            let view = match &self.source {
                CaptureSource::File(file) => file.view(),
                CaptureSource::Stream(stream) => stream.view(),
            };
            let mut reader = PacketReader {
                view,
                offset: self.offset,
                skipped: self.skipped,
                counts: self.counts,
                filling,
            };
            let stop = match &mut self.format {
                AnyFormat::LittlePcap(format) => reader.read(format),
                AnyFormat::BigPcap(format) => reader.read(format),
                AnyFormat::Pcapng(format) => reader.read(format),
            };
            let PacketReader { offset, skipped, counts, .. } = reader;
            (self.offset, self.skipped, self.counts) = (offset, skipped, counts);
            if let (CaptureSource::Stream(stream), true) = (&self.source, filling.count > count) {
                stream.hold(&mut filling.hold);
            }
            let (empty, large) = (filling.count == 0, LARGE_RECORD);
            match stop {
                FillPause::BlockFull => return true,
                FillPause::Corrupt(reason) => {
                    self.ended = true;
                    self.truncated = Some(Truncation { offset, reason });
                }
                FillPause::LinkType { unknown, interface } => {
                    self.ended = true;
                    let packet = self.counts.packets.saturating_add(1);
                    let file = self.name.clone();
                    self.error =
                        Some(CaptureReadError::LinkType { file, unknown, interface, packet, offset });
                }
                FillPause::More(need) if !empty && need.saturating_sub(offset) > large => return true,
                FillPause::More(need) => {
                    let extended = match &mut self.source {
                        CaptureSource::File(file) => file.extend(offset, need, empty),
                        CaptureSource::Stream(stream) => stream.extend(offset, need),
                    };
                    match extended {
                        Ok(Extend::Ready) => {}
                        Ok(Extend::NewWindow) => return true,
                        Ok(Extend::Full) => return false,
                        Ok(Extend::End) => self.ended = true,
                        Ok(Extend::Truncated(truncation)) => {
                            self.ended = true;
                            let offset = if self.beyond_end(offset) { self.skipped } else { offset };
                            self.truncated = Some(Truncation { offset, ..truncation });
                        }
                        Err(error) => {
                            self.ended = true;
                            self.error = Some(error);
                        }
                    }
                }
            }
        }
        true
    }

    /// Whether the record at `offset` would begin after the end of the capture.
    fn beyond_end(&self, offset: u64) -> bool {
        match &self.source {
            CaptureSource::File(file) => offset > file.size(),
            CaptureSource::Stream(stream) => offset > stream.view().end(),
        }
    }

    /// Makes a block of it, unless it is empty.
    fn finish(&mut self, mut filling: Filling<Hold>) -> Option<Block> {
        if let CaptureSource::File(file) = &mut self.source
            && let Some(end) = file.lost_from()
            && end < self.offset
        {
            // What was read beyond the file's new end were zeros, or may have been.
            let descriptors = filling.slot.descriptors(0, filling.count);
            let kept = descriptors.iter().take_while(|d| file.packet_end(d) <= end).count();
            self.counts = filling.before;
            descriptors[..kept].iter().for_each(|descriptor| self.counts.add(descriptor));
            filling.count = kept;
            self.ended = true;
            self.error = None;
            self.truncated = Some(Truncation { offset: end, reason: EndReason::Lost });
        }
        let window: &Arc<PacketWindow> = match &self.source {
            CaptureSource::File(file) => file.window()?,
            CaptureSource::Stream(stream) => stream.window(),
        };
        let block = filling.into_block(window, self.blocks)?;
        self.blocks += 1;
        Some(block)
    }
}
