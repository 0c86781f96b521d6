//! Packets of a test that are cut short, as a capture has them that was taken with a snapshot length, or as a hostile sender
//! makes them: a read behind the captured bytes is found, although each packet of the test's capture is whole.

use crate::cmd::run::filter;
use crate::cmd::test::TestError;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use weir_abi::Descriptor;
use weir_netio::{Block, Capture, CaptureInput, CaptureNext, PacketWriter};
use weir_units::Timestamp;
use weir_wire::LinkType;

/// About the most cut packets of a test.
const CUTS_MAX: u64 = 4096;
/// The most bytes of all cut packets, well below what a test may have.
const CUT_BYTES_MAX: u64 = 32 << 20;
/// Distances of cuts from the begin of the payload: fields of the headers of common protocols end there.
const PAYLOAD_CUTS: [u32; 9] = [0, 1, 2, 3, 4, 7, 11, 12, 20];

/// A cut packet.
struct Cut {
    /// The number of the packet in the test's capture, from 1.
    packet: u64,
    /// The captured bytes that are left.
    left: u32,
    /// The captured bytes in the test's capture.
    whole: u32,
}

/// A capture of cut packets.
pub(super) struct CutPackets {
    folder: TempDir,
    cuts: Vec<Cut>,
}

impl CutPackets {
    /// Writes the packets of a capture, which has this many, with several lengths each. Of a large capture, some packets are
    /// taken with some lengths.
    ///
    /// # Errors
    /// The capture cannot be read, or the cut packets cannot be written.
    pub(super) fn write(capture: &Path, packets: u64) -> Result<Self, TestError> {
        let folder = tempfile::tempdir().map_err(TestError::file(capture))?;
        let (mut cuts, mut cut_bytes) = (Vec::new(), 0);
        let mut writer = PacketWriter::create(&Self::path_in(&folder), None)?;
        let step = packets.div_ceil(CUTS_MAX).max(1);
        // All lengths of a small capture, and one of each packet of a large one.
        let lengths_max = usize::try_from(CUTS_MAX / packets.clamp(1, CUTS_MAX)).unwrap_or(1);
        each_packet(capture, |packet, descriptor, bytes| {
            if packet % step != 0 || cut_bytes > CUT_BYTES_MAX {
                return Ok(());
            }
            let lengths: Vec<u32> = lengths(descriptor).into_iter().collect();
            // Other lengths for each packet, if there are too many.
            let first = usize::try_from(packet / step).unwrap_or(0);
            for at in 0..lengths.len().min(lengths_max) {
                let left = lengths[(first + at) % lengths.len()];
                let Some(bytes) = bytes.get(..left as usize) else { continue };
                write_packet(&mut writer, descriptor, bytes)?;
                cut_bytes += u64::from(left);
                cuts.push(Cut { packet, left, whole: descriptor.cap_len });
            }
            Ok(())
        })?;
        writer.finish()?;
        Ok(Self { folder, cuts })
    }

    fn path_in(folder: &TempDir) -> PathBuf {
        // pcapng can have packets of several link types.
        folder.path().join("cut.pcapng")
    }

    /// Returns the file of the capture.
    pub(super) fn path(&self) -> PathBuf {
        Self::path_in(&self.folder)
    }

    /// Returns true if no packet can be cut.
    pub(super) fn is_empty(&self) -> bool {
        self.cuts.is_empty()
    }

    /// Names a packet of the cut capture, by its number from 1, for the author.
    pub(super) fn name(&self, number: u64) -> String {
        let index = usize::try_from(number).unwrap_or(0).wrapping_sub(1);
        self.cuts.get(index).map_or_else(
            || format!("cut packet {number}"),
            |cut| format!("packet {}, cut to {} of its {} bytes", cut.packet, cut.left, cut.whole),
        )
    }
}

/// Returns the lengths to which a packet is cut, shorter than what was captured of it.
fn lengths(descriptor: &Descriptor) -> BTreeSet<u32> {
    let [l3, l4, payload] =
        [descriptor.l3_offset, descriptor.l4_offset, descriptor.payload_offset].map(u32::from);
    let whole = descriptor.cap_len;
    let in_payload = PAYLOAD_CUTS.iter().map(|distance| payload.saturating_add(*distance));
    let others = [l3 + 1, l4, l4 + 4, payload.midpoint(whole), whole.saturating_sub(1)];
    in_payload.chain(others).filter(|len| (1..whole).contains(len)).collect()
}

/// Calls a function with the number, from 1, the descriptor and the bytes of each packet of a capture.
fn each_packet(
    path: &Path,
    mut act: impl FnMut(u64, &Descriptor, &[u8]) -> Result<(), TestError>,
) -> Result<(), TestError> {
    let mut capture = Capture::open(CaptureInput::File(path.to_owned()))?;
    let mut buffer = Vec::new();
    let mut each_of = |block: &Block| {
        for (index, descriptor) in block.descriptors().iter().enumerate() {
            block.copy_packet(index, &mut buffer);
            act(block.first_packet() + index as u64 + 1, descriptor, &buffer)?;
        }
        Ok::<(), TestError>(())
    };
    loop {
        match capture.next_block()? {
            CaptureNext::Block(block) => each_of(&block)?,
            // No other block is in use.
            CaptureNext::Full | CaptureNext::End => return Ok(()),
        }
    }
}

/// Writes the captured bytes of a packet.
fn write_packet(writer: &mut PacketWriter, of: &Descriptor, bytes: &[u8]) -> Result<(), TestError> {
    let Some(link_type) = link_type(of) else { return Ok(()) };
    Ok(writer.write(Timestamp(of.ts_ns), of.wire_len, link_type, of.interface, bytes)?)
}

fn link_type(descriptor: &Descriptor) -> Option<LinkType> {
    LinkType::try_from(u32::from(descriptor.link_type)).ok()
}

/// Copies the packets of a capture that match a filter, given as words. Returns their number.
///
/// # Errors
/// The filter is wrong, the capture cannot be read, or the copy cannot be written.
pub(super) fn copy_matching(from: &Path, to: &Path, words: &[String]) -> Result<u64, TestError> {
    let filter = filter(words).map_err(|error| TestError::Filter(Box::new(error)))?;
    let mut writer = PacketWriter::create(to, None)?;
    let mut copied = 0;
    each_packet(from, |_, descriptor, bytes| {
        let Some(link_type) = link_type(descriptor) else { return Ok(()) };
        let matches = match &filter {
            Some(filter) => filter
                .matches(link_type, descriptor.wire_len, bytes)
                .map_err(|error| TestError::FilterOfCapture(error.to_string()))?,
            None => true,
        };
        if matches {
            copied += 1;
            write_packet(&mut writer, descriptor, bytes)?;
        }
        Ok(())
    })?;
    if copied > 0 {
        writer.finish()?;
    }
    Ok(copied)
}
