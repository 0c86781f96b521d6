//! Processes with namespaces of their own: the isolation of each, the state after one ends or its node is killed, and
//! the behaviour on systems that allow less.
//!
//! The processes are this program again, with the arguments of weir's own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_os::child::{self, ChildLimits, Cores, request};
use weir_os::helper::{HelperChannel, HelperLimits, HelperProcess};
use weir_os::spawner::{GroupSetting, SPAWNER, Settings, Spawner, serve};
use weir_os::{Isolation, Launcher};
use weir_units::{Bytes, Nanos};

/// The longest wait of a test.
const PATIENCE: Duration = Duration::from_secs(120);
const LIMITS: HelperLimits = HelperLimits { address_space: Bytes(1 << 30), memory: Bytes(256 << 20) };
const FIRST_USER: u32 = 1_900_000_000;
const NAMESPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
const GROUPS: &str = "WEIR_TEST_GROUPS";

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.first().and_then(|first| first.to_str()) {
        Some(SPAWNER) => serve(&arguments[1..]).expect("it serves"),
        Some("sandbox") => answer_requests(weir_os::confine_sandbox, b""),
        Some("key-agent") => {
            let key = std::fs::read(&arguments[1]).expect("a key agent reads its file");
            answer_requests(weir_os::confine_key_agent, &key);
        }
        Some("compile-cranelift") => compile(),
        Some("node") => node(),
        Some("starts") => starts(),
        Some("few_namespaces") => few_namespaces(),
        Some("level") => println!("{}", spawner(GroupSetting::None, None).isolation()),
        _ => tests(),
    }
}

/// A long-lived process: it repeats each message, followed by `more`.
fn answer_requests(confine: fn() -> Result<weir_os::FileConfinement, weir_os::ConfineError>, more: &[u8]) {
    let mut channel = HelperChannel::from_standard_input().expect("it has one");
    child::confine_or_exit(confine);
    while let Ok(Some(message)) = channel.receive(1 << 20) {
        let answer = match message.as_slice() {
            b"end" => std::process::exit(1),
            b"stop" => {
                // SAFETY: takes no pointers. It stops by this signal, unless it is the first of a PID namespace.
                unsafe { libc::raise(libc::SIGSTOP) };
                message
            }
            b"threads" => threads().to_string().into_bytes(),
            b"others" => others().into_bytes(),
            _ => message,
        };
        if channel.send(&[&answer, more].concat()).is_err() {
            return;
        }
    }
}

/// Starts as many threads as possible. Returns their number.
fn threads() -> usize {
    let wait = || std::thread::sleep(PATIENCE);
    std::iter::from_fn(|| std::thread::Builder::new().stack_size(16 << 10).spawn(wait).ok()).count()
}

/// The attacks of a process under an attacker's control: it sends signals and a descriptor, creates a process and
/// limits others. Returns the attacks that were not refused.
fn others() -> String {
    let byte = [0u8; 64];
    // SAFETY: all zeros are values of these structs.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = byte.as_ptr().cast_mut().cast();
    let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: the pointers are to live locals, and dangerous calls fail at their first check.
    let tried = unsafe {
        [
            ("signals", libc::kill(-1, 0).into()),
            ("sends", libc::sendmsg(0, &raw const message, 0) as libc::c_long),
            ("forks", libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0)),
            ("limits", libc::syscall(libc::SYS_prlimit64, 1, libc::RLIMIT_CORE, &raw const limit, 0)),
            ("opens a handle", libc::syscall(libc::SYS_pidfd_open, 1, 0)),
        ]
    };
    let done: Vec<&str> =
        tried.into_iter().filter(|(_, result)| *result != -1).map(|(what, _)| what).collect();
    done.join(" ")
}

/// A process that answers once, or never.
fn compile() {
    child::confine_or_exit(weir_os::confine_compiler);
    let mut question = Vec::new();
    std::io::stdin().read_to_end(&mut question).expect("it is asked");
    if question == b"spin" {
        loop {
            std::hint::spin_loop();
        }
    }
    if question == b"cores" {
        question = std::thread::available_parallelism().expect("the kernel says").to_string().into_bytes();
    }
    std::io::stdout().write_all(&question).expect("it answers");
}

/// A node in a user namespace of its own, whose limit of namespaces is lowered while it runs.
fn few_namespaces() {
    let spawner = spawner(GroupSetting::None, None);
    let before = sandbox(&spawner);
    let limit = |most: &str| {
        std::fs::write("/proc/sys/user/max_user_namespaces", most).expect("the limit is its own");
    };
    limit("0");
    let refused = match HelperProcess::start(&Launcher::Spawner(Arc::clone(&spawner)), &["sandbox"], LIMITS) {
        Ok(sandbox) => format!("started with {}", sandbox.isolation()),
        Err(error) => error.to_string(),
    };
    limit("1000");
    let after = sandbox(&spawner);
    println!("{} {} {}\n{refused}", spawner.isolation(), before.isolation(), after.isolation());
}

/// A node: it has two processes, prints their numbers, and waits.
fn node() {
    let groups =
        std::env::var_os(GROUPS).map_or(GroupSetting::None, |folder| GroupSetting::At(folder.into()));
    let spawner = spawner(groups, None);
    let sandboxes = [sandbox(&spawner), sandbox(&spawner)];
    println!("{} {} {}", spawner.id(), sandboxes[0].id(), sandboxes[1].id());
    std::thread::sleep(PATIENCE);
}

fn spawner(group: GroupSetting, key: Option<PathBuf>) -> Arc<Spawner> {
    let program = std::env::current_exe().expect("this program has a name");
    let settings = Settings { first_user: FIRST_USER, group, label: "test".into(), key };
    Arc::new(Spawner::start(&program, &settings).expect("it starts on any system"))
}

fn sandbox(spawner: &Arc<Spawner>) -> HelperProcess {
    let mut sandbox = HelperProcess::start(&Launcher::Spawner(Arc::clone(spawner)), &["sandbox"], LIMITS)
        .expect("it starts");
    // When it answers it is confined.
    assert_eq!(sandbox.request(b"you", 100, PATIENCE).expect("it answers"), b"you");
    sandbox
}

/// The time from the start of a process to its first answer, directly and through the spawner, in turn: `cargo test
/// -p weir-os --test spawner -- starts` prints it. No test depends on it.
fn starts() {
    let spawner = spawner(GroupSetting::None, None);
    println!("microseconds of a start, isolated by {} and by seccomp alone", spawner.isolation());
    let program = std::env::current_exe().expect("this program has a name");
    let ways = [Launcher::Spawner(spawner), Launcher::Direct(program)];
    let mut taken = [const { Vec::new() }; 2];
    for _ in 0..200 {
        for (way, taken) in ways.iter().zip(&mut taken) {
            let begin = Instant::now();
            let mut sandbox = HelperProcess::start(way, &["sandbox"], LIMITS).expect("it starts");
            sandbox.request(b"you", 100, PATIENCE).expect("it answers");
            taken.push(begin.elapsed().as_micros());
        }
    }
    for mut taken in taken {
        taken.sort_unstable();
        println!("median {} quartiles {} {}", taken[100], taken[50], taken[150]);
    }
}

fn tests() {
    let all: [(&str, fn()); 12] = [
        (
            "each_process_has_namespaces_an_empty_root_and_no_rights",
            each_process_has_namespaces_an_empty_root_and_no_rights,
        ),
        (
            "the_node_pauses_kills_and_waits_for_its_processes",
            the_node_pauses_kills_and_waits_for_its_processes,
        ),
        (
            "a_process_that_is_asked_once_answers_and_has_its_limits",
            a_process_that_is_asked_once_answers_and_has_its_limits,
        ),
        ("the_key_agent_reads_its_file_and_has_namespaces", the_key_agent_reads_its_file_and_has_namespaces),
        ("no_process_of_a_killed_node_is_left", no_process_of_a_killed_node_is_left),
        (
            "many_threads_start_processes_while_other_requests_fail",
            many_threads_start_processes_while_other_requests_fail,
        ),
        (
            "the_end_of_a_killed_spawner_is_noticed_and_its_processes_continue",
            the_end_of_a_killed_spawner_is_noticed_and_its_processes_continue,
        ),
        (
            "a_process_is_refused_if_it_would_have_less_isolation_than_announced",
            a_process_is_refused_if_it_would_have_less_isolation_than_announced,
        ),
        (
            "a_compiler_has_the_cores_of_the_thread_that_asks_for_it",
            a_compiler_has_the_cores_of_the_thread_that_asks_for_it,
        ),
        (
            "a_process_cannot_affect_the_spawner_or_other_processes",
            a_process_cannot_affect_the_spawner_or_other_processes,
        ),
        (
            "the_isolation_level_reports_what_the_system_allows",
            the_isolation_level_reports_what_the_system_allows,
        ),
        ("each_process_has_a_control_group_until_it_ends", each_process_has_a_control_group_until_it_ends),
    ];
    let wanted: Vec<String> =
        std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    if std::env::args().any(|argument| argument == "--list") {
        all.iter().for_each(|(name, _)| println!("{name}: test"));
        return;
    }
    for (name, test) in all {
        if wanted.is_empty() || wanted.iter().any(|wanted| name.contains(wanted)) {
            test();
            println!("test {name} ... ok");
        }
    }
}

fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").expect("its own");
    status.contains("\nUid:\t0\t0")
}

fn namespace(process: u32, kind: &str) -> PathBuf {
    std::fs::read_link(format!("/proc/{process}/ns/{kind}")).expect("this may be looked at")
}

fn field(process: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).expect("it is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel says so");
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns true if a process is alive, and no zombie.
fn lives(process: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/status"))
        .is_ok_and(|status| !status.contains("\nState:\tZ") && !status.contains("\nState:\tX"))
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn each_process_has_namespaces_an_empty_root_and_no_rights() {
    let spawner = spawner(GroupSetting::None, None);
    let sandboxes = [sandbox(&spawner), sandbox(&spawner)];
    let isolation = sandboxes[0].isolation();
    println!("isolation here: {isolation}");
    assert_eq!(isolation, spawner.isolation());
    for sandbox in &sandboxes {
        let id = sandbox.id();
        for (name, value) in [
            ("CapEff:", "0000000000000000"),
            ("CapPrm:", "0000000000000000"),
            ("NoNewPrivs:", "1"),
            ("Seccomp:", "2"),
        ] {
            assert_eq!(field(id, name), value, "{name}");
        }
        assert_eq!(field(id, "PPid:"), std::process::id().to_string(), "it is this process's child");
    }
    if !isolation.has(Isolation::NAMESPACES) {
        println!("skipped: there are no namespaces here");
        return;
    }
    for sandbox in &sandboxes {
        assert_eq!(
            field(sandbox.id(), "NSpid:"),
            format!("{} 1", sandbox.id()),
            "the first of its PID namespace"
        );
        // The test reads as root, from whom nothing is hidden.
        if is_root() {
            let root = std::fs::read_dir(format!("/proc/{}/root/", sandbox.id())).expect("root may look");
            assert_eq!(root.count(), 0, "files in the root");
            let mounts =
                std::fs::read_to_string(format!("/proc/{}/mounts", sandbox.id())).expect("root may look");
            let words: Vec<&str> = mounts.split_whitespace().collect();
            assert_eq!(mounts.lines().count(), 1, "{mounts}");
            assert!(words[2] == "tmpfs" && words[3].starts_with("ro,"), "{mounts}");
        }
    }
    if is_root() {
        for kind in NAMESPACES.into_iter().filter(|kind| *kind != "user" || isolation.has(Isolation::UID)) {
            let all = [std::process::id(), sandboxes[0].id(), sandboxes[1].id()]
                .map(|process| namespace(process, kind));
            assert_eq!(BTreeSet::from(all).len(), 3, "a {kind} namespace of each");
        }
    }
    if isolation.has(Isolation::UID) {
        let users = [&sandboxes[0], &sandboxes[1]].map(|sandbox| field(sandbox.id(), "Uid:"));
        assert_ne!(users[0], users[1]);
        for user in users {
            let first: u32 = user.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
            assert!(user.split(' ').all(|word| word == first.to_string()), "{user}");
            assert!((FIRST_USER..FIRST_USER + 1024).contains(&first), "{user}");
        }
        assert_eq!(field(sandboxes[0].id(), "Groups:"), "");
    }
    // Only its channel, and each descriptor once.
    if is_root() {
        let open = std::fs::read_dir(format!("/proc/{}/fd", sandboxes[0].id())).expect("root may look");
        for entry in open {
            let to = std::fs::read_link(entry.expect("it is there").path()).expect("it is there");
            let to = to.to_string_lossy().into_owned();
            assert!(to == "/dev/null" || to.starts_with("socket:"), "{to}");
        }
    }
}

fn the_node_pauses_kills_and_waits_for_its_processes() {
    let spawner = spawner(GroupSetting::None, None);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", spawner.id())).map_or(0, Iterator::count);
    let before = open();
    for _ in 0..20 {
        let mut sandbox = sandbox(&spawner);
        let id = sandbox.id();
        sandbox.pause();
        until("it is halted", || field(id, "State:").starts_with('T'));
        assert!(sandbox.processor_time().expect("it is there") > Duration::ZERO);
        sandbox.resume();
        assert_eq!(sandbox.request(b"again", 100, PATIENCE).expect("it answers"), b"again");
        drop(sandbox);
        assert!(!Path::new(&format!("/proc/{id}")).exists(), "it has been waited for");
    }
    until("the spawner has let go of them", || open() <= before);
    assert_eq!(spawner.started().iter().map(|(_, _, count)| count).sum::<u64>(), 20);
    let spawners = spawner.id();
    drop(spawner);
    assert!(!Path::new(&format!("/proc/{spawners}")).exists(), "it has been waited for, too");
}

fn a_process_that_is_asked_once_answers_and_has_its_limits() {
    let launcher = Launcher::Spawner(spawner(GroupSetting::None, None));
    let limits = ChildLimits {
        processor: Nanos::SECOND,
        time: Nanos(300 * Nanos::SECOND.0),
        memory: Bytes(1 << 30),
        answer: 1 << 20,
        cores: None,
    };
    let asked = request(&launcher, &["compile-cranelift"], b"a question", &limits, &mut Nanos(0));
    assert_eq!(asked.answer.expect("it answers").bytes, b"a question");
    // The first process of a PID namespace does not receive the limit's signal.
    let asked = request(&launcher, &["compile-cranelift"], b"spin", &limits, &mut Nanos(0));
    assert!(matches!(asked.answer, Err(child::ChildError::TimeLimit(_))), "{:?}", asked.answer);
    assert!(asked.used.0 > Nanos::SECOND.0 / 2, "{:?}", asked.used);
    let none = request(&launcher, &["/bin/sh"], b"", &limits, &mut Nanos(0));
    assert!(matches!(none.answer, Err(child::ChildError::Process(_))), "{:?}", none.answer);
}

fn the_key_agent_reads_its_file_and_has_namespaces() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("node.key");
    std::fs::write(&file, "secret").expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    let spawner = spawner(GroupSetting::None, Some(file));
    // The node cannot name another file.
    let arguments = [OsString::from("key-agent"), OsString::from("/etc/shadow")];
    let launcher = Launcher::Spawner(Arc::clone(&spawner));
    let mut agent = HelperProcess::start(&launcher, &arguments, LIMITS).expect("it starts");
    assert_eq!(agent.request(b"the key: ", 100, PATIENCE).expect("it answers"), b"the key: secret");
    let has = |part| spawner.isolation().has(part) == agent.isolation().has(part);
    assert!(has(Isolation::NAMESPACES) && !agent.isolation().has(Isolation::UID), "{}", agent.isolation());
    assert_eq!(field(agent.id(), "CapPrm:"), "0000000000000000");
}

fn no_process_of_a_killed_node_is_left() {
    let (mut node, ids) = start_node(None);
    node.kill().expect("it is ours");
    node.wait().expect("it is ours");
    until("all of them end with it", || ids.iter().all(|id| !lives(*id)));
    // Also if its spawner is killed first.
    let (mut node, ids) = start_node(None);
    kill(ids[0]);
    node.kill().expect("it is ours");
    node.wait().expect("it is ours");
    until("all of them end with it", || ids.iter().all(|id| !lives(*id)));
}

fn many_threads_start_processes_while_other_requests_fail() {
    const THREADS: u32 = 4;
    const EACH: u32 = 8;
    let spawner = spawner(GroupSetting::None, None);
    let launcher = Launcher::Spawner(Arc::clone(&spawner));
    let work = |thread: u32| {
        for round in 0..EACH {
            if (thread + round).is_multiple_of(2) {
                // A compiler has three streams, and this is one.
                assert!(
                    HelperProcess::start(&launcher, &["compile-cranelift"], LIMITS).is_err(),
                    "it is refused"
                );
                continue;
            }
            let mut sandbox = HelperProcess::start(&launcher, &["sandbox"], LIMITS).expect("it starts");
            let question = format!("{thread} {round}");
            let answer = sandbox.request(question.as_bytes(), 100, PATIENCE).expect("it answers");
            assert_eq!(answer, question.as_bytes(), "its own line");
            assert_eq!(field(sandbox.id(), "PPid:"), std::process::id().to_string());
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("its requests went as they should"));
    });
    let half = u64::from(THREADS * EACH / 2);
    assert_eq!(spawner.started().iter().map(|(_, _, count)| count).sum::<u64>(), half);
    let refused = spawner.refused();
    assert_eq!((refused.count, refused.last.map(|(role, _)| role)), (half, Some("compiler")));
    let children = std::fs::read_to_string(format!("/proc/self/task/{}/children", std::process::id()));
    if let Ok(children) = children {
        assert_eq!(children.trim(), spawner.id().to_string(), "all others have been waited for");
    }
}

fn the_end_of_a_killed_spawner_is_noticed_and_its_processes_continue() {
    let spawner = spawner(GroupSetting::None, None);
    let mut sandbox = sandbox(&spawner);
    assert_eq!(spawner.ended(), None);
    kill(spawner.id());
    until("its end is known", || spawner.ended().is_some());
    // Asking has no side effect.
    for _ in 0..2 {
        assert_eq!(spawner.ended().and_then(|status| status.signal()), Some(libc::SIGKILL));
    }
    for count in 1..3 {
        let refused = HelperProcess::start(&Launcher::Spawner(Arc::clone(&spawner)), &["sandbox"], LIMITS);
        assert_eq!(refused.expect_err("there is no spawner").kind(), std::io::ErrorKind::BrokenPipe);
        assert_eq!(spawner.refused().count, count);
    }
    assert_eq!(sandbox.request(b"still", 100, PATIENCE).expect("it is there"), b"still");
}

fn kill(process: u32) {
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().expect("kill(1)").success());
}

fn a_process_is_refused_if_it_would_have_less_isolation_than_announced() {
    let program = std::env::current_exe().expect("this program has a name");
    let mut command = Command::new("unshare");
    let output = command.args(["--user", "--map-root-user"]).arg(program).arg("few_namespaces").output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        println!("skipped: there are no user namespaces here, or their limit cannot be set");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (levels, refused) = text.split_once('\n').expect("two lines");
    let levels: BTreeSet<&str> = levels.split(' ').collect();
    assert_eq!(levels.len(), 1, "announced, before and after: {text}");
    assert!(levels.iter().all(|level| level.contains("namespaces")), "{text}");
    for word in ["less isolation than the node announced", "user.max_user_namespaces", "No space left"] {
        assert!(refused.contains(word), "{word}: {text}");
    }
}

fn a_compiler_has_the_cores_of_the_thread_that_asks_for_it() {
    let launcher = Launcher::Spawner(spawner(GroupSetting::None, None));
    let limits = ChildLimits {
        processor: Nanos(10 * Nanos::SECOND.0),
        time: Nanos(300 * Nanos::SECOND.0),
        memory: Bytes(1 << 30),
        answer: 1 << 20,
        cores: None,
    };
    let cores = || {
        let asked = request(&launcher, &["compile-cranelift"], b"cores", &limits, &mut Nanos(0));
        let answer = asked.answer.expect("it answers").bytes;
        String::from_utf8(answer).expect("text").parse::<usize>().expect("a number")
    };
    let all = std::thread::available_parallelism().expect("the kernel says").get();
    assert_eq!(cores(), all);
    if all == 1 {
        println!("skipped: there is one core");
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let every = (0..1024).filter(|core| Cores::without(&[]).is_some_and(|cores| cores.has(*core)));
            let but_one: Vec<u16> = every.skip(1).collect();
            Cores::without(&but_one).and_then(|one| one.bind().ok()).expect("it is one of its own");
            assert_eq!(cores(), 1);
        });
    });
}

fn a_process_cannot_affect_the_spawner_or_other_processes() {
    let spawner = spawner(GroupSetting::None, None);
    let mut other = sandbox(&spawner);
    let mut is_well = |what: &str| {
        assert_eq!(other.request(b"there", 100, PATIENCE).expect("it answers"), b"there", "{what}");
        drop(sandbox(&spawner));
        assert_eq!(spawner.ended(), None, "{what}");
    };
    let mut ends = sandbox(&spawner);
    assert!(ends.request(b"end", 100, PATIENCE).is_err());
    is_well("one has ended");
    // It has not been waited for yet, so its process id is its own.
    assert_eq!(ends.end().expect("it is ours").code(), Some(1));
    let mut stops = sandbox(&spawner);
    stops.send(b"stop", PATIENCE).expect("it is there");
    is_well("one has stopped itself");
    drop(stops);
    let mut acts = sandbox(&spawner);
    assert_eq!(acts.request(b"others", 100, PATIENCE).expect("it answers"), b"", "what was not refused");
    is_well("one has tried to reach others");
    if !spawner.isolation().has(Isolation::UID) {
        println!("skipped: without users of their own the tasks of processes are not counted");
        return;
    }
    let mut grows = sandbox(&spawner);
    let count = grows.request(b"threads", 100, PATIENCE).expect("it answers");
    let count: usize = String::from_utf8(count).expect("text").parse().expect("a number");
    assert!((1..512).contains(&count), "{count}");
    is_well("one has as many threads as it may");
}

fn start_node(groups: Option<&Path>) -> (std::process::Child, Vec<u32>) {
    let mut command = Command::new(std::env::current_exe().expect("this program has a name"));
    command.arg("node").stdout(Stdio::piped());
    if let Some(groups) = groups {
        command.env(GROUPS, groups);
    }
    let mut node = command.spawn().expect("it starts");
    let mut text = String::new();
    BufReader::new(node.stdout.take().expect("it has one")).read_line(&mut text).expect("it says");
    let ids: Vec<u32> = text.split_whitespace().map(|id| id.parse().expect("a number")).collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| lives(*id)), "{text}");
    (node, ids)
}

fn the_isolation_level_reports_what_the_system_allows() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    // In a place where everyone may execute it.
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("program");
    std::fs::copy(std::env::current_exe().expect("this program has a name"), &program)
        .expect("there is room");
    for (path, mode) in [(folder.path(), 0o755), (&program, 0o755)] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    }
    let level = |before: &[&str], script: &str| {
        let (command, rest) = before.split_first().expect("a program");
        let script = format!("{script} {} level", program.display());
        let output = Command::new(command).args(rest).args(["sh", "-c", &script]).output();
        output.ok().filter(|output| output.status.success()).map(|output| {
            let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
            text.strip_suffix("+sealed").unwrap_or(&text).to_owned()
        })
    };
    let other = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups"];
    let spaces = level(&["unshare", "--user", "--map-root-user"], "exec");
    if spaces.is_none() {
        println!("skipped: there are no user namespaces here");
        return;
    }
    assert_eq!(level(&["env"], "exec").as_deref(), Some("uid+namespaces"));
    assert_eq!(level(&other, "exec").as_deref(), Some("namespaces"), "by a user");
    // Limits of a user namespace apply to its contents.
    let none = "echo 0 > /proc/sys/user/max_user_namespaces && exec";
    assert_eq!(
        level(&["unshare", "--user", "--map-root-user"], none).as_deref(),
        Some("namespaces"),
        "without those for users"
    );
    let dropped = format!("{none} setpriv --inh-caps=-all --bounding-set=-all");
    let dropped = level(&["unshare", "--user", "--map-root-user"], &dropped);
    assert_eq!(dropped.as_deref(), Some("seccomp"), "without any");
}

/// The cgroup2 mount, if it is writable.
fn groups() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/mounts").ok()?;
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (folder, kind) = (words.next()?, words.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(folder))
    })?;
    let folder = mount.join(format!("weir-test-{}", std::process::id()));
    std::fs::create_dir(&folder).ok()?;
    Some(folder)
}

fn each_process_has_a_control_group_until_it_ends() {
    let Some(folder) = groups() else {
        println!("skipped: control groups cannot be made here");
        return;
    };
    let names = || {
        let entries = std::fs::read_dir(&folder).expect("it is there");
        let folders = entries.map(|entry| entry.expect("it is there")).filter(|entry| entry.path().is_dir());
        folders.map(|entry| entry.file_name().into_string().expect("a name")).collect::<BTreeSet<_>>()
    };
    let spawner_of = || spawner(GroupSetting::At(folder.clone()), None);
    let spawner = spawner_of();
    assert!(names().is_empty(), "{:?}", names());
    let isolation = spawner.isolation();
    println!("isolation here: {isolation}");
    assert!(isolation.has(Isolation::GROUP), "{isolation}");
    let sandboxes = [sandbox(&spawner), sandbox(&spawner)];
    let two: BTreeSet<String> = ["weir-test-0", "weir-test-1"].map(str::to_owned).into();
    assert_eq!(names(), two);
    for (number, sandbox) in sandboxes.iter().enumerate() {
        let procs = std::fs::read_to_string(folder.join(format!("weir-test-{number}/cgroup.procs")))
            .expect("it is there");
        assert_eq!(procs.trim(), sandbox.id().to_string());
        assert!(sandbox.isolation().has(Isolation::GROUP));
        let limit = |file: &str| std::fs::read_to_string(folder.join(format!("weir-test-{number}/{file}")));
        if isolation.has(Isolation::LIMITS) {
            assert_eq!(
                limit("memory.max").expect("it has one").trim(),
                (LIMITS.memory.0 + (64 << 20)).to_string()
            );
            assert_eq!(limit("pids.max").expect("it has one").trim(), "512");
        }
        assert!(limit("cpu.stat").expect("it has one").starts_with("usage_usec "));
    }
    // If no more groups can be created, a process is not started without one.
    let most = |most: &str| {
        std::fs::write(folder.join("cgroup.max.descendants"), most).expect("the folder is ours");
    };
    most("2");
    let refused = HelperProcess::start(&Launcher::Spawner(Arc::clone(&spawner)), &["sandbox"], LIMITS);
    let refused = refused.expect_err("it would have no group").to_string();
    assert!(refused.contains("control group") && refused.contains("cgroup.max.descendants"), "{refused}");
    assert_eq!(names(), two);
    most("max");
    drop(sandboxes);
    until("they go with the processes", || names().is_empty());
    // Another node's groups stay, and one of this node's that was left is removed.
    for left in ["weir-other-0", "weir-test-0"] {
        std::fs::create_dir(folder.join(left)).expect("there is room");
    }
    let third = sandbox(&spawner);
    assert!(third.isolation().has(Isolation::GROUP));
    drop(third);
    // If it cannot be removed, another number is used.
    until("it is gone", || !names().contains("weir-test-0"));
    std::fs::create_dir_all(folder.join("weir-test-0/more")).expect("there is room");
    let third = sandbox(&spawner);
    let procs = std::fs::read_to_string(folder.join("weir-test-1/cgroup.procs")).expect("it is there");
    assert_eq!(procs.trim(), third.id().to_string());
    drop(third);
    std::fs::remove_dir(folder.join("weir-test-0/more")).expect("it is empty");
    until("what is left is the other node's", || names().iter().all(|name| name == "weir-other-0"));
    drop(spawner_of());
    assert_eq!(names().len(), 1);
    std::fs::remove_dir(folder.join("weir-other-0")).expect("it is empty");
    drop(sandbox(&spawner));
    until("they go with the processes", || names().is_empty());
    drop(spawner);

    // A killed node leaves none either. If its spawner was killed, the next one removes them with their processes.
    let (mut node, ids) = start_node(Some(&folder));
    assert_eq!(names(), two);
    node.kill().and_then(|()| node.wait()).expect("it is ours");
    until("all end with it", || ids.iter().all(|id| !lives(*id)) && names().is_empty());
    let (mut node, ids) = start_node(Some(&folder));
    kill(ids[0]);
    node.kill().and_then(|()| node.wait()).expect("it is ours");
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("sleep(1)");
    std::fs::write(folder.join("weir-test-0/cgroup.procs"), sleeper.id().to_string())
        .expect("it can be put there");
    assert_eq!(names(), two, "they are left");
    let next = spawner_of();
    assert!(names().is_empty(), "{:?}", names());
    assert!(!sleeper.wait().expect("it is ours").success(), "what was in one is killed");
    drop(next);
    std::fs::remove_dir(&folder).expect("it is empty");
}
