//! Uploads of module files in parts, over connections that fail, by honest and hostile clients.

use crate::remote::{Net, Person, SESSION, modest_grant};
use crate::testbed::is_inside;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use weir_node::client::{Client, ClientError, NodeLocation, Upload, UploadStep};
use weir_node::control::protocol::{ControlRequest, FilePart, PART_BYTES_MAX, Reply};
use weir_node::control::spec::ModuleSpec;
use weir_trust::grant::{Grant, ModuleHash, ModuleSet, Modules};
use weir_trust::key::KeyFile;

const NODE: &str = "127.0.0.1:7353";

/// A working module of this length: a shipped module with an additional custom section.
fn module(bytes: usize) -> Vec<u8> {
    let mut module =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest/modules/port-count/port-count.wasm"))
            .unwrap();
    // A custom section whose name has three letters, and whose length is encoded in five bytes.
    let mut rest = bytes - module.len() - 6;
    module.push(0);
    for last in [false, false, false, false, true] {
        module.push(u8::try_from(rest & 0x7f).unwrap() | if last { 0 } else { 0x80 });
        rest >>= 7;
    }
    module.extend(b"\x03pad");
    module.extend((module.len()..bytes).map(|at| u8::try_from(at % 251).unwrap()));
    assert_eq!(module.len(), bytes);
    module
}

/// A relay that can cut connections.
struct Relay {
    at: SocketAddr,
    /// The number of bytes to the node after which each connection is cut; the last element is for the first connection.
    cuts: Arc<Mutex<Vec<usize>>>,
    /// True if the relay accepts no connections.
    refuses_connections: Arc<AtomicBool>,
    /// True if the relay stops accepting connections after it has cut one.
    refuses_after_cut: Arc<AtomicBool>,
    /// The number of connections that were cut or refused.
    ended: Arc<AtomicUsize>,
    /// The number of bytes that were forwarded to the node.
    passed: Arc<AtomicUsize>,
}

impl Relay {
    fn open(cuts: &[usize]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = Self {
            at: listener.local_addr().unwrap(),
            cuts: Arc::new(Mutex::new(cuts.iter().rev().copied().collect())),
            refuses_connections: Arc::default(),
            refuses_after_cut: Arc::default(),
            ended: Arc::default(),
            passed: Arc::default(),
        };
        let (cuts, refuses_connections) = (Arc::clone(&relay.cuts), Arc::clone(&relay.refuses_connections));
        let refuses_after_cut = Arc::clone(&relay.refuses_after_cut);
        let (ended, passed) = (Arc::clone(&relay.ended), Arc::clone(&relay.passed));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let node = TcpStream::connect(NODE);
                let (Ok(node), false) = (node, refuses_connections.load(Ordering::Acquire)) else {
                    ended.fetch_add(1, Ordering::AcqRel);
                    continue;
                };
                let left = cuts.lock().unwrap().pop().unwrap_or(usize::MAX);
                let (mut back, mut to) = (node.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    _ = std::io::copy(&mut back, &mut to);
                    _ = to.shutdown(Shutdown::Write);
                });
                let (ended, passed) = (Arc::clone(&ended), Arc::clone(&passed));
                let (refuses_connections, refuses_after_cut) =
                    (Arc::clone(&refuses_connections), Arc::clone(&refuses_after_cut));
                std::thread::spawn(move || {
                    if forward(&client, &node, left, &passed) {
                        refuses_connections
                            .fetch_or(refuses_after_cut.load(Ordering::Acquire), Ordering::AcqRel);
                        ended.fetch_add(1, Ordering::AcqRel);
                    }
                    _ = client.shutdown(Shutdown::Both);
                    _ = node.shutdown(Shutdown::Both);
                });
            }
        });
        relay
    }

    /// A command of a person that connects through the relay.
    fn command(&self, net: &Net, who: &Person, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments).arg("--node").arg(format!("{}@{}", net.node, self.at));
        command.arg("--credential").arg(&who.credential).arg("--key").arg(&who.key);
        command
    }
}

/// Forwards at most `left` bytes. Returns true if the connection is to be cut.
fn forward(mut from: &TcpStream, mut to: &TcpStream, mut left: usize, passed: &AtomicUsize) -> bool {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let count = count.min(left);
        left -= count;
        passed.fetch_add(count, Ordering::AcqRel);
        if to.write_all(&bytes[..count]).is_err() {
            return false;
        }
        if left == 0 {
            return true;
        }
    }
    false
}

fn stderr_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The node's address and keys for a person.
fn node_location(net: &Net, who: &Person) -> NodeLocation {
    let credential: weir_trust::credential::Credential =
        std::fs::read_to_string(&who.credential).unwrap().parse().unwrap();
    let file = KeyFile::parse(&std::fs::read_to_string(&who.key).unwrap()).unwrap();
    NodeLocation::Remote {
        addresses: vec![NODE.parse().unwrap()],
        expected: vec![net.node],
        identity: Box::new(file.open(None).unwrap()),
        credential: credential.as_bytes().to_vec(),
    }
}

fn part(file: &[u8], from: usize) -> FilePart {
    let [bytes, from] = [file.len(), from].map(|count| u32::try_from(count).unwrap());
    FilePart { file: ModuleHash::of_bytes(file), bytes, from }
}

/// Sends a part. Returns the number of received bytes, or the reason of the refusal.
fn send(client: &mut Client, part: FilePart, bytes: &[u8]) -> Result<u32, String> {
    client.send(ControlRequest::Upload(part), bytes).unwrap();
    match client.receive() {
        Ok(Reply::Uploaded { bytes }) => Ok(bytes),
        Ok(other) => panic!("{other:?}"),
        Err(ClientError::Refused(why)) => Err(why),
        Err(error) => panic!("{error}"),
    }
}

fn load(client: &mut Client, name: &str, file: &[u8]) -> Result<Vec<String>, String> {
    let module: ModuleSpec =
        serde_json::from_value(serde_json::json!({"module": "theirs.wasm", "name": name})).unwrap();
    let request = ControlRequest::Load {
        session: "study".parse().unwrap(),
        module,
        signatures: Vec::new(),
        replace: None,
    };
    client.execute_with_file(request, ModuleHash::of_bytes(file)).map_err(|error| error.to_string())
}

#[test]
fn an_interrupted_load_resumes_where_its_connection_was_cut() {
    if !is_inside("upload::an_interrupted_load_resumes_where_its_connection_was_cut") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest_grant());
    net.run(&researcher, &SESSION);
    let file = net.folder.path().join("large.wasm");
    let bytes = module(3 << 20);
    std::fs::write(&file, &bytes).unwrap();
    // In parts, and in a handshake.
    let relay = Relay::open(&[900_000, 150, 700_000]);
    let load = ["load", "study", file.to_str().unwrap()];
    let output = relay.command(&net, &researcher, &load).output().unwrap();
    let stderr = stderr_of(&output);
    assert!(output.status.success(), "{stderr}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("module port-count runs in session study\n"));
    // A connection that is closed in its handshake is retried without a message.
    assert!(stderr.matches("trying again in").count() >= 2 && !stderr.contains("sent again"), "{stderr}");
    // Standard error is no terminal, so no progress is shown.
    assert!(!stderr.contains('%'), "{stderr}");
    assert_eq!(relay.ended.load(Ordering::Acquire), 3);
    // Parts that had arrived were not sent again, apart from those that were cut.
    let passed = relay.passed.load(Ordering::Acquire);
    assert!(passed < bytes.len() + 3 * PART_BYTES_MAX, "{passed}");
    let name = researcher.name_of("study");
    net.testbed.until("the module runs", |testbed| {
        testbed.part(&name, "modules", "port-count")["state"] == "running"
    });

    // The node has the file: loading it once more sends only an empty part and the request.
    net.run(&researcher, &["unload", "study", "port-count"]);
    let output = relay.command(&net, &researcher, &load).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(relay.passed.load(Ordering::Acquire) < passed + PART_BYTES_MAX);
    assert!(net.testbed.stop().success());
}

#[test]
fn a_restarted_node_gets_the_file_from_the_beginning() {
    if !is_inside("upload::a_restarted_node_gets_the_file_from_the_beginning") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest_grant());
    let file = net.folder.path().join("large.wasm");
    std::fs::write(&file, module(2 << 20)).unwrap();
    let relay = Relay::open(&[1 << 20]);
    relay.refuses_after_cut.store(true, Ordering::Release);
    let mut command = relay.command(&net, &researcher, &["load", "study", file.to_str().unwrap()]);
    let command = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let command = command.spawn().unwrap();
    net.testbed.until("the connection was cut", |_| relay.ended.load(Ordering::Acquire) > 0);
    assert!(net.testbed.stop().success());
    net.testbed.start();
    net.run(&researcher, &SESSION);
    relay.refuses_connections.store(false, Ordering::Release);
    let output = command.wait_with_output().unwrap();
    let stderr = stderr_of(&output);
    assert!(output.status.success() && stderr.contains("weir sends the lost bytes again"), "{stderr}");
    let name = researcher.name_of("study");
    net.testbed.until("the module runs", |testbed| {
        testbed.part(&name, "modules", "port-count")["state"] == "running"
    });
    assert!(net.testbed.stop().success());
}

#[test]
fn an_upload_is_private_to_its_sender_and_has_the_announced_hash() {
    if !is_inside("upload::an_upload_is_private_to_its_sender_and_has_the_announced_hash") {
        return;
    }
    let mut net = Net::new();
    let cpu = ["--cpu", "period=10ms,slice=400us"];
    let (alice, bob) = (net.granted("alice", modest_grant()), net.granted("bob", modest_grant()));
    let student = net.delegated(&alice, "student", Grant::default());
    for person in [&alice, &bob, &student] {
        net.run(person, &[&SESSION[..], &cpu].concat());
    }
    let file = module(600 << 10);
    let whole = u32::try_from(file.len()).unwrap();
    let connect = |who: &Person| Client::connect_to(&node_location(&net, who)).unwrap();
    let mut alices = connect(&alice);
    let most = u32::try_from(PART_BYTES_MAX).unwrap();

    // A part that is not the next one is not accepted; one beyond the file's end, or too long, is refused.
    assert_eq!(send(&mut alices, part(&file, 0), &file[..PART_BYTES_MAX]), Ok(most));
    assert_eq!(send(&mut alices, part(&file, 7), &file[7..100]), Ok(most));
    assert_eq!(send(&mut alices, part(&file, 500_000), &file[500_000..500_100]), Ok(most));
    let beyond = send(&mut alices, FilePart { bytes: most + 1, ..part(&file, 0) }, &[0; 10]);
    assert_eq!(beyond, Ok(10), "another length is another file");
    let beyond =
        send(&mut alices, FilePart { bytes: most + 1, from: 10, ..part(&file, 0) }, &vec![0; PART_BYTES_MAX]);
    assert!(beyond.unwrap_err().contains("after the end of its file"));
    for bytes in [0, 9 << 20, u32::MAX] {
        let refused = send(&mut alices, FilePart { bytes, ..part(&file, 0) }, &[0; 10]);
        assert!(refused.unwrap_err().contains("a module's file has between 1 and"));
    }
    let long = alices.send(ControlRequest::Upload(part(&file, 0)), &vec![0; PART_BYTES_MAX + 1]);
    assert!(matches!(long, Err(ClientError::BodyTooLong { .. })), "{long:?}");

    // A file with another hash than announced is discarded, and cannot be loaded.
    let mut other = file.clone();
    other[300_000] ^= 1;
    for (index, bytes) in other.chunks(PART_BYTES_MAX).enumerate() {
        let sent = send(&mut alices, part(&file, index * PART_BYTES_MAX), bytes);
        match sent {
            Ok(there) => assert!(there < whole),
            Err(why) => assert!(why.contains("does not have the SHA-256"), "{why}"),
        }
    }
    assert_eq!(send(&mut alices, part(&file, 0), &[]), Ok(0));
    assert!(load(&mut alices, "x", &file).unwrap_err().contains("you have no complete file"));

    // Two connections of Alice upload the file together.
    let mut second = connect(&alice);
    let mut there = 0;
    while there < file.len() {
        for client in [&mut alices, &mut second] {
            let end = file.len().min(there + 100_000);
            there = usize::try_from(send(client, part(&file, there), &file[there..end]).unwrap()).unwrap();
        }
    }
    // No other client can use the file: another holder, a delegate of Alice, or the operator.
    for person in [&bob, &student] {
        let mut client = connect(person);
        assert_eq!(send(&mut client, part(&file, 0), &[]), Ok(0));
        assert!(load(&mut client, "x", &file).unwrap_err().contains("you have no complete file"));
    }
    let mut operators = Client::connect_local(&net.testbed.path().join("node.sock")).unwrap();
    assert_eq!(send(&mut operators, part(&file, 0), &[]), Ok(0));
    load(&mut alices, "x", &file).unwrap();
    load(&mut second, "y", &file).unwrap();

    // The credential's module hashes are compared with the bytes that are loaded.
    let named = ModuleSet { hashes: [ModuleHash::of_bytes(&file)].into(), ..ModuleSet::default() };
    let carol = net.granted("carol", Grant { modules: Modules::from(named), ..modest_grant() });
    net.run(&carol, &[&SESSION[..], &cpu].concat());
    let another = module(500 << 10);
    for (bytes, is_hers) in [(&another, false), (&file, true)] {
        let upload = Upload::new(bytes).unwrap();
        let node = node_location(&net, &carol);
        let mut last = 0;
        let mut tell = |step: UploadStep<'_>| {
            if let UploadStep::Progress { bytes, .. } = step {
                last = bytes
            }
        };
        let mut client =
            upload.send(&mut || Client::connect_to(&node), &mut std::thread::sleep, &mut tell).unwrap();
        assert_eq!(last, bytes.len());
        let loaded = load(&mut client, "z", bytes);
        assert_eq!(loaded.is_ok(), is_hers, "{loaded:?}");
        assert!(is_hers || loaded.unwrap_err().contains("modules: asked for"));
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn a_terminal_shows_the_progress_of_an_upload() {
    if !is_inside("upload::a_terminal_shows_the_progress_of_an_upload") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest_grant());
    net.run(&researcher, &SESSION);
    let file = net.folder.path().join("large.wasm");
    std::fs::write(&file, module(4 << 20)).unwrap();
    let line = format!(
        "stty cols 120 rows 40; {} load study {} --node {}@{NODE} --credential {} --key {}",
        env!("CARGO_BIN_EXE_weir"),
        file.display(),
        net.node,
        researcher.credential.display(),
        researcher.key.display()
    );
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &line, "/dev/null"]).env("SHELL", "/bin/sh").env("TERM", "xterm");
    let Ok(output) = script.stdin(std::process::Stdio::null()).output() else {
        _ = writeln!(std::io::stderr(), "skipped: there is no script(1) to make a terminal with");
        return;
    };
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && shown.contains("runs in session"), "{shown}");
    assert!(shown.contains(" %  ") && shown.contains("of 4.00 MiB") && shown.contains("/s"), "{shown}");
    assert!(net.testbed.stop().success());
}
