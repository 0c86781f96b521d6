//! A follower that does not read: the node's memory for it is bounded, and it is told the number of missed rows.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{FollowedReplies, Testbed, is_inside, udp};
use serde_json::{Value, json};
use std::sync::mpsc::channel;

/// A module that emits its packet count and a long text with each packet.
fn long_row_module() -> Vec<u8> {
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

fn follow(testbed: &Testbed) -> FollowedReplies {
    FollowedReplies::new(testbed, "alice", "talker", "both")
}

fn number(reply: &Value) -> Value {
    reply["record"]["number"].clone()
}

#[test]
fn a_follower_that_does_not_read_is_told_the_number_of_missed_rows() {
    if !is_inside("followers::a_follower_that_does_not_read_is_told_the_number_of_missed_rows") {
        return;
    }
    let mut testbed = Testbed::new(
        "[[session]]\nname = \"alice\"\nrecord_bytes = \"unlimited\"\ncpu = [{ period = \"20ms\", slice = \"4ms\" }]\n\
         channel = [{ interface = \"b\", filter = \"udp\" }]\n",
    );
    let reply = testbed.load("alice", json!({"module": "talker.wasm"}), &long_row_module());
    assert!(reply.get("done").is_some(), "{reply}");
    let (lazy, mut good) = (follow(&testbed), follow(&testbed));
    let mut sent = 0u64;
    let mut send = |testbed: &mut Testbed, count: u64| {
        testbed.send(&vec![udp(1, b"x"); usize::try_from(count).unwrap()]);
        for at in sent + 1..=sent + count {
            assert_eq!(number(&good.next().unwrap()), at, "who reads gets all");
        }
        sent += count;
        sent
    };
    // 3 MiB, in far fewer rows than the row limit of the queue.
    for _ in 0..100 {
        send(&mut testbed, 8);
    }
    // The follower starts to read: first the waiting rows, then the number of missed rows before each row after a gap.
    let (tell, told) = channel();
    let reading = std::thread::spawn(move || {
        for reply in lazy {
            tell.send(reply).unwrap();
        }
    });
    let (mut seen, mut rows, mut missed, mut end) = (0, 0, 0, String::new());
    let mut read = || {
        for reply in told.try_iter() {
            if let Some(note) = reply["done"]["notes"][0].as_str() {
                end = note.to_owned();
                continue;
            }
            match reply["missed"]["rows"].as_u64() {
                Some(more) => (seen, missed) = (seen + more, missed + more),
                None => {
                    (seen, rows) = (seen + 1, rows + 1);
                    assert_eq!(number(&reply), seen);
                }
            }
        }
        (seen, missed)
    };
    testbed.until("it gets the missed rows' number, and goes on", |testbed| {
        let sent = send(testbed, 1);
        let (seen, missed) = read();
        missed > 0 && seen + 8 >= sent
    });
    // When the stream ends, the last missed rows are reported.
    testbed.request(json!({"unload": {"session": "alice", "module": "talker"}}));
    let sent = send(&mut testbed, 0);
    testbed.until("all events have been delivered", |_| read().0 == sent);
    assert_eq!((testbed.snapshot()["sessions"][0]["modules"]).clone(), json!([]));
    assert!(testbed.stop().success());
    reading.join().unwrap();
    read();
    assert!(rows < 800, "{rows}");
    assert!(end.contains("records end here: their modules were unloaded"), "{end}");
}
