//! Logs of Zeek.

use super::rows::{FLOW, Given, NOW, REQUEST, flow, hostile_texts, request, row, stream};
use proptest::prelude::*;
use weir_exports::{RowKind, ZeekLog};

fn lines(text: &[u8]) -> Vec<Vec<String>> {
    let text = std::str::from_utf8(text).unwrap();
    assert!(text.ends_with('\n'));
    text.split_terminator('\n').map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

/// Returns the values of one row by the names of their columns.
fn values(stream: &weir_admission::DeclaredStream, given: &[Given<'_>]) -> Vec<(String, String)> {
    let log = ZeekLog::new("x", "m", stream);
    let mut out = Vec::new();
    log.push_header(&mut out, NOW);
    log.push(&mut out, &row(stream, given).record());
    let lines = lines(&out);
    let (names, types, row) = (&lines[6], &lines[7], &lines[8]);
    assert_eq!((names[0].as_str(), types[0].as_str()), ("#fields", "#types"));
    assert_eq!((lines.len(), names.len(), types.len()), (9, row.len() + 1, row.len() + 1));
    names[1..].iter().cloned().zip(row.iter().cloned()).collect()
}

fn value(values: &[(String, String)], name: &str) -> String {
    let found: Vec<&str> =
        values.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str()).collect();
    assert_eq!(found.len(), 1, "{name}: {values:?}");
    found[0].to_owned()
}

#[test]
fn a_flow_is_a_row_of_conn_log() {
    let stream = stream("flows", FLOW);
    assert_eq!(RowKind::of(&stream).zeek_log(), Some("conn"));
    let log = ZeekLog::new("conn", "m", &stream);
    let mut out = Vec::new();
    log.push_header(&mut out, NOW);
    let tcp = flow(
        6,
        ["192.0.2.1", "2001:db8::1"],
        [Given::Number(40_000), Given::Number(443)],
        Given::Text(b"SF"),
    );
    log.push(&mut out, &row(&stream, &tcp).record());
    log.push_footer(&mut out, NOW);
    let uid = value(&values(&stream, &tcp), "uid");
    assert_eq!((uid.len(), uid.as_bytes()[0]), (17, b'C'));
    let expected = format!(
        "#separator \\x09
#set_separator\t,
#empty_field\t(empty)
#unset_field\t-
#path\tconn
#open\t2026-11-28-03-06-46
#fields\tts\tuid\tid.orig_h\tid.orig_p\tid.resp_h\tid.resp_p\tproto\tservice\tduration\torig_bytes\tresp_bytes\tconn_state\t\
local_orig\tlocal_resp\tmissed_bytes\thistory\torig_pkts\torig_ip_bytes\tresp_pkts\tresp_ip_bytes\ttunnel_parents\tip_proto\t\
vlan\ttime\tretransmitted\treason
#types\ttime\tstring\taddr\tport\taddr\tport\tenum\tstring\tinterval\tcount\tcount\tstring\tbool\tbool\tcount\tstring\tcount\t\
count\tcount\tcount\tset[string]\tcount\tint\ttime\tcount\tstring
1700000000.123456\t{uid}\t192.0.2.1\t40000\t2001:db8::1\t443\ttcp\t-\t2.500000\t-\t-\tSF\t-\t-\t-\t-\t7\t700\t5\t5000000000\t-\t6\t\
-\t1700000002.623456\t-\tend
#close\t2026-11-28-03-06-46
"
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn the_state_of_a_flow_without_tcp_follows_from_its_packets() {
    let stream = stream("flows", FLOW);
    let state = |protocol: u64, sent: u64, received: u64, given: Given<'static>| {
        let mut flow = flow(protocol, ["192.0.2.1", "192.0.2.2"], [Given::Null, Given::Null], given);
        (flow[9], flow[11]) = (Given::Number(sent), Given::Number(received));
        let values = values(&stream, &flow);
        assert_eq!(value(&values, "id.orig_p"), "0");
        (value(&values, "proto"), value(&values, "conn_state"))
    };
    let is = |proto: &str, state: &str| (proto.to_owned(), state.to_owned());
    assert_eq!(state(17, 1, 1, Given::Null), is("udp", "SF"));
    assert_eq!(state(17, 1, 0, Given::Null), is("udp", "S0"));
    assert_eq!(state(17, 0, 1, Given::Null), is("udp", "SHR"));
    assert_eq!(state(1, 1, 1, Given::Null), is("icmp", "OTH"));
    assert_eq!(state(58, 1, 1, Given::Null), is("icmp", "OTH"));
    assert_eq!(state(132, 1, 1, Given::Null), is("unknown_transport", "OTH"));
    assert_eq!(state(6, 1, 1, Given::Null), is("tcp", "-"));
    assert_eq!(state(6, 1, 1, Given::Text(b"RSTO")), is("tcp", "RSTO"));
}

#[test]
fn a_dns_query_has_numbers_names_and_a_vector_of_answers() {
    let stream = stream(
        "queries",
        "at timestamp time
        src ip source.ip
        dst ip destination.ip
        over string network.transport
        name string dns.question.name ?
        more string dns.question.name ?
        type string dns.question.type ?
        code string dns.response_code ?
        took duration latency ?
        answers string dns.answers ?
        bytes u32 source.bytes",
    );
    use Given::{Ip, Null, Number, Text};
    let mut given = vec![
        Number(1_000_000_000),
        Ip("2001:db8::2"),
        Ip("2001:db8::1"),
        Text(b"udp"),
        Text(b"www.example"),
        Null,
        Text(b"HTTPS"),
        Text(b"NXDOMAIN"),
        Number(1_234_567),
        Text(b"CNAME a,b.example; A 192.0.2.1"),
        Number(44),
    ];
    let found = values(&stream, &given);
    let get = |name: &str| value(&found, name);
    assert_eq!([get("proto"), get("query"), get("rtt")], ["udp", "www.example", "0.001234"]);
    assert_eq!(
        [get("qtype"), get("qtype_name"), get("rcode"), get("rcode_name")],
        ["65", "HTTPS", "3", "NXDOMAIN"]
    );
    assert_eq!([get("answers"), get("more"), get("bytes")], [r"a\x2cb.example,192.0.2.1", "-", "44"]);
    (given[6], given[7], given[9]) = (Text(b"?"), Null, Null);
    let found = values(&stream, &given);
    let get = |name: &str| value(&found, name);
    assert_eq!([get("qtype"), get("qtype_name"), get("rcode"), get("answers")], ["-", "?", "-", "-"]);
}

#[test]
fn a_stream_that_zeek_does_not_know_keeps_all_its_fields() {
    let stream = stream(
        "top",
        "time timestamp time
        host ip source.ip
        other ip source.ip
        uid u32 rank
        protocol u8 network.iana_number
        share f64 statistic
        small f32 statistic
        raw bytes -
        delta i64 statistic
        on bool flag",
    );
    assert_eq!(RowKind::of(&stream), RowKind::Other);
    use Given::{Ip, Number, Text};
    let given = [
        Number(0),
        Ip("192.0.2.1"),
        Ip("192.0.2.2"),
        Number(3),
        Number(47),
        Number(0.25f64.to_bits()),
        Number(f32::NAN.to_bits().into()),
        Text(b"\x00\xff"),
        Number((-5i64).cast_unsigned()),
        Number(1),
    ];
    let found = values(&stream, &given);
    let expected = [
        ("ts", "0.000000"),
        ("id.orig_h", "192.0.2.1"),
        ("other", "192.0.2.2"),
        ("uid", "3"),
        ("proto", "unknown_transport"),
        ("ip_proto", "47"),
        ("share", "0.25"),
        ("small", "-"),
        ("raw", "00ff"),
        ("delta", "-5"),
        ("on", "T"),
    ];
    assert_eq!(found, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
}

/// Reads a text as Zeek's reader does.
fn unescaped(text: &str) -> Vec<u8> {
    match text {
        "-" => panic!("the text is unset"),
        "(empty)" => return Vec::new(),
        _ => {}
    }
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'\\')) => {
                out.push(b'\\');
                at += 2;
            }
            (b'\\', Some(b'x')) => {
                out.push(u8::from_str_radix(&text[at + 2..at + 4], 16).unwrap());
                at += 4;
            }
            (b'\\', _) => panic!("an escape that Zeek does not know: {text}"),
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

fn check_text(text: &[u8]) {
    let stream = stream("requests", REQUEST);
    let log = ZeekLog::new("http", "m", &stream);
    let mut out = Vec::new();
    log.push(&mut out, &row(&stream, &request(text, b"host", text)).record());
    let line = std::str::from_utf8(&out).unwrap().strip_suffix('\n').unwrap();
    assert!(line.chars().all(|c| c == '\t' || weir_units::is_plain(c)), "{line:?}");
    let found = values(&stream, &request(text, b"host", text));
    for name in ["method", "note"] {
        assert_eq!(unescaped(&value(&found, name)), text, "{name}");
    }
    assert_eq!(value(&found, "host"), "host");
}

#[test]
fn hostile_texts_stay_in_their_column_and_are_not_lost() {
    hostile_texts().iter().for_each(|text| check_text(text));
}

proptest! {
    #[test]
    fn any_text_is_read_back_as_it_was(text in prop::collection::vec(any::<u8>(), 0..40)) {
        check_text(&text);
    }
}
