//! weir under the name `click`: the command line of Click's driver, for scripts and tools that call it.

use crate::Failure;
use crate::cmd::graph::{GraphRunArgs, RUN_HELP, run};
use clap::Parser;
use std::ffi::OsStr;
use std::io::Write as _;
use std::path::Path;
use weir_units::escaped_lines;

/// The name of Click's driver.
const NAME: &str = "click";

/// Runs a graph of packet-processing elements, in the language of Click
#[derive(Debug, Parser)]
#[command(name = NAME, version, after_help = RUN_HELP, disable_help_flag = true, disable_version_flag = true)]
struct ClickArgs {
    #[command(flatten)]
    run: GraphRunArgs,
    /// Print the version
    #[arg(short = 'v', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

/// Returns true if the program was started under the name `click`.
pub fn is_called() -> bool {
    std::env::args_os().next().is_some_and(|name| Path::new(&name).file_name() == Some(OsStr::new(NAME)))
}

/// Carries out `weir graph run`, with the options of this command line.
///
/// # Errors
///
/// As [`run`].
pub fn run_as_click() -> Result<(), Failure> {
    let args = ClickArgs::try_parse().unwrap_or_else(|error| {
        _ = if error.use_stderr() {
            // The message repeats arguments.
            writeln!(std::io::stderr(), "{}", escaped_lines(error.to_string().trim_end()))
        } else {
            error.print()
        };
        std::process::exit(error.exit_code())
    });
    run(&mut std::io::stdout().lock(), &args.run)
}
