//! The one way in.

use crate::environment::environment;
use crate::inspect::{ModuleInfo, ModuleRefusal, check_size, inspect};
use crate::{
    AdmissionTerms, Assessment, FuelLimits, Manifest, ModuleParameter, ParameterValue, Profile, Tier,
    ValueError,
};
use weir_bounds::{Analysis, CostTable, Environment, ParsedModule};
use weir_units::{Bytes, Nanos};

/// A parameter as a user gives it: its name and value, or for a list its items.
pub type ParameterSetting = (String, Vec<String>);

/// A module that was checked and may run: the exact bytes, its manifest, the values of its parameters, what it imports, the profile that
/// admitted it, its bounds, and the tier that follows from them.
///
/// There is no other way to make one than [`Assessment::admit`], and a sandbox loads nothing else: what was not checked cannot run, and
/// nothing can change between the check and the use.
#[derive(Clone, Debug)]
pub struct Admitted {
    tier: Tier,
    values: Vec<ParameterValue>,
    assessment: Assessment,
}

impl Admitted {
    /// Admits a module by the default profile, on a node that is not calibrated.
    ///
    /// # Errors
    /// A [`ModuleRefusal`] for the first thing that is wrong.
    pub fn admit(bytes: Vec<u8>, settings: &[ParameterSetting]) -> Result<Self, ModuleRefusal> {
        Self::admit_by(bytes, settings, &AdmissionTerms::default())
    }

    /// Admits a module by these terms.
    ///
    /// # Errors
    /// A [`ModuleRefusal`] for the first thing that is wrong, or that the profile does not allow.
    pub fn admit_by(
        bytes: Vec<u8>,
        settings: &[ParameterSetting],
        terms: &AdmissionTerms,
    ) -> Result<Self, ModuleRefusal> {
        Assessment::of(bytes, settings, terms)?.admit()
    }

    /// Only for an assessment whose verdict is this tier, and with its values.
    pub(crate) fn new(tier: Tier, values: Vec<ParameterValue>, assessment: Assessment) -> Self {
        Self { tier, values, assessment }
    }

    /// All that was found about it.
    pub fn assessment(&self) -> &Assessment {
        &self.assessment
    }

    /// The module's bytes, as they were checked, with what its sections say.
    pub fn module(&self) -> &ParsedModule {
        self.assessment.module()
    }

    /// The module's bytes, as they were checked.
    pub fn bytes(&self) -> &[u8] {
        self.module().bytes()
    }

    /// What it says about itself.
    pub fn manifest(&self) -> &Manifest {
        self.assessment.manifest()
    }

    /// The value of each parameter, in the manifest's order.
    pub fn values(&self) -> &[ParameterValue] {
        &self.values
    }

    /// What the loader needs to know.
    pub fn facts(&self) -> &ModuleInfo {
        self.assessment.facts()
    }

    /// The most private memory it may have.
    pub fn memory(&self) -> Bytes {
        self.assessment.memory()
    }

    /// How it is kept within its limits.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Why it is not proved, in a few words; `None` where it is.
    pub fn why(&self) -> Option<String> {
        self.assessment.why()
    }

    /// What was found about its bytes.
    pub fn analysis(&self) -> &Analysis {
        self.assessment.analysis()
    }

    /// What the analysis was told about it beside its bytes.
    pub fn environment(&self) -> Environment {
        environment(self.manifest(), self.assessment.values())
    }

    /// What a call of it may use, in fuel of this node.
    pub fn limits(&self) -> &FuelLimits {
        self.assessment.limits()
    }

    /// The profile that admitted it.
    pub fn profile(&self) -> &Profile {
        &self.assessment.terms().profile
    }

    /// The version of the cost table that its bounds and limits are in.
    pub const fn costs(&self) -> u32 {
        CostTable::VERSION
    }

    /// The period of its ticks in packet time, if it has them.
    pub fn tick(&self) -> Option<Nanos> {
        self.assessment.tick()
    }
}

/// The manifest of a module whose parameters are not known yet; checks everything else.
///
/// # Errors
/// A [`ModuleRefusal`] for the first thing that is wrong.
pub fn manifest_of(bytes: &[u8]) -> Result<(Manifest, ModuleInfo), ModuleRefusal> {
    check_size(bytes)?;
    read(bytes.to_vec()).map(|(_, manifest, facts)| (manifest, facts))
}

/// As [`manifest_of`], with the module.
pub(crate) fn read(bytes: Vec<u8>) -> Result<(ParsedModule, Manifest, ModuleInfo), ModuleRefusal> {
    let (module, facts) = inspect(bytes)?;
    let manifest = Manifest::parse(module.manifest().ok_or(ModuleRefusal::NoManifest)?)?;
    if facts.memory > manifest.memory {
        return Err(ModuleRefusal::MemorySize { given: facts.memory, max: manifest.memory });
    }
    Ok((module, manifest, facts))
}

/// That a parameter must be given.
pub(crate) fn missing(parameter: &ModuleParameter) -> ValueError {
    ValueError::Missing {
        parameter: parameter.name.clone(),
        ty: parameter.ty,
        summary: parameter.summary.clone(),
    }
}

/// The value of each parameter: what was given, or else its default; `None` where there is neither.
pub(crate) fn values(
    manifest: &Manifest,
    settings: &[ParameterSetting],
) -> Result<Vec<Option<ParameterValue>>, ValueError> {
    for (name, _) in settings {
        if !manifest.parameters.iter().any(|p| p.name.as_str() == name) {
            let known: Vec<String> = manifest.parameters.iter().map(|p| format!("`{}`", p.name)).collect();
            return Err(ValueError::Unknown {
                given: name.chars().take(80).collect(),
                known: if known.is_empty() { "none".to_owned() } else { known.join(", ") },
            });
        }
    }
    manifest
        .parameters
        .iter()
        .map(|parameter| {
            let given: Vec<&str> = settings
                .iter()
                .filter(|(name, _)| parameter.name.as_str() == name)
                .flat_map(|(_, texts)| texts.iter().map(String::as_str))
                .collect();
            if given.is_empty() {
                return Ok(parameter.default.clone());
            }
            parameter.read(&given).map(Some)
        })
        .collect()
}
