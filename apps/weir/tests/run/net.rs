//! A network namespace with veth pairs for each test. It ends with the test's thread and the programs in it.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weir_netio::{LiveSink, SocketKind};

/// Longer than any step takes on the slowest machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Moves this thread and the programs that it starts into a new network namespace with these veth pairs, all up. Returns false,
/// with a message on standard error, if that is not permitted.
#[must_use]
pub fn cables(pairs: &[(&str, &str)]) -> bool {
    let mut holder = Command::new("unshare")
        .args(["--net", "sh", "-c", "echo; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("unshare(1) is installed");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).expect("a pipe can be read");
    let namespace = File::open(format!("/proc/{}/ns/net", holder.id()));
    let moved = !line.is_empty()
        && namespace.is_ok_and(|namespace| {
            rustix::thread::move_into_link_name_space(namespace.as_fd(), None).is_ok()
        });
    holder.kill().expect("a child can be killed");
    holder.wait().expect("a child can be waited for");
    if !moved {
        let _ = writeln!(std::io::stderr(), "skipped: needs root");
        return false;
    }
    // IPv6 would send packets of its own between those of the test.
    shell("for i in all default; do echo 1 > /proc/sys/net/ipv6/conf/$i/disable_ipv6 || true; done");
    for (a, b) in pairs {
        shell(&format!("ip link add name {a} mtu 65535 type veth peer name {b} mtu 65535"));
        shell(&format!("ip link set dev {a} up && ip link set dev {b} up"));
    }
    let ends = pairs.iter().flat_map(|(a, b)| [a, b]);
    for end in ends {
        wait_for(|| shell(&format!("ip -j link show dev {end}")).contains("\"operstate\":\"UP\""));
    }
    true
}

/// Runs a shell command, and returns its output.
pub fn shell(command: &str) -> String {
    let output = Command::new("sh").args(["-c", command]).output().expect("there is a shell");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// Waits until the condition holds.
#[track_caller]
pub fn wait_for(is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < TIMEOUT, "it never is so");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a live run reads packets: it handles signals as soon as everything is open.
#[track_caller]
pub fn wait_until_it_reads(child: &Child) {
    const SIGINT: u32 = 2;
    let path = format!("/proc/{}/status", child.id());
    wait_for(|| {
        let status = std::fs::read_to_string(&path).expect("it has not ended");
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        mask.expect("proc(5) has it") >> (SIGINT - 1) & 1 == 1
    });
}

/// Sends Ctrl-C.
pub fn interrupt(child: &Child) {
    shell(&format!("kill -INT {}", child.id()));
}

/// Sends all these frames through an interface.
pub fn send<'a>(interface: &str, frames: impl IntoIterator<Item = &'a [u8]>) {
    let mut sink = LiveSink::open(interface, SocketKind::Packet).expect("an interface to send on");
    for frame in frames {
        while sink.send(&[frame]).consumed == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    assert_eq!(sink.totals().lost(), 0, "{:?}", sink.totals());
}

/// Returns the kernel's count of bytes received at an interface.
pub fn received_bytes(interface: &str) -> u64 {
    let text = shell(&format!("ip -s -j link show dev {interface}"));
    let value: serde_json::Value = serde_json::from_str(&text).expect("a JSON document");
    value[0]["stats64"]["rx"]["bytes"].as_u64().expect("a count")
}
