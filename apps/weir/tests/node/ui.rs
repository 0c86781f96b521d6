//! The server of `weir ui`: the address, the checks of each request, and the page's requests to a live node.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{TIMEOUT, Testbed, ip, is_inside, udp};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

/// A running `weir ui`.
pub struct Page {
    process: Child,
    host: String,
    token: String,
}

/// A response: status line and header fields, and the body.
pub struct Answer {
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.head, String::from_utf8_lossy(&self.body)))
    }
}

impl Page {
    pub fn serve(socket: &Path, runtime: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.arg("ui").arg("--socket").arg(socket).args(options);
        command.env("XDG_RUNTIME_DIR", runtime).env_remove("WEIR_NODE");
        Self::start(command)
    }

    pub fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("The page is at http://").unwrap();
        let (host, token) = address.split_once("/#").unwrap();
        Self { host: host.to_owned(), token: token.to_owned(), process }
    }

    pub fn of(testbed: &Testbed, options: &[&str]) -> Self {
        ip("link set lo up");
        Self::serve(&testbed.path().join("node.sock"), testbed.path(), options)
    }

    pub fn address(&self) -> String {
        format!("http://{}/#{}", self.host, self.token)
    }

    /// Sends a request, with the header fields of an own page unless `fields` has others. HTTP/1.0, so that a streamed body
    /// has no framing.
    fn connect(
        &self,
        method: &str,
        target: &str,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(&self.host).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut head = format!("{method} {target} HTTP/1.0\r\nContent-Length: {}\r\n", body.len());
        if !fields.iter().any(|(name, _)| *name == "Host") {
            head.push_str(&format!("Host: {}\r\n", self.host));
        }
        for (name, value) in fields {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        stream.write_all((head + "\r\n").as_bytes()).unwrap();
        // The server may refuse before it has read the body.
        let _ = stream.write_all(body);
        BufReader::new(stream)
    }

    pub fn send(&self, method: &str, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Answer {
        let mut stream = self.connect(method, target, fields, body);
        let head = head_of(&mut stream);
        let mut body = Vec::new();
        stream.read_to_end(&mut body).unwrap();
        Answer { head, body }
    }

    /// Exchanges the token for a secret.
    pub fn open(&self, token: &str) -> Option<String> {
        let answer = self.send("POST", "/api/open", &[], json!({ "token": token }).to_string().as_bytes());
        match answer.status() {
            "200" => Some(answer.json()["secret"].as_str().unwrap().to_owned()),
            _ => None,
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn head_of(stream: &mut impl BufRead) -> String {
    let mut head = String::new();
    while stream.read_line(&mut head).unwrap() > 2 {}
    head
}

/// A browser that has opened the page.
pub struct Browser<'a> {
    page: &'a Page,
    field: String,
}

impl<'a> Browser<'a> {
    pub fn open(page: &'a Page) -> Self {
        let secret = page.open(&page.token).expect("the token is valid");
        Self { page, field: format!("Bearer {secret}") }
    }

    fn fields(&self) -> [(&str, &str); 1] {
        [("Authorization", &self.field)]
    }

    pub fn get(&self, target: &str) -> Answer {
        self.page.send("GET", target, &self.fields(), b"")
    }

    pub fn post(&self, target: &str, body: &Value) -> Answer {
        self.page.send("POST", target, &self.fields(), body.to_string().as_bytes())
    }

    /// The lines of a stream.
    pub fn lines(&self, target: &str) -> impl Iterator<Item = Value> + use<> {
        let mut stream = self.page.connect("GET", target, &self.fields(), b"");
        let head = head_of(&mut stream);
        assert!(head.contains(" 200 "), "{head}");
        stream.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap())
    }
}

const SESSIONS: &str = "[[session]]\nname = \"alice\"\nmemory = \"32 MiB\"\n\
    cpu = [{ period = \"20ms\", slice = \"4ms\" }]\nchannel = [{ interface = \"b\", filter = \"udp\" }]\n";

/// Loads a module that emits a row for each packet.
fn load_emitter(testbed: &Testbed) {
    let body = r#"(func (export "weir_packet") (param i32) (result i32)
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
        (i32.const 0))"#;
    let emitter = assemble(&text(body), Some(MANIFEST.replace("NAME", "emitter").as_bytes()));
    let loaded = testbed.load("alice", json!({"module": "emitter.wasm"}), &emitter);
    assert!(loaded["done"].is_object(), "{loaded}");
}

#[test]
fn an_address_opens_one_browser_which_sees_the_node() {
    if !is_inside("ui::an_address_opens_one_browser_which_sees_the_node") {
        return;
    }
    let mut testbed = Testbed::new(SESSIONS);
    load_emitter(&testbed);
    let page = Page::of(&testbed, &[]);
    for path in ["/", "/app.js", "/app.css", "/icon.svg"] {
        let answer = page.send("GET", path, &[], b"");
        assert_eq!(answer.status(), "200", "{path}");
        for field in [
            "content-security-policy: default-src 'none'; script-src 'self';",
            "frame-ancestors 'none'",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cache-control: no-store",
        ] {
            assert!(answer.head.contains(field), "{path}: {field}: {}", answer.head);
        }
    }
    let browser = Browser::open(&page);
    assert_eq!(page.open(&page.token), None, "a used address opens nothing");
    assert_eq!(page.open("0123"), None);
    // Another browser gets an address of its own.
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["ui", "--address"]).env("XDG_RUNTIME_DIR", testbed.path()).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let second = said.trim().strip_prefix(&format!("http://{}/#", page.host)).expect(&said);
    // Both browsers work from then on.
    let other = Browser { page: &page, field: format!("Bearer {}", page.open(second).unwrap()) };
    for either in [&browser, &other] {
        assert_eq!(either.get("/api/state").status(), "200");
    }

    let state = browser.get("/api/state").json();
    assert_eq!((&state["node"], &state["may_manage"]), (&json!("test"), &json!(true)));
    let rtt = state["modules"].as_array().unwrap().iter().find(|module| module["name"] == "rtt").unwrap();
    assert!(rtt["parameters"].as_array().unwrap().iter().any(|it| it["name"] == "table-size"), "{rtt}");

    let mut lines = browser.lines("/api/watch");
    let first = lines.next().unwrap();
    assert_eq!(first["snapshot"]["sessions"][0]["name"], "alice");
    testbed.send(&vec![udp(1, b"x"); 100]);
    let begin = Instant::now();
    let later = lines.find(|line| line["snapshot"]["sessions"][0]["channels"][0]["packets"] == 100).unwrap();
    assert!(begin.elapsed() < TIMEOUT);
    assert!(later["rates"]["sessions"][0]["packets"].is_number(), "{later}");
    let history = browser.get("/api/history?session=alice").json();
    let seconds = history["at_ms"].as_array().unwrap().len();
    assert!(seconds >= 2 && history["columns"]["packets"].as_array().unwrap().len() == seconds, "{history}");
    assert_eq!(history["columns"]["cpu_promised"][0], 0.2);
}

#[test]
fn requests_of_other_pages_hosts_and_unknown_browsers_are_refused() {
    if !is_inside("ui::requests_of_other_pages_hosts_and_unknown_browsers_are_refused") {
        return;
    }
    let testbed = Testbed::new(SESSIONS);
    let page = Page::of(&testbed, &[]);
    let browser = Browser::open(&page);
    let own = format!("http://{}", page.host);
    let port = page.host.rsplit(':').next().unwrap().to_owned();
    let close = json!({ "close": { "session": "alice" } }).to_string();
    let secret = ("Authorization", browser.field.as_str());
    let rebound = format!("rebound.example:{port}");
    let by_name = format!("localhost:{port}");
    for (fields, status) in [
        (vec![secret, ("Host", rebound.as_str())], "403"),
        (vec![secret, ("Host", by_name.as_str())], "403"),
        (vec![secret, ("Host", "127.0.0.1")], "403"),
        (vec![secret, ("Origin", "http://evil.example")], "403"),
        (vec![secret, ("Origin", "null")], "403"),
        (vec![secret, ("Sec-Fetch-Site", "cross-site")], "403"),
        // The page of another port of this machine, which another user may serve.
        (vec![secret, ("Sec-Fetch-Site", "same-site")], "403"),
        (vec![], "401"),
        (vec![("Authorization", "Bearer ")], "401"),
        (vec![("Authorization", "Basic abc")], "401"),
        (vec![secret, secret], "401"),
        (vec![("Cookie", browser.field.as_str())], "401"),
    ] {
        let answer = page.send("POST", "/api/request", &fields, close.as_bytes());
        assert_eq!(answer.status(), status, "{fields:?}");
        assert!(answer.json()["error"].is_string());
    }
    assert_eq!(testbed.snapshot()["sessions"][0]["name"], "alice", "nothing was executed");
    // Messages that are none.
    for (body, says) in [
        ("", "not valid"),
        ("{", "not valid"),
        ("{\"explode\":1}", "not valid"),
        ("{\"close\":{\"session\":\"../x\"}}", "not valid"),
        ("\"show\"", "sends no such request"),
        ("{\"put-table\":{\"table\":\"x\"}}", "sends no such request"),
    ] {
        let answer = page.send("POST", "/api/request", &[secret], body.as_bytes());
        assert_eq!(answer.status(), "400", "{body}");
        assert!(answer.json()["error"].as_str().unwrap().contains(says), "{body}: {}", answer.json());
    }
    assert_eq!(page.send("POST", "/api/request", &[secret], &vec![b' '; 2 << 20]).status(), "413");
    for (method, path, status) in [
        ("GET", "/api/none", "404"),
        ("POST", "/api/state", "405"),
        ("GET", "/../etc/passwd", "404"),
        ("GET", "/report/x", "404"),
    ] {
        assert_eq!(page.send(method, path, &[secret], b"").status(), status, "{path}");
    }
    // The same request of the own page is executed.
    let answer = page.send(
        "POST",
        "/api/request",
        &[secret, ("Origin", &own), ("Sec-Fetch-Site", "same-origin")],
        close.as_bytes(),
    );
    assert!(answer.json()["done"].is_object(), "{}", answer.json());
    assert_eq!(testbed.snapshot()["sessions"], json!([]));
}

#[test]
fn a_share_is_changed_and_a_page_that_only_shows_changes_nothing() {
    if !is_inside("ui::a_share_is_changed_and_a_page_that_only_shows_changes_nothing") {
        return;
    }
    let testbed = Testbed::new(SESSIONS);
    let change =
        |slice: &str| json!({"change": {"session": "alice", "cpu": [{"period": "20ms", "slice": slice}]}});
    let shown = Page::of(&testbed, &["--read-only"]);
    let viewer = Browser::open(&shown);
    assert_eq!(viewer.get("/api/state").json()["may_manage"], false);
    assert_eq!(viewer.post("/api/request", &change("8ms")).status(), "403");
    // A run over an interface makes a session on the node.
    let run = json!({"source": {"interface": {"name": "b", "seconds": 1}}, "modules": [{"module": "rtt"}]});
    assert_eq!(viewer.post("/api/runs", &run).status(), "403");
    let page = Page::of(&testbed, &[]);
    let browser = Browser::open(&page);
    let slice = || testbed.snapshot()["sessions"][0]["cpu"][0]["slice_ns"].clone();
    assert_eq!(slice(), 4_000_000);
    assert!(browser.post("/api/request", &change("8ms")).json()["done"].is_object());
    assert_eq!(slice(), 8_000_000);
    // Admission is asked beforehand, and nothing is changed by asking.
    let check = |request: &Value| {
        let answer = browser.post("/api/check", request);
        assert_eq!(answer.status(), "200", "{}", answer.json());
        answer.json()["refused"].clone()
    };
    assert_eq!(check(&change("10ms")), Value::Null);
    let memory = |memory: &str| json!({"change": {"session": "alice", "memory": memory}});
    assert_eq!(check(&memory("64 MiB")), Value::Null);
    for (request, says) in [
        (change("19.9ms"), "core"),
        (change("40ms"), "period"),
        (memory("100 GiB"), "memory"),
        (json!({"change": {"session": "bob", "memory": "1 MiB"}}), "bob"),
        (json!({"create": {"name": "alice"}}), "alice"),
        (json!({"create": {"name": "carol", "cpu": [{"period": "20ms", "slice": "19ms"}]}}), "core"),
    ] {
        let refused = check(&request);
        assert!(refused.as_str().is_some_and(|why| why.contains(says)), "{request}: {refused}");
        // The node refuses the request itself with the same words.
        assert_eq!(browser.post("/api/request", &request).json()["refused"]["why"], refused, "{request}");
    }
    assert_eq!(
        check(&json!({"create": {"name": "carol", "cpu": [{"period": "20ms", "slice": "1ms"}]}})),
        Value::Null
    );
    assert_eq!((slice(), testbed.snapshot()["sessions"].as_array().unwrap().len()), (json!(8_000_000), 1));
    let refused = browser.post("/api/request", &json!({"close": {"session": "bob"}})).json();
    assert!(refused["refused"]["why"].as_str().unwrap().contains("bob"), "{refused}");
    // Both are in the decisions.
    let begin = Instant::now();
    loop {
        let decisions = browser.get("/api/decisions?since_s=600").json();
        let decisions = decisions["decisions"].as_array().unwrap().clone();
        let has = |outcome: &str, request: &str| {
            decisions
                .iter()
                .any(|it| it["outcome"] == outcome && it["request"].as_str().unwrap().contains(request))
        };
        if has("allowed", "change") && has("failed", "close") {
            break;
        }
        assert!(begin.elapsed() < TIMEOUT, "{decisions:?}");
    }
    let begin = Instant::now();
    let usage = loop {
        let usage = browser.get("/api/ledger").json();
        if usage["rows"].as_array().is_some_and(|rows| !rows.is_empty()) {
            break usage;
        }
        assert!(begin.elapsed() < TIMEOUT, "{usage}");
    };
    let width = usage["columns"].as_array().unwrap().len();
    assert_eq!(usage["rows"][0].as_array().unwrap().len(), width + 1, "a name, and a value for each column");
    assert_eq!(usage["verified"]["state"], "whole");
    let column = |table: &Value, key: &str| {
        1 + table["columns"].as_array().unwrap().iter().position(|it| it["key"] == key).unwrap()
    };
    let holders = &usage["holders"];
    let sum: f64 = usage["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row[column(&usage, "cpu_s")].as_f64().unwrap())
        .sum();
    let operator = holders["rows"].as_array().unwrap().iter().find(|row| row[0] == "the operator").unwrap();
    assert!((operator[column(holders, "cpu_s")].as_f64().unwrap() - sum).abs() < 1e-6, "{holders}");
    assert!(usage["rows"].as_array().unwrap().iter().any(|row| row[0] == "alice"), "{usage}");
    let csv = String::from_utf8(browser.get("/api/ledger.csv").body).unwrap();
    assert!(csv.starts_with("session,id,begin,end,") && csv.contains("\nalice,"), "{csv}");
    let parquet = browser.get("/api/ledger.parquet");
    assert!(parquet.body.starts_with(b"PAR1") && parquet.body.ends_with(b"PAR1"));
}

#[test]
fn rows_arrive_at_a_pace_for_people_and_the_rest_is_counted() {
    if !is_inside("ui::rows_arrive_at_a_pace_for_people_and_the_rest_is_counted") {
        return;
    }
    let mut testbed = Testbed::new(SESSIONS);
    load_emitter(&testbed);
    let page = Page::of(&testbed, &[]);
    let browser = Browser::open(&page);
    let mut lines = browser.lines("/api/rows?session=alice");
    let streams = lines.next().unwrap();
    assert!(!streams["streams"][0]["columns"].as_array().unwrap().is_empty(), "{streams}");
    const ROWS: usize = 4_000;
    for _ in 0..ROWS / 100 {
        testbed.send(&vec![udp(1, b"x"); 100]);
    }
    let (mut shown, mut counted, mut intervals) = (0, 0, 0);
    while shown + counted < ROWS {
        let line = lines.next().unwrap();
        let rows = line["rows"].as_array().map_or(0, Vec::len);
        assert!(rows <= 100, "{rows}");
        intervals += 1;
        shown += rows;
        counted +=
            usize::try_from(line["skipped"].as_u64().unwrap_or(0) + line["missed"].as_u64().unwrap_or(0))
                .unwrap();
    }
    assert_eq!(shown + counted, ROWS);
    assert!(shown <= 100 * intervals);
    testbed.request(json!({"close": {"session": "alice"}}));
    assert!(lines.any(|line| line["end"].is_string()));
    let refused = browser.lines("/api/rows?session=bob").next().unwrap();
    assert!(refused["error"].as_str().unwrap().contains("bob"), "{refused}");
}

#[test]
fn a_lost_node_is_shown_and_found_again() {
    if !is_inside("ui::a_lost_node_is_shown_and_found_again") {
        return;
    }
    let mut testbed = Testbed::new(SESSIONS);
    let page = Page::of(&testbed, &[]);
    let browser = Browser::open(&page);
    let mut lines = browser.lines("/api/watch");
    assert!(lines.next().unwrap()["snapshot"].is_object());
    testbed.kill();
    let lost = lines.find(|line| line["lost"].is_string()).unwrap();
    assert!(lost["since_s"].is_number(), "{lost}");
    assert_eq!(browser.post("/api/request", &json!({"close": {"session": "alice"}})).status(), "502");
    testbed.start();
    assert!(lines.any(|line| line["snapshot"]["node"] == "test"));
}

#[test]
fn a_node_that_does_not_answer_is_shown_as_lost_while_the_page_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        // A node that accepts, and then sends a byte of an answer from time to time.
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                for byte in br#"{"weir":1,"reply":{"snapshot":{"node":"slow","#.iter().cycle() {
                    if stream.write_all(&[*byte]).is_err() {
                        return;
                    }
                    std::thread::sleep(std::time::Duration::from_millis(500));
                }
            });
        }
    });
    let page = Page::serve(&socket, folder.path(), &[]);
    let browser = Browser::open(&page);
    let mut lines = browser.lines("/api/watch");
    let lost = lines.next().unwrap();
    assert_eq!(lost["lost"], "the node does not answer");
    let later = lines.find(|line| line["since_s"].as_u64() > lost["since_s"].as_u64()).unwrap();
    assert_eq!(later["lost"], "the node does not answer", "{later}");
    // Nothing else of the page waits for the node.
    assert_eq!(page.send("GET", "/app.js", &[], b"").status(), "200");
    assert_eq!(browser.get("/api/state").status(), "200");
    assert_eq!(browser.get("/api/history").status(), "200");
}

#[test]
fn the_plotted_numbers_are_those_of_the_ledger() {
    if !is_inside("ui::the_plotted_numbers_are_those_of_the_ledger") {
        return;
    }
    const PACKETS: usize = 3_000;
    let mut testbed = Testbed::new(SESSIONS);
    load_emitter(&testbed);
    let page = Page::of(&testbed, &[]);
    let browser = Browser::open(&page);
    let mut lines = browser.lines("/api/watch");
    let session = |line: &Value| line["snapshot"]["sessions"][0].clone();
    let first = session(&lines.find(|line| line["rates"]["sessions"][0]["packets"].is_number()).unwrap());
    for _ in 0..PACKETS / 100 {
        testbed.send(&vec![udp(1, b"x"); 100]);
    }
    let is_done = |line: &Value| session(line)["channels"][0]["packets"] == PACKETS;
    let last = session(&lines.find(is_done).unwrap());
    // The sums of the plotted rates are the growth of the counters.
    let history = browser.get("/api/history?session=alice").json();
    let numbers = |column: &Value| -> Vec<f64> {
        column.as_array().unwrap().iter().map(|number| number.as_f64().unwrap_or(0.0)).collect()
    };
    let at = numbers(&history["at_ms"]);
    let plotted = |column: &str| -> f64 {
        let rates = numbers(&history["columns"][column]);
        at.windows(2).zip(&rates[1..]).map(|(at, rate)| rate * (at[1] - at[0]) / 1000.0).sum()
    };
    let close = |a: f64, b: f64| (a - b).abs() <= 0.01 * a.max(b) + 1e-3;
    assert!(close(plotted("packets"), 3_000.0), "{history}");
    let cpu_s = |session: &Value| session["used"]["cpu_ns"].as_f64().unwrap() / 1e9;
    // The plot begins with a snapshot that can be a little older than the first one here, without traffic.
    let grown = cpu_s(&last) - cpu_s(&first);
    assert!(close(plotted("cpu"), grown), "{} s plotted, {grown} s used: {history}", plotted("cpu"));
    // And the counters are the totals of the ledger, when it has the last interval.
    let begin = Instant::now();
    loop {
        let ledger = browser.get("/api/ledger").json();
        let column = |key: &str| {
            1 + ledger["columns"].as_array().unwrap().iter().position(|it| it["key"] == key).unwrap()
        };
        let rows = ledger["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row[0] == "alice");
        if let Some(row) = row.filter(|row| row[column("packets_in")] == PACKETS) {
            let [ledger_s, now_s] =
                [row[column("cpu_s")].as_f64().unwrap(), cpu_s(&testbed.snapshot()["sessions"][0])];
            if close(ledger_s, now_s) && ledger_s >= cpu_s(&last) - 1e-3 {
                break;
            }
        }
        assert!(begin.elapsed() < TIMEOUT, "{last}: {ledger}");
    }
}

#[test]
fn a_node_that_answers_with_nonsense_is_an_error_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("node.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || {
        for (stream, answer) in listener.incoming().zip(
            [
                &b"\x00\xff\xfe\n"[..],
                b"{\"weir\":99,\"reply\":{}}\n",
                b"{\"weir\":1,\"reply\":{\"done\":{\"notes\":[]}}}\n",
                b"",
                b"{\"weir\":1,\"reply\":{\"refused\":{\"why\":\"<script>\\u001b[31m\"}}}\n",
            ]
            .iter()
            .cycle(),
        ) {
            let mut stream = stream.unwrap();
            let _ = stream.write_all(answer);
        }
    });
    let page = Page::serve(&socket, folder.path(), &[]);
    let browser = Browser::open(&page);
    let mut said: Vec<String> = Vec::new();
    let mut lines = browser.lines("/api/watch");
    let expected =
        ["not that of a node", "version 99", "does not fit the request", "closed the connection", "<script>"];
    while !expected.iter().all(|says| said.iter().any(|lost| lost.contains(says))) {
        let line = lines.next().unwrap();
        assert!(line.get("snapshot").is_none(), "{line}");
        let lost = line["lost"].as_str().unwrap().to_owned();
        assert!(!lost.contains('\u{1b}'), "{lost}");
        if !said.contains(&lost) {
            said.push(lost);
        }
    }
}

#[test]
fn a_run_over_an_uploaded_capture_gives_a_report_that_ends_with_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let temporary = folder.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["ui", "--socket"]).arg(folder.path().join("none.sock"));
    command.env("TMPDIR", &temporary).env("XDG_RUNTIME_DIR", folder.path()).env_remove("WEIR_NODE");
    let page = Page::start(command);
    let browser = Browser::open(&page);
    let capture =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/sample/sample.pcap")).unwrap();
    let run = |bytes: usize, module: &str, set: Value| {
        let source = json!({"upload": {"name": "sample.pcap", "bytes": bytes}});
        browser.post("/api/runs", &json!({"source": source, "modules": [{"module": module, "set": set}]}))
    };
    for (module, set, says) in
        [("/etc/passwd", json!({}), "no module"), ("rtt", json!({"colour": "1"}), "no parameter")]
    {
        let answer = run(1, module, set);
        assert_eq!(answer.status(), "400");
        assert!(answer.json()["error"].as_str().unwrap().contains(says), "{}", answer.json());
    }
    let number = run(capture.len(), "rtt", json!({"table-size": "4096"})).json()["run"].as_u64().unwrap();
    let mut lines = browser.lines(&format!("/api/runs/{number}/watch"));
    assert_eq!(lines.next().unwrap()["progress"]["bytes_total"], capture.len());
    let answer = page.send("PUT", &format!("/api/runs/{number}/capture"), &browser.fields(), &capture);
    assert_eq!(answer.status(), "200", "{}", answer.json());
    let again = page.send("PUT", &format!("/api/runs/{number}/capture"), &browser.fields(), b"x");
    assert_eq!(again.status(), "400");
    let done = lines.find(|line| line.get("progress").is_none()).unwrap();
    let report = done["done"]["report"].as_str().unwrap_or_else(|| panic!("{done}")).to_owned();
    assert!(done["done"]["summary"]["capture"]["packets"].as_u64().unwrap() > 1_000, "{done}");
    // The report needs no secret but its name, and runs no scripts.
    let answer = page.send("GET", &report, &[], b"");
    assert!(
        answer.head.contains("content-security-policy: sandbox allow-downloads; default-src 'none'"),
        "{}",
        answer.head
    );
    let text = String::from_utf8(answer.body).unwrap();
    assert!(text.ends_with("</html>\n"));
    assert!(
        text.contains("sample.pcap") && !text.contains("standard input"),
        "the title is the name of the capture"
    );
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 1);
    // The page is closed.
    drop(lines);
    let begin = Instant::now();
    while std::fs::read_dir(&temporary).unwrap().count() > 0 {
        assert!(begin.elapsed() < TIMEOUT, "the report is still there");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(page.send("GET", &report, &[], b"").status(), "404");
    // A file that is no capture is an error in words.
    let number = run(5, "rtt", json!({})).json()["run"].as_u64().unwrap();
    let mut lines = browser.lines(&format!("/api/runs/{number}/watch"));
    page.send("PUT", &format!("/api/runs/{number}/capture"), &browser.fields(), b"hello");
    let failed = lines.find(|line| line.get("progress").is_none()).unwrap();
    assert!(failed["failed"].as_str().unwrap().contains("is not a capture"), "{failed}");
}

#[test]
fn a_browser_shows_and_changes_a_live_node() {
    if !is_inside("ui::a_browser_shows_and_changes_a_live_node") {
        return;
    }
    let web = concat!(env!("CARGO_MANIFEST_DIR"), "/../ui/web");
    if !Path::new(web).join("node_modules/playwright-core").exists()
        || !Path::new("/usr/bin/chromium").exists()
    {
        let _ = writeln!(
            std::io::stderr(),
            "SKIPPED: `make test-ui` installs what the browser test needs, and runs it"
        );
        return;
    }
    let mut testbed = Testbed::new(SESSIONS);
    load_emitter(&testbed);
    let page = Page::of(&testbed, &[]);
    let mut browser = Command::new("node")
        .arg(format!("{web}/tests/live.mjs"))
        .arg(page.address())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../lab/sample/sample.pcap"))
        .spawn()
        .unwrap();
    // Traffic until the browser has seen everything.
    let status = loop {
        testbed.send(&vec![udp(1, b"x"); 20]);
        if let Some(status) = browser.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    };
    assert!(status.success());
    let session = testbed.snapshot()["sessions"][0].clone();
    assert_eq!(session["cpu"][0]["slice_ns"], 4_000_000, "the change was undone");
}
