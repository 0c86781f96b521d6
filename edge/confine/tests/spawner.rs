//! Processes with namespaces of their own: the walls that each has, what is left when one ends or its node is killed, and what a system offers that allows less.
//!
//! The processes are this program once more, with the arguments of weir's own.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_confine::child::{self, Limits, ask};
use weir_confine::companion::{Companion, Line, Room};
use weir_confine::spawner::{GroupSetting, SPAWNER, Settings, Spawner, serve};
use weir_confine::{Isolation, Launcher};
use weir_units::{Bytes, Nanos};

/// No test waits longer for something.
const PATIENCE: Duration = Duration::from_secs(120);
const ROOM: Room = Room { addresses: Bytes(1 << 30), memory: Bytes(256 << 20) };
const FIRST_USER: u32 = 1_900_000_000;
const SPACES: [&str; 7] = ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"];
const GROUPS: &str = "WEIR_TEST_GROUPS";

fn main() {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match arguments.first().and_then(|first| first.to_str()) {
        Some(SPAWNER) => serve(&arguments[1..]).expect("it serves"),
        Some("ward") => stay(weir_confine::ward, b""),
        Some("keep-key") => {
            let key = std::fs::read(&arguments[1]).expect("a key agent reads its file");
            stay(weir_confine::keeper, &key);
        }
        Some("compile") => compile(),
        Some("node") => node(),
        Some("starts") => starts(),
        Some("level") => println!("{}", spawner(GroupSetting::None, None).isolation()),
        _ => tests(),
    }
}

/// A process that stays: it repeats what it is told, with this behind it.
fn stay(give_up: fn() -> Result<weir_confine::Files, weir_confine::ConfineError>, more: &[u8]) {
    let mut line = Line::of_standard_input().expect("it has one");
    child::confined(give_up);
    while let Ok(Some(told)) = line.hear(1 << 20) {
        if line.say(&[&told, more].concat()).is_err() {
            return;
        }
    }
}

/// A process that answers once; or never.
fn compile() {
    child::confined(weir_confine::compiler);
    let mut question = Vec::new();
    std::io::stdin().read_to_end(&mut question).expect("it is asked");
    if question == b"spin" {
        loop {
            std::hint::spin_loop();
        }
    }
    std::io::stdout().write_all(&question).expect("it answers");
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
    let settings = Settings { first_user: FIRST_USER, group, key };
    Arc::new(Spawner::start(&program, &settings).expect("it starts on any system"))
}

fn ward(spawner: &Arc<Spawner>) -> Companion {
    let mut ward =
        Companion::start(&Launcher::Spawner(Arc::clone(spawner)), &["ward"], ROOM).expect("it starts");
    // When it answers it has put up its walls.
    assert_eq!(ward.ask(b"you", 100, PATIENCE).expect("it answers"), b"you");
    ward
}

/// The time from the start of a process to its first answer, directly and through the spawner, in turn: `cargo test -p weir-confine --test spawner -- starts`
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
            let mut ward = Companion::start(way, &["ward"], ROOM).expect("it starts");
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
    let all: [(&str, fn()); 7] = [
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

/// Whether a process is there, and not only waited for.
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
    let limits = Limits {
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
    let mut agent = Companion::start(&launcher, &arguments, ROOM).expect("it starts");
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
    assert!(Command::new("kill").args(["-9", &ids[0].to_string()]).status().expect("kill(1)").success());
    node.kill().expect("it is ours");
    node.wait().expect("it is ours");
    until("all of them end with it", || ids.iter().all(|id| !lives(*id)));
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

/// Where version two of control groups is mounted, if it can be written.
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
    let two: BTreeSet<String> = ["weir-0", "weir-1"].map(str::to_owned).into();
    assert_eq!(names(), two);
    for (number, ward) in wards.iter().enumerate() {
        let procs =
            std::fs::read_to_string(folder.join(format!("weir-{number}/cgroup.procs"))).expect("it is there");
        assert_eq!(procs.trim(), ward.id().to_string());
        assert!(ward.isolation().has(Isolation::GROUP));
        let limit = |file: &str| std::fs::read_to_string(folder.join(format!("weir-{number}/{file}")));
        if isolation.has(Isolation::LIMITS) {
            assert_eq!(
                limit("memory.max").expect("it has one").trim(),
                (ROOM.memory.0 + (64 << 20)).to_string()
            );
            assert_eq!(limit("pids.max").expect("it has one").trim(), "512");
        }
        assert!(limit("cpu.stat").expect("it has one").starts_with("usage_usec "));
    }
    drop(wards);
    until("they go with the processes", || names().is_empty());
    drop(ward(&spawner));
    until("they go with the processes", || names().is_empty());
    drop(spawner);

    // A node that is killed leaves none either; and where its spawner was killed, the next one removes them with what is in them.
    let (mut node, ids) = start_node(Some(&folder));
    assert_eq!(names(), two);
    node.kill().and_then(|()| node.wait()).expect("it is ours");
    until("all end with it", || ids.iter().all(|id| !lives(*id)) && names().is_empty());
    let (mut node, ids) = start_node(Some(&folder));
    assert!(Command::new("kill").args(["-9", &ids[0].to_string()]).status().expect("kill(1)").success());
    node.kill().and_then(|()| node.wait()).expect("it is ours");
    let mut sleeper = Command::new("sleep").arg("1000").spawn().expect("sleep(1)");
    std::fs::write(folder.join("weir-0/cgroup.procs"), sleeper.id().to_string())
        .expect("it can be put there");
    assert_eq!(names(), two, "they are left");
    let next = spawner_of();
    assert!(names().is_empty(), "{:?}", names());
    assert!(!sleeper.wait().expect("it is ours").success(), "what was in one is killed");
    drop(next);
    std::fs::remove_dir(&folder).expect("it is empty");
}
