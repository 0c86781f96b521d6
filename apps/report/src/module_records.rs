//! Which stream goes into which plot.

use crate::facts::RunModuleInfo;
use crate::findings;
use crate::first_rows::FirstRows;
use std::fmt::Debug;
use {
    weir_admission::{Manifest, Name},
    weir_session::Record,
};

/// Rows of a stream that are shown where nothing else is made of it.
const PREVIEW_ROWS: usize = 10;

/// What is made of a shipped module's records.
pub(crate) trait Finding: Debug + Send {
    /// Takes a record of the stream with this index.
    fn record(&mut self, stream: u16, record: &Record<'_>);

    /// What to show; `None` where there was nothing.
    fn section(&self, context: &SectionContext<'_>) -> Option<ReportSection>;
}

/// What a section needs to know of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionContext<'a> {
    /// Time of the first packet, ns; `None` without packets.
    pub(crate) start: Option<u64>,
    /// Seconds from the first packet to the last.
    pub(crate) seconds: f64,
    /// The module.
    pub(crate) facts: Option<&'a RunModuleInfo>,
}

impl SectionContext<'_> {
    /// Seconds from the first packet, or from `first` where that is not known.
    pub(crate) fn elapsed(&self, ts: u64, first: u64) -> f64 {
        crate::series::float(ts.saturating_sub(self.start.unwrap_or(first))) / 1e9
    }
}

/// A part of the page.
#[derive(Debug)]
pub(crate) struct ReportSection {
    /// Its heading.
    pub(crate) title: &'static str,
    /// One or two sentences, as HTML.
    pub(crate) note: String,
    /// The plots and tables, as HTML.
    pub(crate) body: String,
    /// What goes to the top of the page.
    pub(crate) highlight: Option<Highlight>,
}

/// A number that matters.
#[derive(Debug)]
pub(crate) struct Highlight {
    /// What it is.
    pub(crate) label: &'static str,
    /// The number; text, not HTML.
    pub(crate) value: String,
    /// More about it; text, not HTML.
    pub(crate) detail: String,
    /// Whether somebody should look at it.
    pub(crate) alarm: bool,
}

/// A module's streams.
#[derive(Debug)]
pub(crate) struct ModuleSinks {
    pub(crate) label: String,
    pub(crate) finding: Option<Box<dyn Finding>>,
    pub(crate) streams: Vec<(Name, String, FirstRows)>,
}

impl ModuleSinks {
    pub(crate) fn new(label: &str, manifest: &Manifest) -> Self {
        let streams = manifest
            .streams
            .iter()
            .map(|stream| (stream.name.clone(), stream.summary.clone(), FirstRows::new(stream, PREVIEW_ROWS)))
            .collect();
        Self { label: label.to_owned(), finding: findings::of(manifest), streams }
    }

    pub(crate) fn record(&mut self, record: &Record<'_>) {
        let Some((_, _, rows)) = self.streams.get_mut(usize::from(record.stream)) else { return };
        rows.record(record);
        if let Some(finding) = &mut self.finding {
            finding.record(record.stream, record);
        }
    }
}
