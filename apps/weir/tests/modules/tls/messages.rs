//! TLS records and messages, certificates, and connections that carry them.

use super::super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND};
use super::super::packet::{ACK, FIN, PSH, Packet, RST, SYN};

pub const GREASE: u16 = 0x3A3A;
pub const CHANGE_CIPHER_SPEC: u8 = 20;
pub const ALERT: u8 = 21;
pub const HANDSHAKE: u8 = 22;
pub const APPLICATION_DATA: u8 = 23;

/// A number of `N` bytes in network order.
fn number<const N: usize>(value: usize) -> [u8; N] {
    value.to_be_bytes()[size_of::<usize>() - N..].try_into().unwrap()
}

/// Bytes with their length before them, as `N` bytes.
fn with_length<const N: usize>(bytes: &[u8]) -> Vec<u8> {
    [&number::<N>(bytes.len())[..], bytes].concat()
}

fn words(values: &[u16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_be_bytes()).collect()
}

pub fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind, 3, 3][..], &with_length::<2>(bytes)].concat()
}

/// Handshake messages in records of at most `most` bytes.
pub fn records(messages: &[u8], most: usize) -> Vec<u8> {
    messages.chunks(most).flat_map(|part| record(HANDSHAKE, part)).collect()
}

pub fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[kind][..], &with_length::<3>(body)].concat()
}

pub fn change_cipher_spec() -> Vec<u8> {
    record(CHANGE_CIPHER_SPEC, &[1])
}

/// A ChangeCipherSpec and an encrypted Finished, as until TLS 1.2.
pub fn finished() -> Vec<u8> {
    [change_cipher_spec(), record(HANDSHAKE, &[0xE7; 40])].concat()
}

pub fn alert(level: u8, code: u8) -> Vec<u8> {
    record(ALERT, &[level, code])
}

/// Encrypted data of TLS 1.3.
pub fn encrypted(len: usize) -> Vec<u8> {
    record(APPLICATION_DATA, &vec![0xE7; len])
}

/// The parts of a ClientHello.
#[derive(Clone)]
pub struct ClientHello {
    pub version: u16,
    pub session: Vec<u8>,
    pub ciphers: Vec<u16>,
    pub extensions: Vec<(u16, Vec<u8>)>,
}

pub fn server_name(name: &str) -> (u16, Vec<u8>) {
    (0, with_length::<2>(&[&[0][..], &with_length::<2>(name.as_bytes())].concat()))
}

pub fn alpn(names: &[&[u8]]) -> (u16, Vec<u8>) {
    (16, with_length::<2>(&names.iter().flat_map(|name| with_length::<1>(name)).collect::<Vec<u8>>()))
}

pub fn supported_versions(versions: &[u16]) -> (u16, Vec<u8>) {
    (43, with_length::<1>(&words(versions)))
}

pub fn signature_algorithms(algorithms: &[u16]) -> (u16, Vec<u8>) {
    (13, with_length::<2>(&words(algorithms)))
}

impl ClientHello {
    /// The worked example of FoxIO's specification of JA4, with GREASE added.
    pub fn example() -> Self {
        let ciphers = [
            0x1301, 0x1302, 0x1303, 0xC02B, 0xC02F, 0xC02C, 0xC030, 0xCCA9, 0xCCA8, 0xC013, 0xC014, 0x009C,
            0x009D, 0x002F, 0x0035,
        ];
        let algorithms = [0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601];
        let extensions = vec![
            (GREASE, vec![]),
            (0x001B, vec![2, 0, 2]),
            server_name("www.example.com"),
            (0x0033, vec![0; 43]),
            alpn(&[b"h2", b"http/1.1"]),
            (0x4469, vec![0, 3, 2, b'h', b'2']),
            (0x0017, vec![]),
            (0x002D, vec![1, 1]),
            signature_algorithms(&algorithms),
            (0x0005, vec![1, 0, 0, 0, 0]),
            (0x0023, vec![]),
            (0x0012, vec![]),
            supported_versions(&[GREASE, 0x0304, 0x0303]),
            (0xFF01, vec![0]),
            (0x000B, vec![1, 0]),
            (0x000A, words(&[6, 0x001D, 0x0017, 0x0018])),
            (GREASE | 0x8080, vec![0]),
            (0x0015, vec![0; 100]),
        ];
        Self {
            version: 0x0303,
            session: vec![7; 32],
            ciphers: [&[GREASE][..], &ciphers].concat(),
            extensions,
        }
    }

    /// The same without the extensions of these numbers.
    pub fn without(mut self, numbers: &[u16]) -> Self {
        self.extensions.retain(|(number, _)| !numbers.contains(number));
        self
    }

    /// The same with an extension instead of that of the same number.
    pub fn with(mut self, extension: (u16, Vec<u8>)) -> Self {
        match self.extensions.iter_mut().find(|old| old.0 == extension.0) {
            Some(old) => *old = extension,
            None => self.extensions.push(extension),
        }
        self
    }

    pub fn message(&self) -> Vec<u8> {
        let fixed = [&self.version.to_be_bytes()[..], &[0x5A; 32], &with_length::<1>(&self.session)].concat();
        let ciphers = with_length::<2>(&words(&self.ciphers));
        message(1, &[fixed, ciphers, vec![1, 0], extensions(&self.extensions)].concat())
    }

    pub fn record(&self) -> Vec<u8> {
        record(HANDSHAKE, &self.message())
    }
}

/// The list of extensions; nothing without any.
fn extensions(list: &[(u16, Vec<u8>)]) -> Vec<u8> {
    if list.is_empty() {
        return Vec::new();
    }
    let bytes =
        |(number, content): &(u16, Vec<u8>)| [&number.to_be_bytes()[..], &with_length::<2>(content)].concat();
    with_length::<2>(&list.iter().flat_map(bytes).collect::<Vec<u8>>())
}

pub fn server_hello(session: &[u8], cipher: u16, list: &[(u16, Vec<u8>)]) -> Vec<u8> {
    server_hello_of(0x0303, &[0x5B; 32], session, cipher, list)
}

pub fn server_hello_of(
    version: u16,
    random: &[u8],
    session: &[u8],
    cipher: u16,
    list: &[(u16, Vec<u8>)],
) -> Vec<u8> {
    let fixed = [&version.to_be_bytes()[..], random, &with_length::<1>(session)].concat();
    message(2, &[fixed, cipher.to_be_bytes().to_vec(), vec![0], extensions(list)].concat())
}

/// The extension by which a server chooses TLS 1.3.
pub fn chosen_version() -> (u16, Vec<u8>) {
    (43, vec![3, 4])
}

/// The random bytes that make a ServerHello a HelloRetryRequest (RFC 8446, 4.1.3).
pub const RETRY: [u8; 32] = [
    0xCF, 0x21, 0xAD, 0x74, 0xE5, 0x9A, 0x61, 0x11, 0xBE, 0x1D, 0x8C, 0x02, 0x1E, 0x65, 0xB8, 0x91, 0xC2,
    0xA2, 0x11, 0x16, 0x7A, 0xBB, 0x8C, 0x5E, 0x07, 0x9E, 0x09, 0xE2, 0xC8, 0xA8, 0x33, 0x9C,
];

/// A ClientHello of SSL 2.0 that offers a version.
pub fn v2_hello(version: u16) -> Vec<u8> {
    let body =
        [&[1][..], &version.to_be_bytes(), &[0, 6, 0, 0, 0, 16], &[0, 0, 0x2F, 1, 0, 0x80], &[0x5A; 16]]
            .concat();
    [&(0x8000 | u16::try_from(body.len()).unwrap()).to_be_bytes()[..], &body].concat()
}

pub fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    match content.len() {
        len @ 0..128 => [&[tag, u8::try_from(len).unwrap()][..], content].concat(),
        len @ 128..256 => [&[tag, 0x81, u8::try_from(len).unwrap()][..], content].concat(),
        _ => [&[tag, 0x82][..], &with_length::<2>(content)].concat(),
    }
}

/// An attribute of a name: its object identifier, its type of string and its value.
pub fn attribute(oid: &[u8], tag: u8, value: &[u8]) -> Vec<u8> {
    der(0x31, &der(0x30, &[der(6, oid), der(tag, value)].concat()))
}

pub fn name(attributes: &[Vec<u8>]) -> Vec<u8> {
    der(0x30, &attributes.concat())
}

pub fn common_name(text: &str) -> Vec<u8> {
    name(&[attribute(&[0x55, 4, 3], 0x0C, text.as_bytes())])
}

/// A certificate that is valid between two times as UTCTime or GeneralizedTime has them, with `rest` for the key and all that follows.
pub fn certificate(issuer: &[u8], subject: &[u8], times: [&str; 2], rest: usize) -> Vec<u8> {
    let time = |text: &str| der(if text.len() == 13 { 0x17 } else { 0x18 }, text.as_bytes());
    let algorithm =
        der(0x30, &[der(6, &[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 1, 11]), vec![5, 0]].concat());
    let signed = [
        der(0xA0, &[2, 1, 2]),
        der(2, &[0x11; 16]),
        algorithm.clone(),
        issuer.to_vec(),
        der(0x30, &times.map(time).concat()),
        subject.to_vec(),
        der(0x30, &vec![0xAA; rest]),
    ];
    der(0x30, &[der(0x30, &signed.concat()), algorithm, der(3, &[0xBB; 257])].concat())
}

/// A Certificate message with this certificate, and another one after it.
pub fn chain(leaf: &[u8]) -> Vec<u8> {
    message(11, &with_length::<3>(&[with_length::<3>(leaf), with_length::<3>(&[0xCC; 900])].concat()))
}

/// The server's messages until TLS 1.2, from ServerHello to ServerHelloDone.
pub fn server_flight(leaf: &[u8]) -> Vec<u8> {
    let hello = server_hello(&[9; 32], 0xC02F, &[alpn(&[b"h2"]), (0xFF01, vec![0])]);
    [hello, chain(leaf), message(12, &[0xDD; 300]), message(14, &[])].concat()
}

/// A TCP connection: its packets, one each millisecond.
#[derive(Clone)]
pub struct Connection {
    pub packets: Vec<(u64, Packet)>,
    ends: [String; 2],
    next: [u32; 2],
    time: u64,
    segment: usize,
}

impl Connection {
    pub fn open(client: &str, server: &str) -> Self {
        Self {
            packets: Vec::new(),
            ends: [client.to_owned(), server.to_owned()],
            next: [1000, 0xFFFF_FF00],
            time: BEGIN,
            segment: 1400,
        }
        .packet(0, SYN, &[])
        .packet(1, SYN | ACK, &[])
        .packet(0, ACK, &[])
    }

    /// Begins at another time.
    pub fn after(mut self, ns: u64) -> Self {
        self.time += ns;
        self.packets.iter_mut().for_each(|packet| packet.0 += ns);
        self
    }

    /// Sets the length of the segments that follow.
    pub fn segments(mut self, len: usize) -> Self {
        self.segment = len;
        self
    }

    fn packet(mut self, from: usize, flags: u8, payload: &[u8]) -> Self {
        let ack = if flags & ACK == 0 { 0 } else { self.next[1 - from] };
        let packet = Packet::tcp(&self.ends[from], &self.ends[1 - from], flags);
        self.packets.push((self.time, packet.numbers(self.next[from], ack).payload(payload)));
        let len = u32::try_from(payload.len()).unwrap() + u32::from(flags & (SYN | FIN) != 0);
        self.next[from] = self.next[from].wrapping_add(len);
        self.time += MILLISECOND;
        self
    }

    fn send(self, from: usize, bytes: &[u8]) -> Self {
        let segment = self.segment;
        bytes.chunks(segment).fold(self, |connection, part| connection.packet(from, ACK | PSH, part))
    }

    pub fn client(self, bytes: impl AsRef<[u8]>) -> Self {
        self.send(0, bytes.as_ref())
    }

    pub fn server(self, bytes: impl AsRef<[u8]>) -> Self {
        self.send(1, bytes.as_ref())
    }

    pub fn close(self) -> Self {
        self.packet(0, FIN | ACK, &[]).packet(1, FIN | ACK, &[]).packet(0, ACK, &[])
    }

    pub fn reset(self) -> Self {
        self.packet(1, RST | ACK, &[])
    }

    /// Leaves out the packets of these numbers, from 0.
    pub fn lose(mut self, numbers: impl Fn(usize) -> bool) -> Self {
        let mut number = 0;
        self.packets.retain(|_| {
            number += 1;
            !numbers(number - 1)
        });
        self
    }

    pub fn capture(&self) -> Capture {
        captures(std::slice::from_ref(self))
    }
}

/// The packets of connections, in the order of their times.
pub fn captures(connections: &[Connection]) -> Capture {
    let mut packets: Vec<_> = connections.iter().flat_map(|connection| &connection.packets).collect();
    packets.sort_by_key(|packet| packet.0);
    let mut capture = Capture::new(ETHERNET);
    packets.iter().for_each(|(time, packet)| capture.push(*time, packet.ethernet()));
    capture
}
