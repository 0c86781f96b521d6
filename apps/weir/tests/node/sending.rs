//! Packets that modules send: they leave only through the session's output that the module names.

use crate::links::{linked, session};
use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::json;

#[test]
fn packets_of_a_module_leave_only_through_an_existing_output() {
    if !is_inside("sending::packets_of_a_module_leave_only_through_an_existing_output") {
        return;
    }
    let (mut testbed, mut far) = linked(&session(""));
    // Sends each packet twice, once to an output that does not exist. It traps if that is no error, and after it has
    // sent packets to port 7.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.ne (call $send (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.const 60)) (i32.const -3)) (then unreachable))
            (if (call $send (i32.const 1) (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d))) (then unreachable))
            (if (i32.eq (i32.load16_u offset=46 (local.get $d)) (i32.const 7)) (then unreachable))
            (i32.const 0))"#;
    let manifest = format!(
        "kind = 'active'\n{}[[output]]\nname = 'nowhere'\n[[output]]\nname = 'up'\n",
        MANIFEST.replace("NAME", "sender")
    );
    let bytes = assemble(&text(body), Some(manifest.as_bytes()));
    let reply = testbed.load("alice", json!({"module": "sender.wasm"}), &bytes);
    assert!(reply.get("done").is_some(), "{reply}");
    let frames: Vec<Vec<u8>> = (0..1000u16).map(|port| udp(port, &port.to_be_bytes().repeat(20))).collect();
    testbed.send(&frames);
    let sent = |testbed: &Testbed| testbed.part("alice", "outputs", "up")["packets"].as_u64().unwrap();
    testbed.until("all packets have been sent", |testbed| sent(testbed) == 999);
    let expected: Vec<Vec<u8>> =
        (0..).zip(frames).filter(|(port, _)| *port != 7).map(|(_, frame)| frame).collect();
    assert_eq!(far.datagrams(999), expected);
    assert!(testbed.stop().success());
    assert_eq!(testbed.ledger_usage("alice", "packets_out"), 999);
}

#[test]
fn an_output_that_is_added_later_works_for_loaded_modules() {
    if !is_inside("sending::an_output_that_is_added_later_works_for_loaded_modules") {
        return;
    }
    let output = "output = [{ name = \"up\", link = \"c\", reserve = \"40 Mbit/s\", queue = 4096 }]\n";
    let sessions = session("");
    assert!(sessions.contains(output));
    let (mut testbed, mut far) =
        linked(&sessions.replace(output, "").replace("slice = \"4ms\"", "slice = \"200us\""));
    // Is suspended with each packet, and then sends it.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (i32.store (i32.const 64) (i32.const 50000))
            (loop $next
                (i32.store (i32.const 64) (i32.sub (i32.load (i32.const 64)) (i32.const 1)))
                (br_if $next (i32.load (i32.const 64))))
            (drop (call $send (i32.const 0) (i32.load offset=8 (local.get $d)) (i32.load offset=12 (local.get $d))))
            (i32.const 0))"#;
    let manifest =
        format!("kind = 'active'\n{}[[output]]\nname = 'up'\n", MANIFEST.replace("NAME", "sender"));
    let bytes = assemble(&text(body), Some(manifest.as_bytes()));
    let reply = testbed.load("alice", json!({"module": "sender.wasm"}), &bytes);
    assert!(reply.get("done").is_some(), "{reply}");
    let had = |testbed: &Testbed, count: u64| testbed.count("alice", "sender", "packets") == count;
    let frame = |port: u16| udp(port, &port.to_be_bytes().repeat(20));
    testbed.send(&(0..10).map(frame).collect::<Vec<_>>());
    testbed.until("the module has received the packets", |testbed| had(testbed, 10));
    // While the module handles the next packets.
    testbed.send(&(10..30).map(frame).collect::<Vec<_>>());
    testbed.request(json!({"change": {"session": "alice", "output": [{"name": "up", "link": "c"}]}}));
    testbed.until("the module has received the packets", |testbed| had(testbed, 30));
    let sent = |testbed: &Testbed| testbed.part("alice", "outputs", "up")["packets"].as_u64().unwrap();
    let last: Vec<Vec<u8>> = (30..40).map(frame).collect();
    testbed.send(&last);
    testbed.until("the module has received the packets", |testbed| had(testbed, 40));
    testbed.until("the last packets have been sent", |testbed| sent(testbed) >= 10);
    let mut arrived = Vec::new();
    testbed.until("all sent packets have arrived", |testbed| {
        arrived.extend(far.datagrams(0));
        arrived.len() as u64 == sent(testbed) && arrived.ends_with(&last)
    });
    // None of the packets that were sent before the output existed.
    assert!(arrived.len() <= 30, "{}", arrived.len());
    assert_eq!(testbed.count("alice", "sender", "faults"), 0);
    assert!(testbed.stop().success());
}
