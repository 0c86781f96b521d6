//! Hostile configurations end with an error, in bounded time.

use crate::{messages, try_parse};
use std::fmt::Write as _;
use weir_graph::language::limits::*;

fn only_error(text: &str) -> String {
    let messages = messages(text);
    assert_eq!(messages.len(), 1, "{:?}", &messages[..messages.len().min(5)]);
    messages.into_iter().next().unwrap()
}

#[test]
fn deep_brackets_are_refused() {
    for open in ["{", "(", "{ A -> (", "elementclass X {", "x :: {"] {
        let message = only_error(&open.repeat(100_000));
        assert_eq!(
            message,
            format!("test:1: nested braces and groups over the limit of {NESTING_MAX}"),
            "{open}"
        );
    }
    // Parentheses of configurations are only counted.
    assert!(try_parse(&format!("A({}{})", "(".repeat(100_000), ")".repeat(100_000))).is_ok());
    assert!(messages(&"[".repeat(100_000))[0].contains("expected port number"));
    assert!(messages(&format!("A({}", "(".repeat(100_000)))[0].contains("expected ')'"));
}

/// Classes that each contain ten of the one before.
fn tower(levels: usize, inner: &str, times: usize) -> String {
    let mut text = format!("elementclass C0 {{ {inner} }}\n");
    for level in 1..=levels {
        writeln!(text, "elementclass C{level} {{ {} }}", format!("C{};", level - 1).repeat(times)).unwrap();
    }
    text + &format!("C{levels};")
}

#[test]
fn expansion_bombs_are_stopped() {
    for inner in ["A", "", "A(some text)"] {
        let message = only_error(&tower(10, inner, 10));
        assert!(message.contains("over the limit of"), "{message}");
    }
    assert!(
        only_error(&tower(10, "", 10)).ends_with(&format!("elements over the limit of {FLAT_ELEMENTS_MAX}"))
    );
    // Deep, but small.
    let message = only_error(&tower(5000, "A", 1));
    assert!(
        message.ends_with(&format!("nested compound elements over the limit of {EXPANSION_DEPTH_MAX}")),
        "{message}"
    );
    assert!(try_parse(&tower(EXPANSION_DEPTH_MAX - 2, "A", 1)).is_ok());
}

#[test]
fn text_bombs_are_stopped() {
    let mut text = "define($v0 0123456789".to_owned();
    for level in 1..40 {
        write!(text, ", $v{level} $v{0}$v{0}", level - 1).unwrap();
    }
    let message = only_error(&format!("{text}); A($v39)"));
    assert!(
        message.ends_with(&format!(
            "bytes of the expanded configuration over the limit of {FLAT_TEXT_BYTES_MAX}"
        )),
        "{message}"
    );

    let chain: Vec<String> = (0..10_000).map(|level| format!("$v{level} $v{}", level + 1)).collect();
    let message = only_error(&format!("define({}); A($v0)", chain.join(", ")));
    assert!(
        message.ends_with(&format!("nested variables over the limit of {VARIABLE_DEPTH_MAX}")),
        "{message}"
    );

    // Long names of nested elements.
    let name = "x".repeat(50_000);
    let message = only_error(
        &tower(80, &format!("{name} :: A"), 1)
            .replace(";", "")
            .replace("C0 }", &format!("{name} :: C0 }}"))
            .replace("C5 }", &format!("{} }}", "C5;".repeat(2000))),
    );
    assert!(message.contains("bytes of the expanded configuration over"), "{message}");
}

#[test]
fn connection_bombs_are_stopped() {
    let ports = "A [0-65534] => [0-65534] A;".repeat(100);
    assert!(only_error(&ports).contains("ports and connections over the limit"));
    // Diamonds of compound elements: 2^40 ways, one connection.
    let mut diamonds = "elementclass D { -> a, b :: { -> }; a, b -> }\n"
        .replace("-> a, b :: { -> }; a, b ->", "a, b :: { -> }; input -> a, b; a, b -> output");
    diamonds += &format!("x :: X {} -> y :: Y", "-> D ".repeat(40));
    assert_eq!(try_parse(&diamonds).unwrap().connections.len(), 1);
    // All to all, through one compound element.
    let mut text = "c :: { -> };".to_owned();
    for index in 0..4000 {
        write!(text, "a{index} :: A -> c -> b{index} :: B;").unwrap();
    }
    assert!(only_error(&text).contains("over the limit"), "steps or connections");
}

/// Texts for which a search that begins anew at each place would take minutes.
#[test]
fn no_text_takes_quadratic_time() {
    const TIMES: usize = 200_000;
    for text in [
        format!("A({})", "${".repeat(TIMES)),
        format!("A({})", "$(a".repeat(TIMES)),
        format!("x :: {{ {} | A }}", "K$k,".repeat(TIMES)),
        format!("define($l {}); A({})", "w ".repeat(TIMES), "${l[199999]}".repeat(TIMES / 10)),
        format!(
            "elementclass T {{ A {} }} {}",
            "|| $a | A ".repeat(TIMES / 10),
            "T(1, 2);".repeat(TIMES / 10)
        ),
        format!("A -> {} B", "( [65535] -> A; ),".repeat(TIMES / 10)),
        "x -> A;".repeat(TIMES).replace('x', "undeclared/name") + &"y -> A;".repeat(TIMES),
        (0..TIMES).map(|index| format!("x{index}->A;")).collect(),
        "/*".repeat(TIMES),
        "\"".repeat(TIMES + 1),
        "A('".repeat(TIMES),
        "#\n".repeat(TIMES),
    ] {
        let start = std::time::Instant::now();
        let _ = try_parse(&text);
        println!("{:.2} s: {:?}", start.elapsed().as_secs_f64(), &text[..30]);
        // The machine may be busy with other tests.
        assert!(start.elapsed().as_secs() < 30, "{:?}", &text[..30]);
    }
}

#[test]
fn many_errors_are_counted_and_not_kept() {
    let text: String = (0..5000).map(|index| format!("x{index} -> A;\n")).collect();
    let errors = try_parse(&text).map(|_| ()).unwrap_err();
    assert_eq!((errors.errors.len(), errors.uncollected), (ERRORS_MAX, 4000));
    assert!(errors.to_string().ends_with("and 4000 more errors"));
}

#[test]
fn long_files_and_a_hundred_thousand_elements() {
    assert!(only_error(&" ".repeat(SOURCE_BYTES_MAX + 1)).contains("bytes of a file over the limit"));
    let text: String = (0..100_000).map(|index| format!("e{index} :: Element({index});\n")).collect();
    assert_eq!(try_parse(&text).unwrap().elements.len(), 100_000);
    let text = "A;".repeat(100_000);
    assert_eq!(try_parse(&text).unwrap().elements[99_999].name.as_ref(), "A@100000");
    // Every generated name is taken at first.
    let mut text: String = (50_001..=100_000).map(|number| format!("A@{number} :: A;")).collect();
    text += &"A;".repeat(50_000);
    assert_eq!(try_parse(&text).unwrap().elements.len(), 100_000);
}

#[test]
fn a_class_cannot_contain_itself() {
    // Inside its own definition, a name means the class before it.
    assert_eq!(crate::graph("elementclass X { X } elementclass X { X } X"), "X@1/X@1/X@1 :: X");
    assert_eq!(crate::graph("elementclass X X; X"), "X@1 :: X");
}

#[test]
fn the_document_states_the_limits() {
    let document = include_str!("../../../../docs/CLICK.md");
    let thousands = |number: usize| {
        let digits = number.to_string();
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
        groups.join(",")
    };
    for (name, value) in [
        ("bytes of a configuration and of each library", format!("{} MiB", SOURCE_BYTES_MAX >> 20)),
        ("library files", thousands(LIBRARIES_MAX)),
        ("nested braces and groups", format!("{NESTING_MAX}, as in Click")),
        ("nested compound elements after expansion", thousands(EXPANSION_DEPTH_MAX)),
        ("elements after expansion, with the compound elements", thousands(FLAT_ELEMENTS_MAX)),
        ("ports and connections, before expansion and after it", thousands(FLAT_CONNECTIONS_MAX)),
        ("parameters of a compound element", thousands(PARAMETERS_MAX)),
        ("comparisons of arguments with parameters, for all compound elements", thousands(CHOICE_STEPS_MAX)),
        ("steps through compound elements, for all connections", thousands(CONNECTION_STEPS_MAX)),
        ("bytes of names and configurations after expansion", format!("{} MiB", FLAT_TEXT_BYTES_MAX >> 20)),
        ("highest port", thousands(PORT_MAX as usize)),
        ("nested variables", thousands(VARIABLE_DEPTH_MAX)),
    ] {
        let row = format!("| {name} | {value} |");
        assert!(document.contains(&row), "{row}");
    }
}
