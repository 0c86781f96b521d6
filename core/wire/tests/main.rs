//! All integration tests of `weir-wire`, in one program: each program links the same libraries once more.

#![forbid(unsafe_code)]

mod datagrams;
mod exercise;
mod oracle;
mod patches;
mod properties;
mod protocols;
mod streams;
mod traces;
mod views;
mod write_fields;
