//! Configurations that are too large, or that would cost much: each gets an error or stays cheap.

use std::fmt::Write as _;
use weir_elements::AllElements;
use weir_elements::classification::{NO_OUTPUT, PacketParts, ip_filter};
use weir_elements::testing::GraphTest;
use weir_graph::engine::{NoFiles, Router, RunOptions, SimulatedClock};
use weir_graph::language::{ConfigurationSource, parse};

/// Makes a graph, and returns it or its first error.
fn router(text: &str) -> Result<Router, String> {
    let source = ConfigurationSource { name: "graph", bytes: text.as_bytes() };
    let flat = parse(&source, &[], &AllElements).map_err(|errors| errors.to_string())?;
    let clock = Box::<SimulatedClock>::default();
    Router::new(flat, &AllElements, Box::new(NoFiles), clock, RunOptions::default())
        .map_err(|errors| errors[0].to_string())
}

#[test]
fn a_filter_can_have_more_rules_than_outputs_can_be_numbered() {
    let rules = vec!["deny all"; 65_600].join(", ");
    router(&format!("Idle -> IPFilter({rules}, allow all) -> Discard;")).unwrap();
    let patterns = vec!["-"; 65_600].join(", ");
    for class in ["Classifier", "IPClassifier"] {
        let error = router(&format!("Idle -> {class}({patterns}) -> Discard;")).err().unwrap();
        assert!(error.contains("there can be 65535 patterns"), "{error:.400}");
    }
}

/// Prefixes of one argument, each with another address.
fn prefixes(count: u32) -> String {
    let mut text = String::new();
    for index in 0..count {
        _ = write!(text, "10.{}.{}.{} ", index >> 16 & 255, index >> 8 & 255, index & 255);
    }
    text
}

#[test]
fn an_arp_responder_refuses_prefixes_above_its_capacity_and_keeps_the_earlier_ones() {
    let many = prefixes(60_000);
    let text = format!("Idle -> r :: ARPResponder({many} 0:0:0:0:0:1, CAPACITY 60001) -> Discard;");
    let mut router = router(&text).unwrap();
    router.write_handler("r.add 10.0.0.0/8 0:0:0:0:0:2").unwrap();
    let error = router.write_handler("r.add 10.0.0.7 10.0.0.0/9 0:0:0:0:0:3").unwrap_err();
    assert!(error.contains("there can be 60001 prefixes"), "{error}");
    // Twice the same prefix is one, and a known one needs no room.
    router.write_handler("r.add 10.0.0.8 10.0.0.8 0:0:0:0:0:4").unwrap();
    let mut lookup = |address: &str| router.read_handler(&format!("r.lookup {address}")).unwrap();
    assert_eq!(lookup("10.0.0.7"), "00-00-00-00-00-01");
    assert_eq!(lookup("10.0.0.8"), "00-00-00-00-00-04");
    assert_eq!(lookup("10.255.0.0"), "00-00-00-00-00-02");
}

/// A condition of 20 KB, whose product would have 62,500 cubes with 500 bytes each.
#[test]
fn a_product_of_wide_conditions_becomes_a_graph_of_tests() {
    let list = |from: u32, count: u32, between: &str| {
        let ways: Vec<String> = (from..from + count).map(|at| format!("ip[{at}] = 1")).collect();
        format!("({})", ways.join(between))
    };
    let rule = format!(
        "allow {} and {} and {}",
        list(0, 500, " and "),
        list(600, 250, " or "),
        list(900, 250, " or ")
    );
    assert!(rule.len() < 20_000);
    let rules = ip_filter(&[&rule, "deny all"], 1).unwrap();
    assert!(!rules.is_table());
    let mut bytes = vec![1; 1200];
    let decide = |bytes: &[u8]| rules.decide(&PacketParts { main: bytes, ..PacketParts::default() });
    assert_eq!(decide(&bytes), 0);
    bytes[499] = 2;
    assert_eq!(decide(&bytes), NO_OUTPUT);
    bytes[499] = 1;
    bytes[600..850].fill(0);
    assert_eq!(decide(&bytes), NO_OUTPUT);
}

/// Runs a script, and returns the value of its variable `r`.
fn run_script(instructions: &str) -> String {
    let mut router = router(&format!("s :: Script({instructions}, stop);")).unwrap();
    router.run_until(None);
    router.read_handler("s.get r").unwrap()
}

#[test]
fn the_widths_of_a_format_do_not_multiply() {
    let length = |conversions: usize| {
        let (format, values) = ("%04096d".repeat(conversions), " 1".repeat(conversions));
        format!("$(length $(sprintf \"{format}\"{values}))")
    };
    assert_eq!(run_script(&format!("set r {}", length(10))), "40960");
    // 400 MB: the function ends early.
    let test = format!(
        "A format ends early.\n--- graph\ns :: Script(set r {}, stop);\n--- handlers\n--- stderr\n\
         While executing 's :: Script':\n  \
         while calling 'sprintf': the text has more than 4194304 bytes\n",
        length(100_000)
    );
    GraphTest::read(&test).and_then(|test| test.check()).unwrap();
}

#[test]
fn references_without_an_end_are_searched_a_few_times() {
    for open in ["$(", "${"] {
        // A few stay as they are.
        assert_eq!(run_script(&format!("setq r \"a {open} b {open} c\"")), format!("a {open} b {open} c"));
        // 200,000 would each be searched up to the end of the text; the script is disabled.
        let text = format!("setq r \"{}\", set r after", open.repeat(200_000));
        assert_ne!(run_script(&text), "after");
    }
}
