//! Sessions whose channels, profiles and priorities change while they run.

use crate::links::{linked, session as linking};
use crate::place::{Place, is_inside, udp};
use crate::tables::{refused, said};
use serde_json::{Value, json};

fn session(name: &str, channel: &str) -> String {
    format!("[[session]]\nname = \"{name}\"\nmemory = \"128 MiB\"\n{channel}\n")
}

fn channels(place: &Place, session: &str) -> Vec<Value> {
    let snapshot = place.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    let found = sessions.iter().find(|shot| shot["name"] == session).unwrap();
    found["channels"].as_array().unwrap().iter().map(|it| json!([it["name"], it["filter"]])).collect()
}

fn load(place: &Place, module: &str, name: &str, channel: &str) {
    let reply = place.load("alice", json!({"module": module, "name": name, "channel": channel}), &[]);
    assert!(reply.get("done").is_some(), "{reply}");
}

#[test]
fn channels_come_and_change_while_others_of_the_session_work() {
    if !is_inside("changing::channels_come_and_change_while_others_of_the_session_work") {
        return;
    }
    let mut place =
        Place::new(&session("alice", "channel = [{ interface = \"b\", filter = \"udp port 1\" }]"));
    load(&place, "trajectory", "first", "main");
    let seen = |place: &Place, module: &str| place.count("alice", module, "packets");
    let send = |place: &mut Place, port: u16, count: usize| place.send(&vec![udp(port, b"x"); count]);
    send(&mut place, 1, 10);
    place.until("it has seen them", |place| seen(place, "first") == 10);

    // Another one beside it.
    said(&place, &["session", "change", "alice", "--channel", "name=more,interface=b,filter=udp port 2"]);
    load(&place, "trajectory", "second", "more");
    send(&mut place, 1, 5);
    send(&mut place, 2, 7);
    place.until("both have seen theirs", |place| seen(place, "first") == 15 && seen(place, "second") == 7);

    // Not under a module; nothing of what is asked for with it is done.
    let before = channels(&place, "alice");
    let why = refused(
        &place,
        &["session", "change", "alice", "--channel", "interface=b,filter=udp port 3", "--priority", "9"],
    );
    assert!(why.contains("channel `main` of session `alice` has a module, trajectory"), "{why}");
    assert_eq!(
        (channels(&place, "alice"), place.snapshot()["sessions"][0]["priority"].as_u64()),
        (before, Some(0))
    );
    place.done(json!({"unload": {"session": "alice", "module": "first"}}));
    // What comes for nobody is lost, and stays on the bill.
    said(&place, &["session", "change", "alice", "--channel", "interface=b,filter=udp port 3,queue=100"]);
    assert_eq!(place.part("alice", "channels", "main")["queue"], 100);
    load(&place, "trajectory", "third", "main");
    send(&mut place, 1, 20);
    send(&mut place, 3, 6);
    send(&mut place, 2, 1);
    place.until("both have seen theirs", |place| seen(place, "third") == 6 && seen(place, "second") == 8);
    assert_eq!(place.part("alice", "channels", "main")["packets"], 6, "only what it selects now");
    assert!(place.stop().success());
    assert_eq!(place.billed("alice", "packets_in"), 15 + 8 + 6);
}

#[test]
fn a_change_that_is_refused_leaves_channels_as_they_were_and_nothing_behind() {
    if !is_inside("changing::a_change_that_is_refused_leaves_channels_as_they_were_and_nothing_behind") {
        return;
    }
    let mut place =
        Place::new(&session("alice", "channel = [{ interface = \"b\", filter = \"udp port 1\" }]"));
    let before = channels(&place, "alice");
    let held = place.holdings().0;
    let channel = |filter: &str| json!([{"interface": "b", "filter": filter}, {"name": "new", "interface": "b", "filter": "tcp"}]);
    for round in 0..60 {
        let filter = format!("udp port {round}");
        for (ask, says) in [
            (json!({"session": "alice", "channel": channel("udp prot 1")}), "syntax error"),
            (
                json!({"session": "alice", "channel": [{"interface": "z", "filter": filter}]}),
                "there is no interface `z`; there is b",
            ),
            (json!({"session": "alice", "channel": channel(&filter), "memory": "900 GiB"}), "900 GiB"),
            (
                json!({"session": "alice", "channel": channel(&filter), "cpu": [{"name": "huge", "period": "20ms", "slice": "20ms"}]}),
                "virtual processor `huge`",
            ),
            (
                json!({"session": "alice", "channel": channel(&filter), "output": [{"link": "nowhere"}]}),
                "there is no link `nowhere`",
            ),
        ] {
            let why = place.refused(json!({"change": ask}));
            assert!(why.contains(says), "{why}");
        }
    }
    assert_eq!(channels(&place, "alice"), before);
    place.until("nothing is left of them", |place| {
        place.snapshot();
        place.holdings().0 <= held
    });
    load(&place, "trajectory", "it", "main");
    place.send(&[udp(2, b"x"), udp(1, b"x")]);
    place.until("it gets what it got", |place| place.count("alice", "it", "packets") == 1);
    assert!(place.stop().success());
}

#[test]
fn a_channel_forwards_to_an_output_that_comes_with_it_or_was_there() {
    if !is_inside("changing::a_channel_forwards_to_an_output_that_comes_with_it_or_was_there") {
        return;
    }
    let sessions = linking("") + &session("bob", "");
    let (mut place, mut far) = linked(&sessions);
    let frames = |port: u16| vec![udp(port, &[7; 40]); 5];
    let sent =
        |place: &Place, session: &str| place.part(session, "outputs", "up")["packets"].as_u64().unwrap();
    // All new, in one change; and one that takes the place of what was there.
    let asks = [
        json!({"session": "bob", "channel": [{"interface": "b", "filter": "udp port 2", "forward": "up"}],
            "output": [{"name": "up", "link": "c"}]}),
        json!({"session": "alice", "channel": [{"interface": "b", "filter": "udp port 3", "forward": "up"}]}),
    ];
    asks.into_iter().for_each(|ask| place.done(json!({"change": ask})));
    for port in 1..=3 {
        place.send(&frames(port));
    }
    place.until("they have gone", |place| (sent(place, "bob"), sent(place, "alice")) == (5, 5));
    let mut arrived = far.datagrams(10);
    arrived.sort_unstable();
    assert_eq!(arrived, [frames(2), frames(3)].concat());
    let why = place
        .refused(json!({"change": {"session": "bob", "channel": [{"interface": "b", "forward": "aside"}]}}));
    assert!(why.contains("there is no output channel or TAP device `aside`"), "{why}");
    // What went on is on the bill when the channel is another one.
    place.done(json!({"change": {"session": "bob", "channel": [{"interface": "b", "filter": "udp port 4", "forward": "up"}]}}));
    place.send(&frames(4));
    place.until("they have gone", |place| sent(place, "bob") == 10);
    assert!(place.stop().success());
    assert_eq!((place.billed("bob", "packets_in"), place.billed("bob", "packets_out")), (10, 10));
}

#[test]
fn modules_are_admitted_by_the_profile_that_a_session_has_then() {
    if !is_inside("changing::modules_are_admitted_by_the_profile_that_a_session_has_then") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tight.toml");
    std::fs::write(&file, "packet = \"1ns\"\ntiers = [\"proved\"]\n").unwrap();
    let profiles = format!("[[profile]]\nname = \"tight\"\nfile = \"{}\"\n", file.display());
    let place =
        Place::new(&(profiles + &session("alice", "channel = [{ interface = \"b\", filter = \"udp\" }]")));
    load(&place, "trajectory", "before", "main");
    said(&place, &["session", "change", "alice", "--profile", "tight"]);
    let why = place.load("alice", json!({"module": "trajectory", "name": "after"}), &[])["refused"]["why"]
        .to_string();
    assert!(why.contains("`tiers`"), "{why}");
    // Those that are there stay.
    assert_eq!(place.part("alice", "modules", "before")["state"], "running");
    let why = refused(&place, &["session", "change", "alice", "--profile", "none"]);
    assert!(why.contains("there is no profile `none`; there is tight"), "{why}");
}
