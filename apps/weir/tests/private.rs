//! Private files and private memory. Files that weir writes are its user's alone, whatever the umask. Key files that others can have touched are refused. A node hides
//! its memory, and leaves alone what is at its socket's path. Where the tests run as root, the node is another user's: so both are tried.

use crate::run::packets::{pcap, traffic};
use crate::run::process::{Ended, finish};
use crate::run::weir;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing takes longer than this, on the slowest of machines with the most to do.
const PATIENCE: Duration = Duration::from_secs(300);
/// A user that is neither root nor the one that runs the tests.
const OTHER: u32 = 65534;

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap_or_else(|error| panic!("{}: {error}", path.display())).mode() & 0o7777
}

/// Every file and folder below a folder, with its mode.
fn modes_below(folder: &Path) -> Vec<(PathBuf, u32, bool)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        found.push((path.clone(), mode(&path), path.is_dir()));
        if path.is_dir() {
            found.extend(modes_below(&path));
        }
    }
    found
}

/// Returns true where the tests run as root, and says so where they do not.
fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self/status").unwrap().uid() == 0;
    if !is_root {
        _ = writeln!(std::io::stderr(), "skipped in part: files of other users take root");
    }
    is_root
}

/// `weir ARGUMENTS` in a folder under this umask.
fn under_umask(umask: &str, folder: &Path, arguments: &[&str]) -> Ended {
    let weir = weir();
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]);
    command.arg(weir.get_program()).args(arguments).current_dir(folder);
    weir.get_envs().for_each(|(name, value)| match value {
        Some(value) => _ = command.env(name, value),
        None => _ = command.env_remove(name),
    });
    finish(&mut command, None)
}

#[test]
fn what_a_run_writes_is_its_users_alone_whatever_the_umask() {
    for umask in ["000", "022", "077"] {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("c.pcap"), pcap(&traffic(50))).unwrap();
        let arguments = [
            "run",
            "-r",
            "c.pcap",
            "-m",
            "port-count",
            "--out",
            "new/out",
            "--report",
            "new/page.html",
            "-w",
            "all.pcap",
        ];
        under_umask(umask, home.path(), &arguments).good();
        let made = modes_below(&home.path().join("new"));
        assert!(made.iter().filter(|(_, _, is_folder)| *is_folder).count() == 2, "{made:?}");
        assert!(
            made.iter().any(|(path, ..)| path.extension().is_some_and(|end| end == "parquet")),
            "{made:?}"
        );
        for (path, mode, is_folder) in made {
            assert_eq!(mode, if is_folder { 0o700 } else { 0o600 }, "{}, umask {umask}", path.display());
        }
        assert_eq!(mode(&home.path().join("all.pcap")), 0o600);
        assert_eq!(mode(&home.path().join("new")), 0o700);
    }
}

#[test]
fn an_output_that_is_there_keeps_the_mode_that_its_user_gave_it() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("c.pcap"), pcap(&traffic(50))).unwrap();
    for name in ["page.html", "all.pcap"] {
        fs::write(home.path().join(name), "before").unwrap();
        fs::set_permissions(home.path().join(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    let arguments = ["run", "-r", "c.pcap", "-m", "port-count", "--report", "page.html", "-w", "all.pcap"];
    under_umask("022", home.path(), &arguments).good();
    for name in ["page.html", "all.pcap"] {
        assert_eq!(mode(&home.path().join(name)), 0o640, "{name}");
        assert!(fs::metadata(home.path().join(name)).unwrap().len() > 6, "{name}");
    }
    // Devices and pipes are outputs, too.
    for output in ["--report", "-w"] {
        let arguments = ["run", "-r", "c.pcap", "-m", "port-count", output, "/dev/null"];
        under_umask("022", home.path(), &arguments).good();
    }
}

#[test]
fn records_are_not_written_where_another_user_has_put_a_folder_or_a_second_name() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("c.pcap"), pcap(&traffic(50))).unwrap();
    let run =
        || under_umask("022", home.path(), &["run", "-r", "c.pcap", "-m", "port-count", "--out", "out"]);
    run().good();
    let folder = home.path().join("out/port-count");
    let complete = modes_below(&folder).remove(0).0;
    let part = PathBuf::from(format!("{}.part", complete.display()));
    fs::write(home.path().join("victim"), "precious").unwrap();
    fs::hard_link(home.path().join("victim"), &part).unwrap();
    let refused = run();
    assert!(!refused.status.success() && refused.stderr.contains("it has 2 links"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(home.path().join("victim")).unwrap(), "precious");
    fs::remove_file(&part).unwrap();
    run().good();
    if is_root() {
        chown(&folder, Some(OTHER), None).unwrap();
        let refused = run();
        let why = "it belongs to user 65534";
        assert!(!refused.status.success() && refused.stderr.contains(why), "{}", refused.stderr);
    }
}

#[test]
fn a_key_file_that_is_a_link_or_another_users_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let weir = |arguments: &[&str]| under_umask("000", home.path(), arguments);
    weir(&["key", "new", "a.key"]).good();
    assert_eq!(mode(&at("a.key")), 0o600);
    let refused = |name: &str, why: &str| {
        let ended = weir(&["key", "show", name]);
        assert!(!ended.status.success() && ended.stderr.contains(why), "{name}: {}", ended.stderr);
    };
    symlink(at("a.key"), at("link.key")).unwrap();
    refused("link.key", "it is a symbolic link");
    fs::hard_link(at("a.key"), at("second.key")).unwrap();
    refused("a.key", "it has 2 links");
    refused("second.key", "it has 2 links");
    fs::remove_file(at("second.key")).unwrap();
    weir(&["key", "show", "a.key"]).good();
    // What a shell makes of `<(command)` is a link to a pipe, and is read.
    let mut shell = Command::new("bash");
    shell.args(["-c", "\"$0\" key show <(cat a.key)", env!("CARGO_BIN_EXE_weir")]).current_dir(home.path());
    finish(&mut shell, None).good();
    if is_root() {
        chown(at("a.key"), Some(OTHER), None).unwrap();
        refused("a.key", "it belongs to user 65534, and must belong to user 0");
    }
}

/// A node without interfaces, which any user can run. It is killed with this.
struct Node {
    home: tempfile::TempDir,
    child: Option<Child>,
}

impl Node {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().display();
        let text = format!(
            "[node]\nsocket = \"{path}/run/node.sock\"\nstate = \"{path}/state\"\ninterval = \"100ms\"\n"
        );
        fs::write(home.path().join("node.toml"), text).unwrap();
        if is_root() {
            chown(home.path(), Some(OTHER), Some(OTHER)).unwrap();
        }
        Self { home, child: None }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Starts it. Its words are in `said`, from the beginning.
    fn spawn(&self) -> Child {
        let said = fs::File::create(self.path("said")).unwrap();
        let mut command = weir();
        command.args(["node", "-c"]).arg(self.path("node.toml")).stdin(Stdio::null()).stderr(said);
        command.env("XDG_CACHE_HOME", self.path("cache")).env("XDG_STATE_HOME", self.path("calibration"));
        if is_root() {
            command.uid(OTHER).gid(OTHER);
        }
        command.spawn().unwrap()
    }

    fn said(&self) -> String {
        fs::read_to_string(self.path("said")).unwrap()
    }

    fn start(&mut self) {
        let mut child = self.spawn();
        let begin = Instant::now();
        while !self.said().contains("is running") {
            assert_eq!(child.try_wait().unwrap(), None, "{}", self.said());
            assert!(begin.elapsed() < PATIENCE, "{}", self.said());
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child = Some(child);
    }

    /// Starts it where it cannot start, and returns what it says.
    fn refused(&self) -> String {
        assert!(!self.spawn().wait().unwrap().success());
        self.said()
    }

    fn end(&mut self, signal: &str) {
        let mut child = self.child.take().unwrap();
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        child.wait().unwrap();
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

#[test]
fn a_node_hides_its_memory_from_other_processes_of_its_user() {
    let mut node = Node::new();
    node.start();
    assert!(is_hidden(node.child.as_ref().unwrap().id()));
}

/// Returns true where other processes of its user cannot look into a process, and it leaves no core file. The process must not be root's.
fn is_hidden(id: u32) -> bool {
    // Of a process that can be dumped these belong to its user, else to root (proc(5)).
    let owners =
        ["mem", "environ", "maps"].map(|name| fs::metadata(format!("/proc/{id}/{name}")).unwrap().uid());
    // Others than root cannot read the limits of such a process.
    let limits = fs::read_to_string(format!("/proc/{id}/limits")).unwrap_or_default();
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let has_no_core = core.is_none_or(|core| core.split_whitespace().skip(4).take(2).eq(["0", "0"]));
    owners == [0; 3] && has_no_core
}

#[test]
fn a_command_that_asks_a_node_hides_its_memory() {
    let home = tempfile::tempdir().unwrap();
    let socket = home.path().join("sock");
    let silent = UnixListener::bind(&socket).unwrap();
    for path in [home.path(), &socket] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    }
    let start = |arguments: &[&str]| {
        let mut command = weir();
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if is_root() {
            command.uid(OTHER).gid(OTHER);
        }
        command.spawn().unwrap()
    };
    let mut asks = start(&["session", "list", "--socket", socket.to_str().unwrap()]);
    // It waits for an answer from here on.
    let connection = silent.accept().unwrap();
    assert!(is_hidden(asks.id()));
    drop(connection);
    asks.wait().unwrap();
}

#[test]
fn what_a_node_writes_is_its_users_alone_and_its_socket_its_groups() {
    let mut node = Node::new();
    node.start();
    assert_eq!(mode(&node.path("state")), 0o700);
    let made = modes_below(&node.path("state"));
    assert!(made.len() >= 3, "{made:?}");
    for (path, mode, is_folder) in made {
        assert_eq!(mode, if is_folder { 0o700 } else { 0o600 }, "{}", path.display());
    }
    assert_eq!((mode(&node.path("run")), mode(&node.path("run/node.sock"))), (0o750, 0o660));
    node.end("-TERM");
    assert_eq!(fs::read_dir(node.path("run")).unwrap().count(), 0, "the socket and its lock are gone");
}

#[test]
fn what_is_at_the_path_of_a_nodes_socket_is_left_there_unless_it_is_a_stale_socket() {
    let mut node = Node::new();
    fs::create_dir(node.path("run")).unwrap();
    if is_root() {
        chown(node.path("run"), Some(OTHER), Some(OTHER)).unwrap();
    }
    let socket = node.path("run/node.sock");
    fs::write(&socket, "precious").unwrap();
    let said = node.refused();
    assert!(said.contains("node.sock: there is a regular file, not a socket"), "{said}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    fs::remove_file(&socket).unwrap();

    let server = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let said = node.refused();
    assert!(said.contains("another node is running here, or another server"), "{said}");
    UnixStream::connect(&socket).unwrap();
    // Now it is stale.
    drop(server);
    node.start();
    UnixStream::connect(&socket).unwrap();

    // A second node with a state of its own, at the same socket.
    let text = fs::read_to_string(node.path("node.toml")).unwrap();
    let first = node.child.take();
    fs::write(node.path("node.toml"), text.replace("/state", "/other")).unwrap();
    let said = node.refused();
    assert!(said.contains("another node is running here"), "{said}");
    node.child = first;
    // Another program's socket at its own path survives the node's end.
    fs::remove_file(&socket).unwrap();
    let other = UnixListener::bind(&socket).unwrap();
    node.end("-TERM");
    UnixStream::connect(&socket).unwrap();
    drop(other);
    fs::remove_file(&socket).unwrap();
    // One that is killed leaves its socket, and the next one takes its place.
    node.start();
    node.end("-KILL");
    assert!(socket.exists());
    node.start();
    UnixStream::connect(&socket).unwrap();
}

#[test]
fn a_state_folder_that_is_a_link_or_another_users_is_refused() {
    let node = Node::new();
    let owned = |path: &Path| {
        if is_root() {
            std::os::unix::fs::lchown(path, Some(OTHER), Some(OTHER)).unwrap();
        }
    };
    fs::create_dir(node.path("elsewhere")).unwrap();
    owned(&node.path("elsewhere"));
    symlink(node.path("elsewhere"), node.path("state")).unwrap();
    owned(&node.path("state"));
    let said = node.refused();
    assert!(said.contains("state: it is a symbolic link"), "{said}");
    assert_eq!(fs::read_dir(node.path("elsewhere")).unwrap().count(), 0);
    fs::remove_file(node.path("state")).unwrap();

    // A hard link in the ledger.
    let mut node = node;
    node.start();
    node.end("-TERM");
    let segment = node.path("state/ledger/ledger-000001.jsonl");
    fs::hard_link(&segment, node.path("second")).unwrap();
    let said = node.refused();
    assert!(said.contains("ledger-000001.jsonl: it has 2 links"), "{said}");
    fs::remove_file(node.path("second")).unwrap();
    if is_root() {
        chown(&segment, Some(1), None).unwrap();
        let said = node.refused();
        assert!(said.contains("ledger-000001.jsonl: "), "{said}");
        chown(&segment, Some(OTHER), None).unwrap();
        // Another user's folder, which this one may write in.
        chown(node.path("state"), Some(1), Some(OTHER)).unwrap();
        fs::set_permissions(node.path("state"), fs::Permissions::from_mode(0o770)).unwrap();
        let said = node.refused();
        assert!(said.contains("state: it belongs to user 1, and must belong to user 65534"), "{said}");
        chown(node.path("state"), Some(OTHER), Some(OTHER)).unwrap();
    }
    node.start();
}
