//! `weir extcap` with a session of a node, started and read by tshark.

use crate::testbed::{Testbed, is_inside, udp};
use serde_json::json;
use std::process::{Command, Stdio};

fn text(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn tshark_shows_what_the_modules_of_a_session_see_and_counts_lost_packets() {
    if Command::new("tshark").arg("--version").output().is_err() {
        println!("SKIPPED: tshark is not installed");
        return;
    }
    if !is_inside("extcap::tshark_shows_what_the_modules_of_a_session_see_and_counts_lost_packets") {
        return;
    }
    let mut testbed = Testbed::new(
        "[[session]]\nname = \"alice\"\nrecord_bytes = \"2 kB/s\"\n\
         channel = [{ interface = \"b\", filter = \"udp\", view = \"addresses=zeroed,payload=4\" }]\n",
    );
    let weir = env!("CARGO_BIN_EXE_weir");
    let (config, to) = (testbed.path().join("config"), testbed.path().join("captured.pcapng"));
    let with = |program: &str| {
        let mut command = Command::new(program);
        command.env("XDG_CONFIG_HOME", &config).stdin(Stdio::null());
        command
    };
    let socket = testbed.path().join("node.sock");
    text(with(weir).args(["extcap", "--install", "--socket"]).arg(&socket));
    let listed = text(with("tshark").arg("-D"));
    assert!(listed.contains("weir-session-alice (weir: session alice as its modules see it)"), "{listed}");

    let mut capture = with("tshark");
    capture.args(["-Q", "-i", "weir-session-alice", "-f", "dst port 7", "-a", "packets:40", "-w"]).arg(&to);
    let mut capture = capture.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let modules = |testbed: &Testbed| testbed.snapshot()["sessions"][0]["modules"].as_array().unwrap().len();
    testbed.until("the module is loaded", |testbed| modules(testbed) == 1);
    // Many packets at once exceed the session's rate of record bytes, and so are lost.
    testbed.until("tshark has its packets", |testbed| {
        testbed.send(&vec![udp(7, b"secret"); 300]);
        testbed.send(&[udp(8, b"secret")]);
        capture.try_wait().unwrap().is_some()
    });
    testbed.until("the module is unloaded", |testbed| modules(testbed) == 0);
    let ended = testbed.snapshot()["sessions"][0]["ended"].clone();
    assert!(ended.is_null() || ended == json!([]), "{ended}");

    let mut read = Command::new("tshark");
    read.args(["-n", "-T", "fields", "-E", "separator=|", "-r"]).arg(&to);
    let names = [
        "ip.src",
        "udp.dstport",
        "frame.len",
        "frame.cap_len",
        "frame.interface_name",
        "frame.interface_description",
    ];
    let rows = text(read.args(names.iter().flat_map(|name| ["-e", name])));
    let view = "session alice on node test: channel main of b, view payload=4,addresses=zeroed,macs=zeroed, filter `udp`";
    let wanted = format!("0.0.0.0|7|60|46|alice/main|{view}");
    assert_eq!(rows.lines().count(), 40);
    assert!(rows.lines().all(|line| line == wanted), "{rows}");
    let comments = text(Command::new("tshark").args(["-T", "fields", "-e", "frame.comment", "-r"]).arg(&to));
    let lost = |line: &str| {
        line.strip_prefix("weir: ")?.split_once(" packets lost before this one")?.0.parse::<u64>().ok()
    };
    assert!(comments.lines().filter_map(lost).sum::<u64>() > 0, "{comments}");
    assert!(testbed.stop().success());
}
