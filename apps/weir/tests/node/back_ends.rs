//! Modules that move from Cranelift's code to verified code of LLVM while they run.

use crate::module::{MANIFEST, assemble, text};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::json;
use std::path::Path;
use std::time::SystemTime;

/// A module that takes long for each packet, and emits the number of packets so far. `unique` is a number in its code, by which
/// the cache of compiled code knows no earlier one.
fn busy(unique: u128) -> Vec<u8> {
    busy_with(unique, "busy", "")
}

/// A module as [`busy`], with these instructions before the others.
fn busy_with(unique: u128, name: &str, first: &str) -> Vec<u8> {
    let unique = unique % (1 << 62);
    let body = format!(
        r#"(global $packets (mut i64) (i64.const 0))
        (func (export "weir_packet") (param $d i32) (result i32) (local $left i32) {first}
            (local.set $left (i32.const 100000))
            (loop $next
                (i32.store (i32.const 128) (i32.add (i32.load (i32.const 128)) (local.get $left)))
                (br_if $next (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
            (global.set $packets (i64.add (global.get $packets) (i64.const 1)))
            (i64.store (i32.const 136) (i64.const {unique}))
            (i64.store (i32.const 64) (global.get $packets))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#
    );
    assemble(&text(&body), Some(MANIFEST.replace("NAME", name).as_bytes()))
}

#[test]
fn a_busy_module_moves_to_verified_code_of_llvm_and_loses_nothing() {
    if !is_inside("back_ends::a_busy_module_moves_to_verified_code_of_llvm_and_loses_nothing") {
        return;
    }
    if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    let session = |name: &str, process: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\nprocess = \"{process}\"\ncpu = [{{ period = \"20ms\", slice = \"4ms\", borrow = true }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp\", queue = 20000 }}]\n"
        )
    };
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let mut testbed = Testbed::new(&(session("here", "node") + &session("apart", "own")));
    assert!(testbed.load("here", json!({"module": "busy.wasm"}), &busy(now))["done"].is_object());
    assert_eq!(testbed.part("here", "modules", "busy")["back_end"], "Cranelift");
    let back_end =
        |testbed: &Testbed, session: &str| testbed.part(session, "modules", "busy")["back_end"].clone();
    let mut sent = 0;
    testbed.until("the module runs in code of LLVM", |testbed| {
        if testbed.count("here", "busy", "packets") == sent {
            testbed.send(&vec![udp(1, b"x"); 500]);
            sent += 500;
        }
        back_end(testbed, "here") == "LLVM"
    });
    testbed.send(&vec![udp(1, b"x"); 500]);
    sent += 500;
    testbed.until("all packets are processed", |testbed| testbed.count("here", "busy", "packets") == sent);
    assert_eq!(testbed.count("here", "busy", "records"), sent);
    assert_eq!(testbed.count("here", "busy", "faults"), 0);
    // The compiler was a process of its own, at the expense of the session.
    let processes = testbed.snapshot()["processes"].clone();
    let compilers = processes.as_array().unwrap().iter().filter(|it| it["role"] == "external-compiler");
    assert_eq!(compilers.map(|it| it["started"].as_u64().unwrap()).sum::<u64>(), 1, "{processes}");
    // A module in a process of its own gets the code from the cache.
    assert!(testbed.load("apart", json!({"module": "busy.wasm"}), &busy(now))["done"].is_object());
    assert_eq!(back_end(&testbed, "apart"), "LLVM");
    testbed.send(&vec![udp(1, b"x"); 500]);
    testbed.until("its packets are processed", |testbed| testbed.count("apart", "busy", "records") == 500);
    assert_eq!(testbed.count("apart", "busy", "faults"), 0);
    assert!(testbed.stop().success());
}

#[test]
fn the_log_says_once_why_a_module_stays_in_cranelifts_code() {
    if !is_inside("back_ends::the_log_says_once_why_a_module_stays_in_cranelifts_code") {
        return;
    }
    if !Path::new("/usr/lib/llvm-19/bin/clang").exists() {
        println!("SKIPPED: clang 19 is not installed");
        return;
    }
    let mut testbed = Testbed::new(
        "[[session]]\nname = \"here\"\ncpu = [{ period = \"20ms\", slice = \"4ms\", borrow = true }]\n\
         channel = [{ interface = \"b\", filter = \"udp\", queue = 2000 }]\n",
    );
    // The lowering does not support this instruction.
    let odd = busy_with(1, "odd", "(drop (ref.is_null (ref.null func)))");
    let loaded = testbed.load("here", json!({"module": "odd.wasm"}), &odd);
    assert!(loaded["done"].is_object(), "{loaded}");
    let refusals = |testbed: &Testbed| {
        let log = testbed.log();
        log.lines().filter(|line| line.contains("odd") && line.contains("stays in Cranelift's code")).count()
    };
    testbed.send(&vec![udp(1, b"x"); 500]);
    testbed.until("its packets are processed", |testbed| testbed.count("here", "odd", "records") == 500);
    assert_eq!(testbed.part("here", "modules", "odd")["back_end"], "Cranelift");
    // The search for busy modules has gone round again.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(refusals(&testbed), 1, "{}", testbed.log());
    assert!(testbed.log().contains("`RefNull`"), "{}", testbed.log());
    assert!(testbed.stop().success());
}

#[test]
fn a_session_whose_profile_demands_verified_code_runs_no_other() {
    if !is_inside("back_ends::a_session_whose_profile_demands_verified_code_runs_no_other") {
        return;
    }
    let session = |name: &str, process: &str| {
        format!(
            "[[session]]\nname = \"{name}\"\nprocess = \"{process}\"\nprofile = \"verified\"\n\
             cpu = [{{ period = \"20ms\", slice = \"4ms\", borrow = true }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp\", queue = 2000 }}]\n"
        )
    };
    let mut testbed = Testbed::new("");
    std::fs::write(testbed.path().join("verified.toml"), "verified = 'only'\n").unwrap();
    let config = std::fs::read_to_string(testbed.config()).unwrap();
    let profile = "[[profile]]\nname = \"verified\"\nfile = \"verified.toml\"\n";
    let sessions = session("here", "node") + &session("apart", "own");
    std::fs::write(testbed.config(), config + profile + &sessions).unwrap();
    testbed.request(json!("reload"));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let has_clang = Path::new("/usr/lib/llvm-19/bin/clang").exists();
    for name in ["here", "apart"] {
        let loaded = testbed.load(name, json!({"module": "busy.wasm"}), &busy(now));
        if !has_clang {
            assert!(loaded.to_string().contains("verified machine code"), "{loaded}");
            continue;
        }
        // It has waited for the code.
        assert!(loaded["done"].is_object(), "{loaded}");
        assert_eq!(testbed.part(name, "modules", "busy")["back_end"], "LLVM");
        testbed.send(&vec![udp(1, b"x"); 100]);
        testbed.until("its packets are processed", |testbed| testbed.count(name, "busy", "records") >= 100);
        assert_eq!(testbed.count(name, "busy", "faults"), 0);
        // A module that cannot be lowered is refused, with the instruction.
        let body = r#"(table 1 funcref)
            (func (export "weir_packet") (param $d i32) (result i32) (ref.is_null (ref.null func)))"#;
        let other = assemble(&text(body), Some(MANIFEST.replace("NAME", "other").as_bytes()));
        let refused = testbed.load(name, json!({"module": "other.wasm"}), &other).to_string();
        assert!(refused.contains("verified machine code") && refused.contains("`RefNull`"), "{refused}");
        // A fault has its function and line.
        let spin = json!({"module": "spin", "set": {"per-packet": 100_000_000, "interval": "24h"}});
        let loaded = testbed.load(name, spin, &[]);
        assert!(loaded["done"].is_object(), "{loaded}");
        testbed.send(&[udp(1, b"x")]);
        testbed.until("a call has failed", |testbed| testbed.count(name, "spin", "faults") > 0);
        let fault = testbed.part(name, "modules", "spin")["last_fault"].as_str().unwrap().to_owned();
        assert!(fault.contains(" in `burn` (spin.c:"), "{name}: {fault}");
    }
    assert!(testbed.stop().success());
}
