//! Configurations that are right, and folders, files, addresses, devices and modules that do not let a node start.

use super::start;
use crate::run::module::{MANIFEST, assemble, text};
use crate::run::net::cables;
use crate::run::{run, weir};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use weir_admission::ComplexityLimit;

/// A user that is neither root nor the one who tests.
const STRANGER: u32 = 54_321;
const PASSES: &str = r#"(func (export "weir_packet") (param $d i32) (result i32) i32.const 0)"#;

/// A folder with a node's configuration.
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

    /// Writes a configuration, with what is to be in `[node]` and behind it.
    fn configure(&self, node: &str, more: &str) {
        let at = self.folder.path().display();
        let text =
            format!("[node]\nsocket = \"{at}/run/node.sock\"\nstate = \"{at}/state\"\n{node}\n{more}\n");
        fs::write(self.config(), text).unwrap();
    }

    /// A module with this body beside its packet function.
    fn module(&self, name: &str, manifest: &str, body: &str) {
        let bytes =
            assemble(&text(&format!("{PASSES}{body}")), Some(manifest.replace("NAME", name).as_bytes()));
        fs::write(self.at(&format!("{name}.wasm")), bytes).unwrap();
    }

    /// Each file below the folder, with its owner, mode and size.
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

    /// A check refuses the configuration with these words and leaves everything as it is; and a start refuses it with the same words, without an entry in the ledger.
    #[track_caller]
    fn is_refused(&self, says: &str) {
        let (before, entries) = (self.files(), self.entries());
        let ended = check(&self.config());
        assert!(!ended.text().contains("a node can be started"), "{says}: {}", ended.text());
        let said = ended.fails(1, &[says]).stderr;
        assert_eq!(self.files(), before, "{says}");
        let (runs, all) = start(&self.config());
        assert!(!runs && all.ends_with(&said), "a check said:\n{said}\nand a start:\n{all}");
        assert_eq!(self.entries(), entries, "{says}");
    }

    /// A check and a start agree that a node runs.
    #[track_caller]
    fn runs(&self) {
        let before = self.files();
        let ended = check(&self.config()).good();
        assert!(ended.text().ends_with("a node can be started with it\n"), "{}", ended.text());
        assert_eq!(self.files(), before);
        let (runs, said) = start(&self.config());
        assert!(runs, "{said}");
    }

    /// The number of lines in the ledger's first segment.
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
fn a_start_and_a_check_agree_on_folders_and_files() {
    let bench = Bench::new();
    let ledger = "state/ledger";
    // The folder of the state, which is not there yet.
    bench.configure("", "");
    fs::write(bench.at("state"), "").unwrap();
    bench.is_refused("state: it is there and is not a folder");
    fs::remove_file(bench.at("state")).unwrap();
    symlink("elsewhere", bench.at("state")).unwrap();
    bench.is_refused("state: it is a symbolic link");
    fs::remove_file(bench.at("state")).unwrap();
    fs::create_dir(bench.at("state")).unwrap();
    mode(&bench.at("state"), 0o1777);
    bench.is_refused("state: others than its owner can write in it");
    fs::remove_dir(bench.at("state")).unwrap();
    bench.runs();

    // Files of a node that has run.
    let segment = bench.at("state/ledger/ledger-000001.jsonl");
    let whole = fs::read_to_string(&segment).unwrap();
    fs::write(&segment, whole.replacen("node-start", "node-stats", 1)).unwrap();
    bench.is_refused("the ledger was changed: segment 1, line 2");
    fs::write(&segment, whole).unwrap();
    fs::rename(bench.at(ledger), bench.at("aside")).unwrap();
    fs::write(bench.at(ledger), "").unwrap();
    bench.is_refused("cannot open the ledger in");
    fs::remove_file(bench.at(ledger)).unwrap();
    fs::rename(bench.at("aside"), bench.at(ledger)).unwrap();
    let secret = bench.at("state/views.secret");
    mode(&secret, 0o644);
    bench.is_refused("views.secret: others than its owner can read it");
    mode(&secret, 0o600);
    let kept = fs::read(&secret).unwrap();
    fs::write(&secret, "?").unwrap();
    bench.is_refused("that is no secret of a node's views");
    fs::write(&secret, kept).unwrap();
    bench.runs();

    // Records, traces and the socket.
    bench.module("quiet", MANIFEST, "");
    bench.configure("", &session("quiet"));
    fs::create_dir_all(bench.at("state/records")).unwrap();
    fs::write(bench.at("state/records/alice"), "").unwrap();
    bench.is_refused("session `alice`: ");
    fs::remove_file(bench.at("state/records/alice")).unwrap();
    let traced = |folder: &str| format!("[cpu]\ntrace = \"{}\"\n", bench.at(folder).display());
    bench.configure("", &traced("node.toml/traces"));
    bench.is_refused("[cpu]: `trace` is");
    bench.configure("", &traced("traces"));
    bench.runs();
    let trace = fs::read_dir(bench.at("traces")).unwrap().next().unwrap().unwrap().path();
    fs::remove_file(&trace).unwrap();
    fs::create_dir(&trace).unwrap();
    bench.is_refused(".trace: ");
    bench.configure("", "");
    fs::write(bench.at("run/node.sock"), "").unwrap();
    bench.is_refused("there is a regular file, not a socket");
    fs::remove_file(bench.at("run/node.sock")).unwrap();
    drop(UnixListener::bind(bench.at("run/node.sock")).unwrap());
    // It is stale.
    bench.runs();

    if is_root() {
        for folder in ["state", ledger, "run", "state/records"] {
            let path = bench.at(folder);
            bench.configure("", &session("quiet"));
            chown(&path, Some(STRANGER), None).unwrap();
            mode(&path, 0o700);
            bench.is_refused(match folder {
                "state" | "state/ledger" => "it belongs to user 54321, and must belong to user 0",
                "run" => "it belongs to user 54321, and the node may not write there, also as root",
                _ => "state/records/alice: Permission denied",
            });
            chown(&path, Some(0), None).unwrap();
        }
        bench.configure("", &traced("traces"));
        fs::remove_dir(&trace).unwrap();
        fs::write(&trace, "").unwrap();
        chown(&trace, Some(STRANGER), None).unwrap();
        bench.is_refused(".trace: it belongs to user 54321");
        fs::remove_file(&trace).unwrap();
        bench.runs();
    }
}

/// A session with a module of the folder.
fn session(module: &str) -> String {
    format!(
        "[[interface]]\nname = \"weir-later\"\n[[session]]\nname = \"alice\"\nmemory = \"8 MiB\"\n\
         channel = [{{ interface = \"weir-later\" }}]\nmodule = [{{ module = \"{module}.wasm\" }}]\n"
    )
}

#[test]
fn a_start_and_a_check_agree_on_addresses_and_keys() {
    let bench = Bench::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, key) = (taken.local_addr().unwrap(), bench.at("node.key"));
    let public = run(["key", "new", key.to_str().unwrap()]).good().text().trim().to_owned();
    let remote = |listen: &str| {
        format!("[remote]\nlisten = \"{listen}\"\nkey = \"node.key\"\noperators = [\"{public}\"]\n")
    };
    let good = fs::read(&key).unwrap();

    bench.configure(&format!("metrics = \"{address}\""), "");
    bench.is_refused(&format!("metrics: {address}: Address already in use"));
    bench.configure("", &remote(&address.to_string()));
    bench.is_refused(&format!("[remote]: {address}: Address already in use"));
    // Each is free, and not for both.
    drop(taken);
    bench.configure(&format!("metrics = \"{address}\""), &remote(&address.to_string()));
    bench.is_refused(&format!("[remote]: {address}: Address already in use"));
    // TEST-NET-1 (RFC 5737) is no machine's.
    bench.configure("", &remote("192.0.2.1:7353"));
    bench.is_refused("[remote]: 192.0.2.1:7353: Cannot assign requested address");

    bench.configure("", &remote("127.0.0.1:0"));
    fs::remove_file(&key).unwrap();
    bench.is_refused("node.key: No such file or directory");
    fs::write(&key, &good).unwrap();
    mode(&key, 0o644);
    bench.is_refused("node.key: others than its owner can read it");
    mode(&key, 0o600);
    fs::write(&key, "no key").unwrap();
    bench.is_refused("node.key: ");
    fs::write(&key, &good).unwrap();
    bench.runs();

    fs::create_dir_all(bench.at("state/revoked")).unwrap();
    fs::write(bench.at("state/revoked/a.state"), "?").unwrap();
    bench.is_refused("state/revoked/a.state: ");
    fs::remove_file(bench.at("state/revoked/a.state")).unwrap();

    fs::create_dir_all(bench.at("run")).unwrap();
    let other = UnixListener::bind(bench.at("run/node.sock")).unwrap();
    bench.is_refused("another node is running here, or another server");
    drop(other);
    bench.runs();
}

#[test]
fn a_start_and_a_check_agree_on_modules() {
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
            bench.is_refused(says);
        }
    }
    // All of a module's memory is taken for a process of its own: 40 MiB and what the process takes. Each of the two has room alone.
    let large = session("large").replace("memory = \"8 MiB\"", "process = \"own\"\nmemory = \"70 MiB\"");
    let two = large.replace(".wasm\" }]", ".wasm\", name = \"one\" }, { module = \"large.wasm\" }]");
    bench.configure("", &two);
    bench.is_refused("module `large` wants");
    for runs in [&large, &session("quiet")] {
        bench.configure("", runs);
        bench.runs();
    }
}

#[test]
fn a_start_and_a_check_agree_on_a_module_that_is_not_compiled() {
    let bench = Bench::new();
    let shape = ComplexityLimit::Flow;
    fs::write(bench.at("hard.wasm"), crate::shapes::module(shape, shape.most() - shape.most() / 8)).unwrap();
    bench.configure("", &session("hard"));
    // Modules that are accepted compile where the compiler has what it may have. Here it has 100 MiB of memory, of which weir itself takes less than half, and this module more than twice as much.
    let limited = |arguments: &[&str]| {
        let mut command = weir();
        let program = command.get_program().to_owned();
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "ulimit -d 102400; exec \"$@\"", "sh"])
            .arg(program)
            .args(arguments)
            .arg(bench.config());
        let variables = command.env("XDG_CACHE_HOME", bench.at("cache")).get_envs();
        limited.envs(variables.filter_map(|(name, value)| Some((name, value?))));
        limited
    };
    let ended = crate::run::process::finish(&mut limited(&["config", "check"]), None);
    let said = ended.fails(1, &["session `alice`: module `hard.wasm`: the module cannot be compiled"]).stderr;
    let (runs, all) = super::started(&mut limited(&["node", "-c"]));
    assert!(!runs && all.ends_with(&said), "a check said:\n{said}\nand a start:\n{all}");
    assert_eq!(bench.entries(), 0);
    bench.runs();
}

/// A node that goes on, with its standard error.
fn running(config: &Path) -> Child {
    let mut node = weir().args(["node", "-c"]).arg(config).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(node.stderr.take().unwrap()).lines();
    while !lines.next().expect("it runs").unwrap().contains("is running") {}
    // What else it says is read by no one.
    std::thread::spawn(move || lines.for_each(drop));
    node
}

#[test]
fn a_check_beside_a_running_node_names_it_and_leaves_it_alone() {
    let bench = Bench::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    bench.module("quiet", MANIFEST, "");
    bench.configure(&format!("name = \"ix-7\"\nmetrics = \"{free}\""), &session("quiet"));
    let mut node = running(&bench.config());
    let ended = check(&bench.config()).good();
    let warnings: Vec<&str> = ended.text().lines().filter(|line| line.starts_with("warning: ")).collect();
    for in_use in ["`socket` is", "metrics: "] {
        let warning = warnings.iter().find(|line| line.contains(in_use));
        assert!(
            warning.is_some_and(|line| line.contains("node `ix-7` runs with this state folder")),
            "{warnings:?}"
        );
    }
    assert!(ended.text().ends_with("a node can be started with it\n"), "{}", ended.text());
    // A second start is none.
    let (runs, said) = start(&bench.config());
    assert!(!runs && said.contains("is being written by another node"), "{said}");
    let socket = bench.at("run/node.sock");
    let listed = run(["session", "list", "--socket", socket.to_str().unwrap()]).good();
    assert!(listed.text().contains("alice"), "{}", listed.text());
    run(["reload", "--socket", socket.to_str().unwrap()]).good();
    let id = node.id().to_string();
    assert!(Command::new("kill").arg(&id).status().unwrap().success());
    assert!(node.wait().unwrap().success());
    bench.runs();
}

#[test]
fn a_start_and_a_check_agree_on_devices() {
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
    bench.is_refused("an interface of this name is there, and is no such device");
    let second = device("weir0")
        .replace("output = [", "output = [{ name = \"one\", link = \"a\", tap = \"weir0\" }, ");
    bench.configure("", &second);
    bench.is_refused("weir0");
    let before = interfaces();
    bench.configure("", &device("weir0"));
    assert!(check(&bench.config()).good().text().ends_with("a node can be started with it\n"));
    assert_eq!(interfaces().lines().count(), before.lines().count());
    bench.runs();
    // Of AF_XDP the check leaves a part to the start, and says so.
    bench.configure("", "[[interface]]\nname = \"b\"\nkind = \"xdp\"\n");
    let said = check(&bench.config()).good();
    assert!(
        said.text().contains("only a start tries whether the driver takes AF_XDP's program"),
        "{}",
        said.text()
    );
    // One that another program holds.
    crate::run::net::shell("ip tuntap add dev weir1 mode tun");
    bench.configure("", &device("weir1"));
    bench.is_refused("weir1: an interface of this name is there, and is no such device");
}

#[test]
fn a_check_by_another_user_says_what_it_did_not_try() {
    if !is_root() {
        return;
    }
    let bench = Bench::new();
    mode(bench.folder.path(), 0o755);
    let listens = "[[interface]]\nname = \"lo\"\narena = \"8 MiB\"\n";
    bench.configure("", listens);
    bench.runs();
    let before = bench.files();
    let program = weir().get_program().to_owned();
    let mut command = Command::new("setpriv");
    let user = STRANGER.to_string();
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps=-all"]);
    command.arg(program).args(["config", "check"]).arg(bench.config()).env("HOME", "/");
    let ended = crate::run::process::finish(&mut command, None).good();
    let not_tried: Vec<&str> =
        ended.text().lines().filter(|line| line.contains(": not tried, as user 54321")).collect();
    assert!(not_tried.iter().any(|line| line.contains("`state` is")), "{}", ended.text());
    assert!(not_tried.iter().any(|line| line.contains("lo: ")), "{}", ended.text());
    assert_eq!(bench.files(), before);
}
