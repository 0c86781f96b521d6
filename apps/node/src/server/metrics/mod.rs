//! Metrics for Prometheus: snapshots in the OpenMetrics text format, served by the HTTP server of [`weir_http::metrics`].
//!
//! Names follow Prometheus's conventions: base units, the unit last in the name, `_total` for counters. Each series exists
//! from the creation of its object on, starting at zero, until the object is removed. Only a series of started processes
//! begins with the first process of its role and isolation. A module that the node has unloaded keeps its series until
//! its name is used again.

use crate::control::protocol::{
    ChannelStatus, CoreStatus, InterfaceStatus, LinkStatus, ModuleStatus, OutputStatus, ProcessStatus,
    RemoteStatus, SessionStatus, Snapshot, TableStatus, VirtualCpuStatus,
};
use crate::server::deliveries;
use crate::sessions::channel_plan;
use crate::sessions::link::drops;
use crate::sessions::snapshot;
use std::collections::BTreeMap;
use std::fmt::Error;
use weir_datapath::egress::OutputCounters;
use weir_datapath::plan::ChannelPlanCounters;
use weir_demux::FragmentCounters;
use weir_http::HttpServer;
use weir_http::metrics::{
    MetricLabels as Labels, MetricSamples as Samples, MetricsSource, MetricsWriter as Writer, float, labels,
    render_metrics,
};
pub use weir_http::metrics::{THREAD, prepare};
use weir_ledger::{DropCause, LostUnit, Usage};
use weir_trust::grant::{Resource, ShownUsage};

/// Renders a snapshot in the OpenMetrics text format.
pub fn render(snapshot: Snapshot) -> String {
    render_metrics(MetricsSnapshot(snapshot))
}

/// Serves requests for `/metrics` until the server is stopped.
///
/// # Errors
/// The listener cannot be watched.
pub fn serve(
    server: HttpServer,
    snapshot: impl Fn() -> Snapshot + Send + Sync + 'static,
) -> std::io::Result<()> {
    weir_http::metrics::serve(server, move || render(snapshot()))
}

/// A snapshot as a source of metrics.
#[derive(Debug)]
struct MetricsSnapshot(Snapshot);

/// Returns one sample for each of these objects.
fn samples_of<T>(
    objects: impl IntoIterator<Item = (Labels, T)>,
    value: impl Fn(&T) -> u64,
) -> Vec<(Labels, u64)> {
    objects.into_iter().map(|(labels, object)| (labels, value(&object))).collect()
}

/// Returns several samples for each of these objects, distinguished by one more label. Each `known` value of the label has
/// a sample from the start, since Prometheus computes a rate only from the second sample on.
fn samples_by_label<'a, T: 'a>(
    label: &'static str,
    known: impl IntoIterator<Item = &'static str>,
    objects: impl Iterator<Item = (Labels, &'a T)>,
    counts: impl Fn(&'a T) -> &'a BTreeMap<String, u64>,
) -> Vec<(Labels, u64)> {
    let known: Vec<&str> = known.into_iter().collect();
    let mut samples = Vec::new();
    for (labels, object) in objects {
        let mut by_name: BTreeMap<&str, u64> = known.iter().map(|name| (*name, 0)).collect();
        by_name.extend(counts(object).iter().map(|(name, count)| (name.as_str(), *count)));
        for (name, count) in by_name {
            let mut labels = labels.clone();
            labels.push((label, name.to_owned()));
            samples.push((labels, count));
        }
    }
    samples
}

impl MetricsSource for MetricsSnapshot {
    fn write(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        self.node(to)?;
        self.processes(to)?;
        self.cores(to)?;
        self.interfaces(to)?;
        self.sessions(to)?;
        self.limits(to)?;
        self.processors(to)?;
        self.channels(to)?;
        self.links(to)?;
        self.outputs(to)?;
        self.modules(to)?;
        self.tables(to)?;
        self.views(to)?;
        self.remote(to)?;
        self.revocations(to)
    }
}

impl MetricsSnapshot {
    fn node(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let Snapshot { node, version, uptime_ns, memory, .. } = &self.0;
        to.info("weir_node", "The node", &labels([("node", node), ("version", version)]))?;
        let single = |value| vec![(Labels::new(), value)];
        let uptime = vec![(Labels::new(), float(*uptime_ns) / 1e9)];
        to.family(
            "weir_node_uptime",
            "seconds",
            "Time since the node's start",
            Samples::FractionGauge(uptime),
        )?;
        let (reserved, reservable) =
            (Samples::Gauge(single(memory.reserved)), Samples::Gauge(single(memory.reservable)));
        to.family("weir_node_memory_reserved", "bytes", "Memory that sessions have reserved", reserved)?;
        to.family(
            "weir_node_memory_reservable",
            "bytes",
            "Memory that all sessions together can reserve",
            reservable,
        )?;
        let failed = Samples::Counter(single(self.0.record_deletions_failed));
        let help = "Failed deletions of record files over a limit";
        to.family("weir_node_record_deletions_failed", "", help, failed)
    }

    fn revocations(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.revocations.iter();
        let lists =
            samples_by_label("outcome", deliveries::outcomes(), all().map(|it| (Labels::new(), it)), |it| {
                &it.deliveries
            });
        let help = "Delivered revocation lists, by outcome";
        to.family("weir_revocation_deliveries", "", help, Samples::Counter(lists))?;
        let entries = all().flat_map(|it| &it.entries);
        let entries = entries.map(|(root, entries)| (labels([("root", root)]), *entries));
        let help = "Revocations in effect";
        to.family("weir_revocation_entries", "", help, Samples::Gauge(entries.collect()))
    }

    fn remote(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.remote.iter().map(|it| (Labels::new(), it));
        let counts = |count: fn(&RemoteStatus) -> u64| Samples::Counter(samples_of(all(), |it| count(it)));
        let level = |value: fn(&RemoteStatus) -> u64| Samples::Gauge(samples_of(all(), |it| value(it)));
        let help = "Accepted remote connections";
        to.family("weir_remote_connections", "", help, counts(|it| it.connections))?;
        let help = "Half-open handshakes with remote peers";
        to.family("weir_remote_half_open", "", help, level(|it| it.half_open))?;
        let help = "Answered first messages of handshakes";
        to.family("weir_remote_answered", "", help, counts(|it| it.answered))?;
        let help = "First messages of handshakes that were dropped unanswered";
        to.family("weir_remote_unanswered", "", help, counts(|it| it.unanswered))?;
        let help = "Remote peers that have proven their key";
        to.family("weir_remote_authenticated", "", help, counts(|it| it.authenticated))?;
        let help = "Remote peers with a valid credential, or an operator's or root's key";
        to.family("weir_remote_authorised", "", help, counts(|it| it.authorised))?;
        to.family("weir_remote_clients", "", "Connected remote clients", level(|it| it.clients))?;
        let refused = Samples::Counter(samples_by_label("cause", [], all(), |it| &it.refused));
        let help = "Refused or aborted remote connections, by cause";
        to.family("weir_remote_refused", "", help, refused)
    }

    fn cores(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let cores = || self.0.cores.iter().map(|core| (labels([("core", &core.core.to_string())]), core));
        let share = |ppm: fn(&CoreStatus) -> u32| {
            Samples::FractionGauge(
                cores().map(|(labels, core)| (labels, f64::from(ppm(core)) / 1e6)).collect(),
            )
        };
        let seconds =
            |time: fn(&CoreStatus) -> u64| Samples::NanosCounter(samples_of(cores(), |core| time(core)));
        to.family(
            "weir_core_reserved",
            "ratio",
            "Share of the core that is reserved",
            share(|core| core.reserved_ppm),
        )?;
        to.family(
            "weir_core_reservable",
            "ratio",
            "Share of the core that can be reserved",
            share(|core| core.reservable_ppm),
        )?;
        to.family(
            "weir_core_busy",
            "seconds",
            "Time in modules and for their host calls",
            seconds(|core| core.busy_ns),
        )?;
        to.family(
            "weir_core_overhead",
            "seconds",
            "Time for scheduling and waking",
            seconds(|core| core.overhead_ns),
        )?;
        let help = "Time for which the core thread was ready to run but had no processor; not charged";
        to.family("weir_core_stolen", "seconds", help, seconds(|core| core.stolen_ns))
    }

    /// Writes the counters of started processes, by role and isolation, and of processes that could not be started.
    fn processes(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let help = "Processes that could not be started, because of the system or the limit of processes";
        let refused = Samples::Counter(vec![(Labels::new(), self.0.refused_processes)]);
        to.family("weir_refused", "processes", help, refused)?;
        if self.0.processes.is_empty() {
            return Ok(());
        }
        let all = self.0.processes.iter();
        let all = all.map(|it| (labels([("role", &it.role), ("isolation", &it.isolation)]), it));
        let help = "Started processes, by role and isolation";
        let counts = Samples::Counter(samples_of(all, |it: &&ProcessStatus| it.started));
        to.family("weir_started", "processes", help, counts)
    }

    fn interfaces(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.interfaces.iter().map(|it| (labels([("interface", &it.name)]), it));
        let counts = |count: fn(&InterfaceStatus) -> u64| Samples::Counter(samples_of(all(), |it| count(it)));
        let up = Samples::Gauge(samples_of(all(), |it| u64::from(it.state == "up")));
        to.family("weir_interface_up", "", "1 if packets can be received from the interface", up)?;
        to.family("weir_interface", "packets", "Received packets", counts(|it| it.packets))?;
        to.family(
            "weir_interface",
            "bytes",
            "Bytes of the received packets, with those that were not captured",
            counts(|it| it.bytes),
        )?;
        let help = "Packets that the kernel dropped because its buffer was full";
        to.family("weir_interface_missed", "packets", help, counts(|it| it.missed))?;
        let help = "Packets that matched no channel's filter";
        to.family("weir_interface_unmatched", "packets", help, counts(|it| it.unmatched))?;
        let help = "Time for which the receive thread was ready to run but had no processor";
        let stolen = Samples::NanosCounter(samples_of(all(), |it| it.stolen_ns));
        to.family("weir_interface_stolen", "seconds", help, stolen)?;
        let fates = snapshot::named_fragments(&FragmentCounters::default()).map(|(fate, _)| fate);
        let fragments = Samples::Counter(samples_by_label("fate", fates, all(), |it| &it.fragments));
        let help = "Fragments of datagrams, by fate";
        to.family("weir_interface_fragments", "packets", help, fragments)
    }

    fn sessions(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.sessions.iter().map(|it| (labels([("session", &it.name)]), it));
        let level = |value: fn(&SessionStatus) -> u64| Samples::Gauge(samples_of(all(), |it| value(it)));
        let help = "Memory that the session has reserved";
        to.family("weir_session_memory_reserved", "bytes", help, level(|it| it.memory_reserved))?;
        let help = "Memory up to which the session's reservation can grow";
        to.family("weir_session_memory_reservable", "bytes", help, level(|it| it.memory_max))?;
        let help = "Used part of the reserved memory";
        to.family("weir_session_memory_used", "bytes", help, level(|it| it.memory_used))?;
        let counts = |count: fn(&SessionStatus) -> u64| Samples::Counter(samples_of(all(), |it| count(it)));
        let help = "Times that the free part of the reserved memory became small";
        to.family("weir_session_memory_low", "", help, counts(|it| it.memory_low))?;
        let help = "Requests for more memory than was free";
        to.family("weir_session_memory_refused", "", help, counts(|it| it.memory_refused))?;
        let help = "Calls of other sessions' services";
        to.family("weir_session_service", "calls", help, counts(|it| it.services.calls))?;
        let help = "Calls of other sessions' services that were refused, timed out, or failed";
        to.family(
            "weir_session_service_lost",
            "calls",
            help,
            counts(|it| it.services.refused + it.services.timed_out + it.services.failed),
        )?;
        let help = "Served calls of other sessions";
        to.family("weir_session_service_served", "calls", help, counts(|it| it.services.served))?;
        let help = "Waiting calls of other sessions";
        to.family("weir_session_service_waiting", "calls", help, level(|it| it.services.waiting))?;
        let seconds =
            |time: fn(&SessionStatus) -> u64| Samples::NanosCounter(samples_of(all(), |it| time(it)));
        let help = "Processor time of other sessions that this session is charged for";
        to.family("weir_session_service_debit", "seconds", help, seconds(|it| it.services.debit_ns))?;
        let help = "Processor time of this session that other sessions are charged for";
        to.family("weir_session_service_credit", "seconds", help, seconds(|it| it.services.credit_ns))?;
        self.usages(to)
    }

    /// Writes the usage of sessions, with the same counters as in the ledger.
    fn usages(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.sessions.iter().map(|it| (labels([("session", &it.name)]), it));
        for (at, counter) in Usage::counters().enumerate() {
            let value = |it: &&SessionStatus| it.used.counts().nth(at).map_or(0, |(_, value)| value);
            let samples = samples_of(all(), value);
            let samples = match counter.metric_unit {
                "seconds" => Samples::NanosCounter(samples),
                _ => Samples::Counter(samples),
            };
            let name = format!("weir_session_{}", counter.metric);
            to.family(&name, counter.metric_unit, counter.help, samples)?;
        }
        let memory = Samples::Counter(samples_of(all(), |it: &&SessionStatus| it.used.memory.whole()));
        let help = "Reserved memory multiplied by the time for which it was charged";
        to.family("weir_session_memory", "byte_seconds", help, memory)?;
        for unit in [LostUnit::Packet, LostUnit::Record, LostUnit::Message] {
            let causes = || DropCause::ALL.iter().filter(|cause| cause.lost_unit() == unit);
            let lost = all().flat_map(|(_, it)| {
                let labels =
                    move |cause: &DropCause| labels([("session", &it.name), ("cause", cause.name())]);
                causes().map(move |cause| (labels(cause), it.used.drops.get(*cause)))
            });
            let help = format!("Lost {}, by cause", unit.unit());
            to.family("weir_session_dropped", unit.unit(), &help, Samples::Counter(lost.collect()))?;
        }
        Ok(())
    }

    /// Writes the use of limits other than processor time and memory, for sessions that have such limits.
    fn limits(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let limited = self.0.sessions.iter().filter(|session| !session.limits.is_none());
        let all = || limited.clone().map(|it| (labels([("session", &it.name)]), &it.limits));
        if all().next().is_none() {
            return Ok(());
        }
        for (resource, limit) in Resource::limits() {
            if let Some(ShownUsage { metric, metric_unit, help, .. }) = limit.present_use {
                let level = Samples::Gauge(samples_of(all(), |it| it.of(resource).in_use));
                to.family(&format!("weir_session_{metric}"), metric_unit, help, level)?;
            }
            let ShownUsage { metric, metric_unit, help, .. } = limit.excess;
            let excess = Samples::Counter(samples_of(all(), |it| it.of(resource).refused));
            to.family(&format!("weir_session_{metric}"), metric_unit, help, excess)?;
        }
        let help = "Refused patches of fields that the session may not write";
        let refused = Samples::Counter(samples_of(all(), |it| it.writes_refused));
        to.family("weir_session_refused", "patches", help, refused)
    }

    /// Returns the parts of one kind of all sessions, such as their channels, each with its labels. `what` is the label for
    /// the part's name.
    fn parts<'a, T: 'a>(
        &'a self,
        what: &'static str,
        parts: fn(&SessionStatus) -> &[T],
        name: fn(&T) -> &str,
    ) -> impl Iterator<Item = (Labels, &'a T)> {
        self.0.sessions.iter().flat_map(move |session| {
            let labels = move |part| labels([("session", &session.name), (what, name(part))]);
            parts(session).iter().map(move |part| (labels(part), part))
        })
    }

    fn processors(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.parts("cpu", |session| &session.cpu, |cpu: &VirtualCpuStatus| &cpu.name);
        let seconds =
            |time: fn(&VirtualCpuStatus) -> u64| Samples::NanosCounter(samples_of(all(), |cpu| time(cpu)));
        let counts =
            |count: fn(&VirtualCpuStatus) -> u64| Samples::Counter(samples_of(all(), |cpu| count(cpu)));
        let share = |cpu: &VirtualCpuStatus| {
            if cpu.period_ns == 0 { 0.0 } else { float(cpu.slice_ns) / float(cpu.period_ns) }
        };
        let reserved = Samples::FractionGauge(all().map(|(labels, cpu)| (labels, share(cpu))).collect());
        let help = "Reserved share of a core; 0 without a reservation";
        to.family("weir_session_cpu_reserved", "ratio", help, reserved)?;
        to.family("weir_session_cpu", "seconds", "Used processor time", seconds(|cpu| cpu.used_ns))?;
        let help = "Used processor time beyond the reservation";
        to.family("weir_session_cpu_spare", "seconds", help, seconds(|cpu| cpu.spare_ns))?;
        let help = "Periods in which the virtual CPU always had work and did not get its slice";
        to.family("weir_session_cpu_missed", "periods", help, counts(|cpu| cpu.periods_missed))?;
        let help = "Runs beyond the remaining budget of the virtual CPU";
        to.family("weir_session_cpu_overruns", "", help, counts(|cpu| cpu.overruns))
    }

    fn channels(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all =
            || self.parts("channel", |session| &session.channels, |channel: &ChannelStatus| &channel.name);
        let level =
            |value: fn(&ChannelStatus) -> u64| Samples::Gauge(samples_of(all(), |channel| value(channel)));
        let counts =
            |count: fn(&ChannelStatus) -> u64| Samples::Counter(samples_of(all(), |channel| count(channel)));
        to.family("weir_channel_waiting", "packets", "Waiting packets", level(|channel| channel.waiting))?;
        to.family("weir_channel_queue", "packets", "Capacity of the queue", level(|channel| channel.queue))?;
        to.family(
            "weir_channel",
            "packets",
            "Packets that matched the filter",
            counts(|channel| channel.packets),
        )?;
        let help = "Bytes of the matched packets, with those that were not captured";
        to.family("weir_channel", "bytes", help, counts(|channel| channel.bytes))?;
        let unused_counters = ChannelPlanCounters::default();
        let causes = channel_plan::drops(&unused_counters).map(|(cause, _)| cause.name());
        let dropped = Samples::Counter(samples_by_label("cause", causes, all(), |channel| &channel.drops));
        to.family("weir_channel_dropped", "packets", "Dropped packets, by cause", dropped)?;
        let findings = unused_counters.named_counts().map(|(what, _)| what);
        let found = Samples::Counter(samples_by_label("what", findings, all(), |channel| &channel.findings));
        let help = "Findings of preprocessing: wrong checksums, and fates of fragments";
        to.family("weir_channel_found", "packets", help, found)
    }

    fn tables(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.tables.iter().map(|it| (labels([("table", &it.name)]), it));
        if all().next().is_none() {
            return Ok(());
        }
        let level = |value: fn(&TableStatus) -> u64| Samples::Gauge(samples_of(all(), |it| value(it)));
        let help = "Size of the current version";
        to.family("weir_table", "bytes", help, level(|it| it.bytes.unwrap_or(0)))?;
        let help = "Number of the current version; 0 without a version";
        to.family("weir_table_version", "", help, level(|it| it.version))?;
        let help = "Modules that read the table";
        to.family("weir_table_readers", "", help, level(|it| it.readers.len() as u64))
    }

    fn views(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || {
            self.0.views.iter().map(|it| {
                let owner = it.owner.as_deref().unwrap_or("operator");
                let number = it.number.to_string();
                (
                    labels([
                        ("number", &number),
                        ("interface", &it.interface),
                        ("view", &it.view),
                        ("owner", owner),
                    ]),
                    it,
                )
            })
        };
        if all().next().is_none() {
            return Ok(());
        }
        let help = "Packets that were transformed for the view, once for all readers";
        to.family("weir_view", "packets", help, Samples::Counter(samples_of(all(), |it| it.packets)))?;
        let readers = Samples::Gauge(samples_of(all(), |it| it.readers.len() as u64));
        to.family("weir_view_readers", "", "Modules that read the view", readers)
    }

    fn links(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        if self.0.links.is_empty() {
            return Ok(());
        }
        let all = || self.0.links.iter().map(|it| (labels([("link", &it.name)]), it));
        let level = |value: fn(&LinkStatus) -> u64| Samples::Gauge(samples_of(all(), |it| value(it)));
        let counts = |count: fn(&LinkStatus) -> u64| Samples::Counter(samples_of(all(), |it| count(it)));
        let up = Samples::Gauge(samples_of(all(), |it| u64::from(it.state == "up")));
        to.family("weir_link_up", "", "1 if the link's interface is up", up)?;
        let per_second = "bytes_per_second";
        to.family("weir_link_rate", per_second, "Rate of the link", level(|it| it.rate_bits / 8))?;
        let help = "Reserved rate";
        to.family("weir_link_reserved", per_second, help, level(|it| it.reserved_bits / 8))?;
        let help = "Reservable rate";
        to.family("weir_link_reservable", per_second, help, level(|it| it.reservable_bits / 8))?;
        to.family("weir_link", "packets", "Sent packets", counts(|it| it.packets))?;
        to.family("weir_link", "bytes", "Bytes of the sent packets, without framing", counts(|it| it.bytes))?;
        to.family(
            "weir_link_lost",
            "packets",
            "Packets that the interface did not accept",
            counts(|it| it.lost),
        )
    }

    fn outputs(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.parts("output", |session| &session.outputs, |output: &OutputStatus| &output.name);
        if all().next().is_none() {
            return Ok(());
        }
        let level = |value: fn(&OutputStatus) -> u64| Samples::Gauge(samples_of(all(), |it| value(it)));
        let counts = |count: fn(&OutputStatus) -> u64| Samples::Counter(samples_of(all(), |it| count(it)));
        let help = "Reserved rate on the wire; 0 without a reservation";
        to.family("weir_output_reserved", "bytes_per_second", help, level(|it| it.reserved_bits / 8))?;
        to.family("weir_output_waiting", "packets", "Waiting packets", level(|it| it.waiting))?;
        to.family("weir_output_queue", "packets", "Capacity of the queue", level(|it| it.queue))?;
        to.family("weir_output", "packets", "Sent packets", counts(|it| it.packets))?;
        to.family(
            "weir_output",
            "bytes",
            "Bytes of the sent packets, without framing",
            counts(|it| it.bytes),
        )?;
        let help = "Sent bytes on the wire";
        to.family("weir_output_wire", "bytes", help, counts(|it| it.wire_bytes))?;
        let help = "Sent bytes on the wire within the reservation";
        to.family("weir_output_reserved_wire", "bytes", help, counts(|it| it.reserved_wire_bytes))?;
        let causes = drops(&OutputCounters::default()).map(|(cause, _)| cause.name());
        let dropped = Samples::Counter(samples_by_label("cause", causes, all(), |output| &output.drops));
        to.family("weir_output_dropped", "packets", "Dropped packets, by cause", dropped)?;
        let taps = || all().filter(|(_, output)| output.tap.is_some());
        let counts = |count: fn(&OutputStatus) -> u64| Samples::Counter(samples_of(taps(), |it| count(it)));
        let help = "Packets that were written to the TAP device";
        to.family("weir_output_tap", "packets", help, counts(|it| it.tap_packets))?;
        let help = "Packets that could not be written to the TAP device";
        to.family("weir_output_tap_lost", "packets", help, counts(|it| it.tap_lost))
    }

    fn modules(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let running = || self.parts("module", |session| &session.modules, |it: &ModuleStatus| &it.name);
        let ended = || self.parts("module", |session| &session.ended, |it: &ModuleStatus| &it.name);
        let all = || running().chain(ended());
        let counts =
            |count: fn(&ModuleStatus) -> u64| Samples::Counter(samples_of(all(), |module| count(module)));
        // Facts about running modules that are words: each is a label of a series with the value 1.
        let words = |label: &'static str, word: fn(&ModuleStatus) -> &String| -> Vec<(Labels, u64)> {
            let known = running().filter(|(_, module)| !word(module).is_empty());
            known
                .map(|(mut labels, module)| {
                    labels.push((label, word(module).clone()));
                    (labels, 1)
                })
                .collect()
        };
        let isolated = words("isolation", |module| &module.isolation);
        if !isolated.is_empty() {
            let help = "Isolation of the module's sandbox process";
            to.family("weir_module_isolation", "", help, Samples::Gauge(isolated))?;
        }
        let back_ends = words("back_end", |module| &module.back_end);
        if !back_ends.is_empty() {
            let help = "Back end: the compiler of the module's code";
            to.family("weir_module_back_end", "", help, Samples::Gauge(back_ends))?;
        }
        let running = Samples::Gauge(samples_of(all(), |module| u64::from(module.state == "running")));
        let help = "1 if the module runs; 0 after it was unloaded by the node, until the name is used again";
        to.family("weir_module_running", "", help, running)?;
        to.family(
            "weir_module",
            "packets",
            "Packets that the module was called for",
            counts(|module| module.packets),
        )?;
        to.family("weir_module", "records", "Emitted records", counts(|module| module.records))?;
        let with_findings = all().filter(|(_, module)| !module.findings.is_empty());
        let findings = samples_by_label("severity", [], with_findings, |module| &module.findings);
        if !findings.is_empty() {
            to.family("weir_findings", "", "Findings, by severity", Samples::Counter(findings))?;
        }
        let help = "Records that were not accepted, or could not be written";
        to.family("weir_module_lost", "records", help, counts(|module| module.records_lost))?;
        to.family("weir_module_faults", "", "Calls that failed", counts(|module| module.faults))?;
        to.family("weir_module_strikes", "", "Calls that exceeded a limit", counts(|module| module.strikes))?;
        let seconds = Samples::NanosCounter(samples_of(all(), |module| module.used_ns));
        to.family(
            "weir_module_cpu",
            "seconds",
            "Time in the module, with time that was stolen meanwhile",
            seconds,
        )?;
        let seconds = Samples::NanosCounter(samples_of(all(), |module| module.other_threads_ns));
        let help =
            "Processor time of other threads for the module: receiving its packets, writing its records";
        to.family("weir_module_other_threads", "seconds", help, seconds)?;
        let memory = Samples::Gauge(samples_of(all(), |module| module.memory));
        to.family("weir_module_memory", "bytes", "Memory of the module", memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::ViewStatus;

    fn snapshot() -> Snapshot {
        serde_json::from_str(include_str!("../../../tests/snapshot.json")).unwrap()
    }

    #[test]
    fn a_snapshot_is_rendered_as_openmetrics_text() {
        assert_eq!(render(snapshot()), include_str!("golden.txt"));
    }

    #[test]
    fn links_and_outputs_have_series_if_there_are_any() {
        let mut now = snapshot();
        assert!(!render(now.clone()).contains("weir_link"));
        now.links.push(LinkStatus {
            name: "eth1".to_owned(),
            state: "up".to_owned(),
            rate_bits: 8000,
            ..LinkStatus::default()
        });
        let drops = [("link-queue-full".to_owned(), 3)].into();
        now.sessions[0].outputs.push(OutputStatus {
            name: "up".to_owned(),
            wire_bytes: 7,
            drops,
            ..OutputStatus::default()
        });
        let text = render(now);
        for line in [
            "weir_link_up{link=\"eth1\"} 1",
            "weir_link_rate_bytes_per_second{link=\"eth1\"} 1000",
            "weir_output_wire_bytes_total{session=\"greedy\",output=\"up\"} 7",
            "weir_output_dropped_packets_total{session=\"greedy\",output=\"up\",cause=\"link-queue-full\"} 3",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn every_series_exists_from_the_start_and_that_of_an_unloaded_module_stays() {
        let session = SessionStatus {
            name: "s".to_owned(),
            channels: vec![ChannelStatus { name: "c".to_owned(), ..ChannelStatus::default() }],
            outputs: vec![OutputStatus { name: "o".to_owned(), ..OutputStatus::default() }],
            ended: vec![ModuleStatus { name: "m".to_owned(), faults: 9, ..ModuleStatus::default() }],
            ..SessionStatus::default()
        };
        let interfaces = vec![InterfaceStatus { name: "i".to_owned(), ..InterfaceStatus::default() }];
        let text = render(Snapshot { sessions: vec![session], interfaces, ..Snapshot::default() });
        let has = |line: &str| assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        for (cause, _) in channel_plan::drops(&ChannelPlanCounters::default()) {
            has(&format!(
                "weir_channel_dropped_packets_total{{session=\"s\",channel=\"c\",cause=\"{cause}\"}} 0"
            ));
        }
        for (what, _) in ChannelPlanCounters::default().named_counts() {
            has(&format!(
                "weir_channel_found_packets_total{{session=\"s\",channel=\"c\",what=\"{what}\"}} 0"
            ));
        }
        for (cause, _) in drops(&OutputCounters::default()) {
            has(&format!(
                "weir_output_dropped_packets_total{{session=\"s\",output=\"o\",cause=\"{cause}\"}} 0"
            ));
        }
        for cause in DropCause::ALL {
            let unit = cause.lost_unit().unit();
            has(&format!("weir_session_dropped_{unit}_total{{session=\"s\",cause=\"{cause}\"}} 0"));
        }
        for fate in ["first", "followed", "unknown", "displaced", "repeated"] {
            has(&format!("weir_interface_fragments_packets_total{{interface=\"i\",fate=\"{fate}\"}} 0"));
        }
        has("weir_module_running{session=\"s\",module=\"m\"} 0");
        has("weir_module_faults_total{session=\"s\",module=\"m\"} 9");
    }

    #[test]
    fn limits_have_series_if_there_are_any() {
        let mut now = snapshot();
        assert!(!render(now.clone()).contains("over_rate"));
        now.sessions[0].limits =
            serde_json::from_str(r#"{"records_over_rate": 5, "kept_packets_used": 6, "writes_refused": 7}"#)
                .unwrap();
        let text = render(now);
        for line in [
            "weir_session_over_rate_records_total{session=\"greedy\"} 5",
            "weir_session_kept_packets{session=\"greedy\"} 6",
            "weir_session_not_kept_packets_total{session=\"greedy\"} 0",
            "weir_session_refused_patches_total{session=\"greedy\"} 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn views_have_series_if_there_are_any() {
        let mut now = snapshot();
        assert!(!render(now.clone()).contains("weir_view"));
        let view = ViewStatus {
            number: 3,
            interface: "eth0".to_owned(),
            view: "payload=none".to_owned(),
            owner: None,
            packets: 7,
            readers: vec!["a/b".to_owned(), "c/d".to_owned()],
        };
        now.views = vec![view.clone(), ViewStatus { number: 4, owner: Some("weir-id:x".to_owned()), ..view }];
        let text = render(now);
        for line in [
            "weir_view_packets_total{number=\"3\",interface=\"eth0\",view=\"payload=none\",owner=\"operator\"} 7",
            "weir_view_readers{number=\"4\",interface=\"eth0\",view=\"payload=none\",owner=\"weir-id:x\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn every_family_occurs_once_and_is_named_by_the_conventions() {
        let text = render(snapshot());
        let mut families = std::collections::BTreeSet::new();
        let mut family = "";
        for line in text.lines().take_while(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                family = rest.split(' ').next().unwrap();
                assert!(families.insert(family), "{family} is there twice");
            } else if let Some(rest) = line.strip_prefix("# UNIT ") {
                let (name, unit) = rest.split_once(' ').unwrap();
                assert!(name == family && name.ends_with(&format!("_{unit}")), "{line}");
            } else if !line.starts_with('#') {
                let name = line.split(['{', ' ']).next().unwrap();
                let counter = text.contains(&format!("# TYPE {family} counter\n"));
                let expected = if counter { format!("{family}_total") } else { family.to_owned() };
                assert!(name == expected || name == format!("{family}_info"), "{line}");
            }
        }
        assert!(text.ends_with("# EOF\n") && families.len() > 30);
    }

    #[test]
    fn an_empty_node_and_hostile_names_keep_the_format() {
        assert!(render(Snapshot::default()).ends_with("# EOF\n"));
        let mut snapshot = snapshot();
        snapshot.node = "a\"} 1\nevil 2\\".to_owned();
        let text = render(snapshot);
        assert!(text.contains(r#"weir_node_info{node="a\"} 1\nevil 2\\",version="0.1.0"} 1"#), "{text}");
        assert!(!text.lines().any(|line| line.starts_with("evil")));
    }
}
