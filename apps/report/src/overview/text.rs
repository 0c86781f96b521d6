//! The overview as text for a terminal.

use super::digest::{
    OverviewDigest, ProblemRow, RankedRows, ServiceRow, SlowRow, SuspectRow, TalkerRow, address,
};
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use weir_rows::text::{duration, significant, with_commas};
use weir_rows::{UtcOffset, shown_time};
use weir_units::{Bytes, escaped_prefix, is_plain};

/// The most rows of each table on a terminal.
const LINES_MAX: usize = 10;
/// The most characters of a name in a table.
const NAME_CHARS_MAX: usize = 40;
/// The most characters of a sentence with foreign names.
const TEXT_CHARS_MAX: usize = 400;

impl OverviewDigest {
    /// Formats the digest for a terminal: a few short tables, each with the number of rows that it leaves out. Untrusted
    /// text is escaped and cut. Times are local by `offset`.
    pub fn text(&self, offset: UtcOffset) -> String {
        let mut out = String::new();
        self.push_suspects(&mut out, offset);
        self.push_problems(&mut out, offset);
        self.push_slow(&mut out);
        self.push_services(&mut out);
        self.push_talkers(&mut out);
        out
    }

    fn push_suspects(&self, out: &mut String, offset: UtcOffset) {
        if self.suspects.rows.is_empty() {
            if self.is_quiet() {
                out.push_str(
                    "nothing suspicious: the modules have no finding to act on, and no host or service stands out\n\n",
                );
            }
            return;
        }
        let line = |SuspectRow { host, severity, first, last, reasons }: &SuspectRow| {
            let severity = severity.name().to_uppercase();
            let (first, last) = (shown_time(*first, offset, 0), shown_time(*last, offset, 0));
            let reasons = shortened(&reasons.join("; "), TEXT_CHARS_MAX);
            vec![
                format!("{first} to {}", last.get(11..).unwrap_or_default()),
                severity,
                address(*host),
                reasons,
            ]
        };
        push_table(out, "suspicious hosts:", &[], &self.suspects, "hosts", line);
    }

    fn push_problems(&self, out: &mut String, offset: UtcOffset) {
        if self.problems.rows.is_empty() {
            return;
        }
        let line = |ProblemRow { service, text, first, last, .. }: &ProblemRow| {
            let (first, last) = (shown_time(*first, offset, 0), shown_time(*last, offset, 0));
            vec![
                format!("{first} to {}", last.get(11..).unwrap_or_default()),
                shortened(service, 2 * NAME_CHARS_MAX),
                shortened(text, TEXT_CHARS_MAX),
            ]
        };
        push_table(out, "services with problems:", &[], &self.problems, "services", line);
    }

    fn push_slow(&self, out: &mut String) {
        let slow: Vec<SlowRow> = self.slow.rows.iter().filter(|row| row.is_slow).cloned().collect();
        if slow.is_empty() {
            let Some(slowest) = self.slow.rows.first() else { return };
            let _ = writeln!(
                out,
                "slow services: none; the slowest is {}: nine of ten {}s within {}\n",
                shortened(&slowest.service, 2 * NAME_CHARS_MAX),
                slowest.measure,
                time(slowest.high_ns)
            );
            return;
        }
        let others = if slow.len() == self.slow.rows.len() { self.slow.others } else { 0 };
        let slow = RankedRows { rows: slow, others };
        let head = ["SERVICE", "TIME OF", "COUNT", "MEDIAN", "90 %", "LONGEST"];
        let line = |row: &SlowRow| {
            vec![
                shortened(&row.service, 2 * NAME_CHARS_MAX),
                row.measure.to_owned(),
                with_commas(row.count),
                time(row.median_ns),
                time(row.high_ns),
                time(row.longest_ns),
            ]
        };
        push_table(
            out,
            "slow services (half of the answers take half a second or longer; of ten or more, a tenth suffices):",
            &head,
            &slow,
            "services",
            line,
        );
    }

    fn push_services(&self, out: &mut String) {
        if self.services.rows.is_empty() {
            return;
        }
        let head = ["SERVICE", "ADDRESS", "PORT", "PROTOCOL", "CONNECTIONS", "BYTES"];
        let line = |row: &ServiceRow| {
            vec![
                service_name(row),
                addresses(&row.addresses, row.other_addresses),
                row.port.clone(),
                shortened(&row.protocol, NAME_CHARS_MAX),
                with_commas(row.connections),
                row.bytes.map_or_else(|| "–".to_owned(), |bytes| Bytes(bytes).to_string()),
            ]
        };
        let title = if self.services.rows.iter().any(|row| row.bytes.is_some()) {
            "services, by bytes:"
        } else {
            "services, by connections:"
        };
        push_table(out, title, &head, &self.services, "services", line);
    }

    fn push_talkers(&self, out: &mut String) {
        if self.talkers.rows.is_empty() {
            return;
        }
        let line = |TalkerRow { host, bytes, share }: &TalkerRow| {
            let percent = if *share < 0.001 {
                "<0.1".to_owned()
            } else {
                significant((share * 1_000.0).round() / 10.0)
            };
            vec![address(*host), format!("{percent} %"), Bytes(*bytes).to_string()]
        };
        push_table(out, "talkers, by their share of all bytes:", &[], &self.talkers, "hosts", line);
    }
}

/// The name of a service with the number of its other names; `–` without a name.
pub(crate) fn service_name(row: &ServiceRow) -> String {
    let Some(name) = &row.name else { return "–".to_owned() };
    let name = shortened(name, NAME_CHARS_MAX);
    if row.other_names.is_empty() { name } else { format!("{name} and {} other", row.other_names) }
}

/// The addresses of a service on a terminal: the first one, and the number of the others.
fn addresses(shown: &[Ipv6Addr], others: u64) -> String {
    let first = shown.first().map(|first| address(*first)).unwrap_or_default();
    match others + shown.len().saturating_sub(1) as u64 {
        0 => first,
        others => format!("{first} +{}", with_commas(others)),
    }
}

/// A duration with a plain space.
fn time(ns: u64) -> String {
    duration(crate::series::float(ns)).replace('\u{202f}', " ")
}

/// Escapes a foreign text, and cuts it; a cut text ends with `…`.
pub(crate) fn shortened(text: &str, characters_max: usize) -> String {
    let mut shown = escaped_prefix(text, characters_max);
    if text.chars().nth(characters_max).is_some() {
        shown.push('…');
    }
    debug_assert!(shown.chars().all(is_plain));
    shown
}

/// Appends a table with a title: the first rows with columns as wide as their widest cell, and the number of others.
/// Columns of numbers, which follow `PROTOCOL` or `TIME OF`, are aligned to the right.
fn push_table<T>(
    out: &mut String,
    title: &str,
    head: &[&str],
    rows: &RankedRows<T>,
    noun: &str,
    line: impl Fn(&T) -> Vec<String>,
) {
    let mut lines: Vec<Vec<String>> = Vec::new();
    if !head.is_empty() {
        lines.push(head.iter().map(|name| (*name).to_owned()).collect());
    }
    lines.extend(rows.rows.iter().take(LINES_MAX).map(line));
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        lines.iter().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let first_number =
        head.iter().position(|name| ["COUNT", "CONNECTIONS"].contains(name)).unwrap_or(usize::MAX);
    out.push_str(title);
    out.push('\n');
    for line in &lines {
        let mut text = String::new();
        for (index, (cell, width)) in line.iter().zip(&widths).enumerate() {
            let gap = if index == 0 { "" } else { "  " };
            // Writing to a string cannot fail.
            let _ = if index >= first_number {
                write!(text, "{gap}{cell:>width$}")
            } else {
                write!(text, "{gap}{cell:width$}")
            };
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    let more = rows.others + rows.rows.len().saturating_sub(LINES_MAX) as u64;
    if more > 0 {
        let _ = writeln!(out, "… and {} other {noun}", with_commas(more));
    }
    out.push('\n');
}
