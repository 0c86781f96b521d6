//! `ICMPRewriter`: rewrites ICMP errors about rewritten packets.

use super::flow_id::FlowId;
use super::form::{ECHO_REQUEST, RewriterForm, update_icmp};
use super::rewriter::{Rewriter, rewriter_of};
use crate::ipv4::{ChecksumChange, ICMP, Ipv4Header, TCP, UDP, half, set_half, set_word, word};
use std::cell::RefCell;
use std::rc::Rc;
use weir_graph::arguments::text::split_words;
use weir_graph::arguments::{AnnotationField, ElementReference, RawArgument};
use weir_graph::engine::{
    BuiltElement, DST_IP, Destination, Effects, Element, ElementClass, ElementContext, ElementCost,
    GraphPacket, OrderDependence, Reason, RoutingElement, Services,
};
use weir_graph::handlers;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "ICMPRewriter",
    ports: "1/1-",
    processing: "h/h",
    flow: "x/x",
    cost: ElementCost::E4,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
rewrites ICMP errors about rewritten packets

ICMPRewriter(MAPS, [keywords DST_ANNO, REPLY_ANNO])

An ICMP error contains the beginning of the packet that it is about. If that packet was rewritten by one of the rewriters \
MAPS, ICMPRewriter gives it its original addresses, ports and checksums, and gives the error the original address as its \
destination. So hosts behind a translation get errors about their packets: destination unreachable, source quench, \
redirect, time exceeded and parameter problem.

Such errors go to output 0, or, with an offset, to the output of the mapping of replies plus the offset. Other ICMP \
messages, and errors about packets without a mapping, go to output 1 if there are two outputs and no offsets; else they \
are discarded, as other packets are.

Arguments:
  MAPS        names of rewriters, with spaces between them: IPRewriter and its relatives, ICMPPingRewriter. A name can \
have an offset, NAME:OFFSET.
  DST_ANNO    true: the annotation DST_IP becomes the new destination. Default true.
  REPLY_ANNO  an annotation of one byte: errors about replies get the value of the mapping

Handlers:
  drops  r  the number of discarded packets",
    build: |cx| {
        let mut args = cx.arguments();
        let maps: RawArgument = args.either("MAPS").required();
        let sets_destination = args.keyword("DST_ANNO").or(true);
        let annotation: Option<AnnotationField<1>> = args.keyword("REPLY_ANNO").optional();
        let outputs = cx.ports().targets.len();
        let mut named = Vec::new();
        for word in split_words(&maps.0) {
            let (name, offset) = match word.split_once(':') {
                Some((name, offset)) => (name, offset.parse().ok().map(Some)),
                None => (word, Some(None)),
            };
            match (cx.read::<ElementReference>(name), offset) {
                (Some(element), Some(offset)) => named.push((element.0, offset, word.to_owned())),
                _ => args.error("", format!("{name} not an IP rewriter")),
            }
        }
        if named.is_empty() {
            args.error("", "no IP rewriters supplied");
        }
        args.end()?;
        let has_unmapped = outputs == 2 && named.iter().all(|(_, offset, _)| offset.is_none());
        Ok(BuiltElement::routing(IcmpRewriter {
            named,
            maps: Vec::new(),
            outputs,
            has_unmapped,
            sets_destination,
            reply_annotation: annotation.map(|it| it.0),
            drops: 0,
        }))
    },
};

/// Destination unreachable, source quench, redirect, time exceeded, parameter problem.
const ERRORS: [u8; 5] = [3, 4, 5, 11, 12];
const DCCP: u8 = 33;
/// The bytes of an ICMP header.
const ICMP_BYTES: usize = 8;

struct IcmpRewriter {
    /// The rewriters: index, offset of outputs, and text.
    named: Vec<(usize, Option<usize>, String)>,
    maps: Vec<(Rc<RefCell<Rewriter>>, Option<usize>)>,
    outputs: usize,
    /// Output 1 is that of packets without a mapping.
    has_unmapped: bool,
    sets_destination: bool,
    reply_annotation: Option<usize>,
    drops: u64,
}

/// The packet in an error, as its rewriter would get a reply to it.
struct CausePacket {
    /// The place of its IP header, and that of its transport header.
    at: usize,
    transport: usize,
    protocol: u8,
    /// The flow of replies to it. That of an echo request has its identifier as the source port.
    reply: FlowId,
    /// The ports, or the identifier, are there.
    has_ports: bool,
}

impl CausePacket {
    /// Finds the packet in an ICMP error, whose bytes begin with the IP header.
    fn of(bytes: &[u8]) -> Option<Self> {
        let outer = Ipv4Header::read(bytes).filter(Ipv4Header::is_first)?;
        ERRORS.contains(outer.transport().first()?).then_some(())?;
        let at = outer.header_bytes + ICMP_BYTES;
        // The options of the packet can be cut.
        let inner = bytes.get(at..).filter(|inner| inner.len() >= 20 && inner[0] >> 4 == 4)?;
        let header_bytes = usize::from(inner[0] & 0xf) * 4;
        (header_bytes >= 20).then_some(())?;
        let protocol = inner[9];
        let is_first = half(inner, 6) & 0x1fff == 0;
        let payload = inner.get(header_bytes..).filter(|_| is_first).unwrap_or_default();
        let mut reply = FlowId { source: word(inner, 16), destination: word(inner, 12), ..FlowId::default() };
        let has_ports = match protocol {
            TCP | UDP | DCCP => payload.len() >= 8,
            ICMP => payload.len() >= 6 && payload[0] == ECHO_REQUEST,
            _ => false,
        };
        match protocol {
            _ if !has_ports => {}
            ICMP => reply.source_port = half(payload, 4),
            _ => (reply.source_port, reply.destination_port) = (half(payload, 2), half(payload, 0)),
        }
        Some(Self { at, transport: at + header_bytes, protocol, reply, has_ports })
    }

    /// Returns the flow of replies to the packet before it was rewritten.
    ///
    /// Fields that the rewriter does not change stay.
    fn original(&self, form: RewriterForm, is_reply: bool, new: FlowId) -> FlowId {
        let own = self.reply;
        match form {
            RewriterForm::Address if is_reply => FlowId { destination: new.destination, ..own },
            RewriterForm::Address => FlowId { source: new.source, ..own },
            RewriterForm::AddressPair => FlowId { source: new.source, destination: new.destination, ..own },
            // The identifier of the request is the source port, as in the search.
            RewriterForm::Ping => FlowId { source_port: new.destination_port, ..new },
            RewriterForm::TcpAndUdp | RewriterForm::Tcp | RewriterForm::Ports => new,
        }
    }

    /// Gives the packet its original addresses and ports, and updates all checksums.
    fn rewrite(&self, bytes: &mut [u8], original: FlowId) {
        let Some(icmp) = Ipv4Header::read(bytes).map(|header| header.header_bytes) else { return };
        // Everything from the ICMP header on is under its checksum.
        let before: Vec<u8> = bytes[icmp..].to_vec();
        let (source, destination) = (original.destination, original.source);
        let addresses = [(word(bytes, self.at + 12), source), (word(bytes, self.at + 16), destination)];
        set_word(bytes, self.at + 12, source);
        set_word(bytes, self.at + 16, destination);
        ChecksumChange::of(addresses).apply_at(bytes, self.at + 10);
        let at = self.transport;
        if self.has_ports && self.protocol == ICMP {
            let identifiers = (half(bytes, at + 4).into(), original.source_port.into());
            set_half(bytes, at + 4, original.source_port);
            update_icmp(ChecksumChange::of([identifiers]), &mut bytes[at..]);
        } else if self.has_ports {
            let new = u32::from(original.destination_port) << 16 | u32::from(original.source_port);
            let ports = (word(bytes, at), new);
            set_word(bytes, at, new);
            let change = ChecksumChange::of(addresses.into_iter().chain([ports]));
            if self.protocol == TCP && bytes.len() >= at + 18 {
                change.apply_at(bytes, at + 16);
            } else if self.protocol == UDP {
                change.apply_udp(bytes, at + 6);
            }
        }
        let (after, mut changes) = (&bytes[icmp..], Vec::new());
        for place in (0..before.len()).step_by(2) {
            let halves =
                |all: &[u8]| u32::from(all[place]) << 8 | u32::from(all.get(place + 1).copied().unwrap_or(0));
            if halves(&before) != halves(after) {
                changes.push((halves(&before), halves(after)));
            }
        }
        ChecksumChange::of(changes).apply_at(bytes, icmp + 2);
    }
}

impl IcmpRewriter {
    /// Rewrites an error, and returns its output; `None` if there is no mapping.
    fn rewrite(&self, packet: &mut GraphPacket) -> Option<usize> {
        let cause = CausePacket::of(packet.network_bytes()?)?;
        let found = self.maps.iter().find_map(|(rewriter, offset)| {
            let rewriter = rewriter.borrow();
            let (index, is_reply) = rewriter.find(cause.protocol, cause.reply, false)?;
            let table = rewriter.table();
            let table = table.borrow();
            let mapping = table.get(index);
            let original = cause.original(rewriter.form(), is_reply, mapping.rewritten(is_reply));
            let output = offset
                .map_or(0, |offset| offset.saturating_add(mapping.ends[usize::from(is_reply)].output.into()));
            Some((original, output, is_reply.then_some(mapping.reply_annotation)))
        });
        let (original, output, annotation) = found?;
        let bytes = packet.network_bytes_mut()?;
        let to_source = word(bytes, 16) == cause.reply.destination;
        if to_source {
            let change = ChecksumChange::of([(word(bytes, 16), original.destination)]);
            set_word(bytes, 16, original.destination);
            change.apply_at(bytes, 10);
        }
        cause.rewrite(bytes, original);
        if to_source && self.sets_destination {
            packet.annotation_mut(DST_IP).copy_from_slice(&original.destination.to_be_bytes());
        }
        if let (Some(place), Some(value)) = (self.reply_annotation, annotation) {
            packet.annotations_mut()[place] = value;
        }
        Some(output)
    }
}

impl Element for IcmpRewriter {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        for (element, offset, text) in &self.named {
            let name = text.split(':').next().unwrap_or_default();
            let rewriter = rewriter_of(*element, cx).ok_or_else(|| format!("{name} not an IP rewriter"))?;
            let outputs = rewriter.borrow().output_count();
            if offset.is_some_and(|offset| outputs.saturating_add(offset) > self.outputs) {
                let noun = if self.outputs == 1 { "output" } else { "outputs" };
                return Err(format!("{text} port offset requires more than {} {noun}", self.outputs));
            }
            self.maps.push((rewriter, *offset));
        }
        Ok(())
    }

    handlers! {
        "drops": counter "the number of discarded packets", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for IcmpRewriter {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, _: &mut Services) -> Destination {
        let is_icmp = Ipv4Header::of(packet).is_some_and(|header| header.protocol() == ICMP);
        let output = match is_icmp.then(|| self.rewrite(packet)).flatten() {
            None if is_icmp && self.has_unmapped => Some(1),
            output => output,
        };
        self.drops += u64::from(output.is_none());
        output.map_or(Destination::DISCARD, Destination::output)
    }
}
