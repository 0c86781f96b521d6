//! Reads arbitrary bytes as a capture: mapped, in windows of a page, and as a stream. All have to end, and with the same answer.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // That it is refused is an answer, too.
    let _ = weir_netio::exercise::read_all(bytes);
});
