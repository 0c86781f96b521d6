//! IPv4 (RFC 791) and IPv6 (RFC 8200) with its extension headers.

use crate::classify::{HeaderVisitor, IncompleteHeader, Walk, be16, to_offset};
use crate::flow_hash;
use crate::fragment::FragmentInfo;
use crate::upper::UpperHeader;
use weir_abi::flag;

/// IP protocol numbers.
pub(crate) mod protocol {
    pub(crate) const HOP_BY_HOP: u8 = 0;
    pub(crate) const ICMP: u8 = 1;
    pub(crate) const TCP: u8 = 6;
    pub(crate) const UDP: u8 = 17;
    pub(crate) const ROUTING: u8 = 43;
    pub(crate) const FRAGMENT: u8 = 44;
    pub(crate) const AH: u8 = 51;
    pub(crate) const ICMPV6: u8 = 58;
    pub(crate) const NO_NEXT_HEADER: u8 = 59;
    pub(crate) const DESTINATION: u8 = 60;
    pub(crate) const MOBILITY: u8 = 135;
    pub(crate) const HIP: u8 = 139;
    pub(crate) const SHIM6: u8 = 140;
}

const IPV6_HEADER: usize = 40;
const MORE_FRAGMENTS: u16 = 0x2000;
const FRAGMENT_OFFSET: u16 = 0x1fff;

impl<M: HeaderVisitor> Walk<'_, M> {
    /// Parses the IPv4 header at `at` and the headers above it.
    #[inline(always)]
    pub(crate) fn ipv4(&mut self, at: usize) -> Result<(), IncompleteHeader> {
        let header: &[u8; 20] = self.need(at)?;
        let (version, header_len) = (header[0] >> 4, usize::from(header[0] & 15) * 4);
        let total_len = usize::from(be16(header, 2));
        if version != 4 || header_len < 20 || (total_len < header_len && total_len != 0) {
            self.mark_malformed(at);
            return Ok(());
        }
        let mut end = at + total_len;
        if total_len == 0 {
            end = self.wire;
        } else if end > self.wire {
            self.out.flags |= flag::MALFORMED;
        }
        let fragment = be16(header, 6) & (MORE_FRAGMENTS | FRAGMENT_OFFSET);
        let protocol = header[9];
        self.out.flags |= flag::IPV4;
        self.out.l3_offset = to_offset(at);
        self.out.tos = header[1];
        self.out.ttl = header[8];
        self.out.ip_proto = protocol;
        self.mark_ipv4(at, header_len, end, protocol);
        self.visitor.ipv4(at, at + header_len, end);
        if header_len > 20 {
            self.out.flags |= flag::OPTIONS;
        }
        if fragment != 0 {
            self.out.flags |= if fragment & FRAGMENT_OFFSET == 0 {
                flag::FRAGMENT
            } else {
                flag::FRAGMENT | flag::LATER_FRAGMENT
            };
            self.visitor.fragment(FragmentInfo {
                header: at,
                next_header_at: at + 9,
                data: at + header_len,
                end,
                id: be16(header, 4).into(),
                protocol,
                offset: u32::from(fragment & FRAGMENT_OFFSET) * 8,
                has_more: fragment & MORE_FRAGMENTS != 0,
            });
        }
        let upper = self.upper(UpperHeader { protocol, at: at + header_len, end });
        let (src_port, dst_port) =
            if fragment == 0 { (self.out.src_port, self.out.dst_port) } else { (0, 0) };
        let src = u32::from_be_bytes([header[12], header[13], header[14], header[15]]);
        let dst = u32::from_be_bytes([header[16], header[17], header[18], header[19]]);
        self.out.flow_hash = flow_hash::ipv4(src, dst, src_port, dst_port, protocol);
        upper
    }

    /// Reports the bytes that a patch must not change because of an IPv4 header.
    #[inline(always)]
    fn mark_ipv4(&mut self, at: usize, header_len: usize, end: usize, protocol: u8) {
        self.visitor.fixed(at, 1);
        self.visitor.fixed(at + 2, 2);
        self.visitor.fixed(at + 6, 2);
        self.visitor.fixed(at + 9, 3);
        if header_len > 20 {
            // The options can be a source route, which ends with the final destination address. The checksum above IP
            // covers that address. So neither the options nor the destination address in front of them may change.
            self.visitor.fixed(at + 16, header_len - 16);
        }
        if protocol == protocol::AH {
            self.mark_authenticated(at + 12, 8, at + header_len, end);
        }
    }

    /// Parses the IPv6 header at `at` and the headers above it.
    #[inline(never)]
    pub(crate) fn ipv6(&mut self, at: usize) -> Result<(), IncompleteHeader> {
        let header: &[u8; IPV6_HEADER] = self.need(at)?;
        if header[0] >> 4 != 6 {
            self.mark_malformed(at);
            return Ok(());
        }
        let payload_len = usize::from(be16(header, 4));
        let next = header[6];
        let mut end = at + IPV6_HEADER + payload_len;
        if payload_len == 0 && next != protocol::NO_NEXT_HEADER {
            end = self.wire;
        } else if end > self.wire {
            self.out.flags |= flag::MALFORMED;
        }
        self.out.flags |= flag::IPV6;
        self.out.l3_offset = to_offset(at);
        self.out.tos = header[0] << 4 | header[1] >> 4;
        self.out.ttl = header[7];
        self.out.ip_proto = next;
        self.visitor.fixed_bits(at, 0xf0);
        self.visitor.fixed(at + 4, 3);
        self.visitor.ipv6(at, end);
        let first = UpperHeader { protocol: next, at: at + IPV6_HEADER, end };
        let mut fragment_protocol = None;
        let upper = if is_extension(next) {
            self.extensions(at, first, &mut fragment_protocol)
        } else {
            Ok(Some(first))
        };
        let walked = match upper {
            Ok(Some(upper)) => self.upper(upper),
            Ok(None) => Ok(()),
            Err(short) => Err(short),
        };
        let (src_port, dst_port, hashed_protocol) = match fragment_protocol {
            Some(protocol) => (0, 0, protocol),
            None => (self.out.src_port, self.out.dst_port, self.out.ip_proto),
        };
        let (src, dst) = ([be64(header, 8), be64(header, 16)], [be64(header, 24), be64(header, 32)]);
        self.out.flow_hash = flow_hash::ipv6(src, dst, src_port, dst_port, hashed_protocol);
        walked
    }

    /// Follows extension headers to the header above IP; `None` if one of them is malformed. In a fragment, sets
    /// `fragment_protocol` to the protocol that the fragment header names. All fragments of a datagram have this number;
    /// the headers behind the fragment header are in the first fragment only.
    fn extensions(
        &mut self,
        ip: usize,
        first: UpperHeader,
        fragment_protocol: &mut Option<u8>,
    ) -> Result<Option<UpperHeader>, IncompleteHeader> {
        let UpperHeader { mut protocol, mut at, end } = first;
        let mut next_header_at = ip + 6;
        self.out.flags |= flag::OPTIONS;
        while is_extension(protocol) {
            if end < at + 8 {
                self.mark_malformed(at);
                return Ok(None);
            }
            let header: &[u8; 8] = self.need(at)?;
            let len = match protocol {
                protocol::FRAGMENT => 8,
                protocol::AH => (usize::from(header[1]) + 2) * 4,
                _ => (usize::from(header[1]) + 1) * 8,
            };
            self.mark_extension(ip, protocol, header, at, len, end);
            if end < at + len {
                self.mark_malformed(at);
                return Ok(None);
            }
            self.visitor.extension(protocol, at, len);
            let kind = std::mem::replace(&mut protocol, header[0]);
            self.out.ip_proto = protocol;
            let begin = at;
            at += len;
            let named_at = std::mem::replace(&mut next_header_at, begin);
            if kind == protocol::FRAGMENT {
                let (is_later, has_more) = (be16(header, 2) >> 3 != 0, header[3] & 1 == 1);
                if is_later || has_more {
                    self.out.flags |= flag::FRAGMENT;
                    *fragment_protocol = Some(protocol);
                    self.visitor.fragment(FragmentInfo {
                        header: begin,
                        next_header_at: named_at,
                        data: at,
                        end,
                        id: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                        protocol,
                        offset: u32::from(be16(header, 2) & !7),
                        has_more,
                    });
                }
                if is_later {
                    self.out.flags |= flag::LATER_FRAGMENT;
                    break;
                }
            }
        }
        Ok(Some(UpperHeader { protocol, at, end }))
    }

    /// Reports the bytes that a patch must not change because of an IPv6 extension header.
    #[inline(always)]
    fn mark_extension(
        &mut self,
        ip: usize,
        protocol: u8,
        header: &[u8; 8],
        at: usize,
        len: usize,
        end: usize,
    ) {
        self.visitor.fixed(at, len);
        match protocol {
            // The fourth byte is the number of segments left.
            protocol::ROUTING if header[3] != 0 => self.visitor.has_other_destination(),
            // A home address option (RFC 6275, 6.3) replaces the source address in checksums.
            protocol::DESTINATION => self.visitor.fixed(ip + 8, 16),
            // These headers have checksums of their own, which cover the addresses too.
            protocol::MOBILITY | protocol::HIP | protocol::SHIM6 => self.visitor.fixed(ip + 8, 32),
            protocol::AH => self.mark_authenticated(ip + 8, 32, at + len, end),
            _ => {}
        }
    }

    /// Reports the bytes that an authentication header covers: the addresses and everything above IP. Only owners of
    /// the authentication key can compute a new integrity check value.
    #[inline(always)]
    fn mark_authenticated(&mut self, addresses: usize, addresses_len: usize, from: usize, end: usize) {
        self.visitor.fixed(addresses, addresses_len);
        self.visitor.fixed(from, end.saturating_sub(from));
    }
}

/// Returns true for the protocol number of an IPv6 extension header that is parsed: one that names the next header, and
/// whose length is fixed or stated. ESP does not count, because it encrypts the number of its next header.
#[inline(always)]
fn is_extension(next: u8) -> bool {
    matches!(
        next,
        protocol::HOP_BY_HOP
            | protocol::ROUTING
            | protocol::FRAGMENT
            | protocol::AH
            | protocol::DESTINATION
            | protocol::MOBILITY
            | protocol::HIP
            | protocol::SHIM6
    )
}

#[inline(always)]
fn be64(header: &[u8; IPV6_HEADER], at: usize) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|i| header[at + i]))
}
