//! Tests of the policy commands, which need no node: explanation, contradictions, test cases, and the effect of a credential.

use std::path::Path;
use std::process::{Command, Output};

/// Runs a command in a folder.
pub fn weir(folder: &Path, line: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.current_dir(folder).args(line);
    for variable in ["WEIR_KEY", "WEIR_PASSPHRASE_FILE", "WEIR_NODE", "WEIR_CREDENTIAL", "WEIR_SOCKET"] {
        command.env_remove(variable);
    }
    command.output().unwrap()
}

/// Runs a command that must succeed, and returns its standard output.
pub fn succeeds(folder: &Path, line: &str) -> String {
    let output = weir(folder, &line.split_whitespace().collect::<Vec<_>>());
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// Runs a command that must fail, and returns its output on both streams.
fn fails(folder: &Path, line: &str) -> String {
    let output = weir(folder, &line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(output.status.code(), Some(1), "{line}: {}", String::from_utf8_lossy(&output.stdout));
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn write(folder: &Path, file: &str, text: &str) {
    let path = folder.join(file);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

const LIMIT: &str = "
[limit]
profiles = [\"strict\"]
modules = [\"rtt\"]
interfaces = [\"eth0\"]
filter = \"udp\"
memory = \"64 MiB\"
cpu = \"20%\"
sessions = 3
delegations = 1
";

/// Writes keys of an operator, a university and a researcher; a policy that lets the university grant some rights; and a node's configuration.
pub fn setup() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let operator = succeeds(at, "key new operator.key");
    let university = succeeds(at, "key new university.key");
    let researcher = succeeds(at, "key new researcher.key");
    succeeds(at, "key new node.key");
    write(at, "policy.d/profiles/strict.toml", "tiers = [\"proved\"]\n");
    write(at, "policy.d/roots/university.toml", &format!("key = \"{university}\"\n{LIMIT}"));
    write(
        at,
        "node.toml",
        &format!(
            "[remote]\nlisten = \"127.0.0.1:7353\"\nkey = \"node.key\"\nname = \"ix-1.example\"\nroots = [\"{operator}\"]\n\
             [policy]\ndir = \"policy.d\"\n[[interface]]\nname = \"eth0\"\n[[interface]]\nname = \"eth1\"\n"
        ),
    );
    (folder, researcher)
}

#[test]
fn a_policy_is_explained_in_sentences() {
    let (folder, _) = setup();
    let at = folder.path();
    let printed = succeeds(at, "policy check policy.d");
    for part in [
        "profile `strict`: for root `university`",
        "the limit of all its credentials together",
        "packets that `udp` selects",
        "at most 64 MiB",
        "no test cases",
    ] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    // The policy of the configuration.
    let printed = succeeds(at, "policy check -c node.toml");
    assert!(printed.contains("its credentials have no limit"), "{printed}");
}

#[test]
fn compilers_are_explained_and_those_without_effect_are_reported() {
    let (folder, _) = setup();
    let at = folder.path();
    let operator = succeeds(at, "key show operator.key");
    let compiler = succeeds(at, "key new compiler.key");
    let file = "policy.d/compilers/lab.toml";
    let key = format!("key = \"{compiler}\"\n");
    let all = "trusted_for = [\"semantics\", \"bounds\"]\n";
    write(at, file, &format!("{key}{all}revoked_by = \"{operator}\"\n"));
    let printed = succeeds(at, "policy check -c node.toml");
    let says = format!(
        "compiler {compiler}: its machine code is trusted for semantics and bounds; lists of {operator} can revoke it"
    );
    assert!(printed.contains(&says), "{printed}");
    let warned = |text: String, says: &str| {
        write(at, file, &text);
        let output = weir(at, &["policy", "check", "-c", "node.toml"]);
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(printed.contains(says), "{says}: {printed}");
    };
    warned(
        format!("{key}{all}expires = \"2026-01-01\"\n"),
        "has expired: `expires` was 2026-01-01T00:00:00Z",
    );
    warned(
        format!("{key}trusted_for = [\"bounds\"]\n"),
        "asks for 1 keys trusted for `semantics`, and there are 0",
    );
    warned(format!("{key}{all}revoked_by = \"{compiler}\"\n"), "which is no root of trust");
    warned(format!("{key}trusted_for = [\"all\"]\n"), "lab.toml:2: ");
    write(at, "policy.d/compilers/again.toml", &format!("{key}{all}"));
    warned(format!("{key}{all}"), "is in");
    std::fs::remove_dir_all(at.join("policy.d/compilers")).unwrap();
}

#[test]
fn an_inaccessible_node_is_reported_and_a_node_for_operators_is_accepted() {
    let (folder, key) = setup();
    let at = folder.path();
    let remote = |who: &str| {
        let remote = "[remote]\nlisten = \"127.0.0.1:7353\"\nkey = \"node.key\"\n";
        write(at, "alone.toml", &format!("{remote}{who}"));
    };
    remote("");
    assert!(fails(at, "policy check -c alone.toml").contains("there is no root of trust"));
    remote(&format!("operators = [\"{key}\"]\n"));
    succeeds(at, "policy check -c alone.toml");
}

#[test]
fn contradictions_are_reported() {
    let (folder, _) = setup();
    let at = folder.path();
    write(at, "policy.d/profiles/wide.toml", "");
    let printed = fails(at, "policy check policy.d");
    assert!(printed.contains("wide.toml: no session may use profile `wide`"), "{printed}");
    // It is allowed for the operator's own root.
    succeeds(at, "policy check -c node.toml");
    std::fs::remove_file(at.join("policy.d/profiles/wide.toml")).unwrap();
    let file = "policy.d/roots/university.toml";
    let root = std::fs::read_to_string(at.join(file)).unwrap();
    for (old, new, says) in [
        (
            "sessions = 3",
            "sessions = 0",
            "root `university`: its credentials allow nothing here: `sessions` is 0",
        ),
        ("modules = [\"rtt\"]", "modules = []", "`modules` and `signers` name none"),
        ("filter", "until = \"2026-01-01\"\nfilter", "`until` was 2026-01-01T00:00:00Z"),
        ("filter = \"udp\"", "filter = \"prot 22\"", "its filter `prot 22` is invalid, and selects nothing"),
        ("filter = \"udp\"", "writes = [\"tttl\"]", "`tttl` is no field"),
    ] {
        write(at, file, &root.replace(old, new));
        let printed = fails(at, "policy check policy.d");
        assert!(printed.contains(says), "{printed}");
    }
    // A syntax error is reported with its line.
    for (old, new, says) in [
        ("\"strict\"", "\"strickt\"", "university.toml: there is no profile `strickt`; there is strict"),
        ("sessions", "sesions", "university.toml:10: unknown field `sesions`"),
        ("\"64 MiB\"", "64", "university.toml:8: "),
        ("\"rtt\"", "\"mine.wasm\"", "university.toml:3: `mine.wasm` is neither"),
        ("\"udp\"", "\"\"", "university.toml:7: "),
    ] {
        write(at, file, &root.replace(old, new));
        let printed = fails(at, "policy check policy.d");
        assert!(printed.contains(says), "{says}: {printed}");
    }
    write(at, file, &root);
    write(at, "policy.d/roots/again.toml", &root);
    assert!(fails(at, "policy check policy.d").contains("is in policy.d/roots/again.toml already"));
    std::fs::remove_file(at.join("policy.d/roots/again.toml")).unwrap();
    write(at, file, &root.replace("interfaces = [\"eth0\"]", "interfaces = [\"eth0\", \"eth7\"]"));
    let output = weir(at, &["policy", "check", "-c", "node.toml"]);
    assert!(output.status.success());
    assert!(
        String::from_utf8_lossy(&output.stderr)
            .contains("warning: root `university`: the node has no interface eth7")
    );
}

const CASES: &str = r#"
[[case]]
name = "a researcher gets what both say"
root = "university"
grant = [{ memory = "128 MiB", until = "2027-01-01" }]
to = ["alice"]
at = "2026-12-01"
request = { create = { name = "s", memory = "60 MiB", cpu = [{ period = "10ms", slice = "1ms" }], channel = [{ interface = "eth0" }] } }
expect = "allowed"

[[case]]
name = "and no more than the node lets the university grant"
root = "university"
grant = [{ memory = "128 MiB" }]
at = "2026-12-01"
request = { create = { name = "s", memory = "65 MiB" } }
expect = { refused = "of the 64 MiB given to all credentials of" }

[[case]]
name = "somebody else of the university shares that"
root = "university"
grant = [{ memory = "10 MiB" }]
to = ["bob"]
at = "2026-12-01"
after = ["a researcher gets what both say"]
request = { create = { name = "s", memory = "5 MiB", cpu = [{ period = "10ms", slice = "1ms" }] } }
expect = { refused = "less than that is left" }

[[case]]
name = "her own session she changes and loads"
root = "university"
grant = [{ memory = "128 MiB", until = "2027-01-01" }]
to = ["alice"]
at = "2026-12-01"
after = ["a researcher gets what both say"]
request = { change = { session = "s", memory = "64 MiB" } }
expect = "allowed"

[[case]]
name = "with the module that may be loaded"
root = "university"
grant = [{ memory = "128 MiB", until = "2027-01-01" }]
to = ["alice"]
at = "2026-12-01"
after = ["her own session she changes and loads"]
request = { load = { session = "s", module = { module = "rtt" } } }
expect = "allowed"

[[case]]
name = "and no other"
root = "university"
grant = [{ memory = "128 MiB", until = "2027-01-01" }]
to = ["alice"]
at = "2026-12-01"
after = ["her own session she changes and loads"]
request = { load = { session = "s", module = { module = "port-count" } } }
expect = { refused = "modules: asked for" }

[[case]]
name = "another interface"
root = "university"
grant = [{}]
at = "2026-12-01"
request = { create = { name = "s", channel = [{ interface = "eth1" }] } }
expect = { refused = "interfaces: asked for eth1, given is eth0" }

[[case]]
name = "students of students"
root = "university"
grant = [{}, {}, {}]
at = "2026-12-01"
request = "show"
expect = { refused = "further delegations: asked for 2, given is 1" }

[[case]]
name = "a stolen credential"
root = "university"
grant = [{}]
to = ["alice"]
requester = "mallory"
at = "2026-12-01"
request = "show"
expect = { refused = "but you are" }

[[case]]
name = "too late, and elsewhere"
root = "university"
grant = [{ until = "2026-11-01", nodes = ["*.example"] }]
at = "2026-12-01"
request = "show"
expect = { refused = "expired" }

[[case]]
name = "at another node"
root = "university"
grant = [{ nodes = ["*.example"] }]
node = "ix-1.other"
at = "2026-12-01"
request = "show"
expect = { refused = "ix-1.other" }

[[case]]
name = "a credential that there is"
credential = "../../researcher.credential"
at = "2026-12-01"
request = "reload"
expect = { refused = "only the node's operator" }
"#;

#[test]
fn test_cases_are_decided_as_requests_are() {
    let (folder, researcher) = setup();
    let at = folder.path();
    succeeds(
        at,
        &format!(
            "grant --key university.key --to {researcher} --until 2027-01-01 --at * --any-module --out researcher.credential"
        ),
    );
    write(at, "policy.d/cases/university.toml", CASES);
    let printed = succeeds(at, "policy test -c node.toml");
    assert_eq!(printed.lines().filter(|line| line.starts_with("ok ")).count(), 12, "{printed}");
    assert!(printed.ends_with("12 cases hold"), "{printed}");
    assert!(succeeds(at, "policy check -c node.toml").contains("12 test cases, run by"));
    succeeds(at, "config check node.toml");

    // A failed test case is reported with its actual result.
    for (old, new, says) in [
        (
            "memory = \"60 MiB\"",
            "memory = \"65 MiB\"",
            "expected: allowed; came: refused: the credential does not allow that: memory",
        ),
        (
            "memory = \"65 MiB\"",
            "memory = \"1 MiB\", cpu = [{ period = \"10ms\", slice = \"1ms\" }]",
            "in the reason; came: allowed",
        ),
        (
            "refused = \"less than that is left\"",
            "refused = \"4 MiB is left\"",
            "came: refused, but: the credential does not allow that",
        ),
        ("interface = \"eth1\"", "interface = \"eth9\"", "there is no interface `eth9`"),
    ] {
        write(at, "policy.d/cases/university.toml", &CASES.replacen(old, new, 1));
        let printed = fails(at, "policy test -c node.toml");
        assert!(printed.contains("FAILED  ") && printed.contains(says), "{says}: {printed}");
        assert!(printed.contains("do not hold") || printed.contains("does not hold"), "{printed}");
        assert!(fails(at, "config check node.toml").contains(says), "{says}");
    }
    // An invalid test case is reported with its line.
    for (old, new, says) in [
        ("root = \"university\"", "root = \"college\"", "university.toml:2: there is no root `college`"),
        (
            "after = [\"a researcher",
            "after = [\"a student",
            "`after` names the case `a student gets what both say`, but no earlier case",
        ),
        ("name = \"and no other\"", "name = \"another interface\"", "two cases called `another interface`"),
        ("credential = \"../../researcher.credential\"", "", "the requester is given either by"),
        ("../../researcher.credential", "../../researcher.key", "this is no credential"),
        ("at = \"2026-12-01\"\nrequest", "request", "missing field `at`"),
        ("expect = \"allowed\"", "expect = \"maybe\"", "unknown variant `maybe`"),
    ] {
        write(at, "policy.d/cases/university.toml", &CASES.replacen(old, new, 1));
        let printed = fails(at, "policy test -c node.toml");
        assert!(printed.contains(says), "{says}: {printed}");
    }
}

#[test]
fn a_credential_is_explained_as_a_node_evaluates_it() {
    let (folder, researcher) = setup();
    let at = folder.path();
    let grant = format!(
        "grant --key university.key --to {researcher} --until 2027-01-01 --any-module --memory 1GiB --cpu 10%"
    );
    succeeds(at, &format!("{grant} --at * --out researcher.credential"));
    succeeds(at, &format!("{grant} --at *.other --out elsewhere.credential"));
    let explain = "credential explain researcher.credential -c node.toml";
    let printed = succeeds(at, explain);
    for part in
        ["At node ix-1.example", "at most 64 MiB", "packets that `udp` selects", "eth0", "10% of a core"]
    {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    let printed =
        succeeds(at, &format!("{explain} session create s --memory 64MiB --channel interface=eth0"));
    assert!(printed.contains("would be allowed"), "{printed}");
    let printed = fails(at, &format!("{explain} session create s --memory 65MiB"));
    assert!(
        printed.contains("would be refused") && printed.contains("of the 64 MiB given to all credentials of"),
        "{printed}"
    );
    // Whether a module may be loaded can be decided before there is a session. Other questions need a session.
    let printed = succeeds(at, &format!("{explain} load s rtt"));
    assert!(printed.contains("would be allowed"), "{printed}");
    succeeds(at, &format!("{} --at * --module rtt --out rtt.credential", grant.replace(" --any-module", "")));
    let printed = fails(at, "credential explain rtt.credential -c node.toml load s port-count");
    assert!(
        printed.contains("would be refused") && printed.contains("modules: asked for `port-count`"),
        "{printed}"
    );
    succeeds(at, "credential explain rtt.credential -c node.toml load s rtt");
    let printed = fails(at, &format!("{explain} session close s"));
    assert!(printed.contains("there is no session `s`"), "{printed}");
    let printed = fails(at, "credential explain elsewhere.credential -c node.toml");
    assert!(printed.contains("not valid at this node") && printed.contains("ix-1.example"), "{printed}");
    let output =
        weir(at, &["credential", "explain", "researcher.credential", "-c", "node.toml", "key", "show", "x"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("sends no request to a node"));
    let json = succeeds(at, "credential explain researcher.credential -c node.toml --json session list");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["node"].as_str(), json["verdict"]["refused"].is_null()), (Some("ix-1.example"), true));
}

#[test]
fn all_of_an_interfaces_memory_requires_credentials_with_whole_packets() {
    let (folder, researcher) = setup();
    let at = folder.path();
    let grant =
        format!("grant --key operator.key --to {researcher} --until 2027-01-01 --at * --any-module --out");
    succeeds(at, &format!("{grant} least"));
    succeeds(at, &format!("{grant} whole --view all"));
    succeeds(at, &format!("{grant} some --view all --filter udp"));
    let ask = |credential: &str, channel: &str| {
        format!(
            "credential explain {credential} -c node.toml session create s --memory 1MiB --channel {channel}"
        )
    };
    for credential in ["least", "some"] {
        let printed = fails(at, &ask(credential, "interface=eth0,visibility=all"));
        let is_refused = printed.contains("would be refused") && printed.contains("visibility");
        assert!(
            is_refused
                && printed.contains(if credential == "least" { "by a view" } else { "only some packets" }),
            "{printed}"
        );
        let printed = succeeds(at, &ask(credential, "interface=eth0"));
        assert!(printed.contains("would be allowed"), "{printed}");
    }
    let printed = succeeds(at, &ask("whole", "interface=eth0,visibility=all"));
    assert!(printed.contains("would be allowed"), "{printed}");
    let printed = fails(at, &ask("least", "interface=eth0,view=all"));
    assert!(
        printed.contains("view: asked for all") && printed.contains("given is payload=none"),
        "{printed}"
    );
}
