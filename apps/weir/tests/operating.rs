//! Runs the section "A first node" of docs/OPERATING.md in temporary namespaces.

use crate::run::root;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// The heading of the part that is run.
const TITLE: &str = "## A first node";

/// Mounts an empty /tmp.
const PREPARATION: &str = "set -eu -o pipefail\nmount -t tmpfs none /tmp\ncd /tmp\n";

/// Returns the lines of the section's blocks, with the node in the background and `weir top` printing once.
fn script(document: &str) -> String {
    let part = document.lines().skip_while(|line| *line != TITLE).skip(1);
    let lines = part.take_while(|line| !line.starts_with("## ")).filter_map(|line| line.strip_prefix("    "));
    let mut script = String::from(PREPARATION);
    for line in lines.filter(|line| !line.starts_with("unshare ")) {
        if line.starts_with("weir node ") {
            script += &format!(
                "{line} >node.log 2>&1 &\nfor i in $(seq 600); do [ -S /tmp/weir.sock ] && break; sleep 0.1; done\n"
            );
        } else if line == "weir top" {
            script += "weir top --once\n";
        } else {
            script += &format!("{line}\n");
        }
    }
    script + "cat node.log\nkill %1\nwait %1\n"
}

#[test]
fn the_commands_of_a_first_node_succeed() {
    let unshare = "--user --map-root-user --net --mount --pid --fork --kill-child --mount-proc";
    let can = Command::new("unshare")
        .args(unshare.split(' '))
        .args(["sh", "-c", "mount -t tmpfs none /tmp && ip link add eth0 type veth && command -v bash"])
        .stdin(Stdio::null())
        .output();
    if !can.is_ok_and(|output| output.status.success()) {
        _ = writeln!(std::io::stderr(), "skipped: needs user namespaces, unshare(1), ip(8) and bash");
        return;
    }
    let document = std::fs::read_to_string(root().join("docs/OPERATING.md")).unwrap();
    let script = script(&document);
    assert!(script.matches("weir load ").count() == 3, "{script}");
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("script"), script).unwrap();
    let mut places = vec![Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap().to_owned()];
    places.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    let output = Command::new("unshare")
        .args(unshare.split(' '))
        .args(["bash", "script"])
        .stdin(Stdio::null())
        .current_dir(home.path())
        .env("PATH", std::env::join_paths(places).unwrap())
        .envs(["HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"].map(|name| (name, "/tmp/home")))
        .output()
        .unwrap();
    let printed = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}\n---\n{}", printed[0], printed[1]);
    for session in ["traffic", "modest", "greedy"] {
        assert!(printed[0].contains(session), "{session}: {}", printed[0]);
    }
}
