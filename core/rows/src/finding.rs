//! Findings: records of a stream with a reserved name and fixed fields, which say what a module has found and where.

use crate::{UtcOffset, local, text};
use std::fmt::Write as _;
use weir_abi::finding::Severity;
use weir_admission::{FieldValue, Manifest, StreamField};
use weir_session::Record;
use weir_units::{Escape as _, Timestamp};

/// Reads the findings among the records of a module.
#[derive(Clone, Debug)]
pub struct FindingReader {
    stream: u16,
    fields: [StreamField; 5],
}

/// A finding. Its texts come from a module, so they are not escaped and can be anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindingRow<'a> {
    /// The time of the finding.
    pub time: Timestamp,
    /// The severity.
    pub severity: Severity,
    /// The text for people.
    pub text: &'a [u8],
    /// The pcap-filter expression that selects the packets concerned; empty for none.
    pub filter: &'a [u8],
    /// The name of the stream whose rows show the finding; empty for none.
    pub evidence: &'a [u8],
}

impl FindingReader {
    /// Returns the reader for a module; `None` if the module declares no stream of findings.
    pub fn of(manifest: &Manifest) -> Option<Self> {
        let (index, stream) =
            manifest.streams.iter().enumerate().find(|(_, stream)| stream.has_findings())?;
        // The manifest's parser declares the fields of findings, in the order of `weir_abi::finding::FIELDS`.
        let fields = stream.fields.clone().try_into().ok()?;
        Some(Self { stream: u16::try_from(index).ok()?, fields })
    }

    /// Returns the index of the stream of findings.
    pub fn stream(&self) -> u16 {
        self.stream
    }

    /// Reads a record; `None` for a record of another stream, or one that is too short.
    #[inline]
    pub fn read<'a>(&self, record: &Record<'a>) -> Option<FindingRow<'a>> {
        if record.stream != self.stream {
            return None;
        }
        let [time, severity, text, filter, evidence] = &self.fields;
        let number = |field: &StreamField| match field.read(record.row, record.tail)? {
            FieldValue::Unsigned(number) => Some(number),
            _ => None,
        };
        let bytes = |field: &StreamField| match field.read(record.row, record.tail)? {
            FieldValue::Bytes(bytes) => Some(bytes),
            _ => None,
        };
        Some(FindingRow {
            time: Timestamp(number(time)?),
            severity: Severity::from_number(number(severity)?),
            text: bytes(text)?,
            filter: bytes(filter)?,
            evidence: bytes(evidence)?,
        })
    }
}

impl FindingRow<'_> {
    /// Returns the finding as one line: time, severity, label of the module, text, and filter. All texts are escaped.
    pub fn line(&self, label: &str, offset: UtcOffset) -> String {
        let time = text::date(local(self.time, offset(self.time)), 6);
        let mut line = format!("{time}  {:<8}  ", self.severity.name().to_uppercase());
        let finding = String::from_utf8_lossy(self.text);
        let filter = String::from_utf8_lossy(self.filter);
        // Writing to a string cannot fail.
        let _ = write!(line, "{}: {}", label.escaped(), finding.escaped());
        if !filter.is_empty() {
            let _ = write!(line, "  [filter: {}]", filter.escaped());
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_session::RecordOrder;

    fn reader(name: &str) -> Option<FindingReader> {
        let fields =
            if name == "findings" { "" } else { "[[stream.field]]\nname='time'\ntype='timestamp'\n" };
        let text = format!(
            "name='m'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='s'\n[[stream]]\nname='{name}'\n{fields}"
        );
        FindingReader::of(&Manifest::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn the_reader_knows_the_order_of_the_declared_fields() {
        let names: Vec<&str> = weir_abi::finding::FIELDS.iter().map(|field| field.name).collect();
        assert_eq!(names, ["time", "severity", "text", "filter", "evidence"]);
    }

    /// A row with this severity, and fields of these lengths one after another in the tail.
    fn row(severity: u8, lens: [u32; 3]) -> Vec<u8> {
        let mut row = 1_700_000_000_123_456_789u64.to_le_bytes().to_vec();
        row.extend([severity, 0, 0, 0]);
        let mut at = 0;
        for len in lens {
            row.extend([at, len].into_iter().flat_map(u32::to_le_bytes));
            at += len;
        }
        row.resize(40, 0);
        row
    }

    #[test]
    fn a_finding_is_one_escaped_line() {
        let reader = reader("findings").unwrap();
        let tail = b"a\x1b[2J\nb\xfftcp port \x0780ev";
        let row = row(4, [8, 12, 2]);
        let record = Record { order: RecordOrder::packet(0), stream: 0, row: &row, tail };
        assert_eq!(
            reader.read(&record).unwrap().line("syn-flood", crate::utc),
            "2023-11-14 22:13:20.123456  HIGH      syn-flood: a\\u{1b}[2J\\nb\u{fffd}  [filter: tcp port \\u{7}80]"
        );
    }

    #[test]
    fn records_that_are_no_findings_are_not_read() {
        assert!(reader("alarms").is_none());
        let reader = reader("findings").unwrap();
        let whole = row(1, [0, 0, 0]);
        for (stream, row, is_read) in [
            (0, &whole[..], true),
            (1, &whole, false),
            (0, &whole[..20], false),
            (0, &row(1, [1, 0, 0]), false),
            (0, &row(1, [u32::MAX, u32::MAX - 1, 2]), false),
        ] {
            let record = Record { order: RecordOrder::packet(0), stream, row, tail: b"" };
            assert_eq!(reader.read(&record).is_some(), is_read, "{stream} {row:?}");
        }
    }
}
