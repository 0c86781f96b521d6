//! What sessions used since the last time, for the ledger.

use crate::link;
use crate::runner::{self, CoreThread};
use crate::sessions::node::{Node, SessionChannel, SessionModule, SessionState, Vp};
use crate::sessions::processors::ProcessorStats;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use weir_admission::Name;
use weir_datapath::account::DeferredCharges;
use weir_datapath::moment::Moment;
use weir_ledger::{
    ByteSeconds, DropCause, Idle, LedgerEvent, Reserved, ReservedProcessor, SessionId as Billed, Usage,
};
use weir_sched::cpu::Stats;
use weir_trust::credential::PrefixId;
use weir_units::{Nanos, Timestamp};

/// An interval of the ledger: when it began. Entries have the times of the wall clock; bills are by the monotonic clock, because the wall clock can be set.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    begin: Moment,
}

impl Interval {
    /// One that begins now.
    pub fn begin(now: Moment) -> Self {
        Self { begin: now }
    }

    /// Begin and end by the wall clock, if it ends now, and its length. Where the clock was set back, it begins when it ends.
    pub fn until(&self, now: Moment) -> (Timestamp, Timestamp, Nanos) {
        let length = Nanos(now.steady.0.saturating_sub(self.begin.steady.0));
        (self.begin.wall.min(now.wall), now.wall, length)
    }
}

/// What was billed of each session so far, by its number.
#[derive(Debug, Default)]
pub struct UsageRecorder {
    before: HashMap<u64, Usage>,
}

/// What sessions used in an interval.
#[derive(Debug, Default)]
pub struct IntervalUsage {
    /// What those used that did something.
    busy: Vec<(Billed, Usage)>,
    /// Those that did nothing, with the memory x time that they had.
    idle: Vec<(Billed, ByteSeconds)>,
}

impl IntervalUsage {
    /// A session and what it used, if it is anything.
    fn add(&mut self, session: Billed, usage: Usage) {
        if !usage.is_idle() {
            self.busy.push((session, usage));
        } else if usage.memory != ByteSeconds::default() {
            self.idle.push((session, usage.memory));
        }
    }

    /// As the ledger has it: an entry for each session that did something, and one for many of those that did nothing.
    pub fn events(self) -> impl Iterator<Item = LedgerEvent> {
        let usage = |(session, usage)| LedgerEvent::Usage { session, intervals: 1, usage: Box::new(usage) };
        let idle = Idle::of(self.idle).into_iter().map(|idle| LedgerEvent::Idle { idle });
        self.busy.into_iter().map(usage).chain(idle)
    }
}

impl UsageRecorder {
    /// What each session used in an interval of this length. One that has memory reserved has always used something.
    pub fn usages(&mut self, node: &Node, interval: Nanos) -> IntervalUsage {
        let stats = node.processor_stats(node.sessions.values());
        let mut all = IntervalUsage::default();
        for (name, session) in &node.sessions {
            let usage = self.part(&stats, session, interval);
            all.add(Billed { name: name.clone(), id: session.id }, usage);
        }
        all
    }

    /// What one session used since it was billed last.
    pub fn usage(
        &mut self,
        node: &Node,
        name: &Name,
        session: &SessionState,
        interval: Nanos,
    ) -> IntervalUsage {
        let mut one = IntervalUsage::default();
        let usage = self.part(&node.processor_stats(std::iter::once(session)), session, interval);
        one.add(Billed { name: name.clone(), id: session.id }, usage);
        one
    }

    fn part(&mut self, stats: &ProcessorStats, session: &SessionState, interval: Nanos) -> Usage {
        let mut usage = self.added(session.id, used(session, stats));
        usage.memory = ByteSeconds::of(session.memory.take_peak(), interval);
        let mut told = lock(&session.told);
        told.memory = told.memory.saturating_add(usage.memory);
        usage
    }

    /// What a session used beyond what was billed of it, when this is all that it used so far.
    fn added(&mut self, session: u64, mut now: Usage) -> Usage {
        let before = self.before.entry(session).or_default();
        // What a core did not answer for is billed when it does, and not twice.
        now.raise_to(before);
        if now == *before {
            return Usage::default();
        }
        let usage = now.since(before);
        *before = now;
        usage
    }

    /// A session is gone.
    pub fn forget(&mut self, session: u64) {
        self.before.remove(&session);
    }
}

impl Node {
    /// Something was analysed and compiled for a session. It is on its bill; where it is somebody's who has a credential, it is also missing in the slices of
    /// the virtual processor that it was for, or of another one of the session's: so its modules stand back until it is paid.
    pub(crate) fn charge(&mut self, session: &Name, cpu: Option<&Name>, used: Nanos) {
        let Some(there) = self.sessions.get_mut(session).filter(|_| used.0 > 0) else { return };
        there.compiled.0 = there.compiled.0.saturating_add(used.0);
        let vp = cpu.and_then(|cpu| there.vps.get(cpu)).or_else(|| there.vps.values().next());
        if let Some(vp) = vp.filter(|_| there.owner.is_some()) {
            take_from(&self.cores, vp, used);
        }
    }

    /// Takes processor time that stands on the accounts of holders from the next slices of their oldest sessions, where they have any.
    pub(crate) fn debit(&self, mut debts: BTreeMap<PrefixId, Nanos>) {
        let owned = |there: &&SessionState| {
            there.owner.as_ref().is_some_and(|owner| debts.contains_key(&owner.credential.id()))
        };
        let mut sessions: Vec<&SessionState> = self.sessions.values().filter(owned).collect();
        sessions.sort_unstable_by_key(|there| there.id);
        for there in sessions {
            let Some(vp) = there.vps.values().next() else { continue };
            let used = there.owner.as_ref().and_then(|owner| debts.remove(&owner.credential.id()));
            if let Some(used) = used.filter(|used| used.0 > 0) {
                take_from(&self.cores, vp, used);
            }
        }
    }
}

/// Sessions, reservations and tiers as the ledger has them.
impl Node {
    pub(crate) fn billed(&self, session: &Name) -> Option<Billed> {
        self.sessions.get(session).map(|there| Billed { name: session.clone(), id: there.id })
    }

    pub(crate) fn reserved(&self, session: &Name) -> Option<(Billed, Reserved)> {
        let there = self.sessions.get(session)?;
        let processors = there.vps.values().filter_map(|vp| {
            let (period, slice) = vp.spec.reservation()?;
            let core = self.cores.get(vp.core)?.number().into();
            Some(ReservedProcessor { core, period, slice, spare: vp.spec.spare })
        });
        let links = link::reserved(there);
        let reserved = Reserved::new(processors.collect(), there.spec.memory, links).unwrap_or_default();
        Some((self.billed(session)?, reserved))
    }

    pub(crate) fn tier(&self, session: &Name, module: &Name) -> Option<weir_admission::Tier> {
        Some(self.sessions.get(session)?.modules.get(module)?.tier)
    }
}

/// Takes processor time from the next slices of a virtual processor.
fn take_from(cores: &[CoreThread], vp: &Vp, used: Nanos) {
    if let Some(core) = cores.get(vp.core) {
        let id = vp.id;
        core.waker().tell(move |runner| runner.charge(id, used));
    }
}

/// Adds what a module used since it was loaded, with the time that others' threads spent for it, but not that on its virtual processor, which is
/// counted there.
pub fn add_module(used: &mut Usage, module: &SessionModule) {
    let (tally, written) = (&module.tally, &module.written);
    add_account(used, &module.account);
    for (sum, counter) in [
        (&mut used.packets_in, &tally.packets),
        (&mut used.bytes_in.0, &tally.bytes),
        (&mut used.records_written, &written.rows),
        (&mut used.faults, &tally.faults),
        (&mut used.strikes, &tally.strikes),
    ] {
        *sum = sum.saturating_add(counter.load(Ordering::Relaxed));
    }
    let held = lock(&tally.held);
    used.merge(&held);
    used.records_emitted = used.records_emitted.saturating_add(held.records_lost());
    for counter in [&tally.records, &tally.refused, &tally.unwritten] {
        used.records_emitted = used.records_emitted.saturating_add(counter.load(Ordering::Relaxed));
    }
    for (cause, counter) in [
        (DropCause::NoMemory, &tally.unseen),
        (DropCause::Verdict, &tally.dropped),
        (DropCause::ModuleFault, &tally.lost),
        (DropCause::RecordLimit, &tally.refused),
        (DropCause::WriteFailed, &tally.unwritten),
        (DropCause::WriteFailed, &written.lost),
    ] {
        used.drops.add(cause, counter.load(Ordering::Relaxed));
    }
}

/// Adds the time that others' threads spent.
fn add_account(used: &mut Usage, account: &DeferredCharges) {
    used.cpu.0 = used.cpu.0.saturating_add(account.total().0);
    used.receive.0 = used.receive.0.saturating_add(account.receiving().0);
}

/// Adds what was used and lost for a channel since it was made, beside what its modules did.
pub fn add_channel(used: &mut Usage, channel: &SessionChannel) {
    let tally = &channel.tally;
    add_account(used, &channel.account);
    used.packets_in = used.packets_in.saturating_add(tally.passed.load(Ordering::Relaxed));
    used.bytes_in.0 = used.bytes_in.0.saturating_add(tally.passed_bytes.load(Ordering::Relaxed));
    for (cause, count) in crate::plan::drops(tally) {
        used.drops.add(cause, count);
    }
}

/// Adds what a virtual processor had.
pub fn add_processor(used: &mut Usage, stats: &Stats, account: &runner::TimeSettlement) {
    // What it did for others and they pay is on their bills.
    used.cpu.0 += (stats.used().0 + account.owed.0).saturating_sub(account.earned.0);
    used.stolen.0 += stats.stolen.0 + account.stolen.0;
    used.periods_missed += stats.periods_missed;
}

/// The usage of a session since it was created: what metrics and status show, and what its bills add up to. Its memory is that of the intervals that have been billed.
pub(crate) fn used(session: &SessionState, stats: &ProcessorStats) -> Usage {
    let mut used = session.gone.clone();
    used.refusals += session.refusals;
    used.compile.0 = used.compile.0.saturating_add(session.compiled.0);
    used.cpu.0 = used.cpu.0.saturating_add(session.compiled.0);
    for (stats, account) in session.all_vps().filter_map(|vp| stats.of(vp)) {
        add_processor(&mut used, &stats, &account);
    }
    let modules = session.modules.values().chain(session.leaving.values());
    modules.for_each(|module| add_module(&mut used, module));
    session.channels.values().for_each(|channel| add_channel(&mut used, channel));
    session.limits.add_to(&mut used);
    session.outputs.values().for_each(|output| output.add_to(&mut used));
    let (services, _) = session.services();
    used.drops.add(DropCause::Deadline, services.late);
    used.drops.add(DropCause::ServiceGone, services.failed);
    let mut told = lock(&session.told);
    // A core that does not answer takes nothing back.
    used.raise_to(&told);
    told.clone_from(&used);
    used
}

fn lock(told: &Mutex<Usage>) -> MutexGuard<'_, Usage> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weir_ledger::{LedgerEntry, UsageSummary};
    use weir_units::Bytes;

    #[test]
    fn what_is_billed_in_parts_is_what_was_used() {
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
    fn memory_is_billed_by_the_monotonic_clock() {
        const SECOND: u64 = 1_000_000_000;
        let moment = |wall: u64, steady: u64| Moment {
            wall: Timestamp(wall * SECOND),
            steady: Nanos(steady * SECOND),
        };
        let interval = Interval::begin(moment(10_000, 70));
        let twelve = ByteSeconds::of(Bytes(8 << 20), Nanos(12 * SECOND));
        // The wall clock goes on as it should, or was set forward or back by an hour.
        for (wall, begin) in [(10_012, 10_000), (13_612, 10_000), (6412, 6412)] {
            let (from, to, length) = interval.until(moment(wall, 82));
            assert_eq!((from, to), (Timestamp(begin * SECOND), Timestamp(wall * SECOND)));
            assert_eq!(ByteSeconds::of(Bytes(8 << 20), length), twelve);
        }
    }

    fn billed(id: u64) -> Billed {
        Billed { name: Name::new("s").unwrap(), id }
    }

    /// What became of a session in an interval: mostly nothing.
    fn any_interval() -> impl Strategy<Value = (u64, u64, u64, bool, u64)> {
        let some = || prop_oneof![3 => Just(0u64), 1 => 0..100u64];
        (some(), some(), some(), any::<bool>(), 0..3u64)
    }

    proptest! {
        /// Whether its core answers in time or not, whether it has memory or not, and whether it does something or nothing.
        #[test]
        fn bills_of_all_intervals_add_up_to_what_each_session_used(
            intervals in proptest::collection::vec((1..1_000u64, proptest::collection::vec(any_interval(), 5)), 1..20),
        ) {
            let (mut bill, mut summary) = (UsageRecorder::default(), UsageSummary::default());
            let mut totals = vec![(Usage::default(), ByteSeconds::default(), 0); 5];
            let last = intervals.len() - 1;
            for (at, (time, sessions)) in intervals.into_iter().enumerate() {
                let mut all = IntervalUsage::default();
                let mut busy = 0;
                for (id, (total, (cpu, packets, lost, answers, memory))) in (0..).zip(totals.iter_mut().zip(sessions)) {
                    let (used, held, intervals) = total;
                    used.cpu.0 += cpu;
                    used.packets_in += packets;
                    used.drops.add(DropCause::QueueFull, lost);
                    let mut now = used.clone();
                    if !answers && at < last {
                        now.cpu = Nanos(0);
                    }
                    let mut usage = bill.added(id, now);
                    usage.memory = ByteSeconds::of(Bytes(memory), Nanos(time));
                    *held = held.saturating_add(usage.memory);
                    *intervals += u64::from(!usage.is_empty());
                    busy += usize::from(!usage.is_idle());
                    all.add(billed(id), usage);
                }
                let events: Vec<LedgerEvent> = all.events().collect();
                prop_assert!(events.len() <= busy + 1, "{events:?}");
                for event in events {
                    let end = Timestamp(at as u64 + 1);
                    summary.add(&LedgerEntry { sequence: 1, node: Name::new("n").unwrap(), begin: end, end, event });
                }
            }
            for (id, (mut total, held, intervals)) in (0..).zip(totals) {
                total.memory = held;
                let row = summary.rows().find(|(session, _)| *session == Some(&billed(id)));
                let found = row.map_or((Usage::default(), 0), |(_, row)| (row.usage.clone(), row.intervals));
                prop_assert_eq!(found, (total, intervals));
            }
        }
    }
}
