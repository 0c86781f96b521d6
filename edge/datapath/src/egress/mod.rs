//! Egress of packets: an [`Egress`] is a file, an output channel of a link, a TAP device or nothing.
//!
//! A [link](TxHandle) is an interface with a rate. Its thread sends frames in the order and at the times that its
//! [scheduler](weir_sched::link) decides. An output channel is a share of a link: a reservation, a cap, a weight for
//! excess traffic, and a bounded queue. Modules, forwarding and TAP devices send through a [`TxPacketSink`].
//!
//! The checksum of a packet is completed before the packet is sent, because the sending host may have left it to a
//! network card. A packet that is longer than the link's longest frame is not sent, and is counted. Such a packet is a
//! segment that a network card was to divide (TSO), and the size of the parts is not known here.

mod counters;
mod file;
mod forward;
mod link;
mod tap;
mod traced;
mod tx_queue;

pub use counters::OutputCounters;
pub use file::FileEgress;
pub use forward::{CopyBuffers, Egress};
pub use link::{LinkError, LinkState, TxHandle};
pub use tap::{Tap, TapEgress, TapError, open_device};
pub use traced::{BeginTrace, TraceLine};
pub use tx_queue::{TxBatch, TxPacketSink, TxRejection};
