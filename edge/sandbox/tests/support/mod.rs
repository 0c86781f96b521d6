//! Helpers of the sandbox tests: modules from their text, and packets for them.

#![allow(dead_code, reason = "each test program uses a part")]

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use weir_abi::{ARENA_BASE, BATCH_BYTES, DESCRIPTOR_BYTES, DESCRIPTORS_BASE, Descriptor};
use weir_sandbox::{Area, BatchInput, Engine, EngineOptions, Instance, LlvmUse, LoadedModule};
use {weir_admission::Admitted, weir_session::Record};

pub const MANIFEST: &str = "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\nmemory = '2 MiB'\nkeep = 4\ntick = '1s'\n\
    [[parameter]]\nname = 'size'\ntype = 'u64'\ndefault = 8\n\
    [[parameter]]\nname = 'text'\ntype = 'string'\ndefault = 'abc'\n\
    [[parameter]]\nname = 'rate'\ntype = 'f64'\ndefault = 0.5\n\
    [[stream]]\nname = 'rows'\n[[stream.field]]\nname = 'value'\ntype = 'u64'\n\
    [[stream]]\nname = 'texts'\n[[stream.field]]\nname = 'text'\ntype = 'string'\n\
    [[output]]\nname = 'first'\n[[output]]\nname = 'second'\n";

/// All imports, then a memory of one page with a shadow stack pointer as LLVM has it, then `body`.
pub fn wat(body: &str) -> String {
    format!(
        r#"(module
            (import "weir" "emit" (func $emit (param i32 i32 i32) (result i32)))
            (import "weir" "patch" (func $patch (param i32 i32 i32 i32) (result i32)))
            (import "weir" "send" (func $send (param i32 i32 i32) (result i32)))
            (import "weir" "keep" (func $keep (param i32) (result i32)))
            (import "weir" "release" (func $release (param i32) (result i32)))
            (import "weir" "find_compile" (func $find_compile (param i32 i32 i32) (result i32)))
            (import "weir" "find" (func $find (param i32 i32 i32) (result i64)))
            (import "weir" "hash" (func $hash (param i32 i32 i64) (result i64)))
            (import "weir" "log" (func $log (param i32 i32 i32) (result i32)))
            (import "weir" "param_int" (func $param_int (param i32) (result i64)))
            (import "weir" "param_float" (func $param_float (param i32) (result f64)))
            (import "weir" "param_bytes" (func $param_bytes (param i32 i32 i32) (result i32)))
            (import "weir" "digest" (func $digest (param i32 i32 i32 i32) (result i32)))
            (import "weir" "hmac" (func $hmac (param i32 i32) (result i32)))
            (import "weir" "hkdf" (func $hkdf (param i32 i32) (result i32)))
            (import "weir" "aead_open" (func $aead_open (param i32 i32) (result i32)))
            (import "weir" "aes_block" (func $aes_block (param i32) (result i32)))
            (memory (export "memory") 1)
            (global $__stack_pointer (mut i32) (i32.const 4096))
            {body})"#
    )
}

pub fn bytes(wat: &str, manifest: &str) -> Vec<u8> {
    let mut bytes = wat::parse_str(wat).unwrap_or_else(|e| panic!("{e}"));
    let mut section = vec![13];
    section.extend_from_slice(b"weir.manifest");
    section.extend_from_slice(manifest.as_bytes());
    bytes.push(0);
    let mut len = section.len();
    while len >= 0x80 {
        bytes.push(u8::try_from(len & 0x7f).unwrap() | 0x80);
        len >>= 7;
    }
    bytes.push(u8::try_from(len).unwrap());
    bytes.extend(section);
    bytes
}

/// The settings of engines in tests: the defaults, with the compiler that the environment variable `WEIR_TEST_BACK_END` names.
pub fn options() -> EngineOptions {
    let llvm = match std::env::var("WEIR_TEST_BACK_END").as_deref() {
        Ok("llvm") => LlvmUse::AtLoad,
        Ok(other) => panic!("WEIR_TEST_BACK_END is {other}, and must be llvm or not set"),
        Err(_) => LlvmUse::Never,
    };
    EngineOptions { llvm, ..EngineOptions::default() }
}

/// Returns true if `options` let modules run in verified code of LLVM.
pub fn tests_llvm() -> bool {
    options().llvm == LlvmUse::AtLoad
}

/// Returns a module of the generator of loops without the constructs that are not lowered to LLVM IR: a second table, references to
/// functions, and passive segments. The first table has the function of the second one.
pub fn lowerable(text: &str) -> String {
    let is_left_out = |line: &str| {
        let starts = [
            "(table $late",
            "(table.",
            "(drop (table.",
            "(global $kept",
            "(global $free",
            "(global.set $free",
        ];
        starts.iter().any(|start| line.trim_start().starts_with(start))
    };
    let lines: Vec<&str> = text.lines().filter(|line| !is_left_out(line)).collect();
    lines
        .join("\n")
        .replace("(table funcref (elem", "(table funcref (elem $lone $lone $lone")
        .replace("call_indirect $late", "call_indirect")
        .replace("memory.init $bytes", "memory.copy")
}

pub fn engine() -> Engine {
    let options = EngineOptions { call_limit: Duration::from_millis(30), ..options() };
    Engine::new(options, None).unwrap()
}

pub fn program(engine: &Engine, body: &str) -> LoadedModule {
    let admitted = Admitted::admit(bytes(&wat(body), MANIFEST), &[]).unwrap_or_else(|e| panic!("{e}"));
    engine.load(admitted).unwrap()
}

/// A memory file with these bytes, filled up to whole pages.
pub fn memfd(contents: &[u8]) -> OwnedFd {
    use std::io::Write;
    let mut file = weir_os::memory::memory_file(c"weir-test").unwrap();
    file.write_all(contents).unwrap();
    file.set_len(contents.len().next_multiple_of(4096) as u64).unwrap();
    file.into()
}

/// 64 packets of 100 bytes, each filled with its own number.
pub struct Packets {
    arena: OwnedFd,
    descriptors: OwnedFd,
}

pub const PACKET_BYTES: usize = 100;
/// The length of the area with the packets.
const ARENA: usize = 8192;

impl Packets {
    pub fn new() -> Self {
        Self::of(|i| vec![u8::try_from(i).unwrap(); PACKET_BYTES], |_, _| ())
    }

    pub fn of(packet: impl Fn(usize) -> Vec<u8>, adjust: impl Fn(usize, &mut Descriptor)) -> Self {
        let mut arena = Vec::new();
        let mut descriptors = Vec::new();
        for i in 0..64 {
            let bytes = packet(i);
            let len = u32::try_from(bytes.len()).unwrap();
            let mut d = Descriptor {
                ts_ns: 1_000 * i as u64,
                data: ARENA_BASE + u32::try_from(arena.len()).unwrap(),
                cap_len: len,
                wire_len: len,
                number: u32::try_from(i).unwrap(),
                link_type: 1,
                ..Descriptor::default()
            };
            adjust(i, &mut d);
            arena.extend(bytes);
            descriptors.extend(encode(&d));
        }
        arena.resize(arena.len().max(ARENA), 0);
        Self { arena: memfd(&arena), descriptors: memfd(&descriptors) }
    }

    pub fn map(&self, instance: &mut Instance) {
        self.map_as(instance, false);
    }

    /// Maps the packets, as memory that nothing changes or as a file.
    pub fn map_as(&self, instance: &mut Instance, is_fixed: bool) {
        let descriptors = Area { fd: self.descriptors.as_fd(), offset: 0, len: BATCH_BYTES, is_fixed: false };
        instance.map_descriptors(descriptors).unwrap();
        instance.map_packets(Area { fd: self.arena.as_fd(), offset: 0, len: ARENA, is_fixed }).unwrap();
    }
}

pub fn encode(d: &Descriptor) -> [u8; DESCRIPTOR_BYTES] {
    let mut out = [0; DESCRIPTOR_BYTES];
    let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &d.ts_ns.to_le_bytes());
    put(8, &d.data.to_le_bytes());
    put(12, &d.cap_len.to_le_bytes());
    put(16, &d.wire_len.to_le_bytes());
    put(20, &d.flags.to_le_bytes());
    put(24, &d.flow_hash.to_le_bytes());
    put(32, &d.l3_offset.to_le_bytes());
    put(34, &d.l4_offset.to_le_bytes());
    put(36, &d.payload_offset.to_le_bytes());
    put(38, &d.ether_type.to_le_bytes());
    put(40, &d.payload_len.to_le_bytes());
    put(44, &d.src_port.to_le_bytes());
    put(46, &d.dst_port.to_le_bytes());
    put(48, &[d.ip_proto, d.tcp_flags, d.ttl, d.tos]);
    put(52, &d.vlan_tci.to_le_bytes());
    put(54, &d.interface.to_le_bytes());
    put(56, &d.link_type.to_le_bytes());
    put(58, &[d.vlan_count, d.mpls_count]);
    put(60, &d.number.to_le_bytes());
    assert_eq!(Descriptor::from_bytes(&out), *d);
    out
}

/// An instance of a module with this body, over [`Packets`].
pub fn started(engine: &Engine, body: &str) -> Instance {
    let mut instance = Instance::start(engine, &program(engine, body)).unwrap();
    Packets::new().map(&mut instance);
    instance
}

pub fn all() -> BatchInput {
    BatchInput { descriptors: DESCRIPTORS_BASE, mask: u64::MAX, first: 0 }
}

/// The u64 values of the records in stream 0, with the packets that they were emitted for.
pub fn values(instance: &mut Instance) -> Vec<u64> {
    let records = instance.take_records(weir_session::Records::default());
    let value = |r: Record<'_>| u64::from_le_bytes(r.row.try_into().unwrap());
    records.iter().map(value).collect()
}

/// A packet function that emits (to stream 0) the i64 that `value` leaves on the stack; `$d` is the descriptor.
pub fn emitting(value: &str) -> String {
    format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (i64.store (i32.const 64) {value})
            (drop (call $emit (i32.const 0) (i32.const 64) (i32.const 8)))
            (i32.const 0))"#
    )
}

/// A packet function that does `act` for packet `n`, and counts all other packets in memory at 0.
pub fn at_packet(n: u32, act: &str) -> String {
    format!(
        r#"(func (export "weir_packet") (param $d i32) (result i32)
            (if (i32.eq (i32.load offset=60 (local.get $d)) (i32.const {n})) (then {act}))
            (i64.store (i32.const 0) (i64.add (i64.load (i32.const 0)) (i64.const 1)))
            (i32.const 0))
          (func (export "weir_stop") (param i64)
            (drop (call $emit (i32.const 0) (i32.const 0) (i32.const 8))))"#
    )
}

/// Runs `test` again in a process of its own, for tests that count the resources of their process. Returns true in
/// that process, and false in the caller after the test passed there.
///
/// # Panics
/// The test failed there, or has another name.
pub fn alone(test: &str) -> bool {
    const ALONE: &str = "WEIR_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    let output = command.args(["--exact", test, "--nocapture"]).env(ALONE, "1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    assert!(output.status.success() && text.contains(" 1 passed"), "{output:?}");
    false
}
