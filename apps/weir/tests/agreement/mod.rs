//! Tests that `weir node` and `weir config check` accept and refuse the same configurations with the same messages.

mod places;

use crate::run::{run, weir};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

/// Starts a node with a configuration, and stops the node as soon as it runs. Returns true if it ran, and its standard
/// error.
fn run_node_until_started(config: &Path) -> (bool, String) {
    run_until_started(weir().args(["node", "-c"]).arg(config))
}

/// Runs `command`, which starts a node, and stops the node as soon as it runs. Returns true if it ran, and its standard
/// error.
fn run_until_started(command: &mut Command) -> (bool, String) {
    let mut node = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = String::new();
    let mut runs = false;
    for line in BufReader::new(node.stderr.take().unwrap()).lines() {
        stderr += &line.unwrap();
        stderr.push('\n');
        if !runs && stderr.ends_with("is running\n") {
            runs = true;
            let id = node.id().to_string();
            assert!(Command::new("kill").args(["-s", "TERM", &id]).status().unwrap().success());
        }
    }
    assert_eq!(node.wait().unwrap().success(), runs, "{stderr}");
    (runs, stderr)
}

#[test]
fn start_and_check_agree_on_configurations() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (config, ledger) = (at.join("node.toml"), at.join("state/ledger"));
    let check = || run([Path::new("config"), Path::new("check"), &config]);
    let head = |socket: &str| {
        format!("[node]\nsocket = \"{}/{socket}\"\nstate = \"{}/state\"\n", at.display(), at.display())
    };
    let lo = "[[interface]]\nname = \"lo\"\n";
    let link = "[[link]]\ninterface = \"lo\"\nrate = \"10 Mbit/s\"\n";
    let session = |more: &str| format!("[[session]]\nname = \"alice\"\n{more}\n");
    let channel =
        |filter: &str| session(&format!("channel = [{{ interface = \"lo\", filter = \"{filter}\" }}]"));
    let module =
        |text: &str| session(&format!("channel = [{{ interface = \"lo\" }}]\nmodule = [{{ {text} }}]"));
    let output = |text: &str| session(&format!("output = [{{ link = \"lo\", {text} }}]"));
    let cpu = |slice: &str| format!("cpu = [{{ period = \"10ms\", slice = \"{slice}\" }}]");
    let refused: Vec<(String, &str)> = vec![
        ("[cpu]\ncores = [4095]\n".to_owned(), "there is no core 4095"),
        ("[cpu]\nreceive_core = 4095\n".to_owned(), "there is no core 4095"),
        (session("cpu = [{ core = 4095 }]"), "virtual CPU `main`: core 4095 is none of the node's"),
        (session(&cpu("9.5ms")), "is more than this core has left"),
        (
            session(&cpu("5ms")) + &session(&cpu("4.5ms")).replace("alice", "bob"),
            "session `bob`: virtual CPU `main`",
        ),
        (lo.to_owned() + &channel("udp prt 53"), "channel `main`: filter expression"),
        (lo.to_owned() + &channel("host example.com"), "names are not looked up"),
        (link.to_owned() + &output("filter = \"udp prt 53\""), "output channel `main`: filter expression"),
        (link.to_owned() + &output("reserve = \"9.5 Mbit/s\""), "more is requested, 9 Mbit/s is unreserved"),
        (link.to_owned() + &output("queue = 65536"), "queues of output channels need"),
        (link.replace("\"lo\"", "\"nowhere\""), "there is no interface `nowhere`"),
        (session("memory = \"2 GiB\""), "2 GiB of memory are more than is left: 1 GiB"),
        (lo.to_owned() + &module("module = \"gone.wasm\""), "module `gone.wasm`: No such file"),
        (lo.to_owned() + &module("module = \"rtt\", set = { no = 1 }"), "module `rtt`: "),
        (lo.to_owned() + &module("module = \"rtt\" }, { module = \"rtt\""), "has a module `rtt` already"),
        (
            lo.to_owned()
                + &session(
                    "channel = [{ interface = \"lo\", visibility = \"all\", queue = 1000000 }]\nmodule = [{ module = \"rtt\" }]",
                ),
            "channel `main` has a queue of 1000000 packets, which takes",
        ),
        (session("profile = \"lax\""), "there is no profile `lax`"),
        (session(&cpu("11ms")), "`slice` is 11 ms; it must be above 0 and at most the period"),
        ("[[table]]\nname = \"t\"\nfile = \"t.bin\"\n".to_owned(), "t.bin: No such file"),
        ("[nod]\n".to_owned(), "unknown field `nod`"),
    ];
    for (text, says) in refused {
        fs::write(&config, head("node.sock") + &text).unwrap();
        let ended = check();
        assert_eq!(ended.text(), "", "{text}");
        let stderr = ended.fails(1, &[says]).stderr;
        assert_eq!(run_node_until_started(&config), (false, stderr), "{text}");
        // The start had not begun, so the next start reports no crash.
        assert!(!ledger.exists(), "{text}");
    }
    let long = "s".repeat(120);
    fs::write(&config, head(&long)).unwrap();
    let stderr = check().fails(1, &["the path of a socket has 1 to 107 bytes"]).stderr;
    assert_eq!(run_node_until_started(&config), (false, stderr));
    assert!(!ledger.exists());

    // An interface that does not exist yet is waited for.
    let later = "[[interface]]\nname = \"weir-later\"\n";
    let waits = later.to_owned() + &channel("udp port 53").replace("\"lo\"", "\"weir-later\"");
    let whole = session(&cpu("8ms")) + &session("memory = \"256 MiB\"").replace("alice", "bob");
    for (text, says) in
        [("", ""), (waits.as_str(), "there is no interface `weir-later` on this machine now"), (&whole, "")]
    {
        fs::write(&config, head("node.sock") + text).unwrap();
        let ended = check().succeeds();
        assert!(
            ended.text().contains(says)
                && ended.text().ends_with("a node can be started with this configuration\n")
        );
        let (runs, stderr) = run_node_until_started(&config);
        assert!(runs && stderr.contains(says), "{stderr}");
    }
}

#[test]
fn a_failed_start_is_not_reported_as_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let config = at.join("node.toml");
    let write = |socket: &str, more: &str| {
        let text = format!("[node]\nsocket = \"{0}/{socket}\"\nstate = \"{0}/state\"\n{more}", at.display());
        fs::write(&config, text).unwrap();
    };
    write("node.sock", "");
    assert!(run_node_until_started(&config).0);
    // Here the start has begun: the check does not know of files that the start creates.
    let core = std::thread::available_parallelism().unwrap().get() - 1;
    let traced = format!("[cpu]\ncores = [{core}]\ntrace = \"{}/traces\"\n", at.display());
    write(&format!("traces/core-{core}.trace"), &traced);
    let (runs, stderr) = run_node_until_started(&config);
    assert!(!runs && stderr.contains("there is a regular file, not a socket"), "{stderr}");
    write("node.sock", "");
    let (runs, stderr) = run_node_until_started(&config);
    assert!(runs && !stderr.contains("did not stop in order"), "{stderr}");
    let ledger = at.join("state/ledger");
    let printed = run([Path::new("ledger"), &ledger, Path::new("--entries")]).succeeds();
    let count = |kind: &str| printed.text().matches(&format!("\"kind\":\"{kind}\"")).count();
    assert_eq!((count("node-start"), count("node-stop"), count("recovered")), (3, 3, 0));
}
