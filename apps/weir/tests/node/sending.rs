//! What modules send themselves: it goes out through the session's output of the same name, and no other way.

use crate::links::{linked, session};
use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use serde_json::json;

#[test]
fn what_a_module_sends_goes_out_and_what_leads_nowhere_does_not() {
    if !is_inside("sending::what_a_module_sends_goes_out_and_what_leads_nowhere_does_not") {
        return;
    }
    let (mut place, mut far) = linked(&session(""));
    // Sends each packet on, twice where it leads nowhere; it traps where that is not said, and after having sent those to port 7.
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
    let reply = place.load("alice", json!({"module": "sender.wasm"}), &bytes);
    assert!(reply.get("done").is_some(), "{reply}");
    let frames: Vec<Vec<u8>> = (0..1000u16).map(|port| udp(port, &port.to_be_bytes().repeat(20))).collect();
    place.send(&frames);
    let sent = |place: &Place| place.part("alice", "outputs", "up")["packets"].as_u64().unwrap();
    place.until("all have gone", |place| sent(place) == 999);
    let expected: Vec<Vec<u8>> =
        (0..).zip(frames).filter(|(port, _)| *port != 7).map(|(_, frame)| frame).collect();
    assert_eq!(far.datagrams(999), expected);
    assert!(place.stop().success());
    assert_eq!(place.billed("alice", "packets_out"), 999);
}

#[test]
fn an_output_that_comes_later_leads_somewhere_for_modules_that_are_there() {
    if !is_inside("sending::an_output_that_comes_later_leads_somewhere_for_modules_that_are_there") {
        return;
    }
    let output = "output = [{ name = \"up\", link = \"c\", reserve = \"40 Mbit/s\", queue = 4096 }]\n";
    let sessions = session("");
    assert!(sessions.contains(output));
    let (mut place, mut far) =
        linked(&sessions.replace(output, "").replace("slice = \"4ms\"", "slice = \"200us\""));
    // Is suspended with each packet, and then sends it on.
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
    let reply = place.load("alice", json!({"module": "sender.wasm"}), &bytes);
    assert!(reply.get("done").is_some(), "{reply}");
    let had = |place: &Place, count: u64| place.count("alice", "sender", "packets") == count;
    let frame = |port: u16| udp(port, &port.to_be_bytes().repeat(20));
    place.send(&(0..10).map(frame).collect::<Vec<_>>());
    place.until("it has seen them", |place| had(place, 10));
    // While it is at work on the next ones.
    place.send(&(10..30).map(frame).collect::<Vec<_>>());
    place.done(json!({"change": {"session": "alice", "output": [{"name": "up", "link": "c"}]}}));
    place.until("it has seen them", |place| had(place, 30));
    let sent = |place: &Place| place.part("alice", "outputs", "up")["packets"].as_u64().unwrap();
    let last: Vec<Vec<u8>> = (30..40).map(frame).collect();
    place.send(&last);
    place.until("it has seen them", |place| had(place, 40));
    place.until("the last ones have gone", |place| sent(place) >= 10);
    let mut arrived = Vec::new();
    place.until("all that have gone are there", |place| {
        arrived.extend(far.datagrams(0));
        arrived.len() as u64 == sent(place) && arrived.ends_with(&last)
    });
    // None of those that it sent when there was nowhere to.
    assert!(arrived.len() <= 30, "{}", arrived.len());
    assert_eq!(place.count("alice", "sender", "faults"), 0);
    assert!(place.stop().success());
}
