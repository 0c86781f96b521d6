//! Each entry has exactly one line, and each line exactly one entry.

use crate::ledger::make::{
    any_usage, encode_line, events, idle, joined, ledger, name, reserved, session, verify,
};
use proptest::prelude::*;
use weir_admission::Name;
use weir_ledger::{
    ByteSeconds, CredentialHolder, Digest, IDLE_MAX, Idle, LINE_BYTES_MAX, LedgerEntry, LedgerEvent,
    LedgerLineError, LedgerText, RESERVED_MAX, Reserved, ReservedLink, ReservedProcessor, SessionId,
    VerifyOptions, parse_line,
};
use weir_units::{BitsPerSecond, Bytes, Nanos, Timestamp};

fn entry(event: LedgerEvent) -> LedgerEntry {
    let at = Timestamp(1_795_263_005_000_000_000);
    LedgerEntry { sequence: 7, node: name("edge-1"), begin: at, end: Timestamp(at.0 + 1_000_000_000), event }
}

fn content(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap()
}

#[test]
fn a_line_is_what_the_documentation_says() {
    let usage = events().swap_remove(3);
    let encoded = encode_line(&entry(usage), Digest::NONE);
    let text = String::from_utf8(encoded.line).unwrap();
    let (content, end) = text.split_once(",\"hash\":").unwrap();
    assert_eq!(
        content,
        "{\"seq\":7,\"node\":\"edge-1\",\"begin\":\"2026-11-21T12:10:05.000000000Z\",\"end\":\"2026-11-21T12:10:06.000000000Z\",\
         \"kind\":\"usage\",\"session\":{\"name\":\"alice\",\"id\":1},\"usage\":{\"cpu_ns\":123456789,\"packets_in\":1000,\
         \"bytes_in\":64000,\"memory_byte_s\":16777216,\"memory_byte_ns\":16777216,\"records_emitted\":12,\"records_written\":10,\
         \"drops\":{\"queue-full\":7,\"disk-full\":2}},\
         \"prev\":\"0000000000000000000000000000000000000000000000000000000000000000\""
    );
    assert_eq!(end, format!("\"{}\"}}\n", Digest::of_bytes(content.as_bytes())));
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&read["usage"]["drops"]["disk-full"], &read["seq"]), (&2.into(), &7.into()));
}

#[test]
fn idle_sessions_share_a_line_in_which_each_takes_little_more_than_its_name() {
    let entry = entry(LedgerEvent::Idle { idle: idle(&[(3, 16), (1, 1), (2, 16)]) });
    let encoded = encode_line(&entry, Digest::NONE);
    let text = String::from_utf8(encoded.line).unwrap();
    let (content, _) = text.split_once(",\"prev\":").unwrap();
    assert_eq!(
        content,
        "{\"seq\":7,\"node\":\"edge-1\",\"begin\":\"2026-11-21T12:10:05.000000000Z\",\"end\":\"2026-11-21T12:10:06.000000000Z\",\
         \"kind\":\"idle\",\"idle\":[{\"memory_byte_s\":1048576,\"memory_byte_ns\":1048576,\"sessions\":[[\"alice\",1]]},\
         {\"memory_byte_s\":16777216,\"memory_byte_ns\":16777216,\"sessions\":[[\"alice\",2],[\"alice\",3]]}]"
    );
    assert_eq!(parse_line(text.trim_end().as_bytes()).unwrap().entry, entry);
}

#[test]
fn a_thousand_idle_sessions_take_some_15_kb() {
    let memory = ByteSeconds::held_for(Bytes(1 << 20), Nanos(1_000_000_001));
    let session = |id| (SessionId { name: name(&format!("s{id}")), id }, memory);
    let idle = Idle::entries((0..1_000).map(session));
    let lines =
        idle.into_iter().map(|idle| encode_line(&entry(LedgerEvent::Idle { idle }), Digest::NONE).line.len());
    let all: usize = lines.sum();
    assert!((12_000..15_000).contains(&all), "{all}");
}

#[test]
fn a_ledger_of_the_first_format_is_read_as_it_was() {
    let text = include_bytes!("format-1.jsonl");
    let (verified, entries) = verify(&[text.to_vec()], VerifyOptions::default());
    let verified = verified.unwrap();
    assert_eq!((verified.entries, verified.stopped), (5, true));
    let expected = [
        LedgerEvent::Segment { format: 1, segment: 1 },
        LedgerEvent::NodeStart {
            version: LedgerText::new("0.1.0"),
            configuration: Digest::of_bytes(b"toml"),
        },
        LedgerEvent::SessionCreated { session: session(1), reserved: reserved(), holder: None },
        events().swap_remove(3),
        LedgerEvent::NodeStop,
    ];
    assert_eq!(entries.into_iter().map(|entry| entry.event).collect::<Vec<_>>(), expected);
}

#[test]
fn every_kind_of_entry_is_read_as_it_was_written() {
    let expected: Vec<LedgerEvent> = (0..2).flat_map(|_| events()).collect();
    let (verified, entries) = verify(&joined(&ledger()), VerifyOptions::default());
    let verified = verified.unwrap();
    assert_eq!((verified.first, verified.entries, verified.segments), (1, 50, 2));
    assert_eq!((verified.recoveries, verified.stopped, verified.torn), (2, true, None));
    let is_segment = |entry: &LedgerEntry| matches!(entry.event, LedgerEvent::Segment { .. });
    let read: Vec<LedgerEvent> =
        entries.into_iter().filter(|entry| !is_segment(entry)).map(|entry| entry.event).collect();
    assert_eq!(read, expected);
}

#[test]
fn another_rate_of_a_link_is_a_line_like_this_and_its_numbers_are_what_they_can_be() {
    let event = LedgerEvent::LinkChanged {
        link: LedgerText::new("eth1"),
        rate: BitsPerSecond(50_000_000),
        reservable: 80,
    };
    assert_eq!(event.session(), None);
    let encoded = encode_line(&entry(event.clone()), Digest::NONE);
    let text = String::from_utf8(encoded.line.clone()).unwrap();
    let says =
        r#""kind":"link-changed","link":"eth1","rate_bits_per_s":50000000,"reservable_percent":80,"prev""#;
    assert!(text.contains(says), "{text}");
    assert_eq!(parse_line(content(&encoded.line)).unwrap().entry.event, event);
    let (original, _) = text.split_once(",\"hash\":").unwrap();
    for (from, to) in [("50000000", "-1"), ("50000000", "5e7"), (":80", ":256"), ("eth1", "eth1\\n")] {
        let changed = original.replacen(from, to, 1);
        let line = format!("{changed},\"hash\":\"{}\"}}", Digest::of_bytes(changed.as_bytes()));
        assert_eq!(parse_line(line.as_bytes()), Err(LedgerLineError::Foreign), "{to}");
    }
}

#[test]
fn the_longest_entry_is_a_line() {
    let long = Name::new(&"x".repeat(Name::MAX)).unwrap();
    let text = LedgerText::new(&"\"".repeat(1_000));
    let processor =
        ReservedProcessor { core: u32::MAX, period: Nanos(u64::MAX), slice: Nanos(u64::MAX), spare: false };
    let link = ReservedLink {
        channel: long.clone(),
        interface: text.clone(),
        period: Nanos(u64::MAX),
        limit: Bytes(u64::MAX),
        capped: false,
    };
    let too_many = Reserved::new(vec![processor; RESERVED_MAX + 1], Bytes(0), vec![]);
    assert!(too_many.unwrap_err().to_string().contains("at most 64"));
    let reserved =
        Reserved::new(vec![processor; RESERVED_MAX], Bytes(u64::MAX), vec![link; RESERVED_MAX]).unwrap();
    let id = LedgerText::new(&"x".repeat(40));
    let holder = CredentialHolder { called: long.clone(), key: text, credentials: vec![id; 8] };
    let holder = Some(Box::new(holder));
    let event = LedgerEvent::SessionCreated {
        session: SessionId { name: long.clone(), id: u64::MAX },
        reserved,
        holder,
    };
    let entry = LedgerEntry {
        sequence: u64::MAX,
        node: long,
        begin: Timestamp(u64::MAX),
        end: Timestamp(u64::MAX),
        event,
    };
    let encoded = encode_line(&entry, Digest([0xff; 32]));
    assert!((40_000..LINE_BYTES_MAX).contains(&encoded.line.len()), "{}", encoded.line.len());
    assert_eq!(parse_line(content(&encoded.line)).unwrap().entry, entry);

    // No two of them have the same memory.
    let session = |_| SessionId { name: entry.node.clone(), id: u64::MAX };
    let memory = |less: usize| ByteSeconds::held_for(Bytes(u64::MAX - less as u64), Nanos(999_999_999));
    let idle = Idle::entries((0..IDLE_MAX).map(|n| (session(n), memory(n)))).pop().unwrap();
    assert_eq!(idle.count(), IDLE_MAX);
    let entry = LedgerEntry { event: LedgerEvent::Idle { idle }, ..entry };
    let encoded = encode_line(&entry, Digest([0xff; 32]));
    assert!((55_000..LINE_BYTES_MAX).contains(&encoded.line.len()), "{}", encoded.line.len());
    assert_eq!(parse_line(content(&encoded.line)).unwrap().entry, entry);
}

#[test]
fn a_line_that_weir_would_not_write_is_refused_though_its_hash_is_right() {
    let event = LedgerEvent::SessionCreated { session: session(1), reserved: reserved(), holder: None };
    let encoded = encode_line(&entry(event), Digest::NONE);
    let text = String::from_utf8(encoded.line).unwrap();
    let (original, _) = text.split_once(",\"hash\":").unwrap();
    let rehashed =
        |content: &str| format!("{content},\"hash\":\"{}\"}}", Digest::of_bytes(content.as_bytes()));
    assert!(parse_line(rehashed(original).as_bytes()).is_ok());
    for (from, to) in [
        ("{\"seq\":7,", "{ \"seq\":7,"),
        ("{\"seq\":7,", "{\"seq\":7,\"extra\":1,"),
        ("{\"seq\":7,", "{\"seq\":7,\"seq\":7,"),
        ("{\"seq\":7,", "{\"seq\":7.0,"),
        ("{\"seq\":7,", "{\"seq\":-7,"),
        ("{\"seq\":7,", "{"),
        ("\"id\":1", "\"id\":01"),
        ("\"id\":1", "\"id\":1e0"),
        ("\"alice\"", "\"al\\u0069ce\""),
        ("\"alice\"", "\"Alice\""),
        ("session-created", "session-forged"),
        (".000000000Z", "Z"),
        ("12:10:06", "12:10:04"),
        ("\"prev\":\"0", "\"prev\":\"G"),
        ("\"processors\"", "\"links\""),
    ] {
        let changed = original.replacen(from, to, 1);
        assert_ne!(changed, original, "{from}");
        assert_eq!(parse_line(rehashed(&changed).as_bytes()), Err(LedgerLineError::Foreign), "{to}");
    }
    assert_eq!(parse_line(original.as_bytes()), Err(LedgerLineError::NoHash));

    let encoded =
        encode_line(&entry(LedgerEvent::Idle { idle: idle(&[(1, 1), (2, 16), (3, 16)]) }), Digest::NONE);
    let text = String::from_utf8(encoded.line).unwrap();
    let (original, _) = text.split_once(",\"hash\":").unwrap();
    for (from, to) in [
        ("[\"alice\",2],[\"alice\",3]", "[\"alice\",3],[\"alice\",2]"),
        (
            "[\"alice\",2],[\"alice\",3]",
            "[\"alice\",2]]},{\"memory_byte_s\":16777216,\"memory_byte_ns\":16777216,\"sessions\":[[\"alice\",3]",
        ),
        ("[\"alice\",2],[\"alice\",3]", ""),
        ("[\"alice\",2]", "[\"alice\",2,0]"),
        ("[\"alice\",2]", "{\"name\":\"alice\",\"id\":2}"),
        ("[\"alice\",2]", "[\"Alice\",2]"),
        ("1048576,", "1048576,\"cpu_ns\":1,"),
        ("\"memory_byte_s\":1048576", "\"memory_byte_s\":16777217"),
        ("\"memory_byte_ns\":1048576", "\"memory_byte_ns\":1000000000"),
        (
            "\"memory_byte_s\":1048576,\"memory_byte_ns\":1048576",
            "\"memory_byte_ns\":1048576,\"memory_byte_s\":1048576",
        ),
    ] {
        let changed = original.replacen(from, to, 1);
        assert_ne!(changed, original, "{from}");
        assert_eq!(parse_line(rehashed(&changed).as_bytes()), Err(LedgerLineError::Foreign), "{to}");
    }
}

proptest! {
    #[test]
    fn any_usage_is_read_as_it_was_written(usage in any_usage(), intervals in 1..u64::MAX, at in any::<u64>()) {
        let event = LedgerEvent::Usage { session: session(at), intervals, usage: Box::new(usage) };
        let entry = LedgerEntry { sequence: at, node: name("n"), begin: Timestamp(0), end: Timestamp(at), event };
        let encoded = encode_line(&entry, Digest::of_bytes(b"before"));
        let line = parse_line(content(&encoded.line)).unwrap();
        prop_assert_eq!((line.entry, line.prev, line.hash), (entry, Digest::of_bytes(b"before"), encoded.hash));
    }

    #[test]
    fn any_idle_sessions_are_read_as_they_were_written(sessions in proptest::collection::vec((0..9u64, any::<u64>()), 1..50)) {
        let of = |(id, memory)| (session(id), ByteSeconds::held_for(Bytes(memory), Nanos(memory)));
        let idle = Idle::entries(sessions.iter().copied().map(of)).pop().unwrap();
        let mut kept: Vec<_> = idle.iter().map(|(session, memory)| (session.clone(), memory)).collect();
        let mut given: Vec<_> = sessions.iter().copied().map(of).collect();
        kept.sort();
        given.sort();
        prop_assert_eq!(kept, given);
        let entry = entry(LedgerEvent::Idle { idle });
        let encoded = encode_line(&entry, Digest::of_bytes(b"before"));
        let line = parse_line(content(&encoded.line)).unwrap();
        prop_assert_eq!((line.entry, line.prev, line.hash), (entry, Digest::of_bytes(b"before"), encoded.hash));
    }

    #[test]
    fn no_bytes_make_a_reader_panic(segments in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..4)) {
        let (verdict, entries) = verify(&segments, VerifyOptions::default());
        prop_assert!(entries.is_empty());
        let whole = segments.iter().all(Vec::is_empty) || verdict.is_err() || verdict.unwrap().torn.is_some();
        prop_assert!(whole);
    }

    #[test]
    fn no_json_with_a_right_hash_makes_a_reader_panic(json in any_json(), text in "\\PC{0,40}") {
        for content in [format!("{{\"seq\":1,{json}"), json, text] {
            let line = format!("{content},\"hash\":\"{}\"}}", Digest::of_bytes(content.as_bytes()));
            prop_assert_eq!(parse_line(line.as_bytes()), Err(LedgerLineError::Foreign));
        }
    }
}

/// Fields of entries with values of other fields.
fn any_json() -> impl Strategy<Value = String> {
    let keys: &'static [&'static str] = &[
        "seq",
        "node",
        "begin",
        "end",
        "kind",
        "session",
        "usage",
        "drops",
        "cpu_ns",
        "prev",
        "memory_byte_s",
        "idle",
        "sessions",
    ];
    let leaf = prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        any::<f64>().prop_map(|n| n.to_string()),
        Just("null".to_owned()),
        Just("\"usage\"".to_owned()),
        Just("\"idle\"".to_owned()),
        Just("[\"alice\",1]".to_owned()),
        Just("\"2026-11-21T12:10:05.000000000Z\"".to_owned()),
        Just("99999999999999999999999".to_owned()),
    ];
    let value = leaf.prop_recursive(3, 20, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(|items| format!("[{}]", items.join(","))),
            proptest::collection::vec((proptest::sample::select(keys), inner), 0..4).prop_map(|fields| {
                let fields: Vec<_> = fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                format!("{{{}}}", fields.join(","))
            }),
        ]
    });
    proptest::collection::vec((proptest::sample::select(keys), value), 0..8).prop_map(|fields| {
        fields.iter().map(|(key, value)| format!("\"{key}\":{value}")).collect::<Vec<_>>().join(",")
    })
}
