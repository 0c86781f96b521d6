//! Which privileges: capabilities(7). A process that root has started has all of them, and needs few.

use crate::ConfineError;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// What a node can need as long as it runs: interfaces come back and are opened again, TAP devices are made, packets are steered by XDP programs, whose
/// memory stays where it is; threads of cores come before others; its configuration and folders can be another user's.
const OF_A_NODE: CapabilitySet = CapabilitySet::NET_RAW
    .union(CapabilitySet::NET_ADMIN)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_NICE)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH);

/// Of those that it has the calling thread keeps these, for good: what it executes has no more (`no_new_privs`, which comes with the filter of calls).
fn keep(kept: CapabilitySet) -> Result<(), ConfineError> {
    let has = capabilities(None).map_err(ConfineError::Privileges)?;
    let kept = CapabilitySets {
        effective: has.effective.intersection(kept),
        permitted: has.permitted.intersection(kept),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, kept).map_err(ConfineError::Privileges)
}

pub(crate) fn of_a_node() -> Result<(), ConfineError> {
    keep(OF_A_NODE)
}

pub(crate) fn none() -> Result<(), ConfineError> {
    keep(CapabilitySet::empty())
}
