//! `weir records`: lists the stored record files of a node, and fetches them into a folder.

mod folder;

use super::args::RecordsArgs;
use super::show;
use crate::output::progress::RunProgress;
use crate::{Failure, json};
use folder::{FileResult, RecordsFolder};
use serde::Serialize;
use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_admission::Name;
use weir_ledger::Digest;
use weir_node::client::{Client, ClientError, ListedRecords, NodeLocation, RecordsFetch, RecordsList};
use weir_node::control::protocol::RecordsRequest;
use weir_os::private::PrivateError;
use weir_units::{Bytes, Escape as _, Timestamp, display_among, show_time};

/// Errors of files that are fetched from a node.
#[derive(Debug, thiserror::Error)]
pub enum StoredRecordsError {
    /// The folder cannot be used.
    #[error("{}: {source}", path.escaped())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        source: PrivateError,
    },
    /// Another process fetches into the folder.
    #[error("{}: another `weir records` fetches into this folder: wait until it has ended, or name another folder", .0.escaped())]
    Locked(PathBuf),
    /// A file cannot be read or written.
    #[error("{}: {source}; what was received stays, and the next call continues there", path.escaped())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The files to fetch are longer than the user allows.
    #[error(
        "the files to fetch have {needed} together, but the maximum is {max}: select fewer with --session, --module, --since or --until, or raise --max-bytes",
        needed = display_among(*.needed, &[*.max]), max = display_among(*.max, &[*.needed])
    )]
    TooLong {
        /// The bytes of all files to fetch.
        needed: Bytes,
        /// The maximum.
        max: Bytes,
    },
    /// The received bytes are not those that the node states.
    #[error(
        "{}: the received file has the SHA-256 {received}, but the node states {stated}: nothing is kept of it; call again, and if that fails too ask the node's operator", path.escaped()
    )]
    Digest {
        /// The file.
        path: PathBuf,
        /// The hash of the received bytes.
        received: Digest,
        /// The hash that the node states.
        stated: Digest,
    },
}

/// A record file in a JSON document.
#[derive(Debug, Serialize)]
struct ListedRow<'a> {
    session: &'a str,
    module: &'a str,
    number: &'a str,
    stream: &'a str,
    file: &'a str,
    rows: Option<u64>,
    bytes: u64,
    from: Option<String>,
    to: Option<String>,
    completed: String,
    sha256: Option<Digest>,
}

/// Lists record files, or fetches them into a folder.
pub fn records(out: &mut impl Write, args: &RecordsArgs) -> Result<(), Failure> {
    let node = args.address.resolve()?;
    // The folder is locked before anything is requested.
    let folder = args.out.as_deref().map(RecordsFolder::open).transpose()?;
    let list = list(&node, args)?;
    match folder {
        Some(folder) => fetch(out, &node, &folder, &list, args.max_bytes)?,
        None if args.json => json::document(out, &list.files.iter().map(json_row).collect::<Vec<_>>())?,
        None if list.files.is_empty() => writeln!(out, "no complete record files match")?,
        None => print_list(out, &list.files)?,
    }
    if list.open > 0 {
        let _ = writeln!(
            io::stderr(),
            "weir: the files of {} {} are still being written, and can be fetched when they are complete (`record_file_age` of the node)",
            list.open,
            if list.open == 1 { "module" } else { "modules" }
        );
    }
    Ok(())
}

/// Returns the requests for the lists of all selected sessions: at least one.
fn requests(args: &RecordsArgs) -> Vec<RecordsRequest> {
    let [since_ns, until_ns] = [args.since, args.until].map(|time| time.map(|time| time.0));
    let request = |session: Option<Name>| RecordsRequest { session, since_ns, until_ns };
    if args.sessions.is_empty() {
        return vec![request(None)];
    }
    args.sessions.iter().cloned().map(|session| request(Some(session))).collect()
}

/// Returns the first request of the command.
pub(super) fn first_request(args: &RecordsArgs) -> RecordsRequest {
    requests(args).into_iter().next().unwrap_or_default()
}

/// Requests the list of the selected files. The files are sorted by session, module, number and name.
fn list(node: &NodeLocation, args: &RecordsArgs) -> Result<RecordsList, Failure> {
    let mut client = Client::connect_to(node)?;
    let mut all = RecordsList::default();
    for request in requests(args) {
        let more = client.list_records(request)?;
        all.open = all.open.saturating_add(more.open);
        all.files.extend(more.files);
    }
    all.files.retain(|file| args.modules.is_empty() || args.modules.contains(&file.module));
    let number = |file: &ListedRecords| file.number.parse::<u64>().unwrap_or(u64::MAX);
    all.files.sort_by(|one, other| {
        let key = |file: &ListedRecords| (file.session.clone(), file.module.clone(), number(file));
        key(one).cmp(&key(other)).then_with(|| one.file.cmp(&other.file))
    });
    all.files.dedup_by(|one, other| one.to_string() == other.to_string());
    Ok(all)
}

fn json_row(file: &ListedRecords) -> ListedRow<'_> {
    ListedRow {
        session: file.session.as_str(),
        module: file.module.as_str(),
        number: &file.number,
        stream: file.stream.as_str(),
        file: &file.file,
        rows: file.rows,
        bytes: file.bytes,
        from: file.times.map(|(from, _)| show_time(from)),
        to: file.times.map(|(_, to)| show_time(to)),
        completed: show_time(file.completed),
        sha256: file.sha256,
    }
}

fn print_list(out: &mut impl Write, files: &[ListedRecords]) -> io::Result<()> {
    let headings = ["SESSION", "MODULE", "NUMBER", "STREAM", "ROWS", "BYTES", "FROM", "TO"];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    // Times are cut to seconds here; JSON has all digits.
    let time = |time: Option<Timestamp>| {
        time.map_or("-".to_owned(), |time| {
            show_time(time).chars().take(19).collect::<String>().replace('T', " ")
        })
    };
    rows.extend(files.iter().map(|file| {
        vec![
            file.session.to_string(),
            file.module.to_string(),
            file.number.clone(),
            file.stream.to_string(),
            file.rows.map_or("-".to_owned(), |rows| rows.to_string()),
            Bytes(file.bytes).to_string(),
            time(file.times.map(|(from, _)| from)),
            time(file.times.map(|(_, to)| to)),
        ]
    }));
    show::print_columns(out, &rows, &[0, 1, 3, 6, 7])
}

/// The numbers of files by their results.
#[derive(Debug, Default)]
struct FetchedCounts {
    fetched: u64,
    bytes: u64,
    complete: u64,
    gone: u64,
}

/// Fetches the files that the folder does not have yet.
fn fetch(
    out: &mut impl Write,
    node: &NodeLocation,
    folder: &RecordsFolder,
    list: &RecordsList,
    bytes_max: Bytes,
) -> Result<(), Failure> {
    let mut needed = list.files.iter().try_fold(0u64, |sum, file| {
        Ok::<_, StoredRecordsError>(sum.saturating_add(folder.missing_bytes(file)?))
    })?;
    let check = |needed: u64| match Bytes(needed) {
        needed if needed > bytes_max => Err(StoredRecordsError::TooLong { needed, max: bytes_max }),
        _ => Ok(()),
    };
    check(needed)?;
    let progress = RefCell::new(RunProgress::new(true));
    let mut connect = || Client::connect_to(node);
    let (mut sleep, mut report) = (std::thread::sleep, |why: &ClientError, pause: Duration| {
        progress.borrow().line(&format!("weir: {why}; connecting again in {:.1} s", pause.as_secs_f64()));
    });
    let mut client = RecordsFetch::new(&mut connect, &mut sleep, &mut report)?;
    let mut counts = FetchedCounts::default();
    let result = list.files.iter().try_for_each(|file| {
        let done = counts.bytes;
        let mut show = |bytes: u64| progress.borrow_mut().show_bytes(done.saturating_add(bytes), needed);
        let result = folder.fetch(&mut client, file, &mut show, &|line| progress.borrow().line(line))?;
        match result {
            FileResult::Fetched { received } => {
                (counts.fetched, counts.bytes) = (counts.fetched + 1, counts.bytes.saturating_add(received));
            }
            FileResult::Complete => counts.complete += 1,
            FileResult::Gone => {
                counts.gone += 1;
                progress
                    .borrow()
                    .line(&format!("weir: {file}: the node has deleted the file for newer ones"));
            }
        }
        // A file that had to be fetched again counts anew.
        needed = needed.max(counts.bytes);
        check(needed)?;
        Ok::<_, Failure>(())
    });
    progress.borrow_mut().finish();
    let FetchedCounts { fetched, bytes, complete, gone } = counts;
    let files = |count: u64| format!("{count} {}", if count == 1 { "file" } else { "files" });
    let mut line = format!("{} fetched ({}), {complete} complete already", files(fetched), Bytes(bytes));
    if gone > 0 {
        line += &format!(", {gone} deleted by the node");
    }
    if result.is_ok() || fetched > 0 {
        writeln!(out, "{line}")?;
    }
    result
}

impl From<StoredRecordsError> for Failure {
    fn from(error: StoredRecordsError) -> Self {
        Self::NodeCommand(super::NodeCommandError::StoredRecords(error))
    }
}

/// Returns the error of a folder or file.
fn folder_error(path: &Path, source: PrivateError) -> StoredRecordsError {
    StoredRecordsError::Folder { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_printed_with_a_dash_for_what_the_node_does_not_know() {
        let name = |text| Name::new(text).unwrap();
        let file = ListedRecords {
            session: name("alice"),
            module: name("rtt"),
            number: "7".to_owned(),
            stream: name("flows"),
            file: "flows.parquet".to_owned(),
            bytes: 2000,
            rows: Some(5),
            times: Some((Timestamp(1_000_000_000), Timestamp(61_500_000_000))),
            completed: Timestamp(1),
            sha256: None,
        };
        let unknown = ListedRecords { rows: None, times: None, ..file.clone() };
        let mut out = Vec::new();
        print_list(&mut out, &[file, unknown]).unwrap();
        let text = String::from_utf8(out).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["SESSION", "MODULE", "NUMBER", "STREAM", "ROWS", "BYTES", "FROM", "TO"]);
        assert_eq!(rows[1][..5], ["alice", "rtt", "7", "flows", "5"]);
        assert_eq!(rows[1][rows[1].len() - 4..], ["1970-01-01", "00:00:01", "1970-01-01", "00:01:01"]);
        assert_eq!(rows[2][4], "-");
        assert_eq!(rows[2][rows[2].len() - 2..], ["-", "-"]);
    }
}
