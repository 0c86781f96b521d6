//! The functions by which weir calls the entry points of a module.

use crate::load::rewrite::enter;
use crate::run::fault::FaultKind;
use crate::run::host::HostState;
use wasmtime::{Instance, Store, TypedFunc, WasmParams, WasmResults};
use weir_abi::entry::EntryResult;
use weir_admission::ModuleInfo;
use weir_bounds::EntryPoint;

/// A function that is called before the first packet.
#[derive(Clone)]
pub(crate) enum Starting {
    Constructor(TypedFunc<(), ()>),
    /// It gives 0, or why the module does not want to run.
    Start(TypedFunc<(), i32>),
}

impl Starting {
    pub(crate) fn of(
        instance: Instance,
        store: &mut Store<HostState>,
        entry: EntryPoint,
    ) -> wasmtime::Result<Self> {
        let name = enter(entry);
        Ok(match entry.definition().result {
            EntryResult::Consent => Self::Start(instance.get_typed_func(store, &name)?),
            _ => Self::Constructor(instance.get_typed_func(store, &name)?),
        })
    }
}

/// The function that calls an entry point, where the module has it.
pub(crate) fn entered<P: WasmParams, R: WasmResults>(
    instance: Instance,
    store: &mut Store<HostState>,
    facts: &ModuleInfo,
    entry: EntryPoint,
) -> wasmtime::Result<Option<TypedFunc<P, R>>> {
    facts.entries.has(entry).then(|| instance.get_typed_func(store, &enter(entry))).transpose()
}

/// What `weir_start` says.
pub(crate) fn accepted(code: i64) -> wasmtime::Result<()> {
    match i32::try_from(code) {
        Ok(0) => Ok(()),
        Ok(code) => Err(FaultKind::Declined(code).into()),
        Err(_) => Err(FaultKind::Other.into()),
    }
}
