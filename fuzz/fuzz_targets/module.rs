//! Admits, compiles and runs an arbitrary module over some packets.
//!
//! Input with the magic bytes of WebAssembly is used as a module. From other input wasm-smith makes a valid module
//! with the imports and exports of weir's interface, or, if its first byte is a multiple of four, a generator makes
//! loops as compilers emit them. Whatever the module does, the host continues: a fault is the module's own, masks and
//! counters match the calls, records can be decoded, published versions belong to declared tables and have the
//! written bytes, and packets and descriptors are unchanged.

#![no_main]
#![forbid(unsafe_code)]

#[path = "../../core/bounds/tests/generate/mod.rs"]
mod generate;

use generate::{loops, smith};
use libfuzzer_sys::fuzz_target;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_abi::{Descriptor, code, limit};
use weir_netio::{Block, Capture, CaptureInput, CaptureNext};
use weir_sandbox::{Area, BatchInput, Engine, Instance, InstanceContext, NotPinned, EngineOptions, Pinned, TablePublisher, TableVersion};
use weir_admission::{TableAccess, Admitted};
use weir_session::Records;
use weir_units::Timestamp;

fuzz_target!(|input: &[u8]| {
    let Some((bytes, are_loops)) = module(input) else { return };
    let Ok(admitted) = Admitted::admit(bytes, &[]) else { return };
    STAGE.with(|stage| stage.run(admitted, are_loops));
});

/// The module that an input stands for, and whether the loop generator made it.
fn module(input: &[u8]) -> Option<(Vec<u8>, bool)> {
    match input.split_first() {
        _ if input.starts_with(b"\0asm") => Some((input.to_vec(), false)),
        Some((first, rest)) if first.is_multiple_of(4) => {
            Some((generate::assembled(&loops::module(rest)), true))
        }
        _ => smith::module(input).map(|module| (module, false)),
    }
}

/// A publisher that keeps the versions.
#[derive(Debug, Default)]
struct PublishedTables(Mutex<Vec<(u32, Vec<u8>)>>);

impl TablePublisher for PublishedTables {
    fn publish(&self, table: u32, bytes: &[u8]) -> i32 {
        self.0.lock().expect("no thread panics").push((table, bytes.to_vec()));
        // Sometimes there is no room.
        if bytes.len() % 7 == 6 { code::FULL } else { code::OK }
    }
}

/// The environment of all modules: an engine, and a block of packets in an arena of its own.
struct Environment {
    engine: Engine,
    capture: Capture,
    block: Block,
    descriptors: Vec<Descriptor>,
    packets: Vec<Vec<u8>>,
    /// Versions of a table: short, empty, and longer than most modules declare.
    versions: Vec<Arc<TableVersion>>,
}

thread_local! {
    static STAGE: Environment = Environment::new();
}

/// Two batches, the second one not full.
const PACKETS: u32 = 100;

impl Environment {
    fn new() -> Self {
        let options = EngineOptions { call_limit: Duration::from_millis(10), ..EngineOptions::default() };
        let engine = Engine::new(options, None).expect("the engine starts");
        let mut capture = Capture::open(CaptureInput::Bytes(pcap())).expect("a sound capture");
        let Ok(CaptureNext::Block(block)) = capture.next_block() else { panic!("a capture with packets") };
        let descriptors = block.descriptors().to_vec();
        let packets = copies(&block);
        let versions = [&b"0123456789"[..], b"", &[7; 5000], &[9; 100_000]].into_iter().zip(1..);
        let version = |(bytes, number)| Arc::new(TableVersion::new(number, bytes).expect("there is memory"));
        let versions = versions.map(version).collect();
        Self { engine, capture, block, descriptors, packets, versions }
    }

    fn run(&self, admitted: Admitted, are_loops: bool) {
        // Cranelift may refuse a too large module.
        let Ok(program) = self.engine.load(admitted) else { return };
        let admitted = program.admitted();
        let published: Arc<PublishedTables> = Arc::default();
        let publisher: Arc<dyn TablePublisher> = Arc::clone(&published) as _;
        let tables = self.versions.iter().rev().cloned().map(Some).collect();
        let context = InstanceContext { publisher: Some(publisher), tables, ..InstanceContext::default() };
        let mut instance = Instance::start_with(&self.engine, &program, context)
            .unwrap_or_else(|error| panic!("the node is to blame: {error}"));
        let ring = self.capture.descriptors();
        let area = Area { fd: ring.fd(), offset: 0, len: bytes(ring.len()), is_fixed: false };
        instance.map_descriptors(area).expect("descriptors can be mapped");
        let window = self.block.window();
        let area = Area { fd: window.parts().next().expect("a part").fd, offset: window.file_offset(), len: bytes(window.len()), is_fixed: window.is_fixed() };
        instance.map_packets(area).expect("packets can be mapped");
        let memory = Arc::clone(window);
        let keep = move |address, len| {
            let pin = memory.pin(address, len).map_err(|_| NotPinned::Full)?;
            let (pieces, piece, most) = (pin.pieces(), pin.piece(), pin.pieces_max());
            Ok(Pinned { guard: Box::new(pin), pieces, piece_size: piece, pieces_max: most })
        };
        instance.set_packet_pinner(Some(Box::new(keep))).expect("nothing is under way");

        let mut asked = 0;
        for (round, batch) in self.block.batches().enumerate() {
            for (place, table) in admitted.manifest().tables.iter().enumerate() {
                let version = self.versions.get((place + round) % (self.versions.len() + 1));
                let fits =
                    instance.map_table(place, version.map(|version| &**version)).expect("it is mapped");
                let is_read = table.access != TableAccess::Publish;
                assert!(fits || is_read && version.is_some_and(|version| version.len() > table.bytes));
            }
            let first = u32::try_from(batch.first).expect("a small block");
            let dropped = instance.run(BatchInput { descriptors: batch.guest_address, mask: batch.mask, first });
            assert_eq!(dropped & !batch.mask, 0, "drops packets outside the mask");
            asked += u64::from(batch.mask.count_ones());
            instance.tick(batch.latest, 1, first);
        }
        instance.stop(Timestamp(self.descriptors.last().map_or(0, |last| last.ts_ns)));

        let done = instance.counters();
        assert!(done.packets + done.lost <= asked, "{done:?} of {asked}");
        assert!(instance.has_ended() || done.packets + done.lost == asked, "{done:?} of {asked}");
        assert!(done.lost == 0 || done.faults > 0, "{done:?}");
        let memory = instance.memory().0 + instance.kept().0;
        assert!(memory <= admitted.memory().0, "{memory} bytes of memory");
        for frame in instance.take_frames(Records::default()).iter() {
            assert!(usize::from(frame.stream) < admitted.manifest().outputs.len());
            let most = usize::try_from(limit::FRAME_BYTES).expect("64 bits");
            assert!(frame.row.len() >= 14 && frame.row.len() <= most, "a frame of {}", frame.row.len());
        }
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
        for (place, bytes) in published.0.lock().expect("no thread panics").drain(..) {
            let table = &admitted.manifest().tables[usize::try_from(place).expect("64 bits")];
            assert!(
                table.access == TableAccess::Publish
                    && bytes.len() <= usize::try_from(table.bytes).expect("64 bits")
            );
            assert!(
                !are_loops || place != loops::PUBLISHED_TABLE || loops::is_published_value(&bytes),
                "not what was written: {bytes:?}"
            );
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

/// UDP and TCP packets, a tenth of a second apart.
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
