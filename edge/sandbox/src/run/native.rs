//! Calls of verified machine code, in place of the code that Cranelift has compiled.
//!
//! The sandbox of such an instance is the same: memory, packets and the host's state are those of the wasmtime store. Its
//! functions are in machine code, and its globals below the memory.

use crate::load::initial_memory::PAGE;
use crate::load::native::{HostThunk, MutableGlobal, NativeModule, NativePlace};
use crate::run::entry::Globals;
use crate::run::fault::FaultKind;
use crate::run::host::{HostState, Register, call_one};
use crate::run::sandbox_memory::SandboxMemory;
use crate::run::slice::RemainingFuel;
use crate::run::streams::next_event;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use wasmtime::{AsContextMut, Instance, Store, V128, Val};
use weir_admission::STACK_MAX;
use weir_lower::{GuestThunk, TrapCode};
use weir_native::{HostAnswer, HostCalls, NativeExit, NativeGlobals, NativeSandbox, TrapKind};

/// The machine code of an instance, with its stack and its globals.
pub(crate) struct NativeInstance {
    sandbox: NativeSandbox,
    pub(crate) module: Arc<NativeModule>,
}

/// The error of a call that has ended in machine code.
#[derive(Debug, thiserror::Error)]
#[error("{kind}")]
pub(crate) struct NativeFault {
    pub(crate) kind: FaultKind,
    pub(crate) place: NativePlace,
}

impl NativeInstance {
    /// Makes the globals and the stack of an instance.
    ///
    /// # Errors
    /// The system has no memory.
    ///
    /// # Safety
    /// `base` is the beginning of a space, which is dropped after this value.
    pub(crate) unsafe fn new(base: *mut u8, module: &Arc<NativeModule>) -> io::Result<Self> {
        let stack = usize::try_from(STACK_MAX.0).unwrap_or(usize::MAX);
        // SAFETY: a space reserves the bytes below the memory for this purpose, and belongs to one instance.
        let mut sandbox = unsafe { NativeSandbox::new(base, Arc::clone(&module.code), stack)? };
        for global in &module.mutable_globals {
            sandbox.globals().set(global.below, &global.first_value);
        }
        Ok(Self { sandbox, module: Arc::clone(module) })
    }

    /// Copies the values of all globals from an instance of the same module in Cranelift's code.
    pub(crate) fn copy_globals(
        &mut self,
        instance: Instance,
        store: &mut Store<HostState>,
    ) -> wasmtime::Result<()> {
        let mut globals = self.sandbox.globals();
        for MutableGlobal { export, below, .. } in &self.module.mutable_globals {
            let global = instance.get_global(&mut *store, export);
            let global = global.ok_or_else(|| wasmtime::Error::msg(format!("no global `{export}`")))?;
            match global.get(&mut *store) {
                Val::I32(value) => globals.set(*below, &value.to_le_bytes()),
                Val::I64(value) => globals.set(*below, &value.to_le_bytes()),
                Val::F32(bits) => globals.set(*below, &bits.to_le_bytes()),
                Val::F64(bits) => globals.set(*below, &bits.to_le_bytes()),
                Val::V128(value) => globals.set(*below, &value.as_u128().to_le_bytes()),
                _ => return Err(wasmtime::Error::msg("a global with a reference")),
            }
        }
        Ok(())
    }

    /// Copies the values of all globals to an instance of the same module in Cranelift's code.
    pub(crate) fn copy_globals_to(
        &mut self,
        instance: Instance,
        store: &mut Store<HostState>,
    ) -> wasmtime::Result<()> {
        let globals = self.sandbox.globals();
        for MutableGlobal { export, below, .. } in &self.module.mutable_globals {
            let global = instance.get_global(&mut *store, export);
            let global = global.ok_or_else(|| wasmtime::Error::msg(format!("no global `{export}`")))?;
            let register = globals.get(*below);
            let value = match global.get(&mut *store) {
                Val::I32(_) => Val::I32(i32::from_register(register)),
                Val::I64(_) => Val::I64(i64::from_register(register)),
                #[expect(clippy::cast_possible_truncation, reason = "the lower half of the register")]
                Val::F32(_) => Val::F32(register as u32),
                Val::F64(_) => Val::F64(register),
                Val::V128(_) => {
                    let upper = globals.get(below.saturating_sub(8));
                    Val::V128(V128::from(u128::from(upper) << 64 | u128::from(register)))
                }
                _ => return Err(wasmtime::Error::msg("a global with a reference")),
            };
            global.set(&mut *store, value)?;
        }
        Ok(())
    }

    /// Returns the globals.
    pub(crate) fn globals(&mut self) -> NativeGlobals<'_> {
        self.sandbox.globals()
    }

    /// Calls a function that is not suspended, by its index in the code. Returns the register of its result.
    pub(crate) fn call(
        &mut self,
        function: u32,
        arguments: &[u64],
        store: &mut Store<HostState>,
        memory: SandboxMemory,
    ) -> wasmtime::Result<u64> {
        match self.begin(function, arguments, store, memory) {
            NativeStep::Done(result) => result,
            NativeStep::Suspended(_) => {
                let offset = self.sandbox.abandon();
                Err(self.fault(FaultKind::Other, offset).into())
            }
        }
    }

    /// Calls a function, by its index in the code, until it returns or is suspended.
    pub(crate) fn begin(
        &mut self,
        function: u32,
        arguments: &[u64],
        store: &mut Store<HostState>,
        memory: SandboxMemory,
    ) -> NativeStep {
        let mut host = Host::new(store, memory, &self.module.thunks);
        let exit = self.sandbox.call(function, arguments, &mut host);
        let outcome = host.outcome;
        self.step(exit, outcome)
    }

    /// Resumes a suspended call.
    pub(crate) fn resume(
        &mut self,
        remaining: RemainingFuel,
        store: &mut Store<HostState>,
        memory: SandboxMemory,
    ) -> NativeStep {
        match remaining.grant(&mut Globals::new(store, Some(self))) {
            Ok(counter) => {
                let mut host = Host::new(store, memory, &self.module.thunks);
                let exit = self.sandbox.resume(counter.to_register(), &mut host);
                let outcome = host.outcome;
                self.step(exit, outcome)
            }
            Err(error) => {
                let offset = self.sandbox.abandon();
                NativeStep::Done(Err(self.abort_error(error, offset)))
            }
        }
    }

    /// Returns the step that ends with this exit.
    fn step(&self, exit: NativeExit, outcome: HostOutcome) -> NativeStep {
        NativeStep::Done(Err(match (exit, outcome.error) {
            (NativeExit::Returned(register), _) => return NativeStep::Done(Ok(register)),
            (NativeExit::Suspended, _) => match outcome.suspended {
                Some(remaining) => return NativeStep::Suspended(remaining),
                None => FaultKind::Other.into(),
            },
            (NativeExit::Aborted { offset }, Some(error)) => self.abort_error(error, offset),
            (NativeExit::Aborted { offset }, None) => self.fault(FaultKind::Other, offset).into(),
            (NativeExit::Trapped(trap), _) => self.fault(fault_kind(trap.kind), trap.offset).into(),
        }))
    }

    /// Adds the place of an aborted call to its error. `behind` is the offset behind the call of the host function.
    fn abort_error(&self, error: wasmtime::Error, behind: usize) -> wasmtime::Error {
        match error.downcast_ref::<FaultKind>() {
            Some(kind) => self.fault(*kind, behind.saturating_sub(1)).into(),
            None => error,
        }
    }

    fn fault(&self, kind: FaultKind, offset: usize) -> NativeFault {
        NativeFault { kind, place: self.module.place_at(offset) }
    }
}

fn fault_kind(kind: TrapKind) -> FaultKind {
    match kind {
        TrapKind::Access(_) | TrapKind::Code(TrapCode::OutOfBounds) => FaultKind::OutOfBounds,
        TrapKind::Code(TrapCode::Unreachable) => FaultKind::Unreachable,
        TrapKind::Code(TrapCode::Arithmetic) => FaultKind::Arithmetic,
        TrapKind::Code(TrapCode::IndirectCall) => FaultKind::IndirectCall,
        TrapKind::StackOverflow => FaultKind::StackOverflow,
        TrapKind::Interrupted => FaultKind::TimeOverrun,
        TrapKind::Unknown => FaultKind::Other,
    }
}

/// The state of a call in machine code.
pub(crate) enum NativeStep {
    /// The call has ended. The value is the register of its result.
    Done(wasmtime::Result<u64>),
    /// The call is suspended, with these rests of its allowance and slice.
    Suspended(RemainingFuel),
}

/// The host functions of one call.
struct Host<'a> {
    store: &'a mut Store<HostState>,
    memory: SandboxMemory,
    thunks: &'a [HostThunk],
    outcome: HostOutcome,
}

/// The reason of a host function to leave the module's code: an error, or a suspension.
#[derive(Default)]
struct HostOutcome {
    /// The error with which the host function has aborted the call.
    error: Option<wasmtime::Error>,
    /// The rests of allowance and slice of a call that it has suspended.
    suspended: Option<RemainingFuel>,
}

impl HostCalls for Host<'_> {
    fn call(&mut self, thunk: u32, registers: &[u64; 6], globals: NativeGlobals<'_>) -> HostAnswer {
        let result = match self.thunks.get(thunk as usize) {
            // A call that consists of host calls is rarely in the module's code when the watchdog interrupts it, so it ends here.
            _ if self.store.data().must_interrupt.load(Ordering::Relaxed) => {
                Err(FaultKind::TimeOverrun.into())
            }
            Some(HostThunk::Host(function)) => {
                call_one(*function, self.store.data_mut(), registers).map_err(wasmtime::Error::from)
            }
            Some(HostThunk::Limit) => {
                self.store.data_mut().count_exceeded().map(|()| 0).map_err(wasmtime::Error::from)
            }
            Some(HostThunk::Suspend) => {
                let mut globals = Globals { store: self.store.as_context_mut(), native: Some(globals) };
                match RemainingFuel::find(&mut globals, i64::from_register(registers[0])) {
                    Ok(remaining) if remaining.must_suspend(globals.store.data()) => {
                        self.outcome.suspended = Some(remaining);
                        return HostAnswer::Suspend;
                    }
                    Ok(remaining) => remaining.grant(&mut globals).map(Register::to_register),
                    Err(error) => Err(error),
                }
            }
            Some(HostThunk::NextEvent) => {
                let [packet, given] = [registers[0], registers[1]].map(i32::from_register);
                next_event(self.store.data_mut(), packet.cast_unsigned(), given)
                    .map(Register::to_register)
                    .map_err(wasmtime::Error::from)
            }
            Some(HostThunk::Guest(guest)) => self.call_guest(*guest, registers),
            None => Err(FaultKind::Other.into()),
        };
        match result {
            Ok(value) => HostAnswer::Value(value),
            Err(error) => {
                self.outcome.error = Some(error);
                HostAnswer::Abort
            }
        }
    }
}

impl<'a> Host<'a> {
    fn new(store: &'a mut Store<HostState>, memory: SandboxMemory, thunks: &'a [HostThunk]) -> Self {
        Self { store, memory, thunks, outcome: HostOutcome::default() }
    }

    /// Calls a function that replaces an instruction on the memory.
    fn call_guest(&mut self, thunk: GuestThunk, registers: &[u64; 6]) -> wasmtime::Result<u64> {
        let [a, b, c] =
            [registers[0], registers[1], registers[2]].map(|r| i32::from_register(r).cast_unsigned());
        let [start, other, len] = [a, b, c].map(|number| number as usize);
        match thunk {
            GuestThunk::MemorySize => Ok(self.memory.size(self.store) as u64 / PAGE),
            GuestThunk::MemoryGrow => {
                // A growth that is refused returns -1.
                Ok(self.memory.grow(self.store, a).unwrap_or(u32::MAX.into()))
            }
            GuestThunk::MemoryFill => {
                let memory = self.memory.bytes_mut(self.store);
                let place = memory.get_mut(start..).and_then(|rest| rest.get_mut(..len));
                #[expect(clippy::cast_possible_truncation, reason = "memory.fill uses the lowest byte")]
                place.ok_or(FaultKind::OutOfBounds)?.fill(b as u8);
                Ok(0)
            }
            GuestThunk::MemoryCopy => {
                let memory = self.memory.bytes_mut(self.store);
                let is_inside = |start: usize| start + len <= memory.len();
                if !is_inside(start) || !is_inside(other) {
                    return Err(FaultKind::OutOfBounds.into());
                }
                memory.copy_within(other..other + len, start);
                Ok(0)
            }
        }
    }
}

/// Arguments of a function of the module.
pub(crate) trait Arguments {
    /// Returns the arguments in registers, and their number.
    fn registers(self) -> ([u64; 2], usize);
}

impl Arguments for () {
    fn registers(self) -> ([u64; 2], usize) {
        ([0; 2], 0)
    }
}

impl Arguments for i32 {
    fn registers(self) -> ([u64; 2], usize) {
        ([self.to_register(), 0], 1)
    }
}

impl Arguments for i64 {
    fn registers(self) -> ([u64; 2], usize) {
        ([self.to_register(), 0], 1)
    }
}

impl<T: Register> Arguments for (T, i64) {
    fn registers(self) -> ([u64; 2], usize) {
        ([self.0.to_register(), self.1.to_register()], 2)
    }
}
