//! Object files for other machines: what a bundle contains.

use crate::engine::{Engine, LoadError, rewritten};
use crate::load::machine_code::{ForeignCode, MachineCode, MachineCodeError};
use std::path::PathBuf;
use weir_admission::Admitted;
use weir_lower::{IsolatedAccesses, LowerOptions};
use weir_units::Nanos;
use weir_verify::{CpuFeatures, Rejections};

/// An object file whose code the verifier has accepted, with the text that clang made it of.
#[derive(Debug)]
pub struct CompiledObject {
    /// The object file.
    pub object: Vec<u8>,
    /// The text of the LLVM module.
    pub text: String,
    /// The accesses that are isolated from the optimiser in the text, because the verifier rejected them otherwise.
    pub isolated: IsolatedAccesses,
    /// The most bytes of stack of a call; `None` with recursion.
    pub stack_bound: Option<u64>,
}

/// The reason why there is no object file of a module.
#[derive(Debug, thiserror::Error)]
pub enum ObjectFailure {
    /// The module cannot be rewritten.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is no compiler.
    #[error("{0}")]
    NoCompiler(String),
    /// The module cannot be lowered or compiled.
    #[error("{0}")]
    Compile(String),
    /// The verifier rejects the code.
    #[error("the verifier rejects the code: {0}")]
    Rejected(Rejections),
}

impl Engine {
    /// Compiles a module with LLVM for machines with these CPU features, and verifies the code. Calls can be suspended, as in a
    /// node, or run to completion, as in `weir run`.
    ///
    /// # Errors
    /// [`ObjectFailure`].
    pub fn compile_object(
        &self,
        admitted: &Admitted,
        is_suspendable: bool,
        features: CpuFeatures,
    ) -> Result<CompiledObject, ObjectFailure> {
        let clang = self.clang().map_err(|why| ObjectFailure::NoCompiler(why.clone()))?;
        let (module, _) = rewritten(admitted, self.checks(admitted, is_suspendable))?;
        let options = LowerOptions { features, ..LowerOptions::default() };
        let code = MachineCode::new(&module.bytes, options, |text| {
            self.object(clang, text, true, &mut Nanos(0)).map(|object| object.bytes)
        });
        let failed = |error: MachineCodeError| ObjectFailure::Compile(error.to_string());
        let MachineCode { lowered, object, verdict, isolated, .. } = code.map_err(failed)?;
        let stack_bound = verdict.map_err(ObjectFailure::Rejected)?.stack_bound();
        Ok(CompiledObject { object, text: lowered.ir, isolated, stack_bound })
    }

    /// Returns the files that the compiler consists of: clang, and the libraries of LLVM that it loads.
    ///
    /// # Errors
    /// There is no compiler.
    pub fn compiler_files(&self) -> Result<Vec<PathBuf>, String> {
        self.clang().map(|clang| clang.files()).map_err(Clone::clone)
    }
}

/// An object file of others, held against the module that it is said to be of.
#[derive(Debug)]
pub struct CheckedObject {
    /// The text of the LLVM module that weir makes of the module.
    pub text: String,
    /// The most bytes of stack of a call, `None` with recursion; or the reason why the code must not run.
    pub verdict: Result<Option<u64>, String>,
}

impl Engine {
    /// Links an object file with a module, as [`compile_object`](Self::compile_object) with the same arguments would make it, and
    /// verifies the code. No compiler runs.
    ///
    /// # Errors
    /// The module cannot be rewritten or lowered.
    pub fn check_object(
        &self,
        admitted: &Admitted,
        is_suspendable: bool,
        features: CpuFeatures,
        isolated: IsolatedAccesses,
        object: &[u8],
    ) -> Result<CheckedObject, ObjectFailure> {
        let (module, _) = rewritten(admitted, self.checks(admitted, is_suspendable))?;
        let options = LowerOptions { features, isolated, ..LowerOptions::default() };
        let foreign = ForeignCode::lower(&module.bytes, &options)
            .map_err(|error| ObjectFailure::Compile(error.to_string()))?;
        let text = foreign.text().to_owned();
        let verdict = foreign.verify(object);
        let verdict = verdict.map(|code| code.verified.stack_bound()).map_err(|error| error.to_string());
        Ok(CheckedObject { text, verdict })
    }
}
