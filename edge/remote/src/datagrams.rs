//! Associations and packets over a UDP socket.

use rand_core::OsRng;
use std::collections::VecDeque;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};
use weir_anep::{AnepReceiver, AnepSealError, FragmentLimits, FragmentNumber, PeerPacket, Protection, seal};
use weir_trust::association::Signer;
use weir_trust::datagrams::{
    ConnectRefusal, DatagramEndpoint, DatagramEvent, DatagramLimits, Spi, Transmit, UnknownPeer,
};
use weir_trust::key::PublicKey;
use weir_units::Nanos;

/// The longest payload of a UDP datagram.
const DATAGRAM_BYTES_MAX: usize = 65_535;
/// The first byte of a packet; all other datagrams are about associations.
const PACKET: u8 = 1;

/// An event of a [`DatagramSocket`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketEvent {
    /// An event of an association.
    Association(DatagramEvent),
    /// A packet of a peer.
    Packet(PeerPacket),
}

/// Counters of a socket since it was bound. The endpoint counts what it refuses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketCounters {
    /// Packets and fragments that were refused.
    pub refused: u64,
    /// Datagrams that the system did not send, such as probes that are too long for an interface.
    pub unsent: u64,
}

/// A UDP socket with the associations of one identity. One thread uses it: [`DatagramSocket::wait`] receives, and does what
/// is due in time.
pub struct DatagramSocket {
    socket: UdpSocket,
    endpoint: DatagramEndpoint,
    receiver: AnepReceiver,
    number: FragmentNumber,
    signer: Box<dyn Signer + Send>,
    began: Instant,
    buffer: Vec<u8>,
    events: VecDeque<SocketEvent>,
    counters: SocketCounters,
}

impl DatagramSocket {
    /// Binds a socket to an address.
    ///
    /// # Errors
    /// The address is not available, or the system has no randomness.
    pub fn bind(
        address: SocketAddr,
        signer: Box<dyn Signer + Send>,
        limits: DatagramLimits,
        fragments: FragmentLimits,
    ) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        forbid_fragmentation(&socket, address)?;
        let endpoint =
            DatagramEndpoint::new(signer.public(), limits, &mut OsRng).map_err(io::Error::other)?;
        Ok(Self {
            socket,
            endpoint,
            receiver: AnepReceiver::new(fragments),
            number: FragmentNumber::default(),
            signer,
            began: Instant::now(),
            buffer: vec![0; DATAGRAM_BYTES_MAX],
            events: VecDeque::new(),
            counters: SocketCounters::default(),
        })
    }

    /// Returns the address of the socket.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn local_address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Begins an attempt to open an association with the expected peer, or with any for `None`.
    ///
    /// # Errors
    /// Fails as [`DatagramEndpoint::connect`] does.
    pub fn connect(
        &mut self,
        address: SocketAddr,
        expected: Option<PublicKey>,
        credentials: &[u8],
    ) -> Result<Spi, ConnectRefusal> {
        let spi = self.endpoint.connect(self.now(), address, expected, credentials, &mut OsRng)?;
        self.flush();
        Ok(spi)
    }

    /// Accepts a peer that asks, and sends it these credentials.
    ///
    /// # Errors
    /// No peer with this index asks any more.
    pub fn accept(&mut self, spi: Spi, credentials: &[u8]) -> Result<(), UnknownPeer> {
        let accepted = self.endpoint.accept(self.now(), spi, credentials);
        self.flush();
        accepted
    }

    /// Refuses a peer that asks.
    ///
    /// # Errors
    /// No peer with this index asks any more.
    pub fn refuse(&mut self, spi: Spi) -> Result<(), UnknownPeer> {
        let refused = self.endpoint.refuse(self.now(), spi);
        self.flush();
        refused
    }

    /// Closes the association with a peer.
    ///
    /// # Errors
    /// There is none.
    pub fn close(&mut self, peer: &PublicKey) -> Result<(), UnknownPeer> {
        self.receiver.forget(peer);
        let closed = self.endpoint.close(peer);
        self.flush();
        closed
    }

    /// Seals a packet for a peer and sends it, in fragments if it is too long for the path.
    ///
    /// # Errors
    /// Fails as [`seal`] does, or if the system does not send.
    pub fn send(
        &mut self,
        peer: &PublicKey,
        protection: Protection,
        packet: &[u8],
    ) -> Result<(), AnepSealError> {
        let (now, number) = (self.now(), &mut self.number);
        let datagrams = seal(&mut self.endpoint, now, peer, protection, packet, number)?;
        if let Some(to) = self.endpoint.address(peer) {
            datagrams.into_iter().for_each(|bytes| self.transmit(Transmit { to, bytes }));
        }
        Ok(())
    }

    /// Returns the associations of the socket.
    pub fn endpoint(&self) -> &DatagramEndpoint {
        &self.endpoint
    }

    /// Returns the counters of the socket.
    pub fn counters(&self) -> SocketCounters {
        self.counters
    }

    /// Waits for an event, at most for this time. Returns `None` if there is none.
    ///
    /// # Errors
    /// The system fails to receive.
    pub fn wait(&mut self, within: Duration) -> io::Result<Option<SocketEvent>> {
        let until = Instant::now() + within;
        loop {
            let next = self.do_what_is_due();
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else { return Ok(None) };
            let sleep =
                next.map_or(left, |at| Duration::from_nanos(at.0.saturating_sub(self.now().0)).min(left));
            // A timeout of zero would mean to wait without limit.
            self.socket.set_read_timeout(Some(sleep.max(Duration::from_millis(1))))?;
            let received = self.socket.recv_from(&mut self.buffer);
            match received {
                Ok((bytes, from)) => self.handle(bytes, from),
                Err(error) if is_harmless(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn now(&self) -> Nanos {
        Nanos::from(self.began.elapsed())
    }

    /// Handles timers, and returns the time of the next one.
    fn do_what_is_due(&mut self) -> Option<Nanos> {
        let now = self.now();
        if self.endpoint.next_timeout(now).is_some_and(|at| at <= now) {
            self.endpoint.handle_timeout(now, &*self.signer, &mut OsRng);
        }
        self.flush();
        let fragments = self.receiver.handle_timeout(now);
        self.endpoint.next_timeout(now).into_iter().chain(fragments).min()
    }

    fn handle(&mut self, bytes: usize, from: SocketAddr) {
        let now = self.now();
        let datagram = self.buffer.get(..bytes).unwrap_or_default();
        if datagram.first() != Some(&PACKET) {
            self.endpoint.handle_datagram(now, from, datagram, &*self.signer, &mut OsRng);
            return;
        }
        match self.receiver.handle(&mut self.endpoint, now, from, datagram) {
            Ok(Some(packet)) => {
                // An event of the association, such as its confirmation by this packet, comes first.
                self.collect_events();
                self.events.push_back(SocketEvent::Packet(packet));
            }
            Ok(None) => {}
            Err(_) => self.counters.refused += 1,
        }
    }

    /// Sends what the endpoint wants to send, and collects its events.
    fn flush(&mut self) {
        while let Some(transmit) = self.endpoint.poll_transmit() {
            self.transmit(transmit);
        }
        self.collect_events();
    }

    fn collect_events(&mut self) {
        while let Some(event) = self.endpoint.poll_event() {
            if let DatagramEvent::Down { peer, .. } = &event {
                self.receiver.forget(peer);
            }
            self.events.push_back(SocketEvent::Association(event));
        }
    }

    fn transmit(&mut self, transmit: Transmit) {
        if self.socket.send_to(&transmit.bytes, transmit.to).is_err() {
            self.counters.unsent += 1;
        }
    }
}

impl std::fmt::Debug for DatagramSocket {
    /// Writes the sizes without the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DatagramSocket({:?})", self.endpoint)
    }
}

/// Makes the system send datagrams whole or not at all: probes would prove nothing if routers divided them.
fn forbid_fragmentation(socket: &UdpSocket, address: SocketAddr) -> io::Result<()> {
    use rustix::net::sockopt::{
        Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery, set_ip_mtu_discover, set_ipv6_mtu_discover,
    };
    match address {
        SocketAddr::V4(_) => set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::PROBE)?,
        SocketAddr::V6(_) => set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::PROBE)?,
    }
    Ok(())
}

/// Returns true for the end of a wait, and for reports about datagrams that were sent before.
fn is_harmless(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), ConnectionRefused | Interrupted | TimedOut | WouldBlock)
}
