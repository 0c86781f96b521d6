//! Reading the arguments of an element.

use weir_graph::arguments::{ArgumentContext, ArgumentFault, ElementArguments, NoNames, RawArgument};
use weir_graph::language::Landmark;

/// Reads arguments, and returns the value and the errors as text.
fn read<T>(text: &str, read: impl FnOnce(&mut ElementArguments<'_, '_>) -> T) -> (T, String) {
    let landmark = Landmark { file: "f".into(), line: 3 };
    let context = ArgumentContext { element: "q", class: "Queue", landmark: &landmark, names: &NoNames };
    let mut arguments = ElementArguments::new(text, &context);
    let value = read(&mut arguments);
    let errors = arguments.end().err().map(|errors| {
        let text = errors.to_string();
        text.strip_prefix("f:3: While configuring 'q :: Queue':\n  ").unwrap().replace("\n  ", "; ")
    });
    (value, errors.unwrap_or_default())
}

fn ok<T>(value: T) -> (T, String) {
    (value, String::new())
}

#[test]
fn arguments_are_found_by_position_and_by_keyword() {
    let either = |text| read(text, |args| (args.either("A").or(1_u8), args.either("B").or(2_u8)));
    assert_eq!(either(""), ok((1, 2)));
    assert_eq!(either("7"), ok((7, 2)));
    assert_eq!(either("7, 8"), ok((7, 8)));
    assert_eq!(either("B 8"), ok((1, 8)));
    assert_eq!(either("7, B 8"), ok((7, 8)));
    assert_eq!(either("B 8, A 7"), ok((7, 8)));
    assert_eq!(either("B 8, B 9"), ok((1, 9)));
    assert_eq!(either("7, 8, 9"), ((7, 8), "too many arguments".to_owned()));
    assert_eq!(either("7, C 9, D 1"), ((7, 2), "C: unknown argument; D: unknown argument".to_owned()));
    assert_eq!(either("7, x").1, "B: parse error: expected unsigned integer");
    assert_eq!(read("A 5", |args| args.positional("A").or(1_u8)), (1, "A: unknown argument".to_owned()));
}

#[test]
fn a_required_argument_can_look_like_a_keyword() {
    let raw = |text| read(text, |args| args.either::<RawArgument>("PATTERN").required().0);
    assert_eq!(raw("ip proto tcp"), ok("ip proto tcp".to_owned()));
    assert_eq!(raw("PATTERN ip proto tcp"), ok("ip proto tcp".to_owned()));
    assert_eq!(raw("").1, "PATTERN: required argument missing");
    assert_eq!(read("x y", |args| args.either("A").or(3_u8)), (3, "x: unknown argument".to_owned()));
}

#[test]
fn all_errors_of_an_element_are_collected() {
    let (_, errors) = read("x, LIMIT 300, BURTS 3", |args| {
        args.positional::<u32>("RATE").required();
        args.keyword::<u8>("LIMIT").or(0);
        args.keyword::<u32>("SIZE").required();
        args.keyword::<u32>("BURST").or(0);
        args.error("", "RATE and LIMIT exclude each other");
    });
    assert_eq!(
        errors,
        "RATE: parse error: expected unsigned integer; LIMIT: out of range, bound 255; SIZE: required argument \
         missing; RATE and LIMIT exclude each other; BURTS: unknown argument (did you mean BURST?)"
    );
}

#[test]
fn ranges_and_checks_limit_values() {
    let within = |text| read(text, |args| args.either("N").within(2..=9).or(5_i32)).1;
    assert_eq!(within("2"), "");
    assert_eq!(within("1"), "N: out of range, bound 2");
    assert_eq!(within("10"), "N: out of range, bound 9");
    assert_eq!(read("5", |args| args.either("N").within(..5_u8).or(0)).1, "N: out of range, bound 4");
    assert_eq!(read("1", |args| args.either("N").within(2_u8..).or(0)).1, "N: out of range, bound 2");
    let even = |n: &u32| {
        if n.is_multiple_of(2) { Ok(()) } else { Err(ArgumentFault::Other("must be even".to_owned())) }
    };
    assert_eq!(read("3", |args| args.either("N").checked(even).or(0)).1, "N: must be even");
}

#[test]
fn flags_repeated_keywords_and_the_rest() {
    let (value, errors) = read("a, STOP true, ADD 1, b c, ADD 2", |args| {
        (args.flag("STOP"), args.flag("GO"), args.all::<u8>("ADD"), args.unread(), args.rest())
    });
    assert_eq!(errors, "");
    assert_eq!(value, (true, false, vec![1, 2], 2, vec!["a".to_owned(), "b c".to_owned()]));
}
