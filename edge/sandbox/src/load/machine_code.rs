//! The way from a rewritten module to verified machine code: lowering, compiling, linking and verifying.
//!
//! If the verifier rejects accesses to memory, the module is compiled again with these accesses isolated from the optimiser.

use crate::load::compile::CompileError;
use crate::load::native::{HostThunk, host_thunks};
use std::collections::BTreeSet;
use weir_lower::{IsolatedAccesses, LinkedObject, LowerError, LowerOptions, Lowered, ObjectError};
use weir_native::{CODE_MAX, cpu_features, verify_limits};
use weir_verify::{CpuFeatures, Rejections, VerifiedCode, VerifyLimits};

/// The machine code of a module, with the verifier's verdict.
#[derive(Debug)]
pub(crate) struct MachineCode {
    pub(crate) lowered: Lowered,
    pub(crate) thunks: Vec<HostThunk>,
    /// The object file.
    pub(crate) object: Vec<u8>,
    /// For each function of the module that is not imported, its index in the code.
    pub(crate) functions: Vec<u32>,
    pub(crate) verdict: Result<VerifiedCode, Rejections>,
    /// The accesses that are isolated, because the verifier rejected them otherwise.
    pub(crate) isolated: IsolatedAccesses,
}

/// The reason why a module has no machine code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MachineCodeError {
    #[error(transparent)]
    Lower(#[from] LowerError),
    #[error("{0}")]
    Host(&'static str),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Object(#[from] ObjectError),
}

impl MachineCode {
    /// Returns the options of a lowering for this machine.
    pub(crate) fn options() -> LowerOptions {
        LowerOptions { features: cpu_features(), ..LowerOptions::default() }
    }

    /// Makes the machine code of a rewritten module. `compile` makes an object file of the text of an LLVM module; it is called
    /// up to three times.
    ///
    /// # Errors
    /// The module cannot be lowered, errors of `compile`, or its object file cannot be used.
    pub(crate) fn new(
        bytes: &[u8],
        mut options: LowerOptions,
        mut compile: impl FnMut(&str) -> Result<Vec<u8>, CompileError>,
    ) -> Result<Self, MachineCodeError> {
        loop {
            let lowered = weir_lower::lower_with(bytes, &options)?;
            let thunks = host_thunks(&lowered).map_err(MachineCodeError::Host)?;
            let object = compile(&lowered.ir)?;
            let (functions, verdict) = verified(&lowered, &thunks, options.features, &object)?;
            let next = match &verdict {
                Ok(_) => None,
                Err(rejections) => to_isolate(rejections, &object, &options.isolated),
            };
            match next {
                Some(isolated) => options.isolated = isolated,
                None => {
                    let isolated = options.isolated;
                    return Ok(Self { lowered, thunks, object, functions, verdict, isolated });
                }
            }
        }
    }

    /// Returns the code, if the verifier has accepted it, and the object file.
    pub(crate) fn accepted(self) -> Result<(AcceptedCode, Vec<u8>), Rejections> {
        let Self { lowered, thunks, object, functions, verdict, .. } = self;
        verdict.map(|verified| (AcceptedCode { lowered, thunks, functions, verified }, object))
    }
}

/// Machine code that the verifier has accepted.
#[derive(Debug)]
pub(crate) struct AcceptedCode {
    pub(crate) lowered: Lowered,
    pub(crate) thunks: Vec<HostThunk>,
    /// For each function of the module that is not imported, its index in the code.
    pub(crate) functions: Vec<u32>,
    pub(crate) verified: VerifiedCode,
}

/// A lowered module whose object file others have compiled.
pub(crate) struct ForeignCode {
    lowered: Lowered,
    thunks: Vec<HostThunk>,
    features: CpuFeatures,
}

impl ForeignCode {
    /// Lowers a rewritten module as the compilation of the object file did.
    ///
    /// # Errors
    /// The module cannot be lowered.
    pub(crate) fn lower(bytes: &[u8], options: &LowerOptions) -> Result<Self, MachineCodeError> {
        let lowered = weir_lower::lower_with(bytes, options)?;
        let thunks = host_thunks(&lowered).map_err(MachineCodeError::Host)?;
        Ok(Self { lowered, thunks, features: options.features })
    }

    /// Returns the text of the LLVM module.
    pub(crate) fn text(&self) -> &str {
        &self.lowered.ir
    }

    /// Links the object file, and verifies its code.
    ///
    /// # Errors
    /// The object file cannot be linked, or the verifier rejects the code.
    pub(crate) fn verify(self, object: &[u8]) -> Result<AcceptedCode, ForeignObjectError> {
        let (functions, verdict) = verified(&self.lowered, &self.thunks, self.features, object)?;
        Ok(AcceptedCode { lowered: self.lowered, thunks: self.thunks, functions, verified: verdict? })
    }
}

/// The reason why an object file of others is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ForeignObjectError {
    #[error(transparent)]
    Object(#[from] ObjectError),
    #[error("the verifier rejects the code: {0}")]
    Rejected(#[from] Rejections),
}

/// Links an object file and verifies its code. Returns the index in the code of each function, and the verdict.
fn verified(
    lowered: &Lowered,
    thunks: &[HostThunk],
    features: CpuFeatures,
    object: &[u8],
) -> Result<(Vec<u32>, Result<VerifiedCode, Rejections>), ObjectError> {
    let LinkedObject { image, functions } = weir_lower::link(object, lowered, CODE_MAX)?;
    let limits = VerifyLimits { features, ..verify_limits(thunks.len()) };
    Ok((functions, weir_verify::verify(image, &limits)))
}

/// Returns the accesses to isolate after rejections: first those that are rejected, then all. `None` if that does not help.
fn to_isolate(
    rejections: &Rejections,
    object: &[u8],
    isolated: &IsolatedAccesses,
) -> Option<IsolatedAccesses> {
    if rejections.list().iter().any(|rejection| !rejection.rule.is_access())
        || *isolated == IsolatedAccesses::All
    {
        return None;
    }
    if *isolated == IsolatedAccesses::None {
        let positions = weir_lower::positions(object, CODE_MAX).unwrap_or_default();
        let rejected: Option<BTreeSet<u32>> =
            rejections.list().iter().map(|rejection| positions.module_offset(rejection.offset)).collect();
        if let Some(rejected) = rejected {
            return Some(IsolatedAccesses::At(rejected));
        }
    }
    Some(IsolatedAccesses::All)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::clang::LlvmCompiler;
    use crate::load::compile::CompileLimits;
    use crate::{Engine, EngineOptions};
    use std::path::Path;
    use weir_admission::Admitted;
    use weir_units::Nanos;

    /// A lowering that leaves addresses to LLVM stands for one that the verifier often rejects.
    #[test]
    fn rejected_accesses_are_isolated() {
        let Ok(clang) = LlvmCompiler::find() else {
            println!("SKIPPED: clang 19 is not installed");
            return;
        };
        let engine = Engine::new(EngineOptions::default(), None).unwrap();
        let (mut again, mut isolated) = (0, 0);
        for name in ["dns", "rtt", "trajectory"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/modules");
            let wasm = std::fs::read(path.join(name).join(format!("{name}.wasm"))).unwrap();
            let admitted = Admitted::admit(wasm, &[]).unwrap();
            let rewritten = engine.rewritten_suspendable(&admitted).unwrap();
            let mut compilations = 0;
            let code = MachineCode::new(
                &rewritten,
                LowerOptions { plain_addresses: true, ..MachineCode::options() },
                |ir| {
                    compilations += 1;
                    clang.compile(ir, false, CompileLimits::default(), &mut Nanos(0))
                },
            )
            .unwrap();
            assert!(code.verdict.is_ok(), "{name}: {:?}", code.verdict);
            assert!(compilations <= 3, "{name}: {compilations}");
            assert_eq!(compilations > 1, code.isolated != IsolatedAccesses::None, "{name}");
            again += compilations - 1;
            isolated += match code.isolated {
                IsolatedAccesses::At(offsets) => offsets.len(),
                _ => 0,
            };
        }
        assert!(again > 0 && isolated > 0, "{again} compilations, {isolated} accesses");
    }

    /// The compiler process may answer with anything, also with the same rejected code again.
    #[test]
    fn a_compiler_that_repeats_rejected_code_is_asked_at_most_three_times() {
        let rewritten = include_bytes!("../../../native/tests/objects/rtt.wasm");
        let mut object = include_bytes!("../../../native/tests/objects/rtt.o").to_vec();
        // The first access relative to GS becomes one relative to DS, by the prefix.
        let lowered = weir_lower::lower(rewritten).unwrap();
        let linked = weir_lower::link(&object, &lowered, CODE_MAX).unwrap();
        let first = &linked.image.code[linked.image.functions[0].offset as usize..][..16];
        let at = (0..object.len()).find(|at| object[*at..].starts_with(first)).unwrap();
        let gs = object[at..].iter().position(|byte| *byte == 0x65).unwrap();
        object[at + gs] = 0x90;
        let mut compilations = 0;
        let code = MachineCode::new(rewritten, MachineCode::options(), |_| {
            compilations += 1;
            Ok(object.clone())
        })
        .unwrap();
        let rejections = code.verdict.unwrap_err();
        assert!(rejections.list().iter().all(|rejection| rejection.rule.is_access()), "{rejections:?}");
        assert!((2..=3).contains(&compilations), "{compilations}");
    }
}
