//! Export of IPFIX messages to a collector over UDP or TCP (RFC 7011, 10).

use crate::{ExportStream, OBSERVATION_DOMAIN};
use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::str::FromStr;
use std::time::{Duration, Instant};
use weir_exports::RowKind;
use weir_exports::ipfix::{DATAGRAM_BYTES_MAX, IpfixMessages, MESSAGE_BYTES_MAX};
use weir_session::Record;
use weir_units::Timestamp;

/// The port of IPFIX.
const PORT: u16 = 4739;
/// The interval at which templates are sent again over UDP, since the first ones can be lost (RFC 7011, 8.4).
const TEMPLATE_INTERVAL: Duration = Duration::from_secs(60);
/// The number of messages after which templates are sent again as well: a capture is read faster than its packets came.
const TEMPLATE_MESSAGES: u64 = 1_000;
/// The time in which a connection is made, or a message taken, by a collector. The run waits as long.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The time after a failure of a connection until it is made again.
const RETRY: Duration = Duration::from_secs(5);

/// The address of a collector: `udp://HOST:PORT` or `tcp://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorAddress {
    transport: Transport,
    host: String,
    port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Udp,
    Tcp,
}

impl FromStr for CollectorAddress {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WANTED: &str = "write udp://HOST:PORT or tcp://HOST:PORT, such as udp://192.0.2.1:4739; the port can be left out";
        let (transport, rest) = match text.split_once("://") {
            Some(("udp", rest)) => (Transport::Udp, rest),
            Some(("tcp", rest)) => (Transport::Tcp, rest),
            _ => return Err(WANTED),
        };
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or(WANTED)?;
                host.parse::<Ipv6Addr>().map_err(|_| WANTED)?;
                (host, port.strip_prefix(':').or(port.is_empty().then_some("")))
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, Some("")),
            },
        };
        let port = match port.ok_or(WANTED)? {
            "" if !rest.ends_with(':') => PORT,
            port => port.parse().ok().filter(|port| *port != 0).ok_or(WANTED)?,
        };
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(is_plain) {
            return Err(WANTED);
        }
        Ok(Self { transport, host: host.to_owned(), port })
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = match self.transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
        };
        let brackets = if self.host.contains(':') { ["[", "]"] } else { ["", ""] };
        write!(f, "{transport}://{}{}{}:{}", brackets[0], self.host, brackets[1], self.port)
    }
}

/// The reason why a collector is not reached.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// The host's name has no address.
    #[error("{address}: the host has no address: {source}; name another host, or write its address")]
    Resolve {
        /// The collector.
        address: CollectorAddress,
        /// The system's error.
        source: io::Error,
    },
    /// No connection is made.
    #[error("{address}: {source}; start the collector, or name another one")]
    Connect {
        /// The collector.
        address: CollectorAddress,
        /// The system's error.
        source: io::Error,
    },
}

/// The counters of a collector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CollectorTotals {
    /// Records in messages that were sent.
    pub sent: u64,
    /// Records in messages that the system or the collector did not take. Datagrams can be lost on the way as well, which the
    /// sequence numbers tell the collector.
    pub lost: u64,
    /// Reports of hosts that no collector listens at the port of the datagrams. The records of a reported datagram count as sent.
    pub refused: u64,
    /// Texts that were cut, because a message has no room for them.
    pub cut: u64,
}

impl CollectorTotals {
    /// Returns sentences about losses.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        let lost = (self.lost > 0)
            .then(|| format!("{} records were lost: the collector took no more messages", self.lost));
        let refused = (self.refused > 0)
            .then(|| format!("the host refused {} datagrams: no collector listened there", self.refused));
        let cut = (self.cut > 0).then(|| format!("{} texts were cut to the length of a message", self.cut));
        [lost, refused, cut].into_iter().flatten()
    }
}

/// A session with a collector.
///
/// Over UDP, templates are sent again from time to time. Over TCP, a broken connection is made again after some seconds, and
/// the records until then are lost and counted.
#[derive(Debug)]
pub struct IpfixCollector {
    address: CollectorAddress,
    resolved: SocketAddr,
    link: Link,
    messages: IpfixMessages,
    /// The streams in the order of the templates: module and index.
    streams: Vec<(usize, u16)>,
    /// The time of the last templates, and the messages since then.
    templates_sent: (Instant, u64),
    /// Records in the message that is being filled.
    waiting: u64,
    totals: CollectorTotals,
}

#[derive(Debug)]
enum Link {
    Udp(UdpSocket),
    Tcp(TcpStream),
    /// A broken TCP connection, since this time.
    Broken(Instant),
}

impl IpfixCollector {
    /// Returns the streams that a collector gets: those of connections, or without any the given ones that IPFIX can have.
    /// Rows of other streams are about the same packets, so that a collector would count these twice.
    pub fn default_streams<'a>(streams: &[ExportStream<'a>]) -> Vec<ExportStream<'a>> {
        let is_connection = |stream: &&ExportStream<'a>| RowKind::of(stream.declared) == RowKind::Connection;
        streams.iter().filter(is_connection).copied().collect()
    }

    /// Connects to a collector, and sends the templates of these streams.
    ///
    /// # Errors
    /// The host has no address, or the connection is refused. Over UDP, a missing collector is no error.
    pub fn connect(
        address: &CollectorAddress,
        streams: &[ExportStream<'_>],
        now: Timestamp,
    ) -> Result<Self, CollectorError> {
        let resolve = || {
            let found = weir_os::resolve(&address.host, address.port)?;
            found.first().copied().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
        };
        let resolved =
            resolve().map_err(|source| CollectorError::Resolve { address: address.clone(), source })?;
        let failed = |source| CollectorError::Connect { address: address.clone(), source };
        let (link, bytes_max) = match address.transport {
            Transport::Udp => (Link::Udp(udp(resolved).map_err(failed)?), DATAGRAM_BYTES_MAX),
            Transport::Tcp => (Link::Tcp(tcp(resolved).map_err(failed)?), MESSAGE_BYTES_MAX),
        };
        let declared = streams.iter().map(|stream| stream.declared);
        let mut collector = Self {
            address: address.clone(),
            resolved,
            link,
            messages: IpfixMessages::new(declared, OBSERVATION_DOMAIN, bytes_max),
            streams: streams.iter().map(|stream| (stream.module, stream.index)).collect(),
            templates_sent: (Instant::now(), 0),
            waiting: 0,
            totals: CollectorTotals::default(),
        };
        collector.send_templates(now).map_err(failed)?;
        Ok(collector)
    }

    /// Returns the address of the collector.
    pub fn address(&self) -> &CollectorAddress {
        &self.address
    }

    /// Sends a record, with others in one message. Records of other streams are ignored.
    pub fn push(&mut self, module: usize, record: &Record<'_>, now: Timestamp) {
        let Some(stream) = self.streams.iter().position(|place| *place == (module, record.stream)) else {
            return;
        };
        let before = self.waiting;
        let full = self.messages.push(stream, record, now);
        self.waiting += 1;
        if let Some(message) = full {
            self.waiting = 1;
            self.send(&message, before, now);
        }
    }

    /// Sends the records that wait for a message to be full.
    pub fn flush(&mut self, now: Timestamp) {
        if let Some(message) = self.messages.flush(now) {
            let records = std::mem::take(&mut self.waiting);
            self.send(&message, records, now);
        }
    }

    /// Sends the last records, and returns the counters.
    pub fn finish(mut self, now: Timestamp) -> CollectorTotals {
        self.flush(now);
        CollectorTotals { cut: self.messages.cut(), ..self.totals }
    }

    fn send(&mut self, message: &[u8], records: u64, now: Timestamp) {
        let sent = self.prepare(now).and_then(|()| self.send_bytes(message));
        let counter = if sent.is_ok() { &mut self.totals.sent } else { &mut self.totals.lost };
        *counter = counter.saturating_add(records);
    }

    /// Sends templates if they are due, and makes a broken connection again.
    fn prepare(&mut self, now: Timestamp) -> io::Result<()> {
        match &self.link {
            Link::Udp(_) => {
                let (at, messages) = &mut self.templates_sent;
                *messages += 1;
                if at.elapsed() < TEMPLATE_INTERVAL && *messages < TEMPLATE_MESSAGES {
                    return Ok(());
                }
            }
            Link::Tcp(_) => return Ok(()),
            Link::Broken(since) if since.elapsed() < RETRY => return Err(io::ErrorKind::NotConnected.into()),
            Link::Broken(_) => {
                self.link = tcp(self.resolved).map_or_else(|_| Link::Broken(Instant::now()), Link::Tcp);
            }
        }
        self.send_templates(now)
    }

    fn send_templates(&mut self, now: Timestamp) -> io::Result<()> {
        self.templates_sent = (Instant::now(), 0);
        self.messages.templates(now).iter().try_for_each(|message| self.send_bytes(message))
    }

    fn send_bytes(&mut self, message: &[u8]) -> io::Result<()> {
        match &mut self.link {
            Link::Udp(socket) => match socket.send(message) {
                // This is the answer to an earlier datagram; the present one was not sent.
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                    self.totals.refused = self.totals.refused.saturating_add(1);
                    socket.send(message).map(drop)
                }
                sent => sent.map(drop),
            },
            Link::Tcp(stream) => {
                let sent = stream.write_all(message);
                if sent.is_err() {
                    // A message may be sent in part, so that the connection is of no more use.
                    self.link = Link::Broken(Instant::now());
                }
                sent
            }
            Link::Broken(_) => Err(io::ErrorKind::NotConnected.into()),
        }
    }
}

fn udp(to: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr =
        if to.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any)?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    socket.connect(to)?;
    Ok(socket)
}

fn tcp(to: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&to, TIMEOUT)?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    Ok(stream)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_transport_a_host_and_a_port() {
        let shown = |text: &str| text.parse::<CollectorAddress>().map(|address| address.to_string());
        for (text, expected) in [
            ("udp://192.0.2.1:2055", "udp://192.0.2.1:2055"),
            ("tcp://collector.example", "tcp://collector.example:4739"),
            ("udp://[2001:db8::1]:9995", "udp://[2001:db8::1]:9995"),
            ("tcp://[::1]", "tcp://[::1]:4739"),
        ] {
            assert_eq!(shown(text), Ok(expected.to_owned()));
        }
        for text in [
            "",
            "192.0.2.1:2055",
            "sctp://x:1",
            "udp://",
            "udp://:1",
            "udp://x:",
            "udp://x:0",
            "udp://x:70000",
            "udp://[::1",
            "udp://[x]:1",
            "udp://[::1]1",
            "udp://::1:5",
            "udp://a b:1",
            "udp://x/y",
            "udp://x\n:1",
        ] {
            assert!(shown(text).is_err(), "{text}: {:?}", shown(text));
        }
    }
}
