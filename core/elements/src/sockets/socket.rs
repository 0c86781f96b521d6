//! `Socket`: exchanges packets with another program over TCP, UDP or a Unix-domain socket.

use super::endpoint::{BufferArguments, CommonArguments, EndpointState, SocketElement};
use core::net::{Ipv4Addr, SocketAddrV4};
use weir_graph::arguments::{ArgumentValue, ElementArguments, FileName, TcpPort, UdpPort};
use weir_graph::engine::{
    BuiltElement, Effects, ElementClass, ElementCost, OrderDependence, SocketOptions, SocketTransport,
};

/// The class.
pub static CLASS: ElementClass = ElementClass {
    name: "Socket",
    ports: "0-1/0-1",
    processing: "a/h",
    flow: "x/y",
    cost: ElementCost::E2,
    effects: Effects::NONE,
    order: OrderDependence::Ordered,
    manual: "\
exchanges packets with another program over a socket

Socket(TCP, ADDR, PORT [, LOCAL_ADDR, LOCAL_PORT, keywords])
Socket(UDP, ADDR, PORT [, LOCAL_ADDR, LOCAL_PORT, keywords])
Socket(UNIX, FILENAME [, LOCAL_FILENAME, keywords])
Socket(UNIX_DGRAM, FILENAME [, LOCAL_FILENAME, keywords])

Packets that come to the input are sent, and received ones go to the output. With TCP and UNIX a packet is some bytes of a \
stream. A server listens at the address, and serves one connection at a time; packets are discarded while there is none. With \
UDP and UNIX_DGRAM a packet is a datagram, and a server sends to the latest sender. A UDP client with the address 0.0.0.0 \
sends to the annotation DST_IP.

Pushed packets wait while the socket has no room, at most 1,024; further packets are lost. The address of a client is not \
looked up: it has to be a number or a name of AddressInfo.

Arguments:
  ADDR, PORT              the server
  LOCAL_ADDR, LOCAL_PORT  the address of a client
  FILENAME                the server's file
  LOCAL_FILENAME          the file of a client
  CLIENT    true: connect to the address. Default: true without an output, otherwise false.
  SNAPLEN   the most bytes of a received packet, at most 1048576. Default 2048.
  HEADROOM  the bytes of room before a packet, at most 8192. Default 66.
  TIMESTAMP  true: received packets get the present time. Default true.
  NODELAY   false: TCP gathers short pieces. Default true.
  SNDBUF, RCVBUF  the kernel's buffers in bytes
  ALLOW     a table of routes: a server accepts peers that have a route in it
  DENY      a table of routes: a server refuses peers that have a route in it, and none in ALLOW
  VERBOSE   true: messages about connections. Default false.

PROPER is accepted and changes nothing.

Handlers:
  received      r   the number of received packets
  sent          r   the number of sent packets
  drops         r   the number of packets that could not be sent
  drop_details  r   the lost packets by reason",
    build: |cx| {
        let has_output = !cx.ports().outputs_push.is_empty();
        let mut args = cx.arguments();
        let kind: String = args.positional::<String>("TYPE").required().to_ascii_uppercase();
        let is_verbose = args.keyword("VERBOSE").or(false);
        let CommonArguments { snap, headroom } = CommonArguments::read(&mut args);
        let BufferArguments { send_buffer, receive_buffer, has_time } = BufferArguments::read(&mut args);
        let has_no_delay = args.keyword("NODELAY").or(true);
        let client: Option<bool> = args.keyword("CLIENT").optional();
        let _: Option<bool> = args.keyword("PROPER").optional();
        let mut table = |name| {
            let element: Option<String> = args.keyword(name).optional();
            element
        };
        let (allow, deny) = (table("ALLOW"), table("DENY"));
        let transport = read_transport(&kind, &mut args);
        // As in Click, a local address makes the socket a client.
        let has_local = !matches!(
            &transport,
            SocketTransport::Tcp { local: None, .. }
                | SocketTransport::Udp { local: None, .. }
                | SocketTransport::UnixStream { local: None, .. }
                | SocketTransport::UnixDatagrams { local: None, .. }
        );
        args.end()?;
        let options = SocketOptions {
            transport,
            is_client: client.unwrap_or(!has_output || has_local),
            has_no_delay,
            send_buffer,
            receive_buffer,
            snap,
        };
        Ok(BuiltElement::emitting(SocketElement {
            options,
            headroom,
            has_time,
            is_ip: false,
            is_verbose,
            allow,
            deny,
            needs: None,
            state: EndpointState::default(),
        }))
    },
};

fn read_transport(kind: &str, args: &mut ElementArguments<'_, '_>) -> SocketTransport {
    match kind {
        "TCP" => {
            let (server, local) = addresses(args, |TcpPort(port)| port);
            SocketTransport::Tcp { server, local }
        }
        "UDP" => {
            let (server, local) = addresses(args, |UdpPort(port)| port);
            SocketTransport::Udp { server, local }
        }
        "UNIX" | "UNIX_DGRAM" => {
            let server: FileName = args.either("FILENAME").required();
            let local: Option<FileName> = args.either("LOCAL_FILENAME").optional();
            let (server, local) = (server.0, local.map(|name| name.0));
            if kind == "UNIX" {
                SocketTransport::UnixStream { server, local }
            } else {
                SocketTransport::UnixDatagrams { server, local }
            }
        }
        _ => {
            args.error("", format!("unknown socket type `{kind}'"));
            _ = args.rest();
            SocketTransport::UnixStream { server: String::new(), local: None }
        }
    }
}

/// Reads the address of the server, and that of a client.
fn addresses<P: ArgumentValue>(
    args: &mut ElementArguments<'_, '_>,
    number: fn(P) -> u16,
) -> (SocketAddrV4, Option<SocketAddrV4>) {
    let address: Ipv4Addr = args.either("ADDR").required();
    let port = number(args.either("PORT").required());
    let local_address: Option<Ipv4Addr> = args.either("LOCAL_ADDR").optional();
    let local_port: Option<u16> = args.either::<P>("LOCAL_PORT").optional().map(number);
    let local = local_address.is_some() || local_port.is_some();
    let local = local
        .then(|| SocketAddrV4::new(local_address.unwrap_or(Ipv4Addr::UNSPECIFIED), local_port.unwrap_or(0)));
    (SocketAddrV4::new(address, port), local)
}
