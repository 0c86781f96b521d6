//! Classifies and patches an arbitrary packet; what every descriptor and every patch promises is checked.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| weir_wire::exercise::exercise(bytes));
