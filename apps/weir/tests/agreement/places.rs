//! Tests of valid configurations whose folders, files, addresses, devices or modules keep a node from starting.

use super::run_node_until_started;
use crate::run::module::{MANIFEST, assemble, text};
use crate::run::net::cables;
use crate::run::process::PROGRAM;
use crate::run::{run, weir};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weir_admission::ComplexityLimit;

/// A user id that is neither root's nor the test's.
const STRANGER: u32 = 54_321;
const PASSES: &str = r#"(func (export "weir_packet") (param $d i32) (result i32) i32.const 0)"#;

/// A temporary folder with a node's configuration.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn config(&self) -> PathBuf {
        self.at("node.toml")
    }

    /// Writes a configuration with these lines in `[node]`, and `more` after it.
    fn configure(&self, node: &str, more: &str) {
        let at = self.folder.path().display();
        let text =
            format!("[node]\nsocket = \"{at}/run/node.sock\"\nstate = \"{at}/state\"\n{node}\n{more}\n");
        fs::write(self.config(), text).unwrap();
    }

    /// Writes a module with a packet function and this body.
    fn module(&self, name: &str, manifest: &str, body: &str) {
        let bytes =
            assemble(&text(&format!("{PASSES}{body}")), Some(manifest.replace("NAME", name).as_bytes()));
        fs::write(self.at(&format!("{name}.wasm")), bytes).unwrap();
    }

    /// Returns each file below the folder with its owner, mode and size.
    fn files(&self) -> Vec<(PathBuf, u32, u32, u64)> {
        let (mut found, mut folders) = (Vec::new(), vec![self.folder.path().to_owned()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let known = path.symlink_metadata().unwrap();
                found.push((path.clone(), known.uid(), known.mode(), known.size()));
                folders.extend(Some(path).filter(|_| known.is_dir()));
            }
        }
        found.sort();
        found
    }

    /// Asserts that check and start refuse the configuration with the same message, that the check changes no file, and that the start adds no entry to the ledger.
    #[track_caller]
    fn assert_refused(&self, says: &str) {
        let (before, entries) = (self.files(), self.entries());
        let ended = check(&self.config());
        assert!(!ended.text().contains("a node can be started"), "{says}: {}", ended.text());
        let stderr = ended.fails(1, &[says]).stderr;
        assert_eq!(self.files(), before, "{says}");
        let (runs, started) = run_node_until_started(&self.config());
        assert!(!runs && started.ends_with(&stderr), "the check:\n{stderr}\nthe start:\n{started}");
        assert_eq!(self.entries(), entries, "{says}");
    }

    /// Asserts that the check accepts the configuration and that the node runs.
    #[track_caller]
    fn assert_runs(&self) {
        let before = self.files();
        let ended = check(&self.config()).succeeds();
        assert!(
            ended.text().ends_with("a node can be started with this configuration\n"),
            "{}",
            ended.text()
        );
        assert_eq!(self.files(), before);
        let (runs, stderr) = run_node_until_started(&self.config());
        assert!(runs, "{stderr}");
    }

    /// Returns the number of lines in the ledger's first segment.
    fn entries(&self) -> usize {
        let segment = self.at("state/ledger/ledger-000001.jsonl");
        fs::read(segment).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
    }
}

fn check(config: &Path) -> crate::run::process::Ended {
    run([Path::new("config"), Path::new("check"), config])
}

fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
    if !is_root {
        _ = writeln!(std::io::stderr(), "rows skipped: they need root");
    }
    is_root
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn start_and_check_agree_on_folders_and_files() {
    let bench = Bench::new();
    let ledger = "state/ledger";
    // The state folder, which does not exist yet.
    bench.configure("", "");
    fs::write(bench.at("state"), "").unwrap();
    bench.assert_refused("state: it is there and is not a folder");
    fs::remove_file(bench.at("state")).unwrap();
    symlink("elsewhere", bench.at("state")).unwrap();
    bench.assert_refused("state: it is a symbolic link");
    fs::remove_file(bench.at("state")).unwrap();
    fs::create_dir(bench.at("state")).unwrap();
    mode(&bench.at("state"), 0o1777);
    bench.assert_refused("state: others than its owner can write in it");
    fs::remove_dir(bench.at("state")).unwrap();
    bench.assert_runs();

    // Files of a node that ran before.
    let segment = bench.at("state/ledger/ledger-000001.jsonl");
    let whole = fs::read_to_string(&segment).unwrap();
    fs::write(&segment, whole.replacen("node-start", "node-stats", 1)).unwrap();
    bench.assert_refused("the ledger was changed: segment 1, line 2");
    fs::write(&segment, whole).unwrap();
    fs::rename(bench.at(ledger), bench.at("aside")).unwrap();
    fs::write(bench.at(ledger), "").unwrap();
    bench.assert_refused("cannot open the ledger in");
    fs::remove_file(bench.at(ledger)).unwrap();
    fs::rename(bench.at("aside"), bench.at(ledger)).unwrap();
    let secret = bench.at("state/views.secret");
    mode(&secret, 0o644);
    bench.assert_refused("views.secret: others than its owner can read it");
    mode(&secret, 0o600);
    let kept = fs::read(&secret).unwrap();
    fs::write(&secret, "?").unwrap();
    bench.assert_refused("that is no secret of a node's views");
    fs::write(&secret, kept).unwrap();
    bench.assert_runs();

    // Records, traces and the socket.
    bench.module("quiet", MANIFEST, "");
    bench.configure("", &session("quiet"));
    fs::create_dir_all(bench.at("state/records")).unwrap();
    fs::write(bench.at("state/records/alice"), "").unwrap();
    bench.assert_refused("session `alice`: ");
    fs::remove_file(bench.at("state/records/alice")).unwrap();
    let traced = |folder: &str| format!("[cpu]\ntrace = \"{}\"\n", bench.at(folder).display());
    bench.configure("", &traced("node.toml/traces"));
    bench.assert_refused("[cpu]: `trace` is");
    bench.configure("", &traced("traces"));
    bench.assert_runs();
    let trace = fs::read_dir(bench.at("traces")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&trace).unwrap();
    fs::create_dir(&trace).unwrap();
    bench.assert_refused(".trace: ");
    bench.configure("", "");
    fs::write(bench.at("run/node.sock"), "").unwrap();
    bench.assert_refused("there is a regular file, not a socket");
    fs::remove_file(bench.at("run/node.sock")).unwrap();
    drop(UnixListener::bind(bench.at("run/node.sock")).unwrap());
    // A stale socket is replaced.
    bench.assert_runs();

    if is_root() {
        for folder in ["state", ledger, "run", "state/records"] {
            let path = bench.at(folder);
            bench.configure("", &session("quiet"));
            chown(&path, Some(STRANGER), None).unwrap();
            mode(&path, 0o700);
            bench.assert_refused(match folder {
                "state" | "state/ledger" => "it belongs to user 54321, and must belong to user 0",
                "run" => "it belongs to user 54321, and the node cannot write there, even if root starts it",
                _ => "state/records/alice: Permission denied",
            });
            chown(&path, Some(0), None).unwrap();
        }
        bench.configure("", &traced("traces"));
        fs::remove_dir(&trace).unwrap();
        fs::write(&trace, "").unwrap();
        chown(&trace, Some(STRANGER), None).unwrap();
        bench.assert_refused(".trace: it belongs to user 54321");
        fs::remove_file(&trace).unwrap();
        bench.assert_runs();
    }
}

/// A session with a module from the folder.
fn session(module: &str) -> String {
    format!(
        "[[interface]]\nname = \"weir-later\"\n[[session]]\nname = \"alice\"\nmemory = \"8 MiB\"\n\
         channel = [{{ interface = \"weir-later\" }}]\nmodule = [{{ module = \"{module}.wasm\" }}]\n"
    )
}

#[test]
fn start_and_check_agree_on_addresses_and_keys() {
    let bench = Bench::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, key) = (taken.local_addr().unwrap(), bench.at("node.key"));
    let public = run(["key", "new", key.to_str().unwrap()]).succeeds().text().trim().to_owned();
    let remote = |listen: &str| {
        format!("[remote]\nlisten = \"{listen}\"\nkey = \"node.key\"\noperators = [\"{public}\"]\n")
    };
    let good = fs::read(&key).unwrap();

    bench.configure(&format!("metrics = \"{address}\""), "");
    bench.assert_refused(&format!("metrics: {address}: Address already in use"));
    bench.configure("", &remote(&address.to_string()));
    bench.assert_refused(&format!("[remote]: {address}: Address already in use"));
    // Each address is free, but the two listeners cannot both use it.
    drop(taken);
    bench.configure(&format!("metrics = \"{address}\""), &remote(&address.to_string()));
    bench.assert_refused(&format!("[remote]: {address}: Address already in use"));
    // No machine has an address of TEST-NET-1 (RFC 5737).
    bench.configure("", &remote("192.0.2.1:7353"));
    bench.assert_refused("[remote]: 192.0.2.1:7353: Cannot assign requested address");

    bench.configure("", &remote("127.0.0.1:0"));
    fs::remove_file(&key).unwrap();
    bench.assert_refused("node.key: No such file or directory");
    fs::write(&key, &good).unwrap();
    mode(&key, 0o644);
    bench.assert_refused("node.key: others than its owner can read it");
    mode(&key, 0o600);
    fs::write(&key, "no key").unwrap();
    bench.assert_refused("node.key: ");
    fs::write(&key, &good).unwrap();
    bench.assert_runs();

    fs::create_dir_all(bench.at("state/revoked")).unwrap();
    fs::write(bench.at("state/revoked/a.state"), "?").unwrap();
    bench.assert_refused("state/revoked/a.state: ");
    fs::remove_file(bench.at("state/revoked/a.state")).unwrap();

    fs::create_dir_all(bench.at("run")).unwrap();
    let other = UnixListener::bind(bench.at("run/node.sock")).unwrap();
    bench.assert_refused("another node is running here, or another server");
    drop(other);
    bench.assert_runs();
}

#[test]
fn start_and_check_agree_on_modules() {
    let bench = Bench::new();
    let starts = |body: &str| format!("(func (export \"weir_start\") (result i32) {body})");
    bench.module("unwilling", MANIFEST, &starts("i32.const 3"));
    bench.module("endless", MANIFEST, &starts("(loop (br 0)) i32.const 0"));
    bench.module("traps", MANIFEST, &starts("unreachable"));
    bench.module("large", &MANIFEST.replace("2 MiB", "40 MiB"), "");
    bench.module("quiet", MANIFEST, "");
    for (module, says) in [
        ("unwilling", "`weir_start` returned 3"),
        ("endless", "module `endless.wasm`"),
        ("traps", "module `traps.wasm`"),
    ] {
        for process in ["node", "own"] {
            let more = format!(
                "process = \"{process}\"\ncpu = [{{ period = \"10ms\", slice = \"1ms\" }}]\nmemory ="
            );
            bench.configure("", &session(module).replace("memory =", &more));
            bench.assert_refused(says);
        }
    }
    // A separate process reserves all memory of its module: 40 MiB and the overhead of the process. Each of the two modules fits alone.
    let large = session("large").replace("memory = \"8 MiB\"", "process = \"own\"\nmemory = \"70 MiB\"");
    let two = large.replace(".wasm\" }]", ".wasm\", name = \"one\" }, { module = \"large.wasm\" }]");
    bench.configure("", &two);
    bench.assert_refused("module `large` wants");
    for runs in [&large, &session("quiet")] {
        bench.configure("", runs);
        bench.assert_runs();
    }
}

#[test]
fn start_and_check_agree_on_a_module_that_cannot_be_compiled() {
    let bench = Bench::new();
    let shape = ComplexityLimit::Flow;
    fs::write(bench.at("hard.wasm"), crate::shapes::module(shape, shape.maximum() - shape.maximum() / 8))
        .unwrap();
    bench.configure("", &session("hard"));
    // Accepted modules compile if the compiler has enough memory. Here it has 100 MiB, of which weir itself takes less than half, and this module needs more than twice as much.
    let limited = |arguments: &[&str]| {
        let mut command = weir();
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "ulimit -d 102400; exec \"$@\"", "sh"])
            .arg(PROGRAM)
            .args(arguments)
            .arg(bench.config());
        let variables = command.env("XDG_CACHE_HOME", bench.at("cache")).get_envs();
        limited.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        limited
    };
    let ended = crate::run::process::finish(&mut limited(&["config", "check"]), None);
    let stderr =
        ended.fails(1, &["session `alice`: module `hard.wasm`: the module cannot be compiled"]).stderr;
    let (runs, started) = super::run_until_started(&mut limited(&["node", "-c"]));
    assert!(!runs && started.ends_with(&stderr), "the check:\n{stderr}\nthe start:\n{started}");
    assert_eq!(bench.entries(), 0);
    bench.assert_runs();
}

/// Starts a node, and returns when it runs.
fn running(config: &Path) -> Child {
    let mut node = weir().args(["node", "-c"]).arg(config).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(node.stderr.take().unwrap()).lines();
    while !lines.next().expect("it runs").unwrap().contains("is running") {}
    // The rest of its standard error is not read.
    std::thread::spawn(move || lines.for_each(drop));
    node
}

#[test]
fn a_check_beside_a_running_node_reports_it_and_does_not_disturb_it() {
    let bench = Bench::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    bench.module("quiet", MANIFEST, "");
    bench.configure(&format!("name = \"ix-7\"\nmetrics = \"{free}\""), &session("quiet"));
    let mut node = running(&bench.config());
    let ended = check(&bench.config()).succeeds();
    let warnings: Vec<&str> = ended.text().lines().filter(|line| line.starts_with("warning: ")).collect();
    for in_use in ["`socket` is", "metrics: "] {
        let warning = warnings.iter().find(|line| line.contains(in_use));
        assert!(
            warning.is_some_and(|line| line.contains("node `ix-7` runs with this state folder")),
            "{warnings:?}"
        );
    }
    assert!(ended.text().ends_with("a node can be started with this configuration\n"), "{}", ended.text());
    // A second node does not start.
    let (runs, stderr) = run_node_until_started(&bench.config());
    assert!(!runs && stderr.contains("is being written by another node"), "{stderr}");
    let socket = bench.at("run/node.sock");
    let listed = run(["session", "list", "--socket", socket.to_str().unwrap()]).succeeds();
    assert!(listed.text().contains("alice"), "{}", listed.text());
    run(["reload", "--socket", socket.to_str().unwrap()]).succeeds();
    let id = node.id().to_string();
    assert!(Command::new("kill").arg(&id).status().unwrap().success());
    assert!(node.wait().unwrap().success());
    bench.assert_runs();
}

#[test]
fn start_and_check_agree_on_devices() {
    if !cables(&[("a", "b")]) {
        return;
    }
    let bench = Bench::new();
    let device = |name: &str| {
        format!(
            "[[link]]\ninterface = \"a\"\nrate = \"10 Mbit/s\"\n[[session]]\nname = \"alice\"\n\
             output = [{{ link = \"a\", tap = \"{name}\" }}]\n"
        )
    };
    let interfaces =
        || fs::read_dir("/proc/self/task").map(|_| crate::run::net::shell("ip -o link show")).unwrap();
    bench.configure("", &device("b"));
    bench.assert_refused("an interface of another kind has this name");
    let second = device("weir0")
        .replace("output = [", "output = [{ name = \"one\", link = \"a\", tap = \"weir0\" }, ");
    bench.configure("", &second);
    bench.assert_refused("weir0");
    let before = interfaces();
    bench.configure("", &device("weir0"));
    assert!(
        check(&bench.config()).succeeds().text().ends_with("a node can be started with this configuration\n")
    );
    assert_eq!(interfaces().lines().count(), before.lines().count());
    bench.assert_runs();
    // The check does not try all of AF_XDP, and reports what it left out.
    bench.configure("", "[[interface]]\nname = \"b\"\nkind = \"xdp\"\n");
    let checked = check(&bench.config()).succeeds();
    assert!(checked.text().contains("AF_XDP and `zero_copy` are not checked"), "{}", checked.text());
    // A device that another program holds.
    crate::run::net::shell("ip tuntap add dev weir1 mode tun");
    bench.configure("", &device("weir1"));
    bench.assert_refused("weir1: an interface of another kind has this name");
}

#[test]
fn a_check_by_another_user_reports_what_it_did_not_try() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    mode(bench.folder.path(), 0o755);
    let listens = "[[interface]]\nname = \"lo\"\narena = \"8 MiB\"\n";
    bench.configure("", listens);
    bench.assert_runs();
    let before = bench.files();
    let mut command = Command::new("setpriv");
    let user = STRANGER.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps=-all"]);
    command.arg(PROGRAM).args(["config", "check"]).arg(bench.config()).env("HOME", "/");
    let ended = crate::run::process::finish(&mut command, None).succeeds();
    let not_tried: Vec<&str> =
        ended.text().lines().filter(|line| line.contains(": not checked, as user 54321")).collect();
    assert!(not_tried.iter().any(|line| line.contains("`state` is")), "{}", ended.text());
    assert!(not_tried.iter().any(|line| line.contains("lo: ")), "{}", ended.text());
    assert_eq!(bench.files(), before);
}
