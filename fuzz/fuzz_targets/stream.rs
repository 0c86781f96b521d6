//! Gives arbitrary TCP segments, replies and sweeps to the streams, and checks the events against a simple model.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../core/wire/tests/exercise/mod.rs"]
#[allow(dead_code, unused_imports, reason = "three targets share it")]
mod exercise;

fuzz_target!(|bytes: &[u8]| exercise::streams(bytes));
