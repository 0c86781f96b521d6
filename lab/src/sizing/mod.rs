//! The memory and processor time of a node by its sessions, flows and traffic, from which an operator chooses a machine.
//! The last tables of the part `live` of the benchmark.

mod flows;
mod footprint;
mod rates;
mod sessions;

use crate::error::LabError;
use crate::figure::network::VethPair;
use crate::figure::node::{NodeProcess, find_session, parse_module};
use crate::machine::{CORE, bind};
use crate::namespace::raise_priority;
use std::fmt::{self, Display};
use std::time::Duration;

/// The threads for packets of a node are on one core. The sender and the kernel's work for it have the other one.
const CORES: &str = "[cpu]\ncores = [1]\nreceive_core = 1\n";
/// The interface. Its memory for packets is the default.
const INTERFACE: &str = "[[interface]]\nname = \"b\"\nkind = \"packet\"\narena = \"64 MiB\"\n";
/// The module of most sessions: a small one, which emits a row each second.
const MODULE: &str = "syn-flood";

/// The tables. Runs in a network namespace.
pub fn tables(rounds: usize) -> Result<String, LabError> {
    raise_priority();
    // The node and its processes, which are started later, inherit the core. The sender's thread chooses the other core.
    bind(CORE)?;
    warm_up()?;
    Ok([sessions::table(rounds)?, flows::table(rounds)?, rates::table(rounds)?].join("\n"))
}

/// Runs each module for a moment, so that its code is in the cache and no later round includes its compilation.
fn warm_up() -> Result<(), LabError> {
    let _veth_pair = VethPair::new("a", "b")?;
    let mut node = NodeProcess::start_on(CORES, INTERFACE)?;
    for (number, place) in Place::ALL.into_iter().enumerate() {
        add_session(&mut node, number, place, "64 MiB")?;
    }
    node.load("s0", parse_module(&format!("module = \"{}\"", flows::MODULE))?, &[])?;
    wait_for_modules(&mut node, Place::ALL.len())?;
    // Time for a compiler that works in the background.
    std::thread::sleep(Duration::from_secs(2));
    node.stop()
}

/// The place of a session's modules: the value of its key `process`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Node,
    Own,
}

impl Place {
    const ALL: [Self; 2] = [Self::Node, Self::Own];

    /// The value in a session's description.
    const fn value(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Own => "own",
        }
    }
}

impl Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.value())
    }
}

/// Creates the session `s{number}` with a channel for all packets of the interface, and loads [`MODULE`].
fn add_session(node: &mut NodeProcess, number: usize, place: Place, memory: &str) -> Result<(), LabError> {
    node.create(&format!(
        "name = \"s{number}\"\nmemory = \"{memory}\"\nprocess = \"{}\"\nchannel = [{{ interface = \"b\" }}]\n",
        place.value()
    ))?;
    node.load(&format!("s{number}"), parse_module(&format!("module = \"{MODULE}\""))?, &[])
}

/// Waits until the first `sessions` sessions have a module.
fn wait_for_modules(node: &mut NodeProcess, sessions: usize) -> Result<(), LabError> {
    node.wait_until("the start of all modules", |snapshot| {
        (0..sessions).all(|number| {
            find_session(snapshot, &format!("s{number}")).is_some_and(|session| !session.modules.is_empty())
        })
    })
}

/// Bytes in MiB.
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
