//! Module dns: joined rows, their text, hostile messages, findings, and tshark's view of the shared traces.

#![allow(
    clippy::cast_possible_truncation,
    clippy::type_complexity,
    reason = "small numbers of generated packets"
)]

mod captures;

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, RAW_IP, SECOND, repository, samples, trace};
use super::packet::{ACK, FIN, Packet, SYN};
use super::weir::{Row, Run, run, run_file};
use std::process::Command;

const CLIENT: &str = "10.0.0.1:40000";
const SERVER: &str = "192.0.2.53:53";

/// The module by its path, with parameters such as ",timeout=1s".
fn module(parameters: &str) -> String {
    format!("{}{parameters}", repository().join("guest/modules/dns/dns.wasm").display())
}

fn rows_of(capture: &Capture, parameters: &str) -> Vec<Row> {
    run(capture, &["-m", &module(parameters)]).rows("dns", "queries")
}

/// A name on the wire. Labels are separated by dots; `\.` is a dot within a label.
fn name(text: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in text.replace("\\.", "\u{1}").split('.').filter(|label| !label.is_empty()) {
        let label = label.replace('\u{1}', ".");
        wire.push(u8::try_from(label.len()).unwrap());
        wire.extend_from_slice(label.as_bytes());
    }
    wire.push(0);
    wire
}

fn question(text: &str, ty: u16) -> Vec<u8> {
    [name(text), ty.to_be_bytes().to_vec(), vec![0, 1]].concat()
}

/// A record whose owner is the name of the first question.
fn record(ty: u16, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    [&[0xC0, 12][..], &ty.to_be_bytes(), &[0, 1, 0, 0, 1, 0], &length.to_be_bytes(), data].concat()
}

/// OPT with a size of UDP answers, the upper bits of the code, and the DO bit.
fn opt(size: u16, code: u8, is_dnssec_ok: bool) -> Vec<u8> {
    [&[0, 0, 41][..], &size.to_be_bytes(), &[code, 0, u8::from(is_dnssec_ok) << 7, 0, 0, 0]].concat()
}

/// A message of questions, and of records in the three sections.
fn message(id: u16, flags: u16, questions: &[Vec<u8>], sections: [&[Vec<u8>]; 3]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let counts = [questions.len(), sections[0].len(), sections[1].len(), sections[2].len()];
    for word in [id, flags].into_iter().chain(counts.map(|count| u16::try_from(count).unwrap())) {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    bytes.extend(questions.concat());
    sections.iter().for_each(|section| bytes.extend(section.concat()));
    bytes
}

const RD: u16 = 0x0100;
const ANSWER: u16 = 0x8180;

fn query(id: u16, text: &str, ty: u16) -> Vec<u8> {
    message(id, RD, &[question(text, ty)], [&[], &[], &[]])
}

fn answer(id: u16, text: &str, ty: u16, records: &[Vec<u8>]) -> Vec<u8> {
    message(id, ANSWER, &[question(text, ty)], [records, &[], &[]])
}

fn udp(from: &str, to: &str, payload: impl AsRef<[u8]>) -> Packet {
    Packet::udp(from, to).payload(payload)
}

/// A capture of UDP payloads at times in ms: true for those from the client.
fn exchange(messages: &[(u64, bool, Vec<u8>)]) -> Capture {
    let mut capture = Capture::new(ETHERNET);
    for (ms, is_query, payload) in messages {
        let (from, to) = if *is_query { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        capture.push(BEGIN + ms * MILLISECOND, udp(from, to, payload).ethernet());
    }
    capture
}

/// The fields that say how messages were joined: name, id, asked, answered, packets, and latency in ms.
fn joined(row: &Row) -> (String, i128, bool, bool, i128, Option<i128>) {
    let latency = row.optional_number("latency_ns").map(|ns| ns / i128::from(MILLISECOND));
    (
        row.text("name").to_owned(),
        row.number("id"),
        row.flag("asked"),
        row.flag("answered"),
        row.number("query_packets"),
        latency,
    )
}

fn all_joined(capture: &Capture, parameters: &str) -> Vec<(String, i128, bool, bool, i128, Option<i128>)> {
    let mut found: Vec<_> = rows_of(capture, parameters).iter().map(joined).collect();
    found.sort();
    found
}

const A: [u8; 4] = [198, 51, 100, 7];

#[test]
fn a_query_and_its_answer_are_one_row() {
    for (client, server, vlan) in [
        (CLIENT, SERVER, None),
        ("[2001:db8::1]:40000", "[2001:db8::53]:53", None),
        (CLIENT, SERVER, Some(42)),
    ] {
        let asked = message(7, RD, &[question("www.Example.com", 1)], [&[], &[], &[opt(1232, 0, true)]]);
        let told = message(
            7,
            0x8780,
            &[question("www.Example.com", 1)],
            [&[record(5, &name("b.example")), record(1, &A)], &[record(2, &name("ns.example"))], &[]],
        );
        let mut capture = Capture::new(ETHERNET);
        let packets = [udp(client, server, &asked), udp(server, client, &told)];
        for (ms, packet) in [0, 12].into_iter().zip(&packets) {
            let bytes = vlan.map_or_else(|| packet.ethernet(), |vlan| packet.tagged(vlan));
            capture.push(BEGIN + ms * MILLISECOND, bytes);
        }
        let rows = rows_of(&capture, "");
        assert_eq!(rows.len(), 1);
        let row = &rows[0];
        assert_eq!((row.end("src"), row.end("dst")), (client.to_owned(), server.to_owned()));
        assert_eq!(row.optional_number("vlan"), vlan.map(i128::from));
        assert_eq!(joined(row), ("www.Example.com".into(), 7, true, true, 1, Some(12)));
        let texts = ["transport", "tunnel", "kind", "opcode", "type", "code", "flags", "answers"];
        assert_eq!(
            texts.map(|field| row.text(field)),
            ["udp", "", "dns", "QUERY", "A", "NOERROR", "aa tc rd ra", "CNAME b.example; A 198.51.100.7"]
        );
        let numbers =
            ["time", "questions", "answer_count", "authority_count", "additional_count", "edns_bytes"];
        assert_eq!(numbers.map(|field| row.number(field)), [i128::from(BEGIN), 1, 2, 1, 0, 1232]);
        let bytes = [row.number("query_bytes"), row.number("answer_bytes")];
        assert_eq!(bytes, [asked.len(), told.len()].map(|len| len as i128));
        assert!(row.flag("truncated") && row.flag("dnssec_ok") && !row.flag("cut") && !row.flag("malformed"));
        assert_eq!(["evicted", "rejected", "skipped"].map(|field| row.number(field)), [0; 3]);
        assert!(row.text("community_id").starts_with("1:") && row.is_null("more_questions"));
    }
}

#[test]
fn messages_are_joined_by_ends_identifier_name_and_type() {
    // 0x20: the case of letters does not count, but that of other bytes does. The row has the query's name.
    let mixed = exchange(&[
        (0, true, query(1, "wWw.eXample.COM", 1)),
        (3, false, answer(1, "WwW.ExAMPLE.com", 1, &[])),
    ]);
    assert_eq!(all_joined(&mixed, ""), [("wWw.eXample.COM".into(), 1, true, true, 1, Some(3))]);
    for (told, is_joined) in [
        (answer(1, "a{b[c.example", 1, &[]), true),
        (answer(1, "a[b{c.example", 1, &[]), false),
        (answer(2, "a{b[c.example", 1, &[]), false),
        (answer(1, "a{b[c.example", 28, &[]), false),
        (answer(1, "x.a{b[c.example", 1, &[]), false),
        (answer(1, "a{b[c.exampl", 1, &[]), false),
        // Without a question, the identifier alone decides.
        (message(1, 0x8185, &[], [&[], &[], &[]]), true),
    ] {
        let found = all_joined(&exchange(&[(0, true, query(1, "a{b[c.example", 1)), (1, false, told)]), "");
        let joined = found.iter().filter(|row| row.2 && row.3).count();
        assert_eq!((joined, found.len()), (usize::from(is_joined), 2 - usize::from(is_joined)), "{found:?}");
    }
    for (from, to) in [(SERVER, "10.0.0.1:40001"), ("192.0.2.54:53", CLIENT), (SERVER, "10.0.0.2:40000")] {
        let mut capture = exchange(&[(0, true, query(1, "a.example", 1))]);
        capture.push(BEGIN + MILLISECOND, udp(from, to, answer(1, "a.example", 1, &[])).ethernet());
        assert_eq!(rows_of(&capture, "").len(), 2, "{from} {to}");
    }
}

#[test]
fn repeated_queries_and_answers_are_told_apart_from_new_ones() {
    let asked = || query(5, "a.example", 1);
    let told = || answer(5, "a.example", 1, &[]);
    let row =
        |asked, answered, packets, latency| ("a.example".to_owned(), 5, asked, answered, packets, latency);
    let capture =
        exchange(&[(0, true, asked()), (100, true, asked()), (130, false, told()), (140, false, told())]);
    assert_eq!(all_joined(&capture, ""), [row(true, true, 0, None), row(true, true, 2, Some(130))]);
    // After the answer, the same query is a new one.
    let capture =
        exchange(&[(0, true, asked()), (5, false, told()), (50, true, asked()), (57, false, told())]);
    assert_eq!(all_joined(&capture, ""), [row(true, true, 1, Some(5)), row(true, true, 1, Some(7))]);
    let capture = exchange(&[(3, false, told())]);
    assert_eq!(all_joined(&capture, ""), [row(false, true, 0, None)]);
}

#[test]
fn queries_without_answer_get_their_rows_after_the_timeout_and_late_answers_have_no_query() {
    let told = || answer(1, "a.example", 1, &[]);
    for (late, is_joined) in [(1900, true), (2000, true), (2001, false), (60_000, false)] {
        let capture = exchange(&[(0, true, query(1, "a.example", 1)), (late, false, told())]);
        let found = all_joined(&capture, ",timeout=2s");
        let row = |asked, answered, packets, latency| {
            ("a.example".to_owned(), 1, asked, answered, packets, latency)
        };
        let expected = if is_joined {
            vec![row(true, true, 1, Some(i128::from(late)))]
        } else {
            vec![row(false, true, 0, None), row(true, false, 1, None)]
        };
        assert_eq!(found, expected, "after {late} ms");
    }
    // Ticks write them, without a message that touches their set: the row comes before that of the last message.
    let mut capture = exchange(&[(0, true, query(1, "a.example", 1))]);
    for second in 1..40 {
        capture.push(BEGIN + second * SECOND, udp("10.0.0.9:1", "10.0.0.8:2", b"x").ethernet());
    }
    capture.push(BEGIN + 40 * SECOND, udp(CLIENT, SERVER, query(2, "b.example", 1)).ethernet());
    let rows = rows_of(&capture, "");
    let names: Vec<_> =
        rows.iter().map(|row| (row.text("name"), row.flag("answered"), row.is_null("code"))).collect();
    assert_eq!(names, [("a.example", false, true), ("b.example", false, true)]);
}

#[test]
fn records_and_names_become_text_as_in_master_files() {
    let soa =
        [name("ns.example"), name("h\\.m.example"), (1u32..=5).flat_map(u32::to_be_bytes).collect()].concat();
    let long_text = [&[200][..], &[b'x'; 200], &[100], &[b'y'; 100]].concat();
    let cases: &[(u16, Vec<u8>, &str)] = &[
        (1, A.to_vec(), "A 198.51.100.7"),
        (28, [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[1]].concat(), "AAAA 2001:db8::1"),
        (28, vec![0; 16], "AAAA ::"),
        (28, (0..16).collect(), "AAAA 1:203:405:607:809:a0b:c0d:e0f"),
        (2, name("ns.example"), "NS ns.example"),
        (12, vec![0], "PTR ."),
        (12, vec![1, b'p', 0xC0, 12], "PTR p.q.example"),
        (39, name("d.example"), "DNAME d.example"),
        (15, [&[0, 10][..], &name("mx.example")].concat(), "MX 10 mx.example"),
        (33, [&[0, 1, 0, 2, 0x13, 0xC4][..], &name("s.example")].concat(), "SRV 1 2 5060 s.example"),
        (16, b"\x03a b\x00\x05\"\\;.\xff".to_vec(), r#"TXT "a b" "" "\"\\\;.\255""#),
        (16, vec![], "TXT"),
        (16, long_text, &format!("TXT \"{}\" \"{}\"", "x".repeat(200), "y".repeat(53))),
        (6, soa, r"SOA ns.example h\.m.example 1 2 3 4 5"),
        (65, [&[0, 1][..], &name("svc.example"), &[0, 1, 0, 0]].concat(), "HTTPS 1 svc.example"),
        (64, vec![0, 0, 0], "SVCB 0 ."),
        (46, vec![1, 2, 3], "RRSIG"),
        (10, vec![], "NULL"),
        (65399, vec![9], "TYPE65399"),
        (5, b"\x07a b\n.\xe9\\\x01@\x00".to_vec(), r"CNAME a\032b\010\.\233\\.\@"),
    ];
    for (ty, data, text) in cases {
        let told = answer(1, "q.example", *ty, &[record(*ty, data)]);
        let rows = rows_of(&exchange(&[(0, true, query(1, "q.example", *ty)), (1, false, told)]), "");
        assert_eq!((rows.len(), rows[0].text("answers"), rows[0].flag("malformed")), (1, *text, false));
        assert_eq!(rows[0].text("type"), text.split(' ').next().unwrap());
    }
    let longest = [vec!["a".repeat(63); 3].join("."), "b".repeat(61)].join(".");
    for text in ["", "a", r"dot\.within", &longest, r"\032\255x"] {
        // `name` needs the bytes themselves.
        let wire = if text == r"\032\255x" { vec![3, b' ', 255, b'x', 0] } else { name(text) };
        let asked = message(1, RD, &[[wire, vec![0, 1, 0, 1]].concat()], [&[], &[], &[]]);
        let rows = rows_of(&exchange(&[(0, true, asked)]), "");
        assert_eq!(rows[0].text("name"), if text.is_empty() { "." } else { text });
    }
}

#[test]
fn many_records_are_cut_at_the_limits_and_counted() {
    let many: Vec<_> = (0..30u8).map(|i| record(1, &[192, 0, 2, i])).collect();
    for limit in [0, 1, 15, 16] {
        let told = answer(1, "a.example", 1, &many);
        let rows = rows_of(&exchange(&[(0, false, told)]), &format!(",answers-max={limit}"));
        let shown = (0..limit).map(|i| format!("A 192.0.2.{i}; ")).collect::<String>() + "...";
        assert_eq!((rows[0].text("answers"), rows[0].number("answer_count")), (shown.as_str(), 30));
    }
    let long = record(16, &[&[255][..], &[b'z'; 255]].concat());
    let told = answer(1, "a.example", 16, &vec![long; 9]);
    let rows = rows_of(&exchange(&[(0, false, told)]), "");
    let text = rows[0].text("answers");
    assert!(text.len() <= 1024 + 5 && text.ends_with("; ...") && text.matches("TXT").count() == 3, "{text}");
    // More questions: the first one, and the others as text.
    let questions: Vec<_> = (0..5).map(|i| question(&format!("q{i}.example"), 1 + 27 * (i % 2))).collect();
    let rows = rows_of(&exchange(&[(0, true, message(1, RD, &questions, [&[], &[], &[]]))]), "");
    assert_eq!((rows[0].text("name"), rows[0].number("questions")), ("q0.example", 5));
    let rows = rows_of(&exchange(&[(0, false, message(1, ANSWER, &questions, [&[], &[], &[]]))]), "");
    assert_eq!(
        rows[0].text("more_questions"),
        "q1.example AAAA; q2.example A; q3.example AAAA; q4.example A"
    );
}

#[test]
fn codes_and_opcodes_have_names() {
    for (flags, extended, opcode, code) in [
        (0x8003, 0, "QUERY", "NXDOMAIN"),
        (0x8002, 0, "QUERY", "SERVFAIL"),
        (0x800D, 0, "QUERY", "RCODE13"),
        (0x8000, 1, "QUERY", "BADVERS"),
        (0x8007, 1, "QUERY", "BADCOOKIE"),
        (0xA000, 0, "NOTIFY", "NOERROR"),
        (0xA805, 0, "UPDATE", "REFUSED"),
    ] {
        let told = message(1, flags, &[question("a.example", 1)], [&[], &[], &[opt(512, extended, false)]]);
        let rows = rows_of(&exchange(&[(0, false, told)]), "");
        assert_eq!((rows[0].text("opcode"), rows[0].text("code")), (opcode, code));
    }
}

#[test]
fn mdns_and_llmnr_are_marked_and_other_ports_are_a_parameter() {
    let group = "224.0.0.251:5353";
    let announcement = message(
        0,
        0x8400,
        &[],
        [&[[name("p.local"), record(12, &name("q.local"))[2..].to_vec()].concat()], &[], &[]],
    );
    let mut capture = Capture::new(ETHERNET);
    for (ms, packet) in [
        udp("10.0.0.1:5353", group, query(0, "p.local", 12)),
        udp("10.0.0.2:5353", group, announcement),
        udp("[fe80::1]:50000", "[ff02::1:3]:5355", query(9, "host", 28)),
        udp("[fe80::2]:5355", "[fe80::1]:50000", answer(9, "host", 28, &[])),
        udp("10.0.0.1:50000", "10.0.0.2:5355", query(8, "host", 1)),
        udp("10.0.0.2:5355", "10.0.0.1:50000", answer(8, "host", 1, &[])),
        udp("10.0.0.1:50000", "10.0.0.2:1053", query(7, "host", 1)),
    ]
    .into_iter()
    .enumerate()
    {
        capture.push(BEGIN + ms as u64 * MILLISECOND, packet.ethernet());
    }
    let seen = |row: &Row| {
        let (name, _, asked, answered, ..) = joined(row);
        (row.text("kind").to_owned(), name, row.text("type").to_owned(), asked, answered)
    };
    let row = |kind: &str, name: &str, ty: &str, asked, answered| {
        (kind.into(), name.into(), ty.into(), asked, answered)
    };
    let expected = [
        row("mdns", "p.local", "PTR", true, false),
        row("mdns", "p.local", "PTR", false, true),
        row("llmnr", "host", "AAAA", true, false),
        row("llmnr", "host", "AAAA", false, true),
        row("llmnr", "host", "A", true, true),
    ];
    assert_eq!(rows_of(&capture, "").iter().map(seen).collect::<Vec<_>>(), expected);
    let other: Vec<_> = rows_of(&capture, r",ports=1053").iter().map(seen).collect();
    assert_eq!(other, [row("dns", "host", "A", true, false)]);
    let checked = Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg(module(",layer=middle")).output();
    assert!(!checked.unwrap().status.success());
}

#[test]
fn damaged_messages_have_no_wrong_row() {
    let names = |wire: &[u8]| message(1, ANSWER, &[[wire, &[0, 1, 0, 1]].concat()], [&[], &[], &[]]);
    // Messages without any row: the header or the first question cannot be.
    let mut rejected = vec![
        vec![],
        vec![0; 11],
        message(1, RD, &[], [&[], &[], &[]]),
        message(1, 0x1800, &[question("a", 1)], [&[], &[], &[]]),
        names(&[0xC0, 12]),
        names(&[1, b'a', 0xC0, 12]),
        names(&[0xC0, 14, 0xC0, 12]),
        names(&[0xC0, 200]),
        names(&[64, b'a', 0]),
        names(&[0x81, b'a', 0]),
        names(&[[63; 64].repeat(4).as_slice(), &[0]].concat()),
        [query(1, "a.example", 1)[..4].to_vec(), vec![255; 8], question("a.example", 1)].concat(),
    ];
    let whole = query(1, "www.example.com", 1);
    rejected.extend((0..whole.len()).map(|len| whole[..len].to_vec()));
    let count = rejected.len();
    let mut messages: Vec<_> = rejected.into_iter().map(|bytes| (0, false, bytes)).collect();
    messages.push((1, false, answer(1, "end.example", 1, &[])));
    let rows = rows_of(&exchange(&messages), "");
    assert_eq!((rows.len(), rows[0].text("name")), (1, "end.example"));
    assert_eq!(rows[0].number("rejected"), count as i128);

    // Records with damage: those before it are in the row.
    let good = record(1, &A);
    let bad = |ty, data: &[u8]| answer(1, "a.example", 1, &[good.clone(), record(ty, data), good.clone()]);
    for told in [
        bad(5, &[0xC0, 255]),
        bad(5, &[1, b'a', 0xC0, 39]),
        bad(5, &[5, b'a']),
        bad(1, &[1, 2, 3]),
        bad(28, &[0; 15]),
        bad(15, &[0]),
        bad(6, &name("only.one")),
        [
            answer(1, "a.example", 1, std::slice::from_ref(&good))[..7].to_vec(),
            vec![9],
            answer(1, "a.example", 1, std::slice::from_ref(&good))[8..].to_vec(),
            vec![255; 100],
        ]
        .concat(),
    ] {
        let rows = rows_of(&exchange(&[(0, false, told)]), "");
        assert!(rows[0].flag("malformed") && !rows[0].flag("cut"), "{:?}", rows[0]);
        assert_eq!(rows[0].text("answers"), "A 198.51.100.7; ...");
    }
}

#[test]
fn messages_cut_by_the_snap_length_have_what_was_captured() {
    let told = answer(1, "a.example", 1, &[record(1, &A), record(1, &A)]);
    let frame = udp(SERVER, CLIENT, &told).ethernet();
    for len in 0..frame.len() {
        let mut capture = exchange(&[(0, true, query(1, "a.example", 1))]);
        capture.push(BEGIN + MILLISECOND, frame.clone());
        capture.frames[1].bytes.truncate(len);
        let rows = rows_of(&capture, "");
        let dns = len.saturating_sub(42);
        let is_row = dns >= 12 + 15;
        assert_eq!((rows.len(), rows[0].flag("answered")), (1, is_row), "{len} bytes");
        if is_row {
            let shown = "A 198.51.100.7; ".repeat((dns - 27) / 16) + "...";
            assert_eq!((rows[0].text("answers"), rows[0].flag("cut")), (shown.as_str(), true));
            assert_eq!(rows[0].number("answer_bytes"), told.len() as i128);
        }
    }
}

/// xorshift64*, for input of tests.
struct Random(u64);

impl Random {
    fn next(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % below
    }
}

#[test]
fn random_and_changed_messages_cause_no_fault_and_no_more_rows_than_messages() {
    let mut random = Random(11);
    let records = [
        record(1, &A),
        record(5, &[1, b'x', 0xC0, 12]),
        record(16, b"\x03abc"),
        record(6, &[0xC0; 40]),
        opt(512, 0, true),
    ];
    let mut capture = Capture::new(ETHERNET);
    for i in 0..30_000u64 {
        let mut bytes = match random.next(3) {
            0 => (0..random.next(80)).map(|_| u8::try_from(random.next(256)).unwrap()).collect(),
            1 => query(1, "www.example.com", 1),
            _ => message(1, ANSWER, &[question("www.example.com", 1)], [&records[..4], &[], &records[4..]]),
        };
        for _ in 0..random.next(4) {
            let at = random.next(bytes.len().max(1) as u64) as usize;
            if let Some(byte) = bytes.get_mut(at) {
                *byte = [0, 0xC0, 0x3F, 12, 0xFF, 1][random.next(6) as usize];
            }
        }
        let is_query = random.next(2) == 0;
        let (from, to) = if is_query { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        capture.push(BEGIN + i * MILLISECOND, udp(from, to, bytes).ethernet());
    }
    let rows = rows_of(&capture, ",timeout=50ms");
    let messages: i128 =
        rows.iter().map(|row| row.number("query_packets") + i128::from(row.flag("answered"))).sum();
    let [rejected, evicted] =
        ["rejected", "evicted"].map(|field| rows.iter().map(|row| row.number(field)).sum::<i128>());
    // An evicted query can have had several packets.
    let known = messages + rejected + evicted;
    assert!(known <= 30_000 && known > 29_500, "{messages}, {rejected} and {evicted}");
    for row in &rows {
        for field in ["name", "answers", "more_questions"] {
            assert!(
                row.is_null(field) || row.text(field).bytes().all(|byte| (b' '..=b'~').contains(&byte)),
                "{row:?}"
            );
        }
    }
}

/// Random transactions, and the rows that they should have.
fn random_traffic(seed: u64, count: u64) -> (Capture, Vec<(String, i128, bool, bool, i128, Option<i128>)>) {
    let mut random = Random(seed);
    let (mut frames, mut expected) = (Vec::new(), Vec::new());
    for i in 0..count {
        // Few flows and identifiers, so that sets are shared; each name is asked for once.
        let client = format!("10.0.0.{}:{}", 1 + random.next(4), 40_000 + random.next(3));
        let id = u16::try_from(random.next(500)).unwrap();
        let text = format!("h{i}.example");
        let begin = i * 2;
        let packets = 1 + random.next(3);
        for packet in 0..packets {
            frames.push((begin + 100 * packet, true, client.clone(), query(id, &text, 1)));
        }
        let last = begin + 100 * (packets - 1);
        let latency = 1 + random.next(90);
        let row = |asked, answered, packets, latency| {
            (text.clone(), i128::from(id), asked, answered, packets, latency)
        };
        match random.next(5) {
            0 => expected.push(row(true, false, packets.into(), None)),
            1 => {
                frames.push((last + 700, false, client, answer(id, &text, 1, &[])));
                expected.push(row(true, false, packets.into(), None));
                expected.push(row(false, true, 0, None));
            }
            _ => {
                frames.push((last + latency, false, client, answer(id, &text, 1, &[])));
                expected.push(row(true, true, packets.into(), Some((last + latency - begin).into())));
            }
        }
    }
    frames.sort_by_key(|frame| frame.0);
    let mut capture = Capture::new(ETHERNET);
    for (ms, is_query, client, payload) in frames {
        let (from, to) = if is_query { (client.as_str(), SERVER) } else { (SERVER, client.as_str()) };
        capture.push(BEGIN + ms * MILLISECOND, udp(from, to, payload).ethernet());
    }
    expected.sort();
    (capture, expected)
}

#[test]
fn rows_of_random_traffic_are_exact_for_any_number_of_instances() {
    for seed in [1, 2, 3] {
        let (capture, expected) = random_traffic(seed, 4_000);
        let found = all_joined(&capture, ",timeout=500ms");
        assert!(found == expected, "seed {seed}: {} rows, {} expected", found.len(), expected.len());
        // Also with evictions: a small table, and a long timeout.
        for parameters in [",timeout=500ms", ",timeout=1m,table-size=1024"] {
            let rows = ["1", "2", "3", "8"].map(|jobs| {
                run(&capture, &["-m", &module(parameters), "--jobs", jobs]).rows("dns", "queries")
            });
            assert!(rows.windows(2).all(|pair| pair[0] == pair[1]), "seed {seed}{parameters}");
        }
    }
}

#[test]
fn a_full_table_loses_queries_and_counts_them() {
    let mut capture = Capture::new(ETHERNET);
    let count = 3_000u16;
    for id in 0..count {
        let asked = query(id, &format!("h{id}.example"), 1);
        capture.push(BEGIN + u64::from(id) * 1000, udp(CLIENT, SERVER, asked).ethernet());
    }
    let rows = rows_of(&capture, ",table-size=1024");
    let evicted: i128 = rows.iter().map(|row| row.number("evicted")).sum();
    assert_eq!(rows.len() as i128 + evicted, count.into());
    assert!(rows.len() <= 1024 && rows.iter().all(|row| !row.flag("answered")));
    // A flow has the sets of its share, here two.
    assert_eq!(rows.len(), 16);
}

/// A TCP connection whose segments have these payloads, true for those from the client; with SYN, and with FIN at the end.
fn connection(segments: &[(bool, Vec<u8>)]) -> Capture {
    let (mut sent, mut capture) = ([101u32, 501], Capture::new(ETHERNET));
    let mut push = |from_client: bool, flags: u8, payload: &[u8], sent: &mut [u32; 2]| {
        let (from, to, own) = if from_client { (CLIENT, SERVER, 0) } else { (SERVER, CLIENT, 1) };
        let packet = Packet::tcp(from, to, flags).numbers(sent[own], sent[1 - own]).payload(payload);
        capture.push(BEGIN + capture.frames.len() as u64 * MILLISECOND, packet.ethernet());
        sent[own] = sent[own].wrapping_add(u32::try_from(payload.len()).unwrap());
    };
    push(true, SYN, &[], &mut [100, 0]);
    push(false, SYN | ACK, &[], &mut [101, 500]);
    push(true, ACK, &[], &mut sent);
    for (from_client, payload) in segments {
        push(*from_client, ACK, payload, &mut sent);
    }
    push(true, FIN | ACK, &[], &mut sent);
    push(false, FIN | ACK, &[], &mut sent);
    capture
}

fn framed(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat()
}

#[test]
fn messages_of_tcp_are_found_however_they_are_split() {
    let asked = framed(&query(3, "tcp.example", 1));
    let told = framed(&answer(3, "tcp.example", 1, &[record(1, &A)]));
    for len in 0..=asked.len() {
        let told_len = told.len() * len / asked.len();
        let capture = connection(&[
            (true, asked[..len].to_vec()),
            (true, asked[len..].to_vec()),
            (false, told[..told_len].to_vec()),
            (false, told[told_len..].to_vec()),
        ]);
        let rows = rows_of(&capture, "");
        assert_eq!(
            (rows.len(), rows[0].text("answers"), rows[0].text("transport")),
            (1, "A 198.51.100.7", "tcp")
        );
        assert_eq!((rows[0].text("name"), rows[0].number("id")), ("tcp.example", 3), "split at {len}");
        assert_eq!((rows[0].end("src"), rows[0].end("dst")), (CLIENT.to_owned(), SERVER.to_owned()));
        assert!(rows[0].text("community_id").starts_with("1:") && rows[0].number("skipped") == 0);
    }
    let bytewise = |bytes: &[u8], from_client| {
        bytes.iter().map(move |byte| (from_client, vec![*byte])).collect::<Vec<_>>()
    };
    let rows = rows_of(&connection(&[bytewise(&asked, true), bytewise(&told, false)].concat()), "");
    assert_eq!((rows.len(), rows[0].flag("answered")), (1, true));
}

#[test]
fn several_messages_of_a_segment_and_long_messages_are_read_up_to_the_limits() {
    let asked: Vec<_> = (0..7).map(|id| framed(&query(id, "a.example", 1))).collect();
    for count in [1, 4, 7] {
        let told = framed(&answer(0, "a.example", 1, &[]));
        let rows = rows_of(
            &connection(&[(true, asked[..count].concat()), (true, asked[6].clone()), (false, told)]),
            "",
        );
        let ids: Vec<_> = rows.iter().map(|row| row.number("id")).collect();
        let skipped: i128 = rows.iter().map(|row| row.number("skipped")).sum();
        // The message behind those that are left out is found.
        assert_eq!((ids.len(), skipped), (count.min(4) + 1, (count - count.min(4)) as i128), "{ids:?}");
        assert!(ids.contains(&6) && rows[0].flag("answered"));
    }
    let many = vec![record(16, &[&[200][..], &[b'x'; 200]].concat()); 60];
    let long = framed(&answer(1, "long.example", 16, &many));
    let whole = rows_of(&connection(&[(false, long.clone())]), "");
    assert_eq!((whole.len(), whole[0].flag("cut"), whole[0].number("answer_count")), (1, false, 60));
    let pieces: Vec<_> = long.chunks(1000).map(|piece| (false, piece.to_vec())).collect();
    let split = rows_of(&connection(&pieces), "");
    assert_eq!((split.len(), split[0].flag("cut")), (1, true));
    assert_eq!(split[0].text("answers"), whole[0].text("answers"));
    assert_eq!(split[0].number("answer_bytes"), long.len() as i128 - 2);
}

#[test]
fn streams_with_gaps_and_streams_that_are_no_dns_have_no_wrong_row() {
    let asked = |id| framed(&query(id, "a.example", 1));
    // A lost segment in the middle of a message: the next message is found by the length.
    let (first, second) = (asked(1), asked(2));
    let mut capture = connection(&[
        (true, first[..10].to_vec()),
        (true, first[10..20].to_vec()),
        (true, [&first[20..], &second].concat()),
    ]);
    capture.frames.remove(4);
    let rows = rows_of(&capture, "");
    assert_eq!((rows.len(), rows[0].number("id"), rows[0].number("skipped")), (1, 2, 1));
    let web = connection(&[
        (true, b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n".repeat(100)),
        (false, vec![b'x'; 30_000]),
    ]);
    assert_eq!(rows_of(&web, ""), []);
}

#[test]
fn tunnelled_messages_are_those_of_the_chosen_layer() {
    let outer = |from: [u8; 4], to: [u8; 4], inner: &[u8]| {
        let length = u16::try_from(20 + inner.len()).unwrap().to_be_bytes();
        let mut header = [&[0x45, 0][..], &length, &[0, 1, 0, 0, 64, 4, 0, 0], &from, &to].concat();
        let sum: u32 = header.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let folded = (sum & 0xFFFF) + (sum >> 16);
        let checksum = !u16::try_from((folded & 0xFFFF) + (folded >> 16)).unwrap();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        [header, inner.to_vec()].concat()
    };
    let (a, b) = ([172, 16, 0, 1], [172, 16, 0, 2]);
    let mut capture = Capture::new(RAW_IP);
    capture.push(BEGIN, outer(a, b, &udp(CLIENT, SERVER, query(1, "a.example", 1)).ip()));
    capture.push(BEGIN + MILLISECOND, outer(b, a, &udp(SERVER, CLIENT, answer(1, "a.example", 1, &[])).ip()));
    let rows = rows_of(&capture, "");
    assert_eq!(
        rows.iter().map(joined).collect::<Vec<_>>(),
        [("a.example".into(), 1, true, true, 1, Some(1))]
    );
    assert_eq!((rows[0].text("tunnel"), rows[0].end("src")), ("ip", CLIENT.to_owned()));
    assert_eq!(rows_of(&capture, ",layer=outer"), []);
}

fn findings(run: &Run) -> Vec<String> {
    run.rows("dns", "findings").iter().map(|row| row.text("text").to_owned()).collect()
}

#[test]
fn recorded_tunnels_and_attacks_are_findings_and_ordinary_traffic_is_none() {
    for (path, text) in [
        (
            "attack/dns-tunnel-iodine.pcap",
            "Suspected DNS tunnel under pirate.sea: 10.0.2.30 asked 10.0.2.20 for 25",
        ),
        (
            "attack/dns-amplification-fragmented.pcap",
            "DNS amplification: 10.10.10.10 gets large answers without queries for pizzaseo.com",
        ),
    ] {
        let Some(path) = trace(path) else { continue };
        let run = run_file(&path, &["-m", &module("")]);
        let found = findings(&run);
        assert!(
            (1..=2).contains(&found.len()) && found.iter().all(|found| found.starts_with(text)),
            "{found:?}"
        );
        // The filter selects the packets of the finding.
        let filter = run.rows("dns", "findings")[0].text("filter").to_owned();
        let selected = run_file(&path, &["-m", &module(""), &filter]);
        assert!(selected.rows("dns", "queries").len() > 100, "{filter}");
    }
    for path in samples() {
        assert_eq!(findings(&run_file(&path, &["-m", &module("")])), [] as [String; 0], "{}", path.display());
    }
}

#[test]
fn failing_servers_tunnels_of_many_flows_and_attacks_are_found_by_a_sample() {
    let mut random = Random(5);
    let mut capture = Capture::new(ETHERNET);
    for i in 0..6_000u64 {
        let (ms, id) = (i * 5, u16::try_from(i).unwrap());
        let client = format!("10.0.0.{}:{}", 1 + random.next(200), 1024 + random.next(60_000));
        let mut push = |ms: u64, packet: Packet| capture.push(BEGIN + ms * MILLISECOND, packet.ethernet());
        // A healthy server, one that fails, one that is silent, one that is slow; and each in its turn asks for a long name.
        let failing = ["192.0.2.1:53", "192.0.2.2:53", "192.0.2.3:53", "192.0.2.4:53"];
        for (server, code, latency) in [(0, 0, Some(3)), (1, 2, Some(4)), (2, 0, None), (3, 0, Some(1500))] {
            let text = if server == 0 {
                format!("{:040x}.t.example.org", i * 7919)
            } else {
                format!("h{i}.example.com")
            };
            push(ms, udp(&client, failing[server], query(id, &text, 1)));
            if let Some(latency) = latency {
                let told = message(id, ANSWER | code, &[question(&text, 1)], [&[], &[], &[]]);
                push(ms + latency, udp(failing[server], &client, told));
            }
        }
        // Large answers to one host, from many servers.
        let reflector = format!("203.0.{}.{}:53", i / 250, 1 + i % 250);
        let large = record(16, &[&[255][..], &[b'x'; 255], &[255], &[b'x'; 255]].concat());
        push(ms, udp(&reflector, "10.9.9.9:4444", answer(1, "big.example", 16, &[large])));
    }
    capture.frames.sort_by_key(|frame| frame.ts);
    let run = run(&capture, &["-m", &module("")]);
    let mut found = findings(&run);
    found.sort();
    assert_eq!(found.len(), 5, "{found:?}");
    for (found, begin) in found.iter().zip([
        "DNS amplification: 10.9.9.9 gets large answers without queries for big.example from 203.0.",
        "DNS server 192.0.2.2 fails: SERVFAIL or no answer for 16 of 16",
        "DNS server 192.0.2.3 fails: SERVFAIL or no answer for 16 of 16",
        "DNS server 192.0.2.4 is slow: late answers to 16 of 16",
        "Suspected DNS tunnel under example.org: 10.0.0.",
    ]) {
        assert!(found.starts_with(begin), "{found}");
    }
    let off = super::weir::run(&capture, &["-m", &module(",failing=0,tunnel-names=0,reflected=0")]);
    assert_eq!(findings(&off), [] as [String; 0]);
}

#[test]
fn the_module_is_proved_with_its_defaults_and_with_the_largest_parameters() {
    for parameters in ["", ",table-size=524288,streams=65536,tunnel-names=100"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg(module(parameters)).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains("Tier: proved"), "{said}");
    }
}
