//! The node's private key: in a process of its own, and nowhere else.

use crate::place::is_inside;
use crate::remote::{Net, SESSION, modest};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// The process that keeps the key, among those that a node has started.
fn keeper_of(node: u32) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let mut numbers =
        processes.filter_map(|entry| entry.unwrap().file_name().into_string().ok()?.parse::<u32>().ok());
    numbers.find(|id| {
        // Those that end meanwhile are none.
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let command = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        status.contains(&format!("\nPPid:\t{node}\n")) && command.contains("keep-key")
    })
}

/// How often something is in the memory of a process.
fn found(process: u32, wanted: &[u8]) -> usize {
    let memory = File::open(format!("/proc/{process}/mem")).unwrap();
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap();
    let mut count = 0;
    for line in maps.lines() {
        let mut words = line.split(' ');
        let (range, access) = (words.next().unwrap(), words.next().unwrap());
        let (from, to) = range.split_once('-').unwrap();
        let [from, to] = [from, to].map(|at| u64::from_str_radix(at, 16).unwrap());
        if !access.starts_with('r') {
            continue;
        }
        // In pieces that overlap, so that nothing is missed between two of them. What cannot be read (the kernel's own pages) holds nothing of the node's.
        let piece = 4 << 20;
        let mut bytes = vec![0; piece];
        let mut at = from;
        while at < to {
            let len = usize::try_from(to - at).unwrap().min(piece);
            if let Ok(read) = memory.read_at(&mut bytes[..len], at) {
                count += bytes[..read].windows(wanted.len()).filter(|window| *window == wanted).count();
            }
            at += (len as u64).saturating_sub(if at + (len as u64) < to { wanted.len() as u64 } else { 0 });
        }
    }
    count
}

/// The private key in a file, as text and as bytes.
fn secrets(file: &Path) -> [Vec<u8>; 2] {
    let text = std::fs::read_to_string(file).unwrap();
    let secret = text.lines().find_map(|line| line.strip_prefix("plain ")).unwrap();
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for c in secret.bytes() {
        bits = bits << 5
            | u32::try_from(b"abcdefghijklmnopqrstuvwxyz234567".iter().position(|d| *d == c).unwrap())
                .unwrap();
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    assert_eq!(bytes.len(), 32);
    [secret.as_bytes().to_vec(), bytes]
}

#[test]
fn the_nodes_memory_has_no_private_key_while_others_are_connected() {
    if !is_inside("keeper::the_nodes_memory_has_no_private_key_while_others_are_connected") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest());
    net.done(&researcher, &SESSION);
    net.done(&researcher, &["load", "study", "port-count,ports=53"]);
    let node = net.place.process();
    // It finds what is there: whom the node is for everybody.
    assert!(found(node, net.node.as_bytes()) > 0);
    for secret in secrets(&net.key) {
        assert_eq!(found(node, &secret), 0);
    }
    // Nobody else of its user reads it where it is: what others may not look into belongs to root, whoever runs it.
    let keeper = keeper_of(node).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{keeper}/status")).unwrap();
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let limits = std::fs::read_to_string(format!("/proc/{keeper}/limits")).unwrap();
    assert!(
        limits
            .lines()
            .any(|line| line.split_whitespace().take(6).eq(["Max", "core", "file", "size", "0", "0"]))
    );
    assert!(net.place.stop().success());
}

#[test]
fn a_node_whose_keeper_is_killed_lets_others_in_again_and_one_that_is_killed_leaves_none() {
    if !is_inside(
        "keeper::a_node_whose_keeper_is_killed_lets_others_in_again_and_one_that_is_killed_leaves_none",
    ) {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest());
    net.done(&researcher, &SESSION);
    let node = net.place.process();
    let first = keeper_of(node).unwrap();
    assert!(Command::new("kill").args(["-9", &first.to_string()]).status().unwrap().success());
    // Whoever comes next is let in, and what there was is there.
    assert!(net.done(&researcher, &["session", "list"]).contains("study"));
    let second = keeper_of(node).unwrap();
    assert_ne!(first, second);
    assert!(net.place.said().contains("the node's private key is kept by another process now"));

    // Without its file there is no other one: nobody is let in any more, and the node goes on.
    let elsewhere = net.key.with_extension("moved");
    std::fs::rename(&net.key, &elsewhere).unwrap();
    assert!(Command::new("kill").args(["-9", &second.to_string()]).status().unwrap().success());
    net.refused(&researcher, &["session", "list"], "closed the connection");
    assert!(net.place.said().contains("nobody new is let in, as there is no private key"));
    assert_eq!(net.place.snapshot()["sessions"].as_array().unwrap().len(), 1);
    std::fs::rename(&elsewhere, &net.key).unwrap();
    // It is tried again when somebody comes, and not at once.
    while !net.weir(&researcher, &["session", "list"]).status.success() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let third = keeper_of(node).unwrap();
    net.place.kill();
    let gone = || !Path::new(&format!("/proc/{third}/cmdline")).exists() || is_dead(third);
    while !gone() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Whether a process has ended, and only nobody has asked how.
fn is_dead(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.is_empty() || status.contains("\nState:\tZ")
}
