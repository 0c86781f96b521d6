//! `weir ledger`: prints the usage of sessions, the ledger's entries or the decisions on requests, or verifies the
//! ledger. Reads the ledger's files, or queries a running node.

use super::address::named_node;
use super::args::LedgerArgs;
use super::{NodeCommandError, read, show};
use crate::Failure;
use crate::output::progress::RunProgress;
use std::io::Write;
use std::path::{Path, PathBuf};
use weir_ledger::{
    DecisionList, LedgerCell, LedgerColumn, LedgerEntry, LedgerTable, UsageSummary, VerifiedLedger,
    VerifyOptions, parse_time,
};
use weir_ledger_files::{EntryFilter, LedgerReader, verify};
use weir_node::client::{Client, ClientError, NodeLocation, reply_kind};
use weir_node::control::config::{CONFIG_BYTES_MAX, NodeConfig, NodeConfiguration};
use weir_node::control::protocol::{ControlRequest, LedgerPart, LedgerRequest, Reply};
use weir_node::server::daemon::LEDGER;
use weir_units::{Bytes, Escape as _, Nanos, Timestamp};

/// Prints the usage, the entries or the decisions, or verifies the ledger.
pub fn ledger(out: &mut impl Write, args: &LedgerArgs) -> Result<(), Failure> {
    let reads_files = args.verify || args.dir.is_some() || args.config.is_some();
    let node = if reads_files { None } else { args.address.resolve_named()? };
    // The environment names a node, whose ledger may be on another machine. Verifying the default folder of this
    // machine would mislead.
    if args.verify && args.dir.is_none() && args.config.is_none() && named_node(None, None)?.is_some() {
        return Err(NodeCommandError::VerifyFiles.into());
    }
    let folder = ledger_folder(args)?;
    let check = VerifyOptions { kept_head: args.head, ..VerifyOptions::default() };
    if args.verify {
        let verified = verify(&folder, check).map_err(NodeCommandError::Ledger)?;
        return Ok(print_verified(out, &folder, &verified, args.head.is_some())?);
    }
    let (since, until) = (args.since.unwrap_or(Timestamp(0)), args.until.unwrap_or(Timestamp(u64::MAX)));
    let (mut summary, mut decisions) = (UsageSummary::new(since, until), DecisionList::default());
    let mut handle_entry = |entry: &LedgerEntry| -> Result<(), Failure> {
        if args.entries {
            crate::json::line(out, entry)?;
        } else if args.decisions {
            decisions.add(entry);
        } else {
            summary.add(entry);
        }
        Ok(())
    };
    if let Some(node) = node {
        query_node(&node, ledger_request(args), &mut handle_entry)?;
    } else {
        let filter = EntryFilter { session: args.session.clone(), since, until };
        for entry in LedgerReader::open(&folder, filter, check).map_err(NodeCommandError::Ledger)? {
            handle_entry(&entry.map_err(NodeCommandError::Ledger)?)?;
        }
    }
    let table = if args.decisions { decisions.table() } else { summary.table() };
    match table {
        _ if args.entries => {}
        table if args.csv => out.write_all(table.to_csv().as_bytes())?,
        table if args.json => out.write_all(table.to_json().as_bytes())?,
        table if table.rows().is_empty() && args.decisions => {
            writeln!(out, "there were no requests in this time")?
        }
        table if table.rows().is_empty() => writeln!(out, "no session used anything in this time")?,
        table => print_table(out, &table.without_empty_columns())?,
    }
    Ok(())
}

/// Returns the request that asks a node for the entries that the command needs.
pub(super) fn ledger_request(args: &LedgerArgs) -> LedgerRequest {
    let part = match (args.entries, args.decisions) {
        (true, _) => LedgerPart::Entries,
        (false, true) => LedgerPart::Decisions,
        (false, false) => LedgerPart::Usage,
    };
    let [since_ns, until_ns] = [args.since, args.until].map(|time| time.map(|time| time.0));
    LedgerRequest { part, session: args.session.clone(), since_ns, until_ns }
}

/// Queries a node, passes each entry that the node sends to `handle_entry`, and shows the progress on a terminal.
fn query_node(
    node: &NodeLocation,
    request: LedgerRequest,
    handle_entry: &mut dyn FnMut(&LedgerEntry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut client = Client::connect_to(node)?;
    // Without a progress display if the entries themselves are printed as they arrive.
    let mut progress = RunProgress::new(request.part != LedgerPart::Entries);
    client.send(ControlRequest::Ledger(request), &[])?;
    let result = loop {
        match client.receive() {
            Ok(Reply::Entries { entries, read }) => {
                if let Some(read) = read {
                    progress.show_part(read);
                }
                if let Err(error) = entries.iter().try_for_each(&mut *handle_entry) {
                    break Err(error);
                }
            }
            Ok(Reply::Done { notes }) => {
                notes.iter().for_each(|note| progress.line(&format!("weir: {note}")));
                break Ok(());
            }
            Ok(other) => break Err(ClientError::UnexpectedReply(reply_kind(&other)).into()),
            Err(error) => break Err(error.into()),
        }
    };
    progress.finish();
    result
}

/// Returns the ledger's folder: the folder `ledger` in the node's state folder. A folder without such a subfolder is
/// taken for the ledger's folder itself.
fn ledger_folder(args: &LedgerArgs) -> Result<PathBuf, NodeCommandError> {
    let state = match (&args.dir, &args.config) {
        (Some(dir), _) => dir.clone(),
        (None, Some(path)) => {
            let config_error = |why: String| NodeCommandError::File { path: path.clone(), why };
            let config = NodeConfiguration::parse(&read(path, CONFIG_BYTES_MAX)?)
                .map_err(|error| config_error(error.to_string()))?;
            config.node.state
        }
        (None, None) => NodeConfig::default().state,
    };
    let subfolder = state.join(LEDGER);
    Ok(if subfolder.is_dir() { subfolder } else { state })
}

/// Prints the result of verifying the ledger, and its head.
fn print_verified(
    out: &mut impl Write,
    folder: &Path,
    verified: &VerifiedLedger,
    is_head_given: bool,
) -> std::io::Result<()> {
    let Some(head) = verified.head else {
        return writeln!(out, "the ledger in {} is empty", folder.escaped());
    };
    let VerifiedLedger { entries, segments, recoveries, .. } = verified;
    writeln!(
        out,
        "the ledger in {} is whole: {entries} entries in {segments} files, {recoveries} crashes",
        folder.escaped()
    )?;
    if is_head_given {
        writeln!(out, "it contains the given head: no entry up to this head was changed or removed")?;
    }
    if let Some(torn) = verified.torn {
        writeln!(
            out,
            "its last line is incomplete ({}, {} bytes): a crash interrupted the writing, or a node is writing the line now",
            torn.position, torn.bytes
        )?;
    }
    writeln!(out, "head {head}")
}

/// Prints usage or decisions as a table, with amounts in readable units.
fn print_table(out: &mut impl Write, table: &LedgerTable) -> std::io::Result<()> {
    let heading = |text_of: fn(&LedgerColumn) -> &str| {
        table.columns().iter().map(|column| text_of(column).to_owned()).collect::<Vec<_>>()
    };
    let mut rows = vec![heading(|column| column.title), heading(unit)];
    let is_usage = table.columns().iter().all(|column| column.key != "outcome");
    for row in table.rows() {
        let cells = row.iter().zip(table.columns()).map(|(cell, column)| match (column.key, cell) {
            ("session", LedgerCell::None) if is_usage => "(not separate)".to_owned(),
            _ => cell_text(column, cell),
        });
        rows.push(cells.collect());
    }
    let is_left_aligned = |column: &LedgerColumn| {
        matches!(
            column.key,
            "session" | "begin" | "end" | "request" | "outcome" | "key" | "credentials" | "reason"
        )
    };
    let left: Vec<usize> = table
        .columns()
        .iter()
        .enumerate()
        .filter(|(_, column)| is_left_aligned(column))
        .map(|(at, _)| at)
        .collect();
    show::print_columns(out, &rows, &left)
}

/// Returns the unit shown under a column's title; empty if each cell shows its own unit.
fn unit(column: &LedgerColumn) -> &'static str {
    if matches!(column.unit, "B" | "s") { "" } else { column.unit }
}

/// Formats a cell for people.
fn cell_text(column: &LedgerColumn, cell: &LedgerCell) -> String {
    match (column.key, cell) {
        // Times are cut to seconds here; CSV and JSON have all digits.
        ("begin" | "end", LedgerCell::Text(time)) if parse_time(time).is_ok() => {
            time.get(..19).map_or(time.clone(), |time| time.replace('T', " "))
        }
        (_, LedgerCell::Count(bytes)) if column.unit == "B" => Bytes(*bytes).to_string(),
        (_, LedgerCell::Decimal { scaled, decimals: 9 }) if column.unit == "s" => {
            u64::try_from(*scaled).map_or_else(|_| cell.to_string(), |nanos| Nanos(nanos).to_string())
        }
        (_, LedgerCell::Decimal { scaled, decimals: 6 }) => {
            let hundredths = (scaled + 5_000) / 10_000;
            format!("{}.{:02}", hundredths / 100, hundredths % 100)
        }
        (_, cell) => cell.to_string(),
    }
}
