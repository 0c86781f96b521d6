//! The totals of a capture.

use std::fmt;
use weir_abi::{Descriptor, flag};
use weir_units::{Bytes, Timestamp};
use weir_wire::LinkType;

/// Counts of the packets read so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of packets.
    pub packets: u64,
    /// The packets' bytes on the link.
    pub bytes: Bytes,
    /// The packets' captured bytes.
    pub captured: Bytes,
    /// The time of the first packet of the capture; `None` without packets.
    pub first: Option<Timestamp>,
    /// The time of the last packet of the capture; `None` without packets.
    pub last: Option<Timestamp>,
    /// The earliest time; `None` without packets.
    pub earliest: Option<Timestamp>,
    /// The latest time; `None` without packets.
    pub latest: Option<Timestamp>,
    /// Packets with a time before that of the previous packet.
    pub out_of_order: u64,
    /// TCP packets, by the outermost IP header; of a fragmented datagram only the first fragment counts.
    pub tcp: u64,
    /// UDP packets, by the outermost IP header; of a fragmented datagram only the first fragment counts.
    pub udp: u64,
    /// Packets whose outermost IP header is IPv6.
    pub ipv6: u64,
    /// TCP packets with SYN set and ACK clear.
    pub tcp_syn: u64,
    /// The interfaces described by the capture so far.
    pub interfaces: Vec<CaptureInterface>,
    /// The place and the reason of the truncation, if reading ended before the end of the capture.
    pub truncated: Option<Truncation>,
}

impl Totals {
    /// Adds the packets of these descriptors. For callers that process only the first packets of a block.
    #[must_use]
    pub fn plus_packets(self, descriptors: &[Descriptor]) -> Totals {
        let time = |ts: Option<Timestamp>| ts.map_or(0, |ts| ts.0);
        let mut counts = PacketCounts {
            packets: self.packets,
            bytes: self.bytes.0,
            captured: self.captured.0,
            first: time(self.first),
            last: time(self.last),
            earliest: self.earliest.map_or(u64::MAX, |ts| ts.0),
            latest: time(self.latest),
            out_of_order: self.out_of_order,
            tcp: self.tcp,
            udp: self.udp,
            ipv6: self.ipv6,
            tcp_syn: self.tcp_syn,
        };
        descriptors.iter().for_each(|descriptor| counts.add(descriptor));
        counts.totals(&self.interfaces, self.truncated)
    }
}

/// An interface on which packets were captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureInterface {
    /// The link type as the capture states it (LINKTYPE_…).
    pub link_type_number: u32,
    /// The link type, if it is supported.
    pub link_type: Option<LinkType>,
    /// The most bytes captured of a packet; 0 without a limit.
    pub snap_len: u32,
}

/// The place and reason of a truncation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncation {
    /// The offset of the first record that could not be read as a whole, in bytes after decompression.
    pub offset: u64,
    /// The reason.
    pub reason: EndReason,
}

/// The reason why reading a capture ended early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The file or stream ends inside a record.
    Cut,
    /// The file was cut short, or became unreadable, while it was read.
    Lost,
    /// A packet record states more captured bytes than a packet can have.
    CapturedLength {
        /// The stated length.
        stated: u32,
        /// The most that is accepted.
        max: u32,
    },
    /// A pcapng block states an impossible total length.
    BlockLength {
        /// The stated length.
        stated: u32,
    },
    /// The two lengths of a pcapng block differ.
    BlockTrailer {
        /// The length at the beginning of the block.
        head: u32,
        /// The length at its end.
        tail: u32,
    },
    /// A packet belongs to an interface that no block describes.
    Interface {
        /// The interface's number in the section.
        number: u32,
    },
    /// There are more interfaces than a descriptor can number.
    Interfaces,
    /// A section's header has an unknown byte order or version.
    Section,
    /// The compressed data (gzip or zstd) are damaged, so they cannot be decompressed from some byte on.
    Compressed,
    /// The compressed data (gzip or zstd) end before the end that their format marks.
    CompressedCut,
}

impl fmt::Display for Truncation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reason == EndReason::Lost {
            return write!(
                f,
                "its bytes from offset {} on were lost: the file was cut short or became unreadable while it was read",
                self.offset
            );
        }
        write!(f, "truncated at offset {}: ", self.offset)?;
        match &self.reason {
            EndReason::Cut => write!(f, "it ends inside a record"),
            EndReason::Lost => Ok(()),
            EndReason::CapturedLength { stated, max } => {
                write!(f, "a record states {stated} captured bytes; a packet has at most {max}")
            }
            EndReason::BlockLength { stated } => write!(f, "a block states a total length of {stated} bytes"),
            EndReason::BlockTrailer { head, tail } => {
                write!(f, "a block begins with a total length of {head} bytes and ends with one of {tail}")
            }
            EndReason::Interface { number } => {
                write!(f, "a packet is from interface {number}, which no block describes")
            }
            EndReason::Interfaces => {
                write!(f, "it describes more than {} interfaces", crate::pcapng::INTERFACES_MAX)
            }
            EndReason::Section => write!(f, "a section begins with an unknown byte order or version"),
            EndReason::Compressed => write!(f, "the compressed data are damaged"),
            EndReason::CompressedCut => write!(f, "the compressed data end too early"),
        }
    }
}

/// The counters that change with each packet, small enough for registers and the first-level cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketCounts {
    pub(crate) packets: u64,
    bytes: u64,
    captured: u64,
    first: u64,
    pub(crate) last: u64,
    earliest: u64,
    pub(crate) latest: u64,
    out_of_order: u64,
    tcp: u64,
    udp: u64,
    ipv6: u64,
    tcp_syn: u64,
}

impl PacketCounts {
    pub(crate) fn new() -> Self {
        Self {
            packets: 0,
            bytes: 0,
            captured: 0,
            first: 0,
            last: 0,
            earliest: u64::MAX,
            latest: 0,
            out_of_order: 0,
            tcp: 0,
            udp: 0,
            ipv6: 0,
            tcp_syn: 0,
        }
    }

    /// Counts one packet.
    #[inline(always)]
    pub(crate) fn add(&mut self, descriptor: &Descriptor) {
        const SYN: u8 = 0x02;
        const ACK: u8 = 0x10;
        let (ts, flags) = (descriptor.ts_ns, descriptor.flags);
        if self.packets == 0 {
            self.first = ts;
            self.last = ts;
        }
        self.packets += 1;
        self.bytes = self.bytes.saturating_add(u64::from(descriptor.wire_len));
        self.captured = self.captured.saturating_add(u64::from(descriptor.cap_len));
        self.out_of_order += u64::from(ts < self.last);
        self.last = ts;
        self.earliest = self.earliest.min(ts);
        self.latest = self.latest.max(ts);
        let tcp = flags & flag::TCP != 0;
        self.tcp += u64::from(tcp);
        self.udp += u64::from(flags & flag::UDP != 0);
        self.ipv6 += u64::from(flags & flag::IPV6 != 0);
        self.tcp_syn += u64::from(tcp & (descriptor.tcp_flags & (SYN | ACK) == SYN));
    }

    pub(crate) fn totals(&self, interfaces: &[CaptureInterface], truncated: Option<Truncation>) -> Totals {
        let some = |ts| (self.packets != 0).then_some(Timestamp(ts));
        Totals {
            packets: self.packets,
            bytes: Bytes(self.bytes),
            captured: Bytes(self.captured),
            first: some(self.first),
            last: some(self.last),
            earliest: some(self.earliest),
            latest: some(self.latest),
            out_of_order: self.out_of_order,
            tcp: self.tcp,
            udp: self.udp,
            ipv6: self.ipv6,
            tcp_syn: self.tcp_syn,
            interfaces: interfaces.to_vec(),
            truncated,
        }
    }
}
