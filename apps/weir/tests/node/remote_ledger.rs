//! Ledger queries of remote clients: each gets all entries that concern it, and no others.

use crate::remote::{Net, Person, SESSION, modest_grant};
use crate::testbed::{is_inside, udp};
use serde_json::{Value, json};
use std::process::Command;
use weir_trust::grant::{Ceilings, CpuShare, Grant};
use weir_units::Bytes;

fn entries(net: &Net, who: &Person, more: &[&str]) -> Vec<Value> {
    let told = net.run(who, &[&["ledger", "--entries"], more].concat());
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Rows of usage or decisions, from JSON.
fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str::<Value>(text).unwrap().as_array().unwrap().clone()
}

/// The output of an operator's command over the local socket.
fn operators(net: &Net, arguments: &[&str]) -> String {
    let socket = net.testbed.path().join("node.sock");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(arguments)
        .arg("--socket")
        .arg(socket)
        // An explicit socket has precedence over this variable.
        .env("WEIR_NODE", "nowhere.invalid")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_holder_reads_only_entries_of_its_own_and_its_delegates_sessions() {
    if !is_inside("remote_ledger::a_holder_reads_only_entries_of_its_own_and_its_delegates_sessions") {
        return;
    }
    let mut net = Net::new();
    net.testbed.request(json!({"create": {"name": "operators", "channel": [{"interface": "b"}]}}));
    let researcher = net.granted("researcher", modest_grant());
    let part = Ceilings { cpu: Some(CpuShare(20_000)), memory: Some(Bytes(4 << 20)), ..Ceilings::default() };
    let student = net.delegated(&researcher, "student", Grant { ceilings: part, ..Grant::default() });
    let other = net.granted("other", modest_grant());
    let small = |net: &Net, who: &Person, name: &str| {
        let (memory, cpu) = (["--memory", "2 MiB"], ["--cpu", "period=10ms,slice=100us"]);
        let channel = ["--channel", "interface=b,filter=udp"];
        net.run(who, &[&["session", "create", name][..], &memory, &cpu, &channel].concat());
    };
    small(&net, &other, "secret");
    small(&net, &researcher, "study");
    small(&net, &student, "study");
    net.run(&other, &["load", "secret", "port-count"]);
    net.run(&researcher, &["load", "study", "port-count"]);
    net.run_refused(&student, &["session", "create", "more", "--memory", "1 GiB"], "memory: asked for 1 GiB");
    // Another holder probes for the session. The researcher is told neither of that nor by whom.
    let name = researcher.name_of("study");
    net.run_refused(&other, &["session", "close", &name], "no session");
    net.testbed.send(&[udp(53, b"one"), udp(53, b"two")]);
    net.testbed
        .until("both packets have arrived", |testbed| testbed.count(&name, "port-count", "packets") >= 2);
    net.run(&other, &["session", "close", "secret"]);
    // A second session of that name, after activity of others.
    net.run(&researcher, &["session", "close", "study"]);
    small(&net, &researcher, "study");
    net.testbed.request(json!({"close": {"session": name}}));
    // Decisions are written later than what they decided.
    let wait = |net: &Net, who: &Person, number: usize, decisions: usize| {
        let begin = std::time::Instant::now();
        loop {
            let told = entries(net, who, &[]);
            let closed = told.iter().filter(|entry| entry["kind"] == "session-closed").count();
            let is_close = |entry: &&Value| entry["kind"] == "decision" && entry["request"] == "close";
            if closed >= number && told.iter().filter(is_close).count() >= decisions {
                return told;
            }
            assert!(begin.elapsed().as_secs() < 60, "{told:?}");
            std::thread::sleep(std::time::Duration::from_millis(200));
        }
    };

    // The researcher's own sessions, by their local names, and the student's, which was closed with the last of them.
    let told = wait(&net, &researcher, 3, 2);
    let text = told.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let (students, others) = (student.name_of("study"), other.name_of("secret"));
    assert!(text.contains(&students) && !text.contains(&name), "{text}");
    let (operator, key) = (net.operator.identity.public().to_string(), other.identity.public().to_string());
    for hidden in [&others, &key, "secret", "operators", "node-start", "segment", &operator] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    // Entry numbers have no gaps, which would count entries of others; so have session numbers.
    let numbers: Vec<u64> = told.iter().map(|entry| entry["seq"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=told.len() as u64).collect::<Vec<_>>());
    let created = told.iter().filter(|entry| entry["kind"] == "session-created");
    let created: Vec<_> = created.map(|entry| (&entry["session"]["name"], &entry["session"]["id"])).collect();
    let [study, students] = [json!("study"), json!(students)];
    assert_eq!(created, [(&study, &json!(1)), (&students, &json!(2)), (&study, &json!(3))]);
    // The operator's requests about the session are visible.
    let closed = told.iter().filter(|entry| entry["kind"] == "decision" && entry["request"] == "close");
    let closed: Vec<_> = closed.map(|entry| (&entry["session"], entry["key"].is_null())).collect();
    assert_eq!(closed, [(&study, false), (&study, true)]);

    // The student sees the own session and the reason of its close, and no decisions about the researcher's.
    let told = wait(&net, &student, 1, 0);
    let text = told.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let refused = entries(&net, &student, &["--session", "more"]);
    assert!(refused.len() == 1 && refused[0]["outcome"] == "refused", "{refused:?}");
    assert_eq!((&refused[0]["session"], &refused[0]["called"]), (&json!("more"), &Value::Null));
    assert!(text.contains("\"reason\":\"parent\"") && text.contains("asked for 1 GiB"), "{text}");
    assert!(
        told.iter().all(|entry| entry["session"]["id"].is_null() || entry["session"]["id"] == 1),
        "{text}"
    );
    assert!(!text.contains("port-count") && !text.contains("\"request\":\"close\""), "{text}");

    // The usage entries are those of the ledger's files, with the holder's session numbers.
    let bill = rows(&net.run(&researcher, &["ledger", "--json", "--session", "study"]));
    let all = operators(&net, &["ledger", "--json"]);
    assert_eq!(bill.len(), 2, "{bill:?}");
    let mine: Vec<Value> = rows(&all).into_iter().filter(|row| row["session"] == name.as_str()).collect();
    for (his, row) in bill.iter().zip(&mine) {
        let amounts = |row: &Value| {
            let mut row = row.as_object().unwrap().clone();
            row.retain(|key, _| key != "session" && key != "id");
            row
        };
        assert_eq!(amounts(his), amounts(row));
    }
    assert_eq!(bill[0]["packets_in"], 2);
    assert!(rows(&all).iter().any(|row| row["session"] == others.as_str()));
    net.run_refused(&researcher, &["ledger", "--verify"], "cannot be used with");

    // Decisions, as a table: those on each holder's own requests. A delegator can read a delegate's usage, but not its requests.
    let refused = |who: &Person| -> Vec<Value> {
        let decisions = rows(&net.run(who, &["ledger", "--decisions", "--json"]));
        decisions.into_iter().filter(|row| row["outcome"] == "refused").collect()
    };
    assert_eq!(refused(&researcher), [] as [Value; 0]);
    let students_own = refused(&student);
    assert_eq!(students_own.len(), 1, "{students_own:?}");
    assert!(students_own[0]["reason"].as_str().unwrap().contains("asked for 1 GiB"));
    assert_eq!(
        rows(&net.run(&researcher, &["ledger", "--json", "--session", &student.name_of("study")])).len(),
        1
    );
    let future = ["ledger", "--since", "2100-01-01"];
    assert_eq!(net.run(&researcher, &future), "no session used anything in this time\n");

    // The operator gets the same from the node and from the files.
    assert!(net.testbed.stop().success());
    let state = net.testbed.path().join("state");
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("ledger").arg(&state).arg("--json").output();
    let of_files = String::from_utf8(output.unwrap().stdout).unwrap();
    let ended = |text: &str| -> Vec<Value> {
        // Requests are charged until the node stops.
        let is_of_session = |row: &Value| !row["session"].as_str().unwrap().starts_with("(requests of ");
        rows(text).into_iter().filter(|row| row["session"] != "operators" && is_of_session(row)).collect()
    };
    assert_eq!(ended(&of_files), ended(&all));
}

#[test]
fn a_ledger_query_is_paid_from_the_requesters_share() {
    if !is_inside("remote_ledger::a_ledger_query_is_paid_from_the_requesters_share") {
        return;
    }
    let mut net = Net::new();
    // So small a share that connecting takes minutes to pay for, and a job of the query days.
    let nothing = Ceilings { cpu: Some(CpuShare(1)), ..modest_grant().ceilings };
    let poor = net.granted("poor", Grant { ceilings: nothing, ..modest_grant() });
    let rich = net.granted("rich", modest_grant());
    net.run(&rich, &SESSION);
    net.run_refused(&poor, &["ledger"], "used its share of processor time in advance");
    net.run(&rich, &["ledger"]);
    net.run(&rich, &["ledger"]);
    // The requests of both are charged to their accounts, refused or not.
    let has_account = |who: &Person| {
        let account = format!("(requests of {})", who.identity.public());
        let accounts = rows(&operators(&net, &["ledger", "--json"]));
        let mut of_them = accounts.iter().filter(|row| row["session"] == account.as_str());
        of_them.any(|row| row["cpu_s"].as_f64().is_some_and(|cpu| cpu > 0.0))
    };
    let begin = std::time::Instant::now();
    while !(has_account(&poor) && has_account(&rich)) {
        assert!(begin.elapsed().as_secs() < 60, "{}", operators(&net, &["ledger", "--json"]));
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(net.testbed.stop().success());
}
