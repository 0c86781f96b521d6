//! `IPOutputCombo`: the elements behind the routing table of a router, in one.

use super::dec_ip_ttl::{LivedOut, decrement};
use super::fix_ip_src::fix_source;
use super::options::{OptionsResult, RouterAddresses};
use crate::ipv4::{HEADER_BYTES, Ipv4Header};
use weir_graph::engine::{
    Batch, BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement,
    FIX_IP_SRC, GraphPacket, OrderDependence, PAINT, PacketType,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPOutputCombo",
    ports: "1/5",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E3,
    effects: Effects::NONE,
    order: OrderDependence::Free,
    manual: "\
does what a router does with packets behind its routing table

IPOutputCombo(COLOR, IPADDR, MTU)

IPOutputCombo does with each packet what these do: DropBroadcasts -> PaintTee(COLOR) -> IPGWOptions(IPADDR) -> \
FixIPSrc(IPADDR) -> DecIPTTL -> CheckLength(MTU). Packets leave by output 0. Output 1 is the second one of the PaintTee, \
output 2 that of IPGWOptions, output 3 that of DecIPTTL, and output 4 that of CheckLength, for an IPFragmenter. A packet \
without IP header is discarded.

Arguments:
  COLOR   the paint of packets that came from the interface by which they leave
  IPADDR  the address of the interface
  MTU     the most bytes of a packet

Handlers:
  drops  r  the number of packets that were discarded as broadcasts, or without IP header",
    build: |cx| {
        let mut args = cx.arguments();
        let color = args.either("COLOR").required();
        let own = args.either("IPADDR").required();
        let mtu: u32 = args.either("MTU").required();
        args.end()?;
        let addresses = RouterAddresses { own, others: Vec::new() };
        Ok(BuiltElement::emitting(IpOutputCombo { color, addresses, mtu: mtu as usize, drops: 0 }))
    },
};

struct IpOutputCombo {
    color: u8,
    addresses: RouterAddresses,
    mtu: usize,
    drops: u64,
}

impl IpOutputCombo {
    /// Returns true for a packet that goes to output 0 alone, with nothing but its time to live changed.
    #[inline]
    fn is_plain(&self, packet: &GraphPacket) -> bool {
        let annotations = packet.annotations();
        let is_plain_header =
            |header: Ipv4Header<'_>| header.header_bytes == HEADER_BYTES && header.bytes[8] > 1;
        annotations[usize::from(PAINT.offset)] != self.color
            && annotations[usize::from(FIX_IP_SRC.offset)] == 0
            && !matches!(packet.packet_type(), PacketType::Broadcast | PacketType::Multicast)
            && packet.len() <= self.mtu
            && Ipv4Header::of(packet).is_some_and(is_plain_header)
    }

    /// Processes a packet, and returns the output for it; `None` if it is to be discarded.
    fn process(&self, packet: &mut GraphPacket, cx: &mut ElementContext<'_>) -> Option<usize> {
        match self.addresses.process(packet, cx.services) {
            OptionsResult::Right => {}
            OptionsResult::Wrong => return Some(2),
            OptionsResult::NoHeader => return None,
        }
        fix_source(packet, self.addresses.own);
        match decrement(packet.network_bytes_mut()?) {
            Ok(()) => Some(if packet.len() > self.mtu { 4 } else { 0 }),
            Err(LivedOut::Expired) => Some(3),
            Err(LivedOut::NoHeader) => None,
        }
    }
}

impl Element for IpOutputCombo {
    handlers! {
        "drops": counter "the number of packets that were discarded as broadcasts, or without IP header",
            read |this, _, _| Ok(this.drops.to_string());
    }
}

impl EmittingElement for IpOutputCombo {
    fn pass_batch(&mut self, _: usize, batch: &mut Batch, _: &mut ElementContext<'_>) -> Option<usize> {
        if !batch.packets().iter().all(|packet| self.is_plain(packet)) {
            return None;
        }
        for packet in batch.packets_mut() {
            // Plain packets can be forwarded.
            _ = packet.network_bytes_mut().map(decrement);
        }
        Some(0)
    }

    fn push(&mut self, _: usize, mut packet: GraphPacket, cx: &mut ElementContext<'_>) {
        if matches!(packet.packet_type(), PacketType::Broadcast | PacketType::Multicast) {
            self.drops += 1;
            cx.services.pool.discard(packet);
            return;
        }
        if packet.annotation(PAINT)[0] == self.color {
            cx.emit(1, packet.duplicate());
        }
        match self.process(&mut packet, cx) {
            Some(output) => cx.emit(output, packet),
            None => {
                self.drops += 1;
                cx.services.pool.discard(packet);
            }
        }
    }
}
