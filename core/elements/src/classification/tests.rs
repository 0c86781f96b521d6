//! The structures of rules, compared with a plain evaluation.

use super::*;
use proptest::prelude::*;
use weir_graph::arguments::{ArgumentContext, ArgumentNames, Ipv4Prefix};
use weir_graph::language::Landmark;

/// The names of an AddressInfo and a PortInfo.
struct SomeNames;

impl ArgumentNames for SomeNames {
    fn ipv4(&self, name: &str) -> Option<core::net::Ipv4Addr> {
        (name == "BASTION").then_some([10, 0, 0, 1].into())
    }

    fn ipv4_prefix(&self, name: &str) -> Option<Ipv4Prefix> {
        (name == "INSIDE")
            .then_some(Ipv4Prefix { address: [11, 0, 0, 0].into(), mask: [255, 0, 0, 0].into() })
    }

    fn port(&self, protocol: u8, name: &str) -> Option<u16> {
        (protocol == 6 && name == "alternative").then_some(8080)
    }
}

#[test]
fn names_of_other_elements_are_addresses_and_ports() {
    let landmark = Landmark { file: "test".into(), line: 1 };
    let context = ArgumentContext { element: "", class: "IPFilter", landmark: &landmark, names: &SomeNames };
    let rule = |text| ip::filter_rule(text, 1, &context).map(|rule| rule.condition);
    for (named, plain) in [
        ("allow src BASTION && dst INSIDE", "allow src 10.0.0.1 && dst 11/8"),
        ("allow dst net INSIDE", "allow dst net 11/8"),
        ("allow dst tcp port alternative", "allow dst tcp port 8080"),
        ("allow alternative", "allow tcp port 8080 or udp port 8080"),
    ] {
        let (named, plain) = (rule(named), rule(plain));
        assert!(named.is_ok(), "{named:?}");
        let bytes = [&[0x45; 9][..], &[6, 0x45, 0x45, 10, 0, 0, 1, 11, 9, 9, 9, 9, 9, 0x1f, 0x90]].concat();
        let is_true = |it: &PatternExpression| it.is_true(&PacketParts { main: &bytes, ..parts(&bytes) });
        assert_eq!(named.as_ref().map(is_true), plain.as_ref().map(is_true));
    }
    assert!(rule("allow udp port alternative").is_err());
}

/// A packet that is cut anywhere, with values that occur in rules.
fn packets() -> impl Strategy<Value = Vec<u8>> {
    let pick = |values: &'static [u8]| prop::sample::select(values);
    let header = (
        pick(&[0x45, 0x45, 0x45, 0x46, 0x4f, 0x44, 0x65]),
        pick(&[0, 1, 3, 0xb8, 0xff]),
        prop_oneof![Just(0_u16), Just(0x2000), Just(0x4000), Just(1), Just(0x1fff), any::<u16>()],
        pick(&[0, 1, 64, 255]),
        pick(&[6, 6, 6, 17, 17, 1, 2, 4, 33, 47]),
        prop::array::uniform2((
            pick(&[9, 10, 11, 192]),
            pick(&[0, 1]),
            pick(&[0, 255]),
            pick(&[0, 1, 2, 129]),
        )),
    );
    let port = || prop_oneof![Just(80_u16), Just(81), Just(22), Just(1023), Just(1024), any::<u16>()];
    let upper = (port(), port(), any::<u64>(), pick(&[0, 2, 0x12, 0x10, 0xff]), any::<u16>());
    (header, upper, prop::collection::vec(any::<u8>(), 0..24), 0..100_usize).prop_map(
        |((first, tos, fragment, ttl, protocol, [source, destination]), upper, options, cut)| {
            let mut bytes = vec![first, tos, 0, 40, 0, 7];
            bytes.extend(fragment.to_be_bytes());
            bytes.extend([ttl, protocol, 0, 0, source.0, source.1, source.2, source.3]);
            bytes.extend([destination.0, destination.1, destination.2, destination.3]);
            let header_bytes = usize::from(first & 0xf) * 4;
            bytes.extend(options.iter().take(header_bytes.saturating_sub(20)));
            bytes.resize(header_bytes.max(20), 3);
            let (from, to, numbers, flags, window) = upper;
            bytes.extend(from.to_be_bytes());
            bytes.extend(to.to_be_bytes());
            bytes.extend(numbers.to_be_bytes());
            bytes.extend([0x50, flags]);
            bytes.extend(window.to_be_bytes());
            // Most packets are complete.
            bytes.truncate(if cut < 60 { cut } else { bytes.len() });
            bytes
        },
    )
}

/// Returns the parts of an IP packet, as behind MarkIPHeader.
fn parts(packet: &[u8]) -> PacketParts<'_> {
    let header_bytes = packet.first().map_or(0, |first| usize::from(first & 0xf) * 4);
    PacketParts { main: packet, transport: packet.get(header_bytes..).unwrap_or_default(), link: &[] }
}

/// Masks are odd: Click compares wrongly if the value is greater by the lowest bit alone.
fn primitives() -> impl Strategy<Value = String> {
    let text = |options: &'static [&'static str]| prop::sample::select(options).prop_map(str::to_owned);
    let direction = || text(&["", "src ", "dst ", "src and dst ", "src or dst "]);
    let operator = || text(&["", "", "== ", "!= ", "< ", "> ", "<= ", ">= "]);
    let address = || text(&["10.0.0.1", "10.1.255.129", "11.0.0.0", "192.1.0.2"]);
    let port = || {
        prop_oneof![
            text(&["80", "81", "22", "1023", "1024", "0", "65535"]),
            any::<u16>().prop_map(|it| it.to_string())
        ]
    };
    prop_oneof![
        (direction(), text(&["", "!= "]), address()).prop_map(|(d, o, a)| format!("{d}host {o}{a}")),
        (direction(), text(&["10/8", "10.0.0.0/9", "192.0.0.0/2", "10.0.0.0 mask 255.0.255.0"]))
            .prop_map(|(d, n)| format!("{d}net {n}")),
        (direction(), text(&["tcp ", "udp ", ""]), operator(), port())
            .prop_map(|(d, t, o, p)| format!("{d}{t}port {o}{p}")),
        (direction(), port(), port())
            .prop_map(|(d, m, p)| format!("{d}port & {} > {p}", m.parse().unwrap_or(1_u16) | 1)),
        (
            text(&[
                "ip tos",
                "ip ttl",
                "ip hl",
                "ip vers",
                "ip dscp",
                "ip id",
                "ip len",
                "ip[8]",
                "ip[10:2]",
                "ip[12:4]",
                "transp[0:2]",
                "tcp[4:4]",
                "tcp win",
                "icmp type"
            ]),
            operator(),
            0..16_u32
        )
            .prop_map(|(f, o, v)| format!("{f} {o}{v}")),
        (text(&["ip ttl", "tcp[12:2]", "ip[6:2]", "udp[0:4]"]), 1..255_u32, operator(), 0..300_u32).prop_map(
            |(f, m, o, v)| format!(
                "{f} & {} {}{}",
                m | 1,
                o,
                if o.starts_with(['<', '>']) { v } else { v & 0xff }
            )
        ),
        (text(&["", "!= "]), text(&["6", "17", "1", "47"])).prop_map(|(o, v)| format!("ip proto {o}{v}")),
        text(&[
            "tcp",
            "udp",
            "icmp",
            "tcpudp",
            "syn",
            "fin ack",
            "tcp opt rst",
            "ip frag",
            "ip unfrag",
            "ip ect",
            "ip ce",
            "true",
            "false",
            "port www",
            "10.0.0.0/8",
            "icmp type echo-reply",
            "src port 80 or 81",
            "ip ect 1",
        ]),
    ]
}

fn patterns() -> impl Strategy<Value = String> {
    primitives().prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) and ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}) or ({b})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a} && {b}")),
            inner.clone().prop_map(|a| format!("not ({a})")),
            inner.clone().prop_map(|a| format!("! ({a})")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("(({a}) ? ({b}) : ({c}))")),
        ]
    })
}

fn filters(most: usize) -> impl Strategy<Value = Vec<String>> {
    let action = prop::sample::select(&["allow", "deny", "1", "2"][..]);
    prop::collection::vec((action, patterns()).prop_map(|(action, it)| format!("{action} {it}")), 1..most)
}

fn compiled(rules: &[String]) -> RuleSet {
    let texts: Vec<&str> = rules.iter().map(String::as_str).collect();
    ip_filter(&texts, 3).unwrap_or_else(|reason| panic!("{rules:?}: {reason}"))
}

/// Random conditions on a few bytes, also of forms that no pattern has.
fn conditions() -> impl Strategy<Value = PatternExpression> {
    let part = prop::sample::select(&[Part::Main, Part::Transport, Part::Link][..]);
    let mask = prop_oneof![Just(0xff00_0000_u32), Just(0xffff), Just(0x00ff_0000), any::<u32>()];
    let relation = prop::sample::select(&[PatternRelation::Equal, PatternRelation::Greater][..]);
    let test = (part, prop::sample::select(&[0_u16, 4][..]), relation, mask, any::<u32>(), any::<bool>());
    let test = test.prop_map(|(part, offset, relation, mask, value, negated)| {
        let mask = mask.max(1);
        let value =
            if relation == PatternRelation::Equal { value & 0x0101_0101 & mask } else { value & 0x0303_0303 };
        PatternExpression::PatternTest(PatternTest { part, offset, relation, mask, value, negated })
    });
    prop_oneof![9 => test, 1 => any::<bool>().prop_map(PatternExpression::Constant)].prop_recursive(
        5,
        24,
        4,
        |inner| {
            let list = || prop::collection::vec(inner.clone(), 0..4);
            prop_oneof![
                list().prop_map(PatternExpression::And),
                list().prop_map(PatternExpression::Or),
                inner.clone().prop_map(|it| PatternExpression::Not(Box::new(it))),
                inner.clone().prop_map(PatternExpression::negated_tests),
                prop::array::uniform3(inner.clone()).prop_map(|all| PatternExpression::If(Box::new(all))),
            ]
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn patterns_are_decided_as_one_by_one(
        rules in filters(12),
        packets in prop::collection::vec(packets(), 40),
    ) {
        let set = compiled(&rules);
        for packet in &packets {
            let parts = parts(packet);
            let expected = set.decide_one_by_one(&parts);
            prop_assert_eq!(set.decide(&parts), expected, "{:?} {:02x?}\n{}", rules, packet, set.program(256));
            prop_assert_eq!(set.decide_by_tests(&parts), expected, "{:?} {:02x?}\n{}", rules, packet, set.program(256));
        }
    }

    #[test]
    fn conditions_are_decided_as_one_by_one(
        conditions in prop::collection::vec(conditions(), 1..6),
        packets in prop::collection::vec(
            prop::array::uniform3(prop::collection::vec(prop_oneof![0..4_u8, any::<u8>()], 0..9)), 60),
    ) {
        let rules = conditions.into_iter().zip(0..).map(|(condition, output)| PatternRule { condition, output });
        let set = RuleSet::new(rules.collect());
        for [main, transport, link] in &packets {
            let parts = PacketParts { main, transport, link };
            let expected = set.decide_one_by_one(&parts);
            prop_assert_eq!(set.decide(&parts), expected, "{:?}", set);
            prop_assert_eq!(set.decide_by_tests(&parts), expected, "{:?}", set);
            prop_assert!(!set.dead().contains(&usize::from(expected)));
        }
    }

    #[test]
    fn any_text_is_a_pattern_or_an_error(words in prop::collection::vec(prop_oneof![
        prop::sample::select(&["src", "dst", "port", "(", ")", "not", "?", ":", "[", "]", "ip", "ether", "80", "&", "mask",
            "10.0.0.0/8", "tcp", "and", "or", "<=", "host", "type", "echo", "12:4", "0-0-0-0-0-1", "opt"][..]).prop_map(str::to_owned),
        ".{0,3}",
    ], 0..12)) {
        let text = words.join(" ");
        if let Ok(set) = ip_filter(&[&format!("allow {text}")], 1) {
            let parts = parts(&[0x45; 60]);
            prop_assert_eq!(set.decide(&parts), set.decide_one_by_one(&parts));
        }
        _ = super::bytes::parse(&text);
    }
}

/// Each address is a cube of its own, and they are more than a table has.
#[test]
fn rules_that_are_too_many_for_a_table_are_a_graph_of_tests() {
    let rules: Vec<String> = (0..1100_u32)
        .map(|it| format!("{} src 10.0.{}.{} && dst 10.{}.0.{}", it % 2, it / 256, it % 256, it % 7, it % 11))
        .collect();
    let set = compiled(&rules);
    assert!(!set.is_table() && compiled(&rules[..1000]).is_table());
    for it in 0..1200_u32 {
        let [_, _, high, low] = it.to_be_bytes();
        let mut packet = vec![0x45; 12];
        packet.extend([10, 0, high, low, 10, (it % 7) as u8, 0, (it % 11) as u8]);
        let parts = parts(&packet);
        let expected = if it < 1100 { (it % 2) as u16 } else { NO_OUTPUT };
        assert_eq!((set.decide(&parts), set.decide_one_by_one(&parts)), (expected, expected));
    }
}
