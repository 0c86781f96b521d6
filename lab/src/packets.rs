//! Packets and their descriptors in memory files, which sandboxes and native builds map.

use crate::error::{Context, LabError};
use crate::native;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use weir_abi::{BATCH_BYTES, BATCH_PACKETS, DESCRIPTOR_BYTES, DESCRIPTORS_BASE, DESCRIPTORS_MAX, Descriptor};
use weir_netio::{BLOCK_PACKETS, Capture, CaptureInput, CaptureNext};
use weir_sandbox::{Area, BatchInput};
use weir_units::{Nanos, Timestamp};

/// The most packets in memory.
const PACKETS_MAX: usize = DESCRIPTORS_MAX as usize / DESCRIPTOR_BYTES;
/// Batches of a block.
pub const BLOCK_BATCHES: usize = BLOCK_PACKETS / BATCH_PACKETS;
const BLOCK_BYTES: usize = BLOCK_PACKETS * DESCRIPTOR_BYTES;

/// A classified capture. As in a run, modules see the descriptors of one block at a time, just after they were written.
#[derive(Debug)]
pub struct Packets {
    path: PathBuf,
    /// The descriptors of all packets.
    all: Vec<u8>,
    /// The descriptors of the current block, which modules see.
    descriptors: File,
    capture: File,
    capture_len: usize,
    batches: Vec<ReadyBatch>,
}

/// A batch of packets.
#[derive(Clone, Copy, Debug)]
pub struct ReadyBatch {
    /// The arguments of a call.
    pub batch: BatchInput,
    /// The latest time stamp of the packets up to its end.
    pub latest: Timestamp,
}

/// A call of `weir_tick`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The index of the batch that it precedes.
    pub before: usize,
    /// The packet time, a multiple of the period.
    pub now: Timestamp,
    /// Periods since the last one.
    pub periods: u64,
}

impl Packets {
    /// Reads the first packets of a capture file through [`weir_netio`]: those of its first window, at most `most`.
    pub fn read(path: &Path, most: usize) -> Result<Self, LabError> {
        let mut capture = Capture::open(CaptureInput::File(path.to_owned()))?;
        let mut window: Option<(u64, u64, usize)> = None;
        let mut all: Vec<Descriptor> = Vec::new();
        while let CaptureNext::Block(block) = capture.next_block()? {
            let here = block.window();
            let len = usize::try_from(here.len().0).unwrap_or(usize::MAX);
            let (id, ..) = *window.get_or_insert((here.id(), here.file_offset(), len));
            if id != here.id() || all.len() >= most.min(PACKETS_MAX) {
                break;
            }
            all.extend_from_slice(block.descriptors());
        }
        all.truncate(most.min(PACKETS_MAX));
        let file = File::open(path).map_err(LabError::file(path))?;
        let file_len = file.metadata().map_err(LabError::file(path))?.len();
        let unusable = |why: &str| LabError::failed(path.display(), why);
        let Some((_, offset, capture_len)) = window else { return Err(unusable("it has no packets")) };
        if offset != 0 || u64::try_from(capture_len).unwrap_or(u64::MAX) > file_len.next_multiple_of(4096) {
            return Err(unusable("the benchmark needs an uncompressed pcap or pcapng file"));
        }
        let batches = batches(&all);
        let folder = std::env::temp_dir();
        let descriptors = in_memory().map_err(LabError::file(&folder))?;
        descriptors.set_len(u64::try_from(BLOCK_BYTES).unwrap_or(0)).map_err(LabError::file(&folder))?;
        let (path, all) = (path.to_owned(), native::bytes_of(&all).to_vec());
        Ok(Self { path, all, descriptors, capture: file, capture_len, batches })
    }

    /// The capture's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The memory for the descriptors of a block.
    pub fn descriptors(&self) -> Area<'_> {
        Area { fd: self.descriptors.as_fd(), offset: 0, len: BLOCK_BYTES }
    }

    /// Writes the descriptors of the block with this index into that memory.
    pub fn show(&self, block: usize) -> Result<(), LabError> {
        let from = (block * BLOCK_BYTES).min(self.all.len());
        let to = (from + BLOCK_BYTES).min(self.all.len());
        self.descriptors.write_all_at(&self.all[from..to], 0).map_err(LabError::file(&self.path))
    }

    /// The capture file.
    pub fn capture(&self) -> Area<'_> {
        Area { fd: self.capture.as_fd(), offset: 0, len: self.capture_len }
    }

    /// The first batches, with at least `packets` packets if the capture has as many.
    pub fn first(&self, packets: usize) -> &[ReadyBatch] {
        &self.batches[..packets.div_ceil(BATCH_PACKETS).min(self.batches.len())]
    }

    /// All batches.
    pub fn batches(&self) -> &[ReadyBatch] {
        &self.batches
    }
}

/// Copies of the first packets of a capture, with their descriptors.
pub(crate) fn copies(path: &Path, most: usize) -> Result<Vec<(Vec<u8>, Descriptor)>, LabError> {
    let mut capture = Capture::open(CaptureInput::File(path.to_owned()))?;
    let mut packets = Vec::new();
    while packets.len() < most
        && let CaptureNext::Block(block) = capture.next_block()?
    {
        for (index, descriptor) in block.descriptors().iter().enumerate().take(most - packets.len()) {
            let mut packet = Vec::new();
            block.copy_packet(index, &mut packet);
            packets.push((packet, *descriptor));
        }
    }
    Ok(packets)
}

/// The number of packets of these batches.
pub fn packets_of(batches: &[ReadyBatch]) -> u64 {
    batches.iter().map(|ready| u64::from(ready.batch.mask.count_ones())).sum()
}

/// The calls of `weir_tick` for a module with this period: one before the first batch after each multiple of the period.
pub fn ticks(batches: &[ReadyBatch], period: Option<Nanos>) -> Vec<Tick> {
    let Some(Nanos(period)) = period.filter(|period| period.0 > 0) else { return Vec::new() };
    let mut ticks = Vec::new();
    let mut last: Option<u64> = None;
    for (i, ready) in batches.iter().enumerate() {
        let whole = ready.latest.0 / period;
        match last {
            Some(before) if whole > before => {
                ticks.push(Tick { before: i + 1, now: Timestamp(whole * period), periods: whole - before });
                last = Some(whole);
            }
            Some(_) => {}
            None => last = Some(whole),
        }
    }
    ticks
}

fn batches(all: &[Descriptor]) -> Vec<ReadyBatch> {
    let mut latest = 0;
    all.chunks(BATCH_PACKETS)
        .enumerate()
        .map(|(i, chunk)| {
            latest = chunk.iter().map(|d| d.ts_ns).fold(latest, u64::max);
            let offset = u32::try_from(i % BLOCK_BATCHES * BATCH_BYTES).unwrap_or(u32::MAX);
            let mask = u64::MAX >> (BATCH_PACKETS - chunk.len());
            let first = u32::try_from(i * BATCH_PACKETS).unwrap_or(u32::MAX);
            let batch = BatchInput { descriptors: DESCRIPTORS_BASE.saturating_add(offset), mask, first };
            ReadyBatch { batch, latest: Timestamp(latest) }
        })
        .collect()
}

/// A file with the descriptors of one batch, all zero.
pub(crate) fn blank_batch() -> Result<File, LabError> {
    let file = in_memory().context("a file of descriptors")?;
    file.write_all_at(native::bytes_of(&[Descriptor::default(); BATCH_PACKETS]), 0).context("descriptors")?;
    Ok(file)
}

/// A file without a name, in memory if /dev/shm exists.
pub(crate) fn in_memory() -> std::io::Result<File> {
    tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(times: &[u64]) -> Vec<ReadyBatch> {
        let batch = BatchInput { descriptors: 0, mask: 1, first: 0 };
        times.iter().map(|t| ReadyBatch { batch, latest: Timestamp(*t) }).collect()
    }

    #[test]
    fn a_tick_comes_after_the_batch_in_which_its_time_passed_and_counts_the_periods() {
        let ticks = ticks(&at(&[95, 99, 101, 105, 350]), Some(Nanos(100)));
        let expected = [(3, 100, 1), (5, 300, 2)];
        let got: Vec<_> = ticks.iter().map(|t| (t.before, t.now.0, t.periods)).collect();
        assert_eq!(got, expected);
        assert_eq!(super::ticks(&at(&[1, 1000]), None), []);
    }
}
