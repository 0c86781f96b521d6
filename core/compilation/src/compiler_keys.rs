//! An operator's policy on compiler keys: which keys are trusted for what, and how many must have signed.

use crate::bundle::{Bundle, Member, ObjectForm};
use crate::envelope::{Envelope, EnvelopeError};
use crate::expected::{Compiled, profile_digest, profile_of_record};
use crate::statement::{
    Bounds, Compilation, FieldDifference, Inputs, Predicate, Statement, StatementError, difference,
};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt;
use weir_admission::{Admitted, CalibratedProfile, ParameterSetting, Profile};
use weir_trust::digest::Sha256Digest;
use weir_trust::grant::UnixSecond;
use weir_trust::key::PublicKey;
use weir_units::shell_line;
use weir_verify::CpuFeatures;

/// The field of a record with the values of a module's parameters.
const PARAMETERS: &str = "parameters";
/// The longest command in a message, in bytes.
const COMMAND_BYTES_MAX: usize = 1000;

/// The statement of a compiler for which a key is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VouchedFor {
    /// The machine code computes what the module says.
    Semantics,
    /// The machine code keeps the bounds of the module's calls.
    Bounds,
}

impl VouchedFor {
    /// All statements.
    pub const ALL: [Self; 2] = [Self::Semantics, Self::Bounds];
}

impl fmt::Display for VouchedFor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Semantics => "semantics",
            Self::Bounds => "bounds",
        })
    }
}

/// A compiler key that an operator trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerKey {
    /// The key.
    pub key: PublicKey,
    /// The statements for which the key is trusted.
    pub trusted_for: BTreeSet<VouchedFor>,
    /// The first second in which the key is not trusted any more; `None` if it does not expire.
    pub expires: Option<UnixSecond>,
    /// The root of trust whose revocation lists can revoke the key.
    pub revoked_by: Option<PublicKey>,
}

/// An operator's policy on compiler keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompilerPolicy {
    /// The trusted keys, each once.
    pub keys: Vec<CompilerKey>,
    /// The number of trusted keys that must have signed each statement.
    pub signatures: usize,
}

impl Default for CompilerPolicy {
    /// No key is trusted.
    fn default() -> Self {
        Self { keys: Vec::new(), signatures: 1 }
    }
}

/// The present time and revocations, by which a key is judged.
#[derive(Clone, Copy)]
pub struct Judgement<'a> {
    /// The present time.
    pub now: UnixSecond,
    /// Returns true if a key is revoked.
    pub is_revoked: &'a dyn Fn(&CompilerKey) -> bool,
}

impl fmt::Debug for Judgement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judgement").field("now", &self.now).finish_non_exhaustive()
    }
}

/// The trusted keys that have signed the records of machine code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vouchers {
    /// The keys that vouch for semantics.
    pub semantics: Vec<PublicKey>,
    /// The keys that vouch for bounds.
    pub bounds: Vec<PublicKey>,
}

/// The reason why the machine code of a bundle is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordRefusal {
    /// The policy trusts no compiler key.
    #[error("no key of a compiler is trusted here")]
    NoKeys,
    /// The bundle lacks a member.
    #[error("it has no `{}`", .0.name())]
    Missing(Member),
    /// An envelope that cannot be read, or has a forged signature.
    #[error("`{}`: {error}", .member.name())]
    Envelope {
        /// The member.
        member: Member,
        /// The error.
        error: EnvelopeError,
    },
    /// A statement that is not the expected one.
    #[error("`{}`: {error}", .member.name())]
    Statement {
        /// The member.
        member: Member,
        /// The error.
        error: StatementError,
    },
    /// Too few signatures of trusted keys.
    #[error("`{}` has {found} of {needed} signatures that are trusted for `{what}`{}", .member.name(), untrusted(.others))]
    Signatures {
        /// The member.
        member: Member,
        /// The statement.
        what: VouchedFor,
        /// The number of trusted keys that have signed it.
        found: usize,
        /// The number that the policy asks for.
        needed: usize,
        /// The other signers.
        others: Vec<UntrustedSigner>,
    },
    /// A record about another object file.
    #[error("`{}` is about the object file {stated}, and `{}` is {actual}", .member.name(), .object.name())]
    Object {
        /// The record.
        member: Member,
        /// The object file.
        object: Member,
        /// The digest in the record.
        stated: Sha256Digest,
        /// The digest of the object file.
        actual: Sha256Digest,
    },
    /// A record for another profile.
    #[error(
        "`{}` is for the profile {stated}, and the module is loaded by the profile {actual}: compile it with the node's profile (--profile) and with `blocking` of its [cpu] (--blocking)",
        .member.name()
    )]
    Profile {
        /// The record.
        member: Member,
        /// The digest in the record.
        stated: Sha256Digest,
        /// The digest of the profile.
        actual: Sha256Digest,
    },
    /// CPU features that this weir does not know.
    #[error("`{}` is for the CPU features `{}`, which this weir does not know", .member.name(), .features.escape_debug())]
    Features {
        /// The record.
        member: Member,
        /// The stated features.
        features: String,
    },
    /// A record for a machine that is faster than this one, so that its limits would allow too much time.
    #[error(
        "`{}` is for nodes where 1000 fuel take at most {stated} ns, and here they can take {own} ns: compile it with --calibration, and the file of this node",
        .member.name()
    )]
    Calibration {
        /// The record.
        member: Member,
        /// The stated nanoseconds.
        stated: u64,
        /// The nanoseconds here.
        own: u64,
    },
    /// The record states a time of fuel that is out of range.
    #[error("`{}`: 1000 fuel cannot take the {nanoseconds} ns that it states", .member.name())]
    Nanoseconds {
        /// The member.
        member: Member,
        /// The stated nanoseconds.
        nanoseconds: u64,
    },
    /// A field that differs from what this weir finds.
    #[error("`{}`: {difference}{}", .member.name(), advice(.command.as_deref()))]
    Field {
        /// The member.
        member: Member,
        /// The field.
        difference: FieldDifference,
        /// The command that compiles the module for the values here, if the values of parameters differ.
        command: Option<String>,
    },
}

/// A signer whose signature does not count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UntrustedSigner {
    /// The key.
    pub key: PublicKey,
    /// The reason.
    pub why: &'static str,
}

fn advice(command: Option<&str>) -> String {
    command.map_or_else(String::new, |command| {
        format!("; a bundle is for one set of values: compile it for these, with {command}")
    })
}

/// Returns the command that compiles a module for these values of its parameters; `None` if the command is too long for a
/// message, or not printable.
fn compile_command(module: &str, settings: &[ParameterSetting]) -> Option<String> {
    let values = settings.iter().map(|(name, texts)| format!(",{name}={}", texts.join(",")));
    let argument = format!("{module}.wasm{}", values.collect::<String>());
    let bundle = format!("{module}.weir");
    let words = ["weir", "compile", &argument, "-o", &bundle, "--key", "KEY"];
    shell_line(words).filter(|command| command.len() <= COMMAND_BYTES_MAX)
}

fn untrusted(others: &[UntrustedSigner]) -> String {
    if others.is_empty() {
        return String::new();
    }
    let each: Vec<String> = others.iter().map(|signer| format!("{} {}", signer.key, signer.why)).collect();
    format!(": {}", each.join("; "))
}

/// The machine code of a bundle for which trusted keys vouch. The verifier has not seen it yet.
#[derive(Clone, Debug)]
pub struct VouchedCode {
    /// The form of the code.
    pub form: ObjectForm,
    /// The object file.
    pub object: Vec<u8>,
    /// Its digest.
    pub digest: Sha256Digest,
    /// The inputs of the compilation, as the record states them.
    pub inputs: Inputs,
    /// The stated bounds.
    pub bounds: Bounds,
    /// The processors that the code is for.
    pub features: CpuFeatures,
    /// The trusted signers.
    pub vouchers: Vouchers,
}

impl CompilerPolicy {
    /// Returns the machine code of a bundle in this form, if enough trusted keys vouch for it, and if its records are for a
    /// module by this profile on a machine where 1000 units of fuel take at most `own_nanoseconds`.
    ///
    /// # Errors
    /// [`RecordRefusal`] with the first reason why the code is not used.
    pub fn vouched(
        &self,
        bundle: &Bundle,
        form: ObjectForm,
        (profile, own_nanoseconds): (&Profile, u64),
        judgement: Judgement<'_>,
    ) -> Result<VouchedCode, RecordRefusal> {
        if self.keys.is_empty() {
            return Err(RecordRefusal::NoKeys);
        }
        let object = bundle.get(form.object()).ok_or(RecordRefusal::Missing(form.object()))?;
        let digest = Sha256Digest::of(object);
        let (record, semantics) = self.statement::<Compilation>(
            bundle,
            (form.record(), VouchedFor::Semantics),
            (form.object(), digest),
            judgement,
        )?;
        let (bounds, by_bounds) = self.statement::<Bounds>(
            bundle,
            (form.bounds(), VouchedFor::Bounds),
            (form.object(), digest),
            judgement,
        )?;
        let (member, inputs) = (form.record(), record.inputs().clone());
        let features = CpuFeatures::of_level(&inputs.features).ok_or_else(|| RecordRefusal::Features {
            member,
            features: inputs.features.chars().take(80).collect(),
        })?;
        let (stated, actual) = (inputs.customisation_instance.sha256, profile_digest(profile));
        if stated != actual {
            return Err(RecordRefusal::Profile { member, stated, actual });
        }
        let stated = inputs.nanoseconds_per_1000_fuel;
        if stated < own_nanoseconds {
            return Err(RecordRefusal::Calibration { member, stated, own: own_nanoseconds });
        }
        let vouchers = Vouchers { semantics, bounds: by_bounds };
        Ok(VouchedCode { form, object: object.to_vec(), digest, inputs, bounds, features, vouchers })
    }

    /// Returns a statement about an object file, if enough trusted keys have signed it, and these keys.
    fn statement<P: Predicate>(
        &self,
        bundle: &Bundle,
        (member, what): (Member, VouchedFor),
        (object, digest): (Member, Sha256Digest),
        judgement: Judgement<'_>,
    ) -> Result<(P, Vec<PublicKey>), RecordRefusal> {
        let bytes = bundle.get(member).ok_or(RecordRefusal::Missing(member))?;
        let invalid = |error| RecordRefusal::Envelope { member, error };
        let envelope = Envelope::parse(bytes).map_err(invalid)?;
        let (mut trusted, mut others) = (Vec::new(), Vec::new());
        for key in envelope.signers().map_err(invalid)? {
            match self.judge(&key, what, judgement) {
                Ok(()) => trusted.push(key),
                Err(why) => others.push(UntrustedSigner { key, why }),
            }
        }
        let (found, needed) = (trusted.len(), self.signatures);
        if found < needed {
            return Err(RecordRefusal::Signatures { member, what, found, needed, others });
        }
        let statement: Statement<P> = Statement::parse(envelope.payload())
            .map_err(|error| RecordRefusal::Statement { member, error })?;
        if statement.object != digest {
            let (stated, actual) = (statement.object, digest);
            return Err(RecordRefusal::Object { member, object, stated, actual });
        }
        Ok((statement.predicate, trusted))
    }

    /// Checks that a key is trusted for a statement now.
    ///
    /// # Errors
    /// The reason why its signature does not count.
    fn judge(&self, key: &PublicKey, what: VouchedFor, judgement: Judgement<'_>) -> Result<(), &'static str> {
        let trusted = self.keys.iter().find(|trusted| trusted.key == *key).ok_or("is not trusted here")?;
        if !trusted.trusted_for.contains(&what) {
            return Err("is trusted for another statement alone");
        }
        if trusted.expires.is_some_and(|expires| judgement.now >= expires) {
            return Err("has expired");
        }
        if (judgement.is_revoked)(trusted) {
            return Err("is revoked");
        }
        Ok(())
    }

    /// Checks that enough of these keys are still trusted for the code of this form.
    ///
    /// # Errors
    /// [`RecordRefusal::Signatures`].
    pub fn check_again(
        &self,
        form: ObjectForm,
        vouchers: &Vouchers,
        judgement: Judgement<'_>,
    ) -> Result<(), RecordRefusal> {
        for (member, what, keys) in [
            (form.record(), VouchedFor::Semantics, &vouchers.semantics),
            (form.bounds(), VouchedFor::Bounds, &vouchers.bounds),
        ] {
            let untrusted = |key: &PublicKey| {
                let why = self.judge(key, what, judgement).err()?;
                Some(UntrustedSigner { key: *key, why })
            };
            let others: Vec<UntrustedSigner> = keys.iter().filter_map(untrusted).collect();
            let (found, needed) = (keys.len() - others.len(), self.signatures);
            if found < needed {
                return Err(RecordRefusal::Signatures { member, what, found, needed, others });
            }
        }
        Ok(())
    }
}

impl VouchedCode {
    /// Returns the profile by which the module is admitted for the record: `profile`, with the stated time of fuel.
    ///
    /// # Errors
    /// [`RecordRefusal::Nanoseconds`].
    pub fn profile(&self, profile: Profile) -> Result<CalibratedProfile, RecordRefusal> {
        let nanoseconds = self.inputs.nanoseconds_per_1000_fuel;
        let out_of_range = RecordRefusal::Nanoseconds { member: self.form.record(), nanoseconds };
        profile_of_record(profile, nanoseconds).ok_or(out_of_range)
    }

    /// Checks the records against the module, admitted by [`profile`](Self::profile) and with these settings. The verifier checks the code itself, and the text for LLVM.
    ///
    /// # Errors
    /// [`RecordRefusal::Field`] for the first field that differs.
    pub fn check(&self, admitted: &Admitted, settings: &[ParameterSetting]) -> Result<(), RecordRefusal> {
        let own = Inputs::of(Compiled {
            admitted,
            // The instance decides, which `vouched` has compared.
            customisation_type: self.inputs.customisation_type.sha256,
            settings,
            form: self.form,
            features: self.features,
            nanoseconds_per_1000_fuel: self.inputs.nanoseconds_per_1000_fuel,
            isolated: self.inputs.isolated_accesses.clone(),
            text: self.inputs.text.sha256,
        });
        let refusal = |member| {
            move |difference: FieldDifference| {
                let is_of_values = difference.field == PARAMETERS;
                let module = admitted.manifest().name.as_str();
                let command = if is_of_values { compile_command(module, settings) } else { None };
                RecordRefusal::Field { member, difference, command }
            }
        };
        let differs = difference(&self.inputs, &own).map(refusal(self.form.record()));
        let own = Bounds::of(admitted, self.bounds.stack_bytes);
        let differs = differs.or_else(|| difference(&self.bounds, &own).map(refusal(self.form.bounds())));
        differs.map_or(Ok(()), Err)
    }
}
