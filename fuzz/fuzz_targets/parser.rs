//! Gives arbitrary messages to the shipped modules that parse what strangers send: dns, tls, http and quic.
//!
//! Input: the module (1 byte; QUIC counts twice, once with messages that are sealed as a client's Initial packets), then messages, each with its direction and length (2 bytes, little-endian: the lowest bit
//! is set for messages of the server) and its bytes. Messages over TCP follow a handshake and are in order; a message
//! of no bytes is a lost one of 100 bytes. Whatever the bytes are, the module has no fault, and its rows can be decoded.

#![no_main]
#![forbid(unsafe_code)]

#[path = "../../apps/weir/tests/modules/quic/seal.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod seal;

use libfuzzer_sys::fuzz_target;
use seal::Initial;
use std::time::Duration;
use weir_admission::Admitted;
use weir_netio::{Capture, CaptureInput, CaptureNext};
use weir_sandbox::{Area, BatchInput, Engine, EngineOptions, Instance, InstanceContext, LoadedModule};
use weir_session::Records;
use weir_units::Timestamp;

/// A module, the parameters that keep its tables small, and how its messages are sent.
struct Target {
    wasm: &'static [u8],
    settings: &'static [(&'static str, &'static str)],
    is_udp: bool,
    /// True if messages are the frames of a client's Initial packets.
    is_sealed: bool,
    server_port: u16,
}

const TARGETS: [Target; 6] = [
    Target {
        wasm: include_bytes!("../../guest/modules/dns/dns.wasm"),
        settings: &[("streams", "256"), ("table-size", "1024")],
        is_udp: true,
        is_sealed: false,
        server_port: 53,
    },
    Target {
        wasm: include_bytes!("../../guest/modules/dns/dns.wasm"),
        settings: &[("streams", "256"), ("table-size", "1024")],
        is_udp: false,
        is_sealed: false,
        server_port: 53,
    },
    Target {
        wasm: include_bytes!("../../guest/modules/tls/tls.wasm"),
        settings: &[("streams", "256")],
        is_udp: false,
        is_sealed: false,
        server_port: 443,
    },
    Target {
        wasm: include_bytes!("../../guest/modules/http/http.wasm"),
        settings: &[("streams", "256")],
        is_udp: false,
        is_sealed: false,
        server_port: 80,
    },
    Target {
        wasm: include_bytes!("../../guest/modules/quic/quic.wasm"),
        settings: &[("table-size", "256")],
        is_udp: true,
        is_sealed: false,
        server_port: 443,
    },
    Target {
        wasm: include_bytes!("../../guest/modules/quic/quic.wasm"),
        settings: &[("table-size", "256")],
        is_udp: true,
        is_sealed: true,
        server_port: 443,
    },
];

/// The most messages of an input: two batches.
const MESSAGES_MAX: usize = 100;
/// The length of a lost message.
const LOST: u32 = 100;

thread_local! {
    static STAGE: Stage = Stage::new();
}

fuzz_target!(|input: &[u8]| {
    let Some((module, messages)) = input.split_first() else { return };
    STAGE.with(|stage| stage.run(usize::from(*module) % TARGETS.len(), messages));
});

/// An engine with the compiled modules.
struct Stage {
    engine: Engine,
    programs: Vec<LoadedModule>,
}

impl Stage {
    fn new() -> Self {
        // A slow machine is no fault of a module.
        let options = EngineOptions { call_limit: Duration::from_secs(60), ..EngineOptions::default() };
        let engine = Engine::new(options, None).expect("the engine starts");
        let load = |target: &Target| {
            let settings: Vec<_> =
                target.settings.iter().map(|(name, value)| ((*name).into(), vec![(*value).into()])).collect();
            let admitted = Admitted::admit(target.wasm.to_vec(), &settings).expect("a shipped module");
            engine.load(admitted).expect("a shipped module")
        };
        let programs = TARGETS.iter().map(load).collect();
        Self { engine, programs }
    }

    fn run(&self, number: usize, messages: &[u8]) {
        let program = &self.programs[number];
        let mut capture =
            Capture::open(CaptureInput::Bytes(pcap(&TARGETS[number], messages))).expect("a sound capture");
        let Ok(CaptureNext::Block(block)) = capture.next_block() else { return };
        let mut instance = Instance::start_with(&self.engine, program, InstanceContext::default())
            .unwrap_or_else(|error| panic!("the module does not start: {error}"));
        let bytes = |size: weir_units::Bytes| usize::try_from(size.0).expect("64 bits");
        let ring = capture.descriptors();
        let area = Area { fd: ring.fd(), offset: 0, len: bytes(ring.len()), is_fixed: false };
        instance.map_descriptors(area).expect("descriptors can be mapped");
        let window = block.window();
        let fd = window.parts().next().expect("a part").fd;
        let is_fixed = window.is_fixed();
        let area = Area { fd, offset: window.file_offset(), len: bytes(window.len()), is_fixed };
        instance.map_packets(area).expect("packets can be mapped");

        let mut last = Timestamp(0);
        for batch in block.batches() {
            let first = u32::try_from(batch.first).expect("a small block");
            instance.run(BatchInput { descriptors: batch.guest_address, mask: batch.mask, first });
            last = batch.latest;
            instance.tick(last, 1, first);
        }
        instance.stop(last);

        let done = instance.counters();
        assert_eq!((done.faults, done.lost), (0, 0), "{done:?}");
        for record in instance.take_records(Records::default()).iter() {
            let stream = &program.admitted().manifest().streams[usize::from(record.stream)];
            for field in &stream.fields {
                assert!(
                    field.read(record.row, record.tail).is_some(),
                    "`{}` is not in its record",
                    field.name
                );
            }
        }
        assert!(instance.take_log().iter().all(|line| !line.text.chars().any(char::is_control)));
    }
}

/// The capture of a conversation.
fn pcap(target: &Target, mut messages: &[u8]) -> Vec<u8> {
    const SYN: u8 = 2;
    const ACK: u8 = 16;
    let mut out = Vec::new();
    out.extend(0xa1b2_c3d4_u32.to_le_bytes());
    out.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0]);
    let mut count = 0;
    let mut sequence = [1_000_u32, 2_000];
    let mut packet = |from_server: bool, flags: u8, sequence: &[u32; 2], payload: &[u8]| {
        let header: u16 = if target.is_udp { 8 } else { 20 };
        let len = u16::try_from(payload.len()).expect("a short message");
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((20 + header + len).to_be_bytes());
        frame.extend([0, 0, 0, 0, 64, if target.is_udp { 17 } else { 6 }, 0, 0]);
        let mut ends = [([192, 0, 2, 1], 40_000_u16), ([198, 51, 100, 2], target.server_port)];
        if from_server {
            ends.reverse();
        }
        let [(source, source_port), (destination, destination_port)] = ends;
        frame.extend(source);
        frame.extend(destination);
        frame.extend(source_port.to_be_bytes());
        frame.extend(destination_port.to_be_bytes());
        if target.is_udp {
            frame.extend((header + len).to_be_bytes());
            frame.extend([0, 0]);
        } else {
            frame.extend(sequence[usize::from(from_server)].to_be_bytes());
            frame.extend(sequence[usize::from(!from_server)].to_be_bytes());
            frame.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        }
        frame.extend(payload);
        let len = u32::try_from(frame.len()).expect("a small packet");
        for field in [1_600_000_000 + count / 10, count % 10 * 100_000, len, len] {
            out.extend(field.to_le_bytes());
        }
        out.extend(frame);
        count += 1;
    };
    if !target.is_udp {
        packet(false, SYN, &sequence, &[]);
        sequence[0] += 1;
        packet(true, SYN | ACK, &sequence, &[]);
        sequence[1] += 1;
        packet(false, ACK, &sequence, &[]);
    }
    for number in 0..MESSAGES_MAX {
        let Some((head, rest)) = messages.split_first_chunk::<2>() else { break };
        let head = u16::from_le_bytes(*head);
        let from_server = head & 1 != 0;
        // As a frame of the usual length, and shorter at the end of the input.
        let len = usize::from(head >> 1).min(1_400).min(rest.len());
        let (payload, rest) = rest.split_at(len);
        messages = rest;
        let own = &mut sequence[usize::from(from_server)];
        if payload.is_empty() && !target.is_udp {
            *own = own.wrapping_add(LOST);
            continue;
        }
        let sealed = target.is_sealed.then(|| {
            let number = u32::try_from(number).expect("few messages");
            Initial { number, ..Initial::of(&[8; 8], &[9; 4], payload) }.seal()
        });
        packet(from_server && !target.is_sealed, ACK, &sequence, sealed.as_deref().unwrap_or(payload));
        let own = &mut sequence[usize::from(from_server)];
        *own = own.wrapping_add(u32::try_from(payload.len()).expect("a short message"));
    }
    out
}
