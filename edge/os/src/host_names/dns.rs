//! Questions to a name server, over UDP, and over TCP if an answer does not fit into a datagram (RFC 1035; RFC 7766).

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// The largest answer over UDP to a question without EDNS (RFC 1035, 4.2.1).
const DATAGRAM_BYTES_MAX: usize = 512;
/// The most aliases (CNAME) that are followed in an answer.
const ALIASES_MAX: usize = 16;
/// The most addresses that are taken from an answer.
const ADDRESSES_MAX: usize = 64;

/// A name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NameServer {
    address: SocketAddr,
}

/// A received message, compared with its question.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Addresses(Vec<IpAddr>),
    /// The answer is longer than a datagram.
    Truncated,
    /// The server cannot answer this question.
    Failed,
    /// The message is damaged, or answers another question.
    Foreign,
}

impl NameServer {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address }
    }

    /// The IPv6 and IPv4 addresses of a full name; none if there is no such name.
    ///
    /// # Errors
    /// The server does not answer until `deadline`, or answers that it cannot.
    pub(super) fn addresses(self, name: &str, deadline: Instant) -> io::Result<Vec<IpAddr>> {
        let mut found = self.ask(name, TYPE::A, deadline)?;
        // Some servers answer no questions of this type; then the name has the addresses that are known.
        match self.ask(name, TYPE::AAAA, deadline) {
            Ok(more) => found.splice(0..0, more).for_each(drop),
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => {}
        }
        Ok(found)
    }

    fn ask(self, name: &str, kind: TYPE, deadline: Instant) -> io::Result<Vec<IpAddr>> {
        let id = random_id()?;
        let question = question(id, name, kind)?;
        let mut answer = self.over_udp(&question, id, name, kind, deadline)?;
        if answer == Answer::Truncated {
            answer = read_answer(&self.over_tcp(&question, deadline)?, id, name, kind);
        }
        match answer {
            Answer::Addresses(found) => Ok(found),
            _ => Err(io::Error::other("the name server answers with an error")),
        }
    }

    /// Waits for the datagram that answers the question. Others are ignored: they could be forged.
    fn over_udp(
        self,
        question: &[u8],
        id: u16,
        name: &str,
        kind: TYPE,
        deadline: Instant,
    ) -> io::Result<Answer> {
        let any: IpAddr = match self.address {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.connect(self.address)?;
        socket.send(question)?;
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        loop {
            socket.set_read_timeout(Some(remaining(deadline)?))?;
            let length = match socket.recv(&mut buffer) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            };
            match read_answer(buffer.get(..length).unwrap_or_default(), id, name, kind) {
                Answer::Foreign => {}
                answer => return Ok(answer),
            }
        }
    }

    fn over_tcp(self, question: &[u8], deadline: Instant) -> io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.address, remaining(deadline)?)?;
        stream.set_write_timeout(Some(remaining(deadline)?))?;
        let length = u16::try_from(question.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        stream.write_all(&[&length.to_be_bytes(), question].concat())?;
        let mut length = [0; 2];
        read_until(&mut stream, &mut length, deadline)?;
        let mut message = vec![0; u16::from_be_bytes(length).into()];
        read_until(&mut stream, &mut message, deadline)?;
        Ok(message)
    }
}

/// Fills a buffer. A read timeout alone would not do: a server could send a byte at a time.
fn read_until(stream: &mut TcpStream, buffer: &mut [u8], deadline: Instant) -> io::Result<()> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        stream.set_read_timeout(Some(remaining(deadline)?))?;
        match stream.read(rest) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => filled += length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn remaining(deadline: Instant) -> io::Result<Duration> {
    let rest = deadline.saturating_duration_since(Instant::now());
    if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(rest) }
}

/// An identifier that other hosts cannot guess, so that they cannot forge answers.
fn random_id() -> io::Result<u16> {
    let mut bytes = [0; 2];
    // SAFETY: the pointer and length are those of a live local.
    let length = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    if usize::try_from(length) == Ok(bytes.len()) {
        Ok(u16::from_ne_bytes(bytes))
    } else {
        Err(io::Error::last_os_error())
    }
}

fn question(id: u16, name: &str, kind: TYPE) -> io::Result<Vec<u8>> {
    let invalid = |_| io::Error::new(io::ErrorKind::InvalidInput, "this is not a host name");
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).map_err(invalid)?;
    packet.questions.push(Question::new(name, QTYPE::TYPE(kind), QCLASS::CLASS(CLASS::IN), false));
    packet.build_bytes_vec().map_err(invalid)
}

/// Reads a message of a name server as the answer to a question for the addresses of one family.
pub(super) fn read_answer(message: &[u8], id: u16, name: &str, kind: TYPE) -> Answer {
    let (Ok(packet), Ok(mut name)) = (Packet::parse(message), Name::new(name)) else {
        return Answer::Foreign;
    };
    let [asked] = packet.questions.as_slice() else { return Answer::Foreign };
    let is_answer = packet.has_flags(PacketFlag::RESPONSE)
        && packet.id() == id
        && asked.qname == name
        && asked.qtype == QTYPE::TYPE(kind);
    if !is_answer {
        return Answer::Foreign;
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Answer::Truncated;
    }
    match packet.rcode() {
        RCODE::NoError => {}
        RCODE::NameError => return Answer::Addresses(Vec::new()),
        _ => return Answer::Failed,
    }
    for _ in 0..ALIASES_MAX {
        let alias = packet.answers.iter().find_map(|record| match &record.rdata {
            RData::CNAME(target) if record.name == name => Some(&target.0),
            _ => None,
        });
        let Some(target) = alias else { break };
        name = target.clone();
    }
    let address = |record: &simple_dns::ResourceRecord<'_>| match &record.rdata {
        _ if record.name != name => None,
        RData::A(a) if kind == TYPE::A => Some(Ipv4Addr::from(a.address).into()),
        RData::AAAA(aaaa) if kind == TYPE::AAAA => Some(Ipv6Addr::from(aaaa.address).into()),
        _ => None,
    };
    Answer::Addresses(packet.answers.iter().filter_map(address).take(ADDRESSES_MAX).collect())
}
