//! Modules without a meter: who may run them, where, and what ends them.

use crate::bundles::{BundleFolder, NO_COMPILER, TRUSTED, compiler, counting_with, entries, session};
use crate::module::{MANIFEST, assemble, text};
use crate::policy::{with_policy, write};
use crate::remote::{Net, modest_grant, person};
use crate::remote_limits::file;
use crate::remote_signed::{sign, signed_by};
use crate::testbed::{Testbed, is_inside, udp};
use serde_json::json;
use std::path::{Path, PathBuf};
use weir_trust::grant::{Ceilings, CpuShare, Grant};
use weir_units::Bytes;

/// A module whose loop has no bound that is known beforehand: packets to port 7 never end, others end at once. It emits a
/// row for each packet.
fn unbounded(name: &str) -> Vec<u8> {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (loop $again
            (br_if $again (i32.eq (i32.load16_u offset=46 (local.get $d)) (i32.const 7))))
        (i64.store (i32.const 64) (i64.const 1))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
        (i32.const 0))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", name).as_bytes()))
}

/// Returns true, with a line on standard output, if there is no clang 19.
fn lacks_clang() -> bool {
    BundleFolder::new().is_none()
}

/// Gives the node a policy, and removes the root from its configuration. Returns the policy's folder, which has no root yet.
fn move_root_into_policy(net: &Net) -> PathBuf {
    let folder = with_policy(net);
    let config = std::fs::read_to_string(net.testbed.config()).unwrap();
    let roots = format!("roots = [\"{}\"]\n", net.operator.identity.public());
    assert!(config.contains(&roots), "{config}");
    std::fs::write(net.testbed.config(), config.replace(&roots, "")).unwrap();
    folder
}

/// Sets the limit of the root in the policy.
fn set_limit(net: &Net, policy: &Path, limit: &str) {
    let text = format!("key = \"{}\"\n[limit]\n{limit}", net.operator.identity.public());
    write(policy, "roots/own.toml", &text);
    net.testbed.request(json!("reload"));
}

const CREATE: [&str; 10] = [
    "session",
    "create",
    "s",
    "--memory",
    "12 MiB",
    "--cpu",
    "period=20ms,slice=1ms",
    "--channel",
    "interface=b",
    "--process",
];

#[test]
fn only_modules_of_named_signers_run_without_a_meter() {
    if !is_inside("unmetered::only_modules_of_named_signers_run_without_a_meter") || lacks_clang() {
        return;
    }
    let mut net = Net::new();
    let [author, other] = ["author", "other"].map(|name| person(net.folder.path(), name));
    let key = author.identity.public();
    let grant =
        Grant { modules: signed_by(&[&author, &other]).modules, unmetered: [key].into(), ..modest_grant() };
    let researcher = net.granted("researcher", grant);
    let module = file(&net, "mine.wasm", &unbounded("mine"));
    let load = ["load", "s", &module, "--unmetered"];
    let unmetered = format!("unmetered = [\"{key}\"]\n");
    net.run(&researcher, &[&CREATE[..], &["own"]].concat());
    sign(&author, &module, &[]);
    // The root gives the right, but the node's policy does not: a root of the configuration has no limit that states it.
    net.run_refused(&researcher, &load, "modules without a meter: asked for `mine.wasm`");
    let policy = move_root_into_policy(&net);
    set_limit(&net, &policy, "");
    net.run_refused(&researcher, &load, "given is none");
    set_limit(&net, &policy, &unmetered);
    // By another author, whose modules run with a meter.
    let signature = format!("{module}.other");
    sign(&other, &module, &["--out", &signature]);
    let by_other = [&load[..], &["--signature", &signature]].concat();
    net.run_refused(&researcher, &by_other, &format!("given is signed by {key}"));
    net.run(&researcher, &load);
    let name = researcher.name_of("s");
    let loaded = net.testbed.part(&name, "modules", "mine");
    assert_eq!((&loaded["tier"], &loaded["back_end"]), (&json!("unmetered"), &json!("LLVM")), "{loaded}");
    net.testbed.send(&vec![udp(9, b"x"); 300]);
    net.testbed.until("all packets are processed", |testbed| testbed.count(&name, "mine", "records") == 300);
    assert_eq!(net.testbed.count(&name, "mine", "faults"), 0);
    net.testbed.until("the entry is written", |testbed| !entries(testbed, "module-loaded").is_empty());
    assert_eq!(entries(&net.testbed, "module-loaded")[0]["tier"], "unmetered");
    net.run(&researcher, &["unload", "s", "mine"]);
    net.run(&researcher, &["load", "s", &module]);
    assert_eq!(net.testbed.part(&name, "modules", "mine")["tier"], "metered");
    net.run(&researcher, &["unload", "s", "mine"]);

    // A right that the policy takes back ends the module's session, as other rights do.
    net.run(&researcher, &load);
    set_limit(&net, &policy, "");
    net.testbed.until("the session is closed", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().is_empty()
    });
    set_limit(&net, &policy, &unmetered);
    // In the node's own process, the module has no right that would be enough.
    net.run(&researcher, &[&CREATE[..], &["node"]].concat());
    net.run_refused(&researcher, &load, "only in a process of its own");
    net.run(&researcher, &["load", "s", &module]);
    assert!(net.testbed.stop().success());
}

#[test]
fn a_version_does_not_return_after_its_right_has_ended() {
    if !is_inside("unmetered::a_version_does_not_return_after_its_right_has_ended") || lacks_clang() {
        return;
    }
    let mut net = Net::new();
    let author = person(net.folder.path(), "author");
    let key = author.identity.public();
    let ceilings = Ceilings { memory: Some(Bytes(64 << 20)), ..modest_grant().ceilings };
    let grant = Grant { unmetered: [key].into(), ceilings, ..modest_grant() };
    let researcher = net.granted("researcher", grant);
    let policy = move_root_into_policy(&net);
    let older = file(&net, "older.wasm", &unbounded("mine"));
    sign(&author, &older, &[]);
    // The newer version needs no right, and traps at packets to port 7.
    let traps = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (if (i32.eq (i32.load16_u offset=46 (local.get $d)) (i32.const 7)) (then (unreachable)))
        (i32.const 0))"#;
    let newer = assemble(&text(traps), Some(MANIFEST.replace("NAME", "mine").as_bytes()));
    let newer = file(&net, "newer.wasm", &newer);
    let create: Vec<_> = CREATE.iter().map(|word| if *word == "12 MiB" { "48 MiB" } else { word }).collect();
    let name = |net: &Net| net.sessions()[0]["name"].as_str().unwrap().to_owned();
    let replace_and_trap = |net: &mut Net, limit_at_the_fault: &str| {
        set_limit(net, &policy, &format!("unmetered = [\"{key}\"]\n"));
        net.run(&researcher, &[&create[..], &["own"]].concat());
        net.run(&researcher, &["load", "s", &older, "--unmetered"]);
        net.run(&researcher, &["load", "s", &newer, "--replace", "--trial", "1h"]);
        assert_eq!(net.testbed.part(&name(net), "modules", "mine")["tier"], "proved");
        set_limit(net, &policy, limit_at_the_fault);
        net.testbed.send(&[udp(7, b"x")]);
    };
    let with_right = format!("unmetered = [\"{key}\"]\n");
    replace_and_trap(&mut net, &with_right);
    net.testbed.until("the older version is back", |testbed| {
        testbed.snapshot()["sessions"][0]["modules"][0]["tier"] == "unmetered"
    });
    net.run(&researcher, &["session", "close", "s"]);
    net.until_shares_are_free();
    replace_and_trap(&mut net, "");
    net.testbed.until("no version runs", |testbed| {
        testbed.snapshot()["sessions"][0]["modules"].as_array().unwrap().is_empty()
    });
    net.testbed.until("the reason is logged", |testbed| {
        testbed.log().contains("and the version before cannot run: the credential does not allow that")
    });
    assert!(net.testbed.stop().success());
}

#[test]
fn a_right_to_run_without_a_meter_is_never_passed_on() {
    if !is_inside("unmetered::a_right_to_run_without_a_meter_is_never_passed_on") || lacks_clang() {
        return;
    }
    let mut net = Net::new();
    let author = person(net.folder.path(), "author");
    let key = author.identity.public();
    let policy = move_root_into_policy(&net);
    set_limit(&net, &policy, &format!("unmetered = [\"{key}\"]\n"));
    let ceilings = Ceilings { cpu: Some(CpuShare(500_000)), sessions: Some(5), ..modest_grant().ceilings };
    let researcher = net.granted("researcher", Grant { unmetered: [key].into(), ceilings, ..modest_grant() });
    let student = net.delegated(&researcher, "student", Grant::default());
    let module = file(&net, "mine.wasm", &unbounded("mine"));
    sign(&author, &module, &[]);
    net.run(&student, &[&CREATE[..], &["own"]].concat());
    let load = ["load", "s", &module, "--unmetered"];
    net.run_refused(&student, &load, "given is none");
    net.run(&student, &["load", "s", &module]);
    // Nor does the delegator have the right in the delegate's session, which is compared with its owner's credential.
    net.run(&student, &["unload", "s", "mine"]);
    net.run(
        &student,
        &["session", "change", "s", "--share", &format!("manage={}", researcher.identity.public())],
    );
    let theirs = student.name_of("s");
    net.run_refused(&researcher, &["load", &theirs, &module, "--unmetered"], "given is none");
    assert!(net.testbed.stop().success());
}

/// The modules of session `bad` that have ended.
fn ended_of(testbed: &Testbed) -> serde_json::Value {
    let snapshot = testbed.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap();
    let bad = sessions.iter().find(|session| session["name"] == "bad").unwrap();
    bad.get("ended").cloned().unwrap_or_else(|| json!([]))
}

/// A start or a stop without an end takes no time from others, either.
#[test]
fn an_endless_start_and_stop_without_a_meter_end_soon() {
    if !is_inside("unmetered::an_endless_start_and_stop_without_a_meter_end_soon") || lacks_clang() {
        return;
    }
    let session = "[[session]]\nname = \"bad\"\nprocess = \"own\"\ncpu = [{ period = \"20ms\", slice = \"5ms\" }]\n\
                   channel = [{ interface = \"b\", filter = \"udp\" }]\n";
    let mut testbed = Testbed::new(session);
    let endless = |function: &str| {
        let body = format!(
            r#"(func (export "weir_packet") (param $d i32) (result i32) (i32.const 0))
            (func (export "{function}") (loop $l (br_if $l (i32.eqz (i32.load (i32.const 64))))) RESULT)"#
        );
        let (parameters, result) = match function {
            "weir_start" => ("(result i32)", "(i32.const 0)"),
            _ => ("(param i64)", ""),
        };
        let body = body.replace(&format!("\"{function}\")"), &format!("\"{function}\") {parameters}"));
        assemble(&text(&body.replace("RESULT", result)), Some(MANIFEST.replace("NAME", "endless").as_bytes()))
    };
    let spec = || json!({"module": "endless.wasm", "unmetered": true});
    let reply = testbed.load("bad", spec(), &endless("weir_start")).to_string();
    assert!(reply.contains("longer than a call without a meter may take"), "{reply}");
    let reply = testbed.load("bad", spec(), &endless("weir_stop"));
    assert!(reply["done"].is_object(), "{reply}");
    testbed.request(json!({"unload": {"session": "bad", "module": "endless"}}));
    testbed.until("the module is gone", |testbed| {
        testbed.snapshot()["sessions"][0]["modules"].as_array().unwrap().is_empty()
    });
    assert!(testbed.stop().success());
}

#[test]
fn an_endless_module_without_a_meter_keeps_to_its_share_and_ends() {
    if !is_inside("unmetered::an_endless_module_without_a_meter_keeps_to_its_share_and_ends") || lacks_clang()
    {
        return;
    }
    let sessions = "[[session]]\nname = \"good\"\ncpu = [{ period = \"20ms\", slice = \"2ms\", borrow = true }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", queue = 10000 }]\nmodule = [{ module = \"trajectory\" }]\n\
                    [[session]]\nname = \"bad\"\nprocess = \"own\"\ncpu = [{ period = \"20ms\", slice = \"1ms\" }]\n\
                    channel = [{ interface = \"b\", filter = \"udp\", queue = 10000 }]\n";
    let mut testbed = Testbed::new(sessions);
    let reply = testbed.load("bad", json!({"module": "mine.wasm", "unmetered": true}), &unbounded("mine"));
    assert!(reply["done"].is_object(), "{reply}");
    assert_eq!(testbed.part("bad", "modules", "mine")["tier"], "unmetered");
    testbed.send(&vec![udp(9, b"x"); 100]);
    testbed.until("it works", |testbed| testbed.count("bad", "mine", "records") == 100);
    testbed.send(&vec![udp(7, b"x"); 100]);
    testbed.send(&vec![udp(9, b"x"); 2000]);
    testbed.until("the good module has received all packets", |testbed| {
        testbed.count("good", "trajectory", "packets") == 2200
    });
    // The endless call is not over by then: it has 2 s of slices, of a twentieth of the core.
    assert_eq!(ended_of(&testbed), json!([]), "its call kept the core");
    testbed.until("the node has ended the module", |testbed| {
        ended_of(testbed)[0]["last_fault"].as_str().is_some_and(|fault| fault.contains("without a meter"))
    });
    assert_eq!(testbed.part("good", "channels", "main")["drops"], json!({}));
    assert!(testbed.stop().success());
}

#[test]
fn a_bundle_for_a_run_without_a_meter_runs_where_there_is_no_compiler() {
    let test = "unmetered::a_bundle_for_a_run_without_a_meter_runs_where_there_is_no_compiler";
    if !is_inside(test) {
        return;
    }
    let Some(files) = BundleFolder::new() else { return };
    let key = files.key("compiler.key");
    let sessions = session("here", "node") + &session("apart", "own");
    let mut testbed = Testbed::new(&(NO_COMPILER.to_owned() + &compiler(&key, TRUSTED) + &sessions));
    let metered = files.bundle(&unbounded("mine"), "compiler.key", &[]);
    let unmetered = files.bundle(&unbounded("mine"), "compiler.key", &["--unmetered"]);
    let refused = |session: &str, spec: serde_json::Value, bundle: &[u8], says: &str| {
        let reply = testbed.load(session, spec, bundle).to_string();
        assert!(reply.contains("refused") && reply.contains(says), "{says}: {reply}");
    };
    let without_meter = || json!({"module": "mine.weir", "unmetered": true});
    refused("apart", without_meter(), &metered, "the record states `tier` as");
    refused("apart", json!({"module": "mine.weir"}), &unmetered, "the record states `tier` as");
    refused("here", without_meter(), &unmetered, "only in a process of its own");
    let loaded = testbed.load("apart", without_meter(), &unmetered);
    assert!(loaded["done"].is_object(), "{loaded}");
    let module = testbed.part("apart", "modules", "mine");
    assert_eq!((&module["tier"], &module["compiled_by"]), (&json!("unmetered"), &json!([key])));
    testbed.send(&vec![udp(9, b"x"); 200]);
    testbed.until("all packets are processed", |testbed| testbed.count("apart", "mine", "records") == 200);
    // A proved module has no meter in any case, and stays proved.
    let proved = files.bundle(&counting_with("counter", 3), "compiler.key", &["--unmetered"]);
    let loaded = testbed.load("apart", json!({"module": "counter.weir", "unmetered": true}), &proved);
    assert!(loaded["done"].is_object(), "{loaded}");
    assert_eq!(testbed.part("apart", "modules", "counter")["tier"], "proved");
    assert!(testbed.stop().success());
}
