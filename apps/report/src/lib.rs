//! The report of a run: one self-contained HTML page with plots.
//!
//! [`RunReport`] receives packets and records during the run, and keeps aggregates of bounded size: a few MiB for any number of packets
//! and records. The page has no script and loads nothing. Text from modules and captures is escaped, and a content security policy
//! forbids scripts and requests. The page is for the operator who runs the modules, so it shows true addresses.

#![forbid(unsafe_code)]

mod axis;
mod first_rows;
mod goodness_of_fit;
mod histogram;
mod module_records;
mod overview;
mod page;
mod plot;
mod protocols;
mod run_info;
mod series;
mod summaries;
mod table;
mod talkers;
mod top;
mod value;

pub use overview::{
    Overview, OverviewDigest, ProblemRow, RankedRows, ServiceRow, SlowRow, SuspectRow, TalkerRow,
};
pub use run_info::{CaptureInfo, RunModuleInfo, StreamInfo};

use module_records::ModuleRecords;
use protocols::Protocols;
use series::BinnedSeries;
use talkers::Talkers;
use weir_abi::{Descriptor, flag};
use weir_units::Timestamp;
use {weir_admission::Manifest, weir_session::Record};

/// Bytes from the start of an IP header that contain both addresses, for either version: the length of IPv6's header.
const IP_HEADER_BYTES: usize = 40;
/// The prefix ::ffff:0:0/96 of IPv4 addresses that are mapped into IPv6.
const MAPPED_PREFIX: u128 = 0xffff << 32;

/// Aggregates of a run for its overview and its page.
#[derive(Debug, Default)]
pub struct RunReport {
    traffic: TrafficTotals,
    modules: Vec<ModuleRecords>,
    overview: Overview,
    has_no_page: bool,
}

/// Aggregates of the packets.
#[derive(Debug, Default)]
struct TrafficTotals {
    /// Packets and bytes over time.
    over_time: BinnedSeries<2>,
    protocols: Protocols,
    talkers: Talkers,
}

impl RunReport {
    /// Creates an empty report.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a report of which only the overview is used.
    pub fn without_page() -> Self {
        Self { has_no_page: true, ..Self::default() }
    }

    /// Returns true if [`Self::render`] is to be used, so that packets have to be added.
    pub fn has_page(&self) -> bool {
        !self.has_no_page
    }

    /// The number of bytes at the beginning of a packet that [`Self::add_packet`] reads.
    pub fn head_bytes(descriptor: &Descriptor) -> usize {
        usize::from(descriptor.l3_offset) + IP_HEADER_BYTES
    }

    /// Counts a packet: its descriptor, and the first [`Self::head_bytes`] bytes of it or more. The bytes may have changed since they
    /// were described.
    #[inline]
    pub fn add_packet(&mut self, descriptor: &Descriptor, head: &[u8]) {
        let traffic = &mut self.traffic;
        traffic.over_time.add(Timestamp(descriptor.ts_ns), [1, u64::from(descriptor.wire_len)]);
        traffic.protocols.add(descriptor);
        if let Some((source, destination)) = weir_wire::addresses(head, descriptor) {
            let mapped = |address: u128| {
                if descriptor.flags & flag::IPV4 != 0 { address | MAPPED_PREFIX } else { address }
            };
            traffic.talkers.add(descriptor, mapped(source), mapped(destination));
        }
    }

    /// Adds a module under a label that the page shows. Returns its index for [`Self::add_record`].
    pub fn add_module(&mut self, label: &str, manifest: &Manifest) -> usize {
        if self.has_page() {
            self.modules.push(ModuleRecords::new(label, manifest));
        }
        self.overview.add_module(manifest)
    }

    /// Adds a record of a module. A record that does not fit the module's manifest is ignored.
    pub fn add_record(&mut self, module: usize, record: &Record<'_>) {
        self.overview.add_record(module, record);
        if let Some(module) = self.modules.get_mut(module) {
            module.record(record);
        }
    }

    /// Returns true if some module feeds the overview.
    pub fn has_overview(&self) -> bool {
        self.overview.has_sources()
    }

    /// Returns what the run has found; `None` if no module of it feeds the overview.
    pub fn overview(&self) -> Option<OverviewDigest> {
        self.has_overview().then(|| self.overview.digest())
    }

    /// Renders the page. `modules` has the information of the modules, in the order in which they were added.
    pub fn render(&self, capture: &CaptureInfo, modules: &[RunModuleInfo]) -> String {
        page::render(&self.traffic, &self.modules, self.overview().as_ref(), capture, modules)
    }
}
