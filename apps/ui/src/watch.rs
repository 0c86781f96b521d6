//! The node's state for all open pages, and its history.

use crate::history::{History, HistoryColumns};
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_http::{Bytes, Sink};
use weir_node::client::ClientError;
use weir_node::client::rates::SnapshotRates;
use weir_node::control::protocol::Snapshot;

/// The time without a snapshot or an error after which a node counts as lost. Pages wait a little longer for this server.
const SILENCE_MAX: Duration = Duration::from_secs(3);

/// The node's latest state, the pages that follow it, and the history.
#[derive(Debug, Default)]
pub struct NodeState {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    latest: Option<Box<Snapshot>>,
    /// The line that new pages get first.
    line: Bytes,
    pages: Vec<Sink>,
    history: History,
    /// The time at which the connection to the node was lost; `None` while there is one.
    lost: Option<Instant>,
    /// The time of the latest snapshot or error.
    heard: Option<Instant>,
}

/// A line of the stream: the node's state.
#[derive(Serialize)]
struct StateLine<'a> {
    snapshot: &'a Snapshot,
    rates: &'a SnapshotRates,
}

/// A line of the stream: there is no connection to the node.
#[derive(Serialize)]
struct LostLine<'a> {
    /// The reason.
    lost: &'a str,
    /// Seconds since the connection was lost.
    since_s: u64,
}

impl NodeState {
    /// Adds a page that follows the state. The page gets the latest state at once.
    pub fn follow(&self, page: Sink) {
        let mut state = self.lock();
        // A new page has room for a line.
        let _ = page.offer(state.line.clone());
        state.pages.push(page);
    }

    /// Handles a snapshot, or an error of the connection. Pages that have gone are removed, and slow ones miss lines.
    pub fn handle(&self, received: Result<Box<Snapshot>, &ClientError>, now: Instant) {
        let mut state = self.lock();
        state.heard = Some(now);
        let line = match received {
            Ok(snapshot) => {
                let rates = SnapshotRates::between(state.latest.as_deref(), &snapshot);
                state.history.push(&snapshot, &rates);
                state.lost = None;
                let line = line(&StateLine { snapshot: &snapshot, rates: &rates });
                state.latest = Some(snapshot);
                line
            }
            Err(error) => {
                let since = *state.lost.get_or_insert(now);
                let since_s = now.saturating_duration_since(since).as_secs();
                line(&LostLine { lost: &error.to_string(), since_s })
            }
        };
        state.send(line);
    }

    /// Tells the pages that the node is silent, if it is. The connection stays, as the node may only be slow.
    pub fn check_silence(&self, now: Instant) {
        let mut state = self.lock();
        let heard = *state.heard.get_or_insert(now);
        let silent = now.saturating_duration_since(heard);
        if silent >= SILENCE_MAX {
            let since = *state.lost.get_or_insert(heard);
            let since_s = now.saturating_duration_since(since).as_secs();
            state.send(line(&LostLine { lost: "the node does not answer", since_s }));
        }
    }

    /// Returns the history of a session, or of the node, as JSON.
    pub fn history(&self, session: Option<&str>) -> Vec<u8> {
        let state = self.lock();
        let columns: HistoryColumns<'_> = state.history.columns(session);
        serde_json::to_vec(&columns).unwrap_or_default()
    }

    /// Returns the node's name; `None` before its first snapshot.
    pub fn node_name(&self) -> Option<String> {
        self.lock().latest.as_ref().map(|snapshot| snapshot.node.clone())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Sends a line to all pages, and later to new ones.
    fn send(&mut self, line: Bytes) {
        self.pages.retain(|page| page.offer(line.clone()).is_ok());
        self.line = line;
    }
}

/// Returns a value as a line of JSON.
pub fn line(value: &impl Serialize) -> Bytes {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line.into()
}
