//! What can go wrong in a call, seen from outside the sandbox.

use crate::run::interrupt::CodeMap;

/// Why a call was lost. To blame is the module, unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum FaultKind {
    /// A load, store or bulk operation outside the private memory, the packets, the descriptors and the tables, or a store to those.
    #[error("memory access out of bounds")]
    OutOfBounds,
    /// `unreachable`, which a panic, an assertion or a bounded loop that ran too long ends in.
    #[error("`unreachable` executed (a panic, an assertion or a bounded loop past its bound)")]
    Unreachable,
    /// Recursion too deep.
    #[error("stack overflow")]
    StackOverflow,
    /// An integer division by zero, an overflow in one, or a conversion of a float that does not fit.
    #[error("integer division or conversion without a result")]
    Arithmetic,
    /// A call through a table slot that is empty, outside the table, or of another type.
    #[error("indirect call to nothing or to another type")]
    IndirectCall,
    /// The call used up the fuel that it was given.
    #[error("the call used more fuel than its limit")]
    Limit,
    /// Calls were over the limit too often, so the module was unloaded. Nothing was lost.
    #[error("calls used more than their limit too often: unloaded")]
    Unloaded,
    /// The call took longer than the limit.
    #[error("the call took longer than the limit")]
    TimeOut,
    /// The call went so far beyond what was proved or charged for that it was broken off: to blame is weir too.
    #[error(
        "the call took many times its limit, though weir had found that it cannot: a fault in weir, please report it with the module"
    )]
    Overrun,
    /// A guest address and length handed to the host that do not lie in one of the module's areas.
    #[error("`{function}` was given an address or length outside the module's memory")]
    WildPointer {
        /// The host function.
        function: &'static str,
    },
    /// A row whose length is not that of the stream.
    #[error("`emit` was given a row of another size than the manifest's stream has")]
    RowSize,
    /// `weir_start` returned something but 0.
    #[error("`weir_start` returned {0}: the module does not want to run")]
    Declined(i32),
    /// Anything else that ends a call.
    #[error("trap")]
    Other,
}

/// Where the functions of a module are once the loader has added its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Indices {
    /// How many the module imports. They stay where they are.
    pub(crate) imported: u32,
    /// How many it has, imported ones included. What the loader adds comes after them.
    pub(crate) functions: u32,
    /// Whether the loader imports one itself, before the module's own.
    pub(crate) is_shifted: bool,
}

impl Indices {
    /// The index in the module as it was given.
    fn given(self, index: u32) -> u32 {
        index - u32::from(self.is_shifted && index > self.imported)
    }

    /// Whether it is one of the module's own.
    fn is_given(self, index: u32) -> bool {
        self.given(index) < self.functions
    }
}

/// A lost call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallFault {
    /// Why.
    pub kind: FaultKind,
    /// In which function, where the module's names tell; else its index.
    pub function: Option<String>,
    /// Offset of the instruction in the module as rewritten, where known.
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
    /// One that no instruction caused.
    pub(crate) const fn without_place(kind: FaultKind) -> Self {
        Self { kind, function: None, offset: None }
    }

    /// Reads wasmtime's account of a failed call. `code`: where functions are in memory.
    pub(crate) fn of(error: &wasmtime::Error, indices: Indices, code: &CodeMap) -> Self {
        if let Some(BrokenOff { at }) = error.downcast_ref() {
            let function = code.function_at(*at).map(|(index, name)| named(index, name.as_deref(), indices));
            return Self { kind: FaultKind::Overrun, function, offset: None };
        }
        let kind = error.downcast_ref::<FaultKind>().copied().unwrap_or_else(|| {
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
        // What the loader put in place of an instruction is to blame on whoever has that instruction.
        let frame = frames.iter().find(|frame| indices.is_given(frame.func_index())).or(frames.first());
        let function = frame.map(|frame| named(frame.func_index(), frame.func_name(), indices));
        Self { kind, function, offset: frame.and_then(wasmtime::FrameInfo::module_offset) }
    }
}

/// What a function is called.
fn named(index: u32, name: Option<&str>, indices: Indices) -> String {
    match name {
        Some(name) => name.chars().take(80).collect(),
        None => format!("function {}", indices.given(index)),
    }
}

/// A call was broken off by the watchdog.
#[derive(Debug, thiserror::Error)]
#[error("broken off at {at:#x}")]
pub(crate) struct BrokenOff {
    /// The instruction that was next.
    pub(crate) at: usize,
}
