//! `weir graph flatten`.

use super::libraries::LibraryFolders;
use super::{GraphError, report};
use crate::Failure;
use clap::Args;
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use weir_graph::language::limits::SOURCE_BYTES_MAX;
use weir_graph::language::{ConfigurationSource, FlatLayout, LanguageErrors, parse};

/// Examples and statuses in the help of `weir graph flatten`.
pub const HELP: &str = "\
The result has declarations of all elements, then all connections. Components of a compound element `outer` are named \
outer/inner, and variables are replaced. All classes are accepted. Errors go to standard error, as FILE:LINE: text.

Examples:
  weir graph flatten router.click
  weir graph flatten router.click DEVICE=eth1 -o flat.click
  weir graph flatten -e 'elementclass B { -> Queue -> }  FromDevice(eth0) -> B -> Discard' --plain

Exit status: 0 when the configuration has no errors; 1 when it has.";

/// `weir graph flatten`.
#[derive(Debug, Args)]
pub struct FlattenArgs {
    /// The configuration, or an archive that contains one (default: standard input, also `-`); and values of
    /// variables, which take precedence over `define`
    #[arg(value_name = "FILE|NAME=VALUE")]
    inputs: Vec<OsString>,
    /// Take this text as the configuration
    #[arg(short = 'e', long, value_name = "TEXT")]
    expression: Option<String>,
    /// The file to write
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Without line directives, which keep the places of the declarations for messages
    #[arg(long)]
    plain: bool,
    /// Folders of libraries, separated by colons; each is searched with its folder `conf`. The folder of the
    /// configuration is always searched first
    #[arg(short = 'C', long, value_name = "PATH", env = "CLICKPATH")]
    clickpath: Option<OsString>,
}

/// The configuration on the command line, and the variables.
struct Inputs {
    file: Option<PathBuf>,
    definitions: Vec<(String, String)>,
}

/// Prints a flat configuration.
///
/// # Errors
///
/// [`GraphError`], and errors of standard output.
pub fn flatten(out: &mut impl Write, args: &FlattenArgs) -> Result<(), Failure> {
    let inputs = inputs(args)?;
    let (name, bytes) = match (&args.expression, &inputs.file) {
        (Some(text), _) => ("config".to_owned(), text.clone().into_bytes()),
        (None, Some(path)) if path != Path::new("-") => {
            let file = std::fs::File::open(path).map_err(|source| read_error(path, source))?;
            (path.to_string_lossy().into_owned(), read(file, path)?)
        }
        (None, _) => ("<stdin>".to_owned(), read(std::io::stdin().lock(), Path::new("<stdin>"))?),
    };
    let libraries = LibraryFolders::new(args.clickpath.as_deref());
    let source = ConfigurationSource { name: &name, bytes: &bytes };
    let parsed = parse(&source, &inputs.definitions, &libraries);
    let mut stderr = std::io::stderr().lock();
    let is_terminal = stderr.is_terminal();
    let flat = match parsed {
        Ok(flat) => flat,
        Err(errors) => {
            let _ = report::write(&mut stderr, &errors, is_terminal);
            let count = errors.errors.len() + errors.uncollected;
            return Err(GraphError::Faulty { name, count }.into());
        }
    };
    let warnings = LanguageErrors { warnings: flat.warnings.clone(), ..LanguageErrors::default() };
    // A message that cannot be written is no reason to withhold the result.
    let _ = report::write(&mut stderr, &warnings, is_terminal);
    let layout = if args.plain { FlatLayout::Plain } else { FlatLayout::LineDirectives };
    let file = flat.to_file(layout);
    match &args.output {
        Some(path) => {
            std::fs::write(path, file).map_err(|source| GraphError::Write { path: path.clone(), source })?
        }
        None => out.write_all(&file)?,
    }
    Ok(())
}

/// Tells the configuration from the variables.
fn inputs(args: &FlattenArgs) -> Result<Inputs, GraphError> {
    let mut inputs = Inputs { file: None, definitions: Vec::new() };
    for input in &args.inputs {
        let is_variable = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if let Some((name, value)) = input.to_str().and_then(|text| text.split_once('='))
            && is_variable(name)
        {
            inputs.definitions.push((name.to_owned(), value.trim().to_owned()));
        } else if inputs.file.is_some() || args.expression.is_some() {
            return Err(GraphError::SecondConfiguration(input.to_string_lossy().into_owned()));
        } else {
            inputs.file = Some(input.into());
        }
    }
    Ok(inputs)
}

fn read_error(path: &Path, source: std::io::Error) -> GraphError {
    GraphError::Read { path: path.to_owned(), source }
}

/// Reads a file, at most one byte more than the language accepts.
pub fn read(file: impl Read, path: &Path) -> Result<Vec<u8>, GraphError> {
    let mut bytes = Vec::new();
    let limit = u64::try_from(SOURCE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    file.take(limit).read_to_end(&mut bytes).map_err(|source| read_error(path, source))?;
    Ok(bytes)
}
