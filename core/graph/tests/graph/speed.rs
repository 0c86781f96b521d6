//! The time for a megabyte of configuration.

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

#[test]
fn a_megabyte_is_parsed_in_a_tenth_of_a_second() {
    let (quarter, whole) = (time(&configuration(1 << 18)), time(&configuration(1 << 20)));
    println!("256 KiB: {:.1} ms, 1 MiB: {:.1} ms", quarter * 1e3, whole * 1e3);
    // Four times the text; a search through all names for each name would take sixteen times as long.
    assert!(whole < 10.0 * quarter, "{quarter} s, {whole} s");
    assert!(whole < 0.1 * SLOW_MACHINE, "{whole} s");
}

/// The factor by which a busy machine may be slower than the stated time.
const SLOW_MACHINE: f64 = 5.0;
