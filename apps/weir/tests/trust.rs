//! Keys, grants, delegations and revocations as their users make them: the program, files, and nothing else.

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

fn done(folder: &Path, line: &str) -> String {
    let output = weir(folder, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn refused(folder: &Path, line: &str, why: &str) {
    let output = weir(folder, line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(why), "{line}: {said}");
}

#[test]
fn a_key_is_its_owners_alone_and_is_never_written_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let public = done(at, "key new a.key");
    assert!(public.starts_with("weir-key:"), "{public}");
    assert_eq!(done(at, "key show a.key"), public);
    assert_eq!(at.join("a.key").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let before = std::fs::read(at.join("a.key")).unwrap();
    refused(at, "key new a.key", "is there already");
    assert_eq!(std::fs::read(at.join("a.key")).unwrap(), before);
    std::fs::set_permissions(at.join("a.key"), std::fs::Permissions::from_mode(0o640)).unwrap();
    refused(at, "key show a.key", "chmod 600");
    refused(at, "key show none.key", "No such file");
}

#[test]
fn a_sealed_key_takes_its_passphrase() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("pass"), "correct horse\nbattery\n").unwrap();
    std::fs::write(at.join("wrong"), "correct horse battery\n").unwrap();
    std::fs::write(at.join("empty"), "\n").unwrap();
    // As a key, a passphrase is its owner's alone.
    std::fs::set_permissions(at.join("pass"), std::fs::Permissions::from_mode(0o644)).unwrap();
    refused(at, "key new a.key --passphrase-file pass", "chmod 600");
    for name in ["pass", "wrong", "empty"] {
        std::fs::set_permissions(at.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    let public = done(at, "key new a.key --passphrase-file pass");
    let to = done(at, "key new b.key");
    // The public part needs none.
    assert_eq!(done(at, "key show a.key"), public);
    let grant =
        |with: &str| format!("grant --key a.key {with} --to {to} --until 2100-01-01 --at * --any-module");
    refused(at, &grant(""), "passphrase");
    refused(at, &grant("--passphrase-file wrong"), "passphrase");
    refused(at, &grant("--passphrase-file empty"), "first line is empty");
    refused(at, "key new c.key --passphrase-file empty", "first line is empty");
    assert!(!at.join("c.key").exists());
    assert!(done(at, &grant("--passphrase-file pass")).starts_with("weir-credential:"));
}

#[test]
fn a_grant_is_passed_on_narrowed_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for who in ["operator", "alice", "bob"] {
        std::fs::write(at.join(format!("{who}.pub")), done(at, &format!("key new {who}.key"))).unwrap();
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
    done(
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
        "is there already",
    );
    let shown = done(at, "credential show alice.credential");
    for part in [alice.as_str(), "20%", "128 MiB", "tcp", "2100-01-01"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // Only its holder passes it on, and no more than he has.
    let delegate =
        |key: &str, more: &str| format!("delegate alice.credential --key {key}.key --to {bob} {more}");
    refused(at, &delegate("bob", ""), "only with that key it can be passed on");
    refused(at, &delegate("alice", "--cpu 21%"), "21%");
    refused(at, &delegate("alice", "--until 2100-01-02"), "2100-01-02");
    refused(at, &delegate("alice", "--module port-count"), "modules");
    done(at, &delegate("alice", "--cpu 5% --out bob.credential"));
    let shown = done(at, "credential show bob.credential");
    assert!(shown.contains(&alice) && shown.contains(&bob) && shown.contains("5%"), "{shown}");
    refused(at, &format!("delegate bob.credential --key bob.key --to {alice}"), "refused");

    // What was damaged on the way says so.
    let text = std::fs::read_to_string(at.join("bob.credential")).unwrap();
    std::fs::write(at.join("cut.credential"), &text[..text.len() / 2]).unwrap();
    refused(at, "credential show cut.credential", "cut");
    refused(at, "credential show alice.key", "weir-credential:");

    // A list grows, and keeps what it has.
    let first = done(at, "credential revoke bob.credential --key operator.key --list revoked");
    assert!(first.contains("weir-id:") && first.contains("list 1 has 1 in all"), "{first}");
    let second =
        done(at, "credential revoke bob.credential alice.credential --key operator.key --list revoked");
    assert!(second.contains("list 2 has 2 in all"), "{second}");
    let before = std::fs::read(at.join("revoked")).unwrap();
    refused(at, "credential revoke alice.credential --key alice.key --list revoked", "");
    assert_eq!(std::fs::read(at.join("revoked")).unwrap(), before);
}

#[test]
fn a_module_is_signed_and_a_grant_says_whose_modules_and_which_fields() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let keys = ["author", "other"].map(|who| done(at, &format!("key new {who}.key")));
    std::fs::write(at.join("mine.wasm"), "first version").unwrap();
    let said = done(at, "sign mine.wasm --key author.key");
    assert!(
        said.starts_with("mine.wasm.sig: ") && said.ends_with(&format!("signed by {}", keys[0])),
        "{said}"
    );
    let first = std::fs::read_to_string(at.join("mine.wasm.sig")).unwrap();
    assert!(first.starts_with("weir module signature 1\n") && first.contains(&keys[0]), "{first}");
    // A new version in the place of the old one; what others have made stays.
    std::fs::write(at.join("mine.wasm"), "second version").unwrap();
    done(at, "sign mine.wasm --key author.key");
    let second = std::fs::read_to_string(at.join("mine.wasm.sig")).unwrap();
    assert_ne!(first, second);
    refused(at, "sign mine.wasm --key other.key", "it is not written over");
    refused(at, "sign mine.wasm --key author.key --out author.key", "it is not written over");
    assert_eq!(std::fs::read_to_string(at.join("mine.wasm.sig")).unwrap(), second);
    done(at, "sign rtt --key other.key --out rtt.sig");
    refused(at, "sign nothing --key other.key", "there is no module `nothing`");

    let grant =
        |more: &str| format!("grant --key author.key --to {} --until 2100-01-01 --at * {more}", keys[1]);
    done(
        at,
        &grant(&format!(
            "--signer {} --module rtt --write dscp,ttl --delegations 1 --out a.credential",
            keys[0]
        )),
    );
    let shown = done(at, "credential show a.credential");
    assert!(shown.contains(&format!("or signed by {}", keys[0])) && shown.contains("dscp, ttl"), "{shown}");
    refused(at, &grant("--signer weir-key:short --out b.credential"), "invalid value");
    refused(at, &grant("--any-module --write checksum"), "is no field that can be written; there are macs");
    done(at, &grant("--any-module --write none --out none.credential"));
    let shown = done(at, "credential show none.credential");
    assert!(
        shown.lines().any(|line| line.contains("fields to write:") && line.ends_with(" none")),
        "{shown}"
    );
    // Fewer can be passed on, and no more.
    let third = done(at, "key new third.key");
    let delegate = |more: &str| format!("delegate a.credential --key other.key --to {third} {more}");
    done(at, &delegate(&format!("--signer {} --write ttl --out c.credential", keys[0])));
    refused(at, &delegate(&format!("--signer {}", keys[1])), "modules");
    refused(at, &delegate("--write ttl,addresses"), "fields to write");
}

/// The grant of a credential's last block.
fn last_block(file: &Path) -> Grant {
    let credential: Credential = std::fs::read_to_string(file).unwrap().parse().unwrap();
    credential.claimed_links().last().unwrap().grant.clone()
}

/// The sentences about a new credential, without its holders.
fn sentences(folder: &Path, line: &str) -> Vec<String> {
    let output = weir(folder, line);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{line}: {said}");
    said.lines().filter_map(|line| line.strip_prefix("  ")).map(str::to_owned).collect()
}

#[test]
fn a_grant_gives_only_what_is_written_and_the_credential_states_each_default() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let [_, alice] = ["operator", "alice"].map(|who| done(at, &format!("key new {who}.key")));
    let grant = |more: &str| format!("grant --key operator.key --to {alice} --until 2100-01-01 {more}");
    refused(at, &grant("--any-module"), "--at <NODE>");

    let said = sentences(at, &grant("--any-module --at * --out least"));
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
        said,
        [
            "It begins at once and ends on 2100-01-01T00:00:00Z.",
            "It holds at all nodes that trust this root.",
            "Any module may be loaded, by any author.",
            "Modules are admitted by any profile of the node.",
            "They get packets from, and send into, all interfaces of these nodes.",
            "They get every packet.",
            "Of each packet they see headers only.",
            "They can read no other packets (`sees = \"all\"` is refused).",
            "They may change no field of a packet.",
            "All sessions of the holder and of those below together use at most 10% of a core.",
            "They use at most 64 MiB of memory.",
            "They send at most 0 bit/s.",
            "They write at most 1000 records a second.",
            "Their records have at most 4 MB/s.",
            "At most 4 GB of the records of their open sessions are kept.",
            "They keep at most 64 packets at a time.",
            "At most 1 session is there at a time.",
            "The holder cannot pass it on.",
        ]
    );

    // Everything wider is written, and can be.
    let wide = "--any-module --at ix-1.example --at *.ix.example --from 2026-01-01 --profile strict --interface eth0 --interface eth1 \
        --filter udp --view all --write all --cpu unlimited --memory unlimited --bandwidth unlimited --records unlimited --record-bytes unlimited --record-storage unlimited \
        --kept unlimited --sessions unlimited --delegations unlimited --out wide";
    let said = sentences(at, &grant(wide));
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
        said,
        [
            "It begins on 2026-01-01T00:00:00Z and ends on 2100-01-01T00:00:00Z.",
            "It holds at these nodes: ix-1.example, *.ix.example.",
            "Any module may be loaded, by any author.",
            "Modules are admitted by this profile of the node: strict.",
            "They get packets from, and send into, these interfaces: eth0, eth1.",
            "They get the packets that `udp` selects.",
            "Of each packet they see everything.",
            "They can read no other packets (`sees = \"all\"` is refused).",
            "They may change every field of a packet that can be written.",
            "All sessions of the holder and of those below together use any amount of processor time.",
            "They use any amount of memory.",
            "They send at any rate.",
            "They write any number of records.",
            "Their records have any number of bytes.",
            "Any amount of their records is kept.",
            "They keep any number of packets.",
            "Any number of sessions are there at a time.",
            "The holder can pass it on, until a chain has 8 blocks.",
        ]
    );
    let said = sentences(at, &grant("--any-module --at * --view all"));
    assert!(said.iter().any(|line| line.contains("may read all of an interface's memory")), "{said:?}");
    // One wide pattern is all nodes, whatever stands beside it.
    done(at, &grant("--any-module --at ix-1.example --at * --out everywhere"));
    assert_eq!(last_block(&at.join("everywhere")).nodes, None);
}

#[test]
fn who_passes_a_credential_on_writes_each_right_that_the_next_holder_gets() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let [_, alice, bob, _] =
        ["operator", "alice", "bob", "carol"].map(|who| done(at, &format!("key new {who}.key")));
    let grant = |more: &str| {
        done(
            at,
            &format!("grant --key operator.key --to {alice} --until 2100-01-01 --at * --any-module {more}"),
        )
    };
    grant(
        "--view payload=64,ttl=zeroed --write ttl,dscp --delegations 2 --records 500 --out alice.credential",
    );
    let delegate = |more: &str| format!("delegate alice.credential --key alice.key --to {bob} {more}");
    let said = sentences(at, &delegate("--out least"));
    let least = Grant {
        view: Some("payload=none,ttl=zeroed".parse().unwrap()),
        writes: Some(BTreeSet::new()),
        delegations: Some(0),
        ..Grant::default()
    };
    assert_eq!(last_block(&at.join("least")), least);
    // The sentences are about all blocks together: the next holder shares what the first has.
    for line in [
        "It begins at once and ends on 2100-01-01T00:00:00Z.",
        "Of each packet they see headers only, without times to live.",
        "They may change no field of a packet.",
        "They write at most 500 records a second.",
        "The holder cannot pass it on.",
    ] {
        assert!(said.iter().any(|there| there == line), "{line}: {said:?}");
    }
    refused(at, &format!("delegate least --key bob.key --to {alice}"), "refused");

    let said = sentences(at, &delegate("--view same --write same --delegations same --out same"));
    assert_eq!(last_block(&at.join("same")), Grant::default());
    for line in [
        "Of each packet they see headers and the first 64 bytes of payload, without times to live.",
        "They may change these fields of packets: dscp, ttl.",
        "The holder can pass it on, to holders who cannot pass it on.",
    ] {
        assert!(said.iter().any(|there| there == line), "{line}: {said:?}");
    }
    done(at, &delegate("--view payload=16,ttl=zeroed --write ttl --delegations 1 --out some"));
    refused(at, &delegate("--view payload=16"), "view: asked for payload=16");
    refused(at, &delegate("--view all"), "view: asked for all");
    refused(at, &delegate("--write ttl,ports"), "fields to write");
    refused(at, &delegate("--delegations 2"), "further delegations");

    // Of a credential of an older version, which states no view, payload is not passed on either.
    let operator = KeyFile::parse(&std::fs::read_to_string(at.join("operator.key")).unwrap()).unwrap();
    let old = Grant { expires: Some("2100-01-01".parse().unwrap()), ..Grant::default() };
    let old =
        Credential::mint(&operator.open(None).unwrap(), alice.parse().unwrap(), old, &mut OsRng).unwrap();
    std::fs::write(at.join("old"), old.to_string()).unwrap();
    done(at, &format!("delegate old --key alice.key --to {bob} --out of-old"));
    let least = Grant { view: Some(PacketView::HEADERS), ..least };
    assert_eq!(last_block(&at.join("of-old")), least);
}

/// The program at a terminal of its own, where each of these is typed when what stands before it is shown. All that was shown there, and whether it was done; nothing
/// where no terminal can be made.
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
fn a_passphrase_that_is_typed_is_not_shown_and_is_asked_for_twice_when_it_is_new() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let (new, again) = ("New passphrase of a.key: ", "The same again: ");
    let make = "key new a.key --passphrase";
    let Some((shown, is_done)) =
        at_a_terminal(at, make, &[(new, "correct horse\r"), (again, "correct hose\r")])
    else {
        return;
    };
    assert!(!is_done && shown.contains("another one than the first") && !shown.contains("hor"), "{shown}");
    assert!(!at.join("a.key").exists());
    let (shown, is_done) =
        at_a_terminal(at, make, &[(new, "correct hors\x7fse\r"), (again, "correct horse\r")]).unwrap();
    assert!(is_done && shown.contains("weir-key:") && !shown.contains("correct"), "{shown}");

    let to = done(at, "key new b.key");
    // A shell reads this line.
    let grant =
        format!("grant --key a.key --to {to} --until 2100-01-01 --at ix-1.example --any-module --out c");
    let prompt = "Passphrase of a.key: ";
    let (shown, is_done) = at_a_terminal(at, &grant, &[(prompt, "wrong\r")]).unwrap();
    assert!(!is_done && !shown.contains("wrong\r"), "{shown}");
    // Whoever gives up has his terminal back.
    let (shown, is_done) = at_a_terminal(at, &grant, &[(prompt, "corr\x03")]).unwrap();
    assert!(!is_done && shown.contains("given up"), "{shown}");
    let (shown, is_done) = at_a_terminal(at, &grant, &[(prompt, "correct horse\r")]).unwrap();
    assert!(is_done && at.join("c").exists() && !shown.contains("horse"), "{shown}");

    // Where there is no terminal nobody is asked, and nothing waits.
    refused(at, &grant.replace("--out c", "--out d"), "passphrase");
    refused(at, "key new d.key --passphrase", "no terminal");
    refused(at, "key new d.key --passphrase --passphrase-file c", "cannot be used with");
}

#[test]
fn a_list_takes_tokens_a_time_and_what_a_holder_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let [_, alice, bob] = ["operator", "alice", "bob"].map(|who| done(at, &format!("key new {who}.key")));
    let grant = "grant --key operator.key --until 2100-01-01 --any-module --at * --delegations 2";
    done(at, &format!("{grant} --to {alice} --out alice.credential"));
    done(at, &format!("delegate alice.credential --key alice.key --to {bob} --out bob.credential"));
    let shown = done(at, "credential show bob.credential");
    assert!(shown.contains("signed:"), "{shown}");
    let tokens: Vec<&str> = shown
        .split_whitespace()
        .filter(|word| word.starts_with("weir-id:"))
        .map(|word| word.trim_end_matches(':'))
        .collect();
    assert!(tokens.len() == 2 && tokens.iter().all(|it| it.ends_with("@2100-01-01T00:00:00Z")), "{shown}");
    // By its token it is in the list as by its file.
    let revoke =
        |what: &str| done(at, &format!("credential revoke {what} --key operator.key --list revoked"));
    assert!(revoke(tokens[0]).contains("list 1 has 1 in all"));
    assert!(revoke("alice.credential").contains("list 1 has 1 in all"));
    // What was passed on of it is revoked with it.
    let said = revoke("bob.credential");
    assert!(said.contains("is revoked already, with") && said.contains("list 1 has 1 in all"), "{said}");
    assert!(
        revoke("--all-before 2026-01-01").contains("everything that was signed before 2026-01-01T00:00:00Z")
    );
    let list = std::fs::read_to_string(at.join("revoked")).unwrap();
    assert!(
        list.starts_with("weir revocation list 2\n") && list.contains("\nall-before 2026-01-01T00:00:00Z\n")
    );
    refused(at, "credential revoke --key operator.key --list revoked", "required");
    refused(at, "credential revoke weir-id:short --key operator.key --list revoked", "is no identifier");
    // A holder has a list of their own, for one credential of theirs.
    done(at, "credential revoke bob.credential --key alice.key --list alices");
    let list = std::fs::read_to_string(at.join("alices")).unwrap();
    assert!(list.contains(&format!("signer {alice}\nunder weir-id:")), "{list}");
    refused(at, "credential revoke alice.credential --key alice.key --list alices", "take it back");
    refused(at, "credential revoke bob.credential --key operator.key --list alices", "Name a key of theirs");
    done(at, &format!("{grant} --to {alice} --cpu 5% --out more.credential"));
    done(at, &format!("delegate more.credential --key alice.key --to {bob} --out mores.credential"));
    refused(
        at,
        "credential revoke mores.credential --key alice.key --list alices",
        "another credential of yours",
    );
}

#[test]
fn commands_that_add_to_one_list_at_the_same_time_lose_no_entry() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    done(at, "key new operator.key");
    let tokens =
        ('a'..='p').map(|digit| format!("weir-id:{}@2100-01-01T00:00:00Z", digit.to_string().repeat(32)));
    let tokens: Vec<String> = tokens.collect();
    std::thread::scope(|scope| {
        for token in &tokens {
            let line = format!("credential revoke {token} --key operator.key --list revoked");
            scope.spawn(move || done(at, &line));
        }
    });
    let list = std::fs::read_to_string(at.join("revoked")).unwrap();
    for token in &tokens {
        assert!(list.contains(token), "{token}: {list}");
    }
    assert!(list.contains("\nsequence 16\n"), "{list}");
}
