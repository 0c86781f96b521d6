//! The node's private key is only in the key agent's process.

use crate::remote::{Net, SESSION, modest_grant};
use crate::testbed::is_inside;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

/// The key agent's process, among the processes of a node.
fn key_agent_of(node: u32) -> Option<u32> {
    let processes = std::fs::read_dir("/proc").unwrap();
    let mut numbers =
        processes.filter_map(|entry| entry.unwrap().file_name().into_string().ok()?.parse::<u32>().ok());
    numbers.find(|id| {
        // A process that ends meanwhile is skipped.
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
        let command = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        status.contains(&format!("\nPPid:\t{node}\n")) && command.contains("key-agent")
    })
}

/// The number of occurrences of some bytes in a process's memory.
fn occurrences(process: u32, wanted: &[u8]) -> usize {
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
        // Pieces overlap, so that no occurrence is missed. Unreadable areas, of the kernel, contain no data of the node.
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
fn the_nodes_memory_contains_no_private_key_while_clients_are_connected() {
    if !is_inside("key_agent::the_nodes_memory_contains_no_private_key_while_clients_are_connected") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest_grant());
    net.run(&researcher, &SESSION);
    net.run(&researcher, &["load", "study", "port-count,ports=53"]);
    let node = net.testbed.process();
    // The search works: it finds the node's public key.
    assert!(occurrences(node, net.node.as_bytes()) > 0);
    for secret in secrets(&net.key) {
        assert_eq!(occurrences(node, &secret), 0);
    }
    // Other processes of the node's user cannot read the key agent's memory: its files in /proc belong to root.
    let key_agent = key_agent_of(node).unwrap();
    let status = std::fs::read_to_string(format!("/proc/{key_agent}/status")).unwrap();
    for line in ["CapEff:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
    let limits = std::fs::read_to_string(format!("/proc/{key_agent}/limits")).unwrap();
    assert!(
        limits
            .lines()
            .any(|line| line.split_whitespace().take(6).eq(["Max", "core", "file", "size", "0", "0"]))
    );
    assert!(net.testbed.stop().success());
}

#[test]
fn a_killed_key_agent_is_restarted_and_a_killed_node_leaves_no_key_agent() {
    if !is_inside("key_agent::a_killed_key_agent_is_restarted_and_a_killed_node_leaves_no_key_agent") {
        return;
    }
    let mut net = Net::new();
    let researcher = net.granted("researcher", modest_grant());
    net.run(&researcher, &SESSION);
    let node = net.testbed.process();
    let first = key_agent_of(node).unwrap();
    assert!(Command::new("kill").args(["-9", &first.to_string()]).status().unwrap().success());
    // The next connection succeeds, and the session still exists.
    assert!(net.run(&researcher, &["session", "list"]).contains("study"));
    let second = key_agent_of(node).unwrap();
    assert_ne!(first, second);
    assert!(net.testbed.log().contains("the key agent was restarted"));

    // Without the key's file no new key agent can start: remote clients are refused, and the node goes on.
    let elsewhere = net.key.with_extension("moved");
    std::fs::rename(&net.key, &elsewhere).unwrap();
    assert!(Command::new("kill").args(["-9", &second.to_string()]).status().unwrap().success());
    net.run_refused(&researcher, &["session", "list"], "closed the connection");
    assert!(net.testbed.log().contains("no new peer is accepted, because there is no private key"));
    assert_eq!(net.testbed.snapshot()["sessions"].as_array().unwrap().len(), 1);
    std::fs::rename(&elsewhere, &net.key).unwrap();
    // The start is retried when a client connects, but not at once.
    while !net.weir(&researcher, &["session", "list"]).status.success() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let third = key_agent_of(node).unwrap();
    net.testbed.kill();
    let gone = || !Path::new(&format!("/proc/{third}/cmdline")).exists() || is_dead(third);
    while !gone() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

/// Returns true if a process has ended, even if its parent has not waited for it.
fn is_dead(process: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    status.is_empty() || status.contains("\nState:\tZ")
}
