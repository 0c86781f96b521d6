//! `IPFragmenter`: divides IPv4 packets into fragments.

use crate::ipv4::{
    DONT_FRAGMENT, HEADER_BYTES, Ipv4Header, MORE_FRAGMENTS, OFFSET, finish_header, header_words,
};
use weir_graph::engine::{
    Batch, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    GraphPacket, OrderDependence, Reason, Services, TextOutput,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPFragmenter",
    ports: "1/1-2",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
divides long IPv4 packets into fragments

IPFragmenter(MTU, [HONOR_DF, VERBOSE, keyword HEADROOM])

IPFragmenter sends packets of at most MTU bytes on, and divides longer ones. The fragments go to output 0, the first one \
first. Packets that must not be fragmented, or whose header leaves no room for 8 bytes, go to output 1, which usually \
leads to an ICMPError. Fragments have the annotations of their packet. A link header before the IP header stays with the \
first fragment. Packets need a network header; a packet whose header does not fit its bytes goes to output 1 as well.

Arguments:
  MTU       the most bytes of a packet, from the IP header on; at least 8
  HONOR_DF  false: fragments packets that must not be fragmented, too, with a random identification. Default true.
  VERBOSE   true: writes a line to standard error for each packet that goes to output 1. Default false: for the first \
five of them, at the end of the run.
  HEADROOM  the room before each fragment but the first. Default 66.

Handlers:
  drops      r  the number of packets for output 1
  fragments  r  the number of fragments",
    build: |cx| {
        let mut args = cx.arguments();
        let mtu: u32 = args.either("MTU").within(8..).required();
        let honors = args.either("HONOR_DF").or(true);
        let is_verbose = args.either("VERBOSE").or(false);
        let headroom: u32 = args.keyword("HEADROOM").within(0..=65_535).or(HEADROOM_DEFAULT);
        args.end()?;
        Ok(BuiltElement::emitting(IpFragmenter {
            mtu: mtu as usize,
            honors,
            is_verbose,
            headroom: headroom as usize,
            drops: 0,
            fragments: 0,
            first_drops: String::new(),
        }))
    },
};

struct IpFragmenter {
    mtu: usize,
    /// The flag "do not fragment" counts.
    honors: bool,
    is_verbose: bool,
    headroom: usize,
    drops: u64,
    fragments: u64,
    /// The lines about the first packets for output 1, which the end of the run writes.
    first_drops: String,
}

/// The way in which a packet is divided.
#[derive(Clone, Copy, Debug)]
struct Division {
    /// The offset of the IP header in the packet.
    start: usize,
    header_bytes: usize,
    payload_bytes: usize,
    /// The payload of the first fragment.
    first_bytes: usize,
    /// The flags and the offset of the packet, without "do not fragment".
    field: u16,
    is_unfragmentable: bool,
}

impl IpFragmenter {
    /// Returns true if a packet goes on as it is.
    #[inline]
    fn fits(&self, packet: &GraphPacket) -> bool {
        packet.network_length().unwrap_or(packet.len()) <= self.mtu
    }

    /// Returns how a packet is divided; `None` if it cannot be.
    fn division(&self, packet: &GraphPacket) -> Option<Division> {
        let start = packet.network_offset()?;
        let header = Ipv4Header::read_version_4(packet.bytes().get(start..)?)?;
        let payload = header.segment()?;
        let field = header.fragment_field();
        let is_unfragmentable = field & DONT_FRAGMENT != 0;
        let first_bytes = self.mtu.checked_sub(header.header_bytes)? & !7;
        let ends_in_datagram = header.offset() + payload.len() <= usize::from(OFFSET) * 8;
        if (is_unfragmentable && self.honors) || first_bytes < 8 || !ends_in_datagram {
            return None;
        }
        Some(Division {
            start,
            header_bytes: header.header_bytes,
            payload_bytes: payload.len(),
            first_bytes,
            field: field & !DONT_FRAGMENT,
            is_unfragmentable,
        })
    }

    fn refuse(&mut self, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        if self.is_verbose || self.drops < REPORTED_DROPS {
            let header = packet.network_bytes().and_then(Ipv4Header::read_version_4);
            let addresses = header
                .map_or_else(String::new, |header| format!(" {} {}", header.source(), header.destination()));
            let text = format!("IPFragmenter({}) DF{addresses} len={}\n", self.mtu, packet.len());
            // Click writes each line at once. That is an effect, so packets could not go through in batches.
            match self.is_verbose {
                true => cx.services.system.write_text(TextOutput::Error, &text),
                false => self.first_drops.push_str(&text),
            }
        }
        self.drops += 1;
        cx.emit_or_discard(1, packet);
    }

    fn divide(&mut self, mut packet: GraphPacket, division: Division, cx: &mut ElementContext<'_>) {
        let Division { start, header_bytes, payload_bytes, first_bytes, field, .. } = division;
        let identification = division.is_unfragmentable.then(|| cx.services.random().to_be_bytes());
        let bytes = &mut packet.bytes_mut()[start..];
        if let Some([high, low, ..]) = identification {
            bytes[4..6].copy_from_slice(&[high, low]);
        }
        let options = copied_options(&bytes[HEADER_BYTES..header_bytes]);
        let later_header_bytes = HEADER_BYTES + options.len();
        // At least 8, because it is not less than that of the first fragment.
        let most = self.mtu.saturating_sub(later_header_bytes) & !7;
        let mut later = Vec::new();
        let mut at = first_bytes;
        while at < payload_bytes && most > 0 {
            let count = most.min(payload_bytes - at);
            let total = later_header_bytes + count;
            let is_last = at + count == payload_bytes;
            let more = if is_last { field & MORE_FRAGMENTS } else { MORE_FRAGMENTS };
            let mut fragment = cx.services.pool.of_length(total, self.headroom);
            let to = fragment.bytes_mut();
            to[..HEADER_BYTES].copy_from_slice(&bytes[..HEADER_BYTES]);
            to[HEADER_BYTES..later_header_bytes].copy_from_slice(&options);
            to[later_header_bytes..].copy_from_slice(&bytes[header_bytes + at..header_bytes + at + count]);
            to[0] = 0x40 | header_words(later_header_bytes);
            let offset = (field & OFFSET) + narrow(at / 8);
            finish_header(&mut to[..later_header_bytes], narrow(total), more | offset);
            fragment.set_network_header(0, later_header_bytes);
            later.push(fragment);
            at += count;
        }
        let first_total = header_bytes + first_bytes.min(payload_bytes);
        let more = if payload_bytes > first_bytes { MORE_FRAGMENTS } else { 0 };
        finish_header(&mut bytes[..header_bytes], narrow(first_total), field | more);
        packet.truncate_by(packet.len() - start - first_total);
        for fragment in &mut later {
            fragment.set_time(packet.time());
            fragment.set_device(packet.device());
            fragment.set_packet_type(packet.packet_type());
            *fragment.annotations_mut() = *packet.annotations();
        }
        self.fragments += 1 + later.len() as u64;
        cx.emit(0, packet);
        later.into_iter().for_each(|fragment| cx.emit(0, fragment));
    }
}

/// The packets for output 1 that are reported without VERBOSE.
const REPORTED_DROPS: u64 = 5;

/// The room before a fragment without an argument.
const HEADROOM_DEFAULT: u32 = 66;

/// Converts a length of at most that of an IPv4 packet.
fn narrow(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// Returns the options that all fragments have, with zeros up to a multiple of four. Reads up to an option that is wrong.
fn copied_options(options: &[u8]) -> Vec<u8> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const IS_COPIED: u8 = 0x80;
    let mut copied = Vec::new();
    let mut rest = options;
    while let Some(kind) = rest.first().copied().filter(|kind| *kind != END) {
        if kind == NOTHING {
            rest = &rest[1..];
            continue;
        }
        let length = usize::from(rest.get(1).copied().unwrap_or(0));
        let Some((option, behind)) = rest.split_at_checked(length).filter(|_| length >= 2) else { break };
        if kind & IS_COPIED != 0 {
            copied.extend_from_slice(option);
        }
        rest = behind;
    }
    copied.resize(copied.len().next_multiple_of(4), END);
    copied
}

impl Element for IpFragmenter {
    fn effects(&self) -> Option<Effects> {
        let random = if self.honors { Effects::NONE } else { Effects::RANDOM };
        let text = if self.is_verbose { Effects::TERMINAL } else { Effects::NONE };
        Some(random.and(text))
    }

    fn finish(&mut self, services: &mut Services) -> Result<(), Reason> {
        if !self.first_drops.is_empty() {
            services.system.write_text(TextOutput::Error, &std::mem::take(&mut self.first_drops));
        }
        Ok(())
    }

    handlers! {
        "drops": counter "the number of packets for output 1", read |this, _, _| Ok(this.drops.to_string());
        "fragments": counter "the number of fragments", read |this, _, _| Ok(this.fragments.to_string());
    }
}

impl EmittingElement for IpFragmenter {
    /// Returns the number of fragments of the longest datagram with the longest header.
    fn copies(&self) -> usize {
        let payload = self.mtu.saturating_sub(60) & !7;
        usize::from(u16::MAX) / payload.max(8)
    }

    fn pass_batch(&mut self, _: usize, batch: &mut Batch, _: &mut ElementContext<'_>) -> Option<usize> {
        batch.packets().iter().all(|packet| self.fits(packet)).then_some(0)
    }

    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        if self.fits(&packet) {
            cx.emit(0, packet);
            return;
        }
        match self.division(&packet) {
            Some(division) => self.divide(packet, division, cx),
            None => self.refuse(packet, cx),
        }
    }
}
