//! What all modules of a session together are held to, beside processor time and memory.

use crate::module::{MANIFEST, assemble, text};
use crate::place::{Place, is_inside, udp};
use serde_json::{Value, json};
use std::time::Instant;

/// Emits a row for each packet.
pub fn teller(name: &str) -> Vec<u8> {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", name).as_bytes()))
}

/// A session as the node shows it.
pub fn shown(place: &Place, session: &str) -> Value {
    let snapshot = place.snapshot();
    let found = snapshot["sessions"].as_array().unwrap().iter().find(|shot| shot["name"] == session);
    found.unwrap_or_else(|| panic!("there is no {session}: {snapshot}")).clone()
}

fn load(place: &Place, session: &str, name: &str) {
    let reply = place.load(session, json!({"module": format!("{name}.wasm")}), &teller(name));
    assert!(reply.get("done").is_some(), "{reply}");
}

fn sum(place: &Place, session: &str, what: &str) -> u64 {
    let modules = shown(place, session)["modules"].as_array().unwrap().clone();
    modules.iter().map(|module| module[what].as_u64().unwrap()).sum()
}

#[test]
fn who_emits_more_records_than_are_taken_in_a_second_loses_them_and_nobody_else_does() {
    if !is_inside("limits::who_emits_more_records_than_are_taken_in_a_second_loses_them_and_nobody_else_does")
    {
        return;
    }
    let session = |name: &str, rest: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\ncpu = [{{ period = \"20ms\", slice = \"4ms\" }}]\n\
             channel = [{{ interface = \"b\", queue = 100000 }}]\n{rest}\n"
        )
    };
    let begin = Instant::now();
    let mut place = Place::new(&(session("flood", "records_per_second = 3") + &session("good", "")));
    // Two modules share one rate.
    for name in ["one", "two"] {
        load(&place, "flood", name);
    }
    load(&place, "good", "one");
    let mut sent = 0;
    let mut send = |place: &mut Place| {
        place.send(&vec![udp(7, b"x"); 500]);
        sent += 500;
        place.until("all have been told of", |place| {
            sum(place, "flood", "records") + sum(place, "flood", "records_lost") == 2 * sent
                && sum(place, "good", "records") == sent
        });
    };
    send(&mut place);
    let limits = |place: &Place| shown(place, "flood")["limits"].clone();
    let lost = sum(&place, "flood", "records_lost");
    // However long that took: no more than came in the time since before the session was there.
    let seconds = begin.elapsed().as_secs() + 1;
    assert!(1000 - lost <= 3 * seconds, "{lost} lost in {seconds} s");
    assert_eq!(limits(&place), json!({"records_per_second": 3, "records_over_rate": lost}));
    assert_eq!((sum(&place, "good", "records_lost"), shown(&place, "good").get("limits")), (0, None));

    // It changes while they run: none at all, and then as many as come in a while.
    place.done(json!({"change": {"session": "flood", "records_per_second": 0}}));
    let before = sum(&place, "flood", "records");
    send(&mut place);
    assert_eq!(sum(&place, "flood", "records"), before);
    place.done(json!({"change": {"session": "flood", "records_per_second": 1_000_000}}));
    place.until("some are taken again", |place| {
        send(place);
        sum(place, "flood", "records") > before
    });
    let lost = sum(&place, "flood", "records_lost");
    assert!(place.stop().success());
    let ledger = place.ledger();
    let drops = |session: &str| -> u64 {
        let its =
            ledger.iter().filter(|entry| entry["kind"] == "usage" && entry["session"]["name"] == session);
        its.filter_map(|entry| entry["usage"]["drops"]["record-rate"].as_u64()).sum()
    };
    assert_eq!((drops("flood"), drops("good")), (lost, 0));
}
