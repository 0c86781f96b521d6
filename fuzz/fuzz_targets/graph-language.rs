//! Parses arbitrary bytes as a configuration of a graph. What can be parsed is written flat, and parsed again to the same
//! graph. The arguments of its elements, and the bytes themselves, are read as arguments of several types.

#![no_main]
#![forbid(unsafe_code)]

use libfuzzer_sys::fuzz_target;
use weir_graph::arguments::text::{quote, unquote};
use weir_graph::arguments::{
    AnnotationField, ArgumentContext, ElementArguments, ByteString, ElementReference, EthernetAddress, FileName,
    FixedDecimal, IpProtocol, Ipv4Prefix, Ipv6Prefix, NoNames, TcpPort, WordArgument,
};
use weir_graph::language::{
    AnyClass, ConfigurationSource, FlatConfiguration, FlatLayout, Landmark, parse,
};
use weir_units::{BitsPerSecond, Bytes, Nanos};

/// A short input can expand to a graph that takes a second; the limits have tests of their own.
const ELEMENTS_MAX: usize = 2000;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(flat) = parse(&ConfigurationSource { name: "fuzz", bytes }, &[], &AnyClass)
        && flat.elements.len() < ELEMENTS_MAX
    {
        for layout in [FlatLayout::Plain, FlatLayout::LineDirectives] {
            stays_the_same(&flat, layout);
        }
        flat.elements.iter().for_each(|element| read(&element.configuration, &element.landmark));
    }
    read(&String::from_utf8_lossy(bytes), &Landmark { file: "fuzz".into(), line: 1 });
    assert_eq!(unquote(&quote(bytes)), bytes);
});

fn stays_the_same(flat: &FlatConfiguration, layout: FlatLayout) {
    let file = flat.to_file(layout);
    let again = parse(&ConfigurationSource { name: "fuzz", bytes: &file }, &[], &AnyClass);
    let again = again.unwrap_or_else(|errors| panic!("{errors}\n{}", String::from_utf8_lossy(&file)));
    let texts = |flat: &FlatConfiguration| -> Vec<String> {
        flat.elements.iter().map(ToString::to_string).collect()
    };
    assert_eq!(texts(&again), texts(flat));
    if layout == FlatLayout::LineDirectives {
        assert_eq!(again.elements, flat.elements);
    }
    let ends = |flat: &FlatConfiguration| {
        let mut ends: Vec<_> = flat.connections.iter().map(|one| (one.from, one.to)).collect();
        ends.sort_unstable();
        ends
    };
    assert_eq!(ends(&again), ends(flat));
    assert_eq!((&again.requirements, &again.members), (&flat.requirements, &flat.members));
}

fn read(text: &str, landmark: &Landmark) {
    let context = ArgumentContext { element: "a/b", class: "C", landmark, names: &NoNames };
    let mut arguments = ElementArguments::new(text, &context);
    let unread = arguments.unread();
    let _ = arguments.positional::<u64>("A").optional();
    let _ = arguments.either::<i32>("B").within(-5..5).or(0);
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
