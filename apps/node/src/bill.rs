//! What sessions used since the last time, for the ledger.

use crate::node::{Channel, Module, Node, Session};
use crate::processors::ProcessorStats;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_session::Name;
use weir_session::ledger::{ByteSeconds, DropCause, Session as Billed, Usage};
use weir_units::{Bytes, Nanos};

/// What was billed of each session so far, by its number.
#[derive(Debug, Default)]
pub struct Bill {
    before: HashMap<u64, Usage>,
}

impl Bill {
    /// What each session used in an interval of this length. One that has memory reserved has always used something.
    pub fn usages(&mut self, node: &Node, interval: Nanos) -> Vec<(Billed, Usage)> {
        let stats = node.processor_stats(node.sessions.values());
        let all = node.sessions.iter().map(|(name, session)| self.part(&stats, name, session, interval));
        all.filter(|(_, usage)| !usage.is_empty()).collect()
    }

    /// What one session used since it was billed last.
    pub fn usage(&mut self, node: &Node, name: &Name, session: &Session, interval: Nanos) -> (Billed, Usage) {
        self.part(&node.processor_stats(std::iter::once(session)), name, session, interval)
    }

    fn part(
        &mut self,
        stats: &ProcessorStats,
        name: &Name,
        session: &Session,
        interval: Nanos,
    ) -> (Billed, Usage) {
        let mut now = used(session, stats);
        let mut usage = match self.before.get(&session.id) {
            Some(before) => {
                // What a core did not answer for is billed when it does, and not twice.
                (now.cpu, now.stolen) = (now.cpu.max(before.cpu), now.stolen.max(before.stolen));
                since(&now, before)
            }
            None => now.clone(),
        };
        usage.memory = ByteSeconds::of(session.memory.take_peak(), interval);
        self.before.insert(session.id, now);
        (Billed { name: name.clone(), id: session.id }, usage)
    }

    /// A session is gone.
    pub fn forget(&mut self, session: u64) {
        self.before.remove(&session);
    }
}

/// What a module used since it was loaded, with the time that others' threads spent for it, but not that on its virtual processor, which is
/// counted there.
pub fn of_module(module: &Module) -> Usage {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (tally, written) = (&module.tally, &module.written);
    let mut usage = Usage {
        cpu: module.account.total(),
        packets_in: get(&tally.packets),
        bytes_in: Bytes(get(&tally.bytes)),
        records_emitted: get(&tally.records) + get(&tally.refused) + get(&tally.unwritten),
        records_written: get(&written.rows),
        faults: get(&tally.faults),
        strikes: get(&tally.strikes),
        ..Usage::default()
    };
    for (cause, count) in [
        (DropCause::NoMemory, get(&tally.unseen)),
        (DropCause::Verdict, get(&tally.dropped)),
        (DropCause::ModuleFault, get(&tally.lost)),
        (DropCause::RecordLimit, get(&tally.refused)),
        (DropCause::WriteFailed, get(&tally.unwritten) + get(&written.lost)),
    ] {
        usage.drops.add(cause, count);
    }
    usage
}

/// What was used and lost for a channel since it was made, beside what its modules did.
pub fn of_channel(channel: &Channel) -> Usage {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let mut usage = Usage {
        cpu: channel.account.total(),
        packets_in: get(&channel.tally.passed),
        bytes_in: Bytes(get(&channel.tally.passed_bytes)),
        ..Usage::default()
    };
    for (cause, count) in channel.tally.drops() {
        usage.drops.add(cause, count);
    }
    usage
}

/// What a session used since it was created, but for its memory.
fn used(session: &Session, stats: &ProcessorStats) -> Usage {
    let mut used = session.gone.clone();
    used.refusals += session.refusals;
    for (stats, account) in session.vps.values().filter_map(|vp| stats.of(vp)) {
        // What it did for others and they pay is on their bills.
        used.cpu.0 += (stats.used().0 + account.owed.0).saturating_sub(account.earned.0);
        used.stolen.0 += stats.stolen.0;
    }
    let modules = session.modules.values().chain(session.leaving.values());
    modules.for_each(|module| used.merge(&of_module(module)));
    session.channels.values().for_each(|channel| used.merge(&of_channel(channel)));
    session.outputs.values().for_each(|output| used.merge(&output.usage()));
    used
}

/// What was added to `before`.
fn since(now: &Usage, before: &Usage) -> Usage {
    let less = |now: u64, before: u64| now.saturating_sub(before);
    let mut usage = Usage {
        cpu: Nanos(less(now.cpu.0, before.cpu.0)),
        stolen: Nanos(less(now.stolen.0, before.stolen.0)),
        packets_in: less(now.packets_in, before.packets_in),
        bytes_in: Bytes(less(now.bytes_in.0, before.bytes_in.0)),
        packets_out: less(now.packets_out, before.packets_out),
        bytes_out: Bytes(less(now.bytes_out.0, before.bytes_out.0)),
        memory: ByteSeconds::default(),
        records_emitted: less(now.records_emitted, before.records_emitted),
        records_written: less(now.records_written, before.records_written),
        faults: less(now.faults, before.faults),
        strikes: less(now.strikes, before.strikes),
        refusals: less(now.refusals, before.refusals),
        drops: weir_session::ledger::Drops::default(),
    };
    for (cause, count) in now.drops.iter() {
        usage.drops.add(cause, less(count, before.drops.get(cause)));
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;

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
            sum.merge(&since(&total(pair[1]), &total(pair[0])));
        }
        assert_eq!(sum, total(1000));
    }
}
