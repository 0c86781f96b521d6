//! Tests of the views of running graphs: rates, pictures and metrics.

use super::control::{Running, eventually};
use super::{graph, ok};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

/// A graph whose queue is full from the start: 3 packets wait, and nothing moves any more.
const FULL: &str =
    "InfiniteSource(DATA abcd, LIMIT 5, BURST 5) -> c :: Counter -> q :: SimpleQueue(3) -> Idle";

/// Starts a graph with a control socket, and waits until all its packets have come.
fn start(folder: &Path, more: &[&str]) -> Running {
    let mut arguments = vec!["-e", FULL, "-u", "control"];
    arguments.extend(more);
    let running = Running::start(folder, &arguments);
    eventually(|| folder.join("control").exists().then_some(()));
    eventually(|| {
        let output = graph(folder, &["top", "control", "--once", "--interval", "0.1"], "");
        String::from_utf8(output.stdout).unwrap().contains("  5  ").then_some(())
    });
    running
}

#[test]
fn top_shows_packets_drops_and_queues_of_a_running_graph_once() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(folder.path(), &[]);
    let table = ok(graph(folder.path(), &["top", "control", "--once", "--interval", "0.1"], ""));
    assert_eq!(
        table,
        "ELEMENT           CLASS           PACKETS/S  PACKETS  DROPS/S  DROPS  LENGTH\n\
         InfiniteSource@1  InfiniteSource          0        5        -      -       -\n\
         c                 Counter                 0        5        -      -       -\n\
         q                 SimpleQueue             -        -        0      2       3\n"
    );
    drop(running);
    let gone = graph(folder.path(), &["top", "nothing", "--once"], "");
    let error = String::from_utf8(gone.stderr).unwrap();
    assert_eq!(gone.status.code(), Some(1));
    assert!(error.contains("nothing: No such file") && error.contains("-u FILE"), "{error}");
}

#[test]
fn a_picture_of_a_running_graph_has_its_rates() {
    let folder = tempfile::tempdir().unwrap();
    let _running = start(folder.path(), &[]);
    let arguments = ["draw", "--live", "control", "-o", "now.svg", "--interval", "0.1"];
    assert_eq!(ok(graph(folder.path(), &arguments, "")), "");
    let picture = std::fs::read_to_string(folder.path().join("now.svg")).unwrap();
    for note in [">0 packets/s<", ">3 waiting<", ">2 drops, 0/s<"] {
        assert!(picture.contains(note), "{note}: {picture}");
    }
}

/// Returns the answer to a request.
fn get(port: u16, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_have_the_counters_and_levels_of_all_elements() {
    let folder = tempfile::tempdir().unwrap();
    let port = super::control::free_port();
    let address = port.to_string();
    let _running = start(folder.path(), &["--metrics", &address]);
    let answer = get(port, "/metrics", "localhost");
    for line in [
        "weir_graph_count_total{element=\"c\",class=\"Counter\"} 5\n",
        "weir_graph_byte_count_total{element=\"c\",class=\"Counter\"} 20\n",
        "weir_graph_drops_total{element=\"q\",class=\"SimpleQueue\"} 2\n",
        "weir_graph_present_length{element=\"q\",class=\"SimpleQueue\"} 3\n",
        "# EOF\n",
    ] {
        assert!(answer.contains(line), "{line} in {answer}");
    }
    assert!(get(port, "/metrics", "rebound.example").starts_with("HTTP/1.1 403"));
    let refused = graph(folder.path(), &["run", "-e", "Idle -> Discard", "--metrics", "192.0.2.1:80"], "");
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8(refused.stderr).unwrap().contains("for programs of this host"));
}

#[test]
fn a_check_names_the_elements_that_need_rights() {
    let folder = tempfile::tempdir().unwrap();
    let text = "FromDevice(eth0) -> q :: Queue -> ToDevice(eth1); KernelTap(10.0.0.1/8) -> Discard;\n\
                Idle -> ToHost; RawSocket(UDP) -> Discard; s :: Socket(UDP, 0.0.0.0, 53) -> Discard;\n\
                PollDevice(eth2) -> Discard;";
    let report = ok(graph(folder.path(), &["check", "-e", text], ""));
    let needs: Vec<&str> = report.lines().filter(|line| line.contains(" needs ")).collect();
    assert_eq!(
        needs,
        [
            "  FromDevice@1 :: FromDevice needs root or CAP_NET_RAW",
            "  ToDevice@3 :: ToDevice needs root or CAP_NET_RAW",
            "  KernelTap@4 :: KernelTap needs root or CAP_NET_ADMIN",
            "  ToHost@7 :: ToHost needs root or CAP_NET_ADMIN",
            "  RawSocket@8 :: RawSocket needs root or CAP_NET_RAW",
            "  PollDevice@12 :: PollDevice needs root or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, for packets that the host \
             does not receive",
        ]
    );
}
