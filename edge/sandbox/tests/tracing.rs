//! Traces of instances: their calls, the calls of host functions with their bytes, and faults.

use crate::support::{Packets, all, emitting, engine, options, program, values};
use weir_abi::entry::EntryPoint;
use weir_abi::host::HostFunction;
use weir_sandbox::{Engine, EngineOptions, Instance, LlvmUse, TraceStep};
use weir_units::Timestamp;

fn tracing() -> Engine {
    // Machine code of LLVM is not traced.
    Engine::new(EngineOptions { traces: true, llvm: LlvmUse::Never, ..options() }, None).unwrap()
}

fn on_packets(engine: &Engine, body: &str) -> Instance {
    let mut instance = Instance::start(engine, &program(engine, body)).unwrap();
    Packets::new().map(&mut instance);
    instance
}

#[test]
fn a_traced_instance_does_the_same_and_its_steps_have_all_bytes() {
    // The number of the packet, which is a field of the descriptor.
    let body = emitting("(i64.load32_u offset=60 (local.get $d))");
    let (traced, plain) = (tracing(), engine());
    let (mut instance, mut other) = (on_packets(&traced, &body), on_packets(&plain, &body));
    instance.take_trace();
    assert_eq!(instance.run(all()), other.run(all()));
    assert!(other.take_trace().is_empty());
    let steps = instance.take_trace();
    let Some(TraceStep::Call(call)) = steps.first() else { panic!("{steps:?}") };
    assert_eq!(
        (call.entry, call.arguments[1], call.descriptors.len()),
        (EntryPoint::Packet, u64::MAX, 64 * 128)
    );
    assert_eq!(steps.last(), Some(&TraceStep::End(Some(0))));
    let emitted: Vec<u64> = steps
        .iter()
        .filter_map(|step| match step {
            TraceStep::HostCall(call) => Some(call),
            _ => None,
        })
        .map(|call| {
            assert_eq!((call.function, call.result, call.arguments[2]), (HostFunction::Emit, Some(0), 8));
            u64::from_le_bytes(call.input.as_slice().try_into().unwrap())
        })
        .collect();
    assert_eq!(emitted, values(&mut other));
    assert_eq!(emitted, values(&mut instance));
    instance.tick(Timestamp(7), 2, 0);
    assert!(instance.take_trace().is_empty(), "the module has no weir_tick");
}

#[test]
fn bytes_that_a_host_function_writes_and_faults_are_in_the_trace() {
    // A digest of nothing, and then one into an address that is not the module's.
    let body = r#"(func (export "weir_packet") (param $d i32) (result i32)
        (drop (call $digest (i32.const 2) (i32.const 0) (i32.const 0) (i32.const 64)))
        (drop (call $digest (i32.const 2) (i32.const 0) (i32.const 0) (i32.const -9)))
        (i32.const 0))"#;
    let engine = tracing();
    let mut instance = on_packets(&engine, body);
    instance.take_trace();
    let batch = weir_sandbox::BatchInput { mask: 1, ..all() };
    instance.run(batch);
    let steps = instance.take_trace();
    let [TraceStep::Call(_), TraceStep::HostCall(first), TraceStep::HostCall(second), TraceStep::End(None)] =
        steps.as_slice()
    else {
        panic!("{steps:?}")
    };
    // SHA-256 of nothing (FIPS 180-4).
    assert_eq!(first.output[..4], [0xe3, 0xb0, 0xc4, 0x42]);
    assert_eq!((first.result, first.output.len()), (Some(32), 32));
    assert_eq!((second.result, second.output.len()), (None, 0));
}
