//! The one way in.

use crate::environment::environment;
use crate::inspect::{Facts, Refusal, inspect};
use crate::{Limits, Manifest, Tick, Tier, Value, ValueError, shown};
use weir_bounds::{Analysis, Costs};
use weir_units::{Bytes, Nanos};

/// A parameter as a user gives it: its name and value, or for a list its items.
pub type Setting = (String, Vec<String>);

/// A module that was checked and may run: the exact bytes, its manifest, the values of its parameters.
///
/// There is no other way to make one than [`Admitted::admit`], and a sandbox loads nothing else: what was not checked cannot run, and
/// nothing can change between the check and the use.
#[derive(Clone, Debug)]
pub struct Admitted {
    bytes: Vec<u8>,
    manifest: Manifest,
    values: Vec<Value>,
    facts: Facts,
    tick: Option<Nanos>,
    analysis: Analysis,
    tier: Tier,
    limits: Limits,
}

impl Admitted {
    /// Checks a module's bytes (WebAssembly, imports, exports, manifest) and the settings for it.
    ///
    /// # Errors
    /// A [`Refusal`] for the first thing that is wrong.
    pub fn admit(bytes: Vec<u8>, settings: &[Setting]) -> Result<Self, Refusal> {
        let (manifest, facts) = manifest_of(&bytes)?;
        let values = values(&manifest, settings)?;
        let tick = match manifest.tick {
            _ if !facts.has_tick => None,
            Some(Tick::Every(period)) => Some(period),
            Some(Tick::Parameter(index)) => match values.get(index) {
                Some(Value::Duration(period)) => Some((*period).max(Nanos(1_000))),
                _ => None,
            },
            None => None,
        };
        let environment = environment(&manifest, &values, manifest.memory);
        let analysis = weir_bounds::analyse(&bytes, &environment, &Costs::standard())
            .map_err(|error| Refusal::Invalid { offset: error.offset, reason: shown(&error.reason) })?;
        Ok(Self {
            bytes,
            manifest,
            values,
            facts,
            tick,
            analysis,
            tier: Tier::Metered,
            limits: Limits::default(),
        })
    }

    /// The module's bytes, as they were checked.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What it says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The value of each parameter, in the manifest's order.
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// What the loader needs to know.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The most private memory it may have.
    pub fn memory(&self) -> Bytes {
        self.manifest.memory
    }

    /// How it is kept within its limits.
    pub fn tier(&self) -> Tier {
        self.tier
    }

    /// What was found about its bytes.
    pub fn analysis(&self) -> &Analysis {
        &self.analysis
    }

    /// What a call of it may use, in fuel of this node.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The period of its ticks in packet time, if it has them.
    pub fn tick(&self) -> Option<Nanos> {
        self.tick
    }
}

/// The manifest of a module whose parameters are not known yet; checks everything else.
///
/// # Errors
/// A [`Refusal`] for the first thing that is wrong.
pub fn manifest_of(bytes: &[u8]) -> Result<(Manifest, Facts), Refusal> {
    let (facts, manifest) = inspect(bytes)?;
    let manifest = Manifest::parse(manifest)?;
    if facts.memory > manifest.memory {
        return Err(Refusal::MemorySize { given: facts.memory, max: manifest.memory });
    }
    Ok((manifest, facts))
}

fn values(manifest: &Manifest, settings: &[Setting]) -> Result<Vec<Value>, ValueError> {
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
                return parameter.default.clone().ok_or_else(|| ValueError::Missing {
                    parameter: parameter.name.clone(),
                    ty: parameter.ty,
                    summary: parameter.summary.clone(),
                });
            }
            parameter.read(&given)
        })
        .collect()
}
