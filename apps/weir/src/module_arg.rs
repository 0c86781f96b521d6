//! The command-line argument `MODULE[,KEY=VALUE]...`, as in `weir run -m`: a module and the values of its parameters.

use crate::shipped;
use std::path::{Path, PathBuf};
use weir_admission::{
    Admitted, Assessment, CalibratedProfile, MODULE_BYTES_MAX, ModuleRefusal, ParameterSetting,
};
use weir_compilation::bundle::{BUNDLE_BYTES_MAX, Bundle, BundleError};
use weir_units::Escape as _;

/// Errors of a module named on the command line.
#[derive(Debug, thiserror::Error)]
pub enum ModuleArgError {
    /// No shipped module and no file has the name.
    #[error("there is no module `{}`{}: no file has this name, and the shipped modules are {}", .0.escape_debug(), similar_module(.0), shipped_names())]
    Unknown(String),
    /// A part after a comma is not `KEY=VALUE`.
    #[error("`{}` in `-m {}` is not KEY=VALUE", part.escape_debug(), argument.escape_debug())]
    NotKeyValue {
        /// The part.
        part: String,
        /// The whole argument.
        argument: String,
    },
    /// The module's name is empty.
    #[error("`-m {}` names no module: give the name of a file, or one of {}", .0.escape_debug(), shipped_names())]
    NoName(String),
    /// A comma is not followed by a part.
    #[error("`-m {}`: there is nothing after a comma, where KEY=VALUE should be", .0.escape_debug())]
    EmptyPart(String),
    /// The path is that of a folder.
    #[error("{} is a folder: {}", path.escaped(), if *is_built {
        format!("did you mean {}?", wasm.escaped())
    } else {
        format!("if it is the folder of a module, `weir build {}` creates {} from it", path.escaped(), wasm.escaped())
    })]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The module that `weir build` writes there.
        wasm: PathBuf,
        /// True if the module is built.
        is_built: bool,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.escaped())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is too large for a module.
    #[error("{}: larger than {}, the most for a module", .0.escaped(), weir_units::Bytes(MODULE_BYTES_MAX as u64))]
    TooLarge(PathBuf),
    /// The file begins like a bundle, and is none.
    #[error("{}: {error}", path.escaped())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: BundleError,
    },
    /// The module is not admitted.
    #[error("{}: {refusal}", name.escaped())]
    Refused {
        /// The module's name on the command line.
        name: String,
        /// The cause.
        refusal: ModuleRefusal,
    },
}

impl ModuleArgError {
    /// Returns true if the command line is wrong; false if the module is.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Unknown(_)
            | Self::NotKeyValue { .. }
            | Self::NoName(_)
            | Self::EmptyPart(_)
            | Self::Folder { .. } => true,
            Self::Refused { refusal, .. } => matches!(refusal, ModuleRefusal::Setting(_)),
            Self::Read { .. } | Self::TooLarge(_) | Self::Bundle { .. } => false,
        }
    }
}

/// Returns the question whether the user meant the shipped module whose name is most similar; nothing if none is.
fn similar_module(name: &str) -> String {
    let distance = |shipped: &&shipped::ShippedModule| strsim::osa_distance(name, shipped.name);
    let closest = shipped::ALL.iter().min_by_key(distance);
    // Two typing errors in a long name, one in a short name.
    let is_similar =
        |shipped: &&shipped::ShippedModule| distance(shipped) <= 1 + usize::from(shipped.name.len() > 4);
    closest.filter(is_similar).map_or(String::new(), |shipped| format!(" (did you mean `{}`?)", shipped.name))
}

/// Returns the names of the shipped modules, separated by commas.
fn shipped_names() -> String {
    shipped::ALL.iter().map(|shipped| shipped.name).collect::<Vec<_>>().join(", ")
}

/// A module named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleArg {
    /// The name of a shipped module, or a path.
    pub name: String,
    /// The values of parameters.
    pub settings: Vec<ParameterSetting>,
}

impl ModuleArg {
    /// Parses the argument. A part that is not `KEY=VALUE` is a further item of the preceding parameter's value, which
    /// is a list.
    pub fn parse(text: &str) -> Result<Self, ModuleArgError> {
        let mut parts = split(text).into_iter();
        let name = parts.next().unwrap_or_default();
        if name.is_empty() {
            return Err(ModuleArgError::NoName(text.to_owned()));
        }
        let mut settings: Vec<ParameterSetting> = Vec::new();
        for part in parts {
            match (part.split_once('='), settings.last_mut()) {
                (Some((key, value)), _) if is_key(key) => {
                    settings.push((key.to_owned(), vec![value.to_owned()]));
                }
                (_, Some((_, values))) => values.push(part),
                _ if part.is_empty() => return Err(ModuleArgError::EmptyPart(text.to_owned())),
                _ => return Err(ModuleArgError::NotKeyValue { part, argument: text.to_owned() }),
            }
        }
        Ok(Self { name, settings })
    }

    /// Reads the module and assesses it against a profile.
    pub fn assess(&self, profile: &CalibratedProfile) -> Result<Assessment, ModuleArgError> {
        Assessment::assess(self.bytes()?, &self.settings, profile).map_err(|refusal| self.refused(refusal))
    }

    /// Reads the module and admits it by a profile.
    pub fn admit(&self, profile: &CalibratedProfile) -> Result<Admitted, ModuleArgError> {
        self.assess(profile)?.admit().map_err(|refusal| self.refused(refusal))
    }

    fn refused(&self, refusal: ModuleRefusal) -> ModuleArgError {
        ModuleArgError::Refused { name: self.name.clone(), refusal }
    }

    /// Reads the module's bytes, from a .wasm file or a bundle. A shipped module takes precedence over a file of the same name.
    pub fn bytes(&self) -> Result<Vec<u8>, ModuleArgError> {
        let mut bytes = self.file_bytes()?;
        if Bundle::is_bundle(&bytes) {
            bytes = Bundle::module_of(&bytes).map_err(|error| self.no_bundle(error))?.to_vec();
        }
        if bytes.len() > MODULE_BYTES_MAX {
            return Err(ModuleArgError::TooLarge(PathBuf::from(&self.name)));
        }
        Ok(bytes)
    }

    /// Reads the bundle, if the file is one.
    pub fn bundle(&self) -> Result<Option<Bundle>, ModuleArgError> {
        let bytes = self.file_bytes()?;
        if !Bundle::is_bundle(&bytes) {
            return Ok(None);
        }
        Bundle::parse(&bytes).map(Some).map_err(|error| self.no_bundle(error))
    }

    fn no_bundle(&self, error: BundleError) -> ModuleArgError {
        ModuleArgError::Bundle { path: PathBuf::from(&self.name), error }
    }

    /// Reads the bytes of the file for a node, which can be a module or a bundle.
    pub fn node_file(&self) -> Result<Vec<u8>, ModuleArgError> {
        let bytes = self.file_bytes()?;
        if bytes.len() > MODULE_BYTES_MAX {
            return Err(ModuleArgError::TooLarge(PathBuf::from(&self.name)));
        }
        Ok(bytes)
    }

    /// Reads the bytes of the file, which can be a module or a bundle, or of a shipped module.
    fn file_bytes(&self) -> Result<Vec<u8>, ModuleArgError> {
        if let Some(shipped) = shipped::find(&self.name) {
            return Ok(shipped.wasm.to_vec());
        }
        let path = Path::new(&self.name);
        if path.is_dir() {
            // The canonical path of `.` has a file name, from which the module's is made.
            let absolute = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let mut file = absolute.file_name().unwrap_or_default().to_owned();
            file.push(".wasm");
            let wasm = path.join(file);
            return Err(ModuleArgError::Folder { path: path.to_owned(), is_built: wasm.is_file(), wasm });
        }
        let read_error = |source| ModuleArgError::Read { path: path.to_owned(), source };
        let file = match weir_os::private::open_regular(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.name.contains(['/', '.']) => {
                return Err(ModuleArgError::Unknown(self.name.clone()));
            }
            Err(error) => return Err(read_error(error)),
        };
        let mut bytes = Vec::new();
        let bytes_read_max = BUNDLE_BYTES_MAX as u64 + 1;
        std::io::Read::read_to_end(&mut std::io::Read::take(file, bytes_read_max), &mut bytes)
            .map_err(read_error)?;
        Ok(bytes)
    }
}

/// Returns true if the text before an equals sign can be the name of a parameter. If it cannot, the part is a list item
/// that contains an equals sign.
fn is_key(text: &str) -> bool {
    weir_admission::Name::new(text).is_ok()
}

/// Splits at commas that are not escaped by a backslash. The backslashes stay: the parser of the parameter's value
/// removes them.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        if c == ',' && !escaped {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(text: &str) -> Vec<(String, Vec<String>)> {
        ModuleArg::parse(text).unwrap().settings
    }

    #[test]
    fn settings_and_lists_are_split_at_commas() {
        let set =
            |key: &str, values: &[&str]| (key.to_owned(), values.iter().map(|v| (*v).to_owned()).collect());
        assert_eq!(ModuleArg::parse("rtt").unwrap(), ModuleArg { name: "rtt".into(), settings: vec![] });
        assert_eq!(settings("m,ports=53,123,x=1"), [set("ports", &["53", "123"]), set("x", &["1"])]);
        assert_eq!(settings(r"m,s=a\,b,GET /=x"), [set("s", &[r"a\,b", "GET /=x"])]);
        assert_eq!(settings(r"m,s=a\\,b"), [set("s", &[r"a\\", "b"])]);
        assert!(matches!(ModuleArg::parse("m,oops"), Err(ModuleArgError::NotKeyValue { .. })));
        assert!(matches!(ModuleArg::parse("m,"), Err(ModuleArgError::EmptyPart(_))));
        assert!(matches!(ModuleArg::parse(",a=1"), Err(ModuleArgError::NoName(_))));
    }

    #[test]
    fn an_unknown_module_name_and_a_missing_file_have_different_errors() {
        let error = |name: &str| ModuleArg::parse(name).unwrap().bytes().unwrap_err();
        assert!(error("no-such").to_string().contains("latency, loss, rtt"));
        assert!(error("no-such").is_usage());
        assert!(matches!(error("./no-such.wasm"), ModuleArgError::Read { .. }));
        assert!(error("/dev/zero").to_string().contains("is not a regular file"));
    }
}
