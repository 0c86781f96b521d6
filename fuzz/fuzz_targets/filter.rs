//! Compiles an arbitrary text as a filter for every link type: it never panics, and a program stays within its limits.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use weir_wire::LinkType;

fuzz_target!(|text: &str| {
    for link_type in LinkType::ALL {
        match weir_netio::compile_filter(text, link_type) {
            Ok(program) => assert!(program.instructions().len() <= 4096),
            Err(fault) => assert!(fault.error.at + fault.error.len <= text.len()),
        }
    }
});
