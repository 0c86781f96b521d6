//! Checked writes into the private copy of a packet.
//!
//! A patch may change what a packet says, and not how it is parsed: so the packet's descriptor stays right in its offsets and
//! flags, for every module, however many patches there are. And weir writes only what it can keep consistent: the checksums over
//! the written bytes are updated (RFC 1624), and bytes whose checksum it cannot update are not written.
//!
//! | layer | can be written | is denied |
//! |---|---|---|
//! | Ethernet, cooked, NULL, LOOP | addresses | type, family and length fields; LLC and SNAP |
//! | tags, labels, PPPoE | tag control information, label, class and TTL, session | EtherTypes, bottom of stack, version, code, length, protocol |
//! | IPv4 | type of service, identification, TTL, addresses (with options: the source only) | everything else, options included |
//! | IPv6 | traffic class, flow label, hop limit, addresses | version, length, next header; extension headers as a whole |
//! | TCP | everything else | data offset, checksum |
//! | UDP | ports, payload | length, checksum |
//! | ICMP, ICMPv6 | everything else | checksum |
//! | later fragments, other protocols | nothing | everything above IP |
//! | neither IPv4 nor IPv6 | everything above the link layer | |
//!
//! Further rules:
//! - Everything from a header on that is malformed, or cut off before TCP, UDP or ICMP, is denied.
//! - A field that shares a byte with a denied one can be written if the bits of the denied one keep their values.
//! - An address also counts in the TCP, UDP or ICMPv6 checksum, except in later fragments: whoever rewrites a fragmented datagram has to
//!   rewrite all of its fragments. Behind an IPv6 routing header with segments left, the destination address is not the
//!   one that those checksums cover (RFC 8200, section 8.1), so writing it leaves them alone.
//! - Addresses are denied where a checksum that weir does not know covers them: below IPv6 destination options (home
//!   address; the source only), mobility, HIP, shim6 and authentication headers, and below other protocols than IPv4, IPv6, GRE,
//!   ESP, IGMP, SCTP, MPLS and "no next header".
//! - A UDP checksum of 0 (none) stays 0. A checksum that is not captured is not updated.
//!
//! Who may write only some [fields](WriteFields) writes whole bytes of these, and of a byte that they share with others their bits, while the others keep
//! theirs. A byte that is of none of them is denied even where it would stay as it is: what stands there need not be what the writer was shown.

use crate::checksum::Update;
use crate::classify::{LinkPart, Marks, PEEK_MAX, size, walk};
use crate::ip::protocol;
use crate::meta::Meta;
use crate::upper::Upper;
use crate::write_field::{WriteField, WriteFields};
use std::ops::Range;
use weir_abi::{Descriptor, flag, limit};

/// Why a packet was not patched. It is then as it was before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// Not wholly inside the captured bytes.
    #[error(
        "{len} bytes at offset {offset} are not inside the packet, of which {captured} bytes are captured"
    )]
    Range {
        /// Where the patch begins.
        offset: u32,
        /// How many bytes it writes.
        len: usize,
        /// How many bytes of the packet there are.
        captured: usize,
    },
    /// A byte, or a bit of it, that is of none of the fields that may be written.
    #[error("the byte at offset {at} is of no field that may be written here")]
    Withheld {
        /// A byte of the patch that is not.
        at: usize,
    },
    /// A field that says how the packet is parsed, a checksum, or bytes whose checksum cannot be updated.
    #[error(
        "the byte at offset {at} cannot be patched: it says how the packet is parsed, or it is or needs a checksum that is not weir's to write"
    )]
    Denied {
        /// A byte of the patch that is denied.
        at: usize,
    },
}

/// Says whether [`apply`] would do it, without doing it. `head` is the packet, or at least its first `min(cap_len, PEEK_MAX)` bytes.
///
/// Patches that are allowed do not change what is allowed: several can be checked first and then applied in any order.
///
/// # Errors
///
/// See [`PatchError`]. Bytes that are not those of the descriptor are `Denied`.
pub fn check(head: &[u8], descriptor: &Descriptor, offset: u32, bytes: &[u8]) -> Result<(), PatchError> {
    WriteFields::ALL.check(head, descriptor, offset, bytes)
}

impl WriteFields {
    /// [`check`] for somebody who may write these fields only, at most [`limit::PATCH_BYTES`] at once.
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
        guard(head, size(descriptor.cap_len), descriptor, offset, bytes, self).map(|_| ())
    }

    /// [`apply`] for somebody who may write these fields only.
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
        let captured = packet.len().min(size(descriptor.cap_len));
        let sums = guard(packet, captured, descriptor, offset, bytes, self)?;
        write(packet, descriptor, offset, bytes, &sums);
        Ok(())
    }
}

/// Writes `bytes` at `offset` of `packet`, all captured bytes of the packet that `descriptor` describes, and updates its checksums.
///
/// # Errors
///
/// See [`PatchError`]. A packet that is not the descriptor's is `Denied`.
pub fn apply(
    packet: &mut [u8],
    descriptor: &Descriptor,
    offset: u32,
    bytes: &[u8],
) -> Result<(), PatchError> {
    WriteFields::ALL.apply(packet, descriptor, offset, bytes)
}

/// Writes what is allowed.
fn write(packet: &mut [u8], descriptor: &Descriptor, offset: u32, bytes: &[u8], sums: &Sums) {
    let from = size(offset);
    let (mut header, mut upper) = (Update::default(), Update::default());
    for (distance, (place, &new)) in packet.iter_mut().skip(from).zip(bytes).enumerate() {
        let at = from + distance;
        let old = std::mem::replace(place, new);
        if sums.header.contains(&at) {
            header.byte(at - sums.header.start, old, new);
        }
        for covered in [&sums.upper, &sums.addresses] {
            if covered.contains(&at) {
                upper.byte(at - covered.start, old, new);
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

/// Corrects the checksum at `field`, if it is captured.
fn update(packet: &mut [u8], field: usize, changes: Update, is_udp: bool) {
    let Some(place) = packet.get_mut(field..).and_then(|rest| rest.first_chunk_mut::<2>()) else { return };
    let old = u16::from_be_bytes(*place);
    if changes.is_nothing() || is_udp && old == 0 {
        return;
    }
    let new = changes.apply(old);
    *place = if is_udp && new == 0 { [0xff, 0xff] } else { new.to_be_bytes() };
}

/// Where a packet's checksums are, and the bytes that they cover.
#[derive(Default)]
struct Sums {
    header_field: Option<usize>,
    header: Range<usize>,
    upper_field: Option<usize>,
    upper: Range<usize>,
    /// Those of the addresses that the checksum above IP covers.
    addresses: Range<usize>,
}

/// Listens to the parser for the checksums, and for anything that speaks against a patch.
struct Guard<'a> {
    head: &'a [u8],
    patch: Range<usize>,
    bytes: &'a [u8],
    denied: Option<usize>,
    routed: bool,
    sums: Sums,
    /// Where not everything may be written, what may.
    granted: Option<Granted>,
}

/// How long a patch can be for whoever may not write everything.
const GRANTED_BYTES: usize = limit::PATCH_BYTES as usize;

/// What may be written of the bytes of a patch.
struct Granted {
    fields: WriteFields,
    /// Of each byte those bits that are of one of the fields.
    bits: [u8; GRANTED_BYTES],
}

const TCP_OPTIONS: usize = 20;

/// What echoes are called, and messages that are like them: echo and its reply, timestamp and its reply.
const ECHOES: [u8; 2] = [0, 8];
const TIMESTAMPS: [u8; 2] = [13, 14];
const ECHOES_V6: [u8; 2] = [128, 129];

impl Marks for Guard<'_> {
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
        // Beyond the end of the IP packet there is padding, and no checksum.
        if field + 2 <= end {
            self.fixed(field, 2);
            self.sums.upper_field = Some(field);
            self.sums.upper = from..end;
        }
    }

    fn unknown_from(&mut self, at: usize) {
        self.fixed(at, usize::MAX);
    }

    fn routed(&mut self) {
        self.routed = true;
    }

    #[inline]
    fn link(&mut self, part: LinkPart, at: usize, len: usize) {
        match (part, len) {
            (LinkPart::Header, 14) => self.grant(WriteField::Macs, at, 12),
            (LinkPart::Header, 16) => self.grant(WriteField::Macs, at + 6, 8),
            (LinkPart::Header, 20) => self.grant(WriteField::Macs, at + 12, 8),
            (LinkPart::Tag, _) => self.grant(WriteField::Vlan, at, 2),
            (LinkPart::Label, _) => self.grant(WriteField::Mpls, at, 4),
            (LinkPart::Session, _) => self.grant(WriteField::Pppoe, at + 2, 2),
            (LinkPart::Header | LinkPart::Snap, _) => {}
        }
    }

    #[inline]
    fn other(&mut self, at: usize) {
        self.grant(WriteField::OtherProtocols, at, usize::MAX);
    }

    #[inline]
    fn ipv4(&mut self, at: usize, _data: usize, end: usize) {
        self.grant_bits(WriteField::Dscp, at + 1, 0xfc);
        self.grant_bits(WriteField::Ecn, at + 1, 0x03);
        self.grant(WriteField::IpId, at + 4, 2);
        self.grant(WriteField::Ttl, at + 8, 1);
        self.grant(WriteField::Addresses, at + 12, 8);
        self.grant(WriteField::Payload, end, usize::MAX);
    }

    #[inline]
    fn ipv6(&mut self, at: usize, end: usize) {
        self.grant_bits(WriteField::Dscp, at, 0x0f);
        self.grant_bits(WriteField::Dscp, at + 1, 0xc0);
        self.grant_bits(WriteField::Ecn, at + 1, 0x30);
        self.grant_bits(WriteField::FlowLabel, at + 1, 0x0f);
        self.grant(WriteField::FlowLabel, at + 2, 2);
        self.grant(WriteField::Ttl, at + 7, 1);
        self.grant(WriteField::Addresses, at + 8, 32);
        self.grant(WriteField::Payload, end, usize::MAX);
    }

    #[inline]
    fn upper(&mut self, upper: Upper) {
        if self.granted.is_some() {
            self.grant_upper(upper);
        }
    }
}

fn guard(
    head: &[u8],
    captured: usize,
    descriptor: &Descriptor,
    offset: u32,
    bytes: &[u8],
    fields: WriteFields,
) -> Result<Sums, PatchError> {
    let from = size(offset);
    if from > captured || bytes.len() > captured - from {
        return Err(PatchError::Range { offset, len: bytes.len(), captured });
    }
    let Some(meta) = Meta::of(descriptor) else { return Err(PatchError::Denied { at: from }) };
    let patch = from..from + bytes.len();
    let granted = (fields != WriteFields::ALL).then_some(Granted { fields, bits: [0; GRANTED_BYTES] });
    let mut guard = Guard { head, patch, bytes, denied: None, routed: false, sums: Sums::default(), granted };
    // The bytes may have changed since they were described, in a file for instance. Then nothing is known of them.
    let mut now = Descriptor::default();
    if walk(head, &meta, &mut now, &mut guard).is_err() || structure(&now) != structure(descriptor) {
        return Err(PatchError::Denied { at: from });
    }
    guard.network(descriptor);
    match (guard.denied, guard.withheld()) {
        (Some(at), _) => Err(PatchError::Denied { at }),
        (None, Some(at)) => Err(PatchError::Withheld { at }),
        (None, None) => Ok(guard.sums),
    }
}

/// What may be written by whoever may not write everything.
impl Guard<'_> {
    /// These bytes are of this field.
    #[inline]
    fn grant(&mut self, field: WriteField, at: usize, len: usize) {
        let Some(granted) = self.granted.as_mut().filter(|granted| granted.fields.has(field)) else { return };
        let from = at.max(self.patch.start) - self.patch.start;
        let to = at.saturating_add(len).min(self.patch.end).saturating_sub(self.patch.start);
        if let Some(bits) = granted.bits.get_mut(from..to.min(GRANTED_BYTES)) {
            bits.fill(0xff);
        }
    }

    /// These bits of this byte are.
    #[inline]
    fn grant_bits(&mut self, field: WriteField, at: usize, mask: u8) {
        let Some(granted) = self.granted.as_mut().filter(|granted| granted.fields.has(field)) else { return };
        let place = at.checked_sub(self.patch.start);
        if let Some(bits) = place.and_then(|place| granted.bits.get_mut(place)) {
            *bits |= mask;
        }
    }

    #[inline(never)]
    fn grant_upper(&mut self, upper: Upper) {
        let Upper { protocol, at, end } = upper;
        // As far as the parser looks, however much there is.
        let head = self.head.get(..PEEK_MAX).unwrap_or(self.head);
        let first = |at: usize| head.get(at).copied();
        match protocol {
            protocol::TCP => {
                let words = first(at + 12).map_or(0, |byte| usize::from(byte >> 4));
                // One that says less than there is has none, and what follows is its payload.
                let payload = (at + words * 4).max(at + TCP_OPTIONS);
                self.grant(WriteField::Ports, at, 4);
                self.grant(WriteField::TcpSequence, at + 4, 4);
                self.grant(WriteField::TcpAcknowledgement, at + 8, 4);
                self.grant_bits(WriteField::TcpFlags, at + 12, 0x0f);
                self.grant(WriteField::TcpFlags, at + 13, 1);
                self.grant(WriteField::TcpWindow, at + 14, 2);
                self.grant(WriteField::TcpUrgent, at + 18, 2);
                self.grant(WriteField::TcpOptions, at + TCP_OPTIONS, payload - at - TCP_OPTIONS);
                self.grant(WriteField::Payload, payload, usize::MAX);
            }
            protocol::UDP => {
                self.grant(WriteField::Ports, at, 4);
                self.grant(WriteField::Payload, at + 8, usize::MAX);
            }
            protocol::ICMP | protocol::ICMPV6 => {
                let echoes = if protocol == protocol::ICMP { ECHOES } else { ECHOES_V6 };
                let kind = first(at);
                let is_echo = kind.is_some_and(|kind| echoes.contains(&kind));
                let is_timestamp =
                    protocol == protocol::ICMP && kind.is_some_and(|kind| TIMESTAMPS.contains(&kind));
                self.grant(WriteField::Icmp, at, 8);
                if is_echo || is_timestamp {
                    self.grant(WriteField::IcmpEcho, at + 4, 4);
                }
                let (data, len) = (at + 8, end.saturating_sub(at + 8));
                self.grant(if is_echo { WriteField::Payload } else { WriteField::Icmp }, data, len);
            }
            _ => {}
        }
    }

    /// The first byte of the patch that is of no field that may be written, or changes bits that are not.
    fn withheld(&self) -> Option<usize> {
        let granted = self.granted.as_ref()?;
        let is_withheld = |place: usize, new: u8| {
            let mask = granted.bits.get(place).copied().unwrap_or(0);
            let old = self.head.get(self.patch.start + place);
            // Without the byte that is there nobody knows what would change.
            mask == 0 || mask != 0xff && old.is_none_or(|old| (new ^ old) & !mask != 0)
        };
        let mut bytes = self.bytes.iter().enumerate();
        bytes.find(|(place, new)| is_withheld(*place, **new)).map(|(place, _)| self.patch.start + place)
    }
}

impl Guard<'_> {
    /// What has to be known of the IP header besides what the parser marks.
    fn network(&mut self, descriptor: &Descriptor) {
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

/// What patches never change.
fn structure(d: &Descriptor) -> impl PartialEq {
    let lengths = (d.cap_len, d.wire_len, d.payload_len);
    (d.flags, d.l3_offset, d.l4_offset, d.payload_offset, d.ip_proto, d.ether_type, lengths)
}

/// Whether the checksum above IP, if it covers the addresses, is one that is known here.
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
        IGMP | IP_IN_IP | IPV6_IN_IP | GRE | ESP | protocol::NOTHING | SCTP | MPLS_IN_IP => true,
        protocol::ICMP => d.flags & flag::IPV4 != 0,
        protocol::ICMPV6 => d.flags & flag::IPV6 != 0,
        // The first fragment has the checksum, and it is denied there.
        _ => false,
    }
}
