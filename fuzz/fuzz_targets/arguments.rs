//! Reads arbitrary text as an argument of each type, and as all arguments of an element.
//!
//! A value that has a written form reads again from that form as the same value. Lists of arguments and words are split
//! as they were joined.

#![no_main]
#![forbid(unsafe_code)]

use core::net::{Ipv4Addr, Ipv6Addr};
use libfuzzer_sys::fuzz_target;
use std::fmt::Debug;
use weir_graph::Landmark;
use weir_graph::arguments::text::{quote, shift_word, split_arguments, split_words, uncomment, unquote};
use weir_graph::arguments::{
    AnnotationField, ArgumentContext, ArgumentValue, ByteString, ElementArguments, ElementReference, EthernetAddress,
    FileName, FixedDecimal, IpProtocol, Ipv4Prefix, Ipv6Prefix, NoNames, RawArgument, TcpPort, UdpPort, WordArgument,
    parse_unsigned, split_keyword,
};
use weir_units::{BitsPerSecond, Bytes, Nanos, Timestamp};

fuzz_target!(|bytes: &[u8]| {
    assert_eq!(unquote(&quote(bytes)), bytes);
    let text = String::from_utf8_lossy(bytes);
    let landmark = Landmark { file: "fuzz".into(), line: 1 };
    let context = ArgumentContext { element: "a/b", class: "C", landmark: &landmark, names: &NoNames };
    texts(&text);
    numbers(&text, &context);
    each_type(&text, &context);
    all_of_an_element(&text, &context);
});

fn texts(text: &str) {
    let arguments = split_arguments(text);
    // An empty argument at the end needs a comma behind it. Behind another one, it could be within open quotes.
    let end = if arguments.last().is_some_and(|last| last.is_empty()) { "," } else { "" };
    let again = arguments.join(", ") + end;
    // Where a comment stood between a `#` and a number, the rest can be a line directive when it is read again.
    if arguments.iter().all(|argument| uncomment(argument) == *argument) {
        assert_eq!(split_arguments(&again), arguments, "{text:?}");
    }
    let plain = uncomment(text);
    let words: Vec<&str> = split_words(&plain).collect();
    assert_eq!(split_words(&words.join(" ")).collect::<Vec<_>>(), words, "{text:?}");
    assert_eq!(shift_word(&plain).0, words.first().copied().unwrap_or_default());
    let _ = split_keyword(text);
}

/// Decimal integers are those of the standard library.
fn numbers(text: &str, context: &ArgumentContext<'_>) {
    let is_decimal = !text.is_empty() && text.len() < 30 && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_decimal && (!text.starts_with('0') || text == "0") {
        assert_eq!(parse_unsigned(text), text.parse().ok());
        assert_eq!(u8::parse_argument(text, context).ok(), text.parse().ok());
        assert_eq!(i32::parse_argument(text, context).ok(), text.parse().ok());
        assert_eq!(u64::parse_argument(text, context).ok(), text.parse().ok());
    }
}

fn read<T: ArgumentValue + Debug + PartialEq>(text: &str, context: &ArgumentContext<'_>) -> Option<T> {
    let value = T::parse_argument(text, context);
    if let Err(fault) = &value {
        assert!(!fault.to_string().is_empty());
    }
    value.ok()
}

/// Reads a value, and again from its own form.
fn round_trip<T>(text: &str, context: &ArgumentContext<'_>)
where
    T: ArgumentValue + Debug + PartialEq + ToString,
{
    if let Some(value) = read::<T>(text, context) {
        assert_eq!(read(&value.to_string(), context), Some(value), "{text:?}");
    }
}

fn each_type(text: &str, context: &ArgumentContext<'_>) {
    round_trip::<bool>(text, context);
    round_trip::<i8>(text, context);
    round_trip::<u16>(text, context);
    round_trip::<i64>(text, context);
    round_trip::<Ipv4Addr>(text, context);
    round_trip::<Ipv6Addr>(text, context);
    round_trip::<EthernetAddress>(text, context);
    let _ = f64::parse_argument(text, context);
    read::<FixedDecimal<0>>(text, context);
    read::<FixedDecimal<9>>(text, context);
    read::<Nanos>(text, context);
    read::<Timestamp>(text, context);
    read::<BitsPerSecond>(text, context);
    read::<Bytes>(text, context);
    read::<Ipv4Prefix>(text, context);
    read::<Ipv6Prefix>(text, context);
    read::<IpProtocol>(text, context);
    read::<TcpPort>(text, context);
    read::<UdpPort>(text, context);
    read::<Vec<u16>>(text, context);
    read::<String>(text, context);
    read::<ByteString>(text, context);
    read::<WordArgument>(text, context);
    read::<FileName>(text, context);
    read::<RawArgument>(text, context);
    assert_eq!(read::<ElementReference>(text, context), None);
    for field in [read::<AnnotationField<1>>(text, context).map(|it| it.0 + 1), read::<AnnotationField<16>>(text, context).map(|it| it.0 + 16)] {
        assert!(field.is_none_or(|end| end <= weir_graph::engine::ANNOTATION_BYTES));
    }
}

fn all_of_an_element(text: &str, context: &ArgumentContext<'_>) {
    let mut arguments = ElementArguments::new(text, context);
    let unread = arguments.unread();
    let _ = arguments.positional::<u64>("A").optional();
    let _ = arguments.either::<i32>("B").within(-5..5).or(0);
    let _ = arguments.flag("FLAG");
    let _ = arguments.either::<Nanos>("C").required();
    let _ = arguments.either::<BitsPerSecond>("D").required();
    let _ = arguments.either::<Bytes>("E").required();
    let _ = arguments.either::<f64>("F").required();
    let _ = arguments.either::<FixedDecimal<6>>("G").required();
    let _ = arguments.either::<Ipv4Prefix>("H").required();
    let _ = arguments.either::<Ipv6Prefix>("I").required();
    let _ = arguments.either::<EthernetAddress>("J").required();
    let _ = arguments.either::<ByteString>("K").required();
    let _ = arguments.either::<WordArgument>("L").required();
    let _ = arguments.either::<FileName>("M").required();
    let _ = arguments.either::<AnnotationField<4>>("N").required();
    let _ = arguments.either::<Vec<IpProtocol>>("O").required();
    let _ = arguments.either::<TcpPort>("P").required();
    let _ = arguments.all::<ElementReference>("Q");
    assert!(arguments.unread() <= unread);
    if let Err(errors) = arguments.end() {
        assert!(!errors.errors.is_empty() && !errors.to_string().is_empty());
    }
}
