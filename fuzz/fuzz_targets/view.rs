//! Shows an arbitrary packet under an arbitrary view; what every view promises is checked: no planted address, hardware address or payload is shown.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../core/wire/tests/exercise/mod.rs"]
#[allow(dead_code, unused_imports, reason = "two targets share it")]
mod exercise;

fuzz_target!(|bytes: &[u8]| exercise::view(bytes));
