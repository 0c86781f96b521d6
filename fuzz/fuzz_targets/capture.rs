//! Reads arbitrary bytes as a capture: mapped, in windows of a page, and as a stream. All must end, with the same result.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../edge/netio/tests/exercise.rs"]
mod exercise;

fuzz_target!(|bytes: &[u8]| {
    // A refusal is a valid result.
    let _ = exercise::read_all(bytes);
});
