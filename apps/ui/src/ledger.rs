//! The node's ledger: decisions on requests, and the usage of sessions and holders.

use crate::route::LedgerRange;
use serde::Serialize;
use weir_ledger::{
    Decision, LedgerCell, LedgerEntry, LedgerEvent, LedgerTable, LedgerText, UsageSummary, is_decision,
};
use weir_node::client::{Client, ClientError, NodeLocation, reply_kind};
use weir_node::control::protocol::{ControlRequest, LedgerPart, LedgerRequest, Reply};
use weir_records::{TableColumn, TableFileError};
use weir_units::Timestamp;

/// The most decisions that the page shows: the latest ones.
const DECISIONS_MAX: usize = 1000;
/// Nanoseconds in a second.
const NANOS: u64 = 1_000_000_000;

/// Passes all entries of a part of the ledger to `handle`.
///
/// # Errors
/// The node refuses, or the connection fails.
fn query(
    node: &NodeLocation,
    request: LedgerRequest,
    mut handle: impl FnMut(&LedgerEntry),
) -> Result<(), ClientError> {
    let mut client = Client::connect_to(node)?;
    client.send(ControlRequest::Ledger(request), &[])?;
    loop {
        match client.receive()? {
            Reply::Entries { entries, .. } => entries.iter().for_each(&mut handle),
            Reply::Done { .. } => return Ok(()),
            other => return Err(ClientError::UnexpectedReply(reply_kind(&other))),
        }
    }
}

/// The answer to a request for decisions.
#[derive(Debug, Serialize)]
pub struct DecisionsAnswer {
    /// The decisions, the latest first.
    decisions: Vec<DecisionLine>,
}

/// A decision, or the end of a session without a request.
#[derive(Debug, Serialize)]
struct DecisionLine {
    begin_ms: u64,
    end_ms: u64,
    request: String,
    session: Option<String>,
    /// The requester's own name for the session, if it differs.
    called: Option<String>,
    outcome: &'static str,
    count: u64,
    /// The requester's key; `None` for the operator on the node itself.
    who: Option<String>,
    credentials: Vec<String>,
    /// True if the requester only claims the credentials.
    is_claimed: bool,
    reason: Option<String>,
}

/// Returns the decisions of the last seconds.
///
/// # Errors
/// The node refuses, or the connection fails.
pub fn decisions(node: &NodeLocation, since_s: u64, now: Timestamp) -> Result<DecisionsAnswer, ClientError> {
    let since_ns = now.0.saturating_sub(since_s.saturating_mul(NANOS));
    let request = LedgerRequest {
        part: LedgerPart::Decisions,
        session: None,
        since_ns: Some(since_ns),
        until_ns: None,
    };
    let mut decisions = std::collections::VecDeque::new();
    query(node, request, |entry| {
        if let Some(line) = decision_line(entry) {
            decisions.push_front(line);
            decisions.truncate(DECISIONS_MAX);
        }
    })?;
    Ok(DecisionsAnswer { decisions: decisions.into() })
}

fn decision_line(entry: &LedgerEntry) -> Option<DecisionLine> {
    if !is_decision(&entry.event) {
        return None;
    }
    let line = DecisionLine {
        begin_ms: entry.begin.0 / 1_000_000,
        end_ms: entry.end.0 / 1_000_000,
        request: String::new(),
        session: None,
        called: None,
        outcome: "allowed",
        count: 1,
        who: None,
        credentials: Vec::new(),
        is_claimed: false,
        reason: None,
    };
    let text = |text: &Option<LedgerText>| text.as_ref().map(LedgerText::to_string);
    let texts = |texts: &[LedgerText]| texts.iter().map(LedgerText::to_string).collect();
    Some(match &entry.event {
        LedgerEvent::Decision(decision) => {
            let Decision { key, credentials, claims, request, session, called, outcome, reason, count } =
                &**decision;
            let is_claimed = credentials.is_empty() && !claims.is_empty();
            DecisionLine {
                request: request.to_string(),
                session: text(session),
                called: text(called),
                outcome: outcome.as_str(),
                count: *count,
                who: text(key),
                credentials: texts(if is_claimed { claims } else { credentials }),
                is_claimed,
                reason: text(reason),
                ..line
            }
        }
        LedgerEvent::Unlisted { allowed, refused, handshakes } => DecisionLine {
            request: "(not listed singly)".to_owned(),
            outcome: "refused",
            count: allowed.saturating_add(*refused).saturating_add(*handshakes),
            reason: Some(format!(
                "{allowed} allowed, {refused} refused or failed, {handshakes} failed handshakes"
            )),
            ..line
        },
        LedgerEvent::Revoked { root, list, ids } => DecisionLine {
            request: "(revocation)".to_owned(),
            who: Some(root.to_string()),
            reason: Some(format!("list {list} of this root revokes {ids} credentials")),
            ..line
        },
        LedgerEvent::SessionClosed { session, reason } => DecisionLine {
            request: "(end)".to_owned(),
            session: Some(session.name.to_string()),
            outcome: "closed",
            reason: Some(reason.to_string()),
            ..line
        },
        _ => return None,
    })
}

/// Returns the usage of sessions and of holders in a time range.
///
/// # Errors
/// The node refuses, or the connection fails.
pub fn usage(node: &NodeLocation, range: LedgerRange) -> Result<LedgerTable, ClientError> {
    let nanos = |seconds: Option<u64>| seconds.map(|seconds| seconds.saturating_mul(NANOS));
    let (since_ns, until_ns) = (nanos(range.since_s), nanos(range.until_s));
    let mut summary =
        UsageSummary::new(Timestamp(since_ns.unwrap_or(0)), Timestamp(until_ns.unwrap_or(u64::MAX)));
    query(node, LedgerRequest { part: LedgerPart::Usage, session: None, since_ns, until_ns }, |entry| {
        summary.add(entry);
    })?;
    Ok(summary.table())
}

/// Returns a table as the bytes of a Parquet file, with exact numbers.
///
/// # Errors
/// A number has too many digits.
pub fn parquet(table: &LedgerTable) -> Result<Vec<u8>, TableFileError> {
    let columns = table.columns().iter().enumerate().map(|(index, column)| {
        let cells = || table.rows().iter().map(move |row| row.get(index).unwrap_or(&LedgerCell::None));
        let decimals = cells().find_map(|cell| match cell {
            LedgerCell::Decimal { decimals, .. } => Some(*decimals),
            _ => None,
        });
        let is_count = cells().all(|cell| matches!(cell, LedgerCell::Count(_) | LedgerCell::None));
        let values = if let Some(decimals) = decimals {
            let scaled = |cell: &LedgerCell| match cell {
                LedgerCell::Decimal { scaled, .. } => i128::try_from(*scaled).ok(),
                _ => None,
            };
            TableColumn::Decimal { decimals, scaled: cells().map(scaled).collect() }
        } else if is_count {
            let count = |cell: &LedgerCell| match cell {
                LedgerCell::Count(count) => Some(*count),
                _ => None,
            };
            TableColumn::Count(cells().map(count).collect())
        } else {
            let text = |cell: &LedgerCell| Some(cell.to_string()).filter(|text| !text.is_empty());
            TableColumn::Text(cells().map(text).collect())
        };
        (column.key, values)
    });
    weir_records::table_file(columns.collect())
}

/// A table in the form that the page reads.
#[derive(Debug, Serialize)]
pub struct TableAnswer {
    columns: Vec<ColumnAnswer>,
    rows: Vec<Vec<serde_json::Value>>,
}

#[derive(Debug, Serialize)]
struct ColumnAnswer {
    key: &'static str,
    title: &'static str,
    unit: &'static str,
}

impl From<&LedgerTable> for TableAnswer {
    fn from(table: &LedgerTable) -> Self {
        let columns = table.columns().iter();
        let columns =
            columns.map(|it| ColumnAnswer { key: it.key, title: it.title, unit: it.unit }).collect();
        let cell = |cell: &LedgerCell| match cell {
            LedgerCell::None => serde_json::Value::Null,
            LedgerCell::Text(text) => text.as_str().into(),
            LedgerCell::Count(count) => (*count).into(),
            LedgerCell::Decimal { .. } => {
                cell.to_string().parse::<f64>().map_or(serde_json::Value::Null, Into::into)
            }
        };
        Self { columns, rows: table.rows().iter().map(|row| row.iter().map(cell).collect()).collect() }
    }
}
