//! A node with remote access: holders can do all that their credentials allow, and nothing else.

use crate::testbed::{Testbed, ip, is_inside, udp};
use rand_core::OsRng;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_trust::credential::{Credential, resource_name};
use weir_trust::grant::{Ceilings, CpuShare, Grant, ModuleHash, ModuleSet, Modules, UnixSecond};
use weir_trust::key::{Identity, KeyFile, PublicKey};
use weir_trust::revocation::RevocationList;
use weir_units::Bytes;

pub const AT: &str = "127.0.0.1:7353";
pub const SESSION: [&str; 7] =
    ["session", "create", "study", "--memory", "8 MiB", "--channel", "interface=b"];

/// A key pair in a file, and a credential if one was granted.
pub struct Person {
    pub identity: Identity,
    pub key: PathBuf,
    pub credential: PathBuf,
}

impl Person {
    /// The node's internal name of a session that this person calls `given`.
    pub fn name_of(&self, given: &str) -> String {
        let credential: Credential = std::fs::read_to_string(&self.credential).unwrap().parse().unwrap();
        let id = credential.claimed_blocks().last().unwrap().id;
        resource_name(id, &self.identity.public(), &given.parse().unwrap()).to_string()
    }
}

/// A node with remote access, its operator, and a folder for the files of clients.
pub struct Net {
    pub testbed: Testbed,
    pub operator: Person,
    pub node: PublicKey,
    /// The file of the node's private key.
    pub key: PathBuf,
    pub folder: tempfile::TempDir,
}

pub fn person(folder: &Path, name: &str) -> Person {
    use std::os::unix::fs::PermissionsExt;
    let identity = Identity::generate(&mut OsRng);
    let (key, credential) = (folder.join(format!("{name}.key")), folder.join(format!("{name}.credential")));
    std::fs::write(&key, KeyFile::plain(&identity).as_bytes()).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    Person { identity, key, credential }
}

pub fn seconds_from_now(seconds: u64) -> UnixSecond {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    UnixSecond::new(now + seconds).unwrap()
}

/// The grant of a researcher: a tenth of a core, 16 MiB and two sessions, for an hour.
pub fn modest_grant() -> Grant {
    let ceilings = Ceilings {
        cpu: Some(CpuShare(100_000)),
        memory: Some(Bytes(16 << 20)),
        sessions: Some(2),
        ..Ceilings::default()
    };
    Grant { ceilings, expires: Some(seconds_from_now(3600)), ..Grant::default() }
}

impl Net {
    pub fn new() -> Self {
        Self::with_interface_lines("")
    }

    /// As [`Self::new`], with the further lines `before` in the section of the interface.
    pub fn with_interface_lines(before: &str) -> Self {
        ip("link set dev lo up");
        let folder = tempfile::tempdir().unwrap();
        let (operator, node) = (person(folder.path(), "operator"), person(folder.path(), "node"));
        let remote = format!(
            "[remote]\nlisten = \"{AT}\"\nkey = \"{}\"\nname = \"ix-1.example\"\nroots = [\"{}\"]\nREVOCATIONS\n",
            node.key.display(),
            operator.identity.public()
        );
        let sessions = format!("{before}\n{}", remote.replace("REVOCATIONS", ""));
        let testbed = Testbed::new(&sessions);
        Self { testbed, operator, node: node.identity.public(), key: node.key, folder }
    }

    /// A new person to whom the operator has granted this.
    pub fn granted(&self, name: &str, grant: Grant) -> Person {
        let person = person(self.folder.path(), name);
        let credential =
            Credential::mint(&self.operator.identity, person.identity.public(), grant, None, &mut OsRng)
                .unwrap();
        std::fs::write(&person.credential, credential.to_string()).unwrap();
        person
    }

    /// A new person to whom `from` has delegated this.
    pub fn delegated(&self, from: &Person, name: &str, grant: Grant) -> Person {
        let person = person(self.folder.path(), name);
        let credential: Credential = std::fs::read_to_string(&from.credential).unwrap().parse().unwrap();
        let next =
            credential.delegate(&from.identity, person.identity.public(), grant, None, &mut OsRng).unwrap();
        std::fs::write(&person.credential, next.to_string()).unwrap();
        person
    }

    pub fn weir(&self, who: &Person, arguments: &[&str]) -> Output {
        self.command(who, arguments).output().unwrap()
    }

    pub fn command(&self, who: &Person, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(arguments).arg("--node").arg(format!("{}@{AT}", self.node));
        command.arg("--credential").arg(&who.credential).arg("--key").arg(&who.key);
        command
    }

    pub fn run(&self, who: &Person, arguments: &[&str]) -> String {
        let output = self.weir(who, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until no session has a share of the core. A closed session has its share until its period ends.
    pub fn until_shares_are_free(&mut self) {
        self.testbed.until("all shares are free", |testbed| {
            testbed.snapshot()["cores"][0]["reserved_ppm"].as_u64() == Some(0)
        });
    }

    pub fn run_refused(&self, who: &Person, arguments: &[&str], why: &str) {
        let output = self.weir(who, arguments);
        let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }

    pub fn sessions(&self) -> Vec<Value> {
        self.testbed.snapshot()["sessions"].as_array().unwrap().clone()
    }
}

/// The output of a command of the operator over the local socket.
pub fn operator_output(net: &Net, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(arguments).arg("--socket").arg(net.testbed.path().join("node.sock")).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Revokes a person's credential, and delivers the list to the node.
pub fn revoke(net: &Net, from: &Person) {
    let list = net.folder.path().join("taken-back");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["credential", "revoke", from.credential.to_str().unwrap()])
        .args(["--key", net.operator.key.to_str().unwrap(), "--list", list.to_str().unwrap()])
        .args(["--node", &format!("{}@{AT}", net.node)])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_remote_holder_loads_a_module_and_sees_only_its_own_session() {
    if !is_inside("remote::a_remote_holder_loads_a_module_and_sees_only_its_own_session") {
        return;
    }
    let mut net = Net::with_interface_lines("[[link]]\ninterface = \"a\"\nrate = \"100 Mbit/s\"\n");
    net.testbed.request(json!({"create": {"name": "operators", "channel": [{"interface": "b"}],
        "output": [{"name": "operators-way", "link": "a"}]}}));
    let put = net
        .testbed
        .send_request_with_body(json!({"put-table": {"table": "operators-table"}}), b"a page of it");
    assert!(put.get("done").is_some(), "{put}");
    net.testbed.load("operators", json!({"module": "port-count"}), &[]);
    let filters = ["udp".parse().unwrap()].into();
    let researcher = net.granted("researcher", Grant { filters, ..modest_grant() });
    net.run(&researcher, &SESSION);
    let said = net.run(&researcher, &["load", "study", "port-count,ports=53"]);
    assert!(said.contains("module port-count runs in session study\n"), "{said}");

    // Packets have to match both filters: this one matches only the session's.
    let mut tcp = udp(53, b"not for him");
    tcp[23] = 6;
    net.testbed.send(&[udp(53, b"for him"), tcp, udp(53, b"and this")]);
    let name = net
        .sessions()
        .iter()
        .map(|s| s["name"].as_str().unwrap().to_owned())
        .find(|n| n != "operators")
        .unwrap();
    assert!(name.starts_with("study-"), "{name}");
    net.testbed
        .until("both packets have arrived", |testbed| testbed.count(&name, "port-count", "packets") >= 2);
    let packets =
        |net: &Net, session: &str| net.testbed.part(session, "channels", "main")["packets"].as_u64().unwrap();
    net.testbed
        .until("all have arrived", |testbed| testbed.part("operators", "channels", "main")["packets"] == 3);
    assert_eq!(packets(&net, &name), 2);

    // The researcher sees the own session by its name, and nothing of other sessions or of the node.
    let listed = net.run(&researcher, &["session", "list"]);
    assert!(listed.contains("study") && !listed.contains("operators"), "{listed}");
    let shown = net.run(&researcher, &["session", "show", "study", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["name"], "study");
    // Tables truncate long names.
    let beginning = &name[..20];
    let looked = [&["top", "--once"][..], &["link", "list"], &["table", "list"]];
    let [top, links, tables] = looked.map(|request| net.run(&researcher, request));
    assert!(top.contains("study") && top.contains("port-count"), "{top}");
    assert!(!top.contains("operators") && !top.contains("100M") && !top.contains(beginning), "{top}");
    assert_eq!((links.lines().count(), tables.lines().count()), (1, 1), "{links}{tables}");
    // The operator sees all of it.
    let [top, links, tables] = looked.map(|request| operator_output(&net, request));
    assert!(top.contains("operators") && top.contains("100M") && top.contains(beginning), "{top}");
    assert!(links.contains("100 Mbit/s") && tables.contains("operators-table"), "{links}{tables}");
    net.run_refused(
        &researcher,
        &["session", "close", "operators"],
        "no session `operators` under this credential",
    );
    net.run_refused(&researcher, &["load", "operators", "port-count"], "no session `operators`");
    net.run_refused(&researcher, &["reload"], "only the node's operator");
    net.run_refused(&researcher, &["table", "remove", "t"], "only the node's operator");

    // The sum of all sessions is limited by the grant.
    net.run_refused(
        &researcher,
        &["session", "create", "other", "--memory", "1 MiB"],
        "processor time: asked for 10%; of the 10% given to",
    );
    net.run(&researcher, &["unload", "study", "port-count"]);
    net.run(&researcher, &["session", "close", "study"]);
    net.run(&researcher, &["session", "create", "other", "--memory", "1 MiB"]);
    assert!(net.testbed.stop().success());
}

#[test]
fn a_request_beyond_a_credential_is_refused_with_the_reason() {
    if !is_inside("remote::a_request_beyond_a_credential_is_refused_with_the_reason") {
        return;
    }
    let mut net = Net::new();
    let create =
        |more: &'static [&'static str]| [&["session", "create", "s", "--memory", "1 MiB"], more].concat();

    // A stolen credential, with another key.
    let researcher = net.granted("researcher", modest_grant());
    let mut thief = person(net.folder.path(), "thief");
    thief.credential = researcher.credential.clone();
    net.run_refused(&thief, &create(&[]), "but you are");
    // A credential of an unknown root.
    let stranger = person(net.folder.path(), "stranger");
    let forged =
        Credential::mint(&stranger.identity, stranger.identity.public(), modest_grant(), None, &mut OsRng)
            .unwrap();
    std::fs::write(&stranger.credential, forged.to_string()).unwrap();
    net.run_refused(&stranger, &create(&[]), "root");
    // Not valid yet, and expired.
    let late = net.granted("late", Grant { not_before: Some(seconds_from_now(1800)), ..modest_grant() });
    net.run_refused(&late, &create(&[]), "not yet valid");
    let early = net.granted("early", Grant { expires: Some(seconds_from_now(0)), ..modest_grant() });
    net.run_refused(&early, &create(&[]), "expired");
    // Valid for other nodes.
    let nodes = Some(["*.other.example".parse().unwrap()].into_iter().collect());
    let elsewhere = net.granted("elsewhere", Grant { nodes, ..modest_grant() });
    net.run_refused(&elsewhere, &create(&[]), "ix-1.example");

    // More resources than granted.
    net.run_refused(
        &researcher,
        &["session", "create", "s", "--memory", "17 MiB"],
        "memory: asked for 17 MiB; of the 16 MiB given to",
    );
    net.run_refused(
        &researcher,
        &create(&["--cpu", "period=10ms,slice=2ms"]),
        "processor time: asked for 20%; of the 10% given to",
    );
    net.run_refused(
        &researcher,
        &create(&["--cpu", "period=10ms,slice=1ms,borrow=true"]),
        "beyond what is granted",
    );
    net.run_refused(&researcher, &create(&["--priority", "1"]), "priority");
    net.run_refused(&researcher, &create(&["--read", "t"]), "named tables");
    // Another module than granted, other packets, and the whole memory of an interface.
    let modules = Modules::from(ModuleSet {
        hashes: [ModuleHash::of_bytes(b"another one")].into(),
        ..ModuleSet::default()
    });
    let filters = ["udp".parse().unwrap()].into();
    let narrow = net.granted("narrow", Grant { modules, filters, ..modest_grant() });
    net.run_refused(
        &narrow,
        &create(&["--channel", "interface=b,visibility=all"]),
        "allows only some packets or fields",
    );
    net.run(&narrow, &create(&["--channel", "interface=b"]));
    net.run_refused(&narrow, &["load", "s", "port-count"], "modules: asked for `port-count`, ");
    // The filter of a credential is applied in addition to that of a channel.
    net.run_refused(
        &narrow,
        &["session", "change", "s", "--channel", "name=more,interface=b,filter=) or ("],
        "filter",
    );
    assert!(net.testbed.stop().success());
}

#[test]
fn delegates_share_the_grant_and_end_with_it() {
    if !is_inside("remote::delegates_share_the_grant_and_end_with_it") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings { sessions: Some(20), ..modest_grant().ceilings };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest_grant() });
    let students: Vec<Person> =
        (0..10).map(|n| net.delegated(&researcher, &format!("student-{n}"), Grant::default())).collect();
    let create = |memory: &'static str, cpu: &'static str| {
        ["session", "create", "work", "--memory", memory, "--cpu", cpu]
    };
    let (share, least) = ("period=10ms,slice=200us", "period=10ms,slice=1us");
    // Ten delegates request 2 % of a core and 3 MiB each, for a session of the same name. Five get them, and then
    // nothing of the researcher's grant is left.
    let (five, others) = students.split_at(5);
    for student in five {
        net.run(student, &create("3 MiB", share));
    }
    // A delegate is told that too little is left, but not how much others use; the delegator sees the sum.
    let given = format!("of the 10% given to {}, less than that is left", researcher.identity.public());
    let sum = format!("of the 10% given to {}, 0% is left", researcher.identity.public());
    for student in others {
        net.run_refused(student, &create("3 MiB", share), &format!("processor time: asked for 2%; {given}"));
        net.run_refused(student, &create("1 MiB", least), &given);
    }
    net.run_refused(&researcher, &create("1 MiB", least), &sum);
    // Delegates do not see each other; their delegator sees all of them, and can close their sessions.
    let names: Vec<String> = five.iter().map(|student| student.name_of("work")).collect();
    let there = |net: &Net| -> BTreeSet<String> {
        net.sessions().iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
    };
    let of = |names: &[String]| names.iter().cloned().collect();
    assert_eq!(there(&net), of(&names));
    assert_eq!(net.run(&others[0], &["session", "list"]).matches("work").count(), 0);
    assert_eq!(net.run(&five[0], &["session", "list"]).matches("work").count(), 1);
    let listed = net.run(&researcher, &["session", "list"]);
    assert!(names.iter().all(|name| listed.contains(name)), "{listed}");
    net.run_refused(&five[1], &["session", "close", &names[0]], "no session");
    net.run_refused(&five[0], &["session", "close", &names[1]], "no session");
    net.run(&researcher, &["session", "close", &names[0]]);
    assert_eq!(there(&net), of(&names[1..]));
    // Freed resources can be used by another delegate, and no more than those: 4 MiB of memory are left.
    net.run_refused(&others[0], &create("5 MiB", share), "memory: asked for 5 MiB; of the 16 MiB given to");
    net.run(&others[0], &create("4 MiB", share));
    net.run_refused(&others[1], &create("1 MiB", least), &given);
    assert_eq!(net.sessions().len(), 5);
    // All of these sessions end with the researcher's credential.
    revoke(&net, &researcher);
    net.testbed.until("all sessions are closed", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().is_empty()
    });
    for person in students.iter().chain([&researcher]) {
        net.run_refused(person, &create("1 MiB", least), "revoked");
    }
    assert!(net.testbed.stop().success());
    let ledger = net.testbed.ledger();
    let revoked = ledger.iter().filter(|entry| entry["reason"] == "revoked");
    assert_eq!(revoked.count(), 5);
}

#[test]
fn a_session_is_closed_when_its_right_ends() {
    if !is_inside("remote::a_session_is_closed_when_its_right_ends") {
        return;
    }
    let mut net = Net::new();
    // The credential expires while its session runs.
    let short = net.granted("short", Grant { expires: Some(seconds_from_now(15)), ..modest_grant() });
    net.run(&short, &SESSION);
    net.run(&short, &["load", "study", "port-count,ports=53"]);
    let mut follow = net.command(&short, &["follow", "study", "port-count", "--stream", "counts"]);
    let following = follow.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // A delegate's session ends when the delegator's credential expires, even if its own block has no date and the
    // delegator has no session.
    let shorter = net.granted("shorter", Grant { expires: Some(seconds_from_now(15)), ..modest_grant() });
    let pupil = net.delegated(&shorter, "pupil", Grant::default());
    let own: Credential = std::fs::read_to_string(&pupil.credential).unwrap().parse().unwrap();
    assert_eq!(own.claimed_blocks().last().unwrap().grant.expires, None);
    net.run(&pupil, &SESSION);
    net.run(&pupil, &["load", "study", "port-count,ports=53"]);
    net.testbed
        .until("both have ended", |testbed| testbed.snapshot()["sessions"].as_array().unwrap().is_empty());
    net.run_refused(&short, &SESSION, "expired");
    net.run_refused(&pupil, &SESSION, "expired: block 0 held until");
    // A follower of its records gets the reason.
    let followed = following.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&followed.stderr);
    assert!(followed.status.code() == Some(1) && said.contains("expired: block 0 held until"), "{said}");

    // Revocation: first of a delegate, then of its delegator.
    let researcher = net.granted("researcher", modest_grant());
    let student = net.delegated(&researcher, "student", Grant::default());
    let cpu = ["--cpu", "period=10ms,slice=100us"];
    net.run(&researcher, &[&SESSION[..], &cpu].concat());
    net.run(&student, &[&SESSION[..], &cpu].concat());
    let ids = |person: &Person| {
        let credential: Credential = std::fs::read_to_string(&person.credential).unwrap().parse().unwrap();
        credential.claimed_blocks().last().unwrap().id
    };
    let file = net.folder.path().join("revoked");
    let list =
        RevocationList::sign(&net.operator.identity, 1, seconds_from_now(0), [ids(&student)].into()).unwrap();
    std::fs::write(&file, list.to_string()).unwrap();
    let config = std::fs::read_to_string(net.testbed.config()).unwrap();
    let with = config.replace("[remote]\n", &format!("[remote]\nrevocations = [\"{}\"]\n", file.display()));
    std::fs::write(net.testbed.config(), with).unwrap();
    net.testbed.request(json!("reload"));
    net.testbed
        .until("one module is left", |testbed| testbed.snapshot()["sessions"].as_array().unwrap().len() == 1);
    net.run_refused(&student, &["session", "list"], "revoked");
    assert!(net.run(&researcher, &["session", "list"]).contains("study"));
    let all = RevocationList::sign(&net.operator.identity, 2, seconds_from_now(0), [ids(&researcher)].into())
        .unwrap();
    std::fs::write(&file, all.to_string()).unwrap();
    net.testbed.request(json!("reload"));
    net.testbed.until("all sessions are closed", |testbed| {
        testbed.snapshot()["sessions"].as_array().unwrap().is_empty()
    });
    net.run_refused(&researcher, &["session", "list"], "revoked");
    assert!(net.testbed.stop().success());
    let ledger = std::fs::read_dir(net.testbed.path().join("state/ledger")).unwrap();
    let text: String =
        ledger.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap_or_default()).collect();
    assert_eq!(text.matches("\"kind\":\"session-closed\"").count(), 4, "{text}");
    assert_eq!(text.matches("\"reason\":\"expired\"").count(), 2, "{text}");
    assert_eq!(text.matches("\"reason\":\"revoked\"").count(), 2, "{text}");
}
