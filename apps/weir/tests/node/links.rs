//! What goes out through links: forwarded packets, with and without a module that decides.

use crate::module::{MANIFEST, assemble, at_packet, text};
use crate::place::{PATIENCE, Place, cable, ip, is_inside, udp};
use crate::tables::said;
use serde_json::{Value, json};
use std::time::Instant;
use weir_netio::{Direction, LiveOptions, LivePoll, LiveSource, SocketKind};
use weir_units::Nanos;

/// A session that reads UDP at `b` and sends on `c`; what it sends arrives at `far`. These keys more are its channel's.
pub fn session(channel: &str) -> String {
    format!(
        r#"outgoing = false
[[link]]
interface = "c"
rate = "100 Mbit/s"
[[session]]
name = "alice"
cpu = [{{ period = "20ms", slice = "4ms" }}]
channel = [{{ interface = "b", filter = "udp", queue = 10000{channel} }}]
output = [{{ name = "up", link = "c", reserve = "40 Mbit/s", queue = 4096 }}]
"#
    )
}

/// A node with this configuration, and what arrives at the far end of its cable.
pub fn linked(sessions: &str) -> (Place, Far) {
    far_cable();
    (Place::new(sessions), Far::open())
}

/// What goes in is what comes out.
const FORWARD: &str = ", forward = \"up\"";

/// The cable that links are tried on.
pub fn far_cable() {
    cable("c", "far");
}

/// What arrives at the far end.
pub struct Far(LiveSource);

impl Far {
    pub fn open() -> Self {
        let options = LiveOptions {
            kind: SocketKind::Packet,
            direction: Direction::Incoming,
            ..LiveOptions::default()
        };
        Self(LiveSource::open("far", options).unwrap())
    }

    /// UDP datagrams that have arrived since, as they are: so many, which are waited for, and those that come beside them.
    pub fn datagrams(&mut self, count: usize) -> Vec<Vec<u8>> {
        let (mut frames, begin) = (Vec::new(), Instant::now());
        loop {
            match self.0.next_block(Nanos(100 * Nanos::MILLISECOND.0)).unwrap() {
                LivePoll::Block(block) => frames.extend((0..block.len()).filter_map(|place| {
                    let mut frame = Vec::new();
                    block.copy_packet(place, &mut frame);
                    let is_udp = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&17);
                    is_udp.then_some(frame)
                })),
                LivePoll::Quiet if frames.len() >= count || begin.elapsed() >= PATIENCE => return frames,
                _ => {}
            }
        }
    }
}

fn sent(place: &Place, session: &str, what: &str) -> u64 {
    place.part(session, "outputs", "up")[what].as_u64().unwrap()
}

fn lost(place: &Place, session: &str, cause: &str) -> u64 {
    place.part(session, "outputs", "up")["drops"][cause].as_u64().unwrap_or(0)
}

fn numbered(count: u16) -> Vec<Vec<u8>> {
    (0..count).map(|number| udp(number, &number.to_be_bytes().repeat(20))).collect()
}

#[test]
fn without_a_module_everything_goes_on_as_it_was() {
    if !is_inside("links::without_a_module_everything_goes_on_as_it_was") {
        return;
    }
    let (mut place, mut far) = linked(&session(FORWARD));
    let frames = numbered(2000);
    let mut tcp = udp(1, b"x");
    tcp[23] = 6;
    for portion in frames.chunks(500) {
        place.send(portion);
        place.send(std::slice::from_ref(&tcp));
    }
    place.until("all have gone", |place| sent(place, "alice", "packets") == 2000);
    assert_eq!(far.datagrams(2000), frames);
    // Too long for the link, and cut off nowhere.
    ip("link set dev a mtu 2000");
    ip("link set dev b mtu 2000");
    place.send(&[udp(1, &[7; 1600])]);
    place.until("it is counted", |place| lost(place, "alice", "too-long") == 1);
    assert!(place.stop().success());
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!(place.billed("alice", "packets_out"), 2000);
    assert_eq!(place.billed("alice", "bytes_out"), bytes as u64);
    assert_eq!(place.billed("alice", "packets_in"), 2001);
    // It has no module: what was done for its packets is on its bill all the same.
    assert!(place.billed("alice", "cpu_ns") > 2001 * 20, "{}", place.billed("alice", "cpu_ns"));
}

#[test]
fn the_last_bill_of_a_session_has_all_that_it_forwarded() {
    if !is_inside("links::the_last_bill_of_a_session_has_all_that_it_forwarded") {
        return;
    }
    let (mut place, _far) = linked(&session(FORWARD).replace("100 Mbit/s", "1 Gbit/s"));
    for round in 0..10 {
        if round > 0 {
            place.configure(&session(FORWARD).replace("100 Mbit/s", "1 Gbit/s"));
            place.done(json!({"create": {"name": "alice", "channel": [{"interface": "b", "filter": "udp", "forward": "up"}],
                "output": [{"name": "up", "link": "c", "queue": 4096}]}}));
        }
        // It is closed while packets come.
        let mut sink = weir_netio::LiveSink::open("a", SocketKind::Packet).unwrap();
        let frame = udp(1, &[7; 100]);
        let sender = std::thread::spawn(move || {
            for _ in 0..400 {
                sink.send(&[frame.as_slice(); 10]);
            }
        });
        place.until("some have gone", |place| {
            place.part("alice", "channels", "main")["packets"].as_u64().unwrap() > 100
        });
        place.done(json!({"close": {"session": "alice"}}));
        sender.join().unwrap();
    }
    // An interface is asked how it is once in a while: when it tells of another packet that nobody wants, it tells of all that anybody wanted before.
    let of_interface = |place: &Place| {
        let shot = place.snapshot()["interfaces"][0].clone();
        ["packets", "unwanted"].map(|what| shot[what].as_u64().unwrap())
    };
    let [_, before] = of_interface(&place);
    let mut wanted = 0;
    place.until("it tells of what nobody wants", |place| {
        place.send(&[udp(1, b"x")]);
        let [packets, unwanted] = of_interface(place);
        wanted = packets - unwanted;
        unwanted > before
    });
    // Whatever a channel wanted is on the bill of the only session that there was.
    assert!(wanted > 10 * 100, "{wanted}");
    assert!(place.stop().success());
    assert_eq!(place.billed("alice", "packets_in"), wanted);
}

#[test]
fn a_link_gets_another_rate_while_it_runs_and_keeps_what_it_promised() {
    if !is_inside("links::a_link_gets_another_rate_while_it_runs_and_keeps_what_it_promised") {
        return;
    }
    let (mut place, _far) = linked(&session(FORWARD));
    let link = |place: &Place| place.snapshot()["links"][0].clone();
    let rate =
        |rate: &str, reservable: u8| json!({"rate": {"link": "c", "rate": rate, "reservable": reservable}});
    place.done(rate("60 Mbit/s", 80));
    let now = link(&place);
    assert_eq!((&now["rate_bits"], &now["reservable_bits"]), (&json!(60_000_000), &json!(48_000_000)));
    for (ask, says) in [
        (rate("44 Mbit/s", 90), "40 Mbit/s"),
        (rate("1 bit/s", 90), "`rate` is 1 bit/s; it must be between 8 kbit/s"),
        (rate("60 Mbit/s", 101), "`reservable` is 101; it must be a percentage"),
        (json!({"rate": {"link": "nowhere", "rate": "1 Mbit/s"}}), "there is no link `nowhere`; there is c"),
    ] {
        let why = place.refused(ask);
        assert!(why.contains(says), "{why}");
    }
    assert_eq!(link(&place), now);
    let text = said(&place, &["link", "change", "c", "--rate", "200Mbit/s"]);
    assert!(text.contains("link c has 200 Mbit/s now, of which 80 % can be reserved"), "{text}");
    assert!(said(&place, &["link", "list"]).contains("200 Mbit/s"));
    assert!(said(&place, &["link", "show", "c"]).contains("alice"));
    assert_eq!(link(&place)["rate_bits"], 200_000_000);

    // By the configuration, whole or not at all: then it is again as it was, however that came.
    let other = |rate: &str| session(FORWARD).replace("100 Mbit/s", rate);
    place.configure(&(other("120 Mbit/s") + "[[session]]\nname = \"eve\"\nmemory = \"900 GiB\"\n"));
    assert!(place.refused(json!("reload")).contains("more than is left"));
    assert_eq!(link(&place)["rate_bits"], 200_000_000);
    place.configure(&other("150 Mbit/s"));
    place.done(json!("reload"));
    assert_eq!(link(&place)["reservable_bits"], 135_000_000);
    // What it is already is no change.
    said(&place, &["link", "change", "c", "--rate", "150Mbit/s"]);
    assert!(place.stop().success());

    // All of it is in the ledger, in the order in which it happened, and costs no bill anything.
    let ledger = place.ledger();
    let changes: Vec<[&Value; 3]> = ledger
        .iter()
        .filter(|entry| entry["kind"] == "link-changed")
        .map(|entry| [&entry["link"], &entry["rate_bits_per_s"], &entry["reservable_percent"]])
        .collect();
    let expected = [(60, 80), (200, 80), (150, 90)];
    let expected = expected.map(|(rate, percent)| [json!("c"), json!(rate * 1_000_000), json!(percent)]);
    assert_eq!(changes, expected.each_ref().map(|change| change.each_ref()));
    let state = place.disk();
    let printed =
        |options: &[&str]| said(&place, &[&["ledger", state.to_str().unwrap()][..], options].concat());
    assert!(printed(&["--verify"]).contains(&format!("is whole: {} entries", ledger.len())));
    assert_eq!(printed(&["--entries"]).matches("\"kind\":\"link-changed\"").count(), 3);
    assert_eq!(printed(&["--entries", "--session", "alice"]).matches("link-changed").count(), 0);
    assert_eq!(printed(&["--csv"]).lines().skip(1).filter(|row| !row.starts_with("alice,")).count(), 0);
    let bill: Value = serde_json::from_str(&printed(&["--json"])).unwrap();
    assert!(bill.as_array().unwrap().iter().all(|row| row["session"] == "alice"), "{bill}");
}

#[test]
fn a_module_decides_what_goes_on_and_how() {
    if !is_inside("links::a_module_decides_what_goes_on_and_how") {
        return;
    }
    let (mut place, mut far) = linked(&session(FORWARD));
    // Drops what goes to even ports, fails at those that end in 1, and writes the port where the payload begins of all others.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (local $port i32)
            (local.set $port (i32.load16_u offset=46 (local.get $d)))
            (if (i32.eqz (i32.and (local.get $port) (i32.const 1))) (then (return (i32.const 1))))
            (if (i32.eq (i32.rem_u (local.get $port) (i32.const 10)) (i32.const 1)) (then unreachable))
            (i32.store (i32.const 64) (local.get $port))
            (drop (call $patch (local.get $d) (i32.const 42) (i32.const 64) (i32.const 2)))
            (i32.const 0))"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "judge").as_bytes()));
    let reply = place.load("alice", json!({"module": "judge.wasm"}), &bytes);
    assert!(reply.get("done").is_some(), "{reply}");
    let why = place.load("alice", json!({"module": "trajectory"}), &[])["refused"]["why"].to_string();
    assert!(why.contains("module `judge` decides which: it has no room for another one"), "{why}");
    place.send(&numbered(1000));
    place.until("all have been decided", |place| place.count("alice", "judge", "packets") == 900);
    place.until("all have gone", |place| sent(place, "alice", "packets") == 400);
    let expected: Vec<Vec<u8>> = numbered(1000)
        .into_iter()
        .enumerate()
        .filter(|(port, _)| port % 2 == 1 && port % 10 != 1)
        .map(|(port, mut frame)| {
            frame[42..44].copy_from_slice(&u16::try_from(port).unwrap().to_le_bytes());
            frame
        })
        .collect();
    assert_eq!(far.datagrams(expected.len()), expected);
    // Without the module everything goes on again.
    place.done(json!({"unload": {"session": "alice", "module": "judge"}}));
    place.send(&numbered(10));
    place.until("they have gone", |place| sent(place, "alice", "packets") == 410);
    assert!(place.stop().success());
    let ledger = place.ledger();
    let drops = |cause: &str| -> u64 {
        let usages = ledger.iter().filter(|entry| entry["kind"] == "usage");
        usages.filter_map(|entry| entry["usage"]["drops"][cause].as_u64()).sum()
    };
    assert_eq!((drops("verdict"), drops("module-fault")), (500, 100));
}

#[test]
fn where_a_module_makes_it_safe_nothing_goes_on_without_it() {
    if !is_inside("links::where_a_module_makes_it_safe_nothing_goes_on_without_it") {
        return;
    }
    let safe = session(", forward = \"up\", unattended = \"drop\"");
    let (mut place, mut far) =
        linked(&safe.replace("queue = 4096", "queue = 4096, filter = \"udp dst port 2 or udp dst port 3\""));
    place.send(&numbered(10));
    let held =
        |place: &Place| place.part("alice", "channels", "main")["drops"]["closed"].as_u64().unwrap_or(0);
    place.until("they are counted", |place| held(place) == 10);
    let pass = at_packet(0, "");
    let bytes = assemble(&text(&pass), Some(MANIFEST.replace("NAME", "pass").as_bytes()));
    assert!(place.load("alice", json!({"module": "pass.wasm"}), &bytes).get("done").is_some());
    place.send(&numbered(10));
    // The channel's own filter lets out two of them.
    place.until("they are judged", |place| {
        sent(place, "alice", "packets") == 2 && lost(place, "alice", "refused") == 8
    });
    assert_eq!(far.datagrams(2), numbered(4)[2..]);
}

#[test]
fn a_link_that_goes_down_and_comes_back_is_survived() {
    if !is_inside("links::a_link_that_goes_down_and_comes_back_is_survived") {
        return;
    }
    let (mut place, mut far) = linked(&session(FORWARD));
    let state = |place: &Place| -> Value { place.snapshot()["links"][0]["state"].clone() };
    assert_eq!(state(&place), "up");
    ip("link set dev c down");
    place.until("it is noticed", |place| state(place) == "down");
    place.send(&numbered(10));
    place.until("they are counted", |place| lost(place, "alice", "interface-down") == 10);
    ip("link set dev c up");
    place.until("it is noticed", |place| state(place) == "up");
    place.send(&numbered(5));
    place.until("they have gone", |place| sent(place, "alice", "packets") == 5);
    assert_eq!(far.datagrams(5), numbered(5));
    place.until("it is said", |place| {
        place.said().contains("link c: its interface is down, and what is sent is lost")
    });
    // And one that is removed, and made anew.
    ip("link delete dev c");
    place.until("it is noticed", |place| state(place) == "down");
    place.send(&numbered(10));
    place.until("they are counted", |place| lost(place, "alice", "interface-down") == 20);
    far_cable();
    place.until("it is noticed", |place| state(place) == "up");
    place.until("packets go again", |place| {
        place.send(&numbered(1));
        sent(place, "alice", "packets") > 5
    });
    assert!(place.stop().success());
}
