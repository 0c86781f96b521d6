use crate::{graph, messages};

#[test]
fn compound_elements_are_expanded() {
    assert_eq!(
        graph("a :: A -> { input -> X -> output } -> b :: B"),
        "a :: A; b :: B; @2/X@1 :: X; a[0]->[0]@2/X@1; @2/X@1[0]->[0]b"
    );
    assert_eq!(
        graph(
            "compound :: { input -> x :: X -> output; input [1] -> y :: Y -> [1] output };\n\
             a, b, c, d :: E; a -> compound -> b; c -> [1] compound [1] -> d"
        ),
        "a :: E; b :: E; c :: E; d :: E; compound/x :: X; compound/y :: Y; a[0]->[0]compound/x; \
         c[0]->[0]compound/y; compound/x[0]->[0]b; compound/y[0]->[0]d"
    );
    // Chains of inputs and outputs, and several destinations.
    assert_eq!(
        graph("elementclass P { -> } b, c :: E; a :: E -> P -> P -> { -> { -> } -> } -> b, c"),
        "b :: E; c :: E; a :: E; a[0]->[0]b; a[0]->[0]c"
    );
    // A cycle of compound elements only has no elements to connect.
    assert_eq!(graph("p, q :: { -> }; p -> q -> p"), "");
}

#[test]
fn implicit_input_and_output_begin_and_end_chains() {
    assert_eq!(
        graph("a, b :: E; a [0,1] => [0,1] c :: { -> X -> ; [1] -> Y -> [1] } [0,1] => [0,1] b"),
        "a :: E; b :: E; c/X@1 :: X; c/Y@2 :: Y; a[0]->[0]c/X@1; a[1]->[0]c/Y@2; c/X@1[0]->[0]b; c/Y@2[0]->[1]b"
    );
}

#[test]
fn element_classes_are_named_and_scoped() {
    assert_eq!(
        graph(
            "elementclass MyQueue { input -> Queue -> Shaper(1000) -> output } q :: MyQueue; a :: A -> q -> a"
        ),
        "a :: A; q/Queue@1 :: Queue; q/Shaper@2 :: Shaper(1000); a[0]->[0]q/Queue@1; \
         q/Queue@1[0]->[0]q/Shaper@2; q/Shaper@2[0]->[0]a"
    );
    // The class inside is the previous one.
    assert_eq!(graph("elementclass Queue { a :: Queue } Queue"), "Queue@1/a :: Queue");
    assert_eq!(graph("elementclass B A; elementclass C B; c :: C"), "c :: A");
    assert_eq!(graph("x :: { elementclass A { y :: Y } A }; A"), "A@2 :: A; x/A@1/y :: Y");
    assert_eq!(graph("elementclass A { b :: B } elementclass B { c :: C } A"), "A@1/b :: B");
}

#[test]
fn parameters_are_positional_keywords_and_the_rest() {
    let with = |arguments: &str| {
        graph(&format!("x :: {{ $a, COUNT $count, __REST__ $rest | Y($a/$count/$rest) }} ({arguments})"))
    };
    assert_eq!(with("1, 2, COUNT 3, FOO 4"), "x/Y@1 :: Y(1/3/2, FOO 4)");
    assert_eq!(with("1, COUNT 3"), "x/Y@1 :: Y(1/3/)");
    assert_eq!(with("COUNT 1, COUNT 2, COUNT 3"), "x/Y@1 :: Y(COUNT 1/3/)");
    assert_eq!(graph("{ $a | A(1, $a, 3) } (100)"), "@1/A@1 :: A(1, 100, 3)");
    assert_eq!(graph("{ | A } ()"), "@1/A@1 :: A");
    for (parameters, arguments) in
        [("$a, $b", "1"), ("$a, $b", "1, 2, 3"), ("COUNT $c", "1"), ("A $a", "A 1, B 2"), ("", "1")]
    {
        let text = format!("{{ {parameters} | E }} ({arguments})");
        assert!(messages(&text)[0].starts_with("test:1: no match for '<anonymous>["), "{text}");
    }
}

#[test]
fn definitions_are_chosen_by_arguments_and_ports() {
    let queue =
        "elementclass MyQueue { input -> Queue -> output || $cap | input -> Queue($cap) -> output }\n";
    assert_eq!(
        graph(&format!("{queue} a :: A -> q :: MyQueue -> a")).split("; ").nth(1),
        Some("q/Queue@1 :: Queue")
    );
    assert_eq!(
        graph(&format!("{queue} a :: A -> q :: MyQueue(5) -> a")).split("; ").nth(1),
        Some("q/Queue@1 :: Queue(5)")
    );
    let ports = "elementclass P { -> One -> || -> Two -> ; [1] -> [1] }\n";
    assert!(graph(&format!("{ports} a :: A => p :: P => a")).contains("p/One"));
    assert!(
        graph(&format!("{ports} a :: A; a -> p :: P -> a; a[1] -> [1] p [1] -> [1] a")).contains("p/Two")
    );
    // An existing class is extended.
    let extended = "elementclass Queue { $cap, $rate | -> Queue($cap) -> Shaper($rate) -> || ... }\n";
    assert_eq!(graph(&format!("{extended} q :: Queue(7)")), "q :: Queue(7)");
    assert!(
        graph(&format!("{extended} a :: A -> q :: Queue(7, 8) -> a")).contains("q/Shaper@2 :: Shaper(8)")
    );
    let twice = "elementclass T { $a | x :: X($a) } elementclass T { $a, $b | y :: Y($a$b) || ... }\n";
    assert_eq!(graph(&format!("{twice} t :: T(1); u :: T(2, 3)")), "t/x :: X(1); u/y :: Y(23)");
    assert_eq!(
        messages(
            "elementclass Test { $a | /* nothing */ }\ntest :: Test(1, 2);\nelementclass Test { $a, $b | || ... }"
        ),
        [
            "test:2: no match for 'Test[2 arguments, 0 inputs, 0 outputs]'\ntest:1:   candidate: Test(<arg>)[0 inputs, 0 outputs]"
        ]
    );
}

#[test]
fn variables_belong_to_the_scope_around_the_definition() {
    assert_eq!(
        graph(
            "define($v outer); elementclass A { x :: X($v, $w) } b :: { define($v inner, $w 1) A; y :: Y($v) }"
        ),
        "b/y :: Y(inner); b/A@1/x :: X(outer, $w)"
    );
    assert_eq!(graph("x :: { $a | y :: { $a | z :: Z($a) } (<$a>) } (1)"), "x/y/z :: Z(<1>)");
}

#[test]
fn elements_come_before_the_components_of_compound_elements() {
    assert_eq!(
        graph("elementclass C { a :: A; d :: { e :: E }; b :: B } one :: C; last :: L; two :: C"),
        "last :: L; one/a :: A; one/b :: B; one/d/e :: E; two/a :: A; two/b :: B; two/d/e :: E"
    );
}
