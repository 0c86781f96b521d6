//! What docs/SPECIFICATION.md promises, measured.
//!
//! The command is `make bench` (`target/release/bench --help`). [`price`] holds sandboxed modules against natively compiled ones over the
//! same packets, and is a differential test at the same time: both must emit the same records. [`run`], [`memory`] and [`start`] look at
//! whole runs of the program `weir`. [`figure`] has the experiments of the papers (`make figures`, `target/release/weir-lab`). What needs
//! `unsafe` is in [`native`], and nowhere else.

pub mod adversarial;
pub mod analysis;
pub mod authorising;
pub mod compiling;
pub mod contest;
pub mod corpus;
pub mod crafted;
mod deliveries;
pub mod demultiplexing;
pub mod descriptors;
pub mod document;
pub mod durable;
pub mod error;
pub mod figure;
pub mod finite;
pub mod floods;
pub mod gauge;
pub mod handshake;
pub mod idle;
pub mod instructions;
pub mod live;
pub mod looped;
pub mod machine;
pub mod memory;
pub mod module;
pub mod namespace;
pub mod native;
pub mod packets;
pub mod place;
pub mod price;
pub mod pseudonyms;
pub mod random;
pub mod ratios;
pub mod reference;
pub mod run;
pub mod sandboxed;
pub mod scheduling;
pub mod shares;
pub mod start;
pub mod statistics;
pub mod suspending;
pub mod table;
mod turns;
pub mod versus;
pub mod views;
pub mod wards;
pub mod worst;

pub use error::BenchError;
