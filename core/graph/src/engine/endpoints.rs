//! The ways between a graph and other programs of the host, as traits: devices of the host's network, sockets, and control
//! sockets.

use super::effects::{NoFiles, ReceivingDevice, SendingDevice};
use super::handler::HandlerError;
use crate::arguments::{EthernetAddress, Ipv4Prefix};
use crate::control::HandlerCall;
use core::net::{Ipv4Addr, SocketAddrV4};
use std::fmt;

/// The packets of a device of the host's network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostDeviceKind {
    /// Ethernet frames: a TAP device.
    Ethernet,
    /// IP packets: a TUN device.
    Ip,
}

/// The choices with which a device of the host's network is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDeviceOptions {
    /// The name; empty for a free one.
    pub name: String,
    /// The packets.
    pub kind: HostDeviceKind,
    /// The host's address on the device. With one, the device is set up.
    pub address: Option<Ipv4Prefix>,
    /// The gateway of a default route through the device.
    pub gateway: Option<Ipv4Addr>,
    /// The Ethernet address.
    pub ethernet: Option<EthernetAddress>,
    /// The longest packet without a link header.
    pub mtu: u32,
    /// The device is for sniffers alone: it is set up without an address, and answers no ARP queries.
    pub is_for_sniffers: bool,
}

/// An open device of the host's network. It exists as long as both ends are open.
pub struct HostDevice {
    /// The name.
    pub name: String,
    /// The end with the packets that the host sends.
    pub receiver: Box<dyn ReceivingDevice>,
    /// The end for packets that the host is to receive.
    pub sender: Box<dyn SendingDevice>,
}

/// The addresses of a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketTransport {
    /// A byte stream over TCP.
    Tcp {
        /// The address of the server.
        server: SocketAddrV4,
        /// The address of a client.
        local: Option<SocketAddrV4>,
    },
    /// Datagrams over UDP.
    Udp {
        /// The address of the server.
        server: SocketAddrV4,
        /// The address of a client.
        local: Option<SocketAddrV4>,
    },
    /// A byte stream over a socket in the file system.
    UnixStream {
        /// The file of the server.
        server: String,
        /// The file of a client.
        local: Option<String>,
    },
    /// Datagrams over a socket in the file system.
    UnixDatagrams {
        /// The file of the server.
        server: String,
        /// The file of a client.
        local: Option<String>,
    },
    /// Datagrams to a group, and from it.
    Multicast {
        /// The group and its port.
        group: SocketAddrV4,
        /// The address from which datagrams are sent. It determines the interface.
        source: Option<SocketAddrV4>,
        /// Programs of this host receive the datagrams, too.
        has_loop: bool,
    },
    /// Whole IPv4 packets.
    RawIp {
        /// The protocol of received packets.
        protocol: u8,
        /// A port of TCP or UDP that is reserved meanwhile.
        port: Option<u16>,
    },
}

impl fmt::Display for SocketTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { server, .. } => write!(f, "tcp/{server}"),
            Self::Udp { server, .. } => write!(f, "udp/{server}"),
            Self::UnixStream { server, .. } | Self::UnixDatagrams { server, .. } => {
                write!(f, "unix/{server}")
            }
            Self::Multicast { group, .. } => write!(f, "multicast/{group}"),
            Self::RawIp { protocol, .. } => write!(f, "ip/{protocol}"),
        }
    }
}

/// The choices with which a socket is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketOptions {
    /// The addresses.
    pub transport: SocketTransport,
    /// The socket connects to the server's address. Otherwise it is the server.
    pub is_client: bool,
    /// Short pieces of a byte stream are sent at once.
    pub has_no_delay: bool,
    /// The bytes of the kernel's buffer for sending.
    pub send_buffer: Option<u32>,
    /// The bytes of the kernel's buffer for receiving.
    pub receive_buffer: Option<u32>,
    /// The most bytes of a received packet.
    pub snap: usize,
}

/// The receiver of a socket's packets and news.
pub trait SocketEvents {
    /// Returns true if a peer may connect, or send datagrams.
    fn is_allowed(&mut self, peer: Ipv4Addr) -> bool;

    /// Takes a packet: its bytes, and its length before it was cut.
    fn receive(&mut self, bytes: &[u8], length: usize);

    /// Takes a piece of news, such as a new connection.
    fn tell(&mut self, news: &str);
}

/// The state of a socket after packets were received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketState {
    /// More packets may be there.
    More,
    /// No packet is there at present.
    Quiet,
    /// No packet will come any more.
    End,
}

/// The outcome of sending a packet through a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketSend {
    /// The packet was sent.
    Sent,
    /// There is no room at present.
    Full,
    /// The packet is lost, for this reason.
    Lost(&'static str),
}

/// A socket over which packets come and go. No function waits.
pub trait PacketSocket {
    /// Receives at most this number of packets.
    ///
    /// # Errors
    ///
    /// Fails with a reason if the socket cannot be used any more.
    fn receive(&mut self, most: usize, events: &mut dyn SocketEvents) -> Result<SocketState, String>;

    /// Sends a packet. A client without the address of a server sends a datagram to `to`.
    fn send(&mut self, bytes: &[u8], to: Ipv4Addr) -> SocketSend;
}

/// The address of a control socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlPlace {
    /// A TCP port.
    Port {
        /// The port.
        port: u16,
        /// A later port will do.
        or_later: bool,
        /// Only programs of this host can connect.
        is_local: bool,
    },
    /// A socket in the file system.
    File(String),
}

/// The function that takes the result of a call to its caller.
pub type CallAnswer = Box<dyn FnOnce(Result<String, HandlerError>)>;

/// A control socket. Its connections are served elsewhere; their calls wait here.
pub trait ControlPort {
    /// Returns the address, with the port that was found.
    fn place(&self) -> ControlPlace;

    /// Returns the next call that waits, with the way for its result. Does not wait.
    fn next_call(&mut self) -> Option<(HandlerCall, CallAnswer)>;

    /// Returns true if a call may wait.
    fn has_calls(&self) -> bool;

    /// Adds news about connections to a list, each as a line.
    fn take_news(&mut self, news: &mut Vec<String>);
}

impl PacketSocket for NoFiles {
    fn receive(&mut self, _: usize, _: &mut dyn SocketEvents) -> Result<SocketState, String> {
        Ok(SocketState::End)
    }

    fn send(&mut self, _: &[u8], _: Ipv4Addr) -> SocketSend {
        SocketSend::Sent
    }
}

impl ControlPort for NoFiles {
    fn place(&self) -> ControlPlace {
        ControlPlace::Port { port: 0, or_later: false, is_local: true }
    }

    fn next_call(&mut self) -> Option<(HandlerCall, CallAnswer)> {
        None
    }

    fn has_calls(&self) -> bool {
        false
    }

    fn take_news(&mut self, _: &mut Vec<String>) {}
}
