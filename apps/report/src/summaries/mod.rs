//! Summaries of the records of shipped modules.

mod flood;
mod flows;
mod hits;
mod ports;
mod rtt;
mod scaling;

use crate::module_records::RecordSummary;
use crate::value;
use weir_admission::{Manifest, StreamField};

/// Returns the summary for a shipped module, identified by its name; `None` if it lacks the necessary streams and fields.
pub(crate) fn for_module(manifest: &Manifest) -> Option<Box<dyn RecordSummary>> {
    fn boxed(summary: impl RecordSummary + 'static) -> Box<dyn RecordSummary> {
        Box::new(summary)
    }
    match manifest.name.as_str() {
        "rtt" => rtt::RttSummary::new(manifest).map(boxed),
        "syn-flood" => flood::FloodSummary::new(manifest).map(boxed),
        "lrd" => scaling::ScalingSummary::new(manifest).map(boxed),
        "trajectory" => flows::FlowSummary::new(manifest).map(boxed),
        "port-count" => ports::PortSummary::new(manifest).map(boxed),
        "worm" => hits::MatchSummary::worm(manifest).map(boxed),
        "payload-match" => hits::MatchSummary::payload(manifest).map(boxed),
        _ => None,
    }
}

/// A stream, and the fields of it that a summary reads.
#[derive(Debug)]
pub(crate) struct StreamFields<const N: usize> {
    /// The index of the stream.
    pub(crate) stream: u16,
    pub(crate) fields: [StreamField; N],
}

/// Finds a stream and its fields by name; `None` if one is missing.
pub(crate) fn stream_fields<const N: usize>(
    manifest: &Manifest,
    name: &str,
    fields: [&str; N],
) -> Option<StreamFields<N>> {
    let index = manifest.streams.iter().position(|stream| stream.name.as_str() == name)?;
    let fields = value::fields(manifest.streams.get(index)?, fields)?;
    Some(StreamFields { stream: u16::try_from(index).ok()?, fields })
}
