//! Applies an arbitrary view to an arbitrary packet, and checks the guarantee of every view: no planted address,
//! hardware address or payload is visible.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../core/wire/tests/exercise/mod.rs"]
#[allow(dead_code, unused_imports, reason = "three targets share it")]
mod exercise;

fuzz_target!(|bytes: &[u8]| exercise::view(bytes));
