//! The pcap format: a header of 24 bytes, then packets with a record header of 16 bytes each
//! (draft-ietf-opsawg-pcap).

use crate::error::{OpenError, SourceName};
use crate::format::{CaptureFormat, CaptureRecord, FormatStep, HEADER_BYTES, cap_len_max};
use crate::mapped_bytes::MappedBytes;
use crate::totals::{CaptureInterface, EndReason};
use weir_wire::LinkType;

const RECORD_HEADER: u64 = 16;

/// A pcap capture in big-endian or little-endian byte order.
#[derive(Debug)]
pub(crate) struct Pcap<const BIG: bool> {
    interface: [CaptureInterface; 1],
    link_type: LinkType,
    /// The unit in ns of a time stamp's second word: 1,000 or 1.
    fraction_ns: u64,
    cap_len_max: u32,
    lengths: Lengths,
}

/// The order of the two lengths in a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lengths {
    /// Captured length first: version 2.4.
    CapturedFirst,
    /// Length on the link first: before version 2.3.
    WireFirst,
    /// Version 2.3 was written in both orders, so the smaller one is the captured length.
    Either,
}

fn u16_at<const BIG: bool>(bytes: &[u8; HEADER_BYTES], at: usize) -> u16 {
    let two = [bytes[at], bytes[at + 1]];
    if BIG { u16::from_be_bytes(two) } else { u16::from_le_bytes(two) }
}

fn word<const BIG: bool>(four: [u8; 4]) -> u32 {
    if BIG { u32::from_be_bytes(four) } else { u32::from_le_bytes(four) }
}

/// The two numbers of 32 bits whose bytes were read as one little-endian number, the first in its lower half.
#[inline(always)]
fn halves<const BIG: bool>(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (self::word::<BIG>([a, b, c, d]), self::word::<BIG>([e, f, g, h]))
}

impl<const BIG: bool> Pcap<BIG> {
    /// Parses the file header in `start`, which begins with a magic number of this byte order.
    pub(crate) fn open(start: &[u8], file: &SourceName) -> Result<(Self, u64), OpenError> {
        let Some(header) = start.first_chunk::<HEADER_BYTES>() else {
            return Err(OpenError::Header { file: file.clone(), len: start.len() as u64 });
        };
        let u32_at = |at: usize| word::<BIG>([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        const NANOSECONDS: u32 = 0xa1b2_3c4d;
        let fraction_ns = if u32_at(0) == NANOSECONDS { 1 } else { 1000 };
        let lengths = match (u16_at::<BIG>(header, 4), u16_at::<BIG>(header, 6)) {
            (2, 0..=2) => Lengths::WireFirst,
            (2, 3) => Lengths::Either,
            (2, 4) => Lengths::CapturedFirst,
            (major, minor) => return Err(OpenError::Version { file: file.clone(), offset: 4, major, minor }),
        };
        let snap_len = u32_at(16);
        // Bits 26 and 28 to 31 describe a frame check sequence at the end of packets. Bits 16 to 25 are reserved, and
        // not ignored: a file that sets them has another link type.
        let link_type_number = u32_at(20) & 0x03ff_ffff;
        let link_type = LinkType::try_from(link_type_number).map_err(|unknown| OpenError::LinkType {
            file: file.clone(),
            unknown,
            offset: 20,
        })?;
        let interface = [CaptureInterface { link_type_number, link_type: Some(link_type), snap_len }];
        let cap_len_max = cap_len_max(snap_len);
        Ok((Self { interface, link_type, fraction_ns, cap_len_max, lengths }, HEADER_BYTES as u64))
    }

    pub(crate) fn interfaces(&self) -> &[CaptureInterface] {
        &self.interface
    }
}

impl<const BIG: bool> CaptureFormat for Pcap<BIG> {
    #[inline(always)]
    fn step(&mut self, mapped: &MappedBytes<'_>, offset: u64) -> FormatStep {
        let data = offset.saturating_add(RECORD_HEADER);
        let Some([times, lengths]) = mapped.read_words(offset) else { return FormatStep::More(data) };
        let (seconds, fraction) = halves::<BIG>(times);
        let (first, second) = halves::<BIG>(lengths);
        let (seconds, fraction) = (u64::from(seconds), u64::from(fraction));
        let swapped = match self.lengths {
            Lengths::CapturedFirst => false,
            Lengths::WireFirst => true,
            Lengths::Either => first > second,
        };
        let (cap_len, wire_len) = if swapped { (second, first) } else { (first, second) };
        if cap_len > self.cap_len_max {
            return FormatStep::Corrupt(EndReason::CapturedLength { stated: cap_len, max: self.cap_len_max });
        }
        let next = data.saturating_add(u64::from(cap_len));
        if !mapped.holds(data, next) {
            return FormatStep::More(next);
        }
        FormatStep::Packet(CaptureRecord {
            // 2^32 seconds and 2^32 microseconds are less than 2^64 nanoseconds.
            ts: Some(seconds * 1_000_000_000 + fraction * self.fraction_ns),
            cap_len,
            wire_len,
            link_type: self.link_type,
            interface: 0,
            data,
            next,
        })
    }
}
