//! The statements about a compilation that follow from its inputs. The signer writes them, and a reader compares them with
//! those of a record.

use crate::bundle::ObjectForm;
use crate::statement::{Bounds, Inputs, Isolated, ResourceDescriptor, Sha256, StatedBound};
use std::collections::BTreeMap;
use weir_abi::entry::ENTRY_POINTS;
use weir_admission::{Admitted, CalibratedProfile, Calibration, ParameterSetting, Profile};
use weir_bounds::CostTable;
use weir_lower::IsolatedAccesses;
use weir_trust::digest::Sha256Digest;
use weir_verify::CpuFeatures;

/// The back end of compilation records.
const BACK_END: &str = "llvm";
/// The target of all machine code.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// A compilation: its inputs, and the digest of the text that the compiler was given.
#[derive(Clone, Debug)]
pub struct Compiled<'a> {
    /// The module.
    pub admitted: &'a Admitted,
    /// The digest of the operator's profile. The customisation instance is another digest: that of the profile by which the
    /// module was admitted, which follows from the operator's profile.
    pub customisation_type: Sha256Digest,
    /// The settings of the module's parameters.
    pub settings: &'a [ParameterSetting],
    /// The form of the machine code.
    pub form: ObjectForm,
    /// The processors that the code is for.
    pub features: CpuFeatures,
    /// The nanoseconds that 1000 units of fuel can take.
    pub nanoseconds_per_1000_fuel: u64,
    /// The accesses to memory that are isolated from the optimiser, because the verifier rejected them otherwise.
    pub isolated: Isolated,
    /// The digest of the text for LLVM.
    pub text: Sha256Digest,
}

/// Returns the profile by which a module is admitted to be compiled for a record. Minimum, median and maximum of its
/// calibration are one number, which the record states: the nanoseconds that 1000 units of fuel can take. `None` if the number
/// is out of range.
pub fn profile_of_record(profile: Profile, nanoseconds_per_1000_fuel: u64) -> Option<CalibratedProfile> {
    let [min, median, max] = [nanoseconds_per_1000_fuel; 3];
    let calibration = Calibration::measured(min, median, max, "record").ok()?;
    Some(CalibratedProfile::new(profile, calibration))
}

/// Returns the digest by which records name a profile: that of its canonical form, which has all keys in a fixed order.
pub fn profile_digest(profile: &Profile) -> Sha256Digest {
    Sha256Digest::of(profile.to_toml().as_bytes())
}

impl Inputs {
    /// Returns the inputs of a compilation.
    pub fn of(compiled: Compiled<'_>) -> Self {
        let Compiled {
            admitted,
            customisation_type,
            settings,
            form,
            features,
            nanoseconds_per_1000_fuel,
            isolated,
            text,
        } = compiled;
        let manifest = admitted.manifest();
        let profile = Sha256 { sha256: profile_digest(admitted.profile()) };
        let mut parameters = BTreeMap::<String, Vec<String>>::new();
        for (name, texts) in settings {
            parameters.entry(name.clone()).or_default().extend(texts.iter().cloned());
        }
        Self {
            module: ResourceDescriptor::new(
                format!("{} {}", manifest.name, manifest.version),
                Sha256Digest::of(admitted.bytes()),
            ),
            parameters,
            customisation_type: Sha256 { sha256: customisation_type },
            customisation_instance: profile,
            tier: admitted.tier().name().to_owned(),
            // The name of a form states the kind of its calls.
            calls: form.name().to_owned(),
            back_end: BACK_END.to_owned(),
            cost_table: CostTable::VERSION,
            nanoseconds_per_1000_fuel,
            target: TARGET.to_owned(),
            features: features.level().to_owned(),
            isolated_accesses: isolated,
            text: Sha256 { sha256: text },
        }
    }
}

impl Bounds {
    /// Returns the bounds of a module's calls. `stack_bytes` is the most stack of a call, as the verifier has found it in the
    /// machine code; `None` with recursion.
    pub fn of(admitted: &Admitted, stack_bytes: Option<u64>) -> Self {
        let bounded = ENTRY_POINTS.iter().filter_map(|definition| {
            let found = admitted.analysis().entry(definition.entry)?;
            let fuel = found.usage.fuel;
            let bound = StatedBound { constant: fuel.constant, per_kib: fuel.per_kib };
            fuel.is_bounded().then(|| (definition.name.to_owned(), bound))
        });
        Self {
            cost_table: CostTable::VERSION,
            tier: admitted.tier().name().to_owned(),
            calls: bounded.collect(),
            stack_bytes,
            memory_bytes: admitted.memory().0,
        }
    }
}

impl From<&IsolatedAccesses> for Isolated {
    fn from(isolated: &IsolatedAccesses) -> Self {
        match isolated {
            IsolatedAccesses::None => Self::None,
            IsolatedAccesses::At(offsets) => Self::At(offsets.iter().copied().collect()),
            IsolatedAccesses::All => Self::All,
        }
    }
}

impl From<&Isolated> for IsolatedAccesses {
    fn from(isolated: &Isolated) -> Self {
        match isolated {
            Isolated::None => Self::None,
            Isolated::At(offsets) => Self::At(offsets.iter().copied().collect()),
            Isolated::All => Self::All,
        }
    }
}
