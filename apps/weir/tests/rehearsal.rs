//! What docs/SHARING.md has a new user do is done here, block for block, in namespaces that are gone afterwards.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The part of the document that is run.
const TITLE: &str = "## A rehearsal";

/// The commands of the document's blocks, in their order. A command that begins with `!` has to fail.
fn script(document: &str) -> String {
    let mut part = document.lines().skip_while(|line| !line.starts_with(TITLE));
    let part = part.by_ref().skip(1).take_while(|line| !line.starts_with("## "));
    let mut script = String::from("set -eu -o pipefail\n");
    let mut refused: Option<String> = None;
    for line in part.filter_map(|line| line.strip_prefix("    ")) {
        if let Some(command) = &mut refused {
            command.push_str(&format!("\n{line}"));
        } else if let Some(command) = line.strip_prefix("! ") {
            refused = Some(command.to_owned());
        } else {
            script.push_str(&format!("{line}\n"));
        }
        if let Some(command) = refused.take_if(|command| !command.ends_with('\\')) {
            script.push_str(&format!("if {command}\nthen echo 'not refused'; exit 1; fi\n"));
        }
    }
    script
}

fn document() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/SHARING.md")).unwrap()
}

#[test]
fn a_new_user_comes_through_docs_sharing() {
    let unshare = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    // Names of namespaces are files; these are seen by nobody else.
    let private = "mkdir -p /run/netns && mount -t tmpfs none /run/netns";
    let can = Command::new("unshare")
        .args(unshare)
        .args(["sh", "-c", &format!("{private} && ip -V && command -v bash python3")])
        .stdin(Stdio::null())
        .output();
    if !can.is_ok_and(|output| output.status.success()) {
        _ = writeln!(std::io::stderr(), "skipped: needs root, unshare(1), ip(8), bash and python3");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let said = std::fs::File::create(path("said")).unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_weir")).parent().map(Path::to_owned).unwrap();
    let mut places: Vec<PathBuf> = vec![programs];
    places.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    std::fs::write(path("script"), format!("{private}\n{}", script(&document()))).unwrap();
    let status = Command::new("unshare")
        .args(unshare)
        .args(["bash", "-x", "script"])
        .current_dir(folder.path())
        .env("PATH", std::env::join_paths(places).unwrap())
        .envs(["XDG_CACHE_HOME", "XDG_CONFIG_HOME"].map(|name| (name, folder.path())))
        .stdin(Stdio::null())
        .stdout(said.try_clone().unwrap())
        .stderr(said)
        .status()
        .unwrap();
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap_or_default();
    let logs = || ["said", "operator/ix1/log", "operator/ix2/log", "traffic.log"].map(read).join("\n---\n");
    assert!(status.success(), "{}", logs());

    // What it promises: round-trip times at both nodes, of the same addresses, which are not the true ones.
    let places = ["student/rtts-1", "student/rtts-2"].map(|name| {
        let text = read(name);
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 3, "{}", logs());
        assert!(!text.contains("192.0.2."), "{text}");
        let value = |line: &str, name: &str| {
            let field =
                line.split_whitespace().find_map(|field| field.strip_prefix(&format!("{name}="))?.into());
            field.map(str::to_owned).unwrap_or_else(|| panic!("no {name} in {line}"))
        };
        let ends = ["client", "server"].map(|end| value(&lines[0], end));
        assert!(
            lines.iter().all(|line| value(line, "rtt").parse::<u64>().is_ok_and(|rtt| rtt > 0)),
            "{text}"
        );
        ends
    });
    assert_eq!(places[0], places[1]);
    assert_ne!(places[0][0], places[0][1]);
    // Of every refusal the reason.
    let said = read("said");
    for reason in
        ["processor time: asked for", "memory: asked for", "view: asked for", "modules: asked for", "revoked"]
    {
        assert!(said.contains(reason), "{reason}: {}", logs());
    }
}

#[test]
fn a_command_that_has_to_fail_is_one_with_all_its_lines() {
    let document = "text\n    not this\n## A rehearsal: so\n\nText.\n\n    one\n    ! two \\\n        more # why\n    three\n## Next\n\n    nor this\n";
    let wanted =
        "set -eu -o pipefail\none\nif two \\\n    more # why\nthen echo 'not refused'; exit 1; fi\nthree\n";
    assert_eq!(script(document), wanted);
}
