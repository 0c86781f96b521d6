//! Runs the program as a user does, and not for ever.

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// A run that computes for longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);
/// One that is not over by then waits for something that never comes: on a busy machine a run may be that slow, and is not to blame.
const WAIT: Duration = Duration::from_secs(900);
/// A second has so many ticks in /proc, on every Linux machine.
const TICKS: u64 = 100;

/// A program that has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    /// Processor time of all its threads and of the children that it waited for, to a few hundredths of a second: what others do on the machine
    /// meanwhile does not count.
    pub processor: Duration,
}

/// The program, with compiled modules kept among the build's own files and not at the user's.
pub fn weir() -> Command {
    let program = env!("CARGO_BIN_EXE_weir");
    let mut command = if ignores_interrupts() {
        // A shell has its background jobs ignore Ctrl-C, and what they start; weir leaves that as it is.
        let mut command = Command::new("env");
        command.args(["--default-signal", program]);
        command
    } else {
        Command::new(program)
    };
    command.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    // Nor is the user's calibration read: limits are the same wherever the tests run.
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command.env_remove("SUDO_UID");
    command
}

/// Returns true where this process ignores SIGINT, by proc(5).
fn ignores_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 2 != 0)
}

/// `weir ARGUMENTS`, to its end.
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    finish(weir().args(arguments), None)
}

/// `weir ARGUMENTS` with these bytes on standard input.
pub fn run_with<S: AsRef<OsStr>>(input: &[u8], arguments: impl IntoIterator<Item = S>) -> Ended {
    finish(weir().args(arguments), Some(input))
}

/// Waits for a command, gathers what it prints, and holds it to what goes for every run: no panic, no signal, no hanging.
pub fn finish(command: &mut Command, input: Option<&[u8]>) -> Ended {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let mut child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdin = child.stdin.take();
    std::thread::scope(|scope| {
        if let (Some(mut pipe), Some(input)) = (stdin, input) {
            // The program may end before it has read all.
            scope.spawn(move || pipe.write_all(input).ok());
        }
        ended(child, &format!("{command:?}"), Instant::now())
    })
}

/// Returns true for text that a terminal would take as a command, or show as something else than it is.
pub fn has_controls(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{202a}'..='\u{202e}'))
}

/// The same for a program that was started at this time by this command.
pub fn ended(mut child: Child, command: &str, begin: Instant) -> Ended {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let (status, stdout, stderr, processor) = std::thread::scope(|scope| {
        let out = scope.spawn(move || drain(stdout.as_mut()));
        let err = scope.spawn(move || drain(stderr.as_mut()));
        let mut processor = Duration::ZERO;
        let status = loop {
            // Before it is asked whether it has ended: then there is nothing left of it to read.
            processor = processor.max(processor_time(child.id()));
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if processor > PATIENCE || begin.elapsed() > WAIT {
                child.kill().expect("a child can be killed");
                panic!("hangs: {command}");
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        (status, out.join().expect("read"), err.join().expect("read"), processor)
    });
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    assert!(!stderr.contains("panicked at"), "{command}: {stderr}");
    assert_eq!(status.signal(), None, "{command}: {stderr}");
    assert!(!has_controls(&stderr), "{command}: {stderr:?}");
    Ended { status, stdout, stderr, processor }
}

/// What a process has taken up to now, with the children that it has waited for; nothing where it is not there any more.
fn processor_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The program's name, in brackets, can have spaces in it. After it come the fields from the third on; these are the 14th to the 17th.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
    let ticks: u64 = fields.skip(11).take(4).filter_map(|field| field.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 1000 / TICKS)
}

fn drain(pipe: Option<&mut impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.map(|pipe| pipe.read_to_end(&mut bytes).expect("a pipe can be read"));
    bytes
}

impl Ended {
    /// It must have ended well.
    #[track_caller]
    pub fn good(self) -> Self {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
        self
    }

    /// It must have failed with this exit status, and have said all of this on standard error, in one message and not as a struct.
    #[track_caller]
    pub fn fails(self, code: i32, says: &[&str]) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}", self.stderr);
        for part in says {
            assert!(self.stderr.contains(part), "`{part}` is not in: {}", self.stderr);
        }
        self
    }

    /// It must have said this on standard error.
    #[track_caller]
    pub fn says(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "`{part}` is not in: {}", self.stderr);
        self
    }

    /// Standard output, as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text")
    }

    /// Standard output, which must be one JSON document and nothing else.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON document ({error}): {}\n{}", self.text(), self.stderr))
    }
}

/// What a document of `--json` says about the capture: packets, TCP, UDP, IPv6, SYN.
pub fn counts(document: &Value) -> [u64; 5] {
    ["packets", "tcp", "udp", "ipv6", "tcp_syn"].map(|name| number(&document["capture"], name))
}

/// What it says about the module of this name.
#[track_caller]
pub fn module<'a>(document: &'a Value, name: &str) -> &'a Value {
    let modules = document["modules"].as_array().expect("a list of modules");
    modules
        .iter()
        .find(|module| module["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {document:#}"))
}

/// A number of a document.
#[track_caller]
pub fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {object:#}"))
}

/// A document without what a second run cannot have alike: times.
pub fn without_times(mut document: Value) -> Value {
    for module in document["modules"].as_array_mut().expect("a list of modules") {
        for time in ["ns_per_packet", "cycles_per_packet"] {
            module.as_object_mut().expect("an object").remove(time).expect("a time");
        }
    }
    document
}
