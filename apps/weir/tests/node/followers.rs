//! Whoever follows a stream and does not read costs the node a bounded amount of memory, and is told what is missing.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::net::UnixStream;
use std::sync::mpsc::channel;

/// Emits with each packet its number, and a long text.
fn talker() -> Vec<u8> {
    let body = format!(
        r#"(data (i32.const 8192) "{}")
        (func (export "weir_packet") (param i32) (result i32)
            (i64.store (i32.const 64) (i64.add (i64.load (i32.const 64)) (i64.const 1)))
            (i32.store (i32.const 72) (i32.const 8192))
            (i32.store (i32.const 76) (i32.const 4000))
            (drop (call $emit (i32.const 2) (i32.const 64) (i32.const 16)))
            (i32.const 0))"#,
        "x".repeat(4000)
    );
    let stream = "[[stream]]\nname = 'both'\n[[stream.field]]\nname = 'number'\ntype = 'u64'\nunit = 'packets'\n\
                  [[stream.field]]\nname = 'text'\ntype = 'string'\n";
    assemble(&text(&body), Some((MANIFEST.replace("NAME", "talker") + stream).as_bytes()))
}

fn follow(place: &Place) -> Lines<BufReader<UnixStream>> {
    let mut stream = place.connect();
    let ask =
        json!({"weir": 1, "ask": {"follow": {"session": "alice", "module": "talker", "stream": "both"}}});
    writeln!(stream, "{ask}").unwrap();
    let mut lines = BufReader::new(stream).lines();
    assert!(lines.next().unwrap().unwrap().contains("done"));
    lines
}

fn number(line: &str) -> Value {
    let row: Value = serde_json::from_str(line).unwrap();
    row["reply"]["record"]["number"].clone()
}

#[test]
fn who_follows_and_does_not_read_misses_rows_and_is_told_of_each() {
    if !is_inside("followers::who_follows_and_does_not_read_misses_rows_and_is_told_of_each") {
        return;
    }
    let mut place = Place::new(
        "[[session]]\nname = \"alice\"\nrecord_bytes = \"unlimited\"\ncpu = [{ period = \"20ms\", slice = \"4ms\" }]\n\
         channel = [{ interface = \"b\", filter = \"udp\" }]\n",
    );
    let reply = place.load("alice", json!({"module": "talker.wasm"}), &talker());
    assert!(reply.get("done").is_some(), "{reply}");
    let (lazy, mut good) = (follow(&place), follow(&place));
    let mut sent = 0u64;
    let mut send = |place: &mut Place, count: u64| {
        place.send(&vec![udp(1, b"x"); usize::try_from(count).unwrap()]);
        for at in sent + 1..=sent + count {
            assert_eq!(number(&good.next().unwrap().unwrap()), at, "who reads gets all");
        }
        sent += count;
        sent
    };
    // Three mebibytes, in far fewer rows than may wait.
    for _ in 0..100 {
        send(&mut place, 8);
    }
    // Now it reads: what waited, and then how many are missing, before each row that comes after some are.
    let (tell, told) = channel();
    let reading = std::thread::spawn(move || {
        for line in lazy.map_while(Result::ok) {
            tell.send(line).unwrap();
        }
    });
    let (mut seen, mut rows, mut missed, mut end) = (0, 0, 0, String::new());
    let mut read = || {
        for line in told.try_iter() {
            let reply = serde_json::from_str::<Value>(&line).unwrap()["reply"].clone();
            if let Some(why) = reply["refused"]["why"].as_str() {
                end = why.to_owned();
                continue;
            }
            match reply["missed"]["rows"].as_u64() {
                Some(more) => (seen, missed) = (seen + more, missed + more),
                None => {
                    (seen, rows) = (seen + 1, rows + 1);
                    assert_eq!(number(&line), seen);
                }
            }
        }
        (seen, missed)
    };
    place.until("it is told what it missed, and goes on", |place| {
        let sent = send(place, 1);
        let (seen, missed) = read();
        missed > 0 && seen + 8 >= sent
    });
    // When the stream ends nothing of it is left unsaid.
    place.done(json!({"unload": {"session": "alice", "module": "talker"}}));
    let sent = send(&mut place, 0);
    place.until("it has been told of all", |_| read().0 == sent);
    assert_eq!((place.snapshot()["sessions"][0]["modules"]).clone(), json!([]));
    assert!(place.stop().success());
    reading.join().unwrap();
    read();
    assert!(rows < 800, "{rows}");
    assert!(end.contains("records end here: module `talker` was unloaded"), "{end}");
}
