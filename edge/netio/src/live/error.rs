//! Errors of a live interface.

use std::io;
use weir_units::{Bytes, Escape as _};

/// The reason why an interface cannot be opened, or can no longer be used.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// There is no interface of that name.
    #[error("there is no interface `{}`; the interfaces are: {}", .interface.escape_debug(), .existing.join(", ").escaped())]
    NoSuchInterface {
        /// The requested name.
        interface: String,
        /// The existing interfaces, in the kernel's order.
        existing: Vec<String>,
    },
    /// The process lacks a capability.
    #[error("{}: {what} needs {capability}: run it as root, or give the program the capability (`setcap {capability}+ep`)", .interface.escaped())]
    Permission {
        /// The interface.
        interface: String,
        /// The operation that was refused.
        what: &'static str,
        /// The missing capability.
        capability: &'static str,
    },
    /// The interface has an unsupported hardware type.
    #[error("{}: its hardware type {hardware} (ARPHRD) is not supported; weir reads Ethernet (1), loopback (772) and raw IP (65534, 519, 768, 769, 776, 512)", .interface.escaped())]
    Hardware {
        /// The interface.
        interface: String,
        /// The hardware type (ARPHRD_…).
        hardware: u16,
    },
    /// The kernel or the driver does not support an operation.
    #[error("{}: {what} is not supported here: {error}; {instead}", .interface.escaped())]
    Unsupported {
        /// The interface.
        interface: String,
        /// The operation that is not supported.
        what: &'static str,
        /// The system's error.
        error: io::Error,
        /// The suggested alternative.
        instead: &'static str,
    },
    /// An operation needs a resource that another socket or program is using.
    #[error("{}: {what} is not possible, because another socket or program is using this resource: end that program first, or choose another queue", .interface.escaped())]
    Busy {
        /// The interface.
        interface: String,
        /// The operation that was refused.
        what: &'static str,
    },
    /// A requested queue does not exist.
    #[error("{}: there is no receive queue {queue}: the interface has {existing}, with numbers from 0 (`ethtool -l`)", .interface.escaped())]
    NoSuchQueue {
        /// The interface.
        interface: String,
        /// The requested queue.
        queue: u32,
        /// The number of receive queues.
        existing: u32,
    },
    /// An interface has more queues than weir can read.
    #[error("{}: its {existing} receive queues are more than weir can read: name at most {} of them, or reduce their number (`ethtool -L`)", .interface.escaped(), super::queues::QueueSet::QUEUES_MAX)]
    TooManyQueues {
        /// The interface.
        interface: String,
        /// The number of receive queues.
        existing: u32,
    },
    /// An option is invalid.
    #[error("{}: {what}", .interface.escaped())]
    Option {
        /// The interface.
        interface: String,
        /// The error, with the valid values.
        what: &'static str,
    },
    /// Memory for packets or descriptors cannot be allocated.
    #[error("{}: cannot set up {size} of memory for packets: {error}; ask for less, or raise the limit of locked memory (`ulimit -l`)", .interface.escaped())]
    Memory {
        /// The interface.
        interface: String,
        /// The amount of memory.
        size: Bytes,
        /// The system's error.
        error: io::Error,
    },
    /// The system refuses an operation for another reason.
    #[error("{}: {what}: {error}", .interface.escaped())]
    System {
        /// The interface.
        interface: String,
        /// The operation.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl LiveError {
    /// Returns a function that converts the system's error of the operation `what`, which needs `capability`.
    pub(crate) fn refused(
        interface: &str,
        what: &'static str,
        capability: &'static str,
    ) -> impl FnOnce(io::Error) -> LiveError {
        let interface = interface.to_owned();
        move |error| match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::Permission { interface, what, capability },
            Some(libc::EBUSY) => Self::Busy { interface, what },
            _ => Self::System { interface, what, error },
        }
    }

    /// Returns a function that converts the system's error of the operation `what`.
    pub(crate) fn system(interface: &str, what: &'static str) -> impl FnOnce(io::Error) -> LiveError {
        let interface = interface.to_owned();
        move |error| Self::System { interface, what, error }
    }
}
