//! Large captures for measurements, made by repeating a small one with shifted time stamps.

use crate::error::LabError;
use crate::paths;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

/// The length of the file header.
const FILE_HEADER: usize = 24;
/// The length of a record's header.
const RECORD_HEADER: usize = 16;

/// A classic pcap file in memory.
struct Pcap {
    bytes: Vec<u8>,
    /// The offsets of the records.
    records: Vec<usize>,
    big_endian: bool,
    /// The units per second of the fraction in time stamps: 1,000,000 or 1,000,000,000.
    units_per_second: u64,
}

impl Pcap {
    fn read(path: &Path) -> Result<Self, LabError> {
        let bytes = std::fs::read(path).map_err(LabError::file(path))?;
        let unusable = |why: &str| LabError::failed(path.display(), why);
        let (big_endian, units_per_second) = match bytes.get(..4) {
            Some([0xd4, 0xc3, 0xb2, 0xa1]) => (false, 1_000_000),
            Some([0x4d, 0x3c, 0xb2, 0xa1]) => (false, 1_000_000_000),
            Some([0xa1, 0xb2, 0xc3, 0xd4]) => (true, 1_000_000),
            Some([0xa1, 0xb2, 0x3c, 0x4d]) => (true, 1_000_000_000),
            _ => return Err(unusable("only a classic pcap file can be looped")),
        };
        let mut this = Self { bytes, records: Vec::new(), big_endian, units_per_second };
        let mut at = FILE_HEADER;
        while at + RECORD_HEADER <= this.bytes.len() {
            let next = at + RECORD_HEADER + usize::try_from(this.word(at + 8)).unwrap_or(usize::MAX / 2);
            if next > this.bytes.len() {
                break;
            }
            this.records.push(at);
            at = next;
        }
        if this.records.is_empty() {
            return Err(unusable("the capture has no packets"));
        }
        this.bytes.truncate(at);
        Ok(this)
    }

    /// The 32-bit number at offset `at`, or 0 beyond the end.
    fn word(&self, at: usize) -> u32 {
        let bytes = self.bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).unwrap_or([0; 4]);
        if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn set_word(&mut self, at: usize, value: u32) {
        let bytes = if self.big_endian { value.to_be_bytes() } else { value.to_le_bytes() };
        if let Some(place) = self.bytes.get_mut(at..at + 4) {
            place.copy_from_slice(&bytes);
        }
    }

    /// The time stamp of the record at this offset, in units.
    fn time(&self, record: usize) -> u64 {
        u64::from(self.word(record)) * self.units_per_second + u64::from(self.word(record + 4))
    }

    /// Moves all time stamps by `by` units.
    fn shift(&mut self, by: u64) {
        for i in 0..self.records.len() {
            let record = self.records[i];
            let time = self.time(record) + by;
            self.set_word(record, u32::try_from(time / self.units_per_second).unwrap_or(u32::MAX));
            self.set_word(record + 4, u32::try_from(time % self.units_per_second).unwrap_or(0));
        }
    }
}

/// Writes a capture to `to` that repeats the packets of `from` until there are at least `packets`. Each repetition is later
/// by the capture's duration and a millisecond. Returns the number of packets.
pub fn make(from: &Path, to: &Path, packets: u64) -> Result<u64, LabError> {
    let mut capture = Pcap::read(from)?;
    let times = || capture.records.iter().map(|record| capture.time(*record));
    let duration = times().max().unwrap_or(0) - times().min().unwrap_or(0) + capture.units_per_second / 1000;
    let packets_each = u64::try_from(capture.records.len()).unwrap_or(u64::MAX);
    let repetitions = packets.div_ceil(packets_each).max(1);
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(LabError::file(folder))?;
    }
    // The file has a temporary name until it is complete.
    let part = to.with_extension(format!("{}.part", std::process::id()));
    let mut write = || {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&part)?);
        file.write_all(&capture.bytes[..FILE_HEADER])?;
        for _ in 0..repetitions {
            file.write_all(&capture.bytes[FILE_HEADER..])?;
            capture.shift(duration);
        }
        file.flush()?;
        std::fs::rename(&part, to)
    };
    write().map_err(LabError::file(to))?;
    Ok(repetitions * packets_each)
}

/// As [`make`], but does nothing if the file exists.
pub fn make_if_missing(from: &Path, to: &Path, packets: u64) -> Result<(), LabError> {
    if to.is_file() {
        return Ok(());
    }
    make(from, to, packets).map(|_| ())
}

/// Makes a capture of at least this many packets in the scratch folder, as [`make_if_missing`] does. Its name is `kind`
/// and the name of `from`. Returns its path.
pub fn make_in_scratch(from: &Path, kind: &str, packets: u64) -> Result<PathBuf, LabError> {
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    let to = paths::scratch().join(format!("{kind}-{name}"));
    make_if_missing(from, &to, packets).map(|()| to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::{Packets, packets_of};

    #[test]
    fn a_repeated_capture_has_more_packets_and_increasing_times() {
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("looped.pcap");
        let written = make(&paths::sample(), &to, 20_000).unwrap();

        let once = Packets::read(&paths::sample(), usize::MAX).unwrap();
        let looped = Packets::read(&to, usize::MAX).unwrap();
        let each = packets_of(once.batches());
        assert_eq!(written, each * 20_000u64.div_ceil(each));
        assert_eq!(packets_of(looped.batches()), written);
        let last = |packets: &Packets| packets.batches().last().unwrap().latest.0;
        assert!(last(&looped) > last(&once));
        let times: Vec<u64> = looped.batches().iter().map(|b| b.latest.0).collect();
        assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "time stands still after a loop");
    }
}
