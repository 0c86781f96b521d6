//! Ways out of packets: an [`Egress`] is a file, a socket, a TAP device or nothing.
//!
//! A socket is one of a [link](TxHandle), which is an interface and a rate. A thread of its own sends on it, in the order and at the times that the link's
//! [scheduler](weir_sched::link) says. An output channel is a share of a link: a reservation, a cap, a part of what others leave, and
//! a bounded queue. Producers of frames have an [`TxPacketSink`] of it: modules, the forwarding of packets, a TAP device.
//!
//! A packet that goes on is completed first: a host may have left its checksum to a network card. One that is longer than the link or the
//! interface takes, as segments are that a card was to cut, is refused and counted: the length to cut it into is not known here.

mod file;
mod lane;
mod onward;
mod port;
mod recorded;
mod tally;
mod tap;

pub use file::FileEnd;
pub use lane::{Lost, Offers, TxPacketSink};
pub use onward::{Copies, Egress};
pub use port::{LinkError, PortState, TxHandle};
pub use recorded::{Line, Tracing};
pub use tally::OutputCounters;
pub use tap::{Tap, TapEnd, TapError, open_device};
