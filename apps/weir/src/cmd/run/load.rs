//! Loading of the modules of a run: admission, and machine code from a compiler or a bundle.

use super::{RunError, has_packet_output};
use crate::calibrated_profile::calibrated_profile;
use crate::cli::{BackEndArg, Run};
use crate::cmd::run::tables::Tables;
use crate::module_arg::ModuleArg;
use crate::shipped;
use std::io::{IsTerminal, Write};
use std::time::Duration;
use weir_admission::{Admitted, CalibratedProfile, ModuleKind, ModuleRefusal, VerifiedUse};
use weir_compilation::bundle::{Bundle, ObjectForm};
use weir_compilation::compiler_keys::{
    CompilerKey, CompilerPolicy, Judgement, RecordRefusal, VouchedCode, VouchedFor,
};
use weir_node::control::config::BLOCKING;
use weir_node::sessions::compiler_trust::given_object;
use weir_sandbox::{
    Cache, CompileLimits, Engine, EngineOptions, GivenObject, LlvmUse, LoadError, LoadedModule,
};
use weir_trust::grant::UnixSecond;
use weir_trust::key::PublicKey;
use weir_units::{Escape as _, Nanos};

/// The reason why the machine code of a bundle is not used.
#[derive(Debug, thiserror::Error)]
pub enum UnusedCode {
    /// The records and the trusted keys do not agree.
    #[error("the machine code of the bundle is not used: {0}")]
    Record(#[from] RecordRefusal),
    /// The module is not admitted for the record.
    #[error("the machine code of the bundle is not used: {0}")]
    Module(#[from] ModuleRefusal),
    /// The code is not accepted or not loaded.
    #[error("the machine code of the bundle is not used: {0}")]
    Load(#[from] LoadError),
}

/// A module of the command line, admitted.
struct ChosenModule {
    spec: ModuleArg,
    admitted: Admitted,
    /// The machine code of the module's bundle, if a trusted key vouches for it.
    given: Option<GivenObject>,
}

impl ChosenModule {
    /// Admits a module. The code of its bundle is chosen if a key of the policy vouches for it.
    fn choose(
        spec: ModuleArg,
        profile: &CalibratedProfile,
        policy: &CompilerPolicy,
    ) -> Result<Self, RunError> {
        if !policy.keys.is_empty()
            && let Some(bundle) = spec.bundle()?
        {
            match code_of_bundle(&spec, &bundle, profile, policy) {
                Ok((admitted, given)) => return Ok(Self { spec, admitted, given: Some(given) }),
                Err(why) => report_unused(&spec, why)?,
            }
        }
        let admitted = spec.admit(profile)?;
        Ok(Self { spec, admitted, given: None })
    }

    /// Loads the module: from the machine code of its bundle, or compiled here.
    fn load(self, engine: &Engine, profile: &CalibratedProfile) -> Result<LoadedModule, RunError> {
        let Self { spec, mut admitted, given } = self;
        if let Some(given) = given {
            let code = engine.take_object(admitted, false, &given, &mut Nanos(0));
            match code.and_then(|code| engine.load_code(code)) {
                Ok(program) => return Ok(program),
                Err(why) => report_unused(&spec, why.into())?,
            }
            admitted = spec.admit(profile)?;
        }
        engine.load(admitted).map_err(|error| match error {
            LoadError::NoCompiler => RunError::NoCompiler { module: spec.name },
            error => RunError::Load { module: spec.name, error },
        })
    }
}

/// Warns that the machine code of a bundle is not used.
///
/// # Errors
/// This weir has no compiler, so there is no other code.
fn report_unused(spec: &ModuleArg, why: UnusedCode) -> Result<(), RunError> {
    if !cfg!(feature = "cranelift") {
        return Err(RunError::Bundle { module: spec.name.clone(), why });
    }
    let why = why.to_string();
    let _ = writeln!(std::io::stderr(), "weir: warning: {}: {}", spec.name.escaped(), why.escaped());
    Ok(())
}

/// Returns the module of a bundle, admitted for its record, and its machine code, for which a key of the policy vouches.
fn code_of_bundle(
    spec: &ModuleArg,
    bundle: &Bundle,
    profile: &CalibratedProfile,
    policy: &CompilerPolicy,
) -> Result<(Admitted, GivenObject), UnusedCode> {
    let [.., own_nanoseconds] = profile.calibration().spread();
    // Records are for the profile of a node, which lowers the check interval to what its `blocking` allows.
    let profile = profile.profile().clone().for_blocking(BLOCKING);
    let judgement = Judgement { now: UnixSecond::default(), is_revoked: &|_| false };
    let vouched: VouchedCode =
        policy.vouched(bundle, ObjectForm::ToCompletion, (&profile, own_nanoseconds), judgement)?;
    let admitted = Admitted::admit_by(bundle.module().to_vec(), &spec.settings, &vouched.profile(profile)?)?;
    vouched.check(&admitted, &spec.settings)?;
    let given = given_object(vouched);
    Ok((admitted, given))
}

/// Returns the policy of a run: each of these keys is trusted for all statements of a compiler.
fn policy(keys: &[PublicKey]) -> CompilerPolicy {
    let trusted = |key: &PublicKey| CompilerKey {
        key: *key,
        trusted_for: VouchedFor::ALL.into_iter().collect(),
        expires: None,
        revoked_by: None,
    };
    CompilerPolicy { keys: keys.iter().map(trusted).collect(), ..CompilerPolicy::default() }
}

/// Admits and loads the modules of the command line, or the default ones.
pub(super) fn load(args: &Run, tables: &Tables) -> Result<(Engine, Vec<LoadedModule>), RunError> {
    let profile = calibrated_profile(args.profile.as_deref())?;
    let policy = match args.back_end {
        BackEndArg::Cranelift => CompilerPolicy::default(),
        BackEndArg::Auto | BackEndArg::Llvm => policy(&args.compiler_keys),
    };
    let specs = if args.modules.is_empty() {
        let spec = |name: &&str| ModuleArg { name: (*name).to_owned(), settings: Vec::new() };
        shipped::DEFAULT.iter().map(spec).collect()
    } else {
        args.modules.iter().map(|text| ModuleArg::parse(text)).collect::<Result<Vec<_>, _>>()?
    };
    let chosen = specs.into_iter().map(|spec| ChosenModule::choose(spec, &profile, &policy));
    let chosen = chosen.collect::<Result<Vec<_>, _>>()?;
    tables.check(chosen.iter().map(|chosen| &chosen.admitted))?;
    for ChosenModule { spec, admitted, .. } in &chosen {
        tables.warn(&spec.name, admitted);
        if admitted.manifest().kind == ModuleKind::Filter && !has_packet_output(args) {
            let _ = writeln!(
                std::io::stderr(),
                "weir: warning: {}: the packets it changes or drops are not written anywhere; -w FILE writes the packets, --send IFACE sends those of an interface",
                spec.name.escaped()
            );
        }
    }
    let cache = if args.no_cache {
        None
    } else {
        Cache::of_user()
            .map_err(|error| {
                let _ = writeln!(std::io::stderr(), "weir: warning: compiled modules are not kept: {error}");
            })
            .ok()
    };
    let options = EngineOptions {
        call_limit: Duration::from_nanos(args.call_limit.0),
        compile_in_child: Some(CompileLimits::default()),
        llvm: match args.back_end {
            BackEndArg::Auto => LlvmUse::Later,
            BackEndArg::Llvm => LlvmUse::AtLoad,
            BackEndArg::Cranelift => LlvmUse::Never,
        },
        ..EngineOptions::default()
    };
    let engine =
        Engine::new(options, cache).map_err(|error| RunError::Load { module: "weir".to_owned(), error })?;
    let load = |chosen: ChosenModule| {
        let name = chosen.spec.name.clone();
        let is_given = chosen.given.is_some();
        let waits = chosen.admitted.profile().verified == VerifiedUse::Only && !is_given;
        if waits && std::io::stderr().is_terminal() {
            let _ = writeln!(
                std::io::stderr(),
                "weir: {}: waits for verified code of LLVM, which the profile demands",
                name.escaped()
            );
        }
        let program = chosen.load(&engine, &profile)?;
        if let (BackEndArg::Llvm, Some(why)) = (args.back_end, program.why_not_llvm()) {
            let _ = writeln!(
                std::io::stderr(),
                "weir: warning: {}: it runs in code of Cranelift: {}",
                name.escaped(),
                why.escaped()
            );
        }
        Ok(program)
    };
    let programs = chosen.into_iter().map(load).collect::<Result<_, RunError>>()?;
    Ok((engine, programs))
}
