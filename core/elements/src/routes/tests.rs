//! Compares all lookups with a search of all routes, through additions, replacements and removals.

use super::lookup::{IpLookup, RouteIndex};
use super::route::mask_of;
use core::net::Ipv4Addr;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// Prefixes in two ranges, so that they contain each other often.
fn prefixes() -> impl Strategy<Value = (u32, u32)> {
    let address = prop_oneof![
        (0u32..1 << 12).prop_map(|low| 0x0a01_0000 | low),
        (0u32..256).prop_map(|high| high << 24),
        Just(u32::MAX),
        any::<u32>(),
    ];
    let length = prop_oneof![0u32..=32, 20u32..=32];
    (address, length).prop_map(|(address, length)| (address & mask_of(length), length))
}

fn command() -> impl Strategy<Value = (bool, (u32, u32), u32, u16)> {
    (prop::bool::weighted(0.7), prefixes(), 0u32..3, 0u16..3)
}

type Reference = BTreeMap<(u32, u32), (u32, u16)>;

fn expected(reference: &Reference, address: u32) -> String {
    let containing = reference.iter().filter(|((prefix, length), _)| address & mask_of(*length) == *prefix);
    match containing.max_by_key(|((_, length), _)| *length) {
        None => "-1".to_owned(),
        Some((_, (0, output))) => output.to_string(),
        Some((_, (gateway, output))) => format!("{output} {}", Ipv4Addr::from_bits(*gateway)),
    }
}

fn compare<I: RouteIndex>(commands: &[(bool, (u32, u32), u32, u16)], group: usize) {
    let mut lookup = IpLookup::<I>::new(1000, 3);
    let mut reference = Reference::new();
    for commands in commands.chunks(group) {
        let mut text = String::new();
        for (is_set, (prefix, length), gateway, output) in commands {
            let prefix_text = Ipv4Addr::from_bits(*prefix);
            if *is_set {
                let gateway_text = Ipv4Addr::from_bits(*gateway);
                text += &format!("set {prefix_text}/{length} {gateway_text} {output}\n");
                reference.insert((*prefix, *length), (*gateway, *output));
            } else if reference.remove(&(*prefix, *length)).is_some() {
                text += &format!("remove {prefix_text}/{length}\n");
            }
        }
        lookup.control(&text).unwrap();
        // A group that fails has no effect.
        let wrong = format!("set 10.1.0.0/20 2\nremove 0.0.0.0/0\n{text}set 10.1.2.0/25 1\nadd 1.2.3.4 99\n");
        assert!(lookup.control(&wrong).is_err());
        let ends = commands.iter().flat_map(|(_, (prefix, length), ..)| {
            let last = prefix | !mask_of(*length);
            [*prefix, prefix.wrapping_sub(1), last, last.wrapping_add(1), last ^ 0x80]
        });
        let addresses: Vec<u32> = ends.chain([0, u32::MAX, 0x0a01_0203]).collect();
        assert_eq!(lookup.found_together(&addresses), lookup.found_one_by_one(&addresses));
        for address in addresses {
            let found = lookup.describe(&Ipv4Addr::from_bits(address).to_string()).unwrap();
            assert_eq!(found, expected(&reference, address), "{}", Ipv4Addr::from_bits(address));
        }
    }
    assert_eq!(lookup.table().lines().count(), reference.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn linear_finds_the_longest_prefix(commands in prop::collection::vec(command(), 1..60), group in 1usize..5) {
        compare::<super::linear::LinearIndex>(&commands, group);
    }

    #[test]
    fn radix_finds_the_longest_prefix(commands in prop::collection::vec(command(), 1..60), group in 1usize..5) {
        compare::<super::radix::RadixIndex>(&commands, group);
    }

    #[test]
    fn range_finds_the_longest_prefix(commands in prop::collection::vec(command(), 1..60), group in 1usize..5) {
        compare::<super::range::RangeIndex>(&commands, group);
    }
}

proptest! {
    // Short prefixes fill large parts of the table.
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn direct_finds_the_longest_prefix(commands in prop::collection::vec(command(), 1..40), group in 1usize..5) {
        compare::<super::direct::DirectIndex>(&commands, group);
    }
}

#[test]
fn there_can_be_more_than_255_next_hops() {
    fn check<I: RouteIndex>() {
        let mut lookup = IpLookup::<I>::new(2000, 1);
        let all =
            |number: u32| (Ipv4Addr::from_bits(0x0a00_0000 + (number << 8)), Ipv4Addr::from_bits(number));
        let text: String =
            (1..=1000).map(all).map(|(to, gateway)| format!("add {to}/24 {gateway} 0\n")).collect();
        lookup.control(&text).unwrap();
        for (to, gateway) in (1..=1000).map(all) {
            assert_eq!(lookup.describe(&to.to_string()), Ok(format!("0 {gateway}")));
        }
    }
    check::<super::linear::LinearIndex>();
    check::<super::radix::RadixIndex>();
    check::<super::direct::DirectIndex>();
    check::<super::range::RangeIndex>();
}

#[test]
fn a_full_table_takes_no_more_routes() {
    let mut lookup = IpLookup::<super::radix::RadixIndex>::new(2, 1);
    lookup.control("add 10.0.0.0/8 0\nadd 11.0.0.0/8 0").unwrap();
    let before = lookup.table();
    let reason = lookup.control("remove 10.0.0.0/8\nadd 12.0.0.0/8 0\nadd 13.0.0.0/8 0").unwrap_err();
    assert_eq!(reason, "no room for route '13.0.0.0/8 - 0': the table has 2 routes");
    assert_eq!(lookup.table(), before);
    lookup.control("set 10.0.0.0/8 1.1.1.1 0").unwrap();
    assert_eq!(lookup.describe("10.1.1.1").unwrap(), "0 1.1.1.1");
}
