//! A node that is reached over a network, by programs of others who have credentials: what these allow, and nothing else.

use crate::place::{Place, ip, is_inside, udp};
use rand_core::OsRng;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_trust::credential::{Credential, resource_name};
use weir_trust::grant::{Ceilings, CpuShare, Grant, ModuleHash, ModuleSet, Modules, Second};
use weir_trust::key::{Identity, KeyFile, PublicKey};
use weir_trust::revocation::RevocationList;
use weir_units::Bytes;

pub const AT: &str = "127.0.0.1:7353";
pub const SESSION: [&str; 7] =
    ["session", "create", "study", "--memory", "8 MiB", "--channel", "interface=b"];

/// Somebody with a key, and perhaps a credential.
pub struct Person {
    pub identity: Identity,
    pub key: PathBuf,
    pub credential: PathBuf,
}

impl Person {
    /// What the node calls what this one calls `given`.
    pub fn name_of(&self, given: &str) -> String {
        let credential: Credential = std::fs::read_to_string(&self.credential).unwrap().parse().unwrap();
        let id = credential.claimed_links().last().unwrap().id;
        resource_name(id, &self.identity.public(), &given.parse().unwrap()).to_string()
    }
}

/// A node, its operator, and a folder for what people keep.
pub struct Net {
    pub place: Place,
    pub operator: Person,
    pub node: PublicKey,
    /// The node's private key.
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

pub fn seconds_from_now(seconds: u64) -> Second {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Second::new(now + seconds).unwrap()
}

/// What a researcher gets: a tenth of a core, 16 MiB and two sessions, for an hour.
pub fn modest() -> Grant {
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
        Self::with("")
    }

    /// The same, with these lines behind those of the interface in the node's configuration.
    pub fn with(before: &str) -> Self {
        ip("link set dev lo up");
        let folder = tempfile::tempdir().unwrap();
        let (operator, node) = (person(folder.path(), "operator"), person(folder.path(), "node"));
        let remote = format!(
            "[remote]\nlisten = \"{AT}\"\nkey = \"{}\"\nname = \"ix-1.example\"\nroots = [\"{}\"]\nREVOCATIONS\n",
            node.key.display(),
            operator.identity.public()
        );
        let sessions = format!("{before}\n{}", remote.replace("REVOCATIONS", ""));
        let place = Place::new(&sessions);
        Self { place, operator, node: node.identity.public(), key: node.key, folder }
    }

    /// Somebody whom the operator has granted this.
    pub fn granted(&self, name: &str, grant: Grant) -> Person {
        let person = person(self.folder.path(), name);
        let credential =
            Credential::mint(&self.operator.identity, person.identity.public(), grant, &mut OsRng).unwrap();
        std::fs::write(&person.credential, credential.to_string()).unwrap();
        person
    }

    /// Somebody to whom `from` has passed this on.
    pub fn delegated(&self, from: &Person, name: &str, grant: Grant) -> Person {
        let person = person(self.folder.path(), name);
        let credential: Credential = std::fs::read_to_string(&from.credential).unwrap().parse().unwrap();
        let next = credential.delegate(&from.identity, person.identity.public(), grant, &mut OsRng).unwrap();
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

    pub fn done(&self, who: &Person, arguments: &[&str]) -> String {
        let output = self.weir(who, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn refused(&self, who: &Person, arguments: &[&str], why: &str) {
        let output = self.weir(who, arguments);
        let said = String::from_utf8_lossy(&output.stderr).replace('\n', " ");
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(!output.status.success() && said.contains(why), "{arguments:?}: {said}");
    }

    pub fn sessions(&self) -> Vec<Value> {
        self.place.snapshot()["sessions"].as_array().unwrap().clone()
    }
}

/// What the node's operator is told there.
fn at_the_node(net: &Net, arguments: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let output = command.args(arguments).arg("--socket").arg(net.place.path().join("node.sock")).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Has the operator take back what somebody has, and tell the node.
fn taken_back(net: &Net, from: &Person) {
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
fn who_has_a_credential_loads_a_module_from_elsewhere_and_sees_his_own_and_nothing_else() {
    if !is_inside(
        "remote::who_has_a_credential_loads_a_module_from_elsewhere_and_sees_his_own_and_nothing_else",
    ) {
        return;
    }
    let mut net = Net::with("[[link]]\ninterface = \"a\"\nrate = \"100 Mbit/s\"\n");
    net.place.done(json!({"create": {"name": "operators", "channel": [{"interface": "b"}],
        "output": [{"name": "operators-way", "link": "a"}]}}));
    let put = net.place.ask_with(json!({"put-table": {"table": "operators-table"}}), b"a page of it");
    assert!(put.get("done").is_some(), "{put}");
    net.place.load("operators", json!({"module": "port-count"}), &[]);
    let filters = ["udp".parse().unwrap()].into();
    let researcher = net.granted("researcher", Grant { filters, ..modest() });
    net.done(&researcher, &SESSION);
    let said = net.done(&researcher, &["load", "study", "port-count,ports=53"]);
    assert!(said.contains("module port-count runs in session study\n"), "{said}");

    // Its packets are those of both filters: here of the credential's alone.
    let mut tcp = udp(53, b"not for him");
    tcp[23] = 6;
    net.place.send(&[udp(53, b"for him"), tcp, udp(53, b"and this")]);
    let name = net
        .sessions()
        .iter()
        .map(|s| s["name"].as_str().unwrap().to_owned())
        .find(|n| n != "operators")
        .unwrap();
    assert!(name.starts_with("study-"), "{name}");
    net.place.until("both have arrived", |place| place.count(&name, "port-count", "packets") >= 2);
    let packets =
        |net: &Net, session: &str| net.place.part(session, "channels", "main")["packets"].as_u64().unwrap();
    net.place.until("all have arrived", |place| place.part("operators", "channels", "main")["packets"] == 3);
    assert_eq!(packets(&net, &name), 2);

    // He sees his own, by the name that he gave it, and nothing of others or of the node.
    let listed = net.done(&researcher, &["session", "list"]);
    assert!(listed.contains("study") && !listed.contains("operators"), "{listed}");
    let shown = net.done(&researcher, &["session", "show", "study", "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["name"], "study");
    // In a table long names are cut.
    let beginning = &name[..20];
    let looked = [&["top", "--once"][..], &["link", "list"], &["table", "list"]];
    let [top, links, tables] = looked.map(|ask| net.done(&researcher, ask));
    assert!(top.contains("study") && top.contains("port-count"), "{top}");
    assert!(!top.contains("operators") && !top.contains("100M") && !top.contains(beginning), "{top}");
    assert_eq!((links.lines().count(), tables.lines().count()), (1, 1), "{links}{tables}");
    // All of that is there: who may see it sees it.
    let [top, links, tables] = looked.map(|ask| at_the_node(&net, ask));
    assert!(top.contains("operators") && top.contains("100M") && top.contains(beginning), "{top}");
    assert!(links.contains("100 Mbit/s") && tables.contains("operators-table"), "{links}{tables}");
    net.refused(
        &researcher,
        &["session", "close", "operators"],
        "no session `operators` that the credential has to do with",
    );
    net.refused(&researcher, &["load", "operators", "port-count"], "no session `operators`");
    net.refused(&researcher, &["reload"], "only the node's operator");
    net.refused(&researcher, &["table", "remove", "t"], "only the node's operator");

    // All of it is granted once.
    net.refused(
        &researcher,
        &["session", "create", "other", "--memory", "1 MiB"],
        "processor time: asked for 10%; of the 10% given to",
    );
    net.done(&researcher, &["unload", "study", "port-count"]);
    net.done(&researcher, &["session", "close", "study"]);
    net.done(&researcher, &["session", "create", "other", "--memory", "1 MiB"]);
    assert!(net.place.stop().success());
}

#[test]
fn what_a_credential_does_not_allow_is_refused_with_its_reason() {
    if !is_inside("remote::what_a_credential_does_not_allow_is_refused_with_its_reason") {
        return;
    }
    let mut net = Net::new();
    let create =
        |more: &'static [&'static str]| [&["session", "create", "s", "--memory", "1 MiB"], more].concat();

    // Stolen: somebody else's, with one's own key.
    let researcher = net.granted("researcher", modest());
    let mut thief = person(net.folder.path(), "thief");
    thief.credential = researcher.credential.clone();
    net.refused(&thief, &create(&[]), "but you are");
    // Of an operator whom nobody here knows.
    let stranger = person(net.folder.path(), "stranger");
    let forged =
        Credential::mint(&stranger.identity, stranger.identity.public(), modest(), &mut OsRng).unwrap();
    std::fs::write(&stranger.credential, forged.to_string()).unwrap();
    net.refused(&stranger, &create(&[]), "root");
    // Not yet, and not any more.
    let late = net.granted("late", Grant { not_before: Some(seconds_from_now(1800)), ..modest() });
    net.refused(&late, &create(&[]), "not yet valid");
    let early = net.granted("early", Grant { expires: Some(seconds_from_now(0)), ..modest() });
    net.refused(&early, &create(&[]), "expired");
    // At another node.
    let nodes = Some(["*.other.example".parse().unwrap()].into_iter().collect());
    let elsewhere = net.granted("elsewhere", Grant { nodes, ..modest() });
    net.refused(&elsewhere, &create(&[]), "ix-1.example");

    // More than was granted.
    net.refused(
        &researcher,
        &["session", "create", "s", "--memory", "17 MiB"],
        "memory: asked for 17 MiB; of the 16 MiB given to",
    );
    net.refused(
        &researcher,
        &create(&["--cpu", "period=10ms,slice=2ms"]),
        "processor time: asked for 20%; of the 10% given to",
    );
    net.refused(
        &researcher,
        &create(&["--cpu", "period=10ms,slice=1ms,spare=true"]),
        "beyond what is granted",
    );
    net.refused(&researcher, &create(&["--priority", "1"]), "priority");
    net.refused(&researcher, &create(&["--read", "t"]), "named tables");
    // Another module than it names, other packets, all of an interface's memory.
    let modules =
        Modules::from(ModuleSet { hashes: [ModuleHash::of(b"another one")].into(), ..ModuleSet::default() });
    let filters = ["udp".parse().unwrap()].into();
    let narrow = net.granted("narrow", Grant { modules, filters, ..modest() });
    net.refused(&narrow, &create(&["--channel", "interface=b,sees=all"]), "for a part of it");
    net.done(&narrow, &create(&["--channel", "interface=b"]));
    net.refused(&narrow, &["load", "s", "port-count"], "modules: asked for `port-count`, ");
    // A filter is one more that packets have to pass, whatever is in it.
    net.refused(
        &narrow,
        &["session", "change", "s", "--channel", "name=more,interface=b,filter=) or ("],
        "filter",
    );
    assert!(net.place.stop().success());
}

#[test]
fn delegates_share_what_was_granted_and_end_with_it() {
    if !is_inside("remote::delegates_share_what_was_granted_and_end_with_it") {
        return;
    }
    let mut net = Net::new();
    let ceilings = Ceilings { sessions: Some(20), ..modest().ceilings };
    let researcher = net.granted("researcher", Grant { ceilings, ..modest() });
    let students: Vec<Person> =
        (0..10).map(|n| net.delegated(&researcher, &format!("student-{n}"), Grant::default())).collect();
    let create = |memory: &'static str, cpu: &'static str| {
        ["session", "create", "work", "--memory", memory, "--cpu", cpu]
    };
    let (share, least) = ("period=10ms,slice=200us", "period=10ms,slice=1us");
    // Ten want 2 % of a core and 3 MiB each, by the same name. Five have them; of what the researcher has, nothing is left then.
    let (five, others) = students.split_at(5);
    for student in five {
        net.done(student, &create("3 MiB", share));
    }
    // A delegate is told that it is too much, and not how much the others have; who passed it on reads the sum.
    let given = format!("of the 10% given to {}, less than that is left", researcher.identity.public());
    let sum = format!("of the 10% given to {}, 0% is left", researcher.identity.public());
    for student in others {
        net.refused(student, &create("3 MiB", share), &format!("processor time: asked for 2%; {given}"));
        net.refused(student, &create("1 MiB", least), &given);
    }
    net.refused(&researcher, &create("1 MiB", least), &sum);
    // They do not see each other; who passed it on sees all of them, and can end them.
    let names: Vec<String> = five.iter().map(|student| student.name_of("work")).collect();
    let there = |net: &Net| -> BTreeSet<String> {
        net.sessions().iter().map(|session| session["name"].as_str().unwrap().to_owned()).collect()
    };
    let of = |names: &[String]| names.iter().cloned().collect();
    assert_eq!(there(&net), of(&names));
    assert_eq!(net.done(&others[0], &["session", "list"]).matches("work").count(), 0);
    assert_eq!(net.done(&five[0], &["session", "list"]).matches("work").count(), 1);
    let listed = net.done(&researcher, &["session", "list"]);
    assert!(names.iter().all(|name| listed.contains(name)), "{listed}");
    net.refused(&five[1], &["session", "close", &names[0]], "no session");
    net.refused(&five[0], &["session", "close", &names[1]], "no session");
    net.done(&researcher, &["session", "close", &names[0]]);
    assert_eq!(there(&net), of(&names[1..]));
    // What one had another can have, and no more of it: of the memory 4 MiB are left.
    net.refused(&others[0], &create("5 MiB", share), "memory: asked for 5 MiB; of the 16 MiB given to");
    net.done(&others[0], &create("4 MiB", share));
    net.refused(&others[1], &create("1 MiB", least), &given);
    assert_eq!(net.sessions().len(), 5);
    // With what the researcher was granted all of it ends.
    taken_back(&net, &researcher);
    net.place.until("none is left", |place| place.snapshot()["sessions"].as_array().unwrap().is_empty());
    for person in students.iter().chain([&researcher]) {
        net.refused(person, &create("1 MiB", least), "revoked");
    }
    assert!(net.place.stop().success());
    let ledger = net.place.ledger();
    let revoked = ledger.iter().filter(|entry| entry["reason"] == "revoked");
    assert_eq!(revoked.count(), 5);
}

#[test]
fn a_session_ends_with_its_right() {
    if !is_inside("remote::a_session_ends_with_its_right") {
        return;
    }
    let mut net = Net::new();
    // Its time ends while it runs.
    let short = net.granted("short", Grant { expires: Some(seconds_from_now(15)), ..modest() });
    net.done(&short, &SESSION);
    net.done(&short, &["load", "study", "port-count,ports=53"]);
    let mut follow = net.command(&short, &["follow", "study", "port-count", "counts"]);
    let following = follow.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // So does that of somebody whom its holder passed his right on to, without a date of his own, though the holder has no session.
    let shorter = net.granted("shorter", Grant { expires: Some(seconds_from_now(15)), ..modest() });
    let pupil = net.delegated(&shorter, "pupil", Grant::default());
    let own: Credential = std::fs::read_to_string(&pupil.credential).unwrap().parse().unwrap();
    assert_eq!(own.claimed_links().last().unwrap().grant.expires, None);
    net.done(&pupil, &SESSION);
    net.done(&pupil, &["load", "study", "port-count,ports=53"]);
    net.place.until("both have ended", |place| place.snapshot()["sessions"].as_array().unwrap().is_empty());
    net.refused(&short, &SESSION, "expired");
    net.refused(&pupil, &SESSION, "expired: block 0 held until");
    // Whoever followed its records knows why there are no more.
    let followed = following.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&followed.stderr);
    assert!(followed.status.code() == Some(1) && said.contains("expired: block 0 held until"), "{said}");

    // It is taken back: first from a delegate, then from whom he has it.
    let researcher = net.granted("researcher", modest());
    let student = net.delegated(&researcher, "student", Grant::default());
    let cpu = ["--cpu", "period=10ms,slice=100us"];
    net.done(&researcher, &[&SESSION[..], &cpu].concat());
    net.done(&student, &[&SESSION[..], &cpu].concat());
    let ids = |person: &Person| {
        let credential: Credential = std::fs::read_to_string(&person.credential).unwrap().parse().unwrap();
        credential.claimed_links().last().unwrap().id
    };
    let file = net.folder.path().join("revoked");
    let list =
        RevocationList::sign(&net.operator.identity, 1, seconds_from_now(0), [ids(&student)].into()).unwrap();
    std::fs::write(&file, list.to_string()).unwrap();
    let config = std::fs::read_to_string(net.place.config()).unwrap();
    let with = config.replace("[remote]\n", &format!("[remote]\nrevocations = [\"{}\"]\n", file.display()));
    std::fs::write(net.place.config(), with).unwrap();
    net.place.done(json!("reload"));
    net.place.until("one is left", |place| place.snapshot()["sessions"].as_array().unwrap().len() == 1);
    net.refused(&student, &["session", "list"], "revoked");
    assert!(net.done(&researcher, &["session", "list"]).contains("study"));
    let all = RevocationList::sign(&net.operator.identity, 2, seconds_from_now(0), [ids(&researcher)].into())
        .unwrap();
    std::fs::write(&file, all.to_string()).unwrap();
    net.place.done(json!("reload"));
    net.place.until("none is left", |place| place.snapshot()["sessions"].as_array().unwrap().is_empty());
    net.refused(&researcher, &["session", "list"], "revoked");
    assert!(net.place.stop().success());
    let ledger = std::fs::read_dir(net.place.path().join("state/ledger")).unwrap();
    let text: String =
        ledger.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap_or_default()).collect();
    assert_eq!(text.matches("\"kind\":\"session-closed\"").count(), 4, "{text}");
    assert_eq!(text.matches("\"reason\":\"expired\"").count(), 2, "{text}");
    assert_eq!(text.matches("\"reason\":\"revoked\"").count(), 2, "{text}");
}
