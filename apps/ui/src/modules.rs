//! The modules that the page offers for runs, with their parameters.

use serde::Serialize;
use std::collections::BTreeMap;
use weir_admission::{Manifest, ParameterType};

/// A module with its parameters.
#[derive(Clone, Debug, Serialize)]
pub struct PageModule {
    /// Name.
    pub name: String,
    /// Version.
    version: String,
    /// Purpose, in one line.
    description: String,
    /// True if `weir run` runs it without `-m`.
    is_default: bool,
    /// Parameters.
    parameters: Vec<PageParameter>,
}

/// A parameter.
#[derive(Clone, Debug, Serialize)]
struct PageParameter {
    name: String,
    #[serde(rename = "type")]
    ty: &'static str,
    description: String,
    default: Option<String>,
    min: Option<String>,
    max: Option<String>,
    unit: Option<String>,
    values: Vec<String>,
    /// True if the value is a list, whose items are separated by commas.
    is_list: bool,
}

impl PageModule {
    /// Reads the parts of a manifest that the page shows. `is_default` is true if `weir run` runs the module without `-m`.
    pub fn new(manifest: &Manifest, is_default: bool) -> Self {
        let text = |value: &Option<_>| {
            value.as_ref().map(|value: &weir_admission::ParameterValue| value.to_string())
        };
        let parameters = manifest.parameters.iter().map(|parameter| PageParameter {
            name: parameter.name.to_string(),
            ty: parameter.ty.name(),
            description: parameter.summary.clone(),
            default: text(&parameter.default),
            min: text(&parameter.min),
            max: text(&parameter.max),
            unit: Some(parameter.unit.clone()).filter(|unit| !unit.is_empty()),
            values: parameter.values.iter().map(ToString::to_string).collect(),
            is_list: matches!(
                parameter.ty,
                ParameterType::U64List | ParameterType::StringList | ParameterType::PrefixList
            ),
        });
        Self {
            name: manifest.name.to_string(),
            version: manifest.version.to_string(),
            description: manifest.summary.clone(),
            is_default,
            parameters: parameters.collect(),
        }
    }

    /// Returns the argument of `weir run -m` for the module with these values.
    ///
    /// # Errors
    /// The module has no such parameter, as a text for people.
    pub fn argument(&self, set: &BTreeMap<String, String>) -> Result<String, String> {
        let mut argument = self.name.clone();
        for (key, value) in set {
            let parameter = self.parameters.iter().find(|parameter| parameter.name == *key);
            let parameter = parameter.ok_or_else(|| {
                format!("module {} has no parameter `{}`", self.name, weir_units::escaped(key))
            })?;
            let value = if parameter.is_list { value.clone() } else { value.replace(',', "\\,") };
            argument.push_str(&format!(",{key}={value}"));
        }
        Ok(argument)
    }

    /// Returns the description of the module in a session with these values. A list has its items as such.
    pub fn session_module(&self, set: &BTreeMap<String, String>) -> serde_json::Value {
        let settings: serde_json::Map<String, serde_json::Value> = set
            .iter()
            .map(|(key, value)| {
                let is_list = self.parameters.iter().any(|it| it.name == *key && it.is_list);
                let value = if is_list {
                    value.split(',').map(str::trim).collect::<Vec<_>>().into()
                } else {
                    value.as_str().into()
                };
                (key.clone(), value)
            })
            .collect();
        serde_json::json!({ "module": self.name, "set": settings })
    }
}
