//! `weir compile --check`: compiles the module of a bundle again, and compares.

use super::CompileCommandError;
use super::bundle::{FORMS, ObjectForm, files, inputs, profile_of_record};
use crate::Failure;
use crate::calibrated_profile::calibrated_profile;
use crate::cli::{CompileArgs, TargetArg};
use clap::ValueEnum as _;
use std::io::{Read as _, Write};
use std::path::Path;
use weir_admission::{Admitted, ParameterSetting};
use weir_compilation::FileDigest;
use weir_compilation::bundle::{BUNDLE_BYTES_MAX, Bundle};
use weir_compilation::envelope::Envelope;
use weir_compilation::statement::{Compilation, Inputs, Isolated, Statement};
use weir_sandbox::{Engine, IsolatedAccesses};
use weir_trust::key::PublicKey;
use weir_units::{Escape as _, escaped};

/// The record of an object file, with its signers.
struct SignedRecord {
    statement: Statement<Compilation>,
    signers: Vec<PublicKey>,
}

/// Compiles the module of a bundle again, and compares the object files with those of the bundle.
pub(super) fn check_bundle(
    out: &mut impl Write,
    args: &CompileArgs,
    path: &Path,
    engine: &Engine,
) -> Result<(), Failure> {
    let bundle = read_bundle(path)?;
    let mut all_equal = true;
    let mut found = false;
    for form in FORMS {
        let Some(object) = bundle.get(form.object) else { continue };
        found = true;
        match check_object(args, &bundle, form, object, engine)? {
            Ok(lines) => lines.iter().try_for_each(|line| writeln!(out, "{line}"))?,
            Err(problem) => {
                all_equal = false;
                writeln!(out, "{}: {problem}", form.object.name())?;
            }
        }
    }
    if !found {
        return Err(record_error(path, &"the bundle has no object file").into());
    }
    if all_equal {
        return Ok(());
    }
    Err(record_error(path, &"the bundle is not what weir makes of its module here").into())
}

/// Reads a bundle.
pub(super) fn read_bundle(path: &Path) -> Result<Bundle, CompileCommandError> {
    let read_error = |source| CompileCommandError::Read { path: path.to_owned(), source };
    let file = weir_os::private::open_regular(path).map_err(read_error)?;
    let mut bytes = Vec::new();
    file.take(BUNDLE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(read_error)?;
    if !Bundle::is_bundle(&bytes) {
        return Err(record_error(path, &"the file is no bundle: `weir compile MODULE -o FILE` writes one"));
    }
    Bundle::parse(&bytes).map_err(|error| record_error(path, &error))
}

fn record_error(path: &Path, error: &dyn std::fmt::Display) -> CompileCommandError {
    CompileCommandError::Record(format!("{}: {error}", path.escaped()))
}

/// Checks one object file of a bundle. Returns lines about what is equal, or what is not.
fn check_object(
    args: &CompileArgs,
    bundle: &Bundle,
    form: ObjectForm,
    object: &[u8],
    engine: &Engine,
) -> Result<Result<Vec<String>, String>, Failure> {
    let SignedRecord { statement, signers } = match signed_record(bundle, form) {
        Ok(record) => record,
        Err(problem) => return Ok(Err(problem)),
    };
    let stated = statement.predicate.inputs();
    let module = FileDigest::of(bundle.module());
    if stated.module.digest.sha256 != module {
        return Ok(Err(format!(
            "the record is for the module {}, and the bundle has {module}",
            stated.module.digest.sha256
        )));
    }
    let Ok(target) = TargetArg::from_str(&stated.features, false) else {
        return Ok(Err(format!(
            "the record is for the CPU features `{}`, which this weir does not know",
            escaped(&stated.features)
        )));
    };
    let profile = calibrated_profile(args.profile.as_deref())?.profile().clone();
    let digest = FileDigest::of(profile.to_toml().as_bytes());
    if stated.customisation_instance.sha256 != digest {
        return Ok(Err(format!(
            "the record is for the profile {}, and this one is {digest}: name the profile with --profile",
            stated.customisation_instance.sha256
        )));
    }
    let settings: Vec<ParameterSetting> = stated.parameters.clone().into_iter().collect();
    let admitted = Admitted::admit_by(
        bundle.module().to_vec(),
        &settings,
        &profile_of_record(profile, stated.nanoseconds_per_1000_fuel)?,
    );
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(refusal) => return Ok(Err(format!("the module is refused: {refusal}"))),
    };
    // First without the compiler: is the object safe, and of this module?
    let checked = engine.check_object(
        &admitted,
        form.is_suspendable,
        target.features(),
        isolated(&stated.isolated_accesses),
        object,
    );
    let checked = match checked {
        Ok(checked) => checked,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if let Err(why) = checked.verdict {
        return Ok(Err(why));
    }
    let actual = FileDigest::of(object);
    if statement.object != actual {
        return Ok(Err(format!(
            "the record is for the object file {}, and this one is {actual}",
            statement.object
        )));
    }
    let compiled = match engine.compile_object(&admitted, form.is_suspendable, target.features()) {
        Ok(compiled) => compiled,
        Err(error) => return Ok(Err(error.to_string())),
    };
    let own = inputs(&admitted, &settings, form, target, stated.nanoseconds_per_1000_fuel, &compiled);
    if let Some(difference) = difference(stated, &own) {
        return Ok(Err(difference));
    }
    let files = files(engine)?;
    let others: Vec<String> = files
        .iter()
        .filter(|file| !statement.predicate.dependencies().contains(file))
        .map(|file| escaped(&file.name))
        .collect();
    if compiled.object != object {
        let cause = if others.is_empty() {
            "though the compiler is the same: one of the two is wrong".to_owned()
        } else {
            format!("but these files differ from those of the record: {}", others.join(", "))
        };
        return Ok(Err(format!("compiled here, it is {}, {cause}", FileDigest::of(&compiled.object))));
    }
    let name = form.object.name();
    let mut lines = vec![format!("{name}: verified, and the same as compiled here, {actual}")];
    if !others.is_empty() {
        lines.push(format!("{:<6}  these files differ from those of the record: {}", "", others.join(", ")));
    }
    for signer in signers {
        lines.push(format!("{:<6}  signed by {signer}", ""));
    }
    Ok(Ok(lines))
}

/// Returns the record of an object file with its valid signatures, or the reason why there is none.
fn signed_record(bundle: &Bundle, form: ObjectForm) -> Result<SignedRecord, String> {
    let bytes =
        bundle.get(form.record).ok_or_else(|| format!("the bundle lacks `{}`", form.record.name()))?;
    let envelope = Envelope::parse(bytes).map_err(|error| error.to_string())?;
    let signers = envelope.signers().map_err(|error| error.to_string())?;
    let statement = Statement::parse(envelope.payload()).map_err(|error| error.to_string())?;
    Ok(SignedRecord { statement, signers })
}

fn isolated(stated: &Isolated) -> IsolatedAccesses {
    match stated {
        Isolated::None => IsolatedAccesses::None,
        Isolated::At(offsets) => IsolatedAccesses::At(offsets.iter().copied().collect()),
        Isolated::All => IsolatedAccesses::All,
    }
}

/// Returns the first input in which a record differs from the compilation here.
fn difference(stated: &Inputs, own: &Inputs) -> Option<String> {
    let fields = |inputs: &Inputs| serde_json::to_value(inputs).unwrap_or_default();
    let (stated, own) = (fields(stated), fields(own));
    let differing = own.as_object()?.iter().find(|(name, value)| stated.get(name.as_str()) != Some(value));
    let (name, value) = differing?;
    let found = stated.get(name).cloned().unwrap_or_default();
    // The name of the module is in its manifest, and the digest has been compared.
    Some(format!("the record states `{name}` as {}, and here it is {value}", escaped(&found.to_string())))
}
