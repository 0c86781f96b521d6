//! Who pays for what compilers do, and who keeps whom from his turn.

use crate::adversaries::associated;
use crate::module::{MANIFEST, assemble, text};
use crate::place::{MEASURED, is_inside};
use crate::remote::{Net, Person, modest};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use weir_remote::SecureStream;
use weir_trust::grant::{Ceilings, CpuShare, Grant};

/// A module that takes a compiler a while, and is like no other one, also of an earlier run: what was compiled is kept.
fn hard(number: usize) -> Vec<u8> {
    harder(number, 20)
}

/// The same, of so many functions.
fn harder(number: usize, functions: usize) -> Vec<u8> {
    let run = std::process::id() as usize;
    let mut body = String::new();
    for function in 0..functions {
        _ = write!(body, "(func $f{function} (param i32) (result i32) (local $a i32) (local $b i32)");
        for step in 0..300 {
            let constant = run * 7919 + number * 1_000_003 + function * 301 + step;
            _ = write!(
                body,
                "(local.set $a (i32.xor (i32.mul (local.get $b) (i32.const {})) (local.get 0)))\
                 (local.set $b (i32.rotl (i32.add (local.get $a) (local.get $b)) (i32.const {})))",
                constant % 2_000_000_011,
                step % 31
            );
        }
        body.push_str("(local.get $a))");
    }
    body.push_str(r#"(func (export "weir_packet") (param i32) (result i32) (drop (call $f1 (i32.const 1))) (i32.const 0))"#);
    let manifest = MANIFEST.replace("NAME", &format!("hard-{number}"));
    assemble(&text(&body), Some(manifest.as_bytes()))
}

/// Compilers that the node has at work.
fn compilers(node: u32) -> usize {
    processes(node, b"compile").len()
}

/// Children of the node with this argument.
fn processes(node: u32, argument: &[u8]) -> Vec<String> {
    let children = std::fs::read_dir(format!("/proc/{node}/task")).unwrap().flat_map(|thread| {
        let file = thread.unwrap().path().join("children");
        let children = std::fs::read_to_string(file).unwrap_or_default();
        children.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    // A child that has ended, or has not begun yet, has another one's command line or none.
    let is_compiler = |child: &String| {
        let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(argument)
    };
    children.filter(is_compiler).collect()
}

fn create(net: &Net, who: &Person, slice: &str) {
    let cpu = format!("period=10ms,slice={slice}");
    net.done(
        who,
        &["session", "create", "study", "--memory", "8 MiB", "--channel", "interface=b", "--cpu", &cpu],
    );
}

fn granted(net: &Net, name: &str, percent: u64) -> Person {
    let ceilings = Ceilings { cpu: Some(CpuShare(percent * 10_000)), ..modest().ceilings };
    net.granted(name, Grant { ceilings, ..modest() })
}

#[test]
fn who_keeps_compilers_busy_keeps_nobody_else_from_them_and_pays() {
    if !is_inside("compiling::who_keeps_compilers_busy_keeps_nobody_else_from_them_and_pays") {
        return;
    }
    let mut net = Net::new();
    let (greedy, modest) = (granted(&net, "greedy", 1), granted(&net, "modest", 5));
    create(&net, &greedy, "100us");
    create(&net, &modest, "500us");
    net.place.done(json!({"create": {"name": "operators", "channel": [{"interface": "b"}]}}));
    let files: Vec<PathBuf> = (0..16)
        .map(|number| {
            let path = net.folder.path().join(format!("hard-{number}.wasm"));
            std::fs::write(&path, hard(number)).unwrap();
            path
        })
        .collect();
    let node = net.place.process();
    let (is_over, refused, loaded) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let most = std::thread::scope(|scope| {
        // Eight connections, each of which has something compiled again and again.
        for first in 0..8 {
            let (net, greedy, files) = (&net, &greedy, &files);
            let (is_over, refused, loaded) = (&is_over, &refused, &loaded);
            scope.spawn(move || {
                let mut number = first;
                while !is_over.load(Ordering::Acquire) {
                    let output = net.weir(greedy, &["load", "study", files[number % 16].to_str().unwrap()]);
                    let said = String::from_utf8_lossy(&output.stderr);
                    if output.status.success() {
                        loaded.fetch_add(1, Ordering::AcqRel);
                    } else if said.contains("try again") {
                        refused.fetch_add(1, Ordering::AcqRel);
                    }
                    number += 8;
                }
            });
        }
        let mut most = 0;
        let mut look = || {
            most = most.max(compilers(node));
            most
        };
        let begin = std::time::Instant::now();
        while look() == 0 {
            assert!(begin.elapsed() < crate::place::PATIENCE, "no compiler is at work");
        }
        // Meanwhile the operator, and somebody else, have theirs.
        let reply = net.place.load("operators", json!({"module": "hard", "name": "own"}), &hard(100));
        assert!(reply.get("done").is_some(), "{reply}");
        let theirs = net.folder.path().join("theirs.wasm");
        std::fs::write(&theirs, hard(101)).unwrap();
        net.done(&modest, &["load", "study", theirs.to_str().unwrap()]);
        // It takes more than there is for it in a while.
        while loaded.load(Ordering::Acquire) == 0 || refused.load(Ordering::Acquire) == 0 {
            look();
            assert!(begin.elapsed() < crate::place::PATIENCE, "nothing is refused: {}", net.place.said());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Release);
        most
    });
    // One of the greedy one's, one of the modest one's, and the operator's.
    assert!((1..=3).contains(&most), "{most}");
    // It is on their bills, and missing in their slices; the operator's is on his bill.
    let (greedys, modests) = (greedy.name_of("study"), modest.name_of("study"));
    for session in [&greedys, &modests, &"operators".to_owned()] {
        net.place.until("it is billed", |place| place.billed(session, "compile_ns") > 0);
        // In this order: both grow.
        let compiled = net.place.billed(session, "compile_ns");
        assert!(net.place.billed(session, "cpu_ns") >= compiled);
    }
    for session in [&greedys, &modests] {
        let billed = net.place.billed(session, "compile_ns");
        net.place.until("it pays", |place| {
            place.part(session, "cpu", "main")["debited_ns"].as_u64().unwrap() >= billed
        });
    }
    assert!(net.place.stop().success());
}

/// The request of the review: 64 filters of 112 ports each.
fn many_filters(first: usize) -> Value {
    let filter = |number: usize| {
        let ports = (0..112).map(|port| format!("port {}", (first + number * 131 + port * 577) % 65_536));
        ports.collect::<Vec<_>>().join(" or ")
    };
    let channels: Vec<Value> = (0..64)
        .map(|number| json!({"name": format!("c{number}"), "interface": "b", "filter": filter(number)}))
        .collect();
    json!({"create": {"name": "many", "memory": "1 MiB", "cpu": [{"period": "10ms", "slice": "1us"}], "channel": channels}})
}

/// Sends a request and takes its answer when there is one.
fn send(stream: &mut SecureStream, ask: &Value) {
    stream.write_all(format!("{}\n", json!({"weir": 1, "ask": ask})).as_bytes()).unwrap();
}

fn answer(stream: &mut SecureStream) -> Value {
    let (mut said, mut part) = (Vec::new(), [0; 4096]);
    while !said.ends_with(b"\n") {
        let len = stream.read(&mut part).unwrap();
        assert!(len > 0, "{}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&part[..len]);
    }
    serde_json::from_slice::<Value>(&said).unwrap()["reply"].clone()
}

#[test]
fn requests_with_many_filters_of_two_small_holders_do_not_delay_a_third() {
    if !is_inside("compiling::requests_with_many_filters_of_two_small_holders_do_not_delay_a_third") {
        return;
    }
    let mut net = Net::new();
    let small = [granted(&net, "first", 1), granted(&net, "second", 1)];
    let third = granted(&net, "third", 5);
    create(&net, &third, "500us");
    let file = net.folder.path().join("theirs.wasm");
    std::fs::write(&file, hard(200)).unwrap();
    let mut streams = small.each_ref().map(|holder| associated(&net, holder));
    let begin = Instant::now();
    for (first, stream) in streams.iter_mut().enumerate() {
        send(stream, &many_filters(first * 10_007));
    }
    let (waited, answers) = std::thread::scope(|scope| {
        let answers = streams.each_mut().map(|stream| scope.spawn(|| answer(stream)));
        let wanted = Instant::now();
        // Filters take a second at most, so the order of the answers depends on the machine; it is that of `turns/queue.rs`, and of the next test. The holder is not told to come again.
        net.done(&third, &["load", "study", file.to_str().unwrap()]);
        (wanted.elapsed(), answers.map(|answer| answer.join().unwrap()))
    });
    let took = begin.elapsed();
    _ = writeln!(
        std::io::stderr(),
        "{MEASURED}the third holder's module was there after {waited:?}; the others were answered within {took:?}"
    );
    // Whatever came of them: an answer there is.
    for answer in answers {
        assert!(answer.get("done").is_some() || answer.get("refused").is_some(), "{answer}");
    }
    assert!(net.place.stop().success());
}

fn nice(process: &str) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(16).unwrap().parse().unwrap()
}

#[test]
fn long_compilations_of_small_holders_rest_while_a_larger_share_compiles_and_run_behind_modules() {
    if !is_inside(
        "compiling::long_compilations_of_small_holders_rest_while_a_larger_share_compiles_and_run_behind_modules",
    ) {
        return;
    }
    let mut net = Net::new();
    let small = [granted(&net, "first", 1), granted(&net, "second", 1)];
    let third = granted(&net, "third", 5);
    create(&net, &third, "500us");
    small.iter().for_each(|holder| create(&net, holder, "100us"));
    let files: Vec<PathBuf> = [(300, 300), (301, 300), (302, 20)]
        .into_iter()
        .map(|(number, functions)| {
            let path = net.folder.path().join(format!("{number}.wasm"));
            std::fs::write(&path, harder(number, functions)).unwrap();
            path
        })
        .collect();
    let node = net.place.process();
    let is_done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (holder, file) in small.iter().zip(&files) {
            let (net, is_done) = (&net, &is_done);
            scope.spawn(move || {
                // It may be given up; what counts is that it took long.
                net.weir(holder, &["load", "study", file.to_str().unwrap()]);
                is_done.fetch_add(1, Ordering::AcqRel);
            });
        }
        let begin = Instant::now();
        let mut seen = processes(node, b"compile");
        while seen.len() < 2 {
            assert!(begin.elapsed() < crate::place::PATIENCE, "no compiler is at work");
            seen = processes(node, b"compile");
        }
        for process in &seen {
            // 19 is the most that there is.
            assert_eq!(nice(process), (nice(&node.to_string()) + 10).min(19));
            let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
            let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
            let count = std::thread::available_parallelism().unwrap().get();
            // Modules run on the last core.
            let last = (count - 1).to_string();
            let has_last = cores.trim().split([',', '-']).any(|core| core == last);
            assert_eq!(has_last, count == 1, "{cores}");
        }
        let wanted = Instant::now();
        net.done(&third, &["load", "study", files[2].to_str().unwrap()]);
        let waited = wanted.elapsed();
        assert_eq!(is_done.load(Ordering::Acquire), 0, "it waited for one of the others");
        _ = writeln!(std::io::stderr(), "{MEASURED}the third holder's module was there after {waited:?}");
    });
    assert!(net.place.stop().success());
}
