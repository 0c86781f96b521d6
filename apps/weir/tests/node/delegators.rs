//! A delegator's rights over its delegates' sessions, and the parts of their status that it sees.

use crate::remote::{Net, Person, SESSION, modest_grant};
use crate::testbed::{is_inside, udp};
use serde_json::Value;
use std::process::Stdio;
use weir_trust::grant::{Ceilings, CpuShare, Grant};

const PART: [&str; 2] = ["--cpu", "period=10ms,slice=100us"];

/// A node, a researcher, and a student with a delegated credential and a session `study` with a module.
fn delegated_session() -> (Net, Person, Person, String) {
    let net = Net::new();
    let ceilings = Ceilings { cpu: Some(CpuShare(500_000)), sessions: Some(4), ..modest_grant().ceilings };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest_grant() });
    let student = net.delegated(&researcher, "student", Grant::default());
    net.run(&student, &[&SESSION[..], &PART].concat());
    net.run(&student, &["load", "study", "port-count,ports=53"]);
    let name = student.name_of("study");
    (net, researcher, student, name)
}

#[test]
fn a_delegator_can_close_sessions_of_delegates_and_change_nothing_else() {
    if !is_inside("delegators::a_delegator_can_close_sessions_of_delegates_and_change_nothing_else") {
        return;
    }
    let (mut net, researcher, student, name) = delegated_session();
    let key = researcher.identity.public().to_string();
    let (manage, follow) = (format!("manage={key}"), format!("follow={key}"));
    for (arguments, right) in [
        (&["load", &name, "rtt"][..], &manage),
        (&["unload", &name, "port-count"], &manage),
        (&["follow", &name, "port-count", "--stream", "counts"], &follow),
        (&["session", "change", &name, "--memory", "4 MiB"], &manage),
        (&["session", "change", &name, "--channel", "name=more,interface=b"], &manage),
    ] {
        net.run_refused(&researcher, arguments, &format!("--share {right}"));
    }
    net.run_refused(&researcher, &["session", "change", &name, "--share", &manage], "only its owner shares");
    // The session is unchanged.
    assert_eq!(net.testbed.count(&name, "port-count", "records_lost"), 0);
    let there = net.sessions();
    assert_eq!((there.len(), &there[0]["memory_reserved"]), (1, &Value::from(8 << 20)));
    // A session can be shared only with keys of its owner's delegation chain.
    let stranger = net.operator.identity.public().to_string();
    let to_stranger = ["session", "change", "study", "--share", &format!("manage={stranger}")];
    net.run_refused(&student, &to_stranger, "shared only with earlier holders");
    net.run(&researcher, &["session", "close", &name]);
    assert!(net.sessions().is_empty());
    assert!(net.testbed.stop().success());
}

#[test]
fn a_delegator_sees_sums_of_a_delegates_session_and_others_see_nothing() {
    if !is_inside("delegators::a_delegator_sees_sums_of_a_delegates_session_and_others_see_nothing") {
        return;
    }
    let (mut net, researcher, student, name) = delegated_session();
    let sibling = net.delegated(&researcher, "sibling", Grant::default());
    net.testbed.send(&[udp(53, b"one"), udp(53, b"two")]);
    net.testbed
        .until("both packets have arrived", |testbed| testbed.count(&name, "port-count", "packets") == 2);
    let shown = |who: &Person, name: &str| -> Value {
        serde_json::from_str(&net.run(who, &["session", "show", name, "--json"])).unwrap()
    };
    let of = |session: &Value| {
        let channel = &session["channels"][0];
        (channel["packets"].clone(), channel["interface"].clone(), session["modules"][0]["streams"].clone())
    };
    let own = shown(&student, "study");
    assert_eq!(of(&own), (2.into(), "b".into(), Value::from(vec!["counts", "totals"])));
    let sums = shown(&researcher, &name);
    assert_eq!((of(&sums), &sums["sums_only"]), ((2.into(), "".into(), Value::Array(vec![])), &true.into()));
    assert!(!sums.to_string().contains("port-count"), "{sums}");
    for look in [&["session", "list"][..], &["top", "--once"], &["credential", "list"]] {
        let said = net.run(&researcher, look);
        assert!(said.contains("study-") && !said.contains("port-count"), "{said}");
        let said = net.run(&sibling, look);
        assert!(!said.contains("study"), "{said}");
    }
    // The tree of credentials begins at the holder's own.
    let student_key = student.identity.public().to_string();
    let tree = net.run(&researcher, &["credential", "list"]);
    assert!(
        tree.contains(&format!("\n        {student_key} weir-id:")) && tree.contains("memory: 8 MiB of"),
        "{tree}"
    );
    let tree = net.run(&sibling, &["credential", "list"]);
    assert!(!tree.contains(&student_key) && tree.contains("memory: 0 B of 16 MiB"), "{tree}");
    // Each sees the sum under its own link, and no other.
    let used = |who: &Person| -> Value {
        let credential = who.credential.to_str().unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["credential", "explain", credential, "--json", "--key", who.key.to_str().unwrap()])
            .args(["--node", &format!("{}@{}", net.node, crate::remote::AT)])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["used"].clone()
    };
    let memory = |who: &Person| -> Vec<(String, String)> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let used = used(who);
        let parts = used.as_array().unwrap().iter().filter(|shot| shot["resource"] == "memory");
        parts.map(|shot| (text(&shot["used"]), text(&shot["holder"]))).collect()
    };
    for (who, sum) in [(&student, "8 MiB"), (&researcher, "8 MiB"), (&sibling, "0 B")] {
        assert_eq!(memory(who), [(sum.to_owned(), who.identity.public().to_string())]);
    }
    assert!(net.testbed.stop().success());
}

#[test]
fn a_delegator_may_use_what_an_owner_shares_until_the_share_is_removed() {
    if !is_inside("delegators::a_delegator_may_use_what_an_owner_shares_until_the_share_is_removed") {
        return;
    }
    let (mut net, researcher, student, name) = delegated_session();
    let key = researcher.identity.public().to_string();
    let (manage, follow) = (format!("manage={key}"), format!("follow={key}"));
    let change = |net: &Net, option: &str, share: &str| {
        net.run(&student, &["session", "change", "study", option, share]);
    };
    // The right to follow does not include the right to manage, nor the reverse.
    change(&net, "--share", &follow);
    net.run_refused(&researcher, &["unload", &name, "port-count"], "--share manage=");
    let mut command = net.command(&researcher, &["follow", &name, "port-count", "--stream", "counts"]);
    let mut following = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    for who in [&researcher, &student] {
        let session = if std::ptr::eq(who, &researcher) { name.as_str() } else { "study" };
        let said = net.run(who, &["session", "show", session]);
        assert!(said.contains(&format!("shared: {follow}")) && said.contains("port-count"), "{said}");
    }
    // The records end when the share is removed. The ledger entry of the request shows that the follower is connected.
    net.testbed.until("the researcher follows", |testbed| {
        let follows = |entry: &Value| {
            entry["kind"] == "decision"
                && (&entry["request"], &entry["key"]) == (&"follow".into(), &key.as_str().into())
                && entry["outcome"] == "allowed"
        };
        testbed.ledger().iter().any(follows)
    });
    change(&net, "--remove-share", &follow);
    net.testbed.until("following has ended", |_| following.try_wait().unwrap().is_some());
    let followed = following.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&followed.stderr);
    assert!(followed.status.code() == Some(1) && said.contains("--share follow="), "{said}");

    change(&net, "--share", &manage);
    net.run_refused(&researcher, &["follow", &name, "port-count", "--stream", "counts"], "--share follow=");
    net.run(&researcher, &["unload", &name, "port-count"]);
    net.run(&researcher, &["load", &name, "port-count,ports=53", "--name", "second"]);
    net.run(&researcher, &["session", "change", &name, "--memory", "6 MiB"]);
    assert_eq!(net.sessions()[0]["memory_reserved"], 6 << 20);
    assert_eq!(net.testbed.part(&name, "modules", "second")["state"], "running");
    net.run_refused(&researcher, &["session", "change", &name, "--share", &follow], "only its owner shares");
    change(&net, "--remove-share", &manage);
    net.run_refused(&researcher, &["unload", &name, "second"], "--share manage=");

    // A session can be shared from its creation on.
    net.run(&student, &["session", "close", "study"]);
    net.run(&student, &[&SESSION[..], &PART, &["--share", &manage]].concat());
    net.run(&researcher, &["load", &name, "port-count,ports=53"]);
    assert!(net.testbed.stop().success());
}
