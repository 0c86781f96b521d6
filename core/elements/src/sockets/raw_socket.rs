//! `RawSocket`: exchanges IPv4 packets with the host's own network, over a raw socket.

use super::endpoint::{CommonArguments, EndpointState, SocketElement};
use weir_graph::arguments::{IpProtocol, TcpPort, UdpPort};
use weir_graph::engine::{
    BuiltElement, Effects, ElementClass, ElementCost, OrderDependence, SocketOptions, SocketTransport,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "RawSocket",
    ports: "0-1/0-1",
    processing: "l/h",
    flow: "x/y",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
exchanges IPv4 packets with the host's own network

RawSocket(TYPE [, PORT, keywords SNAPLEN, HEADROOM])

RawSocket receives the IPv4 packets of a protocol that reach this host, as its own network does, and sends packets that come \
to the input, with their IP headers. Received packets get the network header, the annotation DST_IP and the present time. \
Needs root, or the capability CAP_NET_RAW.

Arguments:
  TYPE      the protocol: TCP, UDP, ICMP, GRE, or a number
  PORT      with TCP and UDP, a port that no other program can use meanwhile. Packets to all ports are received. With \
other protocols it has no effect.
  SNAPLEN   the most bytes of a received packet, at most 1048576. Default 2048.
  HEADROOM  the bytes of room before a packet, at most 8192. Default 66.

Handlers:
  received      r   the number of received packets
  sent          r   the number of sent packets
  drops         r   the number of packets that could not be sent
  drop_details  r   the lost packets by reason",
    build: |cx| {
        let mut args = cx.arguments();
        let IpProtocol(protocol) = args.either("TYPE").required();
        let port = match protocol {
            TCP => args.either("PORT").optional().map(|TcpPort(port)| port),
            UDP => args.either("PORT").optional().map(|UdpPort(port)| port),
            _ => {
                let _: Option<u16> = args.either("PORT").optional();
                None
            }
        };
        let CommonArguments { snap, headroom } = CommonArguments::read(&mut args);
        args.end()?;
        let options = SocketOptions {
            transport: SocketTransport::RawIp { protocol, port: port.filter(|port| *port > 0) },
            is_client: false,
            has_no_delay: false,
            send_buffer: None,
            receive_buffer: None,
            snap,
        };
        Ok(BuiltElement::emitting(SocketElement {
            options,
            headroom,
            has_time: true,
            is_ip: true,
            is_verbose: false,
            allow: None,
            deny: None,
            needs: Some("root or CAP_NET_RAW".to_owned()),
            state: EndpointState::default(),
        }))
    },
};

const TCP: u8 = 6;
const UDP: u8 = 17;
