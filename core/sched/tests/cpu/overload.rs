//! More packets than a core can process, in simulated time.

use weir_sched::cpu::{
    CoreConfig, CoreScheduler, CpuAllocation, CpuDecision, CpuReservation, CpuTerms, LoadShedder, QueueLoad,
    RunOutcome, VcpuId, Weight,
};
use weir_units::Nanos;

const CAPACITY: u64 = 1000;
/// The CPU time of a packet in nanoseconds.
const PACKET: u64 = 5_000;

struct Reader {
    vcpu_id: VcpuId,
    load: QueueLoad,
    /// The time between two packets.
    every: u64,
    next: u64,
    waiting: u64,
    seen: u64,
    lost: u64,
}

/// Readers by shed priority, time between packets, and reservation in microseconds per ten milliseconds.
fn readers(core: &mut CoreScheduler, parts: &[(u8, u64, Option<u64>)]) -> Vec<Reader> {
    let reader = |&(priority, every, reserved): &(u8, u64, Option<u64>)| {
        let share = match reserved {
            Some(slice) => CpuAllocation::Reserved(CpuReservation {
                period: Nanos(10_000_000),
                slice: Nanos(slice * 1000),
                spare: None,
            }),
            None => CpuAllocation::BestEffort(Weight::USUAL),
        };
        let vcpu_id = core.create(CpuTerms { share, overrun: Nanos(0) }, Nanos(0)).unwrap();
        let is_best_effort = reserved.is_none();
        let load = QueueLoad { priority, filled: 0, takes_unreserved: is_best_effort, is_best_effort };
        Reader { vcpu_id, load, every, next: 0, waiting: 0, seen: 0, lost: 0 }
    };
    parts.iter().map(reader).collect()
}

/// Simulates three seconds, with or without shedding.
fn run(parts: &[(u8, u64, Option<u64>)], sheds: bool) -> Vec<Reader> {
    let mut core = CoreScheduler::new(CoreConfig::default());
    let mut readers = readers(&mut core, parts);
    let (mut overload, mut now) = (LoadShedder::default(), 0);
    while now < 3_000_000_000 {
        for reader in &mut readers {
            while reader.next <= now {
                reader.next += reader.every;
                if reader.waiting == CAPACITY || overload.sheds(&reader.load) {
                    reader.lost += 1;
                    continue;
                }
                reader.waiting += 1;
                if reader.waiting == 1 {
                    core.wake(reader.vcpu_id, Nanos(now)).unwrap();
                }
            }
        }
        match core.next(Nanos(now)) {
            CpuDecision::Run { vcpu_id, budget, .. } => {
                let reader = readers.iter_mut().find(|reader| reader.vcpu_id == vcpu_id).unwrap();
                let packets = (budget.0 / PACKET).clamp(1, reader.waiting.max(1)).min(reader.waiting);
                reader.waiting -= packets;
                reader.seen += packets;
                let used = packets * PACKET;
                now += used;
                let outcome = if reader.waiting == 0 { RunOutcome::Idle } else { RunOutcome::Ready };
                core.charge(Nanos(used), Nanos(now), outcome).unwrap();
            }
            CpuDecision::Idle { until } => {
                let next = readers.iter().map(|reader| reader.next).min().unwrap();
                now = until.map_or(next, |until| until.0.min(next)).max(now + 1);
            }
        }
        for reader in &mut readers {
            reader.load.filled = u32::try_from(reader.waiting * 1000 / CAPACITY).unwrap();
        }
        let loads: Vec<QueueLoad> = readers.iter().map(|reader| reader.load).collect();
        if sheds {
            overload.update(&loads);
        }
        for reader in readers.iter_mut().filter(|reader| overload.sheds(&reader.load)) {
            reader.lost += std::mem::take(&mut reader.waiting);
        }
    }
    readers
}

/// The core can process 200,000 packets a second.
#[test]
fn under_overload_the_highest_loses_nothing_and_the_lowest_loses_most() {
    // 120,000 packets a second arrive at the highest priority and 60,000 at each lower one: more than the core can
    // process, and more than a third each.
    let parts = [(0, 16_667, None), (1, 16_667, None), (2, 8_334, None)];
    let with = run(&parts, true);
    assert_eq!(with[2].lost, 0);
    assert!(with[0].lost > 4 * with[1].lost, "{} and {}", with[0].lost, with[1].lost);
    assert!(with[1].seen > 100_000, "there is time for some of them: {}", with[1].seen);
    // All CPU time is used, as without shedding; but without shedding the highest priority loses packets.
    let without = run(&parts, false);
    assert!(without[2].lost > 100_000, "{}", without[2].lost);
}

#[test]
fn reservations_are_kept_whatever_the_priority() {
    // The lowest priority has reserved a tenth of the core, which is what it needs.
    let parts = [(0, 60_000, Some(1000)), (1, 16_667, None), (9, 7_000, None)];
    let readers = run(&parts, true);
    assert_eq!((readers[0].lost, readers[2].lost), (0, 0));
    assert!(readers[1].lost > 0);
}

#[test]
fn nothing_is_shed_if_there_is_time_for_all() {
    let parts = [(0, 20_000, None), (1, 20_000, None), (2, 20_000, None)];
    for reader in run(&parts, true) {
        assert_eq!(reader.lost, 0);
    }
}
