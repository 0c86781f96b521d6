//! `weir check`: what a module may cost, whether it would be admitted, and what its author can do about it.

mod annotate;
mod json;
mod paint;
mod source;
mod table;

use crate::Failure;
use crate::cli::Check;
use crate::spec::{Spec, SpecError};
use crate::terms::terms;
use paint::Paint;
use source::Sources;
use std::io::Write;
use std::time::Instant;
use weir_bounds::Analysis;
use weir_sandbox::{CompileLimits, Engine, LoadError, Options};
use weir_session::{Admitted, Assessment, Calibration, Comparison, Facts, Manifest, Tier};
use weir_units::{Bytes, Nanos};

/// Why a module is not fit to run.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// It was admitted but cannot be compiled.
    #[error("{name}: {error}")]
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
    facts: &'a Facts,
    size: Bytes,
    /// Parameters and their values.
    values: Vec<(String, String)>,
    /// The period of its ticks.
    tick: Option<Nanos>,
    /// The most private memory that it may have.
    memory: Bytes,
    analysis: &'a Analysis,
    comparisons: &'a [Comparison],
    calibration: &'a Calibration,
    /// The profile's file, where one was given.
    profile: Option<String>,
    /// The tier, or why there is none.
    verdict: Result<Tier, String>,
    /// Why it is not proved, in a few words.
    why: Option<String>,
    /// How long compiling took, where it was compiled.
    compiled: Option<Nanos>,
}

/// Finds the bounds of a module, says whether it is admitted, and compiles it if so; runs nothing of it.
pub fn check(out: &mut impl Write, args: &Check) -> Result<(), Failure> {
    let spec = Spec::parse(&args.module)?;
    let terms = terms(args.profile.as_deref())?;
    let assessment = match spec.assess(&terms) {
        Ok(assessment) => assessment,
        Err(error) => {
            if let (true, SpecError::Refused { refusal, .. }) = (args.json, &error) {
                json::print_refusal(out, &spec.name, &refusal.to_string())?;
            }
            return Err(error.into());
        }
    };
    let admitted = assessment.clone().admit();
    let compiled = admitted.as_ref().ok().map(|admitted| compile(&spec, admitted.clone()));
    let findings = Findings {
        manifest: assessment.manifest(),
        facts: assessment.facts(),
        size: Bytes(assessment.bytes().len() as u64),
        values: values(&assessment),
        tick: assessment.tick(),
        memory: assessment.memory(),
        analysis: assessment.analysis(),
        comparisons: assessment.comparisons(),
        calibration: &terms.calibration,
        profile: args.profile.as_ref().map(|path| path.display().to_string()),
        verdict: assessment.verdict().map_err(ToString::to_string),
        why: admitted.as_ref().ok().and_then(Admitted::why),
        compiled: compiled.as_ref().and_then(|compiled| compiled.as_ref().ok()).copied(),
    };
    if args.json {
        json::print(out, &findings)?;
    } else {
        let paint = Paint::of_stdout();
        table::print(out, &findings, paint)?;
        if args.annotate {
            annotate::print(out, &findings, assessment.bytes(), &Sources::of(&spec), paint)?;
        }
        table::print_end(out, &findings, paint)?;
    }
    admitted.map_err(|refusal| SpecError::Refused { name: spec.name.clone(), refusal })?;
    compiled.transpose()?;
    Ok(())
}

/// How long compiling takes.
fn compile(spec: &Spec, admitted: Admitted) -> Result<Nanos, CheckError> {
    let failed = |error| CheckError::Load { name: spec.name.clone(), error };
    let options = Options { compile_in_child: Some(CompileLimits::default()), ..Options::default() };
    let engine = Engine::new(options, None).map_err(failed)?;
    let begin = Instant::now();
    engine.load(admitted).map_err(failed)?;
    Ok(Nanos(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX)))
}

fn values(assessment: &Assessment) -> Vec<(String, String)> {
    let parameters = assessment.manifest().parameters.iter().zip(assessment.values());
    parameters.map(|(parameter, value)| (parameter.name.to_string(), value.to_string())).collect()
}
