//! Tests of the control of running graphs: sockets, replacement, signals, and the name `click`.

use super::{graph, ok};
use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// The longest wait for anything that has to come.
const PATIENCE: Duration = Duration::from_secs(120);

/// A graph that runs. Dropping it ends it.
pub struct Running(Option<Child>);

impl Running {
    pub fn start(folder: &Path, arguments: &[&str]) -> Self {
        let child = Command::new(env!("CARGO_BIN_EXE_weir"))
            .current_dir(folder)
            .args(["graph", "run"])
            .args(arguments)
            .env_remove("CLICKPATH")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(Some(child))
    }

    fn id(&self) -> u32 {
        self.0.as_ref().unwrap().id()
    }

    /// Waits for the end.
    fn output(mut self) -> Output {
        let mut child = self.0.take().unwrap();
        let end = Instant::now() + PATIENCE;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                child.kill().unwrap();
                panic!("the graph does not end: {:?}", child.wait_with_output());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

trait Socket: Read + Write {}
impl<T: Read + Write> Socket for T {}

/// A client of the protocol.
struct Client(BufReader<Box<dyn Socket>>);

impl Client {
    fn new(socket: impl Socket + 'static) -> Self {
        let mut client = Self(BufReader::new(Box::new(socket)));
        assert_eq!(client.line(), "Click::ControlSocket/1.3");
        client
    }

    /// Connects as soon as the socket is there.
    fn unix(path: &Path) -> Self {
        let socket = eventually(|| UnixStream::connect(path).ok());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::new(socket)
    }

    fn tcp(port: u16) -> Self {
        let socket = eventually(|| TcpStream::connect(("127.0.0.1", port)).ok());
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::new(socket)
    }

    fn send(&mut self, bytes: &str) {
        self.0.get_mut().write_all(bytes.as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Returns the answer to a command, and the data behind it.
    fn answer(&mut self) -> (String, String) {
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            let is_last = line.as_bytes().get(3) != Some(&b'-');
            lines.push(line);
            if is_last {
                break;
            }
        }
        let mut data = String::new();
        if lines[0].starts_with("200 Read handler") {
            let length: u64 = self.line().strip_prefix("DATA ").unwrap().parse().unwrap();
            (&mut self.0).take(length).read_to_string(&mut data).unwrap();
        }
        (lines.join("\n"), data)
    }

    fn ask(&mut self, command: &str) -> (String, String) {
        self.send(&format!("{command}\r\n"));
        self.answer()
    }

    fn read(&mut self, handler: &str) -> String {
        let (answer, data) = self.ask(&format!("READ {handler}"));
        assert!(answer.starts_with("200 "), "{answer}");
        data
    }

    fn write(&mut self, handler: &str, value: &str) -> String {
        self.send(&format!("WRITEDATA {handler} {}\n{value}", value.len()));
        self.answer().0
    }
}

pub fn eventually<T>(mut find: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = find() {
            return found;
        }
        assert!(Instant::now() < end, "it does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

const IDLE: &str = "Idle -> q :: Queue(5) -> Discard; p :: Paint(3); Idle -> p -> Discard";

#[test]
fn a_client_reads_and_writes_handlers_over_a_unix_socket() {
    ["1", "2"].iter().for_each(|threads| reads_and_writes_handlers(threads));
}

fn reads_and_writes_handlers(threads: &str) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let path = at.join("socket");
    let running = Running::start(at, &["-j", threads, "-u", "socket", "-e", IDLE]);
    let mut client = Client::unix(&path);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(client.read("q.capacity"), "5");
    assert_eq!(client.read("2.name"), "q");
    assert_eq!(client.write("q.capacity", "7"), "200 Write handler 'q.capacity' OK");
    assert_eq!(client.read("q.capacity"), "7");
    assert_eq!(client.ask("WRITE p.config 9, PAINT").0, "200 Write handler 'p.config' OK");
    assert_eq!((client.read("p.color"), client.read("p.config")), ("9".to_owned(), "9, PAINT".to_owned()));
    assert_eq!(
        client.ask("READ q.capaciti").0,
        "511 no handler named 'q.capaciti' (did you mean 'capacity'?)"
    );
    assert_eq!(client.ask("READ r.capacity").0.split(' ').next(), Some("510"));
    assert_eq!(client.ask("WRITE q.length 1").0.split(' ').next(), Some("530"));
    assert!(client.ask("WRITE q.capacity x").0.starts_with("520-Write handler 'q.capacity' error:\n520 "));
    // The graph was not started with -R.
    assert_eq!(client.ask("CHECKWRITE hotconfig").0.split(' ').next(), Some("511"));
    assert_eq!(client.write("hotconfig", "Idle -> Discard").split(' ').next(), Some("511"));
    assert_eq!((client.read("driver"), client.read("config")), ("userlevel".to_owned(), IDLE.to_owned()));
    assert!(client.read("flatconfig").contains("p :: Paint(9, PAINT);\n"));
    assert!(client.read("version").starts_with(env!("CARGO_PKG_VERSION")));
    // Commands in one piece.
    client.send("READ q.capacity\nREADUNTIL p.color END\nx\nEND\nCHECKWRITE p.color\n");
    let answers = [client.answer(), client.answer(), client.answer()];
    assert_eq!(answers.map(|(_, data)| data), ["7", "9", ""]);
    assert_eq!(client.ask("QUIT").0, "200 goodbye");

    let mut client = Client::unix(&path);
    assert_eq!(client.ask("WRITE stop").0, "200 Write handler 'stop' OK");
    ok(running.output());
    assert!(!path.exists(), "the socket is removed");
}

#[test]
fn a_client_reads_and_writes_handlers_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let running = Running::start(folder.path(), &["-p", &port.to_string(), "-e", IDLE]);
    let mut client = Client::tcp(port);
    assert_eq!(client.read("q.capacity"), "5");
    // The next free port is said.
    let taken = port.to_string() + "+";
    let other = Running::start(folder.path(), &["-p", &taken, "-u", "other", "-e", IDLE, "-h", "p.color"]);
    let mut of_other = Client::unix(&folder.path().join("other"));
    assert_eq!(of_other.write("p.color", "4"), "200 Write handler 'p.color' OK");
    of_other.send("WRITE stop\n");
    let output = other.output();
    let said = String::from_utf8(output.stderr).unwrap();
    let found: u16 = said.trim().strip_prefix("control socket: 127.0.0.1:").unwrap().parse().unwrap();
    assert!(found > port, "{said}");
    assert_eq!(output.stdout, b"4\n");
    // A taken one is an error.
    let failed = graph(folder.path(), &["run", "-p", &port.to_string(), "-e", IDLE], "");
    assert_eq!(failed.status.code(), Some(1));
    let error = String::from_utf8(failed.stderr).unwrap();
    assert!(error.starts_with(&format!("weir: control socket 127.0.0.1:{port}: ")), "{error}");
    client.send("WRITE stop\n");
    ok(running.output());
}

/// A TCP port has no permissions, so weir asks the kernel for the user.
#[test]
fn other_users_get_no_answer_over_tcp() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let running = Running::start(folder.path(), &["-p", &port.to_string(), "-e", IDLE]);
    let mut client = Client::tcp(port);
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3");
    let mut other = Command::new("bash");
    other.args(["-c", &script]).stdin(Stdio::null());
    std::os::unix::process::CommandExt::uid(&mut other, 65_534);
    match other.output() {
        Ok(output) => {
            let text = String::from_utf8(output.stdout).unwrap();
            assert_eq!(text, "530 permission denied: connect as the user of the graph\r\n");
        }
        Err(error) => eprintln!("SKIPPED: a program of another user: {error}; only root can start one"),
    }
    client.send("WRITE stop\n");
    ok(running.output());
}

#[test]
fn peers_that_send_half_a_line_flood_or_never_read_delay_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let text = "s :: InfiniteSource(DATA \\<00>) -> c :: Counter -> Discard; Script(TYPE PASSIVE, return $(c.count))";
    let running = Running::start(folder.path(), &["-u", "socket", "-e", text]);
    let mut client = Client::unix(&path);
    let mut half = UnixStream::connect(&path).unwrap();
    half.write_all(b"WRITEDATA s.limit 100000\nREAD c.cou").unwrap();
    let mut flood = UnixStream::connect(&path).unwrap();
    flood.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    // It fills the buffers of both directions.
    let commands = "READ flatconfig\n".repeat(1000);
    while flood.write_all(commands.as_bytes()).is_ok() {}
    let mut last = 0;
    for _ in 0..50 {
        let count: u64 = client.read("c.count").parse().unwrap();
        assert!(count >= last);
        last = count;
    }
    let before = last;
    eventually(|| (client.read("c.count").parse::<u64>().unwrap() > before).then_some(()));
    // Further connections than the limit get an answer, and the others stay.
    let more: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let refused = more
        .iter()
        .filter(|socket| {
            let mut line = String::new();
            BufReader::new(*socket).read_line(&mut line).unwrap();
            line == "530 too many connections\r\n"
        })
        .count();
    assert_eq!(refused, 20 - (16 - 3));
    drop((half, flood));
    client.send("WRITE stop\n");
    ok(running.output());
}

/// Returns a capture of packets of 4 bytes: their number.
fn numbered(count: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1] {
        bytes.extend_from_slice(&u32::to_le_bytes(word));
    }
    for number in 0..count {
        for word in [1, number, 4, 4] {
            bytes.extend_from_slice(&u32::to_le_bytes(word));
        }
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes
}

#[test]
fn a_graph_that_is_replaced_under_traffic_passes_each_packet_once() {
    ["1", "2"].iter().for_each(|threads| passes_each_packet_once(threads));
}

fn passes_each_packet_once(threads: &str) {
    const PACKETS: u32 = 60_000;
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("in.pcap"), numbered(PACKETS)).unwrap();
    let chain = |between: &str, queue: &str| {
        format!(
            "f :: FromDump(in.pcap) -> u :: RatedUnqueue(20000) -> {between} q :: {queue}(60000) -> Unqueue -> c :: Counter -> {between} d :: ToDump(out.pcap);"
        )
    };
    let texts = [
        chain("", "Queue"),
        chain("Null -> Paint(1) ->", "Queue"),
        chain("Null ->", "FrontDropQueue"),
        chain("PushNull -> Null ->", "ThreadSafeQueue"),
    ];
    let running = Running::start(at, &["-j", threads, "-R", "-u", "socket", "-e", &texts[0]]);
    let mut client = Client::unix(&at.join("socket"));
    let mut replaced = 0;
    let mut previous = 0;
    loop {
        let text = &texts[(replaced + 1) % texts.len()];
        assert_eq!(client.write("hotconfig", text), "200 Write handler 'hotconfig' OK");
        assert_eq!(client.read("config"), *text);
        let count: u32 = client.read("c.count").parse().unwrap();
        assert!(count >= previous, "the count goes on: {count} after {previous}");
        previous = count;
        if count == PACKETS {
            break;
        }
        replaced += 1;
        // A wrong configuration in between changes nothing.
        if replaced % 3 == 0 {
            let answer =
                client.write("hotconfig", "f :: FromDump(in.pcap) -> q :: Queue(x) -> Discard;\n\nA -> B");
            assert!(answer.starts_with("520-Write handler 'hotconfig' error:\n520-config:3: "), "{answer}");
            assert!(client.read("errors").starts_with("config:3: "));
            let answer = client.write(
                "hotconfig",
                "f :: FromDump(in.pcap) -> d :: ToDump(out.pcap); Idle -> Queue(x) -> Idle",
            );
            assert!(answer.contains("\n520   CAPACITY: "), "{answer}");
            assert_eq!(client.read("config"), *text);
        }
    }
    assert!(replaced >= 5, "it was replaced {replaced} times under traffic");
    assert_eq!((client.read("q.length"), client.read("d.count")), ("0".to_owned(), PACKETS.to_string()));
    client.send("WRITE stop\n");
    let output = running.output();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success());
    let written = std::fs::read(at.join("out.pcap")).unwrap();
    let numbers: Vec<u32> =
        written[24..].chunks(20).map(|packet| u32::from_be_bytes(packet[16..].try_into().unwrap())).collect();
    assert_eq!(numbers, (0..PACKETS).collect::<Vec<u32>>());
}

#[test]
fn an_element_that_has_no_successor_completes_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("in.pcap"), numbered(10)).unwrap();
    let running = Running::start(
        at,
        &["-R", "-u", "socket", "-e", "FromDump(in.pcap) -> c :: Counter -> ToDump(out.pcap)"],
    );
    let mut client = Client::unix(&at.join("socket"));
    eventually(|| (client.read("c.count") == "10").then_some(()));
    assert!(!at.join("out.pcap").exists());
    assert_eq!(
        client.write("hotconfig", "FromDump(in.pcap) -> c :: Counter -> Discard"),
        "200 Write handler 'hotconfig' OK"
    );
    assert_eq!(std::fs::read(at.join("out.pcap")).unwrap().len(), 24 + 10 * 20);
    // The source goes on behind its last packet.
    assert_eq!(client.read("c.count"), "10");
    client.send("WRITE stop\n");
    ok(running.output());
}

#[test]
fn scripts_run_at_signals_and_send_them() {
    let folder = tempfile::tempdir().unwrap();
    let text = "Script(print $$, wait 0.01s, set x $(kill USR1 $$), wait 0.05s, set x $(kill SIGINT $$), wait 0.05s, \
                set x $(kill USR1 $$), wait 0.2s, set x $(kill INT $$), wait 0.2s, print \"end\", stop);
                Script(TYPE SIGNAL USR1, print \"one\");
                Script(TYPE SIGNAL USR1 INT, print \"two\");
                p :: Script(TYPE PASSIVE, print $(kill TERM 0))";
    for threads in ["1", "2"] {
        scripts_get_signals(folder.path(), threads, text);
    }

    // After `exit`, the signal has its default effect: INT ends the run in an orderly way.
    let text = "Script(wait 0.01s, set x $(kill INT $$), wait 0.1s, set x $(kill INT $$), wait 100s);
                s :: Script(TYPE SIGNAL INT, init n 0, set n 7, exit)";
    for threads in ["1", "2"] {
        let output = Running::start(folder.path(), &["-j", threads, "-e", text, "-h", "s.get n"]).output();
        assert_eq!(ok(output), "7\n");
    }
}

fn scripts_get_signals(folder: &Path, threads: &str, text: &str) {
    let running = Running::start(folder, &["-j", threads, "-u", "socket", "-e", text]);
    let id = running.id();
    // Other programs cannot send signals by way of a script's handlers.
    let mut client = Client::unix(&folder.join("socket"));
    assert_eq!(client.ask("READ p.kill TERM 0").0.split(' ').next(), Some("511"));
    assert_eq!(client.ask("READ p.cat /etc/passwd").0.split(' ').next(), Some("511"));
    drop(client);
    assert_eq!(ok(running.output()), format!("{id}\none\ntwo\ntwo\none\ntwo\ntwo\nend\n"));
}

#[test]
fn weir_called_click_takes_the_options_of_click() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), at.join("click")).unwrap();
    let click =
        |arguments: &[&str]| Command::new(at.join("click")).current_dir(at).args(arguments).output().unwrap();
    std::fs::write(at.join("r.click"), "s :: InfiniteSource(LIMIT $N, STOP true) -> c :: Counter -> Discard")
        .unwrap();
    assert_eq!(ok(click(&["r.click", "N=7", "-h", "c.count"])), "7\n");
    assert_eq!(
        ok(click(&["-f", "r.click", "N=3", "--handler=c.count", "--no-warnings", "--allow-reconfigure"])),
        "3\n"
    );
    assert_eq!(ok(click(&["-q", "-p", "1", "-u", "none", "N=3", "r.click", "-h", "c.count"])), "0\n");
    assert!(!at.join("none").exists());
    assert!(ok(click(&["--help"])).contains("Usage: click [OPTIONS]"));
    assert_eq!(ok(click(&["-v"])), format!("click {}\n", env!("CARGO_PKG_VERSION")));
    let wrong = click(&["--nothing\u{1b}"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(!wrong.stderr.contains(&0x1b));
}
