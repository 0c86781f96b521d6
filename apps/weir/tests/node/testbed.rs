//! The testbed: a network namespace with a virtual cable from `a` to `b`, and a node that receives at `b`.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use weir_admission::Manifest;
use weir_netio::{LiveSink, SocketKind};
use weir_rows::JsonRows;
use weir_session::{Record, RecordOrder};
use weir_units::bytes_of_hex;

/// The prefix of a line on standard error that contains a measurement.
pub const MEASUREMENT_PREFIX: &str = "measured: ";
/// A timeout that is never reached by a working node, even on a slow and busy machine.
pub const TIMEOUT: Duration = Duration::from_secs(300);
const INSIDE: &str = "WEIR_TEST_INSIDE_NAMESPACE";

/// Returns true in a process that has network and mount namespaces of its own. The first call runs the named test in such a
/// process, and returns false; it also returns false if namespaces cannot be created.
///
/// Lines on standard error of the inner process that begin with [`MEASUREMENT_PREFIX`] are printed.
pub fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let can = Command::new("unshare").args(["--net", "--mount", "ip", "-V"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: needs root, unshare(1) and ip(8)");
        return false;
    }
    let program = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args([
            "--net".as_ref(),
            "--mount".as_ref(),
            program.as_os_str(),
            "--exact".as_ref(),
            test.as_ref(),
            "--nocapture".as_ref(),
        ])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    for line in said.lines().filter(|line| line.starts_with(MEASUREMENT_PREFIX)) {
        _ = writeln!(std::io::stderr(), "{line}");
    }
    false
}

pub fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Creates a cable between two new interfaces, and waits until both have a carrier, as packets are lost before. IPv6 is
/// disabled, so that no neighbour or router discovery disturbs the packet counts.
pub fn cable(one: &str, other: &str) {
    ip(&format!("link add name {one} type veth peer name {other}"));
    for end in [one, other] {
        ip(&format!("link set dev {end} addrgenmode none"));
        ip(&format!("link set dev {end} up"));
    }
    let begin = Instant::now();
    while [one, other].iter().any(|end| !has_carrier(end)) {
        assert!(begin.elapsed() < TIMEOUT, "{one} and {other} do not come up");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns true if an interface has a carrier.
pub fn has_carrier(interface: &str) -> bool {
    interface_state(interface)["operstate"] == "UP"
}

/// An Ethernet frame with a UDP datagram to this port.
pub fn udp(port: u16, payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((28 + len).to_be_bytes());
    frame.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(1000u16.to_be_bytes());
    frame.extend(port.to_be_bytes());
    frame.extend((8 + len).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame.resize(frame.len().max(60), 0);
    frame
}

/// Sets the IPv4 header checksum of a frame that `udp` has made.
pub fn with_ip_checksum(mut frame: Vec<u8>) -> Vec<u8> {
    frame[24..26].copy_from_slice(&[0, 0]);
    let mut sum: u32 = frame[14..34].chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1])).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let sum = !u16::try_from(sum).unwrap();
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// A UDP datagram to this port, in IPv4 fragments with 512 bytes of data each.
pub fn udp_fragments(port: u16, id: u16, payload: &[u8]) -> Vec<Vec<u8>> {
    let frame = udp(port, payload);
    let (front, data) = frame.split_at(34);
    let part = |(number, part): (usize, &[u8])| {
        let mut fragment = front.to_vec();
        let has_more = (number + 1) * 512 < data.len();
        let offset = u16::try_from(number * 64).unwrap() | u16::from(has_more) << 13;
        fragment[16..18].copy_from_slice(&u16::try_from(20 + part.len()).unwrap().to_be_bytes());
        fragment[18..20].copy_from_slice(&id.to_be_bytes());
        fragment[20..22].copy_from_slice(&offset.to_be_bytes());
        fragment.extend_from_slice(part);
        with_ip_checksum(fragment)
    };
    data.chunks(512).enumerate().map(part).collect()
}

/// The state of an interface, as JSON of ip(8).
pub fn interface_state(interface: &str) -> Value {
    let output = Command::new("ip").args(["-s", "-j", "link", "show", "dev", interface]).output().unwrap();
    assert!(output.status.success(), "{interface}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice::<Value>(&output.stdout).unwrap()[0].clone()
}

/// A testbed with a running node.
pub struct Testbed {
    folder: tempfile::TempDir,
    node: Option<Child>,
    sink: LiveSink,
    of_node: String,
    of_cpu: String,
    /// The socket of a simulated service manager, if there is one.
    manager: Option<PathBuf>,
}

impl Testbed {
    /// Starts a node with these sessions. Intervals and limits in the configuration are as short as possible.
    pub fn new(sessions: &str) -> Self {
        Self::with_node("", sessions)
    }

    /// As [`Self::new`], with further lines in the section `[node]`.
    pub fn with_node(node: &str, sessions: &str) -> Self {
        Self::with_sections(node, "", sessions, None)
    }

    /// As [`Self::new`], with further lines in the section `[cpu]`; `PATH` stands for the test's folder.
    pub fn with_cpu(cpu: &str, sessions: &str) -> Self {
        Self::with_sections("", cpu, sessions, None)
    }

    /// As [`Self::with_node`], with a simulated service manager that listens on this socket.
    pub fn managed(node: &str, sessions: &str, manager: &Path) -> Self {
        Self::with_sections(node, "", sessions, Some(manager))
    }

    /// As [`Self::with_node`], with the state folder on a file system of this size. Returns none, with a line on standard error,
    /// if it cannot be mounted. The mount disappears with the test's namespace.
    pub fn with_disk(size: &str, node: &str, sessions: &str) -> Option<Self> {
        let mut testbed = Self::prepared(node, "", None);
        let disk = testbed.disk();
        std::fs::create_dir(&disk).unwrap();
        let options = format!("size={size},mode=700");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&disk).output();
        if !mounted.is_ok_and(|output| output.status.success()) {
            let _ = writeln!(std::io::stderr(), "skipped: a disk cannot be mounted here");
            return None;
        }
        testbed.configure(sessions);
        testbed.start();
        Some(testbed)
    }

    /// As [`Self::new`], with further lines in both sections.
    pub fn with_parts(node: &str, cpu: &str, sessions: &str) -> Self {
        Self::with_sections(node, cpu, sessions, None)
    }

    fn with_sections(node: &str, cpu: &str, sessions: &str, manager: Option<&Path>) -> Self {
        let mut testbed = Self::prepared(node, cpu, manager);
        testbed.configure(sessions);
        testbed.start();
        testbed
    }

    /// A testbed whose node is not configured or started yet.
    pub fn prepared(node: &str, cpu: &str, manager: Option<&Path>) -> Self {
        cable("a", "b");
        let folder = tempfile::tempdir().unwrap();
        let sink = LiveSink::open("a", SocketKind::Packet).unwrap();
        let of_cpu = cpu.replace("PATH", &folder.path().display().to_string());
        let (of_node, manager) = (node.to_owned(), manager.map(Path::to_owned));
        Self { folder, node: None, sink, of_node, of_cpu, manager }
    }

    /// The node's state folder.
    pub fn disk(&self) -> PathBuf {
        self.path().join("state")
    }

    /// The node's process number.
    pub fn process(&self) -> u32 {
        self.node.as_ref().unwrap().id()
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn config(&self) -> PathBuf {
        self.path().join("node.toml")
    }

    pub fn configure(&self, sessions: &str) {
        let path = self.path().display();
        let interval =
            if self.of_node.contains("ledger_interval") { "" } else { "ledger_interval = \"100ms\"\n" };
        let head = format!(
            "[node]\nname = \"test\"\nsocket = \"{path}/node.sock\"\nstate = \"{path}/state\"\n{interval}{}\
             [cpu]\nblocking = \"5ms\"\n{}[[interface]]\nname = \"b\"\narena = \"8 MiB\"\n",
            self.of_node, self.of_cpu
        );
        std::fs::write(self.config(), head + sessions).unwrap();
    }

    pub fn start(&mut self) {
        let said =
            std::fs::OpenOptions::new().create(true).append(true).open(self.path().join("said")).unwrap();
        // Another program, such as weir without a compiler, can be tested in place of this one.
        let program = std::env::var_os("WEIR_TEST_NODE");
        let mut command = Command::new(program.unwrap_or_else(|| env!("CARGO_BIN_EXE_weir").into()));
        command.args(["node", "-c"]).arg(self.config()).stdin(Stdio::null()).stderr(said);
        command.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
        command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
        if let Some(manager) = &self.manager {
            command.env("NOTIFY_SOCKET", manager);
        }
        self.node = Some(command.env_remove("SUDO_UID").spawn().unwrap());
        let running = self.log().matches("is running").count();
        self.until("the node runs", |testbed| testbed.log().matches("is running").count() > running);
    }

    /// The node's log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path().join("said")).unwrap_or_default()
    }

    /// Waits until a condition is true.
    pub fn until(&mut self, what: &str, mut condition: impl FnMut(&mut Self) -> bool) {
        let begin = Instant::now();
        while !condition(self) {
            if let Some(status) = self.node.as_mut().and_then(|node| node.try_wait().unwrap()) {
                panic!("{what}: the node has ended ({status}): {}", self.log());
            }
            if begin.elapsed() >= TIMEOUT {
                let is_there = self.path().join("node.sock").exists();
                let shown = if is_there { self.send_request(json!("show")) } else { Value::Null };
                panic!("{what}: {}\n{shown}\n{:?}", self.log(), self.descriptors_and_mappings());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.path().join("node.sock")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream
    }

    /// Sends a request to the node's socket, and returns the reply.
    pub fn send_request(&self, request: Value) -> Value {
        self.send_request_with_body(request, &[])
    }

    /// As [`Self::request`], with a module's file.
    pub fn send_request_with_body(&self, request: Value, body: &[u8]) -> Value {
        let mut stream = self.connect();
        writeln!(stream, "{}", json!({"weir": 1, "request": request, "body": body.len()})).unwrap();
        stream.write_all(body).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str::<Value>(&line).unwrap_or_else(|error| panic!("{error}: {line}"))["reply"]
            .clone()
    }

    /// Sends a request that has to succeed.
    pub fn request(&self, request: Value) {
        let reply = self.send_request(request.clone());
        assert!(reply.get("done").is_some(), "{request}: {reply}");
    }

    /// Sends a request that has to be refused, and returns the reason.
    pub fn request_refused(&self, request: Value) -> String {
        let reply = self.send_request(request.clone());
        reply["refused"]["why"].as_str().unwrap_or_else(|| panic!("{request}: {reply}")).to_owned()
    }

    pub fn load(&self, session: &str, spec: Value, body: &[u8]) -> Value {
        self.send_request_with_body(json!({"load": {"session": session, "module": spec}}), body)
    }

    pub fn snapshot(&self) -> Value {
        self.send_request(json!("show"))["snapshot"].clone()
    }

    /// A part of a session's status, by its kind ("modules", "channels", "cpu") and name.
    pub fn part(&self, session: &str, what: &str, name: &str) -> Value {
        let snapshot = self.snapshot();
        let found = named(&snapshot["sessions"], session).and_then(|session| named(&session[what], name));
        found.unwrap_or_else(|| panic!("{session} has no {what} `{name}`: {snapshot}\n{}", self.log()))
    }

    /// The value of a module's counter.
    pub fn count(&self, session: &str, module: &str, what: &str) -> u64 {
        self.part(session, "modules", module)[what].as_u64().unwrap()
    }

    /// Sends these frames at `a`.
    pub fn send(&mut self, frames: &[Vec<u8>]) {
        for portion in frames.chunks(50) {
            let mut rest: Vec<&[u8]> = portion.iter().map(Vec::as_slice).collect();
            while !rest.is_empty() {
                let taken = self.sink.send(&rest).consumed;
                rest.drain(..taken);
            }
        }
    }

    /// Stops the node with a signal, and waits until it has ended.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal("TERM");
        self.node.take().unwrap().wait().unwrap()
    }

    /// Waits until the node's process has ended.
    pub fn wait_for_exit(&mut self) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = self.node.as_mut().unwrap().try_wait().unwrap() {
                self.node = None;
                return status;
            }
            assert!(begin.elapsed() < TIMEOUT, "the node goes on: {}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn kill(&mut self) {
        let mut node = self.node.take().unwrap();
        node.kill().unwrap();
        node.wait().unwrap();
    }

    pub fn signal(&self, name: &str) {
        let id = self.node.as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// The private memory of the node's process, in bytes.
    pub fn memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// The processor time of the node's process, in hundredths of a second.
    pub fn processor(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.process())).unwrap();
        let (_, rest) = stat.rsplit_once(')').unwrap();
        rest.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().unwrap()).sum()
    }

    /// The numbers of open file descriptors and of memory mappings of the node's process.
    pub fn descriptors_and_mappings(&self) -> (usize, usize) {
        let proc = PathBuf::from(format!("/proc/{}", self.node.as_ref().unwrap().id()));
        let maps = std::fs::read_to_string(proc.join("maps")).unwrap();
        (std::fs::read_dir(proc.join("fd")).unwrap().count(), maps.lines().count())
    }

    /// Waits until the node has at most as many descriptors and mappings as in `than`, plus `more`. Threads may release some of
    /// them with a delay.
    pub fn wait_until_released(&mut self, than: (usize, usize), more: (usize, usize)) {
        self.until(&format!("it holds no more than {than:?} and {more:?}"), |testbed| {
            let (descriptors, areas) = testbed.descriptors_and_mappings();
            descriptors <= than.0 + more.0 && areas <= than.1 + more.1
        });
    }

    /// The entries of the ledger, whose hash chain is checked. An incomplete last line, which is being written, is left out.
    pub fn ledger(&self) -> Vec<Value> {
        let folder = self.path().join("state/ledger");
        weir_ledger_files::verify(&folder, weir_ledger::VerifyOptions::default()).unwrap();
        let mut files: Vec<_> =
            std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        files.sort();
        let lines = files.iter().flat_map(|path| {
            let text = std::fs::read_to_string(path).unwrap();
            let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            whole.map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
        });
        lines.collect()
    }

    /// The sum of a counter over all usage entries of a session.
    pub fn ledger_usage(&self, session: &str, what: &str) -> u64 {
        let entries = self.ledger();
        let bills =
            entries.iter().filter(|entry| entry["kind"] == "usage" && entry["session"]["name"] == session);
        // In idle intervals a session is charged for memory only, in entries that sessions share.
        let groups = entries.iter().filter_map(|entry| entry["idle"].as_array()).flatten();
        let idle = groups
            .filter(|group| group["sessions"].as_array().unwrap().iter().any(|there| there[0] == session));
        bills.map(|entry| &entry["usage"]).chain(idle).filter_map(|used| used[what].as_u64()).sum()
    }
}

impl Drop for Testbed {
    fn drop(&mut self) {
        if let Some(mut node) = self.node.take() {
            let _ = node.kill();
            let _ = node.wait();
        }
        // If a file system is mounted there, it has to be unmounted before the folder can be removed.
        let _ = Command::new("umount").arg("-q").arg(self.disk()).stderr(Stdio::null()).status();
    }
}

fn named(list: &Value, name: &str) -> Option<Value> {
    list.as_array().into_iter().flatten().find(|part| part["name"] == name).cloned()
}

/// The node's replies to a follower. The fields of records are read by the module's manifest, which the node sends first.
pub struct FollowedReplies {
    lines: Lines<BufReader<UnixStream>>,
    manifests: Vec<Manifest>,
}

impl FollowedReplies {
    /// Follows a stream of a module from now on.
    pub fn new(testbed: &Testbed, session: &str, module: &str, stream: &str) -> Self {
        Self::of(testbed, json!({"session": session, "module": module, "streams": [stream]}))
    }

    /// Follows by this content of a request.
    pub fn of(testbed: &Testbed, follow: Value) -> Self {
        let mut stream = testbed.connect();
        let request = json!({"weir": 1, "request": {"follow": follow}});
        writeln!(stream, "{request}").unwrap();
        let mut lines = BufReader::new(stream).lines();
        let first: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        let modules = first["reply"]["followed"]["modules"].as_array();
        let modules = modules.unwrap_or_else(|| panic!("{first}"));
        let manifest =
            |module: &Value| Manifest::parse(module["manifest"].as_str().unwrap().as_bytes()).unwrap();
        Self { lines, manifests: modules.iter().map(manifest).collect() }
    }
}

impl Iterator for FollowedReplies {
    type Item = Value;

    fn next(&mut self) -> Option<Value> {
        let line: Value = serde_json::from_str(&self.lines.next()?.ok()?).unwrap();
        let mut reply = line["reply"].clone();
        if let Some(record) = reply.get("record") {
            let index = |name: &str| usize::try_from(record[name].as_u64().unwrap()).unwrap();
            let bytes = |name: &str| bytes_of_hex(record[name].as_str().unwrap_or_default()).unwrap();
            let (row, tail) = (bytes("row"), bytes("tail"));
            let stream = &self.manifests[index("module")].streams[index("stream")];
            assert!(stream.fits(&row, &tail), "{line}");
            let record = Record { order: RecordOrder::packet(0), stream: 0, row: &row, tail: &tail };
            let mut json = Vec::new();
            JsonRows::new("m", stream, weir_rows::utc).push(&mut json, &record);
            let fields: Value = serde_json::from_slice(&json).unwrap();
            reply["record"] = fields;
        }
        Some(reply)
    }
}
