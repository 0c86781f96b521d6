//! Compiles a rewritten module with clang, and verifies the machine code.
//!
//! The machine code is not trusted: `weir-verify` proves that it accesses nothing but the module's own memory.

use crate::load::compile::CompileError;
use crate::load::rewrite::{LIMIT, NEXT_EVENT};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use weir_abi::host::{HOST_FUNCTIONS, HostFunction};
use weir_lower::{Constant, GuestThunk, Lowered, Thunk};
use weir_native::layout::GLOBALS_MAX;
use weir_native::{CODE_MAX, NativeCode, verify_limits};

/// The compiler.
const CLANG: &str = "clang-19";

/// A function of the host that machine code calls through a thunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostThunk {
    /// A function that modules import.
    Host(HostFunction),
    /// The function [`LIMIT`] of the meter.
    Limit,
    /// The function [`NEXT_EVENT`].
    NextEvent,
    /// A function that replaces an instruction.
    Guest(GuestThunk),
}

/// The verified machine code of a module.
#[derive(Debug)]
pub(crate) struct NativeModule {
    pub(crate) code: Arc<NativeCode>,
    /// The exported functions, by name: their indices in the code.
    functions: BTreeMap<String, u32>,
    /// The exported globals, by name: their places below the memory.
    globals: BTreeMap<String, u32>,
    /// The first values of all globals, as bytes, by their places.
    pub(crate) first_values: Vec<(u32, Vec<u8>)>,
    pub(crate) thunks: Vec<HostThunk>,
    /// The offsets of the functions in the code, with their indices in the rewritten module, by rising offset.
    places: Vec<(u32, u32)>,
    names: BTreeMap<u32, String>,
}

impl NativeModule {
    /// Compiles a rewritten module.
    ///
    /// # Errors
    /// [`CompileError::Module`] if the module cannot be lowered, or its machine code is rejected;
    /// [`CompileError::Process`] if the compiler does not run.
    pub(crate) fn compile(bytes: &[u8]) -> Result<Self, CompileError> {
        let failed = |error: &dyn std::fmt::Display| CompileError::Module(error.to_string());
        let lowered = weir_lower::lower(bytes).map_err(|error| failed(&error))?;
        if lowered.globals_bytes > GLOBALS_MAX {
            return Err(failed(&"its globals take more than 56 KiB"));
        }
        let thunks = host_thunks(&lowered)
            .ok_or_else(|| failed(&"it calls a function of the host that machine code cannot call"))?;
        let object = run_clang(&lowered.ir)?;
        let linked = weir_lower::link(&object, &lowered, CODE_MAX).map_err(|error| failed(&error))?;
        let verified = weir_verify::verify(linked.image, &verify_limits(thunks.len()))
            .map_err(|error| failed(&error))?;
        let mut places: Vec<(u32, u32)> = (lowered.imported..)
            .zip(&linked.functions)
            .filter_map(|(function, index)| {
                Some((verified.functions().get(*index as usize)?.offset, function))
            })
            .collect();
        places.sort_unstable();
        let code = NativeCode::new(verified, thunks.len()).map_err(|error| failed(&error))?;
        let function_index =
            |function: u32| linked.functions.get(function.checked_sub(lowered.imported)? as usize).copied();
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
        let first_values =
            lowered.globals.values().map(|(below, value)| (*below, bytes_of(*value))).collect();
        Ok(Self {
            code: Arc::new(code),
            functions,
            globals,
            first_values,
            thunks,
            places,
            names: lowered.names,
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

    /// Returns the function that contains the instruction at an offset in the code: its index in the rewritten module, and its
    /// name.
    pub(crate) fn function_at(&self, offset: usize) -> Option<(u32, Option<&str>)> {
        let after = self.places.partition_point(|(start, _)| *start as usize <= offset);
        let (_, function) = *self.places.get(after.checked_sub(1)?)?;
        Some((function, self.names.get(&function).map(String::as_str)))
    }
}

/// Returns the functions of the host for all thunks; `None` if one of them does not exist.
fn host_thunks(lowered: &Lowered) -> Option<Vec<HostThunk>> {
    let thunk = |thunk: &Thunk| match *thunk {
        Thunk::Guest(guest) => Some(HostThunk::Guest(guest)),
        Thunk::Import(index) => match lowered.imports.get(index as usize)?.1.as_str() {
            LIMIT => Some(HostThunk::Limit),
            NEXT_EVENT => Some(HostThunk::NextEvent),
            name => {
                let definition = HOST_FUNCTIONS.iter().find(|definition| definition.name == name)?;
                Some(HostThunk::Host(definition.function))
            }
        },
    };
    lowered.thunks.iter().map(thunk).collect()
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

/// Compiles the text of an LLVM module to an object file.
fn run_clang(ir: &str) -> Result<Vec<u8>, CompileError> {
    let mut child = Command::new(CLANG)
        .args(weir_lower::CLANG_ARGUMENTS)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("{CLANG}: {error}")))?;
    let (input, errors) = (child.stdin.take(), child.stderr.take());
    let mut messages = String::new();
    let output = std::thread::scope(|scope| {
        // The compiler writes only after it has read everything, but its errors could fill a pipe.
        scope.spawn(|| input.map(|mut input| input.write_all(ir.as_bytes())));
        scope.spawn(|| errors.map(|mut errors| errors.read_to_string(&mut messages)));
        child.wait_with_output()
    })?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(CompileError::Module(format!("{CLANG}: {}", messages.lines().next().unwrap_or("failed"))))
    }
}
