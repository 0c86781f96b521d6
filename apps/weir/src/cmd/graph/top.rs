//! `weir graph top`.

use super::attach::{AttachedGraph, ElementRates, GraphRates, rate_text};
use crate::Failure;
use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};
use weir_units::Escape as _;

/// Examples and statuses in the help of `weir graph top`.
pub const HELP: &str = "\
The graph has to run with a control socket: -p, -u, or the element ControlSocket. Rows are elements that count packets \
or have a queue: the busiest first. `q` ends the view.

Examples:
  weir graph run router.click -u router.sock &
  weir graph top router.sock
  weir graph top 7777 --once

Exit status: 0; 1 if no graph answers.";

/// `weir graph top`.
#[derive(Debug, Args)]
pub struct GraphTopArgs {
    /// The control socket: a TCP port of this host, HOST:PORT, or a file
    #[arg(value_name = "SOCKET")]
    socket: String,
    /// Print the rates once, as plain text. This is the default if standard output is not a terminal
    #[arg(long)]
    once: bool,
    /// The seconds between two readings
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = super::read_interval)]
    interval: f64,
}

/// Shows the rates of a running graph.
///
/// # Errors
///
/// [`GraphCommandError`], and errors of standard output.
pub fn top(out: &mut impl Write, args: &GraphTopArgs) -> Result<(), Failure> {
    let mut graph = AttachedGraph::connect(&args.socket)?;
    let interval = Duration::from_secs_f64(args.interval);
    let mut rates = GraphRates::default();
    rates.update(graph.measures()?, Instant::now());
    if args.once || !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        std::thread::sleep(interval);
        rates.update(graph.measures()?, Instant::now());
        for line in table(&rates.by_rate()) {
            writeln!(out, "{line}")?;
        }
        return Ok(out.flush()?);
    }
    let mut terminal = ratatui::try_init()?;
    let result = watch(&mut terminal, &mut graph, &mut rates, interval);
    ratatui::try_restore()?;
    result
}

/// Shows the rates until the user ends that.
fn watch(
    terminal: &mut DefaultTerminal,
    graph: &mut AttachedGraph,
    rates: &mut GraphRates,
    interval: Duration,
) -> Result<(), Failure> {
    let mut next = Instant::now() + interval;
    loop {
        let lines = table(&rates.by_rate());
        terminal.draw(|frame| {
            let area = frame.area();
            let shown = lines.iter().take(usize::from(area.height)).map(String::as_str);
            frame.render_widget(ratatui::text::Text::from_iter(shown), area);
        })?;
        while event::poll(next.saturating_duration_since(Instant::now()))? {
            let Event::Key(key) = event::read()? else { continue };
            let ends = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if ends || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return Ok(());
            }
        }
        rates.update(graph.measures()?, Instant::now());
        next = Instant::now() + interval;
    }
}

/// The titles of the columns.
const TITLES: [&str; 7] = ["ELEMENT", "CLASS", "PACKETS/S", "PACKETS", "DROPS/S", "DROPS", "LENGTH"];

/// The columns of text, which are aligned at their left.
const TEXTS: usize = 2;

/// Returns the lines of a table.
fn table(elements: &[&ElementRates]) -> Vec<String> {
    let mut rows = vec![TITLES.map(str::to_owned)];
    for it in elements {
        let (packets, drops) = (it.packets.unzip(), it.drops.unzip());
        let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
        let rate = |rate: Option<f64>| rate.map_or("-".to_owned(), rate_text);
        rows.push([
            it.element.escaped().to_string(),
            it.class.escaped().to_string(),
            rate(packets.1),
            number(packets.0),
            rate(drops.1),
            number(drops.0),
            number(it.length),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..TITLES.len()).map(width).collect();
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
            if column < TEXTS { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        });
        cells.collect::<Vec<String>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
