//! Findings: records of a stream with a reserved name and fixed fields, which say what a module has found and where.

use crate::{UtcOffset, local, text};
use std::fmt::Write as _;
use weir_abi::row::FieldType;
use weir_admission::{DeclaredStream, FieldValue, Manifest, StreamField};
use weir_session::Record;
use weir_units::{Escape as _, Timestamp};

/// The name of the stream of findings.
pub const FINDINGS: &str = "findings";
/// The words for the severities 1 to 5 of a finding (OCSF, `severity_id`), and for all other numbers.
pub const SEVERITY_WORDS: [&str; 6] = ["informational", "low", "medium", "high", "critical", "other"];
/// The fields of a finding, in any order.
const FIELDS: [(&str, FieldType); 5] = [
    ("time", FieldType::Timestamp),
    ("severity", FieldType::U8),
    ("text", FieldType::String),
    ("filter", FieldType::String),
    ("evidence", FieldType::String),
];

/// The index of a severity in [`SEVERITY_WORDS`].
pub fn severity_index(severity: u8) -> usize {
    match severity {
        1..=5 => usize::from(severity) - 1,
        _ => SEVERITY_WORDS.len() - 1,
    }
}

/// The word for a severity.
pub fn severity_word(severity: u8) -> &'static str {
    SEVERITY_WORDS.get(severity_index(severity)).copied().unwrap_or_default()
}

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
    /// The severity: 1 informational, 2 low, 3 medium, 4 high, 5 critical.
    pub severity: u8,
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
        let (index, stream) = manifest.streams.iter().enumerate().find(|(_, stream)| is_findings(stream))?;
        let field = |(name, _): (&str, FieldType)| {
            stream.fields.iter().find(|field| field.name.as_str() == name).cloned()
        };
        let fields: Vec<StreamField> = FIELDS.into_iter().filter_map(field).collect();
        Some(Self { stream: u16::try_from(index).ok()?, fields: fields.try_into().ok()? })
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
            severity: u8::try_from(number(severity)?).ok()?,
            text: bytes(text)?,
            filter: bytes(filter)?,
            evidence: bytes(evidence)?,
        })
    }
}

/// Returns true for a stream of findings: one with the reserved name and all fields of a finding.
fn is_findings(stream: &DeclaredStream) -> bool {
    let has = |(name, ty): &(&str, FieldType)| {
        stream.fields.iter().any(|field| field.name.as_str() == *name && field.ty == *ty)
    };
    stream.name.as_str() == FINDINGS && FIELDS.iter().all(has)
}

impl FindingRow<'_> {
    /// Returns the finding as one line: time, severity, label of the module, text, and filter. All texts are escaped.
    pub fn line(&self, label: &str, offset: UtcOffset) -> String {
        let time = text::date(local(self.time, offset(self.time)), 6);
        let mut line = format!("{time}  {:<8}  ", severity_word(self.severity).to_uppercase());
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

    const STREAM: &str = "name='m'\nversion='1'\nabi=2\nlicense='MIT'\nsummary='s'\n[[stream]]\nname='NAME'\n\
        [[stream.field]]\nname='time'\ntype='timestamp'\n[[stream.field]]\nname='severity'\ntype='TYPE'\n\
        [[stream.field]]\nname='text'\ntype='string'\n[[stream.field]]\nname='filter'\ntype='string'\n\
        [[stream.field]]\nname='evidence'\ntype='string'\n";

    fn reader(name: &str, ty: &str) -> Option<FindingReader> {
        let text = STREAM.replace("NAME", name).replace("TYPE", ty);
        FindingReader::of(&Manifest::parse(text.as_bytes()).unwrap())
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
        let reader = reader(FINDINGS, "u8").unwrap();
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
        assert!(reader("alarms", "u8").is_none() && reader(FINDINGS, "u32").is_none());
        let reader = reader(FINDINGS, "u8").unwrap();
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

    #[test]
    fn severities_beyond_the_five_have_one_word() {
        let words: Vec<&str> = [0, 1, 2, 3, 4, 5, 6, 99, 255].map(severity_word).to_vec();
        assert_eq!(
            words,
            ["other", "informational", "low", "medium", "high", "critical", "other", "other", "other"]
        );
    }
}
