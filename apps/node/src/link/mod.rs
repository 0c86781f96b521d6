//! Links of the node, and output channels of its sessions.
//!
//! A link is an interface and a rate, a session's output channel a share of it ([`weir_datapath::egress`]): a reservation, a cap, a part of what others
//! leave, and a bounded queue.

mod outputs;
mod port;
mod rates;
mod rearranged;
mod shot;
mod spec;
mod trial;

pub use outputs::OutputError;
pub use spec::{LinkConfig, OutputSpec};

pub(crate) use outputs::{OutputChannel, SessionOutputs, reserved};
pub(crate) use port::{NodeLink, drops};
pub(crate) use rates::{can_become, changed, note};
pub(crate) use rearranged::{ChannelChange, Entering};
pub(crate) use trial::LinkCheck;
