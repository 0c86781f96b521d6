//! `weir follow`: prints, writes and reports the records of a session's modules as they arrive.
//!
//! The node is not trusted: its modules are parsed as every manifest, and each row is checked against the manifest.

mod results;

use super::NodeCommandError;
use super::args::FollowArgs;
use crate::Failure;
use crate::output::exports::{self, ExportsError};
use crate::output::out_folder::OutFolderError;
use crate::output::report_file::ReportFileError;
use crate::output::rows::{RowOutput, StreamArgError, has_reader};
use crate::output::signals::Signals;
use results::FollowResults;
use std::io::{self, Write};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use weir_admission::{Name, NameError};
use weir_node::client::followed::{self, FollowEvent, Followed, FollowedError};
use weir_node::client::{Client, ClientError};
use weir_node::control::protocol::ControlRequest;
use weir_records::RecordsError;
use weir_session::{Record, RecordOrder};
use weir_units::escaped;

/// The interval at which signals and the reader of standard output are looked at while no records arrive.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);
/// The most records between two writes to standard output.
const RECORDS_AT_ONCE: usize = 1024;

/// Errors of `weir follow`.
#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// A stream of `--stream` cannot be printed.
    #[error(transparent)]
    Stream(#[from] StreamArgError),
    /// The name of a stream is not valid.
    #[error("`--stream {}`: {error}", given.escape_debug())]
    StreamName {
        /// The argument of `--stream`.
        given: String,
        /// The fault of the name.
        error: NameError,
    },
    /// The node's replies do not agree with each other.
    #[error(transparent)]
    Followed(#[from] FollowedError),
    /// The folder of `--out` cannot be used.
    #[error(transparent)]
    Out(#[from] OutFolderError),
    /// Records cannot be written.
    #[error("{0} (the folder is that of --out)")]
    Records(#[from] RecordsError),
    /// Rows in the format of another tool cannot be written, or have no destination.
    #[error(transparent)]
    Exports(#[from] ExportsError),
    /// The report cannot be written.
    #[error(transparent)]
    Report(#[from] ReportFileError),
    /// Signals cannot be caught.
    #[error("signals cannot be caught: {0}")]
    Signals(io::Error),
    /// Standard output cannot be written.
    #[error("standard output: {0}")]
    Print(io::Error),
    /// The node has ended the records, or the connection has failed.
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl FollowError {
    /// Returns true if the cause is a wrong command line.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Stream(_) | Self::StreamName { .. } => true,
            Self::Exports(error) => error.is_usage(),
            _ => false,
        }
    }

    /// Returns true if the node has ended the records in an orderly way: all records until then are complete.
    fn is_end_by_node(&self) -> bool {
        matches!(self, Self::Client(ClientError::Refused(_)))
    }
}

/// Follows until the session ends, the node ends the records, a signal arrives, or the reader of the rows has gone.
pub fn follow(args: &FollowArgs) -> Result<(), Failure> {
    exports::check(&args.printing, args.out.as_deref()).map_err(FollowError::from)?;
    let request = follow_request(args)?;
    let mut client = Client::connect_to(&args.address.resolve()?)?;
    client.send(request, &[])?;
    let followed = Followed::from_reply(client.receive()?).map_err(FollowError::from)?;
    let printed = followed.labels();
    let printing = args.printing.for_standard_output(args.out.is_some());
    let mut rows = RowOutput::for_follow(&printing, &printed).map_err(FollowError::from)?;
    let mut results = FollowResults::open(args, &followed)?;
    let mut signals = Signals::default();
    signals.catch().map_err(FollowError::Signals)?;
    let events = followed::receive(client).map_err(FollowError::from)?;
    let ended = run(args, &signals, &followed, &events, (&mut rows, &mut results));
    let printed = rows.finish().map_err(FollowError::Print);
    let is_complete = ended.as_ref().err().is_none_or(FollowError::is_end_by_node);
    let finished = results.finish(&followed, ended.as_ref().err(), is_complete);
    ended.and(finished).and(printed)?;
    Ok(())
}

/// Handles records until the end.
fn run(
    args: &FollowArgs,
    signals: &Signals,
    followed: &Followed,
    events: &Receiver<Result<FollowEvent, ClientError>>,
    (rows, results): (&mut RowOutput, &mut FollowResults),
) -> Result<(), FollowError> {
    let needs_no_reader = args.out.is_some() || args.report.is_some() || args.printing.collector.is_some();
    while !signals.interrupted.load(Ordering::Relaxed) && (needs_no_reader || has_reader()) {
        let mut next = match events.recv_timeout(CHECK_INTERVAL) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return Err(ClientError::Gone.into()),
        };
        let mut has_ended = false;
        for _ in 0..RECORDS_AT_ONCE {
            let Some(event) = next.take() else { break };
            match event? {
                FollowEvent::Row { stream, row, tail } => {
                    followed.check(stream, &row, &tail)?;
                    let order = RecordOrder::packet(0);
                    let record = Record { order, stream: stream.stream, row: &row, tail: &tail };
                    rows.push(usize::from(stream.module), &record);
                    results.push(usize::from(stream.module), &record)?;
                }
                FollowEvent::Missed { stream, rows: missed } => {
                    let name = followed.stream_name(stream)?;
                    // A closed standard error must not end the run.
                    let _ = writeln!(
                        io::stderr(),
                        "weir: {missed} records of {name} were missed here: this client reads too slowly"
                    );
                    results.miss(stream, missed);
                }
                FollowEvent::End { notes } => {
                    for note in notes {
                        let _ = writeln!(io::stderr(), "weir: {}", escaped(&note));
                    }
                    has_ended = true;
                    break;
                }
            }
            next = events.try_recv().ok();
        }
        rows.flush().map_err(FollowError::Print)?;
        results.flush()?;
        if has_ended {
            break;
        }
    }
    Ok(())
}

/// Returns the request of the command. Records of other streams than those of `--stream` are requested only for files and the
/// report.
pub fn follow_request(args: &FollowArgs) -> Result<ControlRequest, NodeCommandError> {
    let name = |given: &String| {
        let name = given.split_once('.').map_or(given.as_str(), |(_, name)| name);
        Name::new(name).map_err(|error| FollowError::StreamName { given: given.clone(), error })
    };
    let wants_all = args.out.is_some() || args.report.is_some() || args.printing.collector.is_some();
    let mut streams = args.printing.streams.iter().map(name).collect::<Result<Vec<Name>, _>>()?;
    if wants_all {
        streams.clear();
    }
    Ok(ControlRequest::Follow { session: args.session.clone(), module: args.module.clone(), streams })
}

impl From<FollowError> for NodeCommandError {
    fn from(error: FollowError) -> Self {
        match error {
            FollowError::Client(error) => Self::Client(error),
            error => Self::Follow(Box::new(error)),
        }
    }
}

impl From<FollowError> for Failure {
    fn from(error: FollowError) -> Self {
        Self::NodeCommand(error.into())
    }
}
