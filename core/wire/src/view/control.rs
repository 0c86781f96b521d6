//! Views of control messages: ICMP (RFC 792, RFC 1256), ICMPv6 (RFC 4443) with neighbour discovery (RFC 4861, RFC
//! 4191, RFC 8106) and multicast listener discovery (RFC 2710, RFC 3810), IGMP (RFC 2236, RFC 3376).
//!
//! The body of a control message counts as a header, as far as the parser understands it. If an error message or an
//! ICMPv4 redirect quotes a packet, the view applies to the quoted headers. The packet in an ICMPv6 redirect is always
//! zeroed.

use super::packet_rewriter::{PacketRewriter, Rest};
use super::{Exposure, ZeroedField};
use crate::classify::FirstHeader;
use crate::link::{IPV4, IPV6};

/// Options of neighbour discovery.
mod nd_option {
    pub(super) const SOURCE_LINK: u8 = 1;
    pub(super) const TARGET_LINK: u8 = 2;
    pub(super) const PREFIX: u8 = 3;
    pub(super) const REDIRECTED: u8 = 4;
    pub(super) const MTU: u8 = 5;
    pub(super) const ROUTE: u8 = 24;
    pub(super) const DNS_SERVERS: u8 = 25;
}

impl PacketRewriter<'_> {
    /// Copies an ICMP message of which at least 8 bytes are captured.
    pub(super) fn icmp(&mut self, at: usize, end: usize, depth: u8) {
        let Some(&[kind]) = self.read::<1>(at) else { return };
        self.copy_up_to(at + 4);
        match kind {
            0 | 3..=5 | 8..=14 => self.copy_up_to(at + 8),
            _ => return self.unknown_message(at, end),
        }
        match kind {
            0 | 8 | 13 | 14 => self.echo(at, end),
            3 | 4 | 11 | 12 => {
                let end = self.end_of_quote(at, end, kind, false);
                self.quoted(at + 8, end, FirstHeader::Type(IPV4), depth);
            }
            5 => {
                self.address_v4(at + 4);
                self.quoted(at + 8, end, FirstHeader::Type(IPV4), depth);
            }
            9 => self.router_advertisement(at, end),
            _ => self.finish(&Rest::Payload { at: at + 8, end }),
        }
    }

    /// Copies an ICMPv6 message of which at least 8 bytes are captured.
    pub(super) fn icmpv6(&mut self, at: usize, end: usize, depth: u8) {
        let Some(&[kind]) = self.read::<1>(at) else { return };
        self.copy_up_to(at + 4);
        match kind {
            1..=4 | 128..=137 | 143 => self.copy_up_to(at + 8),
            _ => return self.unknown_message(at, end),
        }
        match kind {
            1..=4 => {
                let end = self.end_of_quote(at, end, kind, true);
                self.quoted(at + 8, end, FirstHeader::Type(IPV6), depth);
            }
            128 | 129 => self.echo(at, end),
            130..=132 => self.listener_discovery(at, end),
            133 => self.neighbour_discovery(at, end, 8, &[]),
            134 => self.neighbour_discovery(at, end, 16, &[]),
            135 | 136 => self.neighbour_discovery(at, end, 24, &[8]),
            137 => self.neighbour_discovery(at, end, 40, &[8, 24]),
            _ => self.group_records(at, end, 16),
        }
    }

    /// Copies the body of an echo or timestamp message.
    fn echo(&mut self, at: usize, end: usize) {
        if self.hides(ZeroedField::IcmpEcho) {
            self.zero(at + 4, 4);
        }
        self.finish(&Rest::Payload { at: at + 8, end });
    }

    /// Copies kind, code and checksum of an unknown message. Its other bytes count as unknown. If the view does not
    /// show unknown bytes, four zeros follow the checksum, so that the copy has all 8 bytes of an ICMP header.
    fn unknown_message(&mut self, at: usize, end: usize) {
        self.finish(&Rest::Unknown { at: at + 4, end });
        // No unknown bytes were copied.
        if self.copied() == at + 4 {
            self.copy_up_to(at + 8);
            self.zero(at + 4, 4);
        }
    }

    /// The end of the packet that an error message quotes. Extensions can follow that packet (RFC 4884), with a
    /// checksum of their own.
    fn end_of_quote(&self, at: usize, end: usize, kind: u8, is_v6: bool) -> usize {
        /// The length of a quoted packet with extensions behind it, if the message does not state one: see RFC 4884,
        /// section 5.5.
        const WITHOUT_LENGTH: usize = 128;
        let quote = at + 8;
        let len = match (kind, is_v6, self.read::<8>(at)) {
            (3 | 11 | 12, false, Some(&[_, _, _, _, _, words, ..])) => usize::from(words) * 4,
            (1 | 3, true, Some(&[_, _, _, _, words, ..])) => usize::from(words) * 8,
            _ => return end,
        };
        let has_extensions = || !is_v6 && self.read(quote + WITHOUT_LENGTH) == Some(&[0x20, 0]);
        match len {
            0 if has_extensions() => end.min(quote + WITHOUT_LENGTH),
            0 => end,
            len => end.min(quote + len),
        }
    }

    /// Copies the entries of an IPv4 router advertisement (RFC 1256): pairs of an address and a preference.
    fn router_advertisement(&mut self, at: usize, end: usize) {
        let Some(&[count, words]) = self.read::<2>(at + 4) else { return };
        let captured_end = self.captured_end(end);
        let mut entry = at + 8;
        for _ in 0..count {
            if words != 2 || entry + 8 > captured_end || !self.take_listed(1) {
                break;
            }
            self.copy_up_to(entry + 8);
            self.address_v4(entry);
            entry += 8;
        }
        self.finish(&Rest::Unknown { at: entry, end });
    }

    /// Copies a message of multicast listener discovery: one of version 1, or a query of version 2.
    fn listener_discovery(&mut self, at: usize, end: usize) {
        let captured_end = self.captured_end(end);
        if at + 24 > captured_end {
            return self.finish(&Rest::Unknown { at: at + 8, end });
        }
        self.copy_up_to(at + 24);
        self.address_v6(at + 8);
        let is_query = self.read(at) == Some(&[130]);
        match self.read::<4>(at + 24) {
            Some(&[_, _, high, low]) if is_query && at + 28 <= captured_end => {
                self.copy_up_to(at + 28);
                let sources = self.address_list(
                    at + 28,
                    usize::from(u16::from_be_bytes([high, low])),
                    16,
                    captured_end,
                );
                self.finish(&Rest::Unknown { at: sources, end });
            }
            _ => self.finish(&Rest::Unknown { at: at + 24, end }),
        }
    }

    /// Copies an IGMP message from `at` to `end`.
    pub(super) fn igmp(&mut self, at: usize, end: usize) {
        let captured_end = self.captured_end(end);
        let Some(&[kind]) = self.read::<1>(at).filter(|_| at + 8 <= captured_end) else {
            return self.finish(&Rest::Unknown { at, end });
        };
        match kind {
            0x11 | 0x12 | 0x16 | 0x17 => {
                self.copy_up_to(at + 8);
                self.address_v4(at + 4);
                match self.read::<4>(at + 8) {
                    Some(&[_, _, high, low]) if kind == 0x11 && at + 12 <= captured_end => {
                        self.copy_up_to(at + 12);
                        let sources = self.address_list(
                            at + 12,
                            usize::from(u16::from_be_bytes([high, low])),
                            4,
                            captured_end,
                        );
                        self.finish(&Rest::Unknown { at: sources, end });
                    }
                    _ => self.finish(&Rest::Unknown { at: at + 8, end }),
                }
            }
            0x22 => {
                self.copy_up_to(at + 8);
                self.group_records(at, end, 4);
            }
            _ => self.finish(&Rest::Unknown { at, end }),
        }
    }

    /// Copies the records of an IGMPv3 or MLDv2 report. Each address has `address_len` bytes.
    fn group_records(&mut self, at: usize, end: usize, address_len: usize) {
        let captured_end = self.captured_end(end);
        let Some(&[high, low]) = self.read::<2>(at + 6) else { return };
        let mut record = at + 8;
        for _ in 0..u16::from_be_bytes([high, low]) {
            // The auxiliary data of records are not understood.
            let Some(&[_, 0, high, low]) =
                self.read::<4>(record).filter(|_| record + 4 + address_len <= captured_end)
            else {
                break;
            };
            self.copy_up_to(record + 4);
            let count = 1 + usize::from(u16::from_be_bytes([high, low]));
            let next = self.address_list(record + 4, count, address_len, captured_end);
            let is_whole = next == record + 4 + count * address_len;
            record = next;
            if !is_whole {
                break;
            }
        }
        self.finish(&Rest::Unknown { at: record, end });
    }

    /// Copies `count` addresses of `address_len` bytes each, as far as they are captured and the limit for lists
    /// allows, and hides them. The captured bytes of the message end at `captured_end`. Returns the offset of the end of the
    /// copied addresses.
    fn address_list(
        &mut self,
        mut at: usize,
        count: usize,
        address_len: usize,
        captured_end: usize,
    ) -> usize {
        for _ in 0..count {
            if at + address_len > captured_end || !self.take_listed(1) {
                break;
            }
            self.copy_up_to(at + address_len);
            if address_len == 4 {
                self.address_v4(at)
            } else {
                self.address_v6(at)
            }
            at += address_len;
        }
        at
    }

    /// Copies a message of neighbour discovery: a fixed part of `fixed_len` bytes, with addresses at the offsets
    /// `addresses`, and options.
    fn neighbour_discovery(&mut self, at: usize, end: usize, fixed_len: usize, addresses: &[usize]) {
        let captured_end = self.captured_end(end);
        if at + fixed_len > captured_end {
            return self.finish(&Rest::Unknown { at: at + 8, end });
        }
        self.copy_up_to(at + fixed_len);
        for address in addresses {
            self.address_v6(at + address);
        }
        let mut option = at + fixed_len;
        while let Some(&[kind, words]) = self.read::<2>(option) {
            let len = usize::from(words) * 8;
            if len == 0 || option + len > captured_end {
                break;
            }
            self.copy_up_to(option + len);
            self.hide_in_nd_option(kind, option, len);
            option += len;
        }
        self.finish(&Rest::Unknown { at: option, end });
    }

    /// Hides fields of an option of neighbour discovery.
    fn hide_in_nd_option(&mut self, kind: u8, at: usize, len: usize) {
        match (kind, len) {
            // The option contains the redirected packet, with payload.
            (nd_option::REDIRECTED, _) => self.zero(at + 8, len - 8),
            (nd_option::SOURCE_LINK | nd_option::TARGET_LINK, 8) => {
                if self.view.macs == Exposure::Zeroed {
                    self.zero(at + 2, 6);
                }
            }
            (nd_option::PREFIX, 32) if self.take_listed(1) => self.prefix(at + 2, at + 16, 16),
            (nd_option::ROUTE, 8 | 16 | 24) if self.take_listed(1) => self.prefix(at + 2, at + 8, len - 8),
            (nd_option::DNS_SERVERS, _) if len % 16 == 8 && self.take_listed(len / 16) => {
                for server in (at + 8..at + len).step_by(16) {
                    self.address_v6(server);
                }
            }
            (nd_option::MTU, 8) => {}
            _ => self.zero(at + 2, len - 2),
        }
    }

    /// Hides the address prefix in the `len` bytes at `at`. The byte at `prefix_len_at` has its length in bits.
    fn prefix(&mut self, prefix_len_at: usize, at: usize, len: usize) {
        if !self.hides_addresses {
            return;
        }
        let mut prefix = [0; 16];
        let captured = self.from.get(at..at + len).unwrap_or_default();
        prefix.iter_mut().zip(captured).for_each(|(to, byte)| *to = *byte);
        let prefix_len = self.read::<1>(prefix_len_at).map_or(0, |&[bits]| u32::from(bits).min(128));
        let kept = !u128::MAX.checked_shr(prefix_len).unwrap_or(0);
        let substitute = self.substitute_v6(u128::from_be_bytes(prefix)) & kept;
        self.write(at, substitute.to_be_bytes().get(..len).unwrap_or_default());
    }
}
