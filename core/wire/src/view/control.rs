//! Views of control messages: ICMP (RFC 792, RFC 1256), ICMPv6 (RFC 4443) with neighbour discovery (RFC 4861, RFC 4191, RFC 8106) and multicast listener
//! discovery (RFC 2710, RFC 3810), IGMP (RFC 2236, RFC 3376).
//!
//! Their bodies count as headers, as far as they are understood. A message that quotes a packet shows what the view shows of that packet's headers.

use super::scene::{PacketRewriter, Rest};
use super::{Exposure, ZeroedField};
use crate::classify::NetworkKind;
use crate::link::{IPV4, IPV6};

/// Options of neighbour discovery.
mod option_nd {
    pub(super) const SOURCE_LINK: u8 = 1;
    pub(super) const TARGET_LINK: u8 = 2;
    pub(super) const PREFIX: u8 = 3;
    pub(super) const REDIRECTED: u8 = 4;
    pub(super) const MTU: u8 = 5;
    pub(super) const ROUTE: u8 = 24;
    pub(super) const DNS_SERVERS: u8 = 25;
}

impl PacketRewriter<'_> {
    /// An ICMP message, of which 8 bytes are there.
    pub(super) fn icmp(&mut self, at: usize, end: usize, depth: u8) {
        let Some(&[kind]) = self.read::<1>(at) else { return };
        self.show(at + 4);
        match kind {
            0 | 3..=5 | 8..=14 => self.show(at + 8),
            _ => return self.unknown_message(at, end),
        }
        match kind {
            0 | 8 | 13 | 14 => self.echo(at, end),
            3 | 4 | 11 | 12 => {
                let end = self.end_of_quote(at, end, kind, false);
                self.quoted(at + 8, end, NetworkKind::Type(IPV4), depth);
            }
            5 => {
                self.address_v4(at + 4);
                self.quoted(at + 8, end, NetworkKind::Type(IPV4), depth);
            }
            9 => self.routers(at, end),
            _ => self.finish(&Rest::Payload { at: at + 8, end }),
        }
    }

    /// An ICMPv6 message, of which 8 bytes are there.
    pub(super) fn icmpv6(&mut self, at: usize, end: usize, depth: u8) {
        let Some(&[kind]) = self.read::<1>(at) else { return };
        self.show(at + 4);
        match kind {
            1..=4 | 128..=137 | 143 => self.show(at + 8),
            _ => return self.unknown_message(at, end),
        }
        match kind {
            1..=4 => {
                let end = self.end_of_quote(at, end, kind, true);
                self.quoted(at + 8, end, NetworkKind::Type(IPV6), depth);
            }
            128 | 129 => self.echo(at, end),
            130..=132 => self.listeners(at, end),
            133 => self.discovery(at, end, 8, &[]),
            134 => self.discovery(at, end, 16, &[]),
            135 | 136 => self.discovery(at, end, 24, &[8]),
            137 => self.discovery(at, end, 40, &[8, 24]),
            _ => self.records(at, end, 16),
        }
    }

    fn echo(&mut self, at: usize, end: usize) {
        if self.hides(ZeroedField::IcmpEcho) {
            self.zero(at + 4, 4);
        }
        self.finish(&Rest::Payload { at: at + 8, end });
    }

    /// Shows kind, code and checksum. The parser does not know the rest, from the next four bytes on.
    fn unknown_message(&mut self, at: usize, end: usize) {
        self.finish(&Rest::Unknown { at: at + 4, end });
        if self.shown() == at + 4 {
            self.show(at + 8);
            self.zero(at + 4, 4);
        }
    }

    /// The end of the packet that an error message quotes. Extensions follow it (RFC 4884), with a checksum of their own.
    fn end_of_quote(&self, at: usize, end: usize, kind: u8, is_v6: bool) -> usize {
        /// The length of a quoted packet with extensions behind it if the message has none: see RFC 4884, section 5.5.
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

    /// A router advertisement of IPv4 (RFC 1256): pairs of an address and a preference.
    fn routers(&mut self, at: usize, end: usize) {
        let Some(&[count, words]) = self.read::<2>(at + 4) else { return };
        let limit = self.limit(end);
        let mut entry = at + 8;
        for _ in 0..count {
            if words != 2 || entry + 8 > limit || !self.lists(1) {
                break;
            }
            self.show(entry + 8);
            self.address_v4(entry);
            entry += 8;
        }
        self.finish(&Rest::Unknown { at: entry, end });
    }

    /// Multicast listener discovery, up to its second version's queries.
    fn listeners(&mut self, at: usize, end: usize) {
        let limit = self.limit(end);
        if at + 24 > limit {
            return self.finish(&Rest::Unknown { at: at + 8, end });
        }
        self.show(at + 24);
        self.address_v6(at + 8);
        let is_query = self.read(at) == Some(&[130]);
        match self.read::<4>(at + 24) {
            Some(&[_, _, high, low]) if is_query && at + 28 <= limit => {
                self.show(at + 28);
                let sources = self.sources(at + 28, usize::from(u16::from_be_bytes([high, low])), 16, limit);
                self.finish(&Rest::Unknown { at: sources, end });
            }
            _ => self.finish(&Rest::Unknown { at: at + 24, end }),
        }
    }

    /// IGMP, from `at` to `end`.
    pub(super) fn igmp(&mut self, at: usize, end: usize) {
        let limit = self.limit(end);
        let Some(&[kind]) = self.read::<1>(at).filter(|_| at + 8 <= limit) else {
            return self.finish(&Rest::Unknown { at, end });
        };
        match kind {
            0x11 | 0x12 | 0x16 | 0x17 => {
                self.show(at + 8);
                self.address_v4(at + 4);
                match self.read::<4>(at + 8) {
                    Some(&[_, _, high, low]) if kind == 0x11 && at + 12 <= limit => {
                        self.show(at + 12);
                        let sources =
                            self.sources(at + 12, usize::from(u16::from_be_bytes([high, low])), 4, limit);
                        self.finish(&Rest::Unknown { at: sources, end });
                    }
                    _ => self.finish(&Rest::Unknown { at: at + 8, end }),
                }
            }
            0x22 => {
                self.show(at + 8);
                self.records(at, end, 4);
            }
            _ => self.finish(&Rest::Unknown { at, end }),
        }
    }

    /// The records of a report of IGMPv3 or MLDv2, whose groups have so many bytes.
    fn records(&mut self, at: usize, end: usize, address: usize) {
        let limit = self.limit(end);
        let Some(&[high, low]) = self.read::<2>(at + 6) else { return };
        let mut record = at + 8;
        for _ in 0..u16::from_be_bytes([high, low]) {
            // What records have besides addresses is nobody's.
            let Some(&[_, 0, high, low]) = self.read::<4>(record).filter(|_| record + 4 + address <= limit)
            else {
                break;
            };
            self.show(record + 4);
            let count = 1 + usize::from(u16::from_be_bytes([high, low]));
            let next = self.sources(record + 4, count, address, limit);
            let is_whole = next == record + 4 + count * address;
            record = next;
            if !is_whole {
                break;
            }
        }
        self.finish(&Rest::Unknown { at: record, end });
    }

    /// So many addresses of so many bytes, as far as they are there and lists may have them. Says where they end.
    fn sources(&mut self, mut at: usize, count: usize, address: usize, limit: usize) -> usize {
        for _ in 0..count {
            if at + address > limit || !self.lists(1) {
                break;
            }
            self.show(at + address);
            if address == 4 {
                self.address_v4(at)
            } else {
                self.address_v6(at)
            }
            at += address;
        }
        at
    }

    /// A message of neighbour discovery: a fixed part, with addresses at these places, and options.
    fn discovery(&mut self, at: usize, end: usize, fixed: usize, addresses: &[usize]) {
        let limit = self.limit(end);
        if at + fixed > limit {
            return self.finish(&Rest::Unknown { at: at + 8, end });
        }
        self.show(at + fixed);
        for address in addresses {
            self.address_v6(at + address);
        }
        let mut option = at + fixed;
        while let Some(&[kind, words]) = self.read::<2>(option) {
            let len = usize::from(words) * 8;
            if len == 0 || option + len > limit {
                break;
            }
            self.show(option + len);
            self.option_nd(kind, option, len);
            option += len;
        }
        self.finish(&Rest::Unknown { at: option, end });
    }

    fn option_nd(&mut self, kind: u8, at: usize, len: usize) {
        match (kind, len) {
            // The packet that is redirected has a payload.
            (option_nd::REDIRECTED, _) => self.zero(at + 8, len - 8),
            (option_nd::SOURCE_LINK | option_nd::TARGET_LINK, 8) => {
                if self.view.macs == Exposure::Zeroed {
                    self.zero(at + 2, 6);
                }
            }
            (option_nd::PREFIX, 32) if self.lists(1) => self.prefix(at + 2, at + 16, 16),
            (option_nd::ROUTE, 8 | 16 | 24) if self.lists(1) => self.prefix(at + 2, at + 8, len - 8),
            (option_nd::DNS_SERVERS, _) if len % 16 == 8 && self.lists(len / 16) => {
                for server in (at + 8..at + len).step_by(16) {
                    self.address_v6(server);
                }
            }
            (option_nd::MTU, 8) => {}
            _ => self.zero(at + 2, len - 2),
        }
    }

    /// A prefix of which `len` bytes are at `at`, and how many of its bits count at `bits`.
    fn prefix(&mut self, bits: usize, at: usize, len: usize) {
        if !self.hides_addresses {
            return;
        }
        let mut prefix = [0; 16];
        let there = self.from.get(at..at + len).unwrap_or_default();
        prefix.iter_mut().zip(there).for_each(|(to, byte)| *to = *byte);
        let counts = self.read::<1>(bits).map_or(0, |&[bits]| u32::from(bits).min(128));
        let kept = !u128::MAX.checked_shr(counts).unwrap_or(0);
        let other = self.other_v6(u128::from_be_bytes(prefix)) & kept;
        self.write(at, other.to_be_bytes().get(..len).unwrap_or_default());
    }
}
