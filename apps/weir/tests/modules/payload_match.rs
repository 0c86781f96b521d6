//! Module payload-match: a string in a byte range of TCP payloads.

use super::capture::{BEGIN, Capture, sample, samples};
use super::packet::{ACK, PSH, Packet};
use super::parsed_packet::ParsedPacket;
use super::weir::{refusal, run, run_file, start_failure};

const CLIENT: &str = "10.0.0.1:1000";
const SERVER: &str = "10.0.0.2:80";

fn segment(payload: impl AsRef<[u8]>) -> Packet {
    Packet::tcp(CLIENT, SERVER, ACK | PSH).payload(payload)
}

/// The index and offset of each match.
fn matches(module: &str, payloads: &[&[u8]]) -> Vec<(i128, i128)> {
    let packets: Vec<Packet> = payloads.iter().map(segment).collect();
    let rows = run(&Capture::from_packets(&packets), &["-m", module]).rows("payload-match", "matches");
    rows.iter()
        .map(|row| ((row.number("time") - i128::from(BEGIN)) / 1000, row.number("offset_bytes")))
        .collect()
}

#[test]
fn the_default_needle_is_found_only_in_bytes_2_to_18() {
    let at = |offset: usize| [&vec![b'x'; offset][..], b"/bin/sh -c id"].concat();
    let payloads: Vec<Vec<u8>> = (0..20).map(at).collect();
    let payloads: Vec<&[u8]> = payloads.iter().map(Vec::as_slice).collect();
    // All five bytes must be in the range: 14 is the last such offset.
    let expected: Vec<(i128, i128)> = (2..=14).map(|offset| (offset, offset)).collect();
    assert_eq!(matches("payload-match", &payloads), expected);
}

#[test]
fn a_needle_cut_off_by_the_end_of_the_payload_does_not_match() {
    let found = matches(
        "payload-match",
        &[b"", b"xx", b"xx/bin", b"xx/bin/", b"xx/bim/xx/bin/", b"/bin/", b"x/bin//bin/"],
    );
    assert_eq!(found, [(3, 2), (4, 9), (6, 6)]);
}

#[test]
fn a_row_has_sender_and_receiver() {
    let capture = Capture::from_packets(&[
        segment("GET /bin/sh HTTP/1.0"),
        Packet::udp(CLIENT, SERVER).payload("GET /bin/sh HTTP/1.0"),
        Packet::tcp("[2001:db8::1]:9", "[2001:db8::2]:23", ACK).payload("0 /bin/ls"),
    ]);
    let rows = run(&capture, &["-m", "payload-match"]).rows("payload-match", "matches");
    let ends: Vec<_> = rows.iter().map(|row| (row.end("src"), row.end("dst"))).collect();
    assert_eq!(
        ends,
        [
            (CLIENT.to_owned(), SERVER.to_owned()),
            ("[2001:db8::1]:9".to_owned(), "[2001:db8::2]:23".to_owned())
        ]
    );
    assert_eq!((rows[0].number("time"), rows[0].number("offset_bytes")), (i128::from(BEGIN), 4));
}

#[test]
fn padding_of_a_short_frame_is_not_payload() {
    let mut capture = Capture::from_packets(&[segment("ab/bi")]);
    capture.frames[0].bytes.extend_from_slice(b"n/");
    assert_eq!(run(&capture, &["-m", "payload-match"]).rows("payload-match", "matches"), []);
}

#[test]
fn only_captured_bytes_are_searched() {
    let mut capture = Capture::from_packets(&[segment("xx/bin/"), segment("xx/bin/")]);
    capture.frames[0].bytes.truncate(14 + 20 + 20 + 6);
    let rows = run(&capture, &["-m", "payload-match"]).rows("payload-match", "matches");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].number("time"), i128::from(BEGIN + 1000));
}

#[test]
fn string_and_range_are_parameters() {
    let tls: &[&[u8]] = &[b"\x16\x03\x01\x02\x00", b"\x16\x03\x03\x02\x00", b"\x00\x16\x03\x01"];
    assert_eq!(matches(r"payload-match,needle=\x16\x03\x01,first=0,last=2", tls), [(0, 0)]);
    assert_eq!(matches(r"payload-match,needle=\x16\x03\x01,first=0,last=3", tls), [(0, 0), (2, 1)]);
    assert_eq!(matches(r"payload-match,needle=a\,b,first=1,last=65535", &[b"a,b", b"-a,b"]), [(1, 1)]);
    let far = [&vec![b'-'; 1300][..], b"needle in the hay"].concat();
    assert_eq!(matches("payload-match,needle=needle in,first=0,last=1400", &[&far]), [(0, 1300)]);
}

#[test]
fn unsatisfiable_parameters_are_refused_with_the_reason() {
    let capture = Capture::from_packets(&[segment("x")]);
    for (module, reason) in [
        ("payload-match,needle=", "needle: give 1 to 256 bytes"),
        ("payload-match,needle=abc,first=5,last=6", "the range is shorter than the needle"),
        ("payload-match,first=9,last=3", "the range is shorter than the needle"),
    ] {
        let said = start_failure(&capture, &["-m", module]);
        assert!(said.contains(reason), "{said}");
    }
    assert!(refusal(&capture, &["-m", "payload-match,last=65536"]).contains("last"));
}

/// Needles of different length and frequency, on whole captures.
#[test]
fn matches_in_whole_captures_equal_the_oracles() {
    for path in samples() {
        let capture = Capture::read(&path);
        for (needle, first, last) in [
            ("/bin/", 2, 18),
            ("HTTP", 0, 100),
            ("e", 5, 5),
            ("HTTP/1.1 200 OK", 0, 14),
            ("\r\n\r\n", 0, 1459),
        ] {
            let mut expected = Vec::new();
            for frame in &capture.frames {
                let Some(seen) = ParsedPacket::parse(&frame.bytes).filter(|seen| seen.tcp().is_some()) else {
                    continue;
                };
                let range = seen.payload.get(first..seen.payload.len().min(last + 1)).unwrap_or_default();
                if let Some(at) = range.windows(needle.len()).position(|bytes| bytes == needle.as_bytes()) {
                    expected.push((i128::from(frame.ts), (first + at) as i128));
                }
            }
            let needle = needle.replace("\r\n", r"\r\n");
            // The oracle reads the outermost IP header.
            let module = format!("payload-match,needle={needle},first={first},last={last},layer=outer");
            let rows = run_file(&path, &["-m", &module]).rows("payload-match", "matches");
            let rows: Vec<_> =
                rows.iter().map(|row| (row.number("time"), row.number("offset_bytes"))).collect();
            assert!(rows == expected, "{module}: {} rows, expected {}", rows.len(), expected.len());
            assert!(!expected.is_empty() || path != sample(), "{module} tests nothing");
        }
    }
}
