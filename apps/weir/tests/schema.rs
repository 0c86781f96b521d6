//! Tests of `weir schema`: documents of all commands, and rows of the shipped modules, are validated by a validator that is not ours.

mod ledger;
mod local_documents;
mod node_documents;

use crate::run::{outside, root, run, sample};
use serde_json::Value;
use std::fs;
use std::process::Command;

/// Validates each line of a file, and prints the streams of the lines. Then changes each line so that it must not be valid.
const VALIDATE: &str = r#"
import copy, json, jsonschema, sys
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
streams = set()
for line in open(sys.argv[2]):
    row = json.loads(line)
    validator.validate(row)
    if row["stream"] not in streams:
        streams.add(row["stream"])
        for name in row:
            changed = copy.copy(row)
            del changed[name]
            assert not validator.is_valid(changed), name
            assert not validator.is_valid(row | {name: {}}), name
        assert not validator.is_valid(row | {"more": 1})
print(" ".join(sorted(streams)))
"#;

#[test]
fn rows_of_all_shipped_modules_fit_their_schemas() {
    let Some(python) = outside::python(&["jsonschema"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let (schema, rows) = (folder.path().join("schema.json"), folder.path().join("rows.json"));
    let sample = sample();
    let (mut modules, mut validated) = (0, 0);
    for entry in fs::read_dir(root().join("guest/modules")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !path.is_dir() {
            continue;
        }
        modules += 1;
        fs::write(&schema, run(["schema", "--rows", &name]).succeeds().text()).unwrap();
        let printed = run(["run", "-r", sample.to_str().unwrap(), "-m", &name, "--format", "json"]);
        // The module hog exceeds its limits on purpose, and is ended.
        assert!(
            printed.status.code() == Some(if name == "hog" { 3 } else { 0 }),
            "{name}: {}",
            printed.stderr
        );
        fs::write(&rows, printed.text()).unwrap();
        let streams = outside::output(Command::new(&python).args(["-c", VALIDATE]).args([&schema, &rows]));
        validated += streams.split_whitespace().count();
    }
    assert!(modules > 20 && validated > 20, "{modules} modules, {validated} streams");
}

#[test]
fn fixed_schemas_are_listed_and_printed_as_they_are_published() {
    let list = run(["schema"]).succeeds();
    let mut names: Vec<&str> = list.text().lines().map(|line| line.split_once("  ").unwrap().0).collect();
    assert_eq!(names.pop(), Some("rows"));
    let mut files = Vec::new();
    for name in names {
        let file = format!("{}.schema.json", if name == "manifest" { "weir" } else { name });
        let printed = run(["schema", name]).succeeds();
        assert_eq!(printed.text(), fs::read_to_string(root().join("docs/reference").join(&file)).unwrap());
        files.push(file);
    }
    let published = fs::read_dir(root().join("docs/reference")).unwrap();
    let published = published.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut published: Vec<String> = published.filter(|name| name.ends_with(".schema.json")).collect();
    published.sort();
    files.sort();
    assert_eq!(files, published);
    run(["schema", "rows"]).fails(2, &["weir schema --rows MODULE"]);
    run(["schema", "nothing"]).fails(2, &["there is no schema `nothing`"]);
    run(["schema", "--rows", "nothing"]).fails(2, &["there is no module `nothing`"]);
}

#[test]
fn the_schema_of_rows_has_types_units_and_semantics() {
    let schema: Value = serde_json::from_str(run(["schema", "--rows", "rtt"]).succeeds().text()).unwrap();
    let streams = schema["oneOf"].as_array().unwrap();
    let rtts = streams.iter().find(|stream| stream["title"] == "rtts").unwrap();
    let rtt = &rtts["properties"]["rtt_ns"];
    assert_eq!((rtt["type"].as_str(), rtt["unit"].as_str()), (Some("integer"), Some("ns")));
    assert_eq!(rtt["semantic"], "network.rtt");
    assert_eq!(rtts["properties"]["src_port"]["maximum"], 65_535);
    assert_eq!(rtts["properties"]["time"]["format"], "date-time");
}
