//! Stolen time: time of a module's core that other processes use.

use crate::metrics::{self, page};
use crate::testbed::{Testbed, ip, is_inside, udp};
use std::io::Write;
use std::process::Command;
use std::time::Duration;

const ONE: &str = r#"
[[session]]
name = "alice"
cpu = [{ period = "10ms", slice = "2ms" }]
channel = [{ interface = "b", filter = "udp" }]
module = [{ module = "trajectory" }]
"#;
/// A tenth of the time for which the core is taken, in nanoseconds.
const TENTH: u64 = 80_000_000;

/// Binds the receive threads to other cores than this one, if there are any.
fn keep_receiving_from(testbed: &Testbed, core: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let cores = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let ranges = cores.trim().split(',').map(|range| range.split_once('-').unwrap_or((range, range)));
    let numbers = ranges.flat_map(|(first, last)| first.parse::<u32>().unwrap()..=last.parse().unwrap());
    let others: Vec<_> = numbers.map(|n| n.to_string()).filter(|n| n != core).collect();
    for thread in std::fs::read_dir(format!("/proc/{}/task", testbed.process())).unwrap().flatten() {
        let name = std::fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if name.starts_with("weir-rx") && !others.is_empty() {
            let number = thread.file_name();
            let status = Command::new("taskset").args(["-pc", &others.join(",")]).arg(number).status();
            assert!(status.unwrap().success());
        }
    }
}

#[test]
fn stolen_time_of_a_core_is_in_status_metrics_and_the_ledger() {
    if !is_inside("stolen_time::stolen_time_of_a_core_is_in_status_metrics_and_the_ledger") {
        return;
    }
    let can = Command::new("chrt").args(["-f", "10", "true"]).output();
    if !can.is_ok_and(|output| output.status.success()) {
        let _ =
            writeln!(std::io::stderr(), "skipped: needs chrt(1) and the right to have real-time priority");
        return;
    }
    ip("link set dev lo up");
    let mut testbed = Testbed::with_node(metrics::NODE, ONE);
    testbed.send(&vec![udp(1, b"x"); 10]);
    testbed.until("the module has received all packets", |testbed| {
        testbed.count("alice", "trajectory", "packets") == 10
    });
    let told = |testbed: &Testbed| {
        let snapshot = testbed.snapshot();
        let (core, session) = (&snapshot["cores"][0], &snapshot["sessions"][0]);
        let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
        let (stolen, used) = (number(&core["stolen_ns"]), &session["used"]);
        let missed = number(&session["cpu"][0]["periods_missed"]);
        [stolen, number(&used["stolen_ns"]), number(&used["periods_missed"]), missed]
    };
    let before = told(&testbed);
    let core = testbed.snapshot()["cores"][0]["core"].to_string();
    // The receive thread runs on another core: its waiting time would be charged to no session.
    keep_receiving_from(&testbed, &core);
    let spin = ["-s", "KILL", "0.8", "chrt", "-f", "10", "taskset", "-c", &core, "sh", "-c"];
    let mut thief = Command::new("timeout").args(spin).arg("while :; do :; done").spawn().unwrap();
    while thief.try_wait().unwrap().is_none() {
        testbed.send(&vec![udp(1, b"x"); 20]);
        std::thread::sleep(Duration::from_millis(1));
    }
    testbed.until("it goes on", |testbed| testbed.part("alice", "channels", "main")["waiting"] == 0);
    let after = told(&testbed);
    let [core_stolen, stolen, missed, of_cpu] = [0, 1, 2, 3].map(|at| after[at] - before[at]);
    assert!(core_stolen > TENTH && stolen > TENTH, "{before:?} {after:?}");
    assert!(missed > 0 && missed == of_cpu, "{before:?} {after:?}");
    testbed.until("the entry is in the ledger", |testbed| {
        testbed.ledger_usage("alice", "stolen_ns") >= after[1]
            && testbed.ledger_usage("alice", "periods_missed") >= after[2]
    });
    testbed.until("the metrics show it", |_| {
        let page = page();
        let of = |name: &str| page.get(name).copied().unwrap_or(0.0);
        of(&format!("weir_core_stolen_seconds_total{{core=\"{core}\"}}")) * 1e9 >= after[0] as f64
            && of("weir_session_stolen_seconds_total{session=\"alice\"}") * 1e9 >= after[1] as f64
            && of("weir_session_missed_periods_total{session=\"alice\"}") >= after[2] as f64
    });
    assert!(testbed.stop().success());
}
