use crate::{flat, messages, try_parse};
use weir_graph::language::{AnyClass, ConfigurationSource, parse};

/// The configuration of the first element.
fn value(text: &str) -> String {
    flat(text).elements[0].configuration.to_string()
}

#[test]
fn variables_are_replaced_outside_single_quotes() {
    let with = |text: &str| value(&format!("define($a 1, $b two words, $long_name x);\n{text}"));
    assert_eq!(with("A($a, $b)"), "1, two words");
    assert_eq!(with("A('$a' \"$a\" $ab ${a}b)"), "'$a' \"1\" $ab 1b");
    assert_eq!(with("A($long_name$a)"), "x1");
    assert_eq!(with("A(${b[0]}/${b[1]}/${b[2]})"), "two/words/");
    assert_eq!(with("A($(a) $(x) $)"), "1 $(x) $");
    assert_eq!(with("A(\\<3$a>)"), "\\<31>");
    assert_eq!(with("A(\"\\$a\")"), "\"\\$a\"");
    assert_eq!(value("A(1, $a); define($a 2)"), "1, 2");
}

#[test]
fn defaults_stand_for_variables_that_are_not_defined() {
    assert_eq!(value("A(${x-5}, ${x-a b}, ${x-}, ${x})"), "5, a b, , ${x}");
    assert_eq!(value("define($y 1); A(${x-$y}, ${x-${z-${y}}})"), "1, 1");
    assert_eq!(value("define($x 1); A(${x-5})"), "1");
    assert_eq!(value("define($which x, $x 7); A(${$which}, ${$which-1})"), "7, 7");
}

#[test]
fn values_are_quoted_inside_double_quotes() {
    assert_eq!(
        value("define($a 'say \"hi\" \\'); A(\"$a\", $a)"),
        "\"'say \\\"hi\\\" \\\\'\", 'say \"hi\" \\'"
    );
}

#[test]
fn values_can_use_other_variables() {
    assert_eq!(value("define($c $b$b, $b $a, $a 1); A($c)"), "11");
    assert_eq!(messages("define($a $b, $b $a); A($a)"), ["test:1: the value of '$a' contains '$a'"]);
    assert_eq!(messages("define($a 1, $a 2)"), ["test:1: parameter '$a' multiply defined"]);
    assert_eq!(messages("define(a 1)"), ["test:1: bad 'define' declaration: not a variable"]);
}

#[test]
fn values_cannot_change_the_structure_of_the_text() {
    for text in [
        "define($a /); A($a$a x)",
        "define($a 1); A(${a-\"}x\")",
        "define($a {x-1}); A($$a)",
        "define($a # 5); A(1,\n$a)",
        "define($a /, $b '*/'); A($a* $b /* */)",
    ] {
        let errors = messages(text);
        assert!(errors[0].contains("after substitution"), "{text}: {errors:?}");
    }
    assert_eq!(value("define($a ' b ', $e \"\"); A( $a )"), " ' b ' ");
    assert_eq!(value("A( ${e-} x ${e-} )"), "  x  ");
}

#[test]
fn comments_are_kept_and_their_variables_and_quotes_do_not_count() {
    assert_eq!(value("define($a 1); A($a // it's $a\n, $a)"), "1 // it's $a\n, 1");
    assert_eq!(value("define($a 1); A($a /* \" $a */ $a)"), "1 /* \" $a */ 1");
    assert_eq!(value("define($a 1 /* x */); A($a)"), "1");
}

#[test]
fn the_caller_can_define_variables() {
    let source = ConfigurationSource { name: "test", bytes: b"define($a 1); A($a$b)" };
    let parse_with =
        |name: &str, value: &str| parse(&source, &[(name.to_owned(), value.to_owned())], &AnyClass);
    assert_eq!(&*parse_with("a", "9").unwrap().elements[0].configuration, "9$b");
    assert_eq!(&*parse_with("b", "9").unwrap().elements[0].configuration, "19");
    for (name, value) in [("a", ")"), ("a", "\""), ("a", "/* x"), ("a", "// x"), ("", "1"), ("a b", "1")] {
        assert!(parse_with(name, value).is_err(), "{name}={value}");
    }
    assert!(try_parse("A($a)").is_ok());
}
