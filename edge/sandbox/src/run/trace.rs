//! A trace of a module's calls: which functions weir has called, which host functions the module has called meanwhile, with
//! the bytes that went in and out, and the results.
//!
//! `weir test` replays a trace in a native build of the module, with the sandbox's answers. An engine traces only if its
//! [options](crate::EngineOptions::traces) say so, and then in Cranelift's code. Its host functions are others than those
//! of an engine that does not trace, so that tracing costs the latter nothing but one comparison for each call of weir.

use crate::load::batch::answer;
use crate::run::fault::FaultKind;
use crate::run::guest_memory::guest_memory;
use crate::run::host::{HostState, call_one};
use crate::run::suspend::Invocation;
use wasmtime::{Caller, FuncType, Linker, Val, ValType};
use weir_abi::host::{self, HOST_FUNCTIONS, HostDefinition, HostFunction, HostType, ValueType};
use weir_abi::{BATCH_BYTES, STREAMS_BASE, code, stream};
use weir_bounds::EntryPoint;

/// A step of a traced instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TraceStep {
    /// weir calls a function of the module.
    Call(TracedCall),
    /// The module calls a host function.
    HostCall(TracedHostCall),
    /// The module gets an event of a TCP stream.
    StreamEvent(TracedEvent),
    /// The function returns: the mask of packets to drop for a batch, the result of `weir_rest`, otherwise 0. `None` after a
    /// fault.
    End(Option<i64>),
}

/// A call of a function of the module. For a batch, the loader's loop calls `weir_packet` for each packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedCall {
    /// The entry point: [`EntryPoint::Packet`] for a batch of packets, [`EntryPoint::Stream`] for events of TCP streams
    /// without a packet.
    pub entry: EntryPoint,
    /// The arguments; for a batch the guest address of the descriptors, and the mask of its packets.
    pub arguments: [u64; 3],
    /// The index in the block of the batch's first packet; 0 for another call.
    pub first: u32,
    /// The descriptors of a batch, as the module sees them; empty for another call.
    pub descriptors: Vec<u8>,
}

/// A call of a host function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedHostCall {
    /// The function.
    pub function: HostFunction,
    /// The arguments, as 64-bit numbers. Addresses are those of the sandbox.
    pub arguments: [u64; 6],
    /// The bytes that the function has read. For a record that was emitted: the row, normalised.
    pub input: Vec<u8>,
    /// The strings of a record that was emitted.
    pub tail: Vec<u8>,
    /// The bytes that the function has written to the module's memory.
    pub output: Vec<u8>,
    /// The result; `None` for a call that ended the module's call.
    pub result: Option<u64>,
}

/// An event of a TCP stream that the module has got, or the answer that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedEvent {
    /// The guest address of the packet's descriptor; 0 for an event without a packet.
    pub packet: u32,
    /// The module's reply to the event before, if that was of the same packet.
    pub reply: i32,
    /// The event, as `weir_stream` sees it; empty if there is no further event.
    pub event: Vec<u8>,
    /// The bytes of the event that are not in the packet.
    pub bytes: Vec<u8>,
}

impl TracedCall {
    /// Returns the call of an invocation.
    pub(crate) fn of(invocation: Invocation, host: &mut HostState) -> Self {
        let call = |entry, arguments| Self { entry, arguments, first: 0, descriptors: Vec::new() };
        match invocation {
            Invocation::Start(index) => {
                let starts = host.admitted.info().entries.iter();
                let starts = starts.filter(|entry| entry.phase() == host::CallPhase::Start);
                call(starts.into_iter().nth(index).unwrap_or(EntryPoint::Start), [0; 3])
            }
            Invocation::Batch(batch) => Self {
                entry: EntryPoint::Packet,
                arguments: [batch.descriptors.into(), batch.mask, 0],
                first: batch.first,
                descriptors: {
                    let len = u32::try_from(BATCH_BYTES).unwrap_or(0);
                    bytes_at(host, HostFunction::Emit, batch.descriptors, len)
                },
            },
            Invocation::Tick { now, periods, .. } => call(EntryPoint::Tick, [now.0, periods, 0]),
            Invocation::StreamEvents { .. } => call(EntryPoint::Stream, [0; 3]),
            Invocation::Stop { now } => call(EntryPoint::Stop, [now.0, 0, 0]),
            Invocation::Rest { now } => call(EntryPoint::Rest, [now.0, 0, 0]),
            Invocation::Lost { cause, .. } => {
                call(EntryPoint::Lost, [u64::from(cause.cast_unsigned()), 0, 0])
            }
            Invocation::Event(event) => {
                let [first, second] = event.arguments_without_length();
                call(event.entry(), [first, second, host.message.len() as u64])
            }
        }
    }
}

impl HostState {
    /// Adds a step to the trace, if the instance is traced.
    #[inline]
    pub(crate) fn trace(&mut self, step: impl FnOnce(&mut Self) -> TraceStep) {
        if let Some(mut trace) = self.trace.take() {
            trace.push(step(self));
            self.trace = Some(trace);
        }
    }
}

/// Defines all host functions that modules import, with tracing.
pub(crate) fn define_traced(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let value_type = |ty: ValueType| match ty {
        ValueType::I32 => ValType::I32,
        ValueType::I64 => ValType::I64,
        ValueType::F64 => ValType::F64,
    };
    for definition in &HOST_FUNCTIONS {
        let mask = definition.gets_packet_mask.then_some(ValType::I64);
        let parameters = definition.parameter_types().map(value_type).chain(mask);
        let result = value_type(definition.result.value_type());
        let ty = FuncType::new(linker.engine(), parameters, [result]);
        linker.func_new(
            host::MODULE,
            definition.name,
            ty,
            |mut caller: Caller<'_, HostState>, values, results| {
                let mut registers = [0; 6];
                for (register, value) in registers.iter_mut().zip(values) {
                    *register = match value {
                        Val::I32(value) => value.cast_unsigned().into(),
                        Val::I64(value) => value.cast_unsigned(),
                        Val::F64(bits) => *bits,
                        _ => 0,
                    };
                }
                let result = traced_call(caller.data_mut(), definition, registers)?;
                if let Some(place) = results.first_mut() {
                    #[expect(clippy::cast_possible_truncation, reason = "the lower half of the register")]
                    let value = match definition.result.value_type() {
                        ValueType::I32 => Val::I32((result as u32).cast_signed()),
                        ValueType::I64 => Val::I64(result.cast_signed()),
                        ValueType::F64 => Val::F64(result),
                    };
                    *place = value;
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// Calls a host function, and adds the call to the trace.
fn traced_call(
    host: &mut HostState,
    definition: &HostDefinition,
    arguments: [u64; 6],
) -> Result<u64, FaultKind> {
    let function = definition.function;
    let mut step = TracedHostCall {
        function,
        arguments,
        input: input_of(host, definition, &arguments),
        tail: Vec::new(),
        output: Vec::new(),
        result: None,
    };
    let result = call_one(function, host, &arguments);
    if let Ok(result) = result {
        step.result = Some(result);
        step.output = output_of(host, definition, &arguments, result);
        if function == HostFunction::Emit
            && low(result).cast_signed() == code::OK
            && let Some(record) = host.records.iter().last()
        {
            (step.input, step.tail) = (record.row.to_vec(), record.tail.to_vec());
        }
    }
    host.trace(|_| TraceStep::HostCall(step));
    result
}

/// Returns the bytes that a call reads; none if they are not readable, so that the call faults.
fn input_of(host: &mut HostState, definition: &HostDefinition, arguments: &[u64; 6]) -> Vec<u8> {
    let place = definition.parameters.iter().position(|parameter| parameter.ty == HostType::Bytes);
    let Some(place) = place else { return Vec::new() };
    bytes_at(host, definition.function, low(arguments[place]), low(arguments[place + 1]))
}

/// Returns the bytes that a call has written to the module's memory.
fn output_of(
    host: &mut HostState,
    definition: &HostDefinition,
    arguments: &[u64; 6],
    result: u64,
) -> Vec<u8> {
    let Ok(written) = u32::try_from(low(result).cast_signed()) else { return Vec::new() };
    let (address, len) = match definition.parameters.iter().enumerate().find_map(|(i, parameter)| {
        matches!(parameter.ty, HostType::Buffer | HostType::CryptoRequest).then_some((i, parameter.ty))
    }) {
        Some((place, HostType::Buffer)) => {
            // A call with a length of its own buffer copies at most that much.
            let room = definition.parameters.get(place + 1).map_or(written, |_| low(arguments[place + 1]));
            (low(arguments[place]), written.min(room))
        }
        Some((place, _)) => {
            let request = bytes_at(
                host,
                definition.function,
                low(arguments[place]),
                u32::try_from(weir_abi::crypto::REQUEST_BYTES).unwrap_or(0),
            );
            let Ok(request) = request.as_slice().try_into() else { return Vec::new() };
            (weir_abi::crypto::CryptoRequest::from_bytes(request).output, written)
        }
        None => return Vec::new(),
    };
    bytes_at(host, definition.function, address, len)
}

/// Returns bytes of the module; none if they are not readable.
fn bytes_at(host: &mut HostState, function: HostFunction, address: u32, len: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Ok(guest) = guest_memory(host, function) {
        // The call that is traced has the error.
        let _ = guest.append(address, len, &mut bytes);
    }
    bytes
}

/// Adds an event of a TCP stream to the trace, or the answer that there is none.
pub(crate) fn trace_event(host: &mut HostState, packet: u32, reply: i32, given: i32) {
    if host.trace.is_none() {
        return;
    }
    let mut step = TracedEvent { packet, reply, event: Vec::new(), bytes: Vec::new() };
    if given != answer::NONE {
        let len = u32::try_from(stream::EVENT_BYTES).unwrap_or(0);
        step.event = bytes_at(host, HostFunction::Emit, STREAMS_BASE, len);
        let word = |at: usize| {
            step.event.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |w| u32::from_le_bytes(*w))
        };
        // The address and the length of the event's bytes.
        let (address, len) = (word(8), word(12));
        if address >= STREAMS_BASE {
            step.bytes = bytes_at(host, HostFunction::Emit, address, len);
        }
    }
    host.trace(|_| TraceStep::StreamEvent(step));
}

/// Returns the lower half of a register.
#[expect(clippy::cast_possible_truncation, reason = "the upper half has no meaning")]
const fn low(register: u64) -> u32 {
    register as u32
}
