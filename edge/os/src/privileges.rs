//! Linux capabilities (capabilities(7)): each process of weir keeps only those that its task needs.
//!
//! A process that root started has all capabilities at first.

use crate::ConfineError;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
};

/// The capabilities that a node keeps if it has them, with the reason for each.
///
/// A node keeps no capability to access other users' files: the files that it reads and writes belong to its user, or
/// are readable by every user.
const NODE_CAPABILITIES: CapabilitySet = CapabilitySet::NET_RAW // To open the packet socket of an interface that comes back.
    .union(CapabilitySet::NET_ADMIN) // To make interfaces promiscuous, create TAP devices and attach XDP programs.
    .union(CapabilitySet::BPF) // To load XDP programs and their maps.
    .union(CapabilitySet::IPC_LOCK) // To lock memory into which network cards write.
    .union(CapabilitySet::SYS_NICE); // To give core threads a higher priority than other threads.

/// The phase of a spawner's work, which determines the spawner's capabilities.
///
/// A spawner is in the phase [`Probing`](Self::Probing) at first. Then it is permanently in the phase named like the
/// `NamespaceMode` of the processes that it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpawnerPhase {
    /// The spawner finds out which namespaces the system allows: it has the capabilities of all other phases.
    Probing,
    /// Each process has a user of its own, which the spawner maps to user 0 of the process's user namespace (`SETUID`,
    /// `SETGID`). For the key agent it maps its own user, which can be root (`SETFCAP`).
    OwnUser,
    /// Each process has the spawner's user, which can be root, in a user namespace (`SETFCAP`).
    SharedUser,
    /// Each process has all namespaces but a user namespace (`SYS_ADMIN`).
    NoUserNamespace,
    /// Processes have no namespaces, so that starting them takes no capability.
    NoNamespaces,
}

impl SpawnerPhase {
    fn capabilities(self) -> CapabilitySet {
        let user_mapping = CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::SETFCAP);
        match self {
            // SETPCAP is for removing capabilities from the bounding set afterwards.
            Self::Probing => user_mapping.union(CapabilitySet::SYS_ADMIN).union(CapabilitySet::SETPCAP),
            Self::OwnUser => user_mapping,
            Self::SharedUser => CapabilitySet::SETFCAP,
            Self::NoUserNamespace => CapabilitySet::SYS_ADMIN,
            Self::NoNamespaces => CapabilitySet::empty(),
        }
    }
}

/// Removes all other capabilities than `kept` from the calling thread, permanently. User 0 then has no special rights
/// either, and programs that the thread executes get no further capabilities (the system-call filter sets
/// `no_new_privs`).
fn keep_only(kept: CapabilitySet) -> Result<(), ConfineError> {
    if has(CapabilitySet::SETPCAP)? {
        let locked = CapabilitiesSecureBits::NO_ROOT
            | CapabilitiesSecureBits::NO_ROOT_LOCKED
            | CapabilitiesSecureBits::NO_SETUID_FIXUP
            | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
            | CapabilitiesSecureBits::KEEP_CAPS_LOCKED
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
            | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
        set_capabilities_secure_bits(locked).map_err(ConfineError::Privileges)?;
    }
    reduce(kept)
}

/// Returns true if the calling thread has a capability in its effective set.
fn has(capability: CapabilitySet) -> Result<bool, ConfineError> {
    Ok(capabilities(None).map_err(ConfineError::Privileges)?.effective.contains(capability))
}

/// Removes all other capabilities than `kept` from every capability set of the calling thread.
fn reduce(kept: CapabilitySet) -> Result<(), ConfineError> {
    if has(CapabilitySet::SETPCAP)? {
        // The kernel refuses numbers of capabilities that it does not know, which does no harm.
        for capability in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
            if !kept.contains(capability) {
                _ = remove_capability_from_bounding_set(capability);
            }
        }
    }
    // Fails on kernels before 4.3, which have no ambient capability set.
    _ = clear_ambient_capability_set();
    let present = capabilities(None).map_err(ConfineError::Privileges)?;
    let reduced = CapabilitySets {
        effective: present.effective.intersection(kept),
        permitted: present.permitted.intersection(kept),
        inheritable: CapabilitySet::empty(),
    };
    set_capabilities(None, reduced).map_err(ConfineError::Privileges)
}

/// Removes all capabilities that a node does not need.
pub(crate) fn keep_for_node() -> Result<(), ConfineError> {
    keep_only(NODE_CAPABILITIES)
}

/// Removes all capabilities that a spawner does not need in a phase.
///
/// Unlike in a node, user 0 keeps its special rights: by them a process that the spawner starts gets the capabilities in
/// its own namespaces that mounting its empty root takes.
pub(crate) fn keep_for_spawner(phase: SpawnerPhase) -> Result<(), ConfineError> {
    reduce(phase.capabilities())
}

/// Removes all capabilities.
pub(crate) fn drop_all() -> Result<(), ConfineError> {
    keep_only(CapabilitySet::empty())
}
