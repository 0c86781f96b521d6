//! Forwarding to links, with and without a module that decides.

use crate::module::{MANIFEST, assemble, at_packet, text};
use crate::tables::output_of;
use crate::testbed::{TIMEOUT, Testbed, cable, ip, is_inside, udp};
use serde_json::{Value, json};
use std::time::Instant;
use weir_netio::{Direction, LiveOptions, LivePoll, LiveSource, SocketKind};
use weir_units::Nanos;

/// A session that receives UDP at `b` and sends on `c`, whose far end is `far`. `channel` has further keys of its channel.
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

/// A node with this configuration, and a receiver at the far end of its link.
pub fn linked(sessions: &str) -> (Testbed, FarEnd) {
    far_cable();
    (Testbed::new(sessions), FarEnd::open())
}

/// Forwards all packets of the channel to the output.
const FORWARD: &str = ", forward = \"up\"";

/// Creates the cable of the link.
pub fn far_cable() {
    cable("c", "far");
}

/// A receiver at the far end of the link.
pub struct FarEnd(LiveSource);

impl FarEnd {
    pub fn open() -> Self {
        let options = LiveOptions {
            kind: SocketKind::Packet,
            direction: Direction::Incoming,
            ..LiveOptions::default()
        };
        Self(LiveSource::open("far", options).unwrap())
    }

    /// The UDP frames that have arrived since the last call. Waits until there are `count`, and returns further ones, too.
    pub fn datagrams(&mut self, count: usize) -> Vec<Vec<u8>> {
        let (mut frames, begin) = (Vec::new(), Instant::now());
        loop {
            match self.0.next_block(Nanos(100 * Nanos::MILLISECOND.0)).unwrap() {
                LivePoll::Block(block) => frames.extend((0..block.len()).filter_map(|testbed| {
                    let mut frame = Vec::new();
                    block.copy_packet(testbed, &mut frame);
                    let is_udp = frame.get(12..14) == Some(&[8, 0]) && frame.get(23) == Some(&17);
                    is_udp.then_some(frame)
                })),
                LivePoll::Quiet if frames.len() >= count || begin.elapsed() >= TIMEOUT => return frames,
                _ => {}
            }
        }
    }
}

fn sent(testbed: &Testbed, session: &str, what: &str) -> u64 {
    testbed.part(session, "outputs", "up")[what].as_u64().unwrap()
}

fn lost(testbed: &Testbed, session: &str, cause: &str) -> u64 {
    testbed.part(session, "outputs", "up")["drops"][cause].as_u64().unwrap_or(0)
}

fn numbered(count: u16) -> Vec<Vec<u8>> {
    (0..count).map(|number| udp(number, &number.to_be_bytes().repeat(20))).collect()
}

#[test]
fn without_a_module_packets_are_forwarded_unchanged() {
    if !is_inside("links::without_a_module_packets_are_forwarded_unchanged") {
        return;
    }
    let (mut testbed, mut far) = linked(&session(FORWARD));
    let frames = numbered(2000);
    let mut tcp = udp(1, b"x");
    tcp[23] = 6;
    for portion in frames.chunks(500) {
        testbed.send(portion);
        testbed.send(std::slice::from_ref(&tcp));
    }
    testbed.until("all packets have been sent", |testbed| sent(testbed, "alice", "packets") == 2000);
    assert_eq!(far.datagrams(2000), frames);
    // A packet that is too long for the link is dropped, and never truncated.
    ip("link set dev a mtu 2000");
    ip("link set dev b mtu 2000");
    testbed.send(&[udp(1, &[7; 1600])]);
    testbed.until("the packet is counted", |testbed| lost(testbed, "alice", "too-long") == 1);
    assert!(testbed.stop().success());
    let bytes: usize = frames.iter().map(Vec::len).sum();
    assert_eq!(testbed.ledger_usage("alice", "packets_out"), 2000);
    assert_eq!(testbed.ledger_usage("alice", "bytes_out"), bytes as u64);
    assert_eq!(testbed.ledger_usage("alice", "packets_in"), 2001);
    // The session has no module, but is charged for forwarding its packets.
    assert!(
        testbed.ledger_usage("alice", "cpu_ns") > 2001 * 20,
        "{}",
        testbed.ledger_usage("alice", "cpu_ns")
    );
}

#[test]
fn the_last_usage_entry_of_a_session_has_all_forwarded_packets() {
    if !is_inside("links::the_last_usage_entry_of_a_session_has_all_forwarded_packets") {
        return;
    }
    let (mut testbed, _far) = linked(&session(FORWARD).replace("100 Mbit/s", "1 Gbit/s"));
    for round in 0..10 {
        if round > 0 {
            testbed.configure(&session(FORWARD).replace("100 Mbit/s", "1 Gbit/s"));
            testbed.request(json!({"create": {"name": "alice", "channel": [{"interface": "b", "filter": "udp", "forward": "up"}],
                "output": [{"name": "up", "link": "c", "queue": 4096}]}}));
        }
        // It is closed while packets arrive.
        let mut sink = weir_netio::LiveSink::open("a", SocketKind::Packet).unwrap();
        let frame = udp(1, &[7; 100]);
        let sender = std::thread::spawn(move || {
            for _ in 0..400 {
                sink.send(&[frame.as_slice(); 10]);
            }
        });
        testbed.until("some packets have been sent", |testbed| {
            testbed.part("alice", "channels", "main")["packets"].as_u64().unwrap() > 100
        });
        testbed.request(json!({"close": {"session": "alice"}}));
        sender.join().unwrap();
    }
    // Interface counters are updated now and then: once they show a later packet without a channel, they include all
    // earlier packets.
    let of_interface = |testbed: &Testbed| {
        let shot = testbed.snapshot()["interfaces"][0].clone();
        ["packets", "unmatched"].map(|what| shot[what].as_u64().unwrap())
    };
    let [_, before] = of_interface(&testbed);
    let mut wanted = 0;
    testbed.until("the interface counts the unwanted packet", |testbed| {
        testbed.send(&[udp(1, b"x")]);
        let [packets, unwanted] = of_interface(testbed);
        wanted = packets - unwanted;
        unwanted > before
    });
    // All packets for a channel are charged to the only session.
    assert!(wanted > 10 * 100, "{wanted}");
    assert!(testbed.stop().success());
    assert_eq!(testbed.ledger_usage("alice", "packets_in"), wanted);
}

#[test]
fn a_links_rate_can_change_and_its_reservations_hold() {
    if !is_inside("links::a_links_rate_can_change_and_its_reservations_hold") {
        return;
    }
    let (mut testbed, _far) = linked(&session(FORWARD));
    let link = |testbed: &Testbed| testbed.snapshot()["links"][0].clone();
    let rate =
        |rate: &str, reservable: u8| json!({"rate": {"link": "c", "rate": rate, "reservable": reservable}});
    testbed.request(rate("60 Mbit/s", 80));
    let now = link(&testbed);
    assert_eq!((&now["rate_bits"], &now["reservable_bits"]), (&json!(60_000_000), &json!(48_000_000)));
    for (request, says) in [
        (rate("44 Mbit/s", 90), "40 Mbit/s"),
        (rate("1 bit/s", 90), "`rate` is 1 bit/s; it must be between 8 kbit/s"),
        (rate("60 Mbit/s", 101), "`reservable` is 101; it must be a percentage"),
        (json!({"rate": {"link": "nowhere", "rate": "1 Mbit/s"}}), "there is no link `nowhere`; there is c"),
    ] {
        let why = testbed.request_refused(request);
        assert!(why.contains(says), "{why}");
    }
    assert_eq!(link(&testbed), now);
    let text = output_of(&testbed, &["link", "change", "c", "--rate", "200Mbit/s"]);
    assert!(text.contains("link c now has 200 Mbit/s, of which 80 % can be reserved"), "{text}");
    assert!(output_of(&testbed, &["link", "list"]).contains("200 Mbit/s"));
    assert!(output_of(&testbed, &["link", "show", "c"]).contains("alice"));
    assert_eq!(link(&testbed)["rate_bits"], 200_000_000);

    // A reload applies all changes or none, and resets the rate that a command has set.
    let other = |rate: &str| session(FORWARD).replace("100 Mbit/s", rate);
    testbed.configure(&(other("120 Mbit/s") + "[[session]]\nname = \"eve\"\nmemory = \"900 GiB\"\n"));
    assert!(testbed.request_refused(json!("reload")).contains("more than is left"));
    assert_eq!(link(&testbed)["rate_bits"], 200_000_000);
    testbed.configure(&other("150 Mbit/s"));
    testbed.request(json!("reload"));
    assert_eq!(link(&testbed)["reservable_bits"], 135_000_000);
    // A change to the present rate is no change.
    output_of(&testbed, &["link", "change", "c", "--rate", "150Mbit/s"]);
    assert!(testbed.stop().success());

    // All rate changes are in the ledger in their order, and are charged to no session.
    let ledger = testbed.ledger();
    let changes: Vec<[&Value; 3]> = ledger
        .iter()
        .filter(|entry| entry["kind"] == "link-changed")
        .map(|entry| [&entry["link"], &entry["rate_bits_per_s"], &entry["reservable_percent"]])
        .collect();
    let expected = [(60, 80), (200, 80), (150, 90)];
    let expected = expected.map(|(rate, percent)| [json!("c"), json!(rate * 1_000_000), json!(percent)]);
    assert_eq!(changes, expected.each_ref().map(|change| change.each_ref()));
    let state = testbed.disk();
    let printed =
        |options: &[&str]| output_of(&testbed, &[&["ledger", state.to_str().unwrap()][..], options].concat());
    assert!(printed(&["--verify"]).contains(&format!("is whole: {} entries", ledger.len())));
    assert_eq!(printed(&["--entries"]).matches("\"kind\":\"link-changed\"").count(), 3);
    assert_eq!(printed(&["--entries", "--session", "alice"]).matches("link-changed").count(), 0);
    assert_eq!(printed(&["--csv"]).lines().skip(1).filter(|row| !row.starts_with("alice,")).count(), 0);
    let bill: Value = serde_json::from_str(&printed(&["--json"])).unwrap();
    assert!(bill.as_array().unwrap().iter().all(|row| row["session"] == "alice"), "{bill}");
}

#[test]
fn a_module_decides_which_packets_are_forwarded_and_changes_them() {
    if !is_inside("links::a_module_decides_which_packets_are_forwarded_and_changes_them") {
        return;
    }
    let (mut testbed, mut far) = linked(&session(FORWARD));
    // Drops packets to even ports, traps at those that end in 1, and writes the port into the payload of all others.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (local $port i32)
            (local.set $port (i32.load16_u offset=46 (local.get $d)))
            (if (i32.eqz (i32.and (local.get $port) (i32.const 1))) (then (return (i32.const 1))))
            (if (i32.eq (i32.rem_u (local.get $port) (i32.const 10)) (i32.const 1)) (then unreachable))
            (i32.store (i32.const 64) (local.get $port))
            (drop (call $patch (local.get $d) (i32.const 42) (i32.const 64) (i32.const 2)))
            (i32.const 0))"#;
    let bytes = assemble(&text(body), Some(MANIFEST.replace("NAME", "judge").as_bytes()));
    let reply = testbed.load("alice", json!({"module": "judge.wasm"}), &bytes);
    assert!(reply.get("done").is_some(), "{reply}");
    let why = testbed.load("alice", json!({"module": "trajectory"}), &[])["refused"]["why"].to_string();
    assert!(why.contains("module `judge` decides which: a forwarding channel has only one module"), "{why}");
    testbed.send(&numbered(1000));
    testbed.until("all have been decided", |testbed| testbed.count("alice", "judge", "packets") == 900);
    testbed.until("all packets have been sent", |testbed| sent(testbed, "alice", "packets") == 400);
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
    // Without the module all packets are forwarded again.
    testbed.request(json!({"unload": {"session": "alice", "module": "judge"}}));
    testbed.send(&numbered(10));
    testbed.until("the packets have been sent", |testbed| sent(testbed, "alice", "packets") == 410);
    assert!(testbed.stop().success());
    let ledger = testbed.ledger();
    let drops = |cause: &str| -> u64 {
        let usages = ledger.iter().filter(|entry| entry["kind"] == "usage");
        usages.filter_map(|entry| entry["usage"]["drops"][cause].as_u64()).sum()
    };
    assert_eq!((drops("verdict"), drops("module-fault")), (500, 100));
}

#[test]
fn packets_are_forwarded_completely_and_in_order_with_every_latency() {
    if !is_inside("links::packets_are_forwarded_completely_and_in_order_with_every_latency") {
        return;
    }
    let (mut testbed, mut far) = linked(&session(FORWARD));
    assert!(testbed.stop().success());
    for latency in ["auto", "low", "batch"] {
        testbed.configure(&format!("latency = \"{latency}\"\n{}", session(FORWARD)));
        testbed.start();
        let frames = numbered(1500);
        // Packets that arrive together, and packets of which each waits for the one before.
        for portion in frames[..1400].chunks(350) {
            testbed.send(portion);
        }
        for (number, frame) in (1401..).zip(&frames[1400..]) {
            testbed.send(std::slice::from_ref(frame));
            if number % 20 == 0 {
                testbed.until("the packet is sent", |testbed| sent(testbed, "alice", "packets") >= number);
            }
        }
        testbed.until("all packets are sent", |testbed| sent(testbed, "alice", "packets") == 1500);
        assert!(far.datagrams(1500) == frames, "{latency}");
        assert!(testbed.stop().success());
    }
}

#[test]
fn a_channel_that_needs_its_module_forwards_nothing_without_it() {
    if !is_inside("links::a_channel_that_needs_its_module_forwards_nothing_without_it") {
        return;
    }
    let safe = session(", forward = \"up\", on_no_module = \"drop\"");
    let (mut testbed, mut far) =
        linked(&safe.replace("queue = 4096", "queue = 4096, filter = \"udp dst port 2 or udp dst port 3\""));
    testbed.send(&numbered(10));
    let held = |testbed: &Testbed| {
        testbed.part("alice", "channels", "main")["drops"]["closed"].as_u64().unwrap_or(0)
    };
    testbed.until("they are counted", |testbed| held(testbed) == 10);
    let pass = at_packet(0, "");
    let bytes = assemble(&text(&pass), Some(MANIFEST.replace("NAME", "pass").as_bytes()));
    assert!(testbed.load("alice", json!({"module": "pass.wasm"}), &bytes).get("done").is_some());
    testbed.send(&numbered(10));
    // The channel's filter accepts only two of them.
    testbed.until("the packets are judged", |testbed| {
        sent(testbed, "alice", "packets") == 2 && lost(testbed, "alice", "refused") == 8
    });
    assert_eq!(far.datagrams(2), numbered(4)[2..]);
}

#[test]
fn a_link_that_goes_down_and_up_works_again() {
    if !is_inside("links::a_link_that_goes_down_and_up_works_again") {
        return;
    }
    let (mut testbed, mut far) = linked(&session(FORWARD));
    let state = |testbed: &Testbed| -> Value { testbed.snapshot()["links"][0]["state"].clone() };
    assert_eq!(state(&testbed), "up");
    ip("link set dev c down");
    testbed.until("the change is noticed", |testbed| state(testbed) == "down");
    testbed.send(&numbered(10));
    testbed.until("they are counted", |testbed| lost(testbed, "alice", "interface-down") == 10);
    ip("link set dev c up");
    testbed.until("the change is noticed", |testbed| state(testbed) == "up");
    testbed.send(&numbered(5));
    testbed.until("the packets have been sent", |testbed| sent(testbed, "alice", "packets") == 5);
    assert_eq!(far.datagrams(5), numbered(5));
    testbed.until("the log has the message", |testbed| {
        testbed.log().contains("link c: its interface is down, and frames sent through it are lost")
    });
    // Also an interface that is removed and created again.
    ip("link delete dev c");
    testbed.until("the change is noticed", |testbed| state(testbed) == "down");
    testbed.send(&numbered(10));
    testbed.until("they are counted", |testbed| lost(testbed, "alice", "interface-down") == 20);
    far_cable();
    testbed.until("the change is noticed", |testbed| state(testbed) == "up");
    testbed.until("packets are forwarded again", |testbed| {
        testbed.send(&numbered(1));
        sent(testbed, "alice", "packets") > 5
    });
    assert!(testbed.stop().success());
}
