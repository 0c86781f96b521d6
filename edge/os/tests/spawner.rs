//! Processes with namespaces of their own: the walls that each has, what is left when one ends or its node is killed, and what a system offers that allows less.
//!
//! The processes are this program once more, with the arguments of weir's own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_os::child::{self, ChildLimits, Cores, ask};
use weir_os::companion::{HelperChannel, HelperLimits, HelperProcess};
use weir_os::spawner::{GroupSetting, SPAWNER, Settings, Spawner, serve};
use weir_os::{Isolation, Launcher};
use weir_units::{Bytes, Nanos};

/// No test waits longer for something.
const PATIENCE: Duration = Duration::from_secs(120);
const ROOM: HelperLimits = HelperLimits { addresses: Bytes(1 << 30), memory: Bytes(256 << 20) };
const FIRST_USER: u32 = 1_900_000_000;
const SPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
const GROUPS: &str = "WEIR_TEST_GROUPS";

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.first().and_then(|first| first.to_str()) {
        Some(SPAWNER) => serve(&arguments[1..]).expect("it serves"),
        Some("ward") => stay(weir_os::ward, b""),
        Some("keep-key") => {
            let key = std::fs::read(&arguments[1]).expect("a key agent reads its file");
            stay(weir_os::keeper, &key);
        }
        Some("compile") => compile(),
        Some("node") => node(),
        Some("starts") => starts(),
        Some("less") => less(),
        Some("level") => println!("{}", spawner(GroupSetting::None, None).isolation()),
        _ => tests(),
    }
}

/// A process that stays: it repeats what it is told, with this behind it.
fn stay(give_up: fn() -> Result<weir_os::Files, weir_os::ConfineError>, more: &[u8]) {
    let mut line = HelperChannel::of_standard_input().expect("it has one");
    child::confined(give_up);
    while let Ok(Some(told)) = line.hear(1 << 20) {
        let answer = match told.as_slice() {
            b"end" => std::process::exit(1),
            b"stop" => {
                // SAFETY: takes no pointers. It stops by this, where it is not the first of a PID namespace.
                unsafe { libc::raise(libc::SIGSTOP) };
                told
            }
            b"threads" => threads().to_string().into_bytes(),
            b"others" => others().into_bytes(),
            _ => told,
        };
        if line.say(&[&answer, more].concat()).is_err() {
            return;
        }
    }
}

/// As many threads as there can be: their number.
fn threads() -> usize {
    let stay = || std::thread::sleep(PATIENCE);
    std::iter::from_fn(|| std::thread::Builder::new().stack_size(16 << 10).spawn(stay).ok()).count()
}

/// The attacks of a process that was taken over: it signals, sends a descriptor, makes a process and limits others. Returns those that were not refused.
fn others() -> String {
    let byte = [0u8; 64];
    // SAFETY: zeros are values of all of it.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_control = byte.as_ptr().cast_mut().cast();
    let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
    // SAFETY: the pointers are to live locals, and what would do something fails at the first check.
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

/// A process that answers once; or never.
fn compile() {
    child::confined(weir_os::compiler);
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

/// A node in a user namespace of its own, in which namespaces run out while it runs.
fn less() {
    let spawner = spawner(GroupSetting::None, None);
    let before = ward(&spawner);
    let limit = |most: &str| {
        std::fs::write("/proc/sys/user/max_user_namespaces", most).expect("the limit is its own");
    };
    limit("0");
    let refused = match HelperProcess::start(&Launcher::Spawner(Arc::clone(&spawner)), &["ward"], ROOM) {
        Ok(ward) => format!("started with {}", ward.isolation()),
        Err(error) => error.to_string(),
    };
    limit("1000");
    let after = ward(&spawner);
    println!("{} {} {}\n{refused}", spawner.isolation(), before.isolation(), after.isolation());
}

/// A node: it has two processes, tells their numbers, and waits.
fn node() {
    let groups =
        std::env::var_os(GROUPS).map_or(GroupSetting::None, |folder| GroupSetting::At(folder.into()));
    let spawner = spawner(groups, None);
    let wards = [ward(&spawner), ward(&spawner)];
    println!("{} {} {}", spawner.id(), wards[0].id(), wards[1].id());
    std::thread::sleep(PATIENCE);
}

fn spawner(group: GroupSetting, key: Option<PathBuf>) -> Arc<Spawner> {
    let program = std::env::current_exe().expect("this program has a name");
    let settings = Settings { first_user: FIRST_USER, group, label: "test".into(), key };
    Arc::new(Spawner::start(&program, &settings).expect("it starts on any system"))
}

fn ward(spawner: &Arc<Spawner>) -> HelperProcess {
    let mut ward =
        HelperProcess::start(&Launcher::Spawner(Arc::clone(spawner)), &["ward"], ROOM).expect("it starts");
    // When it answers it has put up its walls.
    assert_eq!(ward.ask(b"you", 100, PATIENCE).expect("it answers"), b"you");
    ward
}

/// The time from the start of a process to its first answer, directly and through the spawner, in turn: `cargo test -p weir-os --test spawner -- starts`
/// prints it. No test depends on it.
fn starts() {
    let spawner = spawner(GroupSetting::None, None);
    println!("microseconds of a start, isolated by {} and by seccomp alone", spawner.isolation());
    let program = std::env::current_exe().expect("this program has a name");
    let ways = [Launcher::Spawner(spawner), Launcher::Direct(program)];
    let mut taken = [const { Vec::new() }; 2];
    for _ in 0..200 {
        for (way, taken) in ways.iter().zip(&mut taken) {
            let begin = Instant::now();
            let mut ward = HelperProcess::start(way, &["ward"], ROOM).expect("it starts");
            ward.ask(b"you", 100, PATIENCE).expect("it answers");
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
            "the_node_halts_kills_and_waits_for_its_processes",
            the_node_halts_kills_and_waits_for_its_processes,
        ),
        (
            "a_process_that_is_asked_once_answers_and_has_its_limits",
            a_process_that_is_asked_once_answers_and_has_its_limits,
        ),
        ("the_key_agent_reads_its_file_and_has_namespaces", the_key_agent_reads_its_file_and_has_namespaces),
        ("nothing_is_left_of_a_node_that_is_killed", nothing_is_left_of_a_node_that_is_killed),
        (
            "many_threads_have_processes_started_while_others_of_their_requests_fail",
            many_threads_have_processes_started_while_others_of_their_requests_fail,
        ),
        (
            "a_spawner_that_is_killed_is_known_to_have_ended_and_its_processes_go_on",
            a_spawner_that_is_killed_is_known_to_have_ended_and_its_processes_go_on,
        ),
        (
            "a_process_is_refused_where_it_would_have_less_isolation_than_was_announced",
            a_process_is_refused_where_it_would_have_less_isolation_than_was_announced,
        ),
        (
            "a_compiler_has_the_cores_of_the_thread_that_asks_for_it",
            a_compiler_has_the_cores_of_the_thread_that_asks_for_it,
        ),
        (
            "what_a_process_does_to_itself_reaches_neither_the_spawner_nor_other_processes",
            what_a_process_does_to_itself_reaches_neither_the_spawner_nor_other_processes,
        ),
        ("where_the_system_allows_less_the_level_says_so", where_the_system_allows_less_the_level_says_so),
        (
            "each_process_has_a_control_group_as_long_as_it_is_there",
            each_process_has_a_control_group_as_long_as_it_is_there,
        ),
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

fn space(process: u32, kind: &str) -> PathBuf {
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
    let wards = [ward(&spawner), ward(&spawner)];
    let isolation = wards[0].isolation();
    println!("isolation here: {isolation}");
    assert_eq!(isolation, spawner.isolation());
    for ward in &wards {
        let id = ward.id();
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
    for ward in &wards {
        assert_eq!(field(ward.id(), "NSpid:"), format!("{} 1", ward.id()), "the first of its PID namespace");
        // It looks as root does, to whom nothing is hidden.
        if is_root() {
            let root = std::fs::read_dir(format!("/proc/{}/root/", ward.id())).expect("root may look");
            assert_eq!(root.count(), 0, "files in the root");
            let mounts =
                std::fs::read_to_string(format!("/proc/{}/mounts", ward.id())).expect("root may look");
            let words: Vec<&str> = mounts.split_whitespace().collect();
            assert_eq!(mounts.lines().count(), 1, "{mounts}");
            assert!(words[2] == "tmpfs" && words[3].starts_with("ro,"), "{mounts}");
        }
    }
    if is_root() {
        for kind in SPACES.into_iter().filter(|kind| *kind != "user" || isolation.has(Isolation::UID)) {
            let all = [std::process::id(), wards[0].id(), wards[1].id()].map(|process| space(process, kind));
            assert_eq!(BTreeSet::from(all).len(), 3, "a {kind} namespace of each");
        }
    }
    if isolation.has(Isolation::UID) {
        let users = [&wards[0], &wards[1]].map(|ward| field(ward.id(), "Uid:"));
        assert_ne!(users[0], users[1]);
        for user in users {
            let first: u32 = user.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
            assert!(user.split(' ').all(|word| word == first.to_string()), "{user}");
            assert!((FIRST_USER..FIRST_USER + 1024).contains(&first), "{user}");
        }
        assert_eq!(field(wards[0].id(), "Groups:"), "");
    }
    // Nothing but its line, and nothing twice.
    if is_root() {
        let open = std::fs::read_dir(format!("/proc/{}/fd", wards[0].id())).expect("root may look");
        for entry in open {
            let to = std::fs::read_link(entry.expect("it is there").path()).expect("it is there");
            let to = to.to_string_lossy().into_owned();
            assert!(to == "/dev/null" || to.starts_with("socket:"), "{to}");
        }
    }
}

fn the_node_halts_kills_and_waits_for_its_processes() {
    let spawner = spawner(GroupSetting::None, None);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", spawner.id())).map_or(0, Iterator::count);
    let before = open();
    for _ in 0..20 {
        let mut ward = ward(&spawner);
        let id = ward.id();
        ward.halt();
        until("it is halted", || field(id, "State:").starts_with('T'));
        assert!(ward.processor_time().expect("it is there") > Duration::ZERO);
        ward.go_on();
        assert_eq!(ward.ask(b"again", 100, PATIENCE).expect("it answers"), b"again");
        drop(ward);
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
    let asked = ask(&launcher, "compile", b"a question", &limits, &mut Nanos(0));
    assert_eq!(asked.answer.expect("it answers").bytes, b"a question");
    // The first process of a PID namespace does not get the signal of the limit.
    let asked = ask(&launcher, "compile", b"spin", &limits, &mut Nanos(0));
    assert!(matches!(asked.answer, Err(child::ChildError::Time(_))), "{:?}", asked.answer);
    assert!(asked.used.0 > Nanos::SECOND.0 / 2, "{:?}", asked.used);
    let none = ask(&launcher, "/bin/sh", b"", &limits, &mut Nanos(0));
    assert!(matches!(none.answer, Err(child::ChildError::Process(_))), "{:?}", none.answer);
}

fn the_key_agent_reads_its_file_and_has_namespaces() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("node.key");
    std::fs::write(&file, "secret").expect("a file");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    let spawner = spawner(GroupSetting::None, Some(file));
    // Another file is not for the node to name.
    let arguments = [OsString::from("keep-key"), OsString::from("/etc/shadow")];
    let launcher = Launcher::Spawner(Arc::clone(&spawner));
    let mut agent = HelperProcess::start(&launcher, &arguments, ROOM).expect("it starts");
    assert_eq!(agent.ask(b"the key: ", 100, PATIENCE).expect("it answers"), b"the key: secret");
    let has = |wall| spawner.isolation().has(wall) == agent.isolation().has(wall);
    assert!(has(Isolation::NAMESPACES) && !agent.isolation().has(Isolation::UID), "{}", agent.isolation());
    assert_eq!(field(agent.id(), "CapPrm:"), "0000000000000000");
}

fn nothing_is_left_of_a_node_that_is_killed() {
    let (mut node, ids) = start_node(None);
    node.kill().expect("it is ours");
    node.wait().expect("it is ours");
    until("all of them end with it", || ids.iter().all(|id| !lives(*id)));
    // And where its spawner is killed first, too.
    let (mut node, ids) = start_node(None);
    kill(ids[0]);
    node.kill().expect("it is ours");
    node.wait().expect("it is ours");
    until("all of them end with it", || ids.iter().all(|id| !lives(*id)));
}

fn many_threads_have_processes_started_while_others_of_their_requests_fail() {
    const THREADS: u32 = 4;
    const EACH: u32 = 8;
    let spawner = spawner(GroupSetting::None, None);
    let launcher = Launcher::Spawner(Arc::clone(&spawner));
    let work = |thread: u32| {
        for round in 0..EACH {
            if (thread + round).is_multiple_of(2) {
                // A compiler has three streams, and this is one.
                assert!(HelperProcess::start(&launcher, &["compile"], ROOM).is_err(), "it is refused");
                continue;
            }
            let mut ward = HelperProcess::start(&launcher, &["ward"], ROOM).expect("it starts");
            let question = format!("{thread} {round}");
            let answer = ward.ask(question.as_bytes(), 100, PATIENCE).expect("it answers");
            assert_eq!(answer, question.as_bytes(), "its own line");
            assert_eq!(field(ward.id(), "PPid:"), std::process::id().to_string());
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

fn a_spawner_that_is_killed_is_known_to_have_ended_and_its_processes_go_on() {
    let spawner = spawner(GroupSetting::None, None);
    let mut ward = ward(&spawner);
    assert_eq!(spawner.ended(), None);
    kill(spawner.id());
    until("its end is known", || spawner.ended().is_some());
    // Asking takes nothing away.
    for _ in 0..2 {
        assert_eq!(spawner.ended().and_then(|status| status.signal()), Some(libc::SIGKILL));
    }
    for count in 1..3 {
        let refused = HelperProcess::start(&Launcher::Spawner(Arc::clone(&spawner)), &["ward"], ROOM);
        assert_eq!(refused.expect_err("there is no spawner").kind(), std::io::ErrorKind::BrokenPipe);
        assert_eq!(spawner.refused().count, count);
    }
    assert_eq!(ward.ask(b"still", 100, PATIENCE).expect("it is there"), b"still");
}

fn kill(process: u32) {
    assert!(Command::new("kill").args(["-9", &process.to_string()]).status().expect("kill(1)").success());
}

fn a_process_is_refused_where_it_would_have_less_isolation_than_was_announced() {
    let program = std::env::current_exe().expect("this program has a name");
    let mut command = Command::new("unshare");
    let output = command.args(["--user", "--map-root-user"]).arg(program).arg("less").output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        println!("skipped: there are no user namespaces here, or their limit cannot be set");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (levels, refused) = said.split_once('\n').expect("two lines");
    let levels: BTreeSet<&str> = levels.split(' ').collect();
    assert_eq!(levels.len(), 1, "announced, before and after: {said}");
    assert!(levels.iter().all(|level| level.contains("namespaces")), "{said}");
    for word in ["less isolation than the node announced", "user.max_user_namespaces", "No space left"] {
        assert!(refused.contains(word), "{word}: {said}");
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
        let asked = ask(&launcher, "compile", b"cores", &limits, &mut Nanos(0));
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

fn what_a_process_does_to_itself_reaches_neither_the_spawner_nor_other_processes() {
    let spawner = spawner(GroupSetting::None, None);
    let mut other = ward(&spawner);
    let mut is_well = |what: &str| {
        assert_eq!(other.ask(b"there", 100, PATIENCE).expect("it answers"), b"there", "{what}");
        drop(ward(&spawner));
        assert_eq!(spawner.ended(), None, "{what}");
    };
    let mut ends = ward(&spawner);
    assert!(ends.ask(b"end", 100, PATIENCE).is_err());
    is_well("one has ended");
    // Not waited for yet, so its number is its own.
    assert_eq!(ends.end().expect("it is ours").code(), Some(1));
    let mut stops = ward(&spawner);
    stops.tell(b"stop", PATIENCE).expect("it is there");
    is_well("one has stopped itself");
    drop(stops);
    let mut acts = ward(&spawner);
    assert_eq!(acts.ask(b"others", 100, PATIENCE).expect("it answers"), b"", "what was not refused");
    is_well("one has tried to reach others");
    if !spawner.isolation().has(Isolation::UID) {
        println!("skipped: without users of their own the tasks of processes are not counted");
        return;
    }
    let mut grows = ward(&spawner);
    let count = grows.ask(b"threads", 100, PATIENCE).expect("it answers");
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
    let mut said = String::new();
    BufReader::new(node.stdout.take().expect("it has one")).read_line(&mut said).expect("it says");
    let ids: Vec<u32> = said.split_whitespace().map(|id| id.parse().expect("a number")).collect();
    assert!(ids.len() == 3 && ids.iter().all(|id| lives(*id)), "{said}");
    (node, ids)
}

fn where_the_system_allows_less_the_level_says_so() {
    if !is_root() {
        println!("skipped: needs root");
        return;
    }
    // Where everybody may execute it.
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
    // Limits of a user namespace hold for what is in it.
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

/// The mount of version two of control groups, if it can be written.
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

fn each_process_has_a_control_group_as_long_as_it_is_there() {
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
    let wards = [ward(&spawner), ward(&spawner)];
    let two: BTreeSet<String> = ["weir-test-0", "weir-test-1"].map(str::to_owned).into();
    assert_eq!(names(), two);
    for (number, ward) in wards.iter().enumerate() {
        let procs = std::fs::read_to_string(folder.join(format!("weir-test-{number}/cgroup.procs")))
            .expect("it is there");
        assert_eq!(procs.trim(), ward.id().to_string());
        assert!(ward.isolation().has(Isolation::GROUP));
        let limit = |file: &str| std::fs::read_to_string(folder.join(format!("weir-test-{number}/{file}")));
        if isolation.has(Isolation::LIMITS) {
            assert_eq!(
                limit("memory.max").expect("it has one").trim(),
                (ROOM.memory.0 + (64 << 20)).to_string()
            );
            assert_eq!(limit("pids.max").expect("it has one").trim(), "512");
        }
        assert!(limit("cpu.stat").expect("it has one").starts_with("usage_usec "));
    }
    // Where no more groups can be made, a process is not started without one.
    let most = |most: &str| {
        std::fs::write(folder.join("cgroup.max.descendants"), most).expect("the folder is ours");
    };
    most("2");
    let refused = HelperProcess::start(&Launcher::Spawner(Arc::clone(&spawner)), &["ward"], ROOM);
    let refused = refused.expect_err("it would have no group").to_string();
    assert!(refused.contains("control group") && refused.contains("cgroup.max.descendants"), "{refused}");
    assert_eq!(names(), two);
    most("max");
    drop(wards);
    until("they go with the processes", || names().is_empty());
    // Another node's groups stay, and one of this node's that was left gives way.
    for left in ["weir-other-0", "weir-test-0"] {
        std::fs::create_dir(folder.join(left)).expect("there is room");
    }
    let third = ward(&spawner);
    assert!(third.isolation().has(Isolation::GROUP));
    drop(third);
    // And where it does not, another number is taken.
    until("it is gone", || !names().contains("weir-test-0"));
    std::fs::create_dir_all(folder.join("weir-test-0/more")).expect("there is room");
    let third = ward(&spawner);
    let procs = std::fs::read_to_string(folder.join("weir-test-1/cgroup.procs")).expect("it is there");
    assert_eq!(procs.trim(), third.id().to_string());
    drop(third);
    std::fs::remove_dir(folder.join("weir-test-0/more")).expect("it is empty");
    until("what is left is the other node's", || names().iter().all(|name| name == "weir-other-0"));
    drop(spawner_of());
    assert_eq!(names().len(), 1);
    std::fs::remove_dir(folder.join("weir-other-0")).expect("it is empty");
    drop(ward(&spawner));
    until("they go with the processes", || names().is_empty());
    drop(spawner);

    // A node that is killed leaves none either; and where its spawner was killed, the next one removes them with what is in them.
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
