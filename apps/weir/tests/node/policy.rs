//! An operator's policy: roots of trust that may grant a part, what was taken back, and what the ledger says of decisions.

use crate::place::is_inside;
use crate::remote::{AT, Net, Person, SESSION, modest, person, seconds_from_now};
use rand_core::OsRng;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_trust::credential::{Credential, PrefixId};
use weir_trust::grant::{Ceilings, Grant};
use weir_trust::key::Identity;
use weir_trust::revocation::RevocationList;
use weir_units::Bytes;

const HALF: [&str; 2] = ["--cpu", "period=10ms,slice=100us"];

/// A program that needs no node, or names one itself.
fn weir(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    for variable in ["WEIR_KEY", "WEIR_PASSPHRASE_FILE", "WEIR_NODE", "WEIR_CREDENTIAL", "WEIR_SOCKET"] {
        command.env_remove(variable);
    }
    command.args(arguments).output().unwrap()
}

fn said(arguments: &[&str]) -> String {
    let output = weir(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn complained(arguments: &[&str]) -> String {
    let output = weir(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// What `operator` grants a new person.
fn granted_by(net: &Net, operator: &Identity, name: &str, grant: Grant) -> Person {
    let person = person(net.folder.path(), name);
    let credential = Credential::mint(operator, person.identity.public(), grant, &mut OsRng).unwrap();
    std::fs::write(&person.credential, credential.to_string()).unwrap();
    person
}

fn id_of(person: &Person) -> PrefixId {
    let credential: Credential = std::fs::read_to_string(&person.credential).unwrap().parse().unwrap();
    credential.claimed_links().last().unwrap().id
}

fn list_of(root: &Identity, number: u64, of: &[&Person]) -> String {
    let ids = of.iter().map(|person| id_of(person)).collect();
    RevocationList::sign(root, number, seconds_from_now(0), ids).unwrap().to_string()
}

/// Has the node take a folder as its policy. It has nothing in it yet.
fn with_policy(net: &Net) -> PathBuf {
    let folder = net.folder.path().join("policy.d");
    for part in ["profiles", "roots", "revoked"] {
        std::fs::create_dir_all(folder.join(part)).unwrap();
    }
    let config = std::fs::read_to_string(net.place.config()).unwrap();
    let config = format!("{config}\n[policy]\ndir = \"{}\"\n", folder.display());
    std::fs::write(net.place.config(), config).unwrap();
    net.place.done(json!("reload"));
    folder
}

fn write(folder: &Path, file: &str, text: &str) {
    let new = folder.join(".new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, folder.join(file)).unwrap();
}

fn names(net: &Net) -> Vec<String> {
    net.sessions().iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn another_organisations_root_may_grant_a_part_and_no_more() {
    if !is_inside("policy::another_organisations_root_may_grant_a_part_and_no_more") {
        return;
    }
    let mut net = Net::new();
    let university = Identity::generate(&mut OsRng);
    let wide =
        Grant { ceilings: Ceilings { memory: Some(Bytes(1 << 30)), ..Ceilings::default() }, ..modest() };
    let alice = granted_by(&net, &university, "alice", wide.clone());
    let bob = granted_by(&net, &university, "bob", wide);
    net.refused(&alice, &SESSION, "root");

    let folder = with_policy(&net);
    let root = |limit: &str| {
        let text = format!("key = \"{}\"\n[limit]\n{limit}", university.public());
        write(&folder, "roots/university.toml", &text);
    };
    write(&folder, "profiles/strict.toml", "tiers = [\"proved\"]\n");
    let limit = "profiles = [\"strict\"]\ninterfaces = [\"b\"]\nfilter = \"udp\"\nmemory = \"12 MiB\"\ncpu = \"10%\"\n";
    root(limit);
    net.place.done(json!("reload"));

    // What one asks for is held against the limit, and so is what all of them have together.
    net.refused(
        &alice,
        &["session", "create", "s", "--memory", "13 MiB", HALF[0], HALF[1]],
        "memory: asked for 13 MiB; of the 12 MiB given to all credentials of",
    );
    net.refused(&alice, &[&SESSION[..], &["--profile", "strictest"]].concat(), "profile");
    root(&limit.replace("[\"b\"]", "[\"c\"]"));
    net.place.done(json!("reload"));
    net.refused(&alice, &SESSION, "interfaces: asked for b, given is c");
    root(limit);
    net.place.done(json!("reload"));
    net.done(&alice, &[&SESSION[..], &HALF].concat());
    net.refused(
        &bob,
        &["session", "create", "s", "--memory", "5 MiB", HALF[0], HALF[1]],
        "memory: asked for 5 MiB; of the 12 MiB given to all credentials of",
    );
    net.done(&bob, &["session", "create", "s", "--memory", "4 MiB", HALF[0], HALF[1]]);
    // Its packets are those of the limit's filter, and its modules are admitted by its profile.
    let shown = net.done(&alice, &["session", "show", "study", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["channels"][0]["name"], "main");
    net.refused(&alice, &["load", "study", "payload-match,patterns=x"], "");

    // What is wrong with a file is said, with its place, and nothing has changed.
    for (file, text, says) in [
        ("roots/university.toml", "key = \"weir-key:x\"\n", "university.toml:1: "),
        ("roots/more.toml", "\n\nkey = 5\n", "more.toml:3: "),
        ("roots/more.txt", "", "Rename it"),
        ("stray", "", "nothing in a policy is called so"),
        ("profiles/strict.toml", "tires = []", "no key `tires`"),
        ("revoked/list", "weir revocation list 9", "no revocation list"),
    ] {
        let before = std::fs::read_to_string(folder.join(file)).ok();
        write(&folder, file, text);
        let why = net.place.refused(json!("reload"));
        assert!(why.contains(says), "{file}: {why}");
        match before {
            Some(before) => write(&folder, file, &before),
            None => std::fs::remove_file(folder.join(file)).unwrap(),
        }
    }
    assert_eq!(names(&net).len(), 2);

    // With less for all of them the one that came last ends; with nothing, the other one.
    root(&limit.replace("12 MiB", "8 MiB"));
    net.place.done(json!("reload"));
    net.place
        .until("the last one has ended", |place| place.snapshot()["sessions"].as_array().unwrap().len() == 1);
    assert_eq!(names(&net), [alice.name_of("study")]);
    net.refused(&alice, &["session", "change", "study", "--memory", "9 MiB"], "of the 8 MiB given to all");
    // Modules that run are held against it, too: with those that may not any more their session ends.
    net.done(&alice, &["load", "study", "port-count"]);
    root(&(limit.replace("12 MiB", "8 MiB") + "modules = [\"port-count\"]\n"));
    net.place.done(json!("reload"));
    net.refused(&alice, &["load", "study", "rtt"], "modules: asked for `rtt`");
    assert_eq!(names(&net), [alice.name_of("study")]);
    root(&(limit.replace("12 MiB", "8 MiB") + "modules = [\"rtt\"]\n"));
    net.place.done(json!("reload"));
    net.place.until("it has ended", |place| place.snapshot()["sessions"].as_array().unwrap().is_empty());
    root(limit);
    net.place.done(json!("reload"));
    net.done(&alice, &[&SESSION[..], &HALF].concat());
    std::fs::remove_file(folder.join("roots/university.toml")).unwrap();
    net.place.done(json!("reload"));
    net.place.until("none is left", |place| place.snapshot()["sessions"].as_array().unwrap().is_empty());
    assert!(net.place.stop().success());
}

#[test]
fn what_was_taken_back_holds_at_once_whoever_delivers_it_and_after_a_restart() {
    if !is_inside("policy::what_was_taken_back_holds_at_once_whoever_delivers_it_and_after_a_restart") {
        return;
    }
    let mut net = Net::new();
    let (alice, bob) = (net.granted("alice", modest()), net.granted("bob", modest()));
    net.done(&alice, &[&SESSION[..], &HALF].concat());
    net.done(&bob, &[&SESSION[..], &HALF].concat());
    let node = format!("{}@{AT}", net.node);
    let file = |name: &str, text: &str| {
        let path = net.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    // By somebody who has nothing but the list.
    let second = file("second", &list_of(&net.operator.identity, 2, &[&alice]));
    let told = said(&["credential", "deliver", &second, "--node", &node]);
    assert!(told.contains("revocation list 2 of") && told.contains("with 1 taken back"), "{told}");
    net.place.until("hers has ended", |place| place.snapshot()["sessions"].as_array().unwrap().len() == 1);
    net.refused(&alice, &["session", "list"], "revoked");
    // Again it changes nothing; one with a lower number adds what it has; a forged one, and one of a stranger, change nothing.
    assert!(said(&["credential", "deliver", &second, "--node", &node]).contains("known already"));
    let first = file("first", &list_of(&net.operator.identity, 1, &[]));
    assert!(said(&["credential", "deliver", &first, "--node", &node]).contains("known already"));
    let stranger = Identity::generate(&mut OsRng);
    let theirs = file("theirs", &list_of(&stranger, 9, &[&bob]));
    assert!(
        complained(&["credential", "deliver", &theirs, "--node", &node]).contains("no root of trust here")
    );
    net.refused(&alice, &["session", "list"], "revoked");
    net.done(&bob, &["session", "list"]);

    // The node remembers, though no file says so.
    assert!(net.place.stop().success());
    net.place.start();
    net.refused(&alice, &["session", "list"], "revoked");
    net.done(&bob, &["session", "list"]);
    // An older list in the configuration gives nothing back; and a file that changes is noticed.
    let folder = with_policy(&net);
    write(&folder, "revoked/operator", &list_of(&net.operator.identity, 1, &[]));
    net.place.done(json!("reload"));
    net.refused(&alice, &["session", "list"], "revoked");
    net.done(&bob, &[&SESSION[..], &HALF].concat());
    write(&folder, "revoked/operator", &list_of(&net.operator.identity, 3, &[&alice, &bob]));
    net.place.until("it is noticed", |place| place.snapshot()["sessions"].as_array().unwrap().is_empty());
    net.refused(&bob, &["session", "list"], "revoked");
    // Signed and delivered in one step, over the node's own socket, too.
    let carol = net.granted("carol", modest());
    let (list, key) =
        (folder.join("revoked/operator").display().to_string(), net.operator.key.display().to_string());
    let told = said(&[
        "credential",
        "revoke",
        carol.credential.to_str().unwrap(),
        "--key",
        &key,
        "--list",
        &list,
        "--node",
        &node,
    ]);
    assert!(told.contains("revocation list 4"), "{told}");
    net.refused(&carol, &["session", "list"], "revoked");
    let socket = net.place.path().join("node.sock").display().to_string();
    assert!(said(&["credential", "deliver", &list, "--socket", &socket]).contains("known already"));
    assert!(net.place.stop().success());
}

#[test]
fn sessions_end_with_the_last_one_of_whom_their_owner_has_his_right_from() {
    if !is_inside("policy::sessions_end_with_the_last_one_of_whom_their_owner_has_his_right_from") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings { sessions: None, ..modest().ceilings };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest() });
    let student = net.delegated(&researcher, "student", Grant::default());
    let friend = net.delegated(&student, "friend", Grant::default());
    let other = net.granted("other", modest());
    let create = |who: &Person, name: &str| {
        net.done(who, &["session", "create", name, "--memory", "1 MiB", HALF[0], HALF[1]]);
    };
    create(&other, "o");
    create(&student, "before");
    create(&researcher, "first");
    create(&student, "s");
    create(&friend, "f");
    create(&researcher, "second");
    // As long as there is one, nothing happens.
    net.done(&researcher, &["session", "close", "first"]);
    assert_eq!(names(&net).len(), 5);
    net.done(&researcher, &["session", "close", "second"]);
    let left = names(&net);
    let expected = [other.name_of("o"), student.name_of("before")];
    assert!(left.len() == 2 && expected.iter().all(|name| left.contains(name)), "{left:?}");
    assert!(net.place.stop().success());
    let closed: Vec<Value> =
        net.place.ledger().into_iter().filter(|e| e["kind"] == "session-closed").collect();
    let parents = closed.iter().filter(|entry| entry["reason"] == "parent");
    let mut ended: Vec<&str> = parents.filter_map(|entry| entry["session"]["name"].as_str()).collect();
    ended.sort_unstable();
    let mut expected = [student.name_of("s"), friend.name_of("f")];
    expected.sort_unstable();
    assert_eq!(ended, expected);
    let state = net.place.path().join("state").display().to_string();
    let decisions = said(&["ledger", &state, "--decisions", "--csv"]);
    let ends: Vec<&str> =
        decisions.lines().filter(|line| line.contains("(end)") && line.contains("from whom")).collect();
    assert!(
        ends.len() == 2 && expected.iter().all(|name| ends.iter().any(|end| end.contains(name))),
        "{decisions}"
    );
}

#[test]
fn every_decision_is_in_the_ledger_and_a_flood_of_them_does_not_fill_it() {
    if !is_inside("policy::every_decision_is_in_the_ledger_and_a_flood_of_them_does_not_fill_it") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest());
    let student = net.delegated(&researcher, "student", Grant::default());
    net.done(&student, &[&SESSION[..], &HALF].concat());
    net.refused(&student, &["session", "create", "more", "--memory", "1 GiB", HALF[0], HALF[1]], "memory");
    net.refused(&student, &["reload"], "only the node's operator");
    // The right is there, and the module is not.
    net.refused(&student, &["load", "study", "rtt", "--channel", "none"], "no channel");
    // Somebody with another operator's credential, again and again, and with a new key each time.
    let mut strangers = Vec::new();
    for n in 0..12 {
        let theirs = Identity::generate(&mut OsRng);
        let stranger = granted_by(&net, &theirs, &format!("stranger-{n}"), modest());
        let output = net.weir(&stranger, &["session", "list"]);
        strangers.push(String::from_utf8(output.stderr).unwrap());
        assert!(!output.status.success());
    }
    net.done(&student, &["session", "close", "study"]);
    assert!(net.place.stop().success());

    let state = net.place.path().join("state").display().to_string();
    let rows = said(&["ledger", &state, "--decisions", "--json"]);
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    let ids: Vec<String> = [&researcher, &student].iter().map(|who| id_of(who).to_string()).collect();
    // Identifiers stand with the times at which the credentials expire.
    let undated = |row: &Value| -> Vec<String> {
        let dated = row["credentials"].as_str().unwrap_or_default().split(' ');
        dated.map(|id| id.split('@').next().unwrap_or_default().to_owned()).collect()
    };
    let by_student = |request: &str, outcome: &str| {
        let is_it = |row: &&Value| {
            row["request"] == request
                && row["outcome"] == outcome
                && row["key"] == student.identity.public().to_string()
                && undated(row) == ids
        };
        let found: Vec<&Value> = rows.iter().filter(is_it).collect();
        assert_eq!(found.len(), 1, "{request} {outcome}: {rows:?}");
        found[0].clone()
    };
    assert_eq!(by_student("create", "allowed")["session"], student.name_of("study"));
    let refused = by_student("create", "refused");
    assert!(refused["reason"].as_str().unwrap().contains("memory: asked for 1 GiB"), "{refused}");
    assert_eq!(refused["session"], student.name_of("more"));
    assert!(by_student("reload", "refused")["reason"].as_str().unwrap().contains("only the node's operator"));
    assert!(by_student("load", "failed")["reason"].as_str().unwrap().contains("no channel"));
    by_student("close", "allowed");
    // Of strangers some are listed, and all are counted: as refused, or by the gate before anybody knew who they were.
    let listed = rows.iter().filter(|row| row["request"] == "connect" && row["outcome"] == "refused");
    assert!(listed.clone().count() <= 2 * 8, "{rows:?}");
    // With what their credentials say of themselves, and that it is no more than that.
    let claims =
        |row: &Value| row["credentials"].as_str().is_some_and(|ids| ids.starts_with("(claimed) weir-id:"));
    assert!(listed.clone().count() > 0 && listed.clone().all(claims), "{rows:?}");
    let counts = |what: &str| {
        let rows = rows.iter().filter(|row| row["request"] == what && row["outcome"] != "allowed");
        rows.map(|row| row["count"].as_u64().unwrap()).sum::<u64>()
    };
    let refused = strangers.iter().filter(|said| said.contains("root")).count() as u64;
    assert!(refused > 0, "{strangers:?}");
    assert!(counts("connect") + counts("(not listed singly)") >= refused, "{rows:?}");
    // As a table, as CSV, for one session, and held against the chain of hashes.
    let table = said(&["ledger", &state, "--decisions"]);
    assert!(table.contains("by what right") && table.contains("create"), "{table}");
    assert!(
        said(&["ledger", &state, "--decisions", "--csv"]).starts_with("begin,end,request,session,outcome")
    );
    let own = said(&["ledger", &state, "--decisions", "--session", &student.name_of("study"), "--csv"]);
    assert!(own.lines().skip(1).all(|line| line.contains(&student.name_of("study"))), "{own}");
    assert!(own.lines().count() >= 3, "{own}");
    assert!(said(&["ledger", &state, "--verify"]).contains("is whole"));
}

#[test]
fn a_policy_whose_cases_do_not_hold_does_not_take_effect() {
    if !is_inside("policy::a_policy_whose_cases_do_not_hold_does_not_take_effect") {
        return;
    }
    let mut net = Net::new();
    let folder = with_policy(&net);
    let university = Identity::generate(&mut OsRng);
    let alice = granted_by(&net, &university, "alice", modest());
    let root = |memory: &str| {
        let text = format!("key = \"{}\"\n[limit]\nmemory = \"{memory}\"\n", university.public());
        write(&folder, "roots/university.toml", &text);
    };
    root("8 MiB");
    std::fs::create_dir(folder.join("cases")).unwrap();
    let case = "[[case]]\nname = \"eight\"\nroot = \"university\"\ngrant = [{}]\nat = \"2027-01-01\"\n\
        ask = { create = { name = \"s\", memory = \"9 MiB\" } }\nexpect = { refused = \"of the 8 MiB\" }\n";
    write(&folder, "cases/university.toml", case);
    net.place.done(json!("reload"));
    net.done(&alice, &[&SESSION[..], &HALF].concat());
    // A slip that the case finds.
    root("8 GiB");
    let why = net.place.refused(json!("reload"));
    assert!(why.contains("university.toml:1: case `eight` does not hold") && why.contains("1 of 1"), "{why}");
    net.refused(&alice, &["session", "change", "study", "--memory", "9 MiB"], "of the 8 MiB given to all");
    // So a node does not even start.
    assert!(net.place.stop().success());
    let output = weir(&["node", "-c", net.place.config().to_str().unwrap()]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("case `eight` does not hold"));

    // What a credential allows is said as it is now: by its holder, and by the operator.
    root("8 MiB");
    net.place.start();
    net.done(&alice, &[&SESSION[..], &HALF].concat());
    let (credential, key) = (alice.credential.to_str().unwrap(), alice.key.to_str().unwrap());
    let (node, socket) =
        (format!("{}@{AT}", net.node), net.place.path().join("node.sock").display().to_string());
    let more = ["session", "create", "more", "--memory", "1 MiB", HALF[0], HALF[1]];
    let there = ["credential", "explain", credential, "--node", &node, "--key", key];
    let here = ["credential", "explain", credential, "--socket", &socket];
    for at in [&there[..], &here] {
        let told = said(at);
        let used = "memory:              8 MiB of 8 MiB, given to weir-key:";
        let all = "memory:              8 MiB of 8 MiB, given to all credentials of";
        assert!(told.contains("At node ix-1.example"), "{told}");
        // The sum of all credentials of a root is the operator's to read.
        let is_operator = at == &here[..];
        assert_eq!((told.contains(used), told.contains(all)), (!is_operator, is_operator), "{told}");
        assert!(told.contains("sessions:            1 of 2, given to weir-key:"), "{told}");
        let why = complained(&[at, &more].concat());
        assert!(why.contains("would be refused") && why.contains("less than that is left"), "{why}");
        assert!(said(&[at, &["session", "close", "study"]].concat()).contains("would be allowed"));
    }
    assert_eq!(names(&net), [alice.name_of("study")], "nothing was done");
    // Of another one only the operator can ask.
    let bob = net.granted("bob", modest());
    let asked = json!({"explain": {"credential": std::fs::read_to_string(&bob.credential).unwrap()}});
    assert_eq!(net.place.ask(asked)["explained"]["holder"], bob.identity.public().to_string());
    assert!(net.place.refused(json!({"explain": {}})).contains("which credential?"));
    assert!(net.place.stop().success());
}
