//! Changes of a session's table grants while its modules run.

use crate::module::{MANIFEST, assemble, text};
use crate::tables::{
    WINDOW, emitted_value, error_of, follow, load, memory_used, next_value, output_of, publisher, reader,
    session, table,
};
use crate::testbed::{FollowedReplies, Testbed, is_inside, udp};
use serde_json::{Value, json};

/// The result of `publish` without the right.
const DENIED: i64 = -3;

/// The result that a publisher has emitted.
fn next_result(rows: &mut FollowedReplies) -> i64 {
    rows.next().unwrap()["record"]["value"].as_u64().unwrap().cast_signed()
}

/// Puts these bytes into a table of the operator.
fn put(testbed: &Testbed, name: &str, bytes: &[u8]) {
    let path = testbed.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    output_of(testbed, &["table", "put", name, path.to_str().unwrap()]);
}

fn change(testbed: &Testbed, session: &str, options: &[&str]) {
    output_of(testbed, &[&["session", "change", session][..], options].concat());
}

fn reserved(testbed: &Testbed, session: &str) -> u64 {
    let snapshot = testbed.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    sessions.iter().find(|shot| shot["name"] == session).unwrap()["memory_reserved"].as_u64().unwrap()
}

#[test]
fn the_tables_that_a_session_may_read_change_while_its_modules_run() {
    if !is_inside("grants::the_tables_that_a_session_may_read_change_while_its_modules_run") {
        return;
    }
    let mut testbed =
        Testbed::new(&(session("maker", 1, "publish = [\"t=counts\"]") + &session("alice", 2, "")));
    load(&testbed, "maker", &publisher("publisher", 1, 100));
    put(&testbed, "geo", b"geo!");
    let reply = testbed.load("alice", json!({"module": "m.wasm", "name": "m"}), &reader(""));
    let why = reply["refused"]["why"].to_string();
    assert!(why.contains("`weir session change alice --read t` grants it"), "{why}");
    change(&testbed, "alice", &["--read", "t=geo"]);
    load(&testbed, "alice", &reader(""));
    let mut rows = follow(&testbed, "alice");
    let mut look = |testbed: &mut Testbed| {
        testbed.send(&[udp(2, b"x")]);
        next_value(&mut rows)
    };
    assert_eq!(look(&mut testbed), emitted_value(1, b"geo!"));
    let publish = |testbed: &mut Testbed, version: u64| {
        testbed.send(&[udp(1, b"x")]);
        testbed.until("the table is published", |testbed| {
            table(testbed, "counts").unwrap()["version"] == version
        });
    };
    publish(&mut testbed, 1);

    // To another session's table, whose memory it holds, and back to none.
    let free = memory_used(&testbed, "alice");
    change(&testbed, "alice", &["--read", "t=counts"]);
    assert_eq!(look(&mut testbed), emitted_value(1, &1u32.to_le_bytes()));
    assert_eq!(memory_used(&testbed, "alice"), free + 65_536);
    let readers = |testbed: &Testbed, name: &str| table(testbed, name).unwrap()["readers"].clone();
    assert_eq!((readers(&testbed, "geo"), readers(&testbed, "counts")), (json!([]), json!(["alice/m"])));
    change(&testbed, "alice", &["--remove-read", "t"]);
    assert_eq!(readers(&testbed, "counts"), json!([]));
    testbed.until("the reader has released the table without a packet", |testbed| {
        memory_used(testbed, "alice") == free
    });
    assert_eq!(look(&mut testbed), 0);
    publish(&mut testbed, 2);
    assert_eq!(look(&mut testbed), 0, "what is new is not shown either");
    change(&testbed, "alice", &["--read", "t=counts"]);
    assert_eq!(look(&mut testbed), emitted_value(2, &2u32.to_le_bytes()));

    // A refused change changes nothing.
    let why =
        error_of(&testbed, &["session", "change", "alice", "--remove-read", "counts", "--memory", "8MiB"]);
    assert!(why.contains("there is no readable table `counts`; there is t"), "{why}");
    let why = error_of(
        &testbed,
        &["session", "change", "alice", "--read", "t=geo", "--publish", "counts", "--memory", "8MiB"],
    );
    assert!(why.contains("table `counts` is published by session maker"), "{why}");
    assert_eq!(look(&mut testbed), emitted_value(2, &2u32.to_le_bytes()));
    assert_eq!(reserved(&testbed, "alice"), 4 << 20);
    assert!(output_of(&testbed, &["session", "show", "alice"]).contains("\ntables: reads t=counts\n"));
    assert_eq!(testbed.count("alice", "m", "faults"), 0);

    // An unloaded module is no reader, whatever it was granted last.
    change(&testbed, "alice", &["--read", "t=geo"]);
    testbed.request(json!({"unload": {"session": "alice", "module": "m"}}));
    assert_eq!((readers(&testbed, "geo"), readers(&testbed, "counts")), (json!([]), json!([])));
    assert!(testbed.stop().success());
}

#[test]
fn a_session_without_the_grant_cannot_publish_a_table_and_another_can() {
    if !is_inside("grants::a_session_without_the_grant_cannot_publish_a_table_and_another_can") {
        return;
    }
    let sessions = session("maker", 1, "publish = [\"t=counts\"]")
        + &session("alice", 2, "read = [\"t=counts\"]")
        + &session("other", 3, "");
    let mut testbed = Testbed::new(&sessions);
    load(&testbed, "maker", &publisher("publisher", 1, 100));
    load(&testbed, "alice", &reader(""));
    let reply = testbed.load("other", json!({"module": "m.wasm", "name": "m"}), &publisher("other", 1, 50));
    let why = reply["refused"]["why"].to_string();
    assert!(why.contains("`weir session change other --publish t` grants it"), "{why}");
    let (mut maker, mut alice) = (follow(&testbed, "maker"), follow(&testbed, "alice"));
    let mut make = |testbed: &mut Testbed| {
        testbed.send(&[udp(1, b"x")]);
        next_result(&mut maker)
    };
    let mut look = |testbed: &mut Testbed| {
        testbed.send(&[udp(2, b"x")]);
        next_value(&mut alice)
    };
    assert_eq!((make(&mut testbed), look(&mut testbed)), (0, emitted_value(1, &1u32.to_le_bytes())));
    let take = ["session", "change", "other", "--publish", "t=counts", "--memory", "8MiB"];
    assert!(error_of(&testbed, &take).contains("table `counts` is published by session maker"));
    assert_eq!(reserved(&testbed, "other"), 4 << 20);

    // From then on the table has no version and no publisher, and another session can publish it.
    change(&testbed, "maker", &["--remove-publish", "t"]);
    let shot = table(&testbed, "counts").unwrap();
    assert_eq!((&shot["publisher"], &shot["version"]), (&Value::Null, &json!(0)));
    assert_eq!((make(&mut testbed), look(&mut testbed)), (DENIED, 0));
    put(&testbed, "counts", b"mine");
    assert_eq!((make(&mut testbed), look(&mut testbed)), (DENIED, emitted_value(2, b"mine")));
    assert!(error_of(&testbed, &take).contains("table `counts` is published by the operator"));
    output_of(&testbed, &["table", "remove", "counts"]);
    output_of(&testbed, &take);
    load(&testbed, "other", &publisher("other", 1, 50));
    testbed.send(&[udp(3, b"x")]);
    testbed.until("the table is published", |testbed| table(testbed, "counts").unwrap()["version"] == 3);
    for _ in 0..20 {
        assert_eq!((make(&mut testbed), look(&mut testbed)), (DENIED, emitted_value(3, &1u32.to_le_bytes())));
    }
    let back = ["session", "change", "maker", "--publish", "t=counts"];
    assert!(error_of(&testbed, &back).contains("table `counts` is published by session other"));

    // Its module goes on with another table, which ends with the module; the new publisher of the first one is not affected.
    change(&testbed, "maker", &["--publish", "t=mine"]);
    assert_eq!(make(&mut testbed), 0);
    let shown = |testbed: &Testbed| table(testbed, "mine").unwrap()["version"].clone();
    assert_eq!(shown(&testbed), 1);
    testbed.request(json!({"unload": {"session": "maker", "module": "m"}}));
    assert_eq!(shown(&testbed), 0);
    assert_eq!(look(&mut testbed), emitted_value(3, &1u32.to_le_bytes()));
    testbed.request(json!({"close": {"session": "maker"}}));
    assert_eq!(table(&testbed, "mine"), None);
    assert_eq!(testbed.count("other", "m", "faults"), 0);
    assert!(testbed.stop().success());
}

#[test]
fn a_call_sees_one_version_of_a_table_to_its_end() {
    if !is_inside("grants::a_call_sees_one_version_of_a_table_to_its_end") {
        return;
    }
    // Reads the version, is suspended, and reads it again. Emits ten times the version, plus one if it is the same.
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32) (local $version i64)
            (local.set $version (i64.load (i32.const {WINDOW})))
            (i32.store (i32.const 128) (i32.const 50000))
            (loop $next
                (i32.store (i32.const 128) (i32.sub (i32.load (i32.const 128)) (i32.const 1)))
                (br_if $next (i32.load (i32.const 128))))
            (i64.store (i32.const 64) (i64.add
                (i64.mul (i64.const 10) (local.get $version))
                (i64.extend_i32_u (i64.eq (local.get $version) (i64.load (i32.const {WINDOW}))))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#
    );
    let manifest =
        MANIFEST.replace("NAME", "patient") + "[[table]]\nname = 't'\naccess = 'read'\nbytes = '4 KiB'\n";
    let patient = assemble(&text(&body), Some(manifest.as_bytes()));
    let mut testbed = Testbed::new(&session("alice", 1, "read = [\"t=one\"]").replace("2ms", "200us"));
    put(&testbed, "one", b"1");
    put(&testbed, "two", b"2");
    put(&testbed, "two", b"2");
    load(&testbed, "alice", &patient);
    let mut rows = follow(&testbed, "alice");
    for round in 0..4 {
        for (options, version) in
            [(["--read", "t=two"], 2), (["--remove-read", "t"], 0), (["--read", "t=one"], 1)]
        {
            // While the module runs, or is about to.
            testbed.send(&[udp(1, b"x")]);
            change(&testbed, "alice", &options);
            assert_eq!(next_value(&mut rows) % 10, 1, "round {round}");
            testbed.send(&[udp(1, b"x")]);
            assert_eq!(next_value(&mut rows), version * 10 + 1, "round {round}");
        }
    }
    assert_eq!((testbed.count("alice", "m", "faults"), testbed.count("alice", "m", "strikes")), (0, 0));
    assert!(testbed.stop().success());
}
