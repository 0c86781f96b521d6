//! `-m MODULE[,KEY=VALUE]...`: which module, and how it is set.

use crate::shipped;
use std::path::{Path, PathBuf};
use weir_admission::{
    AdmissionTerms, Admitted, Assessment, MODULE_BYTES_MAX, ModuleRefusal, ParameterSetting,
};
use weir_units::Shown as _;

/// Why a module that was named cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ModuleSpecError {
    /// Neither a shipped module nor a file.
    #[error("there is no module `{}`: it is no file, and {} come with weir", .0.escape_debug(), names())]
    Unknown(String),
    /// A part that is no `key=value`.
    #[error("`{}` in `-m {}` is not KEY=VALUE", part.escape_debug(), spec.escape_debug())]
    Part {
        /// The part.
        part: String,
        /// The whole.
        spec: String,
    },
    /// Nothing is named.
    #[error("`-m {}` names no module: give the name of a file, or one of {}", .0.escape_debug(), names())]
    Nameless(String),
    /// A comma with nothing behind it.
    #[error("`-m {}`: there is nothing after a comma, where KEY=VALUE should be", .0.escape_debug())]
    Empty(String),
    /// A folder, not a file.
    #[error("{} is a folder: {}", path.shown(), if *is_built {
        format!("did you mean {}?", wasm.shown())
    } else {
        format!("`weir build {}` makes {} of it, if it is a module's", path.shown(), wasm.shown())
    })]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The module that is built there.
        wasm: PathBuf,
        /// Whether it is there.
        is_built: bool,
    },
    /// The file cannot be read.
    #[error("{}: {source}", path.shown())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file is far too large for a module.
    #[error("{}: larger than {}, the most for a module", .0.shown(), weir_units::Bytes(MODULE_BYTES_MAX as u64))]
    TooLarge(PathBuf),
    /// It is not admitted.
    #[error("{}: {refusal}", name.shown())]
    Refused {
        /// The module as it was named.
        name: String,
        /// Why.
        refusal: ModuleRefusal,
    },
}

impl ModuleSpecError {
    /// Whether the command line is wrong, not the module.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Unknown(_)
            | Self::Part { .. }
            | Self::Nameless(_)
            | Self::Empty(_)
            | Self::Folder { .. } => true,
            Self::Refused { refusal, .. } => matches!(refusal, ModuleRefusal::Setting(_)),
            Self::Read { .. } | Self::TooLarge(_) => false,
        }
    }
}

fn names() -> String {
    shipped::ALL.iter().map(|shipped| shipped.name).collect::<Vec<_>>().join(", ")
}

/// A module as named on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// A shipped name, or a path.
    pub name: String,
    /// Its settings.
    pub settings: Vec<ParameterSetting>,
}

impl Spec {
    /// Splits the text at its commas. A part without `=` is a further item of the list before it.
    pub fn parse(text: &str) -> Result<Self, ModuleSpecError> {
        let mut parts = split(text).into_iter();
        let name = parts.next().unwrap_or_default();
        if name.is_empty() {
            return Err(ModuleSpecError::Nameless(text.to_owned()));
        }
        let mut settings: Vec<ParameterSetting> = Vec::new();
        for part in parts {
            match (part.split_once('='), settings.last_mut()) {
                (Some((key, value)), _) if is_key(key) => {
                    settings.push((key.to_owned(), vec![value.to_owned()]));
                }
                (_, Some((_, values))) => values.push(part),
                _ if part.is_empty() => return Err(ModuleSpecError::Empty(text.to_owned())),
                _ => return Err(ModuleSpecError::Part { part, spec: text.to_owned() }),
            }
        }
        Ok(Self { name, settings })
    }

    /// Finds the module and says what it may use, and whether these terms admit it.
    pub fn assess(&self, terms: &AdmissionTerms) -> Result<Assessment, ModuleSpecError> {
        Assessment::of(self.bytes()?, &self.settings, terms).map_err(|refusal| self.refused(refusal))
    }

    /// Finds the module and has it admitted by these terms.
    pub fn admit(&self, terms: &AdmissionTerms) -> Result<Admitted, ModuleSpecError> {
        self.assess(terms)?.admit().map_err(|refusal| self.refused(refusal))
    }

    fn refused(&self, refusal: ModuleRefusal) -> ModuleSpecError {
        ModuleSpecError::Refused { name: self.name.clone(), refusal }
    }

    /// The module's bytes. What looks like a path is one; a shipped name wins over a file of that name.
    pub fn bytes(&self) -> Result<Vec<u8>, ModuleSpecError> {
        if let Some(shipped) = shipped::find(&self.name) {
            return Ok(shipped.wasm.to_vec());
        }
        let path = Path::new(&self.name);
        if path.is_dir() {
            // Of `.` too the last part has a name.
            let whole = path.canonicalize().unwrap_or_else(|_| path.to_owned());
            let mut file = whole.file_name().unwrap_or_default().to_owned();
            file.push(".wasm");
            let wasm = path.join(file);
            return Err(ModuleSpecError::Folder { path: path.to_owned(), is_built: wasm.is_file(), wasm });
        }
        let read = |source| ModuleSpecError::Read { path: path.to_owned(), source };
        let file = match weir_os::private::open_regular(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !self.name.contains(['/', '.']) => {
                return Err(ModuleSpecError::Unknown(self.name.clone()));
            }
            Err(error) => return Err(read(error)),
        };
        let mut bytes = Vec::new();
        let most = MODULE_BYTES_MAX as u64 + 1;
        std::io::Read::read_to_end(&mut std::io::Read::take(file, most), &mut bytes).map_err(read)?;
        if bytes.len() > MODULE_BYTES_MAX {
            return Err(ModuleSpecError::TooLarge(path.to_owned()));
        }
        Ok(bytes)
    }
}

/// Whether this can be a parameter's name: else `a=b` is an item of a list that has an equals sign in it.
fn is_key(text: &str) -> bool {
    weir_admission::Name::new(text).is_ok()
}

/// Splits at commas that no backslash precedes; escapes stay as they are, for the parameter's own reader.
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
        Spec::parse(text).unwrap().settings
    }

    #[test]
    fn settings_and_lists_are_split_at_commas() {
        let set =
            |key: &str, values: &[&str]| (key.to_owned(), values.iter().map(|v| (*v).to_owned()).collect());
        assert_eq!(Spec::parse("rtt").unwrap(), Spec { name: "rtt".into(), settings: vec![] });
        assert_eq!(settings("m,ports=53,123,x=1"), [set("ports", &["53", "123"]), set("x", &["1"])]);
        assert_eq!(settings(r"m,s=a\,b,GET /=x"), [set("s", &[r"a\,b", "GET /=x"])]);
        assert_eq!(settings(r"m,s=a\\,b"), [set("s", &[r"a\\", "b"])]);
        assert!(matches!(Spec::parse("m,oops"), Err(ModuleSpecError::Part { .. })));
        assert!(matches!(Spec::parse("m,"), Err(ModuleSpecError::Empty(_))));
        assert!(matches!(Spec::parse(",a=1"), Err(ModuleSpecError::Nameless(_))));
    }

    #[test]
    fn a_module_that_is_not_there_is_told_from_a_file_that_is_not_there() {
        let error = |name: &str| Spec::parse(name).unwrap().bytes().unwrap_err();
        assert!(error("no-such").to_string().contains("trajectory, rtt, worm"));
        assert!(error("no-such").is_usage());
        assert!(matches!(error("./no-such.wasm"), ModuleSpecError::Read { .. }));
        assert!(error("/dev/zero").to_string().contains("no regular file"));
    }
}
