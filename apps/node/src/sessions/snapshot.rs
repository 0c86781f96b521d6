//! The snapshot of a node's state, for status and metrics.

use crate::control::authority::SessionOwner;
use crate::control::status::{
    ChannelStatus, CoreStatus, InterfaceStatus, MemoryStatus, ServicesStatus, SessionStatus, Snapshot,
    VirtualCpuStatus,
};
use crate::sessions::node::{Node, SessionChannel, SessionState, Vp};
use crate::sessions::processors::ProcessorStats;
use crate::sessions::stopped;
use crate::sessions::usage;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_admission::Name;
use weir_demux::FragmentCounters;
use weir_sched::cpu::Stats;
use weir_wire::PacketView;

impl Node {
    /// Returns the present state. Cores that do not answer are left out.
    pub fn snapshot(&self) -> Snapshot {
        let cores = self.cores.iter().filter_map(|core| {
            let stats = core.execute(crate::core_thread::runner::Runner::core_stats).ok()?;
            let used = stats.total.used().0;
            Some(CoreStatus {
                core: core.number(),
                reserved_ppm: stats.reserved.0,
                reservable_ppm: stats.reservable.0,
                busy_ns: used,
                overhead_ns: stats.thread.0.saturating_sub(used),
                stolen_ns: stats.stolen.0,
            })
        });
        let cores = cores.collect();
        let stats = self.processor_stats(self.sessions.values());
        let sessions =
            self.sessions.iter().map(|(name, session)| self.session(name, session, &stats)).collect();
        let (reserved, reservable) = self.memory();
        Snapshot {
            node: self.config.node.name.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ns: weir_units::Nanos::from(self.started.elapsed()).0,
            at_ns: weir_datapath::clock::wall_clock().0,
            cores,
            interfaces: self.interfaces(),
            links: self.link_statuses(),
            sessions,
            memory: MemoryStatus { reserved: reserved.0, reservable: reservable.0 },
            record_deletions_failed: self.writer.deletions_failed(),
            tables: self.loader.registry.statuses(),
            views: self.view_statuses(),
            // The server adds the following fields.
            processes: Vec::new(),
            refused_processes: 0,
            remote: None,
            revocations: None,
        }
    }

    fn interfaces(&self) -> Vec<InterfaceStatus> {
        let status = |(name, source): (&String, &std::sync::Arc<weir_datapath::receive::Receiver>)| {
            let state = source.state();
            InterfaceStatus {
                name: name.clone(),
                state: match &state.failed {
                    Some(why) => why.clone(),
                    None if state.is_up => "up".to_owned(),
                    None => state.events.back().cloned().unwrap_or_else(|| "down".to_owned()),
                },
                packets: state.packets,
                bytes: state.bytes,
                missed: state.drops.packets(),
                unmatched: state.unwanted,
                stolen_ns: state.stolen.0,
                fragments: fragments(&state.fragments),
            }
        };
        self.sources.iter().map(status).collect()
    }

    fn session(&self, name: &Name, session: &SessionState, stats: &ProcessorStats) -> SessionStatus {
        let cpu =
            session.vps.iter().map(|(name, vp)| self.processor(name, vp, stats.of(vp).unwrap_or_default().0));
        let memory = session.memory.state();
        let (counters, waiting) = session.services();
        let settlements =
            || session.vps.values().filter_map(|vp| stats.of(vp).map(|(_, settlement)| settlement));
        let services = ServicesStatus {
            calls: counters.calls,
            refused: counters.refused,
            answered: counters.answered,
            timed_out: counters.late,
            failed: counters.failed,
            served: counters.served,
            waiting,
            discarded: counters.discarded,
            debit_ns: settlements().map(|settlement| settlement.debit.0).sum(),
            credit_ns: settlements().map(|settlement| settlement.credit.0).sum(),
        };
        SessionStatus {
            name: name.to_string(),
            id: session.id,
            credential: session.owner.as_ref().and_then(SessionOwner::dated_id).map(|id| id.to_string()),
            priority: session.spec.priority,
            memory_reserved: memory.reserved.0,
            memory_used: memory.used.0,
            memory_max: memory.ceiling.0,
            memory_low: memory.times_low,
            memory_refused: memory.refused,
            limits: session.limits.status(),
            cpu: cpu.collect(),
            channels: session.channels.iter().map(|(name, channel)| status(name, channel, session)).collect(),
            outputs: self.output_statuses(session),
            modules: session.modules.iter().map(|(name, module)| stopped::status(name, module)).collect(),
            ended: session.stopped.statuses(),
            used: usage::total_usage(session, stats),
            services,
            findings: session.findings.status(),
            publish: session.spec.publish.iter().map(ToString::to_string).collect(),
            read: session.spec.read.iter().map(ToString::to_string).collect(),
            share: session.spec.share.iter().map(ToString::to_string).collect(),
            sums_only: false,
            offers: session.spec.offers.clone(),
            uses: session.spec.uses.clone(),
        }
    }

    fn processor(&self, name: &Name, vp: &Vp, stats: Stats) -> VirtualCpuStatus {
        let (period, slice) = vp.spec.reservation().unwrap_or_default();
        VirtualCpuStatus {
            name: name.to_string(),
            core: self.cores.get(vp.core).map_or(0, crate::core_thread::runner::CoreThread::number),
            period_ns: period.0,
            slice_ns: slice.0,
            borrow: vp.spec.borrow,
            weight: vp.spec.weight,
            used_ns: stats.used().0,
            spare_ns: stats.spare.0,
            periods_missed: stats.periods_missed,
            overruns: stats.overruns,
            debited_ns: stats.debited.0,
        }
    }
}

/// Returns the number of fragments for each way in which they were handled.
pub(crate) fn named_fragments(counters: &FragmentCounters) -> [(&'static str, u64); 5] {
    let FragmentCounters { first, followed, unknown, displaced, repeated } = *counters;
    [
        ("first", first),
        ("followed", followed),
        ("unknown", unknown),
        ("displaced", displaced),
        ("repeated", repeated),
    ]
}

/// Returns the nonzero numbers of [`named_fragments`].
fn fragments(counters: &FragmentCounters) -> BTreeMap<String, u64> {
    let nonzero = named_fragments(counters).into_iter().filter(|(_, count)| *count > 0);
    nonzero.map(|(name, count)| (name.to_owned(), count)).collect()
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn status(name: &Name, channel: &SessionChannel, session: &SessionState) -> ChannelStatus {
    let queues = session.modules.values().filter(|module| module.spec.channel == *name);
    // The status shows the fullest queue, which loses packets first.
    let waiting = queues.map(|module| module.queue.waiting()).max().unwrap_or(0);
    let drops =
        crate::sessions::channel_plan::drops(&channel.counters).into_iter().filter(|(_, count)| *count > 0);
    let findings = channel.counters.named_counts().into_iter().filter(|(_, count)| *count > 0);
    ChannelStatus {
        name: name.to_string(),
        interface: channel.spec.interface.clone(),
        filter: channel.spec.filter.clone(),
        view: Some(channel.spec.effective_view())
            .filter(|view| *view != PacketView::ALL)
            .map_or_else(String::new, |view| view.to_string()),
        waiting: waiting.into(),
        queue: channel.spec.queue_len().into(),
        packets: get(&channel.counters.packets),
        bytes: get(&channel.counters.bytes),
        drops: drops.map(|(cause, count)| (cause.name().to_owned(), count)).collect(),
        findings: findings.map(|(name, count)| (name.to_owned(), count)).collect(),
        counts_others: !channel.stages.is_empty(),
    }
}
