//! Checked writes (patches) into the private copy of a packet.
//!
//! A patch may change the contents of a packet, but not how it is parsed. So the offsets and flags of the packet's
//! descriptor stay right for every module, however many patches there are. Also, only bytes whose consistency can be
//! preserved are written: checksums over them are updated (RFC 1624), and bytes whose checksum cannot be updated are
//! denied. No module can write a *denied* byte. A byte is *withheld* from a module that may not write the byte's field.
//!
//! | layer | can be written | denied |
//! |---|---|---|
//! | Ethernet, cooked captures | hardware addresses | type and length fields; LLC and SNAP |
//! | BSD loopback (NULL, LOOP) | nothing | address family |
//! | VLAN tag | tag control information | EtherType |
//! | MPLS label | label, traffic class, TTL | bottom of stack |
//! | PPPoE | session | version, type, code, length, protocol |
//! | IPv4 | type of service, identification, TTL, addresses (with options: the source only) | version, lengths, fragment fields, protocol, checksum, options |
//! | IPv6 | traffic class, flow label, hop limit, addresses | version, length, next header; extension headers as a whole |
//! | TCP | everything but the denied fields | data offset, checksum |
//! | UDP | ports, payload | length, checksum |
//! | ICMP, ICMPv6 | everything but the checksum | checksum |
//! | later fragments, other protocols above IP | nothing | everything above IP |
//! | network layers but IPv4 and IPv6 | everything above the link layer | nothing |
//!
//! Further rules:
//! - If the parser stops at a link, IP or extension header, because the header is malformed or not wholly captured,
//!   everything from this header on is denied.
//! - A byte that contains a permitted and a denied field can be written if the bits of the denied field keep their
//!   values.
//! - An address also counts in the TCP, UDP or ICMPv6 checksum, except in later fragments: a module that rewrites a
//!   fragmented datagram has to rewrite all of its fragments. Behind an IPv6 routing header with segments left, those
//!   checksums do not cover the destination address (RFC 8200, section 8.1), so writing it does not update them.
//! - Addresses are denied if a checksum that weir cannot update may cover them. The source address is denied if IPv6
//!   destination options follow, which may contain a home address. Both addresses are denied if a mobility, HIP, shim6
//!   or authentication header follows, and if the protocol above IP is not among TCP, UDP, ICMP, ICMPv6, IPv4, IPv6,
//!   GRE, ESP, IGMP, SCTP, MPLS and "no next header".
//! - Behind an authentication header everything is denied.
//! - A UDP checksum of 0 (none) stays 0. A checksum that is not captured is not updated.
//!
//! A module may be permitted to write only some [fields](WriteFields). It can write all bits of a byte that belongs to
//! permitted fields wholly. If a byte belongs to permitted fields in part, the patch must not change its other bits. A
//! byte that belongs to no permitted field is withheld even if the patch would write its present value: the module's
//! view may hide this value, and a patch that succeeds only for the right value would reveal it.

use crate::checksum::ChecksumUpdate;
use crate::classify::{HeaderVisitor, LinkPart, PEEK_MAX, to_usize, walk};
use crate::ip::protocol;
use crate::link::ETHERNET_HEADER;
use crate::meta::{LinkType, Meta};
use crate::upper::UpperHeader;
use crate::write_field::{WriteField, WriteFields};
use std::ops::Range;
use weir_abi::{Descriptor, flag, limit};

/// The reason why a packet was not patched. The packet is unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The patch is not wholly inside the captured bytes.
    #[error(
        "{len} bytes at offset {offset} are not inside the packet, of which {captured} bytes are captured"
    )]
    Range {
        /// The offset of the patch.
        offset: u32,
        /// The length of the patch.
        len: usize,
        /// The number of captured bytes of the packet.
        captured: usize,
    },
    /// The patch writes a byte, or changes a bit, that belongs to none of the fields that this module may write.
    #[error("the byte at offset {at} belongs to no field that may be written")]
    Withheld {
        /// The offset of the byte.
        at: usize,
    },
    /// No module may write a byte of the patch: it determines how the packet is parsed, is a checksum, or is covered by
    /// a checksum that cannot be updated.
    #[error(
        "the byte at offset {at} cannot be patched: it determines how the packet is parsed, is a checksum, or needs a checksum that weir cannot update"
    )]
    Denied {
        /// The offset of the byte.
        at: usize,
    },
}

/// Checks whether [`apply`] would succeed. `head` is the packet, or at least its first `min(cap_len, PEEK_MAX)`
/// bytes.
///
/// Applying an allowed patch does not change which patches are allowed. So several patches can be checked first and
/// then applied in any order.
///
/// # Errors
///
/// See [`PatchError`]. If the bytes are not those of the descriptor, the patch is `Denied`.
pub fn check(head: &[u8], descriptor: &Descriptor, offset: u32, bytes: &[u8]) -> Result<(), PatchError> {
    WriteFields::ALL.check(head, descriptor, offset, bytes)
}

impl WriteFields {
    /// Returns true if the descriptor alone shows that a patch is allowed: the patch lies in one field of a header that
    /// was wholly captured, or in several if they share a byte, and these fields may be written. [`Self::check`] allows
    /// such a patch, too, unless the packet has changed since it was described. If the result is false, [`Self::check`]
    /// decides.
    #[inline]
    pub fn check_common(self, descriptor: &Descriptor, offset: u32, bytes: &[u8]) -> bool {
        common_fields(descriptor, to_usize(offset), bytes).is_some_and(|fields| self.has_all(fields))
    }

    /// Checks as [`check`] does, for a module that may write these fields only, at most [`limit::PATCH_BYTES`] at
    /// once.
    ///
    /// # Errors
    ///
    /// See [`PatchError`].
    pub fn check(
        self,
        head: &[u8],
        descriptor: &Descriptor,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), PatchError> {
        visit(head, to_usize(descriptor.cap_len), descriptor, offset, bytes, self).map(|_| ())
    }

    /// Applies as [`apply`] does, for a module that may write these fields only.
    ///
    /// # Errors
    ///
    /// See [`PatchError`].
    pub fn apply(
        self,
        packet: &mut [u8],
        descriptor: &Descriptor,
        offset: u32,
        bytes: &[u8],
    ) -> Result<(), PatchError> {
        let captured = packet.len().min(to_usize(descriptor.cap_len));
        let sums = visit(packet, captured, descriptor, offset, bytes, self)?;
        write(packet, descriptor, offset, bytes, &sums);
        Ok(())
    }
}

/// Writes `bytes` at `offset` of `packet` and updates its checksums. `packet` is all captured bytes of the packet
/// that `descriptor` describes.
///
/// # Errors
///
/// See [`PatchError`]. If the packet is not the descriptor's, the patch is `Denied`.
pub fn apply(
    packet: &mut [u8],
    descriptor: &Descriptor,
    offset: u32,
    bytes: &[u8],
) -> Result<(), PatchError> {
    WriteFields::ALL.apply(packet, descriptor, offset, bytes)
}

/// Returns the fields that contain all of a patch, if the descriptor shows their place: hardware addresses of Ethernet,
/// fields of the IP header that decide nothing about it, and of a TCP or UDP header. `None` for other patches.
#[inline]
fn common_fields(d: &Descriptor, offset: usize, bytes: &[u8]) -> Option<WriteFields> {
    const EXCLUDED: u32 = flag::MALFORMED | flag::FRAGMENT | flag::LATER_FRAGMENT;
    const TCP_OR_UDP: u32 = flag::TCP | flag::UDP;
    const TYPE_OF_SERVICE: WriteFields = WriteFields::of(&[WriteField::Dscp, WriteField::Ecn]);
    const FIRST_OF_IPV6: WriteFields =
        WriteFields::of(&[WriteField::Dscp, WriteField::Ecn, WriteField::FlowLabel]);
    let end = offset.checked_add(bytes.len())?;
    // With `L4` and without `MALFORMED`, all headers up to the payload are valid and captured.
    if d.flags & (flag::L4 | EXCLUDED) != flag::L4 || bytes.is_empty() || end > to_usize(d.cap_len) {
        return None;
    }
    let (ip, upper) = (usize::from(d.l3_offset), usize::from(d.l4_offset));
    let is_in = |from: usize, to: usize| from <= offset && end <= to;
    let field = if offset < ip {
        let is_ethernet = d.link_type == LinkType::Ethernet.number();
        is_ethernet.then_some(WriteField::Macs).filter(|_| end <= 12)
    } else if offset < upper {
        match d.flags & (flag::IPV4 | flag::IPV6) {
            flag::IPV4 if is_in(ip + 1, ip + 2) => return Some(TYPE_OF_SERVICE),
            flag::IPV4 if is_in(ip + 4, ip + 6) => Some(WriteField::IpId),
            flag::IPV4 if is_in(ip + 8, ip + 9) => Some(WriteField::Ttl),
            // The version keeps its value.
            flag::IPV6 if offset == ip && end <= ip + 2 => {
                return bytes.first().filter(|first| **first >> 4 == 6).map(|_| FIRST_OF_IPV6);
            }
            flag::IPV6 if is_in(ip + 2, ip + 4) => Some(WriteField::FlowLabel),
            flag::IPV6 if is_in(ip + 7, ip + 8) => Some(WriteField::Ttl),
            _ => None,
        }
    } else {
        let is_at = |from: usize, to: usize| is_in(upper + from, upper + to);
        match d.flags & TCP_OR_UDP {
            flag::TCP | flag::UDP if is_at(0, 4) => Some(WriteField::Ports),
            flag::TCP if is_at(4, 8) => Some(WriteField::TcpSequence),
            flag::TCP if is_at(8, 12) => Some(WriteField::TcpAcknowledgement),
            flag::TCP if is_at(13, 14) => Some(WriteField::TcpFlags),
            flag::TCP if is_at(14, 16) => Some(WriteField::TcpWindow),
            _ => None,
        }
    };
    field.map(WriteFields::from)
}

/// Writes an allowed patch, and updates the checksums that cover it.
fn write(packet: &mut [u8], descriptor: &Descriptor, offset: u32, bytes: &[u8], sums: &PacketChecksums) {
    let from = to_usize(offset);
    let (mut header, mut upper) = (ChecksumUpdate::default(), ChecksumUpdate::default());
    for (distance, (place, &new)) in packet.iter_mut().skip(from).zip(bytes).enumerate() {
        let at = from + distance;
        let old = std::mem::replace(place, new);
        if sums.header.contains(&at) {
            header.add_change(at - sums.header.start, old, new);
        }
        for covered in [&sums.upper, &sums.addresses] {
            if covered.contains(&at) {
                upper.add_change(at - covered.start, old, new);
            }
        }
    }
    if let Some(field) = sums.header_field {
        update(packet, field, header, false);
    }
    if let Some(field) = sums.upper_field {
        update(packet, field, upper, descriptor.flags & flag::UDP != 0);
    }
}

/// Updates the checksum at `field`, if it is captured.
fn update(packet: &mut [u8], field: usize, changes: ChecksumUpdate, is_udp: bool) {
    let Some(place) = packet.get_mut(field..).and_then(|rest| rest.first_chunk_mut::<2>()) else { return };
    let old = u16::from_be_bytes(*place);
    if changes.is_empty() || is_udp && old == 0 {
        return;
    }
    let new = changes.apply(old);
    *place = if is_udp && new == 0 { [0xff, 0xff] } else { new.to_be_bytes() };
}

/// The offsets of a packet's checksums, and the bytes that they cover.
#[derive(Default)]
struct PacketChecksums {
    /// The offset of the IPv4 header's checksum.
    header_field: Option<usize>,
    /// The range of the IPv4 header.
    header: Range<usize>,
    /// The offset of the checksum above IP.
    upper_field: Option<usize>,
    /// The range that the checksum above IP covers, without addresses.
    upper: Range<usize>,
    /// The range of the addresses that the checksum above IP covers.
    addresses: Range<usize>,
}

/// A visitor that collects the checksums to update, and finds bytes of the patch that must not be written.
struct PatchVisitor<'a> {
    head: &'a [u8],
    patch: Range<usize>,
    bytes: &'a [u8],
    /// The offset of a byte of the patch that no module may write.
    denied: Option<usize>,
    /// True if the final destination address is in a routing header. Then checksums above IP do not cover the
    /// destination address of the IP header.
    routed: bool,
    sums: PacketChecksums,
    /// The bits that the module may write; `None` if it may write all fields.
    writable: Option<WritableBits>,
}

/// The longest patch of a module that may write only some fields, in bytes.
const LIMITED_PATCH_BYTES: usize = limit::PATCH_BYTES as usize;

/// The bits of a patch that a module may write, if it is limited to some fields.
struct WritableBits {
    fields: WriteFields,
    /// For each byte of the patch, the bits that belong to one of `fields`.
    bits: [u8; LIMITED_PATCH_BYTES],
}

/// The length of the first header of a cooked capture (LINUX_SLL).
const COOKED_HEADER: usize = 16;
/// The length of the first header of a cooked capture of version 2 (LINUX_SLL2).
const COOKED_V2_HEADER: usize = 20;
/// The offset of TCP's options.
const TCP_OPTIONS: usize = 20;

/// The ICMP types of echo reply and request.
const ECHOES: [u8; 2] = [0, 8];
/// The ICMP types of timestamp request and reply.
const TIMESTAMPS: [u8; 2] = [13, 14];
/// The ICMPv6 types of echo request and reply.
const ECHOES_V6: [u8; 2] = [128, 129];

impl HeaderVisitor for PatchVisitor<'_> {
    fn fixed(&mut self, at: usize, len: usize) {
        let (from, to) = (at.max(self.patch.start), at.saturating_add(len).min(self.patch.end));
        if from < to {
            self.denied = Some(from);
        }
    }

    fn fixed_bits(&mut self, at: usize, mask: u8) {
        let new = at.checked_sub(self.patch.start).and_then(|index| self.bytes.get(index));
        if let (Some(new), Some(old)) = (new, self.head.get(at))
            && (new ^ old) & mask != 0
        {
            self.denied = Some(at);
        }
    }

    fn checksum(&mut self, field: usize, from: usize, end: usize) {
        // Bytes behind the end of the IP packet are padding, and not a checksum.
        if field + 2 <= end {
            self.fixed(field, 2);
            self.sums.upper_field = Some(field);
            self.sums.upper = from..end;
        }
    }

    fn unknown_from(&mut self, at: usize) {
        self.fixed(at, usize::MAX);
    }

    fn has_other_destination(&mut self) {
        self.routed = true;
    }

    #[inline]
    fn link(&mut self, part: LinkPart, at: usize, len: usize) {
        match (part, len) {
            (LinkPart::Header, ETHERNET_HEADER) => self.mark_writable(WriteField::Macs, at, 12),
            (LinkPart::Header, COOKED_HEADER) => self.mark_writable(WriteField::Macs, at + 6, 8),
            (LinkPart::Header, COOKED_V2_HEADER) => self.mark_writable(WriteField::Macs, at + 12, 8),
            (LinkPart::Tag, _) => self.mark_writable(WriteField::Vlan, at, 2),
            (LinkPart::Label, _) => self.mark_writable(WriteField::Mpls, at, 4),
            (LinkPart::Session, _) => self.mark_writable(WriteField::Pppoe, at + 2, 2),
            (LinkPart::Header | LinkPart::Snap, _) => {}
        }
    }

    #[inline]
    fn other_network(&mut self, at: usize) {
        self.mark_writable(WriteField::OtherProtocols, at, usize::MAX);
    }

    #[inline]
    fn ipv4(&mut self, at: usize, _data: usize, end: usize) {
        self.mark_bits_writable(WriteField::Dscp, at + 1, 0xfc);
        self.mark_bits_writable(WriteField::Ecn, at + 1, 0x03);
        self.mark_writable(WriteField::IpId, at + 4, 2);
        self.mark_writable(WriteField::Ttl, at + 8, 1);
        self.mark_writable(WriteField::Addresses, at + 12, 8);
        // Padding behind the IP packet counts as payload.
        self.mark_writable(WriteField::Payload, end, usize::MAX);
    }

    #[inline]
    fn ipv6(&mut self, at: usize, end: usize) {
        self.mark_bits_writable(WriteField::Dscp, at, 0x0f);
        self.mark_bits_writable(WriteField::Dscp, at + 1, 0xc0);
        self.mark_bits_writable(WriteField::Ecn, at + 1, 0x30);
        self.mark_bits_writable(WriteField::FlowLabel, at + 1, 0x0f);
        self.mark_writable(WriteField::FlowLabel, at + 2, 2);
        self.mark_writable(WriteField::Ttl, at + 7, 1);
        self.mark_writable(WriteField::Addresses, at + 8, 32);
        // Padding behind the IP packet counts as payload.
        self.mark_writable(WriteField::Payload, end, usize::MAX);
    }

    #[inline]
    fn upper(&mut self, upper: UpperHeader) {
        if self.writable.is_some() {
            self.mark_upper_writable(upper);
        }
    }
}

/// Walks over the headers of a packet, and returns the checksums that a patch changes.
fn visit(
    head: &[u8],
    captured: usize,
    descriptor: &Descriptor,
    offset: u32,
    bytes: &[u8],
    fields: WriteFields,
) -> Result<PacketChecksums, PatchError> {
    let from = to_usize(offset);
    if from > captured || bytes.len() > captured - from {
        return Err(PatchError::Range { offset, len: bytes.len(), captured });
    }
    let Some(meta) = Meta::from_descriptor(descriptor) else { return Err(PatchError::Denied { at: from }) };
    let patch = from..from + bytes.len();
    let writable =
        (fields != WriteFields::ALL).then_some(WritableBits { fields, bits: [0; LIMITED_PATCH_BYTES] });
    let mut visitor = PatchVisitor {
        head,
        patch,
        bytes,
        denied: None,
        routed: false,
        sums: PacketChecksums::default(),
        writable,
    };
    // The bytes may have changed since they were described, for instance in a file. Then they cannot be patched.
    let mut reparsed = Descriptor::default();
    if walk(head, &meta, &mut reparsed, &mut visitor).is_err()
        || structure(&reparsed) != structure(descriptor)
    {
        return Err(PatchError::Denied { at: from });
    }
    visitor.add_ip_rules(descriptor);
    match (visitor.denied, visitor.first_withheld()) {
        (Some(at), _) => Err(PatchError::Denied { at }),
        (None, Some(at)) => Err(PatchError::Withheld { at }),
        (None, None) => Ok(visitor.sums),
    }
}

/// The bits that a module limited to some fields may write.
impl PatchVisitor<'_> {
    /// Marks these bytes as writable if the module may write `field`, to which they belong.
    #[inline]
    fn mark_writable(&mut self, field: WriteField, at: usize, len: usize) {
        let Some(writable) = self.writable.as_mut().filter(|writable| writable.fields.has(field)) else {
            return;
        };
        let from = at.max(self.patch.start) - self.patch.start;
        let to = at.saturating_add(len).min(self.patch.end).saturating_sub(self.patch.start);
        if let Some(bits) = writable.bits.get_mut(from..to.min(LIMITED_PATCH_BYTES)) {
            bits.fill(0xff);
        }
    }

    /// Marks these bits of this byte as writable if the module may write `field`, to which they belong.
    #[inline]
    fn mark_bits_writable(&mut self, field: WriteField, at: usize, mask: u8) {
        let Some(writable) = self.writable.as_mut().filter(|writable| writable.fields.has(field)) else {
            return;
        };
        let index = at.checked_sub(self.patch.start);
        if let Some(bits) = index.and_then(|index| writable.bits.get_mut(index)) {
            *bits |= mask;
        }
    }

    #[inline(never)]
    fn mark_upper_writable(&mut self, upper: UpperHeader) {
        let UpperHeader { protocol, at, end } = upper;
        // The parser reads only the first PEEK_MAX bytes. The set of writable bits must not depend on later bytes.
        let head = self.head.get(..PEEK_MAX).unwrap_or(self.head);
        let byte_at = |at: usize| head.get(at).copied();
        // Bytes behind the end of the IP packet are padding, also where a header would continue.
        let mark = |visitor: &mut Self, field, at: usize, len: usize| {
            visitor.mark_writable(field, at, len.min(end.saturating_sub(at)));
        };
        match protocol {
            protocol::TCP => {
                let words = byte_at(at + 12).map_or(0, |byte| usize::from(byte >> 4));
                // A stated length shorter than the fixed header means no options; the payload follows the fixed
                // header.
                let payload = (at + words * 4).max(at + TCP_OPTIONS);
                mark(self, WriteField::Ports, at, 4);
                mark(self, WriteField::TcpSequence, at + 4, 4);
                mark(self, WriteField::TcpAcknowledgement, at + 8, 4);
                if at + 12 < end {
                    self.mark_bits_writable(WriteField::TcpFlags, at + 12, 0x0f);
                }
                mark(self, WriteField::TcpFlags, at + 13, 1);
                mark(self, WriteField::TcpWindow, at + 14, 2);
                if end < at + 18 {
                    // Here is no checksum, since the IP packet ends before its end.
                    self.mark_writable(WriteField::Payload, at + 16, 2);
                }
                mark(self, WriteField::TcpUrgent, at + 18, 2);
                mark(self, WriteField::TcpOptions, at + TCP_OPTIONS, payload - at - TCP_OPTIONS);
                self.mark_writable(WriteField::Payload, payload, usize::MAX);
            }
            protocol::UDP => {
                mark(self, WriteField::Ports, at, 4);
                self.mark_writable(WriteField::Payload, at + 8, usize::MAX);
            }
            protocol::ICMP | protocol::ICMPV6 => {
                let echoes = if protocol == protocol::ICMP { ECHOES } else { ECHOES_V6 };
                let kind = byte_at(at);
                let is_echo = kind.is_some_and(|kind| echoes.contains(&kind));
                let is_timestamp =
                    protocol == protocol::ICMP && kind.is_some_and(|kind| TIMESTAMPS.contains(&kind));
                mark(self, WriteField::Icmp, at, 8);
                if is_echo || is_timestamp {
                    mark(self, WriteField::IcmpEcho, at + 4, 4);
                }
                let (data, len) = (at + 8, end.saturating_sub(at + 8));
                self.mark_writable(if is_echo { WriteField::Payload } else { WriteField::Icmp }, data, len);
            }
            _ => {}
        }
    }

    /// Returns the offset of the first byte of the patch that has no writable bit, or in which the patch changes a bit
    /// that is not writable.
    fn first_withheld(&self) -> Option<usize> {
        let writable = self.writable.as_ref()?;
        let is_withheld = |index: usize, new: u8| {
            let mask = writable.bits.get(index).copied().unwrap_or(0);
            let old = self.head.get(self.patch.start + index);
            // If the present byte is not captured, the change of its bits cannot be determined.
            mask == 0 || mask != 0xff && old.is_none_or(|old| (new ^ old) & !mask != 0)
        };
        let mut bytes = self.bytes.iter().enumerate();
        bytes.find(|(index, new)| is_withheld(*index, **new)).map(|(index, _)| self.patch.start + index)
    }
}

impl PatchVisitor<'_> {
    /// Adds the rules for the IP header that the parser does not report: its checksum, and the addresses.
    fn add_ip_rules(&mut self, descriptor: &Descriptor) {
        let ip = usize::from(descriptor.l3_offset);
        let (addresses, address_len) = match descriptor.flags & (flag::IPV4 | flag::IPV6) {
            flag::IPV4 => (ip + 12, 4),
            flag::IPV6 => (ip + 8, 16),
            _ => return,
        };
        if descriptor.flags & flag::IPV4 != 0 {
            let words = self.head.get(ip).map_or(0, |first| usize::from(first & 15));
            self.sums.header = ip..ip + words * 4;
            self.sums.header_field = Some(ip + 10);
        }
        if !addresses_can_change(descriptor) {
            self.fixed(addresses, address_len * 2);
        }
        if descriptor.flags & (flag::TCP | flag::UDP) != 0 || descriptor.ip_proto == protocol::ICMPV6 {
            self.sums.addresses =
                addresses..addresses + if self.routed { address_len } else { address_len * 2 };
        }
    }
}

/// The part of a descriptor that patches never change.
fn structure(d: &Descriptor) -> impl PartialEq {
    let lengths = (d.cap_len, d.wire_len, d.payload_len);
    (d.flags, d.l3_offset, d.l4_offset, d.payload_offset, d.ip_proto, d.ether_type, lengths)
}

/// Returns true if weir can update every checksum above IP that may cover the addresses.
fn addresses_can_change(d: &Descriptor) -> bool {
    const IGMP: u8 = 2;
    const IP_IN_IP: u8 = 4;
    const IPV6_IN_IP: u8 = 41;
    const GRE: u8 = 47;
    const ESP: u8 = 50;
    const SCTP: u8 = 132;
    const MPLS_IN_IP: u8 = 137;
    match d.ip_proto {
        protocol::TCP | protocol::UDP => true,
        IGMP | IP_IN_IP | IPV6_IN_IP | GRE | ESP | protocol::NO_NEXT_HEADER | SCTP | MPLS_IN_IP => true,
        protocol::ICMP => d.flags & flag::IPV4 != 0,
        protocol::ICMPV6 => d.flags & flag::IPV6 != 0,
        // Other protocols may have a checksum over the addresses.
        _ => false,
    }
}
