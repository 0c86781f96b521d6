//! Compiles a rewritten module with clang, and verifies the machine code.
//!
//! The machine code is not trusted: `weir-verify` proves that it accesses nothing but the module's own memory.

use crate::load::compile::CompileError;
use crate::load::machine_code::{AcceptedCode, MachineCode, MachineCodeError};
use crate::load::rewrite::{LIMIT, NEXT_EVENT, SUSPEND, global_export_name};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use weir_abi::host::{HOST_FUNCTIONS, HostFunction};
use weir_lower::{CodePositions, Constant, GuestThunk, Lowered, Thunk};
use weir_native::layout::GLOBALS_MAX;
use weir_native::{CODE_MAX, CodeError, NativeCode};

/// A function of the host that machine code calls through a thunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostThunk {
    /// A function that modules import.
    Host(HostFunction),
    /// The function [`LIMIT`] of the meter.
    Limit,
    /// The function [`SUSPEND`] of suspendable calls.
    Suspend,
    /// The function [`NEXT_EVENT`].
    NextEvent,
    /// A function that replaces an instruction.
    Guest(GuestThunk),
}

/// The verified machine code of a module.
#[derive(Debug)]
pub(crate) struct NativeModule {
    pub(crate) code: Arc<NativeCode>,
    /// The object file of the code.
    pub(crate) object: Vec<u8>,
    /// The exported functions, by name: their indices in the code.
    functions: BTreeMap<String, u32>,
    /// The exported globals, by name: their places below the memory.
    globals: BTreeMap<String, u32>,
    /// The mutable globals.
    pub(crate) mutable_globals: Vec<MutableGlobal>,
    pub(crate) thunks: Vec<HostThunk>,
    /// The offsets of the functions in the code, with their indices in the rewritten module, by rising offset.
    places: Vec<(u32, u32)>,
    names: BTreeMap<u32, String>,
    /// The number of imported functions.
    imported: u32,
    /// The offsets behind the functions' code in the rewritten module.
    body_ends: Vec<u32>,
    /// The positions of the code in the rewritten module. They are read with the code, because a fault happens on a core thread.
    positions: CodePositions,
}

/// A function of the rewritten module: its index, and its name.
pub(crate) type NamedFunction = (u32, Option<String>);

/// The place of an instruction of the machine code in the rewritten module.
#[derive(Debug, Default)]
pub(crate) struct NativePlace {
    /// The function of the module that has the instruction, by the compiler's statement; `None` if it states none.
    pub(crate) stated: Option<NamedFunction>,
    /// The function whose code contains the instruction, into which LLVM may have inlined others.
    pub(crate) containing: Option<NamedFunction>,
    /// The offset of the instruction in the rewritten module, by the compiler's statement.
    pub(crate) offset: Option<u32>,
}

/// A mutable global of a module.
#[derive(Debug)]
pub(crate) struct MutableGlobal {
    /// The name under which the rewritten module exports it.
    pub(crate) export: String,
    /// Its place below the memory.
    pub(crate) below: u32,
    /// The bytes of its first value.
    pub(crate) first_value: Vec<u8>,
}

impl NativeModule {
    /// Compiles a rewritten module. `compile` makes an object file of the text of an LLVM module.
    ///
    /// # Errors
    /// [`CompileError::Module`] if the module cannot be lowered, or its machine code is rejected; errors of `compile`.
    pub(crate) fn compile(
        bytes: &[u8],
        compile: impl FnMut(&str) -> Result<Vec<u8>, CompileError>,
    ) -> Result<Self, CompileError> {
        let failed = |error: &dyn std::fmt::Display| CompileError::Module(error.to_string());
        let code = MachineCode::new(bytes, MachineCode::options(), compile).map_err(|error| match error {
            MachineCodeError::Compile(error) => error,
            error => failed(&error),
        })?;
        let (code, object) = code.accepted().map_err(|rejections| failed(&rejections))?;
        Self::new(code, object).map_err(|error| failed(&error))
    }

    /// Loads verified code of this object file into memory.
    ///
    /// # Errors
    /// The system has no memory.
    pub(crate) fn new(code: AcceptedCode, object: Vec<u8>) -> Result<Self, CodeError> {
        let AcceptedCode { lowered, thunks, functions: indices, verified } = code;
        let mut places: Vec<(u32, u32)> = (lowered.imported..)
            .zip(&indices)
            .filter_map(|(function, index)| {
                Some((verified.functions().get(*index as usize)?.offset, function))
            })
            .collect();
        places.sort_unstable();
        // Without positions, faults name the function whose code has the instruction.
        let positions = weir_lower::positions(&object, CODE_MAX).unwrap_or_default();
        let code = NativeCode::new(verified, thunks.len())?;
        let function_index =
            |function: u32| indices.get(function.checked_sub(lowered.imported)? as usize).copied();
        let functions = lowered
            .exports
            .iter()
            .filter_map(|(name, function)| Some((name.clone(), function_index(*function)?)))
            .collect();
        let globals = lowered
            .global_exports
            .iter()
            .filter_map(|(name, global)| Some((name.clone(), lowered.globals.get(global)?.0)))
            .collect();
        let mutable_globals = lowered
            .globals
            .iter()
            .map(|(index, (below, value))| MutableGlobal {
                export: global_export_name(*index),
                below: *below,
                first_value: bytes_of(*value),
            })
            .collect();
        Ok(Self {
            code: Arc::new(code),
            object,
            functions,
            globals,
            mutable_globals,
            thunks,
            places,
            names: lowered.names,
            imported: lowered.imported,
            body_ends: lowered.body_ends,
            positions,
        })
    }

    /// Returns the index in the code of an exported function.
    pub(crate) fn function(&self, export: &str) -> Option<u32> {
        self.functions.get(export).copied()
    }

    /// Returns the place below the memory of an exported global.
    pub(crate) fn global(&self, export: &str) -> Option<u32> {
        self.globals.get(export).copied()
    }

    /// Returns the register for the first value of a mutable global, by its place below the memory; 0 if there is none.
    pub(crate) fn first_value(&self, below: u32) -> u64 {
        let global = self.mutable_globals.iter().find(|global| global.below == below);
        let bytes = global.and_then(|global| global.first_value.get(..8).or(Some(&global.first_value)));
        let mut register = [0; 8];
        if let Some(bytes) = bytes {
            register[..bytes.len()].copy_from_slice(bytes);
        }
        u64::from_le_bytes(register)
    }

    /// Returns the functions by rising address: index in the rewritten module, name, and addresses.
    pub(crate) fn symbols(&self) -> impl Iterator<Item = (u32, Option<&str>, Range<usize>)> {
        let ends = self.places.iter().skip(1).map(|(offset, _)| self.code.address_at(*offset));
        let ends = ends.chain([self.code.executable().end.addr()]);
        self.places.iter().zip(ends).map(|((offset, function), end)| {
            let name = self.names.get(function).map(String::as_str);
            (*function, name, self.code.address_at(*offset)..end)
        })
    }

    /// Returns the place of the instruction at an offset in the code.
    pub(crate) fn place_at(&self, offset: usize) -> NativePlace {
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        let position = self.positions.module_offset(offset);
        let stated = position.and_then(|position| {
            let index = self.body_ends.partition_point(|end| *end <= position);
            (index < self.body_ends.len()).then_some(())?;
            self.imported.checked_add(u32::try_from(index).ok()?)
        });
        let after = self.places.partition_point(|(start, _)| *start <= offset);
        let containing = after.checked_sub(1).map(|index| self.places[index].1);
        let named = |function: u32| (function, self.names.get(&function).cloned());
        NativePlace { stated: stated.map(named), containing: containing.map(named), offset: position }
    }
}

/// Returns the functions of the host for all thunks of a lowered module, or the reason why the module cannot run as machine
/// code.
pub(crate) fn host_thunks(lowered: &Lowered) -> Result<Vec<HostThunk>, &'static str> {
    if lowered.globals_bytes > GLOBALS_MAX {
        return Err("its globals take more than 56 KiB");
    }
    let thunk = |thunk: &Thunk| match *thunk {
        Thunk::Guest(guest) => Some(HostThunk::Guest(guest)),
        Thunk::Import(index) => match lowered.imports.get(index as usize)?.1.as_str() {
            LIMIT => Some(HostThunk::Limit),
            SUSPEND => Some(HostThunk::Suspend),
            NEXT_EVENT => Some(HostThunk::NextEvent),
            name => {
                let definition = HOST_FUNCTIONS.iter().find(|definition| definition.name == name)?;
                Some(HostThunk::Host(definition.function))
            }
        },
    };
    let thunks: Option<Vec<HostThunk>> = lowered.thunks.iter().map(thunk).collect();
    thunks.ok_or("it calls a function of the host that machine code cannot call")
}

fn bytes_of(value: Constant) -> Vec<u8> {
    match value {
        Constant::I32(value) => value.to_le_bytes().to_vec(),
        Constant::F32(bits) => bits.to_le_bytes().to_vec(),
        Constant::I64(value) => value.to_le_bytes().to_vec(),
        Constant::F64(bits) => bits.to_le_bytes().to_vec(),
        Constant::V128(bytes) => bytes.to_vec(),
    }
}
