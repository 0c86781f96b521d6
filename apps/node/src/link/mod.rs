//! Ways out: links, of which sessions reserve shares, and what goes through them.
//!
//! A [link](Port) is an interface and a rate. A thread of its own sends on it, in the order and at the times that the link's
//! [scheduler](weir_sched::link) says. A session's output channel is a share of a link: a reservation, a cap, a part of what others leave, and
//! a bounded queue. Whoever produces frames has an [`Outlet`] of it: modules, the forwarding of an input channel, a TAP device.

mod lane;
mod outputs;
mod port;
mod rates;
mod rearranged;
mod recorded;
mod shot;
mod spec;
mod tally;
mod tap;
mod trial;
mod way;

pub use lane::{Lost, Outlet};
pub use outputs::OutputError;
pub use port::{LinkError, Port, PortState};
pub use spec::{LinkConfig, OutputSpec};
pub use tally::OutputTally;
pub use tap::TapError;

pub(crate) use outputs::{Output, Outputs, reserved};
pub(crate) use rates::{can_become, changed, note};
pub(crate) use rearranged::{Entering, Step};
pub(crate) use trial::Trial;
pub(crate) use way::Way;
