//! What sessions used over a time: for a bill.

use super::{
    DropCause, LedgerCell, LedgerColumn, LedgerEntry, LedgerEvent, LedgerTable, LedgerText, LostUnit,
    SessionId, Usage, UsageCounter, show_time,
};
use std::collections::BTreeMap;
use weir_units::Timestamp;

/// Usage by session over a range of time.
///
/// An interval belongs to the range in which it ends: after `since`, and not after `until`. So ranges that follow one another, months for instance,
/// add up to the whole, and no interval is billed twice.
#[derive(Clone, Debug)]
pub struct UsageSummary {
    since: Timestamp,
    until: Timestamp,
    rows: BTreeMap<SessionId, SummaryRow>,
    /// The cost of requests, by the holders' keys.
    requests: BTreeMap<Option<LedgerText>, RequestsRow>,
    /// What could not be told apart.
    others: Option<SummaryRow>,
}

/// What one session used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRow {
    /// Where its first interval begins.
    pub begin: Timestamp,
    /// Where its last interval ends.
    pub end: Timestamp,
    /// How many intervals there are; those that were merged count.
    pub intervals: u64,
    /// What it used.
    pub usage: Usage,
}

/// The cost of one holder's requests; of several holders', where there are too many for a row each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestsRow {
    /// The chain of credentials of the last request.
    pub credentials: Vec<LedgerText>,
    /// The number of requests.
    pub count: u64,
    /// Their processor time, including refused requests.
    pub row: SummaryRow,
}

/// Holders whose requests have a row of their own.
const HOLDERS_MAX: usize = 4096;

impl Default for UsageSummary {
    /// Over all time.
    fn default() -> Self {
        Self::new(Timestamp(0), Timestamp(u64::MAX))
    }
}

impl UsageSummary {
    /// Over what ends after `since` (0: from the beginning) and not after `until`.
    pub fn new(since: Timestamp, until: Timestamp) -> Self {
        Self { since, until, rows: BTreeMap::new(), requests: BTreeMap::new(), others: None }
    }

    /// Takes an entry of a ledger, in any order.
    pub fn add(&mut self, entry: &LedgerEntry) {
        let is_late = entry.end > self.since || self.since == Timestamp(0);
        if !is_late || entry.end > self.until {
            return;
        }
        match &entry.event {
            LedgerEvent::Usage { session, intervals, usage } => {
                self.add_to(session, entry, *intervals, |sum| sum.merge(usage));
            }
            LedgerEvent::Idle { idle } => {
                for (session, memory) in idle.iter() {
                    self.add_to(session, entry, 1, |sum| sum.memory = sum.memory.saturating_add(memory));
                }
            }
            LedgerEvent::Requests { key, credentials, count, refused, cpu } => {
                let usage = Usage { cpu: *cpu, refusals: *refused, ..Usage::default() };
                self.add_requests(entry, (key, credentials), *count, &usage);
            }
            LedgerEvent::Backlog { others, .. } if !others.is_empty() => {
                let row = self.others.get_or_insert_with(|| SummaryRow::before(entry));
                row.add(entry, 1);
                row.usage.merge(others);
            }
            _ => {}
        }
    }

    fn add_to(
        &mut self,
        session: &SessionId,
        entry: &LedgerEntry,
        intervals: u64,
        add: impl FnOnce(&mut Usage),
    ) {
        let row = match self.rows.get_mut(session) {
            Some(row) => row,
            None => self.rows.entry(session.clone()).or_insert_with(|| SummaryRow::before(entry)),
        };
        row.add(entry, intervals);
        add(&mut row.usage);
    }

    fn add_requests(
        &mut self,
        entry: &LedgerEntry,
        (key, credentials): (&Option<LedgerText>, &Vec<LedgerText>),
        count: u64,
        usage: &Usage,
    ) {
        let has_room = self.requests.len() < HOLDERS_MAX || self.requests.contains_key(key);
        let key = key.clone().filter(|_| has_room);
        let there = self.requests.entry(key).or_insert_with(|| RequestsRow {
            credentials: Vec::new(),
            count: 0,
            row: SummaryRow::before(entry),
        });
        there.credentials.clone_from(credentials);
        there.count = there.count.saturating_add(count);
        there.row.add(entry, 1);
        there.row.usage.merge(usage);
    }

    /// The cost of requests, in the order of the holders' keys. It is on no session's bill.
    pub fn requests(&self) -> impl Iterator<Item = (Option<&LedgerText>, &RequestsRow)> {
        self.requests.iter().map(|(key, row)| (key.as_ref(), row))
    }

    /// Takes these rows out of the summary.
    pub fn take_requests(&mut self) -> impl Iterator<Item = (Option<LedgerText>, RequestsRow)> {
        std::mem::take(&mut self.requests).into_iter()
    }

    /// The rows in the order of their names. Under no session stands what could not be told apart while the ledger could not be written.
    pub fn rows(&self) -> impl Iterator<Item = (Option<&SessionId>, &SummaryRow)> {
        let others = self.others.iter().map(|row| (None, row));
        others.chain(self.rows.iter().map(|(session, row)| (Some(session), row)))
    }

    /// How many sessions there are.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The row of a session, which is gone then.
    pub fn take(&mut self, session: &SessionId) -> Option<SummaryRow> {
        self.rows.remove(session)
    }

    /// All rows of sessions, which are gone then, in the order of their names.
    pub fn take_all(&mut self) -> impl Iterator<Item = (SessionId, SummaryRow)> {
        std::mem::take(&mut self.rows).into_iter()
    }

    /// All sessions together.
    pub fn total(&self) -> Usage {
        self.rows().map(|(_, row)| &row.usage).sum()
    }

    /// As a table: always the same columns, a row for each session, and one for the requests of each holder.
    pub fn table(&self) -> LedgerTable {
        let mut columns = COLUMNS.to_vec();
        columns.extend(Usage::columns());
        let sessions = self.rows().map(|(session, row)| cells(session, row));
        let requests = self.requests().map(|(key, requests)| {
            let mut cells = cells(None, &requests.row);
            if let Some(first) = cells.first_mut() {
                let whose = key.map_or("several holders", LedgerText::as_str);
                *first = LedgerCell::Text(format!("(requests of {whose})"));
            }
            cells
        });
        LedgerTable::new(columns, sessions.chain(requests).collect())
    }
}

impl SummaryRow {
    /// Before the first entry, which is this one.
    fn before(entry: &LedgerEntry) -> Self {
        Self { begin: entry.begin, end: entry.end, intervals: 0, usage: Usage::default() }
    }

    /// So many intervals of this entry.
    fn add(&mut self, entry: &LedgerEntry, intervals: u64) {
        self.begin = self.begin.min(entry.begin);
        self.end = self.end.max(entry.end);
        self.intervals = self.intervals.saturating_add(intervals);
    }
}

/// The columns before those of [`Usage::columns`]. [`cells`] has the same order.
const COLUMNS: &[LedgerColumn] = &[
    LedgerColumn { key: "session", title: "session", unit: "" },
    LedgerColumn { key: "id", title: "id", unit: "" },
    LedgerColumn { key: "begin", title: "from", unit: "" },
    LedgerColumn { key: "end", title: "to", unit: "" },
    LedgerColumn { key: "intervals", title: "intervals", unit: "" },
];

fn cells(session: Option<&SessionId>, row: &SummaryRow) -> Vec<LedgerCell> {
    let usage = &row.usage;
    let amount = |(counter, value): &(&UsageCounter, u64)| match counter.column.unit {
        "s" => LedgerCell::Decimal { scaled: (*value).into(), decimals: 9 },
        _ => LedgerCell::Count(*value),
    };
    let [before_memory, behind_memory] = usage.groups();
    let mut cells = vec![
        session.map_or(LedgerCell::None, |session| LedgerCell::Text(session.name.to_string())),
        session.map_or(LedgerCell::None, |session| LedgerCell::Count(session.id)),
        LedgerCell::Text(show_time(row.begin)),
        LedgerCell::Text(show_time(row.end)),
        LedgerCell::Count(row.intervals),
    ];
    cells.extend(before_memory.iter().map(amount));
    cells.push(LedgerCell::Decimal { scaled: usage.memory.micro_mib_hours(), decimals: 6 });
    cells.extend(behind_memory.iter().map(amount));
    cells.push(LedgerCell::Count(usage.records_lost()));
    cells.push(LedgerCell::Count(usage.drops.of(LostUnit::Packet)));
    cells.extend(DropCause::ALL.iter().map(|cause| LedgerCell::Count(usage.drops.get(*cause))));
    cells
}
