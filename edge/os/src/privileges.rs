//! Privileges: capabilities(7). A process that root has started has all of them, and needs few.

use crate::ConfineError;
use rustix::thread::{
    CapabilitiesSecureBits, CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_capabilities_secure_bits,
};

/// The capabilities of a node that has them, as long as it runs, with the reason for each.
///
/// It has no right to files of others: whatever it reads and writes belongs to its user, or may be read by all.
const OF_A_NODE: CapabilitySet = CapabilitySet::NET_RAW // Interfaces come back, and their packet sockets are opened again.
    .union(CapabilitySet::NET_ADMIN) // Interfaces are made promiscuous, TAP devices are made, XDP programs are attached.
    .union(CapabilitySet::BPF) // XDP programs and their maps are loaded.
    .union(CapabilitySet::IPC_LOCK) // Memory that cards write into stays where it is.
    .union(CapabilitySet::SYS_NICE); // Threads of cores come before others.

/// The part of its work for which a spawner keeps capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OfSpawner {
    /// It tries what it can do.
    Trying,
    /// It maps users of a range into user namespaces (`SETUID`, `SETGID`), and root itself for the key agent (`SETFCAP`).
    OwnUsers,
    /// It maps its own user, which can be root (`SETFCAP`).
    Users,
    /// It makes namespaces without users of their own (`SYS_ADMIN`).
    Namespaces,
    /// It starts processes.
    Nothing,
}

impl OfSpawner {
    fn capabilities(self) -> CapabilitySet {
        let users = CapabilitySet::SETUID.union(CapabilitySet::SETGID).union(CapabilitySet::SETFCAP);
        match self {
            // The last to narrow the bounding set by.
            Self::Trying => users.union(CapabilitySet::SYS_ADMIN).union(CapabilitySet::SETPCAP),
            Self::OwnUsers => users,
            Self::Users => CapabilitySet::SETFCAP,
            Self::Namespaces => CapabilitySet::SYS_ADMIN,
            Self::Nothing => CapabilitySet::empty(),
        }
    }
}

/// The calling thread keeps these of the capabilities that it has, for good. Root's user is worth no more than another, and what the thread executes has no
/// more either (`no_new_privs` comes with the filter of calls).
fn keep(kept: CapabilitySet) -> Result<(), ConfineError> {
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

fn has(capability: CapabilitySet) -> Result<bool, ConfineError> {
    Ok(capabilities(None).map_err(ConfineError::Privileges)?.effective.contains(capability))
}

/// The calling thread has no more capabilities than these, in any of its sets.
fn reduce(kept: CapabilitySet) -> Result<(), ConfineError> {
    if has(CapabilitySet::SETPCAP)? {
        // The kernel refuses numbers that it does not know.
        for capability in (0..u64::BITS).map(|bit| CapabilitySet::from_bits_retain(1 << bit)) {
            if !kept.contains(capability) {
                _ = remove_capability_from_bounding_set(capability);
            }
        }
    }
    // Kernels before 4.3 have no such set.
    _ = clear_ambient_capability_set();
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

/// Root's user stays what it is: what a spawner executes gets by it what mounting an empty root takes.
pub(crate) fn of_a_spawner(part: OfSpawner) -> Result<(), ConfineError> {
    reduce(part.capabilities())
}

pub(crate) fn none() -> Result<(), ConfineError> {
    keep(CapabilitySet::empty())
}
