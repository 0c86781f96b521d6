//! Modules in the machine code of object files that another engine has compiled, beside the same modules in Cranelift's code.

use crate::native::engines;
use crate::support::{MANIFEST, Packets, all, alone, bytes, encode, memfd, values, wat};
use sha2::{Digest as _, Sha256};
use std::fmt::Debug;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use weir_abi::{ARENA_BASE, DESCRIPTOR_BYTES, DESCRIPTORS_BASE};
use weir_admission::Admitted;
use weir_sandbox::{
    Area, BackEnd, BatchInput, Call, CallStep, CheckMode, CodeWithdrawal, During, Engine, EngineOptions,
    FaultKind, FuelSlice, GivenObject, Instance, InstanceContext, InstanceCounters, IsolatedAccesses,
    LlvmUse, LoadError, LoadedModule, ObjectFailure, ObjectRefusal, Patch,
};
use weir_session::{MemoryReservation, NodeMemory, RecordOrder, Records};
use weir_units::{Bytes, Nanos, Timestamp};
use weir_verify::CpuFeatures;
use weir_wire::{LinkType, Meta, classify};

mod withdrawn;

const PAGE: u64 = 65_536;

/// An engine with Cranelift alone, one with clang, and one without any compiler.
struct Engines {
    cranelift: Engine,
    clang: Engine,
    bare: Engine,
}

impl Engines {
    /// Returns the engines; `None` if LLVM's code cannot be made or run here.
    fn new() -> Option<Self> {
        let [cranelift, clang] = engines(CheckMode::Admitted)?;
        Some(Self { cranelift, clang, bare: bare() })
    }

    /// Compiles a module for another engine.
    fn compile(&self, admitted: &Admitted, is_suspendable: bool) -> GivenObject {
        self.compile_for(admitted, is_suspendable, weir_native::cpu_features())
    }

    fn compile_for(&self, admitted: &Admitted, is_suspendable: bool, features: CpuFeatures) -> GivenObject {
        let compiled = self.clang.compile_object(admitted, is_suspendable, features).unwrap();
        GivenObject {
            object: compiled.object,
            features,
            isolated: compiled.isolated,
            text: Sha256::digest(compiled.text.as_bytes()).into(),
            stack_bytes: compiled.stack_bound,
        }
    }

    /// Loads a module twice: in Cranelift's code, and as a given object in the engine without a compiler.
    fn load(&self, admitted: &Admitted, is_suspendable: bool) -> [LoadedModule; 2] {
        let compiled = self.cranelift.compile(admitted.clone(), is_suspendable, &mut Nanos(0)).unwrap();
        let given = self.compile(admitted, is_suspendable);
        let (given, _) = load_given(&self.bare, admitted, is_suspendable, &given);
        assert_eq!((given.back_end(), given.why_not_llvm()), (BackEnd::Llvm, None));
        [self.cranelift.load_code(compiled).unwrap(), given]
    }

    /// Starts a module in both codes and both forms. Returns what `act` makes of the instances, which is the same for all.
    fn same<T: PartialEq + Debug>(
        &self,
        admitted: &Admitted,
        context: impl Fn() -> InstanceContext,
        act: impl Fn(&mut Instance) -> T,
    ) -> T {
        let mut results = Vec::new();
        for is_suspendable in [false, true] {
            let [cranelift, given] = self.load(admitted, is_suspendable);
            for (engine, module) in [(&self.cranelift, &cranelift), (&self.bare, &given)] {
                let mut instance = Instance::start_with(engine, module, context()).unwrap();
                Packets::new().map(&mut instance);
                results.push(act(&mut instance));
            }
        }
        let first = results.remove(0);
        results.iter().for_each(|result| assert_eq!(*result, first));
        first
    }
}

/// An engine that never compiles.
fn bare() -> Engine {
    let call_limit = Duration::from_millis(30);
    let options = EngineOptions { compiles: false, call_limit, ..EngineOptions::default() };
    Engine::new(options, None).unwrap()
}

/// Loads a given object, with the means to withdraw it.
fn load_given(
    engine: &Engine,
    admitted: &Admitted,
    is_suspendable: bool,
    given: &GivenObject,
) -> (LoadedModule, CodeWithdrawal) {
    let code = engine.take_object(admitted.clone(), is_suspendable, given, &mut Nanos(0)).unwrap();
    assert_eq!(code.has_other_code(), engine.compiles());
    let withdrawal = code.withdrawal().unwrap();
    (engine.load_code(code).unwrap(), withdrawal)
}

fn admit(text: &str) -> Admitted {
    Admitted::admit(bytes(text, MANIFEST), &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// Starts a loaded module over packets.
fn start(engine: &Engine, module: &LoadedModule) -> Instance {
    let mut instance = Instance::start(engine, module).unwrap();
    Packets::new().map(&mut instance);
    instance
}

fn shipped(name: &str) -> Admitted {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/modules");
    let wasm = std::fs::read(path.join(name).join(format!("{name}.wasm"))).unwrap();
    Admitted::admit(wasm, &[]).unwrap()
}

/// The beginning of the sample capture, in memory files.
struct Capture {
    packets: (OwnedFd, usize),
    descriptors: (OwnedFd, usize),
    times: Vec<Timestamp>,
}

impl Capture {
    const BATCHES: usize = 30;

    fn read() -> Self {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab/sample/sample.pcap");
        let file = std::fs::read(path).unwrap();
        // The magic number of little-endian captures with nanoseconds.
        assert_eq!(file[..4], 0xa1b2_3c4d_u32.to_le_bytes());
        let number = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
        let (mut arena, mut descriptors, mut times, mut at) = (Vec::new(), Vec::new(), Vec::new(), 24);
        for index in 0..Self::BATCHES * 64 {
            let [seconds, nanos, cap_len, wire_len] = [0, 4, 8, 12].map(|field| number(at + field));
            let packet = &file[at + 16..][..cap_len as usize];
            let ts = Timestamp(u64::from(seconds) * Nanos::SECOND.0 + u64::from(nanos));
            let data = ARENA_BASE + u32::try_from(arena.len()).unwrap();
            let (link_type, number) = (LinkType::Ethernet, index as u64);
            let meta = Meta { ts, cap_len, wire_len, link_type, interface: 0, number, data };
            descriptors.extend(encode(&classify(packet, &meta).unwrap()));
            arena.extend_from_slice(packet);
            times.push(ts);
            at += 16 + cap_len as usize;
        }
        let file = |bytes: Vec<u8>| (memfd(&bytes), bytes.len().next_multiple_of(4096));
        Self { packets: file(arena), descriptors: file(descriptors), times }
    }

    fn map<'a>(&'a self, instance: &mut Instance) {
        let area = |(file, len): &'a (OwnedFd, usize)| Area {
            fd: file.as_fd(),
            offset: 0,
            len: *len,
            is_fixed: true,
        };
        instance.map_descriptors(area(&self.descriptors)).unwrap();
        instance.map_packets(area(&self.packets)).unwrap();
    }
}

/// The observable effects of a module.
#[derive(Clone, Debug, Default, PartialEq)]
struct Effects {
    drops: Vec<u64>,
    unserved: u64,
    rows: Vec<Row>,
    frames: Vec<Row>,
    patches: Vec<Patch>,
    log: Vec<String>,
    faults: Vec<(FaultKind, During)>,
    counters: InstanceCounters,
    memory: Bytes,
}

/// A record: its order, stream, row and strings.
type Row = (RecordOrder, u16, Vec<u8>, Vec<u8>);

fn rows(records: &Records) -> Vec<Row> {
    let row = |record: weir_session::Record<'_>| {
        (record.order, record.stream, record.row.to_vec(), record.tail.to_vec())
    };
    records.iter().map(row).collect()
}

impl Effects {
    fn take(&mut self, instance: &mut Instance) {
        self.unserved |= instance.take_unserved();
        self.rows.extend(rows(&instance.take_records(Records::default())));
        self.frames.extend(rows(&instance.take_frames(Records::default())));
        self.patches.extend(instance.take_patches());
        self.log.extend(instance.take_log().into_iter().map(|line| line.text));
        let faults = instance.incidents().iter();
        self.faults = faults.map(|incident| (incident.fault.kind, incident.during)).collect();
        (self.counters, self.memory) = (instance.counters(), instance.memory());
    }
}

/// Makes a call in slices of this much fuel, if its module is suspendable. Returns the dropped packets and the number of
/// suspensions.
fn in_slices(instance: &mut Instance, call: Call, fuel: u64) -> (u64, usize) {
    let (slice, mut suspensions) = (FuelSlice { fuel, until: None }, 0);
    let mut step = instance.begin(call, slice);
    loop {
        match step {
            CallStep::Done(drops) => return (drops, suspensions),
            CallStep::Suspended => (suspensions, step) = (suspensions + 1, instance.resume(slice)),
        }
    }
}

/// Runs a module over the capture: for each batch a tick, a sweep of its streams and the packets, and at the end its stop.
fn over_capture(engine: &Engine, module: &LoadedModule, capture: &Capture) -> (Effects, usize) {
    let mut instance = Instance::start(engine, module).unwrap();
    assert!(!instance.has_ended(), "{:?}", instance.incidents());
    let back_end = instance.back_end();
    assert_eq!(back_end, module.back_end());
    capture.map(&mut instance);
    let (mut effects, mut suspensions) = (Effects::default(), 0);
    for batch in 0..Capture::BATCHES {
        let before = u32::try_from(64 * batch).unwrap();
        let now = capture.times[64 * batch];
        let descriptors = DESCRIPTORS_BASE + before * u32::try_from(DESCRIPTOR_BYTES).unwrap();
        let batch = BatchInput { descriptors, mask: u64::MAX, first: before };
        let sweep = instance.has_streams().then_some(Call::Sweep { now, periods: 1, before });
        let calls = [Some(Call::Tick { now, periods: 1, before }), sweep, Some(Call::Batch(batch))];
        for call in calls.into_iter().flatten() {
            let (drops, more) = in_slices(&mut instance, call, 20_000);
            suspensions += more;
            effects.drops.push(drops);
            effects.take(&mut instance);
        }
    }
    instance.stop(*capture.times.last().unwrap());
    effects.take(&mut instance);
    assert_eq!(instance.back_end(), back_end);
    (effects, suspensions)
}

#[test]
fn shipped_modules_compute_the_same_in_given_code() {
    let Some(engines) = Engines::new() else { return };
    let capture = Capture::read();
    let mut suspensions = 0;
    for name in ["dns", "rtt", "trajectory", "http", "talkers", "dscp-mark"] {
        for is_suspendable in [false, true] {
            let [cranelift, given] = engines.load(&shipped(name), is_suspendable);
            assert_eq!(given.is_suspendable(), is_suspendable);
            let (expected, _) = over_capture(&engines.cranelift, &cranelift, &capture);
            let (effects, more) = over_capture(&engines.bare, &given, &capture);
            assert_eq!(effects, expected, "{name}, {is_suspendable}");
            assert_eq!(effects.counters.packets, 64 * Capture::BATCHES as u64, "{name}");
            assert!(effects.faults.is_empty(), "{name}: {:?}", effects.faults);
            assert!(is_suspendable || more == 0, "{name}");
            suspensions += more;
            assert!(!effects.rows.is_empty() || !effects.patches.is_empty(), "{name}");
        }
    }
    assert!(suspensions > 100, "{suspensions}");
}

/// Code for each level of processors computes the same.
#[test]
fn code_for_older_processors_is_taken_too() {
    let Some(engines) = Engines::new() else { return };
    let (capture, admitted) = (Capture::read(), shipped("rtt"));
    let object = |features| engines.compile_for(&admitted, true, features);
    let [old, own] = [CpuFeatures::Baseline, weir_native::cpu_features()].map(object);
    let [old, own] = [old, own].map(|given| {
        let (module, _) = load_given(&engines.bare, &admitted, true, &given);
        (over_capture(&engines.bare, &module, &capture).0, given.object)
    });
    assert_eq!(old.0, own.0);
    assert_eq!(old.1 == own.1, weir_native::cpu_features() == CpuFeatures::Baseline);
}

/// Grows the memory by the pages that the data state for each packet, and emits the answer and the size then, in pages. The
/// answer -1 is 0xffff_ffff. The manifest allows this many pages.
fn grower(pages_max: u64, by: &[u32]) -> Admitted {
    let data: String =
        by.iter().flat_map(|pages| pages.to_le_bytes()).map(|byte| format!("\\{byte:02x}")).collect();
    let body = format!(
        r#"(data (i32.const 256) "{data}")
        (func (export "weir_packet") (param $d i32) (result i32) (local $answer i32)
            (local.set $answer (memory.grow (i32.load offset=256
                (i32.shl (i32.load offset=60 (local.get $d)) (i32.const 2)))))
            ;; The last byte of the memory is writable, and those of other packets are kept.
            (i32.store8 (i32.sub (i32.shl (memory.size) (i32.const 16)) (i32.const 1)) (i32.const 7))
            (i64.store (i32.const 64) (i64.or (i64.shl (i64.extend_i32_u (local.get $answer)) (i64.const 32))
                (i64.extend_i32_u (memory.size))))
            (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))"#
    );
    let manifest = MANIFEST.replace("2 MiB", &format!("{} KiB", 64 * pages_max));
    Admitted::admit(bytes(&wat(&body), &manifest), &[]).unwrap_or_else(|error| panic!("{error}"))
}

/// Answers of `memory.grow` and sizes.
fn growth(instance: &mut Instance, packets: usize) -> (Vec<(i32, u64)>, Bytes) {
    assert_eq!(instance.run(BatchInput { mask: (1 << packets) - 1, ..all() }), 0);
    assert!(instance.incidents().is_empty(), "{:?}", instance.incidents());
    let answer = |value: u64| (u32::try_from(value >> 32).unwrap().cast_signed(), value & 0xffff_ffff);
    (values(instance).into_iter().map(answer).collect(), instance.memory())
}

#[test]
fn memory_grows_up_to_the_ceiling_of_the_manifest_and_no_further() {
    let Some(engines) = Engines::new() else { return };
    let by = [0, 1, 0, 2, 9, 1, 1, 0, u32::MAX, 65_536, 0x7fff_ffff];
    let found =
        engines.same(&grower(5, &by), InstanceContext::default, |instance| growth(instance, by.len()));
    let no = (-1, 5);
    let expected = [(1, 1), (1, 2), (2, 2), (2, 4), (-1, 4), (4, 5), no, (5, 5), no, no, no];
    assert_eq!(found, (expected.to_vec(), Bytes(5 * PAGE)));
}

#[test]
fn memory_grows_within_the_memory_of_the_session() {
    let Some(engines) = Engines::new() else { return };
    let node = NodeMemory::new(Bytes(100 * PAGE));
    let reservation =
        |pages| MemoryReservation::new(&node, Bytes(pages * PAGE), Bytes(pages * PAGE)).unwrap();
    let memory = reservation(4);
    let context = || InstanceContext { memory: Some(Arc::clone(&memory)), ..InstanceContext::default() };
    let by = [1, 4, 1, 1, 1, 0];
    let found =
        engines.same(&grower(6, &by), context, |instance| (growth(instance, by.len()), memory.state().used));
    let expected = vec![(1, 2), (-1, 2), (2, 3), (3, 4), (-1, 4), (4, 4)];
    assert_eq!(found, ((expected, Bytes(4 * PAGE)), Bytes(4 * PAGE)));
    assert_eq!(memory.state().used, Bytes(0), "instances that are dropped give their memory back");
    // A growth beyond the manifest's ceiling takes nothing from the session.
    let memory = reservation(20);
    let context = || InstanceContext { memory: Some(Arc::clone(&memory)), ..InstanceContext::default() };
    let found = engines
        .same(&grower(3, &[1, 7, 1]), context, |instance| (growth(instance, 3).0, memory.state().used));
    assert_eq!(found, (vec![(1, 2), (-1, 2), (2, 3)], Bytes(3 * PAGE)));
    // A session without a page starts no instance.
    let memory = MemoryReservation::new(&node, Bytes(PAGE - 1), Bytes(PAGE - 1)).unwrap();
    for module in engines.load(&grower(3, &[]), false).iter().zip([&engines.cranelift, &engines.bare]) {
        let context = InstanceContext { memory: Some(Arc::clone(&memory)), ..InstanceContext::default() };
        let error = Instance::start_with(module.1, module.0, context).unwrap_err();
        assert!(matches!(error, LoadError::Memory { wanted: Bytes(PAGE), .. }), "{error}");
    }
    assert_eq!(memory.state().used, Bytes(0));
}

#[test]
fn bulk_operations_end_at_the_end_of_memory() {
    let Some(engines) = Engines::new() else { return };
    // The third packet grows the memory to two pages.
    let operations = [
        ("(memory.fill (i32.const 65535) (i32.const 0x1aa) (i32.const 1))", true),
        ("(memory.fill (i32.const 65535) (i32.const 0xbb) (i32.const 2))", false),
        ("(memory.fill (i32.const 65536) (i32.const 0xcc) (i32.const 0))", true),
        ("(memory.fill (i32.const 65537) (i32.const 0xcc) (i32.const 0))", false),
        ("(memory.fill (i32.const -1) (i32.const 0xcc) (i32.const 1))", false),
        ("(memory.fill (i32.const 100) (i32.const 0xdd) (i32.const -1))", false),
        ("(memory.copy (i32.const 1000) (i32.const 65534) (i32.const 2))", true),
        ("(memory.copy (i32.const 1000) (i32.const 65534) (i32.const 3))", false),
        ("(memory.copy (i32.const 65534) (i32.const 300) (i32.const 3))", false),
        ("(memory.copy (i32.const 65536) (i32.const 65536) (i32.const 0))", true),
        ("(memory.copy (i32.const 65537) (i32.const 0) (i32.const 0))", false),
        ("(memory.copy (i32.const 0) (i32.const 65537) (i32.const 0))", false),
        ("(memory.copy (i32.const 302) (i32.const 300) (i32.const 6))", true),
        ("(memory.copy (i32.const 300) (i32.const 303) (i32.const 6))", true),
        ("(drop (memory.grow (i32.const 1)))", true),
        ("(memory.fill (i32.const 65535) (i32.const 0xbb) (i32.const 2))", true),
        ("(memory.fill (i32.const 131071) (i32.const 0xbb) (i32.const 2))", false),
        ("(memory.copy (i32.const 131070) (i32.const 300) (i32.const 2))", true),
        ("(memory.copy (i32.const 131071) (i32.const 300) (i32.const 2))", false),
    ];
    let cases: String = operations
        .iter()
        .enumerate()
        .map(|(number, (code, _))| {
            format!("(if (i32.eq (local.get $number) (i32.const {number})) (then {code}))\n")
        })
        .collect();
    let body = format!(
        r#"(data (i32.const 300) "abcdefghijklm")
        (func (export "weir_packet") (param $d i32) (result i32) (local $number i32)
            (local.set $number (i32.load offset=60 (local.get $d)))
            {cases}
            (i64.store (i32.const 64) (i64.extend_i32_u (local.get $number)))
            (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
        (func (export "weir_stop") (param i64)
            (i64.store (i32.const 64) (i64.const 0))
            (i64.store (i32.const 64) (call $hash (i32.const 0) (i32.const 131072) (i64.const 0)))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8))))"#
    );
    let found = engines.same(&admit(&wat(&body)), InstanceContext::default, |instance| {
        let mut faults = Vec::new();
        // A batch for each packet, because only the first faults of an instance are described.
        for number in 0..operations.len() {
            instance.run(BatchInput { mask: 1 << number, ..all() });
        }
        faults.extend(instance.incidents().iter().map(|incident| incident.fault.kind));
        let done = values(instance);
        instance.stop(Timestamp(1));
        let counters = instance.counters();
        (done, values(instance), faults, counters.faults, counters.lost)
    });
    let (done, contents, faults, ..) = found;
    let expected: Vec<u64> =
        (0_u64..).zip(&operations).filter(|(_, (_, fits))| *fits).map(|(n, _)| n).collect();
    assert_eq!(done, expected);
    assert_eq!(contents.len(), 1);
    assert!(faults.len() == 8 && faults.iter().all(|kind| *kind == FaultKind::OutOfBounds), "{faults:?}");
}

/// Emits the bytes at addresses from the first to the last, eight at a time.
fn emit_bytes(addresses: &[u32]) -> String {
    let emit = |at: &u32| {
        format!(
            "(i64.store (i32.const 64) (i64.load (i32.const {at}))) (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))"
        )
    };
    let emits: Vec<String> = addresses.iter().map(emit).collect();
    format!(r#"(func (export "weir_packet") (param $d i32) (result i32) {} (i32.const 1))"#, emits.join("\n"))
}

#[test]
fn data_segments_are_written_in_their_order() {
    let Some(engines) = Engines::new() else { return };
    let body = format!(
        r#"(data (i32.const 200) "abcdefgh") (data (i32.const 202) "XY") (data (i32.const 203) "Z")
        (data (i32.const 65535) "e") (data (i32.const 65536) "") (data (i32.const 0) "") {}"#,
        emit_bytes(&[200, 208, 65_528])
    );
    let found = engines.same(&admit(&wat(&body)), InstanceContext::default, |instance| {
        let drops = instance.run(BatchInput { mask: 1, ..all() });
        (drops, values(instance), instance.memory(), instance.counters())
    });
    let number = |text: &[u8; 8]| u64::from_le_bytes(*text);
    let expected = vec![number(b"abXZefgh"), 0, number(b"\0\0\0\0\0\0\0e")];
    assert_eq!((found.0, found.1, found.2), (1, expected, Bytes(PAGE)));
}

#[test]
fn a_data_segment_that_does_not_fit_ends_the_start() {
    let Some(engines) = Engines::new() else { return };
    let long = "x".repeat(100);
    let node = NodeMemory::new(Bytes(100 * PAGE));
    let memory = MemoryReservation::new(&node, Bytes(10 * PAGE), Bytes(10 * PAGE)).unwrap();
    let context = || InstanceContext { memory: Some(Arc::clone(&memory)), ..InstanceContext::default() };
    for segment in [
        r#"(data (i32.const 65535) "ab")"#.to_owned(),
        r#"(data (i32.const 65537) "")"#.to_owned(),
        r#"(data (i32.const -1) "a")"#.to_owned(),
        format!(r#"(data (i32.const 200) "fits") (data (i32.const 65450) "{long}")"#),
    ] {
        let body = format!("{segment} {}", emit_bytes(&[200]));
        let (found, used) = engines.same(&admit(&wat(&body)), context, |instance| {
            assert!(instance.has_ended());
            let mut effects = Effects::default();
            effects.drops.push(instance.run(BatchInput { mask: 0b101, ..all() }));
            instance.tick(Timestamp(1), 1, 0);
            instance.stop(Timestamp(1));
            effects.take(instance);
            assert!(instance.is_stopped());
            (effects, memory.state().used)
        });
        assert_eq!(found.faults, [(FaultKind::OutOfBounds, During::Start)], "{segment}");
        assert_eq!((found.unserved, found.drops, found.rows.len()), (0b101, vec![0], 0), "{segment}");
        assert_eq!((found.counters.faults, used), (1, Bytes(PAGE)), "{segment}");
    }
}

/// The signal handlers of traps belong to the process. Here given code is the first to trap.
#[test]
fn faults_are_the_same_in_given_code() {
    if !alone("given::faults_are_the_same_in_given_code") {
        return;
    }
    let Some(engines) = Engines::new() else { return };
    let causes = [
        ("(unreachable)", FaultKind::Unreachable),
        ("(i32.load (i32.const 0x30000000))", FaultKind::OutOfBounds),
        ("(i32.store (local.get $d) (i32.const 1)) (i32.const 0)", FaultKind::OutOfBounds),
        ("(i32.load (i32.const 65536))", FaultKind::OutOfBounds),
        ("(i32.div_u (i32.const 1) (i32.load8_u (i32.const 9000)))", FaultKind::Arithmetic),
        ("(call $deep (i32.const 100000000))", FaultKind::StackOverflow),
        (
            "(call $emit (i32.const 0) (i32.const 65530) (i32.const 8))",
            FaultKind::WildPointer { function: "emit" },
        ),
    ];
    for (code, kind) in causes {
        let body = format!(
            r#"(func $deep (param i32) (result i32)
                (if (result i32) (i32.eqz (local.get 0)) (then (i32.const 0)) (else
                    (i32.add (i32.const 1) (call $deep (i32.sub (local.get 0) (i32.const 1)))))))
            (func $fails (param $d i32) (result i32) {code})
            (func (export "weir_packet") (param $d i32) (result i32)
                (if (i32.and (i32.load offset=60 (local.get $d)) (i32.const 1)) (then
                    (drop (call $fails (local.get $d)))))
                (i32.const 1))"#
        );
        let admitted = admit(&wat(&body));
        let [cranelift, given] = engines.load(&admitted, false);
        let effects = [(&engines.bare, &given), (&engines.cranelift, &cranelift)].map(|(engine, module)| {
            let mut instance = start(engine, module);
            let mut effects = Effects::default();
            effects.drops.push(instance.run(BatchInput { mask: 0b1111, ..all() }));
            effects.take(&mut instance);
            effects
        });
        assert_eq!(effects[0], effects[1], "{code}");
        assert_eq!((effects[0].drops[0], effects[0].unserved), (0b0101, 0b1010), "{code}");
        assert_eq!(effects[0].faults, [(kind, During::Packet(1)), (kind, During::Packet(3))], "{code}");
    }
}

/// A module that only counts packets.
fn plain() -> String {
    wat(r#"(func (export "weir_packet") (param $d i32) (result i32)
        (i32.store (i32.const 64) (i32.add (i32.load (i32.const 64)) (i32.load offset=40 (local.get $d))))
        (i32.const 0))"#)
}

/// The reason why an object is not taken.
fn refusal(engine: &Engine, admitted: &Admitted, given: &GivenObject) -> ObjectRefusal {
    match engine.take_object(admitted.clone(), false, given, &mut Nanos(0)) {
        Err(LoadError::Object(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_object_of_another_text_or_for_other_processors_is_refused() {
    let Some(engines) = Engines::new() else { return };
    let admitted = admit(&plain());
    let good = engines.compile(&admitted, false);
    let other = grower(5, &[1]);
    for engine in [&engines.bare, &engines.cranelift] {
        let refused = |given: &GivenObject| refusal(engine, &admitted, given);
        assert!(engine.take_object(admitted.clone(), false, &good, &mut Nanos(0)).is_ok());
        let mut changed = good.clone();
        changed.text[31] ^= 1;
        let error = refused(&changed);
        assert!(matches!(error, ObjectRefusal::Text), "{error}");
        assert!(error.to_string().starts_with("its machine code was made of another text"), "{error}");
        // Objects of another module, and of this module in another form.
        assert!(matches!(refused(&engines.compile(&other, false)), ObjectRefusal::Text));
        assert!(matches!(refused(&engines.compile(&admitted, true)), ObjectRefusal::Text));
        let isolated = GivenObject { isolated: IsolatedAccesses::All, ..good.clone() };
        assert!(matches!(refused(&isolated), ObjectRefusal::Text));
        // No machine has the features of this level.
        let error = refused(&GivenObject { features: CpuFeatures::V3, ..good.clone() });
        assert!(matches!(error, ObjectRefusal::Features), "{error}");
        assert_eq!(
            error.to_string(),
            "its machine code is for processors with instructions that this one lacks"
        );
    }
    // Code of another module that is said to be of this one is for the signer to answer for. It computes something else, in the
    // same sandbox.
    let lie = GivenObject { text: good.text, ..engines.compile(&admit(&wat(&emit_bytes(&[0]))), false) };
    let mut instance = start(&engines.bare, &load_given(&engines.bare, &admitted, false, &lie).0);
    assert_eq!(instance.run(BatchInput { mask: 0b11, ..all() }), 0b11);
    let unsupported = r#"(table 1 funcref)
        (func (export "weir_packet") (param $d i32) (result i32) (ref.is_null (ref.null func)))"#;
    let error = refusal(&engines.bare, &admit(&wat(unsupported)), &good);
    assert!(matches!(error, ObjectRefusal::Module(_)), "{error}");
    let says = error.to_string();
    assert!(says.starts_with("it has no machine code of LLVM: `RefNull` in function"), "{says}");
}

#[test]
fn code_that_is_not_safe_is_refused_with_what_the_verifier_saw() {
    let Some(engines) = Engines::new() else { return };
    let admitted = admit(&plain());
    let good = engines.compile(&admitted, false);
    let rewritten = engines.bare.rewritten(&admitted).unwrap();
    let lowered = weir_lower::lower(&rewritten).unwrap();
    let linked = weir_lower::link(&good.object, &lowered, weir_native::CODE_MAX).unwrap();
    let code = &linked.image.code;
    // A part of the code that no relocation changes, with an access by the segment GS.
    let find = |part: &[u8]| good.object.windows(part.len()).position(|window| window == part);
    let (gs, at) = (0..code.len() - 8)
        .filter(|at| code[*at] == 0x65)
        .find_map(|at| Some((at, find(&code[at..at + 8])?)))
        .unwrap();
    let mut flipped = good.clone();
    // DS, whose addresses are those of this process.
    flipped.object[at] = 0x3e;
    let error = refusal(&engines.bare, &admitted, &flipped);
    assert!(matches!(error, ObjectRefusal::Code(_)), "{error}");
    let says = error.to_string();
    let expected = "its machine code is not used: the verifier rejects the code: the machine code is not proved safe in ";
    assert!(says.starts_with(expected), "{says}");
    assert!(says.contains(&format!("offset {gs:#x}: ")), "{says}");
    // Any other byte: the code is refused, or it is safe. Both ways the engine lives.
    let (mut taken, mut refused) = (0, 0);
    for byte in 0..code.len().min(400) {
        let mut flipped = good.clone();
        let Some(at) = find(&code[byte..(byte + 8).min(code.len())]) else { continue };
        flipped.object[at] ^= 0x10;
        match engines.bare.take_object(admitted.clone(), false, &flipped, &mut Nanos(0)) {
            Ok(_) => taken += 1,
            Err(LoadError::Object(ObjectRefusal::Code(_))) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    assert!(refused > taken, "{refused} refused, {taken} taken");
}

#[test]
fn files_that_are_no_objects_are_refused() {
    let Some(engines) = Engines::new() else { return };
    let admitted = admit(&plain());
    let good = engines.compile(&admitted, false);
    let refused = |object: &[u8]| {
        let error =
            refusal(&engines.bare, &admitted, &GivenObject { object: object.to_vec(), ..good.clone() });
        assert!(matches!(error, ObjectRefusal::Code(_)), "{error}");
        error.to_string()
    };
    for bytes in [&b""[..], b"\x7fELF", b"no object", &[0; 4096], admitted.bytes()] {
        let says = refused(bytes);
        assert!(says.starts_with("its machine code is not used: not a"), "{says}");
    }
    let says = refused(&std::fs::read(std::env::current_exe().unwrap()).unwrap());
    assert!(says.contains("not a relocatable object file for x86-64"), "{says}");
    for len in (0..good.object.len() - 1).step_by(37) {
        if engines
            .bare
            .take_object(
                admitted.clone(),
                false,
                &GivenObject { object: good.object[..len].to_vec(), ..good.clone() },
                &mut Nanos(0),
            )
            .is_ok()
        {
            // Only the sections of no interest are cut.
            assert!(len > good.object.len() / 2, "{len}");
        }
    }
}

#[test]
fn an_engine_without_a_compiler_says_so() {
    let engine = bare();
    assert!(!engine.compiles());
    let is_told = |says: &str| {
        assert!(says.starts_with("this weir has no compiler: it runs only modules in bundles"), "{says}");
    };
    for suspendable in [false, true] {
        let error = match suspendable {
            true => engine.load_suspendable(admit(&plain())).unwrap_err(),
            false => engine.load(admit(&plain())).unwrap_err(),
        };
        assert!(matches!(error, LoadError::NoCompiler), "{error}");
        is_told(&error.to_string());
    }
    let features = weir_native::cpu_features();
    let error = engine.compile_object(&admit(&plain()), false, features).unwrap_err();
    assert!(matches!(error, ObjectFailure::NoCompiler(_)), "{error}");
    is_told(&error.to_string());
    // Nor with LLVM switched on.
    let options = EngineOptions { compiles: false, llvm: LlvmUse::AtLoad, ..EngineOptions::default() };
    let engine = Engine::new(options, None).unwrap();
    assert!(matches!(engine.load(admit(&plain())), Err(LoadError::NoCompiler)));
    if weir_native::is_supported() {
        is_told(engine.why_not_llvm().unwrap());
    }
}
