//! Headers above IP: TCP (RFC 9293), UDP (RFC 768), ICMP (RFC 792, 4443). Every other protocol counts as payload.

use crate::classify::{HeaderVisitor, IncompleteHeader, Walk, be16, to_offset};
use crate::ip::protocol;
use weir_abi::flag;

/// The header above IP.
#[derive(Clone, Copy)]
pub(crate) struct UpperHeader {
    pub(crate) protocol: u8,
    /// The offset of the header.
    pub(crate) at: usize,
    /// The end of the IP packet according to IP. It may be beyond the captured bytes.
    pub(crate) end: usize,
}

const TCP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const ICMP_HEADER: usize = 8;
/// The largest value of the UDP length field. A longer datagram has 0 in this field (RFC 2675, section 4).
const UDP_LENGTH_MAX: usize = 0xffff;

impl<M: HeaderVisitor> Walk<'_, M> {
    /// Parses the header above IP. The only error is a request for more bytes.
    #[inline(always)]
    pub(crate) fn upper(&mut self, upper: UpperHeader) -> Result<(), IncompleteHeader> {
        let UpperHeader { protocol, at, end } = upper;
        self.visitor.upper(upper);
        if self.out.flags & flag::LATER_FRAGMENT != 0 {
            self.visitor.fixed(at, end.saturating_sub(at));
            return Ok(());
        }
        match protocol {
            protocol::TCP => self.tcp(at, end),
            protocol::UDP => self.udp(at, end),
            _ => self.neither_tcp_nor_udp(upper),
        }
    }

    #[inline(always)]
    fn tcp(&mut self, at: usize, end: usize) -> Result<(), IncompleteHeader> {
        self.out.flags |= flag::TCP;
        self.visitor.fixed_bits(at + 12, 0xf0);
        self.visitor.checksum(at + 16, at, end);
        let Ok(header) = self.need::<TCP_HEADER>(at) else {
            return self.incomplete_header(at, end, TCP_HEADER);
        };
        if at + TCP_HEADER > end {
            return self.incomplete_header(at, end, TCP_HEADER);
        }
        self.out.src_port = be16(header, 0);
        self.out.dst_port = be16(header, 2);
        self.out.tcp_flags = header[13];
        let header_len = usize::from(header[12] >> 4) * 4;
        if header_len < TCP_HEADER {
            self.out.flags |= flag::MALFORMED;
            return Ok(());
        }
        self.set_location(at, at + header_len, end);
        Ok(())
    }

    #[inline(always)]
    fn udp(&mut self, at: usize, end: usize) -> Result<(), IncompleteHeader> {
        self.out.flags |= flag::UDP;
        self.visitor.fixed(at + 4, 4);
        let Ok(header) = self.need::<UDP_HEADER>(at) else {
            return self.incomplete_header(at, end, UDP_HEADER);
        };
        if at + UDP_HEADER > end {
            return self.incomplete_header(at, end, UDP_HEADER);
        }
        self.out.src_port = be16(header, 0);
        self.out.dst_port = be16(header, 2);
        let (stated, available) = (usize::from(be16(header, 4)), end - at);
        let is_whole = self.out.flags & flag::FRAGMENT == 0;
        let mut end = end;
        if stated >= UDP_HEADER && stated <= available {
            end = at + stated;
        } else if !(stated == 0 && available > UDP_LENGTH_MAX || stated > available && !is_whole) {
            self.out.flags |= flag::MALFORMED;
        }
        self.visitor.checksum(at + 6, at, end);
        self.set_location(at, at + UDP_HEADER, end);
        Ok(())
    }

    #[inline(never)]
    fn neither_tcp_nor_udp(
        &mut self,
        UpperHeader { protocol, at, end }: UpperHeader,
    ) -> Result<(), IncompleteHeader> {
        if matches!(protocol, protocol::ICMP | protocol::ICMPV6) {
            self.out.flags |= flag::ICMP;
            self.visitor.checksum(at + 2, at, end);
            self.set_location(at, at + ICMP_HEADER, end);
        } else {
            self.visitor.fixed(at, end.saturating_sub(at));
            self.set_location(at, at, end);
        }
        Ok(())
    }

    /// Parses the available part of a TCP or UDP header that the snapshot length, or the IP length, cuts off. A first
    /// fragment may end inside the header.
    #[cold]
    #[inline(never)]
    fn incomplete_header(&mut self, at: usize, end: usize, len: usize) -> Result<(), IncompleteHeader> {
        let captured = self.cap.min(end).saturating_sub(at).min(len);
        let seen = self.head.get(at..).unwrap_or_default();
        if let Some(&[a, b, c, d]) = seen.first_chunk()
            && captured >= 4
        {
            self.out.src_port = u16::from_be_bytes([a, b]);
            self.out.dst_port = u16::from_be_bytes([c, d]);
        }
        if let Some(&flags) = seen.get(13)
            && captured >= 14
            && self.out.flags & flag::TCP != 0
        {
            self.out.tcp_flags = flags;
        }
        self.set_location(at, at + len, end);
        // Bytes beyond PEEK_MAX, or beyond a short head, exist but were not read.
        if seen.len() < captured { Err(IncompleteHeader { at, end: at + len }) } else { Ok(()) }
    }

    /// Writes the location of the header above IP, from `at` to `payload`, into the descriptor. The packet ends at
    /// `end`.
    #[inline(always)]
    fn set_location(&mut self, at: usize, payload: usize, end: usize) {
        if payload <= end && payload <= self.cap {
            self.out.flags |= flag::L4;
            self.out.l4_offset = to_offset(at);
            self.out.payload_offset = to_offset(payload);
            self.out.payload_len = u32::try_from(end.min(self.cap) - payload).unwrap_or(u32::MAX);
        } else if payload > end && self.out.flags & flag::FRAGMENT == 0 {
            self.out.flags |= flag::MALFORMED;
        }
    }
}
