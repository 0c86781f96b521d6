//! Faults: the reasons why calls are aborted, and the functions of the module in which they happen.

use crate::run::interrupt::CodeMap;
use crate::run::native::NativeFault;

/// The reason why a call was aborted. The cause is the module, unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum FaultKind {
    /// A load, store or bulk operation outside the private memory, packets, descriptors and tables, or a store to
    /// read-only areas.
    #[error("memory access out of bounds")]
    OutOfBounds,
    /// The `unreachable` instruction, at the end of a panic, a failed assertion or a bounded loop that ran too long.
    #[error("`unreachable` executed (a panic, an assertion or a bounded loop past its bound)")]
    Unreachable,
    /// Too deep recursion.
    #[error("stack overflow")]
    StackOverflow,
    /// An integer division by zero or with overflow, or a float conversion out of range.
    #[error("integer division or conversion without a result")]
    Arithmetic,
    /// An indirect call through an empty slot, outside the table, or with another type.
    #[error("indirect call to nothing or to another type")]
    IndirectCall,
    /// The call used up its fuel.
    #[error("the call used more fuel than its limit")]
    Limit,
    /// The module was unloaded because its calls exceeded the limit too often. No packet was lost.
    #[error("calls used more than their limit too often: unloaded")]
    Unloaded,
    /// The call took more processor time than the limit.
    #[error("the call took longer than the limit")]
    TimeOut,
    /// The watchdog interrupted the call far beyond its limit. The cause is also an error in a bound or the meter of weir.
    #[error(
        "the call took many times its limit, though weir had found that it cannot: a fault in weir, please report it with the module"
    )]
    TimeOverrun,
    /// The watchdog interrupted a call of a module without a meter.
    #[error("the call took longer than a call without a meter may take")]
    UnmeteredOverrun,
    /// The module passed an address and length outside its memory areas to a host function.
    #[error("`{function}` was given an address or length outside the module's memory")]
    WildPointer {
        /// The host function.
        function: &'static str,
    },
    /// The module emitted a row whose length is not that of the record stream.
    #[error("`emit` was given a row of another size than the manifest's stream has")]
    RowSize,
    /// `weir_start` returned a value other than 0.
    #[error("`weir_start` returned {0}: the module does not want to run")]
    Declined(i32),
    /// The key that vouched for the module's machine code is not trusted any more, and there is no other code.
    #[error("the key that vouched for its machine code is not trusted any more, and it has no other code")]
    Withdrawn,
    /// Any other trap.
    #[error("trap")]
    Other,
}

impl FaultKind {
    /// Returns the reason that the host, or machine code, has given for an error; `None` for an error of wasmtime.
    pub(crate) fn of(error: &wasmtime::Error) -> Option<Self> {
        let in_native = error.downcast_ref::<NativeFault>().map(|fault| fault.kind);
        in_native.or_else(|| error.downcast_ref().copied())
    }
}

/// The layout of a rewritten module's function indices, from which original indices are computed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FunctionIndices {
    /// The number of imported functions. They keep their indices.
    pub(crate) imported: u32,
    /// The number of the module's own and imported functions. The loader's functions come after them.
    pub(crate) functions: u32,
    /// The number of functions that the loader imports between the module's imports and its own functions.
    pub(crate) added: u32,
}

impl FunctionIndices {
    /// Returns a function's index in the module before it was rewritten.
    pub(crate) fn original_index(self, index: u32) -> u32 {
        if index < self.imported { index } else { index.saturating_sub(self.added).max(self.imported) }
    }

    /// Returns true if a function belongs to the module, and was not added by the loader.
    pub(crate) fn is_original(self, index: u32) -> bool {
        self.original_index(index) < self.functions
    }
}

/// The fault of an aborted call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFault {
    /// The reason.
    pub kind: FaultKind,
    /// The name of the function in which the fault happened, or its index if the module has no names; `None` if unknown.
    pub function: Option<String>,
    /// The offset of the instruction in the rewritten module, if known.
    pub offset: Option<usize>,
}

impl std::fmt::Display for CallFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(function) = &self.function {
            write!(f, " in `{}`", function.escape_debug())?;
        }
        Ok(())
    }
}

impl CallFault {
    /// Creates a fault that no instruction caused.
    pub(crate) const fn without_place(kind: FaultKind) -> Self {
        Self { kind, function: None, offset: None }
    }

    /// Returns true if the call exceeded a limit, instead of trapping.
    pub(crate) fn is_over_limit(&self) -> bool {
        matches!(self.kind, FaultKind::Limit | FaultKind::TimeOut)
    }

    /// Converts wasmtime's error of an aborted call to a fault. `code` maps addresses to functions.
    pub(crate) fn from_error(error: &wasmtime::Error, indices: FunctionIndices, code: &CodeMap) -> Self {
        if let Some(Interrupted { at }) = error.downcast_ref() {
            let function =
                code.function_at(*at).map(|(index, name)| display_name(index, name.as_deref(), indices));
            return Self { kind: FaultKind::TimeOverrun, function, offset: None };
        }
        if let Some(NativeFault { kind, place }) = error.downcast_ref() {
            let found = [&place.stated, &place.containing].into_iter().flatten();
            let original = found.clone().find(|(index, _)| indices.is_original(*index));
            let function = original.or(found.clone().next());
            let function = function.map(|(index, name)| display_name(*index, name.as_deref(), indices));
            return Self { kind: *kind, function, offset: place.offset.map(|offset| offset as usize) };
        }
        let kind = FaultKind::of(error).unwrap_or_else(|| {
            use wasmtime::Trap;
            match error.downcast_ref::<Trap>() {
                Some(Trap::MemoryOutOfBounds | Trap::HeapMisaligned | Trap::TableOutOfBounds) => {
                    FaultKind::OutOfBounds
                }
                Some(Trap::UnreachableCodeReached) => FaultKind::Unreachable,
                Some(Trap::StackOverflow) => FaultKind::StackOverflow,
                Some(Trap::IntegerOverflow | Trap::IntegerDivisionByZero | Trap::BadConversionToInteger) => {
                    FaultKind::Arithmetic
                }
                Some(Trap::IndirectCallToNull | Trap::BadSignature) => FaultKind::IndirectCall,
                Some(Trap::Interrupt) => FaultKind::TimeOut,
                _ => FaultKind::Other,
            }
        });
        let frames = error.downcast_ref::<wasmtime::WasmBacktrace>().map_or(&[][..], |trace| trace.frames());
        // A fault in a function of the loader is attributed to the module's function that called it.
        let frame = frames.iter().find(|frame| indices.is_original(frame.func_index())).or(frames.first());
        let function = frame.map(|frame| display_name(frame.func_index(), frame.func_name(), indices));
        Self { kind, function, offset: frame.and_then(wasmtime::FrameInfo::module_offset) }
    }
}

/// Returns a function's name for messages.
pub(crate) fn display_name(index: u32, name: Option<&str>, indices: FunctionIndices) -> String {
    match name {
        Some(name) => name.chars().take(80).collect(),
        None => format!("function {}", indices.original_index(index)),
    }
}

/// The error of a call that the watchdog interrupted.
#[derive(Debug, thiserror::Error)]
#[error("interrupted at {at:#x}")]
pub(crate) struct Interrupted {
    /// The address of the instruction at which the call was interrupted.
    pub(crate) at: usize,
}
