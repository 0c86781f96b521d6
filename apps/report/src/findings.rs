//! The findings of a module: rows of its stream `findings`, whose fields are the same for all modules.

use crate::value;
use weir_abi::finding::Severity;
use weir_admission::{DeclaredStream, Manifest, StreamField};
use weir_session::Record;

/// Findings that are kept of each module.
pub(crate) const FINDINGS_MAX: usize = 50;
/// Bytes that are kept of the text of a finding.
const TEXT_BYTES_MAX: usize = 600;
/// Bytes of the longest filter that is kept.
const FILTER_BYTES_MAX: usize = 1_000;
/// Bytes of the longest name of a stream.
const NAME_BYTES_MAX: usize = 64;

/// A finding of a module. Its texts are the module's, so they are not trusted.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) severity: Severity,
    /// Time in ns.
    pub(crate) time: u64,
    pub(crate) text: String,
    /// The filter expression that selects its packets.
    pub(crate) filter: FindingFilter,
    /// The name of the stream whose rows show it; empty if there is none.
    pub(crate) evidence: String,
}

/// The filter of a finding.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FindingFilter {
    /// The finding has no filter.
    None,
    /// An expression as the module wrote it.
    Expression(String),
    /// An expression that is too long to be kept.
    TooLong,
}

/// The findings of a module, in bounded memory.
#[derive(Debug)]
pub(crate) struct Findings {
    stream: u16,
    fields: [StreamField; 5],
    /// The number of findings of each of [`Severity::ALL`].
    counts: [u64; Severity::ALL.len()],
    /// The most severe findings; of equally severe ones the earliest.
    kept: Vec<Finding>,
}

impl Findings {
    /// Returns the findings of a module that has the stream; `None` for other modules.
    pub(crate) fn new(manifest: &Manifest) -> Option<Self> {
        let index = manifest.streams.iter().position(DeclaredStream::has_findings)?;
        let names = ["time", "severity", "text", "filter", "evidence"];
        let fields = value::fields(manifest.streams.get(index)?, names)?;
        Some(Self {
            stream: u16::try_from(index).ok()?,
            fields,
            counts: [0; Severity::ALL.len()],
            kept: Vec::new(),
        })
    }

    /// Counts a record if it is a finding, and keeps it if it is among the most severe.
    pub(crate) fn record(&mut self, record: &Record<'_>) {
        if record.stream == self.stream {
            self.add(record);
        }
    }

    fn add(&mut self, record: &Record<'_>) -> Option<()> {
        let [time, severity, text, filter, evidence] = &self.fields;
        let time = value::unsigned(time, record)?;
        let severity = Severity::from_number(value::unsigned(severity, record)?);
        let rank = Severity::ALL.iter().position(|known| *known == severity)?;
        let count = self.counts.get_mut(rank)?;
        *count = count.saturating_add(1);
        let is_before = |kept: &Finding| (severity, kept.time) > (kept.severity, time);
        let at = self.kept.partition_point(|kept| !is_before(kept));
        if at >= FINDINGS_MAX {
            return None;
        }
        let (mut text, is_cut) = value::text(text, record, TEXT_BYTES_MAX)?;
        if is_cut {
            text.push('…');
        }
        let filter = match value::text(filter, record, FILTER_BYTES_MAX)? {
            (_, true) => FindingFilter::TooLong,
            (filter, false) if filter.is_empty() => FindingFilter::None,
            (filter, false) => FindingFilter::Expression(filter),
        };
        let (evidence, _) = value::text(evidence, record, NAME_BYTES_MAX)?;
        self.kept.truncate(FINDINGS_MAX - 1);
        self.kept.insert(at, Finding { severity, time, text, filter, evidence });
        Some(())
    }

    /// The most severe findings, at most [`FINDINGS_MAX`]: by severity, then by time.
    pub(crate) fn most_severe(&self) -> &[Finding] {
        &self.kept
    }

    /// The numbers of findings by severity, without those of which there are none.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (Severity, u64)> {
        Severity::ALL.iter().copied().zip(self.counts).filter(|(_, count)| *count > 0)
    }

    /// The number of all findings.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}
