//! `weir compile -o`: writes a bundle, with the machine code of a module for other machines.

use super::CompileCommandError;
use crate::Failure;
use crate::calibrated_profile::calibrated_profile;
use crate::cli::{CompileArgs, TargetArg};
use crate::module_arg::ModuleArg;
use crate::trust_files::read_identity;
use sha2::{Digest as _, Sha256 as Sha256Hasher};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weir_abi::entry::ENTRY_POINTS;
use weir_admission::{Admitted, CalibratedProfile, Calibration, ParameterSetting, Profile};
use weir_bounds::CostTable;
use weir_compilation::bundle::{Bundle, Member};
use weir_compilation::envelope::Envelope;
use weir_compilation::statement::{
    Bounds, Compilation, Inputs, Isolated, Predicate, ResourceDescriptor, Sha256, StatedBound, Statement,
};
use weir_sandbox::{CompiledObject, Engine, IsolatedAccesses};
use weir_trust::digest::Sha256Digest;
use weir_trust::key::Identity;
use weir_units::Escape as _;

/// The form of the machine code in an object file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ObjectForm {
    pub(super) object: Member,
    pub(super) record: Member,
    pub(super) is_suspendable: bool,
    /// The kind of calls in the record.
    pub(super) calls: &'static str,
    /// The program that runs the code, for people.
    pub(super) user: &'static str,
}

/// The forms of which a bundle has an object file each.
pub(super) const FORMS: [ObjectForm; 2] = [
    ObjectForm {
        object: Member::NodeObject,
        record: Member::NodeRecord,
        is_suspendable: true,
        calls: "suspendable",
        user: "nodes",
    },
    ObjectForm {
        object: Member::RunObject,
        record: Member::RunRecord,
        is_suspendable: false,
        calls: "to-completion",
        user: "weir run",
    },
];

/// Returns a profile for the record: with one number for the time of fuel, which the record states.
pub(super) fn profile_of_record(
    profile: Profile,
    nanoseconds: u64,
) -> Result<CalibratedProfile, CompileCommandError> {
    let calibration = Calibration::measured(nanoseconds, nanoseconds, nanoseconds, "record")
        .map_err(|error| CompileCommandError::Record(error.to_string()))?;
    Ok(CalibratedProfile::new(profile, calibration))
}

/// Compiles a module, and writes the bundle to the file of `--output`. Prints its parts.
pub(super) fn write_bundle(
    out: &mut impl Write,
    args: &CompileArgs,
    spec: &ModuleArg,
    path: &Path,
    engine: &Engine,
) -> Result<(), Failure> {
    let signer =
        args.key.as_deref().map(|key| read_identity(key, args.passphrase_file.as_deref())).transpose()?;
    let of_machine = calibrated_profile(args.profile.as_deref())?;
    let [.., nanoseconds] = of_machine.calibration().spread();
    let profile = profile_of_record(of_machine.profile().clone(), nanoseconds)?;
    let admitted = spec.admit(&profile)?;
    let target = args.target.unwrap_or_else(TargetArg::of_machine);
    let files = files(engine)?;
    let mut bundle = Bundle::new(admitted.bytes().to_vec());
    for form in FORMS {
        let compiled =
            engine.compile_object(&admitted, form.is_suspendable, target.features()).map_err(|error| {
                CompileCommandError::NoObject { path: path.to_owned(), reason: error.to_string() }
            })?;
        let object = Sha256Digest::of(&compiled.object);
        if form.is_suspendable {
            let predicate = bounds(&admitted, &compiled);
            bundle.set(Member::Bounds, envelope(form, object, predicate, signer.as_ref()));
        }
        let inputs = inputs(&admitted, &spec.settings, form, target, nanoseconds, &compiled);
        let builder = format!("urn:weir:{}", env!("CARGO_PKG_VERSION"));
        let predicate = Compilation::new(builder, inputs, files.clone());
        bundle.set(form.record, envelope(form, object, predicate, signer.as_ref()));
        bundle.set(form.object, compiled.object);
    }
    let bytes = bundle.to_bytes();
    std::fs::write(path, &bytes)
        .map_err(|source| CompileCommandError::Write { path: path.to_owned(), source })?;
    let manifest = admitted.manifest();
    writeln!(out, "{}: {} {}, for {target}", path.escaped(), manifest.name, manifest.version)?;
    for form in FORMS {
        let size = bundle.get(form.object).unwrap_or_default().len();
        writeln!(out, "  {:<20} {:>9}  {}", form.object.name(), weir_units::Bytes(size as u64), form.user)?;
    }
    match signer {
        Some(signer) => writeln!(out, "  signed by {}", signer.public())?,
        None => writeln!(out, "  not signed: --key FILE signs the records")?,
    }
    Ok(())
}

/// Returns the text of a signed statement about an object file.
fn envelope<P: Predicate>(
    form: ObjectForm,
    object: Sha256Digest,
    predicate: P,
    signer: Option<&Identity>,
) -> Vec<u8> {
    let statement = Statement { name: form.object.name().to_owned(), object, predicate };
    let mut envelope = Envelope::new(statement.to_json().into_bytes());
    if let Some(signer) = signer {
        envelope.sign(signer);
    }
    envelope.to_json().into_bytes()
}

/// Returns the inputs of a compilation.
pub(super) fn inputs(
    admitted: &Admitted,
    settings: &[ParameterSetting],
    form: ObjectForm,
    target: TargetArg,
    nanoseconds: u64,
    compiled: &CompiledObject,
) -> Inputs {
    let manifest = admitted.manifest();
    // An operator's profile is the type; without a credential that narrows it, its instance is the same.
    let profile = Sha256 { sha256: Sha256Digest::of(admitted.profile().to_toml().as_bytes()) };
    let mut parameters = BTreeMap::<String, Vec<String>>::new();
    for (name, texts) in settings {
        parameters.entry(name.clone()).or_default().extend(texts.iter().cloned());
    }
    Inputs {
        module: ResourceDescriptor::new(
            format!("{} {}", manifest.name, manifest.version),
            Sha256Digest::of(admitted.bytes()),
        ),
        parameters,
        customisation_type: profile,
        customisation_instance: profile,
        tier: admitted.tier().name().to_owned(),
        calls: form.calls.to_owned(),
        back_end: "llvm".to_owned(),
        cost_table: CostTable::VERSION,
        nanoseconds_per_1000_fuel: nanoseconds,
        target: "x86_64-unknown-linux-gnu".to_owned(),
        features: target.name().to_owned(),
        isolated_accesses: match &compiled.isolated {
            IsolatedAccesses::None => Isolated::None,
            IsolatedAccesses::At(offsets) => Isolated::At(offsets.iter().copied().collect()),
            IsolatedAccesses::All => Isolated::All,
        },
        text: Sha256 { sha256: Sha256Digest::of(compiled.text.as_bytes()) },
    }
}

/// Returns the bounds of a module's calls.
pub(super) fn bounds(admitted: &Admitted, compiled: &CompiledObject) -> Bounds {
    let bounded = ENTRY_POINTS.iter().filter_map(|definition| {
        let found = admitted.analysis().entry(definition.entry)?;
        let fuel = found.usage.fuel;
        let bound = StatedBound { constant: fuel.constant, per_kib: fuel.per_kib };
        fuel.is_bounded().then(|| (definition.name.to_owned(), bound))
    });
    Bounds {
        cost_table: CostTable::VERSION,
        tier: admitted.tier().name().to_owned(),
        calls: bounded.collect(),
        stack_bytes: compiled.stack_bound,
        memory_bytes: admitted.memory().0,
    }
}

/// Returns the digests of the running program and of the compiler's files.
pub(super) fn files(engine: &Engine) -> Result<Vec<ResourceDescriptor>, CompileCommandError> {
    let compiler = engine.compiler_files().map_err(CompileCommandError::Record)?;
    let own = (PathBuf::from("/proc/self/exe"), "weir".to_owned());
    let named = compiler.into_iter().map(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // The program's name has no version on some systems.
        let name = if name == "clang" { "clang-19".to_owned() } else { name };
        (path, name)
    });
    std::iter::once(own)
        .chain(named)
        .map(|(path, name)| {
            let digest = digest_of_file(&path)
                .map_err(|source| CompileCommandError::Read { path: path.clone(), source })?;
            Ok(ResourceDescriptor::new(name, digest))
        })
        .collect()
}

/// Returns the digest of a file, which can have hundreds of megabytes.
fn digest_of_file(path: &Path) -> io::Result<Sha256Digest> {
    let mut hasher = Sha256Hasher::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    Ok(Sha256Digest(hasher.finalize().into()))
}
