//! A module never uses more than the bound found before it ran: measured by wasmtime's own fuel, which shares nothing
//! with weir's cost table, with host functions that return any value and packets that change while they are read.
//!
//! The input's first byte chooses the generator for the rest: loops as compilers emit them, or any valid module.

#![no_main]

#[path = "../../edge/sandbox/tests/oracle/mod.rs"]
mod oracle;

use libfuzzer_sys::fuzz_target;
use oracle::generate::{self, loops, smith};
use oracle::{Oracle, Tally};
use std::cell::RefCell;

thread_local! {
    static ORACLE: Oracle = Oracle::new();
    static TALLY: RefCell<Tally> = RefCell::default();
}

/// The number of runs between two prints of the counts.
const SAID: u64 = 10_000;

fuzz_target!(|input: &[u8]| {
    let Some(module) = module(input) else { return };
    // Packets and results are derived from the input too.
    let seed =
        input.iter().fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add((*byte).into())) & 0xff_ffff;
    match ORACLE.with(|oracle| oracle.check(&module, seed)) {
        Ok(done) => TALLY.with_borrow_mut(|tally| {
            tally.add(done);
            if tally.modules.is_multiple_of(SAID) {
                eprintln!("{tally:?}");
            }
        }),
        Err(violation) => panic!("{violation}\n{}", wasmprinter::print_bytes(&module).unwrap_or_default()),
    }
});

fn module(input: &[u8]) -> Option<Vec<u8>> {
    let (first, rest) = input.split_first()?;
    if first.is_multiple_of(4) {
        smith::module(rest)
    } else {
        Some(generate::assembled(&loops::module(rest)))
    }
}
