//! The module `tls` on generated connections and on real captures.

#![allow(clippy::type_complexity, reason = "tables of cases")]

mod captures;
mod messages;
mod table;

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, RAW_IP, SECOND, repository};
use super::weir::{Row, Run, run};
use messages::{
    APPLICATION_DATA, ClientHello, Connection, HANDSHAKE, RETRY, alert, alpn, attribute, captures,
    certificate, chain, change_cipher_spec, chosen_version, common_name, encrypted, finished, message, name,
    record, records, server_flight, server_hello, server_hello_of, signature_algorithms, supported_versions,
    v2_hello,
};

const CLIENT: &str = "10.0.0.1:40000";
const SERVER: &str = "192.0.2.7:8443";
/// The fingerprint that FoxIO's specification gives for its example.
const EXAMPLE_JA4: &str = "t13d1516h2_8daaf6152771_e5627efa2ab1";
const VALID: [&str; 2] = ["230101000000Z", "20491231235959Z"];

/// The module by its path, with parameters such as ",streams=256".
fn module(parameters: &str) -> String {
    format!("{}{parameters}", repository().join("guest/modules/tls/tls.wasm").display())
}

fn run_tls(capture: &Capture) -> Run {
    run(capture, &["-m", &module("")])
}

fn rows(connection: &Connection) -> Vec<Row> {
    run_tls(&connection.capture()).rows("tls", "handshakes")
}

/// The only row of a connection.
fn row(connection: &Connection) -> Row {
    let rows = rows(connection);
    assert_eq!(rows.len(), 1, "{rows:?}");
    rows.into_iter().next().unwrap()
}

/// The text of an optional field; "-" for null.
fn text<'a>(row: &'a Row, field: &str) -> &'a str {
    if row.is_null(field) { "-" } else { row.text(field) }
}

fn resumed(row: &Row) -> Option<bool> {
    (!row.is_null("resumed")).then(|| row.flag("resumed"))
}

fn findings(run: &Run) -> Vec<(i128, String)> {
    let finding = |row: &Row| (row.number("severity"), row.text("text").to_owned());
    run.rows("tls", "findings").iter().map(finding).collect()
}

/// The fields that do not depend on how the bytes were divided into segments.
fn content(row: &Row) -> Vec<String> {
    const TEXTS: [&str; 14] = [
        "offered_version",
        "version",
        "cipher",
        "server_name",
        "alpn_offered",
        "alpn",
        "ja4",
        "resumed_by",
        "subject",
        "issuer",
        "alert",
        "alert_from",
        "end",
        "tunnel",
    ];
    let mut fields: Vec<String> = TEXTS.iter().map(|field| text(row, field).to_owned()).collect();
    fields.push(format!("{:?}", resumed(row)));
    fields.extend(
        ["not_before_time", "not_after_time"].map(|field| format!("{:?}", row.optional_number(field))),
    );
    fields.extend(["complete", "retried"].map(|field| row.flag(field).to_string()));
    fields
}

fn leaf() -> Vec<u8> {
    certificate(&common_name("Test CA"), &common_name("www.example.com"), VALID, 294)
}

/// A complete handshake of TLS 1.2, with records of at most `most` bytes and segments of `segment`.
fn tls12(most: usize, segment: usize) -> Connection {
    Connection::open(CLIENT, SERVER)
        .segments(segment)
        .client(records(&ClientHello::example().message(), most))
        .server(records(&server_flight(&leaf()), most))
        .client([records(&message(16, &[0xEE; 66]), most), finished()].concat())
        .server(finished())
        .client(record(APPLICATION_DATA, &[1; 500]))
        .close()
}

/// A complete handshake of TLS 1.3.
fn tls13(hello: &ClientHello, answer: &[(u16, Vec<u8>)]) -> Connection {
    Connection::open(CLIENT, SERVER)
        .client(hello.record())
        .server(
            [record(HANDSHAKE, &server_hello(&hello.session, 0x1301, answer)), change_cipher_spec()].concat(),
        )
        .server(encrypted(2000))
        .client([change_cipher_spec(), encrypted(53)].concat())
}

#[test]
fn a_row_has_both_hellos_and_the_certificate() {
    let row = row(&tls12(16384, 1400));
    assert_eq!(row.end("src"), CLIENT);
    assert_eq!(row.end("dst"), SERVER);
    assert_eq!(row.number("time"), i128::from(BEGIN + 3 * MILLISECOND));
    assert_eq!(row.number("latency_ns"), i128::from(MILLISECOND));
    for (field, expected) in [
        ("offered_version", "TLS 1.3"),
        ("version", "TLS 1.2"),
        ("cipher", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"),
        ("server_name", "www.example.com"),
        ("alpn_offered", "h2,http/1.1"),
        ("alpn", "h2"),
        ("ja4", EXAMPLE_JA4),
        ("subject", "CN=www.example.com"),
        ("issuer", "CN=Test CA"),
        ("end", "complete"),
        ("alert", "-"),
        ("alert_level", "-"),
        ("resumed_by", "-"),
        ("tunnel", ""),
    ] {
        assert_eq!(text(&row, field), expected, "{field}");
    }
    assert_eq!(row.number("not_before_time"), 1_672_531_200 * i128::from(SECOND));
    assert_eq!(row.number("not_after_time"), 2_524_607_999 * i128::from(SECOND));
    assert_eq!(resumed(&row), Some(false));
    assert!(row.flag("complete") && !row.flag("retried") && !row.flag("self_issued") && row.is_null("vlan"));
    // Computed with the reference implementation of Community ID.
    assert_eq!(text(&row, "community_id").len(), 30);
}

#[test]
fn rows_do_not_depend_on_where_segments_records_and_messages_are_split() {
    let expected = content(&row(&tls12(16384, 1400)));
    for (most, segment) in
        [(1, 1), (1, 1400), (2, 7), (3, 1), (5, 11), (9, 64), (37, 5), (100, 100), (16384, 1), (16384, 3)]
    {
        assert_eq!(
            content(&row(&tls12(most, segment))),
            expected,
            "records of {most} bytes, segments of {segment}"
        );
    }
}

#[test]
fn rows_do_not_depend_on_the_order_of_segments() {
    let expected = content(&row(&tls12(16384, 100)));
    let mut connection = tls12(16384, 100);
    let times: Vec<u64> = connection.packets.iter().map(|packet| packet.0).collect();
    // Pairs of segments after the handshake of TCP change places.
    connection.packets[3..].chunks_mut(2).for_each(|pair| pair.reverse());
    for (packet, time) in connection.packets.iter_mut().zip(times) {
        packet.0 = time;
    }
    assert_eq!(content(&row(&connection)), expected);
}

/// The fingerprint of a ClientHello.
fn ja4(hello: &ClientHello) -> String {
    text(&row(&Connection::open(CLIENT, SERVER).client(hello.record())), "ja4").to_owned()
}

#[test]
fn the_examples_of_the_specification_of_ja4_have_their_fingerprints() {
    let example = ClientHello::example();
    assert_eq!(ja4(&example), EXAMPLE_JA4);
    assert_eq!(ja4(&example.clone().with(signature_algorithms(&[]))), "t13d1516h2_8daaf6152771_6d807ffa2a79");
    // The values of ALPN in the specification's section on it; and those of IANA.
    for (value, shown) in [
        (&b"http/1.1"[..], "h1"),
        (b"h", "hh"),
        (&[0xAB], "ab"),
        (&[0x20], "20"),
        (&[0xAB, 0xCD], "ad"),
        (&[0x20, 0x61], "21"),
        (&[0x30, 0xAB], "3b"),
        (&[0x61, 0x20], "60"),
        (&[0x30, 0x31, 0xAB, 0xCD], "3d"),
        (&[0x30, 0xAB, 0xCD, 0x31], "01"),
    ] {
        let expected = EXAMPLE_JA4.replace("h2", shown);
        assert_eq!(ja4(&example.clone().with(alpn(&[value, b"x"]))), expected, "{value:X?}");
    }
    // An empty list of protocols is an extension, but no value.
    assert_eq!(ja4(&example.clone().with((16, vec![0, 0]))), EXAMPLE_JA4.replace("h2", "00"));
    // Server name and ALPN change the first part only.
    assert_eq!(ja4(&example.clone().without(&[0, 16])), EXAMPLE_JA4.replace("d1516h2", "i151400"));
}

#[test]
fn ja4_has_the_highest_offered_version() {
    let example = ClientHello::example();
    for (versions, shown, offered) in [
        (&[0x0304_u16][..], "t13", "TLS 1.3"),
        (&[0x0302, 0x0303, 0x2A2A], "t12", "TLS 1.2"),
        (&[0x0302], "t11", "TLS 1.1"),
        (&[0x0301], "t10", "TLS 1.0"),
        (&[0x0300], "ts3", "SSL 3.0"),
        (&[0x7F1C, 0x0303], "t00", "TLS 1.3 draft 28"),
    ] {
        let row = row(&Connection::open(CLIENT, SERVER)
            .client(example.clone().with(supported_versions(versions)).record()));
        assert_eq!(&text(&row, "ja4")[..3], shown);
        assert_eq!(text(&row, "offered_version"), offered);
    }
    // Without the extension, the version of the ClientHello counts.
    let old = ClientHello { version: 0x0301, ..example.without(&[43]) };
    let shown = ja4(&old);
    assert!(shown.starts_with("t10d1515h2_8daaf6152771_"), "{shown}");
}

#[test]
fn ja4_counts_to_99_and_needs_no_extensions() {
    let many = ClientHello { ciphers: (1..=256).collect(), ..ClientHello::example() };
    assert!(ja4(&many).starts_with("t13d9916h2_"), "{}", ja4(&many));
    let too_many = ClientHello { ciphers: (1..=257).collect(), ..ClientHello::example() };
    assert_eq!(ja4(&too_many), "-");
    let bare = ClientHello { extensions: vec![], ..ClientHello::example() };
    assert_eq!(ja4(&bare), "t12i150000_8daaf6152771_000000000000");
    let only_grease = ClientHello { ciphers: vec![messages::GREASE], ..bare };
    assert_eq!(ja4(&only_grease), "t12i000000_000000000000_000000000000");
}

#[test]
fn a_large_client_hello_of_post_quantum_key_shares_is_read() {
    let hello = ClientHello::example().with((0x0033, vec![0x5A; 12_000])).with((0x0015, vec![0; 20_000]));
    let expected = EXAMPLE_JA4;
    for most in [16384, 1000] {
        let connection = Connection::open(CLIENT, SERVER).client(records(&hello.message(), most));
        assert_eq!(text(&row(&connection), "ja4"), expected);
    }
}

#[test]
fn tls13_is_complete_with_the_clients_finished() {
    let hello = ClientHello::example();
    let full = row(&tls13(&hello, &[chosen_version(), (51, vec![0; 36])]));
    assert_eq!(
        (text(&full, "version"), text(&full, "cipher"), text(&full, "end")),
        ("TLS 1.3", "TLS_AES_128_GCM_SHA256", "complete")
    );
    assert_eq!((resumed(&full), text(&full, "subject"), text(&full, "alpn")), (Some(false), "-", "-"));

    let resumed_row = row(&tls13(&hello, &[chosen_version(), (41, vec![0, 0])]));
    assert_eq!((resumed(&resumed_row), text(&resumed_row, "resumed_by")), (Some(true), "psk"));

    // Data before the ServerHello is early data, and an encrypted record that is too short for a Finished is an alert.
    let refused = Connection::open(CLIENT, SERVER)
        .client([hello.record(), change_cipher_spec(), encrypted(300)].concat())
        .server(record(HANDSHAKE, &server_hello(&hello.session, 0x1301, &[chosen_version()])))
        .server([change_cipher_spec(), encrypted(1500)].concat())
        .client(encrypted(19))
        .reset();
    let refused = row(&refused);
    assert_eq!(
        (text(&refused, "alert"), text(&refused, "alert_from"), text(&refused, "alert_level")),
        ("encrypted", "client", "-")
    );
    assert_eq!((refused.flag("complete"), text(&refused, "end")), (false, "reset"));
}

#[test]
fn a_hello_retry_request_is_followed_by_second_hellos() {
    let first = ClientHello::example();
    let second = ClientHello { ciphers: vec![0x1301], ..first.clone() };
    let retry =
        server_hello_of(0x0303, &RETRY, &first.session, 0x1301, &[chosen_version(), (51, vec![0, 23])]);
    let connection = Connection::open(CLIENT, SERVER)
        .client(first.record())
        .server([record(HANDSHAKE, &retry), change_cipher_spec()].concat())
        .client([change_cipher_spec(), second.record()].concat())
        .server(
            [record(HANDSHAKE, &server_hello(&first.session, 0x1303, &[chosen_version()])), encrypted(900)]
                .concat(),
        )
        .client(encrypted(53));
    let full = row(&connection);
    assert!(full.flag("retried") && full.flag("complete"));
    assert_eq!((text(&full, "ja4"), text(&full, "cipher")), (EXAMPLE_JA4, "TLS_CHACHA20_POLY1305_SHA256"));
    assert_eq!(full.number("latency_ns"), i128::from(MILLISECOND));

    let ended =
        Connection::open(CLIENT, SERVER).client(first.record()).server(record(HANDSHAKE, &retry)).close();
    let ended = row(&ended);
    assert_eq!((text(&ended, "version"), resumed(&ended), text(&ended, "end")), ("TLS 1.3", None, "closed"));
}

#[test]
fn sessions_are_resumed_by_identifier_or_ticket() {
    let hello = ClientHello::example();
    let abbreviated = |hello: &ClientHello, session: &[u8]| {
        let answer = server_hello(session, 0xC02F, &[]);
        row(&Connection::open(CLIENT, SERVER)
            .client(hello.record())
            .server([record(HANDSHAKE, &answer), finished()].concat())
            .client(finished()))
    };
    let by_id = abbreviated(&hello, &hello.session);
    assert_eq!(
        (resumed(&by_id), text(&by_id, "resumed_by"), text(&by_id, "end")),
        (Some(true), "id", "complete")
    );
    let ticket = ClientHello { session: vec![], ..hello.clone().with((35, vec![1; 100])) };
    let by_ticket = abbreviated(&ticket, &[]);
    assert_eq!((resumed(&by_ticket), text(&by_ticket, "resumed_by")), (Some(true), "ticket"));
    let other = abbreviated(&hello, &[1; 32]);
    assert_eq!((resumed(&other), text(&other, "resumed_by")), (Some(true), "-"));

    // A server that repeats the identifier and sends a certificate has not resumed the session.
    let flight = [server_hello(&hello.session, 0xC02F, &[]), chain(&leaf()), message(14, &[])].concat();
    let full =
        row(&Connection::open(CLIENT, SERVER).client(hello.record()).server(record(HANDSHAKE, &flight)));
    assert_eq!(resumed(&full), Some(false));
    let undecided = row(&Connection::open(CLIENT, SERVER)
        .client(hello.record())
        .server(record(HANDSHAKE, &server_hello(&[], 0xC02F, &[]))));
    assert_eq!(resumed(&undecided), None);
}

#[test]
fn alerts_have_name_level_and_sender() {
    let hello = ClientHello::example().record();
    let refused = row(&Connection::open(CLIENT, SERVER).client(&hello).server(alert(2, 40)));
    assert_eq!(
        ["alert", "alert_level", "alert_from", "end", "version"].map(|field| text(&refused, field)),
        ["handshake_failure", "fatal", "server", "alert", "-"]
    );
    // A warning does not end the handshake.
    let warned = Connection::open(CLIENT, SERVER)
        .client(&hello)
        .server([alert(1, 112), record(HANDSHAKE, &server_flight(&leaf()))].concat())
        .client(finished())
        .server(finished());
    let warned = row(&warned);
    assert_eq!(
        ["alert", "alert_level", "alert_from", "end", "version"].map(|field| text(&warned, field)),
        ["unrecognized_name", "warning", "server", "complete", "TLS 1.2"]
    );
    let unknown_ca = Connection::open(CLIENT, SERVER)
        .client(&hello)
        .server(record(HANDSHAKE, &server_flight(&leaf())))
        .client(alert(2, 48));
    assert_eq!(
        ["alert", "alert_from", "subject"].map(|f| text(&row(&unknown_ca), f).to_owned()),
        ["unknown_ca", "client", "CN=www.example.com"]
    );
    // An alert after the ChangeCipherSpec is encrypted.
    let hidden = Connection::open(CLIENT, SERVER)
        .client(&hello)
        .server(record(HANDSHAKE, &server_flight(&leaf())))
        .client(finished())
        .server([change_cipher_spec(), record(messages::ALERT, &[0xE7; 26])].concat())
        .reset();
    let hidden = row(&hidden);
    assert_eq!(
        ["alert", "alert_from", "end"].map(|field| text(&hidden, field)),
        ["encrypted", "server", "reset"]
    );
    assert!(!hidden.flag("complete"));
    let numbered = row(&Connection::open(CLIENT, SERVER).client(&hello).server(alert(2, 222)));
    assert_eq!(text(&numbered, "alert"), "222");
}

#[test]
fn names_of_certificates_are_texts_as_in_rfc_4514() {
    let subject = name(&[
        attribute(&[0x55, 4, 6], 0x13, b"DE"),
        attribute(&[0x55, 4, 10], 0x14, b"M\xFCller, S\xF6hne"),
        attribute(&[0x55, 4, 11], 0x1E, &[0x26, 0x3A, 0, b'+']),
        attribute(&[9, 0x92, 0x26, 0x89, 0x93, 0xF2, 0x2C, 0x64, 1, 25], 0x16, b"example"),
        attribute(&[0x2A, 0x86, 0x48, 0x86, 0xF7, 0x0D, 1, 9, 1], 0x16, b"a@example.com"),
        attribute(&[0x2B, 6, 1, 4, 1, 0x82, 0x37, 0x3C, 2, 1, 3], 0x13, b"DE"),
        attribute(&[0x55, 4, 0x61], 0x0C, b"#1 "),
        attribute(&[0x88, 0x37, 3], 0x0C, b"<\"\\>"),
        attribute(&[0x55, 4, 3], 0x0C, "grün.example".as_bytes()),
    ]);
    let shown = |leaf: &[u8]| {
        row(&Connection::open(CLIENT, SERVER)
            .client(ClientHello::example().record())
            .server(record(HANDSHAKE, &server_flight(leaf))))
    };
    let full = shown(&certificate(&subject, &subject, ["500101000000Z", "99991231235959Z"], 10));
    let expected = "CN=grün.example,2.999.3=\\<\\\"\\\\\\>,organizationIdentifier=\\#1\\ ,jurisdictionC=DE,\
                    emailAddress=a@example.com,DC=example,OU=☺\\+,O=Müller\\, Söhne,C=DE";
    assert_eq!((text(&full, "subject"), text(&full, "issuer")), (expected, expected));
    assert!(full.flag("self_issued"));
    // Times outside of what record files hold.
    assert_eq!((full.number("not_before_time"), full.number("not_after_time")), (0, i128::from(i64::MAX)));

    let empty = shown(&certificate(&common_name("CA"), &name(&[]), VALID, 10));
    assert_eq!((text(&empty, "subject"), text(&empty, "issuer")), ("", "CN=CA"));
    // What is malformed is null, and nothing else is.
    let bad_time =
        shown(&certificate(&common_name("CA"), &common_name("a"), ["231301000000Z", "240101000000Z"], 10));
    assert!(
        bad_time.is_null("not_before_time")
            && bad_time.number("not_after_time") == 1_704_067_200 * i128::from(SECOND)
    );
    let long = "x".repeat(1100);
    let long = shown(&certificate(&common_name("CA"), &common_name(&long), VALID, 10));
    assert_eq!(
        (text(&long, "issuer"), text(&long, "subject"), text(&long, "version")),
        ("CN=CA", "-", "TLS 1.2")
    );
    let garbage = shown(&[0x30; 500]);
    assert_eq!(["issuer", "subject", "version"].map(|field| text(&garbage, field)), ["-", "-", "TLS 1.2"]);
}

#[test]
fn the_client_hello_of_ssl_2_is_read() {
    let answer = server_hello_of(0x0301, &[1; 32], &[], 0x002F, &[]);
    let connection = Connection::open(CLIENT, SERVER)
        .client(v2_hello(0x0301))
        .server(record(HANDSHAKE, &[answer, chain(&leaf()), message(14, &[])].concat()))
        .client(finished())
        .server(finished());
    let full = row(&connection);
    assert_eq!(
        ["offered_version", "version", "cipher", "ja4", "end"].map(|field| text(&full, field)),
        ["TLS 1.0", "TLS 1.0", "TLS_RSA_WITH_AES_128_CBC_SHA", "-", "complete"]
    );
    // SSL 2.0 itself goes on with messages that are no TLS.
    let old = row(&Connection::open(CLIENT, SERVER).client(v2_hello(2)).server([0x84, 0x02, 4, 0, 1, 0, 2]));
    assert_eq!(
        ["offered_version", "version", "end"].map(|field| text(&old, field)),
        ["SSL 2.0", "-", "invalid"]
    );
}

#[test]
fn tls_after_another_protocol_is_found() {
    let hello = ClientHello::example().record();
    let flight = record(HANDSHAKE, &server_flight(&leaf()));
    let talks: [(&str, &[(bool, &[u8])]); 6] = [
        (
            "SMTP",
            &[
                (false, b"220 mail ESMTP\r\n"),
                (true, b"EHLO a\r\n"),
                (false, b"250 STARTTLS\r\n"),
                (true, b"STARTTLS\r\n"),
                (false, b"220 go\r\n"),
            ],
        ),
        ("IMAP", &[(false, b"* OK ready\r\n"), (true, b"a STARTTLS\r\n"), (false, b"a OK\r\n")]),
        ("POP3", &[(false, b"+OK\r\n"), (true, b"STLS\r\n"), (false, b"+OK\r\n")]),
        ("PostgreSQL", &[(true, &[0, 0, 0, 8, 4, 0xD2, 0x16, 0x2F]), (false, b"S")]),
        ("HTTP", &[(true, b"CONNECT a:443 HTTP/1.1\r\n\r\n"), (false, b"HTTP/1.1 200 OK\r\n\r\n")]),
        (
            "SOCKS",
            &[
                (true, &[5, 1, 0]),
                (false, &[5, 0]),
                (true, &[5, 1, 0, 1, 1, 2, 3, 4, 1, 0xBB]),
                (false, &[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
            ],
        ),
    ];
    for (protocol, talk) in talks {
        for segment in [1400, 8] {
            let connection = talk.iter().fold(
                Connection::open(CLIENT, SERVER).segments(segment),
                |connection, (is_client, bytes)| {
                    if *is_client { connection.client(bytes) } else { connection.server(bytes) }
                },
            );
            let full = row(&connection.client(&hello).server(&flight).client(finished()).server(finished()));
            assert_eq!((text(&full, "ja4"), text(&full, "end")), (EXAMPLE_JA4, "complete"), "{protocol}");
            assert_eq!(text(&full, "subject"), "CN=www.example.com", "{protocol}");
        }
    }
    let plain =
        Connection::open(CLIENT, SERVER).server(b"220 mail\r\n").client(vec![b'x'; 5000]).client(&hello);
    assert_eq!(rows(&plain).len(), 0, "only the first bytes are searched");
}

#[test]
fn other_and_malformed_connections_have_no_row() {
    let hello = ClientHello::example();
    let plain = hello.message();
    let changed = |at: usize, value: u8| {
        let mut bytes = plain.clone();
        bytes[at] = value;
        record(HANDSHAKE, &bytes)
    };
    let truncated = record(HANDSHAKE, &plain[..plain.len() - 1]);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("HTTP", b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        ("SSH", b"SSH-2.0-OpenSSH_9.2\r\n".to_vec()),
        ("data of TLS", encrypted(500)),
        ("an alert first", alert(2, 40)),
        ("another message first", record(HANDSHAKE, &message(11, &[0; 100]))),
        ("a version of no TLS", changed(4, 4)),
        ("a session identifier that is too long", changed(38, 33)),
        ("an odd length of cipher suites", changed(72, 0x21)),
        ("cipher suites beyond the message", changed(71, 0x7F)),
        ("extensions that do not fill the message", changed(107, 9)),
        ("a message that is shorter than its parts", changed(3, plain[3].wrapping_sub(3))),
        ("a message that goes on", truncated),
        ("a record that is too long", [&[22, 3, 1, 0xFF, 0xFF][..], &plain].concat()),
        ("a record of another version", [&[22, 2, 1, 2, 0][..], &plain].concat()),
        ("an empty record", [record(HANDSHAKE, &[]), record(HANDSHAKE, &plain)].concat()),
        (
            "a record between the parts of a message",
            [record(HANDSHAKE, &plain[..50]), alert(1, 0), record(HANDSHAKE, &plain[50..])].concat(),
        ),
        ("SSL 2.0 with wrong lengths", [&[0x80, 46, 1, 3, 1, 0, 7, 0, 0, 0, 16][..], &[0; 40]].concat()),
    ];
    assert_eq!(rows(&Connection::open(CLIENT, SERVER).client(record(HANDSHAKE, &plain))).len(), 1);
    for (case, bytes) in cases {
        assert_eq!(rows(&Connection::open(CLIENT, SERVER).client(bytes).close()), [], "{case}");
    }
}

#[test]
fn what_follows_a_hello_and_is_malformed_ends_the_handshake() {
    let hello = ClientHello::example().record();
    let mut session = server_hello(&[9; 32], 0xC02F, &[]);
    session[38] = 99;
    for (case, bytes) in [
        ("no TLS", b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec()),
        ("a session identifier that is too long", record(HANDSHAKE, &session)),
        ("a ClientHello of the server", hello.clone()),
        ("data before the ServerHello", encrypted(100)),
        ("an unknown message", record(HANDSHAKE, &message(99, &[0; 10]))),
    ] {
        let row = row(&Connection::open(CLIENT, SERVER).client(&hello).server(bytes));
        assert_eq!(
            ["ja4", "version", "cipher", "end"].map(|field| text(&row, field)),
            [EXAMPLE_JA4, "-", "-", "invalid"],
            "{case}"
        );
    }
}

/// A generator of numbers for tests (Marsaglia's xorshift64).
fn random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 16).unwrap()
}

#[test]
fn random_damage_causes_no_fault_and_at_most_one_row() {
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos();
    println!("seed {seed}");
    let state = &mut (u64::from(seed) | 1);
    let connections: Vec<Connection> = (0..1500_u64)
        .map(|number| {
            let segment = 1 + random(state) % 300;
            let base = match number % 3 {
                0 => tls12(1 + random(state) % 400, segment),
                1 => tls13(&ClientHello::example(), &[chosen_version()]),
                _ => Connection::open(CLIENT, SERVER)
                    .segments(segment)
                    .client(v2_hello(0x0301))
                    .server(record(HANDSHAKE, &server_flight(&leaf()))),
            };
            let mut connection = base.after(number * SECOND);
            let client = format!("10.{}.{}.1:40000", number / 256, number % 256).parse().unwrap();
            for (_, packet) in &mut connection.packets {
                if packet.from == CLIENT.parse().unwrap() {
                    packet.from = client
                } else {
                    packet.to = client
                }
                if !packet.payload.is_empty() && random(state).is_multiple_of(4) {
                    let at = random(state) % packet.payload.len();
                    packet.payload[at] = u8::try_from(random(state) % 256).unwrap();
                }
            }
            connection.lose(|_| random(&mut (number + 7)) % 400 == 1)
        })
        .collect();
    let rows = run_tls(&captures(&connections)).rows("tls", "handshakes");
    let mut ends: Vec<String> = rows.iter().map(|row| row.end("src")).collect();
    assert!(ends.len() > 100, "{} rows", ends.len());
    ends.sort();
    ends.dedup();
    assert_eq!(ends.len(), rows.len(), "two rows of one connection");
}

#[test]
fn gaps_matter_only_where_something_is_read() {
    // Records of 16 KiB: the chain's second certificate spans segments 6 to 8 of the server.
    let complete = tls12(16384, 200);
    let is_server = |number: usize| complete.packets[number].1.from == SERVER.parse().unwrap();
    let server: Vec<usize> = (3..complete.packets.len()).filter(|number| is_server(*number)).collect();
    let lost = row(&complete.clone().lose(|number| number == server[6]));
    assert_eq!(content(&lost), content(&row(&complete)));
    let without_leaf = row(&complete.clone().lose(|number| number == server[1]));
    assert_eq!(
        ["ja4", "version", "subject", "end"].map(|field| text(&without_leaf, field)),
        [EXAMPLE_JA4, "TLS 1.2", "-", "gap"]
    );
    // Without the ClientHello the row begins with the ServerHello.
    let server_only = row(&complete.clone().lose(|number| number == 3));
    assert_eq!(
        ["ja4", "offered_version", "version", "end"].map(|field| text(&server_only, field)),
        ["-", "-", "TLS 1.2", "gap"]
    );
}

#[test]
fn without_the_client_the_server_hello_makes_a_row() {
    let mut one_sided = tls12(16384, 1400);
    one_sided.packets.retain(|packet| packet.1.from == SERVER.parse().unwrap());
    let row = row(&one_sided);
    assert_eq!((row.end("src"), row.end("dst")), (CLIENT.to_owned(), SERVER.to_owned()));
    assert_eq!(
        ["offered_version", "ja4", "version", "subject"].map(|field| text(&row, field)),
        ["-", "-", "TLS 1.2", "CN=www.example.com"]
    );
    assert!(row.is_null("latency_ns") && !row.flag("complete"));
}

#[test]
fn rows_have_ipv6_vlan_and_tunnel() {
    let connection = |client: &str, server: &str| {
        Connection::open(client, server)
            .client(ClientHello::example().record())
            .server(record(HANDSHAKE, &server_flight(&leaf())))
    };
    let v6 = row(&connection("[2001:db8::1]:40000", "[2001:db8::7]:443"));
    assert_eq!((v6.end("src"), v6.end("dst")), ("[2001:db8::1]:40000".into(), "[2001:db8::7]:443".into()));
    assert_eq!(text(&v6, "subject"), "CN=www.example.com");

    let v4 = connection(CLIENT, SERVER);
    let mut tagged = Capture::new(ETHERNET);
    v4.packets.iter().for_each(|(time, packet)| tagged.push(*time, packet.tagged(0x2064)));
    let tagged = run_tls(&tagged).rows("tls", "handshakes");
    assert_eq!((tagged.len(), tagged[0].number("vlan")), (1, 0x64));

    // IPv4 in IPv4 (protocol 4) between other addresses.
    let mut tunnelled = Capture::new(RAW_IP);
    for (time, packet) in &v4.packets {
        let outer = etherparse::Ipv4Header::new(
            u16::try_from(packet.ip().len()).unwrap(),
            64,
            etherparse::IpNumber(4),
            [203, 0, 113, 1],
            [203, 0, 113, 2],
        );
        let mut bytes = Vec::new();
        outer.unwrap().write(&mut bytes).unwrap();
        bytes.extend(packet.ip());
        tunnelled.push(*time, bytes);
    }
    let inner = run_tls(&tunnelled).rows("tls", "handshakes");
    assert_eq!((inner.len(), inner[0].end("src"), text(&inner[0], "tunnel")), (1, CLIENT.to_owned(), "ip"));
    assert_eq!(text(&inner[0], "community_id"), text(&row(&v4), "community_id"));
    let outer = run(&tunnelled, &["-m", &module(",layer=outer")]);
    assert_eq!(outer.rows("tls", "handshakes"), [], "there is no TCP in the outer layer");
    let outer = run(&v4.capture(), &["-m", &module(",layer=outer")]).rows("tls", "handshakes");
    assert_eq!((outer.len(), text(&outer[0], "tunnel")), (1, ""));
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_weir"));
    let other = command.args(["check", &module(",layer=middle")]).output().unwrap();
    assert!(!other.status.success() && String::from_utf8_lossy(&other.stderr).contains("layer"), "{other:?}");
}
