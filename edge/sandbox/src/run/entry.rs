//! Finds the exports of a rewritten module that call its entry points.

use crate::load::rewrite::export_name;
use crate::run::fault::FaultKind;
use crate::run::host::HostState;
use wasmtime::{Instance, Store, TypedFunc, WasmParams, WasmResults};
use weir_abi::entry::EntryResult;
use weir_admission::ModuleInfo;
use weir_bounds::EntryPoint;

/// A function of the module that is called before the first packet.
#[derive(Clone)]
pub(crate) enum StartFunction {
    /// A function without a result, such as `_initialize`.
    Constructor(TypedFunc<(), ()>),
    /// `weir_start`, which returns 0, or a code of the module's own if the module does not want to run.
    Start(TypedFunc<(), i32>),
}

impl StartFunction {
    pub(crate) fn find(
        instance: Instance,
        store: &mut Store<HostState>,
        entry: EntryPoint,
    ) -> wasmtime::Result<Self> {
        let name = export_name(entry);
        Ok(match entry.definition().result {
            EntryResult::Consent => Self::Start(instance.get_typed_func(store, &name)?),
            _ => Self::Constructor(instance.get_typed_func(store, &name)?),
        })
    }
}

/// Returns the exported function that calls an entry point, or `None` if the module lacks the entry point.
pub(crate) fn entry_function<P: WasmParams, R: WasmResults>(
    instance: Instance,
    store: &mut Store<HostState>,
    facts: &ModuleInfo,
    entry: EntryPoint,
) -> wasmtime::Result<Option<TypedFunc<P, R>>> {
    facts.entries.has(entry).then(|| instance.get_typed_func(store, &export_name(entry))).transpose()
}

/// Checks the result of `weir_start`: 0 means that the module runs.
pub(crate) fn check_start_result(code: i64) -> wasmtime::Result<()> {
    match i32::try_from(code) {
        Ok(0) => Ok(()),
        Ok(code) => Err(FaultKind::Declined(code).into()),
        Err(_) => Err(FaultKind::Other.into()),
    }
}
