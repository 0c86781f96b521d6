//! `FTPPortMapper`: lets active FTP pass a rewriter.

use super::flow_id::FlowId;
use super::mapping::{FIN, RST, SYN};
use super::rewriter::{Rewriter, rewriter_of};
use crate::ipv4::{ChecksumChange, Ipv4Header, TCP, half, set_half, set_word, transport_checksum, word};
use core::net::Ipv4Addr;
use std::any::Any;
use std::cell::RefCell;
use std::rc::Rc;
use weir_graph::arguments::ElementReference;
use weir_graph::engine::{
    BuiltElement, Destination, Effects, Element, ElementClass, ElementContext, ElementCost, GraphPacket,
    OrderDependence, Reason, RoutingElement, Services,
};
use weir_graph::handlers;
use weir_units::Timestamp;

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "FTPPortMapper",
    ports: "1/1",
    processing: "a/a",
    flow: "x/x",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
lets active FTP pass a rewriter

FTPPortMapper(CONTROL_REWRITER, DATA_REWRITER, DATA_REWRITER_INPUT)

FTPPortMapper takes the packets of FTP's control connections (RFC 959) from clients, before CONTROL_REWRITER gets them. For a \
command PORT, it makes a mapping in DATA_REWRITER, as if the client had sent a packet from the address and port of the \
command to the server's data port, at DATA_REWRITER_INPUT. Then it writes the new address and port into the command. So \
the server's data connection is a reply of that mapping. The data port is one less than the port of the server's end of \
the control connection.

A command can be anywhere in the stream, and in several segments: a part of its argument is withheld until the rest is \
there, and the segment that ends it carries the whole argument. In between, the server gets segments that it \
acknowledges. CONTROL_REWRITER changes sequence numbers accordingly. A command stays as it is if the connection has no \
mapping in CONTROL_REWRITER yet, or DATA_REWRITER has no free port. EPRT and PASV are not looked at.

Segments behind a gap are discarded while a part of a command is withheld; TCP sends them again. Segments with a wrong \
checksum and fragments pass as they are.

Arguments:
  CONTROL_REWRITER     the IPRewriter or TCPRewriter of the control connections, downstream
  DATA_REWRITER        the rewriter of the data connections; it can be the same
  DATA_REWRITER_INPUT  the input of DATA_REWRITER whose INPUTSPEC makes the mapping

Handlers:
  drops  r  the number of discarded segments",
    build: |cx| {
        let mut args = cx.arguments();
        let control: ElementReference = args.either("CONTROL_REWRITER").required();
        let data: ElementReference = args.either("DATA_REWRITER").required();
        let input: u32 = args.either("DATA_REWRITER_INPUT").required();
        args.end()?;
        let (control, data, input) = (control.0, data.0, input as usize);
        Ok(BuiltElement::routing(FtpPortMapper { control, data, input, rewriters: None, drops: 0 }))
    },
};

/// The bytes of a TCP header without options.
const TCP_BYTES: usize = 20;

struct FtpPortMapper {
    control: usize,
    data: usize,
    input: usize,
    /// The rewriter of control connections, and that of data connections.
    rewriters: Option<[Rc<RefCell<Rewriter>>; 2]>,
    drops: u64,
}

/// The parts of a control segment.
#[derive(Clone, Copy)]
struct ControlSegment {
    flow: FlowId,
    sequence: u32,
    flags: u8,
    /// The offsets of the TCP header and of the data from the IP header, and the end of the data.
    tcp_at: usize,
    data_at: usize,
    end: usize,
}

impl ControlSegment {
    fn of(packet: &GraphPacket) -> Option<Self> {
        let header = Ipv4Header::of(packet).filter(|it| it.protocol() == TCP && !it.is_fragment())?;
        let segment = header.segment().filter(|segment| segment.len() >= TCP_BYTES)?;
        let tcp_at = header.header_bytes;
        let header_bytes = usize::from(segment[12] >> 4) * 4;
        // A segment that was damaged is sent again. Its new checksum would hide that.
        let is_right = transport_checksum(&header, segment) == 0;
        ((TCP_BYTES..=segment.len()).contains(&header_bytes) && is_right).then(|| Self {
            flow: FlowId::of(&header),
            sequence: word(segment, 4),
            flags: segment[13],
            tcp_at,
            data_at: tcp_at + header_bytes,
            end: tcp_at + segment.len(),
        })
    }
}

impl FtpPortMapper {
    /// Returns the rewriters that the arguments name.
    fn find_rewriters(&self, cx: &mut ElementContext<'_>) -> Result<[Rc<RefCell<Rewriter>>; 2], Reason> {
        let control = rewriter_of(self.control, cx).filter(|it| it.borrow().follows_tcp());
        let control = control.ok_or("CONTROL_REWRITER: the element is no TCPRewriter")?;
        let data = rewriter_of(self.data, cx).ok_or("DATA_REWRITER: the element is no IP rewriter")?;
        if self.input >= data.borrow().input_count() {
            return Err("DATA_REWRITER_INPUT out of range".to_owned());
        }
        Ok([control, data])
    }

    /// Edits the commands in a packet; returns false for a segment that has to come again.
    fn handle(&self, packet: &mut GraphPacket, now: Timestamp) -> bool {
        let Some([control, data]) = &self.rewriters else { return true };
        let Some(segment) = ControlSegment::of(packet) else { return true };
        let found = control.borrow().find(TCP, segment.flow, true);
        let Some((index, is_reply)) = found else { return true };
        let control_table = control.borrow().table();
        // The edits are away from their mapping while the other table, which can be the same, gets a new one.
        let (mut edits, annotation) = {
            let mut table = control_table.borrow_mut();
            let mapping = table.get_mut(index);
            let edits = std::mem::take(&mut mapping.edits_mut()[usize::from(is_reply)]);
            (edits, mapping.reply_annotation)
        };
        let start = segment.sequence.wrapping_add(u32::from(segment.flags & SYN != 0));
        if segment.flags & SYN != 0 {
            edits.begin(start);
        }
        let bytes = packet.network_bytes().unwrap_or_default();
        let payload = bytes.get(segment.data_at..segment.end).unwrap_or_default();
        let is_last = segment.flags & (FIN | RST) != 0;
        let server_port = segment.flow.destination_port.wrapping_sub(1);
        let result = edits.read_segment(start, payload, is_last, |address, port| {
            let flow = FlowId {
                source: address.to_bits(),
                source_port: port,
                destination: segment.flow.destination,
                destination_port: server_port,
            };
            let (index, is_reply) = data.borrow_mut().find_or_add(TCP, flow, self.input, now)?;
            let table = data.borrow().table();
            let mut table = table.borrow_mut();
            let mapping = table.get_mut(index);
            mapping.reply_annotation = annotation;
            let new = mapping.rewritten(is_reply);
            Some((Ipv4Addr::from_bits(new.source), new.source_port))
        });
        let edited = edits.edited(start, payload);
        let probe = (edited.as_ref().is_some_and(Vec::is_empty) && !is_last)
            .then(|| edits.withheld())
            .flatten()
            .map(|start| start.wrapping_sub(1));
        let still = control.borrow().find(TCP, segment.flow, true);
        if let Some((index, is_reply)) = still {
            control_table.borrow_mut().get_mut(index).edits_mut()[usize::from(is_reply)] = edits;
        }
        match (edited, probe) {
            // The byte before the argument is a space. The peer has it, and acknowledges it again.
            (Some(_), Some(sequence)) => replace_payload(packet, segment, b" ", sequence),
            (Some(edited), None) => replace_payload(packet, segment, &edited, segment.sequence),
            (None, _) => {}
        }
        result.is_ok()
    }
}

/// Replaces the data of a segment, and sets its sequence number, lengths and checksums. Bytes behind the IP packet go.
fn replace_payload(packet: &mut GraphPacket, segment: ControlSegment, data: &[u8], sequence: u32) {
    let ControlSegment { tcp_at, data_at, .. } = segment;
    let Some(length) = packet.network_length() else { return };
    let new = data_at + data.len();
    let Ok(total) = u16::try_from(new) else { return };
    if new > length {
        packet.append(new - length);
    } else {
        packet.truncate_by(length - new);
    }
    let Some(bytes) = packet.network_bytes_mut() else { return };
    bytes[data_at..new].copy_from_slice(data);
    let lengths = (half(bytes, 2).into(), total.into());
    set_half(bytes, 2, total);
    ChecksumChange::of([lengths]).apply_at(bytes, 10);
    set_word(bytes, tcp_at + 4, sequence);
    set_half(bytes, tcp_at + 16, 0);
    if let Some(header) = Ipv4Header::read(bytes) {
        let sum = transport_checksum(&header, header.transport());
        set_half(bytes, tcp_at + 16, sum);
    }
}

impl Element for FtpPortMapper {
    fn initialize(&mut self, cx: &mut ElementContext<'_>) -> Result<(), Reason> {
        self.rewriters = Some(self.find_rewriters(cx)?);
        Ok(())
    }

    fn can_reconfigure(&self) -> bool {
        true
    }

    fn reconfigure(&mut self, other: &mut dyn Any, cx: &mut ElementContext<'_>) -> bool {
        let Some(other) = other.downcast_mut::<Self>() else { return false };
        let Ok(rewriters) = other.find_rewriters(cx) else { return false };
        (self.control, self.data, self.input) = (other.control, other.data, other.input);
        self.rewriters = Some(rewriters);
        true
    }

    handlers! {
        "drops": counter "the number of discarded segments", read |this, _, _| Ok(this.drops.to_string());
    }
}

impl RoutingElement for FtpPortMapper {
    fn route(&mut self, _: usize, packet: &mut GraphPacket, services: &mut Services) -> Destination {
        if self.handle(packet, services.coarse_now()) {
            return Destination::FIRST;
        }
        self.drops += 1;
        Destination::DISCARD
    }
}
