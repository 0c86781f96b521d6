//! The system of graphs: what elements need from outside, behind the traits of [`weir_graph::engine`].
//!
//! [`GraphFiles`] opens captures with weir's own reader and writer, so every format of `weir run` works, and
//! [`SystemClock`] is the clock of the system.

#![forbid(unsafe_code)]

mod capture;
mod clock;

pub use capture::GraphFiles;
pub use clock::SystemClock;
