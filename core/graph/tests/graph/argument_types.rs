//! The types of arguments.

use core::net::{Ipv4Addr, Ipv6Addr};
use weir_graph::arguments::{
    AnnotationField, ArgumentContext, ArgumentNames, ArgumentValue, ByteString, ElementReference,
    EthernetAddress, FileName, FixedDecimal, IpProtocol, Ipv4Prefix, Ipv6Prefix, TcpPort, UdpPort,
    WordArgument, split_keyword,
};
use weir_graph::language::Landmark;
use weir_units::{BitsPerSecond, Bytes, Nanos, Timestamp};

/// The names of a small configuration.
struct SomeNames;

impl ArgumentNames for SomeNames {
    fn element(&self, name: &str) -> Option<usize> {
        ["x", "a/x", "a/b/y"].iter().position(|known| *known == name)
    }

    fn ipv4(&self, name: &str) -> Option<Ipv4Addr> {
        match name {
            "gateway" => Some(Ipv4Addr::new(192, 0, 2, 1)),
            "a/gateway" => Some(Ipv4Addr::new(192, 0, 2, 2)),
            _ => None,
        }
    }

    fn ipv4_prefix(&self, name: &str) -> Option<Ipv4Prefix> {
        let prefix =
            Ipv4Prefix { address: Ipv4Addr::new(192, 0, 2, 0), mask: Ipv4Addr::new(255, 255, 255, 0) };
        (name == "net").then_some(prefix)
    }

    fn ethernet(&self, name: &str) -> Option<EthernetAddress> {
        (name == "card").then_some(EthernetAddress([2, 0, 0, 0, 0, 1]))
    }

    fn annotation(&self, name: &str) -> Option<(usize, usize)> {
        (name == "MINE").then_some((46, 2))
    }
}

/// Parses an argument of the element `a/b/c`, or returns the message.
fn value<T: ArgumentValue>(text: &str) -> Result<T, String> {
    let landmark = Landmark { file: "f".into(), line: 1 };
    let context = ArgumentContext { element: "a/b/c", class: "C", landmark: &landmark, names: &SomeNames };
    T::parse_argument(text, &context).map_err(|fault| fault.to_string())
}

#[test]
fn booleans_and_integers() {
    for (text, expected) in [
        ("true", true),
        ("yes", true),
        ("1", true),
        ("y", true),
        ("false", false),
        ("no", false),
        ("0", false),
    ] {
        assert_eq!(value::<bool>(text), Ok(expected));
    }
    assert!(value::<bool>("TRUE").is_err() && value::<bool>("2").is_err() && value::<bool>("").is_err());
    assert_eq!(value::<u32>("0xFFFFFFFF"), Ok(u32::MAX));
    assert_eq!(value::<u32>("4294967296").unwrap_err(), "out of range, bound 4294967295");
    assert_eq!(value::<u64>("18446744073709551615"), Ok(u64::MAX));
    assert_eq!(value::<u64>("18446744073709551616").unwrap_err(), "out of range, bound 18446744073709551615");
    assert_eq!(value::<i32>("-2147483648"), Ok(i32::MIN));
    assert_eq!(value::<i32>("-2147483649").unwrap_err(), "out of range, bound -2147483648");
    assert_eq!(value::<i64>("-0x10"), Ok(-16));
    assert_eq!(value::<u8>("-1").unwrap_err(), "parse error: expected unsigned integer");
    assert_eq!(value::<u16>("010"), Ok(8));
    assert_eq!(value::<Vec<u8>>("1 2  3"), Ok(vec![1, 2, 3]));
}

#[test]
fn decimals() {
    assert_eq!(value::<f64>("-1.5e3"), Ok(-1500.0));
    assert!(value::<f64>("nan").is_err() && value::<f64>("1e999").is_err());
    assert_eq!(value::<FixedDecimal<3>>("1.2345"), Ok(FixedDecimal(1235)));
    assert_eq!(value::<FixedDecimal<2>>("-0.5"), Ok(FixedDecimal(-50)));
    assert!(value::<FixedDecimal<3>>("1e30").unwrap_err().starts_with("out of range"));
}

#[test]
fn times_rates_and_bytes() {
    for (text, nanoseconds) in [
        ("1", 1_000_000_000),
        ("1.5s", 1_500_000_000),
        ("10ms", 10_000_000),
        ("10 ms", 10_000_000),
        ("3us", 3_000),
        ("7ns", 7),
        ("20msec", 20_000_000),
        ("2min", 120_000_000_000),
        ("2m", 120_000_000_000),
        ("0.5h", 1_800_000_000_000),
        ("1hr", 3_600_000_000_000),
        ("1day", 86_400_000_000_000),
        ("0.0000000004", 0),
        ("0.0000000005", 1),
    ] {
        assert_eq!(value(text), Ok(Nanos(nanoseconds)), "{text}");
    }
    for text in ["", "s", "-1s", "1x", "1 2", "1ss"] {
        assert!(value::<Nanos>(text).is_err(), "{text}");
    }
    assert_eq!(value::<Nanos>("1e18").unwrap_err(), "out of range, bound 18446744073709551615");
    assert_eq!(value("1700000000.25"), Ok(Timestamp(1_700_000_000_250_000_000)));
    for (text, bits) in [
        ("10Mbps", 10_000_000),
        ("1kBps", 8_000),
        ("1.5Gbps", 1_500_000_000),
        ("9600baud", 9_600),
        ("100", 800),
        ("56 kb/s", 56_000),
        ("1MB/s", 8_000_000),
    ] {
        assert_eq!(value(text), Ok(BitsPerSecond(bits)), "{text}");
    }
    assert!(value::<BitsPerSecond>("10Mbit").is_err() && value::<BitsPerSecond>("kbps").is_err());
    for (text, bytes) in [("4096", 4096), ("0x10", 16), ("64KiB", 65_536), ("1.5kB", 1500)] {
        assert_eq!(value(text), Ok(Bytes(bytes)), "{text}");
    }
}

#[test]
fn texts() {
    assert_eq!(value::<String>("a\"b c\"'d'"), Ok("ab cd".to_owned()));
    assert_eq!(value::<String>("a b").unwrap_err(), "parse error: expected string");
    assert_eq!(value::<String>("\"\""), Ok(String::new()));
    assert_eq!(value("\\<00 ff>"), Ok(ByteString(vec![0, 255])));
    assert_eq!(value("w-o.r:d"), Ok(WordArgument("w-o.r:d".to_owned())));
    assert!(value::<WordArgument>("'a b'").is_err() && value::<WordArgument>("").is_err());
    assert_eq!(value("\"/tmp//a b///c\""), Ok(FileName("/tmp/a b/c".to_owned())));
    assert!(value::<FileName>("").is_err());
    assert_eq!(split_keyword("LIMIT  5 6"), Some(("LIMIT", "5 6")));
    for text in ["5 LIMIT", "LIMIT", "LIMIT ", "a-b c", "\"LIMIT\" 5"] {
        assert_eq!(split_keyword(text), None, "{text}");
    }
}

#[test]
fn addresses_and_prefixes() {
    assert_eq!(value("18.26.4.15"), Ok(Ipv4Addr::new(18, 26, 4, 15)));
    // The innermost scope that knows the name counts.
    assert_eq!(value("gateway"), Ok(Ipv4Addr::new(192, 0, 2, 2)));
    for text in ["18.26.4", "256.0.0.1", "1.2.3.4.5", "1..2.3", "", "x"] {
        assert!(value::<Ipv4Addr>(text).is_err(), "{text}");
    }
    let prefix = |address: [u8; 4], mask: [u8; 4]| Ipv4Prefix { address: address.into(), mask: mask.into() };
    assert_eq!(value("18.26.4/24"), Ok(prefix([18, 26, 4, 0], [255, 255, 255, 0])));
    assert_eq!(value("10.1.2.3/255.0.0.255"), Ok(prefix([10, 1, 2, 3], [255, 0, 0, 255])));
    assert_eq!(value("10.1.2.3"), Ok(prefix([10, 1, 2, 3], [255; 4])));
    assert_eq!(value("0/0"), Ok(prefix([0; 4], [0; 4])));
    assert_eq!(value("gateway/30"), Ok(prefix([192, 0, 2, 2], [255, 255, 255, 252])));
    assert_eq!(value("net"), Ok(prefix([192, 0, 2, 0], [255, 255, 255, 0])));
    for text in ["18.26/24", "10.0.0.0/33", "10.0.0.0/", "/8", "10.0.0.0/+8"] {
        assert!(value::<Ipv4Prefix>(text).is_err(), "{text}");
    }
    assert!(prefix([10, 0, 0, 0], [255, 0, 0, 0]).contains(Ipv4Addr::new(10, 9, 8, 7)));
    assert!(!prefix([10, 0, 0, 0], [255, 0, 0, 0]).contains(Ipv4Addr::new(11, 9, 8, 7)));
    assert_eq!(value("::18.26.4.15"), Ok("::121a:40f".parse::<Ipv6Addr>().unwrap()));
    let db8 = "2001:db8::".parse().unwrap();
    assert_eq!(value("2001:db8::/32"), Ok(Ipv6Prefix { address: db8, len: 32 }));
    assert_eq!(value("2001:db8::/ffff:ffff::"), Ok(Ipv6Prefix { address: db8, len: 32 }));
    assert!(value::<Ipv6Prefix>("2001:db8::/129").is_err() && value::<Ipv6Prefix>("::/ffff::1").is_err());
    let card = EthernetAddress([0, 0xa0, 0xc9, 0x9c, 0xfd, 0x9c]);
    for text in ["0-a0-c9-9c-fd-9c", "00:A0:C9:9C:FD:9C"] {
        assert_eq!(value(text), Ok(card), "{text}");
    }
    assert_eq!(value::<EthernetAddress>(&card.to_string()), Ok(card));
    assert_eq!(value("card"), Ok(EthernetAddress([2, 0, 0, 0, 0, 1])));
    for text in ["0:1:2:3:4", "0:1:2:3:4:5:6", "0:1:2:3:4-5", "0:1:2:3:4:100", "+1:1:2:3:4:5"] {
        assert!(value::<EthernetAddress>(text).is_err(), "{text}");
    }
}

#[test]
fn names() {
    assert_eq!(value("x"), Ok(ElementReference(1)));
    assert_eq!(value("y"), Ok(ElementReference(2)));
    assert_eq!(value::<ElementReference>("z").unwrap_err(), "does not name an element");
    assert_eq!(value("tcp"), Ok(IpProtocol(6)));
    assert_eq!(value("0x11"), Ok(IpProtocol(17)));
    assert!(value::<IpProtocol>("256").is_err() && value::<IpProtocol>("xyz").is_err());
    assert_eq!(value("https"), Ok(TcpPort(443)));
    assert_eq!(value("53"), Ok(UdpPort(53)));
    assert_eq!(value::<UdpPort>("65536").unwrap_err(), "out of range, bound 65535");
    assert_eq!(value("PAINT"), Ok(AnnotationField::<1>(16)));
    assert_eq!(value("AGGREGATE"), Ok(AnnotationField::<4>(20)));
    assert_eq!(value("MINE"), Ok(AnnotationField::<2>(46)));
    assert_eq!(value("44"), Ok(AnnotationField::<4>(44)));
    assert_eq!(value::<AnnotationField<4>>("45").unwrap_err(), "expected an annotation of 4 bytes");
    assert_eq!(value::<AnnotationField<4>>("PAINT").unwrap_err(), "expected an annotation of 4 bytes");
}

mod round_trips {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quoted_bytes_are_read_back(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let text = weir_graph::arguments::text::quote(&bytes);
            prop_assert_eq!(value(&text), Ok(ByteString(bytes)));
        }

        #[test]
        fn displayed_values_are_read_back(v4: u32, v6: u128, int: i64, octets: [u8; 6]) {
            prop_assert_eq!(value(&Ipv4Addr::from(v4).to_string()), Ok(Ipv4Addr::from(v4)));
            prop_assert_eq!(value(&Ipv6Addr::from(v6).to_string()), Ok(Ipv6Addr::from(v6)));
            prop_assert_eq!(value(&int.to_string()), Ok(int));
            prop_assert_eq!(value(&EthernetAddress(octets).to_string()), Ok(EthernetAddress(octets)));
        }

        /// The oracle computes with whole nanoseconds.
        #[test]
        fn times_are_exact(seconds in 0..1_000_000_u64, nanos in 0..1_000_000_000_u64) {
            prop_assert_eq!(value(&format!("{seconds}.{nanos:09}s")), Ok(Nanos(seconds * 1_000_000_000 + nanos)));
        }
    }
}
