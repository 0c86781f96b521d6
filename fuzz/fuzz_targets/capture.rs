//! Reads arbitrary bytes as a capture: mapped, in windows of a page, and as a stream. All have to end, and with the same answer.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;

#[path = "../../edge/netio/tests/exercise.rs"]
mod exercise;

fuzz_target!(|bytes: &[u8]| {
    // That it is refused is an answer, too.
    let _ = exercise::read_all(bytes);
});
