//! `IPReassembler`: joins the fragments of IPv4 packets.

use super::datagram::{FragmentPart, FragmentResult, PartialDatagram};
use crate::ipv4::{Ipv4Header, MORE_FRAGMENTS, OFFSET};
use core::net::Ipv4Addr;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use weir_graph::arguments::AnnotationField;
use weir_graph::engine::{
    BuiltElement, Effects, Element, ElementClass, ElementContext, ElementCost, EmittingElement, GraphPacket,
    IPREASSEMBLER, OrderDependence,
};
use weir_graph::handlers;
use weir_units::{Nanos, Timestamp};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "IPReassembler",
    ports: "1/1-2",
    processing: "a/ah",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
joins the fragments of IPv4 packets

IPReassembler([keywords HIMEM, MAX_MTU_ANNO])

IPReassembler passes whole packets on, and keeps fragments until it has all of a packet. The joined packet has the link \
header, the options and the annotations of the first fragment, and the time stamp of the one that came last. Where \
fragments overlap, the bytes of the later one count. A fragment that contradicts earlier ones about the end of the \
packet, or whose length is wrong, is discarded, and so is a packet without a network header.

Fragments are discarded when no further one has come for 30 seconds of time stamps. When the datagrams take more than \
HIMEM bytes, those that have waited longest are discarded until they take three quarters of it. With a second output, what \
is there of a discarded datagram goes there as one packet, with zeros for missing bytes.

Arguments:
  HIMEM         the most bytes of waiting datagrams: their payload up to the last byte that has come, and 40 for each, of \
which each takes up to 500 bytes of memory. At most 1 GiB. Default 262144.
  MAX_MTU_ANNO  an annotation of two bytes of joined packets for the length of the longest fragment. Default: none.

Handlers:
  dump  r  counts, and the datagrams that wait: addresses, identification and the parts that have come",
    build: |cx| {
        let mut args = cx.arguments();
        let memory_max: u32 = args.keyword("HIMEM").within(0..=1 << 30).or(256 * 1024);
        let length_annotation: Option<AnnotationField<2>> = args.keyword("MAX_MTU_ANNO").optional();
        args.end()?;
        Ok(BuiltElement::emitting(IpReassembler {
            memory_max: memory_max as usize,
            length_annotation: length_annotation.map(|AnnotationField(offset)| offset),
            datagrams: BTreeMap::new(),
            by_age: BTreeSet::new(),
            next: 0,
            memory: 0,
            seen: 0,
            complete: 0,
            failed: 0,
            bad: 0,
        }))
    },
};

/// The time without a further fragment after which a datagram is discarded.
const TIMEOUT: Nanos = Nanos(Nanos::SECOND.0 * 30);

/// The fields that the fragments of a datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DatagramKey {
    identification: u16,
    protocol: u8,
    source: Ipv4Addr,
    destination: Ipv4Addr,
}

struct IpReassembler {
    memory_max: usize,
    length_annotation: Option<usize>,
    datagrams: BTreeMap<DatagramKey, PartialDatagram>,
    /// The datagrams by the time of their last fragment.
    by_age: BTreeSet<(Timestamp, u64, DatagramKey)>,
    /// A number for datagrams of the same age.
    next: u64,
    memory: usize,
    seen: u64,
    complete: u64,
    failed: u64,
    bad: u64,
}

impl IpReassembler {
    /// Handles a packet, and returns one that goes on.
    fn handle(&mut self, packet: GraphPacket, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let Some(header) = packet.network_bytes().and_then(Ipv4Header::read_version_4) else {
            self.bad += 1;
            cx.services.pool.discard(packet);
            return None;
        };
        if header.fragment_field() & (OFFSET | MORE_FRAGMENTS) == 0 {
            return Some(packet);
        }
        self.seen += 1;
        let key = DatagramKey {
            identification: header.identification(),
            protocol: header.protocol(),
            source: header.source(),
            destination: header.destination(),
        };
        let now = if packet.time() == Timestamp(0) { cx.services.coarse_now() } else { packet.time() };
        self.expire(now, cx);
        if self.memory > self.memory_max {
            self.slim(cx);
        }
        let joined = match FragmentPart::read(header) {
            Some(part) => self.add(key, &packet, &part, now, cx),
            None => {
                self.bad += 1;
                None
            }
        };
        cx.services.pool.discard(packet);
        joined
    }

    fn add(
        &mut self,
        key: DatagramKey,
        packet: &GraphPacket,
        part: &FragmentPart<'_>,
        now: Timestamp,
        cx: &mut ElementContext<'_>,
    ) -> Option<GraphPacket> {
        let age = (now, self.next);
        self.next += 1;
        let mut datagram = match self.remove(key) {
            Some(datagram) => datagram,
            None => PartialDatagram::new(packet, part, age),
        };
        let result = datagram.add(packet, part);
        if result == FragmentResult::Complete {
            self.complete += 1;
            let mut joined = datagram.packet(packet.time(), true, &mut cx.services.pool);
            joined.annotation_mut(IPREASSEMBLER).fill(0);
            self.note_longest(&mut joined, &datagram);
            return Some(joined);
        }
        if result == FragmentResult::Wrong {
            self.bad += 1;
        } else {
            datagram.seen_at = now;
            datagram.age = age;
        }
        self.by_age.insert((datagram.age.0, datagram.age.1, key));
        self.memory += datagram.memory();
        self.datagrams.insert(key, datagram);
        None
    }

    fn note_longest(&self, packet: &mut GraphPacket, datagram: &PartialDatagram) {
        if let Some(offset) = self.length_annotation
            && let Some(place) = packet.annotations_mut().get_mut(offset..offset + 2)
        {
            place.copy_from_slice(&datagram.longest.to_ne_bytes());
        }
    }

    fn remove(&mut self, key: DatagramKey) -> Option<PartialDatagram> {
        let datagram = self.datagrams.remove(&key)?;
        self.by_age.remove(&(datagram.age.0, datagram.age.1, key));
        self.memory -= datagram.memory();
        Some(datagram)
    }

    /// Discards a datagram, or sends it to the second output.
    fn give_up(&mut self, key: DatagramKey, cx: &mut ElementContext<'_>) {
        let Some(datagram) = self.remove(key) else { return };
        self.failed += 1;
        if cx.ports().outputs_push.len() > 1 {
            let mut packet = datagram.packet(datagram.seen_at, false, &mut cx.services.pool);
            packet.annotation_mut(IPREASSEMBLER).fill(0);
            self.note_longest(&mut packet, &datagram);
            cx.emit_or_discard(1, packet);
        }
    }

    fn expire(&mut self, now: Timestamp, cx: &mut ElementContext<'_>) {
        while let Some((seen_at, _, key)) = self.by_age.first().copied()
            && seen_at.0.saturating_add(TIMEOUT.0) < now.0
        {
            self.give_up(key, cx);
        }
    }

    fn slim(&mut self, cx: &mut ElementContext<'_>) {
        while self.memory > self.memory_max / 4 * 3
            && let Some((.., key)) = self.by_age.first().copied()
        {
            self.give_up(key, cx);
        }
    }

    fn dump(&self) -> String {
        let mut text = format!(
            "frags seen total:    {}\ngood reassemblies:   {}\nfailed reassemblies: {}\nbad fragments seen:  {}\n\
             cached chunk data:\n",
            self.seen, self.complete, self.failed, self.bad
        );
        for (key, datagram) in &self.datagrams {
            // The ports, if the first bytes have come.
            let port = |at: usize| {
                let bytes = datagram.payload().get(at..at + 2);
                bytes.map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
            };
            _ = write!(
                text,
                " ({}, {}, {}, {}) {}",
                key.source,
                port(0),
                key.destination,
                port(2),
                key.identification
            );
            for (start, end) in datagram.parts() {
                _ = write!(text, " ({start},{end})");
            }
            text.push('\n');
        }
        text
    }
}

impl Element for IpReassembler {
    fn take_state(&mut self, earlier: &mut dyn std::any::Any, _: &mut ElementContext<'_>) {
        if let Some(earlier) = earlier.downcast_mut::<IpReassembler>() {
            let (memory_max, length_annotation) = (self.memory_max, self.length_annotation);
            std::mem::swap(self, earlier);
            (self.memory_max, self.length_annotation) = (memory_max, length_annotation);
        }
    }

    handlers! {
        "dump": "counts, and the datagrams that wait", read |this, _, _| Ok(this.dump());
    }
}

impl EmittingElement for IpReassembler {
    fn push(&mut self, _: usize, packet: GraphPacket, cx: &mut ElementContext<'_>) {
        if let Some(packet) = self.handle(packet, cx) {
            cx.emit(0, packet);
        }
    }

    fn pull(&mut self, _: usize, cx: &mut ElementContext<'_>) -> Option<GraphPacket> {
        let packet = cx.pull(0)?;
        self.handle(packet, cx)
    }
}
