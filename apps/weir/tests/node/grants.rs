//! What a session may do with tables changes while its modules run.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use crate::tables::{
    WINDOW, follow, load, memory_used, next, publisher, reader, refused, said, seen, session, table,
};
use serde_json::{Value, json};
use std::io::{BufReader, Lines};
use std::os::unix::net::UnixStream;

/// What `publish` answers who may not.
const DENIED: i64 = -3;

/// What a publisher was answered: beyond what is a number in JSON it is text.
fn answered(rows: &mut Lines<BufReader<UnixStream>>) -> i64 {
    let row: Value = serde_json::from_str(&rows.next().unwrap().unwrap()).unwrap();
    let value = row["reply"]["record"]["value"].clone();
    value.as_i64().unwrap_or_else(|| value.as_str().unwrap().parse::<u64>().unwrap().cast_signed())
}

/// A table of the operator's with these bytes.
fn put(place: &Place, name: &str, bytes: &[u8]) {
    let path = place.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    said(place, &["table", "put", name, path.to_str().unwrap()]);
}

fn change(place: &Place, session: &str, options: &[&str]) {
    said(place, &[&["session", "change", session][..], options].concat());
}

fn reserved(place: &Place, session: &str) -> u64 {
    let snapshot = place.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    sessions.iter().find(|shot| shot["name"] == session).unwrap()["memory_reserved"].as_u64().unwrap()
}

#[test]
fn what_a_session_may_read_changes_while_its_modules_run() {
    if !is_inside("grants::what_a_session_may_read_changes_while_its_modules_run") {
        return;
    }
    let mut place = Place::new(&(session("maker", 1, "publish = [\"t=counts\"]") + &session("alice", 2, "")));
    load(&place, "maker", &publisher("publisher", 1, 100));
    put(&place, "geo", b"geo!");
    let reply = place.load("alice", json!({"module": "m.wasm", "name": "m"}), &reader(""));
    let why = reply["refused"]["why"].to_string();
    assert!(why.contains("`weir session change alice --read t` grants it"), "{why}");
    change(&place, "alice", &["--read", "t=geo"]);
    load(&place, "alice", &reader(""));
    let mut rows = follow(&place, "alice");
    let mut look = |place: &mut Place| {
        place.send(&[udp(2, b"x")]);
        next(&mut rows)
    };
    assert_eq!(look(&mut place), seen(1, b"geo!"));
    let publish = |place: &mut Place, version: u64| {
        place.send(&[udp(1, b"x")]);
        place.until("it is published", |place| table(place, "counts").unwrap()["version"] == version);
    };
    publish(&mut place, 1);

    // To another session's, of which it holds the memory, and back to nothing.
    let free = memory_used(&place, "alice");
    change(&place, "alice", &["--read", "t=counts"]);
    assert_eq!(look(&mut place), seen(1, &1u32.to_le_bytes()));
    assert_eq!(memory_used(&place, "alice"), free + 65_536);
    let readers = |place: &Place, name: &str| table(place, name).unwrap()["readers"].clone();
    assert_eq!((readers(&place, "geo"), readers(&place, "counts")), (json!([]), json!(["alice/m"])));
    change(&place, "alice", &["--revoke-read", "t"]);
    assert_eq!(readers(&place, "counts"), json!([]));
    place.until("it has let go, though no packet comes", |place| memory_used(place, "alice") == free);
    assert_eq!(look(&mut place), 0);
    publish(&mut place, 2);
    assert_eq!(look(&mut place), 0, "what is new is not shown either");
    change(&place, "alice", &["--read", "t=counts"]);
    assert_eq!(look(&mut place), seen(2, &2u32.to_le_bytes()));

    // What is refused changes nothing.
    let why = refused(&place, &["session", "change", "alice", "--revoke-read", "counts", "--memory", "8MiB"]);
    assert!(why.contains("there is no readable table `counts`; there is t"), "{why}");
    let why = refused(
        &place,
        &["session", "change", "alice", "--read", "t=geo", "--publish", "counts", "--memory", "8MiB"],
    );
    assert!(why.contains("table `counts` is published by session maker"), "{why}");
    assert_eq!(look(&mut place), seen(2, &2u32.to_le_bytes()));
    assert_eq!(reserved(&place, "alice"), 4 << 20);
    assert!(said(&place, &["session", "show", "alice"]).contains("\ntables: reads t=counts\n"));
    assert_eq!(place.count("alice", "m", "faults"), 0);

    // Who ends is no reader, of whatever it was granted last.
    change(&place, "alice", &["--read", "t=geo"]);
    place.done(json!({"unload": {"session": "alice", "module": "m"}}));
    assert_eq!((readers(&place, "geo"), readers(&place, "counts")), (json!([]), json!([])));
    assert!(place.stop().success());
}

#[test]
fn who_may_publish_a_table_no_longer_changes_nothing_in_it_and_somebody_else_may() {
    if !is_inside("grants::who_may_publish_a_table_no_longer_changes_nothing_in_it_and_somebody_else_may") {
        return;
    }
    let sessions = session("maker", 1, "publish = [\"t=counts\"]")
        + &session("alice", 2, "read = [\"t=counts\"]")
        + &session("other", 3, "");
    let mut place = Place::new(&sessions);
    load(&place, "maker", &publisher("publisher", 1, 100));
    load(&place, "alice", &reader(""));
    let reply = place.load("other", json!({"module": "m.wasm", "name": "m"}), &publisher("other", 1, 50));
    let why = reply["refused"]["why"].to_string();
    assert!(why.contains("`weir session change other --publish t` grants it"), "{why}");
    let (mut maker, mut alice) = (follow(&place, "maker"), follow(&place, "alice"));
    let mut make = |place: &mut Place| {
        place.send(&[udp(1, b"x")]);
        answered(&mut maker)
    };
    let mut look = |place: &mut Place| {
        place.send(&[udp(2, b"x")]);
        next(&mut alice)
    };
    assert_eq!((make(&mut place), look(&mut place)), (0, seen(1, &1u32.to_le_bytes())));
    let take = ["session", "change", "other", "--publish", "t=counts", "--memory", "8MiB"];
    assert!(refused(&place, &take).contains("table `counts` is published by session maker"));
    assert_eq!(reserved(&place, "other"), 4 << 20);

    // It shows nothing from then on, is nobody's, and then somebody else's.
    change(&place, "maker", &["--revoke-publish", "t"]);
    let shot = table(&place, "counts").unwrap();
    assert_eq!((&shot["publisher"], &shot["version"]), (&Value::Null, &json!(0)));
    assert_eq!((make(&mut place), look(&mut place)), (DENIED, 0));
    put(&place, "counts", b"mine");
    assert_eq!((make(&mut place), look(&mut place)), (DENIED, seen(2, b"mine")));
    assert!(refused(&place, &take).contains("table `counts` is published by the operator"));
    said(&place, &["table", "remove", "counts"]);
    said(&place, &take);
    load(&place, "other", &publisher("other", 1, 50));
    place.send(&[udp(3, b"x")]);
    place.until("it is published", |place| table(place, "counts").unwrap()["version"] == 3);
    for _ in 0..20 {
        assert_eq!((make(&mut place), look(&mut place)), (DENIED, seen(3, &1u32.to_le_bytes())));
    }
    let back = ["session", "change", "maker", "--publish", "t=counts"];
    assert!(refused(&place, &back).contains("table `counts` is published by session other"));

    // Its module goes on with another one, which ends with it; who has the first one does not notice.
    change(&place, "maker", &["--publish", "t=mine"]);
    assert_eq!(make(&mut place), 0);
    let shown = |place: &Place| table(place, "mine").unwrap()["version"].clone();
    assert_eq!(shown(&place), 1);
    place.done(json!({"unload": {"session": "maker", "module": "m"}}));
    assert_eq!(shown(&place), 0);
    assert_eq!(look(&mut place), seen(3, &1u32.to_le_bytes()));
    place.done(json!({"close": {"session": "maker"}}));
    assert_eq!(table(&place, "mine"), None);
    assert_eq!(place.count("other", "m", "faults"), 0);
    assert!(place.stop().success());
}

#[test]
fn a_call_sees_one_version_to_its_end_whatever_its_session_may_meanwhile() {
    if !is_inside("grants::a_call_sees_one_version_to_its_end_whatever_its_session_may_meanwhile") {
        return;
    }
    // Looks at the version, is suspended, and looks again: ten times the version, and one where it is still the same.
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
    let mut place = Place::new(&session("alice", 1, "read = [\"t=one\"]").replace("2ms", "200us"));
    put(&place, "one", b"1");
    put(&place, "two", b"2");
    put(&place, "two", b"2");
    load(&place, "alice", &patient);
    let mut rows = follow(&place, "alice");
    for round in 0..4 {
        for (options, version) in
            [(["--read", "t=two"], 2), (["--revoke-read", "t"], 0), (["--read", "t=one"], 1)]
        {
            // While it is at work, or about to be.
            place.send(&[udp(1, b"x")]);
            change(&place, "alice", &options);
            assert_eq!(next(&mut rows) % 10, 1, "round {round}");
            place.send(&[udp(1, b"x")]);
            assert_eq!(next(&mut rows), version * 10 + 1, "round {round}");
        }
    }
    assert_eq!((place.count("alice", "m", "faults"), place.count("alice", "m", "strikes")), (0, 0));
    assert!(place.stop().success());
}
