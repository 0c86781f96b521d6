//! Measurements of the promises in docs/SPECIFICATION.md, and the experiments of the papers.
//!
//! [`bench`] is the program behind `make bench`, and [`figure`] the one behind `make figures`. [`price`] compares sandboxed
//! modules with natively compiled ones over the same packets. The comparison is a differential test as well: all builds
//! must give the same output. All `unsafe` code is in [`native`].

mod adversarial;
mod analysis;
mod anonymised;
mod applications;
mod authorising;
pub mod bench;
pub mod comparison;
mod compile_queue;
mod compiling;
pub mod corpus;
pub mod crafted;
mod criterion;
mod deliveries;
mod demultiplexing;
mod document;
mod durable;
mod error;
pub mod figure;
mod floods;
pub mod fuel_meter;
mod graphs;
mod handshake;
mod idle;
mod imix;
pub mod instructions;
mod live;
mod looped;
mod machine;
mod memory;
pub mod module;
mod namespace;
pub mod native;
pub mod no_compiler;
mod packet_times;
pub mod packets;
pub mod paths;
pub mod price;
mod processes;
mod random;
pub mod ratios;
mod rivals;
mod rows;
mod run;
pub mod sandboxed;
mod scheduling;
mod session;
pub mod shares;
mod sizing;
mod start;
mod statistics;
mod suspending;
mod table;
mod versus;
mod views;
pub mod worst_case;
mod xdp;
