//! The node's ledger: decisions on requests, and the usage of sessions and holders.

use crate::Ui;
use crate::advice::{Advice, RefusedRequest};
use crate::credentials;
use crate::modules::ModuleNames;
use crate::route::LedgerRange;
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use weir_ledger::{
    Decision, DecisionOutcome, LedgerCell, LedgerColumn, LedgerEntry, LedgerEvent, LedgerTable, LedgerText,
    UsageSummary, is_decision,
};
use weir_node::client::{Client, ClientError, NodeLocation, reply_kind};
use weir_node::control::RefusalText;
use weir_node::control::protocol::{ControlRequest, LedgerPart, LedgerRequest, Reply};
use weir_records::{TableColumn, TableEncodeError};
use weir_trust::grant::{Grant, UnixSecond};
use weir_units::Timestamp;

/// The most decisions that the page shows: the latest ones.
const DECISIONS_MAX: usize = 1000;
/// The most sessions whose holders are looked up.
const HOLDERS_MAX: usize = 100_000;
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
    /// For a refused request, what would have to be granted.
    advice: Vec<Advice>,
}

/// The circumstances of advice: the node's name in credentials, the rights that each delegation states, the names of the
/// shipped modules, and the time.
struct AdviceContext<'a> {
    node: &'a str,
    grants: BTreeMap<&'a str, Grant>,
    modules: &'a ModuleNames,
    now: UnixSecond,
}

/// The requests of a time range that the node does not list one by one, as one entry.
#[derive(Default)]
struct UnlistedRequests {
    /// The times of the first and the last one.
    times: Option<(Timestamp, Timestamp)>,
    allowed: u64,
    refused: u64,
    handshakes: u64,
}

impl UnlistedRequests {
    /// Adds an entry; returns false for an entry of another kind.
    fn add(&mut self, entry: &LedgerEntry) -> bool {
        let LedgerEvent::Unlisted { allowed, refused, handshakes } = &entry.event else { return false };
        let (begin, end) = self.times.unwrap_or((entry.begin, entry.end));
        self.times = Some((begin.min(entry.begin), end.max(entry.end)));
        self.allowed = self.allowed.saturating_add(*allowed);
        self.refused = self.refused.saturating_add(*refused);
        self.handshakes = self.handshakes.saturating_add(*handshakes);
        true
    }

    /// Returns the entry; `None` without requests.
    fn line(&self) -> Option<DecisionLine> {
        let Self { times, allowed, refused, handshakes } = *self;
        let (begin, end) = times?;
        let bad = refused.saturating_add(handshakes);
        Some(DecisionLine {
            request: "(not listed singly)".to_owned(),
            outcome: if bad > 0 { DecisionOutcome::Refused } else { DecisionOutcome::Allowed }.as_str(),
            count: allowed.saturating_add(bad),
            reason: Some(format!(
                "{allowed} allowed, {refused} refused or failed, {handshakes} failed handshakes"
            )),
            ..DecisionLine::between(begin, end)
        })
    }
}

impl DecisionLine {
    /// Creates a line about an event between two times.
    fn between(begin: Timestamp, end: Timestamp) -> Self {
        Self {
            begin_ms: begin.0 / 1_000_000,
            end_ms: end.0 / 1_000_000,
            request: String::new(),
            session: None,
            called: None,
            outcome: DecisionOutcome::Allowed.as_str(),
            count: 1,
            who: None,
            credentials: Vec::new(),
            is_claimed: false,
            reason: None,
            advice: Vec::new(),
        }
    }

    fn add_advice(&mut self, context: &AdviceContext<'_>) {
        let Some(reason) = self.reason.as_deref().filter(|_| self.has_advice()) else { return };
        let own = self.credentials.last().filter(|_| !self.is_claimed);
        let refused = RefusedRequest {
            reason,
            request: &self.request,
            session: self.session.as_deref(),
            who: self.who.as_deref(),
            credentials: &self.credentials,
            stated: own.and_then(|own| context.grants.get(own.as_str())),
            modules: context.modules,
            node: context.node,
            now: context.now,
        };
        self.advice = refused.advice();
    }

    fn has_advice(&self) -> bool {
        matches!(self.outcome, "refused" | "failed") && self.reason.is_some()
    }
}

/// Returns the decisions of the last seconds.
///
/// # Errors
/// The node refuses, or the connection fails.
pub fn decisions(ui: &Ui, since_s: u64, now: Timestamp) -> Result<DecisionsAnswer, ClientError> {
    let since_ns = now.0.saturating_sub(since_s.saturating_mul(NANOS));
    let request = LedgerRequest {
        part: LedgerPart::Decisions,
        session: None,
        since_ns: Some(since_ns),
        until_ns: None,
    };
    let mut decisions = std::collections::VecDeque::new();
    let mut unlisted = UnlistedRequests::default();
    query(&ui.node, request, |entry| {
        if unlisted.add(entry) {
            return;
        }
        if let Some(line) = decision_line(entry) {
            decisions.push_front(line);
            decisions.truncate(DECISIONS_MAX);
        }
    })?;
    let mut decisions: Vec<DecisionLine> = decisions.into();
    if decisions.iter().any(DecisionLine::has_advice) {
        let tree = credentials::tree(&ui.node)?;
        let context = AdviceContext {
            node: &tree.node,
            grants: credentials::stated_grants(&tree),
            modules: &ui.module_names,
            now: UnixSecond::containing(now),
        };
        decisions.iter_mut().for_each(|line| line.add_advice(&context));
    }
    // The advice reads the reason as the node wrote it.
    for reason in decisions.iter_mut().filter_map(|line| line.reason.as_mut()) {
        if let Cow::Owned(named) = ui.module_names.with_names(reason) {
            *reason = named;
        }
    }
    if let Some(line) = unlisted.line() {
        let at = decisions.iter().position(|other| other.end_ms <= line.end_ms).unwrap_or(decisions.len());
        decisions.insert(at, line);
    }
    Ok(DecisionsAnswer { decisions })
}

fn decision_line(entry: &LedgerEntry) -> Option<DecisionLine> {
    if !is_decision(&entry.event) {
        return None;
    }
    let line = DecisionLine::between(entry.begin, entry.end);
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
pub fn parquet(table: &LedgerTable) -> Result<Vec<u8>, TableEncodeError> {
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

/// A table in the form that the page reads: a row has a name, and then a value for each column.
#[derive(Debug, Serialize)]
struct TableAnswer {
    columns: Vec<ColumnAnswer>,
    rows: Vec<Vec<serde_json::Value>>,
}

#[derive(Debug, Serialize)]
struct ColumnAnswer {
    key: &'static str,
    title: String,
    unit: &'static str,
}

/// The usage of sessions, the sums by holder, and the state of the ledger.
#[derive(Debug, Serialize)]
pub struct LedgerAnswer {
    #[serde(flatten)]
    sessions: TableAnswer,
    holders: TableAnswer,
    verified: VerifiedAnswer,
}

#[derive(Debug, Serialize)]
struct VerifiedAnswer {
    state: &'static str,
    text: String,
}

/// The name of the column with a session's name.
const NAME: &str = "session";
/// The columns that identify a row and have no sum.
const IDENTIFYING: [&str; 4] = ["id", "begin", "end", "intervals"];
/// The name of the operator's row in the sums by holder.
const OPERATOR: &str = "the operator";
/// The name of the row of sessions whose holder the ledger does not tell.
const UNKNOWN: &str = "(not known)";

/// Returns the usage of sessions and holders in a time range, in the form that the page reads.
///
/// # Errors
/// The node refuses, or the connection fails. An error of the ledger itself is part of the answer.
pub fn answer(node: &NodeLocation, range: LedgerRange) -> Result<LedgerAnswer, ClientError> {
    let whole = "The node has read and verified its whole ledger for this answer. `weir ledger --verify` checks the files independently of the node.";
    let (table, verified) = match usage(node, range) {
        Ok(table) => (table, VerifiedAnswer { state: "whole", text: whole.to_owned() }),
        // The end of a credential, or a quota, says nothing about the ledger.
        Err(error @ ClientError::Refused(_)) if error.is_transient() => return Err(error),
        Err(ClientError::Refused(why)) if RefusalText::read(&why).is_none() => {
            (LedgerTable::default(), VerifiedAnswer { state: "broken", text: why })
        }
        Err(error) => return Err(error),
    };
    let holders = holders(node)?;
    Ok(LedgerAnswer { holders: sums_by_holder(&table, &holders), sessions: (&table).into(), verified })
}

/// Returns the holder of each session, by the session's name on the node, from the requests that created sessions.
fn holders(node: &NodeLocation) -> Result<BTreeMap<String, String>, ClientError> {
    let request =
        LedgerRequest { part: LedgerPart::Decisions, session: None, since_ns: None, until_ns: None };
    let mut holders = BTreeMap::new();
    let handled = query(node, request, |entry| {
        if let LedgerEvent::Decision(decision) = &entry.event
            && decision.outcome == DecisionOutcome::Allowed
            // Other holders, and the operator, can change the session later.
            && decision.request.as_str() == "create"
            && let (Some(session), Some(key)) = (&decision.session, &decision.key)
            && holders.len() < HOLDERS_MAX
        {
            holders.insert(session.to_string(), key.to_string());
        }
    });
    match handled {
        // The table's own request has told why.
        Ok(()) | Err(ClientError::Refused(_)) => Ok(holders),
        Err(error) => Err(error),
    }
}

/// Returns the sum of each column of numbers by holder.
fn sums_by_holder(table: &LedgerTable, holders: &BTreeMap<String, String>) -> TableAnswer {
    let summed: Vec<usize> = table
        .columns()
        .iter()
        .enumerate()
        .filter(|(_, column)| column.key != NAME && !IDENTIFYING.contains(&column.key))
        .map(|(index, _)| index)
        .collect();
    let mut sums: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for row in table.rows() {
        let session = match row.first() {
            Some(LedgerCell::Text(session)) => session.as_str(),
            _ => "",
        };
        // The ledger names a holder with the request that created a session. The operator's configuration makes no request.
        let of_requests = session.strip_prefix("(requests of ").and_then(|it| it.strip_suffix(')'));
        let holder = match (of_requests, holders.get(session)) {
            (Some(holder), _) => holder,
            (None, Some(holder)) => holder.as_str(),
            (None, None) if session.is_empty() => UNKNOWN,
            (None, None) => OPERATOR,
        };
        let sum = sums.entry(holder.to_owned()).or_insert_with(|| vec![0.0; summed.len()]);
        for (sum, index) in sum.iter_mut().zip(&summed) {
            *sum += row.get(*index).and_then(number).unwrap_or(0.0);
        }
    }
    let columns =
        summed.iter().filter_map(|index| table.columns().get(*index)).map(ColumnAnswer::from).collect();
    let rows = sums.into_iter().map(|(holder, sums)| {
        std::iter::once(serde_json::Value::from(holder)).chain(sums.into_iter().map(Into::into)).collect()
    });
    TableAnswer { columns, rows: rows.collect() }
}

/// Returns the value of a cell that is a number.
fn number(cell: &LedgerCell) -> Option<f64> {
    match cell {
        LedgerCell::Count(_) | LedgerCell::Decimal { .. } => cell.to_string().parse().ok(),
        LedgerCell::None | LedgerCell::Text(_) => None,
    }
}

impl From<&LedgerColumn> for ColumnAnswer {
    /// The title is the name that programs read, without its unit: titles for narrow terminals are ambiguous without the unit.
    fn from(column: &LedgerColumn) -> Self {
        let unit_suffix = column.key.rsplit_once('_').map_or("", |(_, suffix)| suffix);
        let name = if column.unit == unit_suffix {
            column.key.strip_suffix(unit_suffix).unwrap_or(column.key)
        } else {
            column.key
        };
        Self { key: column.key, title: name.replace('_', " ").trim().to_owned(), unit: column.unit }
    }
}

impl From<&LedgerTable> for TableAnswer {
    fn from(table: &LedgerTable) -> Self {
        let columns = table.columns().iter().skip(1).map(ColumnAnswer::from).collect();
        let cell = |cell: &LedgerCell| match cell {
            LedgerCell::None => serde_json::Value::Null,
            LedgerCell::Text(text) => text.as_str().into(),
            LedgerCell::Count(count) => (*count).into(),
            LedgerCell::Decimal { .. } => number(cell).map_or(serde_json::Value::Null, Into::into),
        };
        Self { columns, rows: table.rows().iter().map(|row| row.iter().map(cell).collect()).collect() }
    }
}
