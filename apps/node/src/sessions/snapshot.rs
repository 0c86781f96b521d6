//! How things are on a node, for whoever asks.

use crate::control::authority::SessionOwner;
use crate::control::protocol::{
    ChannelStatus, CoreStatus, InterfaceStatus, ServicesStatus, SessionStatus, Snapshot, Taken,
    VirtualCpuStatus,
};
use crate::sessions::bill;
use crate::sessions::ended;
use crate::sessions::node::{Node, SessionChannel, SessionState, Vp};
use crate::sessions::processors::ProcessorStats;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_admission::Name;
use weir_demux::FragmentCounters;
use weir_sched::cpu::Stats;
use weir_wire::PacketView;

impl Node {
    /// A snapshot. What is on a core that does not answer is not in it.
    pub fn snapshot(&self) -> Snapshot {
        let cores = self.cores.iter().filter_map(|core| {
            let stats = core.ask(crate::runner::Runner::core_stats).ok()?;
            let used = stats.total.used().0;
            Some(CoreStatus {
                core: core.number(),
                reserved_ppm: stats.promised.0,
                reservable_ppm: stats.cap.0,
                busy_ns: used,
                overhead_ns: stats.thread.0.saturating_sub(used),
                stolen_ns: stats.stolen.0,
            })
        });
        let cores = cores.collect();
        let stats = self.processor_stats(self.sessions.values());
        let sessions =
            self.sessions.iter().map(|(name, session)| self.session(name, session, &stats)).collect();
        let (reserved, of) = self.memory();
        Snapshot {
            node: self.config.node.name.to_string(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_ns: u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX),
            at_ns: weir_datapath::moment::wall_clock().0,
            cores,
            interfaces: self.interfaces(),
            links: self.link_shots(),
            sessions,
            processes: crate::server::isolation::started(),
            refused_processes: crate::server::isolation::refused(),
            memory: Taken { reserved: reserved.0, of: of.0 },
            record_deletions_failed: self.writer.deletions_failed(),
            tables: self.workshop.shelf.shots(),
            views: self.view_shots(),
            // The daemon knows both.
            remote: None,
            revocations: None,
        }
    }

    fn interfaces(&self) -> Vec<InterfaceStatus> {
        let shot = |(name, source): (&String, &std::sync::Arc<weir_datapath::receive::Receiver>)| {
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
                unwanted: state.unwanted,
                stolen_ns: state.stolen.0,
                fragments: fragments(&state.fragments),
            }
        };
        self.sources.iter().map(shot).collect()
    }

    fn session(&self, name: &Name, session: &SessionState, stats: &ProcessorStats) -> SessionStatus {
        let cpu =
            session.vps.iter().map(|(name, vp)| self.processor(name, vp, stats.of(vp).unwrap_or_default().0));
        let memory = session.memory.state();
        let (tally, waiting) = session.services();
        let accounts = || session.vps.values().filter_map(|vp| stats.of(vp).map(|(_, account)| account));
        let services = ServicesStatus {
            calls: tally.calls,
            refused: tally.refused,
            answered: tally.answered,
            late: tally.late,
            failed: tally.failed,
            served: tally.served,
            waiting,
            discarded: tally.discarded,
            owed_ns: accounts().map(|account| account.owed.0).sum(),
            earned_ns: accounts().map(|account| account.earned.0).sum(),
        };
        SessionStatus {
            name: name.to_string(),
            credential: session.owner.as_ref().and_then(SessionOwner::dated_id).map(|id| id.to_string()),
            priority: session.spec.priority,
            memory_reserved: memory.reserved.0,
            memory_used: memory.used.0,
            memory_ceiling: memory.ceiling.0,
            memory_low: memory.times_low,
            memory_refused: memory.refused,
            limits: session.limits.shot(),
            cpu: cpu.collect(),
            channels: session.channels.iter().map(|(name, channel)| shot(name, channel, session)).collect(),
            outputs: self.output_shots(session),
            modules: session.modules.iter().map(|(name, module)| ended::shot(name, module)).collect(),
            ended: session.ended.shots(),
            used: bill::used(session, stats),
            services,
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
            core: self.cores.get(vp.core).map_or(0, crate::runner::CoreThread::number),
            period_ns: period.0,
            slice_ns: slice.0,
            spare: vp.spec.spare,
            used_ns: stats.used().0,
            spare_ns: stats.spare.0,
            periods_missed: stats.periods_missed,
            overruns: stats.overruns,
            debited_ns: stats.debited.0,
        }
    }
}

/// The fates of fragments, by name.
pub(crate) fn fates(counters: &FragmentCounters) -> [(&'static str, u64); 5] {
    let FragmentCounters { first, followed, unknown, displaced, repeated } = *counters;
    [
        ("first", first),
        ("followed", followed),
        ("unknown", unknown),
        ("displaced", displaced),
        ("repeated", repeated),
    ]
}

/// The fates of fragments, as far as there were any.
fn fragments(counters: &FragmentCounters) -> BTreeMap<String, u64> {
    let any = fates(counters).into_iter().filter(|(_, count)| *count > 0);
    any.map(|(name, count)| (name.to_owned(), count)).collect()
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn shot(name: &Name, channel: &SessionChannel, session: &SessionState) -> ChannelStatus {
    let queues = session.modules.values().filter(|module| module.spec.channel == *name);
    // The one that is fullest: that is where the next packet is lost.
    let waiting = queues.map(|module| module.queue.waiting()).max().unwrap_or(0);
    let drops = crate::plan::drops(&channel.tally).into_iter().filter(|(_, count)| *count > 0);
    let findings = channel.tally.findings().into_iter().filter(|(_, count)| *count > 0);
    ChannelStatus {
        name: name.to_string(),
        interface: channel.spec.interface.clone(),
        filter: channel.spec.filter.clone(),
        view: Some(channel.spec.shows())
            .filter(|view| *view != PacketView::ALL)
            .map_or_else(String::new, |view| view.to_string()),
        waiting: waiting.into(),
        queue: channel.spec.queue_len().into(),
        packets: get(&channel.tally.packets),
        bytes: get(&channel.tally.bytes),
        drops: drops.map(|(cause, count)| (cause.name().to_owned(), count)).collect(),
        findings: findings.map(|(name, count)| (name.to_owned(), count)).collect(),
        counts_others: !channel.screens.is_empty(),
    }
}
