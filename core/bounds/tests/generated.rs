//! The generators make valid modules of the intended kind, which are analysed without a panic.

use crate::generate;
use weir_bounds::{CostTable, Environment, ParamBound, ParsedModule, analyse};

fn environment() -> Environment {
    Environment {
        parameters: vec![
            ParamBound::Int { min: 9, max: 9 },
            ParamBound::Bytes { min: 3, max: 3 },
            ParamBound::Float,
            ParamBound::Int { min: 4_294_967_299, max: 4_294_967_299 },
        ],
        string_bytes: vec![0, 4096],
        packet_max: 16 << 20,
        pages_max: 16,
    }
}

#[test]
fn generated_loops_are_valid_modules() {
    for seed in 0..500 {
        let text = generate::loops::module(&generate::bytes(seed, 600));
        let bytes = generate::assembled(&text);
        if let Err(error) = wasmparser::validate(&bytes) {
            panic!("seed {seed}: {error}\n{text}");
        }
        ParsedModule::parse(bytes.clone())
            .and_then(|module| analyse(&module, &environment(), &CostTable::unit()))
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn arbitrary_modules_are_analysed() {
    let made =
        (0..300).filter_map(|seed| generate::smith::module(&generate::bytes(seed, 4000))).map(|bytes| {
            ParsedModule::parse(bytes.clone())
                .and_then(|module| analyse(&module, &environment(), &CostTable::standard()))
                .unwrap_or_else(|error| panic!("{error}"));
        });
    assert!(made.count() > 250);
}
