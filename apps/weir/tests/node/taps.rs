//! Ordinary programs behind the TAP device of an output channel.

use crate::links::far_cable;
use crate::testbed::{TIMEOUT, Testbed, interface_state, ip, is_inside};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Frames that programs send through the TAP device leave at `c`, and frames that arrive at `c` go to the device.
const TAP: &str = r#"outgoing = false
[[interface]]
name = "c"
arena = "8 MiB"
outgoing = false
[[link]]
interface = "c"
rate = "100 Mbit/s"
[[session]]
name = "alice"
channel = [{ name = "back", interface = "c", filter = "arp or host 10.9.0.1", forward = "weir0" }]
output = [{ name = "up", link = "c", reserve = "40 Mbit/s", tap = "weir0", queue = 1024 }]
"#;

/// Another machine: a network namespace that exists as long as this value.
struct RemoteMachine(Child);

impl RemoteMachine {
    /// Moves the far end of the cable into the namespace, with this address.
    fn with_far(address: &str) -> Self {
        let mut holder = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        ip(&format!("link set dev far netns {}", holder.id()));
        let machine = Self(holder);
        let address = address.to_owned();
        machine.run(move || {
            ip(&format!("address add {address} dev far"));
            ip("link set dev far up");
        });
        machine
    }

    /// Runs a function in the namespace, on a thread of its own, and waits for it.
    fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        self.spawn(job).join().unwrap()
    }

    fn spawn<R: Send + 'static>(
        &self,
        job: impl FnOnce() -> R + Send + 'static,
    ) -> std::thread::JoinHandle<R> {
        let namespace = File::open(format!("/proc/{}/ns/net", self.0.id())).unwrap();
        std::thread::spawn(move || {
            rustix::thread::move_into_link_name_space(namespace.as_fd(), None).unwrap();
            job()
        })
    }
}

impl Drop for RemoteMachine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks that datagrams through the device are answered by the other machine.
fn check_echo(testbed: &mut Testbed, machine: &RemoteMachine) {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let echo = machine.spawn(move || {
        let socket = UdpSocket::bind("10.9.0.2:7").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let mut bytes = [0; 2000];
        while !over.load(Ordering::Acquire) {
            if let Ok((len, from)) = socket.recv_from(&mut bytes) {
                socket.send_to(&bytes[..len], from).unwrap();
            }
        }
    });
    let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let (mut answer, mut len) = ([0; 2000], 0);
    // The other side may not listen yet.
    testbed.until("there is a reply", |_| {
        socket.send_to(b"are you there?", "10.9.0.2:7").unwrap();
        socket.recv_from(&mut answer).is_ok_and(|(received, _)| {
            len = received;
            true
        })
    });
    assert_eq!(&answer[..len], b"are you there?");
    is_over.store(true, Ordering::Release);
    echo.join().unwrap();
}

#[test]
fn programs_communicate_through_a_tap_device_and_their_session_is_charged() {
    if !is_inside("taps::programs_communicate_through_a_tap_device_and_their_session_is_charged") {
        return;
    }
    far_cable();
    let mut testbed = Testbed::new(TAP);
    let machine = RemoteMachine::with_far("10.9.0.2/24");
    ip("address add 10.9.0.1/24 dev weir0");
    ip("link set dev weir0 up");

    // UDP: the datagram is echoed.
    check_echo(&mut testbed, &machine);

    // TCP: more bytes than fit into any queue, and their echo.
    const MUCH: usize = 3_000_000;
    let listener = machine.run(|| TcpListener::bind("10.9.0.2:9").unwrap());
    let sum = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        let mut bytes = vec![0; MUCH];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let mut stream = TcpStream::connect("10.9.0.2:9").unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    let sent: Vec<u8> = (0..=250).cycle().take(MUCH).collect();
    let mut writer = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(&sent).map(|()| sent));
    let mut back = vec![0; MUCH];
    stream.read_exact(&mut back).unwrap();
    assert!(back == sending.join().unwrap().unwrap(), "what comes back is what was sent");
    sum.join().unwrap();

    let output = testbed.part("alice", "outputs", "up");
    assert!(output["bytes"].as_u64().unwrap() > MUCH as u64, "{output}");
    assert!(output["tap_packets"].as_u64().unwrap() > 0, "{output}");
    // The device disappears with its session.
    assert_eq!(interface_state("weir0")["ifname"], "weir0");
    testbed.request(json!({"close": {"session": "alice"}}));
    let is_there =
        || Command::new("ip").args(["link", "show", "dev", "weir0"]).output().unwrap().status.success();
    testbed.until("the device is gone", |_| !is_there());
    assert!(testbed.stop().success());
    assert!(testbed.ledger_usage("alice", "bytes_out") > MUCH as u64);
    assert!(testbed.ledger_usage("alice", "packets_in") > 0);
}

#[test]
fn a_recreated_tap_device_works_as_the_first() {
    if !is_inside("taps::a_recreated_tap_device_works_as_the_first") {
        return;
    }
    far_cable();
    let make = || {
        ip("tuntap add weir0 mode tap");
        ip("address add 10.9.0.1/24 dev weir0");
        ip("link set dev weir0 up");
    };
    make();
    let mut testbed = Testbed::new(TAP);
    let machine = RemoteMachine::with_far("10.9.0.2/24");
    check_echo(&mut testbed, &machine);
    ip("link delete weir0");
    testbed.until("the log says so", |testbed| testbed.log().contains("weir0"));
    make();
    check_echo(&mut testbed, &machine);
    assert!(testbed.stop().success());
}
