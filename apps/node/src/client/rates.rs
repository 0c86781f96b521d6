//! Rates that a client shows, computed from two snapshots of a node. This file does no I/O.

use crate::control::protocol::{
    ChannelStatus, CoreStatus, InterfaceStatus, LinkStatus, ModuleStatus, OutputStatus, SessionStatus,
    Snapshot, ViewStatus, VirtualCpuStatus,
};
use serde::Serialize;

/// The rates of all parts of a snapshot, in the order of the snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SnapshotRates {
    /// The rates of the cores.
    pub cores: Vec<CoreRates>,
    /// The rates of the interfaces.
    pub interfaces: Vec<InterfaceRates>,
    /// The rates of the links.
    pub links: Vec<OutputRates>,
    /// The packets per second that each view transforms.
    pub views: Vec<Rate>,
    /// The rates of the sessions.
    pub sessions: Vec<SessionRates>,
}

/// Shares of a core's time, from 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CoreRates {
    /// Share spent in modules and in work for modules.
    pub busy: Rate,
    /// Share spent on scheduling and wake-ups.
    pub overhead: Rate,
    /// Share taken by other processes or the hypervisor.
    pub stolen: Rate,
}

/// Rates of an interface, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct InterfaceRates {
    /// Packets received.
    pub packets: Rate,
    /// Bits of the received packets.
    pub bits: Rate,
    /// Packets that the interface lost before the node received them.
    pub missed: Rate,
    /// Packets that matched no channel.
    pub unmatched: Rate,
}

/// Rates of a session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct SessionRates {
    /// Processor time charged to the session, as a share of a core. Includes the time of receiving packets and
    /// compiling modules.
    pub cpu: Rate,
    /// Share of a core used by its virtual CPUs beyond their reservations.
    pub spare: Rate,
    /// Packets received per second.
    pub packets: Rate,
    /// Packets lost per second.
    pub drops: Rate,
    /// Records emitted per second.
    pub records: Rate,
    /// The rates of its virtual CPUs.
    pub processors: Vec<ProcessorRates>,
    /// The rates of its channels.
    pub channels: Vec<ChannelRates>,
    /// The rates of its output channels.
    pub outputs: Vec<OutputRates>,
    /// The rates of its modules.
    pub modules: Vec<ModuleRates>,
}

/// Rates of a virtual CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ProcessorRates {
    /// Share of the core that the virtual CPU used, from 0 to 1.
    pub used: Rate,
    /// Share of the core that the virtual CPU used beyond its reservation.
    pub spare: Rate,
    /// Periods missed per second.
    pub missed: Rate,
}

/// Rates of a channel, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ChannelRates {
    /// Packets received.
    pub packets: Rate,
    /// Bits of the received packets.
    pub bits: Rate,
    /// Packets lost.
    pub drops: Rate,
}

/// Rates of a link or an output channel, per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct OutputRates {
    /// Packets sent.
    pub packets: Rate,
    /// Bits sent. For an output channel, the framing of the wire is included; for a link, it is not.
    pub bits: Rate,
    /// Packets lost.
    pub drops: Rate,
}

/// Rates of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ModuleRates {
    /// Packets per second.
    pub packets: Rate,
    /// Records per second.
    pub records: Rate,
    /// Share of a core, from 0 to 1.
    pub used: Rate,
    /// Processor time per packet in ns; `None` without packets.
    pub per_packet: Rate,
}

/// A rate; `None` if it is unknown, as without an earlier snapshot.
pub type Rate = Option<f64>;

/// The time between two snapshots of one run of a node, in ns. `None` without an earlier snapshot of this run.
#[derive(Clone, Copy)]
struct Interval(Option<f64>);

impl Interval {
    /// Returns the time between two snapshots, measured by the node's uptime, which is monotonic. A smaller uptime
    /// shows that the node was restarted between the snapshots.
    fn between(before: Option<&Snapshot>, now: &Snapshot) -> Self {
        let nanos = before.and_then(|before| now.uptime_ns.checked_sub(before.uptime_ns));
        Self(nanos.filter(|nanos| *nanos > 0).map(float))
    }

    /// Returns the increase of a counter of nanoseconds as a share of the interval.
    fn share(self, before: Option<u64>, now: u64) -> Rate {
        Some(increase(before, now) / self.0?)
    }

    /// Returns the increase of a counter per second.
    fn per_second(self, before: Option<u64>, now: u64) -> Rate {
        Some(increase(before, now) * 1e9 / self.0?)
    }
}

/// Returns the increase of a counter. A new counter started at zero. A counter that has decreased was restarted at
/// zero.
fn increase(before: Option<u64>, now: u64) -> f64 {
    float(now.checked_sub(before.unwrap_or(0)).unwrap_or(now))
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn float(value: u64) -> f64 {
    value as f64
}

/// Pairs each part of a snapshot with the part of the earlier snapshot that has the same key; `None` for a new part.
fn pairs<'a, T, K: PartialEq>(
    before: Option<&'a [T]>,
    now: &'a [T],
    key: impl Fn(&'a T) -> K + Copy,
) -> impl Iterator<Item = (Option<&'a T>, &'a T)> {
    now.iter().map(move |part| {
        let earlier = before.and_then(|before| before.iter().find(|earlier| key(earlier) == key(part)));
        (earlier, part)
    })
}

fn sum<T>(parts: &[T], value: impl Fn(&T) -> u64) -> u64 {
    parts.iter().map(value).fold(0, u64::saturating_add)
}

/// Returns the sum of the known rates; `None` if all are unknown.
fn total(rates: impl Iterator<Item = Rate>) -> Rate {
    rates.fold(None, |sum, rate| match (sum, rate) {
        (Some(sum), Some(rate)) => Some(sum + rate),
        (sum, rate) => sum.or(rate),
    })
}

impl SnapshotRates {
    /// Computes the rates between an earlier snapshot, if there is one, and this one.
    pub fn between(before: Option<&Snapshot>, now: &Snapshot) -> Self {
        let time = Interval::between(before, now);
        // Counters of another run of the node are not comparable.
        let before = before.filter(|_| time.0.is_some());
        let cores = pairs(before.map(|b| &b.cores[..]), &now.cores, |core: &CoreStatus| core.core);
        let interfaces =
            pairs(before.map(|b| &b.interfaces[..]), &now.interfaces, |it: &InterfaceStatus| &it.name);
        let links = pairs(before.map(|b| &b.links[..]), &now.links, |it: &LinkStatus| &it.name);
        let views = pairs(before.map(|b| &b.views[..]), &now.views, |it: &ViewStatus| it.number);
        let sessions = pairs(before.map(|b| &b.sessions[..]), &now.sessions, |it: &SessionStatus| &it.name);
        Self {
            cores: cores.map(|(before, now)| core(time, before, now)).collect(),
            interfaces: interfaces.map(|(before, now)| interface(time, before, now)).collect(),
            links: links.map(|(before, now)| link(time, before, now)).collect(),
            views: views
                .map(|(before, now)| time.per_second(before.map(|it| it.packets), now.packets))
                .collect(),
            sessions: sessions.map(|(before, now)| session(time, before, now)).collect(),
        }
    }
}

fn core(time: Interval, before: Option<&CoreStatus>, now: &CoreStatus) -> CoreRates {
    let share = |value: fn(&CoreStatus) -> u64| time.share(before.map(value), value(now));
    CoreRates {
        busy: share(|core| core.busy_ns),
        overhead: share(|core| core.overhead_ns),
        stolen: share(|core| core.stolen_ns),
    }
}

fn interface(time: Interval, before: Option<&InterfaceStatus>, now: &InterfaceStatus) -> InterfaceRates {
    let per_second = |value: fn(&InterfaceStatus) -> u64| time.per_second(before.map(value), value(now));
    InterfaceRates {
        packets: per_second(|it| it.packets),
        bits: per_second(|it| it.bytes).map(|bytes| bytes * 8.0),
        missed: per_second(|it| it.missed),
        unmatched: per_second(|it| it.unmatched),
    }
}

fn session(time: Interval, before: Option<&SessionStatus>, now: &SessionStatus) -> SessionRates {
    let processors = pairs(before.map(|b| &b.cpu[..]), &now.cpu, |cpu: &VirtualCpuStatus| &cpu.name);
    let channels = pairs(before.map(|b| &b.channels[..]), &now.channels, |it: &ChannelStatus| &it.name);
    let outputs = pairs(before.map(|b| &b.outputs[..]), &now.outputs, |it: &OutputStatus| &it.name);
    let modules = pairs(before.map(|b| &b.modules[..]), &now.modules, |it: &ModuleStatus| &it.name);
    let processors: Vec<_> = processors.map(|(before, now)| processor(time, before, now)).collect();
    let channels: Vec<_> = channels.map(|(before, now)| channel(time, before, now)).collect();
    let modules: Vec<_> = modules.map(|(before, now)| module(time, before, now)).collect();
    SessionRates {
        cpu: time.share(before.map(|session| session.used.cpu.0), now.used.cpu.0),
        spare: total(processors.iter().map(|cpu| cpu.spare)),
        packets: total(channels.iter().map(|channel| channel.packets)),
        drops: total(channels.iter().map(|channel| channel.drops)),
        records: total(modules.iter().map(|module| module.records)),
        processors,
        channels,
        outputs: outputs.map(|(before, now)| output(time, before, now)).collect(),
        modules,
    }
}

fn processor(time: Interval, before: Option<&VirtualCpuStatus>, now: &VirtualCpuStatus) -> ProcessorRates {
    let share = |value: fn(&VirtualCpuStatus) -> u64| time.share(before.map(value), value(now));
    ProcessorRates {
        used: share(|cpu| cpu.used_ns),
        spare: share(|cpu| cpu.spare_ns),
        missed: time.per_second(before.map(|cpu| cpu.periods_missed), now.periods_missed),
    }
}

fn channel(time: Interval, before: Option<&ChannelStatus>, now: &ChannelStatus) -> ChannelRates {
    let per_second = |value: fn(&ChannelStatus) -> u64| time.per_second(before.map(value), value(now));
    let drops = |channel: &ChannelStatus| sum(&channel.drops.values().collect::<Vec<_>>(), |count| **count);
    ChannelRates {
        packets: per_second(|channel| channel.packets),
        bits: per_second(|channel| channel.bytes).map(|bytes| bytes * 8.0),
        drops: time.per_second(before.map(drops), drops(now)),
    }
}

fn link(time: Interval, before: Option<&LinkStatus>, now: &LinkStatus) -> OutputRates {
    let per_second = |value: fn(&LinkStatus) -> u64| time.per_second(before.map(value), value(now));
    OutputRates {
        packets: per_second(|it| it.packets),
        bits: per_second(|it| it.bytes).map(|bytes| bytes * 8.0),
        drops: per_second(|it| it.lost),
    }
}

fn output(time: Interval, before: Option<&OutputStatus>, now: &OutputStatus) -> OutputRates {
    let per_second = |value: fn(&OutputStatus) -> u64| time.per_second(before.map(value), value(now));
    OutputRates {
        packets: per_second(|it| it.packets),
        bits: per_second(|it| it.wire_bytes).map(|bytes| bytes * 8.0),
        drops: per_second(|it| it.drops.values().fold(0, |sum, count| sum.saturating_add(*count))),
    }
}

fn module(time: Interval, before: Option<&ModuleStatus>, now: &ModuleStatus) -> ModuleRates {
    let per_second = |value: fn(&ModuleStatus) -> u64| time.per_second(before.map(value), value(now));
    let (packets, used) = (per_second(|module| module.packets), per_second(|module| module.used_ns));
    ModuleRates {
        packets,
        records: per_second(|module| module.records),
        used: used.map(|used| used / 1e9),
        per_packet: used
            .zip(packets)
            .filter(|(_, packets)| *packets > 0.0)
            .map(|(used, packets)| used / packets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first() -> Snapshot {
        serde_json::from_str(include_str!("../../tests/snapshot.json")).unwrap()
    }

    /// A snapshot two seconds later.
    fn second() -> Snapshot {
        let mut now = first();
        now.uptime_ns += 2_000_000_000;
        now.cores[0].busy_ns += 1_000_000_000;
        now.interfaces[0].packets += 2_000;
        now.interfaces[0].bytes += 1_000_000;
        let modest = &mut now.sessions[1];
        modest.cpu[0].used_ns += 400_000_000;
        modest.cpu[0].spare_ns += 100_000_000;
        modest.channels[0].packets += 1_000;
        modest.used.cpu.0 += 420_000_000;
        *modest.channels[0].drops.get_mut("lagged").unwrap() += 6;
        modest.channels[0].drops.insert("shed".to_owned(), 4);
        modest.modules[0].packets += 1_000;
        modest.modules[0].used_ns += 300_000_000;
        modest.modules[0].records += 50;
        now
    }

    #[test]
    fn a_first_snapshot_has_no_rates() {
        let rates = SnapshotRates::between(None, &first());
        assert_eq!(rates.cores, [CoreRates::default()]);
        assert_eq!(rates.sessions.len(), 2);
        assert_eq!((rates.sessions[0].cpu, rates.sessions[0].modules[0]), (None, ModuleRates::default()));
        // A snapshot of the same moment has none either.
        assert_eq!(SnapshotRates::between(Some(&first()), &first()).sessions[0].cpu, None);
    }

    #[test]
    fn rates_are_differences_over_time() {
        let rates = SnapshotRates::between(Some(&first()), &second());
        assert_eq!((rates.cores[0].busy, rates.cores[0].stolen), (Some(0.5), Some(0.0)));
        assert_eq!((rates.interfaces[0].packets, rates.interfaces[0].bits), (Some(1_000.0), Some(4e6)));
        let modest = &rates.sessions[1];
        assert_eq!((modest.cpu, modest.spare), (Some(0.21), Some(0.05)));
        assert_eq!((modest.packets, modest.drops, modest.records), (Some(500.0), Some(5.0), Some(25.0)));
        assert_eq!(modest.modules[0].per_packet, Some(300_000.0));
        assert_eq!(rates.sessions[0].modules[0].per_packet, None, "no packets in this time");
    }

    #[test]
    fn new_parts_start_at_zero_and_removed_parts_disappear() {
        let mut now = second();
        now.sessions.remove(0);
        now.sessions[0].name = "new".to_owned();
        let rates = SnapshotRates::between(Some(&first()), &now);
        assert_eq!(rates.sessions.len(), 1);
        assert_eq!(rates.sessions[0].packets, Some(500_500.0));
    }

    #[test]
    fn a_counter_that_restarts_never_gives_a_negative_rate() {
        let mut now = second();
        let module = &mut now.sessions[1].modules[0];
        (module.packets, module.used_ns) = (10, 20);
        let rates = SnapshotRates::between(Some(&first()), &now);
        let module = rates.sessions[1].modules[0];
        assert_eq!((module.packets, module.per_packet), (Some(5.0), Some(2.0)));
        // A restarted node gives no negative rates either.
        now.uptime_ns = 5;
        assert_eq!(SnapshotRates::between(Some(&first()), &now), SnapshotRates::between(None, &now));
    }
}
