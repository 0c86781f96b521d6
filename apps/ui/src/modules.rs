//! The modules that the page offers for runs, with their parameters.

use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use weir_admission::{Manifest, ParameterType};
use weir_trust::grant::ModuleHash;

/// The number of hexadecimal digits of a module's hash.
const HASH_DIGITS: usize = 64;

/// The names of the shipped modules by the hash of their bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModuleNames(BTreeMap<ModuleHash, String>);

impl ModuleNames {
    /// Returns the name of the shipped module with this hash.
    pub fn get(&self, hash: &ModuleHash) -> Option<&str> {
        self.0.get(hash).map(String::as_str)
    }

    /// Returns a text for people in which shipped modules have names in place of their hashes.
    pub fn with_names<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let is_digit = |c: char| c.is_ascii_hexdigit();
        let words = text
            .split_inclusive(|c| !is_digit(c))
            .map(|word| word.split_at(word.trim_end_matches(|c| !is_digit(c)).len()));
        let named =
            |digits: &str| if digits.len() == HASH_DIGITS { self.get(&digits.parse().ok()?) } else { None };
        if words.clone().all(|(digits, _)| named(digits).is_none()) {
            return Cow::Borrowed(text);
        }
        Cow::Owned(words.flat_map(|(digits, rest)| [named(digits).unwrap_or(digits), rest]).collect())
    }
}

impl<'a> FromIterator<&'a PageModule> for ModuleNames {
    fn from_iter<T: IntoIterator<Item = &'a PageModule>>(modules: T) -> Self {
        Self(modules.into_iter().map(|module| (module.hash, module.name.clone())).collect())
    }
}

/// A module with its parameters.
#[derive(Clone, Debug, Serialize)]
pub struct PageModule {
    /// Name.
    pub name: String,
    #[serde(skip)]
    hash: ModuleHash,
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
    /// Reads the parts of a manifest that the page shows. `hash` is that of the module's bytes. `is_default` is true if `weir run` runs the module without `-m`.
    pub fn new(manifest: &Manifest, hash: ModuleHash, is_default: bool) -> Self {
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
            hash,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashes_of_shipped_modules_get_names() {
        let [shipped, other] = [&b"shipped"[..], b"other"].map(ModuleHash::of_bytes);
        let names = ModuleNames([(shipped, "rtt".to_owned())].into());
        for (text, named) in [
            (
                format!("`x`, {shipped}, unsigned, given is {other}"),
                format!("`x`, rtt, unsigned, given is {other}"),
            ),
            (format!("{shipped}, {shipped}"), "rtt, rtt".to_owned()),
            (format!("a{shipped}"), format!("a{shipped}")),
            (format!("{shipped}0"), format!("{shipped}0")),
            ("\u{e9}t\u{e9} 12".to_owned(), "\u{e9}t\u{e9} 12".to_owned()),
            (String::new(), String::new()),
        ] {
            assert_eq!(names.with_names(&text), named);
        }
    }
}
