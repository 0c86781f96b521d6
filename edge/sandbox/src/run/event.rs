//! Events that a module can handle: low memory, and calls and answers of services. The host calls the handler of an event
//! between two calls for packets, as a separate call with its own allowance.

use crate::load::rewrite::export_name;
use crate::run::entry::{Exports, UntypedFunction};
use crate::run::host::HostState;
use crate::run::instance::Instance;
use crate::run::rights::WriteRights;
use crate::run::suspend::Call;
use crate::run::table::{TablePublisher, TableVersion};
use std::sync::Arc;
use wasmtime::Val;
use weir_abi::entry::{self, EntryType};
use weir_abi::host::ValueType;
use weir_bounds::EntryPoint;
use weir_units::{Bytes, Nanos};
use {
    weir_admission::ModuleInfo,
    weir_session::{KeptPackets, MemoryReservation},
};

/// The resources and services that an instance gets from its session.
#[derive(Clone, Debug, Default)]
pub struct InstanceContext {
    /// The session's memory reservation. With `None`, only the module's own ceiling limits its memory.
    pub memory: Option<Arc<MemoryReservation>>,
    /// The session's limit of kept packets. With `None`, only the module's own limit applies.
    pub kept: Option<Arc<KeptPackets>>,
    /// The session's write rights. With `None`, all writable fields may be written.
    pub writes: Option<Arc<WriteRights>>,
    /// Calls services of other modules, and replies to their calls. With `None`, there are no services.
    pub messages: Option<Arc<dyn MessageHandler>>,
    /// The shared tables (named bytes that modules publish and read) that the module sees from the start, by their index in
    /// its manifest.
    pub tables: Vec<Option<Arc<TableVersion>>>,
    /// Publishes the module's shared tables. With `None`, publishing fails.
    pub publisher: Option<Arc<dyn TablePublisher>>,
}

/// Handles a module's calls of services and its replies. The arguments come from the untrusted module.
pub trait MessageHandler: std::fmt::Debug + Send + Sync {
    /// Calls a service, by its index in the module's manifest. The reply must arrive `within` this time. Returns a
    /// ticket of the call, or an error [`code`](weir_abi::code).
    fn call(&self, service: u32, message: &[u8], within: Nanos) -> i64;

    /// Sends the reply to a call that the module serves. Returns 0, or an error [`code`](weir_abi::code).
    fn reply(&self, call: u64, message: &[u8]) -> i32;
}

/// An event that a module can handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleEvent {
    /// The session's memory reservation is nearly used up.
    LowMemory {
        /// The memory that is left.
        left: Bytes,
    },
    /// A call for the module to serve. The request is the [message](Instance::set_message).
    Serve {
        /// The number of the call.
        call: u64,
        /// The index of the service among the module's own.
        service: u32,
    },
    /// The answer to a call of the module, with the reply as the [message](Instance::set_message).
    Answer {
        /// The ticket of the call.
        ticket: u64,
        /// An [answer](weir_abi::answer) status.
        status: i32,
    },
}

impl ModuleEvent {
    /// Returns the entry point that handles the event.
    pub const fn entry(self) -> EntryPoint {
        match self {
            Self::LowMemory { .. } => EntryPoint::LowMemory,
            Self::Serve { .. } => EntryPoint::Serve,
            Self::Answer { .. } => EntryPoint::Answer,
        }
    }

    /// Returns the arguments of the entry point, without the message length, in the order of its parameters.
    pub(crate) fn arguments_without_length(self) -> [u64; ARGUMENTS_MAX] {
        match self {
            Self::LowMemory { left } => [left.0, 0],
            Self::Serve { call, service } => [call, service.into()],
            Self::Answer { ticket, status } => [ticket, status.cast_unsigned().into()],
        }
    }

    /// Returns the event of an entry point with these arguments, or `None` if the entry point does not handle events.
    pub(crate) fn from_arguments(entry: EntryPoint, [first, second]: [u64; ARGUMENTS_MAX]) -> Option<Self> {
        let second_as_u32 = u32::try_from(second);
        match entry {
            EntryPoint::LowMemory => Some(Self::LowMemory { left: Bytes(first) }),
            EntryPoint::Serve => Some(Self::Serve { call: first, service: second_as_u32.ok()? }),
            EntryPoint::Answer => {
                Some(Self::Answer { ticket: first, status: second_as_u32.ok()?.cast_signed() })
            }
            EntryPoint::StartFunction | EntryPoint::Initialize | EntryPoint::Start => None,
            EntryPoint::Packet | EntryPoint::Batch | EntryPoint::Stream | EntryPoint::Tick => None,
            EntryPoint::Lost | EntryPoint::Stop | EntryPoint::Rest => None,
        }
    }

    /// Returns whether the event has a message.
    pub(crate) fn has_message(self) -> bool {
        self.entry().definition().parameters.iter().any(|parameter| parameter.ty == EntryType::MessageLength)
    }

    /// Returns the arguments of the entry point, with the message length if it has one.
    pub(crate) fn arguments(self, host: &HostState) -> Vec<Val> {
        let mut numbers = self.arguments_without_length().into_iter();
        let parameters = self.entry().definition().parameters.iter();
        let argument = |ty: EntryType| match ty {
            EntryType::MessageLength => Val::I32(i32::try_from(host.message.len()).unwrap_or(i32::MAX)),
            _ => argument_value(ty.value_type(), numbers.next().unwrap_or_default()),
        };
        parameters.map(|parameter| parameter.ty).map(argument).collect()
    }
}

/// The most arguments of the handler of an event, without the message length.
pub(crate) const ARGUMENTS_MAX: usize = 2;

/// Converts a number to an argument of a WebAssembly function.
fn argument_value(ty: ValueType, number: u64) -> Val {
    match ty {
        // An argument of this type was widened from 32 bits, so it fits.
        ValueType::I32 => Val::I32(u32::try_from(number).unwrap_or(u32::MAX).cast_signed()),
        ValueType::I64 => Val::I64(number.cast_signed()),
        ValueType::F64 => Val::F64(number),
    }
}

/// The module's functions that handle events, by entry point.
pub(crate) struct EventHandlers([Option<UntypedFunction>; entry::COUNT]);

impl EventHandlers {
    pub(crate) fn find(exports: &mut Exports<'_>, facts: &ModuleInfo) -> wasmtime::Result<Self> {
        let mut functions = [None; entry::COUNT];
        for entry in facts
            .entries
            .iter()
            .filter(|entry| ModuleEvent::from_arguments(*entry, [0; ARGUMENTS_MAX]).is_some())
        {
            functions[entry as usize] = Some(exports.untyped_function(&export_name(entry))?);
        }
        Ok(Self(functions))
    }

    pub(crate) fn function_for(&self, event: ModuleEvent) -> Option<UntypedFunction> {
        self.0[event.entry() as usize]
    }

    pub(crate) fn has(&self, event: ModuleEvent) -> bool {
        self.function_for(event).is_some()
    }
}

impl Instance {
    /// Returns whether the module handles this event.
    pub fn handles(&self, event: ModuleEvent) -> bool {
        self.wasm.as_ref().is_some_and(|wasm| wasm.event_handlers.has(event))
    }

    /// Returns the low-memory event if memory became low since the last call of this function, and the module handles
    /// that event.
    pub fn low_memory(&mut self) -> Option<ModuleEvent> {
        let state = self.context.memory.as_ref()?.state();
        let is_unchanged = std::mem::replace(&mut self.times_low, state.times_low) == state.times_low;
        let event = ModuleEvent::LowMemory { left: state.left() };
        (!is_unchanged && self.handles(event)).then_some(event)
    }

    /// Sets the message of the next event. It stays until the next call of this function. Has no effect while a call [is
    /// suspended](Self::is_suspended).
    pub fn set_message(&mut self, message: Vec<u8>) {
        if let Some(host) = self.host_mut() {
            host.message = message;
        }
    }

    /// Calls the module's handler of an event, and runs it to completion. A caller that sorts records by their position in a
    /// block must not call this between the batches of a block: records of the handler have the position before the
    /// first packet of a block.
    pub fn handle_event(&mut self, event: ModuleEvent) {
        self.run_to_completion(Call::Event(event));
    }
}
