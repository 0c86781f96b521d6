//! Tests of private files and memory. Files that weir writes are readable by their user only, for any umask. Key files that other
//! users could have modified are refused. A node hides its memory, and does not replace foreign files at its socket's path. If the
//! tests run as root, the node runs as another user, so both cases are tested.

use crate::run::packets::{pcap, traffic};
use crate::run::process::{Ended, PROGRAM, finish};
use crate::run::weir;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any step takes on the slowest and busiest machine.
const TIMEOUT: Duration = Duration::from_secs(300);
/// A user id that is neither root's nor the test's.
const OTHER: u32 = 65534;

fn mode(path: &Path) -> u32 {
    path.symlink_metadata().unwrap_or_else(|error| panic!("{}: {error}", path.display())).mode() & 0o7777
}

/// Returns every file and folder below a folder, with its mode.
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

/// Returns true if the tests run as root, and else prints that the test is skipped.
fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self/status").unwrap().uid() == 0;
    if !is_root {
        _ = writeln!(std::io::stderr(), "skipped in part: files of other users take root");
    }
    is_root
}

/// Runs `weir ARGUMENTS` in a folder with this umask.
fn under_umask(umask: &str, folder: &Path, arguments: &[&str]) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("umask {umask}; exec \"$0\" \"$@\"")]);
    command.arg(PROGRAM).args(arguments).current_dir(folder);
    weir().get_envs().for_each(|(name, value)| match value {
        Some(value) => _ = command.env(name, value),
        None => _ = command.env_remove(name),
    });
    finish(&mut command, None)
}

#[test]
fn files_of_a_run_are_private_for_any_umask() {
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
        under_umask(umask, home.path(), &arguments).succeeds();
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
fn an_existing_output_file_keeps_its_mode() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("c.pcap"), pcap(&traffic(50))).unwrap();
    for name in ["page.html", "all.pcap"] {
        fs::write(home.path().join(name), "before").unwrap();
        fs::set_permissions(home.path().join(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    let arguments = ["run", "-r", "c.pcap", "-m", "port-count", "--report", "page.html", "-w", "all.pcap"];
    under_umask("022", home.path(), &arguments).succeeds();
    for name in ["page.html", "all.pcap"] {
        assert_eq!(mode(&home.path().join(name)), 0o640, "{name}");
        assert!(fs::metadata(home.path().join(name)).unwrap().len() > 6, "{name}");
    }
    // Devices and pipes can be outputs too.
    for output in ["--report", "-w"] {
        let arguments = ["run", "-r", "c.pcap", "-m", "port-count", output, "/dev/null"];
        under_umask("022", home.path(), &arguments).succeeds();
    }
}

#[test]
fn records_are_not_written_to_folders_or_hard_links_of_another_user() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("c.pcap"), pcap(&traffic(50))).unwrap();
    let run =
        || under_umask("022", home.path(), &["run", "-r", "c.pcap", "-m", "port-count", "--out", "out"]);
    run().succeeds();
    let folder = home.path().join("out/port-count");
    let complete = modes_below(&folder).remove(0).0;
    let remove_records = || modes_below(&folder).iter().for_each(|(path, ..)| fs::remove_file(path).unwrap());
    remove_records();
    let part = PathBuf::from(format!("{}.part", complete.display()));
    fs::write(home.path().join("victim"), "precious").unwrap();
    fs::hard_link(home.path().join("victim"), &part).unwrap();
    let refused = run();
    assert!(!refused.status.success() && refused.stderr.contains("it has 2 links"), "{}", refused.stderr);
    assert_eq!(fs::read_to_string(home.path().join("victim")).unwrap(), "precious");
    fs::remove_file(&part).unwrap();
    run().succeeds();
    remove_records();
    if is_root() {
        chown(&folder, Some(OTHER), None).unwrap();
        let refused = run();
        let why = "it belongs to user 65534";
        assert!(!refused.status.success() && refused.stderr.contains(why), "{}", refused.stderr);
    }
}

#[test]
fn a_key_file_that_is_a_link_or_of_another_user_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let weir = |arguments: &[&str]| under_umask("000", home.path(), arguments);
    weir(&["key", "new", "a.key"]).succeeds();
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
    weir(&["key", "show", "a.key"]).succeeds();
    // `<(command)` of a shell is a link to a pipe, and is read.
    let mut shell = Command::new("bash");
    shell.args(["-c", "\"$0\" key show <(cat a.key)", env!("CARGO_BIN_EXE_weir")]).current_dir(home.path());
    finish(&mut shell, None).succeeds();
    if is_root() {
        chown(at("a.key"), Some(OTHER), None).unwrap();
        refused("a.key", "it belongs to user 65534, and must belong to user 0");
    }
}

/// A node without interfaces, which any user can run. It is killed when this is dropped.
struct Node {
    home: tempfile::TempDir,
    child: Option<Child>,
}

impl Node {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().display();
        let text = format!(
            "[node]\nsocket = \"{path}/run/node.sock\"\nstate = \"{path}/state\"\nledger_interval = \"100ms\"\n"
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

    /// Spawns the node, with its standard error in a new log.
    fn spawn(&self) -> Child {
        let printed = fs::File::create(self.path("printed")).unwrap();
        let mut command = weir();
        command.args(["node", "-c"]).arg(self.path("node.toml")).stdin(Stdio::null()).stderr(printed);
        command.env("XDG_CACHE_HOME", self.path("cache")).env("XDG_STATE_HOME", self.path("calibration"));
        if is_root() {
            command.uid(OTHER).gid(OTHER);
        }
        command.spawn().unwrap()
    }

    fn printed(&self) -> String {
        fs::read_to_string(self.path("printed")).unwrap()
    }

    fn start(&mut self) {
        let mut child = self.spawn();
        let begin = Instant::now();
        while !self.printed().contains("is running") {
            assert_eq!(child.try_wait().unwrap(), None, "{}", self.printed());
            assert!(begin.elapsed() < TIMEOUT, "{}", self.printed());
            std::thread::sleep(Duration::from_millis(10));
        }
        self.child = Some(child);
    }

    /// Asserts that the node does not start, and returns its standard error.
    fn refused(&self) -> String {
        assert!(!self.spawn().wait().unwrap().success());
        self.printed()
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

/// Returns true if other processes of the user cannot read the process's memory and it leaves no core file. For processes of other users than root.
fn is_hidden(id: u32) -> bool {
    // These files belong to the process's user if it is dumpable, and else to root (proc(5)).
    let owners =
        ["mem", "environ", "maps"].map(|name| fs::metadata(format!("/proc/{id}/{name}")).unwrap().uid());
    // Only root can read the limits of a process that is not dumpable.
    let limits = fs::read_to_string(format!("/proc/{id}/limits")).unwrap_or_default();
    let core = limits.lines().find(|line| line.starts_with("Max core file size"));
    let has_no_core = core.is_none_or(|core| core.split_whitespace().skip(4).take(2).eq(["0", "0"]));
    owners == [0; 3] && has_no_core
}

#[test]
fn a_client_command_hides_its_memory() {
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
    // From here on the command waits for a reply.
    let connection = silent.accept().unwrap();
    assert!(is_hidden(asks.id()));
    drop(connection);
    asks.wait().unwrap();
}

#[test]
fn files_of_a_node_are_private_and_its_socket_is_open_to_its_group() {
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
fn only_a_stale_socket_is_replaced_at_the_path_of_a_nodes_socket() {
    let mut node = Node::new();
    fs::create_dir(node.path("run")).unwrap();
    if is_root() {
        chown(node.path("run"), Some(OTHER), Some(OTHER)).unwrap();
    }
    let socket = node.path("run/node.sock");
    fs::write(&socket, "precious").unwrap();
    let printed = node.refused();
    assert!(printed.contains("node.sock: there is a regular file, not a socket"), "{printed}");
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    fs::remove_file(&socket).unwrap();

    let server = UnixListener::bind(&socket).unwrap();
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    let printed = node.refused();
    assert!(printed.contains("another node is running here, or another server"), "{printed}");
    UnixStream::connect(&socket).unwrap();
    // The socket is stale now.
    drop(server);
    node.start();
    UnixStream::connect(&socket).unwrap();

    // A second node with another state folder and the same socket.
    let text = fs::read_to_string(node.path("node.toml")).unwrap();
    let first = node.child.take();
    fs::write(node.path("node.toml"), text.replace("/state", "/other")).unwrap();
    let printed = node.refused();
    assert!(printed.contains("another node is running here"), "{printed}");
    node.child = first;
    // A socket of another program at the path is not removed when the node ends.
    fs::remove_file(&socket).unwrap();
    let other = UnixListener::bind(&socket).unwrap();
    node.end("-TERM");
    UnixStream::connect(&socket).unwrap();
    drop(other);
    fs::remove_file(&socket).unwrap();
    // A killed node leaves its socket, which the next node replaces.
    node.start();
    node.end("-KILL");
    assert!(socket.exists());
    node.start();
    UnixStream::connect(&socket).unwrap();
}

#[test]
fn a_state_folder_that_is_a_link_or_of_another_user_is_refused() {
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
    let printed = node.refused();
    assert!(printed.contains("state: it is a symbolic link"), "{printed}");
    assert_eq!(fs::read_dir(node.path("elsewhere")).unwrap().count(), 0);
    fs::remove_file(node.path("state")).unwrap();

    // A second hard link of a ledger file.
    let mut node = node;
    node.start();
    node.end("-TERM");
    let segment = node.path("state/ledger/ledger-000001.jsonl");
    fs::hard_link(&segment, node.path("second")).unwrap();
    let printed = node.refused();
    assert!(printed.contains("ledger-000001.jsonl: it has 2 links"), "{printed}");
    fs::remove_file(node.path("second")).unwrap();
    if is_root() {
        chown(&segment, Some(1), None).unwrap();
        let printed = node.refused();
        assert!(printed.contains("ledger-000001.jsonl: "), "{printed}");
        chown(&segment, Some(OTHER), None).unwrap();
        // A folder of another user in which this user may write.
        chown(node.path("state"), Some(1), Some(OTHER)).unwrap();
        fs::set_permissions(node.path("state"), fs::Permissions::from_mode(0o770)).unwrap();
        let printed = node.refused();
        assert!(printed.contains("state: it belongs to user 1, and must belong to user 65534"), "{printed}");
        chown(node.path("state"), Some(OTHER), Some(OTHER)).unwrap();
    }
    node.start();
}
