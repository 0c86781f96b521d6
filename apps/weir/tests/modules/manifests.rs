//! Manifests of the shipped modules: names of fields, semantics, and the tables of the READMEs.

use super::capture::repository;
use std::path::PathBuf;
use weir_abi::row::FieldType;
use weir_admission::{Manifest, ModuleKind, StreamField};

/// Returns the folder and the manifest of each shipped module.
fn modules() -> Vec<(PathBuf, Manifest)> {
    let folders = std::fs::read_dir(repository().join("guest/modules")).unwrap();
    let mut modules: Vec<_> = folders
        .map(|folder| folder.unwrap().path())
        .filter(|folder| folder.join("weir.toml").is_file())
        .map(|folder| {
            let manifest = Manifest::parse(&std::fs::read(folder.join("weir.toml")).unwrap()).unwrap();
            (folder, manifest)
        })
        .collect();
    modules.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(modules.len() >= 12);
    modules
}

/// The semantics of fields that every module names alike.
const NAMES: [(&str, &str); 8] = [
    ("time", "time"),
    ("source.ip", "src"),
    ("destination.ip", "dst"),
    ("source.port", "src_port"),
    ("destination.port", "dst_port"),
    ("network.iana_number", "protocol"),
    ("network.vlan.id", "vlan"),
    ("network.community_id", "community_id"),
];

/// Returns the rule that the name of a field breaks.
fn broken_rule(field: &StreamField) -> Option<String> {
    let name = field.name.as_str();
    let semantic = field.semantic.map(|semantic| semantic.name);
    for (known, wanted) in NAMES {
        if (semantic == Some(known)) != (name == wanted) {
            return Some(format!("the name `{wanted}` and the semantic `{known}` belong together"));
        }
    }
    let is_named = |suffix: &str| name == suffix || name.ends_with(&format!("_{suffix}"));
    let suffixes: &[&str] = match (field.ty, field.unit.as_str()) {
        (FieldType::Timestamp, _) => {
            let is_time = name == "time" || name.ends_with("_time");
            return (!is_time).then(|| "a time is named `time`, or its name ends in `_time`".to_owned());
        }
        (FieldType::Duration, _) | (_, "ns" | "us" | "s") => &["ns", "us", "s"],
        (_, "bytes") => &["bytes"],
        (_, "packets") => &["packets"],
        (FieldType::Ip, _) if !matches!(name, "src" | "dst") => {
            return Some("an address is `src` or `dst`".into());
        }
        _ => return None,
    };
    let is_other_time = matches!(suffixes, ["ns", ..]) && name == "time";
    (!is_other_time && !suffixes.iter().any(|suffix| is_named(suffix)))
        .then(|| format!("the name ends in none of {suffixes:?}"))
}

#[test]
fn fields_of_all_modules_have_the_same_names() {
    for (folder, manifest) in modules() {
        for stream in &manifest.streams {
            for field in &stream.fields {
                let place = format!("{}: {}.{}", folder.display(), stream.name, field.name);
                assert_eq!(broken_rule(field), None, "{place}");
                if manifest.kind == ModuleKind::Monitor && !stream.has_findings() {
                    assert!(field.semantic.is_some(), "{place}: a field of a monitor has a semantic");
                }
            }
        }
    }
}

#[test]
fn names_against_the_rules_are_found() {
    let broken = |field: &str| {
        let text = format!(
            "name = 'm'\nversion = '1'\nabi = 2\nlicense = 'MIT'\nsummary = 's'\n[[stream]]\nname = 's'\nfield = [{field}]"
        );
        broken_rule(&Manifest::parse(text.as_bytes()).unwrap().streams[0].fields[0]).is_some()
    };
    for (field, is_broken) in [
        ("{ name = 'src', type = 'ip', semantic = 'source.ip' }", false),
        ("{ name = 'client', type = 'ip', semantic = 'source.ip' }", true),
        ("{ name = 'src', type = 'ip' }", true),
        ("{ name = 'peer', type = 'ip' }", true),
        ("{ name = 'rtt', type = 'duration' }", true),
        ("{ name = 'rtt_ns', type = 'duration' }", false),
        ("{ name = 'size', type = 'u32', unit = 'bytes' }", true),
        ("{ name = 'bytes', type = 'u32', unit = 'bytes' }", false),
        ("{ name = 'lost_packets', type = 'u32', unit = 'packets' }", false),
        ("{ name = 'begin', type = 'timestamp' }", true),
    ] {
        assert_eq!(broken(field), is_broken, "{field}");
    }
}

/// Returns the section of a module's README that lists the streams.
fn streams_section(manifest: &Manifest) -> String {
    let mut text = String::new();
    for stream in &manifest.streams {
        text += &format!("`{}`: {}\n\n", stream.name, stream.summary);
        text += "| field | type | unit | semantic | what it is |\n|---|---|---|---|---|\n";
        for field in &stream.fields {
            let null = if field.presence.is_some() { " or null" } else { "" };
            let semantic = field.semantic.map(|semantic| format!("`{}`", semantic.name)).unwrap_or_default();
            text += &format!(
                "| `{}` | {}{null} | {} | {semantic} | {} |\n",
                field.name,
                field.ty.name(),
                field.unit,
                field.summary
            );
        }
        text += "\n";
    }
    text
}

/// `WEIR_WRITE=1 cargo test -p weir --test modules manifests` writes the sections.
#[test]
fn readmes_list_the_streams_of_the_manifests() {
    for (folder, manifest) in modules() {
        let path = folder.join("README.md");
        let mut readme = std::fs::read_to_string(&path).unwrap();
        let from = readme.find("## Streams\n\n").expect("a section of streams") + "## Streams\n\n".len();
        let to = readme[from..].find("\n## ").map_or(readme.len(), |end| from + end + 1);
        let wanted = streams_section(&manifest);
        if std::env::var_os("WEIR_WRITE").is_some() {
            readme.replace_range(from..to, &wanted);
            std::fs::write(&path, &readme).unwrap();
        } else {
            assert_eq!(&readme[from..to], wanted, "{}: WEIR_WRITE=1 writes it", path.display());
        }
    }
}
