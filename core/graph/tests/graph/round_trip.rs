//! A flat configuration, written and parsed again, is the same.

use crate::flat;
use proptest::prelude::*;
use weir_graph::language::{AnyClass, ConfigurationSource, FlatConfiguration, FlatLayout, parse};

/// Checks that both layouts are parsed to an equal configuration.
pub fn check(flat: &FlatConfiguration) {
    for layout in [FlatLayout::Plain, FlatLayout::LineDirectives] {
        let file = flat.to_file(layout);
        let source = ConfigurationSource { name: "test", bytes: &file };
        let shown = String::from_utf8_lossy(&file);
        let again = parse(&source, &[], &AnyClass).unwrap_or_else(|errors| panic!("{errors}\n{shown}"));
        let connections = |flat: &FlatConfiguration| {
            let mut ends: Vec<_> = flat.connections.iter().map(|one| (one.from, one.to)).collect();
            ends.sort_unstable();
            ends
        };
        assert_eq!(connections(&again), connections(flat), "{shown}");
        assert_eq!(again.requirements, flat.requirements, "{shown}");
        assert_eq!(again.members, flat.members);
        assert_eq!(again.elements.len(), flat.elements.len());
        for (one, other) in again.elements.iter().zip(&flat.elements) {
            if layout == FlatLayout::LineDirectives {
                assert_eq!(one, other, "{shown}");
            } else {
                assert_eq!(one.to_string(), other.to_string(), "{shown}");
            }
        }
        // The text does not change any more.
        assert_eq!(again.to_text(layout).len(), flat.to_text(layout).len(), "{shown}");
    }
}

#[test]
fn chains_are_written_once_and_cycles_are_broken() {
    let text = "a, b, c, d :: E; a -> b -> c -> a; b [1] -> [2] d; d -> d; c -> b; c -> [1] c";
    assert_eq!(
        flat(text).to_text(FlatLayout::Plain),
        "a :: E;\nb :: E;\nc :: E;\nd :: E;\n\n\
         b [1] -> [2] d;\nd -> d;\nc -> b\n    -> c\n    -> a\n    -> b;\nc -> [1] c;\n"
    );
}

#[test]
fn requirements_come_first_and_line_directives_name_the_source() {
    let text = "require(package x);\n\na :: A(1) ->\nb :: B;";
    assert_eq!(
        flat(text).to_text(FlatLayout::LineDirectives),
        "require(package \"x\");\n\n# 3 \"test\"\na :: A(1);\n# 4 \"test\"\nb :: B;\n# 8 \"\"\na -> b;\n"
    );
}

/// Statements of a random configuration: of elements, references, groups and compound elements.
fn statements(depth: u32) -> BoxedStrategy<String> {
    let port = prop_oneof![3 => Just(String::new()), 1 => (0..3_u8).prop_map(|port| format!(" [{port}]"))];
    let configuration = prop_oneof![
        Just(""),
        Just("(1, 2)"),
        Just("(a \"b, )\" 'c')"),
        Just("($p)"),
        Just("(${q-3} $g /* x */ y)"),
        Just("(\\<41 42>)"),
    ];
    let leaf = (0..4_u8, configuration).prop_map(|(class, text)| format!("C{class}{text}")).boxed();
    let element = if depth == 0 {
        leaf
    } else {
        let inner = statements(depth - 1);
        prop_oneof![
            6 => leaf,
            1 => inner.clone().prop_map(|inner| format!("({inner} input -> G -> output;)")),
            1 => inner.clone().prop_map(|inner| format!("{{ {inner} input -> I -> output; }}")),
            1 => inner.prop_map(|inner| format!("{{ $p | {inner} -> J($p, \"$p\") -> }}(7 'x')")),
        ]
        .boxed()
    };
    let chain = (element, port.clone(), prop_oneof![Just("->"), Just("=>")], port, 0..4_u8).prop_map(
        |(element, output, arrow, input, class)| {
            format!("S{output} {arrow}{input} C{class} -> {element} -> D;\n")
        },
    );
    proptest::collection::vec(chain, 1..4).prop_map(|chains| chains.concat()).boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn random_configurations_stay_the_same(text in statements(3), define in any::<bool>()) {
        let define = if define { "define($g 5);" } else { "" };
        flat(&format!("{define}{text}"));
    }

    /// No text causes a panic, and what can be parsed stays the same.
    #[test]
    fn random_tokens_never_panic(tokens in proptest::collection::vec(token(), 0..60)) {
        if let Ok(flat) = crate::try_parse(&tokens.concat()) {
            check(&flat);
        }
    }
}

fn token() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => prop::sample::select(vec![
            "A", "B", "x", "y", "x/y", "input", "output", "A@1", " -> ", " => ", " :: ", ";", ",", "(", ")", "[", "]",
            "{", "}", "|", "||", "...", "-", "0", "1", "$v", "${v", "${v-", "elementclass ", "define($v 1)", "define(",
            "require(", "provide(", "library", "\"", "'", "\\<", ">", "//", "/*", "*/", "\n", "\n# 3 \"f\"", "#", " ",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
        1 => Just("a :: A -> { -> B($v) -> } -> c :: C;\n".to_owned()),
    ]
}
