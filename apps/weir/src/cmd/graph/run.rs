//! `weir graph run`.

use super::GraphCommandError;
use super::libraries::LibraryFolders;
use super::load::{ConfigurationArgs, Loaded, load};
use super::metrics::{self, GraphMetrics};
use super::signals::GraphSignals;
use super::threads::{MOST_THREADS, RunningGraph};
use crate::Failure;
use clap::Args;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use weir_elements::AllElements;
use weir_graph::engine::{Router, RunOptions};
use weir_graph::language::{ConfigurationSource, FlatConfiguration, parse};
use weir_graph_io::{ControlAddress, ControlServer};
use weir_units::escaped_lines;

/// Examples and statuses in the help of `weir graph run`.
pub const HELP: &str = "\
The graph runs until it stops itself, until nothing is left to do, or until SIGINT or SIGTERM. With a control socket it \
also waits for commands. Handlers of -h are read at the end.

Examples:
  weir graph run router.click
  weir graph run -e 'FromDump(in.pcap, STOP true) -> c :: Counter -> ToDump(out.pcap)' -h c.count
  weir graph run udp.click FILE=in.pcap -h '*.count' -o counts.txt
  weir graph run router.click -R -u /run/user/1000/router

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
    /// Write the values of handlers to this file; `-` is standard output
    #[arg(short = 'o', long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Let other programs of the same user call handlers, by the protocol of Click's ControlSocket, at this TCP port of
    /// 127.0.0.1; with PORT+ at the next one that is free
    #[arg(short = 'p', long = "port", value_name = "PORT")]
    ports: Vec<ControlAddress>,
    /// Let other programs of the same user call handlers at this Unix-domain socket
    #[arg(short = 'u', long = "unix-socket", value_name = "FILE")]
    unix_sockets: Vec<PathBuf>,
    /// Offer the handler `hotconfig`, which replaces the running graph by another configuration
    #[arg(short = 'R', long)]
    allow_reconfigure: bool,
    /// Serve the counters and levels of all elements to Prometheus, at this port of 127.0.0.1
    #[arg(long, value_name = "ADDRESS", value_parser = metrics::read_address)]
    metrics: Option<std::net::SocketAddr>,
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
    let mut signals = GraphSignals::default();
    let libraries = LibraryFolders::new(args.configuration.clickpath()).with_elements();
    let Loaded { name, flat } = load(&args.configuration, &libraries, !args.no_warnings)?;
    let threads = usize::from(args.threads);
    let control = control_server(args)?;
    let metrics = metrics_server(args, control.as_ref())?;
    // Fields are dropped in their order: the server of metrics waits for its calls, which the end of the other one ends.
    let servers = (control, metrics);
    let control = servers.0.as_ref();
    let options = RunOptions { batch: usize::from(args.batch), ..RunOptions::default() };
    let mut graph = if args.simtime {
        if threads > 1 {
            eprintln!("simulated time needs one thread: -j {threads} has no effect");
        }
        RunningGraph::simulated(flat, options)
    } else {
        let warn = |line: &str| {
            if !args.no_warnings {
                eprintln!("warning: {}", escaped_lines(line));
            }
        };
        RunningGraph::on_threads(flat, options, threads, &signals.arrived(), warn)
    }
    .map_err(|errors| faulty(&name, &errors))?;
    if args.allow_reconfigure {
        let definitions = args.configuration.definitions()?;
        let parse = move |text: &str| parse_text(text, &definitions, &libraries);
        match &mut graph {
            RunningGraph::One(router) => router.allow_replacement(parse, AllElements),
            RunningGraph::Several(graph) => graph.allow_replacement(parse),
        }
    }
    // From here on the graph receives packets, and a signal ends it in an orderly way.
    signals.catch()?;
    let begin = Instant::now();
    if !args.quit {
        match &mut graph {
            RunningGraph::One(router) => run_graph(router, &mut signals, control),
            RunningGraph::Several(graph) => {
                let result = graph.run_controlled(control, |graph| signals.end_threads(graph));
                result.map_err(|errors| faulty(&name, &errors))?;
            }
        }
    }
    drop(servers);
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
        // As in Click, `-` is standard output.
        Some(path) if path.as_os_str() != "-" => std::fs::write(path, text)
            .map_err(|source| GraphCommandError::Write { path: path.clone(), source })?,
        _ => out.write_all(text.as_bytes())?,
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

/// The longest wait of a graph without a task, for a signal or a command.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// Opens the control sockets of a command line; `None` if it names none.
fn control_server(args: &GraphRunArgs) -> Result<Option<ControlServer>, GraphCommandError> {
    let files = args.unix_sockets.iter().map(|path| ControlAddress::from(path.as_path()));
    let addresses: Vec<ControlAddress> = args.ports.iter().cloned().chain(files).collect();
    if (addresses.is_empty() && args.metrics.is_none()) || args.quit {
        return Ok(None);
    }
    let server = ControlServer::open(&addresses)?;
    for (address, found) in addresses.iter().zip(server.addresses()) {
        if let ControlAddress::Port { port, .. } = found
            && address != found
        {
            eprintln!("control socket: 127.0.0.1:{port}");
        }
    }
    Ok(Some(server))
}

/// Serves the metrics of the graph, if the command line asks for them.
fn metrics_server(
    args: &GraphRunArgs,
    control: Option<&ControlServer>,
) -> Result<Option<GraphMetrics>, GraphCommandError> {
    let (Some(address), Some(control)) = (args.metrics, control) else { return Ok(None) };
    let (metrics, found) = GraphMetrics::start(address, control.caller())?;
    eprintln!("metrics: http://{found}/metrics");
    Ok(Some(metrics))
}

/// Runs a graph until it stops, or nothing is left to do.
fn run_graph(router: &mut Router, signals: &mut GraphSignals, control: Option<&ControlServer>) {
    if let (Some(control), Some(waker)) = (control, router.device_waker()) {
        control.set_waker(waker);
    }
    loop {
        if signals.end(router) {
            return;
        }
        if let Some(control) = control {
            control.serve(router);
        }
        if router.step() {
            continue;
        }
        // A command or a signal can give the graph something to do.
        if router.has_stopped() || control.is_none() && router.system_signals().is_empty() {
            return;
        }
        match control {
            Some(control) => control.wait(WAIT_MAX),
            None => std::thread::sleep(WAIT_MAX),
        }
    }
}

/// Parses the text of another configuration for a running graph.
fn parse_text(
    text: &str,
    definitions: &[(String, String)],
    libraries: &LibraryFolders,
) -> Result<FlatConfiguration, String> {
    let source = ConfigurationSource { name: "config", bytes: text.as_bytes() };
    parse(&source, definitions, libraries).map_err(|errors| errors.to_string())
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
