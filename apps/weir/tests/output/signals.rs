//! Runs that end by a signal, and runs that want the same file at the same time.

use super::{Bench, sender};
use crate::run::net::{shell, wait_for, wait_until_it_reads};
use crate::run::packets::{pcap, read_pcap, traffic};
use crate::run::process::{Ended, counts, ended, module, number};
use crate::run::{contents, weir};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A run that has begun.
struct Going(Child);

impl Going {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Sends a signal once the run catches signals.
    fn signal(&self, name: &str) {
        wait_until_it_reads(&self.0);
        shell(&format!("kill -{name} {}", self.0.id()));
    }

    fn end(self) -> Ended {
        ended(self.0, "weir run", Instant::now())
    }
}

/// Makes a FIFO.
fn fifo(bench: &Bench, name: &str) -> String {
    let path = bench.path(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Asserts that a run of `port-count` with these records and this report has ended in order.
fn ended_in_order(document: &Value, out: &str, report: &str) {
    let packets = counts(document)[0];
    let port_count = module(document, "port-count");
    assert_eq!((number(port_count, "packets"), number(port_count, "faults")), (packets, 0));
    // Modules were told: the row of the last interval is emitted at the stop.
    assert!(number(port_count, "records") > 0);
    let names: Vec<String> = contents(Path::new(out)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["port-count/counts.parquet", "port-count/totals.parquet"]);
    let page = fs::read_to_string(report).unwrap();
    assert!(page.ends_with("</html>\n") && !page.contains("the run failed"));
}

#[test]
fn the_first_signal_ends_a_run_of_a_file_in_order() {
    for signal in ["INT", "TERM", "HUP"] {
        let bench = Bench::new(100_000);
        let (out, report, fifo) = (bench.path("out"), bench.path("report.html"), fifo(&bench, "fifo"));
        let module = ["-m", "port-count", "--out", &out, "--report", &report, "-w", &fifo, "--json"];
        let going = Going::start(weir().args(["run", "-r", &bench.capture]).args(module));
        // The run does not go on to new blocks until the FIFO is read.
        let mut reader = fs::File::open(&fifo).unwrap();
        let mut written = vec![0; 24];
        reader.read_exact(&mut written).unwrap();
        going.signal(signal);
        let draining = std::thread::spawn(move || reader.read_to_end(&mut written).map(|_| written));
        let ended = going.end().good();
        let document = ended.json();
        let packets = counts(&document)[0];
        assert!((1..100_000).contains(&packets), "{signal}: {packets}");
        assert_eq!(
            (&document["capture"]["interrupted"], &document["capture"]["truncated"]),
            (&true.into(), &false.into())
        );
        ended_in_order(&document, &out, &report);
        let written = read_pcap(&draining.join().unwrap().unwrap());
        assert!(written == traffic(packets), "{signal}: other packets were written");
        ended.says(&format!("ended by a signal after {packets} packets"));
    }
}

/// Runs `port-count` over a FIFO, or standard input, into which `begin` is written; `act` does the rest.
fn over_a_pipe(
    bench: &Bench,
    by_name: bool,
    begin: &[u8],
    act: impl FnOnce(&Going, Box<dyn Write>),
) -> Ended {
    let (out, report) = (bench.path("out"), bench.path("report.html"));
    let mut command = weir();
    command.args(["run", "-m", "port-count", "--json", "--out", &out, "--report", &report, "-r"]);
    let mut going;
    let mut pipe: Box<dyn Write> = if by_name {
        let fifo = fifo(bench, "fifo");
        going = Going::start(command.arg(&fifo));
        Box::new(fs::OpenOptions::new().write(true).open(&fifo).unwrap())
    } else {
        going = Going::start(command.arg("-").stdin(Stdio::piped()));
        Box::new(going.0.stdin.take().unwrap())
    };
    pipe.write_all(begin).unwrap();
    act(&going, pipe);
    let ended = going.end().good();
    ended_in_order(&ended.json(), &out, &report);
    ended
}

#[test]
fn a_signal_ends_a_run_of_a_pipe_with_all_that_its_writer_still_writes() {
    let capture = pcap(&traffic(2_000));
    let (begin, rest) = capture.split_at(50_000);
    for by_name in [true, false] {
        for signal in ["INT", "TERM", "HUP"] {
            // The writer writes its last packets and ends, as tcpdump does.
            let ended = over_a_pipe(&Bench::new(0), by_name, begin, |going, mut pipe| {
                going.signal(signal);
                pipe.write_all(rest).unwrap();
            });
            let document = ended.json();
            assert_eq!((counts(&document)[0], &document["capture"]["interrupted"]), (2_000, &false.into()));
        }
        // The writer stays, and writes nothing more.
        let kept = std::cell::Cell::new(None);
        let ended = over_a_pipe(&Bench::new(0), by_name, begin, |going, pipe| {
            going.signal("INT");
            kept.set(Some(pipe));
        });
        let document = ended.json();
        let packets = counts(&document)[0];
        assert!((1..2_000).contains(&packets), "{packets}");
        assert_eq!(document["capture"]["interrupted"], true);
    }
}

#[test]
fn a_run_that_waits_for_the_writer_of_a_fifo_ends_by_a_signal() {
    let bench = Bench::new(0);
    let fifo = fifo(&bench, "fifo");
    let going = Going::start(weir().args(["run", "-m", "rtt", "-r", &fifo]));
    going.signal("INT");
    going.end().fails(1, &[&fifo, "ended by a signal before a capture began"]);
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let bench = Bench::new(0);
    let mut going = Going::start(weir().args(["run", "-m", "rtt", "-q", "-r", "-"]).stdin(Stdio::piped()));
    let mut pipe = going.0.stdin.take().unwrap();
    pipe.write_all(&pcap(&traffic(10))).unwrap();
    let status = loop {
        // Two signals that come before the first is delivered count as one.
        going.signal("INT");
        std::thread::sleep(Duration::from_millis(20));
        if let Some(status) = going.0.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.signal(), Some(2), "{status}");
    drop((pipe, bench));
}

#[test]
fn a_signal_that_was_ignored_before_the_run_stays_ignored() {
    let capture = pcap(&traffic(2_000));
    let mut command = Command::new("sh");
    let mut weir = weir();
    weir.args(["run", "-m", "port-count", "--json", "-r", "-"]);
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh"]).arg(weir.get_program()).args(weir.get_args());
    command.envs(weir.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut going = Going::start(command.stdin(Stdio::piped()));
    let mut pipe = going.0.stdin.take().unwrap();
    pipe.write_all(&capture[..50_000]).unwrap();
    going.signal("HUP");
    // A longer wait than the time for which a pipe is read after a signal.
    std::thread::sleep(Duration::from_millis(2_500));
    pipe.write_all(&capture[50_000..]).unwrap();
    drop(pipe);
    let ended = going.end().good();
    assert_eq!(counts(&ended.json())[0], 2_000);
}

#[test]
fn two_runs_never_write_one_file() {
    let bench = Bench::new(1_000);
    let module = sender(bench.folder.path(), "none").to_str().unwrap().to_owned();
    let (out, report, written) = (bench.path("out"), bench.path("report.html"), bench.path("out.pcap"));
    let arguments = ["-m", &module, "--out", &out, "--report", &report, "-w", &written];
    let mut first = Going::start(weir().args(["run", "-r", "-"]).args(arguments).stdin(Stdio::piped()));
    let mut pipe = first.0.stdin.take().unwrap();
    pipe.write_all(&pcap(&traffic(1_000))).unwrap();
    wait_for(|| Path::new(&format!("{out}/sender/heads.pcap.part")).exists());
    for (second, says) in [
        (["--out", &out], "sender"),
        (["-w", &written], "another run is writing this file"),
        (["--report", &report], "another run writes its report to this file"),
    ] {
        bench.run(&[&["-m", &module], &second[..]].concat()).fails(1, &[says, second[1]]);
    }
    drop(pipe);
    first.end().good();
    assert!(read_pcap(&fs::read(&written).unwrap()).len() == 1_000);
    assert!(fs::read_to_string(&report).unwrap().ends_with("</html>\n"));
    // The files are free again.
    bench.run(&arguments).good();
    // A device takes the packets of several runs.
    let mut first =
        Going::start(weir().args(["run", "-r", "-", "-m", "rtt", "-w", "/dev/null"]).stdin(Stdio::piped()));
    let mut pipe = first.0.stdin.take().unwrap();
    wait_until_it_reads(&first.0);
    pipe.write_all(&pcap(&traffic(10))).unwrap();
    bench.run(&["-m", "rtt", "-w", "/dev/null"]).good();
    drop(pipe);
    first.end().good();
}
