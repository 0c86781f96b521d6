//! The JSON schema of weir.toml: it is the committed one, has the keys of the manifest's parser, and fits all manifests.

use serde_json::Value;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use weir_admission::Manifest;
use weir_author::manifest_schema;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn the_published_schema_is_the_one_that_modules_get() {
    let path = root().join("docs/reference/weir.schema.json");
    if std::env::var_os("WEIR_WRITE").is_some() {
        std::fs::write(&path, manifest_schema()).unwrap();
    }
    let published = std::fs::read_to_string(path).unwrap();
    assert!(
        published == manifest_schema(),
        "docs/reference/weir.schema.json is old: write it with WEIR_WRITE=1"
    );
}

/// The error of the parser of manifests for a key with a value of no key's type.
fn error_of(table: &str, key: &str) -> String {
    let required = ["name = 'a'", "version = '1'", "abi = 2", "license = 'MIT'", "summary = 's'"];
    let required: Vec<&str> = required
        .into_iter()
        .filter(|line| !table.is_empty() || !line.starts_with(&format!("{key} ")))
        .collect();
    Manifest::parse(format!("{}\n{table}{key} = 1979-05-27\n", required.join("\n")).as_bytes())
        .unwrap_err()
        .to_string()
}

/// The keys that the parser names for an unknown key of a table. A long list is cut.
fn parsed_keys(table: &str) -> BTreeSet<String> {
    let error = error_of(table, "unknown-key");
    let (_, keys) = error.split_once("expected one of ").unwrap_or_else(|| panic!("{error}"));
    keys.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn the_schema_has_the_keys_of_the_parser() {
    let schema: Value = serde_json::from_str(&manifest_schema()).unwrap();
    let tables = [
        ("", ""),
        ("[tcp]\n", "/properties/tcp"),
        ("[[parameter]]\n", "/properties/parameter/items"),
        ("[[stream]]\n", "/properties/stream/items"),
        ("[[stream]]\nname = 's'\n[[stream.field]]\n", "/properties/stream/items/properties/field/items"),
        ("[[service]]\n", "/properties/service/items"),
        ("[[table]]\n", "/properties/table/items"),
    ];
    for (table, place) in tables {
        let object = schema.pointer(place).unwrap();
        let keys: BTreeSet<String> = object["properties"].as_object().unwrap().keys().cloned().collect();
        assert!(parsed_keys(table).is_subset(&keys), "{table}: {keys:?}");
        for key in &keys {
            let error = error_of(table, key);
            assert!(!error.contains(&format!("unknown field `{key}`")), "{table}{key}: {error}");
        }
        assert_eq!(object["additionalProperties"], false, "{table}");
    }
}

/// By a validator that is not ours: all manifests of the repository fit, and wrong ones do not.
#[test]
fn manifests_fit_the_schema() {
    let script = "
import glob, json, sys, tomllib, jsonschema
schema = json.load(open('docs/reference/weir.schema.json'))
jsonschema.Draft7Validator.check_schema(schema)
validator = jsonschema.Draft7Validator(schema)
fits = [path for path in glob.glob('guest/*/*/weir.toml') if not list(validator.iter_errors(tomllib.load(open(path, 'rb'))))]
good = tomllib.load(open('guest/modules/http/weir.toml', 'rb'))
wrong = [{'name': 'a b'}, {'abi': 1}, {'kind': 'other'}, {'memory': 'much'}, {'tick': '1'}, {'colour': 'red'}, {'keep': 5000},
         {'parameter': [{'name': 'a', 'type': 'colour'}]}, {'stream': [{'name': 's', 'field': [{'name': 'f', 'type': 'u63'}]}]},
         {'stream': [{'name': 's', 'field': [{'name': 'f', 'type': 'u64', 'semantic': 'colour'}]}]}]
refused = [change for change in wrong if list(validator.iter_errors(good | change))]
print(len(glob.glob('guest/*/*/weir.toml')) - len(fits), len(fits), len(wrong) - len(refused))
";
    let of_the_lab = root().join("target/python/bin/python3");
    let can = |python: &&Path| {
        let output = Command::new(python).args(["-c", "import jsonschema, tomllib"]).output();
        output.is_ok_and(|output| output.status.success())
    };
    let Some(python) = [of_the_lab.as_path(), Path::new("python3")].into_iter().find(can) else {
        println!("SKIPPED: no Python with jsonschema and tomllib (lab/setup --tests makes one)");
        return;
    };
    let output = Command::new(python).args(["-c", script]).current_dir(root()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let numbers: Vec<usize> = printed.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert_eq!(numbers.len(), 3, "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        numbers[0] == 0 && numbers[1] > 30 && numbers[2] == 0,
        "misfits, fits, accepted wrong ones: {numbers:?}"
    );
}
