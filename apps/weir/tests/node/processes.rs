//! Processes of a node: the walls around each, as the kernel shows them, and as the node says it.

use crate::place::{Place, ip, is_inside, udp};
use crate::wards::wards;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

const TWO: &str = r#"
[[session]]
name = "here"
channel = [{ interface = "b", filter = "udp" }]
module = [{ module = "port-count", set = { ports = [53] } }]
[[session]]
name = "apart"
process = "own"
channel = [{ interface = "b", filter = "udp" }]
module = [{ module = "port-count", set = { ports = [53] } }, { module = "trajectory" }]
"#;

/// A node and all processes beneath it.
fn family(node: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let numbers: Vec<u32> =
        processes.filter_map(|entry| entry.unwrap().file_name().into_string().ok()?.parse().ok()).collect();
    let parent = |id: &u32| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    let mut family = vec![node];
    loop {
        let is_new =
            |id: &&u32| !family.contains(id) && parent(id).is_some_and(|parent| family.contains(&parent));
        let Some(id) = numbers.iter().find(is_new) else { return family };
        family.push(*id);
    }
}

fn command(process: u32) -> String {
    let command = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
    command.split('\0').nth(1).unwrap_or_default().to_owned()
}

/// Capabilities of all threads of a process together, in each set.
fn capabilities(process: u32) -> [u64; 5] {
    let mut all = [0; 5];
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        // One that has ended meanwhile says nothing.
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        for (set, name) in all.iter_mut().zip(["CapPrm:", "CapEff:", "CapInh:", "CapAmb:", "CapBnd:"]) {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            *set |= u64::from_str_radix(line.trim(), 16).unwrap();
        }
    }
    all
}

/// Returns true if a process runs: one that has ended and is not waited for does not.
fn lives(id: &u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/status")).is_ok_and(|status| !status.contains("\nState:\tZ"))
}

#[test]
fn no_page_of_a_node_or_of_its_processes_is_writable_and_executable() {
    if !is_inside("processes::no_page_of_a_node_or_of_its_processes_is_writable_and_executable") {
        return;
    }
    let mut place = Place::new(TWO);
    place.send(&vec![udp(53, b"x"); 100]);
    place.until("all have seen them", |place| {
        place.count("here", "port-count", "packets") == 100
            && place.count("apart", "trajectory", "packets") == 100
    });
    let family = family(place.process());
    let commands: BTreeSet<String> = family.iter().map(|id| command(*id)).collect();
    assert!(["node", "start-processes", "ward"].iter().all(|name| commands.contains(*name)), "{commands:?}");
    let (mut code, mut both) = (0, Vec::new());
    for id in family {
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
        let mut of_modules = 0;
        for line in maps.lines() {
            let rights = line.split_whitespace().nth(1).unwrap();
            code += u32::from(rights.contains('x'));
            // Code of a module is memory that is no file's.
            of_modules += u32::from(rights == "r-xp" && line.split_whitespace().count() == 5);
            if rights.contains('w') && rights.contains('x') {
                both.push(format!("{}: {line}", command(id)));
            }
        }
        if command(id) == "ward" {
            assert!(of_modules > 0, "its module's code: {maps}");
        }
    }
    assert!(code > 10 && both.is_empty(), "{both:?}");
}

#[test]
fn a_node_and_its_processes_have_the_privileges_that_they_use_and_no_others() {
    if !is_inside("processes::a_node_and_its_processes_have_the_privileges_that_they_use_and_no_others") {
        return;
    }
    let mut place = Place::new(TWO);
    let of = |bits: &[u32]| bits.iter().fold(0u64, |all, bit| all | 1 << bit);
    // CAP_SETGID 6, CAP_SETUID 7, CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_IPC_LOCK 14, CAP_SYS_ADMIN 21, CAP_SYS_NICE 23, CAP_SETFCAP 31, CAP_BPF 39.
    let of_node = of(&[12, 13, 14, 23, 39]);
    let has_uids = place.said().contains("isolated: uid+");
    let of_spawner = if has_uids { of(&[6, 7, 31]) } else { of(&[21, 31]) };
    let mut seen = BTreeSet::new();
    for id in family(place.process()) {
        let may = match command(id).as_str() {
            "node" => of_node,
            "start-processes" => of_spawner,
            _ => 0,
        };
        let has = capabilities(id);
        assert_eq!(has.map(|set| set & !may), [0; 5], "{}: {has:x?}", command(id));
        seen.insert(command(id));
    }
    assert!(seen.len() >= 3, "{seen:?}");
    // What a node does for its sessions needs nothing more.
    place.send(&vec![udp(53, b"x"); 100]);
    place.until("it works", |place| place.count("here", "port-count", "packets") == 100);
    assert!(place.stop().success());
}

#[test]
fn each_process_of_a_module_is_isolated_as_the_node_says() {
    if !is_inside("processes::each_process_of_a_module_is_isolated_as_the_node_says") {
        return;
    }
    ip("link set dev lo up");
    let mut place = Place::with_node("metrics = \"127.0.0.1:9138\"\n", TWO);
    let node = place.process();
    let wards: Vec<u32> = wards(node).into_iter().collect();
    let [one, other] = wards[..] else { panic!("there are two: {wards:?}") };
    let level = place.part("apart", "modules", "trajectory")["isolation"].as_str().unwrap().to_owned();
    assert_eq!(place.part("apart", "modules", "port-count")["isolation"], level);
    assert!(place.part("here", "modules", "port-count").get("isolation").is_none());
    let space = |process: u32, kind: &str| std::fs::read_link(format!("/proc/{process}/ns/{kind}")).unwrap();
    let has = |wall: &str| level.split('+').any(|word| word == wall);
    for kind in ["mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        let all = BTreeSet::from([node, one, other].map(|process| space(process, kind)));
        assert_eq!(all.len(), if has("namespaces") { 3 } else { 1 }, "{kind}: {level}");
    }
    let user = |process: u32| {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        status.lines().find(|line| line.starts_with("Uid:")).unwrap().to_owned()
    };
    let users = BTreeSet::from([node, one, other].map(user));
    assert_eq!(users.len(), if has("uid") { 3 } else { 1 }, "{level}: {users:?}");

    // It is said wherever it can be asked.
    let said = |arguments: &[&str]| {
        let socket = place.path().join("node.sock");
        let output =
            Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).arg("--socket").arg(socket).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let shown = said(&["session", "show", "apart"]);
    assert!(shown.contains(&format!("trajectory: isolation: {level}")), "{shown}");
    assert!(!said(&["session", "show", "here"]).contains("isolation"));
    let mut stream = std::net::TcpStream::connect("127.0.0.1:9138").unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9138\r\nConnection: close\r\n\r\n").unwrap();
    let mut metrics = String::new();
    stream.read_to_string(&mut metrics).unwrap();
    for line in [
        format!("weir_module_isolation{{session=\"apart\",module=\"trajectory\",isolation=\"{level}\"}} 1"),
        format!("weir_started_processes_total{{role=\"module\",isolation=\"{level}\"}} 2"),
        "weir_refused_processes_total 0".to_owned(),
    ] {
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    let processes = place.snapshot()["processes"].clone();
    let modules = processes.as_array().unwrap().iter().find(|it| it["role"] == "module").unwrap();
    assert_eq!((&modules["isolation"], &modules["started"]), (&Value::from(level), &Value::from(2)));
    assert!(place.stop().success());
}

#[test]
fn no_process_is_left_of_a_node_that_stops_or_is_killed() {
    if !is_inside("processes::no_process_is_left_of_a_node_that_stops_or_is_killed") {
        return;
    }
    let mut place = Place::new(TWO);
    for is_killed in [true, false] {
        let family = family(place.process());
        assert!(family.len() >= 4, "{family:?}");
        if is_killed {
            place.kill();
        } else {
            assert!(place.stop().success());
        }
        let begin = std::time::Instant::now();
        while family.iter().any(lives) {
            assert!(begin.elapsed() < crate::place::PATIENCE, "{family:?}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        place.start();
    }
}

#[test]
fn a_node_whose_spawner_is_killed_says_so_and_ends_in_order_to_be_started_anew() {
    if !is_inside("processes::a_node_whose_spawner_is_killed_says_so_and_ends_in_order_to_be_started_anew") {
        return;
    }
    let mut place = Place::new(TWO);
    let family = family(place.process());
    let spawner = family.iter().find(|id| command(**id) == "start-processes").unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &spawner]).status().unwrap().success());
    let status = place.ended();
    assert_eq!(status.code(), Some(1), "a service manager starts it again after a failure: {status}");
    let said = place.said();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("has ended (signal: 9")).collect();
    assert_eq!(lines.len(), 2, "once when it is seen, and once as the reason of the end: {said}");
    let begin = std::time::Instant::now();
    while family.iter().any(lives) {
        assert!(begin.elapsed() < crate::place::PATIENCE, "{family:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // It has kept all that it keeps, and begins anew.
    place.start();
    assert!(!place.said().contains("did not stop in order"), "{}", place.said());
    assert_eq!(wards(place.process()).len(), 2);
    assert!(place.stop().success());
}

#[test]
fn a_second_start_of_a_node_leaves_the_control_groups_of_the_first_alone() {
    if !is_inside("processes::a_second_start_of_a_node_leaves_the_control_groups_of_the_first_alone") {
        return;
    }
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let mount = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mount = mount.into_iter().find(|words| words.get(2) == Some(&"cgroup2"));
    let groups = mount.map(|words| format!("{}/weir-test-{}", words[1], std::process::id()));
    let Some(groups) = groups.filter(|groups| std::fs::create_dir(groups).is_ok()) else {
        println!("skipped: control groups cannot be made here");
        return;
    };
    let mut place = Place::new(&format!("[isolation]\ncgroup = \"{groups}\"\n{TWO}"));
    assert!(place.said().contains("+cgroup"), "{}", place.said());
    let before = wards(place.process());
    let second = Command::new(env!("CARGO_BIN_EXE_weir")).args(["node", "-c"]).arg(place.config()).output();
    let second = second.unwrap();
    assert!(!second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
    place.send(&vec![udp(53, b"x"); 100]);
    place.until("they work", |place| {
        ["port-count", "trajectory"].iter().all(|module| place.count("apart", module, "packets") == 100)
    });
    assert_eq!(wards(place.process()), before, "{}", place.said());
    assert!(place.stop().success());
    std::fs::remove_dir(&groups).unwrap();
}

#[test]
fn a_node_of_root_says_which_folder_is_another_users_and_what_to_do() {
    if !is_inside("processes::a_node_of_root_says_which_folder_is_another_users_and_what_to_do") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (state, config) = (folder.path().join("state"), folder.path().join("node.toml"));
    let run = folder.path().join("run");
    [&state, &run].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
    let path = folder.path().display();
    std::fs::write(&config, format!("[node]\nsocket = \"{path}/run/node.sock\"\nstate = \"{path}/state\"\n"))
        .unwrap();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["node", "-c"]).arg(&config).stdin(Stdio::null()).stderr(Stdio::piped());
        command.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache")).spawn().unwrap()
    };
    let foreign = |path: &std::path::Path, user: u32| {
        std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    };
    for (path, user) in [(&state, 12_345), (&run, 12_346)] {
        foreign(path, user);
        let output = start().wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{said}");
        for words in [path.to_str().unwrap(), &user.to_string(), "chown"] {
            assert!(said.contains(words), "{words}: {said}");
        }
        foreign(path, 0);
    }
}
