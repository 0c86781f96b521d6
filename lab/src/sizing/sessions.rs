//! Memory and idle processor time by the number of sessions.

use super::footprint::{NodeProcesses, Resident};
use super::{CORES, INTERFACE, MODULE, Place, add_session, mebibytes, wait_for_modules};
use crate::error::LabError;
use crate::figure::network::{Traffic, VethPair, segment};
use crate::figure::node::{NodeProcess, check_no_faults};
use crate::statistics::{Action, Sample, to_f64, values_in_turn};
use crate::table::Table;
use std::time::{Duration, Instant};

/// The numbers of sessions at which a growing node is measured, in ascending order, by the place of the modules.
const STEPS: [(Place, &[usize]); 2] = [(Place::Node, &[0, 1, 10, 100, 200]), (Place::Own, &[1, 10, 100])];
/// The memory of a session, which suffices for the module in that place.
const fn memory(place: Place) -> &'static str {
    match place {
        Place::Node => "2 MiB",
        Place::Own => "8 MiB",
    }
}
/// Packets that each session gets before the measurement, so that its record files have rows.
const PACKETS: u64 = 100;
/// The rate at which these packets are sent, in packets/s.
const RATE: u64 = 1000;
/// The time after these packets in which rows are written, and idle time begins.
const SETTLE: Duration = Duration::from_millis(1100);
/// The duration of a measurement of processor time.
const TIME: Duration = Duration::from_secs(1);

/// The values of a node with a number of sessions.
#[derive(Clone, Copy, Debug)]
struct Step {
    processes: usize,
    /// Memory in MiB that the sessions have reserved, and the used part of it.
    promised: f64,
    used: f64,
    resident: Resident,
    /// Processor time of all processes, in percent of a core.
    idle: f64,
}

pub(super) fn table(rounds: usize) -> Result<String, LabError> {
    let mut actions: Vec<Action<'_, Vec<Step>>> = Vec::new();
    for (place, steps) in STEPS {
        actions.push(Box::new(move || grow(place, steps)));
    }
    let values = values_in_turn(rounds, &mut actions)?;
    let mut table = Table::new(
        "modules in | sessions | processes | promised, MiB | taken, MiB | RSS, MiB | PSS, MiB | quartiles | idle, % of a core | quartiles",
    );
    let mut further = Vec::new();
    for ((place, steps), rounds) in STEPS.iter().zip(&values) {
        let sample = |index: usize, value: fn(&Step) -> f64| -> Sample {
            rounds.iter().filter_map(|steps| steps.get(index)).map(value).collect()
        };
        for (index, sessions) in steps.iter().enumerate() {
            table.row(format_args!(
                "{place} | {sessions} | {:.0} | {:.1} | {:.1} | {:.1} | {} | {}",
                sample(index, |step| to_f64(step.processes)).median(),
                sample(index, |step| step.promised).median(),
                sample(index, |step| step.used).median(),
                sample(index, |step| step.resident.rss).median(),
                sample(index, |step| step.resident.pss).cells(1),
                sample(index, |step| step.idle).cells(2),
            ));
        }
        // The first session also brings what all sessions share, such as the memory for copies of packets.
        let (first, last) =
            (steps.iter().position(|step| *step == 1).unwrap_or(0), steps.len().saturating_sub(1));
        let number = to_f64(steps[last] - steps[first]);
        let each = |value: fn(&Step) -> f64| {
            sample(last, value).less(&sample(first, value)).scaled(1.0 / number).quartiles()
        };
        let (pss, idle) = (each(|step| step.resident.pss), each(|step| step.idle));
        further.push(format!(
            "{:.2} MiB ({}) and {:.3} % ({}) with modules in {place}",
            pss.median,
            pss.spread(2),
            idle.median,
            idle.spread(3)
        ));
    }
    Ok(format!(
        "**Sessions.** A node with a packet socket on one interface, with the default `arena` of 64 MiB, and sessions that each run `{MODULE}`, which emits a row each second. Each session has got {PACKETS} packets before. \
Idle: processor time of all processes in {} s without packets. Promised: the `memory` of all sessions; taken: the part that modules have taken from it. Medians of {rounds} rounds in turn; a node grows in each round.\n\n\
{table}\nEach session beyond the first has, of PSS and of a core: {}.\n",
        TIME.as_secs(),
        further.join("; ")
    ))
}

/// Starts a node, adds sessions to it, and measures it at each of these numbers of sessions.
fn grow(place: Place, steps: &[usize]) -> Result<Vec<Step>, LabError> {
    let _veth_pair = VethPair::new("a", "b")?;
    let mut node = NodeProcess::start_on(CORES, INTERFACE)?;
    let traffic = Traffic::start("a", (0..16).map(|connection| segment(connection, 200)).collect())?;
    let (mut values, mut sessions) = (Vec::new(), 0);
    for &step in steps {
        for number in sessions..step {
            add_session(&mut node, number, place, memory(place))?;
        }
        sessions = step;
        wait_for_modules(&mut node, sessions)?;
        let target = traffic.sent() + PACKETS;
        traffic.set_rate(RATE);
        while traffic.sent() < target {
            std::thread::sleep(Duration::from_millis(1));
        }
        traffic.set_rate(0);
        std::thread::sleep(SETTLE);
        values.push(measure(&mut node, place, sessions)?);
    }
    node.stop()?;
    Ok(values)
}

/// Measures a node with this number of sessions.
fn measure(node: &mut NodeProcess, place: Place, sessions: usize) -> Result<Step, LabError> {
    let processes = NodeProcesses::of(node.pid())?;
    let expected = if place == Place::Own { sessions } else { 0 };
    if processes.sandboxes() != expected {
        return Err(LabError::NoData(format!(
            "{} sandbox processes for {sessions} sessions with process = {place}",
            processes.sandboxes()
        )));
    }
    let (before, begin) = (processes.time()?, Instant::now());
    std::thread::sleep(TIME);
    let [own, sandboxes] = processes.time()?.percent_since(before, begin.elapsed());
    let resident = processes.resident()?;
    let snapshot = node.snapshot()?;
    check_no_faults(&snapshot)?;
    Ok(Step {
        processes: processes.count(),
        promised: mebibytes(snapshot.memory.reserved),
        used: mebibytes(snapshot.sessions.iter().map(|session| session.memory_used).sum()),
        resident,
        idle: own + sandboxes,
    })
}
