//! The module `quic` on generated packets and on real captures.

mod seal;

use self::seal::{
    DRAFT_27, DRAFT_29, Hello, Initial, V1, V2, crypto, opaque, retry, unhex, varint, version_negotiation,
};
use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, SECOND, repository, trace};
use super::packet::Packet;
use super::weir::{Row, Run, refusal, run, run_file};
use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;

const CLIENT: &str = "10.0.0.1:40000";
const SERVER: &str = "192.0.2.80:443";
const DCID: [u8; 8] = [0x83, 0x94, 0xc8, 0xf0, 0x3e, 0x51, 0x57, 0x08];
const SCID: [u8; 5] = [1, 2, 3, 4, 5];
const SERVER_CID: [u8; 4] = [9, 8, 7, 6];

/// The module by its path, with parameters such as ",timeout=1s".
fn module(parameters: &str) -> String {
    format!("{}{parameters}", repository().join("guest/modules/quic/quic.wasm").display())
}

fn run_with(capture: &Capture, parameters: &str) -> Run {
    run(capture, &["-m", &module(parameters)])
}

fn rows_of(capture: &Capture) -> Vec<Row> {
    run_with(capture, "").rows("quic", "connections")
}

/// A capture of UDP payloads, one each ms; true for those from the client.
fn exchange(datagrams: &[(bool, Vec<u8>)]) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    for (ms, (is_client, payload)) in datagrams.iter().enumerate() {
        let (from, to) = if *is_client { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        capture.push(BEGIN + ms as u64 * MILLISECOND, Packet::udp(from, to).payload(payload).ethernet());
    }
    capture
}

fn client(payload: Vec<u8>) -> (bool, Vec<u8>) {
    (true, payload)
}

fn server(payload: Vec<u8>) -> (bool, Vec<u8>) {
    (false, payload)
}

fn hello() -> Hello {
    Hello::of("example.org")
}

/// The first Initial packet of the client, with a whole ClientHello.
fn first() -> Initial {
    Initial::of(&DCID, &SCID, crypto(0, &hello().bytes()))
}

fn answer() -> Vec<u8> {
    opaque(2, V1, &SCID, &SERVER_CID, 300)
}

fn only(rows: &[Row]) -> &Row {
    assert_eq!(rows.len(), 1, "{rows:?}");
    &rows[0]
}

fn optional<'r>(row: &'r Row, name: &str) -> Option<&'r str> {
    (!row.is_null(name)).then(|| row.text(name))
}

/// The row of a connection with the ClientHello of [`hello`].
fn assert_hello(row: &Row) {
    assert_eq!(optional(row, "server_name"), Some("example.org"), "{row:?}");
    assert_eq!(optional(row, "alpn"), Some("h3"));
    assert_eq!(optional(row, "ja4"), Some(hello().ja4().as_str()));
}

#[test]
fn the_packets_of_rfc_9001_give_their_row() {
    let frames = unhex(
        "060040f1010000ed0303ebf8fa56f12939b9584a3896472ec40bb863cfd3e86804fe3a47f06a2b69484c00000413011302010000c0000000\
         10000e00000b6578616d706c652e636f6dff01000100000a00080006001d0017001800100007000504616c706e0005000501000000000033\
         00260024001d00209370b2c9caa47fbabaf4559fedba753de171fa71f50f1ce15d43e994ec74d748002b0003020304000d0010000e040305\
         0306030203080408050806002d00020101001c00024001003900320408ffffffffffffffff05048000ffff07048000ffff08011001048000\
         75300901100f088394c8f03e51570806048000ffff",
    );
    let packet = Initial { number: 2, number_len: 4, ..Initial::of(&DCID, &[], frames.clone()) }.seal();
    // As printed in A.2, and for version 2 in RFC 9369, A.2.
    assert_eq!(packet.len(), 1200);
    assert_eq!(
        packet[..38],
        unhex("c000000001088394c8f03e5157080000449e7b9aec34d1b1c98dd7689fb8ec11d242b123dc9b")
    );
    assert_eq!(packet[1184..], unhex("e221af44860018ab0856972e194cd934"));
    let second = Initial { number: 2, number_len: 4, ..Initial::of(&DCID, &[], frames) }.version(V2).seal();
    assert_eq!(
        second[..38],
        unhex("d76b3343cf088394c8f03e5157080000449ea0c95e82ffe67b6abcdb4298b485dd04de806071")
    );
    let from_server = unhex(
        "cf000000010008f067a5502a4262b5004075c0d95a482cd0991cd25b0aac406a5816b6394100f37a1c69797554780bb38cc5a99f5ede4cf7\
         3c3ec2493a1839b3dbcba3f6ea46c5b7684df3548e7ddeb9c3bf9c73cc3f3bded74b562bfb19fb84022f8ef4cdd93795d77d06edbb7aaf2f\
         58891850abbdca3d20398c276456cbc42158407dd074ee",
    );
    for (packet, version) in [(packet, "1"), (second, "2")] {
        let rows = rows_of(&exchange(&[client(packet), server(from_server.clone())]));
        let row = only(&rows);
        assert_eq!((row.end("src"), row.end("dst")), (CLIENT.to_owned(), SERVER.to_owned()));
        assert_eq!(row.number("time"), i128::from(BEGIN));
        assert_eq!(optional(row, "server_name"), Some("example.com"));
        assert_eq!(optional(row, "alpn"), Some("alpn"));
        assert_eq!((row.text("dcid"), row.text("scid")), ("8394c8f03e515708", ""));
        assert_eq!(optional(row, "server_cid"), Some("f067a5502a4262b5"));
        assert_eq!(row.number("latency_ns"), i128::from(MILLISECOND));
        assert_eq!((row.number("src_packets"), row.number("src_bytes")), (1, 1200));
        assert_eq!((row.number("dst_packets"), row.number("dst_bytes")), (1, 135));
        assert!(!row.flag("retry") && !row.flag("version_negotiation"));
        assert_eq!(row.text("end"), "stop");
        // The server answers with version 1: of the client's version only the keys show.
        assert_eq!(row.text("version"), "1", "{version}");
    }
}

#[test]
fn ja4_is_that_of_the_example_of_its_specification() {
    let numbers = [0x1B, 0x0B, 0x23, 0x33, 0x4469, 0x0A, 0x17, 0x2D, 0x05, 0x12, 0x15, 0xFF01, 0x0A0A];
    let example = Hello {
        alpn: vec!["h2".to_owned(), "http/1.1".to_owned()],
        ciphers: vec![
            0x1A1A, 0x1301, 0x1302, 0x1303, 0xC02B, 0xC02F, 0xC02C, 0xC030, 0xCCA9, 0xCCA8, 0xC013, 0xC014,
            0x009C, 0x009D, 0x002F, 0x0035,
        ],
        extensions: numbers.map(|number| (number, vec![0; 3])).to_vec(),
        algorithms: vec![0x0403, 0x0804, 0x0401, 0x0503, 0x0805, 0x0501, 0x0806, 0x0601],
        versions: vec![0x2A2A, 0x0304, 0x0303],
        ..hello()
    };
    assert_eq!(example.ja4(), "q13d1516h2_8daaf6152771_e5627efa2ab1");
    let packet = Initial::of(&DCID, &SCID, crypto(0, &example.bytes())).seal();
    let rows = rows_of(&exchange(&[client(packet)]));
    assert_eq!(optional(only(&rows), "ja4"), Some(example.ja4().as_str()));
    assert_eq!(optional(&rows[0], "alpn"), Some("h2,http/1.1"));
    // Without a name, without protocols.
    let bare = Hello { name: None, alpn: Vec::new(), ..hello() };
    let packet = Initial::of(&DCID, &SCID, crypto(0, &bare.bytes())).seal();
    let rows = rows_of(&exchange(&[client(packet)]));
    assert_eq!(optional(only(&rows), "ja4"), Some(bare.ja4().as_str()));
    assert!(
        bare.ja4().starts_with("q13i030500_") && rows[0].is_null("server_name") && rows[0].is_null("alpn")
    );
}

/// A small generator of pseudorandom numbers (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((x ^ x >> 31) % end as u64).unwrap()
    }
}

/// A ClientHello cut at random places, in random order, with repeated and overlapping parts, other frames between, in one to
/// four packets, which are coalesced or in datagrams of their own.
fn pieces(random: &mut Random, bytes: &[u8], dcid: &[u8]) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let len = (1 + random.below(300)).min(bytes.len() - at);
        // Each part can begin before its place, and contain bytes of the part before.
        let from = at - random.below(at.min(20) + 1);
        frames.push(crypto(from as u64, &bytes[from..at + len]));
        at += len;
    }
    for i in (1..frames.len()).rev() {
        frames.swap(i, random.below(i + 1));
    }
    let again = frames[random.below(frames.len())].clone();
    frames.push(again);
    let packets = 1 + random.below(4.min(frames.len()));
    let mut filled = vec![Vec::new(); packets];
    for (i, frame) in frames.into_iter().enumerate() {
        let place = &mut filled[i % packets];
        match random.below(4) {
            0 => place.push(1),
            1 => place.extend(vec![0; random.below(100)]),
            2 => place.extend([2, 5, 0, 1, 0, 1, 1]),
            _ => {}
        }
        place.extend(frame);
    }
    let mut datagrams: Vec<Vec<u8>> = Vec::new();
    for (number, frames) in filled.into_iter().enumerate() {
        let number = u32::try_from(number).unwrap();
        let initial =
            Initial { number, number_len: 1 + random.below(4), len: 0, ..Initial::of(dcid, &SCID, frames) };
        let packet = initial.seal();
        match datagrams.last_mut() {
            Some(last) if number == 1 && random.below(2) == 0 => last.extend(packet),
            _ => datagrams.push(packet),
        }
    }
    datagrams
}

#[test]
fn a_client_hello_in_any_pieces_is_read() {
    let seed = 9001;
    println!("seed {seed}");
    let mut random = Random(seed);
    let mut capture = Capture::new(ETHERNET);
    let mut wanted = HashMap::new();
    for i in 0..300_u16 {
        let mut hello = Hello::of(&format!("host-{i}.example"));
        // As long as with a post-quantum key share, and more.
        hello.extensions.push((0xFE0D, vec![3; random.below(2000)]));
        let from = format!("10.1.0.1:{}", 20_000 + i);
        let dcid: Vec<u8> =
            (0..8 + random.below(13)).map(|_| u8::try_from(random.below(256)).unwrap()).collect();
        for datagram in pieces(&mut random, &hello.bytes(), &dcid) {
            let ts = BEGIN + capture.frames.len() as u64 * 1000;
            capture.push(ts, Packet::udp(&from, SERVER).payload(datagram).ethernet());
        }
        wanted.insert(from, hello);
    }
    let rows = rows_of(&capture);
    assert_eq!(rows.len(), 300);
    for row in &rows {
        let hello = &wanted[&row.end("src")];
        assert_eq!(optional(row, "server_name"), hello.name.as_deref(), "{row:?}");
        assert_eq!(optional(row, "ja4"), Some(hello.ja4().as_str()));
    }
    assert!(run_with(&capture, "").rows("quic", "findings").is_empty());
}

#[test]
fn coalesced_packets_are_told_apart() {
    // Initial, 0-RTT, and garbage; the server's Initial and Handshake.
    let garbage = [&[0xC3, 0, 0, 0, 1][..], &[0xFF; 40]].concat();
    let with_early =
        [Initial { len: 900, ..first() }.seal(), opaque(1, V1, &DCID, &SCID, 200), garbage].concat();
    let from_server = Initial { side: "server in", ..Initial::of(&SCID, &SERVER_CID, [2, 0, 0, 0, 0]) };
    let from_server = Initial { secret: DCID.to_vec(), len: 150, ..from_server }.seal();
    let from_server = [from_server, opaque(2, V1, &SCID, &SERVER_CID, 500)].concat();
    let last = [
        Initial {
            secret: DCID.to_vec(),
            number: 1,
            len: 100,
            ..Initial::of(&SERVER_CID, &SCID, [2, 0, 0, 0, 0])
        }
        .seal(),
        opaque(2, V1, &SERVER_CID, &SCID, 90),
    ];
    let capture = exchange(&[client(with_early), server(from_server), client(last.concat())]);
    let rows = rows_of(&capture);
    let row = only(&rows);
    assert_hello(row);
    assert_eq!((row.number("src_packets"), row.number("dst_packets")), (2, 1));
    assert_eq!((row.text("scid"), optional(row, "server_cid")), ("0102030405", Some("09080706")));
    // Garbage behind a ClientHello in two packets of one datagram, the second of which is damaged: the rest comes later.
    let bytes = hello().bytes();
    let part = |from: usize, to: usize, number: u32| {
        Initial { number, len: 0, ..Initial::of(&DCID, &SCID, crypto(from as u64, &bytes[from..to])) }.seal()
    };
    let mut damaged = part(100, bytes.len(), 1);
    *damaged.last_mut().unwrap() ^= 1;
    let before = exchange(&[client([part(0, 100, 0), damaged.clone()].concat())]);
    let rows = rows_of(&before);
    assert!(only(&rows).is_null("server_name") && rows[0].is_null("ja4"), "{rows:?}");
    let whole = exchange(&[client([part(0, 100, 0), damaged].concat()), client(part(100, bytes.len(), 2))]);
    assert_hello(only(&rows_of(&whole)));
}

#[test]
fn versions_have_their_keys() {
    let drafts =
        [(V1, "1"), (V2, "2"), (DRAFT_29, "draft-29"), (DRAFT_27, "draft-27"), (0xFF00_0022, "draft-34")];
    for (version, name) in drafts {
        let rows = rows_of(&exchange(&[client(first().version(version).seal())]));
        assert_hello(only(&rows));
        assert_eq!(rows[0].text("version"), name);
        // With the keys of another version the tag does not match.
        let wrong = Initial { keys_of: if version == V2 { V1 } else { V2 }, ..first().version(version) };
        assert!(rows_of(&exchange(&[client(wrong.seal())])).is_empty(), "{name}");
    }
    // Reserved and private numbers have the keys of a version that the client knows.
    for (version, keys_of) in [(0x1A2A_3A4A, V1), (0x0A0A_0A0A, DRAFT_29), (0xFACE_B00E, DRAFT_27)] {
        let rows = rows_of(&exchange(&[client(Initial { version, keys_of, ..first() }.seal())]));
        assert_hello(only(&rows));
        assert_eq!(rows[0].text("version"), format!("{version:#010x}"));
    }
    // Unknown keys: a row only once the server answers, without a name.
    let unknown = Initial { version: 0x1234_5678, keys_of: V2, ..first() }.seal();
    assert!(rows_of(&exchange(&[client(unknown.clone())])).is_empty());
    let answers = [opaque(2, 0x1234_5678, &SCID, &SERVER_CID, 90), version_negotiation(&SCID, &DCID)];
    for answer in answers {
        let rows = rows_of(&exchange(&[client(unknown.clone()), server(answer)]));
        assert_eq!((only(&rows).text("version"), rows[0].is_null("server_name")), ("0x12345678", true));
        assert_eq!(rows[0].number("latency_ns"), i128::from(MILLISECOND));
    }
    // Answers of another connection, from another server, or with another version.
    let wrong = [
        opaque(2, 0x1234_5678, &SERVER_CID, &SERVER_CID, 90),
        opaque(2, 0x1234_5679, &SCID, &SERVER_CID, 90),
        version_negotiation(&SCID, &SERVER_CID),
        version_negotiation(&SERVER_CID, &DCID),
    ];
    for answer in wrong {
        assert!(rows_of(&exchange(&[client(unknown.clone()), server(answer)])).is_empty());
    }
}

#[test]
fn version_negotiation_and_retry_are_noted() {
    let greased = Initial { version: 0x1A2A_3A4A, ..first() };
    let capture = exchange(&[
        client(greased.seal()),
        server(version_negotiation(&SCID, &DCID)),
        client(first().seal()),
        server(answer()),
    ]);
    let rows = rows_of(&capture);
    assert_hello(only(&rows));
    assert_eq!((rows[0].text("version"), rows[0].flag("version_negotiation")), ("1", true));
    assert_eq!(rows[0].number("latency_ns"), i128::from(MILLISECOND));
    assert_eq!((rows[0].number("src_packets"), rows[0].number("dst_packets")), (2, 2));

    // After a Retry the keys follow from its identifier. The ClientHello is in two parts, of which one came before.
    let bytes = hello().bytes();
    let retried = [5_u8; 11];
    let before = Initial::of(&DCID, &SCID, crypto(0, &bytes[..200]));
    let after = Initial {
        number: 1,
        token: b"token".to_vec(),
        ..Initial::of(&retried, &SCID, crypto(200, &bytes[200..]))
    };
    let good = retry(&SCID, &retried, &DCID, b"token");
    let capture =
        exchange(&[client(before.seal()), server(good.clone()), client(after.seal()), server(answer())]);
    let rows = rows_of(&capture);
    assert_hello(only(&rows));
    assert!(rows[0].flag("retry"));
    assert_eq!(
        (rows[0].text("dcid"), optional(&rows[0], "server_cid")),
        ("8394c8f03e515708", Some("09080706"))
    );
    // A Retry with a wrong tag, or for another first identifier, changes nothing.
    let mut forged = good;
    *forged.last_mut().unwrap() ^= 1;
    for bad in [forged, retry(&SCID, &retried, &retried, b"token")] {
        let rows = rows_of(&exchange(&[client(before.seal()), server(bad)]));
        assert!(!only(&rows).flag("retry"));
        assert_eq!((rows[0].number("dst_packets"), rows[0].is_null("latency_ns")), (0, true));
    }
}

#[test]
fn identifiers_of_all_lengths_are_shown_and_longer_ones_are_not_read() {
    for (dcid_len, scid_len) in [(0, 0), (8, 0), (20, 20), (1, 20), (20, 1)] {
        let (dcid, scid) = (vec![0xAB; dcid_len], vec![0xCD; scid_len]);
        let packet = Initial::of(&dcid, &scid, crypto(0, &hello().bytes())).seal();
        let rows = rows_of(&exchange(&[client(packet), server(opaque(2, V1, &scid, &[], 50))]));
        assert_hello(only(&rows));
        assert_eq!(rows[0].text("dcid"), "ab".repeat(dcid_len));
        assert_eq!(rows[0].text("scid"), "cd".repeat(scid_len));
        assert_eq!(optional(&rows[0], "server_cid"), Some(""));
    }
    for (dcid_len, scid_len) in [(21, 0), (0, 21), (255, 255)] {
        let packet = Initial::of(&vec![1; dcid_len], &vec![2; scid_len], crypto(0, &hello().bytes())).seal();
        assert!(rows_of(&exchange(&[client(packet)])).is_empty());
    }
}

#[test]
fn damaged_and_foreign_packets_give_no_row() {
    let good = first().seal();
    let mut payloads: Vec<Vec<u8>> = vec![
        answer(),
        version_negotiation(&SCID, &DCID),
        retry(&SCID, &SERVER_CID, &DCID, b"token"),
        // The server's keys.
        Initial { side: "server in", ..first() }.seal(),
        // An Initial packet in the middle of a connection, whose keys are unknown.
        Initial { secret: SERVER_CID.to_vec(), ..first() }.seal(),
        // A token and a length beyond the end.
        [&good[..20], &varint(1 << 40), &good[21..]].concat(),
        [&good[..21], &[0x7F, 0xFF], &good[23..]].concat(),
        // RTP, with its version at the first bits.
        vec![0x80; 1200],
        vec![0xFF; 1200],
    ];
    payloads.extend((0..40).map(|len| good[..len].to_vec()));
    payloads.push(good[..1199].to_vec());
    for at in (0..22).chain([22, 600, 1199]) {
        let mut changed = good.clone();
        // Not the bits that only select another version or type: those are other tests.
        changed[at] ^= if at == 0 { 0x40 } else { 0x01 };
        payloads.push(changed);
    }
    for payload in payloads {
        let rows = rows_of(&exchange(&[client(payload.clone())]));
        assert!(rows.is_empty(), "{:02x?}: {rows:?}", &payload[..payload.len().min(40)]);
    }
    // A packet that was captured in part.
    let mut capture = exchange(&[client(good.clone())]);
    capture.frames[0].bytes.truncate(900);
    assert!(rows_of(&capture).is_empty());
    // Damaged packets between those of a connection change nothing.
    let mut damaged = good.clone();
    damaged[700] ^= 0x80;
    let rows = rows_of(&exchange(&[client(damaged), client(good), server(answer())]));
    assert_hello(only(&rows));
}

#[test]
fn contradicting_frames_give_a_finding_and_no_name() {
    let bytes = hello().bytes();
    let mut other = bytes.clone();
    let at = bytes.windows(11).position(|part| part == b"example.org").unwrap();
    other[at..at + 11].copy_from_slice(b"another.org");
    for (first, second) in [(&bytes, &other), (&other, &bytes)] {
        // The end is missing, then all bytes come again, one of which differs.
        let frames = [crypto(0, &first[..bytes.len() - 1]), crypto(0, second)].concat();
        let run = run_with(&exchange(&[client(Initial::of(&DCID, &SCID, frames).seal())]), "");
        let rows = run.rows("quic", "connections");
        assert!(only(&rows).is_null("server_name") && rows[0].is_null("ja4") && rows[0].is_null("alpn"));
        let findings = run.rows("quic", "findings");
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].number("severity"), 3);
        let filter = "udp port 40000 and udp port 443 and host 10.0.0.1 and host 192.0.2.80";
        assert_eq!((findings[0].text("filter"), findings[0].text("evidence")), (filter, "connections"));
        assert!(findings[0].text("text").contains("10.0.0.1"));
    }
}

#[test]
fn hostile_frames_trap_nothing() {
    let bytes = hello().bytes();
    let whole = crypto(0, &bytes);
    let many_ranges = [&[2][..], &varint(5000), &[0], &varint(400), &[0], &[1; 800]].concat();
    let endless_ranges = [&[3][..], &[0, 0], &varint(u64::MAX >> 2), &[0]].concat();
    let small: Vec<u8> = (0..bytes.len()).flat_map(|i| crypto(i as u64, &bytes[i..=i])).collect();
    // Frames, and true if the ClientHello behind them is still read.
    let cases: [(Vec<u8>, bool); 12] = [
        (crypto((1 << 62) - 1, b"beyond"), true),
        (crypto(4090, &[1; 60]), true),
        (crypto(4096, &[1; 60]), true),
        (crypto(0, b""), true),
        (vec![1; 100], true),
        (vec![0; 200], true),
        ([&[2, 5, 0, 3, 0][..], &[1; 6]].concat(), true),
        ([&[3, 5, 0, 3, 0][..], &[1; 9]].concat(), true),
        (many_ranges, false),
        (endless_ranges, false),
        (vec![0x1C, 0, 0, 0], false),
        (vec![6, 0, 0x7F, 0xFF], false),
    ];
    for (frames, is_read) in cases {
        let packet =
            Initial { len: 0, ..Initial::of(&DCID, &SCID, [frames.clone(), whole.clone()].concat()) };
        let rows = rows_of(&exchange(&[client(packet.seal())]));
        let row = only(&rows);
        assert_eq!(row.is_null("server_name"), !is_read, "{:02x?}", &frames[..frames.len().min(20)]);
        // What a packet's limits leave unread, a later packet brings.
        let again = exchange(&[client(packet.seal()), client(Initial { number: 1, ..first() }.seal())]);
        assert_hello(only(&rows_of(&again)));
    }
    // Frames of one byte: more than a packet's limit allows.
    let rows = rows_of(&exchange(&[client(Initial { len: 0, ..Initial::of(&DCID, &SCID, small) }.seal())]));
    assert!(only(&rows).is_null("server_name"));
    // A ClientHello that contradicts itself, in each of its bytes: no trap, and never another name.
    let mut capture = Capture::new(ETHERNET);
    for at in 0..bytes.len() {
        for change in [0xFF, 0x01] {
            let mut changed = bytes.clone();
            changed[at] ^= change;
            let from = format!("10.2.{change}.1:{}", 10_000 + at);
            let packet = Initial::of(&DCID, &SCID, crypto(0, &changed)).seal();
            capture.push(BEGIN, Packet::udp(&from, SERVER).payload(packet).ethernet());
        }
    }
    let rows = rows_of(&capture);
    assert_eq!(rows.len(), 2 * bytes.len());
    let others =
        rows.iter().filter_map(|row| optional(row, "server_name")).filter(|name| *name != "example.org");
    // The 11 bytes of the name itself, and its lengths.
    assert!(others.count() <= 2 * 11 + 4);
    // One that is longer than the room: the name is near its begin, but there is no fingerprint.
    let mut long = hello();
    long.extensions.push((0xFE0D, vec![3; 6000]));
    let bytes = long.bytes();
    let part = |number: u32| {
        let from = number as usize * 1000;
        let bytes = &bytes[from..bytes.len().min(from + 1000)];
        client(Initial { number, ..Initial::of(&DCID, &SCID, crypto(from as u64, bytes)) }.seal())
    };
    let rows = rows_of(&exchange(&(0..6).map(part).collect::<Vec<_>>()));
    assert_eq!((optional(only(&rows), "server_name"), rows[0].is_null("ja4")), (Some("example.org"), true));
}

#[test]
fn ipv6_vlans_and_tunnels_are_seen_through() {
    let (from, to) = ("[2001:db8::1]:40000", "[2001:db8::2]:443");
    let packet = Packet::udp(from, to).payload(first().seal());
    let mut capture = Capture::new(ETHERNET);
    capture.push(BEGIN, packet.tagged(0x2042));
    capture.push(BEGIN + 5, Packet::udp(to, from).payload(answer()).tagged(0x2042));
    let rows = rows_of(&capture);
    assert_hello(only(&rows));
    assert_eq!((rows[0].end("src").as_str(), rows[0].end("dst").as_str()), (from, to));
    assert_eq!((rows[0].number("vlan"), rows[0].number("latency_ns"), rows[0].text("tunnel")), (0x42, 5, ""));
    // VXLAN. The outer connection is no QUIC.
    let inner = |packet: Packet| [&[8, 0, 0, 0, 0, 0, 1, 0][..], &packet.ethernet()].concat();
    let mut capture = Capture::new(ETHERNET);
    let answered = Packet::udp(to, from).payload(answer());
    let ends = ("10.9.0.1:4789", "10.9.0.2:4789");
    capture.push(BEGIN, Packet::udp(ends.0, ends.1).payload(inner(packet)).ethernet());
    capture.push(BEGIN + 7, Packet::udp(ends.1, ends.0).payload(inner(answered)).ethernet());
    let rows = rows_of(&capture);
    assert_hello(only(&rows));
    assert_eq!((rows[0].end("src").as_str(), rows[0].text("tunnel")), (from, "vxlan"));
    assert_eq!(rows[0].number("latency_ns"), 7);
    assert!(run_with(&capture, ",layer=outer").rows("quic", "connections").is_empty());
    let wrong =
        Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", &module(",layer=middle")]).output().unwrap();
    assert!(!wrong.status.success() && String::from_utf8_lossy(&wrong.stderr).contains("layer"), "{wrong:?}");
    assert!(refusal(&capture, &["-m", &module(",table-size=1")]).contains("table-size"));
}

#[test]
fn connections_with_the_same_ends_are_told_apart() {
    // Another identifier of the client: two at a time. No identifier: one after the other.
    let second = Initial::of(&[7; 8], &[6; 5], crypto(0, &Hello::of("second.example").bytes())).seal();
    let rows = rows_of(&exchange(&[client(first().seal()), client(second), server(answer())]));
    let mut names: Vec<_> =
        rows.iter().map(|row| (row.text("server_name"), row.is_null("latency_ns"))).collect();
    names.sort_unstable();
    assert_eq!(names, [("example.org", false), ("second.example", true)]);
    let bare = |dcid: u8, name: &str| {
        client(Initial::of(&[dcid; 8], &[], crypto(0, &Hello::of(name).bytes())).seal())
    };
    let rows = rows_of(&exchange(&[
        bare(1, "first.example"),
        server(opaque(2, V1, &[], &SERVER_CID, 90)),
        client(opaque(2, V1, &SERVER_CID, &[], 90)),
        bare(2, "second.example"),
        bare(2, "second.example"),
    ]));
    let seen: Vec<_> = rows
        .iter()
        .map(|row| {
            (row.text("server_name"), row.text("end"), row.number("src_packets"), row.number("dst_packets"))
        })
        .collect();
    assert_eq!(seen, [("first.example", "reused", 2, 1), ("second.example", "stop", 2, 0)]);
}

#[test]
fn rows_come_after_the_timeout_and_by_eviction_and_none_is_lost() {
    let mut capture = exchange(&[client(first().seal()), server(answer())]);
    // Packets that keep the time going.
    for second in 1..30 {
        let packet = Packet::udp("10.5.0.1:1000", "10.5.0.2:2000").payload([1, 2, 3]);
        capture.push(BEGIN + second * SECOND, packet.ethernet());
    }
    for (parameters, end) in [("", "timeout"), (",timeout=1s", "timeout"), (",timeout=1m", "stop")] {
        let rows = run_with(&capture, parameters).rows("quic", "connections");
        assert_eq!(only(&rows).text("end"), end, "{parameters}");
    }
    let mut capture = Capture::new(ETHERNET);
    let packet = first().seal();
    for i in 0..2000_u32 {
        let from = format!("10.3.{}.{}:{}", i / 200, i % 200 + 1, 30_000 + i);
        capture.push(BEGIN + u64::from(i), Packet::udp(&from, SERVER).payload(&packet).ethernet());
    }
    let rows = run_with(&capture, ",table-size=256").rows("quic", "connections");
    assert_eq!(rows.len(), 2000);
    assert_eq!(rows.iter().filter(|row| row.text("end") == "stop").count(), 256);
    assert!(rows.iter().all(|row| row.text("end") == "stop" || row.text("end") == "evicted"));
    rows.iter().for_each(assert_hello);
    // The same rows in several instances, also with evictions.
    for jobs in ["2", "3"] {
        let again =
            run(&capture, &["-j", jobs, "-m", &module(",table-size=256")]).rows("quic", "connections");
        assert!(again == rows, "{jobs}");
    }
}

#[test]
fn the_module_is_proved_with_defaults_and_maxima() {
    for parameters in ["", ",table-size=262144,timeout=10m", ",layer=outer"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(["check", &module(parameters)]).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("Tier: proved"), "{parameters}: {said}");
    }
}

/// A connection as tshark sees it: names and identifiers of its first packets.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    name: Option<String>,
    alpn: Option<String>,
    dcid: String,
    scid: String,
    server_cid: Option<String>,
    packets: i128,
}

fn tshark(path: &Path) -> Option<HashMap<(String, String), Seen>> {
    const FIELDS: [&str; 12] = [
        "ip.src",
        "ipv6.src",
        "ip.dst",
        "ipv6.dst",
        "udp.srcport",
        "udp.dstport",
        "quic.version",
        "quic.dcid",
        "quic.scid",
        "tls.handshake.extensions_server_name",
        "tls.handshake.extensions_alpn_str",
        "frame.number",
    ];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(path).args(["-Y", "quic.header_form==1 && !icmp && !icmpv6", "-T", "fields"]);
    command.args(FIELDS.iter().flat_map(|field| ["-e", field]));
    let Ok(output) = command.output() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: tshark is not installed");
        return None;
    };
    let mut seen: HashMap<(String, String), Seen> = HashMap::new();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let end = |v4: usize, v6: usize, port: usize| {
            let address = if fields[v4].is_empty() { fields[v6] } else { fields[v4] };
            std::net::SocketAddr::new(address.parse().unwrap(), fields[port].parse().unwrap()).to_string()
        };
        let (from, to) = (end(0, 1, 4), end(2, 3, 5));
        // Of several packets in a datagram, the first one.
        let first = |at: usize| fields[at].split(',').next().unwrap_or_default().to_owned();
        let text = |at: usize| (!fields[at].is_empty()).then(|| fields[at].to_owned());
        if let Some(known) = seen.get_mut(&(to.clone(), from.clone())) {
            known.packets += 1;
            if known.server_cid.is_none() && fields[6] != "0x00000000" {
                known.server_cid = Some(first(8));
            }
            continue;
        }
        let known = seen.entry((from, to)).or_insert_with(|| Seen {
            dcid: first(7),
            scid: first(8),
            ..Seen::default()
        });
        known.packets += 1;
        known.name = text(9).or(known.name.take());
        known.alpn = text(10).or(known.alpn.take());
    }
    Some(seen)
}

#[test]
fn connections_of_real_captures_equal_tsharks() {
    // The captures of the shared traces in which tshark finds a long header.
    for (name, count) in [
        ("mixed/composite-mixed-a.pcap", 70),
        ("udp/quic-chromium-google.pcap", 1),
        ("robustness/tcpdump/quic_vn.pcap", 1),
        // Initial packets with a wrong tag.
        ("robustness/zeek/383379789-decrypt-crash.pcap", 0),
        ("robustness/zeek/vector-max-size-crash.pcap", 0),
    ] {
        let Some(path) = trace(name) else { continue };
        let rows = run_file(&path, &["-m", &module("")]).rows("quic", "connections");
        assert_eq!(rows.len(), count, "{name}");
        for jobs in ["2", "3"] {
            let again = run_file(&path, &["-j", jobs, "-m", &module("")]).rows("quic", "connections");
            assert!(again == rows, "{name}, {jobs} threads");
        }
        let Some(mut expected) = tshark(&path) else { return };
        if name.contains("quic_vn") {
            // tshark reads no second ClientHello after Version Negotiation.
            for seen in expected.values_mut() {
                (seen.name, seen.alpn) = (Some("localhost".to_owned()), Some("h3".to_owned()));
            }
        }
        for row in &rows {
            let own = |column: &str| optional(row, column).map(str::to_owned);
            let seen = Seen {
                name: own("server_name"),
                alpn: own("alpn"),
                dcid: row.text("dcid").to_owned(),
                scid: row.text("scid").to_owned(),
                server_cid: own("server_cid"),
                packets: row.number("src_packets") + row.number("dst_packets"),
            };
            assert_eq!(Some(seen), expected.remove(&(row.end("src"), row.end("dst"))), "{name}");
        }
        // Without a row: Initial packets with a wrong tag.
        assert_eq!(expected.is_empty(), count != 0 || name.contains("vector"), "{name}: {expected:?}");
        let _ = writeln!(std::io::stderr(), "{name}: {count} connections as tshark has them");
    }
}
