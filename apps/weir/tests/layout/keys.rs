//! Keys of a session are named by its description alone.

use super::{assert_none, find_words, in_all_sources};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use weir_node::control::offers::{OfferSpec, UseSpec};
use weir_node::control::spec::{Change, ChannelSpec, Keyed, ProcessorSpec, SessionSpec, SpecKey};
use weir_node::link::OutputSpec;

/// Files that pass the description of a session on. They name none of its keys.
const PASS_ON: &[&str] = &[
    "apps/node/src/control/amounts.rs",
    "apps/node/src/control/config.rs",
    "apps/node/src/server/daemon/reload.rs",
    "apps/node/src/control/protocol.rs",
    "apps/weir/src/amounts.rs",
    "apps/weir/src/cmd/node/args.rs",
    "apps/weir/src/cmd/node/request.rs",
    "apps/weir/src/cmd/node/session.rs",
    "apps/weir/src/cmd/node/stated.rs",
];

/// Keys that are words for other things, too.
const COMMON_WORDS: &[&str] = &[
    "cap",
    "channel",
    "cpu",
    "core",
    "filter",
    "interface",
    "limit",
    "link",
    "memory",
    "name",
    "of",
    "offer",
    "output",
    "period",
    "process",
    "profile",
    "publish",
    "read",
    "sees",
    "service",
    "share",
    "slice",
    "spare",
    "tap",
    "use",
];

#[test]
fn a_key_of_a_session_is_named_by_its_description_and_not_on_the_way() {
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
            // Sub-flows are a table of their own, which files alone can hold.
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
        if path.starts_with("apps/node/src/") || path.starts_with("apps/weir/src/") {
            // Texts count as well: a key can be looked up by one.
            let product = source.find("\n#[cfg(test)]\nmod tests").map_or(source, |tests| &source[..tests]);
            // Examples in help are for people.
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
    // All that is known of these keys of a change is in the table.
    for key in ["forgo", "revoke_publish", "revoke_read"] {
        assert_eq!(places[key], ["apps/node/src/control/spec.rs"], "{key}");
    }
    assert_none(&broken);
}

/// The fields that a structure is read from.
fn fields<T: DeserializeOwned + Debug>() -> Vec<String> {
    let error = serde_json::from_str::<T>("{\"?\": 0}").unwrap_err().to_string();
    error.split('`').skip(3).step_by(2).map(str::to_owned).collect()
}
