//! The packet rewriter: it copies one packet header by header, and hides fields in the copy.

use super::anonymise::Anonymiser;
use super::{Addresses, Exposure, PacketView, Payload, ZeroedField};
use crate::checksum::{add_bytes, fold_sum};
use crate::classify::{FirstHeader, HeaderVisitor, LinkPart, to_usize, walk_inside};
use crate::consistent::is_only_ip;
use crate::ip::protocol;
use crate::tunnel::{Captured, TUNNELS_MAX};
use crate::upper::UpperHeader;
use weir_abi::{Descriptor, flag};

/// The most hidden addresses that are replaced in the lists of one packet, such as lists of multicast groups; the rest
/// of a longer list is not copied. Replacing a new address takes up to 128 blocks of AES. A report of multicast groups
/// has space for 88 IPv6 addresses in an Ethernet frame of the usual length, and for thousands in frames that a network
/// card has merged.
const LISTED_MAX: usize = 64;

/// The IP header of a packet.
#[derive(Clone, Copy)]
pub(super) struct IpHeader {
    pub(super) at: usize,
    pub(super) is_v6: bool,
    /// True if a source route or routing header names another final destination than this header.
    pub(super) routed: bool,
}

/// The bytes after the last header.
pub(super) enum Rest {
    /// Payload from `at` to `end`.
    Payload { at: usize, end: usize },
    /// A transport header of which at most the offset of the checksum is known, and its payload, from `at` to `end`.
    Transport { at: usize, end: usize },
    /// Bytes from `at` to `end` that the parser does not understand. They may contain headers, and checksums over all
    /// of these bytes.
    Unknown { at: usize, end: usize },
}

/// A checksum with the range of bytes that it covers.
pub(super) struct CoveredChecksum {
    /// The offset of the checksum.
    pub(super) field: usize,
    /// The beginning of the covered range.
    pub(super) from: usize,
    /// The end of the covered range.
    pub(super) end: usize,
    /// The IP header whose addresses the checksum covers, too, and the protocol in its pseudo header; `None` if it has
    /// no pseudo header.
    pub(super) pseudo: Option<(IpHeader, u8)>,
    /// True if the covered data continue in other packets.
    pub(super) is_partial: bool,
}

/// A rewriter of one packet under a view.
pub(super) struct PacketRewriter<'a> {
    pub(super) view: &'a PacketView,
    anonymiser: Option<&'a mut Anonymiser>,
    /// All captured bytes.
    pub(super) from: &'a [u8],
    /// The output, as long as `from`.
    to: &'a mut [u8],
    /// The number of bytes copied so far.
    copied: usize,
    /// The end of the captured bytes of the packet that is being copied, which may be inside another one.
    captured_end: usize,
    /// True if the view hides more than payload.
    pub(super) hides_fields: bool,
    /// True if the view hides IP addresses.
    pub(super) hides_addresses: bool,
    /// True inside a packet that an ICMP error message quotes. If the view hides header fields, only the quoted headers
    /// that the parser understands are copied.
    is_quoted: bool,
    /// True if only a part of the packet that is being copied is present: it is the first fragment of a datagram, or
    /// states a greater length than the packet that carries it.
    pub(super) is_partial: bool,
    /// The number of hidden addresses in the lists of this packet so far.
    listed: usize,
}

impl<'a> PacketRewriter<'a> {
    pub(super) fn new(
        view: &'a PacketView,
        anonymiser: Option<&'a mut Anonymiser>,
        from: &'a [u8],
        to: &'a mut [u8],
    ) -> Self {
        Self {
            view,
            anonymiser,
            from,
            to,
            copied: 0,
            captured_end: from.len(),
            hides_fields: PacketView { payload: Payload::All, ..*view } != PacketView::ALL,
            hides_addresses: view.addresses != Addresses::Visible,
            is_quoted: false,
            is_partial: false,
            listed: 0,
        }
    }

    /// The number of bytes copied so far.
    pub(super) fn copied(&self) -> usize {
        self.copied
    }

    /// Copies all bytes up to `end` unchanged. The code for each header calls this first, and then hides fields of
    /// that header in the copy.
    #[inline(always)]
    pub(super) fn copy_up_to(&mut self, end: usize) {
        let range = self.copied..end.min(self.captured_end);
        if let (Some(from), Some(to)) = (self.from.get(range.clone()), self.to.get_mut(range.clone())) {
            to.copy_from_slice(from);
            self.copied = range.end;
        }
    }

    /// The end of the captured bytes of a header or message that ends at `end`.
    #[inline(always)]
    pub(super) fn captured_end(&self, end: usize) -> usize {
        end.min(self.captured_end)
    }

    /// The `N` captured bytes at `at`.
    #[inline(always)]
    pub(super) fn read<const N: usize>(&self, at: usize) -> Option<&'a [u8; N]> {
        self.from.get(at..)?.first_chunk()
    }

    /// All captured bytes.
    pub(super) fn captured(&self) -> Captured<'a> {
        Captured::whole(self.from)
    }

    /// Overwrites bytes of the copy, as far as they have been copied.
    #[inline(always)]
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let place = self.to.get_mut(..self.copied).and_then(|shown| shown.get_mut(at..)).unwrap_or_default();
        match place.get_mut(..bytes.len()) {
            Some(place) => place.copy_from_slice(bytes),
            None => place.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte),
        }
    }

    /// Overwrites `len` bytes from `at` with `byte`, as far as they have been copied.
    #[inline(always)]
    pub(super) fn fill(&mut self, at: usize, len: usize, byte: u8) {
        let end = at.saturating_add(len).min(self.copied);
        if let Some(range) = self.to.get_mut(at..end) {
            range.fill(byte);
        }
    }

    /// Zeros these bytes of the copy.
    #[inline(always)]
    pub(super) fn zero(&mut self, at: usize, len: usize) {
        self.fill(at, len, 0);
    }

    /// Keeps these bits of a byte of the copy, and zeros the others.
    #[inline(always)]
    pub(super) fn mask(&mut self, at: usize, kept: u8) {
        if let Some(byte) = self.to.get_mut(..self.copied).and_then(|shown| shown.get_mut(at)) {
            *byte &= kept;
        }
    }

    /// Returns true if this field is hidden.
    #[inline(always)]
    pub(super) fn hides(&self, field: ZeroedField) -> bool {
        self.view.zeroed.has(field)
    }

    /// The pseudonym of an IPv4 address if addresses are anonymised, otherwise 0.
    #[inline(always)]
    fn substitute_v4(&mut self, address: u32) -> u32 {
        self.anonymiser.as_deref_mut().map_or(0, |anonymiser| anonymiser.ipv4(address))
    }

    /// The pseudonym of an IPv6 address if addresses are anonymised, otherwise 0.
    #[inline(always)]
    pub(super) fn substitute_v6(&mut self, address: u128) -> u128 {
        self.anonymiser.as_deref_mut().map_or(0, |anonymiser| anonymiser.ipv6(address))
    }

    /// Hides the IPv4 address at `at`, if addresses are hidden.
    #[inline(always)]
    pub(super) fn address_v4(&mut self, at: usize) {
        if self.hides_addresses {
            match self.read(at) {
                Some(&address) => {
                    let substitute = self.substitute_v4(u32::from_be_bytes(address)).to_be_bytes();
                    self.write(at, &substitute);
                }
                None => self.zero(at, 4),
            }
        }
    }

    /// Hides the IPv6 address at `at`, if addresses are hidden.
    #[inline(always)]
    pub(super) fn address_v6(&mut self, at: usize) {
        if self.hides_addresses {
            match self.read(at) {
                Some(&address) => {
                    let substitute = self.substitute_v6(u128::from_be_bytes(address)).to_be_bytes();
                    self.write(at, &substitute);
                }
                None => self.zero(at, 16),
            }
        }
    }

    /// Counts further addresses of lists towards [`LISTED_MAX`]. Returns false if there are more, which must not be copied
    /// then. If addresses are not hidden, nothing is counted: only replacing addresses is costly. Addresses at fixed
    /// offsets of headers do not count: a packet has few of them, as at most [`TUNNELS_MAX`] packets are nested.
    pub(super) fn take_listed(&mut self, addresses: usize) -> bool {
        if self.hides_addresses {
            self.listed += addresses;
        }
        self.listed <= LISTED_MAX
    }

    /// Hides the MAC address at `at`, if hardware addresses are hidden. If only IP addresses are hidden, the part of a
    /// group's MAC address that is derived from its IP address is zeroed (RFC 1112, 6.4; RFC 2464, section 7).
    #[inline(always)]
    pub(super) fn mac(&mut self, at: usize) {
        if self.view.macs == Exposure::Zeroed {
            self.zero(at, 6);
        } else if self.hides_addresses {
            match self.read::<3>(at) {
                Some([0x33, 0x33, _]) => self.zero(at + 2, 4),
                Some([0x01, 0x00, 0x5e]) => self.zero(at + 3, 3),
                _ => {}
            }
        }
    }

    /// Copies the visible part of the bytes after the last header.
    pub(super) fn finish(&mut self, rest: &Rest) {
        let payload_max = match self.view.payload {
            _ if self.is_quoted && self.hides_fields => 0,
            Payload::First(bytes) => to_usize(bytes),
            Payload::All => usize::MAX,
        };
        let (at, end) = match *rest {
            Rest::Payload { at, end } => (at, end),
            Rest::Transport { .. } | Rest::Unknown { .. } if self.hides_fields => return,
            Rest::Transport { at, end } => (at, end),
            // A checksum among unknown bytes cannot be recomputed. So these bytes are copied only if all of them are
            // captured and visible.
            Rest::Unknown { .. } if self.is_partial => return,
            Rest::Unknown { at, end } if end > self.from.len() || end > at.saturating_add(payload_max) => {
                return;
            }
            Rest::Unknown { at, end } => (at, end),
        };
        // Nothing is copied behind a gap.
        if self.copied == self.captured_end(at) {
            self.copy_up_to(at.saturating_add(payload_max).min(end));
        }
    }

    /// Returns true if these bytes of the copy are unchanged.
    #[inline(always)]
    pub(super) fn is_as_captured(&self, from: usize, end: usize) -> bool {
        self.to.get(from..end.min(self.copied)) == self.from.get(from..end)
    }

    /// Recomputes a checksum, or zeros it if not all bytes that it covers are copied. Must be called after the fields
    /// in these bytes have been hidden.
    pub(super) fn finish_checksum(&mut self, sum: &CoveredChecksum) {
        let Some(&stored) = self.read::<2>(sum.field) else { return self.zero(sum.field, 2) };
        let is_udp = matches!(sum.pseudo, Some((_, protocol::UDP)));
        if is_udp && stored == [0, 0] {
            return;
        }
        let is_shown = !sum.is_partial && sum.end <= self.copied && sum.field + 2 <= sum.end;
        if is_shown && !self.hides_fields && self.is_as_captured(sum.from, sum.end) {
            return;
        }
        self.zero(sum.field, 2);
        if !is_shown || sum.pseudo.is_some_and(|(ip, _)| ip.routed) {
            return;
        }
        let Some(covered) = self.to.get(sum.from..sum.end) else { return };
        let mut total = add_bytes(0, covered);
        if let Some((ip, protocol)) = sum.pseudo {
            let (from, len) = if ip.is_v6 { (ip.at + 8, 32) } else { (ip.at + 12, 8) };
            total = add_bytes(total, self.to.get(from..from + len).unwrap_or_default());
            total += u64::from(protocol) + covered.len() as u64;
        }
        let checksum = match !fold_sum(total) {
            // For UDP, zero means no checksum (RFC 768).
            0 if is_udp => u16::MAX,
            checksum => checksum,
        };
        self.write(sum.field, &checksum.to_be_bytes());
    }

    /// Recomputes the checksum of the IPv4 header from `at` to `data`, or zeros it if the header is not captured
    /// completely.
    #[inline(always)]
    pub(super) fn finish_ipv4_checksum(&mut self, at: usize, data: usize) {
        self.zero(at + 10, 2);
        if data <= self.copied
            && let Some(header) = self.to.get(at..data)
        {
            let checksum = !fold_sum(add_bytes(0, header));
            self.write(at + 10, &checksum.to_be_bytes());
        }
    }

    /// Copies the packet from `at` to `end`, which may be beyond the captured bytes.
    pub(super) fn packet(&mut self, at: usize, end: usize, kind: FirstHeader, depth: u8) {
        let outer_captured_end = self.captured_end;
        self.captured_end = self.captured_end(end);
        self.packet_within(at, end, kind, depth);
        self.captured_end = outer_captured_end;
    }

    /// Copies the packet from `at` to `end`, after `self.captured_end` has been set to its end.
    fn packet_within(&mut self, at: usize, end: usize, kind: FirstHeader, depth: u8) {
        let part = self.captured().part(at, end);
        let mut descriptor = Descriptor::default();
        let mut visitor = CopyVisitor { rewriter: self, base: at, parsed: ParsedHeaders::default() };
        if walk_inside(part, kind, &mut descriptor, &mut visitor).is_err() {
            visitor.unknown_from(0);
        }
        visitor.end_labels();
        let parsed = visitor.parsed;
        // If addresses are hidden, the routing header is zeroed, so the IP header's destination is the final one.
        let routed = parsed.routed && !self.hides_addresses;
        match parsed {
            ParsedHeaders { unknown: Some(at), .. } => self.finish(&Rest::Unknown { at, end }),
            ParsedHeaders { upper: Some(upper), ip: Some(ip), .. } => {
                // A packet can state a greater length than the packet that carries it.
                self.is_partial |= upper.end > end;
                self.above_ip(
                    UpperPart {
                        upper: UpperHeader { end: upper.end.min(end), ..upper },
                        covered: upper.end,
                        ip: IpHeader { routed: ip.routed || routed, ..ip },
                        payload: (descriptor.flags & flag::L4 != 0)
                            .then(|| at + usize::from(descriptor.payload_offset)),
                        flags: descriptor.flags,
                    },
                    depth,
                );
            }
            ParsedHeaders { other: Some(at), .. } => self.not_ip(at, end, descriptor.ether_type),
            // The packet ends with its last header.
            _ => self.finish(&Rest::Unknown { at: self.copied, end }),
        }
    }

    /// Copies a packet that another one carries in a tunnel or quotes in a message. A packet that is nested in more
    /// than [`TUNNELS_MAX`] packets counts as unknown bytes.
    pub(super) fn inside(&mut self, at: usize, end: usize, kind: FirstHeader, depth: u8) {
        if depth < TUNNELS_MAX {
            self.packet(at, end, kind, depth + 1);
        } else {
            self.finish(&Rest::Unknown { at, end });
        }
    }

    /// Copies a packet whose beginning is quoted by an error message.
    pub(super) fn quoted(&mut self, at: usize, end: usize, kind: FirstHeader, depth: u8) {
        let before = std::mem::replace(&mut self.is_quoted, true);
        self.inside(at, end, kind, depth);
        self.is_quoted = before;
    }
}

/// The part of an IP packet above its header.
pub(super) struct UpperPart {
    /// The header above IP. Its `end` is limited to the end of the packet that carries the IP packet.
    pub(super) upper: UpperHeader,
    /// The end of the IP packet according to its header, up to which checksums extend.
    pub(super) covered: usize,
    pub(super) ip: IpHeader,
    /// The offset of the payload, if the header above IP is captured completely.
    pub(super) payload: Option<usize>,
    /// The flags of the packet's descriptor.
    pub(super) flags: u32,
}

/// The headers reported by the parser. Offsets are those of the outermost packet.
#[derive(Default)]
struct ParsedHeaders {
    /// The offset from which the parser understands nothing.
    unknown: Option<usize>,
    /// The offset of a network layer that is not IP.
    other: Option<usize>,
    ip: Option<IpHeader>,
    upper: Option<UpperHeader>,
    /// True if a routing header has segments left.
    routed: bool,
    /// The range of a stack of MPLS labels that has not been copied yet.
    labels: Option<(usize, usize)>,
}

/// A visitor that copies each header as the parser reports it.
struct CopyVisitor<'s, 'a> {
    rewriter: &'s mut PacketRewriter<'a>,
    /// The offset of the parsed packet in the outermost packet.
    base: usize,
    parsed: ParsedHeaders,
}

/// The length of an MPLS label in bytes.
const LABEL: usize = 4;

impl CopyVisitor<'_, '_> {
    /// Copies only the first label of a label stack that no IP packet follows. Only this label is announced by the
    /// header before the stack. The next words could be further labels, or other data if no label marks the bottom of
    /// the stack.
    fn end_labels(&mut self) {
        if let Some((first, _)) = self.parsed.labels.take() {
            self.rewriter.link(LinkPart::Label, first, LABEL);
            self.parsed = ParsedHeaders { unknown: Some(first + LABEL), ..ParsedHeaders::default() };
        }
    }
}

impl HeaderVisitor for CopyVisitor<'_, '_> {
    #[inline(always)]
    fn fixed(&mut self, _: usize, _: usize) {}
    #[inline(always)]
    fn fixed_bits(&mut self, _: usize, _: u8) {}
    #[inline(always)]
    fn checksum(&mut self, _: usize, _: usize, _: usize) {}

    fn unknown_from(&mut self, at: usize) {
        self.parsed.unknown = Some(self.base + at);
    }

    fn has_other_destination(&mut self) {
        self.parsed.routed = true;
    }

    #[inline(always)]
    fn link(&mut self, part: LinkPart, at: usize, len: usize) {
        let at = self.base + at;
        if part == LinkPart::Label {
            self.parsed.labels.get_or_insert((at, at)).1 = at + len;
        } else {
            self.rewriter.link(part, at, len);
        }
    }

    fn is_ip_behind_labels(&mut self, at: usize, wire: usize) -> bool {
        let (at, end) = (self.base + at, self.base.saturating_add(wire));
        let Some((first, _)) = self.parsed.labels else { return false };
        // If no label marks the bottom of the stack, the parser takes the packet behind the stack for labels, up to a
        // bit that looks like the mark. So there must be no IP packet inside the supposed stack.
        let captured = self.rewriter.captured();
        let is_ip_at = |word| is_only_ip(captured, word, end) == Ok(true);
        let is_in_stack = (first + LABEL..at).step_by(LABEL).any(is_ip_at);
        let is_ip = !is_in_stack && is_ip_at(at);
        if is_ip {
            self.parsed.labels = None;
            for label in (first..at).step_by(LABEL) {
                self.rewriter.link(LinkPart::Label, label, LABEL);
            }
        }
        is_ip
    }

    fn other_network(&mut self, at: usize) {
        self.parsed.other = Some(self.base + at);
    }

    #[inline(always)]
    fn ipv4(&mut self, at: usize, data: usize, _: usize) {
        self.parsed.ip = Some(self.rewriter.ipv4(self.base + at, self.base + data));
    }

    #[inline(always)]
    fn ipv6(&mut self, at: usize, _: usize) {
        self.parsed.ip = Some(self.rewriter.ipv6(self.base + at));
    }

    fn extension(&mut self, protocol: u8, at: usize, len: usize) {
        self.rewriter.extension(protocol, self.base + at, len);
    }

    #[inline(always)]
    fn upper(&mut self, UpperHeader { protocol, at, end }: UpperHeader) {
        let base = self.base;
        self.parsed.upper = Some(UpperHeader { protocol, at: base + at, end: base.saturating_add(end) });
    }
}
