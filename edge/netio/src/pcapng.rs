//! The pcapng format: blocks with a type and a length, in sections, with interfaces (draft-ietf-opsawg-pcapng).

use crate::error::{OpenError, SourceName};
use crate::format::{CAP_LEN_MAX, CaptureFormat, CaptureRecord, FormatStep, cap_len_max};
use crate::mapped_bytes::MappedBytes;
use crate::totals::{CaptureInterface, EndReason};
use weir_wire::{LinkType, UnknownLinkType};

/// The most interfaces of all sections together: an interface has 16 bits in a descriptor.
pub(crate) const INTERFACES_MAX: usize = 65_536;

/// The longest block that is parsed rather than skipped: a packet of the largest size and many options.
const BLOCK_MAX: u32 = CAP_LEN_MAX + (1 << 20);

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;

/// A pcapng capture.
#[derive(Debug)]
pub(crate) struct Pcapng {
    /// The byte order of the present section.
    big: bool,
    /// The interfaces of all sections so far.
    interfaces: Vec<CaptureInterface>,
    clocks: Vec<Clock>,
    /// The number of the present section's first interface.
    section_start: usize,
}

/// The time unit and offset of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Clock {
    resolution: Resolution,
    /// The offset in ns.
    offset_ns: i128,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Resolution {
    /// Nanoseconds per tick.
    Multiple(u64),
    /// Ticks per nanosecond; 0 stands for more than 64 bits can express.
    Fraction(u64),
    /// The binary logarithm of ticks per second.
    Binary(u8),
}

impl Clock {
    const MICROSECONDS: Clock = Clock { resolution: Resolution::Multiple(1000), offset_ns: 0 };

    /// Parses the option if_tsresol: 10^-n seconds, or 2^-n if the highest bit is set.
    fn resolution(option: u8) -> Resolution {
        let n = option & 0x7f;
        if option & 0x80 != 0 {
            return Resolution::Binary(n);
        }
        match n {
            0..=9 => Resolution::Multiple(10u64.pow(u32::from(9 - n))),
            10..=28 => Resolution::Fraction(10u64.pow(u32::from(n - 9))),
            _ => Resolution::Fraction(0),
        }
    }

    /// Converts ticks to ns since 1970, as precisely as possible.
    #[inline(always)]
    fn ns(&self, ticks: u64) -> u64 {
        let ns = match self.resolution {
            Resolution::Multiple(ns) => ticks.saturating_mul(ns),
            Resolution::Fraction(0) => 0,
            Resolution::Fraction(ticks_per_ns) => ticks / ticks_per_ns,
            Resolution::Binary(n) => {
                // The product is below 2^64 x 2^30.
                let scaled = u128::from(ticks) * 1_000_000_000;
                u64::try_from(scaled.checked_shr(u32::from(n)).unwrap_or(0)).unwrap_or(u64::MAX)
            }
        };
        if self.offset_ns == 0 {
            return ns;
        }
        let moved = (i128::from(ns) + self.offset_ns).clamp(0, i128::from(u64::MAX));
        u64::try_from(moved).unwrap_or(u64::MAX)
    }
}

impl Pcapng {
    /// Checks the first section's header in `start`. [`CaptureFormat::step`] parses it again as a record.
    pub(crate) fn open(start: &[u8], file: &SourceName) -> Result<Self, OpenError> {
        let header = start
            .first_chunk::<16>()
            .ok_or(OpenError::Header { file: file.clone(), len: start.len() as u64 })?;
        let [_, _, _, _, _, _, _, _, m0, m1, m2, m3, a0, a1, b0, b1] = *header;
        let (big, major, minor) = match [m0, m1, m2, m3] {
            [0x1a, 0x2b, 0x3c, 0x4d] => (true, u16::from_be_bytes([a0, a1]), u16::from_be_bytes([b0, b1])),
            [0x4d, 0x3c, 0x2b, 0x1a] => (false, u16::from_le_bytes([a0, a1]), u16::from_le_bytes([b0, b1])),
            _ => {
                let start = crate::error::FirstBytes::new(&header[8..]);
                return Err(OpenError::ByteOrder { file: file.clone(), start });
            }
        };
        if major != 1 {
            return Err(OpenError::Version { file: file.clone(), offset: 12, major, minor });
        }
        Ok(Self { big, interfaces: Vec::new(), clocks: Vec::new(), section_start: 0 })
    }

    pub(crate) fn interfaces(&self) -> &[CaptureInterface] {
        &self.interfaces
    }

    #[inline(always)]
    fn u32(&self, bytes: [u8; 4]) -> u32 {
        if self.big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
    }

    fn u16(&self, bytes: [u8; 2]) -> u16 {
        if self.big { u16::from_be_bytes(bytes) } else { u16::from_le_bytes(bytes) }
    }

    /// Checks that the block `offset..end` ends with the same length that it begins with.
    #[inline(always)]
    fn trailer(&self, mapped: &MappedBytes<'_>, end: u64, len: u32) -> Result<(), FormatStep> {
        let tail = mapped.read::<4>(end.saturating_sub(4)).ok_or(FormatStep::More(end))?;
        match self.u32(tail) {
            tail if tail == len => Ok(()),
            tail => Err(FormatStep::Corrupt(EndReason::BlockTrailer { head: len, tail })),
        }
    }

    /// Starts a section, with its own byte order and interfaces.
    fn section(&mut self, mapped: &MappedBytes<'_>, offset: u64) -> FormatStep {
        let Some(header) = mapped.read::<16>(offset) else {
            return FormatStep::More(offset.saturating_add(16));
        };
        let [_, _, _, _, l0, l1, l2, l3, m0, m1, m2, m3, a0, a1, _, _] = header;
        let big = match [m0, m1, m2, m3] {
            [0x1a, 0x2b, 0x3c, 0x4d] => true,
            [0x4d, 0x3c, 0x2b, 0x1a] => false,
            _ => return FormatStep::Corrupt(EndReason::Section),
        };
        let before = std::mem::replace(&mut self.big, big);
        let len = self.u32([l0, l1, l2, l3]);
        let end = offset.saturating_add(u64::from(len));
        let problem = if self.u16([a0, a1]) != 1 {
            Some(FormatStep::Corrupt(EndReason::Section))
        } else if len < 28 || !len.is_multiple_of(4) || len > BLOCK_MAX {
            Some(FormatStep::Corrupt(EndReason::BlockLength { stated: len }))
        } else if !mapped.holds(offset, end) {
            Some(FormatStep::More(end))
        } else {
            self.trailer(mapped, end, len).err()
        };
        if let Some(problem) = problem {
            self.big = before;
            return problem;
        }
        self.section_start = self.interfaces.len();
        FormatStep::Skip(end)
    }

    /// Adds an interface of this section, with the options about its time.
    fn interface(&mut self, mapped: &MappedBytes<'_>, offset: u64, end: u64, len: u32) -> FormatStep {
        let fixed = offset.saturating_add(8);
        let Some([l0, l1, _, _, s0, s1, s2, s3]) = mapped.read::<8>(fixed) else {
            return FormatStep::More(end);
        };
        if len < 20 {
            return FormatStep::Corrupt(EndReason::BlockLength { stated: len });
        }
        if self.interfaces.len() >= INTERFACES_MAX {
            return FormatStep::Corrupt(EndReason::Interfaces);
        }
        let link_type_number = u32::from(self.u16([l0, l1]));
        let snap_len = self.u32([s0, s1, s2, s3]);
        let mut clock = Clock::MICROSECONDS;
        let mut at = offset.saturating_add(16);
        let options_end = end.saturating_sub(4);
        // Each iteration advances by at least four bytes inside the block.
        while at.saturating_add(4) <= options_end {
            let Some([c0, c1, l0, l1]) = mapped.read::<4>(at) else { break };
            let (code, option_len) = (self.u16([c0, c1]), self.u16([l0, l1]));
            let value = at + 4;
            let next = value + u64::from(option_len).next_multiple_of(4);
            if code == 0 || next > options_end {
                break;
            }
            match (code, option_len) {
                (9, 1) => {
                    if let Some([resolution]) = mapped.read::<1>(value) {
                        clock.resolution = Clock::resolution(resolution);
                    }
                }
                (14, 8) => {
                    if let Some(bytes) = mapped.read::<8>(value) {
                        let seconds =
                            if self.big { i64::from_be_bytes(bytes) } else { i64::from_le_bytes(bytes) };
                        clock.offset_ns = i128::from(seconds) * 1_000_000_000;
                    }
                }
                _ => {}
            }
            at = next;
        }
        let link_type = LinkType::try_from(link_type_number).ok();
        self.interfaces.push(CaptureInterface { link_type_number, link_type, snap_len });
        self.clocks.push(clock);
        FormatStep::Skip(end)
    }

    /// Finds interface `number` of this section: its description, its clock, and its number in the capture.
    #[inline(always)]
    fn find(&self, number: u32) -> Result<(CaptureInterface, Clock, usize), FormatStep> {
        let unknown = || FormatStep::Corrupt(EndReason::Interface { number });
        let index = usize::try_from(number)
            .ok()
            .and_then(|n| n.checked_add(self.section_start))
            .ok_or_else(unknown)?;
        match (self.interfaces.get(index), self.clocks.get(index)) {
            (Some(interface), Some(clock)) => Ok((*interface, *clock, index)),
            _ => Err(unknown()),
        }
    }

    /// Makes the record of a packet whose bytes start at `data`, in a block that ends at `end`.
    #[inline(always)]
    fn packet(
        &self,
        fields: Fields,
        data: u64,
        end: u64,
        interface: (CaptureInterface, Clock, usize),
    ) -> FormatStep {
        let (interface, clock, index) = interface;
        let Some(link_type) = interface.link_type else {
            let unknown = UnknownLinkType(interface.link_type_number);
            return FormatStep::LinkType { unknown, interface: u32::try_from(index).unwrap_or(u32::MAX) };
        };
        let max = cap_len_max(interface.snap_len);
        // The bytes between the start of the packet and the block's trailer.
        let room = end.saturating_sub(4).saturating_sub(data);
        if fields.cap_len > max || u64::from(fields.cap_len) > room {
            let max = u32::try_from(room).unwrap_or(u32::MAX).min(max);
            return FormatStep::Corrupt(EndReason::CapturedLength { stated: fields.cap_len, max });
        }
        FormatStep::Packet(CaptureRecord {
            ts: fields.ticks.map(|ticks| clock.ns(ticks)),
            cap_len: fields.cap_len,
            wire_len: fields.wire_len,
            link_type,
            interface: u16::try_from(index).unwrap_or(u16::MAX),
            data,
            next: end,
        })
    }

    /// Parses an enhanced packet block, or its obsolete predecessor, the packet block.
    #[inline(always)]
    fn full_packet(
        &self,
        mapped: &MappedBytes<'_>,
        offset: u64,
        end: u64,
        len: u32,
        kind: u32,
    ) -> Result<FormatStep, FormatStep> {
        if len < 32 {
            return Err(FormatStep::Corrupt(EndReason::BlockLength { stated: len }));
        }
        let header = mapped.read::<20>(offset.saturating_add(8)).ok_or(FormatStep::More(end))?;
        let [i0, i1, i2, i3, h0, h1, h2, h3, l0, l1, l2, l3, c0, c1, c2, c3, w0, w1, w2, w3] = header;
        let number =
            if kind == OBSOLETE_PACKET { u32::from(self.u16([i0, i1])) } else { self.u32([i0, i1, i2, i3]) };
        let ticks = u64::from(self.u32([h0, h1, h2, h3])) << 32 | u64::from(self.u32([l0, l1, l2, l3]));
        let fields = Fields {
            ticks: Some(ticks),
            cap_len: self.u32([c0, c1, c2, c3]),
            wire_len: self.u32([w0, w1, w2, w3]),
        };
        Ok(self.packet(fields, offset.saturating_add(28), end, self.find(number)?))
    }

    /// Parses a simple packet block, which belongs to the section's first interface and has no time.
    fn simple_packet(
        &self,
        mapped: &MappedBytes<'_>,
        offset: u64,
        end: u64,
        len: u32,
    ) -> Result<FormatStep, FormatStep> {
        if len < 16 {
            return Err(FormatStep::Corrupt(EndReason::BlockLength { stated: len }));
        }
        let wire_len = self.u32(mapped.read::<4>(offset.saturating_add(8)).ok_or(FormatStep::More(end))?);
        let found = self.find(0)?;
        let snap_len = match found.0.snap_len {
            0 => u32::MAX,
            limit => limit,
        };
        // Nothing else distinguishes the packet from the padding to four bytes.
        let cap_len = wire_len.min(snap_len).min(len - 16);
        let fields = Fields { ticks: None, cap_len, wire_len };
        Ok(self.packet(fields, offset.saturating_add(12), end, found))
    }
}

/// The fields of a packet's block.
struct Fields {
    ticks: Option<u64>,
    cap_len: u32,
    wire_len: u32,
}

impl CaptureFormat for Pcapng {
    #[inline(always)]
    fn step(&mut self, mapped: &MappedBytes<'_>, offset: u64) -> FormatStep {
        let Some([t0, t1, t2, t3, l0, l1, l2, l3]) = mapped.read::<8>(offset) else {
            return FormatStep::More(offset.saturating_add(8));
        };
        let kind = self.u32([t0, t1, t2, t3]);
        if kind == SECTION_HEADER {
            return self.section(mapped, offset);
        }
        let len = self.u32([l0, l1, l2, l3]);
        if len < 12 || !len.is_multiple_of(4) {
            return FormatStep::Corrupt(EndReason::BlockLength { stated: len });
        }
        let end = offset.saturating_add(u64::from(len));
        if !matches!(kind, INTERFACE_DESCRIPTION | OBSOLETE_PACKET | SIMPLE_PACKET | ENHANCED_PACKET) {
            return FormatStep::Skip(end);
        }
        if len > BLOCK_MAX {
            return FormatStep::Corrupt(EndReason::BlockLength { stated: len });
        }
        if !mapped.holds(offset, end) {
            return FormatStep::More(end);
        }
        if let Err(step) = self.trailer(mapped, end, len) {
            return step;
        }
        match kind {
            INTERFACE_DESCRIPTION => self.interface(mapped, offset, end, len),
            SIMPLE_PACKET => self.simple_packet(mapped, offset, end, len).unwrap_or_else(|step| step),
            _ => self.full_packet(mapped, offset, end, len, kind).unwrap_or_else(|step| step),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds_in_every_resolution() {
        let ns = |option, ticks| Clock { resolution: Clock::resolution(option), offset_ns: 0 }.ns(ticks);
        assert_eq!(ns(6, 1_500_000), 1_500_000_000);
        assert_eq!(ns(9, 1_500_000), 1_500_000);
        assert_eq!(ns(0, 3), 3_000_000_000);
        assert_eq!(ns(12, 1_999), 1);
        assert_eq!(ns(100, u64::MAX), 0);
        assert_eq!(ns(0x80 | 10, 512), 500_000_000);
        assert_eq!(ns(0x80 | 127, u64::MAX), 0);
        assert_eq!(ns(3, u64::MAX), u64::MAX);
        assert_eq!(ns(0x80, u64::MAX), u64::MAX);
    }

    #[test]
    fn a_clock_offset_can_be_negative_and_saturates() {
        let ns = |seconds: i64, ticks| {
            Clock { resolution: Resolution::Multiple(1), offset_ns: i128::from(seconds) * 1_000_000_000 }
                .ns(ticks)
        };
        assert_eq!(ns(2, 5), 2_000_000_005);
        assert_eq!(ns(-2, 5_000_000_000), 3_000_000_000);
        assert_eq!(ns(-9, 5_000_000_000), 0);
        assert_eq!(ns(i64::MAX, u64::MAX), u64::MAX);
    }
}
