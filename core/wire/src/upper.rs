//! What is above IP: TCP (RFC 9293), UDP (RFC 768), ICMP (RFC 792, 4443), and everything else as plain payload.

use crate::classify::{Marks, Short, Walk, be16, offset};
use crate::ip::protocol;
use weir_abi::flag;

/// The header above IP.
#[derive(Clone, Copy)]
pub(crate) struct Upper {
    pub(crate) protocol: u8,
    /// Where it begins.
    pub(crate) at: usize,
    /// Where the IP packet ends, as far as IP knows; it may be beyond what is captured.
    pub(crate) end: usize,
}

const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const ICMP_HEADER: usize = 8;
/// What a UDP length can say; a longer datagram has 0 there (RFC 2675, section 4).
const UDP_LENGTH_MAX: usize = 0xffff;

impl<M: Marks> Walk<'_, M> {
    /// The header above IP. Only asking for more bytes ends this with an error.
    #[inline(always)]
    pub(crate) fn upper(&mut self, upper: Upper) -> Result<(), Short> {
        let Upper { protocol, at, end } = upper;
        self.marks.upper(upper);
        if self.out.flags & flag::LATER_FRAGMENT != 0 {
            self.marks.fixed(at, end.saturating_sub(at));
            return Ok(());
        }
        match protocol {
            protocol::TCP => self.tcp(at, end),
            protocol::UDP => self.udp(at, end),
            _ => self.neither_tcp_nor_udp(upper),
        }
    }

    #[inline(always)]
    fn tcp(&mut self, at: usize, end: usize) -> Result<(), Short> {
        self.out.flags |= flag::TCP;
        self.marks.fixed_bits(at + 12, 0xf0);
        self.marks.checksum(at + 16, at, end);
        let Ok(header) = self.need::<TCP_HEADER>(at) else { return self.part(at, end, TCP_HEADER) };
        if at + TCP_HEADER > end {
            return self.part(at, end, TCP_HEADER);
        }
        self.out.src_port = be16(header, 0);
        self.out.dst_port = be16(header, 2);
        self.out.tcp_flags = header[13];
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < TCP_HEADER {
            self.out.flags |= flag::MALFORMED;
            return Ok(());
        }
        self.header_ends(at, at + header_len, end);
        Ok(())
    }

    #[inline(always)]
    fn udp(&mut self, at: usize, end: usize) -> Result<(), Short> {
        self.out.flags |= flag::UDP;
        self.marks.fixed(at + 4, 4);
        let Ok(header) = self.need::<UDP_HEADER>(at) else { return self.part(at, end, UDP_HEADER) };
        if at + UDP_HEADER > end {
            return self.part(at, end, UDP_HEADER);
        }
        self.out.src_port = be16(header, 0);
        self.out.dst_port = be16(header, 2);
        let (said, there) = (usize::from(be16(header, 4)), end - at);
        let whole = self.out.flags & flag::FRAGMENT == 0;
        let mut end = end;
        if said >= UDP_HEADER && said <= there {
            end = at + said;
        } else if !(said == 0 && there > UDP_LENGTH_MAX || said > there && !whole) {
            self.out.flags |= flag::MALFORMED;
        }
        self.marks.checksum(at + 6, at, end);
        self.header_ends(at, at + UDP_HEADER, end);
        Ok(())
    }

    #[inline(never)]
    fn neither_tcp_nor_udp(&mut self, Upper { protocol, at, end }: Upper) -> Result<(), Short> {
        if matches!(protocol, protocol::ICMP | protocol::ICMPV6) {
            self.out.flags |= flag::ICMP;
            self.marks.checksum(at + 2, at, end);
            self.header_ends(at, at + ICMP_HEADER, end);
        } else {
            self.marks.fixed(at, end.saturating_sub(at));
            self.header_ends(at, at, end);
        }
        Ok(())
    }

    /// Takes what there is of a TCP or UDP header that is not there as a whole, because the snapshot length, or the IP length,
    /// ends before it. A first fragment may be that short.
    #[cold]
    #[inline(never)]
    fn part(&mut self, at: usize, end: usize, len: usize) -> Result<(), Short> {
        let there = self.cap.min(end).saturating_sub(at).min(len);
        let seen = self.head.get(at..).unwrap_or_default();
        if let Some(&[a, b, c, d]) = seen.first_chunk()
            && there >= 4
        {
            self.out.src_port = u16::from_be_bytes([a, b]);
            self.out.dst_port = u16::from_be_bytes([c, d]);
        }
        if let Some(&flags) = seen.get(13)
            && there >= 14
            && self.out.flags & flag::TCP != 0
        {
            self.out.tcp_flags = flags;
        }
        self.header_ends(at, at + len, end);
        // Beyond PEEK_MAX, or in a head that is too short, there is something that was not seen.
        if seen.len() < there { Err(Short { at, end: at + len }) } else { Ok(()) }
    }

    /// The header above IP goes from `at` to `payload`, and the packet to `end`.
    #[inline(always)]
    fn header_ends(&mut self, at: usize, payload: usize, end: usize) {
        if payload <= end && payload <= self.cap {
            self.out.flags |= flag::L4;
            self.out.l4_offset = offset(at);
            self.out.payload_offset = offset(payload);
            self.out.payload_len = u32::try_from(end.min(self.cap) - payload).unwrap_or(u32::MAX);
        } else if payload > end && self.out.flags & flag::FRAGMENT == 0 {
            self.out.flags |= flag::MALFORMED;
        }
    }
}
