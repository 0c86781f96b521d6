//! One packet while it is shown: which bytes have been let through, and what was changed in them.

use super::anonymise::Anonymiser;
use super::{Addresses, Exposure, PacketView, Payload, ZeroedField};
use crate::checksum::{add, fold};
use crate::classify::{LinkPart, Marks, NetworkKind, size, walk_inside};
use crate::consistent::is_only_ip;
use crate::ip::protocol;
use crate::tunnel::{Captured, TUNNELS_MAX};
use crate::upper::Upper;
use weir_abi::{Descriptor, flag};

/// So many hidden addresses are replaced in the lists of one packet; the others are not shown. Replacing one that is new takes up to 128 blocks of AES, and
/// a report of groups has room for 88 of IPv6 in a frame of the usual length, for thousands in one that was merged.
const LISTED_MAX: usize = 64;

/// An IP header, and up to where its packet goes.
#[derive(Clone, Copy)]
pub(super) struct Ip {
    pub(super) at: usize,
    pub(super) is_v6: bool,
    /// The last destination is another one than the header has.
    pub(super) routed: bool,
}

/// What comes after the last header.
pub(super) enum Rest {
    /// Payload, up to `end`.
    Payload { at: usize, end: usize },
    /// A header of which no more is known than where its checksum is, and its payload, up to `end`.
    Transport { at: usize, end: usize },
    /// Something that is not understood, up to `end`. Headers could be in it, and checksums over all of it.
    Unknown { at: usize, end: usize },
}

/// A checksum over something that was shown, or not.
pub(super) struct ChecksumState {
    pub(super) field: usize,
    pub(super) from: usize,
    pub(super) end: usize,
    /// It also covers these addresses, and this protocol.
    pub(super) pseudo: Option<(Ip, u8)>,
    /// What it covers goes on in other packets.
    pub(super) in_part: bool,
}

/// A packet that is being shown.
pub(super) struct PacketRewriter<'a> {
    pub(super) view: &'a PacketView,
    anonymiser: Option<&'a mut Anonymiser>,
    /// All captured bytes.
    pub(super) from: &'a [u8],
    /// As long as `from`.
    to: &'a mut [u8],
    shown: usize,
    /// The captured end of the present packet. Later bytes belong to the packets around it, or to none.
    limit: usize,
    /// The view hides something besides payload.
    pub(super) hides_fields: bool,
    /// It hides IP addresses.
    pub(super) hides_addresses: bool,
    /// What is looked at is quoted by an error message, and goes no further than its headers, as far as anything is understood.
    is_quoted: bool,
    /// The present packet goes on elsewhere: it is in the first fragment of a datagram, or claims to be longer than the packet around it.
    pub(super) is_in_part: bool,
    /// Hidden addresses that stood in lists.
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
            shown: 0,
            limit: from.len(),
            hides_fields: PacketView { payload: Payload::All, ..*view } != PacketView::ALL,
            hides_addresses: view.addresses != Addresses::Visible,
            is_quoted: false,
            is_in_part: false,
            listed: 0,
        }
    }

    /// How many bytes are shown.
    pub(super) fn shown(&self) -> usize {
        self.shown
    }

    /// Lets all bytes up to here through, as they are; each header does so for itself, and then hides what has to be hidden.
    #[inline(always)]
    pub(super) fn show(&mut self, upto: usize) {
        let range = self.shown..upto.min(self.limit);
        if let (Some(from), Some(to)) = (self.from.get(range.clone()), self.to.get_mut(range.clone())) {
            to.copy_from_slice(from);
            self.shown = range.end;
        }
    }

    /// The captured end of a header or message that goes up to `end`.
    #[inline(always)]
    pub(super) fn limit(&self, end: usize) -> usize {
        end.min(self.limit)
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

    /// Writes over what is shown.
    #[inline(always)]
    pub(super) fn write(&mut self, at: usize, bytes: &[u8]) {
        let room = self.to.get_mut(..self.shown).and_then(|shown| shown.get_mut(at..)).unwrap_or_default();
        match room.get_mut(..bytes.len()) {
            Some(room) => room.copy_from_slice(bytes),
            None => room.iter_mut().zip(bytes).for_each(|(to, byte)| *to = *byte),
        }
    }

    /// Fills what is shown of `len` bytes.
    #[inline(always)]
    pub(super) fn fill(&mut self, at: usize, len: usize, byte: u8) {
        let end = at.saturating_add(len).min(self.shown);
        if let Some(range) = self.to.get_mut(at..end) {
            range.fill(byte);
        }
    }

    /// Zeros these bytes.
    #[inline(always)]
    pub(super) fn zero(&mut self, at: usize, len: usize) {
        self.fill(at, len, 0);
    }

    /// Keeps these bits of a byte, and zeros the others.
    #[inline(always)]
    pub(super) fn mask(&mut self, at: usize, kept: u8) {
        if let Some(byte) = self.to.get_mut(..self.shown).and_then(|shown| shown.get_mut(at)) {
            *byte &= kept;
        }
    }

    /// Whether this field has to be zeroed.
    #[inline(always)]
    pub(super) fn hides(&self, field: ZeroedField) -> bool {
        self.view.zeroed.has(field)
    }

    /// What stands for an IPv4 address where addresses are anonymised, else 0.
    #[inline(always)]
    fn other_v4(&mut self, address: u32) -> u32 {
        self.anonymiser.as_deref_mut().map_or(0, |anonymiser| anonymiser.ipv4(address))
    }

    /// What stands for an IPv6 address where addresses are anonymised, else 0.
    #[inline(always)]
    pub(super) fn other_v6(&mut self, address: u128) -> u128 {
        self.anonymiser.as_deref_mut().map_or(0, |anonymiser| anonymiser.ipv6(address))
    }

    /// Hides the IPv4 address at `at` if it has to be.
    #[inline(always)]
    pub(super) fn address_v4(&mut self, at: usize) {
        if self.hides_addresses {
            match self.read(at) {
                Some(&address) => {
                    let other = self.other_v4(u32::from_be_bytes(address)).to_be_bytes();
                    self.write(at, &other);
                }
                None => self.zero(at, 4),
            }
        }
    }

    /// Hides the IPv6 address at `at` if it has to be.
    #[inline(always)]
    pub(super) fn address_v6(&mut self, at: usize) {
        if self.hides_addresses {
            match self.read(at) {
                Some(&address) => {
                    let other = self.other_v6(u128::from_be_bytes(address)).to_be_bytes();
                    self.write(at, &other);
                }
                None => self.zero(at, 16),
            }
        }
    }

    /// Whether so many more addresses of lists can be shown, which cost something if addresses are hidden. Those that headers have in their fixed
    /// places need not ask: there are few, at most [`TUNNELS_MAX`] packets deep.
    pub(super) fn lists(&mut self, addresses: usize) -> bool {
        if self.hides_addresses {
            self.listed += addresses;
        }
        self.listed <= LISTED_MAX
    }

    /// Hides the MAC address at `at` if it has to be. Where IP addresses are hidden, so is what that of a group tells of its IP address
    /// (RFC 1112, 6.4; RFC 2464, section 7).
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

    /// Ends what is shown: all headers have been, and this follows them.
    pub(super) fn finish(&mut self, rest: &Rest) {
        let most = match self.view.payload {
            _ if self.is_quoted && self.hides_fields => 0,
            Payload::First(bytes) => size(bytes),
            Payload::All => usize::MAX,
        };
        let (at, end) = match *rest {
            Rest::Payload { at, end } => (at, end),
            Rest::Transport { .. } | Rest::Unknown { .. } if self.hides_fields => return,
            Rest::Transport { at, end } => (at, end),
            // Of a part of it nobody could say which checksums are in it. All of it was captured, and is shown; or nothing is.
            Rest::Unknown { .. } if self.is_in_part => return,
            Rest::Unknown { at, end } if end > self.from.len() || end > at.saturating_add(most) => return,
            Rest::Unknown { at, end } => (at, end),
        };
        // Nothing follows what was not shown.
        if self.shown == self.limit(at) {
            self.show(at.saturating_add(most).min(end));
        }
    }

    /// Returns true if these bytes are shown as they are in the packet.
    #[inline(always)]
    pub(super) fn is_as_captured(&self, from: usize, end: usize) -> bool {
        self.to.get(from..end.min(self.shown)) == self.from.get(from..end)
    }

    /// Makes a checksum right, or 0 where it would cover hidden bytes. All bytes that it covers have their final form by then.
    pub(super) fn seal(&mut self, sum: &ChecksumState) {
        let Some(&stored) = self.read::<2>(sum.field) else { return self.zero(sum.field, 2) };
        let is_udp = matches!(sum.pseudo, Some((_, protocol::UDP)));
        if is_udp && stored == [0, 0] {
            return;
        }
        let is_shown = !sum.in_part && sum.end <= self.shown && sum.field + 2 <= sum.end;
        if is_shown && !self.hides_fields && self.is_as_captured(sum.from, sum.end) {
            return;
        }
        self.zero(sum.field, 2);
        if !is_shown || sum.pseudo.is_some_and(|(ip, _)| ip.routed) {
            return;
        }
        let Some(covered) = self.to.get(sum.from..sum.end) else { return };
        let mut total = add(0, covered);
        if let Some((ip, protocol)) = sum.pseudo {
            let (from, len) = if ip.is_v6 { (ip.at + 8, 32) } else { (ip.at + 12, 8) };
            total = add(total, self.to.get(from..from + len).unwrap_or_default());
            total += u64::from(protocol) + covered.len() as u64;
        }
        let checksum = match !fold(total) {
            // Of UDP 0 says that there is none (RFC 768).
            0 if is_udp => u16::MAX,
            checksum => checksum,
        };
        self.write(sum.field, &checksum.to_be_bytes());
    }

    /// Makes the checksum of an IPv4 header right, which goes from `at` to `data`, or 0 where not all of it is captured.
    #[inline(always)]
    pub(super) fn seal_ipv4(&mut self, at: usize, data: usize) {
        self.zero(at + 10, 2);
        if data <= self.shown
            && let Some(header) = self.to.get(at..data)
        {
            let checksum = !fold(add(0, header));
            self.write(at + 10, &checksum.to_be_bytes());
        }
    }

    /// Shows the packet from `at` to `end`, which may be beyond what is captured.
    pub(super) fn packet(&mut self, at: usize, end: usize, kind: NetworkKind, depth: u8) {
        let outside = self.limit;
        self.limit = self.limit(end);
        self.packet_within(at, end, kind, depth);
        self.limit = outside;
    }

    fn packet_within(&mut self, at: usize, end: usize, kind: NetworkKind, depth: u8) {
        let part = self.captured().part(at, end);
        let mut now = Descriptor::default();
        let mut listener = Listener { scene: self, base: at, heard: Heard::default() };
        if walk_inside(part, kind, &mut now, &mut listener).is_err() {
            listener.unknown_from(0);
        }
        listener.end_labels();
        let heard = listener.heard;
        // Where addresses are hidden, nothing is left of a routing header.
        let routed = heard.routed && !self.hides_addresses;
        match heard {
            Heard { unknown: Some(at), .. } => self.finish(&Rest::Unknown { at, end }),
            Heard { upper: Some(upper), ip: Some(ip), .. } => {
                // A packet can say that it is longer than what carries it.
                self.is_in_part |= upper.end > end;
                self.above_ip(
                    Above {
                        upper: Upper { end: upper.end.min(end), ..upper },
                        covered: upper.end,
                        ip: Ip { routed: ip.routed || routed, ..ip },
                        payload: (now.flags & flag::L4 != 0).then(|| at + usize::from(now.payload_offset)),
                        flags: now.flags,
                    },
                    depth,
                );
            }
            Heard { other: Some(at), .. } => self.neither(at, end, now.ether_type),
            // The packet ends with its last header.
            _ => self.finish(&Rest::Unknown { at: self.shown, end }),
        }
    }

    /// Shows a packet inside another one, if no more than [`TUNNELS_MAX`] packets are around it: tunnels, or messages that quote it.
    pub(super) fn inside(&mut self, at: usize, end: usize, kind: NetworkKind, depth: u8) {
        if depth < TUNNELS_MAX {
            self.packet(at, end, kind, depth + 1);
        } else {
            self.finish(&Rest::Unknown { at, end });
        }
    }

    /// Shows a packet of which an error message quotes the beginning.
    pub(super) fn quoted(&mut self, at: usize, end: usize, kind: NetworkKind, depth: u8) {
        let before = std::mem::replace(&mut self.is_quoted, true);
        self.inside(at, end, kind, depth);
        self.is_quoted = before;
    }
}

/// The part of an IP packet above its header.
pub(super) struct Above {
    /// It ends where the carrying packet ends, at the latest.
    pub(super) upper: Upper,
    /// The end of the packet by its own header, up to which checksums go.
    pub(super) covered: usize,
    pub(super) ip: Ip,
    /// Where the payload begins, if the header above IP is there as a whole.
    pub(super) payload: Option<usize>,
    /// Those of the descriptor.
    pub(super) flags: u32,
}

/// What the parser has said of a packet; offsets are those of the outermost.
#[derive(Default)]
struct Heard {
    unknown: Option<usize>,
    other: Option<usize>,
    ip: Option<Ip>,
    upper: Option<Upper>,
    routed: bool,
    /// A stack of MPLS labels from here to there, of which nothing has been shown yet.
    labels: Option<(usize, usize)>,
}

/// Listens to the parser, and shows each header as it comes.
struct Listener<'s, 'a> {
    scene: &'s mut PacketRewriter<'a>,
    base: usize,
    heard: Heard,
}

/// Bytes of an MPLS label.
const LABEL: usize = 4;

impl Listener<'_, '_> {
    /// Shows the first label alone of a stack without an IP packet behind it. Another header announces that label, and no other one.
    /// The next words could be labels, or anything else behind a stack whose bottom is not marked.
    fn end_labels(&mut self) {
        if let Some((first, _)) = self.heard.labels.take() {
            self.scene.link(LinkPart::Label, first, LABEL);
            self.heard = Heard { unknown: Some(first + LABEL), ..Heard::default() };
        }
    }
}

impl Marks for Listener<'_, '_> {
    #[inline(always)]
    fn fixed(&mut self, _: usize, _: usize) {}
    #[inline(always)]
    fn fixed_bits(&mut self, _: usize, _: u8) {}
    #[inline(always)]
    fn checksum(&mut self, _: usize, _: usize, _: usize) {}

    fn unknown_from(&mut self, at: usize) {
        self.heard.unknown = Some(self.base + at);
    }

    fn routed(&mut self) {
        self.heard.routed = true;
    }

    #[inline(always)]
    fn link(&mut self, part: LinkPart, at: usize, len: usize) {
        let at = self.base + at;
        if part == LinkPart::Label {
            self.heard.labels.get_or_insert((at, at)).1 = at + len;
        } else {
            self.scene.link(part, at, len);
        }
    }

    fn is_ip_behind_labels(&mut self, at: usize, wire: usize) -> bool {
        let (at, end) = (self.base + at, self.base.saturating_add(wire));
        let Some((first, _)) = self.heard.labels else { return false };
        // Where the stack has no bottom, the packet behind it reads as labels up to a bit that looks like one.
        let captured = self.scene.captured();
        let is_ip_at = |word| is_only_ip(captured, word, end) == Ok(true);
        let is_in_stack = (first + LABEL..at).step_by(LABEL).any(is_ip_at);
        let is_ip = !is_in_stack && is_ip_at(at);
        if is_ip {
            self.heard.labels = None;
            for label in (first..at).step_by(LABEL) {
                self.scene.link(LinkPart::Label, label, LABEL);
            }
        }
        is_ip
    }

    fn other(&mut self, at: usize) {
        self.heard.other = Some(self.base + at);
    }

    #[inline(always)]
    fn ipv4(&mut self, at: usize, data: usize, _: usize) {
        self.heard.ip = Some(self.scene.ipv4(self.base + at, self.base + data));
    }

    #[inline(always)]
    fn ipv6(&mut self, at: usize, _: usize) {
        self.heard.ip = Some(self.scene.ipv6(self.base + at));
    }

    fn extension(&mut self, protocol: u8, at: usize, len: usize) {
        self.scene.extension(protocol, self.base + at, len);
    }

    #[inline(always)]
    fn upper(&mut self, Upper { protocol, at, end }: Upper) {
        let base = self.base;
        self.heard.upper = Some(Upper { protocol, at: base + at, end: base.saturating_add(end) });
    }
}
