//! Children that answer, and hostile ones: each is a script in place of a program under an attacker's control.

use std::os::unix::fs::PermissionsExt;
use weir_os::child::{ChildError, ChildLimits, ChildOutcome, ChildReply, Cores, request};
use weir_os::{BudgetOrder, Launcher, ProcessorBudget};
use weir_units::{Bytes, Nanos};

/// Limits that no script reaches.
const PATIENT: ChildLimits = ChildLimits {
    processor: Nanos(100 * Nanos::SECOND.0),
    time: Nanos(300 * Nanos::SECOND.0),
    memory: Bytes(1 << 30),
    answer: 16 << 20,
    cores: None,
};

fn child(script: &str, question: &[u8], limits: &ChildLimits) -> Result<ChildReply, ChildError> {
    asked(script, question, limits).answer
}

fn asked(script: &str, question: &[u8], limits: &ChildLimits) -> ChildOutcome {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("child");
    std::fs::write(&program, format!("#!/bin/sh\nexport PATH=/usr/bin:/bin\n{script}\n")).expect("a file");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    loop {
        match request(&Launcher::from(program.as_path()), &["argument"], question, limits, &mut Nanos(0)) {
            // Another test's child was forked while this file was open for writing, and has not executed its program
            // yet.
            ChildOutcome { answer: Err(ChildError::Process(error)), .. }
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            asked => return asked,
        }
    }
}

fn answered(script: &str, question: &[u8]) -> ChildReply {
    child(script, question, &PATIENT).unwrap_or_else(|error| panic!("{script}: {error}"))
}

fn failed(script: &str, limits: &ChildLimits) -> ChildError {
    child(script, b"", limits).err().unwrap_or_else(|| panic!("{script}: has answered"))
}

#[test]
fn an_answer_is_complete_whatever_the_length_of_the_question() {
    let question = vec![b'q'; 10 << 20];
    let echoed = answered("exec cat", &question);
    assert!(echoed.has_succeeded && echoed.bytes == question && echoed.stderr.is_empty());
    let argument =
        answered("echo \"$1 of $#\"; env | grep -c -v -e ^PATH= -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD=", b"");
    assert_eq!(argument.bytes, b"argument of 1\n0\n", "nothing of the environment");
    // It need not read the question.
    assert_eq!(answered("echo no matter", &question).bytes, b"no matter\n");
}

#[test]
fn inherited_descriptors_are_closed_for_a_child() {
    let left =
        std::fs::File::create(tempfile::tempdir().expect("a folder").path().join("log")).expect("a file");
    // Left open by a service manager, or by a shell around the program.
    rustix::io::fcntl_setfd(&left, rustix::io::FdFlags::empty()).expect("it is open");
    let number = std::os::fd::AsRawFd::as_raw_fd(&left);
    let script =
        format!("[ -e /proc/self/fd/1 ] && echo here; [ -e /proc/self/fd/{number} ] && echo open; true");
    assert_eq!(answered(&script, b"").bytes, b"here\n");
}

#[test]
fn a_failing_childs_error_text_is_escaped() {
    let answer = answered("printf 'a\\033[2J\\nb' >&2; exit 3", b"");
    assert!(!answer.has_succeeded);
    assert_eq!(answer.stderr, "a\\u{1b}[2J\\nb");
    // Further output there does not block its answer.
    let answer = answered("yes no | head -c 10000000 >&2; echo yes", b"");
    assert!(answer.has_succeeded && answer.bytes == b"yes\n" && answer.stderr.len() < 2000);
}

#[test]
fn a_child_that_does_not_end_is_killed() {
    let (short, busy) =
        (ChildLimits { time: Nanos::SECOND, ..PATIENT }, ChildLimits { processor: Nanos::SECOND, ..PATIENT });
    for (script, limits) in [
        ("exec sleep 1000000", &short),
        // It has closed its streams.
        ("exec >&- 2>&-; exec sleep 1000000", &short),
        // It does not read, and its question is longer than the pipe; nor does it react to signals.
        ("trap '' TERM INT XCPU; while :; do sleep 1; done", &short),
        ("while :; do :; done", &busy),
    ] {
        assert!(matches!(failed(script, limits), ChildError::TimeLimit(_)), "{script}");
    }
    // Ignoring the kernel's limit does not help either.
    let error = failed("trap '' XCPU; while :; do :; done", &busy);
    assert!(matches!(error, ChildError::TimeLimit(_) | ChildError::Killed(9)), "{error}");
}

#[test]
fn a_killed_child_and_a_too_long_answer_are_errors() {
    let error = failed("echo half of it; kill -KILL $$", &PATIENT);
    assert!(matches!(error, ChildError::Killed(9)), "{error}");
    let error = failed("exec yes", &PATIENT);
    assert!(matches!(error, ChildError::AnswerTooLong(16_777_216)), "{error}");
    // A child that could not be confined: the requester is not to blame.
    let error = failed("echo the kernel has none >&2; exit 71", &PATIENT).to_string();
    assert!(error.contains("the kernel has none"), "{error}");
}

#[test]
fn a_child_gets_no_more_memory_than_its_limit() {
    let small = ChildLimits { memory: Bytes(64 << 20), ..PATIENT };
    let tight =
        child("head -c 200000000 /dev/zero | tail -n 1 | wc -c", b"", &small).expect("it ends by itself");
    let plenty = answered("head -c 200000000 /dev/zero | tail -n 1 | wc -c", b"");
    assert_eq!((tight.bytes.as_slice(), plenty.bytes.as_slice()), (&b"0\n"[..], &b"200000000\n"[..]));
    assert!(!tight.stderr.is_empty(), "it was told so");
}

#[test]
fn the_processor_time_of_a_child_is_known_however_it_ended() {
    let works = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
    let (short, busy) =
        (ChildLimits { time: Nanos::SECOND, ..PATIENT }, ChildLimits { processor: Nanos::SECOND, ..PATIENT });
    for (script, limits) in [
        (works.to_owned(), &PATIENT),
        (format!("{works}; exit 3"), &PATIENT),
        (format!("{works}; kill -KILL $$"), &PATIENT),
        (format!("{works}; exec sleep 1000000"), &short),
    ] {
        let ChildOutcome { answer, used } = asked(&script, b"", limits);
        assert!(used.0 > 0, "{script}: {answer:?}");
    }
    let used = asked("while :; do :; done", b"", &busy).used;
    // The kernel enforces the limit by its ticks, and measures time by a better clock.
    assert!(used.0 >= Nanos::SECOND.0 / 10 && used.0 <= 10 * Nanos::SECOND.0, "{used:?}");
    // A program that was not started used nothing.
    let nowhere = Launcher::from(std::path::Path::new("/nowhere/weir"));
    let none = request(&nowhere, &["argument"], b"", &PATIENT, &mut Nanos(0));
    assert!(matches!(none, ChildOutcome { answer: Err(ChildError::Process(_)), used: Nanos(0) }));
}

/// A budget whose orders come from a function.
struct Script<F>(F, Nanos);

impl<F: FnMut(Nanos) -> BudgetOrder> ProcessorBudget for Script<F> {
    fn limit(&self) -> Nanos {
        Nanos(u64::MAX)
    }
    fn left(&self) -> Nanos {
        Nanos(u64::MAX)
    }
    fn spend(&mut self, used: Nanos) {
        self.1.0 += used.0;
    }
    fn order(&mut self, so_far: Nanos) -> BudgetOrder {
        (self.0)(so_far)
    }
}

fn run_with_orders(
    script: &str,
    limits: &ChildLimits,
    order: impl FnMut(Nanos) -> BudgetOrder,
) -> (ChildOutcome, Nanos) {
    let mut budget = Script(order, Nanos(0));
    let (folder, asked) = loop {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("child");
        std::fs::write(&program, format!("#!/bin/sh\nexport PATH=/usr/bin:/bin\n{script}\n"))
            .expect("a file");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
        match request(&Launcher::from(program.as_path()), &["argument"], b"", limits, &mut budget) {
            ChildOutcome { answer: Err(ChildError::Process(error)), .. }
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            asked => break (folder, asked),
        }
    };
    drop(folder);
    (asked, budget.1)
}

#[test]
fn a_paused_child_uses_no_time_and_its_limit_is_suspended() {
    let short = ChildLimits { time: Nanos(8 * Nanos::SECOND.0), ..PATIENT };
    let begin = std::time::Instant::now();
    let (mut seen, mut rested) = (Vec::new(), 0);
    // From 100 ms on it pauses for 450 questions, at least nine seconds: longer than its wall-clock time.
    let (ChildOutcome { answer, used }, spent) =
        run_with_orders("i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done", &short, |so_far| {
            if so_far.0 < 100_000_000 || rested >= 450 {
                return BudgetOrder::Continue;
            }
            rested += 1;
            seen.push(so_far);
            BudgetOrder::Pause
        });
    assert_eq!(answer.expect("it was given its time").bytes, b"done\n");
    assert_eq!((rested, used), (450, spent));
    assert!(begin.elapsed() > std::time::Duration::from_secs(8));
    // It stops as soon as the signal arrives.
    let (first, last) = (seen[1].0, seen[449].0);
    assert!(last - first < 20_000_000, "it used {} ns while it rested", last - first);
}

#[test]
fn a_preempted_child_is_killed_and_its_time_is_known() {
    for resting in [false, true] {
        let (ChildOutcome { answer, used }, spent) =
            run_with_orders("while :; do :; done", &PATIENT, |so_far| match so_far.0 {
                0..100_000_000 => BudgetOrder::Continue,
                _ if resting && so_far.0 < 100_000_001 => BudgetOrder::Pause,
                _ => BudgetOrder::Abort,
            });
        assert!(matches!(answer, Err(ChildError::Preempted)), "{answer:?}");
        assert!(used.0 >= 100_000_000 && used == spent, "{used:?} {spent:?}");
    }
    // It is not even started.
    let (ChildOutcome { answer, used }, _) = run_with_orders("echo done", &PATIENT, |_| BudgetOrder::Abort);
    assert!(matches!(answer, Err(ChildError::Preempted)) && used == Nanos(0));
}

#[test]
fn a_child_is_killed_as_soon_as_its_processor_time_is_used_up() {
    let tight = ChildLimits { processor: Nanos(200_000_000), ..PATIENT };
    let ChildOutcome { answer, used } = asked("while :; do :; done", b"", &tight);
    assert!(matches!(answer, Err(ChildError::TimeLimit(_))), "{answer:?}");
    assert!(used.0 >= 200_000_000 && used.0 < 900_000_000, "{used:?}");
}

#[test]
fn a_child_runs_with_low_priority_and_not_on_reserved_cores() {
    let own = rustix::thread::sched_getaffinity(None).expect("there are cores");
    let all: Vec<u16> = (0..1024).filter(|core| own.is_set(usize::from(*core))).collect();
    let text = String::from_utf8(answered("cut -d' ' -f19 /proc/self/stat", b"").bytes).expect("a number");
    assert_eq!(text.trim().parse::<i32>().expect("a number"), (own_nice() + 10).min(19));
    // If no other core is left it runs on its parent's.
    assert_eq!(Cores::without(&all), None);
    let Some(cores) = Cores::without(&all[..1]) else { return };
    assert!(!cores.has(all[0]) && all[1..].iter().all(|core| cores.has(*core)));
    let bound = ChildLimits { cores: Some(cores), ..PATIENT };
    let list = child("grep Cpus_allowed_list /proc/self/status", b"", &bound).expect("it answers").bytes;
    let list = String::from_utf8(list).expect("text");
    let first = list.split_whitespace().nth(1).and_then(|list| list.split(['-', ',']).next());
    assert_eq!(first, Some(all[1].to_string().as_str()), "{list}");
}

/// The nice value of this process.
fn own_nice() -> i32 {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("it is there");
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    rest.split_whitespace().nth(16).and_then(|nice| nice.parse().ok()).expect("a number")
}
