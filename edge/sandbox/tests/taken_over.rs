//! Wards that somebody has taken over: what they can say and do to the node. Each is this program once more, which does what its name says.

mod support;

use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{MANIFEST, bytes, wat};
use weir_admission::Admitted;
use weir_os::Launcher;
use weir_os::companion::HelperChannel;
use weir_sandbox::{Call, CallStep, Engine, EngineOptions, FuelSlice, RemoteInstance, WARD, WriteRights};
use weir_units::{Nanos, Timestamp};
use weir_wire::WriteFields;

/// What is said of a call that has left nothing behind: two flags, twelve numbers, and five lists, all of them empty.
const NOTHING: [u8; 118] = [0; 118];
/// The last of these lists with a fault in it, and the one before with a line, each of two letters.
const FAULT: [u8; 10] = [1, 0, 0, 0, 2, 0, 0, 0, b'n', b'o'];
const LINE: [u8; 11] = [1, 0, 0, 0, 1, 2, 0, 0, 0, b'n', b'o'];
/// A module's faults and lines in its life, as the node describes and takes them.
const FAULTS: usize = 8;
const LINES: usize = 100;

/// What is done with a ward that was taken over.
type Test = fn(RemoteInstance);

fn main() {
    let itself = std::env::current_exe().expect("this program has a name");
    if std::env::args().nth(1).as_deref() == Some(WARD) {
        return taken_over(itself.file_name().and_then(|name| name.to_str()).expect("it was given one"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let all: [(&str, Test); 6] = [
        ("genuine", one_that_is_what_it_should_be_digests_as_the_standard_says),
        ("honest", one_that_says_what_a_ward_says_is_called_as_long_as_it_is_wanted),
        ("spins", where_nobody_asks_it_none_of_its_threads_runs),
        ("twice", who_answers_twice_is_ended),
        ("faults", faults_are_as_few_as_in_the_node),
        ("lines", lines_of_a_log_are_as_few_as_in_the_node),
    ];
    for (name, test) in all {
        let program = folder.path().join(name);
        std::fs::copy(&itself, &program).expect("there is room");
        test(start(&program));
        let _ = writeln!(std::io::stdout(), "test {name} ... ok");
    }
}

/// What each does in the place of a ward.
fn taken_over(how: &str) {
    if how == "genuine" {
        return weir_sandbox::ward_child().expect("the node is there");
    }
    let mut line = HelperChannel::of_standard_input().expect("the node is there");
    let mut report = NOTHING.to_vec();
    match how {
        "faults" => _ = report.splice(114.., FAULT),
        "lines" => _ = report.splice(110..114, LINE),
        // Two messages behind their lengths.
        "twice" => report = [&[0, 0, 0, 118], &NOTHING[..]].concat().repeat(2),
        "spins" => (0..2).for_each(|_| _ = std::thread::spawn(spin)),
        _ => {}
    }
    // The first is what it is to do at all.
    let mut said = &NOTHING[..];
    while line.hear(1 << 30).is_ok_and(|message| message.is_some()) {
        let is_over = match how {
            "twice" if said.len() > NOTHING.len() => write_at_once(said).is_err(),
            _ => line.say(said).is_err(),
        };
        if is_over {
            return;
        }
        said = &report;
    }
}

/// To the node, past the line: so all of it is there when the first of it is.
fn write_at_once(bytes: &[u8]) -> std::io::Result<()> {
    std::fs::File::from(std::io::stdin().as_fd().try_clone_to_owned()?).write_all(bytes)
}

fn spin() {
    loop {
        std::hint::spin_loop();
    }
}

fn start(program: &Path) -> RemoteInstance {
    let engine = Engine::new(EngineOptions::default(), None).expect("it can be made");
    let writes = Arc::new(WriteRights::new(WriteFields::ALL));
    let body = r#"(data (i32.const 100) "abc")
        (func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_tick") (param i64 i64)
            (i32.store (i32.const 80) (i32.const 200))
            (i32.store (i32.const 84) (call $digest (i32.const 2) (i32.const 100) (i32.const 3) (i32.const 200)))
            (drop (call $emit (i32.const 1) (i32.const 80) (i32.const 8))))"#;
    let admitted = Admitted::admit(bytes(&wat(body), MANIFEST), &[]).expect("it is a module");
    RemoteInstance::start(
        &Launcher::from(program),
        &engine,
        admitted,
        &[],
        true,
        (None, &writes),
        &mut Nanos(0),
    )
    .expect("it starts")
}

fn tick(ward: &mut RemoteInstance) {
    let call = Call::Tick { now: Timestamp(1), periods: 1, before: 0 };
    assert_eq!(ward.begin(call, FuelSlice::WHOLE), CallStep::Done(0));
}

fn one_that_says_what_a_ward_says_is_called_as_long_as_it_is_wanted(mut ward: RemoteInstance) {
    (0..10 * LINES).for_each(|_| tick(&mut ward));
    assert!(!ward.has_ended() && ward.faults().is_empty(), "{:?}", ward.faults());
}

/// SHA-256 of "abc", an example of FIPS 180-4.
fn one_that_is_what_it_should_be_digests_as_the_standard_says(mut ward: RemoteInstance) {
    tick(&mut ward);
    let records = ward.take_records();
    let said: Vec<String> =
        records.iter().map(|record| record.tail.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    assert_eq!(
        said,
        ["ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"],
        "{:?}",
        ward.faults()
    );
}

/// The states of all threads, as proc(5) has them: behind the name, which is in brackets.
fn states(process: u32) -> Vec<char> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it is there");
    let state = |path: &Path| {
        let stat = std::fs::read_to_string(path.join("stat")).expect("it is there");
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).expect("a state")
    };
    threads.map(|thread| state(&thread.expect("a thread").path())).collect()
}

fn where_nobody_asks_it_none_of_its_threads_runs(mut ward: RemoteInstance) {
    for _ in 0..3 {
        // A signal takes its time to reach threads on other cores; one that has not stopped is running, or waits to.
        let mut looks = 0;
        while states(ward.process()).iter().any(|state| *state != 'T') {
            looks += 1;
            assert!(looks < 30_000, "{:?}", states(ward.process()));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(states(ward.process()).len() >= 3);
        tick(&mut ward);
        if ward.has_ended() {
            // While it was asked it has run on more cores than it was waited for.
            assert!(ward.faults()[0].contains("not called"), "{:?}", ward.faults());
            return;
        }
    }
}

fn who_answers_twice_is_ended(mut ward: RemoteInstance) {
    let mut calls = 0;
    while !ward.has_ended() {
        tick(&mut ward);
        calls += 1;
        // What comes late is there with the next answer at the latest.
        assert!(calls <= 3);
    }
    assert!(ward.is_gone());
}

fn faults_are_as_few_as_in_the_node(mut ward: RemoteInstance) {
    for number in 1..=FAULTS {
        tick(&mut ward);
        assert_eq!((ward.faults().len(), ward.has_ended()), (number, false));
    }
    tick(&mut ward);
    // And why there are no more.
    assert!(ward.is_gone() && ward.faults().len() == FAULTS + 1, "{:?}", ward.faults());
}

fn lines_of_a_log_are_as_few_as_in_the_node(mut ward: RemoteInstance) {
    // Whether somebody takes them or not.
    for _ in 0..LINES {
        tick(&mut ward);
        assert_eq!(ward.take_log().len(), 1);
    }
    assert!(!ward.has_ended());
    tick(&mut ward);
    assert!(ward.is_gone() && ward.take_log().is_empty());
}
