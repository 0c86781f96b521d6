//! Packets whose payload matched.

use super::{StreamFields, stream_fields};
use crate::first_rows::FirstRows;
use crate::module_records::{Highlight, RecordSummary, ReportSection, SectionContext};
use crate::top::TopKeys;
use crate::value;
use maud::html;
use std::net::Ipv6Addr;
use weir_rows::text::grouped;
use {
    weir_admission::{Manifest, StreamField},
    weir_session::Record,
};

const ROWS: usize = 50;

/// Summary of modules `worm` and `payload-match`: packets whose payload matched.
#[derive(Debug)]
pub(crate) struct MatchSummary {
    title: &'static str,
    label: &'static str,
    stream: u16,
    source: StreamField,
    rows: FirstRows,
    sources: TopKeys<Ipv6Addr, ()>,
}

impl MatchSummary {
    pub(crate) fn worm(manifest: &Manifest) -> Option<Self> {
        Self::new(manifest, "hits", "Worm signatures", "Worm signature hits")
    }

    pub(crate) fn payload(manifest: &Manifest) -> Option<Self> {
        Self::new(manifest, "matches", "Payload matches", "Payload matches")
    }

    fn new(manifest: &Manifest, name: &str, title: &'static str, label: &'static str) -> Option<Self> {
        let StreamFields { stream: index, fields: [source] } = stream_fields(manifest, name, ["src"])?;
        let rows = FirstRows::new(manifest.streams.get(usize::from(index))?, ROWS);
        Some(Self { title, label, stream: index, source, rows, sources: TopKeys::default() })
    }
}

impl RecordSummary for MatchSummary {
    fn record(&mut self, stream: u16, record: &Record<'_>) {
        if stream == self.stream {
            self.rows.record(record);
            if let Some(source) = value::address(&self.source, record) {
                self.sources.add(source, 1);
            }
        }
    }

    fn section(&self, context: &SectionContext<'_>) -> Option<ReportSection> {
        let total = self.rows.total;
        let highlight = Some(Highlight {
            label: self.label,
            value: if total == 0 { "none".to_owned() } else { grouped(total) },
            detail: match self.sources.heaviest(1).first() {
                Some((address, count, ())) => {
                    format!("most from {} ({})", weir_units::AddressText::new(*address), grouped(*count))
                }
                None => "in the packets examined".to_owned(),
            },
        });
        Some(ReportSection {
            title: self.title,
            note: if total == 0 {
                "Nothing was found.".to_owned()
            } else {
                self.rows.row_count() + ", oldest first."
            },
            body: if total == 0 {
                html! {}
            } else {
                self.rows.html(&format!("{} ({})", self.title, context.label))
            },
            highlight,
        })
    }
}
