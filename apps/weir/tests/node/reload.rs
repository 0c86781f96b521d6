//! Reloads of the configuration: each is applied as a whole, or changes nothing.

use crate::tables::{follow, next_value, publisher, table};
use crate::testbed::{Testbed, cable, is_inside, udp};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A session with a slice of this many milliseconds in every 100 ms, for datagrams to a port.
fn session(name: &str, slice: u32, port: u16, module: &str) -> String {
    format!(
        "[[session]]\nname = \"{name}\"\nmemory = \"16 MiB\"\n\
         cpu = [{{ core = 0, period = \"100ms\", slice = \"{slice}ms\" }}]\n\
         channel = [{{ interface = \"b\", filter = \"udp port {port}\" }}]\n\
         module = [{{ name = \"m\", module = \"{module}\" }}]\n"
    )
}

/// Memory for three such sessions. A core has no room for a fourth either.
const NODE: &str = "memory = \"48 MiB\"\n";
const CPU: &str = "cores = [0]\n";
const SLICE: u32 = 27;

fn names(testbed: &Testbed) -> Vec<String> {
    let sessions = testbed.snapshot()["sessions"].as_array().unwrap().clone();
    sessions.iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
}

/// The numbers of all sessions of this name in the ledger, and how many of them were closed.
fn session_history(testbed: &Testbed, name: &str) -> (Vec<u64>, usize) {
    let ledger = testbed.ledger();
    let of = |kind: &str| -> Vec<u64> {
        let entries = ledger.iter().filter(|it| it["kind"] == kind && it["session"]["name"] == name);
        entries.map(|it| it["session"]["id"].as_u64().unwrap()).collect()
    };
    (of("session-created"), of("session-closed").len())
}

fn reserved(testbed: &Testbed) -> (u64, u64) {
    let snapshot = testbed.snapshot();
    (snapshot["cores"][0]["reserved_ppm"].as_u64().unwrap(), snapshot["memory"]["reserved"].as_u64().unwrap())
}

/// Repeats a request over connections of its own, to take resources that become free.
struct Competitor {
    is_over: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<(u64, u64)>,
}

impl Competitor {
    fn start(testbed: &Testbed, request: &Value) -> Self {
        let (socket, request) =
            (testbed.path().join("node.sock"), json!({"weir": 1, "request": request, "body": 0}));
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let (mut refused, mut done) = (0, 0);
            while !ends.load(Ordering::Relaxed) || refused == 0 {
                let mut stream = UnixStream::connect(&socket).unwrap();
                writeln!(stream, "{request}").unwrap();
                let mut line = String::new();
                BufReader::new(stream).read_line(&mut line).unwrap();
                let is_done = line.contains("\"done\"");
                (refused, done) = (refused + u64::from(!is_done), done + u64::from(is_done));
            }
            (refused, done)
        });
        Self { is_over, thread }
    }

    /// The number of successful requests, after at least one refusal.
    fn count_successes(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.join().unwrap().1
    }
}

#[test]
fn a_session_changes_on_a_full_core_and_keeps_its_reservation() {
    if !is_inside("reload::a_session_changes_on_a_full_core_and_keeps_its_reservation") {
        return;
    }
    let sessions = |port: u16| {
        session("alice", SLICE, 1, "port-count")
            + &session("bob", SLICE, port, "port-count")
            + &session("carol", SLICE, 3, "port-count")
    };
    let mut testbed = Testbed::with_parts("memory = \"64 MiB\"\n", CPU, &sessions(2));
    let full = reserved(&testbed);
    let more =
        json!({"create": {"name": "eve", "memory": "1 MiB", "cpu": [{"period": "100ms", "slice": "10ms"}]}});
    assert!(testbed.request_refused(more.clone()).contains("is more than this core has left"));
    testbed.send(&vec![udp(1, b"x"); 50]);
    testbed.until("alice counts", |testbed| testbed.count("alice", "m", "packets") == 50);
    for round in 0..20 {
        let port = if round % 2 == 0 { 4 } else { 2 };
        testbed.configure(&sessions(port));
        let notes = testbed.send_request(json!("reload"))["done"]["notes"].clone();
        assert_eq!(notes, json!(["session bob is changed"]), "{round}: {}", testbed.log());
        assert_eq!(reserved(&testbed), full);
        assert!(testbed.request_refused(more.clone()).contains("is more than this core has left"));
        testbed.send(&vec![udp(port, b"x"); 10]);
        testbed.until("Bob's session gets the new selection", |testbed| {
            testbed.count("bob", "m", "packets") == 10
        });
    }
    assert_eq!(testbed.count("alice", "m", "packets"), 50, "others go on as they were");
    assert!(testbed.stop().success());
    let (created, closed) = session_history(&testbed, "bob");
    assert_eq!((created.len(), closed), (1, 1), "it is one session from the beginning to the node's end");
    assert_eq!(testbed.ledger_usage("bob", "packets_in"), 200, "with one bill");
    let modules = |kind: &str| {
        testbed.ledger().iter().filter(|it| it["kind"] == kind && it["session"]["name"] == "bob").count()
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
    let mut testbed = Testbed::prepared(NODE, CPU, None);
    std::fs::write(testbed.path().join("t.bin"), b"one").unwrap();
    let good = format!("{table}{alice}{bob}");
    testbed.configure(&good);
    testbed.start();
    testbed.send(&[vec![udp(1, b"x"); 50], vec![udp(2, b"x"); 70]].concat());
    let counted = |testbed: &Testbed| ["alice", "bob"].map(|name| testbed.count(name, "m", "packets"));
    testbed.until("both modules count", |testbed| counted(testbed) == [50, 70]);
    // A session that was created by a request, and is not in the configuration.
    testbed.request(json!({"create": {"name": "hand", "memory": "8 MiB", "publish": ["mine"]}}));
    let before = (reserved(&testbed), names(&testbed), testbed.snapshot()["tables"].clone());
    let changed = |port: u16| session("bob", SLICE, port, "port-count");
    let wrong = |text: &str| bob.replace("udp port 2", text);
    let missing = changed(4).replace("\"port-count\"", "\"missing.wasm\"");
    let more = |text: &str| format!("[[session]]\nname = \"eve\"\n{text}\n");
    std::fs::write(testbed.path().join("t.bin"), b"another").unwrap();
    for (bad, says) in [
        (format!("{table}{alice}{missing}"), "session `bob`: module `missing.wasm`: No such file"),
        (format!("{table}{alice}{}", wrong("udp prt 2")), "session `bob`: channel `main`: filter expression"),
        (format!("{table}{alice}{}", wrong("host example.com")), "names are not looked up"),
        // The invalid part comes last, after several valid changes.
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
        testbed.configure(&bad);
        let why = testbed.request_refused(json!("reload"));
        assert!(why.contains(says), "{says}: {why}");
        assert_eq!(
            (reserved(&testbed), names(&testbed), testbed.snapshot()["tables"].clone()),
            before,
            "{says}"
        );
        assert_eq!(counted(&testbed), [50, 70], "{says}");
    }
    testbed.send(&[vec![udp(1, b"x"); 5], vec![udp(2, b"x"); 7], vec![udp(4, b"x"); 9]].concat());
    testbed.until("the modules have received the packets", |testbed| counted(testbed) == [55, 77]);
    // After a refused reload a valid one succeeds.
    testbed.request(json!({"close": {"session": "hand"}}));
    testbed.configure(&format!(
        "{table}{alice}{}{}",
        changed(4),
        more("memory = \"16 MiB\"\npublish = [\"mine\"]")
    ));
    testbed.request(json!("reload"));
    assert_eq!(names(&testbed), ["alice", "bob", "eve"]);
    assert!(testbed.stop().success());
    let (created, closed) = session_history(&testbed, "bob");
    assert_eq!((created.len(), closed), (1, 1), "it is one session from the beginning to the node's end");
    // No session number was used twice.
    let ids: Vec<u64> =
        ["alice", "bob", "hand", "eve"].iter().flat_map(|name| session_history(&testbed, name).0).collect();
    assert_eq!(ids, (ids[0]..ids[0] + 4).collect::<Vec<_>>());
}

#[test]
fn resources_that_one_session_releases_another_gets_in_any_order() {
    if !is_inside("reload::resources_that_one_session_releases_another_gets_in_any_order") {
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
    let shape = |testbed: &Testbed| -> Vec<[Value; 3]> {
        let snapshot = testbed.snapshot();
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
    // All of the core, of the memory, and of the link's reservable rate.
    let (much, little) = ((60, 32, 70), (20, 16, 20));
    let both = |alice: (u32, u32, u32), bob: (u32, u32, u32)| {
        let [alice, bob] = [("alice", alice), ("bob", bob)].map(|(name, of)| part(name, of.0, of.1, of.2));
        link.to_owned() + &alice + &bob
    };
    let mut testbed = Testbed::with_parts(NODE, CPU, &both(much, little));
    let big = |of: (u32, u32, u32)| (u64::from(of.0), u64::from(of.1), u64::from(of.2));
    assert_eq!(shape(&testbed), wanted(&[big(much), big(little)]));
    let taken =
        json!({"create": {"name": "eve", "memory": "0", "cpu": [{"period": "100ms", "slice": "30ms"}]}});
    let memory = json!({"create": {"name": "eva", "memory": "1 MiB"}});
    let competitors = [&taken, &memory].map(|request| Competitor::start(&testbed, request));
    for round in 0..6 {
        let (alice, bob) = if round % 2 == 0 { (little, much) } else { (much, little) };
        testbed.configure(&both(alice, bob));
        let reply = testbed.send_request(json!("reload"));
        assert!(reply.get("done").is_some(), "{round}: {reply}");
        assert_eq!(shape(&testbed), wanted(&[big(alice), big(bob)]));
        // No other session can take the resources in between.
        assert!(testbed.request_refused(taken.clone()).contains("more than"));
    }
    assert_eq!(competitors.map(Competitor::count_successes), [0, 0], "they asked all the while");
    // A session with another name, which needs all resources of the closed one.
    testbed.configure(&both(little, much).replace("\"bob\"", "\"carol\""));
    testbed.request(json!("reload"));
    assert_eq!(names(&testbed), ["alice", "carol"]);
    assert_eq!(shape(&testbed), wanted(&[big(little), big(much)]));
    assert!(testbed.request_refused(taken).contains("more than"));
    // Both sessions have everything that was reserved for them.
    testbed.until("the reserved rate is back", |testbed| reserved(testbed).0 == 800_000);
    // The link's rate decreases, with less reserved on it.
    let narrow = both((20, 16, 10), (20, 16, 20)).replace("100 Mbit/s", "40 Mbit/s");
    testbed.configure(&narrow.replace("\"bob\"", "\"carol\""));
    testbed.request(json!("reload"));
    assert_eq!(testbed.snapshot()["links"][0]["rate_bits"], 40_000_000);
    testbed.send(&vec![udp(1, b"x"); 20]);
    testbed.until("both work", |testbed| {
        ["alice", "carol"].iter().all(|name| testbed.count(name, "m", "packets") >= 20)
    });
    assert!(testbed.stop().success());
}

#[test]
fn a_session_whose_module_file_is_renamed_uses_the_new_file() {
    if !is_inside("reload::a_session_whose_module_file_is_renamed_uses_the_new_file") {
        return;
    }
    let mut testbed = Testbed::prepared(NODE, CPU, None);
    let bytes = crate::module::assemble(
        &crate::module::text("(func (export \"weir_packet\") (param $d i32) (result i32) (i32.const 0))"),
        Some(crate::module::MANIFEST.replace("NAME", "still").as_bytes()),
    );
    for name in ["one.wasm", "two.wasm"] {
        std::fs::write(testbed.path().join(name), &bytes).unwrap();
    }
    testbed.configure(&session("alice", 60, 1, "one.wasm"));
    testbed.start();
    testbed.send(&vec![udp(1, b"x"); 10]);
    testbed
        .until("the module has received all packets", |testbed| testbed.count("alice", "m", "packets") == 10);
    testbed.configure(&session("alice", 60, 1, "two.wasm"));
    testbed.request(json!("reload"));
    // The file of a running module is not read again.
    std::fs::remove_file(testbed.path().join("two.wasm")).unwrap();
    testbed.send(&vec![udp(1, b"x"); 10]);
    testbed.until("it works again", |testbed| testbed.count("alice", "m", "packets") == 10);
    // A configuration with a missing file changes nothing.
    std::fs::remove_file(testbed.path().join("one.wasm")).unwrap();
    testbed.configure(&session("alice", 60, 1, "one.wasm"));
    assert!(testbed.request_refused(json!("reload")).contains("module `one.wasm`: No such file"));
    assert_eq!(testbed.count("alice", "m", "packets"), 10);
    assert!(testbed.stop().success());
    let (created, _) = session_history(&testbed, "alice");
    assert_eq!((created.len(), testbed.ledger_usage("alice", "packets_in")), (1, 20));
}

#[test]
fn modules_of_created_and_changed_sessions_publish_their_tables() {
    if !is_inside("reload::modules_of_created_and_changed_sessions_publish_their_tables") {
        return;
    }
    let mut testbed = Testbed::prepared(NODE, CPU, None);
    let file = testbed.path().join("publisher.wasm");
    std::fs::write(&file, publisher("publisher", 1, 8)).unwrap();
    let alice = |slice: u32, table: &str| {
        let grant = format!("publish = [\"t={table}\"]\nchannel =");
        session("alice", slice, 1, file.to_str().unwrap()).replace("channel =", &grant)
    };
    testbed.configure(&session("bob", 10, 2, "port-count"));
    testbed.start();
    // The session is created and changed, publishes another table, and the first one again.
    for (slice, name) in [(10, "one"), (20, "one"), (20, "two"), (20, "one")] {
        testbed.configure(&(session("bob", 10, 2, "port-count") + &alice(slice, name)));
        testbed.request(json!("reload"));
        let mut rows = follow(&testbed, "alice");
        testbed.send(&[udp(1, b"x")]);
        assert_eq!(next_value(&mut rows), 0, "{slice} {name}: it is answered that the version is shown");
        let shown = table(&testbed, name).unwrap();
        assert!(shown["version"].as_u64().unwrap() > 0, "{shown}");
    }
    assert!(testbed.stop().success());
}
