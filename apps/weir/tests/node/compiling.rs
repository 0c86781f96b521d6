//! Who pays for what compilers do, and who keeps whom from his turn.

use crate::module::{MANIFEST, assemble, text};
use crate::place::is_inside;
use crate::remote::{Net, Person, modest};
use serde_json::json;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use weir_trust::grant::{Ceilings, CpuShare, Grant};

/// A module that takes a compiler a while, and is like no other one, also of an earlier run: what was compiled is kept.
fn hard(number: usize) -> Vec<u8> {
    let run = std::process::id() as usize;
    let mut body = String::new();
    for function in 0..20 {
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
    let children = std::fs::read_dir(format!("/proc/{node}/task")).unwrap().flat_map(|thread| {
        let file = thread.unwrap().path().join("children");
        let children = std::fs::read_to_string(file).unwrap_or_default();
        children.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    });
    // A child that has ended, or has not begun yet, has another one's command line or none.
    let is_compiler = |child: &String| {
        let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        line.split(|byte| *byte == 0).nth(1) == Some(b"compile")
    };
    children.filter(is_compiler).count()
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
        assert!(net.place.billed(session, "cpu_ns") >= net.place.billed(session, "compile_ns"));
    }
    for session in [&greedys, &modests] {
        let billed = net.place.billed(session, "compile_ns");
        net.place.until("it pays", |place| {
            place.part(session, "cpu", "main")["debited_ns"].as_u64().unwrap() >= billed
        });
    }
    assert!(net.place.stop().success());
}
