//! Reading of a configuration that the command line names.

use super::{GraphCommandError, report};
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use weir_graph::language::limits::SOURCE_BYTES_MAX;
use weir_graph::language::{
    ConfigurationSource, FlatConfiguration, LanguageEnvironment, LanguageErrors, parse,
};

/// The configuration, and the values of its variables.
#[derive(Debug, Args)]
pub struct ConfigurationArgs {
    /// The configuration, or an archive that contains one (default: standard input, also `-`); and values of
    /// variables, which take precedence over `define`
    #[arg(value_name = "FILE|NAME=VALUE")]
    inputs: Vec<OsString>,
    /// Read the configuration from this file
    #[arg(short = 'f', long, value_name = "FILE", conflicts_with = "expression")]
    file: Option<PathBuf>,
    /// Take this text as the configuration
    #[arg(short = 'e', long, value_name = "TEXT")]
    expression: Option<String>,
    /// Folders of libraries, separated by colons; each is searched with its folder `conf`. The folder of the
    /// configuration is always searched first
    #[arg(short = 'C', long, value_name = "PATH", env = "CLICKPATH")]
    clickpath: Option<OsString>,
}

impl ConfigurationArgs {
    /// Returns the variables and their values.
    ///
    /// # Errors
    ///
    /// [`GraphCommandError::SecondConfiguration`].
    pub fn definitions(&self) -> Result<Vec<(String, String)>, GraphCommandError> {
        Ok(inputs(self)?.definitions)
    }

    /// Returns the folders of libraries.
    pub fn clickpath(&self) -> Option<&OsStr> {
        self.clickpath.as_deref()
    }
}

/// A configuration without errors.
pub struct Loaded {
    /// The name for messages.
    pub name: String,
    /// The configuration.
    pub flat: FlatConfiguration,
}

/// Reads a configuration. Errors go to standard error, and so do warnings, if they are wanted.
///
/// # Errors
///
/// [`GraphCommandError`] if the file cannot be read, or the configuration has errors.
pub fn load(
    args: &ConfigurationArgs,
    environment: &dyn LanguageEnvironment,
    has_warnings: bool,
) -> Result<Loaded, GraphCommandError> {
    let inputs = inputs(args)?;
    let (name, bytes) = match (&args.expression, &inputs.file) {
        (Some(text), _) => ("config".to_owned(), text.clone().into_bytes()),
        (None, Some(path)) if path != Path::new("-") => {
            let file = std::fs::File::open(path).map_err(|source| read_error(path, source))?;
            (path.to_string_lossy().into_owned(), read(file, path)?)
        }
        (None, _) => ("<stdin>".to_owned(), read(std::io::stdin().lock(), Path::new("<stdin>"))?),
    };
    let source = ConfigurationSource { name: &name, bytes: &bytes };
    let parsed = parse(&source, &inputs.definitions, environment);
    let mut stderr = std::io::stderr().lock();
    let is_terminal = stderr.is_terminal();
    let flat = match parsed {
        Ok(flat) => flat,
        Err(errors) => {
            let _ = report::write(&mut stderr, &errors, is_terminal);
            let count = errors.errors.len() + errors.uncollected;
            return Err(GraphCommandError::Faulty { name, count });
        }
    };
    if has_warnings {
        let warnings = LanguageErrors { warnings: flat.warnings.clone(), ..LanguageErrors::default() };
        // A message that cannot be written is no reason to withhold the result.
        let _ = report::write(&mut stderr, &warnings, is_terminal);
    }
    Ok(Loaded { name, flat })
}

/// The configuration on the command line, and the variables.
struct Inputs {
    file: Option<PathBuf>,
    definitions: Vec<(String, String)>,
}

/// Tells the configuration from the variables.
fn inputs(args: &ConfigurationArgs) -> Result<Inputs, GraphCommandError> {
    let mut inputs = Inputs { file: args.file.clone(), definitions: Vec::new() };
    for input in &args.inputs {
        let is_variable = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if let Some((name, value)) = input.to_str().and_then(|text| text.split_once('='))
            && is_variable(name)
        {
            inputs.definitions.push((name.to_owned(), value.trim().to_owned()));
        } else if inputs.file.is_some() || args.expression.is_some() {
            return Err(GraphCommandError::SecondConfiguration(input.to_string_lossy().into_owned()));
        } else {
            inputs.file = Some(input.into());
        }
    }
    Ok(inputs)
}

fn read_error(path: &Path, source: std::io::Error) -> GraphCommandError {
    GraphCommandError::Read { path: path.to_owned(), source }
}

/// Reads a file, at most one byte more than the language accepts.
pub fn read(file: impl Read, path: &Path) -> Result<Vec<u8>, GraphCommandError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(SOURCE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|source| read_error(path, source))?;
    Ok(bytes)
}
