//! Rows of a session's modules, as they arrive, at the pace of a person who reads them.

use crate::route::FollowedRows;
use crate::watch::line;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use weir_http::{Gone, Sink};
use weir_node::client::followed::{self, FollowEvent, Followed, FollowedError};
use weir_node::client::{Client, ClientError, NodeLocation};
use weir_node::control::protocol::{ControlRequest, FollowedStream};
use weir_rows::{JsonRows, utc};
use weir_session::{Record, RecordOrder};

/// The interval at which rows are sent.
const INTERVAL: Duration = Duration::from_millis(250);
/// The most rows that are sent in an interval: the latest ones.
const ROWS_MAX: usize = 100;

/// Errors of following rows.
#[derive(Debug, thiserror::Error)]
pub enum RowsError {
    /// The node refuses, or the connection has failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The node's replies do not agree with each other.
    #[error(transparent)]
    Followed(#[from] FollowedError),
    /// The page was closed.
    #[error("the page was closed")]
    Gone,
}

impl From<Gone> for RowsError {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

/// The first line: the streams with their columns.
#[derive(Serialize)]
struct StreamsLine {
    streams: Vec<StreamColumns>,
}

#[derive(Serialize)]
struct StreamColumns {
    name: String,
    columns: Vec<Column>,
}

#[derive(Serialize)]
struct Column {
    name: String,
    #[serde(rename = "type")]
    ty: &'static str,
    unit: String,
}

/// Rows that wait to be sent: the latest ones.
struct Waiting {
    rows: VecDeque<(FollowedStream, Vec<u8>, Vec<u8>)>,
    /// Rows that had to give way.
    skipped: u64,
}

/// Sends the rows of a session's modules until the page is closed, the modules have ended, or the connection fails. The
/// last line states the reason.
pub fn send(node: &NodeLocation, wanted: FollowedRows, page: &Sink) {
    #[derive(Serialize)]
    struct ErrorLine {
        error: String,
    }
    match follow(node, wanted, page) {
        Ok(()) | Err(RowsError::Gone) => {}
        Err(error) => drop(page.send(line(&ErrorLine { error: error.to_string() }))),
    }
}

fn follow(node: &NodeLocation, wanted: FollowedRows, page: &Sink) -> Result<(), RowsError> {
    #[derive(Serialize)]
    struct MissedLine {
        missed: u64,
    }
    #[derive(Serialize)]
    struct EndLine {
        end: String,
    }
    let FollowedRows { session, module, stream } = wanted;
    let mut client = Client::connect_to(node)?;
    client.send(ControlRequest::Follow { session, module, streams: stream.into_iter().collect() }, &[])?;
    let followed = Followed::from_reply(client.receive()?)?;
    page.send(line(&streams_line(&followed)))?;
    let writers: Vec<Vec<JsonRows>> = followed
        .modules
        .iter()
        .map(|module| {
            module
                .manifest
                .streams
                .iter()
                .map(|stream| JsonRows::new(module.name.as_str(), stream, utc))
                .collect()
        })
        .collect();
    let events = followed::receive(client)?;
    let mut waiting = Waiting { rows: VecDeque::new(), skipped: 0 };
    let mut sent = Instant::now();
    loop {
        match events.recv_timeout(INTERVAL.saturating_sub(sent.elapsed())) {
            Ok(event) => match event? {
                FollowEvent::Row { stream, row, tail } => {
                    followed.check(stream, &row, &tail)?;
                    waiting.push(stream, row, tail);
                }
                FollowEvent::Missed { rows, .. } => page.send(line(&MissedLine { missed: rows }))?,
                FollowEvent::End { notes } => {
                    waiting.send(&followed, &writers, page)?;
                    let notes =
                        if notes.is_empty() { "the modules have ended".to_owned() } else { notes.join("; ") };
                    page.send(line(&EndLine { end: notes }))?;
                    return Ok(());
                }
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(ClientError::Gone.into()),
        }
        if sent.elapsed() >= INTERVAL {
            waiting.send(&followed, &writers, page)?;
            sent = Instant::now();
        }
    }
}

fn streams_line(followed: &Followed) -> StreamsLine {
    let streams = followed.modules.iter().flat_map(|module| {
        module.manifest.streams.iter().map(|stream| StreamColumns {
            name: format!("{}.{}", module.name, stream.name),
            columns: stream
                .fields
                .iter()
                .map(|field| Column {
                    name: field.name.to_string(),
                    ty: field.ty.name(),
                    unit: field.unit.clone(),
                })
                .collect(),
        })
    });
    StreamsLine { streams: streams.collect() }
}

impl Waiting {
    /// Adds a row. If there are too many, the oldest one gives way. Texts are made only of rows that are sent.
    fn push(&mut self, stream: FollowedStream, row: Vec<u8>, tail: Vec<u8>) {
        if self.rows.len() >= ROWS_MAX {
            self.rows.pop_front();
            self.skipped += 1;
        }
        self.rows.push_back((stream, row, tail));
    }

    /// Sends the waiting rows, a line for each run of rows of one stream. Without rows, checks that the page is open.
    fn send(&mut self, followed: &Followed, writers: &[Vec<JsonRows>], page: &Sink) -> Result<(), RowsError> {
        if self.rows.is_empty() {
            return if page.is_gone() { Err(RowsError::Gone) } else { Ok(()) };
        }
        let mut text = Vec::new();
        let mut last = None;
        for (stream, row, tail) in self.rows.drain(..) {
            let module = writers.get(usize::from(stream.module));
            let Some(writer) = module.and_then(|it| it.get(usize::from(stream.stream))) else { continue };
            if last == Some(stream) {
                text.push(b',');
            } else {
                if last.is_some() {
                    text.extend_from_slice(b"]}\n");
                }
                text.extend_from_slice(b"{\"stream\":");
                weir_rows::push_json_text(&mut text, &followed.stream_name(stream)?);
                text.extend_from_slice(format!(",\"skipped\":{},\"rows\":[", self.skipped).as_bytes());
                self.skipped = 0;
                last = Some(stream);
            }
            let order = RecordOrder::packet(0);
            writer.push(&mut text, &Record { order, stream: stream.stream, row: &row, tail: &tail });
            // A row ends with a line feed, but the list of rows is one line.
            text.pop();
        }
        text.extend_from_slice(b"]}\n");
        Ok(page.send(text)?)
    }
}
