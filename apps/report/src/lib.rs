//! The report of a run: one self-contained HTML page with plots.
//!
//! [`RunReport`] receives packets and records during the run, and keeps aggregates of bounded size: a few MiB for any number of packets
//! and records. The page has no script and loads nothing. Text from modules and captures is escaped, and a content security policy
//! forbids scripts and requests.

#![forbid(unsafe_code)]

mod axis;
mod first_rows;
mod goodness_of_fit;
mod histogram;
mod html;
mod module_records;
mod page;
mod plot;
mod run_info;
mod series;
mod summaries;
mod top;
mod value;

pub use run_info::{CaptureInfo, RunModuleInfo, StreamInfo};

use module_records::ModuleRecords;
use series::BinnedSeries;
use weir_units::Timestamp;
use {weir_admission::Manifest, weir_session::Record};

/// Aggregates of a run for its page.
#[derive(Debug, Default)]
pub struct RunReport {
    traffic: BinnedSeries<2>,
    modules: Vec<ModuleRecords>,
}

impl RunReport {
    /// Creates an empty report.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts packets at the time `ts`, with `wire_bytes` bytes on the wire in total. Packets of one call are plotted at one time, so add
    /// them one by one (a few ns each), or in groups much shorter than the capture.
    pub fn add_packets(&mut self, ts: Timestamp, packets: u64, wire_bytes: u64) {
        self.traffic.add(ts, [packets, wire_bytes]);
    }

    /// Adds a module under a label that the page shows. Returns its index for [`Self::add_record`].
    pub fn add_module(&mut self, label: &str, manifest: &Manifest) -> usize {
        self.modules.push(ModuleRecords::new(label, manifest));
        self.modules.len() - 1
    }

    /// Adds a record of a module. A record that does not fit the module's manifest is ignored.
    pub fn add_record(&mut self, module: usize, record: &Record<'_>) {
        if let Some(module) = self.modules.get_mut(module) {
            module.record(record);
        }
    }

    /// Renders the page. `modules` has the information of the modules, in the order in which they were added.
    pub fn render(&self, capture: &CaptureInfo, modules: &[RunModuleInfo]) -> String {
        page::render(&self.traffic, &self.modules, capture, modules)
    }
}
