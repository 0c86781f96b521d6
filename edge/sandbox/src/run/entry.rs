//! Finds the exports of a rewritten module that the host uses: entry points and the loader's globals.

use crate::load::native::NativeModule;
use crate::load::rewrite::{self, Checks, export_name};
use crate::run::event::EventHandlers;
use crate::run::fault::FaultKind;
use crate::run::host::{HostState, Register};
use crate::run::native::NativeInstance;
use crate::run::sandbox_memory::SandboxMemory;
use crate::run::slice::CallCounter;
use std::marker::PhantomData;
use wasmtime::{
    AsContextMut, Func, Global, Instance, Store, StoreContextMut, TypedFunc, Val, WasmParams, WasmResults,
};
use weir_abi::entry::EntryResult;
use weir_abi::host;
use weir_admission::{Admitted, EntryKind, ModuleInfo};
use weir_bounds::EntryPoint;
use weir_native::NativeGlobals;

/// The exports of an instance, in the code that Cranelift has compiled and in machine code: in one of them or in both.
pub(crate) struct Exports<'a> {
    pub(crate) instance: Option<Instance>,
    pub(crate) memory: SandboxMemory,
    pub(crate) store: &'a mut Store<HostState>,
    pub(crate) native: Option<&'a NativeModule>,
}

/// A function of the module that the host calls.
pub(crate) struct EntryFunction<P, R> {
    pub(crate) compiled: Option<TypedFunc<P, R>>,
    /// The index in the machine code.
    pub(crate) native: Option<u32>,
}

// Derived, it would ask the same of the parameters.
impl<P, R> Clone for EntryFunction<P, R> {
    fn clone(&self) -> Self {
        Self { compiled: self.compiled.clone(), native: self.native }
    }
}

/// A function of the module whose type is known only at run time.
#[derive(Clone, Copy)]
pub(crate) struct UntypedFunction {
    pub(crate) compiled: Option<Func>,
    /// The index in the machine code.
    pub(crate) native: Option<u32>,
}

/// A global that the host reads and writes.
#[derive(Clone, Copy)]
pub(crate) struct HostGlobal<T> {
    compiled: Option<Global>,
    /// The place below the memory for machine code.
    below: Option<u32>,
    ty: PhantomData<T>,
}

/// The globals of an instance, in the store or in machine code.
pub(crate) struct Globals<'a> {
    pub(crate) store: StoreContextMut<'a, HostState>,
    /// The globals of machine code, if the instance runs in it.
    pub(crate) native: Option<NativeGlobals<'a>>,
}

impl<'a> Globals<'a> {
    pub(crate) fn new(store: &'a mut Store<HostState>, native: Option<&'a mut NativeInstance>) -> Self {
        Self { store: store.as_context_mut(), native: native.map(NativeInstance::globals) }
    }

    /// Returns the value of a global.
    pub(crate) fn get<T: Register>(&mut self, global: HostGlobal<T>) -> T {
        T::from_register(match (global.below, &self.native) {
            (Some(below), Some(native)) => native.get(below),
            _ => global.compiled.map_or(0, |global| register_of(&global.get(&mut self.store))),
        })
    }

    /// Sets the value of a global.
    pub(crate) fn set<T: Register + Into<Val>>(&mut self, global: HostGlobal<T>, value: T) {
        match (global.below, &mut self.native) {
            (Some(below), Some(native)) => {
                native.set(below, &value.to_register().to_le_bytes()[..size_of::<T>()]);
            }
            // Setting the global cannot fail, because it is mutable and of the value's type.
            _ => _ = global.compiled.map(|global| global.set(&mut self.store, value.into())),
        }
    }
}

impl Exports<'_> {
    /// Returns an exported function.
    pub(crate) fn function<P: WasmParams, R: WasmResults>(
        &mut self,
        name: &str,
    ) -> wasmtime::Result<EntryFunction<P, R>> {
        let compiled =
            self.instance.map(|instance| instance.get_typed_func(&mut *self.store, name)).transpose()?;
        let native = self.native.and_then(|native| native.function(name));
        if compiled.is_none() && native.is_none() {
            return Err(missing(name));
        }
        Ok(EntryFunction { compiled, native })
    }

    /// Returns an exported function of any type.
    pub(crate) fn untyped_function(&mut self, name: &str) -> wasmtime::Result<UntypedFunction> {
        let compiled = self.instance.and_then(|instance| instance.get_func(&mut *self.store, name));
        let native = self.native.and_then(|native| native.function(name));
        if compiled.is_none() && native.is_none() {
            return Err(missing(name));
        }
        Ok(UntypedFunction { compiled, native })
    }

    /// Returns an exported global.
    pub(crate) fn global<T>(&mut self, name: &str) -> wasmtime::Result<HostGlobal<T>> {
        let compiled = self.instance.and_then(|instance| instance.get_global(&mut *self.store, name));
        let below = self.native.and_then(|native| native.global(name));
        if compiled.is_none() && below.is_none() {
            return Err(missing(name));
        }
        Ok(HostGlobal { compiled, below, ty: PhantomData })
    }

    /// Returns the exported function that calls an entry point, or `None` if the module lacks the entry point.
    pub(crate) fn entry_function<P: WasmParams, R: WasmResults>(
        &mut self,
        facts: &ModuleInfo,
        entry: EntryPoint,
    ) -> wasmtime::Result<Option<EntryFunction<P, R>>> {
        facts.entries.has(entry).then(|| self.function(&export_name(entry))).transpose()
    }
}

/// Returns the register for a value.
pub(crate) fn register_of(value: &Val) -> u64 {
    match *value {
        Val::I32(value) => value.to_register(),
        Val::I64(value) => value.to_register(),
        Val::F64(bits) => bits,
        _ => 0,
    }
}

fn missing(name: &str) -> wasmtime::Error {
    wasmtime::Error::msg(format!("the rewritten module has no export `{name}`"))
}

/// The exports of a module's WebAssembly instance that the host uses.
pub(crate) struct Wasm {
    pub(crate) memory: SandboxMemory,
    /// The functions that are called before the first packet, in order.
    pub(crate) starts: Vec<StartFunction>,
    pub(crate) run: EntryFunction<(i32, i64), i64>,
    pub(crate) tick: Option<EntryFunction<(i64, i64), ()>>,
    pub(crate) stop: Option<EntryFunction<i64, ()>>,
    /// `weir_rest`.
    pub(crate) rest: Option<EntryFunction<i64, i32>>,
    pub(crate) lost: Option<EntryFunction<i32, ()>>,
    /// The loop over events of TCP streams without a packet.
    pub(crate) events: Option<EntryFunction<(i32, i64), i64>>,
    pub(crate) event_handlers: EventHandlers,
    /// The meter's counter, if the module is charged.
    pub(crate) fuel: Option<HostGlobal<i64>>,
    /// The counter of suspendable calls.
    pub(crate) counter: Option<CallCounter>,
    /// The mask of remaining packets.
    pub(crate) remaining: HostGlobal<i64>,
    /// The mask of packets to drop.
    pub(crate) drops: HostGlobal<i64>,
    /// The pointer of the module's shadow stack, and its value for an empty stack.
    pub(crate) stack: Option<(HostGlobal<i32>, i32)>,
    /// True if the module has a packet function, and false if it has a batch function.
    pub(crate) has_packet_function: bool,
    /// The mask of packets that may have events of TCP streams, if the module follows streams.
    pub(crate) event_mask: Option<HostGlobal<i64>>,
    /// True if the module gets no packets, but only events of TCP streams.
    pub(crate) has_only_events: bool,
}

impl Wasm {
    pub(crate) fn find_exports(
        mut exports: Exports<'_>,
        admitted: &Admitted,
        checks: Checks,
    ) -> wasmtime::Result<Self> {
        let facts = admitted.info();
        let memory = exports.memory;
        let remaining = exports.global(rewrite::REMAINING)?;
        let drops = exports.global(rewrite::DROPS)?;
        let event_mask = facts.stream_function.map(|_| exports.global(rewrite::EVENT_MASK)).transpose()?;
        let fuel = checks.is_charged().then(|| exports.global(rewrite::FUEL)).transpose()?;
        let stack = match facts.stack_pointer {
            None => None,
            Some(_) => {
                let pointer: HostGlobal<i32> = exports.global(rewrite::STACK_POINTER)?;
                let empty = match (pointer.compiled, exports.native, pointer.below) {
                    (None, Some(native), Some(below)) => i32::from_register(native.first_value(below)),
                    _ => Globals::new(exports.store, None).get(pointer),
                };
                Some((pointer, empty))
            }
        };
        let counter =
            checks.has_suspendable_calls().then(|| CallCounter::find(&mut exports, checks)).transpose()?;
        let starts = facts.entries.iter().filter(|entry| entry.phase() == host::CallPhase::Start);
        let starts =
            starts.map(|entry| StartFunction::find(&mut exports, entry)).collect::<Result<_, _>>()?;
        Ok(Self {
            memory,
            starts,
            run: exports.function(rewrite::RUN)?,
            tick: exports.entry_function(facts, EntryPoint::Tick)?,
            stop: exports.entry_function(facts, EntryPoint::Stop)?,
            rest: exports.entry_function(facts, EntryPoint::Rest)?,
            lost: exports.entry_function(facts, EntryPoint::Lost)?,
            events: facts.stream_function.map(|_| exports.function(rewrite::RUN_EVENTS)).transpose()?,
            event_handlers: EventHandlers::find(&mut exports, facts)?,
            fuel,
            counter,
            remaining,
            drops,
            stack,
            has_packet_function: facts.entry() != EntryKind::Batch,
            event_mask,
            has_only_events: facts.entry() == EntryKind::Stream,
        })
    }
}

/// A function of the module that is called before the first packet.
#[derive(Clone)]
pub(crate) enum StartFunction {
    /// A function without a result, such as `_initialize`.
    Constructor(EntryFunction<(), ()>),
    /// `weir_start`, which returns 0, or a code of the module's own if the module does not want to run.
    Start(EntryFunction<(), i32>),
}

impl StartFunction {
    pub(crate) fn find(exports: &mut Exports<'_>, entry: EntryPoint) -> wasmtime::Result<Self> {
        let name = export_name(entry);
        Ok(match entry.definition().result {
            EntryResult::Consent => Self::Start(exports.function(&name)?),
            _ => Self::Constructor(exports.function(&name)?),
        })
    }
}

/// Checks the result of `weir_start`: 0 means that the module runs.
pub(crate) fn check_start_result(code: i64) -> wasmtime::Result<()> {
    match i32::try_from(code) {
        Ok(0) => Ok(()),
        Ok(code) => Err(FaultKind::Declined(code).into()),
        Err(_) => Err(FaultKind::Other.into()),
    }
}
