//! Admits, compiles and runs an arbitrary module over some packets.
//!
//! Input that begins as WebAssembly does is taken as a module's bytes. Any other is what wasm-smith makes a valid module of, one with the
//! imports and exports of weir's interface. Whatever the module does, the host goes on: a fault is the module's own, the masks and
//! counters agree with what was asked for, records can be read, and packets and descriptors are what they were.

#![no_main]
#![forbid(unsafe_code)]

use arbitrary::Unstructured;
use libfuzzer_sys::fuzz_target;
use std::sync::OnceLock;
use std::time::Duration;
use weir_abi::{Descriptor, imports, imports::Type};
use weir_netio::{Block, Capture, Input, Next};
use weir_sandbox::{Area, Batch, Engine, Instance, Options};
use weir_session::{Admitted, Records};
use weir_units::Timestamp;

fuzz_target!(|input: &[u8]| {
    let Some(bytes) = module(input) else { return };
    let Ok(admitted) = Admitted::admit(bytes, &[]) else { return };
    STAGE.with(|stage| stage.play(admitted));
});

/// The module that an input stands for.
fn module(input: &[u8]) -> Option<Vec<u8>> {
    if input.starts_with(b"\0asm") {
        return Some(input.to_vec());
    }
    let mut choices = Unstructured::new(input);
    let config = shape(choices.arbitrary().ok()?);
    let module = wasm_smith::Module::new(config, &mut choices).ok()?;
    Some(with_manifest(module.to_bytes()))
}

/// Modules that admission has no reason to refuse.
fn shape(choice: u8) -> wasm_smith::Config {
    static OFFERED: OnceLock<Vec<u8>> = OnceLock::new();
    wasm_smith::Config {
        available_imports: Some(OFFERED.get_or_init(offered).clone()),
        exports: Some(wanted(choice)),
        // The one that is exported comes on top.
        max_memories: 0,
        max_memory32_bytes: MEMORY_BYTES,
        max_tables: 2,
        max_table_elements: 1000,
        max_instructions: 400,
        bulk_memory_enabled: true,
        // With them come references to objects, which admission refuses.
        reference_types_enabled: choice >= 192,
        simd_enabled: true,
        multi_value_enabled: true,
        saturating_float_to_int_enabled: true,
        sign_extension_ops_enabled: true,
        exceptions_enabled: false,
        gc_enabled: false,
        memory64_enabled: false,
        custom_page_sizes_enabled: false,
        relaxed_simd_enabled: false,
        shared_everything_threads_enabled: false,
        tail_call_enabled: false,
        threads_enabled: false,
        wide_arithmetic_enabled: false,
        extended_const_enabled: false,
        compact_imports_enabled: false,
        ..wasm_smith::Config::default()
    }
}

/// Every import that there is.
fn offered() -> Vec<u8> {
    let name = |ty: &Type| match ty {
        Type::I32 => "i32",
        Type::I64 => "i64",
        Type::F64 => "f64",
    };
    let imports: String = imports::ALL
        .iter()
        .map(|import| {
            let params: String = import.params.iter().map(|ty| format!(" {}", name(ty))).collect();
            let result =
                import.result.as_ref().map(|ty| format!("(result {})", name(ty))).unwrap_or_default();
            format!("(import \"weir\" \"{}\" (func (param{params}) {result}))", import.name)
        })
        .collect();
    text(&format!("(module {imports})"))
}

/// What weir calls: one of the two entry points, and others by choice; `weir_start` seldom, for most arbitrary ones end the module.
fn wanted(choice: u8) -> Vec<u8> {
    let has = |bits: u8| choice & bits == bits;
    let optional = |there, function| if there { function } else { "" };
    let entry = if has(1) {
        r#"(func (export "weir_batch") (param i32 i64) (result i64) unreachable)"#
    } else {
        r#"(func (export "weir_packet") (param i32) (result i32) unreachable)"#
    };
    let start = optional(has(2 | 4 | 8), r#"(func (export "weir_start") (result i32) unreachable)"#);
    let tick = optional(has(16), r#"(func (export "weir_tick") (param i64 i64) unreachable)"#);
    let stop = optional(has(32), r#"(func (export "weir_stop") (param i64) unreachable)"#);
    text(&format!(r#"(module (memory (export "memory") 1) {entry} {start} {tick} {stop})"#))
}

fn text(wat: &str) -> Vec<u8> {
    wat::parse_str(wat).unwrap_or_else(|error| panic!("{error}"))
}

const MEMORY_BYTES: u64 = 16 << 20;

const MANIFEST: &str = "name = 'm'\nversion = '1'\nabi = 1\nlicense = 'MIT'\nsummary = 's'\nmemory = '16 MiB'\ntick = '1s'\n\
    [[parameter]]\nname = 'text'\ntype = 'string'\ndefault = 'abc'\n\
    [[parameter]]\nname = 'rate'\ntype = 'f64'\ndefault = 0.5\n\
    [[stream]]\nname = 'values'\n[[stream.field]]\nname = 'value'\ntype = 'u32'\n\
    [[stream]]\nname = 'texts'\n[[stream.field]]\nname = 'text'\ntype = 'string'\n[[stream.field]]\nname = 'from'\ntype = 'ip'\n";

/// Appends the manifest as a custom section.
fn with_manifest(mut module: Vec<u8>) -> Vec<u8> {
    let mut section = vec![u8::try_from(weir_abi::MANIFEST_SECTION.len()).expect("a short name")];
    section.extend(weir_abi::MANIFEST_SECTION.bytes());
    section.extend(MANIFEST.bytes());
    module.push(0);
    let mut rest = section.len();
    loop {
        let low = u8::try_from(rest & 0x7f).expect("seven bits");
        rest >>= 7;
        module.push(if rest == 0 { low } else { low | 0x80 });
        if rest == 0 {
            break;
        }
    }
    module.extend(section);
    module
}

/// What all modules are run on: an engine, and a block of packets in an arena of its own.
struct Stage {
    engine: Engine,
    capture: Capture,
    block: Block,
    descriptors: Vec<Descriptor>,
    packets: Vec<Vec<u8>>,
}

thread_local! {
    static STAGE: Stage = Stage::set();
}

/// Two batches, the second not full.
const PACKETS: u32 = 100;

impl Stage {
    fn set() -> Self {
        let options = Options { call_limit: Duration::from_millis(10), strikes: 2, ..Options::default() };
        let engine = Engine::new(options, None).expect("the engine starts");
        let mut capture = Capture::open(Input::Bytes(pcap())).expect("a sound capture");
        let Ok(Next::Block(block)) = capture.next_block() else { panic!("a capture with packets") };
        let descriptors = block.descriptors().to_vec();
        let packets = copies(&block);
        Self { engine, capture, block, descriptors, packets }
    }

    fn play(&self, admitted: Admitted) {
        // Cranelift may refuse what is too large for it.
        let Ok(program) = self.engine.load(admitted) else { return };
        let admitted = program.admitted();
        let mut instance = Instance::start(&self.engine, &program)
            .unwrap_or_else(|error| panic!("the node is to blame: {error}"));
        let ring = self.capture.descriptors();
        let area = Area { fd: ring.fd(), offset: 0, len: bytes(ring.len()) };
        instance.map_descriptors(area).expect("descriptors can be mapped");
        let window = self.block.window();
        let area = Area { fd: window.fd(), offset: window.file_offset(), len: bytes(window.len()) };
        instance.map_packets(area).expect("packets can be mapped");

        let mut asked = 0;
        for batch in self.block.batches() {
            let first = u32::try_from(batch.first).expect("a small block");
            let dropped = instance.run(Batch { descriptors: batch.guest_address, mask: batch.mask, first });
            assert_eq!(dropped & !batch.mask, 0, "drops packets that it was not called for");
            asked += u64::from(batch.mask.count_ones());
            instance.tick(batch.latest, 1, first);
        }
        instance.stop(Timestamp(self.descriptors.last().map_or(0, |last| last.ts_ns)));

        let done = instance.counters();
        assert!(done.packets + done.lost <= asked, "{done:?} of {asked}");
        assert!(instance.has_ended() || done.packets + done.lost == asked, "{done:?} of {asked}");
        assert!(done.lost == 0 || done.faults > 0, "{done:?}");
        assert!(instance.memory() <= admitted.memory(), "{} of memory", instance.memory());
        for record in instance.take_records(Records::default()).iter() {
            let stream = &admitted.manifest().streams[usize::from(record.stream)];
            assert_eq!(record.row.len(), stream.row_bytes());
            for field in &stream.fields {
                assert!(
                    field.read(record.row, record.tail).is_some(),
                    "the field `{}` is not in its record",
                    field.name
                );
            }
        }
        for patch in instance.take_patches() {
            let packet = &self.packets[usize::try_from(patch.packet).expect("64 bits")];
            assert!(usize::try_from(patch.offset).expect("64 bits") + patch.bytes.len() <= packet.len());
        }
        assert!(instance.take_log().iter().all(|line| !line.text.chars().any(char::is_control)));
        assert!(self.block.descriptors() == self.descriptors, "descriptors were changed");
        assert!(copies(&self.block) == self.packets, "packets were changed");
    }
}

fn bytes(size: weir_units::Bytes) -> usize {
    usize::try_from(size.0).expect("64 bits")
}

fn copies(block: &Block) -> Vec<Vec<u8>> {
    let copy = |i| {
        let mut packet = Vec::new();
        block.copy_packet(i, &mut packet);
        packet
    };
    (0..block.len()).map(copy).collect()
}

/// UDP and TCP, a tenth of a second apart.
fn pcap() -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(0xa1b2_c3d4_u32.to_le_bytes());
    out.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
    for n in 0..PACKETS {
        let protocol = if n % 3 == 0 { 17 } else { 6 };
        let header = if protocol == 17 { 8 } else { 20 };
        let payload = u16::try_from(n * 7 % 200).expect("below 200");
        let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        packet.extend((20 + header + payload).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, protocol, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2]);
        packet.extend([4, 0, 0, 53]);
        packet.resize(14 + 20 + usize::from(header), 0x50);
        packet.extend(b"GET /default.ida?NNNNNNNN /bin/sh ".iter().cycle().take(usize::from(payload)));
        let len = u32::try_from(packet.len()).expect("a small packet");
        for field in [1_600_000_000 + n / 10, n % 10 * 100_000, len, len] {
            out.extend(field.to_le_bytes());
        }
        out.extend(packet);
    }
    out
}
