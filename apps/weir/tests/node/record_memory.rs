//! The memory of record files, which a module's session pays for.

use crate::limits::session_status;
use crate::module::{assemble, text};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::json;
use std::fmt::Write as _;

/// The most streams of a manifest, and the most fields of each.
const STREAMS: usize = 32;
const FIELDS: usize = 64;
/// The memory that the node takes beyond the promises of sessions while a module runs and while its row groups end, as
/// docs/reference/NODE.md states it.
const BEYOND_PROMISES: u64 = 32 << 20;

/// A module that emits a row to each of its streams for each packet. The values never repeat, so that they compress
/// badly.
fn widest_module() -> Vec<u8> {
    let mut manifest =
        "name='widest'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='s'\nmemory='64 KiB'\n".to_owned();
    let mut emit = String::new();
    for stream in 0..STREAMS {
        write!(manifest, "[[stream]]\nname='s{stream}'\nfield=[").unwrap();
        (0..FIELDS).for_each(|field| write!(manifest, "{{name='f{field}',type='u64'}},").unwrap());
        manifest += "]\n";
        write!(emit, "(drop (call $emit (i32.const {stream}) (i32.const 64) (i32.const {})))", FIELDS * 8)
            .unwrap();
    }
    let body = format!(
        r#"(global $state (mut i64) (i64.const 1))
        (func (export "weir_packet") (param $d i32) (result i32)
            (local $at i32)
            (loop $fill
                (global.set $state (i64.add (i64.const 0x14057b7ef767814f)
                    (i64.mul (global.get $state) (i64.const 0x5851f42d4c957f2d))))
                (i64.store offset=64 (local.get $at) (global.get $state))
                (local.set $at (i32.add (local.get $at) (i32.const 8)))
                (br_if $fill (i32.lt_u (local.get $at) (i32.const {})))
            )
            {emit}
            (i32.const 0))"#,
        FIELDS * 8
    );
    assemble(&text(&body), Some(manifest.as_bytes()))
}

#[test]
fn the_widest_records_take_no_more_memory_than_their_session_pays_for() {
    if !is_inside("record_memory::the_widest_records_take_no_more_memory_than_their_session_pays_for") {
        return;
    }
    let session = |name: &str, memory: &str, slice: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\nmemory = \"{memory}\"\ncpu = [{{ period = \"20ms\", slice = \"{slice}\" }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp\" }}]\n"
        )
    };
    let mut testbed = Testbed::new(&(session("tight", "2 MiB", "1ms") + &session("wide", "12 MiB", "8ms")));
    let before = testbed.memory();

    // Refused, with the memory that it needs; nothing stays taken.
    let reply = testbed.load("tight", json!({"module": "widest.wasm"}), &widest_module());
    let why = reply["refused"]["why"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned();
    for part in ["32 streams with 2048 fields", "`tight` has 2 MiB left of its 2 MiB", "weir session change"]
    {
        assert!(why.contains(part), "{why}");
    }
    assert_eq!(session_status(&testbed, "tight")["memory_used"], 0);

    let reply = testbed.load("wide", json!({"module": "widest.wasm"}), &widest_module());
    assert!(reply.get("done").is_some(), "{reply}");
    let used = session_status(&testbed, "wide")["memory_used"].as_u64().unwrap();
    assert!(used > 4 << 20, "the memory of records counts: {used}");
    let mut highest = 0;
    // 512 bytes for each row: 16 MiB. Rows are lost while the records thread is behind, so more packets are sent.
    testbed.until("enough rows were taken", |testbed| {
        testbed.send(&vec![udp(1, b"x"); 20]);
        highest = highest.max(testbed.memory());
        testbed.count("wide", "widest", "records") >= 1024 * STREAMS as u64
    });
    // The last row groups end, one after another.
    testbed.request(json!({"unload": {"session": "wide", "module": "widest"}}));
    highest = highest.max(testbed.memory());
    let promise = session_status(&testbed, "wide")["memory_reserved"].as_u64().unwrap();
    let growth = highest.saturating_sub(before);
    println!("the node's memory grew by {growth} bytes");
    assert!(growth <= promise + BEYOND_PROMISES, "{growth} bytes, {promise} are promised");
    testbed.until("the memory of records is given back", |testbed| {
        session_status(testbed, "wide")["memory_used"] == 0
    });
    assert!(testbed.stop().success());
}
