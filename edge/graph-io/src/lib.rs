//! The system of graphs: what elements need from outside, behind the traits of [`weir_graph::engine`].
//!
//! [`GraphSystem`] opens captures with weir's own reader and writer, so every format of `weir run` works, and devices with
//! weir's own sockets; [`SystemClock`] is the clock of the system. [`GraphThreads`] runs a graph on several threads.
//! [`ControlServer`] lets other programs call the handlers of a graph.

#![forbid(unsafe_code)]

mod capture;
mod clock;
mod control;
mod control_port;
mod host_device;
mod peer;
mod receive;
mod send;
mod sockets;
mod threads;
mod waiter;

pub use capture::{GraphSystem, interfaces};
pub use clock::SystemClock;
pub use control::{
    CONTROL_CONNECTIONS_MAX, ControlAddress, ControlCaller, ControlServer, ControlServerError,
};
pub use threads::{GraphThreads, ThreadSystem};
