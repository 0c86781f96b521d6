//! Runs the program as a user does, with time limits.

use serde_json::Value;
use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The limit of processor time. A run that needs more is taken to hang.
const PROCESSOR_TIMEOUT: Duration = Duration::from_secs(120);
/// The limit of wall-clock time. A run that needs more is taken to wait forever. The limit is long, because a busy
/// machine makes runs slow.
const WAIT: Duration = Duration::from_secs(900);
/// Clock ticks per second in /proc, on every Linux machine.
const TICKS: u64 = 100;

/// The result of a program that ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
    /// Processor time of all its threads and reaped children, to a few hundredths of a second. It does not depend on the load of the
    /// machine.
    pub processor: Duration,
}

/// The path of the program `weir`, for tests that start it through another program.
pub const PROGRAM: &str = env!("CARGO_BIN_EXE_weir");

/// Returns the command `weir`, with its cache of compiled modules in the build folder. The program that it starts is not `weir` itself if
/// this process ignores SIGINT.
pub fn weir() -> Command {
    let mut command = if ignores_interrupts() {
        // Background jobs of a shell and their children ignore SIGINT, and weir leaves an ignored signal ignored.
        let mut command = Command::new("env");
        command.args(["--default-signal", PROGRAM]);
        command
    } else {
        Command::new(PROGRAM)
    };
    command.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    // The user's calibration is not read either, so limits are the same on every machine.
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command.env_remove("SUDO_UID");
    // A node that locks its mutexes in a wrong order fails the test.
    command.env("WEIR_LOCK_ORDER_PANICS", "1");
    command
}

/// Returns true if this process ignores SIGINT, according to proc(5).
fn ignores_interrupts() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 2 != 0)
}

/// Runs `weir ARGUMENTS` to its end.
pub fn run<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    finish(weir().args(arguments), None)
}

/// Runs `weir ARGUMENTS` with these bytes on standard input.
pub fn run_with<S: AsRef<OsStr>>(input: &[u8], arguments: impl IntoIterator<Item = S>) -> Ended {
    finish(weir().args(arguments), Some(input))
}

/// Runs a command to its end, collects its output, and asserts that there was no panic, no signal and no hang.
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
            // The program may end before it has read all input.
            scope.spawn(move || pipe.write_all(input).ok());
        }
        ended(child, &format!("{command:?}"), Instant::now())
    })
}

/// Returns true for text with control characters of terminals, or characters that display misleadingly.
pub fn has_controls(text: &str) -> bool {
    text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t') || matches!(c, '\u{202a}'..='\u{202e}'))
}

/// Waits for the end of a program, collects its output, and asserts that there was no panic, no signal and no hang. The
/// program was started by `command` at the time `begin`.
pub fn ended(mut child: Child, command: &str, begin: Instant) -> Ended {
    let (mut stdout, mut stderr) = (child.stdout.take(), child.stderr.take());
    let (status, stdout, stderr, processor) = std::thread::scope(|scope| {
        let out = scope.spawn(move || drain(stdout.as_mut()));
        let err = scope.spawn(move || drain(stderr.as_mut()));
        let mut processor = Duration::ZERO;
        let status = loop {
            // Read before the wait, after which /proc has nothing about the process.
            processor = processor.max(processor_time(child.id()));
            if let Some(status) = child.try_wait().expect("a child can be waited for") {
                break status;
            }
            if processor > PROCESSOR_TIMEOUT || begin.elapsed() > WAIT {
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

/// Returns the processor time of a process and its reaped children up to now; zero if it does not exist any more.
fn processor_time(process: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The name in brackets can contain spaces. Fields from the third on follow it; these are the 14th to the 17th.
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
    /// Asserts that the program succeeded.
    #[track_caller]
    pub fn succeeds(self) -> Self {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
        self
    }

    /// Asserts that the program failed with exit status `code`, and with one message on standard error. The message
    /// must contain `parts` and no debug output.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.status.code(), Some(code), "{}", self.stderr);
        for part in parts {
            assert!(self.stderr.contains(part), "`{part}` is not in: {}", self.stderr);
        }
        self
    }

    /// Asserts that standard error contains `part`.
    #[track_caller]
    pub fn reports(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "`{part}` is not in: {}", self.stderr);
        self
    }

    /// Returns standard output as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).expect("text")
    }

    /// Parses standard output, which must be one JSON document.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.stdout)
            .unwrap_or_else(|error| panic!("no JSON document ({error}): {}\n{}", self.text(), self.stderr))
    }
}

/// Returns the capture's counts of a `--json` document: packets, TCP, UDP, IPv6, SYN.
pub fn counts(document: &Value) -> [u64; 5] {
    ["packets", "tcp", "udp", "ipv6", "tcp_syn"].map(|name| number(&document["capture"], name))
}

/// Returns the object of the module with this name.
#[track_caller]
pub fn module<'a>(document: &'a Value, name: &str) -> &'a Value {
    let modules = document["modules"].as_array().expect("a list of modules");
    modules
        .iter()
        .find(|module| module["name"] == name)
        .unwrap_or_else(|| panic!("no {name} in {document:#}"))
}

/// Returns a number of a document.
#[track_caller]
pub fn number(object: &Value, name: &str) -> u64 {
    object[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {object:#}"))
}

/// Returns a document without that which differs between runs of the same packets: times, back ends and names of captures.
pub fn without_times(mut document: Value) -> Value {
    for module in document["modules"].as_array_mut().expect("a list of modules") {
        // A module moves to verified code when LLVM is done, which may be after the last packet.
        for field in ["ns_per_packet", "cycles_per_packet", "back_end"] {
            module.as_object_mut().expect("an object").remove(field).expect(field);
        }
    }
    // Names of captures differ, too.
    document["capture"].as_object_mut().expect("an object").remove("files").expect("captures");
    document
}
