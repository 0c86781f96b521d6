//! Generated captures of applications for the benchmark's part `modules`: DNS messages, and web connections that carry HTTP
//! and TLS. The same seed gives the same bytes.

use crate::error::LabError;
use crate::imix::{ACK, BEGIN, ETHERNET, FILE_HEADER, FIN, Flow, IPV4, PSH, SYN, TCP, UDP, write_headers};
use crate::paths;
use crate::random::Random;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

const SEED: u64 = 23;
/// The number of DNS queries, each with its answer.
const DNS_QUERIES: usize = 500_000;
/// The number of web connections.
const CONNECTIONS: usize = 20_000;
/// The number of connections that are open at the end of [`open_connections`].
const OPEN_CONNECTIONS: u32 = 1_000_000;
/// The number of web connections that are open at a time.
const OPEN: usize = 200;
/// The bytes of a full segment.
const SEGMENT: usize = 1400;
/// The full segments of a response.
const RESPONSE_SEGMENTS: usize = 10;

/// A capture that is being written.
struct CaptureFile {
    file: BufWriter<File>,
    frame: Vec<u8>,
    micros: u64,
}

impl CaptureFile {
    /// Writes a packet of a flow with this payload.
    fn packet(&mut self, flow: &mut Flow, flags: u8, from_server: bool, payload: &[u8]) -> io::Result<()> {
        let header = ETHERNET + IPV4 + if flow.is_udp { UDP } else { TCP };
        let end = header + payload.len();
        self.frame.clear();
        self.frame.resize(end.max(60), 0);
        self.frame[header..end].copy_from_slice(payload);
        write_headers(&mut self.frame, end, flow, flags, from_server);
        let sequence = &mut flow.sequence[usize::from(from_server)];
        let counted = payload.len() + usize::from(flags & (SYN | FIN) != 0);
        *sequence = sequence.wrapping_add(u32::try_from(counted).unwrap_or(0));
        self.micros += 3;
        let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        self.file.write_all(&word(BEGIN + self.micros / 1_000_000))?;
        self.file.write_all(&word(self.micros % 1_000_000))?;
        let len = u32::try_from(self.frame.len()).unwrap_or(0).to_le_bytes();
        self.file.write_all(&len)?;
        self.file.write_all(&len)?;
        self.file.write_all(&self.frame)
    }
}

/// Makes a capture in the scratch folder, if it does not exist.
fn make_if_missing(
    name: &str,
    write: fn(&mut CaptureFile, &mut Random) -> io::Result<()>,
) -> Result<PathBuf, LabError> {
    let to = paths::scratch().join(name);
    if to.is_file() {
        return Ok(to);
    }
    let folder = paths::scratch();
    std::fs::create_dir_all(&folder).map_err(LabError::file(&folder))?;
    let part = to.with_extension(format!("{}.part", std::process::id()));
    let make = || {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&part)?);
        file.write_all(&FILE_HEADER)?;
        let mut capture = CaptureFile { file, frame: Vec::new(), micros: 0 };
        write(&mut capture, &mut Random::new(SEED))?;
        capture.file.flush()?;
        std::fs::rename(&part, &to)
    };
    make().map_err(LabError::file(&to))?;
    Ok(to)
}

/// The capture of DNS: a million messages.
pub fn dns() -> Result<PathBuf, LabError> {
    make_if_missing("dns.pcap", |capture, random| {
        for number in 0..DNS_QUERIES {
            let client = (0x0a00_0000 | u32::from(random.half_word()), random.half_word() | 0x8000);
            let mut flow = Flow::between(client, (0xc612_0035, 53), true);
            let id = random.half_word().to_be_bytes();
            let name = format!("host{}", random.below(50_000));
            let mut message = vec![id[0], id[1], 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
            for label in [name.as_str(), "example", "org"] {
                message.push(u8::try_from(label.len()).unwrap_or(0));
                message.extend_from_slice(label.as_bytes());
            }
            message.extend_from_slice(&[0, 0, 1, 0, 1]);
            capture.packet(&mut flow, 0, false, &message)?;
            // The answer: one address.
            message[2..4].copy_from_slice(&[0x81, 0x80]);
            message[7] = 1;
            message.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2]);
            message.push(u8::try_from(number % 256).unwrap_or(0));
            capture.packet(&mut flow, 0, true, &message)?;
        }
        Ok(())
    })
}

/// The capture of connections that are all open at its end: a million handshakes, and a segment with data of each.
pub fn open_connections() -> Result<PathBuf, LabError> {
    make_if_missing("open.pcap", |capture, random| {
        let flow = |number: u32| {
            let client =
                (0x0a00_0000 | number & 0xff_ffff, 0x8000 | u16::try_from(number % 0x7fff).unwrap_or(0));
            Flow::between(client, (0xc612_0000 | (number % 997), 443), false)
        };
        let mut flows: Vec<Flow> = (0..OPEN_CONNECTIONS).map(flow).collect();
        let data: Vec<u8> = (0..64).map(|_| random.byte()).collect();
        for (flags, from_server, data) in
            [(SYN, false, &[][..]), (SYN | ACK, true, &[]), (ACK, false, &[]), (PSH | ACK, true, &data)]
        {
            for flow in &mut flows {
                capture.packet(flow, flags, from_server, data)?;
            }
        }
        Ok(())
    })
}

/// A web connection, and its next step.
struct WebConnection {
    flow: Flow,
    is_tls: bool,
    step: usize,
}

/// The capture of web traffic: connections that carry HTTP and TLS, one half each.
pub fn web() -> Result<PathBuf, LabError> {
    make_if_missing("web.pcap", |capture, random| {
        let noise: Vec<u8> = (0..SEGMENT).map(|_| random.byte()).collect();
        let mut begun = 0;
        let mut open: Vec<WebConnection> = Vec::new();
        while begun < CONNECTIONS || !open.is_empty() {
            if begun < CONNECTIONS && open.len() < OPEN {
                let is_tls = begun % 2 == 0;
                let number = u32::try_from(begun).unwrap_or(0);
                let server = (0xc612_0000 | (number % 997), if is_tls { 443 } else { 80 });
                let flow = Flow::between((0x0a00_0000 | number, 0x8000 | random.half_word()), server, false);
                open.push(WebConnection { flow, is_tls, step: 0 });
                begun += 1;
            }
            let at = random.below(open.len());
            if open[at].advance(capture, &noise)? {
                open.swap_remove(at);
            }
        }
        Ok(())
    })
}

impl WebConnection {
    /// Writes the next packet. Returns true after the last one.
    fn advance(&mut self, capture: &mut CaptureFile, noise: &[u8]) -> io::Result<bool> {
        let step = self.step;
        self.step += 1;
        let flow = &mut self.flow;
        let number = flow.client.0 & 0xff_ffff;
        match step {
            0 => capture.packet(flow, SYN, false, &[])?,
            1 => capture.packet(flow, SYN | ACK, true, &[])?,
            2 => capture.packet(flow, ACK, false, &[])?,
            3 if self.is_tls => capture.packet(flow, PSH | ACK, false, &client_hello(number))?,
            3 => {
                let request = format!(
                    "GET /pages/{number}?q=1 HTTP/1.1\r\nHost: www{}.example.org\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\n\r\n",
                    number % 997
                );
                capture.packet(flow, PSH | ACK, false, request.as_bytes())?;
            }
            4 if self.is_tls => capture.packet(flow, PSH | ACK, true, &server_hello())?,
            4 => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {}\r\n\r\n",
                    RESPONSE_SEGMENTS * SEGMENT
                );
                capture.packet(flow, PSH | ACK, true, head.as_bytes())?;
            }
            step if step < 5 + RESPONSE_SEGMENTS => {
                let mut data = noise.to_vec();
                if self.is_tls {
                    data[..5].copy_from_slice(&[23, 3, 3, 0x05, 0x73]);
                }
                capture.packet(flow, ACK, true, &data)?;
            }
            step if step == 5 + RESPONSE_SEGMENTS => capture.packet(flow, ACK, false, &[])?,
            step if step == 6 + RESPONSE_SEGMENTS => capture.packet(flow, FIN | ACK, true, &[])?,
            _ => {
                capture.packet(flow, FIN | ACK, false, &[])?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn half(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes()
}

/// A record with one handshake message.
fn handshake(kind: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = half(body.len());
    let message = [&[kind, 0, high, low][..], body].concat();
    [&[22, 3, 1][..], &half(message.len()), &message].concat()
}

fn extension(kind: u8, body: &[u8]) -> Vec<u8> {
    [&[0, kind][..], &half(body.len()), body].concat()
}

/// A ClientHello with a server name, ALPN, signature algorithms and supported versions.
fn client_hello(number: u32) -> Vec<u8> {
    let name = format!("www{}.example.org", number % 997);
    let listed = [&[0][..], &half(name.len()), name.as_bytes()].concat();
    let extensions = [
        extension(0, &[&half(listed.len())[..], &listed].concat()),
        extension(16, &[0, 12, 2, b'h', b'2', 8, b'h', b't', b't', b'p', b'/', b'1', b'.', b'1']),
        extension(13, &[0, 8, 4, 3, 8, 4, 4, 1, 5, 3]),
        extension(10, &[0, 4, 0, 29, 0, 23]),
        extension(43, &[4, 3, 4, 3, 3]),
    ]
    .concat();
    let ciphers = [0x13, 0x01, 0x13, 0x02, 0x13, 0x03, 0xc0, 0x2b, 0xc0, 0x2f];
    let mut body = vec![3, 3];
    body.extend_from_slice(&[number.to_le_bytes()[0]; 32]);
    body.push(0);
    body.extend_from_slice(&half(ciphers.len()));
    body.extend_from_slice(&ciphers);
    body.extend_from_slice(&[1, 0]);
    body.extend_from_slice(&half(extensions.len()));
    body.extend_from_slice(&extensions);
    handshake(1, &body)
}

/// A ServerHello of TLS 1.3.
fn server_hello() -> Vec<u8> {
    let extensions = extension(43, &[3, 4]);
    let mut body = vec![3, 3];
    body.extend_from_slice(&[7; 32]);
    body.extend_from_slice(&[0, 0x13, 0x01, 0]);
    body.extend_from_slice(&half(extensions.len()));
    body.extend_from_slice(&extensions);
    handshake(2, &body)
}
