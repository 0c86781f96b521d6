//! The records of each module in the report: its findings, a preview of every stream, and the summary of a shipped module.

use crate::first_rows::FirstRows;
use crate::run_info::RunModuleInfo;
use crate::summaries;
use maud::Markup;
use std::fmt::Debug;
use weir_rows::{FindingGroups, FindingReader};
use {
    weir_admission::{Manifest, Name},
    weir_session::Record,
};

/// Rows of a stream that the page shows.
const PREVIEW_ROWS: usize = 10;
/// Groups of findings that are kept of each module.
const FINDINGS_MAX: usize = 50;

/// Accumulates the records of a shipped module, and renders a section of the page from them.
pub(crate) trait RecordSummary: Debug + Send {
    /// Adds a record of the stream with this index.
    fn record(&mut self, stream: u16, record: &Record<'_>);

    /// Renders the section; `None` without records.
    fn section(&self, context: &SectionContext<'_>) -> Option<ReportSection>;
}

/// Facts of the run that sections need.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionContext<'a> {
    /// Time of the first packet, ns; `None` without packets.
    pub(crate) start: Option<u64>,
    /// Seconds from the first packet to the last.
    pub(crate) seconds: f64,
    /// The label of the module, which is unique on the page.
    pub(crate) label: &'a str,
    /// Facts of the module, if known.
    pub(crate) facts: Option<&'a RunModuleInfo>,
}

impl SectionContext<'_> {
    /// Seconds from the first packet to `ts`; from `first` if the time of the first packet is not known.
    pub(crate) fn elapsed(&self, ts: u64, first: u64) -> f64 {
        crate::series::float(ts.saturating_sub(self.start.unwrap_or(first))) / 1e9
    }
}

/// A section of the page.
#[derive(Debug)]
pub(crate) struct ReportSection {
    /// The heading.
    pub(crate) title: &'static str,
    /// One or two sentences.
    pub(crate) note: String,
    /// The plots and tables.
    pub(crate) body: Markup,
    /// A card for the top of the page.
    pub(crate) highlight: Option<Highlight>,
}

/// A card with a key figure.
#[derive(Debug)]
pub(crate) struct Highlight {
    /// The name of the figure.
    pub(crate) label: &'static str,
    /// The figure.
    pub(crate) value: String,
    /// Details.
    pub(crate) detail: String,
}

/// The name and first rows of a stream.
#[derive(Debug)]
pub(crate) struct StreamPreview {
    pub(crate) name: Name,
    /// The description of the stream in the manifest.
    pub(crate) description: String,
    pub(crate) rows: FirstRows,
}

/// The findings of a module, in bounded memory.
#[derive(Debug)]
pub(crate) struct ModuleFindings {
    reader: FindingReader,
    pub(crate) groups: FindingGroups,
}

impl ModuleFindings {
    /// Returns the findings of a module that has the stream; `None` for other modules.
    fn new(manifest: &Manifest) -> Option<Self> {
        Some(Self { reader: FindingReader::of(manifest)?, groups: FindingGroups::new(FINDINGS_MAX) })
    }
}

/// The records of one module.
#[derive(Debug)]
pub(crate) struct ModuleRecords {
    pub(crate) label: String,
    /// The summary, for a shipped module.
    pub(crate) summary: Option<Box<dyn RecordSummary>>,
    /// The findings; `None` if the module reports none.
    pub(crate) findings: Option<ModuleFindings>,
    pub(crate) streams: Vec<StreamPreview>,
}

impl ModuleRecords {
    pub(crate) fn new(label: &str, manifest: &Manifest) -> Self {
        let streams = manifest
            .streams
            .iter()
            .map(|stream| StreamPreview {
                name: stream.name.clone(),
                description: stream.summary.clone(),
                rows: FirstRows::new(stream, PREVIEW_ROWS),
            })
            .collect();
        Self {
            label: label.to_owned(),
            summary: summaries::for_module(manifest),
            findings: ModuleFindings::new(manifest),
            streams,
        }
    }

    pub(crate) fn record(&mut self, record: &Record<'_>) {
        let Some(stream) = self.streams.get_mut(usize::from(record.stream)) else { return };
        stream.rows.record(record);
        if let Some(ModuleFindings { reader, groups }) = &mut self.findings
            && let Some(finding) = reader.read(record)
        {
            groups.add(0, &finding);
        }
        if let Some(summary) = &mut self.summary {
            summary.record(record.stream, record);
        }
    }
}
