//! Module worm: signatures in TCP payloads, with sender and receiver.

use super::capture::{BEGIN, Capture, sample, samples};
use super::packet::{ACK, PSH, Packet};
use super::parsed_packet::ParsedPacket;
use super::weir::{Row, refusal, run, run_file, start_failure};

const ATTACKER: &str = "198.51.100.7:40000";
const VICTIM: &str = "192.0.2.10:80";

fn segment(payload: impl AsRef<[u8]>) -> Packet {
    Packet::tcp(ATTACKER, VICTIM, ACK | PSH).payload(payload)
}

/// A request of Code Red: a run of characters overflows a buffer, and the rest is interpreted as addresses and code.
fn code_red(run: u8) -> Vec<u8> {
    let code = "%u9090%u6858%ucbd3%u7801".repeat(3)
        + "%u9090%u9090%u8190%u00c3%u0003%u8b00%u531b%u53ff%u0078%u0000%u00=a";
    [b"GET /default.ida?", &[run; 224][..], code.as_bytes(), b"  HTTP/1.0\r\n"].concat()
}

fn hits(capture: &Capture, module: &str) -> Vec<Row> {
    run(capture, &["-m", module]).rows("worm", "hits")
}

/// For each hit the packet's number, the signature's index and the offset.
fn match_positions(payloads: &[&[u8]], module: &str) -> Vec<(i128, i128, i128)> {
    let packets: Vec<Packet> = payloads.iter().map(segment).collect();
    let hits = hits(&Capture::from_packets(&packets), module);
    let packet = |row: &Row| (row.number("time") - i128::from(BEGIN)) / 1000;
    hits.iter().map(|row| (packet(row), row.number("signature"), row.number("offset_bytes"))).collect()
}

#[test]
fn both_code_reds_are_found_with_sender_and_victim() {
    let request = segment("GET /index.html HTTP/1.0\r\n\r\n");
    let capture = Capture::from_packets(&[request, segment(code_red(b'N')), segment(code_red(b'X'))]);
    let hits = hits(&capture, "worm");
    let code = |offset: i128| (2, offset, "%u9090%u6858%ucbd3%u7801");
    let expected = [
        [(0, 0, "GET /default.ida?NNNNNNNN"), code(241), code(265), code(289)],
        [(1, 0, "GET /default.ida?XXXXXXXX"), code(241), code(265), code(289)],
    ];
    assert_eq!(hits.len(), 8);
    for (rows, (packet, expected)) in hits.chunks(4).zip((1..).zip(&expected)) {
        for (row, (signature, offset, text)) in rows.iter().zip(expected) {
            assert_eq!(
                (row.number("signature"), row.number("offset_bytes"), row.text("text")),
                (*signature, *offset, *text)
            );
            assert_eq!(row.number("time"), i128::from(BEGIN + packet * 1000));
            assert_eq!((row.end("src").as_str(), row.end("dst").as_str()), (ATTACKER, VICTIM));
        }
    }
}

#[test]
fn exactly_the_attacks_in_the_sample_are_found() {
    let hits = run_file(&sample(), &["-m", "worm"]).rows("worm", "hits");
    let found: Vec<_> = hits.iter().map(|row| (row.text("src"), row.number("signature"))).collect();
    let (n_and_code, x_and_code) = ([0, 2], [1, 2]);
    let senders = [("203.0.113.4", n_and_code), ("203.0.113.5", x_and_code), ("203.0.113.6", n_and_code)];
    let expected: Vec<_> = senders
        .iter()
        .flat_map(|(source, signatures)| signatures.map(|signature| (*source, signature)))
        .collect();
    assert_eq!(found, expected);
    assert!(hits.iter().all(|row| row.end("dst") == "192.0.2.10:80"));
}

#[test]
fn each_connection_with_a_match_is_one_finding() {
    let ran = run_file(&sample(), &["-m", "worm"]);
    let findings = ran.rows("worm", "findings");
    let texts: Vec<_> = findings.iter().map(|row| row.text("text")).collect();
    let text = |source| format!("Signature of a worm in packet of {source} to 192.0.2.10, port 80");
    assert_eq!(texts, ["203.0.113.4", "203.0.113.5", "203.0.113.6"].map(text));
    assert!(findings.iter().all(|row| (row.number("severity"), row.text("evidence")) == (4, "hits")));
    // A finding's filter selects its connection: the same hits, and no others.
    let hits = ran.rows("worm", "hits");
    for finding in &findings {
        let of_filter = run_file(&sample(), &["-m", "worm", finding.text("filter")]).rows("worm", "hits");
        let of_source: Vec<_> =
            hits.iter().filter(|row| finding.text("filter").contains(row.text("src"))).collect();
        assert_eq!(of_filter.iter().collect::<Vec<_>>(), of_source);
    }
}

#[test]
fn only_tcp_is_searched() {
    let capture = Capture::from_packets(&[Packet::udp(ATTACKER, VICTIM).payload(code_red(b'N'))]);
    assert_eq!(hits(&capture, "worm"), []);
}

#[test]
fn ipv6_is_searched() {
    let (from, to) = ("[2001:db8::7]:40000", "[2001:db8::10]:80");
    let capture = Capture::from_packets(&[Packet::tcp(from, to, ACK).payload(code_red(b'N'))]);
    let hits = hits(&capture, "worm,hits-per-packet=1");
    assert_eq!(hits.len(), 1);
    assert_eq!((hits[0].end("src").as_str(), hits[0].end("dst").as_str()), (from, to));
}

#[test]
fn a_signature_split_over_two_segments_is_not_found() {
    let whole = code_red(b'N');
    assert_eq!(match_positions(&[&whole[..20], &whole[20..200]], "worm"), []);
}

#[test]
fn signatures_can_have_commas_equals_signs_and_any_byte() {
    let module = r"worm,signatures=a\,b,\x00\xff\n,key\x3Dvalue,GET /=,\\";
    let payloads: &[&[u8]] =
        &[b"..a,b", b"\x00\xff\n", b"\x00\xff", b"a b key=value", b"GET /=", b"\\", b"a", b""];
    assert_eq!(match_positions(payloads, module), [(0, 0, 2), (1, 1, 0), (3, 2, 4), (4, 3, 0), (5, 4, 0)]);
}

#[test]
fn the_longest_signature_at_an_offset_wins_and_hits_do_not_overlap() {
    assert_eq!(
        match_positions(&[b"abcabab"], "worm,signatures=ab,abc,bc"),
        [(0, 1, 0), (0, 0, 3), (0, 0, 5)]
    );
    assert_eq!(match_positions(&[b"aaaaa"], "worm,signatures=aa"), [(0, 0, 0), (0, 0, 2)]);
}

#[test]
fn matching_can_ignore_case() {
    let payloads: &[&[u8]] = &[b"get /CMD.EXE", b"get /cmd.exe"];
    assert_eq!(match_positions(payloads, "worm,signatures=cmd.exe"), [(1, 0, 5)]);
    assert_eq!(match_positions(payloads, "worm,signatures=cmd.exe,ignore-case=true"), [(0, 0, 5), (1, 0, 5)]);
}

#[test]
fn the_number_of_hits_per_packet_is_limited() {
    let many = [b'a'; 1400];
    for (module, count) in [("worm,signatures=a", 8), ("worm,signatures=a,hits-per-packet=63", 63)] {
        let expected: Vec<_> = (0..count).map(|offset| (0, 0, offset)).collect();
        assert_eq!(match_positions(&[&many], module), expected);
    }
}

#[test]
fn the_maximum_number_of_signatures_are_all_found() {
    let signatures: Vec<String> = (0..1024).map(|i| format!("<{i}>")).collect();
    let module = format!("worm,signatures={}", signatures.join(","));
    let payloads: Vec<&[u8]> = signatures.iter().map(String::as_bytes).collect();
    let expected: Vec<_> = (0..1024).map(|i| (i, i, 0)).collect();
    assert_eq!(match_positions(&payloads, &module), expected);
}

#[test]
fn invalid_lists_of_signatures_are_refused_with_the_reason() {
    let capture = Capture::from_packets(&[segment("x")]);
    assert!(start_failure(&capture, &["-m", "worm,signatures=a,"]).contains("signatures: one is empty"));
    let many = format!("worm,signatures={}", vec!["x"; 1025].join(","));
    let said = start_failure(&capture, &["-m", &many]);
    assert!(said.contains("at most 1024") || said.contains("could not be compiled"), "{said}");
    assert!(refusal(&capture, &["-m", "worm,hits-per-packet=0"]).contains("hits-per-packet"));
}

#[test]
fn hits_in_whole_captures_equal_the_oracles() {
    let signatures = ["HTTP/1.1 200 OK", "User-Agent: ", "Content-Length: 0"];
    // The oracle reads the outermost IP header.
    let module = format!("worm,layer=outer,hits-per-packet=1,signatures={}", signatures.join(","));
    for path in samples() {
        let mut expected = Vec::new();
        for frame in &Capture::read(&path).frames {
            let Some(seen) = ParsedPacket::parse(&frame.bytes).filter(|seen| seen.tcp().is_some()) else {
                continue;
            };
            let first = (0..seen.payload.len()).find_map(|at| {
                Some((at, signatures.iter().position(|s| seen.payload[at..].starts_with(s.as_bytes()))?))
            });
            if let Some((at, signature)) = first {
                expected.push((i128::from(frame.ts), signature as i128, at as i128));
            }
        }
        let rows = run_file(&path, &["-m", &module]).rows("worm", "hits");
        let number = |row: &Row, name| row.number(name);
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (number(row, "time"), number(row, "signature"), number(row, "offset_bytes")))
            .collect();
        assert!(expected.len() > 500, "only {} on {}", expected.len(), path.display());
        assert!(rows == expected, "{}: {} rows, expected {}", path.display(), rows.len(), expected.len());
    }
}
