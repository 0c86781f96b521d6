//! `weir graph draw`.

use super::GraphCommandError;
use super::libraries::LibraryFolders;
use super::load::{ConfigurationArgs, Loaded, load};
use super::run::faulty;
use crate::Failure;
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::PathBuf;
use weir_elements::AllElements;
use weir_graph::drawing::{BOXES_MAX, DrawingError, DrawingFormat, DrawingOptions, GraphDrawing, draw};

/// Examples and statuses in the help of `weir graph draw`.
pub const HELP: &str = "\
Packets go from the top to the bottom. An input is a triangle and an output is a rectangle: black ones push, white ones \
pull, and agnostic ones have a second outline. Compound elements are boxes around their components. Configurations \
are shown on hover. Elements of unknown classes are drawn, too.

Examples:
  weir graph draw router.click -o router.svg
  weir graph draw router.click --depth 0 > overview.svg
  weir graph draw router.click --format dot | dot -Tpdf -o router.pdf

Exit status: 0 when the picture is written; 1 when the configuration has errors, or is too large for a picture.";

/// The form of a picture, on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum PictureFormat {
    /// SVG, for light and dark screens
    Svg,
    /// The language of Graphviz
    Dot,
}

/// `weir graph draw`.
#[derive(Debug, Args)]
pub struct DrawArgs {
    #[command(flatten)]
    configuration: ConfigurationArgs,
    /// The file to write (default: standard output)
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The form of the picture
    #[arg(long, value_name = "FORMAT", default_value = "svg")]
    format: PictureFormat,
    /// Draw compound elements that are nested deeper than this as single boxes
    #[arg(long, value_name = "LEVELS")]
    depth: Option<usize>,
}

/// Draws a configuration.
///
/// # Errors
///
/// [`GraphCommandError`], and errors of standard output.
pub fn write(out: &mut impl Write, args: &DrawArgs) -> Result<(), Failure> {
    let libraries = LibraryFolders::new(args.configuration.clickpath());
    let Loaded { name, flat } = load(&args.configuration, &libraries, true)?;
    let format = match args.format {
        PictureFormat::Svg => DrawingFormat::Svg,
        PictureFormat::Dot => DrawingFormat::Dot,
    };
    let options = DrawingOptions { format, depth: args.depth };
    let GraphDrawing { text, collapsed } =
        draw(&flat, &AllElements, &options).map_err(|error| match error {
            DrawingError::Graph(errors) => faulty(&name, &errors),
            DrawingError::Limit { .. } => GraphCommandError::Draw { name: name.clone(), source: error },
        })?;
    if collapsed > 0 {
        eprintln!(
            "weir: {collapsed} compound elements are drawn as single boxes: a picture has at most {BOXES_MAX} boxes"
        );
    }
    match &args.output {
        Some(path) => std::fs::write(path, text)
            .map_err(|source| GraphCommandError::Write { path: path.clone(), source })?,
        None => out.write_all(text.as_bytes())?,
    }
    Ok(())
}
