//! The crate weir-guest says the same as the contract does, and its own tests pass.

use std::path::Path;
use std::process::Command;

/// The SDK's descriptor, compiled here too.
#[allow(dead_code, rustdoc::broken_intra_doc_links)]
#[path = "../../../guest/sdk-rust/src/descriptor.rs"]
mod guest;

macro_rules! same_fields {
    ($($field:ident)+) => {
        $(
            assert_eq!(
                std::mem::offset_of!(guest::Descriptor, $field),
                std::mem::offset_of!(weir_abi::Descriptor, $field),
                stringify!($field)
            );
        )+
        // All fields of both: a field that one has and the list lacks does not compile.
        let guest::Descriptor { $($field: _),+ } = guest::Descriptor::default();
        let weir_abi::Descriptor { $($field: _),+ } = weir_abi::Descriptor::default();
    };
}

macro_rules! same_values {
    ($guest:path, $abi:path: $($name:ident)+) => {{
        use $guest as ours;
        use $abi as theirs;
        $(assert_eq!(ours::$name, theirs::$name, stringify!($name));)+
    }};
}

#[test]
fn the_descriptor_is_the_contracts() {
    assert_eq!(size_of::<guest::Descriptor>(), weir_abi::DESCRIPTOR_BYTES);
    same_fields!(ts_ns data cap_len wire_len flags flow_hash l3_offset l4_offset payload_offset ether_type payload_len src_port
        dst_port ip_proto tcp_flags ttl tos vlan_tci interface link_type vlan_count mpls_count number);
    same_values!(guest::flag, weir_abi::flag: IPV4 IPV6 TCP UDP ICMP L4 FRAGMENT LATER_FRAGMENT VLAN MPLS PPPOE CUT MALFORMED OPTIONS);
}

#[test]
fn limits_codes_and_imports_are_the_contracts() {
    let lib = include_str!("../../../guest/sdk-rust/src/lib.rs");
    let number = |text: &str| -> u64 {
        let plain = |text: &str| text.trim().replace('_', "").parse::<u64>().unwrap();
        match text.split_once("<<") {
            Some((value, places)) => plain(value) << plain(places),
            None => text.split('*').map(plain).product(),
        }
    };
    let constants = |source: &str| -> Vec<(String, u64)> {
        let inside = source.split("pub mod limit {").nth(1).unwrap().split("\n}").next().unwrap();
        let declared =
            inside.lines().filter_map(|line| line.trim().strip_prefix("pub const ")?.split_once(": "));
        declared
            .map(|(name, rest)| {
                (name.to_owned(), number(rest.split(" = ").nth(1).unwrap().trim_end_matches(';')))
            })
            .collect()
    };
    let mut contract = constants(include_str!("../../../abi/src/lib.rs"));
    contract.insert(0, ("BATCH_PACKETS".to_owned(), weir_abi::BATCH_PACKETS as u64));
    assert_eq!(constants(lib), contract);
    let heap = include_str!("../../../guest/sdk-rust/src/heap.rs").replace('_', "").to_lowercase();
    assert!(heap.contains(&format!("const privatemax: usize = {:#x};", weir_abi::PRIVATE_MAX)));
    assert!(lib.contains(&format!("pub const ABI_VERSION: u32 = {};", weir_abi::ABI_VERSION)));

    let host = include_str!("../../../guest/sdk-rust/src/host.rs");
    let declared: Vec<&str> = host
        .split("extern \"C\" {")
        .nth(1)
        .and_then(|rest| rest.split("\n}").next())
        .unwrap()
        .lines()
        .filter_map(|line| line.trim().strip_prefix("pub(crate) fn ")?.split('(').next())
        .collect();
    let offered: Vec<&str> = weir_abi::imports::ALL.iter().map(|import| import.name).collect();
    assert_eq!(declared, offered);
    for (value, name) in [
        (weir_abi::code::FULL, "Full"),
        (weir_abi::code::RANGE, "Range"),
        (weir_abi::code::DENIED, "Denied"),
        (weir_abi::code::WHEN, "When"),
        (weir_abi::code::UNKNOWN, "Unknown"),
    ] {
        assert!(host.contains(&format!("{value} => Error::{name},")), "{name} is {value}");
    }
}

#[test]
fn what_needs_no_sandbox_is_tested_outside_of_it() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest/sdk-rust/Cargo.toml");
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["test", "--offline", "--lib", "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk-rust"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!said.contains(" 0 passed"), "{said}");
}
