//! What it costs the node to be asked: how often somebody may ask, and what may come with a request.

use crate::adversaries::associated;
use crate::place::is_inside;
use crate::remote::{Net, SESSION, modest};
use serde_json::{Value, json};
use std::io::{Read, Write};
use weir_node::protocol::PART_BYTES_MAX;
use weir_remote::Stream;

/// Asks for all of these at once. The answers, as many as there are requests.
fn asked(stream: &mut Stream, asks: &[Value]) -> Vec<Value> {
    let lines: String = asks.iter().map(|ask| format!("{}\n", json!({"weir": 1, "ask": ask}))).collect();
    stream.write_all(lines.as_bytes()).unwrap();
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    while said.iter().filter(|byte| **byte == b'\n').count() < asks.len() {
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&part[..len]);
    }
    let text = String::from_utf8(said).unwrap();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["reply"].clone()).collect()
}

#[test]
fn who_asks_without_end_is_told_when_to_ask_again_and_others_are_answered() {
    if !is_inside("asking::who_asks_without_end_is_told_when_to_ask_again_and_others_are_answered") {
        return;
    }
    let mut net = Net::new();
    let (guest, other) = (net.granted("guest", modest()), net.granted("other", modest()));
    let mut stream = associated(&net, &guest);
    // Of a file that nobody has sent: nothing takes less.
    let ask = json!({"upload": {"file": "00".repeat(32), "bytes": 1, "from": 0}});
    let many = vec![ask.clone(); 100];
    let refused = (0..100).find_map(|_| {
        let answers = asked(&mut stream, &many);
        answers.iter().find_map(|answer| answer["refused"]["why"].as_str().map(str::to_owned))
    });
    let why = refused.expect("he was answered 10,000 times");
    assert!(why.contains("100 requests a second") && why.ends_with("try again in 1 s"), "{why}");
    net.done(&other, &["session", "list"]);
    net.place.until("he is answered again", |_| {
        asked(&mut stream, std::slice::from_ref(&ask))[0].get("uploaded").is_some()
    });
    assert!(net.place.stop().success());
    // However often it was, it is one kind of decision.
    let ledger = net.place.ledger();
    let entries = ledger.iter().filter(|entry| {
        entry["kind"] == "decision" && entry.to_string().contains("more was asked than is answered")
    });
    assert!((1..=8).contains(&entries.count()));
}

#[test]
fn what_many_look_at_is_looked_up_once_and_who_changes_something_sees_it() {
    if !is_inside("asking::what_many_look_at_is_looked_up_once_and_who_changes_something_sees_it") {
        return;
    }
    let mut net = Net::new();
    let guest = net.granted("guest", modest());
    let mut stream = associated(&net, &guest);
    let answers = asked(&mut stream, &vec![json!("show"); 100]);
    let times: std::collections::BTreeSet<u64> =
        answers.iter().map(|answer| answer["snapshot"]["at_ns"].as_u64().unwrap()).collect();
    assert!(times.len() < answers.len(), "each was looked up anew");
    let create = json!({"create": {"name": "s", "memory": "1 MiB", "channel": [{"interface": "b"}]}});
    let close = json!({"close": {"session": "s"}});
    let show = json!("show");
    let asks = [show.clone(), create, show.clone(), close, show];
    for _ in 0..10 {
        let answers = asked(&mut stream, &asks);
        let seen: Vec<usize> = [0, 2, 4]
            .map(|at| {
                answers[at]["snapshot"]["sessions"].as_array().unwrap_or_else(|| panic!("{answers:?}")).len()
            })
            .into();
        assert_eq!(seen, [0, 1, 0]);
    }
    assert!(net.place.stop().success());
}

#[test]
fn nothing_is_taken_that_belongs_to_no_request_or_is_for_somebody_else() {
    if !is_inside("asking::nothing_is_taken_that_belongs_to_no_request_or_is_for_somebody_else") {
        return;
    }
    let mut net = Net::new();
    let guest = net.granted("guest", modest());
    net.done(&guest, &SESSION);
    let load = json!({"load": {"session": "study", "module": {"module": "m"}}});
    let create = json!({"create": {"name": "t"}});
    for (ask, body, says) in [
        (json!("show"), 1, "no file belongs to this request"),
        (create.clone(), 8 << 20, "no file belongs to this request"),
        (json!({"explain": {"ask": create}}), 1, "no file belongs to this request"),
        (json!({"put-table": {"table": "t"}}), 64 << 20, "only the node's operator may change named tables"),
        (load.clone(), PART_BYTES_MAX + 1, "a file of more than 256 KiB is sent in parts"),
    ] {
        // What is announced never comes: the answer is not waited for that.
        let mut stream = associated(&net, &guest);
        writeln!(stream, "{}", json!({"weir": 1, "ask": ask, "body": body})).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(says), "{ask}: {answer}");
    }
    // As much as a part has can come with it, and is looked at.
    let mut stream = associated(&net, &guest);
    writeln!(stream, "{}", json!({"weir": 1, "ask": load, "body": PART_BYTES_MAX})).unwrap();
    stream.write_all(&vec![0; PART_BYTES_MAX]).and_then(|()| stream.finish()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("refused") && !answer.contains("in parts"), "{answer}");
    assert!(net.place.stop().success());
}
