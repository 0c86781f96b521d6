//! Graphs that are too large or too deep: they get an error, in time and memory that grow with the text alone.

use weir_elements::testing::GraphTest;

/// Checks that a graph has these errors.
fn assert_errors(graph: &str, errors: &str) {
    let test = format!("A graph at a limit.\n--- graph\n{graph}\n--- errors\n{errors}\n");
    if let Err(error) = GraphTest::read(&test).and_then(|test| test.check()) {
        panic!("{error}");
    }
}

/// Checks the value of a handler at the end of a graph.
fn assert_value(graph: &str, handler: &str, value: &str) {
    let test = format!("A graph at a limit.\n--- graph\n{graph}\n--- handlers\n{handler} {value}\n");
    if let Err(error) = GraphTest::read(&test).and_then(|test| test.check()) {
        panic!("{error}");
    }
}

#[test]
fn open_ports_are_one_error_and_further_errors_are_counted() {
    assert_errors(
        "t :: Tee; Idle -> t; t[3] -> Discard; t[7] -> Discard;",
        "graph:1: 't' outputs 0 to 1 are not connected",
    );
    let wrong: Vec<String> =
        (0..1003).map(|n| format!("t{n} :: Tee; Idle -> t{n}; t{n}[1] -> Discard;")).collect();
    let errors: Vec<String> =
        (0..1000).map(|n| format!("graph:1: 't{n}' output 0 is not connected\n")).collect();
    assert_errors(&wrong.concat(), &format!("{}graph:1: 3 further errors", errors.concat()));
}

/// Each line is short, and names a high port.
#[test]
fn a_high_port_takes_no_memory() {
    let lines: String =
        (0..20_000).map(|n| format!("Idle -> t{n} :: Tee; t{n}[65000] -> Discard;")).collect();
    let errors: String = (0..1000).map(|n| format!("graph:1: 't{n}' output 0 is not connected\n")).collect();
    assert_errors(&lines, &format!("{errors}graph:1: 19000 further errors"));
}

#[test]
fn pulls_have_a_depth() {
    let graph = |tees: usize| {
        let chain: String = (0..tees).map(|n| format!("-> t{n} :: PullTee ")).collect();
        format!("InfiniteSource(LIMIT 2) -> Queue {chain} -> c :: Counter -> Discard;")
    };
    assert_value(&graph(900), "c.count", "2");
    assert_errors(
        &graph(50_000),
        "graph:1: While initializing 't999 :: PullTee':\n  packets are pulled through more than 1000 elements that wait for each other",
    );
}

#[test]
fn handlers_call_each_other_to_a_depth() {
    let scripts: String =
        (0..5000).map(|n| format!("s{n} :: Script(TYPE PASSIVE, return $(s{}.run)); ", n + 1)).collect();
    let graph =
        format!("{scripts} s5000 :: Script(TYPE PASSIVE, return end); Script(set x $(s4940.run), print $x);");
    let test = format!("Calls within the limit.\n--- graph\n{graph}\n--- stdout\nend\n");
    GraphTest::read(&test).and_then(|test| test.check()).unwrap();
    let graph = format!("{scripts} s5000 :: Idle; Script(print $(s0.run), print over);");
    let test = format!("Calls beyond the limit.\n--- graph\n{graph}\n--- stderr\n");
    let error = GraphTest::read(&test).and_then(|test| test.check()).unwrap_err().to_string();
    assert!(error.contains("more than 64 levels deep"), "{error}");
}

#[test]
fn rewriters_name_tables_of_others_over_a_short_chain() {
    let chain = |length: usize| -> String {
        let rewriter = |n: usize, source: String| {
            format!("Idle -> r{n} :: IPRewriter(drop, CAPACITY {source}) -> Discard;")
        };
        let all: String = (0..length).map(|n| rewriter(n, format!("r{}", n + 1))).collect();
        all + &rewriter(length, "7".to_owned())
    };
    assert_value(&chain(100), "r0.capacity", "7");
    assert_errors(
        &chain(102),
        "graph:1: While initializing 'r0 :: IPRewriter':\n  MAPPING_CAPACITY: more than 100 rewriters name the next one; name the last one\n\
         graph:1: While initializing 'r1 :: IPRewriter':\n  MAPPING_CAPACITY: more than 100 rewriters name the next one; name the last one",
    );
}

#[test]
fn names_take_time_in_proportion_to_their_number() {
    let names: String = (0..100_000).map(|n| format!("AddressInfo(a{n} 1.2.3.4);")).collect();
    assert_value(&format!("{names} c :: Counter; InfiniteSource(LIMIT 1) -> c -> Discard;"), "c.count", "1");
}

#[test]
fn simulated_time_ends() {
    assert_value(
        "c :: Counter; Idle -> c -> Discard; Script(wait 18000000000s, wait 18000000000s, print no);",
        "c.count",
        "0",
    );
}

#[test]
fn packets_that_go_around_a_cycle_without_end_are_counted_drops() {
    let graph = "InfiniteSource(LIMIT 3) -> a :: Null -> c :: Counter -> a;";
    let test = format!(
        "Packets in an endless cycle.\n--- graph\n{graph}\n--- handlers\nc.count 768\n--- stderr\n\
         a: 3 packets went around a cycle again and again, and were discarded here\n"
    );
    GraphTest::read(&test).and_then(|test| test.check()).unwrap();
}

/// Each packet becomes two in each turn.
#[test]
fn packets_that_multiply_in_a_cycle_end() {
    let graph = "InfiniteSource(LIMIT 1) -> a :: Null -> t :: Tee -> a; t[1] -> Null -> a;";
    let test = format!("Packets that multiply.\n--- graph\n{graph}\n--- stderr\n");
    let error = GraphTest::read(&test).and_then(|test| test.check()).unwrap_err().to_string();
    assert!(error.contains("went around a cycle again and again"), "{error}");
}

/// 300 copies of 300 copies: a batch would be 5,760,000 packets at a time.
#[test]
fn copies_of_copies_go_through_the_graph_in_smaller_batches() {
    let outputs =
        |name: &str, to: &str| -> String { (0..300).map(|n| format!("{name}[{n}] -> {to};")).collect() };
    let graph = format!(
        "n :: Null; c :: Counter; InfiniteSource(LIMIT 64) -> a :: Tee; {} n -> b :: Tee; {} c -> Discard;",
        outputs("a", "n"),
        outputs("b", "c")
    );
    assert_value(&graph, "c.count", "5760000");
}

#[test]
fn a_path_with_many_copies_keeps_the_order() {
    let tees: String = (0..50).map(|n| format!("-> t{n} :: Tee ")).collect();
    let ends: String = (0..50).map(|n| format!("t{n}[1] -> Discard;")).collect();
    let graph = format!(
        "InfiniteSource(DATA abcdefgh, LIMIT 2) {tees} -> last :: Tee -> Truncate(4) -> j :: Print(MAXLENGTH 2); \
         last[1] -> j -> Discard; {ends}"
    );
    let test = format!(
        "The copies of one packet come before those of the next.\n--- graph\n{graph}\n--- stderr\n   \
         4 | 6162\n   8 | 6162\n   4 | 6162\n   8 | 6162\n"
    );
    GraphTest::read(&test).and_then(|test| test.check()).unwrap();
}
