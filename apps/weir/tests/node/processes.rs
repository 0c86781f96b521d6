//! The node's processes: their isolation, as the kernel and the node report it.

use crate::sandbox_processes::sandbox_processes;
use crate::testbed::{Testbed, ip, is_inside, udp};
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

/// A node's process and all its descendants.
fn process_tree(node: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let numbers: Vec<u32> =
        processes.filter_map(|entry| entry.unwrap().file_name().into_string().ok()?.parse().ok()).collect();
    let parent = |id: &u32| -> Option<u32> {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
    };
    let mut tree = vec![node];
    loop {
        let is_new =
            |id: &&u32| !tree.contains(id) && parent(id).is_some_and(|parent| tree.contains(&parent));
        let Some(id) = numbers.iter().find(is_new) else { return tree };
        tree.push(*id);
    }
}

fn command_line(process: u32) -> String {
    let arguments = std::fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
    arguments.split('\0').nth(1).unwrap_or_default().to_owned()
}

/// The capabilities of all threads of a process together, for each set.
fn capabilities(process: u32) -> [u64; 5] {
    let mut all = [0; 5];
    for thread in std::fs::read_dir(format!("/proc/{process}/task")).unwrap() {
        // A thread that has ended meanwhile is skipped.
        let Ok(status) = std::fs::read_to_string(thread.unwrap().path().join("status")) else { continue };
        for (set, name) in all.iter_mut().zip(["CapPrm:", "CapEff:", "CapInh:", "CapAmb:", "CapBnd:"]) {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            *set |= u64::from_str_radix(line.trim(), 16).unwrap();
        }
    }
    all
}

/// Returns true if a process runs, and is no zombie.
fn is_running(id: &u32) -> bool {
    std::fs::read_to_string(format!("/proc/{id}/status")).is_ok_and(|status| !status.contains("\nState:\tZ"))
}

#[test]
fn no_memory_page_of_the_nodes_processes_is_writable_and_executable() {
    if !is_inside("processes::no_memory_page_of_the_nodes_processes_is_writable_and_executable") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    testbed.send(&vec![udp(53, b"x"); 100]);
    testbed.until("all modules have received the packets", |testbed| {
        testbed.count("here", "port-count", "packets") == 100
            && testbed.count("apart", "trajectory", "packets") == 100
    });
    let processes = process_tree(testbed.process());
    let commands: BTreeSet<String> = processes.iter().map(|id| command_line(*id)).collect();
    assert!(
        ["node", "start-processes", "sandbox"].iter().all(|name| commands.contains(*name)),
        "{commands:?}"
    );
    let (mut code, mut both) = (0, Vec::new());
    for id in processes {
        let maps = std::fs::read_to_string(format!("/proc/{id}/maps")).unwrap();
        let mut of_modules = 0;
        for line in maps.lines() {
            let rights = line.split_whitespace().nth(1).unwrap();
            code += u32::from(rights.contains('x'));
            // Compiled code is in anonymous memory.
            of_modules += u32::from(rights == "r-xp" && line.split_whitespace().count() == 5);
            if rights.contains('w') && rights.contains('x') {
                both.push(format!("{}: {line}", command_line(id)));
            }
        }
        if command_line(id) == "sandbox" {
            assert!(of_modules > 0, "its module's code: {maps}");
        }
    }
    assert!(code > 10 && both.is_empty(), "{both:?}");
}

#[test]
fn the_nodes_processes_have_only_the_privileges_that_they_need() {
    if !is_inside("processes::the_nodes_processes_have_only_the_privileges_that_they_need") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    let of = |bits: &[u32]| bits.iter().fold(0u64, |all, bit| all | 1 << bit);
    // CAP_SETGID 6, CAP_SETUID 7, CAP_NET_ADMIN 12, CAP_NET_RAW 13, CAP_IPC_LOCK 14, CAP_SYS_ADMIN 21, CAP_SYS_NICE 23,
    // CAP_SETFCAP 31, CAP_BPF 39.
    let of_node = of(&[12, 13, 14, 23, 39]);
    let has_uids = testbed.log().contains("isolated: uid+");
    let of_spawner = if has_uids { of(&[6, 7, 31]) } else { of(&[21, 31]) };
    let mut seen = BTreeSet::new();
    for id in process_tree(testbed.process()) {
        let may = match command_line(id).as_str() {
            "node" => of_node,
            "start-processes" => of_spawner,
            _ => 0,
        };
        let has = capabilities(id);
        assert_eq!(has.map(|set| set & !may), [0; 5], "{}: {has:x?}", command_line(id));
        seen.insert(command_line(id));
    }
    assert!(seen.len() >= 3, "{seen:?}");
    // The node needs no further privileges for its sessions' work.
    testbed.send(&vec![udp(53, b"x"); 100]);
    testbed.until("the module has received all packets", |testbed| {
        testbed.count("here", "port-count", "packets") == 100
    });
    assert!(testbed.stop().success());
}

#[test]
fn each_sandbox_process_is_isolated_as_the_node_reports() {
    if !is_inside("processes::each_sandbox_process_is_isolated_as_the_node_reports") {
        return;
    }
    ip("link set dev lo up");
    let mut testbed = Testbed::with_node("metrics = \"127.0.0.1:9138\"\n", TWO);
    let node = testbed.process();
    let sandbox_processes: Vec<u32> = sandbox_processes(node).into_iter().collect();
    let [one, other] = sandbox_processes[..] else { panic!("there are two: {sandbox_processes:?}") };
    let level = testbed.part("apart", "modules", "trajectory")["isolation"].as_str().unwrap().to_owned();
    assert_eq!(testbed.part("apart", "modules", "port-count")["isolation"], level);
    assert!(testbed.part("here", "modules", "port-count").get("isolation").is_none());
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

    // Each way of asking gives the same isolation.
    let said = |arguments: &[&str]| {
        let socket = testbed.path().join("node.sock");
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
    let processes = testbed.snapshot()["processes"].clone();
    let modules = processes.as_array().unwrap().iter().find(|it| it["role"] == "module").unwrap();
    assert_eq!((&modules["isolation"], &modules["started"]), (&Value::from(level), &Value::from(2)));
    assert!(testbed.stop().success());
}

#[test]
fn a_stopped_or_killed_node_leaves_no_process() {
    if !is_inside("processes::a_stopped_or_killed_node_leaves_no_process") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    for is_killed in [true, false] {
        let processes = process_tree(testbed.process());
        assert!(processes.len() >= 4, "{processes:?}");
        if is_killed {
            testbed.kill();
        } else {
            assert!(testbed.stop().success());
        }
        let begin = std::time::Instant::now();
        while processes.iter().any(is_running) {
            assert!(begin.elapsed() < crate::testbed::TIMEOUT, "{processes:?}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        testbed.start();
    }
}

#[test]
fn a_node_whose_spawner_is_killed_reports_it_and_stops_in_order() {
    if !is_inside("processes::a_node_whose_spawner_is_killed_reports_it_and_stops_in_order") {
        return;
    }
    let mut testbed = Testbed::new(TWO);
    let processes = process_tree(testbed.process());
    let spawner = processes.iter().find(|id| command_line(**id) == "start-processes").unwrap().to_string();
    assert!(Command::new("kill").args(["-9", &spawner]).status().unwrap().success());
    let status = testbed.wait_for_exit();
    assert_eq!(status.code(), Some(1), "a service manager starts it again after a failure: {status}");
    let said = testbed.log();
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("has ended (signal: 9")).collect();
    assert_eq!(lines.len(), 2, "once when it is seen, and once as the reason of the end: {said}");
    let begin = std::time::Instant::now();
    while processes.iter().any(is_running) {
        assert!(begin.elapsed() < crate::testbed::TIMEOUT, "{processes:?}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    // The node has kept its state, and can be started again.
    testbed.start();
    assert!(!testbed.log().contains("did not stop in order"), "{}", testbed.log());
    assert_eq!(sandbox_processes(testbed.process()).len(), 2);
    assert!(testbed.stop().success());
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
    let mut testbed = Testbed::new(&format!("[isolation]\ncgroup = \"{groups}\"\n{TWO}"));
    assert!(testbed.log().contains("+cgroup"), "{}", testbed.log());
    let before = sandbox_processes(testbed.process());
    let second = Command::new(env!("CARGO_BIN_EXE_weir")).args(["node", "-c"]).arg(testbed.config()).output();
    let second = second.unwrap();
    assert!(!second.status.success(), "{}", String::from_utf8_lossy(&second.stderr));
    testbed.send(&vec![udp(53, b"x"); 100]);
    testbed.until("both modules work", |testbed| {
        ["port-count", "trajectory"].iter().all(|module| testbed.count("apart", module, "packets") == 100)
    });
    assert_eq!(sandbox_processes(testbed.process()), before, "{}", testbed.log());
    assert!(testbed.stop().success());
    std::fs::remove_dir(&groups).unwrap();
}

#[test]
fn a_node_of_root_names_a_folder_of_another_user_and_the_remedy() {
    if !is_inside("processes::a_node_of_root_names_a_folder_of_another_user_and_the_remedy") {
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
