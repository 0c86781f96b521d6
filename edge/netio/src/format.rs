//! Record by record through a capture: what the two file formats have in common.

use crate::error::{FirstBytes, OpenError, SourceName};
use crate::pcap::Pcap;
use crate::pcapng::Pcapng;
use crate::totals::{CaptureInterface, EndReason};
use crate::view::BytesView;
use weir_wire::{LinkType, UnknownLinkType};

/// The most captured bytes of a packet that are believed, whatever the capture states as its own limit.
pub(crate) const CAP_LEN_MAX: u32 = weir_abi::limit::PACKET_BYTES;

/// What is believed where the capture states no limit, or a small one: libpcap's MAXIMUM_SNAPLEN.
const CAP_LEN_USUAL: u32 = 262_144;

/// The most captured bytes of a packet that are believed in a capture with this limit. Writers break their own limit at
/// times, so a small one is not taken literally.
pub(crate) fn cap_len_max(snap_len: u32) -> u32 {
    snap_len.clamp(CAP_LEN_USUAL, CAP_LEN_MAX)
}

/// A packet as its record describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CaptureRecord {
    /// Ns since 1970; nothing where the record has no time.
    pub(crate) ts: Option<u64>,
    pub(crate) cap_len: u32,
    pub(crate) wire_len: u32,
    pub(crate) link_type: LinkType,
    /// Counted through the capture.
    pub(crate) interface: u16,
    /// Offset of its first captured byte. All of them are in the view.
    pub(crate) data: u64,
    /// Offset of the next record.
    pub(crate) next: u64,
}

/// What is found at an offset.
#[derive(Debug)]
pub(crate) enum FormatStep {
    /// A packet.
    Packet(CaptureRecord),
    /// Something else; the next record is at this offset, which may be beyond the view.
    Skip(u64),
    /// A record that reaches at least to this offset, beyond the view: come again when it is there.
    More(u64),
    /// Nothing that makes sense; reading ends.
    Corrupt(EndReason),
    /// A packet whose link type is none of ours.
    LinkType { unknown: UnknownLinkType, interface: u32 },
}

/// One of the formats, with what it has to remember.
pub(crate) trait CaptureFormat {
    /// What is at `offset`. Calling it again for the same offset gives the same answer, unless the bytes changed.
    fn step(&mut self, view: &BytesView<'_>, offset: u64) -> FormatStep;
}

/// The format of an open capture.
#[derive(Debug)]
pub(crate) enum AnyFormat {
    LittlePcap(Pcap<false>),
    BigPcap(Pcap<true>),
    Pcapng(Pcapng),
}

/// The bytes that it takes to tell the formats apart, and to know all about a pcap file.
pub(crate) const HEADER_BYTES: usize = 24;

impl AnyFormat {
    /// Recognises the format by the capture's first bytes: [`HEADER_BYTES`], or all where there are fewer. Also says where
    /// the first record is.
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

    /// The interfaces named so far.
    pub(crate) fn interfaces(&self) -> &[CaptureInterface] {
        match self {
            Self::LittlePcap(pcap) => pcap.interfaces(),
            Self::BigPcap(pcap) => pcap.interfaces(),
            Self::Pcapng(pcapng) => pcapng.interfaces(),
        }
    }
}
