//! Requests: their rate limit, the charge for their processor time, and limits of their bodies.

use crate::adversaries::authenticated_stream;
use crate::remote::{Net, SESSION, modest_grant};
use crate::testbed::{MEASUREMENT_PREFIX, is_inside};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use weir_node::control::protocol::PART_BYTES_MAX;
use weir_remote::SecureStream;

/// Sends all of these requests at once. Returns their replies.
fn send_all(stream: &mut SecureStream, requests: &[Value]) -> Vec<Value> {
    let lines: String =
        requests.iter().map(|request| format!("{}\n", json!({"weir": 1, "request": request}))).collect();
    stream.write_all(lines.as_bytes()).unwrap();
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    while said.iter().filter(|byte| **byte == b'\n').count() < requests.len() {
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&part[..len]);
    }
    let text = String::from_utf8(said).unwrap();
    text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["reply"].clone()).collect()
}

#[test]
fn a_holder_with_endless_requests_is_rate_limited_and_others_are_not_delayed() {
    if !is_inside("request_rates::a_holder_with_endless_requests_is_rate_limited_and_others_are_not_delayed")
    {
        return;
    }
    let mut net = Net::new();
    let (guest, other) = (net.granted("guest", modest_grant()), net.granted("other", modest_grant()));
    let mut stream = authenticated_stream(&net, &guest);
    // The part of a file that was never uploaded: the cheapest request.
    let request = json!({"upload": {"file": "00".repeat(32), "bytes": 1, "from": 0}});
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| {
            for _ in 0..7 {
                let answers = send_all(&mut stream, &vec![request.clone(); 100]);
                assert!(answers.iter().all(|answer| answer.get("uploaded").is_some()), "{answers:?}");
            }
        });
        net.run(&other, &["session", "list"]);
        flood.join().unwrap();
    });
    // A burst of 400 requests, then 100 a second.
    assert!(begin.elapsed() > Duration::from_secs(2), "{:?}", begin.elapsed());
    assert!(net.testbed.stop().success());
}

/// Invalid requests, with different reasons, some of which take much processor time.
fn invalid_request(number: usize) -> String {
    let requests = [
        json!({"load": {"session": "none", "module": {"module": "port-count"}}}),
        json!({"create": {"name": format!("s{number}"), "memory": "512 MiB", "channel": [{"interface": "b"}]}}),
        json!({"close": {"session": format!("t{number}")}}),
        json!({"remove-table": {"table": "t"}}),
        json!("reload"),
        json!({"create": {"name": "s", "channel": (0..64).map(|n| json!({"name": format!("c{n}"), "interface": "none", "filter": format!("port {n} or {}", "port 1 or ".repeat(300))})).collect::<Vec<_>>()}}),
    ];
    format!("{}\n", json!({"weir": 1, "request": requests[number % requests.len()]}))
}

/// Ends the flood when a test ends, even by a failed assertion.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_delegator_is_served_during_a_delegates_flood_and_the_delegate_is_charged() {
    if !is_inside("request_rates::a_delegator_is_served_during_a_delegates_flood_and_the_delegate_is_charged")
    {
        return;
    }
    let mut net = Net::new();
    let delegator = net.granted("delegator", modest_grant());
    let delegate = net.delegated(&delegator, "delegate", weir_trust::grant::Grant::default());
    let own = authenticated_stream(&net, &delegator);
    let floods: Vec<SecureStream> = (0..8).map(|_| authenticated_stream(&net, &delegate)).collect();
    let node = net.testbed.process();
    let (is_over, refused) = (AtomicBool::new(false), AtomicUsize::new(0));
    let processor = net.testbed.processor();
    let begin = Instant::now();
    let longest = std::thread::scope(|scope| {
        for (first, mut stream) in floods.into_iter().enumerate() {
            let (is_over, refused) = (&is_over, &refused);
            scope.spawn(move || {
                let mut number = first;
                // Sends as long as the socket's buffer has room: requests that the node does not read yet wait there.
                while !is_over.load(Ordering::Acquire) {
                    let lines: String = (0..8).map(|more| invalid_request(number + more)).collect();
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
        let (mut own, ends) = (own, StopOnDrop(&is_over));
        // Until the flood has used up its burst.
        while refused.load(Ordering::Acquire) < 150 {
            assert!(begin.elapsed() < crate::testbed::TIMEOUT, "{refused:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut longest = Duration::ZERO;
        let create = json!({"create": {"name": "s", "memory": "1 MiB", "channel": [{"interface": "b"}]}});
        let requests = [json!("show"), create, json!({"close": {"session": "s"}}), json!("show")];
        let (mut answered, mut meanwhile) = (0, Vec::new());
        // If the delegator had to alternate with the delegate's eight connections, each of its requests would wait for
        // eight others. On a busy machine some may come between.
        for _ in 0..3 {
            let before = refused.load(Ordering::Acquire);
            for request in requests.iter().cycle().take(48) {
                let asked_at = Instant::now();
                let answer = &send_all(&mut own, std::slice::from_ref(request))[0];
                longest = longest.max(asked_at.elapsed());
                assert!(answer.get("refused").is_none(), "{request}: {answer}");
                answered += 1;
            }
            meanwhile.push(refused.load(Ordering::Acquire) - before);
        }
        assert!(
            meanwhile.iter().any(|others| *others < 4 * 48),
            "{meanwhile:?} of the delegate's came before 48"
        );
        // Also over new connections.
        for _ in 0..4 {
            net.run(&delegator, &["session", "list"]);
            answered += 1;
        }
        drop(ends);
        assert_eq!(answered, 148);
        longest
    });
    let (elapsed, refused) = (begin.elapsed(), refused.load(Ordering::Acquire));
    let share = (net.testbed.processor() - processor) as f64 / 100.0 / elapsed.as_secs_f64();
    _ = writeln!(
        std::io::stderr(),
        "{MEASUREMENT_PREFIX}148 of 148 requests were answered, after {longest:?} at most, beside {refused} that were refused in {elapsed:?}; the node used {share:.3} of a core"
    );
    assert_eq!(node, net.testbed.process());
    assert!(net.testbed.stop().success());
    // All processor time is on the delegate's account.
    let (key, delegators) = (delegate.identity.public().to_string(), delegator.identity.public().to_string());
    let ledger = net.testbed.ledger();
    let sum = |key: &str, what: &str| {
        let of_key = ledger.iter().filter(|entry| entry["kind"] == "requests" && entry["key"] == key);
        of_key.filter_map(|entry| entry[what].as_u64()).sum::<u64>()
    };
    assert_eq!(sum(&key, "refused"), refused as u64);
    assert_eq!(sum(&delegators, "refused"), 0);
    assert!(sum(&key, "cpu_ns") > 0 && sum(&delegators, "count") >= 148);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["ledger", "--csv"])
        .arg(net.testbed.path().join("state/ledger"))
        .output()
        .unwrap();
    let usage_csv = String::from_utf8(output.stdout).unwrap();
    let row = usage_csv.lines().find(|line| line.starts_with(&format!("(requests of {key})")));
    assert!(row.is_some_and(|row| row.contains(&format!(",{refused},"))), "{usage_csv}");
}

#[test]
fn snapshots_are_shared_by_holders_and_a_change_is_visible_at_once() {
    if !is_inside("request_rates::snapshots_are_shared_by_holders_and_a_change_is_visible_at_once") {
        return;
    }
    let mut net = Net::new();
    let guest = net.granted("guest", modest_grant());
    let mut stream = authenticated_stream(&net, &guest);
    let answers = send_all(&mut stream, &vec![json!("show"); 100]);
    let times: std::collections::BTreeSet<u64> =
        answers.iter().map(|answer| answer["snapshot"]["at_ns"].as_u64().unwrap()).collect();
    assert!(times.len() < answers.len(), "each was looked up anew");
    let create = json!({"create": {"name": "s", "memory": "1 MiB", "channel": [{"interface": "b"}]}});
    let close = json!({"close": {"session": "s"}});
    let show = json!("show");
    let requests = [show.clone(), create, show.clone(), close, show];
    for _ in 0..10 {
        let answers = send_all(&mut stream, &requests);
        let seen: Vec<usize> = [0, 2, 4]
            .map(|at| {
                answers[at]["snapshot"]["sessions"].as_array().unwrap_or_else(|| panic!("{answers:?}")).len()
            })
            .into();
        assert_eq!(seen, [0, 1, 0]);
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn a_body_that_fits_no_request_or_right_is_refused_unread() {
    if !is_inside("request_rates::a_body_that_fits_no_request_or_right_is_refused_unread") {
        return;
    }
    let mut net = Net::new();
    let guest = net.granted("guest", modest_grant());
    net.run(&guest, &SESSION);
    let load = json!({"load": {"session": "study", "module": {"module": "m"}}});
    let create = json!({"create": {"name": "t"}});
    for (request, body, says) in [
        (json!("show"), 1, "this request has no file"),
        (create.clone(), 8 << 20, "this request has no file"),
        (json!({"explain": {"request": create}}), 1, "this request has no file"),
        (json!({"put-table": {"table": "t"}}), 64 << 20, "only the node's operator may change named tables"),
        (load.clone(), PART_BYTES_MAX + 1, "a file of more than 256 KiB is sent in parts"),
    ] {
        // The announced body is never sent: the reply does not wait for it.
        let mut stream = authenticated_stream(&net, &guest);
        writeln!(stream, "{}", json!({"weir": 1, "request": request, "body": body})).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.contains(says), "{request}: {answer}");
    }
    // A body of the maximum length is read and checked.
    let mut stream = authenticated_stream(&net, &guest);
    writeln!(stream, "{}", json!({"weir": 1, "request": load, "body": PART_BYTES_MAX})).unwrap();
    stream.write_all(&vec![0; PART_BYTES_MAX]).and_then(|()| stream.finish()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("refused") && !answer.contains("in parts"), "{answer}");
    assert!(net.testbed.stop().success());
}
