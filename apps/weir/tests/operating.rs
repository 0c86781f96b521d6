//! Runs the section "A first node" of docs/OPERATING.md in temporary namespaces.

use crate::run::document::{can_unshare, run_script};
use crate::run::root;
use std::path::Path;

/// The heading of the part that is run.
const TITLE: &str = "## A first node";

/// Mounts an empty /tmp. The tested program may be below the earlier one, so it gets another place before.
const PREPARATION: &str = "set -eu -o pipefail
mount --rbind \"$(dirname \"$(command -v weir)\")\" /mnt
PATH=/mnt:$PATH
mount -t tmpfs none /tmp
cd /tmp
";

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
    let probe = "mount -t tmpfs none /tmp && ip link add eth0 type veth && command -v bash";
    if !can_unshare(probe, "ip(8) and bash") {
        return;
    }
    let document = std::fs::read_to_string(root().join("docs/OPERATING.md")).unwrap();
    let script = script(&document);
    assert!(script.matches("weir load ").count() == 3, "{script}");
    let home = tempfile::tempdir().unwrap();
    let printed = run_script(home.path(), &script, Path::new("/tmp/home"));
    for session in ["traffic", "modest", "greedy"] {
        assert!(printed.contains(session), "{session}: {printed}");
    }
}
