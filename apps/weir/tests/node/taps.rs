//! Programs that know nothing of weir, behind a TAP device of an output channel.

use crate::links::far_cable;
use crate::place::{PATIENCE, Place, ip, is_inside, look};
use serde_json::json;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What a TAP device's programs send goes out at `c`, and what comes back there goes to them.
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

/// Another machine: a namespace, which is there as long as this is.
struct Elsewhere(Child);

impl Elsewhere {
    /// With the far end of the cable, at this address.
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
        let elsewhere = Self(holder);
        let address = address.to_owned();
        elsewhere.run(move || {
            ip(&format!("address add {address} dev far"));
            ip("link set dev far up");
        });
        elsewhere
    }

    /// Does something there, on a thread of its own, and waits for it.
    fn run<R: Send + 'static>(&self, job: impl FnOnce() -> R + Send + 'static) -> R {
        self.begin(job).join().unwrap()
    }

    fn begin<R: Send + 'static>(
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

impl Drop for Elsewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has what is sent through the device answered there.
fn is_answered(place: &mut Place, elsewhere: &Elsewhere) {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let echo = elsewhere.begin(move || {
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
    place.until("there is an answer", |_| {
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
fn programs_speak_through_their_device_and_are_billed_to_their_session() {
    if !is_inside("taps::programs_speak_through_their_device_and_are_billed_to_their_session") {
        return;
    }
    far_cable();
    let mut place = Place::new(TAP);
    let elsewhere = Elsewhere::with_far("10.9.0.2/24");
    ip("address add 10.9.0.1/24 dev weir0");
    ip("link set dev weir0 up");

    // UDP: what is sent comes back.
    is_answered(&mut place, &elsewhere);

    // TCP, more than fits any queue, and what comes back too.
    const MUCH: usize = 3_000_000;
    let listener = elsewhere.run(|| TcpListener::bind("10.9.0.2:9").unwrap());
    let sum = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut bytes = vec![0; MUCH];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(&bytes).unwrap();
    });
    let mut stream = TcpStream::connect("10.9.0.2:9").unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let sent: Vec<u8> = (0..=250).cycle().take(MUCH).collect();
    let mut writer = stream.try_clone().unwrap();
    let sending = std::thread::spawn(move || writer.write_all(&sent).map(|()| sent));
    let mut back = vec![0; MUCH];
    stream.read_exact(&mut back).unwrap();
    assert!(back == sending.join().unwrap().unwrap(), "what comes back is what was sent");
    sum.join().unwrap();

    let output = place.part("alice", "outputs", "up");
    assert!(output["bytes"].as_u64().unwrap() > MUCH as u64, "{output}");
    assert!(output["tap_packets"].as_u64().unwrap() > 0, "{output}");
    // The device goes with its session.
    assert_eq!(look("weir0")["ifname"], "weir0");
    place.done(json!({"close": {"session": "alice"}}));
    let is_there =
        || Command::new("ip").args(["link", "show", "dev", "weir0"]).output().unwrap().status.success();
    place.until("the device is gone", |_| !is_there());
    assert!(place.stop().success());
    assert!(place.billed("alice", "bytes_out") > MUCH as u64);
    assert!(place.billed("alice", "packets_in") > 0);
}

#[test]
fn a_device_that_is_made_anew_is_spoken_through_as_the_first() {
    if !is_inside("taps::a_device_that_is_made_anew_is_spoken_through_as_the_first") {
        return;
    }
    far_cable();
    let make = || {
        ip("tuntap add weir0 mode tap");
        ip("address add 10.9.0.1/24 dev weir0");
        ip("link set dev weir0 up");
    };
    make();
    let mut place = Place::new(TAP);
    let elsewhere = Elsewhere::with_far("10.9.0.2/24");
    is_answered(&mut place, &elsewhere);
    ip("link delete weir0");
    place.until("it says so", |place| place.said().contains("weir0"));
    make();
    is_answered(&mut place, &elsewhere);
    assert!(place.stop().success());
}
