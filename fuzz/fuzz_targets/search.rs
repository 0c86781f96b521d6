//! Searches text for patterns as the host function `find` does: in bytes that do not change, and in bytes that can change
//! meanwhile, where a vector search looks for the first place that may match. Both find what a comparison at each place
//! finds.
//!
//! Input: the number of patterns (1 byte), for each its length (1 byte) and its bytes, then the text.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use weir_sandbox::find_both_ways;

fuzz_target!(|input: &[u8]| {
    let Some((count, mut rest)) = input.split_first() else { return };
    let mut patterns: Vec<&[u8]> = Vec::new();
    for _ in 0..count % 40 {
        let Some((len, tail)) = rest.split_first() else { return };
        let Some((pattern, tail)) = tail.split_at_checked(usize::from(len % 12)) else { return };
        patterns.push(pattern);
        rest = tail;
    }
    let list: Vec<u8> = patterns
        .iter()
        .flat_map(|pattern| (pattern.len() as u32).to_le_bytes().into_iter().chain(pattern.iter().copied()))
        .collect();
    let Some(found) = find_both_ways(&list, rest) else {
        assert!(patterns.is_empty() || patterns.iter().any(|pattern| pattern.is_empty()));
        return;
    };
    let longest = |at: usize| {
        let fitting = patterns.iter().filter(|pattern| rest[at..].starts_with(pattern));
        fitting.map(|pattern| pattern.len()).max()
    };
    let expected = (0..rest.len()).find_map(|at| longest(at).map(|len| (at, len)));
    for found in found {
        let found = found.map(|(pattern, at)| (at as usize, patterns[pattern as usize].len()));
        assert_eq!(found, expected, "{patterns:?} in {rest:?}");
    }
});
