//! What can go wrong with an interface.

use std::io;
use weir_units::{Bytes, Shown as _};

/// An interface cannot be opened, or not be used on.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// No interface of that name.
    #[error("there is no interface `{}`; there are: {}", .interface.escape_debug(), .there.join(", ").shown())]
    NoSuchInterface {
        /// What was asked for.
        interface: String,
        /// Those there are, in the kernel's order.
        there: Vec<String>,
    },
    /// The process may not.
    #[error("{}: {what} needs {capability}: run it as root, or give the program the capability (`setcap {capability}+ep`)", .interface.shown())]
    Permission {
        /// Which interface.
        interface: String,
        /// What was tried.
        what: &'static str,
        /// What is missing.
        capability: &'static str,
    },
    /// Its packets begin with something that weir does not read.
    #[error("{}: its hardware type {hardware} (ARPHRD) is none that weir reads; it reads Ethernet (1), loopback (772) and raw IP (65534, 519, 768, 769, 776, 512)", .interface.shown())]
    Hardware {
        /// Which interface.
        interface: String,
        /// ARPHRD_…
        hardware: u16,
    },
    /// The kernel or the driver cannot do it.
    #[error("{}: {what} is not supported here: {error}; {instead}", .interface.shown())]
    Unsupported {
        /// Which interface.
        interface: String,
        /// What was tried.
        what: &'static str,
        /// What the system says.
        error: io::Error,
        /// What to do instead.
        instead: &'static str,
    },
    /// Somebody else has it.
    #[error("{}: {what} is in use by another socket or program: end that first, or choose another queue", .interface.shown())]
    Busy {
        /// Which interface.
        interface: String,
        /// What was tried.
        what: &'static str,
    },
    /// An option that makes no sense.
    #[error("{}: {what}", .interface.shown())]
    Option {
        /// Which interface.
        interface: String,
        /// What is wrong, and what is right.
        what: &'static str,
    },
    /// Memory for packets or descriptors cannot be had.
    #[error("{}: cannot set up {size} of memory for packets: {error}; ask for less, or raise the limit of locked memory (`ulimit -l`)", .interface.shown())]
    Memory {
        /// Which interface.
        interface: String,
        /// How much.
        size: Bytes,
        /// What the system says.
        error: io::Error,
    },
    /// Any other refusal.
    #[error("{}: {what}: {error}", .interface.shown())]
    System {
        /// Which interface.
        interface: String,
        /// What was tried.
        what: &'static str,
        /// What the system says.
        error: io::Error,
    },
}

impl LiveError {
    /// The system refused `what`, which needs `capability`.
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

    /// The system refused `what`.
    pub(crate) fn system(interface: &str, what: &'static str) -> impl FnOnce(io::Error) -> LiveError {
        let interface = interface.to_owned();
        move |error| Self::System { interface, what, error }
    }
}
