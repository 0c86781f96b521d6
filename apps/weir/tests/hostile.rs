//! Tests of hostile modules that run beside a good one: the good one loses no packet, the run completes, and the operator is told.

use crate::run::module::{MANIFEST, answering, assemble, at_packet, text, write, write_as};
use crate::run::packets::{pcap, read_pcap, traffic};
use crate::run::process::{Ended, counts, module, number};
use crate::run::{contents, run};
use crate::shapes;
use serde_json::Value;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use weir_admission::ComplexityLimit;

const PACKETS: u64 = 3_000;

/// A capture, and the records of the good module when it runs without hostile ones.
struct Bench {
    folder: TempDir,
    capture: PathBuf,
    expected_records: [Vec<(String, Vec<u8>)>; 2],
}

/// The names of the good module's two instances.
const GOOD: [&str; 2] = ["port-count", "port-count-2"];

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let capture = folder.path().join("capture.pcap");
        fs::write(&capture, pcap(&traffic(PACKETS))).unwrap();
        let mut bench = Self { folder, capture, expected_records: Default::default() };
        bench.run(&[]).succeeds();
        bench.expected_records = GOOD.map(|label| bench.records(label));
        assert_eq!(bench.expected_records.each_ref().map(Vec::len), [2, 2]);
        bench
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs with these arguments between two instances of the good module, whose short intervals make many records.
    /// Runs a bad module beside the good ones, all in Cranelift's code. The limit that ends an endless call depends on the back
    /// end: LLVM finds without iterating that an empty loop uses up its fuel.
    fn run(&self, arguments: &[&str]) -> Ended {
        self.run_in("cranelift", arguments)
    }

    fn run_in(&self, back_end: &str, arguments: &[&str]) -> Ended {
        let out = self.path().join("out");
        let _ = fs::remove_dir_all(&out);
        let good = "port-count,interval=100ms";
        let begin = ["run", "--json", "--call-limit", "30ms", "--jobs", "2", "-m", good, "--out"];
        let files = [out.to_str().unwrap(), "-r", self.capture.to_str().unwrap(), "--back-end", back_end];
        run(begin.iter().chain(&files).chain(arguments).chain(&["-m", good]))
    }

    fn records(&self, label: &str) -> Vec<(String, Vec<u8>)> {
        contents(&self.path().join("out").join(label))
    }

    fn is_good_unharmed(&self) -> bool {
        GOOD.map(|label| self.records(label)) == self.expected_records
    }

    /// Runs a module named `bad` with this body, and asserts that the good instances are unaffected.
    fn run_bad(&self, body: &str) -> BadModuleRun {
        let path = write(self.path(), "bad", body);
        let ended = self.run(&["-m", path.to_str().unwrap()]);
        let document = ended.json();
        let has_ended = module(&document, "bad")["ended"] == true;
        let ended = if has_ended {
            ended.fails(3, &["not all modules saw all packets: bad "])
        } else {
            ended.succeeds()
        };
        assert_eq!(number(&document["capture"], "packets"), PACKETS);
        for label in GOOD {
            let good = module(&document, label);
            assert_eq!((number(good, "packets"), number(good, "faults")), (PACKETS, 0), "{body}");
        }
        assert!(self.is_good_unharmed(), "a good module has other records beside {body}");
        let bad = module(&document, "bad").clone();
        // The records that it emitted can be read.
        assert!(
            self.records("bad")
                .iter()
                .any(|(name, bytes)| name == "rows.parquet" && bytes.ends_with(b"PAR1"))
        );
        BadModuleRun { bad, stderr: ended.stderr, processor: ended.processor }
    }

    /// Asserts that a module that runs `act` in packet 1,000 loses exactly that packet, for this reason.
    fn loses_packet_1000(&self, act: &str, reason: &str) {
        let BadModuleRun { bad, stderr, .. } = self.run_bad(&at_packet(1_000, act));
        assert_eq!((number(&bad, "packets"), number(&bad, "faults")), (PACKETS - 1, 1), "{act}: {bad:#}");
        // Its stop was still called, and emitted the number of packets that it got.
        assert_eq!((number(&bad, "records"), &bad["ended"]), (1, &false.into()), "{act}: {bad:#}");
        assert!(stderr.contains(&format!("bad: packet 1001: {reason}")), "{act}: {stderr}");
        assert!(stderr.contains("bad: 1 packets were lost for this module only"), "{stderr}");
    }
}

/// The result of a run with a bad module, and its messages.
struct BadModuleRun {
    bad: Value,
    stderr: String,
    processor: Duration,
}

impl BadModuleRun {
    /// Returns these counters of the bad module.
    fn counts(&self, names: [&str; 3]) -> [u64; 3] {
        names.map(|name| number(&self.bad, name))
    }

    #[track_caller]
    fn reports(self, part: &str) -> Self {
        assert!(self.stderr.contains(part), "`{part}` is not in: {}", self.stderr);
        self
    }

    /// Asserts that the run took less processor time than this.
    #[track_caller]
    fn takes_less_than(self, seconds: u64) -> Self {
        assert!(self.processor < Duration::from_secs(seconds), "{:?}: {}", self.processor, self.stderr);
        self
    }
}

#[test]
fn a_trap_in_packet_1000_loses_exactly_that_packet() {
    let bench = Bench::new();
    bench.loses_packet_1000("(unreachable)", "`unreachable` executed");
    bench.loses_packet_1000("(drop (i32.div_u (i32.const 1) (i32.const 0)))", "integer division");
    bench.loses_packet_1000("(drop (i32.trunc_f32_s (f32.const nan)))", "integer division or conversion");
}

#[test]
fn packets_and_descriptors_cannot_be_written() {
    const OUTSIDE: &str = "memory access out of bounds";
    let bench = Bench::new();
    for act in [
        "(i32.store (i32.load offset=8 (local.get $d)) (i32.const 1))",
        "(i32.store8 (local.get $d) (i32.const 1))",
        "(v128.store (i32.load offset=8 (local.get $d)) (v128.const i64x2 1 1))",
        "(memory.copy (i32.load offset=8 (local.get $d)) (i32.const 0) (i32.const 64))",
        "(memory.fill (i32.load offset=8 (local.get $d)) (i32.const 0) (i32.const 64))",
        "(memory.fill (local.get $d) (i32.const 0) (i32.const 64))",
        "(i32.store (i32.const 0x40000000) (i32.const 0))",
        "(i32.store offset=0x40000000 (i32.const 0) (i32.const 0))",
        "(i32.store offset=0xe0000000 (i32.const 0) (i32.const 0))",
    ] {
        bench.loses_packet_1000(act, OUTSIDE);
    }
}

#[test]
fn only_packets_and_descriptors_can_be_read() {
    const OUTSIDE: &str = "memory access out of bounds";
    let bench = Bench::new();
    for act in [
        // The capture has 3,000 packets of about 60 bytes, far less than 1 MiB.
        "(drop (i32.load offset=0x100000 (i32.load offset=8 (local.get $d))))",
        "(drop (i32.load (i32.const 0x41000000)))",
        "(drop (i32.load offset=0x41000000 (i32.const 0)))",
        "(drop (i32.load (i32.const 0x20000000)))",
        "(drop (i32.load (i32.const 65533)))",
        "(drop (i32.load (i32.const -4)))",
        "(drop (i64.load offset=4294967295 (i32.const -1)))",
        "(memory.copy (i32.const 0) (i32.const 0x20000000) (i32.const 64))",
    ] {
        bench.loses_packet_1000(act, OUTSIDE);
    }
    // A constant address inside the packets can be read as well.
    let body = at_packet(
        1_000,
        "(drop (i32.load (i32.const 0x40000100))) (drop (i32.load offset=0x40000100 (i32.const 0)))",
    );
    assert_eq!(bench.run_bad(&body).counts(["packets", "faults", "records"]), [PACKETS, 0, 1]);
}

#[test]
fn invalid_pointers_in_host_calls_fail_the_call() {
    let bench = Bench::new();
    for (act, function) in [
        ("(drop (call $emit (i32.const 0) (i32.const -8) (i32.const 8)))", "emit"),
        ("(drop (call $emit (i32.const 0) (i32.const 65529) (i32.const 8)))", "emit"),
        ("(drop (call $emit (i32.const 0) (i32.const 0x20000000) (i32.const 8)))", "emit"),
        // A row whose string is outside the memory.
        (
            "(i64.store (i32.const 64) (i64.const 0x10_ffffff00)) (drop (call $emit (i32.const 1) (i32.const 64) (i32.const 8)))",
            "emit",
        ),
        ("(drop (call $find (i32.const 0) (i32.const 0x20000000) (i32.const 1)))", "find"),
        ("(drop (call $hash (i32.const 0) (i32.const -1) (i64.const 0)))", "hash"),
        ("(drop (call $log (i32.const 0) (i32.const -1) (i32.const -1)))", "log"),
        ("(drop (call $patch (local.get $d) (i32.const 0) (i32.const -1) (i32.const 8)))", "patch"),
        (
            "(drop (call $param_bytes (i32.const 1) (i32.load offset=8 (local.get $d)) (i32.const 8)))",
            "param_bytes",
        ),
    ] {
        bench.loses_packet_1000(act, &format!("`{function}` was given an address"));
    }
    bench.loses_packet_1000(
        "(drop (call $emit (i32.const 0) (i32.const 0) (i32.const 9)))",
        "`emit` was given a row of another size",
    );
}

#[test]
fn endless_recursion_fails_the_call() {
    let bench = Bench::new();
    let recursion = "(func $again (call $again) (call $again))";
    let BadModuleRun { bad, stderr, .. } = bench.run_bad(&(at_packet(1_000, "(call $again)") + recursion));
    assert_eq!((number(&bad, "packets"), number(&bad, "faults")), (PACKETS - 1, 1));
    assert!(stderr.contains("bad: packet 1001: stack overflow"), "{stderr}");
}

#[test]
fn an_endless_loop_fails_its_call_and_after_three_the_module_is_unloaded() {
    let bench = Bench::new();
    // A packet call has fuel for 1 ms. Calls with more fuel than the 30 ms of these runs are ended by the time limit.
    bench.loses_packet_1000("(loop (br 0))", "the call used more fuel than its limit");

    let always = answering("(loop (br 0)) (i32.const 0)");
    let suffered = bench.run_bad(&always).takes_less_than(15);
    assert_eq!(
        (suffered.counts(["packets", "faults", "records"]), &suffered.bad["ended"]),
        ([0, 3, 0], &true.into())
    );
    let suffered = suffered.reports("bad: packet 1: the call used more fuel than its limit");
    suffered.reports("packet 3:").reports("the module was ended and saw no further packets");
    // Endless stops and ticks.
    let pass = answering("(i32.const 0)");
    let stop = format!(r#"{pass} (func (export "weir_stop") (param i64) (loop (br 0)))"#);
    let suffered = bench.run_bad(&stop);
    assert_eq!(suffered.counts(["packets", "faults", "records"]), [PACKETS, 1, 0]);
    suffered.reports("bad: stop: the call took longer than the limit");
    let tick = format!(r#"{pass} (func (export "weir_tick") (param i64 i64) (loop (br 0)))"#);
    let manifest = format!("tick = '1s'\n{}", MANIFEST.replace("NAME", "bad"));
    let path = write_as(bench.path(), "ticking", &tick, &manifest);
    let ended =
        bench.run(&["-m", path.to_str().unwrap()]).succeeds().reports("bad: tick: the call took longer");
    assert!(bench.is_good_unharmed());
    assert_eq!(
        number(module(&ended.json(), "bad"), "faults"),
        2,
        "the capture lasts three seconds: two ticks"
    );
}

/// Without clang 19 these runs are in Cranelift's code, too.
#[test]
fn endless_calls_end_in_code_of_llvm_and_harm_no_other_module() {
    let bench = Bench::new();
    let pass = answering("(i32.const 0)");
    for (name, body, faults) in [
        ("packets", answering("(loop (br 0)) (i32.const 0)"), 3),
        ("stop", format!(r#"{pass} (func (export "weir_stop") (param i64) (loop (br 0)))"#), 1),
        (
            "busy-stop",
            format!(
                r#"{pass} (func (export "weir_stop") (param i64)
                    (loop (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.const 1))) (br 0)))"#
            ),
            1,
        ),
    ] {
        let path = write(bench.path(), "bad", &body);
        let document = bench.run_in("llvm", &["-m", path.to_str().unwrap()]).json();
        assert!(bench.is_good_unharmed(), "{name}");
        assert_eq!(number(module(&document, "bad"), "faults"), faults, "{name}");
    }
}

#[test]
fn a_failing_or_endless_start_unloads_only_its_module() {
    let bench = Bench::new();
    let pass = answering("(i32.const 0)");
    for (start, says) in [
        (r#"(func (export "weir_start") (result i32) (loop (br 0)) (i32.const 0))"#, "the call took longer"),
        (r#"(func (export "_initialize") (loop (br 0)))"#, "the call took longer"),
        ("(func $s (loop (br 0))) (start $s)", "the call took longer"),
        ("(func $s (unreachable)) (start $s)", "`unreachable` executed"),
        (r#"(func (export "weir_start") (result i32) (i32.const 7))"#, "`weir_start` returned 7"),
        (r#"(data (i32.const 0x40000000) "x")"#, "memory access out of bounds"),
    ] {
        // A start has fuel for the 2 s of the profile.
        let suffered = bench.run_bad(&format!("{pass} {start}")).takes_less_than(15);
        assert_eq!(
            (suffered.counts(["packets", "faults", "records"]), &suffered.bad["ended"]),
            ([0, 1, 0], &true.into())
        );
        let suffered = suffered.reports(&format!("bad: start: {says}")).reports("the module was ended");
        suffered.reports("bad did not start");
    }
}

#[test]
fn a_strict_run_ends_at_the_first_fault_and_keeps_its_records() {
    let bench = Bench::new();
    for (body, fault, most) in [
        (at_packet(1_000, "(unreachable)"), "bad: packet 1001: `unreachable` executed", PACKETS),
        (format!("{} (func $s (unreachable)) (start $s)", answering("(i32.const 0)")), "bad: start: ", 0),
        (
            format!(
                r#"{} (func (export "weir_stop") (param i64) (unreachable))"#,
                answering("(i32.const 0)")
            ),
            "bad: stop: ",
            PACKETS,
        ),
    ] {
        let path = write(bench.path(), "bad", &body);
        let ended = bench.run(&["--strict", "-m", path.to_str().unwrap()]);
        let ended = ended.fails(3, &[fault, "the run ended there, as --strict asks"]);
        assert!(number(&ended.json()["capture"], "packets") <= most, "{}", ended.text());
        // The record files of a run that ended early are marked as unfinished.
        assert!(bench.records(GOOD[0]).iter().all(|(name, _)| name.ends_with(".part")));
    }
    bench.run(&["--strict"]).succeeds();
    assert!(bench.is_good_unharmed());
}

#[test]
fn memory_growth_is_limited_to_the_manifests_memory() {
    let bench = Bench::new();
    let suffered = bench.run_bad(&answering(
        "(loop (br_if 0 (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
         (drop (memory.grow (i32.const 60000)))
         (memory.fill (i32.const 0) (i32.const 1) (i32.mul (memory.size) (i32.const 65536)))
         (i32.const 0)",
    ));
    assert_eq!(suffered.counts(["packets", "faults", "memory_bytes"]), [PACKETS, 0, 2 << 20]);
    // The memory of all instances is limited by the manifest, whose value is limited too.
    let manifest = MANIFEST.replace("NAME", "bad").replace("2 MiB", "3 GiB");
    let path = write_as(bench.path(), "greedy", &answering("(i32.const 0)"), &manifest);
    bench
        .run(&["-m", path.to_str().unwrap()])
        .fails(1, &["greedy.wasm", "memory: must be an amount up to", "MiB"]);
}

#[test]
fn excess_records_are_dropped_and_counted() {
    let bench = Bench::new();
    let flood = r#"(func (export "weir_packet") (param $d i32) (result i32) (local $n i32)
        (local.set $n (i32.const 200))
        (loop (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8)))
              (br_if 0 (local.tee $n (i32.sub (local.get $n) (i32.const 1)))))
        (i32.const 0))"#;
    let suffered = bench.run_bad(flood);
    let dropped = PACKETS * (200 - 64);
    assert_eq!(suffered.counts(["packets", "records", "dropped_records"]), [PACKETS, PACKETS * 64, dropped]);
    assert_eq!(number(&suffered.bad, "faults"), 0);
    suffered.reports(&format!("bad: {dropped} records were over a limit and not taken"));
}

#[test]
fn excess_log_messages_are_dropped_and_counted() {
    let bench = Bench::new();
    let body = answering("(drop (call $log (i32.const 1) (i32.const 0) (i32.const 60000))) (i32.const 0)");
    let suffered = bench.run_bad(&format!(r#"{body} (data (i32.const 0) "a\1b[2J\0d\0ab")"#));
    let lines: Vec<_> =
        suffered.stderr.lines().filter(|line| line.starts_with("weir: bad warning: ")).collect();
    assert_eq!(lines.len(), 100);
    // Each message is one line without control characters.
    assert!(lines.iter().all(|line| line.len() < 8 * 512 && !line.contains('\x1b')), "{:?}", lines[0]);
    suffered.reports("bad: 2900 log lines were over the limit and not shown");
}

#[test]
fn an_expensive_pattern_fails_at_most_its_call() {
    let bench = Bench::new();
    // The longest accepted pattern of one letter, case-insensitive, matched against its worst-case text in every packet.
    let body = r#"
        (func (export "weir_start") (result i32) (local $n i32)
            (drop (memory.grow (i32.const 2)))
            (memory.fill (i32.const 4) (i32.const 97) (i32.const 65536))
            (i32.store (i32.const 0) (i32.const 65536))
            (loop (drop (call $find_compile (i32.const 0) (i32.const 65540) (i32.const 1)))
                  (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 20))))
            (i32.const 0))
        (func (export "weir_packet") (param i32) (result i32)
            (drop (call $find (i32.const 0) (i32.const 4) (i32.const 65535))) (i32.const 0))"#;
    let suffered = bench.run_bad(body).takes_less_than(15);
    // How many packets it processes depends on the speed of the machine.
    let [packets, faults, _] = suffered.counts(["packets", "faults", "records"]);
    assert!(packets == PACKETS && faults == 0 || suffered.bad["ended"] == true, "{:#}", suffered.bad);
    // Many patterns with common prefixes: the limits on a set are checked before it is compiled.
    let many = r#"
        (func (export "weir_start") (result i32) (local $n i32)
            (drop (memory.grow (i32.const 2)))
            (loop (i32.store8 (i32.mul (local.get $n) (i32.const 5)) (i32.const 1))
                  (br_if 0 (i32.lt_u (local.tee $n (i32.add (local.get $n) (i32.const 1))) (i32.const 1025))))
            (if (i32.ne (call $find_compile (i32.const 0) (i32.const 5125) (i32.const 0)) (i32.const -1)) (then (unreachable)))
            (i32.const 0))
        (func (export "weir_packet") (param i32) (result i32) (i32.const 0))"#;
    assert_eq!(bench.run_bad(many).counts(["packets", "faults", "records"]), [PACKETS, 0, 0]);
}

#[test]
fn all_of_thousands_of_traps_are_counted_and_three_are_described() {
    let bench = Bench::new();
    let suffered = bench.run_bad(&answering("(unreachable)"));
    assert_eq!(suffered.counts(["packets", "faults", "records"]), [0, PACKETS, 0]);
    assert_eq!(suffered.bad["ns_per_packet"], Value::Null);
    assert_eq!(suffered.stderr.matches("executed").count(), 3);
    let suffered = suffered.reports(&format!("bad: {} further calls were lost", PACKETS - 3));
    suffered.reports(&format!("bad: {PACKETS} packets were lost for this module only"));
}

#[test]
fn a_module_that_drops_all_packets_empties_the_output_and_other_modules_get_all_packets() {
    let bench = Bench::new();
    let output = bench.path().join("out.pcap");
    let drop = write(bench.path(), "bad", &answering("(i32.const 1)"));
    let write_packets = |module: &Path| {
        let ended = bench.run(&["-w", output.to_str().unwrap(), "-m", module.to_str().unwrap()]).succeeds();
        assert!(bench.is_good_unharmed());
        assert_eq!(counts(&ended.json())[0], PACKETS);
        read_pcap(&fs::read(&output).unwrap())
    };
    assert!(write_packets(&drop).is_empty());
    // A packet whose call faulted is not dropped.
    let lost = write(bench.path(), "lost", &answering("(unreachable)"));
    assert!(write_packets(&lost) == traffic(PACKETS));
}

#[test]
fn invalid_modules_are_refused_before_the_run() {
    let bench = Bench::new();
    let refused = |name: &str, bytes: &[u8], says: &[&str]| {
        let path = bench.path().join(name);
        fs::write(&path, bytes).unwrap();
        let path = path.to_str().unwrap();
        for (command, told) in [(bench.run(&["-m", path]), false), (run(["check", path]), true)] {
            let ended = command.fails(1, &[path]).fails(1, says);
            let words = ended.text().split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words.contains("refused Why: "), told, "{words}");
            assert_eq!(words.is_empty(), !told, "{words}");
            assert!(ended.stderr.starts_with("weir: "), "{}", ended.stderr);
        }
        assert!(!bench.path().join("out").exists(), "{name}: something was written");
    };
    let manifest = MANIFEST.replace("NAME", "bad");
    let good = text(&answering("(i32.const 0)"));
    let module = |text: &str| assemble(text, Some(manifest.as_bytes()));
    let with = |manifest: &str| assemble(&good, Some(manifest.as_bytes()));

    refused("text.wasm", b"int main(void)", &["not a WebAssembly module", "00 61 73 6d"]);
    refused("empty.wasm", b"", &["not a WebAssembly module"]);
    refused("cut.wasm", &module(&good)[..60], &["not valid WebAssembly at byte"]);
    refused("large.wasm", &vec![0; (8 << 20) + 1], &["larger than 8", "the most for a module"]);
    refused(
        "nothing.wasm",
        &module(&text("")),
        &["exactly one of `weir_packet`, `weir_batch`, `weir_stream`"],
    );
    let both = answering("(i32.const 0)")
        + r#"(func (export "weir_batch") (param i32 i64) (result i64) (i64.const 0))"#;
    refused(
        "both.wasm",
        &module(&text(&both)),
        &["exactly one of `weir_packet`, `weir_batch`, `weir_stream`"],
    );
    let wrong = r#"(func (export "weir_packet") (param i64) (result i32) (i32.const 0))"#;
    refused("wrong.wasm", &module(&text(wrong)), &["`weir_packet`", "i64", "must be", "i32"]);
    let import = |line: &str| module(&good.replace("(memory (export", &format!("{line} (memory (export")));
    refused(
        "import.wasm",
        &import(r#"(import "wasi_snapshot_preview1" "fd_write" (func (param i32)))"#),
        &["`wasi_snapshot_preview1.fd_write`", "does not offer"],
    );
    refused(
        "open.wasm",
        &import(r#"(import "weir" "open" (func (param i32)))"#),
        &["`weir.open`", "does not offer"],
    );
    refused(
        "type.wasm",
        &import(r#"(import "weir" "hash" (func (param i32)))"#),
        &["`weir.hash`", "but it is"],
    );
    let unexported = good.replace("(memory (export \"memory\") 1)", "(memory 1)");
    refused("memory.wasm", &module(&unexported), &["one memory of its own"]);
    refused("huge.wasm", &module(&good.replace("\"memory\") 1", "\"memory\") 60")), &["memory", "2 MiB"]);
    refused(
        "threads.wasm",
        &module(&good.replace("\"memory\") 1", "\"memory\") 1 2 shared")),
        &["not valid WebAssembly", "threads"],
    );

    refused("bare.wasm", &assemble(&good, None), &["manifest", "weir.manifest"]);
    let (bare, whole) = (assemble(&good, None), module(&good));
    refused("twice.wasm", &[&whole, &whole[bare.len()..]].concat(), &["two manifests"]);
    refused("binary.wasm", &assemble(&good, Some(&[0xff, 0xfe])), &["not UTF-8"]);
    refused("toml.wasm", &with("name = "), &["manifest cannot be read"]);
    refused("key.wasm", &with(&format!("memroy = '1 MiB'\n{manifest}")), &["memroy"]);
    refused("abi.wasm", &with(&manifest.replace("abi = 2", "abi = 9")), &["9"]);
    refused("twin.wasm", &with(&manifest.replace("'texts'", "'rows'")), &["`rows` is declared twice"]);
    for name in ["../../etc", "/tmp/x", "a/b", "..", "", "CON:", "a\tb", "-rf", "a b"] {
        let name = format!("{name:?}");
        refused("path.wasm", &with(&manifest.replace("'bad'", &name)), &["is not a name"]);
        refused("stream.wasm", &with(&manifest.replace("'rows'", &name)), &["is not a name"]);
    }
}

#[test]
fn an_invalid_parameter_is_a_usage_error() {
    let bench = Bench::new();
    let path = write(bench.path(), "bad", &answering("(i32.const 0)"));
    let path = path.to_str().unwrap();
    for (setting, says) in [
        ("sise=3", "there is no parameter `sise`; there is `size`, `text`"),
        ("size=many", "parameter `size`: `many` is not"),
        ("size=-1", "parameter `size`: `-1` is not"),
        ("size=101", "parameter `size`: 101 is outside"),
        ("size=1,2", "size"),
        ("oops", "`oops` in `-m"),
    ] {
        let module = format!("{path},{setting}");
        let ended = bench.run(&["-m", &module]).fails(2, &[says]);
        assert_eq!((ended.text(), ended.stderr.lines().count()), ("", 1), "{}", ended.stderr);
        run(["check", &module]).fails(2, &[says]);
    }
    bench.run(&["-m", &format!(r"{path},size=100,text=a\,b")]).succeeds();
}

#[test]
fn a_module_within_the_complexity_limits_compiles_and_one_beyond_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shape.wasm");
    let path = path.to_str().unwrap();
    for shape in ComplexityLimit::ALL {
        // 90 % of the limit, as the rest of the module counts too.
        let near = match shape {
            ComplexityLimit::Signature
            | ComplexityLimit::Tables
            | ComplexityLimit::Loops
            | ComplexityLimit::Targets => shape.maximum(),
            _ => shape.maximum() - shape.maximum() / 10,
        };
        fs::write(path, shapes::module(shape, near)).unwrap();
        let ended = run(["check", path]).succeeds();
        _ = writeln!(std::io::stderr(), "{near} {}: {:?} of processor time", shape.name(), ended.processor);
        fs::write(path, shapes::module(shape, shape.maximum() + shape.maximum() / 5 + 1)).unwrap();
        let ended = run(["check", path]).fails(1, &[shape.name(), "is the most that is sure to compile"]);
        assert!(!ended.stderr.contains("cannot be compiled"), "{shape:?}: {}", ended.stderr);
    }
}

#[test]
fn a_module_that_is_too_complex_is_refused_before_compilation() {
    // A few hundred kilobytes that would take the compiler minutes and gigabytes: many variables that stay alive across many loops.
    let bench = Bench::new();
    let locals = 6_000;
    let loops: String = (0..60_000)
        .map(|i| {
            let [a, b, c] = [i, i * 7, i * 13].map(|n| n % locals);
            format!(
                "(loop (br_if 0 (i32.eqz (local.tee $l{a} (i32.add (local.get $l{b}) (local.get $l{c}))))))"
            )
        })
        .collect();
    let variables: String = (0..locals).map(|i| format!("(local $l{i} i32)")).collect();
    let body = format!(
        r#"(func (export "weir_packet") (param i32) (result i32) {variables} {loops} (i32.const 0))"#
    );
    let path = write(bench.path(), "hard", &body);
    let ended = bench.run(&["-m", path.to_str().unwrap()]).fails(1, &["hard", ComplexityLimit::Flow.name()]);
    assert_eq!(ended.text(), "", "nothing ran");
}

#[test]
fn functions_with_a_million_nested_calls_are_compiled_without_inlining() {
    // Seven functions, each of which calls the next one thirty times: inlining would make 30^6 copies of the last one.
    let chain: String = (0..6)
        .map(|index| {
            let calls = format!("(call $f{})", index + 1).repeat(30);
            format!("(func $f{index} {calls})")
        })
        .collect();
    // Stores to one address produce no values, which are what the compiler counts.
    let last = format!("(func $f6 (local i32) {})", "(if (local.get 0) (then (nop)))".repeat(5_000));
    let body = format!(
        r#"{chain} {last} (func (export "weir_packet") (param i32) (result i32) (call $f0) (i32.const 0))"#
    );
    let folder = tempfile::tempdir().unwrap();
    run(["check", write(folder.path(), "bomb", &body).to_str().unwrap()]).succeeds();
}

#[test]
fn custom_sections_with_any_content_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let capture = folder.path().join("capture.pcap");
    fs::write(&capture, pcap(&traffic(PACKETS))).unwrap();
    let good =
        assemble(&text(&at_packet(1_000, "(unreachable)")), Some(MANIFEST.replace("NAME", "odd").as_bytes()));
    let path = folder.path().join("odd.wasm");
    for (name, contents) in [
        ("name", &b""[..]),
        ("name", &[0x01, 0xff, 0xff, 0xff, 0xff, 0x0f]),
        ("name", &[0x01, 0x03, 0x01, 0x00, 0x7f]),
        ("name", &[0x01, 0x04, 0x01, 0x00, 0x01, 0xff]),
        ("name", &[0x63, 0x01, 0x00]),
        ("producers", &[0xff, 0xff]),
        ("dylink.0", &[0xff; 9]),
        ("linking", &[0x02, 0xff]),
        ("reloc.CODE", &[0xff; 5]),
        ("metadata.code.branch_hint", &[0xff; 7]),
        ("target_features", &[0x7f]),
        ("core", &[0xff]),
        ("coremodules", &[0xff]),
        (".debug_line", &[0xff; 40]),
    ] {
        let mut section = vec![u8::try_from(name.len()).unwrap()];
        section.extend_from_slice(name.as_bytes());
        section.extend_from_slice(contents);
        let section = [&[0, u8::try_from(section.len()).unwrap()], &section[..]].concat();
        // As the first section, and as the last.
        for bytes in [[&good[..8], &section, &good[8..]].concat(), [&good[..], &section].concat()] {
            fs::write(&path, bytes).unwrap();
            let arguments = ["-r", capture.to_str().unwrap(), "-m", path.to_str().unwrap()];
            let ended = run(["run", "--json"].iter().chain(&arguments)).succeeds();
            let json = ended.json();
            let odd = module(&json, "odd");
            assert_eq!(
                (number(odd, "packets"), number(odd, "faults")),
                (PACKETS - 1, 1),
                "{name}: {contents:x?}"
            );
        }
    }
}

/// The process waits for its input here, so the privileges that it has dropped by now, it dropped before it read anything.
#[test]
#[cfg(target_os = "linux")]
fn the_compiler_process_is_confined_before_it_reads_the_module() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_weir"))
        .arg("compile-cranelift")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = format!("/proc/{}/status", child.id());
    let is_confined = || {
        let status = fs::read_to_string(&status).unwrap();
        let has =
            |line: &str| status.lines().any(|there| there.split_whitespace().eq(line.split_whitespace()));
        has("NoNewPrivs: 1") && has("Seccomp: 2") && has("CapPrm: 0000000000000000")
    };
    let confined = (0..30_000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        is_confined()
    });
    let is_there = child.try_wait().unwrap().is_none();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert!(confined && is_there, "it reads while it may still open files and execute programs");
}
