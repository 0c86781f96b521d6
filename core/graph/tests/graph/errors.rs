//! Messages, their places, and recovery.

use crate::{messages, try_parse};

/// Line, column and text of each error.
fn places(text: &str) -> Vec<String> {
    let errors = try_parse(text).map(|_| ()).unwrap_err().errors;
    let place = |error: &weir_graph::language::LanguageError| {
        format!("{}:{} {}", error.landmark.line, error.column, error.fault)
    };
    errors.iter().map(place).collect()
}

#[test]
fn each_error_has_line_and_column() {
    for (text, expected) in [
        ("a -> A;", "1:1 undeclared element 'a'"),
        ("A ->\n  é é;", "2:3 syntax error near 'é'"),
        ("x :: A;\n x :: B", "2:2 redeclaration of element 'x'"),
        ("A ::", "1:5 missing element type in declaration"),
        ("elementclass { }", "1:14 expected element type name"),
        ("elementclass A ;", "1:16 syntax error near ';'"),
        ("A (", "1:3 expected ')'"),
        ("A (\n 'abc)", "2:2 string without its closing quote '"),
        ("A (\n \"abc)", "2:2 string without its closing quote \""),
        ("A (\\<41)", "1:4 data without its closing '>'"),
        ("  /* never", "1:3 comment without its end '*/'"),
        ("{ A", "1:1 expected '}'"),
        ("A -> ( -> ", "1:6 expected ')'"),
        ("A }", "1:3 syntax error near '}'"),
        ("A ) B", "1:3 syntax error near ')'"),
        ("A || B", "1:3 syntax error near '||'"),
        ("#nonsense\nA", "1:1 unknown preprocessor directive"),
        ("A [x] -> A", "1:4 syntax error: port number should be integer"),
        ("A [->] -> A", "1:4 syntax error: expected port number"),
        ("A [1 2] -> A", "1:6 expected ','"),
        ("A [65536] -> A", "1:4 port number 65536 is over the limit of 65534"),
        ("A -> [1];", "1:9 stranded port ignored"),
        ("A [1]", "1:1 output ports ignored at end of chain"),
        ("[1] A -> A", "1:5 input ports ignored at start of chain"),
        ("{ A -> [0], B -> C }", "1:15 implicit ports used in the middle of a chain"),
        ("A [0-] => [0-] A", "1:8 at most one expandable port allowed per connection"),
        ("A, A -> A, A", "1:6 syntax error: many-to-many connections require '=>'"),
        ("A, A => A, A, A", "1:6 connection mismatch: 2 outputs connected to 3 inputs"),
        ("A [0-2,3-] => A, A", "1:12 connection mismatch: 4 or more outputs connected to 2 inputs"),
        ("A [65534-] => A, A", "1:12 port number 65535 is over the limit of 65534"),
        ("elementclass C A; C :: A", "1:19 class 'C' used as element name"),
        ("x :: A; x(1)", "1:9 configuration string ignored on element reference"),
        ("1/x :: A", "1:1 element name '1/x' has all-digit component"),
        ("elementclass A { || ... B }", "1:21 '...' should occur last, after one or more compounds"),
        ("elementclass A { ... }", "1:18 '...' should occur last, after one or more compounds"),
        ("x :: { || ... }", "1:11 cannot extend anonymous compound element class"),
        ("{ $a, $a | A }", "1:7 parameter '$a' multiply defined"),
        ("{ K $a, K $b | A }", "1:11 repeated keyword parameter 'K' in compound element"),
        (
            "{ K $a, $b | A }",
            "1:9 compound element parameters out of order; the correct order is '[positional], [keywords], [__REST__]'",
        ),
        ("{ $a, B | A }", "1:7 expected variable"),
        ("{ $a $b | A }", "1:6 expected ',' or '|'"),
        ("define $a 1;", "1:8 expected '('"),
        ("require(package a b)", "1:8 syntax error at requirement"),
        ("require(library x)", "1:8 library 'x' not found: libraries are not available here"),
        ("x :: { A -> input }", "1:10 '<anonymous>' pseudoelement 'input' may only be used as output"),
        ("x :: { output -> A }", "1:15 '<anonymous>' pseudoelement 'output' may only be used as input"),
        ("elementclass X { input[1] -> A }", "1:16 'X' input 0 missing"),
        ("A -> ( -> A; A -> [1] )", "1:6 '<anonymous group>' output 0 missing"),
        ("x :: { -> A }; A -> [1] x", "1:1 'x' input 0 unused"),
        ("A -> { A }", "1:6 '@2' has no input 0"),
        ("x :: { A -> } ", "1:1 'x' output 0 unused"),
        ("{ A } -> A", "1:1 '@1' has no output 0"),
        ("A -> [0,1] ( -> A )", "1:12 '<anonymous group>' has no input 1"),
        ("x :: { y :: A } x/y :: B", "1:8 redeclaration of element 'x/y'"),
        ("Foo :: A; x :: Foo", "1:1 class 'Foo' used as element name"),
        ("a, b :: A; a -> b -> ;", "1:22 syntax error near ';'"),
        ("x $v", "1:1 undeclared element 'x'"),
        ("%", "1:1 syntax error near '%'"),
    ] {
        let places = places(text);
        assert!(
            places.iter().any(|place| place == expected),
            "{text}\nexpected {expected}\nfound {places:#?}"
        );
    }
}

#[test]
fn all_errors_of_a_file_are_found() {
    assert_eq!(
        messages(
            "a -> A;\nA ->;\nelementclass 1 ;\nx :: { b -> A; ); c -> A };\nd -> A(;);\nB -> [;\nx -> A"
        ),
        [
            "test:1: undeclared element 'a'",
            "test:2: syntax error near ';'",
            "test:3: syntax error near ';'",
            "test:4: undeclared element 'b'",
            "test:4: syntax error near ')'",
            "test:4: undeclared element 'c'",
            "test:5: undeclared element 'd'",
            "test:6: syntax error: expected port number",
        ]
    );
}

#[test]
fn an_undeclared_element_is_reported_once_with_the_nearest_name() {
    let errors =
        try_parse("counter :: Counter; A -> conter -> B; conter -> C").map(|_| ()).unwrap_err().errors;
    assert_eq!(errors.len(), 1);
    assert_eq!(errors[0].nearest.as_deref(), Some("counter"));
    assert_eq!(errors[0].line_text, "counter :: Counter; A -> conter -> B; conter -> C");
}

#[test]
fn a_redeclaration_names_the_first_declaration() {
    assert_eq!(
        messages("x :: A;\n\nx :: B;"),
        ["test:3: redeclaration of element 'x'\ntest:1:   element 'x' previously declared here"]
    );
}

#[test]
fn bytes_that_are_no_text_are_replaced_with_a_warning() {
    use weir_graph::language::{AnyClass, ConfigurationSource, parse};
    let source = ConfigurationSource { name: "latin", bytes: b"// \xe9\nA(\xe9)" };
    let flat = parse(&source, &[], &AnyClass).unwrap();
    assert_eq!(&*flat.elements[0].configuration, "\u{fffd}");
    assert_eq!(flat.warnings[0].to_string(), "latin:1: bytes that are not UTF-8 were replaced");
}
