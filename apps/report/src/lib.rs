//! The report of a run: one HTML page with plots, which needs nothing but itself.
//!
//! [`RunReport`] is given what happens while it happens, and keeps aggregates of bounded size: it holds a few MiB at most, however
//! many packets and records there are. The page has no script and loads nothing; whatever a module or a capture brought into it is escaped, and a
//! content security policy forbids the rest.

#![forbid(unsafe_code)]

mod axis;
mod facts;
mod findings;
mod first_rows;
mod histogram;
mod page;
mod plot;
mod series;
mod sinks;
mod text;
mod top;
mod value;

pub use facts::{CaptureInfo, RunModuleInfo, StreamInfo};

use series::BinnedSeries;
use sinks::ModuleSinks;
use weir_units::Timestamp;
use {weir_admission::Manifest, weir_session::Record};

/// What is remembered of a run for its page.
#[derive(Debug, Default)]
pub struct RunReport {
    traffic: BinnedSeries<2>,
    modules: Vec<ModuleSinks>,
}

impl RunReport {
    /// Nothing has happened yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts packets at `ts` with so many bytes on the wire together. Packets that are reported together appear at one time: report them
    /// one by one (it takes a few ns), or in groups much shorter than the capture.
    pub fn traffic(&mut self, ts: Timestamp, packets: u64, wire_bytes: u64) {
        self.traffic.add(ts, [packets, wire_bytes]);
    }

    /// Announces a module under the name that the page shows. Returns its index for [`Self::record`].
    pub fn module(&mut self, label: &str, manifest: &Manifest) -> usize {
        self.modules.push(ModuleSinks::new(label, manifest));
        self.modules.len() - 1
    }

    /// Takes a record of a module into account. What does not fit the module's manifest is ignored.
    pub fn record(&mut self, module: usize, record: &Record<'_>) {
        if let Some(module) = self.modules.get_mut(module) {
            module.record(record);
        }
    }

    /// The page. `modules` are the facts of the modules in the order in which they were announced.
    pub fn render(&self, capture: &CaptureInfo, modules: &[RunModuleInfo]) -> String {
        page::render(&self.traffic, &self.modules, capture, modules)
    }
}
