use crate::{flat, graph, try_parse};
use weir_graph::language::{
    ClassStatus, ConfigurationSource, LanguageEnvironment, LibraryText, Requirement, parse,
};

#[test]
fn elements_are_declared_alone_and_in_lists() {
    assert_eq!(graph("q :: Queue(20);"), "q :: Queue(20)");
    assert_eq!(graph("q :: Queue q2::Queue"), "q :: Queue; q2 :: Queue");
    assert_eq!(graph("a, b, c :: Queue(1, 2);"), "a :: Queue(1, 2); b :: Queue(1, 2); c :: Queue(1, 2)");
    assert_eq!(graph("a :: A, b :: B(2);"), "a :: A; b :: B(2)");
    assert_eq!(graph("an/identifier/with/slashes//too/many\n:: A"), "an/identifier/with/slashes :: A");
    assert_eq!(graph(";;; /* nothing */ // at all"), "");
}

#[test]
fn anonymous_elements_are_numbered_by_their_place() {
    assert_eq!(
        graph("A -> x :: B -> A(1); A(2)"),
        "A@1 :: A; x :: B; A@3 :: A(1); A@4 :: A(2); A@1[0]->[0]x; x[0]->[0]A@3"
    );
    // A name that is taken is skipped.
    assert_eq!(graph("A@2 :: A; A; A@3 :: A; A"), "A@2 :: A; A@4 :: A; A@3 :: A; A@5 :: A");
    assert_eq!(
        graph("x :: { A -> B }; {A}; {B}"),
        "x/A@1 :: A; x/B@2 :: B; @2/A@1 :: A; @3/B@1 :: B; x/A@1[0]->[0]x/B@2"
    );
}

#[test]
fn configuration_strings_keep_quotes_and_comments() {
    let configuration = |text: &str| flat(text).elements[0].configuration.to_string();
    assert_eq!(configuration("A(simple string)"), "simple string");
    assert_eq!(configuration("A(string with (balanced parens))"), "string with (balanced parens)");
    assert_eq!(configuration("A(string with \")quoted\" paren)"), "string with \")quoted\" paren");
    assert_eq!(
        configuration("A(// end-of-line comment)\n  still going!)"),
        "// end-of-line comment)\n  still going!"
    );
    assert_eq!(configuration("A(/* comment) */ and backslash \\)"), "/* comment) */ and backslash \\");
    assert_eq!(
        configuration("A(a, 'it''s', \"\\\")\" , \\< 28 /* ) */ 29 >)"),
        "a, 'it''s', \"\\\")\" , \\< 28 /* ) */ 29 >"
    );
    assert_eq!(configuration("A()"), "");
    assert_eq!(configuration("A(\n  12/0806 20/0001,\n  -)"), "\n  12/0806 20/0001,\n  -");
}

#[test]
fn line_directives_rename_lines() {
    let text = "a :: A;\n# 12 \"other \\\"file\\\"\"\nb :: A;\n\n#line 5\nc :: A(\n# 40\n);\nd :: A;\n# 3 \"\"\ne :: A";
    let landmarks: Vec<String> =
        flat(text).elements.iter().map(|element| element.landmark.to_string()).collect();
    let renamed = "other \"file\"";
    assert_eq!(
        landmarks,
        [
            "test:1".to_owned(),
            format!("{renamed}:12"),
            format!("{renamed}:5"),
            format!("{renamed}:41"),
            "test:3".to_owned()
        ]
    );
}

#[test]
fn line_breaks_of_all_systems_count() {
    for text in ["a::A;\n\nb::A", "a::A;\r\n\r\nb::A", "a::A;\r\rb::A", "/*\n\r\n*/b::A"] {
        let elements = flat(text).elements;
        assert_eq!(elements[elements.len() - 1].landmark.to_string(), "test:3", "{text:?}");
    }
}

#[test]
fn requirements_are_kept_in_order() {
    let flat = flat("require(package fast, compact_config, \"my package\"); require(click); provide(x);");
    let package = |name: &str| Requirement::Package(name.to_owned());
    assert_eq!(
        flat.requirements,
        [package("fast"), Requirement::CompactConfiguration, package("my package"), package("click")]
    );
    assert_eq!(flat.warnings.len(), 1);
    assert_eq!(flat.warnings[0].to_string(), "test:1: 'provide' has no effect");
}

/// Two classes, and two libraries of which each needs the other.
struct Libraries;

impl LanguageEnvironment for Libraries {
    fn class(&self, name: &str) -> ClassStatus {
        if ["Queue", "drop"].contains(&name) { ClassStatus::Known } else { ClassStatus::Unknown }
    }

    fn class_names(&self) -> Vec<&str> {
        vec!["Queue", "drop"]
    }

    fn library(&self, name: &str, from: &str) -> Result<LibraryText, String> {
        let text = match name {
            "one.click" => "require(library two.click)\nelementclass One { input -> Two -> output }",
            "two.click" => "require(library one.click)\nelementclass Two { input -> Queue -> output }",
            "bad.click" => "\n\n x -> ",
            _ => return Err(format!("not beside {from}")),
        };
        Ok(LibraryText { path: format!("lib/{name}"), bytes: text.into() })
    }
}

fn with_libraries(text: &str) -> Result<String, String> {
    let source = ConfigurationSource { name: "main", bytes: text.as_bytes() };
    match parse(&source, &[], &Libraries) {
        Ok(flat) => {
            Ok(flat.elements.iter().map(|element| format!("{element} {}; ", element.landmark)).collect())
        }
        Err(errors) => Err(errors.to_string()),
    }
}

#[test]
fn libraries_are_included_once() {
    assert_eq!(
        with_libraries("require(library one.click, library two.click);\nq :: Queue -> One -> drop;").unwrap(),
        "q :: Queue main:2; drop@3 :: drop main:2; One@2/Two@1/Queue@1 :: Queue lib/two.click:2; "
    );
    assert_eq!(
        with_libraries("require(library three.click);").unwrap_err(),
        "main:1: library 'three.click' not found: not beside main"
    );
    assert_eq!(
        with_libraries("{ require(library one.click) }").unwrap_err(),
        "main:1: 'require library' must be used at file scope"
    );
    assert_eq!(
        with_libraries("require(library bad.click)\ny -> drop").unwrap_err(),
        "lib/bad.click:3: undeclared element 'x'\nlib/bad.click:3: syntax error at the end of the file\nmain:2: undeclared element 'y'"
    );
}

#[test]
fn known_classes_decide_what_a_name_means() {
    assert_eq!(with_libraries("drop -> q :: Queue").unwrap(), "drop@1 :: drop main:1; q :: Queue main:1; ");
    assert_eq!(with_libraries("Queue -> Qeue").unwrap_err(), "main:1: undeclared element 'Qeue'");
    assert_eq!(with_libraries("x :: Qeue; y :: Qeue").unwrap_err(), "main:1: unknown element class 'Qeue'");
    assert_eq!(with_libraries("drop :: Queue").unwrap_err(), "main:1: class 'drop' used as element name");
    // Without a list of classes, a name in a connection is a class if it begins with a capital letter or has a
    // configuration, and is not declared.
    assert_eq!(graph("Q :: A; Q -> b(1)"), "Q :: A; b@2 :: b(1); Q[0]->[0]b@2");
    assert!(try_parse("q -> A").is_err());
}
