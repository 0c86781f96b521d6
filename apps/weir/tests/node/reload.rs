//! Reloads of the configuration: each takes effect as a whole, or changes nothing.

use crate::place::{Place, cable, is_inside, udp};
use crate::tables::{follow, next, publisher, table};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A session with so many milliseconds of every hundred, for datagrams to a port.
fn session(name: &str, slice: u32, port: u16, module: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nmemory = \"16 MiB\"\n\
         cpu = [{{ core = 0, period = \"100ms\", slice = \"{slice}ms\" }}]\n\
         channel = [{{ interface = \"b\", filter = \"udp port {port}\" }}]\n\
         module = [{{ name = \"m\", module = \"{module}\" }}]\n"
    )
}

/// One core, of which three such sessions leave no room for a fourth, and memory for three.
const NODE: &str = "memory = \"48 MiB\"\n";
const CPU: &str = "cores = [0]\n";
const SLICE: u32 = 27;

fn names(place: &Place) -> Vec<String> {
    let sessions = place.snapshot()["sessions"].as_array().unwrap().clone();
    sessions.iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
}

/// The numbers that sessions of this name have had in the ledger, and how often one was closed.
fn lives(place: &Place, name: &str) -> (Vec<u64>, usize) {
    let ledger = place.ledger();
    let of = |kind: &str| -> Vec<u64> {
        let entries = ledger.iter().filter(|it| it["kind"] == kind && it["session"]["name"] == name);
        entries.map(|it| it["session"]["id"].as_u64().unwrap()).collect()
    };
    (of("session-created"), of("session-closed").len())
}

fn reserved(place: &Place) -> (u64, u64) {
    let snapshot = place.snapshot();
    (snapshot["cores"][0]["reserved_ppm"].as_u64().unwrap(), snapshot["memory"]["reserved"].as_u64().unwrap())
}

/// Asks for the same again and again, on connections of its own.
struct Thief {
    is_over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(u64, u64)>,
}

impl Thief {
    fn of(place: &Place, ask: &Value) -> Self {
        let (socket, ask) = (place.path().join("node.sock"), json!({"weir": 1, "ask": ask, "body": 0}));
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let (mut refused, mut done) = (0, 0);
            while !ends.load(Ordering::Relaxed) || refused == 0 {
                let mut stream = UnixStream::connect(&socket).unwrap();
                writeln!(stream, "{ask}").unwrap();
                let mut line = String::new();
                BufReader::new(stream).read_line(&mut line).unwrap();
                let is_done = line.contains("\"done\"");
                (refused, done) = (refused + u64::from(!is_done), done + u64::from(is_done));
            }
            (refused, done)
        });
        Self { is_over, thread }
    }

    /// The number of requests that were granted, after one refusal at least.
    fn caught(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().1
    }
}

#[test]
fn a_session_changes_on_a_full_core_and_keeps_what_it_has_reserved() {
    if !is_inside("reload::a_session_changes_on_a_full_core_and_keeps_what_it_has_reserved") {
        return;
    }
    let sessions = |port: u16| {
        session("alice", SLICE, 1, "port-count")
            + &session("bob", SLICE, port, "port-count")
            + &session("carol", SLICE, 3, "port-count")
    };
    let mut place = Place::with_parts("memory = \"64 MiB\"\n", CPU, &sessions(2));
    let full = reserved(&place);
    let more =
        json!({"create": {"name": "eve", "memory": "1 MiB", "cpu": [{"period": "100ms", "slice": "10ms"}]}});
    assert!(place.refused(more.clone()).contains("is more than this core has left"));
    place.send(&vec![udp(1, b"x"); 50]);
    place.until("alice counts", |place| place.count("alice", "m", "packets") == 50);
    for round in 0..20 {
        let port = if round % 2 == 0 { 4 } else { 2 };
        place.configure(&sessions(port));
        let notes = place.ask(json!("reload"))["done"]["notes"].clone();
        assert_eq!(notes, json!(["session bob is changed"]), "{round}: {}", place.said());
        assert_eq!(reserved(&place), full);
        assert!(place.refused(more.clone()).contains("is more than this core has left"));
        place.send(&vec![udp(port, b"x"); 10]);
        place.until("bob gets what it selects now", |place| place.count("bob", "m", "packets") == 10);
    }
    assert_eq!(place.count("alice", "m", "packets"), 50, "others go on as they were");
    assert!(place.stop().success());
    let (created, closed) = lives(&place, "bob");
    assert_eq!((created.len(), closed), (1, 1), "it is one session from the beginning to the node's end");
    assert_eq!(place.billed("bob", "packets_in"), 200, "with one bill");
    let modules = |kind: &str| {
        place.ledger().iter().filter(|it| it["kind"] == kind && it["session"]["name"] == "bob").count()
    };
    assert_eq!((modules("module-loaded"), modules("module-unloaded")), (21, 21));
}

#[test]
fn a_reload_that_is_refused_changes_nothing() {
    if !is_inside("reload::a_reload_that_is_refused_changes_nothing") {
        return;
    }
    let alice = session("alice", SLICE, 1, "port-count");
    let bob = session("bob", SLICE, 2, "port-count");
    let table = "[[table]]\nname = \"t\"\nfile = \"t.bin\"\n";
    let mut place = Place::prepared(NODE, CPU, None);
    std::fs::write(place.path().join("t.bin"), b"one").unwrap();
    let good = format!("{table}{alice}{bob}");
    place.configure(&good);
    place.start();
    place.send(&[vec![udp(1, b"x"); 50], vec![udp(2, b"x"); 70]].concat());
    let counted = |place: &Place| ["alice", "bob"].map(|name| place.count(name, "m", "packets"));
    place.until("both count", |place| counted(place) == [50, 70]);
    // A session that is created by hand, and not in the configuration.
    place.done(json!({"create": {"name": "hand", "memory": "8 MiB", "publish": ["mine"]}}));
    let before = (reserved(&place), names(&place), place.snapshot()["tables"].clone());
    let changed = |port: u16| session("bob", SLICE, port, "port-count");
    let wrong = |text: &str| bob.replace("udp port 2", text);
    let missing = changed(4).replace("\"port-count\"", "\"missing.wasm\"");
    let more = |text: &str| format!("[[session]]\nname = \"eve\"\n{text}\n");
    std::fs::write(place.path().join("t.bin"), b"another").unwrap();
    for (bad, says) in [
        (format!("{table}{alice}{missing}"), "session `bob`: module `missing.wasm`: No such file"),
        (format!("{table}{alice}{}", wrong("udp prt 2")), "session `bob`: channel `main`: filter expression"),
        (format!("{table}{alice}{}", wrong("host example.com")), "names are not looked up"),
        // The refused part comes last, after several that change.
        (
            format!("{table}{alice}{}{}", changed(4), more("memory = \"9 MiB\"")),
            "session `eve`: 9 MiB of memory are more than is left: 8 MiB",
        ),
        (
            format!(
                "{table}{}{}",
                session("bob", 60, 4, "port-count"),
                session("alice", 27, 4, "port-count")
            ),
            "is more than this core has left",
        ),
        (
            format!("{table}{alice}{}{}", changed(4), more("memory = \"1 MiB\"\npublish = [\"mine\"]")),
            "session `eve`: table `mine` is published by session hand",
        ),
        (
            format!("{table}{alice}{}{}", changed(4), more("memory = \"1 MiB\"\ncpu = [{ core = 4000 }]")),
            "core 4000",
        ),
        (
            format!("{table}{alice}{}{}", changed(4), "[[session]]\nname = \"hand\"\nmemory = \"1 MiB\"\n"),
            "there is a session `hand` already",
        ),
        (
            format!(
                "{table}{alice}{}{}",
                changed(4),
                more(
                    "memory = \"1 MiB\"\nchannel = [{ interface = \"b\" }]\nmodule = [{ module = \"rtt\", set = { no = 1 } }]"
                )
            ),
            "session `eve`: module `rtt`:",
        ),
    ] {
        place.configure(&bad);
        let why = place.refused(json!("reload"));
        assert!(why.contains(says), "{says}: {why}");
        assert_eq!((reserved(&place), names(&place), place.snapshot()["tables"].clone()), before, "{says}");
        assert_eq!(counted(&place), [50, 70], "{says}");
    }
    place.send(&[vec![udp(1, b"x"); 5], vec![udp(2, b"x"); 7], vec![udp(4, b"x"); 9]].concat());
    place.until("they go on", |place| counted(place) == [55, 77]);
    // A refused reload does not stand in the way of a right one.
    place.done(json!({"close": {"session": "hand"}}));
    place.configure(&format!(
        "{table}{alice}{}{}",
        changed(4),
        more("memory = \"16 MiB\"\npublish = [\"mine\"]")
    ));
    place.done(json!("reload"));
    assert_eq!(names(&place), ["alice", "bob", "eve"]);
    assert!(place.stop().success());
    let (created, closed) = lives(&place, "bob");
    assert_eq!((created.len(), closed), (1, 1), "it is one session from the beginning to the node's end");
    // No number was given twice.
    let ids: Vec<u64> =
        ["alice", "bob", "hand", "eve"].iter().flat_map(|name| lives(&place, name).0).collect();
    assert_eq!(ids, (ids[0]..ids[0] + 4).collect::<Vec<_>>());
}

#[test]
fn what_one_session_gives_up_another_one_gets_in_whatever_order_they_stand() {
    if !is_inside("reload::what_one_session_gives_up_another_one_gets_in_whatever_order_they_stand") {
        return;
    }
    cable("c", "far");
    let link = "[[link]]\ninterface = \"c\"\nrate = \"100 Mbit/s\"\n";
    let part = |name: &str, slice: u32, memory: u32, rate: u32| {
        session(name, slice, 1, "port-count").replace("16 MiB", &format!("{memory} MiB")).replace(
            "channel =",
            &format!("output = [{{ link = \"c\", reserve = \"{rate} Mbit/s\", queue = 16 }}]\nchannel ="),
        )
    };
    let shape = |place: &Place| -> Vec<[Value; 3]> {
        let snapshot = place.snapshot();
        let of = |it: &Value| {
            [
                it["cpu"][0]["slice_ns"].clone(),
                it["memory_reserved"].clone(),
                it["outputs"][0]["reserved_bits"].clone(),
            ]
        };
        snapshot["sessions"].as_array().unwrap().iter().map(of).collect()
    };
    let wanted = |parts: &[(u64, u64, u64)]| -> Vec<[Value; 3]> {
        let of = |(slice, memory, rate): &(u64, u64, u64)| {
            [json!(slice * 1_000_000), json!(memory << 20), json!(rate * 1_000_000)]
        };
        parts.iter().map(of).collect()
    };
    // All of the core, of the memory, and of what can be reserved of the link.
    let (much, little) = ((60, 32, 70), (20, 16, 20));
    let both = |alice: (u32, u32, u32), bob: (u32, u32, u32)| {
        let [alice, bob] = [("alice", alice), ("bob", bob)].map(|(name, of)| part(name, of.0, of.1, of.2));
        link.to_owned() + &alice + &bob
    };
    let mut place = Place::with_parts(NODE, CPU, &both(much, little));
    let big = |of: (u32, u32, u32)| (u64::from(of.0), u64::from(of.1), u64::from(of.2));
    assert_eq!(shape(&place), wanted(&[big(much), big(little)]));
    let taken =
        json!({"create": {"name": "eve", "memory": "0", "cpu": [{"period": "100ms", "slice": "30ms"}]}});
    let memory = json!({"create": {"name": "eva", "memory": "1 MiB"}});
    let thieves = [&taken, &memory].map(|ask| Thief::of(&place, ask));
    for round in 0..6 {
        let (alice, bob) = if round % 2 == 0 { (little, much) } else { (much, little) };
        place.configure(&both(alice, bob));
        let reply = place.ask(json!("reload"));
        assert!(reply.get("done").is_some(), "{round}: {reply}");
        assert_eq!(shape(&place), wanted(&[big(alice), big(bob)]));
        // No third party gets what is given up, not for a moment.
        assert!(place.refused(taken.clone()).contains("more than"));
    }
    assert_eq!(thieves.map(Thief::caught), [0, 0], "they asked all the while");
    // Another name, which needs all that the one before had.
    place.configure(&both(little, much).replace("\"bob\"", "\"carol\""));
    place.done(json!("reload"));
    assert_eq!(names(&place), ["alice", "carol"]);
    assert_eq!(shape(&place), wanted(&[big(little), big(much)]));
    assert!(place.refused(taken).contains("more than"));
    // The promise is kept: the two have all that was promised to them.
    place.until("what was pledged is there", |place| reserved(place).0 == 800_000);
    // A link that gets narrower with what is reserved of it.
    let narrow = both((20, 16, 10), (20, 16, 20)).replace("100 Mbit/s", "40 Mbit/s");
    place.configure(&narrow.replace("\"bob\"", "\"carol\""));
    place.done(json!("reload"));
    assert_eq!(place.snapshot()["links"][0]["rate_bits"], 40_000_000);
    place.send(&vec![udp(1, b"x"); 20]);
    place.until("both work", |place| {
        ["alice", "carol"].iter().all(|name| place.count(name, "m", "packets") >= 20)
    });
    assert!(place.stop().success());
}

#[test]
fn a_session_of_which_only_a_files_name_changes_goes_on_with_that_file() {
    if !is_inside("reload::a_session_of_which_only_a_files_name_changes_goes_on_with_that_file") {
        return;
    }
    let mut place = Place::prepared(NODE, CPU, None);
    let bytes = crate::module::assemble(
        &crate::module::text("(func (export \"weir_packet\") (param $d i32) (result i32) (i32.const 0))"),
        Some(crate::module::MANIFEST.replace("NAME", "still").as_bytes()),
    );
    for name in ["one.wasm", "two.wasm"] {
        std::fs::write(place.path().join(name), &bytes).unwrap();
    }
    place.configure(&session("alice", 60, 1, "one.wasm"));
    place.start();
    place.send(&vec![udp(1, b"x"); 10]);
    place.until("it works", |place| place.count("alice", "m", "packets") == 10);
    place.configure(&session("alice", 60, 1, "two.wasm"));
    place.done(json!("reload"));
    // A running module's file is not read any more.
    std::fs::remove_file(place.path().join("two.wasm")).unwrap();
    place.send(&vec![udp(1, b"x"); 10]);
    place.until("it works again", |place| place.count("alice", "m", "packets") == 10);
    // A configuration that names a file that is gone: nothing changes.
    std::fs::remove_file(place.path().join("one.wasm")).unwrap();
    place.configure(&session("alice", 60, 1, "one.wasm"));
    assert!(place.refused(json!("reload")).contains("module `one.wasm`: No such file"));
    assert_eq!(place.count("alice", "m", "packets"), 10);
    assert!(place.stop().success());
    let (created, _) = lives(&place, "alice");
    assert_eq!((created.len(), place.billed("alice", "packets_in")), (1, 20));
}

#[test]
fn modules_of_sessions_that_come_or_change_publish_their_tables() {
    if !is_inside("reload::modules_of_sessions_that_come_or_change_publish_their_tables") {
        return;
    }
    let mut place = Place::prepared(NODE, CPU, None);
    let file = place.path().join("publisher.wasm");
    std::fs::write(&file, publisher("publisher", 1, 8)).unwrap();
    let alice = |slice: u32, table: &str| {
        let grant = format!("publish = [\"t={table}\"]\nchannel =");
        session("alice", slice, 1, file.to_str().unwrap()).replace("channel =", &grant)
    };
    place.configure(&session("bob", 10, 2, "port-count"));
    place.start();
    // It comes, changes, publishes another table, and the first one again.
    for (slice, name) in [(10, "one"), (20, "one"), (20, "two"), (20, "one")] {
        place.configure(&(session("bob", 10, 2, "port-count") + &alice(slice, name)));
        place.done(json!("reload"));
        let mut rows = follow(&place, "alice");
        place.send(&[udp(1, b"x")]);
        assert_eq!(next(&mut rows), 0, "{slice} {name}: it is answered that the version is shown");
        let shown = table(&place, name).unwrap();
        assert!(shown["version"].as_u64().unwrap() > 0, "{shown}");
    }
    assert!(place.stop().success());
}
