//! Measurements of the promises in docs/SPECIFICATION.md, and the experiments of the papers.
//!
//! [`bench`] is `make bench`. [`price`] compares sandboxed modules with natively compiled ones over the same packets, and is a differential test at
//! the same time: both must emit the same records. [`figure`] has the experiments (`make figures`). All `unsafe` code is in [`native`].

mod adversarial;
mod analysis;
mod appended;
mod authorising;
pub mod bench;
mod compile_queue;
mod compiling;
pub mod contest;
pub mod corpus;
pub mod crafted;
mod criterion;
mod deliveries;
mod demultiplexing;
mod descriptors;
mod document;
mod durable;
mod error;
pub mod figure;
mod finite;
mod floods;
pub mod gauge;
mod handshake;
mod idle;
pub mod instructions;
mod live;
mod looped;
mod machine;
mod memory;
pub mod module;
mod namespace;
pub mod native;
pub mod packets;
pub mod place;
pub mod price;
mod processes;
mod pseudonyms;
mod random;
pub mod ratios;
mod reference;
mod run;
mod sandboxed;
mod scheduling;
pub mod shares;
mod start;
mod statistics;
mod suspending;
mod table;
mod versus;
mod views;
pub mod worst;
