//! The node's operator from elsewhere: all that he can do on the machine, and nobody else can.

use crate::place::is_inside;
use crate::remote::{AT, Net, SESSION, modest, person};
use serde_json::{Value, json};
use std::process::{Command, Stdio};

#[test]
fn an_operator_can_do_from_elsewhere_what_he_can_do_there_for_as_long_as_he_is_one() {
    if !is_inside(
        "remote_operator::an_operator_can_do_from_elsewhere_what_he_can_do_there_for_as_long_as_he_is_one",
    ) {
        return;
    }
    let mut net = Net::with("[[link]]\ninterface = \"b\"\nrate = \"100 Mbit/s\"\n");
    let (admin, stranger) = (person(net.folder.path(), "admin"), person(net.folder.path(), "stranger"));
    let researcher = net.granted("researcher", modest());
    net.done(&researcher, &SESSION);
    let before = std::fs::read_to_string(net.place.config()).unwrap();
    let operators = |list: &str| {
        let config = before.replace("roots = [", &format!("operators = [{list}]\nroots = ["));
        std::fs::write(net.place.config(), config).unwrap();
        net.place.done(json!("reload"));
    };
    operators(&format!("\"{}\"", admin.identity.public()));

    // Neither a root, whose credentials count, nor anybody else is one, whatever he asks for.
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
    for nobody in [&net.operator, &stranger, &researcher] {
        for ask in [&["reload"][..], &["session", "list"], &["ledger"], &["session", "close", "study"]] {
            let (is_done, said) = weir(&nobody.key, ask);
            assert!(
                !is_done && said.contains("name the credential's file with --credential"),
                "{ask:?}: {said}"
            );
        }
    }
    // With a credential he is its holder: one who is both says which he means.
    net.refused(&researcher, &["reload"], "only the node's operator");

    let listed = done(&["session", "list"]);
    assert!(listed.contains(&researcher.name_of("study")), "{listed}");
    done(&["session", "create", "own", "--memory", "8 MiB", "--channel", "interface=b"]);
    done(&["load", "own", "port-count"]);
    done(&["link", "change", "b", "--rate", "50 Mbit/s"]);
    assert!(done(&["link", "list"]).contains("50 Mbit/s"));
    assert!(done(&["top", "--once"]).contains("own"));
    let table = net.place.path().join("table");
    std::fs::write(&table, b"two").unwrap();
    done(&["table", "put", "geo", table.to_str().unwrap()]);
    assert!(done(&["table", "list"]).contains("geo"));
    done(&["unload", "own", "port-count"]);
    done(&["session", "close", "own"]);
    done(&["session", "close", &researcher.name_of("study")]);
    done(&["reload"]);

    // Who it was stands in the ledger, which he is told whole.
    let key = admin.identity.public().to_string();
    let begin = std::time::Instant::now();
    let (told, rows) = loop {
        let told = done(&["ledger", "--decisions", "--json"]);
        let rows: Vec<Value> = serde_json::from_str(&told).unwrap();
        // The last of it, when the interval has ended.
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

    // Whose session he closed is told that, and not which of the operators it was.
    let told = net.done(&researcher, &["ledger", "--decisions", "--json"]);
    let rows: Vec<Value> = serde_json::from_str(&told).unwrap();
    let closed: Vec<&Value> = rows.iter().filter(|row| row["request"] == "close").collect();
    assert!(closed.len() == 1 && closed[0]["session"] == "study" && closed[0]["key"].is_null(), "{told}");
    assert!(!told.contains(&key), "{told}");

    // About whose credential he asks, he says.
    let credential = researcher.credential.to_str().unwrap();
    let explained = done(&["credential", "explain", credential]);
    assert!(explained.contains("it allows:") && explained.contains("10%"), "{explained}");

    // Whoever looks when he is none any more sees no more.
    let mut watch = command(&admin.key, &["follow", "own", "port-count", "counts"]);
    done(&["session", "create", "own", "--memory", "8 MiB", "--channel", "interface=b"]);
    done(&["load", "own", "port-count"]);
    let watching = watch.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let streams = done(&["session", "show", "own", "--json"]);
    assert!(streams.contains("port-count"), "{streams}");
    std::thread::sleep(std::time::Duration::from_millis(500));
    operators("");
    let ended = watching.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("none of the node's operators any more"), "{said}");
    let (is_done, said) = weir(&admin.key, &["session", "list"]);
    assert!(!is_done && said.contains("a peer without a credential"), "{said}");
    assert!(net.place.stop().success());
}
