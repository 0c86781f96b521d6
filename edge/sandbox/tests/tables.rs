//! Named tables: what a module sees of the tables that it reads, and what it can do by publishing; honest and
//! hostile.

use crate::support::options;
use crate::support::{MANIFEST, Packets, all, alone, bytes, emitting, engine, values, wat};
use std::sync::{Arc, Mutex};
use weir_abi::{TABLES_BASE, code, limit, table};
use weir_admission::{Admitted, CalibratedProfile, Profile, Tier};
use weir_sandbox::{
    BatchInput, Call, CallStep, CheckMode, Engine, EngineOptions, FaultKind, FuelSlice, Instance,
    InstanceContext, TablePublisher, TableVersion,
};
use weir_units::Nanos;

/// Two tables that the module reads, with a published one between them.
const TABLES: &str = "[[table]]\nname = 'first'\naccess = 'read'\nbytes = '8 KiB'\n\
    [[table]]\nname = 'own'\naccess = 'publish'\nbytes = '100 B'\n\
    [[table]]\nname = 'second'\naccess = 'read'\nbytes = '100 B'\n";
const FIRST: u32 = TABLES_BASE;
const SECOND: u32 = TABLES_BASE + table::WINDOW_STEP;
const PUBLISH: &str = r#"(import "weir" "publish" (func $publish (param i32 i32 i32) (result i32)))"#;

fn module(body: &str) -> Vec<u8> {
    let text = wat(body).replacen("(memory ", &format!("{PUBLISH} (memory "), 1);
    bytes(&text, &format!("{MANIFEST}{TABLES}"))
}

fn started_with(engine: &Engine, body: &str, context: InstanceContext) -> Instance {
    let program = engine.load(Admitted::admit(module(body), &[]).unwrap_or_else(|e| panic!("{e}"))).unwrap();
    let mut instance = Instance::start_with(engine, &program, context).unwrap();
    Packets::new().map(&mut instance);
    instance
}

fn started(body: &str) -> Instance {
    started_with(&engine(), body, InstanceContext::default())
}

fn version(number: u64, bytes: &[u8]) -> TableVersion {
    TableVersion::new(number, bytes).unwrap()
}

/// Runs one packet.
fn packet(instance: &mut Instance) {
    instance.run(BatchInput { mask: 1, ..all() });
}

/// The result of a load in the next packet; nothing if it traps.
fn loaded(instance: &mut Instance) -> Option<u64> {
    packet(instance);
    values(instance).first().copied()
}

/// A packet function that emits the result of this load.
fn loading(load: &str) -> String {
    emitting(&format!("({load})"))
}

/// A load from an address that is unknown at compile time.
fn at(address: u32) -> String {
    format!("(i32.add (i32.const {}) (i32.load offset=60 (local.get $d)))", address.cast_signed())
}

#[test]
fn a_module_reads_the_mapped_version_or_an_empty_header() {
    let sum = |window: u32| {
        let at = |offset: u32| (window + offset).cast_signed();
        format!(
            "(i64.add (i64.add (i64.load (i32.const {})) (i64.mul (i64.const 1000) (i64.load32_u (i32.const {}))))
                (i64.mul (i64.const 1000000) (i64.load8_u (i32.const {}))))",
            at(0),
            at(8),
            at(64)
        )
    };
    let body =
        emitting(&format!("(i64.add (i64.mul (i64.const 1000000000) {}) {})", sum(SECOND), sum(FIRST)));
    let mut instance = started(&body);
    assert_eq!(loaded(&mut instance), Some(0), "nothing is there yet");
    assert!(instance.map_table(0, Some(&version(1, &[7; 5000]))).unwrap());
    assert_eq!(loaded(&mut instance), Some(7_000_000 + 5000 * 1000 + 1));
    assert!(instance.map_table(2, Some(&version(3, &[9; 100]))).unwrap());
    assert_eq!(loaded(&mut instance), Some(9_100_003 * 1_000_000_000 + 7_000_000 + 5000 * 1000 + 1));
    assert!(instance.map_table(0, Some(&version(2, b""))).unwrap());
    assert_eq!(loaded(&mut instance), Some(9_100_003 * 1_000_000_000 + 2));
    assert!(instance.map_table(2, None).unwrap() && instance.map_table(0, None).unwrap());
    assert_eq!(loaded(&mut instance), Some(0));
    assert_eq!(instance.counters().faults, 0);
}

#[test]
fn initial_tables_are_visible_to_the_start() {
    let body = format!(
        r#"(func (export "weir_packet") (param i32) (result i32) (i32.const 0))
        (func (export "weir_start") (result i32) (i32.load8_u (i32.const {})))"#,
        (FIRST + 64).cast_signed()
    );
    let tables = vec![Some(Arc::new(version(1, &[5])))];
    let instance = started_with(&engine(), &body, InstanceContext { tables, ..InstanceContext::default() });
    assert_eq!(instance.incidents()[0].fault.kind, FaultKind::Declined(5));
}

#[test]
fn a_version_longer_than_declared_reads_as_absent() {
    if !alone("tables::a_version_longer_than_declared_reads_as_absent") {
        return;
    }
    let mut instance = started(&loading(&format!("i64.load (i32.const {})", SECOND.cast_signed())));
    assert!(instance.map_table(2, Some(&version(1, &[1; 100]))).unwrap());
    assert_eq!(loaded(&mut instance), Some(1));
    assert!(!instance.map_table(2, Some(&version(2, &[1; 101]))).unwrap());
    assert_eq!(loaded(&mut instance), Some(0));
    // A published table has no window, and neither has an undeclared one.
    let before = std::fs::read_to_string("/proc/self/maps").unwrap().matches("weir-table").count();
    assert!(instance.map_table(1, Some(&version(1, b"x"))).unwrap());
    assert!(instance.map_table(3, Some(&version(1, b"x"))).unwrap());
    assert_eq!(std::fs::read_to_string("/proc/self/maps").unwrap().matches("weir-table").count(), before);
}

#[test]
fn a_store_into_a_window_traps_and_changes_nothing() {
    for place in [FIRST, FIRST + 8, FIRST + 64, FIRST + 4096, SECOND + 64] {
        let store = format!("(i32.store {} (i32.const -1)) (i64.load {})", at(place), at(place & !7));
        let mut instance = started(&emitting(&format!("(block (result i64) {store})")));
        instance.map_table(0, Some(&version(1, &[7; 5000]))).unwrap();
        instance.map_table(2, Some(&version(1, &[7; 100]))).unwrap();
        assert_eq!(loaded(&mut instance), None);
        assert_eq!(instance.incidents()[0].fault.kind, FaultKind::OutOfBounds, "{place:#x}");
    }
    // By bulk operations, which run in host code.
    for bulk in ["memory.fill", "memory.copy"] {
        let act = format!("({bulk} {} (i32.const 0) (i32.const 8))", at(FIRST + 64));
        let mut instance = started(&emitting(&format!("(block (result i64) {act} (i64.const 1))")));
        instance.map_table(0, Some(&version(1, &[7; 5000]))).unwrap();
        assert_eq!(loaded(&mut instance), None, "{bulk}");
        assert_eq!(instance.counters().faults, 1);
    }
}

#[test]
fn reads_after_a_tables_last_page_and_outside_windows_trap() {
    let loads = |address: u32| {
        let mut instance = started(&loading(&format!("i64.load {}", at(address))));
        instance.map_table(0, Some(&version(1, &[7; 5000]))).unwrap();
        loaded(&mut instance)
    };
    assert_eq!(loads(FIRST + 64 + 4992), Some(u64::from_le_bytes([7; 8])));
    // The rest of the last page is zero.
    assert_eq!((loads(FIRST + 64 + 5000), loads(FIRST + 8184)), (Some(0), Some(0)));
    for outside in [FIRST - 8, FIRST + 8185, FIRST + 8192, SECOND - 8, SECOND + 4096, 0xDFFF_FFF0] {
        assert_eq!(loads(outside), None, "{outside:#x}");
    }
}

#[test]
fn an_address_in_an_old_version_shows_the_new_one_or_traps() {
    // It remembers the address of the last byte that it saw, and reads it again in each packet.
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.eqz (i32.load (i32.const 0)))
                (then (i32.store (i32.const 0) (i32.add (i32.const {}) (i32.load (i32.const {}))))))
            (i64.store (i32.const 64) (i64.load8_u (i32.load (i32.const 0))))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#,
        (FIRST + 63).cast_signed(),
        (FIRST + 8).cast_signed()
    );
    let mut instance = started(&body);
    instance.map_table(0, Some(&version(1, &[7; 8000]))).unwrap();
    assert_eq!(loaded(&mut instance), Some(7));
    instance.map_table(0, Some(&version(2, &[8; 8000]))).unwrap();
    assert_eq!(loaded(&mut instance), Some(8));
    instance.map_table(0, Some(&version(3, &[9; 10]))).unwrap();
    assert_eq!(loaded(&mut instance), None, "there is no such page any more");
    instance.map_table(0, None).unwrap();
    assert_eq!(loaded(&mut instance), None);
    instance.map_table(0, Some(&version(4, &[6; 8000]))).unwrap();
    assert_eq!(loaded(&mut instance), Some(6));
    assert_eq!((instance.counters().faults, instance.counters().lost), (2, 2));
}

#[test]
fn host_functions_and_copies_read_tables_like_packets_and_nothing_beyond() {
    let hash = |address: u32, len: u32| {
        let body = emitting(&format!("(call $hash {} (i32.const {len}) (i64.const 0))", at(address)));
        let mut instance = started(&body);
        instance.map_table(0, Some(&version(1, &[7; 5000]))).unwrap();
        loaded(&mut instance)
    };
    assert_eq!(hash(FIRST + 64, 5000), Some(xxhash_rust::xxh3::xxh3_64(&[7; 5000])));
    for (address, len) in
        [(FIRST + 64, 5001), (FIRST - 1, 2), (FIRST + 5064, 1), (SECOND, 65), (FIRST, 0x2000_0000)]
    {
        assert_eq!(hash(address, len), None, "{address:#x} + {len}");
    }
    let copy = format!(
        "(block (result i64) (memory.copy (i32.const 1024) {} (i32.const 5000)) (i64.load (i32.const 6016)))",
        at(FIRST + 64)
    );
    let mut instance = started(&emitting(&copy));
    instance.map_table(0, Some(&version(1, &[7; 5000]))).unwrap();
    assert_eq!(loaded(&mut instance), Some(u64::from_le_bytes([7; 8])));
}

#[test]
fn tables_do_not_change_during_a_suspended_call() {
    let body = format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (loop $l
                (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
                (br_if $l (i32.lt_u (i32.load (i32.const 0)) (i32.const 5000))))
            (i64.store (i32.const 64) (i64.load (i32.const {})))
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#,
        FIRST.cast_signed()
    );
    let engine = engine();
    let program = engine.load_suspendable(Admitted::admit(module(&body), &[]).unwrap()).unwrap();
    let mut instance = Instance::start(&engine, &program).unwrap();
    Packets::new().map(&mut instance);
    let (old, new) = (version(1, b"old"), version(2, b"new"));
    instance.map_table(0, Some(&old)).unwrap();
    let budget = FuelSlice { fuel: 1000, until: None };
    let mut step = instance.begin(Call::Batch(BatchInput { mask: 0b11, ..all() }), budget);
    let mut slices = 0;
    while step == CallStep::Suspended {
        let error = instance.map_table(0, Some(&new)).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
        slices += 1;
        step = instance.resume(budget);
    }
    assert!(slices > 10);
    assert_eq!(values(&mut instance), [1, 1]);
    instance.map_table(0, Some(&new)).unwrap();
    assert_eq!(loaded(&mut instance), Some(2));
}

/// A publisher that keeps the versions.
#[derive(Debug, Default)]
struct Kept(Mutex<Vec<(u32, Vec<u8>)>>);

impl TablePublisher for Kept {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        let mut kept = self.0.lock().unwrap();
        kept.push((table, bytes.to_vec()));
        if bytes.len() == 99 { code::FULL } else { code::OK }
    }
}

/// The result of publishing these bytes, and the published versions; no result if the call is lost.
fn publishing(place: u32, address: u32, len: u32) -> (Option<i64>, Vec<(u32, Vec<u8>)>) {
    let call = format!(
        "(call $publish (i32.const {}) {} (i32.const {}))",
        place.cast_signed(),
        at(address),
        len.cast_signed()
    );
    let body =
        format!("(data (i32.const 2048) \"0123456789\") {}", emitting(&format!("(i64.extend_i32_s {call})")));
    let kept = Arc::new(Kept::default());
    let publisher: Arc<dyn TablePublisher> = Arc::clone(&kept) as _;
    let mut instance = started_with(
        &engine(),
        &body,
        InstanceContext { publisher: Some(publisher), ..InstanceContext::default() },
    );
    instance.map_table(0, Some(&version(1, b"shared"))).unwrap();
    let answer = loaded(&mut instance).map(u64::cast_signed);
    let lost = instance.incidents().first().map(|incident| incident.fault.kind);
    assert_eq!(lost, answer.is_none().then_some(FaultKind::WildPointer { function: "publish" }));
    (answer, std::mem::take(&mut kept.0.lock().unwrap()))
}

#[test]
fn a_published_version_has_the_bytes_at_the_call_up_to_the_declared_length() {
    let ok = |bytes: &[u8]| (Some(0), vec![(1, bytes.to_vec())]);
    let no = |code: i32| (Some(i64::from(code)), Vec::new());
    let lost = || (None, Vec::new());
    assert_eq!(publishing(1, 2048, 10), ok(b"0123456789"));
    assert_eq!(publishing(1, 2048, 0), ok(b""));
    // It can publish bytes of tables that it reads.
    assert_eq!(publishing(1, FIRST + 64, 6), ok(b"shared"));
    assert_eq!(publishing(1, 65_436, 100), ok(&[0; 100]));
    assert_eq!(publishing(1, 2048, 99).0, Some(i64::from(code::FULL)));
    for len in [101, 65_536, limit::PUBLISHED_BYTES + 1, u32::MAX] {
        assert_eq!(publishing(1, 2048, len), no(code::RANGE), "{len}");
    }
    for place in [0, 2, 3, 65_537, u32::MAX] {
        assert_eq!(publishing(place, 2048, 10), no(code::UNKNOWN), "{place}");
    }
    for (address, len) in [(65_437, 100), (u32::MAX - 9, 10), (65_536, 1), (FIRST + 64, 7), (SECOND - 1, 1)] {
        assert_eq!(publishing(1, address, len), lost(), "{address:#x} + {len}");
    }
}

#[test]
fn publishing_fails_without_a_publisher() {
    let mut instance =
        started(&emitting("(i64.extend_i32_s (call $publish (i32.const 1) (i32.const 0) (i32.const 8)))"));
    assert_eq!(loaded(&mut instance).map(u64::cast_signed), Some(code::DENIED.into()));
}

#[test]
fn publishing_in_each_packet_is_charged_by_its_length() {
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
            (drop (call $publish (i32.const 0) (i32.const 0) (i32.mul (i32.const 1024) (i32.load offset=60 (local.get $d)))))
            (i32.const 0))"#;
    let manifest = format!("{MANIFEST}[[table]]\nname = 'own'\naccess = 'publish'\nbytes = '64 KiB'\n");
    let text = wat(body).replacen("(memory ", &format!("{PUBLISH} (memory "), 1);
    // Enough for the call, and for some 25 KiB of published bytes.
    let profile = Profile {
        packet: Nanos(29_000),
        per_byte: Nanos(0),
        tiers: vec![Tier::Metered],
        ..Profile::default()
    };
    let terms = CalibratedProfile::from(profile);
    let admitted = Admitted::admit_by(bytes(&text, &manifest), &[], &terms).unwrap();
    let engine =
        Engine::new(EngineOptions { check_mode: CheckMode::As(Tier::Metered), ..options() }, None).unwrap();
    let kept = Arc::new(Kept::default());
    let publisher: Arc<dyn TablePublisher> = Arc::clone(&kept) as _;
    let context = InstanceContext { publisher: Some(publisher), ..InstanceContext::default() };
    let mut instance = Instance::start_with(&engine, &engine.load(admitted).unwrap(), context).unwrap();
    Packets::new().map(&mut instance);
    instance.run(all());
    let kept = kept.0.lock().unwrap();
    let longest = kept.iter().map(|(_, bytes)| bytes.len()).max().unwrap();
    assert!((20..30).contains(&(longest / 1024)), "{longest}");
    let faults: Vec<_> = instance.incidents().iter().map(|incident| incident.fault.kind).collect();
    assert!(faults.iter().all(|kind| *kind == FaultKind::Limit) && !faults.is_empty(), "{faults:?}");
    assert!(instance.has_ended(), "after its strikes");
}

#[test]
fn a_thousand_versions_leave_no_mappings_or_descriptors() {
    if !alone("tables::a_thousand_versions_leave_no_mappings_or_descriptors") {
        return;
    }
    let holdings = || {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        let of_tables = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
        let of_tables = of_tables.filter(|to| to.to_string_lossy().contains("weir-table"));
        (maps.matches("weir-table").count(), of_tables.count())
    };
    let mut instance = started(&loading(&format!("i64.load {}", at(FIRST))));
    instance.map_table(0, Some(&version(1, &[1; 8192]))).unwrap();
    let before = holdings();
    for number in 2..1002 {
        let len = usize::try_from(number).unwrap() * 8 % 8193;
        instance.map_table(0, Some(&version(number, &vec![1; len]))).unwrap();
        assert_eq!(loaded(&mut instance), Some(number));
    }
    assert_eq!(holdings(), before);
    drop(instance);
}

/// The process has no room for another mapping, which other sessions of a node can cause.
#[test]
fn a_process_at_its_limit_of_mappings_continues() {
    if !alone("tables::a_process_at_its_limit_of_mappings_continues") {
        return;
    }
    let mut instance = started(&loading(&format!("i64.load {}", at(FIRST))));
    let (short, long) = (version(1, &[1; 100]), version(2, &[2; 8192]));
    instance.map_table(0, Some(&short)).unwrap();
    assert_eq!(loaded(&mut instance), Some(1));
    // Neighbours that differ are not merged. Their place is reserved before, because there will be no room.
    let mut all: Vec<*mut libc::c_void> = Vec::with_capacity(1 << 21);
    loop {
        let protection = if all.len().is_multiple_of(2) { libc::PROT_NONE } else { libc::PROT_READ };
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, at an address that the kernel chooses.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, -1, 0) };
        if page == libc::MAP_FAILED || all.len() == all.capacity() {
            break;
        }
        all.push(page);
    }
    let refused = instance.map_table(0, Some(&long));
    for page in &all {
        // SAFETY: mapped above, and not used any more.
        unsafe { libc::munmap(*page, 4096) };
    }
    if all.len() == all.capacity() {
        eprintln!("skipped: a process can have more mappings here than are worth making");
        return;
    }
    assert!(refused.is_err());
    assert_eq!(loaded(&mut instance), None, "what it may not see any more is not to be read");
    instance.map_table(0, Some(&long)).unwrap();
    assert_eq!(loaded(&mut instance), Some(2));
    instance.map_table(0, None).unwrap();
    assert_eq!(loaded(&mut instance), Some(0));
}
