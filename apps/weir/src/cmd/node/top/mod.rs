//! `weir top`: shows the load of a node, live.

mod grid;
mod outputs;
mod rates;
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
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use weir_node::client::{Client, ClientError, NodeLocation};
use weir_node::control::protocol::{ControlRequest, Snapshot};
use weir_units::Nanos;

/// The interval at which the node sends snapshots.
const SNAPSHOT_INTERVAL: Nanos = Nanos::SECOND;
/// The delay before reconnecting to a node.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// The maximum delay before a key or a snapshot is handled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The width of plain text, as a script has no terminal width.
const PLAIN_WIDTH: usize = 160;

/// Shows a node until the user quits. With `--once`, or without a terminal, prints plain text once.
pub fn top(args: &TopArgs) -> Result<(), Failure> {
    if args.once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return once(&args.address.resolve()?);
    }
    let node = Arc::new(args.address.resolve()?);
    // A first query before the screen is taken over, so that errors of the command line are printed normally.
    super::fetch_snapshot(&node)?;
    let (to, snapshots) = sync_channel(1);
    // The thread ends with the program.
    std::thread::Builder::new()
        .name("weir-watch".to_owned())
        .spawn(move || watch(&node, &to))
        .map_err(NodeCommandError::Terminal)?;
    // Also restores the terminal after a panic.
    let mut terminal = ratatui::try_init().map_err(NodeCommandError::Terminal)?;
    let result = run(&mut terminal, &snapshots);
    let restored = ratatui::try_restore();
    result.and(restored).map_err(NodeCommandError::Terminal)?;
    Ok(())
}

/// Prints plain text, with rates from two snapshots a second apart.
fn once(node: &NodeLocation) -> Result<(), Failure> {
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

/// A message of the watching thread: a snapshot, or the error of a query.
type WatchMessage = Result<Box<Snapshot>, String>;

/// Receives snapshots from the node, and reconnects after errors, until the receiver is dropped.
fn watch(node: &NodeLocation, to: &SyncSender<WatchMessage>) {
    loop {
        let Err(error) = watch_connection(node, to) else { return };
        if to.send(Err(format!("trying again: {error}"))).is_err() {
            return;
        }
        std::thread::sleep(RETRY_DELAY);
    }
}

/// Receives snapshots over one connection until the receiver is dropped.
fn watch_connection(node: &NodeLocation, to: &SyncSender<WatchMessage>) -> Result<(), ClientError> {
    let mut client = Client::connect_to(node)?;
    client.send(ControlRequest::Watch { every: SNAPSHOT_INTERVAL }, &[])?;
    loop {
        let snapshot = snapshot(client.receive()?)?;
        match to.try_send(Ok(snapshot)) {
            // While the earlier snapshot is pending, this one is dropped: a newer one follows.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => return Ok(()),
        }
    }
}

fn run(terminal: &mut DefaultTerminal, snapshots: &Receiver<WatchMessage>) -> std::io::Result<()> {
    let mut state = ScreenState::default();
    let mut is_new = true;
    loop {
        for message in snapshots.try_iter() {
            match message {
                Ok(snapshot) => state.update(*snapshot),
                Err(error) => state.set_error(error),
            }
            is_new = true;
        }
        if is_new {
            terminal.draw(|frame| draw(frame, &state))?;
        }
        is_new = false;
        while event::poll(if is_new { Duration::ZERO } else { POLL_INTERVAL })? {
            is_new = true;
            if let Some(press) = press(&event::read()?)
                && state.press(press)
            {
                return Ok(());
            }
        }
    }
}

/// Translates a terminal event to a key.
fn press(event: &Event) -> Option<KeyPress> {
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
