//! Parses arbitrary bytes as a configuration of a graph. What can be parsed is written flat, and parsed again to the same
//! graph.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use weir_graph::language::{AnyClass, ConfigurationSource, FlatConfiguration, FlatLayout, parse};

/// A short input can expand to a graph that takes a second; the limits have tests of their own.
const ELEMENTS_MAX: usize = 2000;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(flat) = parse(&ConfigurationSource { name: "fuzz", bytes }, &[], &AnyClass)
        && flat.elements.len() < ELEMENTS_MAX
    {
        for layout in [FlatLayout::Plain, FlatLayout::LineDirectives] {
            stays_the_same(&flat, layout);
        }
    }
});

fn stays_the_same(flat: &FlatConfiguration, layout: FlatLayout) {
    let file = flat.to_file(layout);
    let again = parse(&ConfigurationSource { name: "fuzz", bytes: &file }, &[], &AnyClass);
    let again = again.unwrap_or_else(|errors| panic!("{errors}\n{}", String::from_utf8_lossy(&file)));
    let texts = |flat: &FlatConfiguration| -> Vec<String> {
        flat.elements.iter().map(ToString::to_string).collect()
    };
    assert_eq!(texts(&again), texts(flat));
    if layout == FlatLayout::LineDirectives {
        assert_eq!(again.elements, flat.elements);
    }
    let ends = |flat: &FlatConfiguration| {
        let mut ends: Vec<_> = flat.connections.iter().map(|one| (one.from, one.to)).collect();
        ends.sort_unstable();
        ends
    };
    assert_eq!(ends(&again), ends(flat));
    assert_eq!((&again.requirements, &again.members), (&flat.requirements, &flat.members));
}
