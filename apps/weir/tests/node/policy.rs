//! The operator's policy: roots with limits, revocations, and decisions in the ledger.

use crate::remote::{AT, Net, Person, SESSION, modest_grant, person, seconds_from_now};
use crate::testbed::is_inside;
use rand_core::OsRng;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use weir_trust::credential::{Credential, DelegationId};
use weir_trust::grant::{Ceilings, Grant};
use weir_trust::key::Identity;
use weir_trust::revocation::RevocationList;
use weir_units::Bytes;

const HALF: [&str; 2] = ["--cpu", "period=10ms,slice=100us"];

/// Runs a command that needs no node, or names it explicitly.
fn weir(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    for variable in ["WEIR_KEY", "WEIR_PASSPHRASE_FILE", "WEIR_NODE", "WEIR_CREDENTIAL", "WEIR_SOCKET"] {
        command.env_remove(variable);
    }
    command.args(arguments).output().unwrap()
}

fn output_of(arguments: &[&str]) -> String {
    let output = weir(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn error_of(arguments: &[&str]) -> String {
    let output = weir(arguments);
    assert!(!output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stderr).unwrap()
}

/// A new person with a grant of `operator`.
fn person_granted_by(net: &Net, operator: &Identity, name: &str, grant: Grant) -> Person {
    let person = person(net.folder.path(), name);
    let credential = Credential::mint(operator, person.identity.public(), grant, None, &mut OsRng).unwrap();
    std::fs::write(&person.credential, credential.to_string()).unwrap();
    person
}

fn id_of(person: &Person) -> DelegationId {
    let credential: Credential = std::fs::read_to_string(&person.credential).unwrap().parse().unwrap();
    credential.claimed_blocks().last().unwrap().id
}

fn list_of(root: &Identity, number: u64, of: &[&Person]) -> String {
    let ids = of.iter().map(|person| id_of(person)).collect();
    RevocationList::sign(root, number, seconds_from_now(0), ids).unwrap().to_string()
}

/// Configures an empty policy folder for the node.
pub fn with_policy(net: &Net) -> PathBuf {
    let folder = net.folder.path().join("policy.d");
    for part in ["profiles", "roots", "revoked"] {
        std::fs::create_dir_all(folder.join(part)).unwrap();
    }
    let config = std::fs::read_to_string(net.testbed.config()).unwrap();
    let config = format!("{config}\n[policy]\ndir = \"{}\"\n", folder.display());
    std::fs::write(net.testbed.config(), config).unwrap();
    net.testbed.request(json!("reload"));
    folder
}

pub fn write(folder: &Path, file: &str, text: &str) {
    let new = folder.join(".new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, folder.join(file)).unwrap();
}

fn names(net: &Net) -> Vec<String> {
    net.sessions().iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn another_organisations_root_can_grant_only_its_limit() {
    if !is_inside("policy::another_organisations_root_can_grant_only_its_limit") {
        return;
    }
    let mut net = Net::new();
    let university = Identity::generate(&mut OsRng);
    let wide = Grant {
        ceilings: Ceilings { memory: Some(Bytes(1 << 30)), ..Ceilings::default() },
        ..modest_grant()
    };
    let alice = person_granted_by(&net, &university, "alice", wide.clone());
    let bob = person_granted_by(&net, &university, "bob", wide);
    net.run_refused(&alice, &SESSION, "root");

    let folder = with_policy(&net);
    let root = |limit: &str| {
        let text = format!("key = \"{}\"\n[limit]\n{limit}", university.public());
        write(&folder, "roots/university.toml", &text);
    };
    write(&folder, "profiles/strict.toml", "tiers = [\"proved\"]\n");
    let limit = "profiles = [\"strict\"]\ninterfaces = [\"b\"]\nfilter = \"udp\"\nmemory = \"12 MiB\"\ncpu = \"10%\"\n";
    root(limit);
    net.testbed.request(json!("reload"));

    // Each request, and the sum of all requests, is compared with the limit.
    net.run_refused(
        &alice,
        &["session", "create", "s", "--memory", "13 MiB", HALF[0], HALF[1]],
        "memory: asked for 13 MiB; of the 12 MiB given to all credentials of",
    );
    net.run_refused(&alice, &[&SESSION[..], &["--profile", "strictest"]].concat(), "profile");
    root(&limit.replace("[\"b\"]", "[\"c\"]"));
    net.testbed.request(json!("reload"));
    net.run_refused(&alice, &SESSION, "interfaces: asked for b, given is c");
    root(limit);
    net.testbed.request(json!("reload"));
    net.run(&alice, &[&SESSION[..], &HALF].concat());
    net.run_refused(
        &bob,
        &["session", "create", "s", "--memory", "5 MiB", HALF[0], HALF[1]],
        "memory: asked for 5 MiB; of the 12 MiB given to all credentials of",
    );
    net.run(&bob, &["session", "create", "s", "--memory", "4 MiB", HALF[0], HALF[1]]);
    // The session's packets match the limit's filter, and its modules are admitted by the limit's profile.
    let shown = net.run(&alice, &["session", "show", "study", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["channels"][0]["name"], "main");
    net.run_refused(&alice, &["load", "study", "payload-match,patterns=x"], "");

    // An error in a file is reported with its position, and nothing has changed.
    for (file, text, says) in [
        ("roots/university.toml", "key = \"weir-key:x\"\n", "university.toml:1: "),
        ("roots/more.toml", "\n\nkey = 5\n", "more.toml:3: "),
        ("roots/more.txt", "", "Rename the file"),
        ("stray", "", "no part of a policy has this name"),
        ("profiles/strict.toml", "tires = []", "no key `tires`"),
        ("revoked/list", "weir revocation list 9", "no revocation list"),
    ] {
        let before = std::fs::read_to_string(folder.join(file)).ok();
        write(&folder, file, text);
        let why = net.testbed.request_refused(json!("reload"));
        assert!(why.contains(says), "{file}: {why}");
        match before {
            Some(before) => write(&folder, file, &before),
            None => std::fs::remove_file(folder.join(file)).unwrap(),
        }
    }
    assert_eq!(names(&net).len(), 2);

    // With a lower limit the newest session is closed; without one the other, too.
    root(&limit.replace("12 MiB", "8 MiB"));
    net.testbed.request(json!("reload"));
    net.testbed.until("the last module has stopped", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().len() == 1
    });
    assert_eq!(names(&net), [alice.name_of("study")]);
    net.run_refused(
        &alice,
        &["session", "change", "study", "--memory", "9 MiB"],
        "of the 8 MiB given to all",
    );
    // Running modules are compared with the limit, too: if they are no longer allowed, their session is closed.
    net.run(&alice, &["load", "study", "port-count"]);
    root(&(limit.replace("12 MiB", "8 MiB") + "modules = [\"port-count\"]\n"));
    net.testbed.request(json!("reload"));
    net.run_refused(&alice, &["load", "study", "rtt"], "modules: asked for `rtt`");
    assert_eq!(names(&net), [alice.name_of("study")]);
    root(&(limit.replace("12 MiB", "8 MiB") + "modules = [\"rtt\"]\n"));
    net.testbed.request(json!("reload"));
    net.testbed
        .until("it has ended", |testbed| testbed.snapshot()["sessions"].as_array().unwrap().is_empty());
    root(limit);
    net.testbed.request(json!("reload"));
    net.run(&alice, &[&SESSION[..], &HALF].concat());
    std::fs::remove_file(folder.join("roots/university.toml")).unwrap();
    net.testbed.request(json!("reload"));
    net.testbed.until("all sessions are closed", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().is_empty()
    });
    assert!(net.testbed.stop().success());
}

#[test]
fn a_revocation_takes_effect_at_once_from_any_deliverer_and_after_a_restart() {
    if !is_inside("policy::a_revocation_takes_effect_at_once_from_any_deliverer_and_after_a_restart") {
        return;
    }
    let mut net = Net::new();
    let (alice, bob) = (net.granted("alice", modest_grant()), net.granted("bob", modest_grant()));
    net.run(&alice, &[&SESSION[..], &HALF].concat());
    net.run(&bob, &[&SESSION[..], &HALF].concat());
    let node = format!("{}@{AT}", net.node);
    let file = |name: &str, text: &str| {
        let path = net.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    // Delivered by a peer without a credential.
    let second = file("second", &list_of(&net.operator.identity, 2, &[&alice]));
    let told = output_of(&["credential", "deliver", &second, "--node", &node]);
    assert!(told.contains("revocation list 2 of") && told.contains("has 1 revocations in all"), "{told}");
    net.testbed.until("Alice's session is closed", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().len() == 1
    });
    net.run_refused(&alice, &["session", "list"], "revoked");
    // A second delivery changes nothing; a list with a lower number adds its entries; a forged list, and one of an
    // unknown key, change nothing.
    assert!(output_of(&["credential", "deliver", &second, "--node", &node]).contains("known already"));
    let first = file("first", &list_of(&net.operator.identity, 1, &[]));
    assert!(output_of(&["credential", "deliver", &first, "--node", &node]).contains("known already"));
    let stranger = Identity::generate(&mut OsRng);
    let theirs = file("theirs", &list_of(&stranger, 9, &[&bob]));
    assert!(error_of(&["credential", "deliver", &theirs, "--node", &node]).contains("no root of trust here"));
    net.run_refused(&alice, &["session", "list"], "revoked");
    net.run(&bob, &["session", "list"]);

    // The node has stored the revocations, though no file of the configuration has them.
    assert!(net.testbed.stop().success());
    net.testbed.start();
    net.run_refused(&alice, &["session", "list"], "revoked");
    net.run(&bob, &["session", "list"]);
    // An older list in the configuration restores nothing; and a changed file is noticed.
    let folder = with_policy(&net);
    write(&folder, "revoked/operator", &list_of(&net.operator.identity, 1, &[]));
    net.testbed.request(json!("reload"));
    net.run_refused(&alice, &["session", "list"], "revoked");
    // The session that a valid credential had before the restart.
    assert!(net.run(&bob, &["session", "list"]).contains("study"));
    write(&folder, "revoked/operator", &list_of(&net.operator.identity, 3, &[&alice, &bob]));
    net.testbed.until("the change is noticed", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().is_empty()
    });
    net.run_refused(&bob, &["session", "list"], "revoked");
    // A list that is signed and delivered in one step, over the local socket.
    let carol = net.granted("carol", modest_grant());
    let (list, key) =
        (folder.join("revoked/operator").display().to_string(), net.operator.key.display().to_string());
    let told = output_of(&[
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
    net.run_refused(&carol, &["session", "list"], "revoked");
    let socket = net.testbed.path().join("node.sock").display().to_string();
    assert!(output_of(&["credential", "deliver", &list, "--socket", &socket]).contains("known already"));
    assert!(net.testbed.stop().success());
}

#[test]
fn delegates_sessions_end_with_the_last_session_of_their_delegator() {
    if !is_inside("policy::delegates_sessions_end_with_the_last_session_of_their_delegator") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings { sessions: None, ..modest_grant().ceilings };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest_grant() });
    let student = net.delegated(&researcher, "student", Grant::default());
    let friend = net.delegated(&student, "friend", Grant::default());
    let other = net.granted("other", modest_grant());
    let create = |who: &Person, name: &str| {
        net.run(who, &["session", "create", name, "--memory", "1 MiB", HALF[0], HALF[1]]);
    };
    create(&other, "o");
    create(&student, "before");
    create(&researcher, "first");
    create(&student, "s");
    create(&friend, "f");
    create(&researcher, "second");
    // Nothing happens while one session is left.
    net.run(&researcher, &["session", "close", "first"]);
    assert_eq!(names(&net).len(), 5);
    net.run(&researcher, &["session", "close", "second"]);
    let left = names(&net);
    let expected = [other.name_of("o"), student.name_of("before")];
    assert!(left.len() == 2 && expected.iter().all(|name| left.contains(name)), "{left:?}");
    assert!(net.testbed.stop().success());
    let closed: Vec<Value> =
        net.testbed.ledger().into_iter().filter(|e| e["kind"] == "session-closed").collect();
    let parents = closed.iter().filter(|entry| entry["reason"] == "parent");
    let mut ended: Vec<&str> = parents.filter_map(|entry| entry["session"]["name"].as_str()).collect();
    ended.sort_unstable();
    let mut expected = [student.name_of("s"), friend.name_of("f")];
    expected.sort_unstable();
    assert_eq!(ended, expected);
    let state = net.testbed.path().join("state").display().to_string();
    let decisions = output_of(&["ledger", &state, "--decisions", "--csv"]);
    let ends: Vec<&str> = decisions
        .lines()
        .filter(|line| line.contains("(end)") && line.contains("earlier in its delegation chain"))
        .collect();
    assert!(
        ends.len() == 2 && expected.iter().all(|name| ends.iter().any(|end| end.contains(name))),
        "{decisions}"
    );
}

#[test]
fn every_decision_is_in_the_ledger_and_a_flood_does_not_fill_it() {
    if !is_inside("policy::every_decision_is_in_the_ledger_and_a_flood_does_not_fill_it") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest_grant());
    let student = net.delegated(&researcher, "student", Grant::default());
    net.run(&student, &[&SESSION[..], &HALF].concat());
    net.run_refused(
        &student,
        &["session", "create", "more", "--memory", "1 GiB", HALF[0], HALF[1]],
        "memory",
    );
    net.run_refused(&student, &["reload"], "only the node's operator");
    // The right exists, but the channel does not.
    net.run_refused(&student, &["load", "study", "rtt", "--channel", "none"], "no channel");
    // Holders of another operator's credentials, each with a new key.
    let mut strangers = Vec::new();
    for n in 0..12 {
        let theirs = Identity::generate(&mut OsRng);
        let stranger = person_granted_by(&net, &theirs, &format!("stranger-{n}"), modest_grant());
        let output = net.weir(&stranger, &["session", "list"]);
        strangers.push(String::from_utf8(output.stderr).unwrap());
        assert!(!output.status.success());
    }
    net.run(&student, &["session", "close", "study"]);
    assert!(net.testbed.stop().success());

    let state = net.testbed.path().join("state").display().to_string();
    let rows = output_of(&["ledger", &state, "--decisions", "--json"]);
    let rows: Vec<Value> = serde_json::from_str(&rows).unwrap();
    let ids: Vec<String> = [&researcher, &student].iter().map(|who| id_of(who).to_string()).collect();
    // Credential identifiers come with the expiry times of the credentials.
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
    // Some of these peers have an entry, and all are counted: as refused, or by the gate before authentication.
    let listed = rows.iter().filter(|row| row["request"] == "connect" && row["outcome"] == "refused");
    assert!(listed.clone().count() <= 2 * 8, "{rows:?}");
    // With the unverified claims of their credentials, which are marked as such.
    let claims =
        |row: &Value| row["credentials"].as_str().is_some_and(|ids| ids.starts_with("(claimed) weir-id:"));
    assert!(listed.clone().count() > 0 && listed.clone().all(claims), "{rows:?}");
    let counts = |what: &str| {
        let rows = rows.iter().filter(|row| row["request"] == what && row["outcome"] != "allowed");
        rows.map(|row| row["count"].as_u64().unwrap()).sum::<u64>()
    };
    let refused = strangers.iter().filter(|refusal| refusal.contains("root")).count() as u64;
    assert!(refused > 0, "{strangers:?}");
    assert!(counts("connect") + counts("(not listed singly)") >= refused, "{rows:?}");
    // As a table, as CSV, for one session, and with verification of the hash chain.
    let table = output_of(&["ledger", &state, "--decisions"]);
    assert!(table.contains("by what right") && table.contains("create"), "{table}");
    assert!(
        output_of(&["ledger", &state, "--decisions", "--csv"])
            .starts_with("begin,end,request,session,outcome")
    );
    let own = output_of(&["ledger", &state, "--decisions", "--session", &student.name_of("study"), "--csv"]);
    assert!(own.lines().skip(1).all(|line| line.contains(&student.name_of("study"))), "{own}");
    assert!(own.lines().count() >= 3, "{own}");
    assert!(output_of(&["ledger", &state, "--verify"]).contains("is whole"));
}

#[test]
fn a_policy_whose_test_cases_fail_does_not_take_effect() {
    if !is_inside("policy::a_policy_whose_test_cases_fail_does_not_take_effect") {
        return;
    }
    let mut net = Net::new();
    let folder = with_policy(&net);
    let university = Identity::generate(&mut OsRng);
    let alice = person_granted_by(&net, &university, "alice", modest_grant());
    let root = |memory: &str| {
        let text = format!("key = \"{}\"\n[limit]\nmemory = \"{memory}\"\n", university.public());
        write(&folder, "roots/university.toml", &text);
    };
    root("8 MiB");
    std::fs::create_dir(folder.join("cases")).unwrap();
    let case = "[[case]]\nname = \"eight\"\nroot = \"university\"\ngrant = [{}]\nat = \"2027-01-01\"\n\
        request = { create = { name = \"s\", memory = \"9 MiB\" } }\nexpect = { refused = \"of the 8 MiB\" }\n";
    write(&folder, "cases/university.toml", case);
    net.testbed.request(json!("reload"));
    net.run(&alice, &[&SESSION[..], &HALF].concat());
    // A mistake that the test case finds.
    root("8 GiB");
    let why = net.testbed.request_refused(json!("reload"));
    assert!(why.contains("university.toml:1: case `eight` does not hold") && why.contains("1 of 1"), "{why}");
    net.run_refused(
        &alice,
        &["session", "change", "study", "--memory", "9 MiB"],
        "of the 8 MiB given to all",
    );
    // A node does not start with it either.
    assert!(net.testbed.stop().success());
    let output = weir(&["node", "-c", net.testbed.config().to_str().unwrap()]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("case `eight` does not hold"));

    // The holder and the operator can ask which rights a credential has now.
    root("8 MiB");
    net.testbed.start();
    assert!(net.run(&alice, &["session", "list"]).contains("study"));
    let (credential, key) = (alice.credential.to_str().unwrap(), alice.key.to_str().unwrap());
    let (node, socket) =
        (format!("{}@{AT}", net.node), net.testbed.path().join("node.sock").display().to_string());
    let more = ["session", "create", "more", "--memory", "1 MiB", HALF[0], HALF[1]];
    let there = ["credential", "explain", credential, "--node", &node, "--key", key];
    let here = ["credential", "explain", credential, "--socket", &socket];
    for at in [&there[..], &here] {
        let told = output_of(at);
        let used = "memory:              8 MiB of 8 MiB, given to weir-key:";
        let all = "memory:              8 MiB of 8 MiB, given to all credentials of";
        assert!(told.contains("At node ix-1.example"), "{told}");
        // Only the operator can read the sum of all credentials of a root.
        let is_operator = at == &here[..];
        assert_eq!((told.contains(used), told.contains(all)), (!is_operator, is_operator), "{told}");
        assert!(told.contains("sessions:            1 of 2, given to weir-key:"), "{told}");
        let why = error_of(&[at, &more].concat());
        assert!(why.contains("would be refused") && why.contains("less than that is left"), "{why}");
        assert!(output_of(&[at, &["session", "close", "study"]].concat()).contains("would be allowed"));
    }
    assert_eq!(names(&net), [alice.name_of("study")], "nothing was done");
    // Only the operator can ask about another holder's credential.
    let bob = net.granted("bob", modest_grant());
    let asked = json!({"explain": {"credential": std::fs::read_to_string(&bob.credential).unwrap()}});
    assert_eq!(net.testbed.send_request(asked)["explained"]["holder"], bob.identity.public().to_string());
    assert!(net.testbed.request_refused(json!({"explain": {}})).contains("name the credential to explain"));
    assert!(net.testbed.stop().success());
}
