//! Delegators and the sessions of their delegates: the requests that a delegator may make about these, and the parts of them that a delegator sees.

use crate::place::{is_inside, udp};
use crate::remote::{Net, Person, SESSION, modest};
use serde_json::Value;
use std::process::Stdio;
use weir_trust::grant::{Ceilings, CpuShare, Grant};

const PART: [&str; 2] = ["--cpu", "period=10ms,slice=100us"];

/// A node with a researcher, and a student to whom they have passed their credential on, who has a session `study` with a module.
fn scene() -> (Net, Person, Person, String) {
    let net = Net::new();
    let ceilings = Ceilings { cpu: Some(CpuShare(500_000)), sessions: Some(4), ..modest().ceilings };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest() });
    let student = net.delegated(&researcher, "student", Grant::default());
    net.done(&student, &[&SESSION[..], &PART].concat());
    net.done(&student, &["load", "study", "port-count,ports=53"]);
    let name = student.name_of("study");
    (net, researcher, student, name)
}

#[test]
fn a_delegator_closes_the_sessions_of_delegates_and_does_nothing_else_to_them() {
    if !is_inside("delegators::a_delegator_closes_the_sessions_of_delegates_and_does_nothing_else_to_them") {
        return;
    }
    let (mut net, researcher, student, name) = scene();
    let key = researcher.identity.public().to_string();
    let (manage, follow) = (format!("manage={key}"), format!("follow={key}"));
    for (arguments, right) in [
        (&["load", &name, "rtt"][..], &manage),
        (&["unload", &name, "port-count"], &manage),
        (&["follow", &name, "port-count", "counts"], &follow),
        (&["session", "change", &name, "--memory", "4 MiB"], &manage),
        (&["session", "change", &name, "--channel", "name=more,interface=b"], &manage),
    ] {
        net.refused(&researcher, arguments, &format!("--share {right}"));
    }
    net.refused(&researcher, &["session", "change", &name, "--share", &manage], "only its owner shares");
    // The operator sees that nothing has changed.
    assert_eq!(net.place.count(&name, "port-count", "records_lost"), 0);
    let there = net.sessions();
    assert_eq!((there.len(), &there[0]["memory_reserved"]), (1, &Value::from(8 << 20)));
    // The student shares with earlier holders of the credential alone.
    let stranger = net.operator.identity.public().to_string();
    let to_stranger = ["session", "change", "study", "--share", &format!("manage={stranger}")];
    net.refused(&student, &to_stranger, "shared only with those from whom");
    net.done(&researcher, &["session", "close", &name]);
    assert!(net.sessions().is_empty());
    assert!(net.place.stop().success());
}

#[test]
fn of_a_delegates_session_a_delegator_sees_sums_and_others_nothing() {
    if !is_inside("delegators::of_a_delegates_session_a_delegator_sees_sums_and_others_nothing") {
        return;
    }
    let (mut net, researcher, student, name) = scene();
    let sibling = net.delegated(&researcher, "sibling", Grant::default());
    net.place.send(&[udp(53, b"one"), udp(53, b"two")]);
    net.place.until("both have arrived", |place| place.count(&name, "port-count", "packets") == 2);
    let shown = |who: &Person, name: &str| -> Value {
        serde_json::from_str(&net.done(who, &["session", "show", name, "--json"])).unwrap()
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
    for look in [&["session", "list"][..], &["top", "--once"]] {
        let said = net.done(&researcher, look);
        assert!(said.contains("study-") && !said.contains("port-count"), "{said}");
        let said = net.done(&sibling, look);
        assert!(!said.contains("study"), "{said}");
    }
    // The sum under one's own link, and of no other.
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
        let parts = used.as_array().unwrap().iter().filter(|shot| shot["part"] == "memory");
        parts.map(|shot| (text(&shot["used"]), text(&shot["whose"]))).collect()
    };
    for (who, sum) in [(&student, "8 MiB"), (&researcher, "8 MiB"), (&sibling, "0 B")] {
        assert_eq!(memory(who), [(sum.to_owned(), who.identity.public().to_string())]);
    }
    assert!(net.place.stop().success());
}

#[test]
fn what_the_owner_of_a_session_shares_its_delegator_may_do_until_it_is_taken_back() {
    if !is_inside(
        "delegators::what_the_owner_of_a_session_shares_its_delegator_may_do_until_it_is_taken_back",
    ) {
        return;
    }
    let (mut net, researcher, student, name) = scene();
    let key = researcher.identity.public().to_string();
    let (manage, follow) = (format!("manage={key}"), format!("follow={key}"));
    let change = |net: &Net, option: &str, share: &str| {
        net.done(&student, &["session", "change", "study", option, share]);
    };
    // To follow is not to manage, and the other way round.
    change(&net, "--share", &follow);
    net.refused(&researcher, &["unload", &name, "port-count"], "--share manage=");
    let mut command = net.command(&researcher, &["follow", &name, "port-count", "counts"]);
    let mut following = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    for who in [&researcher, &student] {
        let session = if std::ptr::eq(who, &researcher) { name.as_str() } else { "study" };
        let said = net.done(who, &["session", "show", session]);
        assert!(said.contains(&format!("shared: {follow}")) && said.contains("port-count"), "{said}");
    }
    // A follower's records end when the right is taken back. The ledger has the request once records go to its sender.
    net.place.until("the researcher follows", |place| {
        let follows = |entry: &Value| {
            entry["kind"] == "decision"
                && (&entry["request"], &entry["key"]) == (&"follow".into(), &key.as_str().into())
                && entry["outcome"] == "allowed"
        };
        place.ledger().iter().any(follows)
    });
    change(&net, "--unshare", &follow);
    net.place.until("following has ended", |_| following.try_wait().unwrap().is_some());
    let followed = following.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&followed.stderr);
    assert!(followed.status.code() == Some(1) && said.contains("--share follow="), "{said}");

    change(&net, "--share", &manage);
    net.refused(&researcher, &["follow", &name, "port-count", "counts"], "--share follow=");
    net.done(&researcher, &["unload", &name, "port-count"]);
    net.done(&researcher, &["load", &name, "port-count,ports=53", "--name", "second"]);
    net.done(&researcher, &["session", "change", &name, "--memory", "6 MiB"]);
    assert_eq!(net.sessions()[0]["memory_reserved"], 6 << 20);
    assert_eq!(net.place.part(&name, "modules", "second")["state"], "running");
    net.refused(&researcher, &["session", "change", &name, "--share", &follow], "only its owner shares");
    change(&net, "--unshare", &manage);
    net.refused(&researcher, &["unload", &name, "second"], "--share manage=");

    // A session can be shared from its beginning.
    net.done(&student, &["session", "close", "study"]);
    net.done(&student, &[&SESSION[..], &PART, &["--share", &manage]].concat());
    net.done(&researcher, &["load", &name, "port-count,ports=53"]);
    assert!(net.place.stop().success());
}
