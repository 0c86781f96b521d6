//! Admitted modules. A sandbox loads only admitted modules.

use crate::environment::environment;
use crate::inspect::{ModuleInfo, ModuleRefusal, check_size, inspect, state_blocks};
use crate::{
    Assessment, CalibratedProfile, FuelLimits, Manifest, ModuleParameter, ParameterValue, Profile,
    TcpSettings, Tier, ValueError, VerifiedUse,
};
use weir_bounds::{Analysis, CostTable, Environment, ParsedModule};
use weir_units::{Bytes, Nanos};
use weir_wire::stream::StreamLayer;

/// The setting of a parameter by a user: the name, and the value as one text, or the items of a list as several texts.
pub type ParameterSetting = (String, Vec<String>);

/// A module that was checked and may run: its exact bytes, manifest, parameter values, imports, the profile that
/// admitted it, its bounds, and the resulting tier.
///
/// Only [`Assessment::admit`] makes an `Admitted`, and a sandbox loads nothing else. So unchecked bytes cannot run, and
/// the bytes cannot change between check and use.
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
    /// A [`ModuleRefusal`] for the first violation.
    pub fn admit(bytes: Vec<u8>, settings: &[ParameterSetting]) -> Result<Self, ModuleRefusal> {
        Self::admit_by(bytes, settings, &CalibratedProfile::default())
    }

    /// Admits a module by a profile, on a node with a calibration.
    ///
    /// # Errors
    /// A [`ModuleRefusal`] for the first violation of the rules for modules, or of the profile.
    pub fn admit_by(
        bytes: Vec<u8>,
        settings: &[ParameterSetting],
        profile: &CalibratedProfile,
    ) -> Result<Self, ModuleRefusal> {
        Assessment::assess(bytes, settings, profile)?.admit()
    }

    /// Makes an admitted module. The tier must be the verdict of the assessment, and `values` its parameter values.
    pub(crate) fn new(tier: Tier, values: Vec<ParameterValue>, assessment: Assessment) -> Self {
        Self { tier, values, assessment }
    }

    /// Returns the module for a run without a meter: what its bounds do not prove is not checked at run time. A proved module
    /// has no meter anyway, and stays as it is. The caller has found that this is allowed, by the module's signer.
    #[must_use]
    pub fn without_meter(self) -> Self {
        let tier = if self.tier == Tier::Proved { Tier::Proved } else { Tier::Unmetered };
        Self { tier, ..self }
    }

    /// Returns true if the module may run in verified machine code alone.
    pub fn needs_verified_code(&self) -> bool {
        self.profile().verified == VerifiedUse::Only || self.tier == Tier::Unmetered
    }

    /// Returns the assessment.
    pub fn assessment(&self) -> &Assessment {
        &self.assessment
    }

    /// Returns the checked module: its bytes, and the contents of its sections.
    pub fn module(&self) -> &ParsedModule {
        self.assessment.module()
    }

    /// Returns the module's bytes as they were checked.
    pub fn bytes(&self) -> &[u8] {
        self.module().bytes()
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        self.assessment.manifest()
    }

    /// Returns the value of each parameter, in the manifest's order.
    pub fn values(&self) -> &[ParameterValue] {
        &self.values
    }

    /// Returns the facts about the module that the loader needs.
    pub fn info(&self) -> &ModuleInfo {
        self.assessment.info()
    }

    /// Returns the maximum private memory.
    pub fn memory(&self) -> Bytes {
        self.assessment.memory()
    }

    /// Returns the TCP streams that the module follows; `None` without.
    pub fn tcp(&self) -> Option<&TcpSettings> {
        self.assessment.tcp()
    }

    /// Returns the layer of the packets whose flows the module follows.
    pub fn layer(&self) -> StreamLayer {
        self.assessment.layer()
    }

    /// Returns the tier in which the module runs.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// Returns in a few words why the module is not proved; `None` for a proved module.
    pub fn reason_for_tier(&self) -> Option<String> {
        self.assessment.reason_for_tier()
    }

    /// Returns the bounds that the analysis found.
    pub fn analysis(&self) -> &Analysis {
        self.assessment.analysis()
    }

    /// Returns the inputs of the analysis besides the bytes: ranges of the parameters, the longest packet, and the sizes
    /// of records and memory.
    pub fn environment(&self) -> Environment {
        environment(self.manifest(), self.assessment.tcp(), self.assessment.values())
    }

    /// Returns the limits for each call, converted to fuel by this node's calibration.
    pub fn limits(&self) -> &FuelLimits {
        self.assessment.limits()
    }

    /// Returns the profile that admitted the module.
    pub fn profile(&self) -> &Profile {
        self.assessment.calibrated_profile().profile()
    }

    /// Returns the version of the cost table by which bounds and limits count fuel.
    pub const fn cost_table_version(&self) -> u32 {
        CostTable::VERSION
    }

    /// Returns the period of ticks, in packet time; `None` for a module without ticks.
    pub fn tick_period(&self) -> Option<Nanos> {
        self.assessment.tick_period()
    }
}

/// Checks a module without values for its parameters. Returns the manifest and the facts that the loader needs.
///
/// # Errors
/// A [`ModuleRefusal`] for the first violation.
pub fn manifest_of(bytes: &[u8]) -> Result<(Manifest, ModuleInfo), ModuleRefusal> {
    check_size(bytes)?;
    read_module(bytes.to_vec()).map(|(_, manifest, info)| (manifest, info))
}

/// Checks a module without values for its parameters. Returns the parsed module, the manifest and the facts that the
/// loader needs.
pub(crate) fn read_module(bytes: Vec<u8>) -> Result<(ParsedModule, Manifest, ModuleInfo), ModuleRefusal> {
    let (module, mut info) = inspect(bytes)?;
    let manifest = Manifest::parse(module.manifest().ok_or(ModuleRefusal::NoManifest)?)?;
    if info.memory > manifest.memory {
        return Err(ModuleRefusal::MemorySize { given: info.memory, max: manifest.memory });
    }
    let has_function = info.stream_function.is_some();
    if has_function != manifest.tcp.is_some() {
        return Err(ModuleRefusal::Streams { has_function });
    }
    info.states = state_blocks(&module, &manifest.states, info.memory)?;
    Ok((module, manifest, info))
}

/// The error for a parameter that has neither a value nor a default.
pub(crate) fn missing_value(parameter: &ModuleParameter) -> ValueError {
    ValueError::Missing {
        parameter: parameter.name.clone(),
        ty: parameter.ty,
        summary: parameter.summary.clone(),
    }
}

/// Returns the value of each parameter: the given value, or else the default; `None` if there is neither.
pub(crate) fn parameter_values(
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
