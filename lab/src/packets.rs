//! Packets and their descriptors in memory files, for many rounds by sandboxes and native code alike.

use crate::error::{Doing, LabError};
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

/// A classified capture. As in a run, modules see the descriptors of one block at a time, which have just been written.
#[derive(Debug)]
pub struct Packets {
    path: PathBuf,
    /// The descriptors of all packets.
    all: Vec<u8>,
    /// The descriptors of a block, which modules see.
    descriptors: File,
    block_bytes: usize,
    capture: File,
    capture_len: usize,
    batches: Vec<Ready>,
}

/// A batch and when it ends.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The arguments of a call.
    pub batch: BatchInput,
    /// The latest time stamp up to its end.
    pub latest: Timestamp,
}

/// A call of `weir_tick`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tick {
    /// The batch that it comes before.
    pub before: usize,
    /// The packet time, a multiple of the period.
    pub now: Timestamp,
    /// Periods since the last one.
    pub periods: u64,
}

impl Packets {
    /// Reads a capture file through [`weir_netio`]: as many of its first packets as one window shows, at most `most`.
    pub fn read(path: &Path, most: usize) -> Result<Self, LabError> {
        Self::read_spread(path, most, DESCRIPTOR_BYTES)
    }

    /// The same, with a descriptor at each multiple of `size` bytes: as much of it as there is room for, and zeros behind it. The addresses in
    /// [batches](Self::batches) are those of descriptors without room between them.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_spread(path: &Path, most: usize, size: usize) -> Result<Self, LabError> {
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
            return Err(unusable("the benchmark needs a plain pcap or pcapng file, not a compressed one"));
        }
        let batches = batches(&all);
        let block_bytes = BLOCK_PACKETS * size;
        let folder = std::env::temp_dir();
        let descriptors = in_memory().map_err(LabError::file(&folder))?;
        descriptors.set_len(u64::try_from(block_bytes).unwrap_or(0)).map_err(LabError::file(&folder))?;
        let (path, all) = (path.to_owned(), spread(native::bytes_of(&all), size));
        Ok(Self { path, all, descriptors, block_bytes, capture: file, capture_len, batches })
    }

    /// The capture's file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Room for the descriptors of a block.
    pub fn descriptors(&self) -> Area<'_> {
        Area { fd: self.descriptors.as_fd(), offset: 0, len: self.block_bytes }
    }

    /// Writes the descriptors of a block, by its number, into that room.
    pub fn show(&self, block: usize) -> Result<(), LabError> {
        let from = (block * self.block_bytes).min(self.all.len());
        let to = (from + self.block_bytes).min(self.all.len());
        self.descriptors.write_all_at(&self.all[from..to], 0).map_err(LabError::file(&self.path))
    }

    /// The capture file.
    pub fn capture(&self) -> Area<'_> {
        Area { fd: self.capture.as_fd(), offset: 0, len: self.capture_len }
    }

    /// The first batches, with at least `packets` packets if there are so many.
    pub fn first(&self, packets: usize) -> &[Ready] {
        &self.batches[..packets.div_ceil(BATCH_PACKETS).min(self.batches.len())]
    }

    /// All batches.
    pub fn batches(&self) -> &[Ready] {
        &self.batches
    }
}

/// Descriptors at multiples of `size` bytes.
fn spread(descriptors: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(descriptors.len() / DESCRIPTOR_BYTES * size);
    for descriptor in descriptors.chunks(DESCRIPTOR_BYTES) {
        bytes.extend(descriptor.iter().take(size));
        bytes.resize(bytes.len().next_multiple_of(size), 0);
    }
    bytes
}

/// The number of packets of these batches.
pub fn packets_of(batches: &[Ready]) -> u64 {
    batches.iter().map(|ready| u64::from(ready.batch.mask.count_ones())).sum()
}

/// The calls of `weir_tick` for a module with this period: before the first batch after each multiple of it.
pub fn ticks(batches: &[Ready], period: Option<Nanos>) -> Vec<Tick> {
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

fn batches(all: &[Descriptor]) -> Vec<Ready> {
    let mut latest = 0;
    all.chunks(BATCH_PACKETS)
        .enumerate()
        .map(|(i, chunk)| {
            latest = chunk.iter().map(|d| d.ts_ns).fold(latest, u64::max);
            let offset = u32::try_from(i % BLOCK_BATCHES * BATCH_BYTES).unwrap_or(u32::MAX);
            let mask = u64::MAX >> (BATCH_PACKETS - chunk.len());
            let first = u32::try_from(i * BATCH_PACKETS).unwrap_or(u32::MAX);
            let batch = BatchInput { descriptors: DESCRIPTORS_BASE.saturating_add(offset), mask, first };
            Ready { batch, latest: Timestamp(latest) }
        })
        .collect()
}

/// A file with a batch of empty descriptors.
pub(crate) fn blank_batch() -> Result<File, LabError> {
    let file = in_memory().doing("a file of descriptors")?;
    file.write_all_at(native::bytes_of(&[Descriptor::default(); BATCH_PACKETS]), 0).doing("descriptors")?;
    Ok(file)
}

/// A file without a name, in memory where there is such a file system.
pub(crate) fn in_memory() -> std::io::Result<File> {
    tempfile::tempfile_in("/dev/shm").or_else(|_| tempfile::tempfile())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(times: &[u64]) -> Vec<Ready> {
        let batch = BatchInput { descriptors: 0, mask: 1, first: 0 };
        times.iter().map(|t| Ready { batch, latest: Timestamp(*t) }).collect()
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
