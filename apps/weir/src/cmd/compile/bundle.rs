//! `weir compile -o`: writes a bundle, with the machine code of a module for other machines.

use super::CompileCommandError;
use crate::Failure;
use crate::calibrated_profile::calibrated_profile;
use crate::cli::{CompileArgs, TargetArg};
use crate::module_arg::ModuleArg;
use crate::trust_files::read_identity;
use sha2::{Digest as _, Sha256 as Sha256Hasher};
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weir_admission::{CalibratedProfile, Calibration, Profile};
use weir_compilation::bundle::{Bundle, ObjectForm};
use weir_compilation::envelope::Envelope;
use weir_compilation::expected::{self, Compiled, profile_digest};
use weir_compilation::statement::{
    Bounds, Compilation, Inputs, Isolated, Predicate, ResourceDescriptor, Statement,
};
use weir_sandbox::Engine;
use weir_trust::digest::Sha256Digest;
use weir_trust::key::Identity;
use weir_units::Escape as _;

/// Returns the program that runs the code of a form, for people.
fn user(form: ObjectForm) -> &'static str {
    match form {
        ObjectForm::Suspendable => "nodes",
        ObjectForm::ToCompletion => "weir run",
    }
}

/// Returns the calibration for which a bundle is compiled: that of `--calibration`, or that of this machine. A node uses only
/// bundles for machines that are as slow as itself or slower, so a machine that is faster than the assumed one counts as the
/// assumed one.
fn nanoseconds(args: &CompileArgs, of_machine: &CalibratedProfile) -> Result<u64, CompileCommandError> {
    let Some(path) = &args.calibration else {
        let [[.., own], [.., assumed]] = [of_machine.calibration().spread(), Calibration::default().spread()];
        return Ok(own.max(assumed));
    };
    let text = std::fs::read_to_string(path)
        .map_err(|source| CompileCommandError::Read { path: path.clone(), source })?;
    let calibration = Calibration::parse(&text)
        .map_err(|error| CompileCommandError::Record(format!("{}: {error}", path.escaped())))?;
    let [.., most] = calibration.spread();
    Ok(most)
}

/// Returns a profile for the record: with one number for the time of fuel, which the record states.
pub(super) fn profile_of_record(
    profile: Profile,
    nanoseconds: u64,
) -> Result<CalibratedProfile, CompileCommandError> {
    let out_of_range =
        || CompileCommandError::Record(format!("{nanoseconds} ns for 1000 fuel are out of range"));
    expected::profile_of_record(profile, nanoseconds).ok_or_else(out_of_range)
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
    let nanoseconds = nanoseconds(args, &of_machine)?;
    let customisation_type = profile_digest(of_machine.profile());
    let profile = profile_of_record(of_machine.profile().clone().for_blocking(args.blocking), nanoseconds)?;
    let admitted = spec.admit(&profile)?;
    let admitted = if args.unmetered { admitted.without_meter() } else { admitted };
    let target = args.target.unwrap_or_else(TargetArg::of_machine);
    let files = files(engine)?;
    let mut bundle = Bundle::new(admitted.bytes().to_vec());
    for form in ObjectForm::ALL {
        let compiled =
            engine.compile_object(&admitted, form.is_suspendable(), target.features()).map_err(|error| {
                CompileCommandError::NoObject { path: path.to_owned(), reason: error.to_string() }
            })?;
        let object = Sha256Digest::of(&compiled.object);
        let bounds = Bounds::of(&admitted, compiled.stack_bound);
        bundle.set(form.bounds(), envelope(form, object, bounds, signer.as_ref()));
        let inputs = Inputs::of(Compiled {
            admitted: &admitted,
            customisation_type,
            settings: &spec.settings,
            form,
            features: target.features(),
            nanoseconds_per_1000_fuel: nanoseconds,
            isolated: Isolated::from(&compiled.isolated),
            text: Sha256Digest::of(compiled.text.as_bytes()),
        });
        let builder = format!("urn:weir:{}", env!("CARGO_PKG_VERSION"));
        let predicate = Compilation::new(builder, inputs, files.clone());
        bundle.set(form.record(), envelope(form, object, predicate, signer.as_ref()));
        bundle.set(form.object(), compiled.object);
    }
    let bytes = bundle.to_bytes();
    std::fs::write(path, &bytes)
        .map_err(|source| CompileCommandError::Write { path: path.to_owned(), source })?;
    let manifest = admitted.manifest();
    writeln!(out, "{}: {} {}, for {target}", path.escaped(), manifest.name, manifest.version)?;
    for form in ObjectForm::ALL {
        let size = bundle.get(form.object()).unwrap_or_default().len();
        let size = weir_units::Bytes(size as u64);
        writeln!(out, "  {:<20} {size:>9}  {}", form.object().name(), user(form))?;
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
    let statement = Statement { name: form.object().name().to_owned(), object, predicate };
    let mut envelope = Envelope::new(statement.to_json().into_bytes());
    if let Some(signer) = signer {
        envelope.sign(signer);
    }
    envelope.to_json().into_bytes()
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
