//! `weir check`: shows a module's maximum cost, whether it would be admitted, and how to reduce the cost.

mod annotate;
mod any_value;
mod json;
mod loop_limit;
mod loop_source;
pub(crate) mod paint;
pub(crate) mod source;
mod summary;
mod table;

use crate::Failure;
use crate::calibrated_profile::calibrated_profile;
use crate::cli::CheckArgs;
use crate::module_arg::{ModuleArg, ModuleArgError};
use any_value::AnyValue;
use paint::Paint;
use source::Sources;
use std::io::Write;
use std::time::Instant;
use weir_admission::{
    Admitted, Assessment, Calibration, Comparison, Manifest, ModuleInfo, ModuleParameter, ModuleRefusal,
    ParameterValue, Tier,
};
use weir_bounds::Analysis;
use weir_sandbox::{CompileLimits, Engine, EngineOptions, LlvmUse, LoadError};
use weir_units::{Bytes, Escape as _, Nanos};

/// The error of `weir check` if an admitted module cannot be compiled.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// An admitted module cannot be compiled.
    #[error("{}: {error}", name.escaped())]
    Load {
        /// The module's name on the command line.
        name: String,
        /// The cause.
        error: LoadError,
    },
}

/// The results of checking a module.
#[derive(Debug)]
struct CheckResults<'a> {
    manifest: &'a Manifest,
    info: &'a ModuleInfo,
    size: Bytes,
    /// The values of the manifest's parameters, in the order of the manifest; `None` for a parameter without a value.
    values: &'a [Option<ParameterValue>],
    /// The assessment for every allowed value of all parameters; `None` if no parameter has a value.
    any_value: Option<AnyValue>,
    /// The tick period.
    tick: Option<Nanos>,
    analysis: &'a Analysis,
    comparisons: &'a [Comparison],
    calibration: &'a Calibration,
    /// The profile's file, if one is used.
    profile: Option<String>,
    /// The tier, or the refusal.
    verdict: Result<Tier, &'a ModuleRefusal>,
    /// A short reason why the module is in a lower tier than proved.
    tier_reason: Option<String>,
    /// The compilation, if the module was compiled.
    compilation: Option<&'a Compilation>,
    /// The sources of the module.
    sources: Sources,
}

/// The result of compiling a module.
#[derive(Debug)]
struct Compilation {
    time: Nanos,
    /// The reason why the module runs in code of Cranelift alone; `None` if LLVM can compile it, too.
    why_not_llvm: Option<String>,
}

impl CheckResults<'_> {
    /// Returns the parameters with their values.
    fn parameters(&self) -> impl Iterator<Item = (&ModuleParameter, Option<&ParameterValue>)> {
        self.manifest.parameters.iter().zip(self.values).map(|(parameter, value)| (parameter, value.as_ref()))
    }

    /// Returns the parameters without values.
    fn open_parameters(&self) -> impl Iterator<Item = &ModuleParameter> {
        self.parameters().filter(|(_, value)| value.is_none()).map(|(parameter, _)| parameter)
    }
}

/// Computes the bounds of a module, decides on admission, and compiles an admitted module. Prints the results; does not
/// run the module.
pub fn check(out: &mut impl Write, args: &CheckArgs) -> Result<(), Failure> {
    let spec = ModuleArg::parse(&args.module)?;
    let profile = calibrated_profile(args.profile.as_deref())?;
    let paint = Paint::for_stdout();
    let refused = |refusal| ModuleArgError::Refused { name: spec.name.clone(), refusal };
    let assess = if args.any_value { Assessment::assess_any_value } else { Assessment::assess_open };
    let assessed = spec.bytes().and_then(|bytes| assess(bytes, &spec.settings, &profile).map_err(refused));
    let assessment = match assessed {
        Ok(assessment) => assessment,
        Err(error) => {
            let why = match &error {
                ModuleArgError::Refused { refusal, .. } => Some(refusal.to_string()),
                ModuleArgError::TooLarge(_) => Some(error.to_string()),
                _ => None,
            };
            match why {
                Some(why) if args.json => json::print_refusal(out, &spec.name, &why)?,
                Some(why) if !error.is_usage() => summary::print_refusal(out, &spec.name, &why, paint)?,
                // Nothing was analysed: the command line is wrong, or the file cannot be read.
                _ => {}
            }
            return Err(error.into());
        }
    };
    let has_all_values = assessment.open_parameters().next().is_none();
    let admitted = if has_all_values { assessment.clone().admit().ok() } else { None };
    let compilation = admitted.map(|admitted| compile(&spec, admitted));
    let results = CheckResults {
        manifest: assessment.manifest(),
        info: assessment.info(),
        size: Bytes(assessment.module().bytes().len() as u64),
        values: assessment.values(),
        any_value: AnyValue::of(&assessment),
        tick: assessment.tick_period(),
        analysis: assessment.analysis(),
        comparisons: assessment.comparisons(),
        calibration: profile.calibration(),
        profile: args.profile.as_ref().map(|path| path.to_string_lossy().into_owned()),
        verdict: assessment.verdict(),
        tier_reason: assessment.reason_for_tier(),
        compilation: compilation.as_ref().and_then(|compilation| compilation.as_ref().ok()),
        sources: Sources::locate(&spec),
    };
    if args.json {
        json::print(out, &results)?;
    } else {
        summary::print(out, &results, paint)?;
        table::print(out, &results, &results.sources, paint)?;
        if args.annotate {
            annotate::print(out, &results, assessment.module().bytes(), &results.sources, paint)?;
        }
        summary::print_end(out, &results, paint)?;
    }
    assessment.verdict().map_err(|refusal| refused(refusal.clone()))?;
    compilation.transpose()?;
    Ok(())
}

/// Compiles a module with Cranelift in a child process. LLVM takes longer, so only its ability to compile the module is checked.
fn compile(spec: &ModuleArg, admitted: Admitted) -> Result<Compilation, CheckError> {
    let failed = |error| CheckError::Load { name: spec.name.clone(), error };
    let compile_in_child = Some(CompileLimits::default());
    let options = EngineOptions { compile_in_child, llvm: LlvmUse::Later, ..EngineOptions::default() };
    let engine = Engine::new(options, None).map_err(failed)?;
    let begin = Instant::now();
    let program = engine.load(admitted).map_err(failed)?;
    let time = Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let why_not_llvm = program.why_not_llvm().filter(|_| !program.waits_for_llvm());
    Ok(Compilation { time, why_not_llvm: why_not_llvm.map(str::to_owned) })
}
