//! `weir compile --check`: compiles the module of a bundle again, and compares.

use super::CompileCommandError;
use super::bundle::{files, profile_of_record};
use crate::Failure;
use crate::calibrated_profile::calibrated_profile;
use crate::cli::{CompileArgs, TargetArg};
use clap::ValueEnum as _;
use std::io::{Read as _, Write};
use std::path::Path;
use weir_admission::{Admitted, ParameterSetting, Profile, Tier};
use weir_compilation::bundle::{BUNDLE_BYTES_MAX, Bundle, Member, ObjectForm};
use weir_compilation::envelope::Envelope;
use weir_compilation::expected::{Compiled, profile_digest};
use weir_compilation::statement::{
    Bounds, Compilation, Inputs, Isolated, Predicate, ResourceDescriptor, Statement, difference,
};
use weir_sandbox::{Engine, IsolatedAccesses};
use weir_trust::digest::Sha256Digest;
use weir_trust::key::PublicKey;
use weir_units::{Escape as _, escaped, escaped_lines, escaped_prefix};

/// The longest part of a record in a message, in characters.
const SHOWN_MAX: usize = 200;

/// A statement of a bundle, with its signers.
struct SignedStatement<P> {
    statement: Statement<P>,
    signers: Vec<PublicKey>,
}

/// The reason why a bundle is not what weir makes of its module. The text can have parts of the bundle.
struct Difference(String);

impl<E: std::error::Error> From<E> for Difference {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

/// Verifies the object files of a bundle, compiles its module again, and compares object files, records and bounds. Without a
/// compiler, all but the object files are compared, and the bundle counts as different.
pub(super) fn check_bundle(
    out: &mut impl Write,
    args: &CompileArgs,
    path: &Path,
    engine: &Engine,
) -> Result<(), Failure> {
    let bundle = read_bundle(path)?;
    let profile = calibrated_profile(args.profile.as_deref())?.profile().clone();
    let customisation_type = profile_digest(&profile);
    let profile = profile.for_blocking(args.blocking);
    let files = match engine.compiler_files() {
        Ok(_) => Ok(files(engine)?),
        Err(why) => Err(why),
    };
    let comparison = Comparison { bundle: &bundle, customisation_type, profile, files, engine };
    let forms = ObjectForm::ALL.into_iter().filter(|form| bundle.get(form.object()).is_some());
    let forms: Vec<ObjectForm> = forms.collect();
    if forms.is_empty() {
        return Err(record_error(path, &"the bundle has no object file").into());
    }
    let mut all_equal = true;
    for form in forms {
        match comparison.compare(form) {
            Ok(lines) => lines.iter().try_for_each(|line| writeln!(out, "{line}"))?,
            Err(Difference(text)) => {
                all_equal = false;
                writeln!(out, "{}: {}", form.object().name(), escaped_lines(&text))?;
            }
        }
    }
    if all_equal {
        return Ok(());
    }
    let what = match comparison.files {
        Ok(_) => "the bundle is not what weir makes of its module here",
        Err(_) => {
            "there is no compiler here: the bundle was not compiled again, and the lines above say what was found without it"
        }
    };
    Err(record_error(path, &what).into())
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

/// The inputs of all comparisons of a bundle.
struct Comparison<'a> {
    bundle: &'a Bundle,
    /// The digest of the operator's profile.
    customisation_type: Sha256Digest,
    /// The profile of a node.
    profile: Profile,
    /// The files of weir and of the compiler here, or the reason why there is no compiler.
    files: Result<Vec<ResourceDescriptor>, String>,
    engine: &'a Engine,
}

impl Comparison<'_> {
    /// Compares one object file. Returns lines about what is equal.
    fn compare(&self, form: ObjectForm) -> Result<Vec<String>, Difference> {
        let object = self.bundle.get(form.object()).unwrap_or_default();
        let SignedStatement { statement, signers } = self.statement::<Compilation>(form.record())?;
        let stated = statement.predicate.inputs();
        let module = Sha256Digest::of(self.bundle.module());
        expect("module", &stated.module.digest.sha256, &module)?;
        let target = TargetArg::from_str(&stated.features, false).map_err(|_| {
            let features = escaped_prefix(&stated.features, SHOWN_MAX);
            Difference(format!(
                "the record is for the CPU features `{features}`, which this weir does not know"
            ))
        })?;
        let profile = profile_digest(&self.profile);
        if stated.customisation_instance.sha256 != profile {
            return Err(Difference(format!(
                "the record is for the profile {}, and this one is {profile}: name the profile with --profile, and the node's `blocking` with --blocking",
                stated.customisation_instance.sha256
            )));
        }
        let settings: Vec<ParameterSetting> = stated.parameters.clone().into_iter().collect();
        let calibrated = profile_of_record(self.profile.clone(), stated.nanoseconds_per_1000_fuel)?;
        let admitted = Admitted::admit_by(self.bundle.module().to_vec(), &settings, &calibrated)?;
        let is_unmetered = stated.tier == Tier::Unmetered.name();
        let admitted = if is_unmetered { admitted.without_meter() } else { admitted };
        // The first check needs no compiler: the code must be safe, and the text for LLVM must be that of the module.
        let isolated = IsolatedAccesses::from(&stated.isolated_accesses);
        let (engine, is_suspendable) = (self.engine, form.is_suspendable());
        let checked = engine.check_object(&admitted, is_suspendable, target.features(), isolated, object)?;
        let stack_bound = checked.verdict.map_err(Difference)?;
        let actual = Sha256Digest::of(object);
        expect("object file", &statement.object, &actual)?;
        expect("text", &stated.text.sha256, &Sha256Digest::of(checked.text.as_bytes()))?;
        let own = |isolated, text: &str| {
            Inputs::of(Compiled {
                admitted: &admitted,
                customisation_type: self.customisation_type,
                settings: &settings,
                form,
                features: target.features(),
                nanoseconds_per_1000_fuel: stated.nanoseconds_per_1000_fuel,
                isolated,
                text: Sha256Digest::of(text.as_bytes()),
            })
        };
        let differs = |own| difference(stated, &own).map_or(Ok(()), |it| Err(Difference::from(it)));
        differs(own(stated.isolated_accesses.clone(), &checked.text))?;
        let stated_bounds = self.statement::<Bounds>(form.bounds())?.statement;
        expect("object file, in the bounds,", &stated_bounds.object, &actual)?;
        if let Some(difference) = difference(&stated_bounds.predicate, &Bounds::of(&admitted, stack_bound)) {
            return Err(difference.into());
        }
        let files = self.files.as_ref().map_err(|why| {
            Difference(format!(
                "verified, and its record and bounds are those of the module; it was not compiled again: {why}"
            ))
        })?;
        let compiled = engine.compile_object(&admitted, is_suspendable, target.features())?;
        differs(own(Isolated::from(&compiled.isolated), &compiled.text))?;
        let known = statement.predicate.dependencies();
        let others = files.iter().filter(|file| !known.contains(file));
        let others = others.map(|file| escaped(&file.name)).collect::<Vec<_>>().join(", ");
        if compiled.object != object {
            let cause = match others.as_str() {
                "" => "though the compiler is the same: one of the two is wrong".to_owned(),
                others => format!("but these files differ from those of the record: {others}"),
            };
            let compiled = Sha256Digest::of(&compiled.object);
            return Err(Difference(format!("compiled here, it is {compiled}, {cause}")));
        }
        let name = form.object().name();
        let mut lines = vec![format!("{name}: verified, and the same as compiled here, {actual}")];
        if !others.is_empty() {
            lines.push(format!("{:<6}  these files differ from those of the record: {others}", ""));
        }
        lines.extend(signers.iter().map(|signer| format!("{:<6}  signed by {signer}", "")));
        Ok(lines)
    }

    /// Returns a statement of the bundle, whose signatures are valid.
    fn statement<P: Predicate>(&self, member: Member) -> Result<SignedStatement<P>, Difference> {
        let missing = || Difference(format!("the bundle lacks `{}`", member.name()));
        let envelope = Envelope::parse(self.bundle.get(member).ok_or_else(missing)?)?;
        let signers = envelope.signers()?;
        Ok(SignedStatement { statement: Statement::parse(envelope.payload())?, signers })
    }
}

/// Compares a digest of a record with that of the bundle.
fn expect(what: &str, stated: &Sha256Digest, actual: &Sha256Digest) -> Result<(), Difference> {
    if stated == actual {
        return Ok(());
    }
    Err(Difference(format!("the record is for the {what} {stated}, and this one is {actual}")))
}
