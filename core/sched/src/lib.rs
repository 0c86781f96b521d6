//! Who runs next on a core, and who sends next on a link.
//!
//! Pure: `now` is an argument, so that what is decided can be proved in simulated time, and a recorded run replays to the same decisions.

#![forbid(unsafe_code)]

pub mod cpu;
mod heap;
pub mod link;
