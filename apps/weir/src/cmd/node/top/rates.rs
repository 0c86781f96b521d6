//! What happened between two snapshots. Pure.

use weir_node::control::protocol::{
    ChannelStatus, CoreStatus, InterfaceStatus, LinkStatus, ModuleStatus, OutputStatus, SessionStatus,
    Snapshot, ViewStatus, VirtualCpuStatus,
};

/// How things go: what belongs to each part of a snapshot, in its order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SnapshotRates {
    /// Of the cores.
    pub cores: Vec<CoreRates>,
    /// Of the interfaces.
    pub interfaces: Vec<InterfaceRates>,
    /// Of the links.
    pub links: Vec<OutputRates>,
    /// Of the views: packets that are transformed, a second.
    pub views: Vec<Rate>,
    /// Of the sessions.
    pub sessions: Vec<SessionRates>,
}

/// Shares of a core's time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreRates {
    /// In modules and on their behalf.
    pub busy: Rate,
    /// On deciding and waking.
    pub overhead: Rate,
    /// Not had.
    pub stolen: Rate,
}

/// Of an interface, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct InterfaceRates {
    /// Packets.
    pub packets: Rate,
    /// Bits on the link.
    pub bits: Rate,
    /// Packets that were missed.
    pub missed: Rate,
    /// Packets that nobody wanted.
    pub unwanted: Rate,
}

/// Of a session.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SessionRates {
    /// Share of a core that it has, as its bill has it: receiving and compiling included.
    pub cpu: Rate,
    /// Share of a core that its virtual processors have beyond their reservations.
    pub spare: Rate,
    /// Packets that came, a second.
    pub packets: Rate,
    /// Packets that it lost, a second.
    pub drops: Rate,
    /// Records that it emitted, a second.
    pub records: Rate,
    /// Of its virtual processors.
    pub processors: Vec<ProcessorRates>,
    /// Of its channels.
    pub channels: Vec<ChannelRates>,
    /// Of its output channels.
    pub outputs: Vec<OutputRates>,
    /// Of its modules.
    pub modules: Vec<ModuleRates>,
}

/// Of a virtual processor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessorRates {
    /// Share of its core.
    pub used: Rate,
    /// Of that, beyond its reservation.
    pub spare: Rate,
    /// Periods missed, a second.
    pub missed: Rate,
}

/// Of a channel, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ChannelRates {
    /// Packets that came.
    pub packets: Rate,
    /// Their bits on the link.
    pub bits: Rate,
    /// Packets that it lost.
    pub drops: Rate,
}

/// Of a link, or an output channel, a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OutputRates {
    /// Packets that went out.
    pub packets: Rate,
    /// Their bits: of an output channel on the wire, of a link without framing.
    pub bits: Rate,
    /// Packets that were lost.
    pub drops: Rate,
}

/// Of a module.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModuleRates {
    /// Packets a second.
    pub packets: Rate,
    /// Records a second.
    pub records: Rate,
    /// Share of a core.
    pub used: Rate,
    /// Processor time for a packet, ns; nothing where there was none.
    pub per_packet: Rate,
}

/// A rate; nothing where there is no earlier snapshot to take it from.
pub type Rate = Option<f64>;

/// The time between two snapshots of one run of a node, and what was counted in it.
#[derive(Clone, Copy)]
struct Between(Option<f64>);

impl Between {
    /// By the node's own clock, which nobody sets. A node that began anew has no past.
    fn of(before: Option<&Snapshot>, now: &Snapshot) -> Self {
        let nanos = before.and_then(|before| now.uptime_ns.checked_sub(before.uptime_ns));
        Self(nanos.filter(|nanos| *nanos > 0).map(float))
    }

    /// What a counter of nanoseconds grew by, as a share of the time.
    fn each(self, before: Option<u64>, now: u64) -> Rate {
        Some(grown(before, now) / self.0?)
    }

    /// What a counter of things grew by in a second.
    fn second(self, before: Option<u64>, now: u64) -> Rate {
        Some(grown(before, now) * 1e9 / self.0?)
    }
}

/// What a counter grew by. One that was not there before began at zero; one that counts less than before began again.
fn grown(before: Option<u64>, now: u64) -> f64 {
    float(now.checked_sub(before.unwrap_or(0)).unwrap_or(now))
}

#[expect(clippy::cast_precision_loss, reason = "for people to read")]
fn float(value: u64) -> f64 {
    value as f64
}

/// Pairs each part with itself in the earlier snapshot, if it was there.
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

/// The sum of rates; nothing where none is known.
fn total(rates: impl Iterator<Item = Rate>) -> Rate {
    rates.fold(None, |sum, rate| match (sum, rate) {
        (Some(sum), Some(rate)) => Some(sum + rate),
        (sum, rate) => sum.or(rate),
    })
}

impl SnapshotRates {
    /// Between an earlier snapshot, if there is one, and this one.
    pub fn of(before: Option<&Snapshot>, now: &Snapshot) -> Self {
        let time = Between::of(before, now);
        // Of another run of the node nothing goes on.
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
            views: views.map(|(before, now)| time.second(before.map(|it| it.packets), now.packets)).collect(),
            sessions: sessions.map(|(before, now)| session(time, before, now)).collect(),
        }
    }
}

fn core(time: Between, before: Option<&CoreStatus>, now: &CoreStatus) -> CoreRates {
    let each = |value: fn(&CoreStatus) -> u64| time.each(before.map(value), value(now));
    CoreRates {
        busy: each(|core| core.busy_ns),
        overhead: each(|core| core.overhead_ns),
        stolen: each(|core| core.stolen_ns),
    }
}

fn interface(time: Between, before: Option<&InterfaceStatus>, now: &InterfaceStatus) -> InterfaceRates {
    let second = |value: fn(&InterfaceStatus) -> u64| time.second(before.map(value), value(now));
    InterfaceRates {
        packets: second(|it| it.packets),
        bits: second(|it| it.bytes).map(|bytes| bytes * 8.0),
        missed: second(|it| it.missed),
        unwanted: second(|it| it.unwanted),
    }
}

fn session(time: Between, before: Option<&SessionStatus>, now: &SessionStatus) -> SessionRates {
    let processors = pairs(before.map(|b| &b.cpu[..]), &now.cpu, |cpu: &VirtualCpuStatus| &cpu.name);
    let channels = pairs(before.map(|b| &b.channels[..]), &now.channels, |it: &ChannelStatus| &it.name);
    let outputs = pairs(before.map(|b| &b.outputs[..]), &now.outputs, |it: &OutputStatus| &it.name);
    let modules = pairs(before.map(|b| &b.modules[..]), &now.modules, |it: &ModuleStatus| &it.name);
    let processors: Vec<_> = processors.map(|(before, now)| processor(time, before, now)).collect();
    let channels: Vec<_> = channels.map(|(before, now)| channel(time, before, now)).collect();
    let modules: Vec<_> = modules.map(|(before, now)| module(time, before, now)).collect();
    SessionRates {
        cpu: time.each(before.map(|session| session.used.cpu.0), now.used.cpu.0),
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

fn processor(time: Between, before: Option<&VirtualCpuStatus>, now: &VirtualCpuStatus) -> ProcessorRates {
    let each = |value: fn(&VirtualCpuStatus) -> u64| time.each(before.map(value), value(now));
    ProcessorRates {
        used: each(|cpu| cpu.used_ns),
        spare: each(|cpu| cpu.spare_ns),
        missed: time.second(before.map(|cpu| cpu.periods_missed), now.periods_missed),
    }
}

fn channel(time: Between, before: Option<&ChannelStatus>, now: &ChannelStatus) -> ChannelRates {
    let second = |value: fn(&ChannelStatus) -> u64| time.second(before.map(value), value(now));
    let drops = |channel: &ChannelStatus| sum(&channel.drops.values().collect::<Vec<_>>(), |count| **count);
    ChannelRates {
        packets: second(|channel| channel.packets),
        bits: second(|channel| channel.bytes).map(|bytes| bytes * 8.0),
        drops: time.second(before.map(drops), drops(now)),
    }
}

fn link(time: Between, before: Option<&LinkStatus>, now: &LinkStatus) -> OutputRates {
    let second = |value: fn(&LinkStatus) -> u64| time.second(before.map(value), value(now));
    OutputRates {
        packets: second(|it| it.packets),
        bits: second(|it| it.bytes).map(|bytes| bytes * 8.0),
        drops: second(|it| it.lost),
    }
}

fn output(time: Between, before: Option<&OutputStatus>, now: &OutputStatus) -> OutputRates {
    let second = |value: fn(&OutputStatus) -> u64| time.second(before.map(value), value(now));
    OutputRates {
        packets: second(|it| it.packets),
        bits: second(|it| it.wire_bytes).map(|bytes| bytes * 8.0),
        drops: second(|it| it.drops.values().fold(0, |sum, count| sum.saturating_add(*count))),
    }
}

fn module(time: Between, before: Option<&ModuleStatus>, now: &ModuleStatus) -> ModuleRates {
    let second = |value: fn(&ModuleStatus) -> u64| time.second(before.map(value), value(now));
    let (packets, used) = (second(|module| module.packets), second(|module| module.used_ns));
    ModuleRates {
        packets,
        records: second(|module| module.records),
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
        serde_json::from_str(include_str!("../../../../../node/tests/snapshot.json")).unwrap()
    }

    /// Two seconds later.
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
        let rates = SnapshotRates::of(None, &first());
        assert_eq!(rates.cores, [CoreRates::default()]);
        assert_eq!(rates.sessions.len(), 2);
        assert_eq!((rates.sessions[0].cpu, rates.sessions[0].modules[0]), (None, ModuleRates::default()));
        // Nor has one of the same moment.
        assert_eq!(SnapshotRates::of(Some(&first()), &first()).sessions[0].cpu, None);
    }

    #[test]
    fn rates_are_differences_over_time() {
        let rates = SnapshotRates::of(Some(&first()), &second());
        assert_eq!((rates.cores[0].busy, rates.cores[0].stolen), (Some(0.5), Some(0.0)));
        assert_eq!((rates.interfaces[0].packets, rates.interfaces[0].bits), (Some(1_000.0), Some(4e6)));
        let modest = &rates.sessions[1];
        assert_eq!((modest.cpu, modest.spare), (Some(0.21), Some(0.05)));
        assert_eq!((modest.packets, modest.drops, modest.records), (Some(500.0), Some(5.0), Some(25.0)));
        assert_eq!(modest.modules[0].per_packet, Some(300_000.0));
        assert_eq!(rates.sessions[0].modules[0].per_packet, None, "no packets in this time");
    }

    #[test]
    fn what_comes_begins_at_zero_and_what_goes_is_gone() {
        let mut now = second();
        now.sessions.remove(0);
        now.sessions[0].name = "new".to_owned();
        let rates = SnapshotRates::of(Some(&first()), &now);
        assert_eq!(rates.sessions.len(), 1);
        assert_eq!(rates.sessions[0].packets, Some(500_500.0));
    }

    #[test]
    fn a_counter_that_restarts_never_gives_a_negative_rate() {
        let mut now = second();
        let module = &mut now.sessions[1].modules[0];
        (module.packets, module.used_ns) = (10, 20);
        let rates = SnapshotRates::of(Some(&first()), &now);
        let module = rates.sessions[1].modules[0];
        assert_eq!((module.packets, module.per_packet), (Some(5.0), Some(2.0)));
        // Nor does a node that restarts.
        now.uptime_ns = 5;
        assert_eq!(SnapshotRates::of(Some(&first()), &now), SnapshotRates::of(None, &now));
    }
}
