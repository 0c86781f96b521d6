//! `weir check`: what a module may cost, whether it would be admitted, and what its author can do about it.

mod annotate;
mod json;
mod paint;
mod source;
mod summary;
mod table;

use crate::Failure;
use crate::cli::CheckArgs;
use crate::spec::{ModuleSpecError, Spec};
use crate::terms::terms;
use paint::Paint;
use source::Sources;
use std::io::Write;
use std::time::Instant;
use weir_admission::{
    Admitted, Assessment, Calibration, Comparison, Manifest, ModuleInfo, ModuleParameter, ModuleRefusal,
    ParameterValue, Tier,
};
use weir_bounds::Analysis;
use weir_sandbox::{CompileLimits, Engine, EngineOptions, LoadError};
use weir_units::{Bytes, Nanos, Shown as _};

/// Why a module is not fit to run.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It was admitted but cannot be compiled.
    #[error("{}: {error}", name.shown())]
    Load {
        /// The module as it was named.
        name: String,
        /// Why.
        error: LoadError,
    },
}

/// What was found about a module, for whoever shows it.
#[derive(Debug)]
struct Findings<'a> {
    manifest: &'a Manifest,
    facts: &'a ModuleInfo,
    size: Bytes,
    /// The value of each of the manifest's parameters; `None` where it was left open.
    values: &'a [Option<ParameterValue>],
    /// The period of its ticks.
    tick: Option<Nanos>,
    analysis: &'a Analysis,
    comparisons: &'a [Comparison],
    calibration: &'a Calibration,
    /// The profile's file, where one was given.
    profile: Option<String>,
    /// The tier, or why there is none.
    verdict: Result<Tier, &'a ModuleRefusal>,
    /// Why it is not proved, in a few words.
    why: Option<String>,
    /// How long compiling took, where it was compiled.
    compiled: Option<Nanos>,
}

impl Findings<'_> {
    /// The parameters with their values.
    fn parameters(&self) -> impl Iterator<Item = (&ModuleParameter, Option<&ParameterValue>)> {
        self.manifest.parameters.iter().zip(self.values).map(|(parameter, value)| (parameter, value.as_ref()))
    }

    /// The parameters that were left open.
    fn open(&self) -> impl Iterator<Item = &ModuleParameter> {
        self.parameters().filter(|(_, value)| value.is_none()).map(|(parameter, _)| parameter)
    }
}

/// Finds the bounds of a module, says whether it is admitted, and compiles it if so; runs nothing of it.
pub fn check(out: &mut impl Write, args: &CheckArgs) -> Result<(), Failure> {
    let spec = Spec::parse(&args.module)?;
    let terms = terms(args.profile.as_deref())?;
    let paint = Paint::of_stdout();
    let refused = |refusal| ModuleSpecError::Refused { name: spec.name.clone(), refusal };
    let looked_at =
        spec.bytes().and_then(|bytes| Assessment::of_open(bytes, &spec.settings, &terms).map_err(refused));
    let assessment = match looked_at {
        Ok(assessment) => assessment,
        Err(error) => {
            let why = match &error {
                ModuleSpecError::Refused { refusal, .. } => Some(refusal.to_string()),
                ModuleSpecError::TooLarge(_) => Some(error.to_string()),
                _ => None,
            };
            match why {
                Some(why) if args.json => json::print_refusal(out, &spec.name, &why)?,
                Some(why) if !error.is_usage() => summary::print_refusal(out, &spec.name, &why, paint)?,
                // What is wrong is the command line, and there is nothing to say about the module.
                _ => {}
            }
            return Err(error.into());
        }
    };
    let is_whole = assessment.open().next().is_none();
    let admitted = if is_whole { assessment.clone().admit().ok() } else { None };
    let compiled = admitted.map(|admitted| compile(&spec, admitted));
    let findings = Findings {
        manifest: assessment.manifest(),
        facts: assessment.facts(),
        size: Bytes(assessment.module().bytes().len() as u64),
        values: assessment.values(),
        tick: assessment.tick(),
        analysis: assessment.analysis(),
        comparisons: assessment.comparisons(),
        calibration: &terms.calibration,
        profile: args.profile.as_ref().map(|path| path.to_string_lossy().into_owned()),
        verdict: assessment.verdict(),
        why: assessment.why(),
        compiled: compiled.as_ref().and_then(|compiled| compiled.as_ref().ok()).copied(),
    };
    if args.json {
        json::print(out, &findings)?;
    } else {
        summary::print(out, &findings, paint)?;
        table::print(out, &findings, paint)?;
        if args.annotate {
            annotate::print(out, &findings, assessment.module().bytes(), &Sources::of(&spec), paint)?;
        }
        summary::print_end(out, &findings, paint)?;
    }
    assessment.verdict().map_err(|refusal| refused(refusal.clone()))?;
    compiled.transpose()?;
    Ok(())
}

/// How long compiling takes.
fn compile(spec: &Spec, admitted: Admitted) -> Result<Nanos, CheckError> {
    let failed = |error| CheckError::Load { name: spec.name.clone(), error };
    let options =
        EngineOptions { compile_in_child: Some(CompileLimits::default()), ..EngineOptions::default() };
    let engine = Engine::new(options, None).map_err(failed)?;
    let begin = Instant::now();
    engine.load(admitted).map_err(failed)?;
    Ok(Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)))
}
