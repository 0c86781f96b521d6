//! The CPU scheduler of a core and the packet scheduler of a link.
//!
//! Both are pure: they get the time as an argument, `now`. So tests use simulated time, and the replay of a recorded
//! run makes the same decisions.

#![forbid(unsafe_code)]

pub mod cpu;
mod heap;
pub mod link;
