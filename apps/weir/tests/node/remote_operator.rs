//! Remote operators: they can do all that the local operator can, and no one else can.

use crate::remote::{AT, Net, SESSION, modest_grant, person};
use crate::testbed::is_inside;
use serde_json::{Value, json};
use std::process::{Command, Stdio};

#[test]
fn a_remote_operator_has_all_local_rights_until_its_key_is_removed() {
    if !is_inside("remote_operator::a_remote_operator_has_all_local_rights_until_its_key_is_removed") {
        return;
    }
    let mut net = Net::with_interface_lines("[[link]]\ninterface = \"b\"\nrate = \"100 Mbit/s\"\n");
    let (admin, stranger) = (person(net.folder.path(), "admin"), person(net.folder.path(), "stranger"));
    let researcher = net.granted("researcher", modest_grant());
    net.run(&researcher, &SESSION);
    let before = std::fs::read_to_string(net.testbed.config()).unwrap();
    let operators = |list: &str| {
        let config = before.replace("roots = [", &format!("operators = [{list}]\nroots = ["));
        std::fs::write(net.testbed.config(), config).unwrap();
        net.testbed.request(json!("reload"));
    };
    operators(&format!("\"{}\"", admin.identity.public()));

    // Neither a root nor a holder has the rights of an operator.
    let command = |key: &std::path::Path, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments).arg("--node").arg(format!("{}@{AT}", net.node)).arg("--key").arg(key);
        command
    };
    let weir = |key: &std::path::Path, arguments: &[&str]| {
        let output = command(key, arguments).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), said)
    };
    let done = |arguments: &[&str]| {
        let (is_done, said) = weir(&admin.key, arguments);
        assert!(is_done, "{arguments:?}: {said}");
        said
    };
    for refused in [&net.operator, &stranger, &researcher] {
        for request in [&["reload"][..], &["session", "list"], &["ledger"], &["session", "close", "study"]] {
            let (is_done, said) = weir(&refused.key, request);
            assert!(
                !is_done && said.contains("name the credential's file with --credential"),
                "{request:?}: {said}"
            );
        }
    }
    // With a credential an operator's key connects as a holder.
    net.run_refused(&researcher, &["reload"], "only the node's operator");

    let listed = done(&["session", "list"]);
    assert!(listed.contains(&researcher.name_of("study")), "{listed}");
    done(&["session", "create", "own", "--memory", "8 MiB", "--channel", "interface=b"]);
    done(&["load", "own", "port-count"]);
    done(&["link", "change", "b", "--rate", "50 Mbit/s"]);
    assert!(done(&["link", "list"]).contains("50 Mbit/s"));
    assert!(done(&["top", "--once"]).contains("own"));
    let table = net.testbed.path().join("table");
    std::fs::write(&table, b"two").unwrap();
    done(&["table", "put", "geo", table.to_str().unwrap()]);
    assert!(done(&["table", "list"]).contains("geo"));
    done(&["unload", "own", "port-count"]);
    done(&["session", "close", "own"]);
    done(&["session", "close", &researcher.name_of("study")]);
    done(&["reload"]);

    // The key of the operator is in the ledger, which an operator can read as a whole.
    let key = admin.identity.public().to_string();
    let begin = std::time::Instant::now();
    let (told, rows) = loop {
        let told = done(&["ledger", "--decisions", "--json"]);
        let rows: Vec<Value> = serde_json::from_str(&told).unwrap();
        // The last entry is written when the interval has ended.
        if rows.iter().any(|row| row["request"] == "reload" && row["key"] == key.as_str()) {
            break (told, rows);
        }
        assert!(begin.elapsed().as_secs() < 60, "{told}");
        std::thread::sleep(std::time::Duration::from_millis(200));
    };
    let by = |request: &str| rows.iter().filter(|row| row["request"] == request).collect::<Vec<_>>();
    let changed = by("change-link");
    assert!(changed.len() == 1 && changed[0]["key"] == key.as_str(), "{told}");
    assert!(by("close").iter().any(|row| row["key"] == key.as_str()), "{told}");
    assert!(by("connect").iter().any(|row| row["key"] == key.as_str() && row["outcome"] == "allowed"));

    // The owner of the closed session is told of that, but not by which operator.
    let told = net.run(&researcher, &["ledger", "--decisions", "--json"]);
    let rows: Vec<Value> = serde_json::from_str(&told).unwrap();
    let closed: Vec<&Value> = rows.iter().filter(|row| row["request"] == "close").collect();
    assert!(closed.len() == 1 && closed[0]["session"] == "study" && closed[0]["key"].is_null(), "{told}");
    assert!(!told.contains(&key), "{told}");

    // An operator names the credential to explain.
    let credential = researcher.credential.to_str().unwrap();
    let explained = done(&["credential", "explain", credential]);
    assert!(explained.contains("it allows:") && explained.contains("10%"), "{explained}");

    // A follower loses access when it is no longer an operator.
    let mut watch = command(&admin.key, &["follow", "own", "port-count", "--stream", "counts"]);
    done(&["session", "create", "own", "--memory", "8 MiB", "--channel", "interface=b"]);
    done(&["load", "own", "port-count"]);
    let watching = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let streams = done(&["session", "show", "own", "--json"]);
    assert!(streams.contains("port-count"), "{streams}");
    std::thread::sleep(std::time::Duration::from_millis(500));
    operators("");
    let ended = watching.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("not an operator key of this node any more"), "{said}");
    let (is_done, said) = weir(&admin.key, &["session", "list"]);
    assert!(!is_done && said.contains("a peer without a credential"), "{said}");
    assert!(net.testbed.stop().success());
}
