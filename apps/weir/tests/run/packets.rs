//! Captures built from the documents of their formats, independent of weir's writers.

/// 2023-11-14 22:13:20 UTC.
pub const BEGIN_NS: u64 = 1_700_000_000_000_000_000;

/// One captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    pub ts_ns: u64,
    pub bytes: Vec<u8>,
}

/// Returns an Ethernet frame with an IPv4 packet from 10.0.0.`host` with the protocol `protocol` and the payload
/// `above`.
fn ipv4(host: u8, protocol: u8, above: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + above.len()).expect("short").to_be_bytes();
    let mut header =
        [0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, protocol, 0, 0, 10, 0, 0, host, 192, 0, 2, 1];
    let sum: u32 = header.chunks(2).map(|c| u32::from(u16::from_be_bytes([c[0], c[1]]))).sum();
    let checksum = !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("the sum of ten words, folded once");
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &header, above].concat()
}

/// Returns a UDP datagram from 10.0.0.`host` to this port, without a checksum.
pub fn udp(host: u8, port: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).expect("short").to_be_bytes();
    let [high, low] = port.to_be_bytes();
    ipv4(host, 17, &[&[0x80, 1, high, low, len[0], len[1], 0, 0][..], payload].concat())
}

/// Returns a TCP segment from 10.0.0.`host` to port 80 with these flags.
pub fn tcp(host: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let header = [0x80, 1, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0xff, 0xff, 0, 0, 0, 0];
    ipv4(host, 6, &[&header[..], payload].concat())
}

/// Returns packets at intervals of 1 ms: of every ten, seven to UDP port 53, one to port 123, a TCP SYN, and a segment with a payload.
pub fn traffic(count: u64) -> Vec<Packet> {
    let packet = |i: u64| {
        let host = u8::try_from(i % 200).expect("small");
        let bytes = match i % 10 {
            0..7 => udp(host, 53, &i.to_le_bytes()),
            7 => udp(host, 123, &[0; 48]),
            8 => tcp(host, 2, &[]),
            _ => tcp(host, 0x18, b"xx/bin/sh"),
        };
        Packet { ts_ns: BEGIN_NS + i * 1_000_000, bytes }
    };
    (0..count).map(packet).collect()
}

/// Returns a little-endian Ethernet pcap with nanoseconds.
pub fn pcap(packets: &[Packet]) -> Vec<u8> {
    pcap_of(1, packets)
}

/// Returns a little-endian pcap with nanoseconds and a link type.
pub fn pcap_of(link_type: u32, packets: &[Packet]) -> Vec<u8> {
    let mut file = Vec::new();
    for field in [0xa1b2_3c4d, 4 << 16 | 2, 0, 0, 262_144, link_type] {
        file.extend_from_slice(&u32::to_le_bytes(field));
    }
    for packet in packets {
        let len = u32::try_from(packet.bytes.len()).expect("short");
        record(&mut file, packet.ts_ns, len, len);
        file.extend_from_slice(&packet.bytes);
    }
    file
}

/// Appends the header of a pcap record.
pub fn record(file: &mut Vec<u8>, ts_ns: u64, cap_len: u32, wire_len: u32) {
    let part = |value: u64| u32::try_from(value).expect("before 2106");
    for field in [part(ts_ns / 1_000_000_000), part(ts_ns % 1_000_000_000), cap_len, wire_len] {
        file.extend_from_slice(&field.to_le_bytes());
    }
}

/// Returns a little-endian pcapng with an interface for each link type, and these packets with the index of their interface.
pub fn pcapng(link_types: &[u16], packets: &[(u32, Packet)]) -> Vec<u8> {
    let mut file = Vec::new();
    let header = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    block(&mut file, 0x0a0d_0d0a, &header);
    for link_type in link_types {
        // The option `if_tsresol` with nanoseconds.
        let body = [&u32::from(*link_type).to_le_bytes()[..], &[0; 4], &[9, 0, 1, 0, 9, 0, 0, 0], &[0; 4]];
        block(&mut file, 1, &body.concat());
    }
    for (interface, Packet { ts_ns, bytes }) in packets {
        let len = u32::try_from(bytes.len()).expect("short").to_le_bytes();
        let [low, high] = [ts_ns & 0xffff_ffff, ts_ns >> 32].map(|half| u32::try_from(half).expect("half"));
        let (low, high) = (low.to_le_bytes(), high.to_le_bytes());
        let padding = &[0; 3][..bytes.len().next_multiple_of(4) - bytes.len()];
        let body = [&interface.to_le_bytes()[..], &high, &low, &len, &len, bytes, padding];
        block(&mut file, 6, &body.concat());
    }
    file
}

fn block(file: &mut Vec<u8>, kind: u32, body: &[u8]) {
    let len = u32::try_from(12 + body.len()).expect("short").to_le_bytes();
    for part in [&kind.to_le_bytes()[..], &len, body, &len] {
        file.extend_from_slice(part);
    }
}

/// Parses a little-endian pcap with microseconds or nanoseconds.
pub fn read_pcap(file: &[u8]) -> Vec<Packet> {
    let field = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|k| file[at + k]));
    let unit = match field(0) {
        0xa1b2_3c4d => 1,
        0xa1b2_c3d4 => 1000,
        other => panic!("magic {other:08x}"),
    };
    let (mut at, mut packets) = (24, Vec::new());
    while at < file.len() {
        let len = usize::try_from(field(at + 8)).expect("a length");
        let ts_ns = u64::from(field(at)) * 1_000_000_000 + u64::from(field(at + 4)) * unit;
        packets.push(Packet { ts_ns, bytes: file[at + 16..at + 16 + len].to_vec() });
        at += 16 + len;
    }
    packets
}
