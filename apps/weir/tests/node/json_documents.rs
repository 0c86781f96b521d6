//! The JSON documents of commands that ask a running node fit their published schemas.

use crate::outside::python;
use crate::remote::{AT, Net, Person, SESSION, modest_grant, operator_output, revoke};
use crate::schema_coverage::SchemaCoverage;
use crate::testbed::{is_inside, udp};
use serde_json::{Value, json};
use std::process::Command;
use weir_trust::grant::Grant;

/// Explains a holder's credential with the holder's key, and returns the document.
fn explained(net: &Net, who: &Person, request: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["credential", "explain", "--json", "--node", &format!("{}@{AT}", net.node), "--key"]);
    let output = command.args([&who.key, &who.credential]).args(request).output().unwrap();
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn documents_of_a_running_node_fit_their_schemas() {
    if !is_inside("json_documents::documents_of_a_running_node_fit_their_schemas") {
        return;
    }
    let mut net = Net::with_interface_lines("[[link]]\ninterface = \"a\"\nrate = \"100 Mbit/s\"\n");
    let [
        mut session,
        mut link,
        mut records,
        mut usage,
        mut decisions,
        mut entries,
        mut explanation,
        mut revocations,
        mut credentials,
    ] = [
        "session",
        "link",
        "records",
        "ledger",
        "ledger-decisions",
        "ledger-entry",
        "explanation",
        "revocations",
        "credentials",
    ]
    .map(SchemaCoverage::of);
    let document = |text: String| -> Value { serde_json::from_str(&text).unwrap() };

    // Before anything happened.
    records.add(document(operator_output(&net, &["records", "--json"])));
    revocations.add(document(operator_output(&net, &["credential", "revocations", "--json"])));
    credentials.add(document(operator_output(&net, &["credential", "list", "--json"])));
    assert_eq!(credentials.documents()[0]["roots"][0]["grants"], json!([]));
    usage.add(document(operator_output(&net, &["ledger", "--json"])));
    decisions.add(document(operator_output(&net, &["ledger", "--decisions", "--json"])));
    assert_eq!((records.documents(), revocations.documents()), (&[json!([])][..], &[json!([])][..]));
    link.add(document(operator_output(&net, &["link", "show", "a", "--json"])));

    let researcher = net.granted("researcher", modest_grant());
    let student = net.delegated(&researcher, "student", Grant::default());
    let share = format!("follow={}", researcher.identity.public());
    net.run(&student, &[&SESSION[..], &["--cpu", "period=10ms,slice=100us", "--share", &share]].concat());
    net.run(&student, &["load", "study", "port-count,ports=53"]);
    net.run_refused(
        &student,
        &["session", "create", "huge", "--memory", "1 GiB"],
        "the credential does not allow that",
    );
    let name = student.name_of("study");
    net.testbed.send(&[udp(53, b"one"), udp(53, b"two")]);
    net.testbed
        .until("both packets have arrived", |testbed| testbed.count(&name, "port-count", "packets") == 2);
    session.add(document(net.run(&student, &["session", "show", "study", "--json"])));
    session.add(document(net.run(&researcher, &["session", "show", &name, "--json"])));
    net.run(&student, &["session", "change", "study", "--remove-share", &share]);
    session.add(document(net.run(&researcher, &["session", "show", &name, "--json"])));
    session.add(document(operator_output(&net, &["session", "show", &name, "--json"])));
    let sums: Vec<_> = session.documents().iter().map(|document| &document["sums_only"]).collect();
    assert_eq!(sums, [&Value::Null, &Value::Null, &json!(true), &Value::Null]);
    for request in [&[][..], &["load", "study", "rtt"], &["session", "create", "huge", "--memory", "1 GiB"]] {
        explanation.add(explained(&net, &student, request));
    }
    let refused: Vec<_> =
        explanation.documents().iter().map(|document| &document["verdict"]["refused"]).collect();
    assert!(refused[0].is_null() && refused[1].is_null() && refused[2].is_string(), "{refused:?}");

    credentials.add(document(operator_output(&net, &["credential", "list", "--json"])));
    credentials.add(document(net.run(&researcher, &["credential", "list", "--json"])));
    let [_, by_operator, by_holder] = credentials.documents() else { panic!() };
    assert_eq!(by_operator["roots"][0]["grants"], by_holder["roots"][0]["grants"]);

    net.run(&student, &["unload", "study", "port-count"]);
    let list = document(net.run(&student, &["records", "--json"]));
    assert_eq!(list.as_array().map(Vec::len), Some(2), "{list}");
    records.add(list);
    revoke(&net, &student);
    revocations.add(document(operator_output(&net, &["credential", "revocations", "--json"])));
    assert_eq!(revocations.documents()[1][0]["entries"].as_array().map(Vec::len), Some(1));
    assert!(net.testbed.stop().success());
    let state = net.testbed.disk();
    let of_files = |more: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("ledger").arg(&state).args(more).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    usage.add(document(of_files(&["--json"])));
    decisions.add(document(of_files(&["--decisions", "--json"])));
    for line in of_files(&["--entries"]).lines() {
        entries.add(serde_json::from_str(line).unwrap());
    }
    assert!(entries.documents().len() > 10);
    let python = python(&["jsonschema"]);
    for coverage in [session, link, records, usage, decisions, entries, explanation, revocations, credentials]
    {
        coverage.validate(python.as_deref());
    }
}
