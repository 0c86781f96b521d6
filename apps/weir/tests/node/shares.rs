//! What sessions get of a link that all of them want: judged by the kernel's counters at the far end.

use crate::links::far_cable;
use crate::place::{Place, ip, is_inside, udp};
use serde_json::json;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_netio::{LiveSink, SocketKind};

/// What the link carries, in bits a second.
const RATE: f64 = 100e6;

/// Both have something to send all the time, each to a device of its own at the far end.
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

/// A frame to the device of this number at the far end.
fn frame(device: u8) -> Vec<u8> {
    let mut frame = udp(u16::from(device), &[device; 1200]);
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 9, device]);
    frame
}

/// Devices at the far end that take the frames to their own addresses, and count them.
fn devices() {
    for device in 1..=2 {
        ip(&format!(
            "link add name to{device} link far address 02:00:00:00:09:0{device} type macvlan mode private"
        ));
        ip(&format!("link set dev to{device} up"));
    }
}

/// Bytes that the devices have taken, of both at one time: the kernel is asked once, and says all at once.
fn arrived() -> [u64; 2] {
    let mut said = [0; 4096];
    let len = File::open("/proc/net/dev").unwrap().read(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said[..len]).into_owned();
    ["to1:", "to2:"].map(|device| {
        let line = said.lines().find_map(|line| line.trim_start().strip_prefix(device));
        let bytes = line.and_then(|line| line.split_whitespace().next()).unwrap_or_else(|| panic!("{said}"));
        bytes.parse().unwrap()
    })
}

/// Sends to both, more than the link carries, until it is dropped.
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
                // A round each millisecond; up to so many at once where this thread does not have its turn as often.
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

fn waits(place: &Place, session: &str) -> bool {
    let output = place.part(session, "outputs", "up");
    output["waiting"].as_u64().unwrap() > 1000
}

/// What arrives for the first while both want more all the time.
#[derive(Debug)]
struct Part {
    /// Of what arrives for both.
    of_both: f64,
    /// Of what the link carries in that time.
    of_link: f64,
}

impl Part {
    /// Nothing where one of them had not enough to send meanwhile.
    fn measure(place: &Place) -> Option<Self> {
        let both_want = || waits(place, "gold") && waits(place, "flood");
        if !both_want() {
            return None;
        }
        let (begin, before) = (Instant::now(), arrived());
        while begin.elapsed() < Duration::from_millis(800) {
            std::thread::sleep(Duration::from_millis(40));
            if !both_want() {
                return None;
            }
        }
        let after = arrived();
        let [gold, flood] = [0, 1].map(|at| (after[at] - before[at]) as f64);
        // Each frame has 24 bytes more on the wire.
        let len = frame(1).len() as f64;
        let carries = RATE / 8.0 * begin.elapsed().as_secs_f64() * len / (len + 24.0);
        Some(Self { of_both: gold / (gold + flood), of_link: gold / carries })
    }
}

fn part_of_gold(place: &mut Place) -> Part {
    let mut part = None;
    place.until("both have more than they get, all the time", |place| {
        part = Part::measure(place);
        part.is_some()
    });
    part.unwrap()
}

#[test]
fn a_guarantee_holds_against_a_flood_and_can_be_changed_as_it_goes() {
    if !is_inside("shares::a_guarantee_holds_against_a_flood_and_can_be_changed_as_it_goes") {
        return;
    }
    far_cable();
    devices();
    let mut place = Place::with_cpu("trace = \"PATH/trace\"\n", BOTH);
    let flood = Flood::start();
    let change = |reserve: &str| json!({"change": {"session": "gold", "output": [{"name": "up", "link": "c", "reserve": reserve, "queue": 4096}]}});
    for percent in [25, 45, 65, 25] {
        place.done(change(&format!("{percent} Mbit/s")));
        let got = part_of_gold(&mut place);
        let promised = f64::from(percent) / 100.0;
        // What is promised is a rate: where a busy machine keeps the link from sending for longer than it catches up with, less goes in all, and what is
        // promised is a larger part of that, but never of what the link can carry.
        assert!(got.of_both > promised - 0.05, "{got:?}, {promised} promised");
        assert!(got.of_link < promised + 0.15, "{got:?}, {promised} promised");
        assert_eq!(place.part("gold", "outputs", "up")["reserved_bits"], percent * 1_000_000);
    }
    let why = place.refused(change("95 Mbit/s"));
    assert!(why.contains("70 Mbit/s more is to be reserved, 65 Mbit/s is left"), "{why}");
    // Without the guarantee it gets its weight's part: what was seen before was the guarantee's doing.
    place
        .done(json!({"change": {"session": "gold", "output": [{"name": "up", "link": "c", "queue": 4096}]}}));
    let got = part_of_gold(&mut place);
    assert!((got.of_both - 0.5).abs() < 0.05, "{got:?}");
    drop(flood);
    let lost = place.part("flood", "outputs", "up")["drops"]["link-queue-full"].as_u64().unwrap();
    assert!(lost > 0);
    assert!(place.stop().success());
    assert!(place.billed("gold", "bytes_out") > 0 && place.billed("flood", "bytes_out") > 0);
    // The same code decides the same, without the packets.
    let text = std::fs::read_to_string(place.path().join("trace/link-c.trace")).unwrap();
    let mut replay = weir_sched::link::trace::Replay::default();
    for line in text.lines() {
        replay.feed(line).unwrap_or_else(|error| panic!("{error}"));
    }
    let sent = text.lines().filter(|line| line.contains(" > r ") || line.contains(" > x ")).count();
    assert!(sent > 1_000 && replay.link().is_some(), "{sent} frames");
}

#[test]
fn what_is_reserved_is_given_back_and_what_is_not_left_is_refused() {
    if !is_inside("shares::what_is_reserved_is_given_back_and_what_is_not_left_is_refused") {
        return;
    }
    far_cable();
    let place = Place::new(BOTH);
    let session = |name: &str, output: &str| {
        let output: serde_json::Value = serde_json::from_str(output).unwrap();
        json!({"create": {"name": name, "output": [output]}})
    };
    let reserved = |place: &Place| place.snapshot()["links"][0]["reserved_bits"].clone();
    place.done(session("more", r#"{"link": "c", "limit": "62500", "period": "10ms"}"#));
    assert_eq!(reserved(&place), 75_000_000);
    for (output, says) in [
        (r#"{"link": "c", "reserve": "16 Mbit/s"}"#, "16 Mbit/s more is to be reserved, 15 Mbit/s is left"),
        (r#"{"link": "d"}"#, "there is no link `d`; there is c"),
        (r#"{"link": "c", "filter": "udp prt 1"}"#, "filter expression `udp prt 1`"),
        (r#"{"link": "c", "queue": 65536}"#, "of memory are what may wait in output channels"),
        (r#"{"link": "c", "tap": "lo"}"#, "output channel `main`: "),
        (r#"{"link": "c", "weight": 0}"#, "above 0 where nothing is reserved"),
    ] {
        let why = place.refused(session("one-more", output));
        assert!(why.contains(says), "{output}: {why}");
        assert_eq!(reserved(&place), 75_000_000, "nothing is left of what was refused");
    }
    // All of a change or nothing: the second part does not fit.
    let why = place.refused(json!({"change": {"session": "more", "output": [
        {"link": "c", "reserve": "55 Mbit/s"}, {"name": "two", "link": "c", "reserve": "20 Mbit/s"}]}}));
    assert!(why.contains("is left"), "{why}");
    assert_eq!(reserved(&place), 75_000_000);
    let why = place.refused(json!({"change": {"session": "more", "output": [{"link": "c", "tap": "t0"}]}}));
    assert!(why.contains("its tap cannot be changed while it is open"), "{why}");
    place.done(json!({"close": {"session": "more"}}));
    assert_eq!(reserved(&place), 25_000_000);
    place.done(session("more", r#"{"link": "c", "reserve": "65 Mbit/s"}"#));
    // The link's own rate, with the configuration: not under what is promised.
    let config = |rate: &str| BOTH.replace("100 Mbit/s", rate);
    place.configure(&config("50 Mbit/s"));
    let why = place.refused(json!("reload"));
    assert!(why.contains("only 45 Mbit/s could be reserved then, and 90 Mbit/s is"), "{why}");
    place.configure(&config("200 Mbit/s"));
    place.done(json!("reload"));
    assert_eq!(place.snapshot()["links"][0]["rate_bits"], 200_000_000);
    place.configure(&config("200 Mbit/s").replace("reservable = 90", "reservable = 90\nframe = 9018"));
    let why = place.refused(json!("reload"));
    assert!(why.contains("[link] has changed"), "{why}");
}
