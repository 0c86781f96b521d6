//! Shows an arbitrary packet under an arbitrary view; what every view promises is checked: no planted address, hardware address or payload is shown.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| weir_wire::exercise::view(bytes));
