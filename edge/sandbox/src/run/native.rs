//! Calls of verified machine code, in place of the code that Cranelift has compiled.
//!
//! The sandbox of such an instance is the same: memory, packets and the host's state are those of the wasmtime store. Its
//! functions are in machine code, and its globals below the memory.

use crate::load::native::{HostThunk, NativeModule};
use crate::run::fault::FaultKind;
use crate::run::host::{HostState, Register, call_one};
use crate::run::streams::next_event;
use std::io;
use std::sync::Arc;
use wasmtime::{Memory, Store};
use weir_admission::STACK_MAX;
use weir_lower::{GuestThunk, TrapCode};
use weir_native::{HostAnswer, HostCalls, NativeExit, NativeSandbox, TrapKind};

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
    /// The index and the name of the function, in the rewritten module.
    pub(crate) function: Option<(u32, Option<String>)>,
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
        for (below, value) in &module.first_values {
            sandbox.set_global_bytes(*below, value);
        }
        Ok(Self { sandbox, module: Arc::clone(module) })
    }

    /// Returns the global at this place.
    pub(crate) fn get_global<T: Register>(&self, below: u32) -> T {
        T::from_register(self.sandbox.get_global(below))
    }

    /// Sets the global at this place.
    pub(crate) fn set_global<T: Register>(&mut self, below: u32, value: T) {
        let bytes = value.to_register().to_le_bytes();
        self.sandbox.set_global_bytes(below, &bytes[..size_of::<T>()]);
    }

    /// Calls a function, by its index in the code. Returns the register of its result.
    pub(crate) fn call(
        &mut self,
        function: u32,
        arguments: &[u64],
        store: &mut Store<HostState>,
        memory: Memory,
    ) -> wasmtime::Result<u64> {
        let mut host = Host { store, memory, thunks: &self.module.thunks, error: None };
        let exit = self.sandbox.call(function, arguments, &mut host);
        let (kind, offset) = match (exit, host.error) {
            (NativeExit::Returned(register), _) => return Ok(register),
            (NativeExit::Aborted { offset }, Some(error)) => match error.downcast_ref::<FaultKind>() {
                Some(kind) => (*kind, offset),
                None => return Err(error),
            },
            (NativeExit::Trapped(trap), _) => (fault_kind(trap.kind), trap.offset),
            (NativeExit::Aborted { offset }, None) => (FaultKind::Other, offset),
            (NativeExit::Suspended, _) => (FaultKind::Other, 0),
        };
        Err(self.fault(kind, offset).into())
    }

    fn fault(&self, kind: FaultKind, offset: usize) -> NativeFault {
        let function = self.module.function_at(offset);
        NativeFault { kind, function: function.map(|(index, name)| (index, name.map(str::to_owned))) }
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

/// The host functions of one call.
struct Host<'a> {
    store: &'a mut Store<HostState>,
    memory: Memory,
    thunks: &'a [HostThunk],
    /// The error with which a host function has aborted the call.
    error: Option<wasmtime::Error>,
}

impl HostCalls for Host<'_> {
    fn call(&mut self, thunk: u32, registers: &[u64; 6]) -> HostAnswer {
        let result = match self.thunks.get(thunk as usize) {
            Some(HostThunk::Host(function)) => {
                call_one(*function, self.store.data_mut(), registers).map_err(wasmtime::Error::from)
            }
            Some(HostThunk::Limit) => {
                self.store.data_mut().count_exceeded().map(|()| 0).map_err(wasmtime::Error::from)
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
                self.error = Some(error);
                HostAnswer::Abort
            }
        }
    }
}

impl Host<'_> {
    /// Calls a function that replaces an instruction on the memory.
    fn call_guest(&mut self, thunk: GuestThunk, registers: &[u64; 6]) -> wasmtime::Result<u64> {
        let [a, b, c] =
            [registers[0], registers[1], registers[2]].map(|r| i32::from_register(r).cast_unsigned());
        let [start, other, len] = [a, b, c].map(|number| number as usize);
        match thunk {
            GuestThunk::MemorySize => Ok(self.memory.size(&*self.store)),
            GuestThunk::MemoryGrow => {
                // A growth that is refused returns -1.
                Ok(self.memory.grow(&mut *self.store, a.into()).unwrap_or(u32::MAX.into()))
            }
            GuestThunk::MemoryFill => {
                let memory = self.memory.data_mut(&mut *self.store);
                let place = memory.get_mut(start..).and_then(|rest| rest.get_mut(..len));
                #[expect(clippy::cast_possible_truncation, reason = "memory.fill uses the lowest byte")]
                place.ok_or(FaultKind::OutOfBounds)?.fill(b as u8);
                Ok(0)
            }
            GuestThunk::MemoryCopy => {
                let memory = self.memory.data_mut(&mut *self.store);
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
