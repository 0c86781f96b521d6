//! Many packet filters at once: one look at each field of a packet says who wants it.
//!
//! Each channel has a filter, a [`FilterProgram`] of the classic BPF machine, compiled for a link type. [`Demux`] joins them: it
//! finds what each program demands of a packet, and makes tables in which the fields that they have in common are looked up once, whatever
//! the number of channels. The answer is a [`ChannelSet`].
//!
//! - D. R. Engler, M. F. Kaashoek: "DPF: Fast, Flexible Message Demultiplexing using Dynamic Code Generation", SIGCOMM 1996.
//! - A. Begel, S. McCanne, S. L. Graham: "BPF+: Exploiting Global Data-flow Optimization in a Generalized Packet Filter Architecture",
//!   SIGCOMM 1999.
//!
//! Filters are strangers' input. Programs are checked before anything is done with them, making the tables is bounded in work and memory
//! ([`JoinLimits`]), and a filter that does not fit is interpreted, or refused where that would take too long.

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
pub use joined::{Filters, Joined, Joiner, YOUNG_MAX, whole};
pub use machine::{Alu, LoadWidth, code};
pub use packet::{MoreBytes, Packet};
pub use program::{FilterProgram, INSTRUCTIONS_MAX, Instruction, ProgramError, SCRATCH};
pub use subflows::{KeyField, SubFlows};
