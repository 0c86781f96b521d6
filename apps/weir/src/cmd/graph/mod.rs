//! `weir graph`: graphs of packet-processing elements, in the language of Click.

mod flatten;
mod libraries;
mod report;

use crate::Failure;
use clap::Subcommand;
use flatten::FlattenArgs;
use std::io::Write;
use std::path::PathBuf;
use weir_units::Escape as _;

/// `weir graph`.
#[derive(Debug, Subcommand)]
pub enum GraphCommand {
    /// Expand the compound elements of a configuration, and print the result
    #[command(after_help = flatten::HELP)]
    Flatten(FlattenArgs),
}

/// Errors of `weir graph`.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// The configuration has errors, which were printed.
    #[error("{}: {count} {}", name.escaped(), if *.count == 1 { "error" } else { "errors" })]
    Faulty {
        /// The name of the configuration.
        name: String,
        /// The number of errors.
        count: usize,
    },
    /// A file cannot be read.
    #[error("{}: {source}", path.escaped())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The result cannot be written.
    #[error("{}: the configuration cannot be written: {source}", path.escaped())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// More than one configuration.
    #[error(
        "`{}` is a second configuration; only one can be given. A variable is given as NAME=VALUE",
        .0.escaped()
    )]
    SecondConfiguration(String),
}

impl GraphError {
    /// Returns true if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::SecondConfiguration(_))
    }
}

/// Carries out a command.
///
/// # Errors
///
/// [`GraphError`], and errors of standard output.
pub fn graph(out: &mut impl Write, command: &GraphCommand) -> Result<(), Failure> {
    match command {
        GraphCommand::Flatten(args) => flatten::flatten(out, args),
    }
}
