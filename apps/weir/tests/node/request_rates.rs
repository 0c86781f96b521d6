//! Requests and what they cost the node: how often they are answered, who pays, and what may come with one.

use crate::adversaries::associated;
use crate::place::{MEASURED, is_inside};
use crate::remote::{Net, SESSION, modest};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_node::control::protocol::PART_BYTES_MAX;
use weir_remote::SecureStream;

/// Asks for all of these at once. The answers, as many as there are requests.
fn asked(stream: &mut SecureStream, asks: &[Value]) -> Vec<Value> {
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
fn a_holder_that_asks_without_end_is_answered_at_a_pace_and_others_at_once() {
    if !is_inside("asking::a_holder_that_asks_without_end_is_answered_at_a_pace_and_others_at_once") {
        return;
    }
    let mut net = Net::new();
    let (guest, other) = (net.granted("guest", modest()), net.granted("other", modest()));
    let mut stream = associated(&net, &guest);
    // Of a file that was never sent: nothing takes less.
    let ask = json!({"upload": {"file": "00".repeat(32), "bytes": 1, "from": 0}});
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            for _ in 0..7 {
                let answers = asked(&mut stream, &vec![ask.clone(); 100]);
                assert!(answers.iter().all(|answer| answer.get("uploaded").is_some()), "{answers:?}");
            }
        });
        net.done(&other, &["session", "list"]);
        flood.join().unwrap();
    });
    // 400 at once, and then 100 in a second.
    assert!(begin.elapsed() > Duration::from_secs(2), "{:?}", begin.elapsed());
    assert!(net.place.stop().success());
}

/// Requests that are refused, each for another reason, of which some take the node long to look at.
fn invalid(number: usize) -> String {
    let asks = [
        json!({"load": {"session": "none", "module": {"module": "port-count"}}}),
        json!({"create": {"name": format!("s{number}"), "memory": "512 MiB", "channel": [{"interface": "b"}]}}),
        json!({"close": {"session": format!("t{number}")}}),
        json!({"remove-table": {"table": "t"}}),
        json!("reload"),
        json!({"create": {"name": "s", "channel": (0..64).map(|n| json!({"name": format!("c{n}"), "interface": "none", "filter": format!("port {n} or {}", "port 1 or ".repeat(300))})).collect::<Vec<_>>()}}),
    ];
    format!("{}\n", json!({"weir": 1, "ask": asks[number % asks.len()]}))
}

/// Ends a flood, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_delegator_is_answered_under_its_delegates_flood_and_the_delegate_pays() {
    if !is_inside("asking::a_delegator_is_answered_under_its_delegates_flood_and_the_delegate_pays") {
        return;
    }
    let mut net = Net::new();
    let delegator = net.granted("delegator", modest());
    let delegate = net.delegated(&delegator, "delegate", weir_trust::grant::Grant::default());
    let own = associated(&net, &delegator);
    let floods: Vec<SecureStream> = (0..8).map(|_| associated(&net, &delegate)).collect();
    let node = net.place.process();
    let (is_over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let processor = net.place.processor();
    let begin = Instant::now();
    let longest = std::thread::scope(|scope| {
        for (first, mut stream) in floods.into_iter().enumerate() {
            let (is_over, refused) = (&is_over, &refused);
            scope.spawn(move || {
                let mut number = first;
                // As long as there is room: what is not read yet waits here.
                while !is_over.load(Ordering::Acquire) {
                    let lines: String = (0..8).map(|more| invalid(number + more)).collect();
                    number += 8;
                    stream.write_all(lines.as_bytes()).unwrap();
                    let (mut said, mut part) = (0, [0; 4096]);
                    while said < 8 {
                        let len = stream.read(&mut part).unwrap();
                        assert!(len > 0, "the connection was closed after {said} of 8 answers");
                        said += part[..len].iter().filter(|byte| **byte == b'\n').count();
                    }
                    refused.fetch_add(8, Ordering::AcqRel);
                }
            });
        }
        let (mut own, ends) = (own, Ends(&is_over));
        // Until the flood has used up all that it could have at once.
        while refused.load(Ordering::Acquire) < 150 {
            assert!(begin.elapsed() < crate::place::PATIENCE, "{refused:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut longest = Duration::ZERO;
        let create = json!({"create": {"name": "s", "memory": "1 MiB", "channel": [{"interface": "b"}]}});
        let asks = [json!("show"), create, json!({"close": {"session": "s"}}), json!("show")];
        let (mut answered, mut meanwhile) = (0, Vec::new());
        // In turn with eight connections of the delegate, each of its requests would wait for eight others. Where the machine is busy with something else, others may come in between.
        for _ in 0..3 {
            let before = refused.load(Ordering::Acquire);
            for ask in asks.iter().cycle().take(48) {
                let asked_at = Instant::now();
                let answer = &asked(&mut own, std::slice::from_ref(ask))[0];
                longest = longest.max(asked_at.elapsed());
                assert!(answer.get("refused").is_none(), "{ask}: {answer}");
                answered += 1;
            }
            meanwhile.push(refused.load(Ordering::Acquire) - before);
        }
        assert!(
            meanwhile.iter().any(|others| *others < 4 * 48),
            "{meanwhile:?} of the delegate's came before 48"
        );
        // Over connections of their own, too.
        for _ in 0..4 {
            net.done(&delegator, &["session", "list"]);
            answered += 1;
        }
        drop(ends);
        assert_eq!(answered, 148);
        longest
    });
    let (elapsed, refused) = (begin.elapsed(), refused.load(Ordering::Acquire));
    let share = (net.place.processor() - processor) as f64 / 100.0 / elapsed.as_secs_f64();
    _ = writeln!(
        std::io::stderr(),
        "{MEASURED}148 of 148 requests were answered, after {longest:?} at most, beside {refused} that were refused in {elapsed:?}; the node used {share:.3} of a core"
    );
    assert_eq!(node, net.place.process());
    assert!(net.place.stop().success());
    // The delegate's account has all of it.
    let (key, delegators) = (delegate.identity.public().to_string(), delegator.identity.public().to_string());
    let ledger = net.place.ledger();
    let sum = |key: &str, what: &str| {
        let of_key = ledger.iter().filter(|entry| entry["kind"] == "requests" && entry["key"] == key);
        of_key.filter_map(|entry| entry[what].as_u64()).sum::<u64>()
    };
    assert_eq!(sum(&key, "refused"), refused as u64);
    assert_eq!(sum(&delegators, "refused"), 0);
    assert!(sum(&key, "cpu_ns") > 0 && sum(&delegators, "count") >= 148);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["ledger", "--csv"])
        .arg(net.place.path().join("state/ledger"))
        .output()
        .unwrap();
    let bill = String::from_utf8(output.stdout).unwrap();
    let row = bill.lines().find(|line| line.starts_with(&format!("(requests of {key})")));
    assert!(row.is_some_and(|row| row.contains(&format!(",{refused},"))), "{bill}");
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
