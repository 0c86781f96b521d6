//! `weir graph run`.

use super::GraphCommandError;
use super::libraries::LibraryFolders;
use super::load::{ConfigurationArgs, Loaded, load};
use super::threads::{MOST_THREADS, RunningGraph};
use crate::Failure;
use crate::output::signals::Signals;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;
use weir_graph::engine::RunOptions;
use weir_units::escaped_lines;

/// Examples and statuses in the help of `weir graph run`.
pub const HELP: &str = "\
The graph runs until it stops itself, until nothing is left to do, or until SIGINT or SIGTERM. Handlers of -h are read at the end.

Examples:
  weir graph run router.click
  weir graph run -e 'FromDump(in.pcap, STOP true) -> c :: Counter -> ToDump(out.pcap)' -h c.count
  weir graph run udp.click FILE=in.pcap -h '*.count' -o counts.txt

Exit status: 0; 1 for a configuration with errors, a result that is not complete, or a false value of -x.";

/// `weir graph run`.
#[derive(Debug, Args)]
pub struct GraphRunArgs {
    #[command(flatten)]
    configuration: ConfigurationArgs,
    /// Read this handler at the end, and print its value: ELEMENT.HANDLER, *.HANDLER for all elements that have it, or
    /// a handler of the graph
    #[arg(short = 'h', long = "handler", value_name = "HANDLER")]
    handlers: Vec<String>,
    /// The exit status: 0 if this handler is true at the end, 1 if it is false
    #[arg(short = 'x', long = "exit-handler", value_name = "HANDLER")]
    exit_handler: Option<String>,
    /// Write the values of handlers to this file
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Do not run the graph: check it, and read the handlers
    #[arg(short = 'q', long)]
    quit: bool,
    /// Print how long the run took
    #[arg(short = 't', long)]
    time: bool,
    /// Without warnings about the configuration
    #[arg(short = 'w', long)]
    no_warnings: bool,
    /// Run in simulated time, which begins at 1,000,000,000 s: each look at the clock takes a nanosecond, and waiting takes
    /// no time
    #[arg(long)]
    simtime: bool,
    /// The most packets that go through an element before the next element; the results are the same
    #[arg(long, value_name = "PACKETS", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    batch: u16,
    /// Run on this number of threads: the graph is cut at its queues. `weir graph check -j N` shows which element runs where
    #[arg(short = 'j', long, value_name = "THREADS", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS))]
    threads: u16,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

/// Runs a configuration.
///
/// # Errors
///
/// [`GraphCommandError`], and errors of standard output.
pub fn run(out: &mut impl Write, args: &GraphRunArgs) -> Result<(), Failure> {
    let mut signals = Signals::default();
    let libraries = LibraryFolders::new(args.configuration.clickpath()).with_elements();
    let Loaded { name, flat } = load(&args.configuration, &libraries, !args.no_warnings)?;
    let options = RunOptions { batch: usize::from(args.batch), ..RunOptions::default() };
    let mut graph = if args.simtime {
        if args.threads > 1 {
            eprintln!("simulated time needs one thread: -j {} has no effect", args.threads);
        }
        RunningGraph::simulated(flat, options)
    } else {
        let warn = |line: &str| {
            if !args.no_warnings {
                eprintln!("warning: {}", escaped_lines(line));
            }
        };
        RunningGraph::on_threads(flat, options, usize::from(args.threads), &signals.interrupted, warn)
    }
    .map_err(|errors| faulty(&name, &errors))?;
    // From here on the graph receives packets, and a signal ends it in an orderly way.
    signals.catch()?;
    let begin = Instant::now();
    if !args.quit {
        graph.run(&signals.interrupted).map_err(|errors| faulty(&name, &errors))?;
    }
    let elapsed = begin.elapsed();
    let mut failed = 0;
    if let Err(errors) = graph.finish() {
        failed += errors.len();
        errors.iter().for_each(|error| eprintln!("{}", escaped_lines(&error.to_string())));
    }
    let mut text = String::new();
    for handler in &args.handlers {
        failed += read(&mut graph, handler, args.handlers.len() > 1, &mut text);
    }
    match &args.output {
        Some(path) => std::fs::write(path, text)
            .map_err(|source| GraphCommandError::Write { path: path.clone(), source })?,
        None => out.write_all(text.as_bytes())?,
    }
    out.flush()?;
    if args.time {
        eprintln!("{:.6} s", elapsed.as_secs_f64());
    }
    if failed > 0 {
        return Err(GraphCommandError::Incomplete { name, count: failed }.into());
    }
    match &args.exit_handler {
        Some(handler) => {
            let value = graph.read_handler(handler).map_err(|reason| {
                eprintln!("{}", escaped_lines(&reason));
                GraphCommandError::Incomplete { name: name.clone(), count: 1 }
            })?;
            match value.trim() {
                "true" | "1" | "yes" => Ok(()),
                _ => Err(GraphCommandError::False { name, handler: handler.clone() }.into()),
            }
        }
        None => Ok(()),
    }
}

/// Prints the errors of a graph.
pub fn faulty(name: &str, errors: &[weir_graph::engine::GraphError]) -> GraphCommandError {
    errors.iter().for_each(|error| eprintln!("{}", escaped_lines(&error.to_string())));
    GraphCommandError::Faulty { name: name.to_owned(), count: errors.len() }
}

/// Reads a handler, and adds its value to the text, below its name if there are several. Returns the number of failures.
fn read(graph: &mut RunningGraph, handler: &str, has_names: bool, text: &mut String) -> usize {
    let calls = match handler.strip_prefix("*.") {
        Some(of_each) => {
            let mut calls = Vec::new();
            for name in graph.names() {
                let all = graph.read_handler(&format!("{name}.handlers")).unwrap_or_default();
                if all.lines().any(|line| line.split('\t').next() == Some(of_each)) {
                    calls.push(format!("{name}.{of_each}"));
                }
            }
            calls
        }
        None => vec![handler.to_owned()],
    };
    let has_names = has_names || handler.starts_with("*.");
    let mut failed = 0;
    for call in calls {
        match graph.read_handler(&call) {
            Ok(value) if has_names => {
                let value = value.trim_end_matches('\n');
                text.push_str(&format!("{call}:\n{value}\n\n"));
            }
            Ok(value) => {
                text.push_str(value.trim_end_matches('\n'));
                text.push('\n');
            }
            Err(reason) => {
                eprintln!("{}", escaped_lines(&reason));
                failed += 1;
            }
        }
    }
    failed
}
