//! The records of a capture, and the common part of both file formats.

use crate::error::{FirstBytes, OpenError, SourceName};
use crate::mapped_bytes::MappedBytes;
use crate::pcap::Pcap;
use crate::pcapng::Pcapng;
use crate::totals::{CaptureInterface, EndReason};
use weir_wire::{LinkType, UnknownLinkType};

/// The most captured bytes of a packet that are accepted, whatever limit the capture states.
pub(crate) const CAP_LEN_MAX: u32 = weir_abi::limit::PACKET_BYTES;

/// The limit for a capture that states none, or a smaller one: libpcap's MAXIMUM_SNAPLEN.
const CAP_LEN_DEFAULT: u32 = 262_144;

/// The most captured bytes of a packet that are accepted in a capture with this limit. Some writers exceed their own
/// limit, so a small one is not applied.
pub(crate) fn cap_len_max(snap_len: u32) -> u32 {
    snap_len.clamp(CAP_LEN_DEFAULT, CAP_LEN_MAX)
}

/// A packet as its record describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureRecord {
    /// The time in ns since 1970; `None` if the record has no time.
    pub(crate) ts: Option<u64>,
    pub(crate) cap_len: u32,
    pub(crate) wire_len: u32,
    pub(crate) link_type: LinkType,
    /// The number of the interface, counted over all sections of the capture.
    pub(crate) interface: u16,
    /// The offset of the first captured byte. All captured bytes are mapped.
    pub(crate) data: u64,
    /// The offset of the next record.
    pub(crate) next: u64,
}

/// The result of parsing at an offset.
#[derive(Debug)]
pub(crate) enum FormatStep {
    /// A packet.
    Packet(CaptureRecord),
    /// A record without a packet. The next record is at this offset, which may be beyond the mapped bytes.
    Skip(u64),
    /// A record that extends at least to this offset, beyond the mapped bytes. The caller tries again once the bytes up
    /// to there are mapped.
    More(u64),
    /// Invalid data; reading ends.
    Corrupt(EndReason),
    /// A packet of an unsupported link type.
    LinkType { unknown: UnknownLinkType, interface: u32 },
}

/// A file format and its state.
pub(crate) trait CaptureFormat {
    /// Parses the record at `offset`. A repeated call gives the same result, unless the bytes changed.
    fn step(&mut self, mapped: &MappedBytes<'_>, offset: u64) -> FormatStep;
}

/// The format of an open capture.
#[derive(Debug)]
pub(crate) enum AnyFormat {
    LittlePcap(Pcap<false>),
    BigPcap(Pcap<true>),
    Pcapng(Pcapng),
}

/// The number of bytes needed to recognise the format, and to parse the header of a pcap file.
pub(crate) const HEADER_BYTES: usize = 24;

impl AnyFormat {
    /// Recognises the format by the first bytes of a capture: [`HEADER_BYTES`], or all if there are fewer. Also
    /// returns the offset of the first record.
    pub(crate) fn recognise(start: &[u8], file: &SourceName) -> Result<(Self, u64), OpenError> {
        let file = || file.clone();
        let Some(magic) = start.first_chunk::<4>() else {
            return Err(match start {
                [] => OpenError::Empty { file: file() },
                _ => OpenError::NotACapture { file: file(), start: FirstBytes::new(start) },
            });
        };
        match magic {
            [0xd4, 0xc3, 0xb2, 0xa1] | [0x4d, 0x3c, 0xb2, 0xa1] => {
                Pcap::open(start, &file()).map(|(pcap, at)| (Self::LittlePcap(pcap), at))
            }
            [0xa1, 0xb2, 0xc3, 0xd4] | [0xa1, 0xb2, 0x3c, 0x4d] => {
                Pcap::open(start, &file()).map(|(pcap, at)| (Self::BigPcap(pcap), at))
            }
            [0x34, 0xcd, 0xb2, 0xa1] | [0xa1, 0xb2, 0xcd, 0x34] => Err(OpenError::Modified { file: file() }),
            [0x0a, 0x0d, 0x0d, 0x0a] => Pcapng::open(start, &file()).map(|pcapng| (Self::Pcapng(pcapng), 0)),
            _ => Err(OpenError::NotACapture { file: file(), start: FirstBytes::new(start) }),
        }
    }

    /// The interfaces described so far.
    pub(crate) fn interfaces(&self) -> &[CaptureInterface] {
        match self {
            Self::LittlePcap(pcap) => pcap.interfaces(),
            Self::BigPcap(pcap) => pcap.interfaces(),
            Self::Pcapng(pcapng) => pcapng.interfaces(),
        }
    }
}
