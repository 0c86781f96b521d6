//! Metrics for Prometheus: a snapshot in the OpenMetrics text format, and a small HTTP server for whoever scrapes it ([`serve`]).
//!
//! Names are by Prometheus's conventions: base units, the unit last in the name, `_total` for what only grows. Each series is there from the start of what it
//! belongs to, at zero. It ends when that is closed, and begins at zero when it comes again. A module that was ended, and not by request, keeps its series.

mod server;

pub use server::{CONNECTION, serve, wake};

use crate::control::protocol::{
    ChannelStatus, CoreStatus, InterfaceStatus, LinkStatus, ModuleStatus, OutputStatus, ProcessStatus,
    RemoteStatus, SessionStatus, Snapshot, TableStatus, VirtualCpuStatus,
};
use crate::link::drops;
use crate::plan;
use crate::server::deliveries;
use crate::sessions::snapshot;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use std::collections::BTreeMap;
use std::fmt::Error;
use weir_datapath::egress::OutputCounters;
use weir_datapath::plan::ChannelPlanCounters;
use weir_demux::FragmentCounters;
use weir_ledger::{DropCause, LostUnit, Usage};
use weir_trust::grant::{Resource, ShownUsage};

/// A snapshot in the OpenMetrics text format.
pub fn render(snapshot: Snapshot) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(MetricsSnapshot(snapshot)));
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

#[derive(Debug)]
struct MetricsSnapshot(Snapshot);

/// What tells the samples of a family apart.
type Labels = Vec<(&'static str, String)>;

/// The values of a family's samples.
enum Samples {
    Counts(Vec<(Labels, u64)>),
    Seconds(Vec<(Labels, u64)>),
    Level(Vec<(Labels, u64)>),
    Share(Vec<(Labels, f64)>),
}

/// A value of each part of a node.
fn of<T>(parts: impl IntoIterator<Item = (Labels, T)>, value: impl Fn(&T) -> u64) -> Vec<(Labels, u64)> {
    parts.into_iter().map(|(labels, part)| (labels, value(&part))).collect()
}

/// The counts of each part of a node, told apart by one more label. All `known` names are there from the start: a rate needs the zero before the first loss.
fn each<'a, T: 'a>(
    label: &'static str,
    known: impl IntoIterator<Item = &'static str>,
    parts: impl Iterator<Item = (Labels, &'a T)>,
    counts: impl Fn(&'a T) -> &'a BTreeMap<String, u64>,
) -> Vec<(Labels, u64)> {
    let known: Vec<&str> = known.into_iter().collect();
    let mut all = Vec::new();
    for (labels, part) in parts {
        let mut now: BTreeMap<&str, u64> = known.iter().map(|name| (*name, 0)).collect();
        now.extend(counts(part).iter().map(|(name, count)| (name.as_str(), *count)));
        for (name, count) in now {
            let mut labels = labels.clone();
            labels.push((label, name.to_owned()));
            all.push((labels, count));
        }
    }
    all
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds to the microsecond for 270 years, shares to six digits"
)]
fn float(value: u64) -> f64 {
    value as f64
}

struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    /// A family: what it is called without its unit, the unit (nothing for plain numbers), what it means, its samples.
    fn family(&mut self, name: &str, unit: &str, help: &str, samples: Samples) -> Result<(), Error> {
        let unit = (!unit.is_empty()).then(|| Unit::Other(unit.to_owned()));
        let kind = match samples {
            Samples::Counts(_) | Samples::Seconds(_) => MetricType::Counter,
            Samples::Level(_) | Samples::Share(_) => MetricType::Gauge,
        };
        let mut encoder = self.0.encode_descriptor(name, help, unit.as_ref(), kind)?;
        // What has no labels has no braces either.
        let mut each = |labels: &Labels, write: &dyn Fn(&mut MetricEncoder<'_>) -> Result<(), Error>| {
            if labels.is_empty() { write(&mut encoder) } else { write(&mut encoder.encode_family(labels)?) }
        };
        match samples {
            Samples::Counts(samples) => samples.iter().try_for_each(|(labels, value)| {
                each(labels, &|to| to.encode_counter::<NoLabelSet, _, u64>(value, None))
            }),
            Samples::Seconds(samples) => samples.iter().try_for_each(|(labels, nanos)| {
                let seconds = float(*nanos) / 1e9;
                each(labels, &|to| to.encode_counter::<NoLabelSet, _, u64>(&seconds, None))
            }),
            Samples::Level(samples) => samples.iter().try_for_each(|(labels, value)| {
                // OpenMetrics has signed numbers; no level here comes near their end.
                let value = i64::try_from(*value).unwrap_or(i64::MAX);
                each(labels, &|to| to.encode_gauge(&value))
            }),
            Samples::Share(samples) => {
                samples.iter().try_for_each(|(labels, share)| each(labels, &|to| to.encode_gauge(share)))
            }
        }
    }
}

impl Collector for MetricsSnapshot {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        let mut to = Writer(encoder);
        self.node(&mut to)?;
        self.processes(&mut to)?;
        self.cores(&mut to)?;
        self.interfaces(&mut to)?;
        self.sessions(&mut to)?;
        self.limits(&mut to)?;
        self.processors(&mut to)?;
        self.channels(&mut to)?;
        self.links(&mut to)?;
        self.outputs(&mut to)?;
        self.modules(&mut to)?;
        self.tables(&mut to)?;
        self.views(&mut to)?;
        self.remote(&mut to)?;
        self.revocations(&mut to)
    }
}

impl MetricsSnapshot {
    fn node(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let Snapshot { node, version, uptime_ns, memory, .. } = &self.0;
        to.0.encode_descriptor("weir_node", "The node", None, MetricType::Info)?
            .encode_info(&labels([("node", node), ("version", version)]))?;
        let one = |value| vec![(Labels::new(), value)];
        let share = vec![(Labels::new(), float(*uptime_ns) / 1e9)];
        to.family("weir_node_uptime", "seconds", "Time since the node began", Samples::Share(share))?;
        let (reserved, of) = (Samples::Level(one(memory.reserved)), Samples::Level(one(memory.of)));
        to.family("weir_node_memory_reserved", "bytes", "Memory that sessions have reserved", reserved)?;
        to.family("weir_node_memory_reservable", "bytes", "Memory that sessions can reserve together", of)?;
        let failed = Samples::Counts(one(self.0.record_deletions_failed));
        let help = "Tries to delete a record file beyond a limit that have failed";
        to.family("weir_node_record_deletions_failed", "", help, failed)
    }

    fn revocations(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.revocations.iter();
        let lists =
            each("outcome", deliveries::outcomes(), all().map(|it| (Labels::new(), it)), |it| &it.deliveries);
        let help = "Revocation lists that were delivered, by outcome";
        to.family("weir_revocation_deliveries", "", help, Samples::Counts(lists))?;
        let entries = all().flat_map(|it| &it.entries);
        let entries = entries.map(|(root, entries)| (labels([("root", root)]), *entries));
        let help = "Entries of revocation lists that are held";
        to.family("weir_revocation_entries", "", help, Samples::Level(entries.collect()))
    }

    fn remote(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.remote.iter().map(|it| (Labels::new(), it));
        let counts = |count: fn(&RemoteStatus) -> u64| Samples::Counts(of(all(), |it| count(it)));
        let level = |value: fn(&RemoteStatus) -> u64| Samples::Level(of(all(), |it| value(it)));
        let help = "Connections from elsewhere that were accepted";
        to.family("weir_remote_connections", "", help, counts(|it| it.connections))?;
        let help = "Handshakes with peers elsewhere that are half open";
        to.family("weir_remote_half_open", "", help, level(|it| it.half_open))?;
        let help = "First messages of handshakes that were answered";
        to.family("weir_remote_answered", "", help, counts(|it| it.answered))?;
        let help = "First messages of handshakes that waited for an answer and got none";
        to.family("weir_remote_unanswered", "", help, counts(|it| it.unanswered))?;
        let help = "Peers elsewhere that have proven who they are";
        to.family("weir_remote_authenticated", "", help, counts(|it| it.authenticated))?;
        let help = "Peers elsewhere that have proven a right to be here";
        to.family("weir_remote_proven", "", help, counts(|it| it.proven))?;
        to.family("weir_remote_clients", "", "Clients elsewhere that are connected", level(|it| it.clients))?;
        let refused = Samples::Counts(each("cause", [], all(), |it| &it.refused));
        let help = "Connections from elsewhere that were refused or given up, by cause";
        to.family("weir_remote_refused", "", help, refused)
    }

    fn cores(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let cores = || self.0.cores.iter().map(|core| (labels([("core", &core.core.to_string())]), core));
        let share = |ppm: fn(&CoreStatus) -> u32| {
            Samples::Share(cores().map(|(labels, core)| (labels, f64::from(ppm(core)) / 1e6)).collect())
        };
        let seconds = |time: fn(&CoreStatus) -> u64| Samples::Seconds(of(cores(), |core| time(core)));
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
            "Time in modules and on their behalf",
            seconds(|core| core.busy_ns),
        )?;
        to.family(
            "weir_core_overhead",
            "seconds",
            "Time on deciding and waking",
            seconds(|core| core.overhead_ns),
        )?;
        let help = "Time that the core's thread was ready to run and did not get; not billed";
        to.family("weir_core_stolen", "seconds", help, seconds(|core| core.stolen_ns))
    }

    /// Processes that the node has started, by the walls around them.
    fn processes(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let help = "Processes that were not started, as the system does not allow one or there are too many";
        let refused = Samples::Counts(vec![(Labels::new(), self.0.refused_processes)]);
        to.family("weir_refused", "processes", help, refused)?;
        if self.0.processes.is_empty() {
            return Ok(());
        }
        let all = self.0.processes.iter();
        let all = all.map(|it| (labels([("role", &it.role), ("isolation", &it.isolation)]), it));
        let help = "Processes that were started, by what they do and the walls around them";
        let counts = Samples::Counts(of(all, |it: &&ProcessStatus| it.started));
        to.family("weir_started", "processes", help, counts)
    }

    fn interfaces(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.interfaces.iter().map(|it| (labels([("interface", &it.name)]), it));
        let counts = |count: fn(&InterfaceStatus) -> u64| Samples::Counts(of(all(), |it| count(it)));
        let up = Samples::Level(of(all(), |it| u64::from(it.state == "up")));
        to.family("weir_interface_up", "", "Whether packets can come from the interface", up)?;
        to.family("weir_interface", "packets", "Packets that the node got", counts(|it| it.packets))?;
        to.family("weir_interface", "bytes", "Bytes of these packets on the link", counts(|it| it.bytes))?;
        let help = "Packets that the kernel had no room for";
        to.family("weir_interface_missed", "packets", help, counts(|it| it.missed))?;
        let help = "Packets that no channel wanted";
        to.family("weir_interface_unwanted", "packets", help, counts(|it| it.unwanted))?;
        let help = "Time that the receiving thread was ready to run and did not get";
        let stolen = Samples::Seconds(of(all(), |it| it.stolen_ns));
        to.family("weir_interface_stolen", "seconds", help, stolen)?;
        let fates = snapshot::fates(&FragmentCounters::default()).map(|(fate, _)| fate);
        let fragments = Samples::Counts(each("fate", fates, all(), |it| &it.fragments));
        let help = "Fragments of datagrams, by what became of them";
        to.family("weir_interface_fragments", "packets", help, fragments)
    }

    fn sessions(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.sessions.iter().map(|it| (labels([("session", &it.name)]), it));
        let level = |value: fn(&SessionStatus) -> u64| Samples::Level(of(all(), |it| value(it)));
        let help = "Memory that the session has reserved";
        to.family("weir_session_memory_reserved", "bytes", help, level(|it| it.memory_reserved))?;
        let help = "Memory that the session may reserve by itself";
        to.family("weir_session_memory_reservable", "bytes", help, level(|it| it.memory_ceiling))?;
        let help = "Memory that the session uses of what it has reserved";
        to.family("weir_session_memory_used", "bytes", help, level(|it| it.memory_used))?;
        let counts = |count: fn(&SessionStatus) -> u64| Samples::Counts(of(all(), |it| count(it)));
        let help = "Times that little of the reserved memory came to be left";
        to.family("weir_session_memory_low", "", help, counts(|it| it.memory_low))?;
        let help = "Times that more memory was asked for than was left";
        to.family("weir_session_memory_refused", "", help, counts(|it| it.memory_refused))?;
        let help = "Calls of others' services";
        to.family("weir_session_service", "calls", help, counts(|it| it.services.calls))?;
        let help = "Calls of others' services that were refused, late, or failed";
        to.family(
            "weir_session_service_lost",
            "calls",
            help,
            counts(|it| it.services.refused + it.services.late + it.services.failed),
        )?;
        let help = "Calls of others that were served";
        to.family("weir_session_service_served", "calls", help, counts(|it| it.services.served))?;
        let help = "Calls of others that wait";
        to.family("weir_session_service_waiting", "calls", help, level(|it| it.services.waiting))?;
        let seconds = |time: fn(&SessionStatus) -> u64| Samples::Seconds(of(all(), |it| time(it)));
        let help = "Processor time of others that the session pays";
        to.family("weir_session_service_owed", "seconds", help, seconds(|it| it.services.owed_ns))?;
        let help = "Processor time of its own that others pay";
        to.family("weir_session_service_earned", "seconds", help, seconds(|it| it.services.earned_ns))?;
        self.usages(to)
    }

    /// The usage of sessions: the counters of their bills, by the same table.
    fn usages(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.sessions.iter().map(|it| (labels([("session", &it.name)]), it));
        for (at, counter) in Usage::counters().enumerate() {
            let value = |it: &&SessionStatus| it.used.counts().nth(at).map_or(0, |(_, value)| value);
            let samples = of(all(), value);
            let samples = match counter.metric_unit {
                "seconds" => Samples::Seconds(samples),
                _ => Samples::Counts(samples),
            };
            let name = format!("weir_session_{}", counter.metric);
            to.family(&name, counter.metric_unit, counter.help, samples)?;
        }
        let memory = Samples::Counts(of(all(), |it: &&SessionStatus| it.used.memory.whole()));
        let help = "Reserved memory x time, as it has been billed";
        to.family("weir_session_memory", "byte_seconds", help, memory)?;
        for thing in [LostUnit::Packet, LostUnit::Record, LostUnit::Message, LostUnit::Event] {
            let causes = || DropCause::ALL.iter().filter(|cause| cause.thing() == thing);
            let lost = all().flat_map(|(_, it)| {
                let of = move |cause: &DropCause| labels([("session", &it.name), ("cause", cause.name())]);
                causes().map(move |cause| (of(cause), it.used.drops.get(*cause)))
            });
            let help = format!("Lost {}, by cause", thing.unit());
            to.family("weir_session_dropped", thing.unit(), &help, Samples::Counts(lost.collect()))?;
        }
        Ok(())
    }

    /// What sessions are held to beside processor time and memory, of those that are.
    fn limits(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let limited = self.0.sessions.iter().filter(|session| !session.limits.is_none());
        let all = || limited.clone().map(|it| (labels([("session", &it.name)]), &it.limits));
        if all().next().is_none() {
            return Ok(());
        }
        for (resource, limit) in Resource::limits() {
            if let Some(ShownUsage { metric, metric_unit, help, .. }) = limit.taken {
                let level = Samples::Level(of(all(), |it| it.of(resource).taken));
                to.family(&format!("weir_session_{metric}"), metric_unit, help, level)?;
            }
            let ShownUsage { metric, metric_unit, help, .. } = limit.beyond;
            let beyond = Samples::Counts(of(all(), |it| it.of(resource).beyond));
            to.family(&format!("weir_session_{metric}"), metric_unit, help, beyond)?;
        }
        let help = "Patches that were refused because of a field that may not be written";
        let refused = Samples::Counts(of(all(), |it| it.writes_refused));
        to.family("weir_session_refused", "patches", help, refused)
    }

    /// Each part of each session, with the labels that tell it apart.
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
        let seconds = |time: fn(&VirtualCpuStatus) -> u64| Samples::Seconds(of(all(), |cpu| time(cpu)));
        let counts = |count: fn(&VirtualCpuStatus) -> u64| Samples::Counts(of(all(), |cpu| count(cpu)));
        let share = |cpu: &VirtualCpuStatus| {
            if cpu.period_ns == 0 { 0.0 } else { float(cpu.slice_ns) / float(cpu.period_ns) }
        };
        let reserved = Samples::Share(all().map(|(labels, cpu)| (labels, share(cpu))).collect());
        let help = "Share of a core that is guaranteed; 0 without a reservation";
        to.family("weir_session_cpu_reserved", "ratio", help, reserved)?;
        to.family("weir_session_cpu", "seconds", "Processor time that it had", seconds(|cpu| cpu.used_ns))?;
        let help = "Of the processor time, what was beyond the reservation";
        to.family("weir_session_cpu_spare", "seconds", help, seconds(|cpu| cpu.spare_ns))?;
        let help = "Periods in which it had work all the time and did not get its slice";
        to.family("weir_session_cpu_missed", "periods", help, counts(|cpu| cpu.periods_missed))?;
        let help = "Times that it ran for longer than it had left";
        to.family("weir_session_cpu_overruns", "", help, counts(|cpu| cpu.overruns))
    }

    fn channels(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all =
            || self.parts("channel", |session| &session.channels, |channel: &ChannelStatus| &channel.name);
        let level = |value: fn(&ChannelStatus) -> u64| Samples::Level(of(all(), |channel| value(channel)));
        let counts = |count: fn(&ChannelStatus) -> u64| Samples::Counts(of(all(), |channel| count(channel)));
        to.family(
            "weir_channel_waiting",
            "packets",
            "Packets that wait now",
            level(|channel| channel.waiting),
        )?;
        to.family("weir_channel_queue", "packets", "Packets that can wait", level(|channel| channel.queue))?;
        to.family("weir_channel", "packets", "Packets that came for it", counts(|channel| channel.packets))?;
        let help = "Bytes of these packets on the link";
        to.family("weir_channel", "bytes", help, counts(|channel| channel.bytes))?;
        let tally = ChannelPlanCounters::default();
        let causes = plan::drops(&tally).map(|(cause, _)| cause.name());
        let dropped = Samples::Counts(each("cause", causes, all(), |channel| &channel.drops));
        to.family("weir_channel_dropped", "packets", "Packets that it lost, by cause", dropped)?;
        let findings = tally.findings().map(|(what, _)| what);
        let found = Samples::Counts(each("what", findings, all(), |channel| &channel.findings));
        let help = "What was found on the way to its modules: wrong checksums, and what became of fragments";
        to.family("weir_channel_found", "packets", help, found)
    }

    fn tables(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.0.tables.iter().map(|it| (labels([("table", &it.name)]), it));
        if all().next().is_none() {
            return Ok(());
        }
        let level = |value: fn(&TableStatus) -> u64| Samples::Level(of(all(), |it| value(it)));
        let help = "What the table shows";
        to.family("weir_table", "bytes", help, level(|it| it.bytes.unwrap_or(0)))?;
        let help = "The version that the table shows; 0 where it shows none";
        to.family("weir_table_version", "", help, level(|it| it.version))?;
        let help = "Modules that read the table";
        to.family("weir_table_readers", "", help, level(|it| it.readers.len() as u64))
    }

    fn views(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || {
            self.0.views.iter().map(|it| {
                let of = it.of.as_deref().unwrap_or("operator");
                let number = it.number.to_string();
                (
                    labels([
                        ("number", &number),
                        ("interface", &it.interface),
                        ("view", &it.view),
                        ("of", of),
                    ]),
                    it,
                )
            })
        };
        if all().next().is_none() {
            return Ok(());
        }
        let help = "Packets that were transformed for the view, once for all who read it";
        to.family("weir_view", "packets", help, Samples::Counts(of(all(), |it| it.packets)))?;
        let readers = Samples::Level(of(all(), |it| it.readers.len() as u64));
        to.family("weir_view_readers", "", "Modules that read the view", readers)
    }

    fn links(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        if self.0.links.is_empty() {
            return Ok(());
        }
        let all = || self.0.links.iter().map(|it| (labels([("link", &it.name)]), it));
        let level = |value: fn(&LinkStatus) -> u64| Samples::Level(of(all(), |it| value(it)));
        let counts = |count: fn(&LinkStatus) -> u64| Samples::Counts(of(all(), |it| count(it)));
        let up = Samples::Level(of(all(), |it| u64::from(it.state == "up")));
        to.family("weir_link_up", "", "Whether the link's interface is up", up)?;
        let per_second = "bytes_per_second";
        to.family("weir_link_rate", per_second, "What it carries", level(|it| it.rate_bits / 8))?;
        let help = "What is reserved of it";
        to.family("weir_link_reserved", per_second, help, level(|it| it.reserved_bits / 8))?;
        let help = "What can be reserved of it";
        to.family("weir_link_reservable", per_second, help, level(|it| it.reservable_bits / 8))?;
        to.family("weir_link", "packets", "Packets that it took", counts(|it| it.packets))?;
        to.family("weir_link", "bytes", "Bytes of these packets, without framing", counts(|it| it.bytes))?;
        to.family(
            "weir_link_lost",
            "packets",
            "Packets that its interface did not take",
            counts(|it| it.lost),
        )
    }

    fn outputs(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let all = || self.parts("output", |session| &session.outputs, |output: &OutputStatus| &output.name);
        if all().next().is_none() {
            return Ok(());
        }
        let level = |value: fn(&OutputStatus) -> u64| Samples::Level(of(all(), |it| value(it)));
        let counts = |count: fn(&OutputStatus) -> u64| Samples::Counts(of(all(), |it| count(it)));
        let help = "What it is guaranteed, on the wire; 0 without a reservation";
        to.family("weir_output_reserved", "bytes_per_second", help, level(|it| it.reserved_bits / 8))?;
        to.family("weir_output_waiting", "packets", "Packets that wait now", level(|it| it.waiting))?;
        to.family("weir_output_queue", "packets", "Packets that can wait", level(|it| it.queue))?;
        to.family("weir_output", "packets", "Packets that went out", counts(|it| it.packets))?;
        to.family("weir_output", "bytes", "Bytes of these packets, without framing", counts(|it| it.bytes))?;
        let help = "Bytes on the wire that its scheduler let go";
        to.family("weir_output_wire", "bytes", help, counts(|it| it.wire_bytes))?;
        let help = "Of the bytes on the wire, what its reservation let go";
        to.family("weir_output_reserved_wire", "bytes", help, counts(|it| it.reserved_wire_bytes))?;
        let causes = drops(&OutputCounters::default()).map(|(cause, _)| cause.name());
        let dropped = Samples::Counts(each("cause", causes, all(), |output| &output.drops));
        to.family("weir_output_dropped", "packets", "Packets that it lost, by cause", dropped)?;
        let taps = || all().filter(|(_, output)| output.tap.is_some());
        let counts = |count: fn(&OutputStatus) -> u64| Samples::Counts(of(taps(), |it| count(it)));
        let help = "Packets that went to the programs behind its device";
        to.family("weir_output_tap", "packets", help, counts(|it| it.tap_packets))?;
        let help = "Packets that did not reach these programs";
        to.family("weir_output_tap_lost", "packets", help, counts(|it| it.tap_lost))
    }

    fn modules(&self, to: &mut Writer<'_>) -> Result<(), Error> {
        let running = || self.parts("module", |session| &session.modules, |it: &ModuleStatus| &it.name);
        let ended = || self.parts("module", |session| &session.ended, |it: &ModuleStatus| &it.name);
        let all = || running().chain(ended());
        let counts = |count: fn(&ModuleStatus) -> u64| Samples::Counts(of(all(), |module| count(module)));
        let isolated = self.0.sessions.iter().flat_map(|session| {
            let apart = session.modules.iter().filter(|module| !module.isolation.is_empty());
            apart.map(|module| {
                let names =
                    [("session", &session.name), ("module", &module.name), ("isolation", &module.isolation)];
                (names.map(|(key, value)| (key, value.clone())).to_vec(), 1)
            })
        });
        let isolated: Vec<(Labels, u64)> = isolated.collect();
        if !isolated.is_empty() {
            let help = "The walls around the module's own process";
            to.family("weir_module_isolation", "", help, Samples::Level(isolated))?;
        }
        let running = Samples::Level(of(all(), |module| u64::from(module.state == "running")));
        let help = "1 if the module runs; 0 after it was ended, until its name is given again";
        to.family("weir_module_running", "", help, running)?;
        to.family("weir_module", "packets", "Packets that it has seen", counts(|module| module.packets))?;
        to.family("weir_module", "records", "Records that it has emitted", counts(|module| module.records))?;
        let help = "Records that were not taken, or could not be written";
        to.family("weir_module_lost", "records", help, counts(|module| module.records_lost))?;
        to.family("weir_module_faults", "", "Calls that were lost", counts(|module| module.faults))?;
        to.family(
            "weir_module_strikes",
            "",
            "Calls that were over their limit",
            counts(|module| module.strikes),
        )?;
        let seconds = Samples::Seconds(of(all(), |module| module.used_ns));
        to.family("weir_module_cpu", "seconds", "Time in it, with time that was stolen meanwhile", seconds)?;
        let seconds = Samples::Seconds(of(all(), |module| module.elsewhere_ns));
        let help = "Processor time of other threads for it: receiving its packets, writing its records";
        to.family("weir_module_elsewhere", "seconds", help, seconds)?;
        let memory = Samples::Level(of(all(), |module| module.memory));
        to.family("weir_module_memory", "bytes", "Memory that it has", memory)
    }
}

fn labels<const N: usize>(pairs: [(&'static str, &str); N]) -> Labels {
    pairs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::protocol::ViewStatus;

    fn snapshot() -> Snapshot {
        serde_json::from_str(include_str!("../../../tests/snapshot.json")).unwrap()
    }

    #[test]
    fn a_snapshot_becomes_what_prometheus_reads() {
        assert_eq!(render(snapshot()), include_str!("golden.txt"));
    }

    #[test]
    fn links_and_what_goes_out_are_told_where_there_are_any() {
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
    fn every_series_is_there_from_the_start_and_one_of_an_ended_module_stays() {
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
        for (cause, _) in plan::drops(&ChannelPlanCounters::default()) {
            has(&format!(
                "weir_channel_dropped_packets_total{{session=\"s\",channel=\"c\",cause=\"{cause}\"}} 0"
            ));
        }
        for (what, _) in ChannelPlanCounters::default().findings() {
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
            let unit = cause.thing().unit();
            has(&format!("weir_session_dropped_{unit}_total{{session=\"s\",cause=\"{cause}\"}} 0"));
        }
        for fate in ["first", "followed", "unknown", "displaced", "repeated"] {
            has(&format!("weir_interface_fragments_packets_total{{interface=\"i\",fate=\"{fate}\"}} 0"));
        }
        has("weir_module_running{session=\"s\",module=\"m\"} 0");
        has("weir_module_faults_total{session=\"s\",module=\"m\"} 9");
    }

    #[test]
    fn limits_are_told_where_there_are_any() {
        let mut now = snapshot();
        assert!(!render(now.clone()).contains("over_rate"));
        now.sessions[0].limits =
            serde_json::from_str(r#"{"records_over_rate": 5, "kept_now": 6, "writes_refused": 7}"#).unwrap();
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
    fn views_are_told_where_there_are_any() {
        let mut now = snapshot();
        assert!(!render(now.clone()).contains("weir_view"));
        let view = ViewStatus {
            number: 3,
            interface: "eth0".to_owned(),
            view: "payload=none".to_owned(),
            of: None,
            packets: 7,
            readers: vec!["a/b".to_owned(), "c/d".to_owned()],
        };
        now.views = vec![view.clone(), ViewStatus { number: 4, of: Some("weir-id:x".to_owned()), ..view }];
        let text = render(now);
        for line in [
            "weir_view_packets_total{number=\"3\",interface=\"eth0\",view=\"payload=none\",of=\"operator\"} 7",
            "weir_view_readers{number=\"4\",interface=\"eth0\",view=\"payload=none\",of=\"weir-id:x\"} 2",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn every_family_is_whole_and_named_by_the_conventions() {
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
