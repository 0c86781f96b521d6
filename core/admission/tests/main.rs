//! All integration tests of `weir-admission` in one program, so that the libraries are linked once.

#![forbid(unsafe_code)]

mod admission;
mod spec;
mod tiers;
