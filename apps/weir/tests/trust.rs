//! Tests of the commands for keys, grants, delegations and revocations, with files and no node.

use rand_core::OsRng;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use weir_admission::Name;
use weir_trust::credential::Credential;
use weir_trust::grant::{BytesPerSecond, Ceilings, CpuShare, Grant, PacketView};
use weir_trust::key::KeyFile;
use weir_units::{BitsPerSecond, Bytes};

fn weir(folder: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(folder).args(line.split_whitespace());
    for variable in ["WEIR_KEY", "WEIR_PASSPHRASE_FILE", "WEIR_NODE", "WEIR_CREDENTIAL"] {
        command.env_remove(variable);
    }
    command.output().unwrap()
}

/// Runs a command that must succeed, and returns its standard output.
fn succeeds(folder: &Path, line: &str) -> String {
    let output = weir(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn refused(folder: &Path, line: &str, why: &str) {
    let output = weir(folder, line);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && printed.contains(why), "{line}: {printed}");
}

#[test]
fn a_key_file_is_private_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let public = succeeds(at, "key new a.key");
    assert!(public.starts_with("weir-key:"), "{public}");
    assert_eq!(succeeds(at, "key show a.key"), public);
    assert_eq!(at.join("a.key").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(at.join("a.key")).unwrap();
    refused(at, "key new a.key", "exists already");
    assert_eq!(std::fs::read(at.join("a.key")).unwrap(), before);
    std::fs::set_permissions(at.join("a.key"), std::fs::Permissions::from_mode(0o640)).unwrap();
    refused(at, "key show a.key", "chmod 600");
    refused(at, "key show none.key", "No such file");
}

#[test]
fn an_encrypted_key_needs_its_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("pass"), "correct horse\nbattery\n").unwrap();
    std::fs::write(at.join("wrong"), "correct horse battery\n").unwrap();
    std::fs::write(at.join("empty"), "\n").unwrap();
    // A passphrase file must be private, like a key file.
    std::fs::set_permissions(at.join("pass"), std::fs::Permissions::from_mode(0o644)).unwrap();
    refused(at, "key new a.key --passphrase-file pass", "chmod 600");
    for name in ["pass", "wrong", "empty"] {
        std::fs::set_permissions(at.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let public = succeeds(at, "key new a.key --passphrase-file pass");
    let to = succeeds(at, "key new b.key");
    // The public key needs no passphrase.
    assert_eq!(succeeds(at, "key show a.key"), public);
    let grant =
        |with: &str| format!("grant --key a.key {with} --to {to} --until 2100-01-01 --at * --any-module");
    refused(at, &grant(""), "passphrase");
    refused(at, &grant("--passphrase-file wrong"), "passphrase");
    refused(at, &grant("--passphrase-file empty"), "first line is empty");
    refused(at, "key new c.key --passphrase-file empty", "first line is empty");
    assert!(!at.join("c.key").exists());
    assert!(succeeds(at, &grant("--passphrase-file pass")).starts_with("weir-credential:"));
}

#[test]
fn a_grant_is_delegated_narrowed_and_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for who in ["operator", "alice", "bob"] {
        std::fs::write(at.join(format!("{who}.pub")), succeeds(at, &format!("key new {who}.key"))).unwrap();
    }
    let public = |who: &str| std::fs::read_to_string(at.join(format!("{who}.pub"))).unwrap();
    let (alice, bob) = (public("alice"), public("bob"));
    refused(at, &format!("grant --key operator.key --to {alice} --until 2100-01-01 --at *"), "--any-module");
    refused(at, &format!("grant --key operator.key --to {alice} --at * --any-module"), "--until");
    refused(at, &format!("grant --key operator.key --to {alice} --until soon --at * --any-module"), "soon");
    refused(
        at,
        &format!("grant --key operator.key --to {}x --until 2100-01-01 --at * --any-module", alice),
        "invalid value",
    );
    succeeds(
        at,
        &format!(
            "grant --key operator.key --to {alice} --until 2100-01-01 --at * --delegations 1 --module rtt --filter tcp --cpu 20% --memory 128MiB --out alice.credential"
        ),
    );
    refused(
        at,
        &format!(
            "grant --key operator.key --to {bob} --until 2100-01-01 --at * --any-module --out alice.credential"
        ),
        "exists already",
    );
    let shown = succeeds(at, "credential show alice.credential");
    for part in [alice.as_str(), "20%", "128 MiB", "tcp", "2100-01-01"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Only the holder can delegate a credential, and only rights that it has.
    let delegate =
        |key: &str, more: &str| format!("delegate alice.credential --key {key}.key --to {bob} {more}");
    refused(at, &delegate("bob", ""), "the holder of the credential, can pass it on");
    refused(at, &delegate("alice", "--cpu 21%"), "21%");
    refused(at, &delegate("alice", "--until 2100-01-02"), "2100-01-02");
    refused(at, &delegate("alice", "--module port-count"), "modules");
    succeeds(at, &delegate("alice", "--cpu 5% --out bob.credential"));
    let shown = succeeds(at, "credential show bob.credential");
    assert!(shown.contains(&alice) && shown.contains(&bob) && shown.contains("5%"), "{shown}");
    refused(at, &format!("delegate bob.credential --key bob.key --to {alice}"), "refused");

    // A damaged credential is detected.
    let text = std::fs::read_to_string(at.join("bob.credential")).unwrap();
    std::fs::write(at.join("cut.credential"), &text[..text.len() / 2]).unwrap();
    refused(at, "credential show cut.credential", "cut");
    refused(at, "credential show alice.key", "weir-credential:");

    // Further entries are added to a list.
    let first = succeeds(at, "credential revoke bob.credential --key operator.key --list revoked");
    assert!(first.contains("weir-id:") && first.contains("list 1 has 1 in all"), "{first}");
    let second =
        succeeds(at, "credential revoke bob.credential alice.credential --key operator.key --list revoked");
    assert!(second.contains("list 2 has 2 in all"), "{second}");
    let before = std::fs::read(at.join("revoked")).unwrap();
    refused(at, "credential revoke alice.credential --key alice.key --list revoked", "");
    assert_eq!(std::fs::read(at.join("revoked")).unwrap(), before);
}

#[test]
fn a_grant_limits_modules_to_signers_and_fields() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let keys = ["author", "other"].map(|who| succeeds(at, &format!("key new {who}.key")));
    std::fs::write(at.join("mine.wasm"), "first version").unwrap();
    let printed = succeeds(at, "sign mine.wasm --key author.key");
    assert!(
        printed.starts_with("mine.wasm.sig: ") && printed.ends_with(&format!("signed by {}", keys[0])),
        "{printed}"
    );
    let first = std::fs::read_to_string(at.join("mine.wasm.sig")).unwrap();
    assert!(first.starts_with("weir module signature 1\n") && first.contains(&keys[0]), "{first}");
    // A new version replaces the old file, and files of other users stay.
    std::fs::write(at.join("mine.wasm"), "second version").unwrap();
    succeeds(at, "sign mine.wasm --key author.key");
    let second = std::fs::read_to_string(at.join("mine.wasm.sig")).unwrap();
    assert_ne!(first, second);
    refused(at, "sign mine.wasm --key other.key", "it is not overwritten");
    refused(at, "sign mine.wasm --key author.key --out author.key", "it is not overwritten");
    assert_eq!(std::fs::read_to_string(at.join("mine.wasm.sig")).unwrap(), second);
    succeeds(at, "sign rtt --key other.key --out rtt.sig");
    refused(at, "sign nothing --key other.key", "there is no module `nothing`");

    let grant =
        |more: &str| format!("grant --key author.key --to {} --until 2100-01-01 --at * {more}", keys[1]);
    succeeds(
        at,
        &grant(&format!(
            "--signer {} --module rtt --write dscp,ttl --delegations 1 --out a.credential",
            keys[0]
        )),
    );
    let shown = succeeds(at, "credential show a.credential");
    assert!(shown.contains(&format!("or signed by {}", keys[0])) && shown.contains("dscp, ttl"), "{shown}");
    refused(at, &grant("--signer weir-key:short --out b.credential"), "invalid value");
    refused(at, &grant("--any-module --write checksum"), "is no field that can be written; there are macs");
    succeeds(at, &grant("--any-module --write none --out none.credential"));
    let shown = succeeds(at, "credential show none.credential");
    assert!(
        shown.lines().any(|line| line.contains("fields to write:") && line.ends_with(" none")),
        "{shown}"
    );
    // A delegation can have fewer fields, but not more.
    let third = succeeds(at, "key new third.key");
    let delegate = |more: &str| format!("delegate a.credential --key other.key --to {third} {more}");
    succeeds(at, &delegate(&format!("--signer {} --write ttl --out c.credential", keys[0])));
    refused(at, &delegate(&format!("--signer {}", keys[1])), "modules");
    refused(at, &delegate("--write ttl,addresses"), "fields to write");
}

/// Returns the grant of a credential's last block.
fn last_block(file: &Path) -> Grant {
    let credential: Credential = std::fs::read_to_string(file).unwrap().parse().unwrap();
    credential.claimed_blocks().last().unwrap().grant.clone()
}

/// Returns the sentences that explain a new credential, without those about its holders.
fn sentences(folder: &Path, line: &str) -> Vec<String> {
    let output = weir(folder, line);
    let printed = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{line}: {printed}");
    printed.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect()
}

#[test]
fn a_grant_gives_only_stated_rights_and_the_credential_states_each_default() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let [_, alice] = ["operator", "alice"].map(|who| succeeds(at, &format!("key new {who}.key")));
    let grant = |more: &str| format!("grant --key operator.key --to {alice} --until 2100-01-01 {more}");
    refused(at, &grant("--any-module"), "--at <NODE>");

    let printed = sentences(at, &grant("--any-module --at * --out least"));
    let end = Some("2100-01-01".parse().unwrap());
    let least = Grant {
        view: Some(PacketView::HEADERS),
        writes: Some(BTreeSet::new()),
        ceilings: Ceilings {
            cpu: Some(CpuShare(100_000)),
            memory: Some(Bytes(64 << 20)),
            bandwidth: Some(BitsPerSecond(0)),
            records_per_second: Some(1000),
            record_bytes: Some(BytesPerSecond(4_000_000)),
            record_storage: Some(Bytes(4_000_000_000)),
            kept_packets: Some(64),
            sessions: Some(1),
        },
        delegations: Some(0),
        expires: end,
        ..Grant::default()
    };
    assert_eq!(last_block(&at.join("least")), least);
    assert_eq!(
        printed,
        [
            "It begins at once and ends on 2100-01-01T00:00:00Z.",
            "It holds at all nodes that trust this root.",
            "Any module may be loaded, by any author.",
            "Modules are admitted by any profile of the node.",
            "They get packets from, and send into, all interfaces of these nodes.",
            "They get every packet.",
            "Of each packet they see headers only.",
            "They can read no other packets (`visibility = \"all\"` is refused).",
            "They may change no field of a packet.",
            "All sessions of the holder and of those below together use at most 10% of a core.",
            "They use at most 64 MiB of memory.",
            "They send at most 0 bit/s.",
            "They write at most 1000 records a second.",
            "Their records have at most 4 MB/s.",
            "At most 4 GB of the records of their open sessions are kept.",
            "They keep at most 64 packets at a time.",
            "At most 1 session exists at a time.",
            "The holder cannot pass it on.",
        ]
    );

    // Wider rights must be stated, and can be.
    let wide = "--any-module --at ix-1.example --at *.ix.example --from 2026-01-01 --profile strict --interface eth0 --interface eth1 \
        --filter udp --view all --write all --cpu unlimited --memory unlimited --bandwidth unlimited --records-per-second unlimited --record-bytes unlimited --record-storage unlimited \
        --kept-packets unlimited --sessions unlimited --delegations unlimited --out wide";
    let printed = sentences(at, &grant(wide));
    let nodes = ["ix-1.example", "*.ix.example"].map(|node| node.parse().unwrap());
    let wide = Grant {
        profiles: Some([Name::new("strict").unwrap()].into()),
        filters: ["udp".parse().unwrap()].into(),
        interfaces: Some(["eth0", "eth1"].map(|name| name.parse().unwrap()).into()),
        view: Some(PacketView::ALL),
        nodes: Some(nodes.into_iter().collect()),
        not_before: Some("2026-01-01".parse().unwrap()),
        expires: end,
        ..Grant::default()
    };
    assert_eq!(last_block(&at.join("wide")), wide);
    assert_eq!(
        printed,
        [
            "It begins on 2026-01-01T00:00:00Z and ends on 2100-01-01T00:00:00Z.",
            "It holds at these nodes: ix-1.example, *.ix.example.",
            "Any module may be loaded, by any author.",
            "Modules are admitted by this profile of the node: strict.",
            "They get packets from, and send into, these interfaces: eth0, eth1.",
            "They get the packets that `udp` selects.",
            "Of each packet they see everything.",
            "They can read no other packets (`visibility = \"all\"` is refused).",
            "They may change every field of a packet that can be written.",
            "All sessions of the holder and of those below together use any amount of processor time.",
            "They use any amount of memory.",
            "They send at any rate.",
            "They write any number of records.",
            "Their records have any number of bytes.",
            "Any amount of their records is kept.",
            "They keep any number of packets.",
            "Any number of sessions exist at a time.",
            "The holder can pass it on, until a chain has 8 blocks.",
        ]
    );
    let printed = sentences(at, &grant("--any-module --at * --view all"));
    assert!(printed.iter().any(|line| line.contains("may read all of an interface's memory")), "{printed:?}");
    // A pattern that matches all nodes makes the other patterns irrelevant.
    succeeds(at, &grant("--any-module --at ix-1.example --at * --out everywhere"));
    assert_eq!(last_block(&at.join("everywhere")).nodes, None);
}

#[test]
fn a_delegation_states_each_right_of_the_next_holder() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let [_, alice, bob, _] =
        ["operator", "alice", "bob", "carol"].map(|who| succeeds(at, &format!("key new {who}.key")));
    let grant = |more: &str| {
        succeeds(
            at,
            &format!("grant --key operator.key --to {alice} --until 2100-01-01 --at * --any-module {more}"),
        )
    };
    grant(
        "--view payload=64,ttl=zeroed --write ttl,dscp --delegations 2 --records-per-second 500 --out alice.credential",
    );
    let delegate = |more: &str| format!("delegate alice.credential --key alice.key --to {bob} {more}");
    let printed = sentences(at, &delegate("--out least"));
    let least = Grant {
        view: Some("payload=none,ttl=zeroed".parse().unwrap()),
        writes: Some(BTreeSet::new()),
        delegations: Some(0),
        ..Grant::default()
    };
    assert_eq!(last_block(&at.join("least")), least);
    // The sentences describe all blocks together: the next holder shares the limits of the first.
    for line in [
        "It begins at once and ends on 2100-01-01T00:00:00Z.",
        "Of each packet they see headers only, without times to live.",
        "They may change no field of a packet.",
        "They write at most 500 records a second.",
        "The holder cannot pass it on.",
    ] {
        assert!(printed.iter().any(|there| there == line), "{line}: {printed:?}");
    }
    refused(at, &format!("delegate least --key bob.key --to {alice}"), "refused");

    let printed = sentences(at, &delegate("--view same --write same --delegations same --out same"));
    assert_eq!(last_block(&at.join("same")), Grant::default());
    for line in [
        "Of each packet they see headers and the first 64 bytes of payload, without times to live.",
        "They may change these fields of packets: dscp, ttl.",
        "The holder can pass it on, to holders who cannot pass it on.",
    ] {
        assert!(printed.iter().any(|there| there == line), "{line}: {printed:?}");
    }
    succeeds(at, &delegate("--view payload=16,ttl=zeroed --write ttl --delegations 1 --out some"));
    refused(at, &delegate("--view payload=16"), "view: asked for payload=16");
    refused(at, &delegate("--view all"), "view: asked for all");
    refused(at, &delegate("--write ttl,ports"), "fields to write");
    refused(at, &delegate("--delegations 2"), "further delegations");

    // A credential of an older version states no view, and its delegation does not include payload.
    let operator = KeyFile::parse(&std::fs::read_to_string(at.join("operator.key")).unwrap()).unwrap();
    let old = Grant { expires: Some("2100-01-01".parse().unwrap()), ..Grant::default() };
    let old = Credential::mint(&operator.open(None).unwrap(), alice.parse().unwrap(), old, None, &mut OsRng)
        .unwrap();
    std::fs::write(at.join("old"), old.to_string()).unwrap();
    succeeds(at, &format!("delegate old --key alice.key --to {bob} --out of-old"));
    let least = Grant { view: Some(PacketView::HEADERS), ..least };
    assert_eq!(last_block(&at.join("of-old")), least);
}

/// Runs the program at a new terminal. Each pair is a text to wait for, and what is typed then. Returns everything shown, and
/// whether the program succeeded; `None` if no terminal can be created.
fn at_a_terminal(folder: &Path, line: &str, dialogue: &[(&str, &str)]) -> Option<(String, bool)> {
    use std::io::{Read, Write};
    let command = format!("{} {line}", env!("CARGO_BIN_EXE_weir"));
    let mut script = Command::new("script");
    script.args(["-q", "-e", "-c", &command, "/dev/null"]).current_dir(folder).env("SHELL", "/bin/sh");
    for variable in ["WEIR_KEY", "WEIR_PASSPHRASE_FILE", "WEIR_NODE", "WEIR_CREDENTIAL"] {
        script.env_remove(variable);
    }
    script.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let Ok(mut script) = script.spawn() else {
        let _ = writeln!(std::io::stderr(), "skipped: there is no script(1) to make a terminal with");
        return None;
    };
    let (mut keys, mut screen) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let (mut shown, mut seen) = (String::new(), 0);
    let mut more = |shown: &mut String| {
        let mut bytes = [0; 1024];
        let count = screen.read(&mut bytes).unwrap_or(0);
        shown.push_str(&String::from_utf8_lossy(&bytes[..count]));
        count > 0
    };
    for (prompt, typed) in dialogue {
        while !shown[seen..].contains(prompt) {
            assert!(more(&mut shown), "{line}: no {prompt} in {shown}");
        }
        seen = shown.len();
        keys.write_all(typed.as_bytes()).unwrap();
    }
    while more(&mut shown) {}
    drop(keys);
    Some((shown, script.wait().unwrap().success()))
}

#[test]
fn a_typed_passphrase_is_not_echoed_and_a_new_one_is_asked_for_twice() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (new, again) = ("New passphrase of a.key: ", "Repeat the passphrase: ");
    let make = "key new a.key --passphrase";
    let Some((shown, is_done)) =
        at_a_terminal(at, make, &[(new, "correct horse\r"), (again, "correct hose\r")])
    else {
        return;
    };
    assert!(!is_done && shown.contains("the two passphrases differ") && !shown.contains("hor"), "{shown}");
    assert!(!at.join("a.key").exists());
    let (shown, is_done) =
        at_a_terminal(at, make, &[(new, "correct hors\x7fse\r"), (again, "correct horse\r")]).unwrap();
    assert!(is_done && shown.contains("weir-key:") && !shown.contains("correct"), "{shown}");

    let to = succeeds(at, "key new b.key");
    // The shell reads this line.
    let grant =
        format!("grant --key a.key --to {to} --until 2100-01-01 --at ix-1.example --any-module --out c");
    let prompt = "Passphrase of a.key: ";
    let (shown, is_done) = at_a_terminal(at, &grant, &[(prompt, "wrong\r")]).unwrap();
    assert!(!is_done && !shown.contains("wrong\r"), "{shown}");
    // After an interrupt the terminal echoes again.
    let (shown, is_done) = at_a_terminal(at, &grant, &[(prompt, "corr\x03")]).unwrap();
    assert!(!is_done && shown.contains("interrupted"), "{shown}");
    let (shown, is_done) = at_a_terminal(at, &grant, &[(prompt, "correct horse\r")]).unwrap();
    assert!(is_done && at.join("c").exists() && !shown.contains("horse"), "{shown}");

    // Without a terminal nothing is asked, and the command does not wait.
    refused(at, &grant.replace("--out c", "--out d"), "passphrase");
    refused(at, "key new d.key --passphrase", "no terminal");
    refused(at, "key new d.key --passphrase --passphrase-file c", "cannot be used with");
}

#[test]
fn a_revocation_list_takes_tokens_a_time_and_delegations() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let [_, alice, bob] = ["operator", "alice", "bob"].map(|who| succeeds(at, &format!("key new {who}.key")));
    let grant = "grant --key operator.key --until 2100-01-01 --any-module --at * --delegations 2";
    succeeds(at, &format!("{grant} --to {alice} --out alice.credential"));
    succeeds(at, &format!("delegate alice.credential --key alice.key --to {bob} --out bob.credential"));
    let shown = succeeds(at, "credential show bob.credential");
    assert!(shown.contains("signed:"), "{shown}");
    let tokens: Vec<&str> = shown
        .split_whitespace()
        .filter(|word| word.starts_with("weir-id:"))
        .map(|word| word.trim_end_matches(':'))
        .collect();
    assert!(tokens.len() == 2 && tokens.iter().all(|it| it.ends_with("@2100-01-01T00:00:00Z")), "{shown}");
    // The entry is the same for the token as for the file.
    let revoke =
        |what: &str| succeeds(at, &format!("credential revoke {what} --key operator.key --list revoked"));
    assert!(revoke(tokens[0]).contains("list 1 has 1 in all"));
    assert!(revoke("alice.credential").contains("list 1 has 1 in all"));
    // Its delegations are revoked with it.
    let printed = revoke("bob.credential");
    assert!(
        printed.contains("is revoked already, with") && printed.contains("list 1 has 1 in all"),
        "{printed}"
    );
    assert!(revoke("--all-before 2026-01-01").contains("everything signed before 2026-01-01T00:00:00Z"));
    let list = std::fs::read_to_string(at.join("revoked")).unwrap();
    assert!(
        list.starts_with("weir revocation list 2\n") && list.contains("\nall-before 2026-01-01T00:00:00Z\n")
    );
    refused(at, "credential revoke --key operator.key --list revoked", "required");
    refused(at, "credential revoke weir-id:short --key operator.key --list revoked", "is no identifier");
    // A holder has a separate list for delegations of one credential.
    succeeds(at, "credential revoke bob.credential --key alice.key --list alices");
    let list = std::fs::read_to_string(at.join("alices")).unwrap();
    assert!(list.contains(&format!("signer {alice}\nunder weir-id:")), "{list}");
    refused(at, "credential revoke alice.credential --key alice.key --list alices", "has no right to revoke");
    refused(
        at,
        "credential revoke bob.credential --key operator.key --list alices",
        "Name the key of the root, or of a holder",
    );
    succeeds(at, &format!("{grant} --to {alice} --cpu 5% --out more.credential"));
    succeeds(at, &format!("delegate more.credential --key alice.key --to {bob} --out mores.credential"));
    refused(
        at,
        "credential revoke mores.credential --key alice.key --list alices",
        "another credential of yours",
    );
}

#[test]
fn concurrent_additions_to_a_list_lose_no_entry() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    succeeds(at, "key new operator.key");
    let tokens =
        ('a'..='p').map(|digit| format!("weir-id:{}@2100-01-01T00:00:00Z", digit.to_string().repeat(32)));
    let tokens: Vec<String> = tokens.collect();
    std::thread::scope(|scope| {
        for token in &tokens {
            let line = format!("credential revoke {token} --key operator.key --list revoked");
            scope.spawn(move || succeeds(at, &line));
        }
    });
    let list = std::fs::read_to_string(at.join("revoked")).unwrap();
    for token in &tokens {
        assert!(list.contains(token), "{token}: {list}");
    }
    assert!(list.contains("\nsequence 16\n"), "{list}");
}
