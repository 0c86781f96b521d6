//! Children that answer, and those that do everything else: each is a script that stands for a program that a stranger has taken over.

use std::os::unix::fs::PermissionsExt;
use weir_confine::Launcher;
use weir_confine::child::{Answer, Asked, ChildError, Limits, ask};
use weir_units::{Bytes, Nanos};

/// None of them passes these.
const PATIENT: Limits = Limits {
    processor: Nanos(100 * Nanos::SECOND.0),
    time: Nanos(300 * Nanos::SECOND.0),
    memory: Bytes(1 << 30),
    answer: 16 << 20,
};

fn child(script: &str, question: &[u8], limits: &Limits) -> Result<Answer, ChildError> {
    asked(script, question, limits).answer
}

fn asked(script: &str, question: &[u8], limits: &Limits) -> Asked {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("child");
    std::fs::write(&program, format!("#!/bin/sh\nexport PATH=/usr/bin:/bin\n{script}\n")).expect("a file");
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
    loop {
        match ask(&Launcher::from(program.as_path()), "argument", question, limits) {
            // Another test's child was made while this file was open for writing, and has not executed its program yet.
            Asked { answer: Err(ChildError::Process(error)), .. }
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            asked => return asked,
        }
    }
}

fn answered(script: &str, question: &[u8]) -> Answer {
    child(script, question, &PATIENT).unwrap_or_else(|error| panic!("{script}: {error}"))
}

fn failed(script: &str, limits: &Limits) -> ChildError {
    child(script, b"", limits).err().unwrap_or_else(|| panic!("{script}: has answered"))
}

#[test]
fn an_answer_is_what_it_wrote_however_long_the_question_is() {
    let question = vec![b'q'; 10 << 20];
    let echoed = answered("exec cat", &question);
    assert!(echoed.is_done && echoed.bytes == question && echoed.said.is_empty());
    let argument =
        answered("echo \"$1 of $#\"; env | grep -c -v -e ^PATH= -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD=", b"");
    assert_eq!(argument.bytes, b"argument of 1\n0\n", "nothing of the environment");
    // It does not have to read it.
    assert_eq!(answered("echo no matter", &question).bytes, b"no matter\n");
}

#[test]
fn what_others_have_left_open_is_closed_to_it() {
    let left =
        std::fs::File::create(tempfile::tempdir().expect("a folder").path().join("log")).expect("a file");
    // As by a service manager, or a shell around the program.
    rustix::io::fcntl_setfd(&left, rustix::io::FdFlags::empty()).expect("it is open");
    let number = std::os::fd::AsRawFd::as_raw_fd(&left);
    let script =
        format!("[ -e /proc/self/fd/1 ] && echo here; [ -e /proc/self/fd/{number} ] && echo open; true");
    assert_eq!(answered(&script, b"").bytes, b"here\n");
}

#[test]
fn one_that_says_that_it_could_not_has_its_words_taken_without_their_tricks() {
    let answer = answered("printf 'a\\033[2J\\nb' >&2; exit 3", b"");
    assert!(!answer.is_done);
    assert_eq!(answer.said, "a\\u{1b}[2J\\nb");
    // Whatever it says there beyond that, it keeps nobody from hearing its answer.
    let answer = answered("yes no | head -c 10000000 >&2; echo yes", b"");
    assert!(answer.is_done && answer.bytes == b"yes\n" && answer.said.len() < 2000);
}

#[test]
fn one_that_does_not_end_is_ended() {
    let (short, busy) =
        (Limits { time: Nanos::SECOND, ..PATIENT }, Limits { processor: Nanos::SECOND, ..PATIENT });
    for (script, limits) in [
        ("exec sleep 1000000", &short),
        // It has said all it has to say.
        ("exec >&- 2>&-; exec sleep 1000000", &short),
        // It does not read, and its question is longer than what is kept for it; nor does it heed what it is told.
        ("trap '' TERM INT XCPU; while :; do sleep 1; done", &short),
        ("while :; do :; done", &busy),
    ] {
        assert!(matches!(failed(script, limits), ChildError::Time(_)), "{script}");
    }
    // Who does not heed the first limit is killed by the second.
    let error = failed("trap '' XCPU; while :; do :; done", &busy);
    assert!(matches!(error, ChildError::Killed(9)), "{error}");
}

#[test]
fn one_that_is_killed_and_one_that_floods_are_errors() {
    let error = failed("echo half of it; kill -KILL $$", &PATIENT);
    assert!(matches!(error, ChildError::Killed(9)), "{error}");
    let error = failed("exec yes", &PATIENT);
    assert!(matches!(error, ChildError::Answer(16_777_216)), "{error}");
    // As if it could not be confined: that is not for whoever asked to mend.
    let error = failed("echo the kernel has none >&2; exit 71", &PATIENT).to_string();
    assert!(error.contains("the kernel has none"), "{error}");
}

#[test]
fn one_gets_no_more_memory_than_its_limit() {
    let small = Limits { memory: Bytes(64 << 20), ..PATIENT };
    let tight =
        child("head -c 200000000 /dev/zero | tail -n 1 | wc -c", b"", &small).expect("it ends by itself");
    let plenty = answered("head -c 200000000 /dev/zero | tail -n 1 | wc -c", b"");
    assert_eq!((tight.bytes.as_slice(), plenty.bytes.as_slice()), (&b"0\n"[..], &b"200000000\n"[..]));
    assert!(!tight.said.is_empty(), "it was told so");
}

#[test]
fn what_it_took_is_known_however_it_ended() {
    let works = "i=0; while [ $i -lt 30000 ]; do i=$((i+1)); done";
    let (short, busy) =
        (Limits { time: Nanos::SECOND, ..PATIENT }, Limits { processor: Nanos::SECOND, ..PATIENT });
    for (script, limits) in [
        (works.to_owned(), &PATIENT),
        (format!("{works}; exit 3"), &PATIENT),
        (format!("{works}; kill -KILL $$"), &PATIENT),
        (format!("{works}; exec sleep 1000000"), &short),
    ] {
        let Asked { answer, used } = asked(&script, b"", limits);
        assert!(used.0 > 0, "{script}: {answer:?}");
    }
    let used = asked("while :; do :; done", b"", &busy).used;
    // The kernel holds the limit by its ticks, and counts time by a better clock.
    assert!(used.0 >= Nanos::SECOND.0 / 10 && used.0 <= 10 * Nanos::SECOND.0, "{used:?}");
    // Who was never there took nothing.
    let none = ask(&Launcher::from(std::path::Path::new("/nowhere/weir")), "argument", b"", &PATIENT);
    assert!(matches!(none, Asked { answer: Err(ChildError::Process(_)), used: Nanos(0) }));
}
