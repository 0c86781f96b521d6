//! Tests of runs that are ended by a signal, and of two runs that write to the same file.

use super::{Bench, sender};
use crate::run::net::{shell, wait_for, wait_until_it_reads};
use crate::run::packets::{pcap, read_pcap, traffic};
use crate::run::process::{Ended, PROGRAM, counts, ended, module, number};
use crate::run::{contents, weir};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running `weir run`.
struct BackgroundRun(Child);

impl BackgroundRun {
    fn start(command: &mut Command) -> Self {
        Self(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Sends a signal as soon as the run handles signals.
    fn signal(&self, name: &str) {
        wait_until_it_reads(&self.0);
        shell(&format!("kill -{name} {}", self.0.id()));
    }

    fn end(self) -> Ended {
        ended(self.0, "weir run", Instant::now())
    }
}

/// Creates a FIFO.
fn fifo(bench: &Bench, name: &str) -> String {
    let path = bench.path(name);
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    path
}

/// Asserts that a run of `port-count` with these records and this report was stopped properly.
fn assert_stopped(document: &Value, out: &str, report: &str) {
    let packets = counts(document)[0];
    let port_count = module(document, "port-count");
    assert_eq!((number(port_count, "packets"), number(port_count, "faults")), (packets, 0));
    // The modules were stopped: the row of the last interval is emitted at the stop.
    assert!(number(port_count, "records") > 0);
    let names: Vec<String> = contents(Path::new(out)).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["port-count/counts.parquet", "port-count/totals.parquet"]);
    let page = fs::read_to_string(report).unwrap();
    assert!(page.ends_with("</html>\n") && !page.contains("the run failed"));
}

#[test]
fn the_first_signal_stops_a_run_of_a_file_properly() {
    for signal in ["INT", "TERM", "HUP"] {
        let bench = Bench::new(100_000);
        let (out, report, fifo) = (bench.path("out"), bench.path("report.html"), fifo(&bench, "fifo"));
        let module = ["-m", "port-count", "--out", &out, "--report", &report, "-w", &fifo, "--json"];
        let background = BackgroundRun::start(weir().args(["run", "-r", &bench.capture]).args(module));
        // The run waits here until the FIFO is read.
        let mut reader = fs::File::open(&fifo).unwrap();
        let mut written = vec![0; 24];
        reader.read_exact(&mut written).unwrap();
        background.signal(signal);
        let draining = std::thread::spawn(move || reader.read_to_end(&mut written).map(|_| written));
        let ended = background.end().succeeds();
        let document = ended.json();
        let packets = counts(&document)[0];
        assert!((1..100_000).contains(&packets), "{signal}: {packets}");
        assert_eq!(
            (&document["capture"]["interrupted"], &document["capture"]["truncated"]),
            (&true.into(), &false.into())
        );
        assert_stopped(&document, &out, &report);
        let written = read_pcap(&draining.join().unwrap().unwrap());
        assert!(written == traffic(packets), "{signal}: other packets were written");
        ended.reports(&format!("ended by a signal after {packets} packets"));
    }
}

/// Runs `port-count` on a FIFO, or on standard input, into which `begin` is written. `act` then writes or sends signals.
fn over_a_pipe(
    bench: &Bench,
    by_name: bool,
    begin: &[u8],
    act: impl FnOnce(&BackgroundRun, Box<dyn Write>),
) -> Ended {
    let (out, report) = (bench.path("out"), bench.path("report.html"));
    let mut command = weir();
    command.args(["run", "-m", "port-count", "--json", "--out", &out, "--report", &report, "-r"]);
    let mut background;
    let mut pipe: Box<dyn Write> = if by_name {
        let fifo = fifo(bench, "fifo");
        background = BackgroundRun::start(command.arg(&fifo));
        Box::new(fs::OpenOptions::new().write(true).open(&fifo).unwrap())
    } else {
        background = BackgroundRun::start(command.arg("-").stdin(Stdio::piped()));
        Box::new(background.0.stdin.take().unwrap())
    };
    pipe.write_all(begin).unwrap();
    act(&background, pipe);
    let ended = background.end().succeeds();
    assert_stopped(&ended.json(), &out, &report);
    ended
}

#[test]
fn after_a_signal_the_rest_of_a_pipe_is_read() {
    let capture = pcap(&traffic(2_000));
    let (begin, rest) = capture.split_at(50_000);
    for by_name in [true, false] {
        for signal in ["INT", "TERM", "HUP"] {
            // The writer writes its last packets and ends, as tcpdump does.
            let ended = over_a_pipe(&Bench::new(0), by_name, begin, |background, mut pipe| {
                background.signal(signal);
                pipe.write_all(rest).unwrap();
            });
            let document = ended.json();
            assert_eq!((counts(&document)[0], &document["capture"]["interrupted"]), (2_000, &false.into()));
        }
        // The writer keeps the pipe open without writing.
        let kept = std::cell::Cell::new(None);
        let ended = over_a_pipe(&Bench::new(0), by_name, begin, |background, pipe| {
            background.signal("INT");
            kept.set(Some(pipe));
        });
        let document = ended.json();
        let packets = counts(&document)[0];
        assert!((1..2_000).contains(&packets), "{packets}");
        assert_eq!(document["capture"]["interrupted"], true);
    }
}

#[test]
fn a_signal_ends_a_run_that_waits_for_the_writer_of_a_fifo() {
    let bench = Bench::new(0);
    let fifo = fifo(&bench, "fifo");
    let background = BackgroundRun::start(weir().args(["run", "-m", "rtt", "-r", &fifo]));
    background.signal("INT");
    background.end().fails(1, &[&fifo, "ended by a signal before a capture began"]);
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let bench = Bench::new(0);
    let mut background =
        BackgroundRun::start(weir().args(["run", "-m", "rtt", "-q", "-r", "-"]).stdin(Stdio::piped()));
    let mut pipe = background.0.stdin.take().unwrap();
    pipe.write_all(&pcap(&traffic(10))).unwrap();
    wait_until_it_reads(&background.0);
    let status = loop {
        // Two pending signals of one kind count as one, so wait until the first is handled. A process that has ended and is not
        // waited for takes signals, too.
        shell(&format!("kill -INT {}", background.0.id()));
        std::thread::sleep(Duration::from_millis(20));
        if let Some(status) = background.0.try_wait().unwrap() {
            break status;
        }
    };
    assert_eq!(status.signal(), Some(2), "{status}");
    drop((pipe, bench));
}

#[test]
fn a_signal_ignored_by_the_parent_process_stays_ignored() {
    let capture = pcap(&traffic(2_000));
    let mut command = Command::new("sh");
    // Background jobs of a shell ignore SIGINT, by which the test sees that signals are handled.
    command.args(["-c", "trap '' HUP; exec \"$@\"", "sh", "env", "--default-signal=INT", PROGRAM]);
    command.args(["run", "-m", "port-count", "--json", "-r", "-"]);
    command.envs(weir().get_envs().filter_map(|(name, value)| Some((name, value?))));
    let mut background = BackgroundRun::start(command.stdin(Stdio::piped()));
    let mut pipe = background.0.stdin.take().unwrap();
    pipe.write_all(&capture[..50_000]).unwrap();
    background.signal("HUP");
    // Longer than the time for which a pipe is read after a signal.
    std::thread::sleep(Duration::from_millis(2_500));
    pipe.write_all(&capture[50_000..]).unwrap();
    drop(pipe);
    let ended = background.end().succeeds();
    assert_eq!(counts(&ended.json())[0], 2_000);
}

#[test]
fn two_runs_cannot_write_to_the_same_file() {
    let bench = Bench::new(1_000);
    let module = sender(bench.folder.path(), "none").to_str().unwrap().to_owned();
    let (out, report, written) = (bench.path("out"), bench.path("report.html"), bench.path("out.pcap"));
    let arguments = ["-m", &module, "--out", &out, "--report", &report, "-w", &written];
    let mut first =
        BackgroundRun::start(weir().args(["run", "-r", "-"]).args(arguments).stdin(Stdio::piped()));
    let mut pipe = first.0.stdin.take().unwrap();
    pipe.write_all(&pcap(&traffic(1_000))).unwrap();
    wait_for(|| Path::new(&format!("{out}/sender/heads.pcap.part")).exists());
    for (second, says) in [
        (["--out", &out], "another run writes its results to this folder"),
        (["-w", &written], "another run is writing this file"),
        (["--report", &report], "another run writes to this file"),
    ] {
        bench.run(&[&["-m", &module], &second[..]].concat()).fails(1, &[says, second[1]]);
    }
    drop(pipe);
    first.end().succeeds();
    assert!(read_pcap(&fs::read(&written).unwrap()).len() == 1_000);
    assert!(fs::read_to_string(&report).unwrap().ends_with("</html>\n"));
    // The files can be used again.
    fs::remove_dir_all(&out).unwrap();
    bench.run(&arguments).succeeds();
    // Several runs may write to one device.
    let mut first = BackgroundRun::start(
        weir().args(["run", "-r", "-", "-m", "rtt", "-w", "/dev/null"]).stdin(Stdio::piped()),
    );
    let mut pipe = first.0.stdin.take().unwrap();
    wait_until_it_reads(&first.0);
    pipe.write_all(&pcap(&traffic(10))).unwrap();
    bench.run(&["-m", "rtt", "-w", "/dev/null"]).succeeds();
    drop(pipe);
    first.end().succeeds();
}
