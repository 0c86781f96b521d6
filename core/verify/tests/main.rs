//! All integration tests of `weir-verify`, in one program.

#![forbid(unsafe_code)]

mod agreement;
mod calls;
mod compiled;
mod control;
mod execution;
mod forms;
mod frames;
mod images;
mod observe;
mod places;
mod properties;
mod resources;
mod support;
mod values;
