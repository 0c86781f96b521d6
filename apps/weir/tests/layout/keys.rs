//! Tests that the keys of a session's description are named only where the description is defined.

use super::{assert_none, find_words, in_all_sources};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use weir_node::control::link_spec::OutputSpec;
use weir_node::control::services::{OfferSpec, UseSpec};
use weir_node::control::spec::{Change, ChannelSpec, Keyed, ProcessorSpec, SessionSpec, SpecKey};

/// Files that pass on the description of a session without naming any of its keys.
const PASS_ON: &[&str] = &[
    "apps/node/src/control/resource_keys.rs",
    "apps/node/src/control/config.rs",
    "apps/node/src/server/daemon/reload.rs",
    "apps/node/src/control/protocol.rs",
    "apps/weir/src/amounts.rs",
    "apps/weir/src/cmd/node/args.rs",
    "apps/weir/src/cmd/node/request.rs",
    "apps/weir/src/cmd/node/session.rs",
    "apps/weir/src/cmd/node/spec_options.rs",
];

/// Keys that are also common words.
const COMMON_WORDS: &[&str] = &[
    "borrow",
    "cap",
    "channel",
    "cpu",
    "core",
    "filter",
    "interface",
    "link",
    "memory",
    "name",
    "offer",
    "output",
    "period",
    "process",
    "profile",
    "publish",
    "read",
    "service",
    "session",
    "share",
    "slice",
    "tap",
    "use",
    "visibility",
];

#[test]
fn keys_of_a_session_are_named_only_in_its_description() {
    let options: Vec<&SpecKey> = SessionSpec::KEYS.iter().chain(Change::KEYS).collect();
    let mut keys: BTreeSet<&str> = options.iter().map(|key| key.key).collect();
    let parts = [
        ("cpu", fields::<ProcessorSpec>()),
        ("channel", fields::<ChannelSpec>()),
        ("output", fields::<OutputSpec>()),
        ("offer", fields::<OfferSpec>()),
        ("use", fields::<UseSpec>()),
    ];
    let mut broken = Vec::new();
    for (option, fields) in &parts {
        for key in options.iter().filter(|key| key.key == *option) {
            // Sub-flows are a separate table, which only files can have.
            let missing = fields
                .iter()
                .filter(|field| *field != "subflows" && find_words(key.help(), field).next().is_none());
            broken.extend(missing.map(|field| format!("the help of `--{option}` does not name `{field}`")));
        }
        keys.extend(fields.iter().map(String::as_str));
    }
    assert!(keys.contains("memory_max") && keys.contains("reassemble"), "{keys:?}");
    keys.retain(|key| !COMMON_WORDS.contains(key));
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    in_all_sources(|path, source| {
        let is_product = path.starts_with("apps/node/src/") || path.starts_with("apps/weir/src/");
        // The table of renamed keys names the present ones, too.
        if is_product && path != "apps/node/src/control/renamed_keys.rs" {
            // String literals count as well, as a key can be looked up by its name.
            let product = source.find("\n#[cfg(test)]\nmod tests").map_or(source, |tests| &source[..tests]);
            // Examples in help texts do not count.
            let is_code = |line: &&str| !line.starts_with("  weir ") && !line.trim_start().starts_with("//");
            let code: Vec<&str> = product.lines().filter(is_code).collect();
            let code = code.join("\n");
            for key in keys.iter().filter(|key| find_words(&code, key).next().is_some()) {
                places.entry(key).or_default().push(path.to_owned());
            }
        }
        Vec::new()
    });
    for (key, places) in &places {
        let on_the_way = places.iter().filter(|place| PASS_ON.contains(&place.as_str()));
        broken.extend(on_the_way.map(|place| format!("{place}: names the key `{key}`; only its table does")));
    }
    // These keys of a change are defined in the table only.
    for key in ["remove_offer", "remove_use", "remove_publish", "remove_read"] {
        assert_eq!(places[key], ["apps/node/src/control/spec.rs"], "{key}");
    }
    assert_none(&broken);
}

/// Returns the fields from which a struct is deserialized.
fn fields<T: DeserializeOwned + Debug>() -> Vec<String> {
    let error = serde_json::from_str::<T>("{\"?\": 0}").unwrap_err().to_string();
    error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}
