//! All integration tests of `weir-admission`, in one program: each program links the same libraries once more.

#![forbid(unsafe_code)]

mod admission;
mod spec;
mod tiers;
