//! Changes of running sessions: channels, profiles and priorities.

use crate::links::{linked, session as linking};
use crate::tables::{error_of, output_of};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::{Value, json};

fn session(name: &str, channel: &str) -> String {
    format!("[[session]]\nname = \"{name}\"\nmemory = \"128 MiB\"\n{channel}\n")
}

fn channels(testbed: &Testbed, session: &str) -> Vec<Value> {
    let snapshot = testbed.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    let found = sessions.iter().find(|shot| shot["name"] == session).unwrap();
    found["channels"].as_array().unwrap().iter().map(|it| json!([it["name"], it["filter"]])).collect()
}

fn load(testbed: &Testbed, module: &str, name: &str, channel: &str) {
    let reply = testbed.load("alice", json!({"module": module, "name": name, "channel": channel}), &[]);
    assert!(reply.get("done").is_some(), "{reply}");
}

#[test]
fn channels_are_added_and_changed_while_others_of_the_session_work() {
    if !is_inside("session_changes::channels_are_added_and_changed_while_others_of_the_session_work") {
        return;
    }
    let mut testbed =
        Testbed::new(&session("alice", "channel = [{ interface = \"b\", filter = \"udp port 1\" }]"));
    load(&testbed, "trajectory", "first", "main");
    let seen = |testbed: &Testbed, module: &str| testbed.count("alice", module, "packets");
    let send = |testbed: &mut Testbed, port: u16, count: usize| testbed.send(&vec![udp(port, b"x"); count]);
    send(&mut testbed, 1, 10);
    testbed.until("the module has received the packets", |testbed| seen(testbed, "first") == 10);

    // A second channel beside it.
    output_of(
        &testbed,
        &["session", "change", "alice", "--channel", "name=more,interface=b,filter=udp port 2"],
    );
    load(&testbed, "trajectory", "second", "more");
    send(&mut testbed, 1, 5);
    send(&mut testbed, 2, 7);
    testbed.until("both modules have received their packets", |testbed| {
        seen(testbed, "first") == 15 && seen(testbed, "second") == 7
    });

    // A channel with a module cannot be replaced; nothing else of that request is done either.
    let before = channels(&testbed, "alice");
    let why = error_of(
        &testbed,
        &["session", "change", "alice", "--channel", "interface=b,filter=udp port 3", "--priority", "9"],
    );
    assert!(why.contains("channel `main` of session `alice` has a module, trajectory"), "{why}");
    assert_eq!(
        (channels(&testbed, "alice"), testbed.snapshot()["sessions"][0]["priority"].as_u64()),
        (before, Some(0))
    );
    testbed.request(json!({"unload": {"session": "alice", "module": "first"}}));
    // Packets of a channel without a module are lost, and the loss is charged.
    output_of(
        &testbed,
        &["session", "change", "alice", "--channel", "interface=b,filter=udp port 3,queue=100"],
    );
    assert_eq!(testbed.part("alice", "channels", "main")["queue"], 100);
    load(&testbed, "trajectory", "third", "main");
    send(&mut testbed, 1, 20);
    send(&mut testbed, 3, 6);
    send(&mut testbed, 2, 1);
    testbed.until("both modules have received their packets", |testbed| {
        seen(testbed, "third") == 6 && seen(testbed, "second") == 8
    });
    assert_eq!(testbed.part("alice", "channels", "main")["packets"], 6, "only what it selects now");
    assert!(testbed.stop().success());
    assert_eq!(testbed.ledger_usage("alice", "packets_in"), 15 + 8 + 6);
}

#[test]
fn a_refused_change_leaves_channels_unchanged_and_nothing_behind() {
    if !is_inside("session_changes::a_refused_change_leaves_channels_unchanged_and_nothing_behind") {
        return;
    }
    let mut testbed =
        Testbed::new(&session("alice", "channel = [{ interface = \"b\", filter = \"udp port 1\" }]"));
    let before = channels(&testbed, "alice");
    let held = testbed.descriptors_and_mappings().0;
    let channel = |filter: &str| json!([{"interface": "b", "filter": filter}, {"name": "new", "interface": "b", "filter": "tcp"}]);
    for round in 0..60 {
        let filter = format!("udp port {round}");
        for (request, says) in [
            (json!({"session": "alice", "channel": channel("udp prot 1")}), "syntax error"),
            (
                json!({"session": "alice", "channel": [{"interface": "z", "filter": filter}]}),
                "there is no interface `z`; there is b",
            ),
            (json!({"session": "alice", "channel": channel(&filter), "memory": "900 GiB"}), "900 GiB"),
            (
                json!({"session": "alice", "channel": channel(&filter), "cpu": [{"name": "huge", "period": "20ms", "slice": "20ms"}]}),
                "virtual CPU `huge`",
            ),
            (
                json!({"session": "alice", "channel": channel(&filter), "output": [{"link": "nowhere"}]}),
                "there is no link `nowhere`",
            ),
        ] {
            let why = testbed.request_refused(json!({"change": request}));
            assert!(why.contains(says), "{why}");
        }
    }
    assert_eq!(channels(&testbed, "alice"), before);
    testbed.until("their descriptors are closed", |testbed| {
        testbed.snapshot();
        testbed.descriptors_and_mappings().0 <= held
    });
    load(&testbed, "trajectory", "it", "main");
    testbed.send(&[udp(2, b"x"), udp(1, b"x")]);
    testbed
        .until("the session gets the same packets", |testbed| testbed.count("alice", "it", "packets") == 1);
    assert!(testbed.stop().success());
}

#[test]
fn a_channel_can_forward_to_a_new_or_an_existing_output() {
    if !is_inside("session_changes::a_channel_can_forward_to_a_new_or_an_existing_output") {
        return;
    }
    let sessions = linking("") + &session("bob", "");
    let (mut testbed, mut far) = linked(&sessions);
    let frames = |port: u16| vec![udp(port, &[7; 40]); 5];
    let sent = |testbed: &Testbed, session: &str| {
        testbed.part(session, "outputs", "up")["packets"].as_u64().unwrap()
    };
    // First all new in one change; then a replacement of an existing channel.
    let requests = [
        json!({"session": "bob", "channel": [{"interface": "b", "filter": "udp port 2", "forward": "up"}],
            "output": [{"name": "up", "link": "c"}]}),
        json!({"session": "alice", "channel": [{"interface": "b", "filter": "udp port 3", "forward": "up"}]}),
    ];
    requests.into_iter().for_each(|request| testbed.request(json!({"change": request})));
    for port in 1..=3 {
        testbed.send(&frames(port));
    }
    testbed.until("the packets have been sent", |testbed| {
        (sent(testbed, "bob"), sent(testbed, "alice")) == (5, 5)
    });
    let mut arrived = far.datagrams(10);
    arrived.sort_unstable();
    assert_eq!(arrived, [frames(2), frames(3)].concat());
    let why = testbed.request_refused(
        json!({"change": {"session": "bob", "channel": [{"interface": "b", "forward": "aside"}]}}),
    );
    assert!(why.contains("there is no output channel or TAP device `aside`"), "{why}");
    // Forwarded packets stay charged when the channel is replaced.
    testbed.request(json!({"change": {"session": "bob", "channel": [{"interface": "b", "filter": "udp port 4", "forward": "up"}]}}));
    testbed.send(&frames(4));
    testbed.until("the packets have been sent", |testbed| sent(testbed, "bob") == 10);
    assert!(testbed.stop().success());
    assert_eq!(
        (testbed.ledger_usage("bob", "packets_in"), testbed.ledger_usage("bob", "packets_out")),
        (10, 10)
    );
}

#[test]
fn modules_are_admitted_by_the_sessions_profile_at_their_load() {
    if !is_inside("session_changes::modules_are_admitted_by_the_sessions_profile_at_their_load") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tight.toml");
    std::fs::write(&file, "packet = \"1ns\"\ntiers = [\"proved\"]\n").unwrap();
    let profiles = format!("[[profile]]\nname = \"tight\"\nfile = \"{}\"\n", file.display());
    let testbed =
        Testbed::new(&(profiles + &session("alice", "channel = [{ interface = \"b\", filter = \"udp\" }]")));
    load(&testbed, "trajectory", "before", "main");
    output_of(&testbed, &["session", "change", "alice", "--profile", "tight"]);
    let why = testbed.load("alice", json!({"module": "trajectory", "name": "after"}), &[])["refused"]["why"]
        .to_string();
    assert!(why.contains("`tiers`"), "{why}");
    // Loaded modules stay loaded.
    assert_eq!(testbed.part("alice", "modules", "before")["state"], "running");
    let why = error_of(&testbed, &["session", "change", "alice", "--profile", "none"]);
    assert!(why.contains("there is no profile `none`; there is tight"), "{why}");
}
