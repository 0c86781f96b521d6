//! Price of Safety, figure 16: garbage of one event source that is collected in the time of another one, unless they have
//! separate heaps.

use super::network::{Traffic, VethPair, datagram};
use super::node::{NodeProcess, check_no_faults, parse_module};
use super::{Chart, ChartAxis, Criterion, Csv, Figure, Mark, Mechanism, synthetic};
use crate::error::{Context, LabError};
use crate::machine::{OTHER_CORE, bind};
use crate::namespace::use_real_time_priority;
use std::time::Duration;
use weir_netio::{LiveSink, SocketKind};
use weir_sched::cpu::trace::{TraceEvent, TraceInput, TraceOutput};
use weir_sched::cpu::{CpuDecision, DebitKind, RunOutcome, VcpuId};

pub const FIGURE: Figure = Figure {
    name: "price-16",
    title: "Price of Safety, figure 16: garbage collection for others",
    experiment: "A, without a guarantee, and B, with 1 ms in each 4 ms, are virtual CPUs of two sessions. For each packet they call a service of the \
shipped module `hog`, which is written in a garbage-collected language and makes objects. The caller pays for the service. An event of B \
ends when its call has been served. Its duration counts from the wakeup of B's virtual CPU for the packet, according to the trace of the \
core's scheduler. B has 50 equal events per second, of 100 objects each. A has 397 per second, of 5 objects each, and of 2,000 each from \
0 s on. First both call one instance, then each its own, in separate sessions on the same core. Before the measurement B has filled \
50,000 entries and all garbage has been collected, so that B alone would trigger no collection. The chart shows each event, and B's \
longest event before A makes much garbage (thin line). Other programs of the machine have to wait meanwhile (`SCHED_RR`). B counts as \
disturbed if more of its later events are above that line than chance explains. If A's garbage made no difference to B, all orders of B's \
events would be equally likely, and some later events would be above the line by chance. So many of them that fewer than one of 100 \
experiments has as many by chance show a disturbance.",
    paper: "in one heap B, whose own garbage does not change, has to wait for and perform an irregular but substantial amount of collection when A \
starts to make much garbage. In two heaps B's time stays the same. The chart of the paper shows collection time, and the one here the \
duration of whole events: an instance does one thing at a time, so B waits while it works for A. The collector of this language works in \
small steps at each allocation and in a few large ones, nearly all of which fall to A.",
    without: "A and B call the same instance in the second run, too",
    run,
};

/// The session that a virtual CPU belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    A,
    B,
}

/// The arguments of a call of the service. The service makes objects, and stores each in one of the heap's entries in place
/// of an older object.
struct ServiceArguments {
    /// The number of objects to make; 0 collects all garbage instead.
    objects: u32,
    /// The first of the entries that are used in turn.
    first_entry: u32,
    /// The number of these entries.
    entries: u32,
}

/// The number of B's entries, which are filled before the measurement.
const B_ENTRIES: u32 = 50_000;
/// The number of A's entries, which follow B's.
const A_ENTRIES: u32 = 10_000;
/// A call that collects all garbage.
const COLLECT: ServiceArguments = ServiceArguments { objects: 0, first_entry: 0, entries: 0 };
/// A call that fills some of B's entries.
const FILL: ServiceArguments = ServiceArguments { objects: 2_500, first_entry: 0, entries: B_ENTRIES };
/// An event of B.
const B_EVENT: ServiceArguments = ServiceArguments { objects: 100, first_entry: 0, entries: B_ENTRIES };
/// An event of A before it makes much garbage.
const A_QUIET: ServiceArguments = ServiceArguments { objects: 5, first_entry: B_ENTRIES, entries: A_ENTRIES };
/// An event of A from then on, when it makes much garbage (*churns*).
const A_CHURN: ServiceArguments = ServiceArguments { objects: 2_000, ..A_QUIET };
/// Events of B per second.
const B_RATE: u64 = 50;
/// Events of A per second. The number is no multiple of B's, so that A's events come at all phases of B's.
const A_RATE: u64 = 397;
/// The duration of the quiet part, and of the part with much garbage.
const PART: Duration = Duration::from_millis(4500);
/// The interval of calls that fill a heap, longer than a call.
const PAUSE: Duration = Duration::from_millis(40);
/// The ports of A and B, and an unused port.
const PORTS: [u16; 3] = [1, 2, 3];
/// The level of significance of the test whether B is disturbed.
const LEVEL: f64 = 0.01;
/// The least number of B's events in each part.
const EVENTS_MIN: usize = 100;

/// A completed event: its owner, its end in seconds since A started to churn, its duration in us, and the processor time of
/// its call in us.
#[derive(Clone, Copy, Debug, PartialEq)]
struct CompletedEvent {
    owner: Owner,
    end_s: f64,
    duration_us: f64,
    cpu_us: f64,
}

fn run(mechanism: Mechanism) -> Result<super::Outcome, LabError> {
    use_real_time_priority();
    bind(OTHER_CORE)?;
    let one = record(1)?;
    let two = record(if mechanism == Mechanism::On { 2 } else { 1 })?;
    let mut csv = Csv::new(&["heaps", "owner", "time_s", "duration_us", "cpu_us"]);
    for (heaps, events) in [("one", &one), ("two", &two)] {
        for CompletedEvent { owner, end_s, duration_us, cpu_us } in events {
            let owner = if *owner == Owner::A { "a" } else { "b" };
            csv.row([heaps.into(), owner.into(), (*end_s).into(), (*duration_us).into(), (*cpu_us).into()]);
        }
    }
    let (criteria, remarks) = judge(&one, &two)?;
    let name = FIGURE.name.to_owned();
    let charts =
        [("one", &one), ("two", &two)].map(|(heaps, events)| (format!("{name}-{heaps}"), chart(events)));
    Ok(super::Outcome { records: vec![(name, csv)], charts: charts.into(), criteria, remarks })
}

/// Runs one experiment, in which `heaps` sessions (1 or 2) offer the service. Returns the completed events. A further
/// session is created when A starts to churn, as a mark in the trace.
fn record(heaps: usize) -> Result<Vec<CompletedEvent>, LabError> {
    let _veth_pair = VethPair::new("a", "b")?;
    let folder = tempfile::tempdir().context("making a folder")?;
    let mut node = NodeProcess::start(&format!(
        "blocking = \"200us\"\ntrace = {:?}\n[[interface]]\nname = \"b\"\narena = \"8 MiB\"",
        folder.path().display().to_string()
    ))?;
    let names = ["heap-a", "heap-b"];
    let heap_of_b = names[heaps - 1];
    let [port_a, port_b, unused] = PORTS;
    for (name, heap) in [("a", names[0]), ("b", heap_of_b)] {
        let (cpu, port) = if name == "a" {
            (String::new(), port_a)
        } else {
            ("cpu = [{ period = \"4ms\", slice = \"1ms\" }]\n".to_owned(), port_b)
        };
        node.create(&format!(
            "name = \"{name}\"\nprofile = \"long\"\n{cpu}channel = [{{ interface = \"b\", filter = \"udp dst port {port}\" }}]\n\
             use = [{{ service = \"make\", session = \"{heap}\", cost_max = \"50ms\" }}]\n"
        ))?;
    }
    // B's heap has the shorter period, so it is served first.
    for (name, (period, slice)) in [(names[0], (10, 2500)), (heap_of_b, (2, 500))].into_iter().skip(2 - heaps)
    {
        node.create(&format!(
            "name = \"{name}\"\nprofile = \"long\"\ncpu = [{{ period = \"{period}ms\", slice = \"{slice}us\", borrow = true }}]\n\
             channel = [{{ interface = \"b\", filter = \"udp dst port {unused}\" }}]\n\
             offer = [{{ service = \"make\", callers = [\"a\", \"b\"], payer = \"caller\" }}]\n"
        ))?;
        let hog = "module = \"hog\"\nset = { per-packet = 0, per-tick = 0, size = 64, live = 60000, interval = \"24h\" }";
        node.load(name, parse_module(hog)?, &[])?;
    }
    let calling = synthetic::calling("make")?;
    for name in ["a", "b"] {
        node.load(name, parse_module("module = \"calling.wasm\"")?, &calling)?;
    }
    let mut sink = LiveSink::open("a", SocketKind::Packet)?;
    for _ in 0..B_ENTRIES / FILL.objects {
        sink.send(&[&frame(port_b, &FILL)]);
        std::thread::sleep(PAUSE);
    }
    for port in [port_a, port_b] {
        sink.send(&[&frame(port, &COLLECT)]);
        std::thread::sleep(PAUSE * 5);
    }
    let b = Traffic::start("a", vec![frame(port_b, &B_EVENT)])?;
    let a = Traffic::start("a", vec![frame(port_a, &A_QUIET)])?;
    let churning = Traffic::start("a", vec![frame(port_a, &A_CHURN)])?;
    b.set_rate(B_RATE);
    a.set_rate(A_RATE);
    std::thread::sleep(PART);
    a.set_rate(0);
    node.create("name = \"mark\"\n")?;
    churning.set_rate(A_RATE);
    std::thread::sleep(PART);
    drop((a, b, churning));
    check_no_faults(&node.snapshot()?)?;
    node.stop()?;
    let path = folder.path().join("core-1.trace");
    let text = std::fs::read_to_string(&path).context("reading the trace of a core")?;
    read(&text, 2 + heaps)
}

/// A packet to a port, with the arguments of a call.
fn frame(port: u16, arguments: &ServiceArguments) -> Vec<u8> {
    let mut frame = datagram((1000, port), 60);
    let words = [arguments.objects, arguments.first_entry, arguments.entries].map(u32::to_le_bytes);
    frame[synthetic::PAYLOAD_AT..synthetic::PAYLOAD_AT + 12].copy_from_slice(words.as_flattened());
    frame
}

/// The events of A and B in a scheduler trace of their core, from `PART` before the mark on. A and B have the first two
/// virtual CPUs. The mark is the virtual CPU that was created after `mark` others.
fn read(trace: &str, mark: usize) -> Result<Vec<CompletedEvent>, LabError> {
    let mut created: Vec<VcpuId> = Vec::new();
    let (mut marked_at, mut is_suspended) = (None, false);
    let mut states = [CpuState::default(); 2];
    let mut done: Vec<(Owner, u64, u64, u64)> = Vec::new();
    for line in trace.lines().skip(1) {
        let unreadable = |_| LabError::NoData(format!("the trace of the core has an invalid line: {line}"));
        let event: TraceEvent = line.parse().map_err(unreadable)?;
        let now = event.now.0;
        let index_of = |vcpu_id: VcpuId| created.iter().take(2).position(|id| *id == vcpu_id);
        match (event.input, event.answer) {
            (TraceInput::Create(_), TraceOutput::Created(vcpu_id)) => {
                if created.len() == mark {
                    marked_at = Some(now);
                }
                created.push(vcpu_id);
            }
            (TraceInput::Wake(vcpu_id), TraceOutput::Done) => {
                if let Some(index) = index_of(vcpu_id) {
                    states[index].woken = now;
                }
            }
            // The event begins with the last wakeup before this run. It has to be stored now: the answer of the service wakes
            // the virtual CPU once more, before the line from which the event's end is read.
            (TraceInput::Next, TraceOutput::Decided(CpuDecision::Run { vcpu_id, .. })) => {
                if let Some(index) = index_of(vcpu_id) {
                    states[index].begun = states[index].woken;
                }
            }
            // After each run of the service, the trace has the charge of the run and then its debit from the caller's virtual
            // CPU. Several runs can belong to one call; the last of them is the one that is not suspended.
            (TraceInput::Charge(_, outcome), _) => is_suspended = outcome == RunOutcome::Suspended,
            (TraceInput::Debit(vcpu_id, time, DebitKind::Requested), TraceOutput::Undebited(_)) => {
                let Some(index) = index_of(vcpu_id) else { continue };
                states[index].cpu += time.0;
                if !is_suspended {
                    let owner = if index == 0 { Owner::A } else { Owner::B };
                    let cpu = std::mem::take(&mut states[index].cpu);
                    done.push((owner, now, now.saturating_sub(states[index].begun), cpu));
                }
            }
            _ => {}
        }
    }
    let marked_at = marked_at.ok_or_else(|| {
        LabError::NoData("the trace of the core ends before A makes much garbage".to_owned())
    })?;
    let seconds = |at: u64| (i128::from(at) - i128::from(marked_at)) as f64 / 1e9;
    let all = done.into_iter().map(|(owner, end, duration, cpu)| CompletedEvent {
        owner,
        end_s: seconds(end),
        duration_us: duration as f64 / 1e3,
        cpu_us: cpu as f64 / 1e3,
    });
    Ok(all.filter(|event| event.end_s >= -PART.as_secs_f64()).collect())
}

/// The state of a virtual CPU, in nanoseconds: the time of the last wakeup, that of the wakeup before the last run, and the
/// processor time of the current call.
#[derive(Clone, Copy, Debug, Default)]
struct CpuState {
    woken: u64,
    begun: u64,
    cpu: u64,
}

/// The durations of B's events in one experiment.
struct EventTimes {
    /// The longest event before A started to churn, in us.
    longest_before: f64,
    /// The longest event after that, in us.
    longest_after: f64,
    /// The number of events after that.
    count: usize,
    /// The number of these events that are longer than all events before.
    longer: usize,
    /// The number of longer events that chance explains.
    longer_by_chance: usize,
}

impl EventTimes {
    fn from_events(events: &[CompletedEvent]) -> Result<Self, LabError> {
        let durations = |is_in_part: fn(f64) -> bool| -> Result<Vec<f64>, LabError> {
            let of_b = events.iter().filter(|event| event.owner == Owner::B && is_in_part(event.end_s));
            let durations: Vec<f64> = of_b.map(|event| event.duration_us).collect();
            if durations.len() < EVENTS_MIN {
                let count = durations.len();
                return Err(LabError::NoData(format!("B had only {count} events in one of the two parts")));
            }
            Ok(durations)
        };
        let (quiet, churn) = (durations(|end| end < 0.0)?, durations(|end| end >= 0.0)?);
        let longest_before = longest(&quiet);
        Ok(Self {
            longest_before,
            longest_after: longest(&churn),
            count: churn.len(),
            longer: churn.iter().filter(|duration| **duration > longest_before).count(),
            longer_by_chance: longer_by_chance(quiet.len(), churn.len()),
        })
    }
}

fn longest(durations: &[f64]) -> f64 {
    durations.iter().copied().fold(0.0, f64::max)
}

/// The largest number of later values above all earlier ones that chance explains: with all orders of the values equally
/// likely, the probability that more later values are above all earlier ones is below [`LEVEL`].
///
/// At least `k` later values are above all earlier ones exactly if the `k` greatest of all values are later ones. The loop
/// computes the probability of that for `k` = 1, 2, and so on.
fn longer_by_chance(earlier: usize, later: usize) -> usize {
    let mut probability = 1.0;
    for count in 0..later {
        probability *= (later - count) as f64 / (earlier + later - count) as f64;
        if probability < LEVEL {
            return count;
        }
    }
    later
}

fn judge(one: &[CompletedEvent], two: &[CompletedEvent]) -> Result<(Vec<Criterion>, String), LabError> {
    let (shared, separate) = (EventTimes::from_events(one)?, EventTimes::from_events(two)?);
    let what = |heaps: &str, times: &EventTimes| {
        format!("{heaps}: of B's {} events since A churns, longer than any before", times.count)
    };
    let least = (shared.longer_by_chance + 1) as f64;
    let criteria = vec![
        Criterion::at_least(what("one heap", &shared), shared.longer as f64, least, "events"),
        Criterion::at_most(
            what("two heaps", &separate),
            separate.longer as f64,
            separate.longer_by_chance as f64,
            "events",
        ),
    ];
    let mut calls: Vec<f64> = one
        .iter()
        .filter(|event| event.owner == Owner::A && event.end_s >= 0.0)
        .map(|event| event.cpu_us)
        .collect();
    calls.sort_by(f64::total_cmp);
    let median = calls.get(calls.len() / 2).copied().unwrap_or(0.0);
    let remarks = format!(
        "In one heap B's longest event took {:.0} us before A churned and {:.0} us since, in two {:.0} us and {:.0} us. In one heap, since A churned, a call of A took {median:.0} us of processor time in the \
         median, and {:.0} us at most. What a call takes beyond the median is work of the collector, for which B waited.",
        shared.longest_before,
        shared.longest_after,
        separate.longest_before,
        separate.longest_after,
        longest(&calls)
    );
    Ok((criteria, remarks))
}

fn chart(events: &[CompletedEvent]) -> Chart {
    let part = PART.as_secs_f64();
    let mut chart = Chart::new(
        ChartAxis::linear("time since A makes much garbage, s", -part, part),
        ChartAxis::logarithmic("an event takes, us", 10.0, 100_000.0),
    );
    if let Ok(EventTimes { longest_before, .. }) = EventTimes::from_events(events) {
        chart.add("", 5, Mark::Expected(vec![(-part, longest_before), (part, longest_before)]));
    }
    for (owner, name, colour) in [(Owner::A, "A", 1), (Owner::B, "B", 0)] {
        let own = events.iter().filter(|event| event.owner == owner);
        chart.add(name, colour, Mark::Points(own.map(|event| (event.end_s, event.duration_us)).collect()));
    }
    chart
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Events of B. One in twenty takes `before` us before A churns and `after` us from then on; the others take 10 us.
    fn made(before: f64, after: f64) -> Vec<CompletedEvent> {
        let event = |n: u32| {
            let at = f64::from(n) / 50.0 - 4.5;
            let long = if at < 0.0 { before } else { after };
            CompletedEvent {
                owner: Owner::B,
                end_s: at,
                duration_us: if n.is_multiple_of(20) { long } else { 10.0 },
                cpu_us: 9.0,
            }
        };
        (0..450).map(event).collect()
    }

    fn kept(one: &[CompletedEvent], two: &[CompletedEvent]) -> Vec<bool> {
        judge(one, two).unwrap().0.iter().map(|criterion| criterion.is_kept).collect()
    }

    #[test]
    fn only_more_long_events_than_chance_explains_count_as_a_disturbance() {
        let (calm, disturbed) = (made(110.0, 110.0), made(110.0, 120.0));
        assert_eq!(kept(&disturbed, &calm), [true, true]);
        assert_eq!(kept(&disturbed, &disturbed), [true, false]);
        assert_eq!(kept(&calm, &calm), [false, true]);
        // A few longer events can be chance.
        let mut few = calm.clone();
        few[225..231].iter_mut().for_each(|event| event.duration_us = 5000.0);
        assert_eq!(kept(&few, &few), [false, true]);
        few[231].duration_us = 5000.0;
        assert_eq!(kept(&few, &few), [true, false]);
        assert!(matches!(judge(&disturbed, &calm[..300]), Err(LabError::NoData(_))));
    }

    #[test]
    fn the_number_that_chance_explains_agrees_with_a_count_of_all_orders() {
        // Of one earlier value and 98 later ones, all later ones are greater in one of 99 cases.
        assert_eq!(longer_by_chance(1, 98), 98);
        // That the k greatest of 450 values are all among the 225 later ones has a probability of about one in 2^k.
        assert_eq!(longer_by_chance(225, 225), 6);
        assert_eq!(longer_by_chance(1000, 1), 0);
        // Counted in all orders of nine values, of which the first five came earlier.
        let mut counts = [0usize; 5];
        orders(&mut [0, 1, 2, 3, 4, 5, 6, 7, 8], 0, &mut |order| {
            let before = order[..5].iter().max().unwrap();
            counts[order[5..].iter().filter(|value| *value > before).count()] += 1;
        });
        let more_than = |count: usize| counts[count + 1..].iter().sum::<usize>();
        let all: usize = counts.iter().sum();
        let expected = (0..5).find(|count| more_than(*count) * 100 < all).unwrap();
        assert_eq!((longer_by_chance(5, 4), expected, all), (3, 3, 362_880));
    }

    fn orders(values: &mut [u8; 9], from: usize, see: &mut impl FnMut(&[u8; 9])) {
        if from == values.len() {
            return see(values);
        }
        for other in from..values.len() {
            values.swap(from, other);
            orders(values, from + 1, see);
            values.swap(from, other);
        }
    }

    #[test]
    fn the_processor_time_of_a_call_is_the_sum_of_its_debits() {
        let trace = "weir-cpu-trace 2 blocking 1 cap 1 arrears 1\n\
            0 create best-effort 100 0 -> created 0.0\n\
            0 create reserved 4000000 1000000 0 0 -> created 1.0\n\
            0 create reserved 4000000 1200000 100 0 -> created 2.0\n\
            1000 charge 7000 idle -> done\n\
            1000 debit 1.0 7000 agreed -> left 0\n\
            3999600000 wake 0.0 -> done\n\
            3999700000 next -> run 0.0 200000 spare\n\
            3999750000 charge 50000 idle -> done\n\
            4000000000 charge 200000 suspended -> done\n\
            4000000000 debit 0.0 200000 agreed -> left 0\n\
            4000400000 charge 150000 ready -> done\n\
            4000400000 wake 0.0 -> done\n\
            4000400000 debit 0.0 150000 agreed -> left 0\n\
            5500000000 create best-effort 100 0 -> created 3.0\n\
            5999800000 debit 1.0 700 imposed -> left 0\n\
            5999900000 wake 1.0 -> done\n\
            5999950000 next -> run 1.0 200000 reserved\n\
            6000000000 charge 9000 idle -> done\n\
            6000000000 debit 2.0 5 agreed -> left 0\n\
            6000000000 debit 1.0 9000 agreed -> left 0\n";
        let events = read(trace, 3).unwrap();
        let expected = [
            CompletedEvent { owner: Owner::A, end_s: -1.4996, duration_us: 800.0, cpu_us: 350.0 },
            CompletedEvent { owner: Owner::B, end_s: 0.5, duration_us: 100.0, cpu_us: 9.0 },
        ];
        assert_eq!(events, expected, "events before the quiet part are left out");
        assert!(matches!(read(trace, 4), Err(LabError::NoData(_))));
        assert!(matches!(read("\nx", 0), Err(LabError::NoData(_))));
    }

    #[test]
    fn a_call_has_the_arguments_that_hog_reads() {
        let frame = frame(7, &ServiceArguments { objects: 1, first_entry: 0x0203, entries: 4 });
        assert_eq!(frame[36..38], [0, 7]);
        assert_eq!(frame[synthetic::PAYLOAD_AT..][..12], [1, 0, 0, 0, 3, 2, 0, 0, 4, 0, 0, 0]);
    }
}
