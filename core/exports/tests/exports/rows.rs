//! Streams and rows for tests.

use std::net::IpAddr;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, Manifest};
use weir_session::{Record, RecordOrder};
use weir_units::Timestamp;

/// A time for headers.
pub const NOW: Timestamp = Timestamp(1_795_835_206_000_000_000);

/// A value of a row.
#[derive(Clone, Debug)]
pub enum Given<'a> {
    Number(u64),
    Ip(&'a str),
    Text(&'a [u8]),
    Null,
}

/// A row with its tail.
#[derive(Debug)]
pub struct OwnedRow {
    row: Vec<u8>,
    tail: Vec<u8>,
}

impl OwnedRow {
    pub fn record(&self) -> Record<'_> {
        Record { order: RecordOrder::packet(0), stream: 0, row: &self.row, tail: &self.tail }
    }
}

/// Parses a manifest with one stream. `fields` has a line for each field: name, type, semantic, and `?` if it is optional.
pub fn stream(name: &str, fields: &str) -> DeclaredStream {
    let mut text = format!(
        "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n[[stream]]\nname = '{name}'\n"
    );
    for line in fields.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        text.push_str(&format!("[[stream.field]]\nname = '{}'\ntype = '{}'\n", words[0], words[1]));
        if words[2] != "-" {
            text.push_str(&format!("semantic = '{}'\n", words[2]));
        }
        if words.get(3) == Some(&"?") {
            text.push_str("optional = true\n");
        }
    }
    Manifest::parse(text.as_bytes()).unwrap().streams.remove(0)
}

/// Makes a row with these values.
pub fn row(stream: &DeclaredStream, values: &[Given<'_>]) -> OwnedRow {
    assert_eq!(stream.fields.len(), values.len());
    let mut made = OwnedRow { row: vec![0; stream.row_bytes()], tail: Vec::new() };
    for (field, value) in stream.fields.iter().zip(values) {
        let place = &mut made.row[field.offset..field.offset + field.ty.size()];
        match value {
            Given::Number(number) => place.copy_from_slice(&number.to_le_bytes()[..field.ty.size()]),
            Given::Ip(text) => place.copy_from_slice(&match text.parse().unwrap() {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            }),
            Given::Text(text) => {
                assert!(matches!(field.ty, FieldType::String | FieldType::Bytes));
                place[..4].copy_from_slice(&u32::try_from(made.tail.len()).unwrap().to_le_bytes());
                place[4..].copy_from_slice(&u32::try_from(text.len()).unwrap().to_le_bytes());
                made.tail.extend_from_slice(text);
            }
            Given::Null => {}
        }
        if let Some(presence) = field.presence {
            made.row[presence] = u8::from(!matches!(value, Given::Null));
        }
    }
    assert!(stream.fits(&made.row, &made.tail));
    made
}

/// The fields of a flow.
pub const FLOW: &str = "
    time timestamp time
    start timestamp event.start
    duration duration event.duration
    src ip source.ip
    sport u16 source.port ?
    dst ip destination.ip
    dport u16 destination.port ?
    protocol u8 network.iana_number
    vlan u16 network.vlan.id ?
    sent_packets u64 source.packets
    sent_bytes u64 source.bytes
    received_packets u64 destination.packets
    received_bytes u64 destination.bytes
    state string connection.state ?
    retransmitted u32 count ?
    reason string label";

/// A flow of two and a half seconds.
pub fn flow<'a>(
    protocol: u64,
    hosts: [&'a str; 2],
    ports: [Given<'a>; 2],
    state: Given<'a>,
) -> Vec<Given<'a>> {
    use Given::{Ip, Null, Number, Text};
    let [sport, dport] = ports;
    let begin = 1_700_000_000_123_456_789;
    vec![
        Number(begin + 2_500_000_000),
        Number(begin),
        Number(2_500_000_000),
        Ip(hosts[0]),
        sport,
        Ip(hosts[1]),
        dport,
        Number(protocol),
        Null,
        Number(7),
        Number(700),
        Number(5),
        Number(5_000_000_000),
        state,
        Null,
        Text(b"end"),
    ]
}

/// The fields of an HTTP request with three texts.
pub const REQUEST: &str = "
    time timestamp time
    src ip source.ip
    src_port u16 source.port
    dst ip destination.ip
    dst_port u16 destination.port
    method string http.request.method ?
    host string url.domain ?
    status u16 http.response.status_code ?
    note string -";

/// A request with these texts.
pub fn request<'a>(method: &'a [u8], host: &'a [u8], note: &'a [u8]) -> Vec<Given<'a>> {
    use Given::{Ip, Null, Number, Text};
    vec![
        Number(1_700_000_000_000_001_000),
        Ip("192.0.2.1"),
        Number(40_000),
        Ip("192.0.2.2"),
        Number(80),
        Text(method),
        Text(host),
        Null,
        Text(note),
    ]
}

/// Texts that would break a format if they were not escaped.
pub fn hostile_texts() -> Vec<Vec<u8>> {
    let long = [b"x".repeat(65_000), "é".repeat(300).into_bytes()].concat();
    let mut all: Vec<Vec<u8>> =
        ["", "-", "(empty)", "a\tb", "a\nb\r\n", "\\x09", "\"},{\"", "\u{1b}[31m", "\u{202e}x\u{2028}", "\0"]
            .iter()
            .map(|text| text.as_bytes().to_vec())
            .collect();
    all.extend([vec![0xff, 0xc3, 0x28], vec![0xf0, 0x9f], (0..=255).collect(), long]);
    all
}
