//! Packet demultiplexing: all channels' filters are evaluated at once, with one look-up for each field.
//!
//! Each channel has a filter: a [`FilterProgram`] of the classic BPF machine, compiled for a link type. [`Demux`] joins
//! the filters: it derives the conditions under which each program accepts a packet, and builds tables for them. A
//! field that several filters use is looked up only once. The result of an evaluation is a [`ChannelSet`].
//!
//! - D. R. Engler, M. F. Kaashoek: "DPF: Fast, Flexible Message Demultiplexing using Dynamic Code Generation", SIGCOMM 1996.
//! - A. Begel, S. McCanne, S. L. Graham: "BPF+: Exploiting Global Data-flow Optimization in a Generalized Packet Filter Architecture",
//!   SIGCOMM 1999.
//!
//! Filters are untrusted input. Programs are checked before use. The work and memory for building the tables are
//! bounded ([`JoinLimits`]). A filter that would exceed them is interpreted, or refused if interpretation could take
//! too long.

#![forbid(unsafe_code)]

mod budget;
mod channels;
mod classes;
mod demux;
mod expression;
mod fragments;
mod interpret;
mod join;
mod joined;
mod machine;
mod packet;
mod paths;
mod program;
mod subflows;
mod values;

pub use channels::{CHANNELS_MAX, ChannelSet};
pub use demux::Demux;
pub use fragments::{FragmentCounters, Fragments, WAYS as FRAGMENT_WAYS};
pub use join::{JoinError, JoinLimits};
pub use joined::{Filters, Joined, Joiner, RECENT_MAX, join_all};
pub use machine::{Alu, LoadWidth, code};
pub use packet::{MoreBytes, Packet};
pub use program::{FilterProgram, INSTRUCTIONS_MAX, Instruction, ProgramError, SCRATCH};
pub use subflows::{KeyField, SubFlows};
