use crate::graph;

/// The connections between elements `a` to `z`.
fn connections(text: &str) -> String {
    let declared = "a, b, c, d, x, y, z :: E;";
    let all = graph(&format!("{declared} {text}"));
    let parts: Vec<&str> = all.split("; ").filter(|part| part.contains("->")).collect();
    parts.join(" ")
}

#[test]
fn chains_use_port_0_unless_a_port_is_given() {
    assert_eq!(connections("a -> b -> c"), "a[0]->[0]b b[0]->[0]c");
    assert_eq!(connections("a [1] -> [2] x [3] -> [4] b"), "a[1]->[2]x x[3]->[4]b");
    assert_eq!(connections("a[0x10] -> b; a -> b; a -> b"), "a[16]->[0]b a[0]->[0]b");
    assert_eq!(connections("a -> b c -> d"), "a[0]->[0]b c[0]->[0]d");
    assert_eq!(connections("a -> b c [1] -> d [0-1] -> x"), "a[0]->[0]b c[1]->[0]d d[0]->[0]x d[1]->[0]x");
}

#[test]
fn one_port_is_connected_to_many() {
    assert_eq!(connections("a, b [1] -> [2] x"), "a[0]->[2]x b[1]->[2]x");
    assert_eq!(connections("x -> a, [1] b"), "x[0]->[0]a x[0]->[1]b");
    assert_eq!(connections("a [0,2] -> x"), "a[0]->[0]x a[2]->[0]x");
    assert_eq!(connections("x -> a, b -> y"), "x[0]->[0]a x[0]->[0]b a[0]->[0]y b[0]->[0]y");
}

#[test]
fn many_ports_are_connected_in_order() {
    let expected = "a[0]->[0]x a[1]->[0]y a[2]->[0]z";
    assert_eq!(connections("a [0], a [1], a [2] => x, y, z"), expected);
    assert_eq!(connections("a [0,1,2] => x, y, z"), expected);
    assert_eq!(connections("a [0-2] => x, y, z"), expected);
    assert_eq!(connections("a => x, y, z"), expected);
    assert_eq!(connections("a [0-] => x, y, z"), expected);
    assert_eq!(connections("a [] => x, y, z"), expected);
    assert_eq!(connections("x, y, z => a"), "x[0]->[0]a y[0]->[1]a z[0]->[2]a");
    assert_eq!(connections("a [1-], b [5] => x, y, z"), "a[1]->[0]x a[2]->[0]y b[5]->[0]z");
    assert_eq!(connections("a [0-1, 4] => [1-3] x"), "a[0]->[1]x a[1]->[2]x a[4]->[3]x");
    assert_eq!(connections("a => b"), "a[0]->[0]b");
    assert_eq!(connections("a => b [0-] => x, y"), "a[0]->[0]b b[0]->[0]x b[1]->[0]y");
}

#[test]
fn groups_are_detours() {
    let expected = "x[0]->[0]y";
    assert_eq!(connections("x -> ( input -> output ) -> y"), expected);
    assert_eq!(connections("x -> ( [0] -> [0] ) -> y"), expected);
    assert_eq!(connections("x -> (->) -> y"), expected);
    assert_eq!(connections("x -> ( [0]->[0]; [1]->[1] ) => ( [0]->[0]; [1]->[1] ) -> y"), expected);
    let both = "x[0]->[0]y x[1]->[0]y";
    assert_eq!(connections("x => ( [0]->[0]; [1]->[1] ) -> y"), both);
    assert_eq!(connections("x => [0,1] ( [0]->[0]; [1]->[1] ) [0,1] -> y"), both);
    assert_eq!(
        connections("x -> c => ( input [0] -> output; input [1] -> a -> output ) -> y"),
        "x[0]->[0]c a[0]->[0]y c[0]->[0]y c[1]->[0]a"
    );
    // Groups nest, see the elements around them, and declare elements that are visible behind them.
    assert_eq!(
        graph("x :: E; x -> ( -> ( -> y :: E(1) -> ) -> ) -> z :: E; y -> [1] z"),
        "x :: E; y :: E(1); z :: E; y[0]->[0]z; x[0]->[0]y; y[0]->[1]z"
    );
}

#[test]
fn ports_of_groups_are_part_of_the_numbers_of_names() {
    // A group counts as three elements.
    assert_eq!(graph("x :: E -> (->) -> E").split("; ").nth(1), Some("E@5 :: E"));
}
