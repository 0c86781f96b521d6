//! `weir graph`: graphs of packet-processing elements, in the language of Click.

mod attach;
mod check;
mod draw;
mod elements;
mod flatten;
mod libraries;
mod live;
mod load;
mod metrics;
mod report;
mod run;
mod signals;
mod test;
mod threads;
mod top;

use crate::Failure;
use check::GraphCheckArgs;
use clap::Subcommand;
use draw::DrawArgs;
use elements::ElementsArgs;
use flatten::FlattenArgs;
pub use run::{GraphRunArgs, HELP as RUN_HELP, run};
use std::io::Write;
use std::path::PathBuf;
use weir_graph::drawing::DrawingError;
use weir_units::Escape as _;

/// `weir graph`.
#[derive(Debug, Subcommand)]
pub enum GraphCommand {
    /// Run a configuration
    #[command(after_help = run::HELP, disable_help_flag = true)]
    Run(GraphRunArgs),
    /// Check a configuration: its connections, its arguments, and which elements get their packets in batches
    Check(GraphCheckArgs),
    /// Expand the compound elements of a configuration, and print the result
    #[command(after_help = flatten::HELP)]
    Flatten(FlattenArgs),
    /// Draw a configuration, with its ports and its compound elements
    #[command(after_help = draw::HELP)]
    Draw(DrawArgs),
    /// Show the rates of a running graph, live
    #[command(after_help = top::HELP)]
    Top(top::GraphTopArgs),
    /// List the element classes, or show the manual of one
    Elements(ElementsArgs),
    /// Run tests of graphs: files with a graph, and what is to come of it
    #[command(after_help = test::HELP)]
    Test(test::GraphTestArgs),
}

/// Errors of `weir graph`.
#[derive(Debug, thiserror::Error)]
pub enum GraphCommandError {
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
    #[error("{}: the result cannot be written: {source}", path.escaped())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error.
        source: std::io::Error,
    },
    /// The configuration cannot be drawn.
    #[error("{}: {source}", name.escaped())]
    Draw {
        /// The name of the configuration.
        name: String,
        /// The reason.
        source: DrawingError,
    },
    /// Handlers failed, or results are not complete; the reasons were printed.
    #[error("{}: {count} {} failed", name.escaped(), if *.count == 1 { "result" } else { "results" })]
    Incomplete {
        /// The name of the configuration.
        name: String,
        /// The number of errors.
        count: usize,
    },
    /// No running graph answers.
    #[error("{}: {source}; a graph that runs with a control socket (`-p PORT`, `-u FILE`) has to be there", address.escaped())]
    Attach {
        /// The address.
        address: String,
        /// The error.
        source: std::io::Error,
    },
    /// Metrics cannot be served.
    #[error("metrics at {address}: {source}")]
    Metrics {
        /// The address.
        address: std::net::SocketAddr,
        /// The error.
        source: std::io::Error,
    },
    /// A control socket cannot be opened.
    #[error(transparent)]
    Control(#[from] weir_graph_io::ControlServerError),
    /// The value of the handler of `-x` is false.
    #[error("{}: {handler} is false", name.escaped())]
    False {
        /// The name of the configuration.
        name: String,
        /// The handler.
        handler: String,
    },
    /// There is no such element class.
    #[error("no element class named `{}`{}", name.escaped(), suggestion.escaped())]
    NoClass {
        /// The given name.
        name: String,
        /// The nearest name, as the end of a sentence.
        suggestion: String,
    },
    /// Tests are not passed.
    #[error("{failed} of {all} tests are not passed")]
    Tests {
        /// The number that is not passed.
        failed: usize,
        /// The number of tests.
        all: usize,
    },
    /// More than one configuration.
    #[error(
        "`{}` is a second configuration; only one can be given. A variable is given as NAME=VALUE",
        .0.escaped()
    )]
    SecondConfiguration(String),
}

/// Reads an interval in seconds.
fn read_interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) {
        Ok(seconds)
    } else {
        Err("expected 0.1 to 3600 seconds".to_owned())
    }
}

impl GraphCommandError {
    /// Returns true if the command line is wrong.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::SecondConfiguration(_))
    }
}

/// Carries out a command.
///
/// # Errors
///
/// [`GraphCommandError`], and errors of standard output.
pub fn graph(out: &mut impl Write, command: &GraphCommand) -> Result<(), Failure> {
    match command {
        GraphCommand::Run(args) => run(out, args),
        GraphCommand::Check(args) => check::check(out, args),
        GraphCommand::Flatten(args) => flatten::flatten(out, args),
        GraphCommand::Draw(args) => draw::write(out, args),
        GraphCommand::Top(args) => top::top(out, args),
        GraphCommand::Elements(args) => elements::elements(out, args),
        GraphCommand::Test(args) => test::test(out, args),
    }
}
