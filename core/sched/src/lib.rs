//! The CPU scheduler of a core and the packet scheduler of a link.
//!
//! Both are pure: `now` is an argument. So decisions can be tested in simulated time, and a recorded run replays to
//! the same decisions.

#![forbid(unsafe_code)]

pub mod cpu;
mod heap;
pub mod link;
