//! Memory by the number of flows of a module that keeps a table of them.

use super::footprint::NodeProcesses;
use super::{CORES, INTERFACE, mebibytes};
use crate::error::LabError;
use crate::figure::network::{Traffic, VethPair, datagram};
use crate::figure::node::{NodeProcess, check_no_faults, find_session, parse_module};
use crate::statistics::{Action, Sample, values_in_turn};
use crate::table::Table;
use std::time::{Duration, Instant};
use weir_node::control::protocol::SessionStatus;

/// The numbers of flows.
const FLOWS: [u32; 3] = [1_000, 10_000, 100_000];
/// The number of packets, which is the same for each number of flows, so that only the flows differ.
const PACKETS: u64 = 100_000;
/// Packets per second.
const RATE: u64 = 100_000;
/// The length of packets in bytes.
const LENGTH: usize = 60;
/// The packets that can wait for the module, so that none is lost.
const QUEUE: u32 = 4096;
/// The memory of the session: the default.
const MEMORY: &str = "64 MiB";
pub(super) const MODULE: &str = "flows";
/// The longest wait until all packets are processed, and until the module has emitted its rows.
const WAIT_MAX: Duration = Duration::from_secs(3);
/// The wait for work that follows the last packet.
const SETTLE: Duration = Duration::from_millis(200);

/// The values of a node with a number of flows.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// The rows that the module has emitted when it was unloaded, one for each flow.
    flows: f64,
    /// Memory in MiB that the session has reserved, and the used part of it.
    promised: f64,
    used: f64,
    /// Anonymous resident memory in MiB that came with the module, and then with the traffic.
    loaded: f64,
    grown: f64,
}

pub(super) fn table(rounds: usize) -> Result<String, LabError> {
    let mut actions: Vec<Action<'_, Trial>> = Vec::new();
    for flows in FLOWS {
        actions.push(Box::new(move || trial(flows)));
    }
    let values = values_in_turn(rounds, &mut actions)?;
    let mut table = Table::new(
        "flows | flows in the table | promised, MiB | taken, MiB | resident before packets, MiB | quartiles | resident with the flows, MiB more | quartiles",
    );
    for (flows, values) in FLOWS.iter().zip(&values) {
        let sample = |value: fn(&Trial) -> f64| values.iter().map(value).collect::<Sample>();
        table.row(format_args!(
            "{flows} | {:.0} | {:.1} | {:.1} | {} | {}",
            sample(|trial| trial.flows).median(),
            sample(|trial| trial.promised).median(),
            sample(|trial| trial.used).median(),
            sample(|trial| trial.loaded).cells(1),
            sample(|trial| trial.grown).cells(1),
        ));
    }
    Ok(format!(
        "**Flows.** A session with the default memory, whose module `{MODULE}` has a table of a fixed size (`table-size`, here the default). It takes the table's memory from the promise when it is loaded, whatever the traffic, and so does the queue of {QUEUE} packets. \
The system makes a page of the table resident when a flow uses it. {PACKETS} packets of {LENGTH} bytes at {RATE} packets/s, alternating between the flows. Flows in the table: rows of the module when it was unloaded. \
Resident is anonymous memory (PSS), which has no packets. Medians of {rounds} rounds in turn.\n\n{table}"
    ))
}

/// Sends packets of this number of flows to a node with one session.
fn trial(flows: u32) -> Result<Trial, LabError> {
    let _veth_pair = VethPair::new("a", "b")?;
    let mut node = NodeProcess::start_on(CORES, INTERFACE)?;
    let processes = NodeProcesses::of(node.pid())?;
    let empty = processes.resident()?.anonymous;
    node.create(&format!(
        "name = \"s\"\nmemory = \"{MEMORY}\"\nchannel = [{{ interface = \"b\", queue = {QUEUE} }}]\n"
    ))?;
    node.load("s", parse_module(&format!("module = \"{MODULE}\""))?, &[])?;
    wait_for(&mut node, "the start of the module", |session| !session.modules.is_empty())?;
    std::thread::sleep(SETTLE);
    let loaded = processes.resident()?.anonymous;
    let traffic = Traffic::start("a", (0..flows).map(frame).collect())?;
    traffic.set_rate(RATE);
    while traffic.sent() < PACKETS {
        std::thread::sleep(Duration::from_millis(1));
    }
    traffic.set_rate(0);
    std::thread::sleep(SETTLE);
    let sent = traffic.sent();
    // Lost packets do not arrive later. The number of flows in the table shows them.
    _ = wait_for(&mut node, "the arrival of all packets", |session| delivered(session) >= sent);
    let grown = processes.resident()?.anonymous;
    let snapshot = node.snapshot()?;
    check_no_faults(&snapshot)?;
    let session = find_session(&snapshot, "s").cloned().unwrap_or_default();
    if delivered(&session) == 0 {
        let drops = session.channels.first().map(|channel| channel.drops.clone()).unwrap_or_default();
        return Err(LabError::NoData(format!("no packet of {sent} arrived at the module; lost: {drops:?}")));
    }
    node.unload("s", MODULE)?;
    wait_for(&mut node, "the end of the module", |session| session.modules.is_empty())?;
    let snapshot = node.snapshot()?;
    let rows = find_session(&snapshot, "s").map_or(0, |session| session.used.records_emitted);
    node.stop()?;
    Ok(Trial {
        flows: rows as f64,
        promised: mebibytes(session.memory_reserved),
        used: mebibytes(session.memory_used),
        loaded: loaded - empty,
        grown: grown - loaded,
    })
}

/// Waits until a condition on the session is met.
fn wait_for(
    node: &mut NodeProcess,
    event: &str,
    condition: impl Fn(&SessionStatus) -> bool,
) -> Result<(), LabError> {
    let begin = Instant::now();
    loop {
        let snapshot = node.snapshot()?;
        let session = find_session(&snapshot, "s");
        if session.is_some_and(&condition) {
            return Ok(());
        }
        if begin.elapsed() > WAIT_MAX {
            return Err(LabError::failed(event, format!("not within {} s", WAIT_MAX.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The packets that the session's modules have got.
fn delivered(session: &SessionStatus) -> u64 {
    session.modules.iter().map(|module| module.packets).sum()
}

/// A packet of the flow with this number.
fn frame(flow: u32) -> Vec<u8> {
    let [high_port, low_port] =
        [flow / 50_000, flow % 50_000].map(|part| u16::try_from(part).unwrap_or(u16::MAX));
    datagram((10_000 + low_port, 53 + high_port), LENGTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_flow_has_ports_of_its_own() {
        let all = FLOWS[2];
        let ports: BTreeSet<Vec<u8>> = (0..all).map(|flow| frame(flow)[34..38].to_vec()).collect();
        assert_eq!(ports.len(), all as usize);
    }
}
