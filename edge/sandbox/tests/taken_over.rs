//! Sandbox processes under an attacker's control: possible reports and actions against the node. Each is this program
//! again, acting by its file name.

mod support;

use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use support::{MANIFEST, bytes, memfd, wat};
use weir_admission::Admitted;
use weir_os::Launcher;
use weir_os::helper::HelperChannel;
use weir_sandbox::{
    Area, BackEnd, BatchInput, Call, CallStep, Engine, EngineOptions, FuelSlice, GivenObject, LlvmUse,
    LoadError, ModuleCode, ObjectFailure, ObjectRefusal, RemoteInstance, SANDBOX_ARGUMENT, WriteRights,
};
use weir_units::{Nanos, Timestamp};
use weir_verify::CpuFeatures;
use weir_wire::WriteFields;

/// The report of a call without output: three flags, fourteen numbers, and five empty lists.
const NOTHING: [u8; 135] = [0; 135];
/// The last of these lists with a fault in it, and the list before it with a log line, each of two letters.
const FAULT: [u8; 10] = [1, 0, 0, 0, 2, 0, 0, 0, b'n', b'o'];
const LINE: [u8; 11] = [1, 0, 0, 0, 1, 2, 0, 0, 0, b'n', b'o'];
/// The limits of described faults and log lines in a module's lifetime.
const FAULTS: usize = 8;
const LINES: usize = 100;

/// A test with a sandbox process under an attacker's control.
type Test = fn(RemoteInstance);

fn main() {
    let itself = std::env::current_exe().expect("this program has a name");
    if std::env::args().nth(1).as_deref() == Some(SANDBOX_ARGUMENT) {
        return taken_over(itself.file_name().and_then(|name| name.to_str()).expect("it was given one"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let all: [(&str, Test); 7] = [
        ("genuine", an_unmodified_process_computes_and_reads_as_an_instance_does),
        ("honest", a_process_with_valid_reports_is_called_as_long_as_needed),
        ("endless", a_stop_that_never_ends_is_ended),
        ("spins", no_thread_of_a_process_runs_between_requests),
        ("twice", a_process_that_answers_twice_is_ended),
        ("faults", reported_faults_are_limited_as_in_the_node),
        ("lines", reported_log_lines_are_limited_as_in_the_node),
    ];
    for (name, test) in all {
        let program = folder.path().join(name);
        std::fs::copy(&itself, &program).expect("there is room");
        test(start(&program));
        let _ = writeln!(std::io::stdout(), "test {name} ... ok");
    }
    let genuine = folder.path().join("genuine");
    given_code_runs_in_a_process_until_it_is_withdrawn(&genuine);
    let _ = writeln!(std::io::stdout(), "test given ... ok");
}

/// The behaviour of each process.
fn taken_over(how: &str) {
    if how == "genuine" {
        return weir_sandbox::sandbox_child().expect("the node is there");
    }
    let mut channel = HelperChannel::from_standard_input().expect("the node is there");
    let mut report = NOTHING.to_vec();
    match how {
        "faults" => _ = report.splice(131.., FAULT),
        "lines" => _ = report.splice(127..131, LINE),
        // Two messages after their lengths.
        "twice" => report = [&[0, 0, 0, 135], &NOTHING[..]].concat().repeat(2),
        "spins" => (0..2).for_each(|_| _ = std::thread::spawn(spin)),
        _ => {}
    }
    // The first request starts the module.
    let mut report_bytes = &NOTHING[..];
    while channel.receive(1 << 30).is_ok_and(|message| message.is_some()) {
        if how == "spins" {
            std::thread::sleep(Duration::from_millis(20));
        }
        let is_over = match how {
            "twice" if report_bytes.len() > NOTHING.len() => write_at_once(report_bytes).is_err(),
            _ => channel.send(report_bytes).is_err(),
        };
        if is_over {
            return;
        }
        report_bytes = &report;
    }
}

/// Writes to the node past the channel, in one write: when the first byte is there, all are.
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
    let body = r#"(data (i32.const 100) "abc")
        (func (export "weir_packet") (param i32) (result i32)
            (i64.store (i32.const 64) (i64.load (i32.const 0x40000ffc)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))
        (func (export "weir_tick") (param i64 i64)
            (i32.store (i32.const 80) (i32.const 200))
            (i32.store (i32.const 84) (call $digest (i32.const 2) (i32.const 100) (i32.const 3) (i32.const 200)))
            (drop (call $emit (i32.const 1) (i32.const 80) (i32.const 8))))"#;
    let admitted = Admitted::admit(bytes(&wat(body), MANIFEST), &[]).expect("it is a module");
    let code = engine.compile(admitted, true, &mut Nanos(0)).expect("it is compiled");
    start_code(program, &engine, code).expect("it starts")
}

fn start_code(program: &Path, engine: &Engine, code: ModuleCode) -> Result<RemoteInstance, LoadError> {
    let writes = Arc::new(WriteRights::new(WriteFields::ALL));
    RemoteInstance::start(&Launcher::from(program), engine, code, &[], (None, &writes), &mut Nanos(0))
}

fn tick(process: &mut RemoteInstance) {
    let call = Call::Tick { now: Timestamp(1), periods: 1, before: 0 };
    assert_eq!(process.begin(call, FuelSlice::UNLIMITED), CallStep::Done(0));
}

fn a_process_with_valid_reports_is_called_as_long_as_needed(mut process: RemoteInstance) {
    (0..10 * LINES).for_each(|_| tick(&mut process));
    assert!(!process.has_ended() && process.faults().is_empty(), "{:?}", process.faults());
}

fn a_stop_that_never_ends_is_ended(mut process: RemoteInstance) {
    let mut parts = 0;
    while !process.is_stopped() {
        let stop = Call::Stop { now: Timestamp(1) };
        assert_eq!(process.begin(stop, FuelSlice::UNLIMITED), CallStep::Done(0));
        parts += 1;
    }
    assert_eq!(parts, 64 + 1 + 512, "for streams, of `weir_stop`, and of `weir_rest`");
    assert!(process.faults().is_empty(), "{:?}", process.faults());
}

fn an_unmodified_process_computes_and_reads_as_an_instance_does(mut process: RemoteInstance) {
    digest_is_that_of_the_standard(&mut process);
    areas_follow_each_other(&mut process);
}

/// A module reads the bytes around the boundary of two areas. If one of them is gone, the module traps.
fn areas_follow_each_other(process: &mut RemoteInstance) {
    let files = [0, 7, 9].map(|byte| memfd(&[byte; 4096]));
    let [descriptors, one, two] =
        files.each_ref().map(|file| Area { fd: file.as_fd(), offset: 0, len: 4096, is_fixed: true });
    process.map_descriptors(descriptors).expect("it is mapped");
    let mut read = |areas: &[Area<'_>]| {
        process.map_packet_areas(areas).expect("they are mapped");
        let batch = BatchInput { descriptors: weir_abi::DESCRIPTORS_BASE, mask: 1, first: 0 };
        assert_eq!(process.begin(Call::Batch(batch), FuelSlice::UNLIMITED), CallStep::Done(0));
        process.take_records().iter().map(|record| record.row.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(read(&[one, two]), [[7, 7, 7, 7, 9, 9, 9, 9]]);
    assert!(read(&[one]).is_empty());
    assert_eq!(read(&[two, one]), [[9, 9, 9, 9, 7, 7, 7, 7]]);
    assert!(!process.has_ended() && process.faults().len() == 1, "{:?}", process.faults());
}

/// SHA-256 of "abc", an example of FIPS 180-4.
fn digest_is_that_of_the_standard(process: &mut RemoteInstance) {
    tick(process);
    let records = process.take_records();
    let report_bytes: Vec<String> =
        records.iter().map(|record| record.tail.iter().map(|byte| format!("{byte:02x}")).collect()).collect();
    assert_eq!(
        report_bytes,
        ["ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"],
        "{:?}",
        process.faults()
    );
}

/// The states of all threads, as in proc(5): after the name, which is in brackets.
fn states(process: u32) -> Vec<char> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).expect("it is there");
    let state = |path: &Path| {
        let stat = std::fs::read_to_string(path.join("stat")).expect("it is there");
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).expect("a state")
    };
    threads.map(|thread| state(&thread.expect("a thread").path())).collect()
}

/// Two threads that never wait: between requests they do not run, and during requests they use more processor time than
/// the node waits, for which the process is ended.
fn no_thread_of_a_process_runs_between_requests(mut process: RemoteInstance) {
    let mut requests = 0;
    while !process.has_ended() {
        // A signal takes time to reach threads on other cores; a thread that has not stopped is running or runnable.
        let mut looks = 0;
        while states(process.process()).iter().any(|state| *state != 'T') {
            looks += 1;
            assert!(looks < 30_000, "{:?}", states(process.process()));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(states(process.process()).len() >= 3);
        tick(&mut process);
        requests += 1;
        if requests == 3 && std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1) {
            return;
        }
        assert!(requests < 10_000, "it was not ended");
    }
    assert!(process.faults()[0].contains("not called"), "{:?}", process.faults());
}

fn a_process_that_answers_twice_is_ended(mut process: RemoteInstance) {
    let mut calls = 0;
    while !process.has_ended() {
        tick(&mut process);
        calls += 1;
        // A late message is there with the next answer at the latest.
        assert!(calls <= 3);
    }
    assert!(process.has_lost_process());
}

fn reported_faults_are_limited_as_in_the_node(mut process: RemoteInstance) {
    for number in 1..=FAULTS {
        tick(&mut process);
        assert_eq!((process.faults().len(), process.has_ended()), (number, false));
    }
    tick(&mut process);
    // And the reason why there are no more.
    assert!(process.has_lost_process() && process.faults().len() == FAULTS + 1, "{:?}", process.faults());
}

fn reported_log_lines_are_limited_as_in_the_node(mut process: RemoteInstance) {
    // Whether or not they are taken.
    for _ in 0..LINES {
        tick(&mut process);
        assert_eq!(process.take_log().len(), 1);
    }
    assert!(!process.has_ended());
    tick(&mut process);
    assert!(process.has_lost_process() && process.take_log().is_empty());
}

/// A module with state in a global, and in memory that grows. Each tick counts for a while, and emits the state.
fn stateful() -> Admitted {
    let body = r#"(global $ticks (mut i64) (i64.const 100)) (data (i32.const 200) "\05")
        (func $count (local $n i32)
            (loop $again
                (i32.store (i32.const 204) (local.get $n))
                (br_if $again (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1000)))))
        (func (export "weir_packet") (param i32) (result i32) (i32.const 1))
        (func (export "weir_tick") (param i64 i64)
            (global.set $ticks (i64.add (global.get $ticks) (i64.const 1)))
            (i64.store8 (i32.const 200) (i64.add (i64.load8_u (i32.const 200)) (i64.const 2)))
            (drop (memory.grow (i32.const 1)))
            (call $count)
            (i64.store (i32.const 64) (i64.add (i64.mul (global.get $ticks) (i64.const 1000000))
                (i64.add (i64.mul (i64.load8_u (i32.const 200)) (i64.const 1000)) (i64.extend_i32_u (memory.size)))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))
        (func (export "weir_stop") (param i64)
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#;
    Admitted::admit(bytes(&wat(body), MANIFEST), &[]).expect("it is a module")
}

/// A process that runs an object file of another engine, which has compiled it for older processors. When the code is withdrawn,
/// the process goes on in Cranelift's code, or the module ends in it.
fn given_code_runs_in_a_process_until_it_is_withdrawn(program: &Path) {
    let options = EngineOptions { llvm: LlvmUse::AtLoad, ..EngineOptions::default() };
    let compiler = Engine::new(options, None).expect("it can be made");
    let (admitted, features) = (stateful(), CpuFeatures::Baseline);
    if let Some(why) = compiler.why_not_llvm() {
        let _ = writeln!(std::io::stderr(), "SKIPPED: no verified code of LLVM here: {why}");
        return;
    }
    let compiled = match compiler.compile_object(&admitted, true, features) {
        Err(ObjectFailure::Compile(why)) if why.contains("clang 19") => {
            let _ = writeln!(std::io::stderr(), "SKIPPED: {why}");
            return;
        }
        compiled => compiled.expect("it is compiled"),
    };
    let text = Sha256::digest(compiled.text.as_bytes()).into();
    let (object, isolated, stack_bytes) = (compiled.object, compiled.isolated, compiled.stack_bound);
    let given = GivenObject { object, features, isolated, text, stack_bytes };
    for compiles in [true, false] {
        let options = EngineOptions { compiles, ..EngineOptions::default() };
        let engine = Engine::new(options, None).expect("it can be made");
        let take = || {
            let code =
                engine.take_object(admitted.clone(), true, &given, &mut Nanos(0)).expect("it is taken");
            let withdrawal = code.withdrawal().expect("it is given");
            (code, withdrawal)
        };
        let (code, withdrawal) = take();
        assert_eq!(code.has_other_code(), compiles);
        let mut process = start_code(program, &engine, code).expect("it starts");
        assert!(!process.has_ended() && process.faults().is_empty(), "{:?}", process.faults());
        // Two ticks in LLVM's code. The second one is suspended when the code is withdrawn, and is aborted.
        tick(&mut process);
        assert_eq!((row(&mut process), process.back_end()), (Some(101_007_002), BackEnd::Llvm));
        let slice = FuelSlice { fuel: 1, until: None };
        let call = Call::Tick { now: Timestamp(2), periods: 1, before: 0 };
        assert_eq!(process.begin(call, slice), CallStep::Suspended);
        withdrawal.withdraw();
        assert_eq!((process.resume(slice), row(&mut process)), (CallStep::Done(0), None));
        assert!(!process.is_suspended() && process.back_end() == BackEnd::Llvm);
        let batch = BatchInput { descriptors: weir_abi::DESCRIPTORS_BASE, mask: 0b11, first: 0 };
        let (step, batch) = (CallStep::Done(if compiles { 0b11 } else { 0 }), Call::Batch(batch));
        assert_eq!(process.begin(batch, FuelSlice::UNLIMITED), step);
        assert!(!process.has_lost_process(), "{:?}", process.faults());
        tick(&mut process);
        let stop = Call::Stop { now: Timestamp(3) };
        if compiles {
            assert_eq!((row(&mut process), process.back_end()), (Some(102_009_003), BackEnd::Cranelift));
            assert_eq!((process.take_unserved(), process.counters().packets), (0, 2));
            assert!(!process.has_ended() && process.faults().is_empty(), "{:?}", process.faults());
            assert_eq!(process.begin(stop, FuelSlice::UNLIMITED), CallStep::Done(0));
            assert_eq!((row(&mut process), process.is_stopped()), (Some(102_009_003), true));
        } else {
            assert_eq!((process.take_unserved(), process.counters().packets), (0b11, 0));
            assert!(process.has_ended() && process.is_stopped());
            assert_eq!(process.begin(stop, FuelSlice::UNLIMITED), CallStep::Done(0));
            assert_eq!(row(&mut process), None);
            let says = "the key that vouched for its machine code is not trusted any more";
            assert!(
                process.faults().len() == 1 && process.faults()[0].contains(says),
                "{:?}",
                process.faults()
            );
        }
        // The withdrawal comes before the start of the process.
        let (code, withdrawal) = take();
        withdrawal.withdraw();
        match start_code(program, &engine, code) {
            Err(LoadError::Object(ObjectRefusal::Withdrawn)) => assert!(!compiles),
            Err(other) => panic!("{other}"),
            Ok(mut process) => {
                assert!(compiles && process.back_end() == BackEnd::Cranelift);
                tick(&mut process);
                assert_eq!(row(&mut process), Some(101_007_002));
            }
        }
    }
}

/// The value of the only record, if there is one.
fn row(process: &mut RemoteInstance) -> Option<u64> {
    let records = process.take_records();
    let values: Vec<u64> = records
        .iter()
        .map(|record| u64::from_le_bytes(record.row.try_into().expect("it has one field")))
        .collect();
    assert!(values.len() <= 1, "{values:?}");
    values.first().copied()
}
