//! Reading of an open capture, block by block.

use crate::arena::Hold;
use crate::block::Block;
use crate::error::{CaptureReadError, SourceName};
use crate::file::{Extend, MappedFile};
use crate::format::AnyFormat;
use crate::merge::MergeState;
use crate::pipe::PipeLull;
use crate::read_ahead::AheadReader;
use crate::reader::{FillPause, LARGE_RECORD, PacketReader, UnfinishedBlock};
use crate::ring::DescriptorRing;
use crate::stream::CaptureStream;
use crate::totals::{CaptureInterface, EndReason, PacketCounts, Totals, Truncation};
use crate::window::PacketWindow;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_units::Bytes;

/// The result of [`Capture::next_block`].
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a block is moved once for up to 1,024 packets; a box would be allocated for each"
)]
pub enum CaptureNext {
    /// A block of packets.
    Block(Block),
    /// Blocks in use hold all memory, so the caller has to drop some of them first. Never returned if no block is in
    /// use.
    Full,
    /// The end of the packets. [`Capture::totals`] tells whether the capture is complete or truncated.
    End,
}

/// The progress of reading a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureProgress {
    /// Bytes read; for a compressed capture, compressed bytes.
    pub done: Bytes,
    /// All bytes of the capture, of which `done` are read; `None` for a pipe.
    pub total: Option<Bytes>,
}

/// An open capture.
#[derive(Debug)]
pub struct Capture {
    pub(crate) name: SourceName,
    pub(crate) format: AnyFormat,
    pub(crate) source: CaptureSource,
    pub(crate) total: Option<Bytes>,
    /// The device and inode number of each file that is read.
    pub(crate) identities: Vec<(u64, u64)>,
    /// The captures that are merged, if there are several.
    pub(crate) merge: Option<Arc<MergeState>>,
    /// For a pipe: true once the rest of the pipe was left unread because the program was interrupted.
    pub(crate) pipe_cut: Option<Arc<AtomicBool>>,
    /// For a pipe: shows that no bytes arrive.
    pub(crate) pipe_lull: Option<PipeLull>,
    pub(crate) ring: DescriptorRing,
    /// The offset of the next record.
    pub(crate) offset: u64,
    /// The offset of the last skipped record. If the capture ends inside it, the capture is truncated there.
    pub(crate) skipped: u64,
    /// The number of blocks returned so far.
    pub(crate) blocks: u64,
    pub(crate) counts: PacketCounts,
    pub(crate) filling: Option<UnfinishedBlock<Hold>>,
    /// Descriptors tell nothing about headers.
    pub(crate) skips_headers: bool,
    pub(crate) ended: bool,
    pub(crate) truncated: Option<Truncation>,
    pub(crate) error: Option<CaptureReadError>,
}

/// The source of a capture's bytes.
#[derive(Debug)]
pub(crate) enum CaptureSource {
    File(MappedFile),
    Stream(CaptureStream),
}

impl Capture {
    /// The name of the capture for messages.
    pub fn name(&self) -> &SourceName {
        &self.name
    }

    /// Returns true if `path` is the file that this capture is read from.
    pub fn reads(&self, path: &Path) -> bool {
        let Ok(metadata) = std::fs::metadata(path) else { return false };
        metadata.is_file() && self.identities.contains(&(metadata.dev(), metadata.ino()))
    }

    /// Returns true for a pipe, FIFO, socket or device, whose bytes arrive as its writer sends them.
    pub fn is_pipe(&self) -> bool {
        self.pipe_cut.is_some()
    }

    /// Returns true if the rest of a pipe was left unread because the program was interrupted.
    pub fn is_cut(&self) -> bool {
        self.pipe_cut.as_ref().is_some_and(|cut| cut.load(Ordering::Relaxed))
    }

    /// A reader that reads ahead; `None` unless the capture was opened with [`ReadAheadMode`](crate::ReadAheadMode), and is
    /// copied or decompressed.
    pub fn ahead_reader(&self) -> Option<AheadReader> {
        match &self.source {
            CaptureSource::File(_) => None,
            CaptureSource::Stream(stream) => stream.ahead_reader(),
        }
    }

    /// The ring of descriptors that all blocks share.
    pub fn descriptors(&self) -> &DescriptorRing {
        &self.ring
    }

    /// The progress so far.
    pub fn progress(&self) -> CaptureProgress {
        if let Some(merge) = &self.merge {
            return CaptureProgress {
                done: Bytes(merge.bytes_read.load(Ordering::Relaxed)),
                total: self.total,
            };
        }
        let done = match &self.source {
            CaptureSource::File(file) => self.offset.min(file.size()),
            CaptureSource::Stream(stream) => stream.source_bytes_read(),
        };
        CaptureProgress { done: Bytes(done), total: self.total }
    }

    /// The totals up to the last block returned. Call this again once all blocks are dropped: a mapped file can lose
    /// pages while blocks are in use, and the capture then counts as truncated.
    pub fn totals(&self) -> Totals {
        let lost = match &self.source {
            CaptureSource::File(file) => file.faults().lowest(),
            CaptureSource::Stream(_) => None,
        };
        let lost = lost.map(|offset| Truncation { offset, reason: EndReason::Lost });
        let truncated = match (self.truncated.clone(), lost) {
            (Some(found), Some(lost)) => Some(if lost.offset < found.offset { lost } else { found }),
            (found, lost) => found.or(lost),
        };
        // Packets of a block that is still being filled do not count yet.
        let counts = self.filling.as_ref().map_or(&self.counts, |filling| &filling.before);
        let seen = self.format.interfaces();
        // The stream of a merge describes its interfaces in this order.
        let planned = self.merge.as_ref().map_or(&[][..], |merge| merge.interfaces());
        counts.totals(if planned.len() > seen.len() { planned } else { seen }, truncated)
    }

    /// Returns the truncated captures of a merge, each with the place and the reason of its truncation.
    pub fn truncated_inputs(&self) -> Vec<String> {
        self.merge.as_ref().map_or_else(Vec::new, |merge| merge.truncated())
    }

    /// Returns an interface by its number.
    pub(crate) fn totals_interface(&self, number: usize) -> Option<CaptureInterface> {
        self.format.interfaces().get(number).copied()
    }

    /// Has the descriptors of further packets tell nothing about headers, but only what the records state: for callers that
    /// look at the bytes themselves. Packets are then not read at all.
    #[must_use]
    pub fn without_headers(mut self) -> Self {
        self.skips_headers = true;
        self
    }

    /// Reads the next block.
    ///
    /// # Errors
    ///
    /// [`CaptureReadError`] if reading cannot continue. After that the capture is at its end.
    pub fn next_block(&mut self) -> Result<CaptureNext, CaptureReadError> {
        if self.filling.is_none() && !self.ended {
            let Some(slot) = self.ring.take() else { return Ok(CaptureNext::Full) };
            self.filling = Some(UnfinishedBlock::new(slot, Hold::default(), self.counts));
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
            (None, None) => match self.merge.as_ref().and_then(|merge| merge.take_error()) {
                Some(error) => Err(error),
                None => Ok(CaptureNext::End),
            },
        }
    }

    /// Fills the present block, or reaches the end of the capture. Returns false if the arena is full.
    fn fill_block(&mut self) -> bool {
        while !self.ended {
            let Some(filling) = &mut self.filling else { return true };
            if let CaptureSource::File(file) = &mut self.source {
                file.release_behind(self.offset);
            }
            let count = filling.count;
            let mapped = match &self.source {
                CaptureSource::File(file) => file.mapped(),
                CaptureSource::Stream(stream) => stream.mapped(),
            };
            let mut reader = PacketReader {
                mapped,
                offset: self.offset,
                skipped: self.skipped,
                counts: self.counts,
                filling,
            };
            let stop = match (&mut self.format, self.skips_headers) {
                (AnyFormat::LittlePcap(format), false) => reader.read::<_, true>(format),
                (AnyFormat::BigPcap(format), false) => reader.read::<_, true>(format),
                (AnyFormat::Pcapng(format), false) => reader.read::<_, true>(format),
                (AnyFormat::LittlePcap(format), true) => reader.read::<_, false>(format),
                (AnyFormat::BigPcap(format), true) => reader.read::<_, false>(format),
                (AnyFormat::Pcapng(format), true) => reader.read::<_, false>(format),
            };
            let PacketReader { offset, skipped, counts, .. } = reader;
            (self.offset, self.skipped, self.counts) = (offset, skipped, counts);
            if let (CaptureSource::Stream(stream), true) = (&self.source, filling.count > count) {
                stream.hold(&mut filling.hold);
            }
            let is_empty = filling.count == 0;
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
                FillPause::More(need) if !is_empty && need.saturating_sub(offset) > LARGE_RECORD => {
                    return true;
                }
                // The packets so far must not wait for those that fill the block.
                FillPause::More(_) if !is_empty && self.pipe_lull.as_ref().is_some_and(PipeLull::is_now) => {
                    return true;
                }
                FillPause::More(need) => {
                    let extended = match &mut self.source {
                        CaptureSource::File(file) => file.extend(offset, need, is_empty),
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

    /// Returns true if a record at `offset` would begin after the end of the capture.
    fn beyond_end(&self, offset: u64) -> bool {
        match &self.source {
            CaptureSource::File(file) => offset > file.size(),
            CaptureSource::Stream(stream) => offset > stream.mapped().end(),
        }
    }

    /// Turns `filling` into a block, unless it is empty.
    fn finish(&mut self, mut filling: UnfinishedBlock<Hold>) -> Option<Block> {
        if let CaptureSource::File(file) = &mut self.source
            && let Some(end) = file.check_lost()
            && end < self.offset
        {
            // The file has lost its bytes from `end` on, so they may have been read as zeros. Packets with such bytes are left out.
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
