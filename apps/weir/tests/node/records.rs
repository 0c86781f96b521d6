//! `weir records`: stored record files are listed and fetched by the holders that may follow their sessions.

use crate::module::{assemble, text};
use crate::remote::{Net, Person, modest_grant, revoke};
use crate::testbed::{TIMEOUT, Testbed, is_inside, udp};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Instant;
use weir_trust::grant::Grant;

/// Emits a row with the time `size`, in seconds since 1970, for each packet.
fn clock_module() -> Vec<u8> {
    let manifest = "name = 'clock'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n\
        [[parameter]]\nname = 'size'\ntype = 'u64'\ndefault = 8\nmax = 100\n\
        [[stream]]\nname = 'rows'\n[[stream.field]]\nname = 'at'\ntype = 'timestamp'\n";
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i64.store (i32.const 64) (i64.mul (call $param_int (i32.const 0)) (i64.const 1000000000)))
        (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
        (i32.const 0))"#;
    assemble(&text(body), Some(manifest.as_bytes()))
}

/// Bytes without repetitions, which differ by `seed`.
fn noise(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    };
    (0..len).map(|_| next()).collect()
}

/// A holder with a session `study`, whose records are sent at a rate.
struct Study {
    net: Net,
    alice: Person,
    module: String,
    out: PathBuf,
}

impl Study {
    fn new(rate: &str) -> Self {
        let net = Net::new();
        let alice = net.granted("alice", modest_grant());
        let path = net.folder.path().join("clock.wasm");
        std::fs::write(&path, clock_module()).unwrap();
        let (module, out) = (path.to_str().unwrap().to_owned(), net.folder.path().join("out"));
        let study = Self { net, alice, module, out };
        study.create(&study.alice, rate, &[]);
        study
    }

    fn create(&self, who: &Person, rate: &str, more: &[&str]) {
        let create = ["session", "create", "study", "--memory", "4 MiB", "--channel", "interface=b"];
        let cpu = ["--cpu", "period=10ms,slice=1ms", "--record-bytes", rate];
        self.net.run(who, &[&create[..], &cpu, more].concat());
    }

    /// Loads the module, and unloads it after it has written three rows with this time. Returns the path of its file.
    fn write_rows(&mut self, who: &Person, seconds: u32) -> PathBuf {
        self.load(who, seconds);
        self.net.run(who, &["unload", "study", "clock"]);
        let mut files = files(&self.records(who));
        files.retain(|file| file.extension().is_some_and(|it| it == "parquet"));
        files.sort_by_key(|file| file.metadata().unwrap().modified().unwrap());
        files.pop().unwrap()
    }

    fn load(&mut self, who: &Person, seconds: u32) {
        self.net.run(who, &["load", "study", &format!("{},size={seconds}", self.module)]);
        self.net.testbed.send(&vec![udp(1, b"x"); 3]);
        let name = who.name_of("study");
        self.net
            .testbed
            .until("the rows are emitted", |testbed| testbed.count(&name, "clock", "records") == 3);
    }

    /// The folder of a holder's record files on the node.
    fn records(&self, who: &Person) -> PathBuf {
        self.net.testbed.disk().join("records").join(who.name_of("study"))
    }

    fn fetch(&self, who: &Person) -> Output {
        self.net.weir(who, &["records", "--out", self.out.to_str().unwrap()])
    }

    /// Starts a fetch, and waits until a part of the only file has arrived.
    fn begin_fetch(&self, who: &Person) -> Child {
        let mut command = self.net.command(who, &["records", "--out", self.out.to_str().unwrap()]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begin = Instant::now();
        while self.part_length() == 0 {
            assert!(begin.elapsed() < TIMEOUT, "nothing arrives");
            if child.try_wait().unwrap().is_some() {
                panic!("it has ended: {:?}", child.wait_with_output());
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        child
    }

    /// Kills a fetch. Returns the length of its incomplete file.
    fn kill(&self, mut child: Child) -> u64 {
        child.kill().unwrap();
        child.wait().unwrap();
        self.part_length()
    }

    fn change_rate(&self, who: &Person, rate: &str) {
        self.net.run(who, &["session", "change", "study", "--record-bytes", rate]);
    }

    /// The length of the incomplete file in the folder of fetched files.
    fn part_length(&self) -> u64 {
        let part = files(&self.out).into_iter().find(|file| file.to_string_lossy().ends_with(".part"));
        part.map_or(0, |part| part.metadata().map_or(0, |it| it.len()))
    }

    fn listed(&self, who: &Person, more: &[&str]) -> Vec<Value> {
        let shown = self.net.run(who, &[&["records", "--json"], more].concat());
        serde_json::from_str(&shown).unwrap()
    }
}

/// All regular files in a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.flat_map(|it| if it.path().is_dir() { files(&it.path()) } else { vec![it.path()] }).collect()
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8_lossy(&both).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A command of the operator over the local socket.
fn local(testbed: &Testbed, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(arguments).arg("--socket").arg(testbed.path().join("node.sock")).output().unwrap()
}

#[test]
fn holders_list_and_fetch_files_of_their_live_and_closed_sessions_and_of_no_others() {
    if !is_inside("records::holders_list_and_fetch_files_of_their_live_and_closed_sessions_and_of_no_others")
    {
        return;
    }
    let mut study = Study::new("1 MB/s");
    let bob = study.net.granted("bob", modest_grant());
    let alice = study.net.granted("unused", modest_grant());
    let alice = std::mem::replace(&mut study.alice, alice);
    let (first, second) = (study.write_rows(&alice, 10), study.write_rows(&alice, 20));
    study.load(&alice, 30);
    let numbers = |files: &[Value]| {
        files.iter().map(|it| it["number"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let listed = study.listed(&alice, &[]);
    assert_eq!(numbers(&listed), ["0", "1"], "the third file is not complete: {listed:?}");
    assert_eq!(
        (&listed[0]["session"], &listed[0]["stream"], &listed[0]["rows"], &listed[0]["from"]),
        (&json!("study"), &json!("rows"), &json!(3), &json!("1970-01-01T00:00:10.000000000Z"))
    );
    let table = study.net.weir(&alice, &["records"]);
    assert!(
        said(&table).contains("study clock 1 rows 3") && said(&table).contains("still being written"),
        "{table:?}"
    );
    for (more, expected) in [
        (&["--since", "1970-01-01T00:00:11Z"][..], &["1"][..]),
        (&["--until", "1970-01-01T00:00:10Z"], &["0"]),
        (&["--since", "1970-01-01T00:00:10Z", "--until", "1970-01-01T00:00:20Z"], &["0", "1"]),
        (&["--since", "2h"], &[]),
        (&["--module", "clock", "--session", "study"], &["0", "1"]),
        (&["--module", "other"], &[]),
    ] {
        assert_eq!(numbers(&study.listed(&alice, more)), expected, "{more:?}");
    }
    // Another holder gets the same answer for this session, by either name, as for one that does not exist.
    assert_eq!(study.listed(&bob, &[]), Vec::<Value>::new());
    for session in ["study", "nothing", &alice.name_of("study")] {
        let why = format!("there is no session `{session}` under this credential");
        study.net.run_refused(&bob, &["records", "--session", session], &why);
    }
    let output = study.fetch(&alice);
    assert!(output.status.success() && said(&output).contains("2 files fetched"), "{}", said(&output));
    let bytes = |file: &Path| std::fs::read(file).unwrap();
    let fetched = |number: u32| bytes(&study.out.join(format!("study/clock-{number}/rows.parquet")));
    assert_eq!((fetched(0), fetched(1)), (bytes(&first), bytes(&second)));
    let output = study.fetch(&alice);
    assert!(said(&output).contains("0 files fetched (0 B), 2 complete already"), "{}", said(&output));
    // The node remembers the hash of a file that it has sent.
    assert_eq!(study.listed(&alice, &[])[0]["sha256"].as_str().unwrap().len(), 64);
    // What was sent is on the session's bill, and in the decisions.
    let (name, sent) = (alice.name_of("study"), (bytes(&first).len() + bytes(&second).len()) as u64);
    study.net.testbed.until("the bytes are charged", |testbed| {
        testbed.ledger_usage(&name, "record_bytes_fetched") == sent
    });
    let decisions = study.net.run(&alice, &["ledger", "--decisions", "--json"]);
    assert!(decisions.contains("fetch-records") && decisions.contains("\"records\""), "{decisions}");
    // A closed session has its files under the same name, also after a restart.
    study.net.run(&alice, &["session", "close", "study"]);
    let fetch_closed = |study: &Study, expected: &str| {
        let listed = study.listed(&alice, &["--session", "study"]);
        assert_eq!(
            (listed[2]["session"].clone(), numbers(&listed)),
            (json!("study"), vec!["0".to_owned(), "1".to_owned(), "2".to_owned()])
        );
        assert_eq!(study.listed(&alice, &[]).len(), 3);
        let output = study.fetch(&alice);
        assert!(said(&output).contains(expected), "{}", said(&output));
        study.net.run_refused(&bob, &["records", "--session", &name], "there is no session");
        assert_eq!(study.listed(&bob, &[]), Vec::<Value>::new());
    };
    fetch_closed(&study, "1 file fetched");
    assert!(study.net.testbed.stop().success());
    study.net.testbed.start();
    study
        .net
        .testbed
        .until("the files are listed", |testbed| said(&local(testbed, &["records"])).contains("rows 3"));
    fetch_closed(&study, "0 files fetched (0 B), 3 complete already");
    // An operator uses the node's names, and is told of sessions that do not exist.
    let shown = said(&local(&study.net.testbed, &["records", "--session", &name]));
    assert!(shown.contains(&name), "{shown}");
    let shown = said(&local(&study.net.testbed, &["records", "--session", "nothing"]));
    assert!(shown.contains("there is no session `nothing`"), "{shown}");
    assert!(study.net.testbed.stop().success());
}

#[test]
fn a_killed_fetch_resumes_and_a_changed_file_is_fetched_again() {
    if !is_inside("records::a_killed_fetch_resumes_and_a_changed_file_is_fetched_again") {
        return;
    }
    let mut study = Study::new("100 kB/s");
    let spare = study.net.granted("unused", modest_grant());
    let alice = std::mem::replace(&mut study.alice, spare);
    let file = study.write_rows(&alice, 10);
    // The file takes half a minute at this rate.
    let content = noise(3_000_000, 1);
    std::fs::write(&file, &content).unwrap();
    let child = study.begin_fetch(&alice);
    let second = study.fetch(&alice);
    assert!(
        !second.status.success() && said(&second).contains("another `weir records` fetches into this folder")
    );
    let length = study.kill(child);
    assert!(length > 0 && length < 3_000_000, "{length}");
    study.change_rate(&alice, "100 MB/s");
    let output = study.fetch(&alice);
    assert!(output.status.success() && said(&output).contains("1 file fetched"), "{}", said(&output));
    let fetched = study.out.join("study/clock-0/rows.parquet");
    assert!(std::fs::read(&fetched).unwrap() == content);
    // The bytes before the interruption were not sent again.
    study.net.testbed.until("the bytes are charged", |testbed| {
        let charged = testbed.ledger_usage(&alice.name_of("study"), "record_bytes_fetched");
        assert!(charged < 4_500_000, "{charged}");
        charged >= 3_000_000
    });
    // The file changes, in bytes that were received before, while the fetch is interrupted.
    std::fs::remove_file(&fetched).unwrap();
    study.change_rate(&alice, "100 kB/s");
    study.kill(study.begin_fetch(&alice));
    let mut content = content;
    content[17] ^= 1;
    std::fs::write(&file, &content).unwrap();
    study.change_rate(&alice, "100 MB/s");
    let output = study.fetch(&alice);
    assert!(
        output.status.success() && said(&output).contains("fetched again from its beginning"),
        "{}",
        said(&output)
    );
    assert!(std::fs::read(&fetched).unwrap() == content);
    // A damaged file in the folder is replaced.
    std::fs::write(&fetched, noise(3_000_000, 2)).unwrap();
    let output = study.fetch(&alice);
    assert!(said(&output).contains("another one than on the node, and is replaced"), "{}", said(&output));
    assert!(std::fs::read(&fetched).unwrap() == content);
    // More than the user allows is not fetched, and links in the folder are not followed.
    std::fs::remove_dir_all(study.out.join("study")).unwrap();
    let out = study.out.to_str().unwrap();
    let too_long = study.net.weir(&alice, &["records", "--out", out, "--max-bytes", "1MB"]);
    assert!(said(&too_long).contains("the files to fetch have 2.9 MiB together"), "{}", said(&too_long));
    let elsewhere = study.net.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, study.out.join("study")).unwrap();
    let output = study.fetch(&alice);
    let refused = "out/study: it is there and is not a folder";
    assert!(!output.status.success() && said(&output).contains(refused), "{}", said(&output));
    assert!(files(&elsewhere).is_empty());
    assert!(study.net.testbed.stop().success());
}

#[test]
fn a_fetch_ends_when_its_right_does_and_a_share_gives_no_earlier_files() {
    if !is_inside("records::a_fetch_ends_when_its_right_does_and_a_share_gives_no_earlier_files") {
        return;
    }
    let mut study = Study::new("1 kB/s");
    let spare = study.net.granted("unused", modest_grant());
    let alice = std::mem::replace(&mut study.alice, spare);
    let student = study.net.delegated(&alice, "student", Grant::default());
    study.net.run(&alice, &["session", "close", "study"]);
    // The student has a session of the name before, and shares the next one.
    study.create(&student, "1 kB/s", &[]);
    study.write_rows(&student, 10);
    let name = student.name_of("study");
    let missing = "belongs to a delegate of yours";
    study.net.run_refused(&alice, &["records", "--session", &name], missing);
    assert_eq!(study.listed(&alice, &[]), Vec::<Value>::new());
    study.net.run(&student, &["session", "close", "study"]);
    study.net.run_refused(&alice, &["records", "--session", &name], "there is no session");
    let share = format!("follow={}", alice.identity.public());
    study.create(&student, "1 kB/s", &["--share", &share]);
    let file = study.write_rows(&student, 20);
    assert_eq!(study.listed(&student, &[]).len(), 2);
    let listed = study.listed(&alice, &[]);
    assert_eq!((listed.len(), &listed[0]["number"], &listed[0]["session"]), (1, &json!("1"), &json!(name)));
    let earlier = json!({"session": name, "folder": "clock-0", "file": "rows.parquet"});
    assert_eq!(study.net.testbed.send_request(json!({"fetch-records": earlier}))["record-part"]["from"], 0);
    std::fs::write(&file, noise(1_000_000, 3)).unwrap();
    // The share is removed during the fetch.
    let child = study.begin_fetch(&alice);
    study.net.run(&student, &["session", "change", "study", "--remove-share", &share]);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success() && said(&output).contains(missing), "{}", said(&output));
    let length = study.part_length();
    assert!(length > 0 && length < 1_000_000, "{length}");
    let output = study.fetch(&alice);
    assert!(said(&output).contains("0 files fetched"), "{}", said(&output));
    // The credential is revoked during the fetch.
    std::fs::remove_dir_all(&study.out).unwrap();
    // The first file is short.
    let child = study.begin_fetch(&student);
    revoke(&study.net, &student);
    let output = child.wait_with_output().unwrap();
    assert!(!output.status.success() && said(&output).contains("revoked"), "{}", said(&output));
    assert!(study.part_length() < 1_000_000);
    study.net.run_refused(&student, &["records"], "revoked");
    assert!(study.net.testbed.stop().success());
}

#[test]
fn a_file_that_is_deleted_during_its_fetch_arrives_whole_and_links_are_not_sent() {
    if !is_inside("records::a_file_that_is_deleted_during_its_fetch_arrives_whole_and_links_are_not_sent") {
        return;
    }
    let mut study = Study::new("100 kB/s");
    let spare = study.net.granted("unused", modest_grant());
    let alice = std::mem::replace(&mut study.alice, spare);
    let file = study.write_rows(&alice, 10);
    let content = noise(1_500_000, 4);
    std::fs::write(&file, &content).unwrap();
    let child = study.begin_fetch(&alice);
    // The node deletes the file for the session's limit.
    study.net.run(&alice, &["session", "change", "study", "--record-storage", "4kB"]);
    study.net.testbed.until("the file is deleted", |_| !file.exists());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && said(&output).contains("1 file fetched"), "{}", said(&output));
    assert!(std::fs::read(study.out.join("study/clock-0/rows.parquet")).unwrap() == content);
    assert_eq!(study.listed(&alice, &[]), Vec::<Value>::new());
    let name = alice.name_of("study");
    let request = json!({"session": name, "folder": "clock-0", "file": "rows.parquet"});
    assert_eq!(study.net.testbed.send_request(json!({"fetch-records": request})), json!("records-gone"));
    study.net.run(&alice, &["session", "change", "study", "--record-storage", "1MB"]);
    let file = study.write_rows(&alice, 20);
    let folder = file.parent().unwrap().file_name().unwrap().to_str().unwrap().to_owned();
    let fetch = |folder: &str, file: &str| {
        let request = json!({"fetch-records": {"session": name, "folder": folder, "file": file}});
        loop {
            // The node notices a little later that the connection of an earlier fetch has ended.
            let answer = study.net.testbed.send_request(request.clone());
            let why = answer["refused"]["why"].as_str().unwrap_or_default();
            if !why.contains("fetches under this credential are running") {
                return answer;
            }
        }
    };
    assert!(fetch(&folder, "rows.parquet")["record-part"]["length"].as_u64().unwrap() > 0);
    // Names lead to no other file.
    std::fs::write(study.records(&alice).join("secret.parquet"), "x").unwrap();
    for (folder, file) in [
        ("..", "ledger"),
        ("", "holder"),
        (".", "holder"),
        (".", "secret.parquet"),
        ("", "secret.parquet"),
        (folder.as_str(), "../secret.parquet"),
        (folder.as_str(), "../holder"),
        (folder.as_str(), "./rows.parquet"),
        ("/etc", "passwd"),
        (folder.as_str(), "/etc/passwd"),
        (folder.as_str(), "rows.parquet\0"),
    ] {
        assert_eq!(fetch(folder, file), json!("records-gone"), "{folder} {file}");
    }
    // A file of the state folder that was replaced by a link is neither listed nor sent.
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    assert_eq!(study.listed(&alice, &[]), Vec::<Value>::new());
    let why = fetch(&folder, "rows.parquet")["refused"]["why"].as_str().unwrap().to_owned();
    assert!(why.contains("cannot be read") && why.contains("symbolic link"), "{why}");
    assert!(study.net.testbed.stop().success());
}
