//! Sessions that requests have created come back after a restart of the node, if their right still holds.

use crate::module::{MANIFEST, assemble, text};
use crate::remote::{AT, Net, Person, SESSION, modest_grant, person, seconds_from_now};
use crate::testbed::{Testbed, is_inside, udp};
use rand_core::OsRng;
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_trust::credential::Credential;
use weir_trust::grant::Grant;
use weir_trust::revocation::RevocationList;

const CONFIGURED: &str = "[[session]]\nname = \"configured\"\nmemory = \"16 MiB\"\n\
    channel = [{ interface = \"b\" }]\nmodule = [{ module = \"port-count\" }]\n";
const HALF: [&str; 2] = ["--cpu", "period=10ms,slice=100us"];

/// A module that passes each packet.
fn module_bytes(name: &str) -> Vec<u8> {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32) (i32.const 0))"#;
    assemble(&text(body), Some(MANIFEST.replace("NAME", name).as_bytes()))
}

/// A folder's files with their modes and bytes, by path.
fn tree(folder: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let known = path.symlink_metadata().unwrap();
        if known.is_dir() {
            all.extend(tree(&path));
        } else {
            all.push((
                path.clone(),
                known.permissions().mode() & 0o7777,
                fs::read(&path).unwrap_or_default(),
            ));
        }
    }
    all.sort();
    all
}

fn saved(testbed: &Testbed, extension: &str) -> Vec<PathBuf> {
    let Ok(folder) = fs::read_dir(testbed.disk().join("sessions")) else { return Vec::new() };
    let mut all: Vec<PathBuf> = folder.map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|found| found == extension));
    all.sort();
    all
}

/// The file of the saved session whose node name begins with `name`.
fn file_of(testbed: &Testbed, name: &str) -> PathBuf {
    let is_it = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["session"]["name"].as_str().unwrap().starts_with(name)
    };
    saved(testbed, "session").into_iter().find(is_it).unwrap()
}

fn names(testbed: &Testbed) -> Vec<String> {
    let sessions = testbed.snapshot()["sessions"].as_array().unwrap().clone();
    sessions.iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
}

fn has_module(testbed: &Testbed, session: &str, module: &str) -> bool {
    let snapshot = testbed.snapshot();
    let sessions = snapshot["sessions"].as_array().unwrap().iter();
    let mut modules =
        sessions.filter(|it| it["name"] == session).flat_map(|it| it["modules"].as_array().unwrap());
    modules.any(|it| it["name"] == module && it["state"] == "running")
}

/// The outcome and reason of the node's decisions to restore sessions whose name begins with this.
fn decisions(testbed: &Testbed, session: &str) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let entries = testbed.ledger();
    let restore = entries.iter().filter(|entry| entry["kind"] == "decision" && entry["request"] == "restore");
    let of = restore.filter(|entry| text(&entry["session"]).starts_with(session));
    of.map(|entry| (text(&entry["outcome"]), text(&entry["reason"]))).collect()
}

fn command(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn sessions_of_the_configuration_the_operator_and_holders_come_back_also_after_a_kill() {
    if !is_inside(
        "restarts::sessions_of_the_configuration_the_operator_and_holders_come_back_also_after_a_kill",
    ) {
        return;
    }
    let mut net = Net::with_interface_lines(CONFIGURED);
    let bytes = module_bytes("passing");
    let file = net.folder.path().join("passing.wasm");
    fs::write(&file, &bytes).unwrap();
    let file = file.to_str().unwrap();
    net.testbed.request(
        json!({"create": {"name": "own", "channel": [{"interface": "b", "filter": "udp port 53"}]}}),
    );
    let loaded = net.testbed.load("own", json!({"module": "passing.wasm", "name": "first"}), &bytes);
    assert!(loaded.get("done").is_some(), "{loaded}");
    net.testbed.load("own", json!({"module": "port-count", "set": {"ports": "53"}}), &[]);

    let apart = json!({"name": "apart", "process": "own", "channel": [{"interface": "b"}]});
    net.testbed.request(json!({"create": apart}));
    let loaded = net.testbed.load("apart", json!({"module": "passing.wasm"}), &bytes);
    assert!(loaded.get("done").is_some(), "{loaded}");

    let researcher = net.granted("researcher", modest_grant());
    let student = net.delegated(&researcher, "student", Grant::default());
    net.run(&researcher, &[&SESSION[..], &HALF].concat());
    net.run(&researcher, &["load", "study", file, "--name", "mine"]);
    let share = format!("manage={}", researcher.identity.public());
    net.run(&student, &[&SESSION[..], &HALF, &["--share", &share]].concat());
    net.run(&student, &["load", "study", "port-count,ports=53"]);
    // A change, and a module that is unloaded again.
    net.run(&researcher, &["load", "study", "port-count"]);
    net.run(&researcher, &["unload", "study", "port-count"]);
    net.run(&researcher, &["session", "change", "study", "--channel", "name=more,interface=b,filter=tcp"]);
    let (of_student, of_researcher) = (student.name_of("study"), researcher.name_of("study"));
    let all = [
        ("configured", "port-count"),
        ("own", "first"),
        ("own", "port-count"),
        ("apart", "passing"),
        (&of_student, "port-count"),
        (&of_researcher, "mine"),
    ];
    // One file for the three sessions that have the same module.
    net.testbed.until("all is saved", |testbed| saved(testbed, "session").len() == 4);
    assert_eq!(saved(&net.testbed, "wasm").len(), 1);
    for (path, mode, _) in tree(&net.testbed.disk().join("sessions")) {
        assert_eq!(mode, 0o600, "{}", path.display());
    }
    let folder = net.testbed.disk().join("sessions").metadata().unwrap();
    assert_eq!(folder.permissions().mode() & 0o7777, 0o700);

    for is_killed in [false, true] {
        // A change is written within a second.
        std::thread::sleep(std::time::Duration::from_millis(1500));
        if is_killed {
            net.testbed.kill();
        } else {
            assert!(net.testbed.stop().success());
        }
        net.testbed.start();
        // The sessions are there before the first request is answered.
        assert_eq!(names(&net.testbed).len(), 5, "{}", net.testbed.log());
        for (session, module) in all {
            net.testbed.until("its module runs", |testbed| has_module(testbed, session, module));
        }
        net.testbed.send(&[udp(53, b"one"), udp(53, b"two")]);
        for (session, module) in all {
            net.testbed.until("it counts", |testbed| testbed.count(session, module, "packets") >= 2);
        }
        assert!(!has_module(&net.testbed, &of_researcher, "port-count"));
        assert_eq!(net.testbed.part(&of_researcher, "channels", "more")["name"], "more");
    }
    // Each by its name, over the network, and with the share.
    let listed = net.run(&researcher, &["session", "list"]);
    assert!(listed.contains("study") && listed.contains(&of_student[..20]), "{listed}");
    net.run(&researcher, &["unload", &of_student, "port-count"]);
    // Its processor time is charged, also for compiling.
    net.testbed.until("it is charged", |testbed| testbed.ledger_usage(&of_researcher, "compile_ns") > 0);
    for session in ["own", &of_student, &of_researcher] {
        net.testbed.until("it is in the ledger", |testbed| {
            decisions(testbed, session).iter().filter(|(outcome, _)| outcome == "allowed").count() == 2
        });
    }
    // The student's session ends with the last one of its delegator, as before the restart. No closed session has a file.
    net.run(&researcher, &["session", "close", "study"]);
    net.testbed.request(json!({"close": {"session": "own"}}));
    net.testbed.request(json!({"close": {"session": "apart"}}));
    net.testbed.until("the student's session is closed", |testbed| names(testbed) == ["configured"]);
    net.testbed.until("no file is left", |testbed| saved(testbed, "session").is_empty());
    assert_eq!((saved(&net.testbed, "session").len(), saved(&net.testbed, "wasm").len()), (0, 0));
    assert!(net.testbed.stop().success());
    net.testbed.start();
    assert_eq!(names(&net.testbed), ["configured"]);
    assert!(net.testbed.stop().success());
}

#[test]
fn a_session_without_a_right_now_is_not_restored_and_its_file_is_removed() {
    if !is_inside("restarts::a_session_without_a_right_now_is_not_restored_and_its_file_is_removed") {
        return;
    }
    let mut net = Net::new();
    let short = net.granted("short", Grant { expires: Some(seconds_from_now(20)), ..modest_grant() });
    let revoked = net.granted("revoked", modest_grant());
    let limited = person(net.folder.path(), "limited");
    let fine = net.granted("fine", modest_grant());
    // A root with a limit, which is made narrower while the node is stopped.
    let university = person(net.folder.path(), "university");
    let credential =
        Credential::mint(&university.identity, limited.identity.public(), modest_grant(), None, &mut OsRng)
            .unwrap();
    fs::write(&limited.credential, credential.to_string()).unwrap();
    let policy = net.folder.path().join("policy.d");
    fs::create_dir_all(policy.join("roots")).unwrap();
    let limit = |memory: &str| {
        let text = format!("key = \"{}\"\n[limit]\nmemory = \"{memory}\"\n", university.identity.public());
        fs::write(policy.join("roots/university.toml"), text).unwrap();
    };
    limit("32 MiB");
    let before = fs::read_to_string(net.testbed.config()).unwrap();
    let with_policy = format!("{before}\n[policy]\ndir = \"{}\"\n", policy.display());
    fs::write(net.testbed.config(), &with_policy).unwrap();
    net.testbed.request(json!("reload"));
    for holder in [&short, &revoked, &limited, &fine] {
        net.run(holder, &[&SESSION[..], &HALF].concat());
        net.run(holder, &["load", "study", "port-count,ports=53"]);
    }
    net.testbed.until("all are saved", |testbed| saved(testbed, "session").len() == 4);
    std::thread::sleep(std::time::Duration::from_millis(1500));
    net.testbed.kill();

    limit("4 MiB");
    let own: Credential = fs::read_to_string(&revoked.credential).unwrap().parse().unwrap();
    let id = own.claimed_blocks().last().unwrap().id;
    let list = RevocationList::sign(&net.operator.identity, 1, seconds_from_now(0), [id].into()).unwrap();
    let file = net.folder.path().join("list");
    fs::write(&file, list.to_string()).unwrap();
    let with_list =
        with_policy.replace("[remote]\n", &format!("[remote]\nrevocations = [\"{}\"]\n", file.display()));
    fs::write(net.testbed.config(), with_list).unwrap();
    while seconds_from_now(0) < own_expiry(&short) {
        std::thread::sleep(std::time::Duration::from_millis(200));
    }
    net.testbed.start();
    assert_eq!(names(&net.testbed), [fine.name_of("study")]);
    net.testbed.until("its module runs", |testbed| has_module(testbed, &fine.name_of("study"), "port-count"));
    for (holder, why) in [(&short, "expired"), (&revoked, "revoked"), (&limited, "memory")] {
        let name = holder.name_of("study");
        let line = format!("session {name} is not restored: ");
        let log = net.testbed.log();
        let said: Vec<&str> = log.lines().filter(|said| said.contains(&line)).collect();
        assert!(said.len() == 1 && said[0].contains(why), "{why}: {log}");
        net.testbed.until("it is in the ledger", |testbed| {
            let refused = decisions(testbed, &name);
            refused.iter().any(|(outcome, reason)| outcome == "refused" && reason.contains(why))
        });
    }
    assert_eq!(saved(&net.testbed, "session").len(), 1);
    // A session that ends while the node runs has no file either.
    let root = net.operator.identity.public().to_string();
    let other = person(net.folder.path(), "other").identity.public().to_string();
    fs::write(net.testbed.config(), with_policy.replace(&root, &other)).unwrap();
    net.testbed.request(json!("reload"));
    net.testbed.until("its file is removed", |testbed| saved(testbed, "session").is_empty());
    assert!(net.testbed.stop().success());
}

fn own_expiry(person: &Person) -> weir_trust::grant::UnixSecond {
    let credential: Credential = fs::read_to_string(&person.credential).unwrap().parse().unwrap();
    credential.claimed_blocks().last().unwrap().grant.expires.unwrap()
}

#[test]
fn sessions_of_holders_are_not_restored_after_two_starts_that_end_in_a_crash() {
    if !is_inside("restarts::sessions_of_holders_are_not_restored_after_two_starts_that_end_in_a_crash") {
        return;
    }
    let mut net = Net::new();
    net.testbed.request(json!({"create": {"name": "own", "channel": [{"interface": "b"}]}}));
    let researcher = net.granted("researcher", modest_grant());
    net.run(&researcher, &SESSION);
    net.testbed.until("both are saved", |testbed| saved(testbed, "session").len() == 2);
    let name = researcher.name_of("study");
    // The first crash is not one of a start that has restored sessions.
    for expected in [2, 2, 1] {
        net.testbed.kill();
        net.testbed.start();
        assert_eq!(names(&net.testbed).len(), expected, "{}", net.testbed.log());
    }
    assert_eq!(names(&net.testbed), ["own"]);
    let log = net.testbed.log();
    assert!(
        log.contains("the node has crashed soon after each of its last starts, so 1 saved sessions"),
        "{log}"
    );
    net.testbed.until("it is in the ledger", |testbed| {
        decisions(testbed, &name).iter().any(|(outcome, why)| outcome == "refused" && why.contains("crashed"))
    });
    // The holder can create it again, and nothing is lost: a stop in order ends the guard.
    assert!(net.testbed.stop().success());
    net.testbed.start();
    assert_eq!(names(&net.testbed).len(), 2);
    net.run_refused(&researcher, &SESSION, "already");
    assert!(net.testbed.stop().success());
}

#[test]
fn damaged_and_foreign_files_of_sessions_never_stop_a_start() {
    if !is_inside("restarts::damaged_and_foreign_files_of_sessions_never_stop_a_start") {
        return;
    }
    let mut testbed = Testbed::new("");
    let create = |testbed: &Testbed, name: &str| {
        testbed
            .request(json!({"create": {"name": name, "memory": "8 MiB", "channel": [{"interface": "b"}]}}));
        testbed.load(name, json!({"module": "m.wasm"}), &module_bytes(name));
    };
    let hurt = [
        "truncated",
        "long",
        "link",
        "foreign",
        "second",
        "other-name",
        "no-module",
        "bad-module",
        "hostile",
    ];
    ["fine"].iter().chain(&hurt).for_each(|name| create(&testbed, name));
    assert_eq!(saved(&testbed, "session").len(), 10);
    assert!(testbed.stop().success());

    let file = |name: &str| file_of(&testbed, name);
    let text = |name: &str| fs::read_to_string(file(name)).unwrap();
    let [truncated, long, link, foreign, second, other, hostile] =
        ["truncated", "long", "link", "foreign", "second", "other-name", "hostile"].map(file);
    let module_of = |name: &str| {
        let saved: Value = serde_json::from_str(&text(name)).unwrap();
        let hash = saved["modules"][0]["file"].as_str().unwrap().to_owned();
        testbed.disk().join("sessions").join(format!("{hash}.wasm"))
    };
    let [no_module, bad_module] = ["no-module", "bad-module"].map(module_of);
    let strange = text("hostile").replace("\"interface\":\"b\"", "\"interface\":\"../../etc\"");
    let all = fs::read(&truncated).unwrap();
    fs::write(&truncated, &all[..all.len() / 2]).unwrap();
    fs::write(&long, vec![b' '; 64 << 20]).unwrap();
    let elsewhere = testbed.path().join("elsewhere");
    fs::rename(&link, &elsewhere).unwrap();
    symlink(&elsewhere, &link).unwrap();
    std::os::unix::fs::chown(&foreign, Some(12345), Some(12345)).unwrap();
    fs::hard_link(&second, testbed.path().join("second")).unwrap();
    fs::rename(&other, other.with_file_name(format!("{}.session", "0".repeat(64)))).unwrap();
    fs::write(&hostile, strange).unwrap();
    fs::remove_file(&no_module).unwrap();
    fs::write(&bad_module, module_bytes("another")).unwrap();
    fs::write(testbed.disk().join("sessions/starts"), [0xff; 100]).unwrap();
    fs::create_dir(testbed.disk().join("sessions/0.session")).unwrap();
    fs::write(testbed.disk().join("sessions/x.wasm"), b"").unwrap();

    testbed.start();
    testbed.until("the sound one runs", |testbed| has_module(testbed, "fine", "fine"));
    testbed.until("no module is waited for", |testbed| {
        testbed.log().contains("1 of 3 modules of restored sessions run")
    });
    let mut there = names(&testbed);
    there.sort();
    assert_eq!(there, ["bad-module", "fine", "no-module"], "{}", testbed.log());
    let log = testbed.log();
    assert_eq!(log.matches("a saved session is not restored: ").count(), 7, "{log}");
    assert!(log.contains("session hostile is not restored: "), "{log}");
    assert_eq!(fs::read(&elsewhere).unwrap().first(), Some(&b'{'), "the target of a link is left alone");
    assert!(testbed.stop().success());

    // A folder that is a link, or of another user.
    let sessions = testbed.disk().join("sessions");
    fs::rename(&sessions, testbed.path().join("sessions")).unwrap();
    symlink(testbed.path().join("sessions"), &sessions).unwrap();
    testbed.start();
    assert!(testbed.log().contains("sessions are neither saved nor restored"), "{}", testbed.log());
    assert!(names(&testbed).is_empty());
    create(&testbed, "unsaved");
    assert!(testbed.stop().success());
    fs::remove_file(&sessions).unwrap();
    testbed.start();
    assert!(names(&testbed).is_empty());
    assert!(testbed.stop().success());
}

#[test]
fn sessions_are_not_kept_if_the_configuration_says_so() {
    if !is_inside("restarts::sessions_are_not_kept_if_the_configuration_says_so") {
        return;
    }
    let mut testbed = Testbed::new("");
    testbed.request(json!({"create": {"name": "own", "channel": [{"interface": "b"}]}}));
    testbed.load("own", json!({"module": "m.wasm"}), &module_bytes("m"));
    assert!(testbed.stop().success());
    assert_eq!((saved(&testbed, "session").len(), saved(&testbed, "wasm").len()), (1, 1));
    let config = fs::read_to_string(testbed.config()).unwrap();
    fs::write(testbed.config(), config.replace("[node]\n", "[node]\nrestore = false\n")).unwrap();
    testbed.start();
    assert!(
        testbed.log().contains("1 saved sessions are removed, as `restore` is false"),
        "{}",
        testbed.log()
    );
    assert!(names(&testbed).is_empty());
    testbed.request(json!({"create": {"name": "own", "channel": [{"interface": "b"}]}}));
    assert!(testbed.stop().success());
    assert_eq!((saved(&testbed, "session").len(), saved(&testbed, "wasm").len()), (0, 0));
}

#[test]
fn the_state_of_a_later_version_is_refused_and_nothing_in_it_changes() {
    if !is_inside("restarts::the_state_of_a_later_version_is_refused_and_nothing_in_it_changes") {
        return;
    }
    let mut testbed = Testbed::new(CONFIGURED);
    testbed.request(json!({"create": {"name": "own", "channel": [{"interface": "b"}]}}));
    assert!(testbed.stop().success());
    let version = testbed.disk().join("version");
    let own = fs::read_to_string(&version).unwrap();
    assert_eq!(own, format!("weir state 1\nweir {}\n", env!("CARGO_PKG_VERSION")));
    fs::write(&version, "weir state 2\nweir 9.1.0\nand more\n").unwrap();
    let before = tree(&testbed.disk());
    let config = testbed.config();
    for arguments in [["node", "-c", config.to_str().unwrap()], ["config", "check", config.to_str().unwrap()]]
    {
        let (is_done, said) = command(&arguments);
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        let says = format!(
            "weir 9.1.0 has used this state folder, in format 2; this is weir {}",
            env!("CARGO_PKG_VERSION")
        );
        assert!(!is_done && words.contains(&says) && words.contains("start weir 9.1.0 or later"), "{said}");
        assert!(tree(&testbed.disk()) == before, "{arguments:?} has changed the folder");
    }
    // Also a version that cannot be read: a later one may have written it.
    fs::write(&version, "").unwrap();
    let (is_done, said) = command(&["node", "-c", config.to_str().unwrap()]);
    assert!(!is_done && said.contains("damaged"), "{said}");
    // The message's advice.
    fs::remove_file(&version).unwrap();
    testbed.start();
    assert_eq!(fs::read_to_string(&version).unwrap(), own);
    assert_eq!(names(&testbed), ["configured", "own"]);
    assert!(testbed.stop().success());
}

/// The address with these keys.
fn address(keys: &[&Person]) -> String {
    let keys: Vec<String> = keys.iter().map(|person| person.identity.public().to_string()).collect();
    format!("{}@{AT}", keys.join(","))
}

#[test]
fn the_keys_of_a_root_an_operator_and_the_node_are_replaced_with_an_overlap() {
    if !is_inside("restarts::the_keys_of_a_root_an_operator_and_the_node_are_replaced_with_an_overlap") {
        return;
    }
    let mut net = Net::new();
    let path = net.folder.path().to_owned();
    let [new_root, old_admin, new_admin, new_node] =
        ["new-root", "old-admin", "new-admin", "new-node"].map(|name| person(&path, name));
    let base = fs::read_to_string(net.testbed.config()).unwrap();
    let old_root = net.operator.identity.public();
    let configure = |net: &Net, roots: &[String], operators: &[&Person], key: &Path| {
        let quoted =
            |keys: Vec<String>| keys.iter().map(|key| format!("\"{key}\"")).collect::<Vec<_>>().join(", ");
        let operators = quoted(operators.iter().map(|person| person.identity.public().to_string()).collect());
        let list = format!("roots = [\"{old_root}\"]");
        assert!(base.contains(&list));
        let text =
            base.replace(&list, &format!("roots = [{}]\noperators = [{operators}]", quoted(roots.to_vec())));
        let text = text.replace(&net.key.display().to_string(), &key.display().to_string());
        fs::write(net.testbed.config(), text).unwrap();
    };
    let (old, new) = (old_root.to_string(), new_root.identity.public().to_string());
    let old_key = net.key.clone();
    configure(&net, std::slice::from_ref(&old), &[&old_admin], &old_key);
    net.testbed.request(json!("reload"));
    let holder = net.granted("holder", modest_grant());
    net.run(&holder, &[&SESSION[..], &HALF].concat());
    net.run(&holder, &["load", "study", "port-count,ports=53"]);

    // The root: both count, and the holder's new credential makes a session beside the old one.
    configure(&net, &[old.clone(), new.clone()], &[&old_admin, &new_admin], &old_key);
    net.testbed.request(json!("reload"));
    let grant = modest_grant();
    let again = Person {
        identity: weir_trust::key::KeyFile::parse(&fs::read_to_string(&holder.key).unwrap())
            .unwrap()
            .open(None)
            .unwrap(),
        key: holder.key.clone(),
        credential: path.join("again.credential"),
    };
    let credential =
        Credential::mint(&new_root.identity, again.identity.public(), grant, None, &mut OsRng).unwrap();
    fs::write(&again.credential, credential.to_string()).unwrap();
    net.run(&again, &[&SESSION[..], &HALF].concat());
    net.run(&again, &["load", "study", "port-count,ports=53"]);
    let (before, after) = (holder.name_of("study"), again.name_of("study"));
    net.testbed.send(&[udp(53, b"both")]);
    for session in [&before, &after] {
        net.testbed.until("it counts", |testbed| testbed.count(session, "port-count", "packets") > 0);
    }
    // Operators: both have all rights, also after a restart.
    let operator = |person: &Person, keys: &[&Person], arguments: &[&str]| {
        let at = address(keys);
        let by = ["--node", &at, "--key", person.key.to_str().unwrap()];
        command(&[arguments, &by].concat())
    };
    let node = Person {
        identity: weir_trust::key::KeyFile::parse(&fs::read_to_string(&net.key).unwrap())
            .unwrap()
            .open(None)
            .unwrap(),
        key: net.key.clone(),
        credential: PathBuf::new(),
    };
    for admin in [&old_admin, &new_admin] {
        let (is_done, said) = operator(admin, &[&node], &["session", "list"]);
        assert!(is_done && said.contains("study"), "{said}");
    }
    // The old keys go. What the old root has signed is revoked, so that it does not count again by mistake.
    let list = path.join("all");
    let (is_done, said) = command(&[
        "credential",
        "revoke",
        "--all-before",
        &seconds_from_now(60).to_string(),
        "--key",
        net.operator.key.to_str().unwrap(),
        "--list",
        list.to_str().unwrap(),
        "--node",
        &address(&[&node]),
    ]);
    assert!(is_done, "{said}");
    configure(&net, std::slice::from_ref(&new), &[&new_admin], &old_key);
    net.testbed.request(json!("reload"));
    net.testbed
        .until("the sessions of the old root have ended", |testbed| names(testbed) == [after.as_str()]);
    net.run_refused(&holder, &["session", "list"], "root");
    let (is_done, said) = operator(&old_admin, &[&node], &["session", "list"]);
    assert!(!is_done && said.contains("without a credential"), "{said}");
    assert!(operator(&new_admin, &[&node], &["session", "list"]).0);
    configure(&net, &[old.clone(), new.clone()], &[&new_admin], &old_key);
    net.testbed.request(json!("reload"));
    net.run_refused(&holder, &["session", "list"], "revoked");

    // The node: clients know both keys before it changes, and its sessions come back.
    let both: [&Person; 2] = [&node, &new_node];
    assert!(operator(&new_admin, &both, &["session", "list"]).0);
    configure(&net, std::slice::from_ref(&new), &[&new_admin], &new_node.key);
    let (is_done, said) = operator(&new_admin, &both, &["reload"]);
    assert!(!is_done && said.contains("restart"), "{said}");
    assert!(net.testbed.stop().success());
    net.testbed.start();
    let (is_done, said) = operator(&new_admin, &both, &["session", "list"]);
    assert!(is_done && said.contains("study"), "{said}");
    assert!(operator(&new_admin, &[&new_node], &["session", "list"]).0);
    let (is_done, said) = operator(&new_admin, &[&node], &["session", "list"]);
    assert!(!is_done && said.contains("key"), "{said}");
    net.node = new_node.identity.public();
    net.testbed.until("its module runs", |testbed| has_module(testbed, &after, "port-count"));
    net.run(&again, &["session", "show", "study"]);
    assert!(net.testbed.stop().success());
}
