//! Runs the code blocks of docs/reference/REHEARSAL.md in order, as an ordinary user, in temporary namespaces.

use crate::run::document::{UNSHARE, can_unshare, path_with_weir};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::Command;

/// The heading of the part that is run.
const TITLE: &str = "# A rehearsal";

/// The first line of each shell script.
const STRICT: &str = "set -eux -o pipefail\n";

/// Returns the commands of the document's blocks in order. A command that begins with `!` must fail.
fn script(document: &str) -> String {
    let mut part = document.lines().skip_while(|line| !line.starts_with(TITLE));
    let part = part.by_ref().skip(1).take_while(|line| !line.starts_with("## "));
    let mut script = String::from(STRICT);
    let mut refused: Option<String> = None;
    for line in part.filter_map(|line| line.strip_prefix("    ")) {
        if let Some(command) = &mut refused {
            command.push_str(&format!("\n{line}"));
        } else if let Some(command) = line.strip_prefix("! ") {
            refused = Some(command.to_owned());
        } else {
            script.push_str(&format!("{line}\n"));
            if line.starts_with("unshare ") {
                // A new shell reads the commands from here on.
                script.push_str(STRICT);
            }
        }
        if let Some(command) = refused.take_if(|command| !command.ends_with('\\')) {
            script.push_str(&format!("if {command}\nthen echo 'not refused'; exit 1; fi\n"));
        }
    }
    script
}

fn document() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/REHEARSAL.md"))
        .unwrap()
}

/// The folder that the document creates in the reader's home folder.
const FOLDER: &str = "weir-rehearsal";

#[test]
fn the_commands_of_the_rehearsal_succeed() {
    let probe = "mount -t tmpfs none /run && ip -V && command -v bash python3";
    if !can_unshare(probe, "ip(8), bash and python3") {
        return;
    }
    let document = document();
    assert!(document.contains(&format!("    unshare {UNSHARE} bash\n")), "the document has another shell");
    let home = tempfile::tempdir().unwrap();
    let path = |name: &str| home.path().join(FOLDER).join(name);
    let printed = home.path().join("printed");
    let output = std::fs::File::create(&printed).unwrap();
    // Commands come on standard input, so a shell that a command starts reads the rest. The last command removes the files that are checked below.
    let script = script(&document);
    let script = script.strip_suffix("rm -r ~/weir-rehearsal\n").expect("the keys are removed at the end");
    std::fs::write(home.path().join("script"), script).unwrap();
    let status = Command::new("bash")
        .stdin(std::fs::File::open(home.path().join("script")).unwrap())
        .current_dir(home.path())
        .env("PATH", path_with_weir())
        .envs(["HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"].map(|name| (name, home.path())))
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .status()
        .unwrap();
    let read = |name: &str| std::fs::read_to_string(path(name)).unwrap_or_default();
    let printed = || std::fs::read_to_string(&printed).unwrap_or_default();
    let logs = || {
        let files = ["operator/ix1/log", "operator/ix2/log", "traffic.log"].map(read);
        printed() + "\n---\n" + &files.join("\n---\n")
    };
    assert!(status.success(), "{}", logs());

    // The round-trip times at both nodes are of the same addresses, which are pseudonyms.
    let places = ["student/rtts-1", "student/rtts-2"].map(|name| {
        let text = read(name);
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 3, "{}", logs());
        assert!(!text.contains("192.0.2."), "{text}");
        let value =
            |line: &str, name: &str| serde_json::from_str::<serde_json::Value>(line).unwrap()[name].clone();
        let ends = ["src", "dst"].map(|end| value(&lines[0], end).as_str().unwrap().to_owned());
        assert!(lines.iter().all(|line| value(line, "rtt_ns").as_u64().is_some_and(|rtt| rtt > 0)), "{text}");
        ends
    });
    assert_eq!(places[0], places[1]);
    assert_ne!(places[0][0], places[0][1]);
    // Each refusal states its reason.
    let printed = printed();
    for reason in
        ["processor time: asked for", "memory: asked for", "view: asked for", "modules: asked for", "revoked"]
    {
        assert!(printed.contains(reason), "{reason}: {}", logs());
    }
    assert_private(&path(""), &read("traffic.log"));
}

/// Asserts that other users cannot read any file, and that the served folder has no key.
fn assert_private(folder: &Path, served: &str) {
    let mut files = 0;
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap().flatten() {
            let metadata = entry.path().symlink_metadata().unwrap();
            // A socket in a private folder is private, whatever its mode.
            let is_private = metadata.mode() & 0o077 == 0 || metadata.file_type().is_socket();
            assert!(is_private, "{} can be reached by others", entry.path().display());
            files += 1;
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    assert!(files > 20, "{files}");
    assert_eq!(folder.metadata().unwrap().mode() & 0o777, 0o700);
    assert!(folder.join("student/student.key").exists() && !served.contains("student"), "{served}");
    assert_eq!(std::fs::read_dir(folder.join("web")).unwrap().count(), 0, "the served folder is empty");
}

#[test]
fn no_example_serves_a_folder_with_a_key_or_uses_a_world_writable_folder() {
    let examples = document();
    let examples: Vec<&str> = examples.lines().filter(|line| line.starts_with("    ")).collect();
    assert!(examples.len() > 90, "{}", examples.len());
    for line in &examples {
        assert!(
            !["/tmp", "/var/tmp", "/dev/shm", "sudo ", "777", "a+w"].iter().any(|bad| line.contains(bad)),
            "{line}"
        );
        let is_served = line.contains("http.server");
        let keys = ["operator", "researcher", "student"];
        assert!(
            !is_served || (line.contains("--directory web") && !keys.iter().any(|key| line.contains(key))),
            "{line}"
        );
    }
}

#[test]
fn a_command_that_must_fail_includes_its_continuation_lines() {
    let document = "text\n    not this\n# A rehearsal: so\n\nText.\n\n    one\n    ! two \\\n        more # why\n    three\n## Next\n\n    nor this\n";
    let wanted =
        "set -eux -o pipefail\none\nif two \\\n    more # why\nthen echo 'not refused'; exit 1; fi\nthree\n";
    assert_eq!(script(document), wanted);
}
