//! All integration tests of `weir-trust`, in one program: each program links the same libraries once more.

#![forbid(unsafe_code)]

mod adversaries;
mod association;
mod chains;
mod gate;
mod people;
mod revocation;
