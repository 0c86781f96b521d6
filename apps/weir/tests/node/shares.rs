//! Shares of a link under contention, measured by the kernel's counters at the far end.

use crate::links::far_cable;
use crate::testbed::{Testbed, ip, is_inside, udp};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_netio::{LiveSink, SocketKind};

/// The rate of the link in bit/s.
const RATE: f64 = 100e6;

/// Two sessions that always have packets to send, each to a device of its own at the far end.
const BOTH: &str = r#"outgoing = false
[[link]]
interface = "c"
rate = "100 Mbit/s"
reservable = 90
catch_up = "100ms"
[[session]]
name = "gold"
channel = [{ interface = "b", filter = "udp dst port 1", forward = "up" }]
output = [{ name = "up", link = "c", reserve = "25 Mbit/s", queue = 4096 }]
[[session]]
name = "flood"
channel = [{ interface = "b", filter = "udp dst port 2", forward = "up" }]
output = [{ name = "up", link = "c", queue = 4096 }]
"#;

/// A frame to the device of this number.
fn frame(device: u8) -> Vec<u8> {
    let mut frame = udp(u16::from(device), &[device; 1200]);
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 9, device]);
    frame
}

/// Creates devices at the far end that receive and count the frames to their own addresses.
fn devices() {
    for device in 1..=2 {
        ip(&format!(
            "link add name to{device} link far address 02:00:00:00:09:0{device} type macvlan mode private"
        ));
        ip(&format!("link set dev to{device} up"));
    }
}

/// The bytes that both devices have received, read at the same time by one request to the kernel.
fn received_bytes() -> [u64; 2] {
    let mut said = [0; 4096];
    let len = File::open("/proc/net/dev").unwrap().read(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said[..len]).into_owned();
    ["to1:", "to2:"].map(|device| {
        let line = said.lines().find_map(|line| line.trim_start().strip_prefix(device));
        let bytes = line.and_then(|line| line.split_whitespace().next()).unwrap_or_else(|| panic!("{said}"));
        bytes.parse().unwrap()
    })
}

/// Sends more to both devices than the link can carry, until this is dropped.
struct Flood(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Flood {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let mut sink = LiveSink::open("a", SocketKind::Packet).unwrap();
            let frames = [frame(1), frame(2)];
            let round: Vec<&[u8]> = (0..60).map(|at| frames[at % 2].as_slice()).collect();
            let (begin, mut sent) = (Instant::now(), 0);
            while !over.load(Ordering::Acquire) {
                // A round each millisecond; several at once if this thread was delayed.
                let due = begin.elapsed().as_millis();
                sent = due.saturating_sub(50).max(sent);
                while sent < due {
                    sink.send(&round);
                    sent += 1;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self(is_over, Some(thread))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
        let _ = self.1.take().unwrap().join();
    }
}

fn has_waiting_packets(testbed: &Testbed, session: &str) -> bool {
    let output = testbed.part(session, "outputs", "up");
    output["waiting"].as_u64().unwrap() > 1000
}

/// The share of the first session while both always have packets to send.
#[derive(Debug)]
struct MeasuredShare {
    /// The first session's part of the bytes of both.
    of_both: f64,
    /// The first session's part of the link's capacity.
    of_link: f64,
}

impl MeasuredShare {
    /// Returns `None` if one of the sessions ran out of packets.
    fn measure(testbed: &Testbed) -> Option<Self> {
        let both_want = || has_waiting_packets(testbed, "gold") && has_waiting_packets(testbed, "flood");
        if !both_want() {
            return None;
        }
        let (begin, before) = (Instant::now(), received_bytes());
        while begin.elapsed() < Duration::from_millis(800) {
            std::thread::sleep(Duration::from_millis(40));
            if !both_want() {
                return None;
            }
        }
        let after = received_bytes();
        let [gold, flood] = [0, 1].map(|at| (after[at] - before[at]) as f64);
        // Each frame takes 24 more bytes on the wire.
        let len = frame(1).len() as f64;
        let carries = RATE / 8.0 * begin.elapsed().as_secs_f64() * len / (len + 24.0);
        Some(Self { of_both: gold / (gold + flood), of_link: gold / carries })
    }
}

fn measure_gold(testbed: &mut Testbed) -> MeasuredShare {
    let mut part = None;
    testbed.until("both always have packets waiting", |testbed| {
        part = MeasuredShare::measure(testbed);
        part.is_some()
    });
    part.unwrap()
}

#[test]
fn a_guarantee_holds_against_a_flood_and_can_be_changed() {
    if !is_inside("shares::a_guarantee_holds_against_a_flood_and_can_be_changed") {
        return;
    }
    far_cable();
    devices();
    let mut testbed = Testbed::with_cpu("trace = \"PATH/trace\"\n", BOTH);
    let flood = Flood::start();
    let change = |reserve: &str| json!({"change": {"session": "gold", "output": [{"name": "up", "link": "c", "reserve": reserve, "queue": 4096}]}});
    for percent in [25, 45, 65, 25] {
        testbed.request(change(&format!("{percent} Mbit/s")));
        let got = measure_gold(&mut testbed);
        let promised = f64::from(percent) / 100.0;
        // A guarantee is a rate: if a busy machine keeps the link from sending, less is sent in all, and the guaranteed
        // rate is a larger
        // part of that, but never more than its part of the link's capacity.
        assert!(got.of_both > promised - 0.05, "{got:?}, {promised} promised");
        assert!(got.of_link < promised + 0.15, "{got:?}, {promised} promised");
        assert_eq!(testbed.part("gold", "outputs", "up")["reserved_bits"], percent * 1_000_000);
    }
    let why = testbed.request_refused(change("95 Mbit/s"));
    assert!(why.contains("70 Mbit/s more is requested, 65 Mbit/s is unreserved"), "{why}");
    // Without the guarantee the session gets the part of its weight, so the larger part before was due to the guarantee.
    testbed.request(
        json!({"change": {"session": "gold", "output": [{"name": "up", "link": "c", "queue": 4096}]}}),
    );
    let got = measure_gold(&mut testbed);
    assert!((got.of_both - 0.5).abs() < 0.05, "{got:?}");
    drop(flood);
    let lost = testbed.part("flood", "outputs", "up")["drops"]["link-queue-full"].as_u64().unwrap();
    assert!(lost > 0);
    assert!(testbed.stop().success());
    assert!(testbed.ledger_usage("gold", "bytes_out") > 0 && testbed.ledger_usage("flood", "bytes_out") > 0);
    // The scheduler makes the same decisions when the recorded trace is replayed without packets.
    let text = std::fs::read_to_string(testbed.path().join("trace/link-c.trace")).unwrap();
    let mut replay = weir_sched::link::trace::Replay::default();
    for line in text.lines() {
        replay.feed(line).unwrap_or_else(|error| panic!("{error}"));
    }
    let sent = text.lines().filter(|line| line.contains(" > r ") || line.contains(" > x ")).count();
    assert!(sent > 1_000 && replay.link().is_some(), "{sent} frames");
}

#[test]
fn reservations_are_returned_and_those_beyond_the_rest_are_refused() {
    if !is_inside("shares::reservations_are_returned_and_those_beyond_the_rest_are_refused") {
        return;
    }
    far_cable();
    let testbed = Testbed::new(BOTH);
    let session = |name: &str, output: &str| {
        let output: serde_json::Value = serde_json::from_str(output).unwrap();
        json!({"create": {"name": name, "output": [output]}})
    };
    let reserved = |testbed: &Testbed| testbed.snapshot()["links"][0]["reserved_bits"].clone();
    testbed.request(session("more", r#"{"link": "c", "reserve_bytes": "62500", "period": "10ms"}"#));
    assert_eq!(reserved(&testbed), 75_000_000);
    for (output, says) in [
        (r#"{"link": "c", "reserve": "16 Mbit/s"}"#, "16 Mbit/s more is requested, 15 Mbit/s is unreserved"),
        (r#"{"link": "d"}"#, "there is no link `d`; there is c"),
        (r#"{"link": "c", "filter": "udp prt 1"}"#, "filter expression `udp prt 1`"),
        (r#"{"link": "c", "queue": 65536}"#, "queues of output channels need"),
        (r#"{"link": "c", "tap": "lo"}"#, "output channel `main`: "),
        (r#"{"link": "c", "weight": 0}"#, "above 0 where nothing is reserved"),
    ] {
        let why = testbed.request_refused(session("one-more", output));
        assert!(why.contains(says), "{output}: {why}");
        assert_eq!(reserved(&testbed), 75_000_000, "nothing is left of what was refused");
    }
    // A change is applied as a whole or not at all: the second output does not fit.
    let why = testbed.request_refused(json!({"change": {"session": "more", "output": [
        {"link": "c", "reserve": "55 Mbit/s"}, {"name": "two", "link": "c", "reserve": "20 Mbit/s"}]}}));
    assert!(why.contains("is unreserved"), "{why}");
    assert_eq!(reserved(&testbed), 75_000_000);
    let why = testbed
        .request_refused(json!({"change": {"session": "more", "output": [{"link": "c", "tap": "t0"}]}}));
    assert!(why.contains("its tap cannot be changed while it is open"), "{why}");
    testbed.request(json!({"close": {"session": "more"}}));
    assert_eq!(reserved(&testbed), 25_000_000);
    testbed.request(session("more", r#"{"link": "c", "reserve": "65 Mbit/s"}"#));
    // The link's rate cannot be reconfigured below the reserved rates.
    let config = |rate: &str| BOTH.replace("100 Mbit/s", rate);
    testbed.configure(&config("50 Mbit/s"));
    let why = testbed.request_refused(json!("reload"));
    assert!(why.contains("only 45 Mbit/s could be reserved, but 90 Mbit/s is"), "{why}");
    testbed.configure(&config("200 Mbit/s"));
    testbed.request(json!("reload"));
    assert_eq!(testbed.snapshot()["links"][0]["rate_bits"], 200_000_000);
    testbed.configure(&config("200 Mbit/s").replace("reservable = 90", "reservable = 90\nframe_max = 9018"));
    let why = testbed.request_refused(json!("reload"));
    assert!(why.contains("[link] has changed"), "{why}");
}
