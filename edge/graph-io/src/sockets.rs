//! Sockets over which packets come and go.

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketAddrAny, SocketAddrUnix, SocketFlags, SocketType,
    acceptfrom_with, bind, connect, getsockname, ipproto, listen, recv, recvfrom, send, sendto, socket_with,
    sockopt,
};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use weir_graph::engine::{
    PacketSocket, SocketEvents, SocketOptions, SocketSend, SocketState, SocketTransport,
};
use weir_units::Escape as _;

/// The longest wait for a connection to a server.
const CONNECT_SECONDS: i64 = 10;

/// The connections that wait while a server serves one.
const BACKLOG: i32 = 2;

const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The peer of a datagram.
#[derive(Clone, Debug)]
enum DatagramPeer {
    /// None yet: a server that has received nothing.
    Unknown,
    /// The address in the packet's annotation, and this port.
    OfPacket(u16),
    /// This one.
    Known(SocketAddrAny),
}

/// An open socket.
#[derive(Debug)]
pub struct HostSocket {
    /// Becomes readable when one of the others does.
    waiter: OwnedFd,
    /// The socket of a server over streams.
    listener: Option<OwnedFd>,
    /// The socket that receives, and sends unless there is another one for that.
    active: Option<OwnedFd>,
    /// The socket that sends.
    sender: Option<OwnedFd>,
    is_stream: bool,
    is_server: bool,
    peer: DatagramPeer,
    /// The datagrams of this address are the socket's own.
    own: Option<SocketAddrV4>,
    /// The bytes of the next packet that the stream has taken already.
    begun: usize,
    buffer: Vec<u8>,
    /// The socket that reserves a port.
    _reserved: Option<OwnedFd>,
    /// The file of the socket, which is removed at the end.
    file: Option<PathBuf>,
}

impl Drop for HostSocket {
    fn drop(&mut self) {
        if let Some(file) = &self.file {
            // Another program may have removed it.
            _ = std::fs::remove_file(file);
        }
    }
}

fn failed(what: &'static str) -> impl Fn(Errno) -> String {
    move |error| format!("{what}: {}", std::io::Error::from(error))
}

fn new_socket(
    family: AddressFamily,
    kind: SocketType,
    protocol: Option<Protocol>,
) -> Result<OwnedFd, String> {
    socket_with(family, kind, FLAGS, protocol).map_err(failed("socket"))
}

/// The protocol of packets with headers of their own.
fn raw_protocol(number: u8) -> Option<Protocol> {
    NonZeroU32::new(u32::from(number)).map(Protocol::from_raw)
}

/// A socket of a server or client, with its addresses.
struct Addressed<'a> {
    kind: SocketType,
    protocol: Option<Protocol>,
    server: SocketAddrAny,
    local: Option<SocketAddrAny>,
    /// The file that binding makes.
    file: Option<&'a str>,
}

impl HostSocket {
    /// Opens a socket.
    pub fn open(options: &SocketOptions) -> Result<Self, String> {
        let waiter = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed("epoll"))?;
        let mut socket = Self {
            waiter,
            listener: None,
            active: None,
            sender: None,
            is_stream: false,
            is_server: !options.is_client,
            peer: DatagramPeer::Unknown,
            own: None,
            begun: 0,
            buffer: vec![0; options.snap],
            _reserved: None,
            file: None,
        };
        let v4 = |address: &SocketAddrV4| SocketAddrAny::from(*address);
        match &options.transport {
            SocketTransport::Tcp { server, local } => socket.open_addressed(
                options,
                &Addressed {
                    kind: SocketType::STREAM,
                    protocol: Some(ipproto::TCP),
                    server: v4(server),
                    local: local.as_ref().map(v4),
                    file: None,
                },
            )?,
            SocketTransport::Udp { server, local } => {
                socket.open_addressed(
                    options,
                    &Addressed {
                        kind: SocketType::DGRAM,
                        protocol: Some(ipproto::UDP),
                        server: v4(server),
                        local: local.as_ref().map(v4),
                        file: None,
                    },
                )?;
                if options.is_client && server.ip().is_unspecified() {
                    socket.peer = DatagramPeer::OfPacket(server.port());
                }
            }
            SocketTransport::UnixStream { server, local }
            | SocketTransport::UnixDatagrams { server, local } => {
                let is_stream = matches!(options.transport, SocketTransport::UnixStream { .. });
                let address = |name: &String| {
                    SocketAddrUnix::new(name.as_str())
                        .map(SocketAddrAny::from)
                        .map_err(|_| format!("filename '{}' too long", name.escaped()))
                };
                let own_file = if options.is_client { local.as_deref() } else { Some(server.as_str()) };
                socket.open_addressed(
                    options,
                    &Addressed {
                        kind: if is_stream { SocketType::STREAM } else { SocketType::DGRAM },
                        protocol: None,
                        server: address(server)?,
                        local: local.as_ref().map(address).transpose()?,
                        file: own_file,
                    },
                )?;
            }
            SocketTransport::Multicast { group, source, has_loop } => {
                socket.open_multicast(options, *group, *source, *has_loop)?;
            }
            SocketTransport::RawIp { protocol, port } => socket.open_raw(*protocol, *port)?,
        }
        Ok(socket)
    }

    /// Returns the descriptor that becomes readable when packets or connections may be there.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.waiter.as_fd()
    }

    fn watch(&self, fd: BorrowedFd<'_>) -> Result<(), String> {
        let data = epoll::EventData::new_u64(0);
        epoll::add(&self.waiter, fd, data, epoll::EventFlags::IN).map_err(failed("epoll"))
    }

    fn open_addressed(&mut self, options: &SocketOptions, addressed: &Addressed<'_>) -> Result<(), String> {
        let Addressed { kind, protocol, server, local, file } = addressed;
        self.is_stream = *kind == SocketType::STREAM;
        let fd = new_socket(server.address_family(), *kind, *protocol)?;
        if *protocol == Some(ipproto::TCP) {
            sockopt::set_tcp_nodelay(&fd, options.has_no_delay).map_err(failed("setsockopt(TCP_NODELAY)"))?;
            if !options.is_client {
                // A server that begins again is not held up by the old one's connections.
                sockopt::set_socket_reuseaddr(&fd, true).map_err(failed("setsockopt(SO_REUSEADDR)"))?;
            }
        }
        set_buffers(&fd, &fd, options)?;
        if let Some(own) = if options.is_client { local.as_ref() } else { Some(server) } {
            bind(&fd, own).map_err(failed("bind"))?;
            self.file = file.map(PathBuf::from);
        }
        match (options.is_client, self.is_stream) {
            (true, true) => connect_in_time(&fd, server)?,
            (true, false) => self.peer = DatagramPeer::Known(server.clone()),
            (false, true) => {
                listen(&fd, BACKLOG).map_err(failed("listen"))?;
                self.watch(fd.as_fd())?;
                self.listener = Some(fd);
                return Ok(());
            }
            (false, false) => {}
        }
        self.watch(fd.as_fd())?;
        self.active = Some(fd);
        Ok(())
    }

    fn open_multicast(
        &mut self,
        options: &SocketOptions,
        group: SocketAddrV4,
        source: Option<SocketAddrV4>,
        has_loop: bool,
    ) -> Result<(), String> {
        let receiver = new_socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::UDP))?;
        let sender = new_socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::UDP))?;
        set_buffers(&sender, &receiver, options)?;
        sockopt::set_socket_reuseaddr(&receiver, true).map_err(failed("setsockopt(SO_REUSEADDR)"))?;
        bind(&receiver, &group).map_err(failed("bind"))?;
        let interface = source.map_or(Ipv4Addr::UNSPECIFIED, |source| *source.ip());
        if let Some(source) = source {
            bind(&sender, &source).map_err(failed("bind"))?;
            self.own = getsockname(&sender).ok().and_then(|address| SocketAddrV4::try_from(address).ok());
            sockopt::set_ip_multicast_if(&sender, &interface)
                .map_err(failed("setsockopt(IP_MULTICAST_IF)"))?;
        }
        sockopt::set_ip_add_membership(&receiver, group.ip(), &interface)
            .map_err(failed("setsockopt(IP_ADD_MEMBERSHIP)"))?;
        sockopt::set_ip_multicast_loop(&sender, has_loop).map_err(failed("setsockopt(IP_MULTICAST_LOOP)"))?;
        self.watch(receiver.as_fd())?;
        (self.active, self.sender) = (Some(receiver), Some(sender));
        self.peer = DatagramPeer::Known(group.into());
        self.is_server = false;
        Ok(())
    }

    fn open_raw(&mut self, protocol: u8, port: Option<u16>) -> Result<(), String> {
        let open = |protocol| {
            match socket_with(AddressFamily::INET, SocketType::RAW, FLAGS, protocol) {
            Err(Errno::PERM | Errno::ACCESS) => Err(
                "raw sockets need cap_net_raw: run it as root, or give the program the capability (`setcap cap_net_raw+ep`)"
                    .to_owned(),
            ),
            result => result.map_err(failed("socket")),
        }
        };
        let receiver = open(raw_protocol(protocol))?;
        // This protocol stands for packets with their IP headers.
        let sender = open(raw_protocol(255))?;
        for fd in [&receiver, &sender] {
            sockopt::set_socket_broadcast(fd, true).map_err(failed("SO_BROADCAST"))?;
        }
        if let Some(port) = port {
            let kind = if raw_protocol(protocol) == Some(ipproto::TCP) {
                SocketType::STREAM
            } else {
                SocketType::DGRAM
            };
            let reserved = new_socket(AddressFamily::INET, kind, raw_protocol(protocol))?;
            bind(&reserved, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port)).map_err(failed("port"))?;
            self._reserved = Some(reserved);
        }
        self.watch(receiver.as_fd())?;
        (self.active, self.sender) = (Some(receiver), Some(sender));
        self.peer = DatagramPeer::OfPacket(0);
        self.is_server = false;
        Ok(())
    }

    /// Accepts a connection, if there is none. Returns false if none waits.
    fn accept(&mut self, events: &mut dyn SocketEvents) -> Result<bool, String> {
        let Some(listener) = &self.listener else { return Ok(false) };
        let (fd, address) = match acceptfrom_with(listener, FLAGS) {
            Ok(accepted) => accepted,
            Err(Errno::AGAIN) => return Ok(false),
            // The peer has gone again, or there is no free descriptor.
            Err(error) => {
                events.tell(&failed("accept")(error));
                return Ok(false);
            }
        };
        let from = address.and_then(|address| SocketAddrV4::try_from(address).ok());
        if let Some(from) = from
            && !events.is_allowed(*from.ip())
        {
            events.tell(&format!("denied connection from {from}"));
            return Ok(true);
        }
        self.watch(fd.as_fd())?;
        self.active = Some(fd);
        match from {
            Some(from) => events.tell(&format!("opened connection from {from}")),
            None => events.tell("opened connection"),
        }
        Ok(true)
    }

    /// Closes the connection. Returns the state: a server waits for the next one.
    fn close(&mut self, events: &mut dyn SocketEvents) -> SocketState {
        self.active = None;
        self.begun = 0;
        events.tell("closed connection");
        if self.listener.is_some() { SocketState::More } else { SocketState::End }
    }

    fn receive_stream(&mut self, most: usize, events: &mut dyn SocketEvents) -> Result<SocketState, String> {
        for _ in 0..most {
            let Some(active) = &self.active else {
                if self.accept(events)? {
                    continue;
                }
                let state = if self.listener.is_some() { SocketState::Quiet } else { SocketState::End };
                return Ok(state);
            };
            match recv(active, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((0, _)) => return Ok(self.close(events)),
                Ok((count, _)) => events.receive(&self.buffer[..count], count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(SocketState::Quiet),
                Err(error) => {
                    events.tell(&std::io::Error::from(error).to_string());
                    return Ok(self.close(events));
                }
            }
        }
        Ok(SocketState::More)
    }

    fn receive_datagrams(
        &mut self,
        most: usize,
        events: &mut dyn SocketEvents,
    ) -> Result<SocketState, String> {
        for _ in 0..most {
            let Some(active) = &self.active else { return Ok(SocketState::End) };
            let (count, length, from) = match recvfrom(active, &mut self.buffer[..], RecvFlags::TRUNC) {
                Ok(received) => received,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(SocketState::Quiet),
                // The answer to a datagram that was sent: there is no such port.
                Err(Errno::CONNREFUSED) => continue,
                Err(error) => return Err(failed("recv")(error)),
            };
            let address = from.clone().and_then(|from| SocketAddrV4::try_from(from).ok());
            if address.is_some() && address == self.own {
                continue;
            }
            if self.is_server {
                if let Some(address) = address
                    && !events.is_allowed(*address.ip())
                {
                    events.tell(&format!("dropped datagram from {address}"));
                    continue;
                }
                if let Some(from) = from {
                    self.peer = DatagramPeer::Known(from);
                }
            }
            events.receive(&self.buffer[..count.min(length)], length);
        }
        Ok(SocketState::More)
    }

    fn send_stream(&mut self, bytes: &[u8]) -> SocketSend {
        let Some(active) = &self.active else { return SocketSend::Lost("there is no connection") };
        // A packet of which there is no room for the rest is sent again, from where the stream has got.
        while let Some(rest) = bytes.get(self.begun..).filter(|rest| !rest.is_empty()) {
            match send(active, rest, SendFlags::NOSIGNAL) {
                Ok(sent) => self.begun += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN | Errno::NOBUFS) => return SocketSend::Full,
                // Receiving closes the connection, behind the bytes that have come.
                Err(_) => {
                    self.begun = 0;
                    return SocketSend::Lost("the connection was closed");
                }
            }
        }
        self.begun = 0;
        SocketSend::Sent
    }

    fn send_datagram(&mut self, bytes: &[u8], to: Ipv4Addr) -> SocketSend {
        let Some(fd) = self.sender.as_ref().or(self.active.as_ref()) else {
            return SocketSend::Lost("the socket is closed");
        };
        let is_raw = matches!(self.peer, DatagramPeer::OfPacket(0));
        let address = match &self.peer {
            DatagramPeer::Unknown => {
                return SocketSend::Lost("no datagram has come whose sender could get it");
            }
            DatagramPeer::Known(address) => address.clone(),
            DatagramPeer::OfPacket(port) => {
                // A packet with an IP header has its destination there.
                let to = match bytes.get(16..20).and_then(<[u8]>::first_chunk::<4>) {
                    Some(destination) if is_raw && bytes[0] >> 4 == 4 => Ipv4Addr::from(*destination),
                    _ if is_raw => return SocketSend::Lost("no IPv4 packet"),
                    _ => to,
                };
                if to.is_unspecified() {
                    return SocketSend::Lost("no destination address");
                }
                SocketAddrV4::new(to, *port).into()
            }
        };
        loop {
            return match sendto(fd, bytes, SendFlags::NOSIGNAL, &address) {
                Ok(_) => SocketSend::Sent,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN | Errno::NOBUFS) => SocketSend::Full,
                Err(Errno::MSGSIZE) => SocketSend::Lost("longer than a datagram can be"),
                Err(Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NETDOWN) => {
                    SocketSend::Lost("there is no route to the destination")
                }
                Err(Errno::CONNREFUSED | Errno::NOENT) => SocketSend::Lost("there is no such peer"),
                Err(_) => SocketSend::Lost("refused by the system"),
            };
        }
    }
}

impl PacketSocket for HostSocket {
    fn receive(&mut self, most: usize, events: &mut dyn SocketEvents) -> Result<SocketState, String> {
        if self.is_stream { self.receive_stream(most, events) } else { self.receive_datagrams(most, events) }
    }

    fn send(&mut self, bytes: &[u8], to: Ipv4Addr) -> SocketSend {
        if self.is_stream { self.send_stream(bytes) } else { self.send_datagram(bytes, to) }
    }
}

/// Connects to a server, and waits for that.
fn connect_in_time(fd: &OwnedFd, server: &SocketAddrAny) -> Result<(), String> {
    match connect(fd, server) {
        Ok(()) => return Ok(()),
        Err(Errno::INPROGRESS) => {}
        Err(error) => return Err(failed("connect")(error)),
    }
    let longest = Timespec { tv_sec: CONNECT_SECONDS, tv_nsec: 0 };
    let mut polled = [PollFd::new(fd, PollFlags::OUT)];
    loop {
        match poll(&mut polled, Some(&longest)) {
            Ok(0) => return Err(format!("connect: no answer in {CONNECT_SECONDS} s")),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed("connect")(error)),
        }
    }
    sockopt::socket_error(fd).map_err(failed("connect"))?.map_err(failed("connect"))
}

fn set_buffers(sender: &OwnedFd, receiver: &OwnedFd, options: &SocketOptions) -> Result<(), String> {
    if let Some(size) = options.send_buffer {
        sockopt::set_socket_send_buffer_size(sender, size as usize)
            .map_err(failed("setsockopt(SO_SNDBUF)"))?;
    }
    if let Some(size) = options.receive_buffer {
        sockopt::set_socket_recv_buffer_size(receiver, size as usize)
            .map_err(failed("setsockopt(SO_RCVBUF)"))?;
    }
    Ok(())
}
