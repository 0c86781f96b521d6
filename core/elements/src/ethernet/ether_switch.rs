//! `EtherSwitch`: a learning Ethernet switch.

use super::vlan::ADDRESSES_BYTES;
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_graph::arguments::EthernetAddress;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    OrderDependence,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "EtherSwitch",
    ports: "2-/=",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E5,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
forwards Ethernet frames between networks, and learns where hosts are

EtherSwitch([keywords TIMEOUT, CAPACITY])

Each input and the output of the same number belong to a network. EtherSwitch learns from each frame at which input its \
source address is, and sends later frames to that address to that output only. A frame to the network from which it came is \
discarded. Frames to groups, and to addresses that are not known, go to all other outputs. Ages are those of the frames' \
time stamps. Source addresses of groups are not learned. Frames without complete addresses are discarded.

Arguments:
  TIMEOUT   the time without frames from an address after which it is forgotten, in seconds; 0 to learn nothing. Default \
300.
  CAPACITY  the most addresses, up to 1048576. Default 65536. A new address of a full table replaces the one from which no \
frame came for longest.

Handlers:
  table    r   a line for each address, with its port
  timeout  rw  the argument
  count    r   the number of addresses
  drops    r   the number of frames without complete addresses",
    build: |cx| {
        let mut args = cx.arguments();
        let timeout: Nanos = args.keyword("TIMEOUT").or(Nanos(300 * Nanos::SECOND.0));
        let capacity: u32 = args.keyword("CAPACITY").within(1..=1 << 20).or(1 << 16);
        args.end()?;
        Ok(BuiltElement::emitting(EtherSwitch {
            timeout,
            capacity: capacity as usize,
            hosts: BTreeMap::new(),
            by_age: BTreeMap::new(),
            next: 0,
            drops: 0,
        }))
    },
};

/// The place of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LearnedHost {
    port: usize,
    seen_at: Timestamp,
    /// The key in the order of frames.
    number: u64,
}

struct EtherSwitch {
    /// 0 to learn nothing.
    timeout: Nanos,
    capacity: usize,
    hosts: BTreeMap<EthernetAddress, LearnedHost>,
    /// The addresses in the order of their latest frames.
    by_age: BTreeMap<u64, EthernetAddress>,
    next: u64,
    drops: u64,
}

impl EtherSwitch {
    fn learn(&mut self, address: EthernetAddress, port: usize, seen_at: Timestamp) {
        let number = self.next;
        self.next += 1;
        match self.hosts.insert(address, LearnedHost { port, seen_at, number }) {
            Some(before) => _ = self.by_age.remove(&before.number),
            None if self.hosts.len() > self.capacity => {
                if let Some((_, oldest)) = self.by_age.pop_first() {
                    self.hosts.remove(&oldest);
                }
            }
            None => {}
        }
        self.by_age.insert(number, address);
    }

    /// Returns the port of an address. Forgets one that is too old.
    fn port(&mut self, address: EthernetAddress, now: Timestamp) -> Option<usize> {
        let host = *self.hosts.get(&address)?;
        if now.0 < host.seen_at.0.saturating_add(self.timeout.0) {
            return Some(host.port);
        }
        self.hosts.remove(&address);
        self.by_age.remove(&host.number);
        None
    }
}

fn is_group(address: EthernetAddress) -> bool {
    address.0[0] & 1 != 0
}

impl Element for EtherSwitch {
    handlers! {
        "table": "a line for each address, with its port",
            read |this, _, _| {
                let mut text = String::new();
                for (address, host) in &this.hosts {
                    _ = writeln!(text, "{address} {}", host.port);
                }
                Ok(text)
            };
        "timeout": "the time after which an address is forgotten, in seconds",
            read |this, _, _| Ok((this.timeout.0.saturating_add(Nanos::SECOND.0 / 2) / Nanos::SECOND.0).to_string()),
            write |this, value, _| {
                this.timeout = crate::values::read(value)?;
                Ok(String::new())
            };
        "count": gauge "the number of addresses", read |this, _, _| Ok(this.hosts.len().to_string());
        "drops": counter "the number of frames without complete addresses", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl EmittingElement for EtherSwitch {
    fn push(&mut self, input: usize, mut packet: GraphPacket, cx: &mut ElementContext<'_>) {
        let Some(header) = packet.bytes().first_chunk::<ADDRESSES_BYTES>() else {
            self.drops += 1;
            cx.services.pool.discard(packet);
            return;
        };
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5] = *header;
        let destination = EthernetAddress([d0, d1, d2, d3, d4, d5]);
        let source = EthernetAddress([s0, s1, s2, s3, s4, s5]);
        let mut known = None;
        if self.timeout.0 > 0 {
            let now = packet.time();
            if !is_group(source) {
                self.learn(source, input, now);
            }
            known = self.port(destination, now);
        }
        match known {
            Some(port) if port == input => cx.services.pool.discard(packet),
            Some(port) => cx.emit(port, packet),
            None => {
                // The order is that of Click, from the last output on.
                let last = usize::from(input == 0);
                for output in (last + 1..cx.ports().targets.len()).rev().filter(|output| *output != input) {
                    cx.emit(output, packet.duplicate());
                }
                cx.emit(last, packet);
            }
        }
    }
}
