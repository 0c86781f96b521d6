//! The methods of calling one function of a module: on the caller's stack, or on a stack of its own, in either back end's code.

use crate::run::entry::{EntryFunction, UntypedFunction, register_of};
use crate::run::fault::FaultKind;
use crate::run::host::{HostState, Register};
use crate::run::native::{Arguments, NativeInstance, NativeStep};
use crate::run::sandbox_memory::SandboxMemory;
use crate::run::slice::pause;
use std::pin::Pin;
use wasmtime::{Store, Val, WasmParams, WasmResults};

/// A method of calling a function of the module: on the caller's stack, or on a stack of its own.
pub(crate) trait CallMethod {
    /// The result of a call, or the call in progress on its own stack.
    type Output;

    fn call<P, R>(self, function: &EntryFunction<P, R>, arguments: P, value: ToCallValue<R>) -> Self::Output
    where
        P: WasmParams + Arguments + Sync + 'static,
        R: WasmResults + Register + Sync + 'static;

    /// Calls a function whose type is known only at run time, and that returns nothing.
    fn call_untyped(
        self,
        function: UntypedFunction,
        arguments: impl FnOnce(&HostState) -> Vec<Val>,
    ) -> Self::Output;
}

/// The function that converts the result of a function of the module to the value of the call.
pub(crate) type ToCallValue<R> = fn(R) -> wasmtime::Result<i64>;

/// Returns the function in Cranelift's code. An instance without such code always runs in verified code, and has ended if the
/// verified code is withdrawn.
fn compiled<F>(function: Option<&F>) -> wasmtime::Result<&F> {
    function.ok_or_else(|| FaultKind::Withdrawn.into())
}

/// The method of calling on the caller's stack, to completion.
pub(crate) struct ToCompletion<'a> {
    pub(crate) store: &'a mut Store<HostState>,
    pub(crate) memory: SandboxMemory,
    pub(crate) native: Option<&'a mut NativeInstance>,
}

impl CallMethod for ToCompletion<'_> {
    type Output = wasmtime::Result<i64>;

    #[inline]
    fn call<P, R>(self, function: &EntryFunction<P, R>, arguments: P, value: ToCallValue<R>) -> Self::Output
    where
        P: WasmParams + Arguments + Sync + 'static,
        R: WasmResults + Register + Sync + 'static,
    {
        let (Some(native), Some(index)) = (self.native, function.native) else {
            return compiled(function.compiled.as_ref())?.call(self.store, arguments).and_then(value);
        };
        let (registers, count) = arguments.registers();
        let register = native.call(index, &registers[..count], self.store, self.memory)?;
        value(R::from_register(register))
    }

    fn call_untyped(
        self,
        function: UntypedFunction,
        arguments: impl FnOnce(&HostState) -> Vec<Val>,
    ) -> Self::Output {
        let arguments = arguments(self.store.data());
        let (Some(native), Some(index)) = (self.native, function.native) else {
            return compiled(function.compiled.as_ref())?.call(self.store, &arguments, &mut []).map(|()| 0);
        };
        let registers: Vec<u64> = arguments.iter().map(register_of).collect();
        native.call(index, &registers, self.store, self.memory).map(|_| 0)
    }
}

/// The parts of an instance that a call on a stack of its own takes, and returns at its end.
pub(crate) struct CallOwner {
    /// Dropped before the store, which owns the address space.
    pub(crate) native: Option<NativeInstance>,
    pub(crate) store: Store<HostState>,
    pub(crate) memory: SandboxMemory,
}

impl CallOwner {
    /// Calls a function of machine code, by its index in the code.
    async fn call_native(mut self, function: u32, registers: &[u64]) -> (Self, wasmtime::Result<u64>) {
        let Some(native) = &mut self.native else { return (self, Err(FaultKind::Other.into())) };
        let mut step = native.begin(function, registers, &mut self.store, self.memory);
        let result = loop {
            match step {
                NativeStep::Done(result) => break result,
                NativeStep::Suspended(remaining) => {
                    pause().await;
                    step = native.resume(remaining, &mut self.store, self.memory);
                }
            }
        };
        (self, result)
    }
}

/// The method of calling on a stack of its own.
pub(crate) struct OnFiber(pub(crate) CallOwner);

impl CallMethod for OnFiber {
    type Output = RunningCall;

    fn call<P, R>(
        mut self,
        function: &EntryFunction<P, R>,
        arguments: P,
        value: ToCallValue<R>,
    ) -> Self::Output
    where
        P: WasmParams + Arguments + Sync + 'static,
        R: WasmResults + Register + Sync + 'static,
    {
        if let (Some(index), Some(_)) = (function.native, &self.0.native) {
            let (registers, count) = arguments.registers();
            return Box::pin(async move {
                let (owner, result) = self.0.call_native(index, &registers[..count]).await;
                (owner, result.map(R::from_register).and_then(value))
            });
        }
        let function = function.compiled.clone();
        Box::pin(async move {
            let result = match compiled(function.as_ref()) {
                Ok(function) => function.call_async(&mut self.0.store, arguments).await,
                Err(error) => Err(error),
            };
            (self.0, result.and_then(value))
        })
    }

    fn call_untyped(
        mut self,
        function: UntypedFunction,
        arguments: impl FnOnce(&HostState) -> Vec<Val>,
    ) -> Self::Output {
        let arguments = arguments(self.0.store.data());
        if let (Some(index), Some(_)) = (function.native, &self.0.native) {
            return Box::pin(async move {
                let registers: Vec<u64> = arguments.iter().map(register_of).collect();
                let (owner, result) = self.0.call_native(index, &registers).await;
                (owner, result.map(|_| 0))
            });
        }
        Box::pin(async move {
            let result = match compiled(function.compiled.as_ref()) {
                Ok(function) => function.call_async(&mut self.0.store, &arguments, &mut []).await,
                Err(error) => Err(error),
            };
            (self.0, result.map(|()| 0))
        })
    }
}

/// A call of a function on a stack of its own. It results in the parts that it has taken and the value of the call.
pub(crate) type RunningCall = Pin<Box<dyn Future<Output = (CallOwner, wasmtime::Result<i64>)> + Send>>;
