//! The last hour of a node and of its sessions, one sample a second, in bounded memory.

use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use weir_node::client::rates::{OutputRates, SnapshotRates};
use weir_node::control::protocol::{SessionStatus, Snapshot};

/// The most samples: an hour.
pub const SAMPLES_MAX: usize = 3600;
/// The most sessions whose history is kept. Further sessions have none, until another one ends.
pub const SESSIONS_MAX: usize = 1000;
/// The most columns of the node's own history.
const NODE_COLUMNS_MAX: usize = 256;

/// A number of a session or node at one time, such as a rate or an amount; `None` if it is unknown.
type SampleValue = Option<f64>;

/// The numbers of one session or node over time. The columns and the times have equal lengths. Unknown numbers are NaN.
#[derive(Debug, Default)]
struct Samples {
    /// The time of each sample, in ms since 1970.
    at_ms: VecDeque<u64>,
    /// The numbers of each column, by its name.
    columns: BTreeMap<String, VecDeque<f32>>,
}

impl Samples {
    /// Adds a sample, which can have new columns as long as there are fewer than `columns_max`.
    fn push(&mut self, at_ms: u64, values: impl Iterator<Item = (String, SampleValue)>, columns_max: usize) {
        let present: BTreeMap<String, SampleValue> = values.collect();
        for name in present.keys() {
            if !self.columns.contains_key(name) && self.columns.len() < columns_max {
                let unknown = std::iter::repeat_n(f32::NAN, self.at_ms.len());
                self.columns.insert(name.clone(), unknown.collect());
            }
        }
        self.at_ms.push_back(at_ms);
        for (name, column) in &mut self.columns {
            let value = present.get(name).copied().flatten();
            column.push_back(value.map_or(f32::NAN, single));
        }
        if self.at_ms.len() > SAMPLES_MAX {
            self.at_ms.pop_front();
            for column in self.columns.values_mut() {
                column.pop_front();
            }
        }
        // Removes the columns of parts that do not exist any more, once they have only unknown numbers: an hour after the
        // part was removed.
        self.columns
            .retain(|name, column| present.contains_key(name) || column.iter().any(|it| !it.is_nan()));
    }
}

/// Rounds a number to single precision, which suffices for a plot and halves the memory.
#[expect(clippy::cast_possible_truncation, reason = "for a plot")]
fn single(value: f64) -> f32 {
    value as f32
}

#[expect(clippy::cast_precision_loss, reason = "for a plot")]
fn number(value: u64) -> SampleValue {
    Some(value as f64)
}

/// The history of a node and its sessions.
#[derive(Debug, Default)]
pub struct History {
    node: Samples,
    sessions: BTreeMap<String, Samples>,
}

/// A history in the form that the page reads. Unknown numbers are null.
#[derive(Debug, Default, PartialEq, Serialize)]
pub struct HistoryColumns<'a> {
    /// The time of each sample, in ms since 1970.
    at_ms: Vec<u64>,
    /// The numbers of each column.
    columns: BTreeMap<&'a str, Vec<Option<f32>>>,
}

impl History {
    /// Adds a snapshot with its rates. The history of sessions that have ended is dropped.
    pub fn push(&mut self, snapshot: &Snapshot, rates: &SnapshotRates) {
        let at_ms = snapshot.at_ns / 1_000_000;
        self.node.push(at_ms, node_values(snapshot, rates), NODE_COLUMNS_MAX);
        self.sessions.retain(|name, _| snapshot.sessions.iter().any(|session| session.name == *name));
        for (session, rates) in snapshot.sessions.iter().zip(&rates.sessions) {
            if !self.sessions.contains_key(&session.name) && self.sessions.len() >= SESSIONS_MAX {
                continue;
            }
            let values = session_values(session, rates).map(|(name, value)| (name.to_owned(), value));
            self.sessions.entry(session.name.clone()).or_default().push(
                at_ms,
                values.into_iter(),
                usize::MAX,
            );
        }
    }

    /// Returns the history of a session, or of the node; empty for a session without one.
    pub fn columns(&self, session: Option<&str>) -> HistoryColumns<'_> {
        let samples = match session {
            None => Some(&self.node),
            Some(name) => self.sessions.get(name),
        };
        let Some(samples) = samples else { return HistoryColumns::default() };
        let known =
            |column: &VecDeque<f32>| column.iter().map(|it| Some(*it).filter(|it| it.is_finite())).collect();
        HistoryColumns {
            at_ms: samples.at_ms.iter().copied().collect(),
            columns: samples.columns.iter().map(|(name, column)| (name.as_str(), known(column))).collect(),
        }
    }
}

fn sum(rates: impl Iterator<Item = SampleValue>) -> SampleValue {
    rates.flatten().reduce(|sum, rate| sum + rate)
}

/// Returns the numbers of a session: shares of a core, bytes, bits per second on the wire, and counts per second.
fn session_values(
    session: &SessionStatus,
    rates: &weir_node::client::rates::SessionRates,
) -> [(&'static str, SampleValue); 9] {
    let promised = session.cpu.iter().filter(|cpu| cpu.period_ns > 0);
    let promised = promised.map(|cpu| Some(number(cpu.slice_ns)? / number(cpu.period_ns)?));
    let bits = |outputs: &[OutputRates]| sum(outputs.iter().map(|output| output.bits));
    [
        ("cpu", rates.cpu),
        ("cpu_promised", Some(sum(promised).unwrap_or(0.0))),
        ("memory", number(session.memory_used)),
        ("memory_promised", number(session.memory_reserved)),
        ("bandwidth", bits(&rates.outputs)),
        ("bandwidth_promised", number(session.outputs.iter().map(|output| output.reserved_bits).sum())),
        ("packets", rates.packets),
        ("drops", rates.drops),
        ("records", rates.records),
    ]
}

/// Returns the numbers of a node: shares of cores, and rates of interfaces and links.
fn node_values(snapshot: &Snapshot, rates: &SnapshotRates) -> impl Iterator<Item = (String, SampleValue)> {
    let share = |ppm: u32| Some(f64::from(ppm) / 1e6);
    let cores = snapshot.cores.iter().zip(&rates.cores).flat_map(move |(core, rates)| {
        let name = |column: &str| format!("core {} {column}", core.core);
        [
            (name("busy"), rates.busy),
            (name("promised"), share(core.reserved_ppm)),
            (name("stolen"), rates.stolen),
        ]
    });
    let interfaces = snapshot.interfaces.iter().zip(&rates.interfaces).flat_map(|(interface, rates)| {
        let name = |column: &str| format!("interface {} {column}", interface.name);
        [(name("bits"), rates.bits), (name("packets"), rates.packets), (name("missed"), rates.missed)]
    });
    let links = snapshot.links.iter().zip(&rates.links).flat_map(|(link, rates)| {
        let name = |column: &str| format!("link {} {column}", link.name);
        [
            (name("bits"), rates.bits),
            (name("promised"), number(link.reserved_bits)),
            (name("drops"), rates.drops),
        ]
    });
    cores.chain(interfaces).chain(links).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at_s: u64) -> Snapshot {
        let mut snapshot: Snapshot =
            serde_json::from_str(include_str!("../../node/tests/snapshot.json")).unwrap();
        snapshot.at_ns = at_s * 1_000_000_000;
        snapshot.uptime_ns += at_s * 1_000_000_000;
        snapshot
    }

    #[test]
    fn an_hour_is_kept_and_equal_lengths_are_returned() {
        let mut history = History::default();
        let mut before: Option<Snapshot> = None;
        for at in 0..SAMPLES_MAX as u64 + 10 {
            let now = snapshot(at);
            history.push(&now, &SnapshotRates::between(before.as_ref(), &now));
            before = Some(now);
        }
        let name = before.unwrap().sessions[0].name.clone();
        for columns in [history.columns(None), history.columns(Some(&name))] {
            assert_eq!(columns.at_ms.len(), SAMPLES_MAX);
            assert_eq!(columns.at_ms[0], 10_000, "the oldest samples are dropped");
            assert!(!columns.columns.is_empty());
            assert!(columns.columns.values().all(|column| column.len() == SAMPLES_MAX));
        }
        assert_eq!(history.columns(Some("other")), HistoryColumns::default());
    }

    #[test]
    fn unknown_numbers_are_null_and_ended_sessions_are_dropped() {
        let mut history = History::default();
        let mut now = snapshot(1);
        history.push(&now, &SnapshotRates::between(None, &now));
        let name = now.sessions[0].name.clone();
        let text = serde_json::to_string(&history.columns(Some(&name))).unwrap();
        assert!(text.contains("\"cpu\":[null]"), "{text}");
        now.sessions.remove(0);
        history.push(&now, &SnapshotRates::between(None, &now));
        assert!(history.columns(Some(&name)).at_ms.is_empty());
    }
}
