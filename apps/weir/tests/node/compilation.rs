//! Compilation is charged to its requester, and does not delay other holders.

use crate::adversaries::authenticated_stream;
use crate::module::{MANIFEST, assemble, text};
use crate::remote::{Net, Person, modest_grant};
use crate::testbed::{MEASUREMENT_PREFIX, is_inside};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use weir_remote::SecureStream;
use weir_trust::grant::{Ceilings, CpuShare, Grant};

/// A module that takes long to compile, and differs from all other modules, also those of earlier runs, so it is never cached.
fn slow_module(number: usize) -> Vec<u8> {
    slow_module_with(number, 20)
}

/// As [`slow_module`], with this number of functions.
fn slow_module_with(number: usize, functions: usize) -> Vec<u8> {
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

/// The number of compiler processes of the node.
fn compiler_processes(node: u32) -> usize {
    child_processes(node, b"compile-cranelift").len()
}

/// The child processes of the node with this argument.
fn child_processes(node: u32, argument: &[u8]) -> Vec<String> {
    let children = std::fs::read_dir(format!("/proc/{node}/task")).unwrap().flat_map(|thread| {
        let file = thread.unwrap().path().join("children");
        let children = std::fs::read_to_string(file).unwrap_or_default();
        children.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    // A process that has just ended or started may have another command line, or none.
    let is_compiler = |child: &String| {
        let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(argument)
    };
    children.filter(is_compiler).collect()
}

fn create(net: &Net, who: &Person, slice: &str) {
    let cpu = format!("period=10ms,slice={slice}");
    net.run(
        who,
        &["session", "create", "study", "--memory", "8 MiB", "--channel", "interface=b", "--cpu", &cpu],
    );
}

fn holder_with_share(net: &Net, name: &str, percent: u64) -> Person {
    let ceilings = Ceilings { cpu: Some(CpuShare(percent * 10_000)), ..modest_grant().ceilings };
    net.granted(name, Grant { ceilings, ..modest_grant() })
}

#[test]
fn a_holder_that_keeps_compilers_busy_delays_no_other_and_is_charged() {
    if !is_inside("compilation::a_holder_that_keeps_compilers_busy_delays_no_other_and_is_charged") {
        return;
    }
    let mut net = Net::new();
    let (greedy, modest) = (holder_with_share(&net, "greedy", 1), holder_with_share(&net, "modest", 5));
    create(&net, &greedy, "100us");
    create(&net, &modest, "500us");
    net.testbed.request(json!({"create": {"name": "operators", "channel": [{"interface": "b"}]}}));
    let files: Vec<PathBuf> = (0..16)
        .map(|number| {
            let path = net.folder.path().join(format!("hard-{number}.wasm"));
            std::fs::write(&path, slow_module(number)).unwrap();
            path
        })
        .collect();
    let node = net.testbed.process();
    let (is_over, refused, loaded) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let most = std::thread::scope(|scope| {
        // Eight connections, each of which compiles one module after the other.
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
            most = most.max(compiler_processes(node));
            most
        };
        let begin = std::time::Instant::now();
        while look() == 0 {
            assert!(begin.elapsed() < crate::testbed::TIMEOUT, "no compiler is at work");
        }
        // Meanwhile the operator and another holder compile.
        let reply =
            net.testbed.load("operators", json!({"module": "hard", "name": "own"}), &slow_module(100));
        assert!(reply.get("done").is_some(), "{reply}");
        let theirs = net.folder.path().join("theirs.wasm");
        std::fs::write(&theirs, slow_module(101)).unwrap();
        net.run(&modest, &["load", "study", theirs.to_str().unwrap()]);
        // The greedy holder requests more than its share of processor time allows.
        while loaded.load(Ordering::Acquire) == 0 || refused.load(Ordering::Acquire) == 0 {
            look();
            assert!(begin.elapsed() < crate::testbed::TIMEOUT, "nothing is refused: {}", net.testbed.log());
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Release);
        most
    });
    // At most one compiler of each of the two holders and of the operator run at the same time.
    assert!((1..=3).contains(&most), "{most}");
    // Each holder's session is charged, and debited in its slices; the operator's session is charged, too.
    let (greedys, modests) = (greedy.name_of("study"), modest.name_of("study"));
    for session in [&greedys, &modests, &"operators".to_owned()] {
        net.testbed.until("the usage is charged", |testbed| testbed.ledger_usage(session, "compile_ns") > 0);
        // Read in this order, as both counters grow.
        let compiled = net.testbed.ledger_usage(session, "compile_ns");
        assert!(net.testbed.ledger_usage(session, "cpu_ns") >= compiled);
    }
    for session in [&greedys, &modests] {
        let billed = net.testbed.ledger_usage(session, "compile_ns");
        net.testbed.until("the session is charged", |testbed| {
            testbed.part(session, "cpu", "main")["debited_ns"].as_u64().unwrap() >= billed
        });
    }
    assert!(net.testbed.stop().success());
}

/// A request with 64 filters of 112 ports each.
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

/// Sends a request, and leaves its reply for [`receive_answer`].
fn send(stream: &mut SecureStream, request: &Value) {
    stream.write_all(format!("{}\n", json!({"weir": 1, "request": request})).as_bytes()).unwrap();
}

fn receive_answer(stream: &mut SecureStream) -> Value {
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
    if !is_inside("compilation::requests_with_many_filters_of_two_small_holders_do_not_delay_a_third") {
        return;
    }
    let mut net = Net::new();
    let small = [holder_with_share(&net, "first", 1), holder_with_share(&net, "second", 1)];
    let third = holder_with_share(&net, "third", 5);
    create(&net, &third, "500us");
    let file = net.folder.path().join("theirs.wasm");
    std::fs::write(&file, slow_module(200)).unwrap();
    let mut streams = small.each_ref().map(|holder| authenticated_stream(&net, holder));
    let begin = Instant::now();
    for (first, stream) in streams.iter_mut().enumerate() {
        send(stream, &many_filters(first * 10_007));
    }
    let (waited, answers) = std::thread::scope(|scope| {
        let answers = streams.each_mut().map(|stream| scope.spawn(|| receive_answer(stream)));
        let wanted = Instant::now();
        // Filters take at most a second, so the order of the replies depends on the machine. The order is tested in
        // `compile_queue/queue.rs` and by the next test.
        net.run(&third, &["load", "study", file.to_str().unwrap()]);
        (wanted.elapsed(), answers.map(|thread| thread.join().unwrap()))
    });
    let took = begin.elapsed();
    _ = writeln!(
        std::io::stderr(),
        "{MEASUREMENT_PREFIX}the third holder's module was there after {waited:?}; the others were answered within {took:?}"
    );
    // Every request is answered.
    for reply in answers {
        assert!(reply.get("done").is_some() || reply.get("refused").is_some(), "{reply}");
    }
    assert!(net.testbed.stop().success());
}

fn nice(process: &str) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let (_, rest) = stat.rsplit_once(')').unwrap();
    rest.split_whitespace().nth(16).unwrap().parse().unwrap()
}

#[test]
fn long_compilations_of_small_shares_pause_for_a_larger_share_and_run_at_low_priority() {
    if !is_inside(
        "compilation::long_compilations_of_small_shares_pause_for_a_larger_share_and_run_at_low_priority",
    ) {
        return;
    }
    let mut net = Net::new();
    let small = [holder_with_share(&net, "first", 1), holder_with_share(&net, "second", 1)];
    let third = holder_with_share(&net, "third", 5);
    create(&net, &third, "500us");
    small.iter().for_each(|holder| create(&net, holder, "100us"));
    let files: Vec<PathBuf> = [(300, 300), (301, 300), (302, 20)]
        .into_iter()
        .map(|(number, functions)| {
            let path = net.folder.path().join(format!("{number}.wasm"));
            std::fs::write(&path, slow_module_with(number, functions)).unwrap();
            path
        })
        .collect();
    let node = net.testbed.process();
    let is_done = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (holder, file) in small.iter().zip(&files) {
            let (net, is_done) = (&net, &is_done);
            scope.spawn(move || {
                // The request may be refused in the end, as long as it took long.
                net.weir(holder, &["load", "study", file.to_str().unwrap()]);
                is_done.fetch_add(1, Ordering::AcqRel);
            });
        }
        let begin = Instant::now();
        let mut seen = child_processes(node, b"compile-cranelift");
        while seen.len() < 2 {
            assert!(begin.elapsed() < crate::testbed::TIMEOUT, "no compiler is at work");
            seen = child_processes(node, b"compile-cranelift");
        }
        for process in &seen {
            // 19 is the maximum.
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
        net.run(&third, &["load", "study", files[2].to_str().unwrap()]);
        let waited = wanted.elapsed();
        assert_eq!(is_done.load(Ordering::Acquire), 0, "it waited for one of the others");
        _ = writeln!(
            std::io::stderr(),
            "{MEASUREMENT_PREFIX}the third holder's module was there after {waited:?}"
        );
    });
    assert!(net.testbed.stop().success());
}
