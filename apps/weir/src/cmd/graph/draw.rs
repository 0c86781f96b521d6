//! `weir graph draw`.

use super::GraphCommandError;
use super::libraries::LibraryFolders;
use super::live;
use super::load::{ConfigurationArgs, Loaded, load};
use super::run::faulty;
use crate::Failure;
use clap::{Args, ValueEnum};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_elements::AllElements;
use weir_graph::drawing::{BOXES_MAX, DrawingError, DrawingFormat, DrawingOptions, GraphDrawing, draw};

/// Examples and statuses in the help of `weir graph draw`.
pub const HELP: &str = "\
Packets go from the top to the bottom. An input is a triangle and an output is a rectangle: black ones push, white ones \
pull, and agnostic ones have a second outline. Compound elements are boxes around their components. Configurations \
are shown on hover. Elements of unknown classes are drawn, too.

With --live, the picture is that of a running graph, with the packets and drops of a second, and the packets that wait. It \
is a page on this host that refreshes itself, or one picture with -o. Compound elements are not drawn as boxes there.

Examples:
  weir graph draw router.click -o router.svg
  weir graph draw router.click --depth 0 > overview.svg
  weir graph draw router.click --format dot | dot -Tpdf -o router.pdf
  weir graph draw --live router.sock
  weir graph draw --live 7777 -o now.svg

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
    /// Draw the running graph with this control socket: a TCP port of this host, HOST:PORT, or a file
    #[arg(long, value_name = "SOCKET", conflicts_with_all = ["inputs", "file", "expression", "format"])]
    live: Option<String>,
    /// With --live, the port of the page on 127.0.0.1; 0 is any free one
    #[arg(long, value_name = "PORT", default_value_t = 0, requires = "live", conflicts_with = "output")]
    page_port: u16,
    /// With --live, the seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, requires = "live", value_parser = super::read_interval)]
    interval: f64,
}

/// Draws a configuration.
///
/// # Errors
///
/// [`GraphCommandError`], and errors of standard output.
pub fn write(out: &mut impl Write, args: &DrawArgs) -> Result<(), Failure> {
    if let Some(socket) = &args.live {
        let options = DrawingOptions { format: DrawingFormat::Svg, depth: args.depth };
        let interval = Duration::from_secs_f64(args.interval);
        return match &args.output {
            Some(_) => put(out, args.output.as_deref(), live::picture(socket, options, interval)?),
            None => live::serve(out, socket, options, (args.page_port, interval)),
        };
    }
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
    put(out, args.output.as_deref(), text)
}

/// Writes a picture to a file, or to standard output.
fn put(out: &mut impl Write, path: Option<&Path>, text: String) -> Result<(), Failure> {
    match path {
        Some(path) if path.as_os_str() != "-" => std::fs::write(path, text)
            .map_err(|source| GraphCommandError::Write { path: path.to_owned(), source })?,
        _ => out.write_all(text.as_bytes())?,
    }
    Ok(())
}
