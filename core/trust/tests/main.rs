//! All integration tests of `weir-trust` in one program, so that the libraries are linked once.

#![forbid(unsafe_code)]

mod adversaries;
mod association;
mod chains;
mod datagrams;
mod gate;
mod people;
mod revocation;
mod wire;
