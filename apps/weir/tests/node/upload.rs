//! Files of modules that come in parts, over connections that break, of people who mean well and others.

use crate::place::is_inside;
use crate::remote::{Net, Person, SESSION, modest};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use weir_node::client::{Client, ClientError, Upload, UploadStep, Whereabouts};
use weir_node::control::protocol::{ControlRequest, FilePart, PART_BYTES_MAX, Reply};
use weir_node::control::spec::ModuleSpec;
use weir_trust::grant::{Grant, ModuleHash, ModuleSet, Modules};
use weir_trust::key::KeyFile;

const NODE: &str = "127.0.0.1:7353";

/// A module that works, of so many bytes: one that comes with weir, with something behind it that nobody reads.
fn module(bytes: usize) -> Vec<u8> {
    let mut module =
        std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../guest/modules/port-count/port-count.wasm"))
            .unwrap();
    // A section of a name of three letters, and of the rest; its length has five bytes.
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

/// Somebody in the middle who passes everything on, and cuts connections.
struct Way {
    at: SocketAddr,
    /// Bytes to the node after which each connection is cut, the last one first.
    cuts: Arc<Mutex<Vec<usize>>>,
    /// Nobody comes through,
    is_closed: Arc<AtomicBool>,
    /// or nobody does when one was cut.
    closes: Arc<AtomicBool>,
    /// Connections that were cut, or not let through; and all that came to the node.
    ended: Arc<AtomicUsize>,
    passed: Arc<AtomicUsize>,
}

impl Way {
    fn open(cuts: &[usize]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let way = Self {
            at: listener.local_addr().unwrap(),
            cuts: Arc::new(Mutex::new(cuts.iter().rev().copied().collect())),
            is_closed: Arc::default(),
            closes: Arc::default(),
            ended: Arc::default(),
            passed: Arc::default(),
        };
        let (cuts, is_closed) = (Arc::clone(&way.cuts), Arc::clone(&way.is_closed));
        let closes = Arc::clone(&way.closes);
        let (ended, passed) = (Arc::clone(&way.ended), Arc::clone(&way.passed));
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let node = TcpStream::connect(NODE);
                let (Ok(node), false) = (node, is_closed.load(Ordering::Acquire)) else {
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
                let (is_closed, closes) = (Arc::clone(&is_closed), Arc::clone(&closes));
                std::thread::spawn(move || {
                    if forward(&client, &node, left, &passed) {
                        is_closed.fetch_or(closes.load(Ordering::Acquire), Ordering::AcqRel);
                        ended.fetch_add(1, Ordering::AcqRel);
                    }
                    _ = client.shutdown(Shutdown::Both);
                    _ = node.shutdown(Shutdown::Both);
                });
            }
        });
        way
    }

    /// A command of somebody's, that goes this way.
    fn command(&self, net: &Net, who: &Person, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments).arg("--node").arg(format!("{}@{}", net.node, self.at));
        command.arg("--credential").arg(&who.credential).arg("--key").arg(&who.key);
        command
    }
}

/// Passes on so many bytes. Whether it was cut for that.
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

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where the node is, for somebody.
fn whereabouts(net: &Net, who: &Person) -> Whereabouts {
    let credential: weir_trust::credential::Credential =
        std::fs::read_to_string(&who.credential).unwrap().parse().unwrap();
    let file = KeyFile::parse(&std::fs::read_to_string(&who.key).unwrap()).unwrap();
    Whereabouts::There {
        addresses: vec![NODE.parse().unwrap()],
        expected: Some(net.node),
        identity: Box::new(file.open(None).unwrap()),
        credential: credential.as_bytes().to_vec(),
    }
}

fn part(file: &[u8], from: usize) -> FilePart {
    let [bytes, from] = [file.len(), from].map(|count| u32::try_from(count).unwrap());
    FilePart { file: ModuleHash::of(file), bytes, from }
}

/// Sends a part. How much is there, or why it is refused.
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
    let ask = ControlRequest::Load { session: "study".parse().unwrap(), module, signatures: Vec::new() };
    client.order_with(ask, ModuleHash::of(file)).map_err(|error| error.to_string())
}

#[test]
fn a_load_goes_on_where_its_connection_was_cut() {
    if !is_inside("upload::a_load_goes_on_where_its_connection_was_cut") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest());
    net.done(&researcher, &SESSION);
    let file = net.folder.path().join("large.wasm");
    let bytes = module(3 << 20);
    std::fs::write(&file, &bytes).unwrap();
    // In the middle of parts, and in the middle of a handshake.
    let way = Way::open(&[900_000, 150, 700_000]);
    let load = ["load", "study", file.to_str().unwrap()];
    let output = way.command(&net, &researcher, &load).output().unwrap();
    let said = said(&output);
    assert!(output.status.success(), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("module port-count runs in session study\n"));
    // One that is closed in its handshake is tried again without a word.
    assert!(said.matches("trying again in").count() >= 2 && !said.contains("sent again"), "{said}");
    // Nobody sits at a terminal.
    assert!(!said.contains('%'), "{said}");
    assert_eq!(way.ended.load(Ordering::Acquire), 3);
    // What had come was not sent again, but for the parts that were cut.
    let passed = way.passed.load(Ordering::Acquire);
    assert!(passed < bytes.len() + 3 * PART_BYTES_MAX, "{passed}");
    let name = researcher.name_of("study");
    net.place.until("it runs", |place| place.part(&name, "modules", "port-count")["state"] == "running");

    // It is there: to load it once more takes no more than to say so.
    net.done(&researcher, &["unload", "study", "port-count"]);
    let output = way.command(&net, &researcher, &load).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(way.passed.load(Ordering::Acquire) < passed + PART_BYTES_MAX);
    assert!(net.place.stop().success());
}

#[test]
fn a_node_that_was_started_anew_gets_the_file_from_the_beginning() {
    if !is_inside("upload::a_node_that_was_started_anew_gets_the_file_from_the_beginning") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest());
    let file = net.folder.path().join("large.wasm");
    std::fs::write(&file, module(2 << 20)).unwrap();
    let way = Way::open(&[1 << 20]);
    way.closes.store(true, Ordering::Release);
    let mut command = way.command(&net, &researcher, &["load", "study", file.to_str().unwrap()]);
    let command = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let command = command.spawn().unwrap();
    net.place.until("it was cut", |_| way.ended.load(Ordering::Acquire) > 0);
    assert!(net.place.stop().success());
    net.place.start();
    net.done(&researcher, &SESSION);
    way.is_closed.store(false, Ordering::Release);
    let output = command.wait_with_output().unwrap();
    let said = said(&output);
    assert!(output.status.success() && said.contains("the rest is sent again"), "{said}");
    let name = researcher.name_of("study");
    net.place.until("it runs", |place| place.part(&name, "modules", "port-count")["state"] == "running");
    assert!(net.place.stop().success());
}

#[test]
fn what_is_sent_is_its_senders_alone_and_is_what_was_announced() {
    if !is_inside("upload::what_is_sent_is_its_senders_alone_and_is_what_was_announced") {
        return;
    }
    let mut net = Net::new();
    let cpu = ["--cpu", "period=10ms,slice=400us"];
    let (alice, bob) = (net.granted("alice", modest()), net.granted("bob", modest()));
    let student = net.delegated(&alice, "student", Grant::default());
    for person in [&alice, &bob, &student] {
        net.done(person, &[&SESSION[..], &cpu].concat());
    }
    let file = module(600 << 10);
    let whole = u32::try_from(file.len()).unwrap();
    let connect = |who: &Person| Client::to(&whereabouts(&net, who)).unwrap();
    let mut alices = connect(&alice);
    let most = u32::try_from(PART_BYTES_MAX).unwrap();

    // A part that is not the next one is not taken; one that is more than the file, or that is longer than a part, is refused.
    assert_eq!(send(&mut alices, part(&file, 0), &file[..PART_BYTES_MAX]), Ok(most));
    assert_eq!(send(&mut alices, part(&file, 7), &file[7..100]), Ok(most));
    assert_eq!(send(&mut alices, part(&file, 500_000), &file[500_000..500_100]), Ok(most));
    let beyond = send(&mut alices, FilePart { bytes: most + 1, ..part(&file, 0) }, &[0; 10]);
    assert_eq!(beyond, Ok(10), "another length is another file");
    let beyond =
        send(&mut alices, FilePart { bytes: most + 1, from: 10, ..part(&file, 0) }, &vec![0; PART_BYTES_MAX]);
    assert!(beyond.unwrap_err().contains("behind the end of its file"));
    for bytes in [0, 9 << 20, u32::MAX] {
        let refused = send(&mut alices, FilePart { bytes, ..part(&file, 0) }, &[0; 10]);
        assert!(refused.unwrap_err().contains("a module's file has between 1 and"));
    }
    let long = alices.send(ControlRequest::Upload(part(&file, 0)), &vec![0; PART_BYTES_MAX + 1]);
    assert!(matches!(long, Err(ClientError::BodyTooLong { .. })), "{long:?}");

    // What is not what was announced is forgotten, and cannot be loaded.
    let mut other = file.clone();
    other[300_000] ^= 1;
    for (place, bytes) in other.chunks(PART_BYTES_MAX).enumerate() {
        let sent = send(&mut alices, part(&file, place * PART_BYTES_MAX), bytes);
        match sent {
            Ok(there) => assert!(there < whole),
            Err(why) => assert!(why.contains("is not the file of SHA-256"), "{why}"),
        }
    }
    assert_eq!(send(&mut alices, part(&file, 0), &[]), Ok(0));
    assert!(load(&mut alices, "x", &file).unwrap_err().contains("there is no whole file"));

    // Two connections of hers send it together.
    let mut second = connect(&alice);
    let mut there = 0;
    while there < file.len() {
        for client in [&mut alices, &mut second] {
            let end = file.len().min(there + 100_000);
            there = usize::try_from(send(client, part(&file, there), &file[there..end]).unwrap()).unwrap();
        }
    }
    // Others have nothing of it: not somebody else, nor who got the right from her, nor the operator.
    for person in [&bob, &student] {
        let mut client = connect(person);
        assert_eq!(send(&mut client, part(&file, 0), &[]), Ok(0));
        assert!(load(&mut client, "x", &file).unwrap_err().contains("there is no whole file"));
    }
    let mut operators = Client::connect(&net.place.path().join("node.sock")).unwrap();
    assert_eq!(send(&mut operators, part(&file, 0), &[]), Ok(0));
    load(&mut alices, "x", &file).unwrap();
    load(&mut second, "y", &file).unwrap();

    // What her credential says of modules is held against the very bytes that are loaded.
    let named = ModuleSet { hashes: [ModuleHash::of(&file)].into(), ..ModuleSet::default() };
    let carol = net.granted("carol", Grant { modules: Modules::from(named), ..modest() });
    net.done(&carol, &[&SESSION[..], &cpu].concat());
    let another = module(500 << 10);
    for (bytes, is_hers) in [(&another, false), (&file, true)] {
        let upload = Upload::of(bytes).unwrap();
        let node = whereabouts(&net, &carol);
        let mut last = 0;
        let mut tell = |step: UploadStep<'_>| {
            if let UploadStep::There { bytes, .. } = step {
                last = bytes
            }
        };
        let mut client = upload.send(&mut || Client::to(&node), &mut std::thread::sleep, &mut tell).unwrap();
        assert_eq!(last, bytes.len());
        let loaded = load(&mut client, "z", bytes);
        assert_eq!(loaded.is_ok(), is_hers, "{loaded:?}");
        assert!(is_hers || loaded.unwrap_err().contains("modules: asked for"));
    }
    assert!(net.place.stop().success());
}

#[test]
fn on_a_terminal_one_sees_how_far_it_is() {
    if !is_inside("upload::on_a_terminal_one_sees_how_far_it_is") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest());
    net.done(&researcher, &SESSION);
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
    assert!(net.place.stop().success());
}
