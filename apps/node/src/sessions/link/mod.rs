//! The links of a running node, and the output channels of its sessions.
//!
//! A link is an interface and a rate. An output channel of a session is a share of a link ([`weir_datapath::egress`]): a
//! reservation, a cap, a weight for the bandwidth that reservations leave, and a bounded queue.

mod check;
mod node_link;
mod outputs;
mod rates;
mod rearrange;
mod status;

pub use outputs::OutputError;

/// The error for the name of an unknown link.
#[derive(Debug, thiserror::Error)]
#[error(
    "there is no link `{given}`; {}",
    if known.is_empty() { "there are none".to_owned() } else { format!("there is {}", known.join(", ")) }
)]
pub struct UnknownLink {
    /// The given name.
    pub given: String,
    /// The names of the node's links.
    pub known: Vec<String>,
}

pub(crate) use check::LinkCheck;
pub(crate) use node_link::{NodeLink, drops};
pub(crate) use outputs::{OutputChannel, SessionOutputs, reserved};
pub(crate) use rates::{can_become, changed, note};
pub(crate) use rearrange::{ChannelChange, IncomingOutput};
