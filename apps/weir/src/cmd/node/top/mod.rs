//! `weir top`: shows the load of a node, live.

mod grid;
mod outputs;
mod screen;
mod state;
mod views;

use super::args::TopArgs;
use super::{NodeCommandError, snapshot};
use crate::Failure;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use state::{KeyPress, ScreenState};
use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use weir_node::client::{Client, NodeLocation, watch};
use weir_node::control::protocol::{ControlRequest, Snapshot};
use weir_units::Nanos;

/// The interval at which the node sends snapshots.
const SNAPSHOT_INTERVAL: Nanos = Nanos::SECOND;
/// The maximum time for which a key or a snapshot waits to be handled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The width of plain text, in columns: there is no terminal whose width could be used.
const PLAIN_WIDTH: usize = 160;

/// Shows a node until the user quits. With `--once`, or without a terminal, prints plain text once.
pub fn top(args: &TopArgs) -> Result<(), Failure> {
    if args.once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return print_once(&args.address.resolve()?);
    }
    let node = Arc::new(args.address.resolve()?);
    // A first query, before the screen is taken over, so that an error of the connection is printed as by other
    // commands.
    super::fetch_snapshot(&node)?;
    let (sender, messages) = sync_channel(1);
    // The thread runs until the program ends.
    std::thread::Builder::new()
        .name("weir-watch".to_owned())
        .spawn(move || watch(&node, &sender))
        .map_err(NodeCommandError::Terminal)?;
    // `try_init` also makes a panic restore the terminal.
    let mut terminal = ratatui::try_init().map_err(NodeCommandError::Terminal)?;
    let result = run(&mut terminal, &messages);
    let restored = ratatui::try_restore();
    result.and(restored).map_err(NodeCommandError::Terminal)?;
    Ok(())
}

/// Prints the state of a node as plain text, with rates computed from two snapshots a second apart.
fn print_once(node: &NodeLocation) -> Result<(), Failure> {
    let mut client = Client::connect_to(node)?;
    client.send(ControlRequest::Watch { every: SNAPSHOT_INTERVAL }, &[])?;
    let mut state = ScreenState::default();
    for _ in 0..2 {
        state.update(*snapshot(client.receive()?)?);
    }
    let mut out = std::io::stdout().lock();
    out.write_all(screen::plain_text(&state, PLAIN_WIDTH).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// A message of the thread that watches the node: a snapshot, or the error of the connection.
type WatchMessage = Result<Box<Snapshot>, String>;

/// Receives snapshots from the node, and reconnects after errors, until the receiver is dropped.
fn watch(node: &NodeLocation, sender: &SyncSender<WatchMessage>) {
    watch::watch(node, SNAPSHOT_INTERVAL, |received| match received {
        // If the screen has not taken the earlier snapshot yet, the new snapshot is dropped, because another follows.
        Ok(snapshot) => match sender.try_send(Ok(snapshot)) {
            Ok(()) | Err(TrySendError::Full(_)) => ControlFlow::Continue(()),
            Err(TrySendError::Disconnected(_)) => ControlFlow::Break(()),
        },
        Err(error) => match sender.send(Err(format!("trying again: {error}"))) {
            Ok(()) => ControlFlow::Continue(()),
            Err(_) => ControlFlow::Break(()),
        },
    });
}

/// Draws the screen and handles messages and keys, until the user quits.
fn run(terminal: &mut DefaultTerminal, messages: &Receiver<WatchMessage>) -> std::io::Result<()> {
    let mut state = ScreenState::default();
    let mut needs_redraw = true;
    loop {
        for message in messages.try_iter() {
            match message {
                Ok(snapshot) => state.update(*snapshot),
                Err(error) => state.set_error(error),
            }
            needs_redraw = true;
        }
        if needs_redraw {
            terminal.draw(|frame| draw(frame, &state))?;
        }
        needs_redraw = false;
        while event::poll(if needs_redraw { Duration::ZERO } else { POLL_INTERVAL })? {
            needs_redraw = true;
            if let Some(press) = key_press(&event::read()?)
                && state.press(press)
            {
                return Ok(());
            }
        }
    }
}

/// Translates a terminal event to a key by its effect; `None` for other events.
fn key_press(event: &Event) -> Option<KeyPress> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('c' | 'd') if key.modifiers.contains(KeyModifiers::CONTROL) => {
            Some(KeyPress::Char('q'))
        }
        KeyCode::Char(c) => Some(KeyPress::Char(c)),
        KeyCode::Up => Some(KeyPress::Up),
        KeyCode::Down => Some(KeyPress::Down),
        KeyCode::Home | KeyCode::PageUp => Some(KeyPress::First),
        KeyCode::End | KeyCode::PageDown => Some(KeyPress::Last),
        KeyCode::Enter => Some(KeyPress::Enter),
        KeyCode::Esc => Some(KeyPress::Escape),
        _ => None,
    }
}

/// Draws the screen.
fn draw(frame: &mut Frame<'_>, state: &ScreenState) {
    let area = frame.area();
    let lines = screen::screen(state, usize::from(area.width), usize::from(area.height));
    frame.render_widget(ratatui::text::Text::from(lines), area);
}
