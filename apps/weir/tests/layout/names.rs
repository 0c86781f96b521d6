//! Tests that the names of public types are unique.

use super::{assert_none, in_all_sources};
use std::collections::BTreeMap;

/// Names that two public types may share, with the reason.
const SHARED_NAMES: &[(&str, &str)] = &[];

#[test]
fn no_two_public_types_share_a_name() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    in_all_sources(|path, text| {
        // The module kit has the names of its own language. Tests and examples are not read together with other crates.
        if !path.contains("/src/") || path.starts_with("guest/") || path.starts_with("fuzz/") {
            return Vec::new();
        }
        for (number, line) in text.lines().enumerate() {
            let Some(rest) = line.trim_start().strip_prefix("pub") else { continue };
            let rest = match rest.strip_prefix('(') {
                Some(scope) => scope.split_once(')').map_or("", |(_, rest)| rest),
                None => rest,
            };
            let mut words = rest.split_whitespace();
            if matches!(words.next(), Some("struct" | "enum" | "trait")) {
                let name = words.next().unwrap_or_default();
                let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
                places.entry(name[..end].to_owned()).or_default().push(format!("{path}:{}", number + 1));
            }
        }
        Vec::new()
    });
    assert!(places.len() > 1000, "only {} public types", places.len());
    let shared = places
        .iter()
        .filter(|(name, places)| places.len() > 1 && !SHARED_NAMES.iter().any(|(known, _)| known == name));
    let broken: Vec<String> = shared
        .map(|(name, places)| format!("{name} is the name of {}: rename one", places.join(" and ")))
        .collect();
    assert_none(&broken);
}
