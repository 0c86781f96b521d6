//! All integration tests of `weir-sched`, in one program: each program links the same libraries once more.

#![forbid(unsafe_code)]

mod cpu;
mod link;
mod link_speed;
