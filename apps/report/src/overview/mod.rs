//! The overview of a run: its services, the slow and the failing ones, and the hosts that stand out, from the records of
//! the default modules.

mod attacks;
mod connections;
mod digest;
mod facts;
mod problems;
mod servers;
mod services;
mod suspects;
mod text;

pub use digest::{OverviewDigest, ProblemRow, RankedRows, ServiceRow, SlowRow, SuspectRow, TalkerRow};

pub(crate) use text::{service_name, shortened};

use attacks::{FloodFacts, ScanFacts, TalkerFacts};
use connections::Connections;
use servers::{DnsFacts, HttpFacts, LatencyFacts, QuicFacts, TlsFacts};
use weir_abi::finding::Severity;
use weir_rows::FindingReader;
use {weir_admission::Manifest, weir_session::Record};

/// Aggregates of the records of the default modules. Their size is bounded for any number of records.
///
/// Each module has aggregates of its own, which are joined at the end. So the result depends on each module's order of
/// records, and not on the order of different modules.
#[derive(Debug, Default)]
pub struct Overview {
    modules: Vec<OverviewModule>,
    facts: OverviewFacts,
    /// Findings that are more than informational.
    findings: u64,
    /// Informational findings.
    notes: u64,
}

/// A module of the run.
#[derive(Debug)]
struct OverviewModule {
    feeds: Option<OverviewSource>,
    findings: Option<FindingReader>,
}

/// A module whose records are aggregated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OverviewSource {
    Dns,
    Flows,
    Http,
    Latency,
    Quic,
    Scan,
    SynFlood,
    Talkers,
    Tls,
}

/// The aggregates of each module that the run has.
#[derive(Debug, Default)]
struct OverviewFacts {
    dns: Option<DnsFacts>,
    flows: Option<Connections>,
    http: Option<HttpFacts>,
    latency: Option<LatencyFacts>,
    quic: Option<QuicFacts>,
    scan: Option<ScanFacts>,
    syn_flood: Option<FloodFacts>,
    talkers: Option<TalkerFacts>,
    tls: Option<TlsFacts>,
}

impl Overview {
    /// Creates an overview without modules.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a module. Returns its index for [`Self::add_record`]. Of several modules of a name, the first one counts.
    pub fn add_module(&mut self, manifest: &Manifest) -> usize {
        let feeds = self.facts.add_module(manifest);
        self.modules.push(OverviewModule { feeds, findings: FindingReader::of(manifest) });
        self.modules.len() - 1
    }

    /// Returns true if the records of some module are aggregated.
    pub fn has_sources(&self) -> bool {
        self.modules.iter().any(|module| module.feeds.is_some())
    }

    /// Adds a record of a module. A record that does not fit the module's manifest is ignored.
    pub fn add_record(&mut self, module: usize, record: &Record<'_>) {
        let Some(OverviewModule { feeds, findings }) = self.modules.get(module) else { return };
        if let Some(finding) = findings.as_ref().and_then(|reader| reader.read(record)) {
            let is_note = finding.severity == Severity::Informational;
            *if is_note { &mut self.notes } else { &mut self.findings } += 1;
        } else if let Some(source) = feeds {
            self.facts.add_record(*source, record);
        }
    }

    /// Ranks what was found.
    pub fn digest(&self) -> OverviewDigest {
        digest::digest(&self.facts, self.findings, self.notes)
    }
}

impl OverviewFacts {
    fn add_module(&mut self, manifest: &Manifest) -> Option<OverviewSource> {
        fn add<T>(place: &mut Option<T>, new: Option<T>, source: OverviewSource) -> Option<OverviewSource> {
            if place.is_some() {
                return None;
            }
            *place = new;
            place.is_some().then_some(source)
        }
        match manifest.name.as_str() {
            "dns" => add(&mut self.dns, DnsFacts::new(manifest), OverviewSource::Dns),
            "flows" => add(&mut self.flows, Connections::new(manifest), OverviewSource::Flows),
            "http" => add(&mut self.http, HttpFacts::new(manifest), OverviewSource::Http),
            "latency" => add(&mut self.latency, LatencyFacts::new(manifest), OverviewSource::Latency),
            "quic" => add(&mut self.quic, QuicFacts::new(manifest), OverviewSource::Quic),
            "scan" => add(&mut self.scan, ScanFacts::new(manifest), OverviewSource::Scan),
            "syn-flood" => add(&mut self.syn_flood, FloodFacts::new(manifest), OverviewSource::SynFlood),
            "talkers" => add(&mut self.talkers, TalkerFacts::new(manifest), OverviewSource::Talkers),
            "tls" => add(&mut self.tls, TlsFacts::new(manifest), OverviewSource::Tls),
            _ => None,
        }
    }

    fn add_record(&mut self, source: OverviewSource, record: &Record<'_>) {
        match source {
            OverviewSource::Dns => self.dns.iter_mut().for_each(|facts| facts.record(record)),
            OverviewSource::Flows => self.flows.iter_mut().for_each(|facts| facts.record(record)),
            OverviewSource::Http => self.http.iter_mut().for_each(|facts| facts.record(record)),
            OverviewSource::Latency => self.latency.iter_mut().for_each(|facts| facts.record(record)),
            OverviewSource::Quic => self.quic.iter_mut().for_each(|facts| facts.record(record)),
            OverviewSource::Scan => self.scan.iter_mut().for_each(|facts| facts.record(record)),
            OverviewSource::SynFlood => self.syn_flood.iter_mut().for_each(|facts| facts.record(record)),
            OverviewSource::Talkers => self.talkers.iter_mut().for_each(|facts| facts.record(record)),
            OverviewSource::Tls => self.tls.iter_mut().for_each(|facts| facts.record(record)),
        }
    }
}
