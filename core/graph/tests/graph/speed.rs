//! The time for a megabyte of configuration.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::time::Instant;
use weir_graph::language::{AnyClass, ConfigurationSource, parse};

/// A configuration of this many bytes: classifiers, queues, and compound elements with parameters.
fn configuration(bytes: usize) -> String {
    let mut text = "define($RATE 1000);\nelementclass Limit { $rate | input -> Queue(200) -> Shaper($rate) -> output }\n".to_owned();
    let mut index = 0;
    while text.len() < bytes {
        writeln!(
            text,
            "// Interface {index}\nfrom{index} :: FromDevice(eth{index}, PROMISC true);\n\
             c{index} :: Classifier(12/0806 20/0001, 12/0800, -);\n\
             from{index} -> c{index};\nc{index} [0-1] => Paint({index}), Limit($RATE) -> Discard;\n\
             c{index} [2] -> q{index} :: Queue(64) -> ToDevice(eth{index});"
        )
        .unwrap();
        index += 1;
    }
    text
}

/// The least time of some runs, in seconds.
fn time(text: &str) -> f64 {
    let source = ConfigurationSource { name: "large", bytes: text.as_bytes() };
    let run = || {
        let start = Instant::now();
        assert!(parse(&source, &[], &AnyClass).unwrap().elements.len() > 1000);
        start.elapsed().as_secs_f64()
    };
    (0..7).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// The least time of some runs that put each word of the text into a set, in seconds: a measure of the machine, and of
/// what else it does at the moment.
fn reference_time(text: &str) -> f64 {
    let run = || {
        let start = Instant::now();
        let words: HashSet<String> = text.split_whitespace().map(str::to_owned).collect();
        assert!(words.len() > 1000);
        start.elapsed().as_secs_f64()
    };
    (0..7).map(|_| run()).fold(f64::INFINITY, f64::min)
}

/// The time for a text, as a multiple of that for a set of its words. Both stay the same on a busy machine.
const REFERENCE_TIMES_MAX: f64 = 25.0;

#[test]
fn parsing_takes_time_in_proportion_to_the_text() {
    let (small, large) = (configuration(1 << 18), configuration(1 << 20));
    let (quarter, whole, reference) = (time(&small), time(&large), reference_time(&large));
    println!(
        "256 KiB: {:.1} ms, 1 MiB: {:.1} ms, {:.1} ms for a set of its words",
        quarter * 1e3,
        whole * 1e3,
        reference * 1e3
    );
    // Four times the text; a search through all names for each name would take sixteen times as long.
    assert!(whole < 10.0 * quarter, "{quarter} s, {whole} s");
    assert!(whole < REFERENCE_TIMES_MAX * reference, "{whole} s, {reference} s");
}
