//! `weir graph flatten`.

use super::GraphCommandError;
use super::libraries::LibraryFolders;
use super::load::{ConfigurationArgs, load};
use crate::Failure;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use weir_graph::language::FlatLayout;

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
    #[command(flatten)]
    configuration: ConfigurationArgs,
    /// The file to write
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Without line directives, which keep the places of the declarations for messages
    #[arg(long)]
    plain: bool,
}

/// Prints a flat configuration.
///
/// # Errors
///
/// [`GraphCommandError`], and errors of standard output.
pub fn flatten(out: &mut impl Write, args: &FlattenArgs) -> Result<(), Failure> {
    let libraries = LibraryFolders::new(args.configuration.clickpath());
    let flat = load(&args.configuration, &libraries, true)?.flat;
    let layout = if args.plain { FlatLayout::Plain } else { FlatLayout::LineDirectives };
    let file = flat.to_file(layout);
    match &args.output {
        Some(path) => std::fs::write(path, file)
            .map_err(|source| GraphCommandError::Write { path: path.clone(), source })?,
        None => out.write_all(&file)?,
    }
    Ok(())
}
