//! `weir top`: what a node does, as it does it.

mod grid;
mod model;
mod outputs;
mod rates;
mod screen;
mod views;

use super::args::TopArgs;
use super::{NodeCommandError, snapshot};
use crate::Failure;
use model::{KeyPress, Model};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use ratatui::{DefaultTerminal, Frame};
use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;
use weir_node::client::{Client, ClientError, Whereabouts};
use weir_node::control::protocol::{ControlRequest, Snapshot};
use weir_units::Nanos;

/// How often the node says how things are.
const EVERY: Nanos = Nanos::SECOND;
/// How long to wait before a node that is not there is asked again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a key or a snapshot waits at most to be seen.
const SOON: Duration = Duration::from_millis(50);
/// How wide the plain text is: a script has no terminal to ask.
const PLAIN_WIDTH: usize = 160;

/// Shows a node until somebody has seen enough; once and as plain text where that is asked for, or where nobody is looking.
pub fn top(args: &TopArgs) -> Result<(), Failure> {
    if args.once || !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return once(&args.place.whereabouts()?);
    }
    let node = Arc::new(args.place.whereabouts()?);
    // A first look before the screen is taken: what is wrong with the command line is said as always.
    super::look(&node)?;
    let (to, snapshots) = sync_channel(1);
    // It ends with the program.
    std::thread::Builder::new()
        .name("weir-watch".to_owned())
        .spawn(move || watch(&node, &to))
        .map_err(NodeCommandError::Terminal)?;
    // Also puts the terminal back when something panics.
    let mut terminal = ratatui::try_init().map_err(NodeCommandError::Terminal)?;
    let ended = run(&mut terminal, &snapshots);
    let restored = ratatui::try_restore();
    ended.and(restored).map_err(NodeCommandError::Terminal)?;
    Ok(())
}

/// Two looks a second apart, as text.
fn once(node: &Whereabouts) -> Result<(), Failure> {
    let mut client = Client::to(node)?;
    client.send(ControlRequest::Watch { every: EVERY }, &[])?;
    let mut model = Model::default();
    for _ in 0..2 {
        model.take(*snapshot(client.receive()?)?);
    }
    let mut out = std::io::stdout().lock();
    out.write_all(screen::plain_text(&model, PLAIN_WIDTH).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// What the watching thread has to say.
type News = Result<Box<Snapshot>, String>;

/// Asks the node for snapshots for ever, and again when it has gone.
fn watch(node: &Whereabouts, to: &SyncSender<News>) {
    loop {
        let Err(error) = watched(node, to) else { return };
        if to.send(Err(format!("trying again: {error}"))).is_err() {
            return;
        }
        std::thread::sleep(AGAIN);
    }
}

/// Until nobody listens; an error when the node is gone.
fn watched(node: &Whereabouts, to: &SyncSender<News>) -> Result<(), ClientError> {
    let mut client = Client::to(node)?;
    client.send(ControlRequest::Watch { every: EVERY }, &[])?;
    loop {
        let snapshot = snapshot(client.receive()?)?;
        match to.try_send(Ok(snapshot)) {
            // Who has not looked at the one before does not miss this one: the next one comes.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => return Ok(()),
        }
    }
}

fn run(terminal: &mut DefaultTerminal, snapshots: &Receiver<News>) -> std::io::Result<()> {
    let mut model = Model::default();
    let mut is_new = true;
    loop {
        for news in snapshots.try_iter() {
            match news {
                Ok(snapshot) => model.take(*snapshot),
                Err(why) => model.lose(why),
            }
            is_new = true;
        }
        if is_new {
            terminal.draw(|frame| draw(frame, &model))?;
        }
        is_new = false;
        while event::poll(if is_new { Duration::ZERO } else { SOON })? {
            is_new = true;
            if let Some(press) = press(&event::read()?)
                && model.press(press)
            {
                return Ok(());
            }
        }
    }
}

/// What a key means here.
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
fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    let lines = screen::screen(model, usize::from(area.width), usize::from(area.height));
    frame.render_widget(ratatui::text::Text::from(lines), area);
}
