//! The usage of sessions over a time range, as a table.

use super::{
    DropCause, LedgerCell, LedgerColumn, LedgerEntry, LedgerEvent, LedgerTable, LedgerText, LostUnit,
    SessionId, Usage, UsageCounter, show_time,
};
use std::collections::BTreeMap;
use weir_units::Timestamp;

/// Usage by session over a time range.
///
/// An interval belongs to the range in which it ends: after `since`, and not after `until`. So successive ranges, for
/// instance months, add up to the whole, and no interval is counted twice.
#[derive(Clone, Debug)]
pub struct UsageSummary {
    since: Timestamp,
    until: Timestamp,
    rows: BTreeMap<SessionId, SummaryRow>,
    /// The cost of requests, by the holders' keys.
    requests: BTreeMap<Option<LedgerText>, RequestsRow>,
    /// Usage that the ledger does not assign to a session.
    others: Option<SummaryRow>,
}

/// The usage of one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SummaryRow {
    /// The beginning of the first interval.
    pub begin: Timestamp,
    /// The end of the last interval.
    pub end: Timestamp,
    /// The number of intervals, including merged ones.
    pub intervals: u64,
    /// The usage.
    pub usage: Usage,
}

/// The cost of the requests of one holder, or of several holders together if there are too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestsRow {
    /// The identifiers of the blocks of the last request's credential, the operator's block first.
    pub credentials: Vec<LedgerText>,
    /// The number of requests.
    pub count: u64,
    /// The time range, and the processor time of these requests, including refused ones.
    pub row: SummaryRow,
}

/// The most holders whose requests have a row of their own.
const HOLDERS_MAX: usize = 4096;

impl Default for UsageSummary {
    /// Makes a summary over all time.
    fn default() -> Self {
        Self::new(Timestamp(0), Timestamp(u64::MAX))
    }
}

impl UsageSummary {
    /// Makes a summary over entries that end after `since` (0: from the beginning) and not after `until`.
    pub fn new(since: Timestamp, until: Timestamp) -> Self {
        Self { since, until, rows: BTreeMap::new(), requests: BTreeMap::new(), others: None }
    }

    /// Adds an entry of a ledger. The order of entries does not matter.
    pub fn add(&mut self, entry: &LedgerEntry) {
        let is_after_since = entry.end > self.since || self.since == Timestamp(0);
        if !is_after_since || entry.end > self.until {
            return;
        }
        match &entry.event {
            LedgerEvent::Usage { session, intervals, usage } => {
                self.add_to_session(session, entry, *intervals, |sum| sum.merge(usage));
            }
            LedgerEvent::Idle { idle } => {
                for (session, memory) in idle.iter() {
                    self.add_to_session(session, entry, 1, |sum| {
                        sum.memory = sum.memory.saturating_add(memory)
                    });
                }
            }
            LedgerEvent::Requests { key, credentials, count, refused, cpu } => {
                let usage = Usage { cpu: *cpu, refusals: *refused, ..Usage::default() };
                self.add_requests(entry, (key, credentials), *count, &usage);
            }
            LedgerEvent::Backlog { others, .. } if !others.is_empty() => {
                let row = self.others.get_or_insert_with(|| SummaryRow::for_first(entry));
                row.add(entry, 1);
                row.usage.merge(others);
            }
            _ => {}
        }
    }

    fn add_to_session(
        &mut self,
        session: &SessionId,
        entry: &LedgerEntry,
        intervals: u64,
        add: impl FnOnce(&mut Usage),
    ) {
        let row = match self.rows.get_mut(session) {
            Some(row) => row,
            None => self.rows.entry(session.clone()).or_insert_with(|| SummaryRow::for_first(entry)),
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
        let row = self.requests.entry(key).or_insert_with(|| RequestsRow {
            credentials: Vec::new(),
            count: 0,
            row: SummaryRow::for_first(entry),
        });
        row.credentials.clone_from(credentials);
        row.count = row.count.saturating_add(count);
        row.row.add(entry, 1);
        row.row.usage.merge(usage);
    }

    /// Returns the cost of requests, in the order of the holders' keys. The usage of sessions does not include it.
    pub fn requests(&self) -> impl Iterator<Item = (Option<&LedgerText>, &RequestsRow)> {
        self.requests.iter().map(|(key, row)| (key.as_ref(), row))
    }

    /// Removes the rows of requests, and returns them.
    pub fn take_requests(&mut self) -> impl Iterator<Item = (Option<LedgerText>, RequestsRow)> {
        std::mem::take(&mut self.requests).into_iter()
    }

    /// Returns the rows in the order of the sessions' names. A row without a session has usage of sessions for which
    /// there was no memory while the ledger could not be written.
    pub fn rows(&self) -> impl Iterator<Item = (Option<&SessionId>, &SummaryRow)> {
        let others = self.others.iter().map(|row| (None, row));
        others.chain(self.rows.iter().map(|(session, row)| (Some(session), row)))
    }

    /// Returns the number of sessions.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// Removes the row of a session, and returns it.
    pub fn take(&mut self, session: &SessionId) -> Option<SummaryRow> {
        self.rows.remove(session)
    }

    /// Removes all rows of sessions, and returns them in the order of the sessions' names.
    pub fn take_all(&mut self) -> impl Iterator<Item = (SessionId, SummaryRow)> {
        std::mem::take(&mut self.rows).into_iter()
    }

    /// Returns the sum over all sessions.
    pub fn total(&self) -> Usage {
        self.rows().map(|(_, row)| &row.usage).sum()
    }

    /// Returns a table, always with the same columns: a row for each session, and one for the requests of each holder.
    pub fn table(&self) -> LedgerTable {
        let mut columns = COLUMNS.to_vec();
        columns.extend(Usage::columns());
        let sessions = self.rows().map(|(session, row)| cells(session, row));
        let requests = self.requests().map(|(key, requests)| {
            let mut cells = cells(None, &requests.row);
            if let Some(first) = cells.first_mut() {
                let holder = key.map_or("several holders", LedgerText::as_str);
                *first = LedgerCell::Text(format!("(requests of {holder})"));
            }
            cells
        });
        LedgerTable::new(columns, sessions.chain(requests).collect())
    }
}

impl SummaryRow {
    /// Makes an empty row with the time range of its first entry.
    fn for_first(entry: &LedgerEntry) -> Self {
        Self { begin: entry.begin, end: entry.end, intervals: 0, usage: Usage::default() }
    }

    /// Extends the time range by an entry, and counts its intervals.
    fn add(&mut self, entry: &LedgerEntry, intervals: u64) {
        self.begin = self.begin.min(entry.begin);
        self.end = self.end.max(entry.end);
        self.intervals = self.intervals.saturating_add(intervals);
    }
}

/// The columns before those of [`Usage::columns`], in the order of [`cells`].
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
    let [before_memory, after_memory] = usage.groups();
    let mut cells = vec![
        session.map_or(LedgerCell::None, |session| LedgerCell::Text(session.name.to_string())),
        session.map_or(LedgerCell::None, |session| LedgerCell::Count(session.id)),
        LedgerCell::Text(show_time(row.begin)),
        LedgerCell::Text(show_time(row.end)),
        LedgerCell::Count(row.intervals),
    ];
    cells.extend(before_memory.iter().map(amount));
    cells.push(LedgerCell::Decimal { scaled: usage.memory.micro_mib_hours(), decimals: 6 });
    cells.extend(after_memory.iter().map(amount));
    cells.push(LedgerCell::Count(usage.records_lost()));
    cells.push(LedgerCell::Count(usage.drops.total(LostUnit::Packet)));
    cells.extend(DropCause::ALL.iter().map(|cause| LedgerCell::Count(usage.drops.get(*cause))));
    cells
}
