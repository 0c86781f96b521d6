//! The usage of sessions: in total, for the status; and since the previous report, for the ledger.

use crate::core_thread::runner::{self, CoreThread};
use crate::sessions::link;
use crate::sessions::node::{Node, SessionChannel, SessionModule, SessionState, Vp};
use crate::sessions::processors::ProcessorStats;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use weir_admission::Name;
use weir_datapath::account::DeferredCharges;
use weir_datapath::clock::ClockReading;
use weir_ledger::{ByteSeconds, DropCause, Idle, LedgerEvent, Reserved, ReservedProcessor, SessionId, Usage};
use weir_sched::cpu::Stats;
use weir_trust::credential::DelegationId;
use weir_units::{Nanos, Timestamp};

/// An interval of the ledger. Entries have wall-clock times. Amounts of time are measured by the monotonic clock,
/// because the wall clock can be set.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    begin: ClockReading,
}

impl Interval {
    /// Begins an interval.
    pub fn begin(now: ClockReading) -> Self {
        Self { begin: now }
    }

    /// Ends the interval. Returns its begin and end by the wall clock, and its length by the monotonic clock. If the
    /// wall clock was set back, begin and end are equal.
    pub fn until(&self, now: ClockReading) -> (Timestamp, Timestamp, Nanos) {
        let length = Nanos(now.monotonic.0.saturating_sub(self.begin.monotonic.0));
        (self.begin.wall.min(now.wall), now.wall, length)
    }
}

/// Computes the usage of sessions since the previous report. Remembers the reported usage of each session, by the
/// session's number.
#[derive(Debug, Default)]
pub struct UsageRecorder {
    reported: HashMap<u64, Usage>,
}

/// Usage of sessions in an interval.
#[derive(Debug, Default)]
pub struct IntervalUsage {
    busy: Vec<(SessionId, Usage)>,
    /// Idle sessions, with their memory-time.
    idle: Vec<(SessionId, ByteSeconds)>,
}

impl IntervalUsage {
    /// Adds the usage of a session, unless the session has used nothing.
    fn add(&mut self, session: SessionId, usage: Usage) {
        if !usage.is_idle() {
            self.busy.push((session, usage));
        } else if usage.memory != ByteSeconds::default() {
            self.idle.push((session, usage.memory));
        }
    }

    /// Returns the ledger events: one for each busy session, and one for many idle sessions.
    pub fn events(self) -> impl Iterator<Item = LedgerEvent> {
        let usage = |(session, usage)| LedgerEvent::Usage { session, intervals: 1, usage: Box::new(usage) };
        let idle = Idle::entries(self.idle).into_iter().map(|idle| LedgerEvent::Idle { idle });
        self.busy.into_iter().map(usage).chain(idle)
    }
}

impl UsageRecorder {
    /// Returns the usage of each session since it was last reported. `interval` is the length of this time, by which
    /// reserved memory is multiplied.
    pub fn usage_of_all(&mut self, node: &Node, interval: Nanos) -> IntervalUsage {
        let stats = node.processor_stats(node.sessions.values());
        let mut all = IntervalUsage::default();
        for (name, session) in &node.sessions {
            let usage = self.usage_since_report(&stats, session, interval);
            all.add(SessionId { name: name.clone(), id: session.id }, usage);
        }
        all
    }

    /// Returns the usage of one session since it was last reported. `interval` is the length of this time.
    pub fn usage_of_session(
        &mut self,
        node: &Node,
        name: &Name,
        session: &SessionState,
        interval: Nanos,
    ) -> IntervalUsage {
        let mut one = IntervalUsage::default();
        let usage =
            self.usage_since_report(&node.processor_stats(std::iter::once(session)), session, interval);
        one.add(SessionId { name: name.clone(), id: session.id }, usage);
        one
    }

    fn usage_since_report(
        &mut self,
        stats: &ProcessorStats,
        session: &SessionState,
        interval: Nanos,
    ) -> Usage {
        let mut usage = self.since_reported(session.id, total_usage(session, stats));
        usage.memory = ByteSeconds::held_for(session.memory.take_peak(), interval);
        session.reported.with(|reported| reported.memory = reported.memory.saturating_add(usage.memory));
        usage
    }

    /// Returns the difference between a session's total usage `now` and its reported usage.
    fn since_reported(&mut self, session: u64, mut now: Usage) -> Usage {
        let before = self.reported.entry(session).or_default();
        // If a core did not answer, the total lacks its virtual CPUs. `raise_to` keeps the total from falling, so
        // their usage is reported later, and only once.
        now.raise_to(before);
        if now == *before {
            return Usage::default();
        }
        let usage = now.since(before);
        *before = now;
        usage
    }

    /// Forgets a session that is gone.
    pub fn forget(&mut self, session: u64) {
        self.reported.remove(&session);
    }
}

impl Node {
    /// Charges a session for the CPU time of analysis and compilation. If the session has an owner, the time is also
    /// debited from the next slices of the virtual CPU `cpu`, or of another one if the session has no virtual CPU of
    /// this name.
    pub(crate) fn charge(&mut self, session: &Name, cpu: Option<&Name>, used: Nanos) {
        let Some(state) = self.sessions.get_mut(session).filter(|_| used.0 > 0) else { return };
        state.compiled.0 = state.compiled.0.saturating_add(used.0);
        let vp = cpu.and_then(|cpu| state.vps.get(cpu)).or_else(|| state.vps.values().next());
        if let Some(vp) = vp.filter(|_| state.owner.is_some()) {
            debit_vp(&self.cores, vp, used);
        }
    }

    /// Debits the CPU time in `debts` from the next slices of each holder's oldest session.
    pub(crate) fn debit(&self, mut debts: BTreeMap<DelegationId, Nanos>) {
        let has_debt = |state: &&SessionState| {
            state.owner.as_ref().is_some_and(|owner| debts.contains_key(&owner.credential.id()))
        };
        let mut sessions: Vec<&SessionState> = self.sessions.values().filter(has_debt).collect();
        sessions.sort_unstable_by_key(|state| state.id);
        for state in sessions {
            let Some(vp) = state.vps.values().next() else { continue };
            let used = state.owner.as_ref().and_then(|owner| debts.remove(&owner.credential.id()));
            if let Some(used) = used.filter(|used| used.0 > 0) {
                debit_vp(&self.cores, vp, used);
            }
        }
    }
}

impl Node {
    /// Returns name and number of a session.
    pub(crate) fn session_id(&self, session: &Name) -> Option<SessionId> {
        self.sessions.get(session).map(|state| SessionId { name: session.clone(), id: state.id })
    }

    /// Returns the reservations of a session, as the ledger records them.
    pub(crate) fn reserved(&self, session: &Name) -> Option<(SessionId, Reserved)> {
        let state = self.sessions.get(session)?;
        let processors = state.vps.values().filter_map(|vp| {
            let (period, slice) = vp.spec.reservation()?;
            let core = self.cores.get(vp.core)?.number().into();
            Some(ReservedProcessor { core, period, slice, spare: vp.spec.borrow })
        });
        let links = link::reserved(state);
        let reserved = Reserved::new(processors.collect(), state.spec.memory, links).unwrap_or_default();
        Some((self.session_id(session)?, reserved))
    }

    /// Returns the tier of a session's module.
    pub(crate) fn tier(&self, session: &Name, module: &Name) -> Option<weir_admission::Tier> {
        Some(self.sessions.get(session)?.modules.get(module)?.tier)
    }
}

/// Debits CPU time from the next slices of a virtual CPU.
fn debit_vp(cores: &[CoreThread], vp: &Vp, used: Nanos) {
    if let Some(core) = cores.get(vp.core) {
        let id = vp.id;
        core.waker().submit(move |runner| runner.charge(id, used));
    }
}

/// Adds the usage of a module since it was loaded, with the CPU time that other threads spent for the module. The
/// module's time on its virtual CPU is part of the virtual CPU's usage ([`add_processor`]).
pub fn add_module(used: &mut Usage, module: &SessionModule) {
    let (counters, written) = (&module.counters, &module.written);
    add_account(used, &module.account);
    for (sum, counter) in [
        (&mut used.packets_in, &counters.packets),
        (&mut used.bytes_in.0, &counters.bytes),
        (&mut used.records_written, &written.rows),
        (&mut used.faults, &counters.faults),
        (&mut used.strikes, &counters.strikes),
    ] {
        *sum = sum.saturating_add(counter.load(Ordering::Relaxed));
    }
    let limited = counters.limited.get();
    used.merge(&limited);
    used.records_emitted = used.records_emitted.saturating_add(limited.records_lost());
    for counter in [&counters.records, &counters.refused, &counters.discarded, &counters.unwritten] {
        used.records_emitted = used.records_emitted.saturating_add(counter.load(Ordering::Relaxed));
    }
    for (cause, counter) in [
        (DropCause::NoMemory, &counters.unseen),
        (DropCause::Verdict, &counters.dropped),
        (DropCause::ModuleFault, &counters.trapped),
        (DropCause::OverLimit, &counters.over_limit),
        (DropCause::RecordLimit, &counters.refused),
        (DropCause::RecordOfLostCall, &counters.discarded),
        (DropCause::DiskFull, &written.disk_full),
        (DropCause::WriteFailed, &counters.unwritten),
        (DropCause::WriteFailed, &written.lost),
    ] {
        used.drops.add(cause, counter.load(Ordering::Relaxed));
    }
}

/// Adds the CPU time that other threads spent for a module or channel.
fn add_account(used: &mut Usage, account: &DeferredCharges) {
    used.cpu.0 = used.cpu.0.saturating_add(account.total().0);
    used.receive.0 = used.receive.0.saturating_add(account.receiving().0);
}

/// Adds the usage and the drops of a channel since it was created, without those of its modules.
pub fn add_channel(used: &mut Usage, channel: &SessionChannel) {
    let counters = &channel.counters;
    add_account(used, &channel.account);
    used.packets_in = used.packets_in.saturating_add(counters.passed.load(Ordering::Relaxed));
    used.bytes_in.0 = used.bytes_in.0.saturating_add(counters.passed_bytes.load(Ordering::Relaxed));
    for (cause, count) in crate::sessions::channel_plan::drops(counters) {
        used.drops.add(cause, count);
    }
}

/// Adds the usage of a virtual CPU since it was created.
pub fn add_processor(used: &mut Usage, stats: &Stats, account: &runner::TimeSettlement) {
    // The credit is time that other sessions pay for. It is in the usage of these sessions, as their debit.
    used.cpu.0 += (stats.used().0 + account.debit.0).saturating_sub(account.credit.0);
    used.stolen.0 += stats.stolen.0 + account.stolen.0;
    used.periods_missed += stats.periods_missed;
}

/// Returns the usage of a session since it was created, for the status and metrics. It equals the sum of the session's
/// ledger entries, once they are written. The memory-time is that of the reported intervals.
pub(crate) fn total_usage(session: &SessionState, stats: &ProcessorStats) -> Usage {
    let mut used = session.closed_usage.clone();
    used.refusals += session.refusals;
    used.compile.0 = used.compile.0.saturating_add(session.compiled.0);
    used.cpu.0 = used.cpu.0.saturating_add(session.compiled.0);
    for (stats, account) in session.all_vps().filter_map(|vp| stats.of(vp)) {
        add_processor(&mut used, &stats, &account);
    }
    let modules = session.modules.values().chain(session.stopping.values());
    modules.for_each(|module| add_module(&mut used, module));
    session.channels.values().for_each(|channel| add_channel(&mut used, channel));
    session.limits.add_to(&mut used);
    session.outputs.values().for_each(|output| output.add_to(&mut used));
    let (services, _) = session.services();
    used.drops.add(DropCause::Deadline, services.late);
    used.drops.add(DropCause::ServiceGone, services.failed);
    session.reported.with(|reported| {
        // The total must not fall if a core does not answer.
        used.raise_to(reported);
        reported.clone_from(&used);
    });
    used
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_ledger::{LedgerEntry, UsageSummary};
    use weir_units::Bytes;

    #[test]
    fn usage_reported_in_parts_adds_up_to_the_total() {
        let total = |n: u64| {
            let mut usage =
                Usage { cpu: Nanos(n * 7), packets_in: n, records_written: n / 2, ..Usage::default() };
            usage.drops.add(DropCause::QueueFull, n / 3);
            usage
        };
        let mut sum = Usage::default();
        for pair in [0u64, 10, 10, 25, 1000].windows(2) {
            sum.merge(&total(pair[1]).since(&total(pair[0])));
        }
        assert_eq!(sum, total(1000));
    }

    #[test]
    fn memory_time_is_charged_by_the_monotonic_clock() {
        const SECOND: u64 = 1_000_000_000;
        let moment = |wall: u64, monotonic: u64| ClockReading {
            wall: Timestamp(wall * SECOND),
            monotonic: Nanos(monotonic * SECOND),
        };
        let interval = Interval::begin(moment(10_000, 70));
        let twelve = ByteSeconds::held_for(Bytes(8 << 20), Nanos(12 * SECOND));
        // The wall clock goes on, or was set forward or back by an hour.
        for (wall, begin) in [(10_012, 10_000), (13_612, 10_000), (6412, 6412)] {
            let (from, to, length) = interval.until(moment(wall, 82));
            assert_eq!((from, to), (Timestamp(begin * SECOND), Timestamp(wall * SECOND)));
            assert_eq!(ByteSeconds::held_for(Bytes(8 << 20), length), twelve);
        }
    }

    fn session_id(id: u64) -> SessionId {
        SessionId { name: Name::new("s").unwrap(), id }
    }

    /// The usage of a session in an interval: mostly none.
    fn any_interval() -> impl Strategy<Value = (u64, u64, u64, bool, u64)> {
        let some = || prop_oneof![3 => Just(0u64), 1 => 0..100u64];
        (some(), some(), some(), any::<bool>(), 0..3u64)
    }

    proptest! {
        /// Covers cores that do not answer, sessions without memory, and idle intervals.
        #[test]
        fn usage_of_all_intervals_adds_up_to_the_total_of_each_session(
            intervals in proptest::collection::vec((1..1_000u64, proptest::collection::vec(any_interval(), 5)), 1..20),
        ) {
            let (mut recorder, mut summary) = (UsageRecorder::default(), UsageSummary::default());
            let mut totals = vec![(Usage::default(), ByteSeconds::default(), 0); 5];
            let last = intervals.len() - 1;
            for (at, (time, sessions)) in intervals.into_iter().enumerate() {
                let mut all = IntervalUsage::default();
                let mut busy = 0;
                for (id, (total, (cpu, packets, lost, answers, memory))) in (0..).zip(totals.iter_mut().zip(sessions)) {
                    let (used, limited, intervals) = total;
                    used.cpu.0 += cpu;
                    used.packets_in += packets;
                    used.drops.add(DropCause::QueueFull, lost);
                    let mut now = used.clone();
                    if !answers && at < last {
                        now.cpu = Nanos(0);
                    }
                    let mut usage = recorder.since_reported(id, now);
                    usage.memory = ByteSeconds::held_for(Bytes(memory), Nanos(time));
                    *limited = limited.saturating_add(usage.memory);
                    *intervals += u64::from(!usage.is_empty());
                    busy += usize::from(!usage.is_idle());
                    all.add(session_id(id), usage);
                }
                let events: Vec<LedgerEvent> = all.events().collect();
                prop_assert!(events.len() <= busy + 1, "{events:?}");
                for event in events {
                    let end = Timestamp(at as u64 + 1);
                    summary.add(&LedgerEntry { sequence: 1, node: Name::new("n").unwrap(), begin: end, end, event });
                }
            }
            for (id, (mut total, limited, intervals)) in (0..).zip(totals) {
                total.memory = limited;
                let row = summary.rows().find(|(session, _)| *session == Some(&session_id(id)));
                let found = row.map_or((Usage::default(), 0), |(_, row)| (row.usage.clone(), row.intervals));
                prop_assert_eq!(found, (total, intervals));
            }
        }
    }
}
