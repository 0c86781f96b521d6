//! `FastUDPSource`: sends UDP packets at a rate.

use super::content::LENGTH_MAX;
use crate::ethernet::{ETHERNET_BYTES, encapsulate};
use crate::ip::encapsulation::{NewDestination, NewHeader, NewUdpHeader, TIME_TO_LIVE};
use crate::ipv4::{HEADER_BYTES, UDP};
use crate::queues::EvenRate;
use core::net::Ipv4Addr;
use weir_graph::arguments::{EthernetAddress, UdpPort};
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    HEADROOM, OrderDependence, PacketPool, Services, SignalId,
};
use weir_graph::handlers;
use weir_units::Timestamp;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "FastUDPSource",
    ports: "0/1",
    processing: "l/l",
    flow: "x/y",
    cost: ElementCost::E1,
    effects: Effects::CLOCK,
    order: OrderDependence::Ordered,
    manual: "\
sends UDP packets at a rate

FastUDPSource(RATE, LIMIT, LENGTH, SRCETH, SRCIP, SPORT, DSTETH, DSTIP, DPORT [, CHECKSUM, INTERVAL, ACTIVE])

FastUDPSource sends LIMIT Ethernet frames with UDP packets, RATE of them each second. All frames share their bytes until an \
element writes.

Arguments:
  RATE      packets per second; 0 for as fast as they are pulled
  LIMIT     the number of packets; negative for no limit
  LENGTH    the length of a frame, from 60 to 65535. A smaller one becomes 60.
  SRCETH, SRCIP, SPORT  the source addresses and the source port
  DSTETH, DSTIP, DPORT  the destination addresses and the destination port
  CHECKSUM  false: without a checksum of UDP. Default true.
  INTERVAL  the number of packets after which both ports grow by 1; 0 for never. Default 0.
  ACTIVE    false: sends no packets. Default true.

Handlers:
  count   r   the number of sent packets
  rate    rw  read: the packets per second from the first to the last of LIMIT packets, 0 before; written: the argument
  reset   w   sets the count to 0, and goes on
  active  w   the argument; true resets as well
  limit   w   the argument",
    build: |cx| {
        let mut args = cx.arguments();
        let rate: u32 = args.either("RATE").required();
        let limit: i64 = args.either("LIMIT").required();
        let length: u32 = args.either("LENGTH").within(0..=LENGTH_MAX).required();
        let source_ethernet = args.either("SRCETH").required();
        let source = args.either("SRCIP").required();
        let UdpPort(source_port) = args.either("SPORT").required();
        let destination_ethernet = args.either("DSTETH").required();
        let destination: Ipv4Addr = args.either("DSTIP").required();
        let UdpPort(destination_port) = args.either("DPORT").required();
        let has_checksum = args.either("CHECKSUM").or(true);
        let interval = args.either("INTERVAL").or(0);
        let active = args.either("ACTIVE").or(true);
        args.end()?;
        let ip = NewHeader {
            source,
            destination: NewDestination::Address(destination),
            protocol: UDP,
            service: 0,
            time_to_live: TIME_TO_LIVE,
            dont_fragment: false,
            identification: 0,
        };
        Ok(BuiltElement::emitting(FastUdpSource {
            frame: UdpFrame {
                length: length.max(LENGTH_MIN) as usize,
                source_ethernet,
                destination_ethernet,
                ip,
                udp: NewUdpHeader { source_port, destination_port, has_checksum },
            },
            packet: None,
            added: 0,
            rate: EvenRate::new(u64::from(rate)),
            limit,
            interval,
            active,
            count: 0,
            first: Timestamp(0),
            last: None,
            nonempty: cx.services.signals.create(active),
        }))
    },
};

const LENGTH_MIN: u32 = 60;
const UDP_BYTES: usize = 8;

/// The fields of the frames.
struct UdpFrame {
    length: usize,
    source_ethernet: EthernetAddress,
    destination_ethernet: EthernetAddress,
    ip: NewHeader,
    udp: NewUdpHeader,
}

impl UdpFrame {
    /// Returns a frame whose payload is 0, with ports that are higher by a number.
    fn packet(&self, added: u16, pool: &mut PacketPool) -> GraphPacket {
        let payload = self.length - ETHERNET_BYTES - HEADER_BYTES - UDP_BYTES;
        let mut packet = pool.of_length(payload, HEADROOM);
        packet.bytes_mut().fill(0);
        // Each frame has the same identification.
        let mut ip = self.ip;
        let udp = NewUdpHeader {
            source_port: self.udp.source_port.wrapping_add(added),
            destination_port: self.udp.destination_port.wrapping_add(added),
            ..self.udp
        };
        udp.add(&mut ip, &mut packet);
        encapsulate(&mut packet, 0x0800, self.source_ethernet, self.destination_ethernet);
        packet
    }
}

struct FastUdpSource {
    frame: UdpFrame,
    /// The frame that all packets share.
    packet: Option<GraphPacket>,
    /// The number by which its ports have grown.
    added: u16,
    /// A rate of 0 is no limit.
    rate: EvenRate,
    /// Negative for no limit.
    limit: i64,
    interval: u32,
    active: bool,
    count: u64,
    /// The times of the first and of the last packet.
    first: Timestamp,
    last: Option<Timestamp>,
    /// Active while a pull may be successful.
    nonempty: SignalId,
}

impl FastUdpSource {
    fn is_over(&self) -> bool {
        u64::try_from(self.limit).is_ok_and(|limit| self.count >= limit)
    }

    fn reset(&mut self, cx: &mut ElementContext<'_>) {
        self.count = 0;
        self.last = None;
        self.set_added(0, cx.services);
        cx.services.wake(self.nonempty);
    }

    fn set_added(&mut self, added: u16, services: &mut Services) {
        self.added = added;
        if let Some(old) = self.packet.take() {
            services.pool.discard(old);
        }
    }

    /// Returns the packets per second that were sent.
    fn average(&self) -> u64 {
        const MILLISECOND: u64 = 1_000_000;
        let Some(last) = self.last else { return 0 };
        let milliseconds = (last.0.saturating_sub(self.first.0) / MILLISECOND).max(1);
        self.count.saturating_mul(1000) / milliseconds
    }
}

impl Element for FastUdpSource {
    fn nonempty_signal(&self) -> Option<SignalId> {
        Some(self.nonempty)
    }

    fn timer_expired(&mut self, _: u32, cx: &mut ElementContext<'_>) {
        cx.services.wake(self.nonempty);
    }

    handlers! {
        "count": counter "the number of sent packets", read |this, _, _| Ok(this.count.to_string());
        "rate": "read: the rate of LIMIT packets; written: packets per second",
            read |this, _, _| Ok(this.average().to_string()),
            write |this, value, cx| {
                this.rate = EvenRate::new(u64::from(crate::values::read::<u32>(value)?));
                cx.services.wake(this.nonempty);
                Ok(String::new())
            };
        "reset": "sets the count to 0, and goes on",
            write |this, _, cx| {
                this.reset(cx);
                Ok(String::new())
            };
        "active": "false if no packets are sent",
            write |this, value, cx| {
                this.active = crate::values::read(value)?;
                if this.active {
                    this.reset(cx);
                }
                Ok(String::new())
            };
        "limit": "the number of packets",
            write |this, value, cx| {
                this.limit = crate::values::read(value)?;
                cx.services.wake(this.nonempty);
                Ok(String::new())
            };
    }
}

impl EmittingElement for FastUdpSource {
    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        if !self.active || self.is_over() {
            cx.services.signals.sleep(self.nonempty);
            return None;
        }
        let now = cx.services.now();
        if self.rate.rate() > 0 {
            if !self.rate.is_due(now) {
                cx.services.signals.sleep(self.nonempty);
                if let Some(next) = self.rate.next_time() {
                    cx.set_timer(next, 0);
                }
                return None;
            }
            self.rate.count(1);
        }
        let Self { frame, packet, added, .. } = self;
        let sent = packet.get_or_insert_with(|| frame.packet(*added, &mut cx.services.pool)).duplicate();
        self.count += 1;
        if self.count == 1 {
            self.first = now;
        }
        if self.is_over() {
            self.last = Some(now);
        }
        if self.interval > 0 && self.count.is_multiple_of(self.interval.into()) {
            self.set_added(self.added.wrapping_add(1), cx.services);
        }
        Some(sent)
    }
}
