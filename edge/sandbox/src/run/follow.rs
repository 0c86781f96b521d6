//! The change of an instance from the code of one compiler to that of the other, between two calls.

use crate::back_end::BackEnd;
use crate::load::native::NativeModule;
use crate::run::entry::{Exports, Wasm};
use crate::run::fault::{CallFault, FaultKind};
use crate::run::instance::{During, Instance};
use crate::run::native::NativeInstance;
use std::sync::Arc;

impl Instance {
    /// Withdraws the verified code, as [`CodeWithdrawal`](crate::CodeWithdrawal) does.
    pub(crate) fn withdraw_verified_code(&self) {
        if let Some((slot, _)) = &self.slot {
            slot.withdraw();
        }
    }

    /// Returns true if the instance still has to leave its code, which was withdrawn.
    #[inline]
    pub(crate) fn has_withdrawn_code(&self) -> bool {
        self.slot.as_ref().is_some_and(|(slot, _)| slot.is_withdrawn())
    }

    /// Moves to verified machine code if there is some now, and away from such code if it was withdrawn. No call may be in
    /// progress.
    #[inline]
    pub(crate) fn follow_slot(&mut self) {
        if let Some((slot, instance)) = &self.slot {
            let instance = *instance;
            match self.native {
                None if slot.is_filled() => {
                    // The node withdraws only code that the module began with, so a filled slot does not change again.
                    let slot = slot.clone();
                    self.slot = None;
                    if let (Some(module), Some(instance)) = (slot.code(), instance) {
                        // Without memory for another stack, the instance stays where it is.
                        _ = self.enter_native(module, instance);
                    }
                }
                Some(_) if slot.is_withdrawn() => self.leave_native(instance),
                _ => {}
            }
        }
    }

    #[cold]
    fn enter_native(
        &mut self,
        module: &Arc<NativeModule>,
        instance: wasmtime::Instance,
    ) -> wasmtime::Result<()> {
        let Some(store) = &mut self.store else { return Ok(()) };
        // SAFETY: the space is that of the store, and `native` is dropped before the store.
        let mut native = unsafe { NativeInstance::new(self.base, module)? };
        native.copy_globals(instance, store)?;
        self.find_exports_again(instance, Some(module))?;
        self.native = Some(native);
        self.back_end = BackEnd::Llvm;
        Ok(())
    }

    /// Continues in Cranelift's code, or ends the module if there is none.
    #[cold]
    fn leave_native(&mut self, instance: Option<wasmtime::Instance>) {
        self.slot = None;
        let moved = instance.and_then(|instance| self.enter_cranelift(instance).ok());
        if moved.is_none() {
            self.strike_counter.end();
            self.release_kept();
            self.describe(CallFault::without_place(FaultKind::Withdrawn), During::Idle);
        }
        self.native = None;
        self.back_end = BackEnd::Cranelift;
    }

    fn enter_cranelift(&mut self, instance: wasmtime::Instance) -> wasmtime::Result<()> {
        if let (Some(native), Some(store)) = (&mut self.native, &mut self.store) {
            native.copy_globals_to(instance, store)?;
        }
        self.find_exports_again(instance, None)
    }

    /// Finds the functions and globals in the code to which the instance moves.
    fn find_exports_again(
        &mut self,
        instance: wasmtime::Instance,
        native: Option<&NativeModule>,
    ) -> wasmtime::Result<()> {
        let (Some(wasm), Some(store)) = (&self.wasm, &mut self.store) else { return Ok(()) };
        let admitted = Arc::clone(&store.data().admitted);
        let exports = Exports { instance: Some(instance), memory: wasm.memory, store, native };
        let moved = Wasm::find_exports(exports, &admitted, self.checks)?;
        // The stack is not empty now, if an aborted call has left it in use.
        let stack = moved.stack.zip(wasm.stack).map(|((pointer, _), (_, empty))| (pointer, empty));
        store.data_mut().counter = moved.counter;
        self.wasm = Some(Wasm { stack, ..moved });
        Ok(())
    }
}
