//! `McastSocket`: exchanges packets with a multicast group over UDP.

use super::endpoint::{BufferArguments, CommonArguments, EndpointState, SocketElement};
use core::net::{Ipv4Addr, SocketAddrV4};
use weir_graph::arguments::UdpPort;
use weir_graph::engine::{
    BuiltElement, Effects, ElementClass, ElementCost, OrderDependence, SocketOptions, SocketTransport,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "McastSocket",
    ports: "0-1/0-1",
    processing: "a/h",
    flow: "x/y",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
exchanges packets with a multicast group over UDP

McastSocket(MCASTIP, MCASTPORT [, SOURCEIP, SOURCEPORT, keywords LOOP, SNAPLEN, HEADROOM, TIMESTAMP, SNDBUF, RCVBUF])

Each packet that comes to the input is sent as a datagram to the group, and the datagrams of the group go to the output. With \
SOURCEIP, datagrams are sent and received on the interface with this address, and datagrams that McastSocket has sent itself \
do not come back.

Pushed packets wait while the socket has no room, at most 1,024; further packets are lost.

Arguments:
  MCASTIP, MCASTPORT    the group
  SOURCEIP, SOURCEPORT  the address from which datagrams are sent
  LOOP       true: programs on this host receive the datagrams, too. Default true.
  SNAPLEN    the most bytes of a received packet, at most 1048576. Default 2048.
  HEADROOM   the bytes of room before a packet, at most 8192. Default 66.
  TIMESTAMP  true: received packets get the present time. Default true.
  SNDBUF, RCVBUF  the kernel's buffers in bytes

Handlers:
  received      r   the number of received packets
  sent          r   the number of sent packets
  drops         r   the number of packets that could not be sent
  drop_details  r   the lost packets by reason",
    build: |cx| {
        let mut args = cx.arguments();
        let address: Ipv4Addr = args.either("MCASTIP").required();
        let UdpPort(port) = args.either("MCASTPORT").required();
        let source: Option<Ipv4Addr> = args.either("SOURCEIP").optional();
        let source_port: Option<UdpPort> = args.either("SOURCEPORT").optional();
        let CommonArguments { snap, headroom } = CommonArguments::read(&mut args);
        let BufferArguments { send_buffer, receive_buffer, has_time } = BufferArguments::read(&mut args);
        let has_loop = args.keyword("LOOP").or(true);
        if !address.is_multicast() {
            args.error("MCASTIP", format!("{address} is no multicast address: those are 224.0.0.0/4"));
        }
        args.end()?;
        let source = source.filter(|source| !source.is_unspecified());
        let source_port = source_port.map_or(0, |port| port.0);
        let transport = SocketTransport::Multicast {
            group: SocketAddrV4::new(address, port),
            source: source.map(|source| SocketAddrV4::new(source, source_port)),
            has_loop,
        };
        let options = SocketOptions {
            transport,
            is_client: false,
            has_no_delay: false,
            send_buffer,
            receive_buffer,
            snap,
        };
        Ok(BuiltElement::emitting(SocketElement {
            options,
            headroom,
            has_time,
            is_ip: false,
            is_verbose: false,
            allow: None,
            deny: None,
            needs: None,
            state: EndpointState::default(),
        }))
    },
};
