//! The generated capture of the benchmark's parts `run` and `memory`: packets of the lengths of the Internet mix (IMIX), in
//! connections with handshakes, so that modules have work. The same seed gives the same bytes.

use crate::error::LabError;
use crate::paths;
use crate::random::Random;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// The number of packets of the benchmark's capture.
const PACKETS: u64 = 5_000_000;
/// The number of flows that are active at any time.
const FLOWS: usize = 10_000;
const SEED: u64 = 22;
/// The frame lengths, each as often as the mix has it: 64, 576 and 1,500 bytes at 7:4:1.
const LENGTHS: [usize; 12] = [64, 64, 64, 64, 64, 64, 64, 576, 576, 576, 576, 1500];
const LENGTH_MAX: usize = 1500;
/// The mean distance between two packets in microseconds.
const MEAN_GAP_MICROS: usize = 1;
/// One flow in this number is UDP.
const UDP_ONCE_IN: usize = 5;
/// A connection ends after this number of packets on average, and the flow begins another one.
const CONNECTION_PACKETS: usize = 100;
/// One payload in this number contains a signature that a shipped module searches for.
const SIGNATURE_ONCE_IN: usize = 4096;
const SIGNATURES: [&[u8]; 2] = [b"..../bin/sh", b"GET /default.ida?NNNNNNNNNNNN"];
/// One flow in this number carries text. The others carry random bytes, as encrypted traffic does.
const TEXT_ONCE_IN: usize = 8;
const TEXT: &[u8] = b"GET /index.html HTTP/1.1\r\nHost: www.example.net\r\nAccept: text/html, */*;q=0.8\r\nCookie: a=%20b\r\n\r\n";
const TCP_PORTS: [u16; 4] = [443, 80, 22, 8080];
const UDP_PORTS: [u16; 3] = [53, 443, 123];

pub(crate) const ETHERNET: usize = 14;
pub(crate) const IPV4: usize = 20;
pub(crate) const TCP: usize = 20;
pub(crate) const UDP: usize = 8;
pub(crate) const FILE_HEADER: [u8; 24] =
    [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
/// The time of the first packet, in seconds since 1970.
pub(crate) const BEGIN: u64 = 1_700_000_000;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;

/// The progress of a TCP connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Connection {
    Closed,
    SynSent,
    SynReceived,
    Established,
}

/// A flow between a client and a server.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    pub(crate) client: (u32, u16),
    pub(crate) server: (u32, u16),
    pub(crate) is_udp: bool,
    is_text: bool,
    connection: Connection,
    /// The next sequence numbers of client and server.
    pub(crate) sequence: [u32; 2],
}

impl Flow {
    /// A flow between these ends that has sent nothing yet.
    pub(crate) fn between(client: (u32, u16), server: (u32, u16), is_udp: bool) -> Self {
        Self {
            client,
            server,
            is_udp,
            is_text: false,
            connection: Connection::Closed,
            sequence: [1000, 2000],
        }
    }

    fn random(random: &mut Random, number: usize) -> Self {
        let number = u32::try_from(number).unwrap_or(0);
        let is_udp = random.once_in(UDP_ONCE_IN);
        let ports = if is_udp { &UDP_PORTS[..] } else { &TCP_PORTS };
        Self {
            // 10.0.0.0/8 and 198.18.0.0/15, which is reserved for benchmarks (RFC 2544).
            client: (0x0a00_0000 | number, client_port(random)),
            server: (0xc612_0000 | u32::from(random.half_word()) & 0x3ff, *random.choose(ports)),
            is_udp,
            is_text: random.once_in(TEXT_ONCE_IN),
            connection: Connection::Closed,
            sequence: [0; 2],
        }
    }

    /// Returns true if the flow can send a packet of this length now: handshakes have the shortest packets only.
    fn can_send(&self, len: usize) -> bool {
        self.is_udp || len == LENGTHS[0] || self.connection == Connection::Established
    }

    /// The flags of the next TCP segment, and true if the server sends it.
    fn next_segment(&mut self, random: &mut Random, len: usize) -> (u8, bool) {
        match self.connection {
            Connection::Closed => {
                self.client.1 = client_port(random);
                self.sequence = std::array::from_fn(|_| u32::from(random.half_word()) << 8);
                self.connection = Connection::SynSent;
                (SYN, false)
            }
            Connection::SynSent => {
                self.connection = Connection::SynReceived;
                (SYN | ACK, true)
            }
            Connection::SynReceived => {
                self.connection = Connection::Established;
                (ACK, false)
            }
            Connection::Established if len == LENGTHS[0] && random.once_in(CONNECTION_PACKETS * 7 / 12) => {
                self.connection = Connection::Closed;
                (FIN | ACK, false)
            }
            Connection::Established => (if len == LENGTHS[0] { ACK } else { PSH | ACK }, !random.once_in(3)),
        }
    }
}

fn client_port(random: &mut Random) -> u16 {
    random.half_word() | 0x8000
}

/// A generator of the capture's packets.
struct Generator {
    random: Random,
    flows: Vec<Flow>,
    /// Random bytes, of which payloads are parts.
    noise: Vec<u8>,
    text: Vec<u8>,
    micros: u64,
}

impl Generator {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let flows = (0..FLOWS).map(|number| Flow::random(&mut random, number)).collect();
        let noise = (0..1 << 16).map(|_| random.byte()).collect();
        let text = TEXT.iter().copied().cycle().take(TEXT.len() + LENGTH_MAX).collect();
        Self { random, flows, noise, text, micros: 0 }
    }

    /// Writes the next packet with its record header. `frame` is a buffer.
    fn write_next(&mut self, frame: &mut Vec<u8>, to: &mut impl Write) -> io::Result<()> {
        let Self { random, flows, .. } = self;
        let len = *random.choose(&LENGTHS);
        let mut at = random.below(flows.len());
        while !flows[at].can_send(len) {
            at = random.below(flows.len());
        }
        let flow = &mut flows[at];
        frame.clear();
        frame.resize(len, 0);
        let (flags, from_server) =
            if flow.is_udp { (0, random.once_in(2)) } else { flow.next_segment(random, len) };
        let header = ETHERNET + IPV4 + if flow.is_udp { UDP } else { TCP };
        // A shortest TCP frame is an acknowledgement, with padding behind the IP packet.
        let end = if flow.is_udp || len > LENGTHS[0] { len } else { header };
        let payload = if flow.is_text { &self.text } else { &self.noise };
        let from = random.below(payload.len() - LENGTH_MAX + 1);
        frame[header..end].copy_from_slice(&payload[from..from + end - header]);
        if random.once_in(SIGNATURE_ONCE_IN) {
            let signature = *random.choose(&SIGNATURES);
            if let Some(place) = frame[header..end].get_mut(..signature.len()) {
                place.copy_from_slice(signature);
            }
        }
        write_headers(frame, end, flow, flags, from_server);
        let sequence = &mut flow.sequence[usize::from(from_server)];
        let counted = end - header + usize::from(flags & (SYN | FIN) != 0);
        *sequence = sequence.wrapping_add(u32::try_from(counted).unwrap_or(0));
        self.micros += u64::try_from(self.random.below(2 * MEAN_GAP_MICROS + 1)).unwrap_or(0);
        let word = |number: u64| u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes();
        to.write_all(&word(BEGIN + self.micros / 1_000_000))?;
        to.write_all(&word(self.micros % 1_000_000))?;
        let len = u32::try_from(len).unwrap_or(0).to_le_bytes();
        to.write_all(&len)?;
        to.write_all(&len)?;
        to.write_all(frame)
    }
}

/// Writes the headers of a frame whose IP packet ends at `end`, with right checksums.
pub(crate) fn write_headers(frame: &mut [u8], end: usize, flow: &Flow, flags: u8, from_server: bool) {
    let (source, destination) =
        if from_server { (flow.server, flow.client) } else { (flow.client, flow.server) };
    let half = |number: usize| u16::try_from(number).unwrap_or(0).to_be_bytes();
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, u8::from(from_server)]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, u8::from(!from_server)]);
    frame[12..ETHERNET].copy_from_slice(&[8, 0]);
    let (ip, segment) = frame[ETHERNET..end].split_at_mut(IPV4);
    let protocol = if flow.is_udp { 17 } else { 6 };
    ip[..4].copy_from_slice(&[0x45, 0, half(IPV4 + segment.len())[0], half(IPV4 + segment.len())[1]]);
    ip[8..10].copy_from_slice(&[64, protocol]);
    ip[12..16].copy_from_slice(&source.0.to_be_bytes());
    ip[16..].copy_from_slice(&destination.0.to_be_bytes());
    let checksum = !folded(sum(ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    segment[..2].copy_from_slice(&source.1.to_be_bytes());
    segment[2..4].copy_from_slice(&destination.1.to_be_bytes());
    let field = if flow.is_udp {
        let len = half(segment.len());
        segment[4..6].copy_from_slice(&len);
        6
    } else {
        let [own, other] = [usize::from(from_server), usize::from(!from_server)];
        segment[4..8].copy_from_slice(&flow.sequence[own].to_be_bytes());
        if flags & ACK != 0 {
            segment[8..12].copy_from_slice(&flow.sequence[other].to_be_bytes());
        }
        segment[12..16].copy_from_slice(&[0x50, flags, 0xff, 0xff]);
        16
    };
    let pseudo_header = u64::from(protocol) + u64::try_from(segment.len()).unwrap_or(0);
    let checksum = !folded(sum(&ip[12..]) + pseudo_header + sum(segment));
    segment[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// The sum of the bytes as big-endian numbers of 16 bits.
fn sum(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks_exact(2);
    let rest = pairs.remainder().first().map_or(0, |byte| u64::from(*byte) << 8);
    pairs.map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u64>() + rest
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).unwrap_or(0)
}

/// Writes a capture of this many packets to `to`.
fn make(to: &Path, packets: u64) -> Result<(), LabError> {
    if let Some(folder) = to.parent() {
        std::fs::create_dir_all(folder).map_err(LabError::file(folder))?;
    }
    // The file has a temporary name until it is complete.
    let part = to.with_extension(format!("{}.part", std::process::id()));
    let write = || {
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&part)?);
        file.write_all(&FILE_HEADER)?;
        let (mut generator, mut frame) = (Generator::new(SEED), Vec::with_capacity(LENGTH_MAX));
        for _ in 0..packets {
            generator.write_next(&mut frame, &mut file)?;
        }
        file.flush()?;
        std::fs::rename(&part, to)
    };
    write().map_err(LabError::file(to))
}

/// The benchmark's capture in the scratch folder, which is made if it does not exist.
pub fn make_if_missing() -> Result<PathBuf, LabError> {
    let to = paths::scratch().join("imix.pcap");
    if !to.is_file() {
        make(&to, PACKETS)?;
    }
    Ok(to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_abi::flag;
    use weir_netio::{Capture, CaptureInput, CaptureNext};

    #[test]
    fn the_capture_is_the_same_each_time_and_has_the_mix_with_right_checksums_and_handshakes() {
        let folder = tempfile::tempdir().unwrap();
        let [one, two] = ["one.pcap", "two.pcap"].map(|name| folder.path().join(name));
        make(&one, 60_000).unwrap();
        make(&two, 60_000).unwrap();
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&two).unwrap());

        let mut capture = Capture::open(CaptureInput::File(one)).unwrap();
        let (mut lengths, mut syn, mut fin, mut udp) = ([0u32; 3], 0u32, 0u32, 0u32);
        let mut bytes = Vec::new();
        while let CaptureNext::Block(block) = capture.next_block().unwrap() {
            for (i, descriptor) in block.descriptors().iter().enumerate() {
                assert_eq!(
                    descriptor.flags & (flag::MALFORMED | flag::L4 | flag::IPV4),
                    flag::L4 | flag::IPV4
                );
                block.copy_packet(i, &mut bytes);
                assert_eq!(weir_wire::verify(&bytes, descriptor), Ok(()));
                let len = usize::try_from(descriptor.cap_len).unwrap();
                lengths[[64, 576, 1500].iter().position(|known| *known == len).unwrap()] += 1;
                syn += u32::from(descriptor.tcp_flags == SYN);
                fin += u32::from(descriptor.tcp_flags & FIN != 0);
                udp += u32::from(descriptor.flags & flag::UDP != 0);
            }
        }
        assert!(capture.totals().truncated.is_none());
        for (measured, wanted) in lengths.iter().zip([35_000, 20_000, 5000]) {
            assert!(measured.abs_diff(wanted) < 1000, "{lengths:?}");
        }
        assert!(syn > 5000 && fin > 10 && (5000..30_000).contains(&udp), "{syn} {fin} {udp}");
    }
}
