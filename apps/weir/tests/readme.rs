//! Runs every `weir` command of README.md in temporary namespaces.

use crate::run::document::{can_unshare, run_script};
use crate::run::{root, sample};

/// Creates what the commands use: a capture, a module, two interfaces and the loopback, three keys and the configuration of a node.
const PREPARATION: &str = r#"
set -eu -o pipefail
mount -t tmpfs none /run
mkdir -m 700 /run/weir
ip link add eth0 type veth peer name eth1
ip link set eth0 up
ip link set eth1 up
ip link set lo up
for who in operator security-team university node; do weir key new $who.key >/dev/null; done
cat > node.toml <<END
[node]
socket = "/run/weir/node.sock"
state = "$PWD/state"
[[interface]]
name = "eth0"
END
mkdir -m 700 state
until_it_catches_sigterm() {
    for i in $(seq 600); do
        mask=$(awk '/^SigCgt/ { print $2 }' /proc/$1/status)
        [ $((16#$mask & 0x4000)) = 0 ] || return 0
        sleep 0.1
    done
}
"#;

/// Returns the `weir` commands of indented blocks, one per line.
fn commands(document: &str) -> Vec<String> {
    let document = document.replace("\\\n", " ");
    let lines = document.lines().filter_map(|line| line.strip_prefix("    "));
    lines.map(str::trim).filter(|line| line.starts_with("weir ")).map(str::to_owned).collect()
}

/// Returns the shell script of a command. Commands that run until they are interrupted are interrupted.
fn step(command: &str) -> String {
    let command = command
        .replace("weir-key:SECURITY-TEAM", "$(weir key show security-team.key)")
        .replace("weir-key:UNIVERSITY", "$(weir key show university.key)");
    let run = if command.starts_with("weir node ") {
        format!(
            "{command} &\nfor i in $(seq 600); do [ -S /run/weir/node.sock ] && break; sleep 0.1; done; [ -S /run/weir/node.sock ]"
        )
    } else if command.contains(" -i ") {
        // It reads packets as soon as it handles SIGINT. Background jobs of a shell ignore SIGINT by default.
        format!("{command} &\nuntil_it_catches_sigterm $!; kill -TERM $!; wait $!")
    } else if command == "weir top" {
        "weir top --once".to_owned()
    } else {
        command
    };
    format!("echo '+ {}'\n{run}\n", run.lines().next().unwrap_or_default().replace('\'', "'\\''"))
}

#[test]
fn every_command_of_the_readme_succeeds() {
    if !can_unshare("ip link add eth0 type veth && command -v bash", "ip(8) and bash") {
        return;
    }
    let document = std::fs::read_to_string(root().join("README.md")).unwrap();
    let commands = commands(&document);
    assert!(commands.len() > 15, "{commands:?}");
    let home = tempfile::tempdir().unwrap();
    std::fs::copy(sample(), home.path().join("traffic.pcap")).unwrap();
    let module = root().join("guest/modules/port-count/port-count.wasm");
    std::fs::copy(module, home.path().join("theirs.wasm")).unwrap();
    std::os::unix::fs::symlink(root().join("docs"), home.path().join("docs")).unwrap();
    let script: String = commands.iter().map(|command| step(command)).collect();
    let printed = run_script(home.path(), &format!("{PREPARATION}{script}kill %1\n"), home.path());
    for file in [
        "report.html",
        "records/http/requests.parquet",
        "records-rtt/rtt/rtts.parquet",
        "marked.pcap",
        "mine/mine.wasm",
        "security-team.credential",
        "university.credential",
    ] {
        assert!(home.path().join(file).exists(), "{file}: {printed}");
    }
}
