//! Ways out: links, of which channels reserve shares, and what goes through them.
//!
//! A [link](Port) is an interface and a rate. A thread of its own sends on it, in the order and at the times that the link's
//! [scheduler](weir_sched::link) says. An output channel is a share of a link: a reservation, a cap, a part of what others leave, and
//! a bounded queue. Producers of frames have an [`Outlet`] of it: modules, the forwarding of packets, a TAP device.
//!
//! A packet that goes on is completed first: a host may have left its checksum to a network card. One that is longer than the link or the
//! interface takes, as segments are that a card was to cut, is refused and counted: the length to cut it into is not known here.

mod lane;
mod port;
mod recorded;
mod tally;
mod tap;
mod way;

pub use lane::{Lost, Offers, Outlet};
pub use port::{LinkError, Port, PortState};
pub use recorded::{Line, Tracing};
pub use tally::OutputTally;
pub use tap::{Tap, TapEnd, TapError, open_device};
pub use way::Way;

/// News of an interface that is sent on, or of a TAP device, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Its state changed.
    Changed {
        /// The interface.
        interface: String,
        /// The change, in words.
        what: String,
    },
    /// It can no longer be read.
    Failed {
        /// The interface.
        interface: String,
        /// The cause.
        what: String,
    },
}

/// Takes news of an interface. It never waits.
pub type Tell = Box<dyn Fn(News) + Send>;
