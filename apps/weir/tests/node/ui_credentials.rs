//! Credentials on the page of `weir ui`: the tree that each user sees, and revocations by the user's own key.

use crate::remote::{AT, Net, Person, SESSION, modest_grant, operator_output, seconds_from_now};
use crate::testbed::{TIMEOUT, is_inside};
use crate::ui::{Browser, Page};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;
use weir_trust::credential::{Credential, DatedId};
use weir_trust::grant::Grant;
use weir_trust::revocation::RevocationList;

const PART: [&str; 2] = ["--cpu", "period=10ms,slice=100us"];

/// A node, a researcher, and two students below the researcher, each with a session.
fn net() -> (Net, Person, [Person; 2]) {
    let net = Net::new();
    let researcher = net.granted("researcher", modest_grant());
    let students = ["first", "second"].map(|name| {
        let student = net.delegated(&researcher, name, Grant::default());
        let session: Vec<&str> =
            SESSION.iter().map(|word| if *word == "8 MiB" { "2 MiB" } else { *word }).chain(PART).collect();
        net.run(&student, &session);
        student
    });
    (net, researcher, students)
}

fn ui(net: &Net, who: &Person, has_credential: bool, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["ui", "--node", &format!("{}@{AT}", net.node), "--key"]).arg(&who.key).args(options);
    if has_credential {
        command.arg("--credential").arg(&who.credential);
    }
    command.env("XDG_RUNTIME_DIR", net.folder.path()).env_remove("WEIR_NODE").env_remove("WEIR_CREDENTIAL");
    command
}

fn id_of(who: &Person) -> String {
    let credential: Credential = std::fs::read_to_string(&who.credential).unwrap().parse().unwrap();
    DatedId::of_chain(credential.claimed_blocks()).last().unwrap().to_string()
}

/// All credentials of the page, with those below each.
fn credentials(browser: &Browser<'_>) -> Vec<Value> {
    fn flat(list: &Value, all: &mut Vec<Value>) {
        for credential in list.as_array().unwrap() {
            all.push(credential.clone());
            flat(&credential["delegates"], all);
        }
    }
    let (answer, mut all) = (browser.get("/api/credentials"), Vec::new());
    assert_eq!(answer.status(), "200", "{}", answer.json());
    answer.json()["roots"].as_array().unwrap().iter().for_each(|root| flat(&root["grants"], &mut all));
    all
}

/// The identifiers that the page may revoke.
fn revocable(browser: &Browser<'_>) -> Vec<String> {
    let may = |it: &Value| it["may_revoke"].as_bool().unwrap();
    let ids = credentials(browser).into_iter().filter(may).map(|it| it["id"].as_str().unwrap().to_owned());
    let mut ids: Vec<String> = ids.collect();
    ids.sort();
    ids
}

fn revoke(browser: &Browser<'_>, id: &str) -> Value {
    browser.post("/api/revoke", &json!({ "id": id })).json()
}

/// The text of a refusal.
fn refused(browser: &Browser<'_>, id: &str) -> String {
    let answer = revoke(browser, id);
    answer["refused"]["why"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

fn list_of(file: &PathBuf) -> RevocationList {
    std::fs::read_to_string(file).unwrap().parse().unwrap()
}

#[test]
fn a_holder_revokes_a_delegate_on_the_page_and_keeps_the_list() {
    if !is_inside("ui_credentials::a_holder_revokes_a_delegate_on_the_page_and_keeps_the_list") {
        return;
    }
    let (mut net, researcher, [first, second]) = net();
    // A list that has an entry from before, which the node does not know.
    let file = net.folder.path().join("researchers");
    let earlier = net.delegated(&researcher, "earlier", Grant { delegations: Some(0), ..Grant::default() });
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["credential", "revoke", earlier.credential.to_str().unwrap(), "--key"])
        .args([&researcher.key, &PathBuf::from("--list"), &file])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let options = ["--revocation-list", file.to_str().unwrap()];
    let page = Page::start(ui(&net, &researcher, true, &options));
    let browser = Browser::open(&page);
    let mut below = [id_of(&first), id_of(&second)];
    below.sort();
    assert_eq!(revocable(&browser), below, "not the own one");
    let shown = credentials(&browser);
    assert_eq!(shown[0]["id"], id_of(&researcher));
    assert!(shown[0]["expires_s"].is_u64() && shown[0]["revoked"] == false, "{}", shown[0]);
    let memory = shown[0]["used"].as_array().unwrap().iter().find(|it| it["resource"] == "memory").unwrap();
    assert_eq!(
        memory,
        &json!({"resource": "memory", "used": 4 << 20, "granted": 16 << 20, "used_text": "4 MiB", "granted_text": "16 MiB"})
    );
    let why = refused(&browser, &id_of(&researcher));
    assert!(why.contains("only the root of a credential, or a holder who delegated it"), "{why}");
    let stranger = id_of(&net.granted("stranger", modest_grant()));
    assert!(refused(&browser, &stranger).contains("only the root"), "not in the node");
    let bad = browser.post("/api/revoke", &json!({ "id": "weir-id:\u{1b}[2J" }));
    assert!(bad.status() == "400" && !bad.json()["error"].as_str().unwrap().contains('\u{1b}'));
    assert_eq!(list_of(&file).sequence(), 1, "nothing was revoked");

    let done = revoke(&browser, &id_of(&first));
    assert!(done["done"]["notes"][0].as_str().unwrap().contains("revocation list 2 of"), "{done}");
    net.testbed.until("the session of the revoked credential has ended", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().len() == 1
    });
    assert_eq!(net.sessions()[0]["name"], second.name_of("study"));
    net.run_refused(&first, &["session", "list"], "revoked");
    net.run(&second, &["session", "list"]);
    assert_eq!(revocable(&browser), [id_of(&second)]);
    let list = list_of(&file);
    let mut entries: Vec<String> = list.revoked().iter().map(|entry| entry.to_string()).collect();
    let mut expected = [id_of(&first), id_of(&earlier)];
    entries.sort();
    expected.sort();
    assert_eq!(entries, expected);
    // Another command extends the same file.
    net.run_refused(&earlier, &["session", "list"], "revoked");

    // The student's own page has nothing to revoke, and another holder's list is refused at the start.
    let own = net.folder.path().join("students");
    let page = Page::start(ui(&net, &second, true, &["--revocation-list", own.to_str().unwrap()]));
    assert_eq!((revocable(&Browser::open(&page)).len(), own.exists()), (0, false));
    let output = ui(&net, &second, true, &options).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("has no right to revoke"), "{said}");
    assert!(net.testbed.stop().success());
}

#[test]
fn a_root_that_is_an_operator_revokes_everything_below_it() {
    if !is_inside("ui_credentials::a_root_that_is_an_operator_revokes_everything_below_it") {
        return;
    }
    let (mut net, researcher, [first, second]) = net();
    let config = std::fs::read_to_string(net.testbed.config()).unwrap();
    let operators = format!("operators = [\"{}\"]\nroots = [", net.operator.identity.public());
    std::fs::write(net.testbed.config(), config.replace("roots = [", &operators)).unwrap();
    net.testbed.request(json!("reload"));
    let file = net.folder.path().join("roots");
    let page = Page::start(ui(&net, &net.operator, false, &["--revocation-list", file.to_str().unwrap()]));
    let browser = Browser::open(&page);
    let mut all = [id_of(&researcher), id_of(&first), id_of(&second)];
    all.sort();
    assert_eq!(revocable(&browser), all);
    let done = revoke(&browser, &id_of(&researcher));
    assert!(done["done"].is_object(), "{done}");
    net.testbed.until("all sessions below it have ended", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().is_empty()
    });
    assert_eq!(list_of(&file).sequence(), 1);
    assert!(net.testbed.stop().success());
}

#[test]
fn without_a_key_or_a_list_the_page_names_the_command() {
    if !is_inside("ui_credentials::without_a_key_or_a_list_the_page_names_the_command") {
        return;
    }
    let (mut net, researcher, [first, _]) = net();
    let local = Page::of(&net.testbed, &[]);
    let browser = Browser::open(&local);
    assert_eq!((revocable(&browser).len(), credentials(&browser).len()), (0, 3));
    let why = refused(&browser, &id_of(&first));
    assert!(
        why.contains("has no key") && why.contains(&format!("`weir credential revoke {}", id_of(&first))),
        "{why}"
    );
    let socket = net.testbed.path().join("node.sock");
    assert!(why.contains(&format!("`weir credential deliver LIST --socket {}`", socket.display())), "{why}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(["ui", "--revocation-list", "x", "--socket"]).arg(&socket).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && said.contains("needs the key that signs the list"), "{said}");

    let page = Page::start(ui(&net, &researcher, true, &[]));
    let browser = Browser::open(&page);
    assert_eq!(revocable(&browser).len(), 0);
    let why = refused(&browser, &id_of(&first));
    assert!(why.contains("start it with --revocation-list FILE"), "{why}");
    // The command in the text revokes it.
    let command = why.rsplit('`').nth(1).unwrap().replacen("weir ", "exec \"$WEIR\" ", 1);
    let mut shell = Command::new("sh");
    shell.current_dir(net.folder.path()).env("WEIR", env!("CARGO_BIN_EXE_weir"));
    let output = shell.args(["-c", &command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    net.testbed.until("the session has ended", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().len() == 1
    });
    let tree = operator_output(&net, &["credential", "list"]);
    assert!(!tree.contains(&id_of(&first)), "{tree}");
    // A page that only shows.
    let viewer = Page::start(ui(&net, &researcher, true, &["--read-only"]));
    let viewer =
        Browser::open(&viewer).post("/api/revoke", &json!({ "id": id_of(&first) })).status().to_owned();
    assert_eq!(viewer, "403");
    assert!(net.testbed.stop().success());
}

#[test]
fn the_command_in_the_advice_gives_what_was_refused() {
    if !is_inside("ui_credentials::the_command_in_the_advice_gives_what_was_refused") {
        return;
    }
    let (mut net, researcher, _) = net();
    let big = ["session", "create", "big", "--memory", "20 MiB", "--channel", "interface=b"];
    let big = [&big[..], &PART].concat();
    net.run_refused(&researcher, &big, "12 MiB is left");
    let page = Page::start(ui(&net, &researcher, true, &[]));
    let browser = Browser::open(&page);
    let begin = Instant::now();
    let advice = loop {
        let decisions = browser.get("/api/decisions?since_s=600").json();
        let all = decisions["decisions"].as_array().unwrap();
        let refused = all.iter().find(|it| it["outcome"] == "refused" && it["request"] == "create");
        if let Some(refused) = refused {
            break refused["advice"].clone();
        }
        assert!(begin.elapsed() < TIMEOUT, "{decisions}");
    };
    assert!(advice[0]["text"].as_str().unwrap().contains("has to give 24 MiB of memory"), "{advice}");
    let command = advice[0]["command"].as_str().unwrap();
    let command = command.replacen("weir ", "exec \"$WEIR\" ", 1);
    let command = command.replace("--key KEY", "--key \"$KEY\"").replace("--module MODULE", "--module rtt");
    let mut wider = crate::remote::person(net.folder.path(), "wider");
    (wider.identity, wider.key) = (researcher.identity.clone(), researcher.key.clone());
    let mut shell = Command::new("sh");
    shell.env("WEIR", env!("CARGO_BIN_EXE_weir")).env("KEY", &net.operator.key).env("OUT", &wider.credential);
    let output = shell.args(["-c", &format!("{command} --out \"$OUT\"")]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    net.run(&wider, &big);
    assert!(net.testbed.stop().success());
}

#[test]
fn a_credential_that_expires_while_the_page_is_open_is_no_damage_of_the_ledger() {
    if !is_inside(
        "ui_credentials::a_credential_that_expires_while_the_page_is_open_is_no_damage_of_the_ledger",
    ) {
        return;
    }
    let mut net = Net::new();
    let short = net.granted("short", Grant { expires: Some(seconds_from_now(10)), ..modest_grant() });
    let page = Page::start(ui(&net, &short, true, &[]));
    let browser = Browser::open(&page);
    let mut lines = browser.lines("/api/watch");
    assert!(lines.next().unwrap()["snapshot"].is_object());
    assert_eq!(browser.get("/api/ledger").json()["verified"]["state"], "whole");
    let lost = lines.find(|line| line.get("lost").is_some()).unwrap();
    assert!(lost["lost"].as_str().unwrap().starts_with("expired: "), "{lost}");
    // What was shown stays, and everything that asks the node states the reason.
    assert!(!browser.get("/api/history").json()["at_ms"].as_array().unwrap().is_empty());
    for path in ["/api/ledger", "/api/decisions?since_s=60", "/api/credentials"] {
        let answer = browser.get(path);
        assert_eq!(answer.status(), "502", "{path}: {}", answer.json());
        assert!(
            answer.json()["error"].as_str().unwrap().starts_with("expired: "),
            "{path}: {}",
            answer.json()
        );
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn the_cost_of_a_session_is_its_holders_also_after_a_change_by_an_operator() {
    if !is_inside("ui_credentials::the_cost_of_a_session_is_its_holders_also_after_a_change_by_an_operator") {
        return;
    }
    let (mut net, _, [first, second]) = net();
    let config = std::fs::read_to_string(net.testbed.config()).unwrap();
    let operators = format!("operators = [\"{}\"]\nroots = [", net.operator.identity.public());
    std::fs::write(net.testbed.config(), config.replace("roots = [", &operators)).unwrap();
    net.testbed.request(json!("reload"));
    let page = Page::start(ui(&net, &net.operator, false, &[]));
    let browser = Browser::open(&page);
    let session = first.name_of("study");
    let change = json!({"change": {"session": session, "cpu": [{"period": "10ms", "slice": "90us"}]}});
    assert!(browser.post("/api/request", &change).json()["done"].is_object());
    let begin = Instant::now();
    loop {
        let usage = browser.get("/api/ledger").json();
        let holders = usage["holders"]["rows"].as_array().unwrap();
        let has = |who: &Person| holders.iter().any(|row| row[0] == who.identity.public().to_string());
        assert!(!has(&net.operator), "the operator has no session: {usage}");
        if has(&first) && has(&second) {
            break;
        }
        assert!(begin.elapsed() < TIMEOUT, "{usage}");
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn a_holder_runs_modules_over_an_interface_that_the_credential_names() {
    if !is_inside("ui_credentials::a_holder_runs_modules_over_an_interface_that_the_credential_names") {
        return;
    }
    let net = Net::new();
    let interfaces = Some(["b".parse().unwrap()].into());
    let holder = net.granted("holder", Grant { interfaces, ..modest_grant() });
    let page = Page::start(ui(&net, &holder, true, &[]));
    let browser = Browser::open(&page);
    assert_eq!(browser.get("/api/state").json()["run_interfaces"], json!(["b"]));
    let end_of_run = |interface: &str| {
        let module = json!({"module": "port-count", "set": {"ports": "53"}});
        let run = json!({"source": {"interface": {"name": interface, "seconds": 1}}, "modules": [module]});
        let number = browser.post("/api/runs", &run).json()["run"].as_u64().unwrap();
        let mut lines = browser.lines(&format!("/api/runs/{number}/watch"));
        lines.find(|line| line.get("done").is_some() || line.get("failed").is_some()).unwrap()
    };
    let done = end_of_run("b");
    assert!(done["done"]["report"].is_string(), "{done}");
    let failed = end_of_run("a");
    assert!(failed["failed"].as_str().unwrap().contains("interfaces: asked for a, given is b"), "{failed}");
    assert!(net.sessions().is_empty(), "the session of each run is closed");
}
