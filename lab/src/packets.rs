//! The packets of a measurement, and their descriptors in memory files, which sandboxes and native builds map.

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

/// The most packets that a [`Packets`] holds.
const PACKETS_MAX: usize = DESCRIPTORS_MAX as usize / DESCRIPTOR_BYTES;
/// Batches of a block.
pub const BLOCK_BATCHES: usize = BLOCK_PACKETS / BATCH_PACKETS;
const BLOCK_BYTES: usize = BLOCK_PACKETS * DESCRIPTOR_BYTES;

/// A classified capture. As in `weir run`, modules see the descriptors of one block at a time, which were written just
/// before.
#[derive(Debug)]
pub struct Packets {
    path: PathBuf,
    /// The descriptors of all packets, as bytes.
    all_descriptors: Vec<u8>,
    /// The memory file that modules map, with the descriptors of the current block.
    block_descriptors: File,
    capture: File,
    capture_len: usize,
    batches: Vec<ReadyBatch>,
}

/// A batch of packets that is ready for a call.
#[derive(Clone, Copy, Debug)]
pub struct ReadyBatch {
    /// The arguments of the call.
    pub batch: BatchInput,
    /// The latest time stamp of all packets up to the end of this batch.
    pub latest: Timestamp,
}

/// A call of `weir_tick`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The index of the batch before which the call is made.
    pub before: usize,
    /// The packet time of the call, a multiple of the period.
    pub now: Timestamp,
    /// The number of periods since the last call.
    pub periods: u64,
}

impl Packets {
    /// Reads the first packets of a capture file through [`weir_netio`]: those of its first window, at most `packets_max`.
    pub fn read(path: &Path, packets_max: usize) -> Result<Self, LabError> {
        let mut capture = Capture::open(CaptureInput::File(path.to_owned()))?;
        let mut window: Option<(u64, u64, usize)> = None;
        let mut all: Vec<Descriptor> = Vec::new();
        while let CaptureNext::Block(block) = capture.next_block()? {
            let here = block.window();
            let len = usize::try_from(here.len().0).unwrap_or(usize::MAX);
            let (id, ..) = *window.get_or_insert((here.id(), here.file_offset(), len));
            if id != here.id() || all.len() >= packets_max.min(PACKETS_MAX) {
                break;
            }
            all.extend_from_slice(block.descriptors());
        }
        all.truncate(packets_max.min(PACKETS_MAX));
        let file = File::open(path).map_err(LabError::file(path))?;
        let file_len = file.metadata().map_err(LabError::file(path))?.len();
        let unusable = |why: &str| LabError::failed(path.display(), why);
        let Some((_, offset, capture_len)) = window else {
            return Err(unusable("the capture has no packets"));
        };
        if offset != 0 || u64::try_from(capture_len).unwrap_or(u64::MAX) > file_len.next_multiple_of(4096) {
            return Err(unusable("the benchmark needs an uncompressed pcap or pcapng file"));
        }
        let batches = batches(&all);
        let folder = std::env::temp_dir();
        let descriptors = in_memory().map_err(LabError::file(&folder))?;
        descriptors.set_len(u64::try_from(BLOCK_BYTES).unwrap_or(0)).map_err(LabError::file(&folder))?;
        let (path, all) = (path.to_owned(), native::bytes_of(&all).to_vec());
        Ok(Self {
            path,
            all_descriptors: all,
            block_descriptors: descriptors,
            capture: file,
            capture_len,
            batches,
        })
    }

    /// The capture's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The memory with the descriptors of the current block.
    pub fn descriptors(&self) -> Area<'_> {
        Area { fd: self.block_descriptors.as_fd(), offset: 0, len: BLOCK_BYTES, is_fixed: false }
    }

    /// Makes the block with this index the current one: writes its descriptors into the memory that modules map.
    pub fn write_descriptors(&self, block: usize) -> Result<(), LabError> {
        let from = (block * BLOCK_BYTES).min(self.all_descriptors.len());
        let to = (from + BLOCK_BYTES).min(self.all_descriptors.len());
        self.block_descriptors
            .write_all_at(&self.all_descriptors[from..to], 0)
            .map_err(LabError::file(&self.path))
    }

    /// The capture file.
    pub fn capture(&self) -> Area<'_> {
        Area { fd: self.capture.as_fd(), offset: 0, len: self.capture_len, is_fixed: false }
    }

    /// The first batches: as few as contain `packets` packets, or all.
    pub fn first(&self, packets: usize) -> &[ReadyBatch] {
        &self.batches[..packets.div_ceil(BATCH_PACKETS).min(self.batches.len())]
    }

    /// All batches.
    pub fn batches(&self) -> &[ReadyBatch] {
        &self.batches
    }
}

/// Copies of the first packets of a capture, at most `packets_max`, with their descriptors.
pub(crate) fn copy_packets(path: &Path, packets_max: usize) -> Result<Vec<(Vec<u8>, Descriptor)>, LabError> {
    let mut capture = Capture::open(CaptureInput::File(path.to_owned()))?;
    let mut packets = Vec::new();
    while packets.len() < packets_max
        && let CaptureNext::Block(block) = capture.next_block()?
    {
        for (index, descriptor) in block.descriptors().iter().enumerate().take(packets_max - packets.len()) {
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

/// The calls of `weir_tick` for a module with this period: each after the batch in which packet time passed a multiple
/// of the period.
pub fn ticks(batches: &[ReadyBatch], period: Option<Nanos>) -> Vec<Tick> {
    let Some(Nanos(period)) = period.filter(|period| period.0 > 0) else { return Vec::new() };
    let mut ticks = Vec::new();
    let mut last: Option<u64> = None;
    for (i, ready) in batches.iter().enumerate() {
        let period_number = ready.latest.0 / period;
        match last {
            Some(before) if period_number > before => {
                ticks.push(Tick {
                    before: i + 1,
                    now: Timestamp(period_number * period),
                    periods: period_number - before,
                });
                last = Some(period_number);
            }
            Some(_) => {}
            None => last = Some(period_number),
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

/// A memory file with the descriptors of one batch, all zero.
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
    fn a_tick_follows_the_batch_in_which_its_time_passed_and_counts_the_periods() {
        let ticks = ticks(&at(&[95, 99, 101, 105, 350]), Some(Nanos(100)));
        let expected = [(3, 100, 1), (5, 300, 2)];
        let got: Vec<_> = ticks.iter().map(|t| (t.before, t.now.0, t.periods)).collect();
        assert_eq!(got, expected);
        assert_eq!(super::ticks(&at(&[1, 1000]), None), []);
    }
}
