//! Comparison of a published JSON schema with documents, in both directions.
//!
//! The schemas are written by hand. They stay true because each document of the tests fits its schema, and because each property of
//! a schema occurs in a document: absent if it may be absent, null if it may be null, and with another value.

use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Validates each document of a list, by a validator that is not ours. Then changes each document so that it must not be valid: a
/// member has a value of no schema's type, or there is one more member. Prints the number of changes.
const VALIDATE: &str = r#"
import copy, json, jsonschema, sys
schema = json.load(open(sys.argv[1]))
jsonschema.Draft202012Validator.check_schema(schema)
validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
def objects(value, path=()):
    if isinstance(value, dict):
        yield path
    for key, member in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from objects(member, (*path, key))
def at(value, path):
    for key in path:
        value = value[key]
    return value
changes = 0
for document in json.load(open(sys.argv[2])):
    validator.validate(document)
    paths = list(objects(document))
    # Of a long document, some objects.
    for path in paths[:: 1 + len(paths) // 20]:
        for key in [*at(document, path), "one more"]:
            changed = copy.deepcopy(document)
            at(changed, path)[key] = [[[{}]]]
            assert not validator.is_valid(changed), (path, key)
            changes += 1
print(changes)
"#;

/// A published schema, and the documents that were compared with it.
pub struct SchemaCoverage {
    path: PathBuf,
    schema: Value,
    documents: Vec<Value>,
    sightings: Sightings,
}

/// A form in which a document has a property of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PropertyForm {
    /// The object does not have the property.
    Absent,
    Null,
    /// Another value.
    Value,
}

/// The forms in which documents have the properties of a schema, which stand for their JSON pointers in the schema.
type Sightings = BTreeSet<(String, PropertyForm)>;

impl SchemaCoverage {
    /// Reads the schema of this name in docs/reference.
    pub fn of(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference");
        let path = folder.join(format!("{name}.schema.json"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let schema = serde_json::from_str(&text).unwrap();
        Self { path, schema, documents: Vec::new(), sightings: Sightings::new() }
    }

    /// Compares a document with the schema.
    ///
    /// # Panics
    ///
    /// The document does not fit the schema.
    #[track_caller]
    pub fn add(&mut self, document: Value) {
        let mut sightings = Sightings::new();
        if let Err(why) = self.fit("", &document, "", &mut sightings) {
            panic!("{}: {why}\n{document:#}", self.path.display());
        }
        self.sightings.extend(sightings);
        self.documents.push(document);
    }

    /// Returns the documents that were compared.
    pub fn documents(&self) -> &[Value] {
        &self.documents
    }

    /// Asserts that all documents are valid by a validator that is not ours, if there is one.
    ///
    /// # Panics
    ///
    /// A document is not valid, or one that was changed is.
    pub fn validate(&self, python: Option<&Path>) {
        assert!(!self.documents.is_empty(), "no document was added");
        let Some(python) = python else { return };
        let folder = tempfile::tempdir().unwrap();
        let documents = folder.path().join("documents.json");
        std::fs::write(&documents, Value::from(self.documents.clone()).to_string()).unwrap();
        let output =
            Command::new(python).args(["-c", VALIDATE]).args([&self.path, &documents]).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", self.path.display());
        let changes: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
        let is_empty = |document: &Value| document.as_array().is_some_and(Vec::is_empty);
        assert!(changes > 0 || self.documents.iter().all(is_empty), "{}", self.path.display());
    }

    /// Asserts that each property of the schema has a description, and that documents have it in each form that it may have.
    /// `exceptions` are JSON pointers of properties with a form that no document here has.
    ///
    /// # Panics
    ///
    /// A form was not seen, or all forms of an exception were.
    pub fn assert_complete(&self, exceptions: &[&str]) {
        let (mut forms, mut problems) = (Sightings::new(), Vec::new());
        self.lint("", &self.schema, &mut forms, &mut problems);
        assert!(!forms.is_empty());
        let unseen: BTreeSet<_> = forms.difference(&self.sightings).collect();
        let is_excepted = |property: &str| exceptions.iter().any(|exception| property.starts_with(exception));
        for (property, form) in unseen.iter().filter(|(property, _)| !is_excepted(property)) {
            problems.push(format!("{property}: {form:?} is in no document"));
        }
        for exception in exceptions {
            if !unseen.iter().any(|(property, _)| property.starts_with(exception)) {
                problems.push(format!("{exception}: it is no exception"));
            }
        }
        assert!(problems.is_empty(), "{}:\n{}", self.path.display(), problems.join("\n"));
    }

    /// Adds the forms that the properties of a part of the schema may have, and the mistakes in the part.
    fn lint(&self, at: &str, part: &Value, forms: &mut Sightings, problems: &mut Vec<String>) {
        if let Some(items) = part.as_array() {
            items.iter().enumerate().for_each(|(index, item)| {
                self.lint(&format!("{at}/{index}"), item, forms, problems);
            });
        }
        let Some(part) = part.as_object() else { return };
        let is_of = |name: &str| match part.get("type") {
            Some(Value::String(of)) => of == name,
            Some(Value::Array(types)) => types.contains(&json!(name)),
            _ => false,
        };
        if is_of("integer") && !part.contains_key("minimum") {
            problems.push(format!("{at}: an integer without a minimum"));
        }
        if is_of("object") && !part.contains_key("additionalProperties") {
            problems.push(format!("{at}: an object without additionalProperties"));
        }
        if let (true, Some(Value::Object(members))) = (is_of("object"), part.get("properties")) {
            let required: BTreeSet<&str> =
                part["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
            assert!(required.iter().all(|name| members.contains_key(*name)), "{at}: {required:?}");
            for (name, member) in members {
                let described =
                    |part: &Value| part["description"].as_str().is_some_and(|text| !text.is_empty());
                let target = member.get("$ref").map(|_| self.target(member));
                if !described(member) && !target.is_some_and(|target| described(self.part(&target))) {
                    problems.push(format!("{at}/properties/{name}: it has no description"));
                }
                let may_be_null =
                    self.fit(&format!("{at}/properties/{name}"), &Value::Null, "", &mut Sightings::new());
                let may_be = [
                    (PropertyForm::Absent, !required.contains(name.as_str())),
                    (PropertyForm::Null, may_be_null.is_ok()),
                    (PropertyForm::Value, true),
                ];
                for (form, _) in may_be.into_iter().filter(|(_, may_be)| *may_be) {
                    forms.insert((format!("{at}/properties/{name}"), form));
                }
            }
        }
        for (key, below) in part {
            self.lint(&format!("{at}/{key}"), below, forms, problems);
        }
    }

    fn part(&self, at: &str) -> &Value {
        self.schema.pointer(at).unwrap_or_else(|| panic!("{}: there is no {at}", self.path.display()))
    }

    /// Returns the JSON pointer to which `$ref` refers.
    fn target(&self, part: &Value) -> String {
        part["$ref"].as_str().unwrap().strip_prefix('#').expect("within the schema").to_owned()
    }

    /// Compares a value with the part of the schema at a JSON pointer, but for the ranges and patterns of values. Adds the
    /// properties of its objects to `sightings`.
    fn fit(&self, at: &str, value: &Value, place: &str, sightings: &mut Sightings) -> Result<(), String> {
        let part = self.part(at);
        let error = |why: &str| Err(format!("{place}: {value} {why} ({at})"));
        if *part == false {
            return error("is one too many");
        }
        if part.get("$ref").is_some() {
            self.fit(&self.target(part), value, place, sightings)?;
        }
        if part.get("const").is_some_and(|known| known != value)
            || part.get("enum").is_some_and(|known| !known.as_array().unwrap().contains(value))
        {
            return error("is another value");
        }
        let is_of = |name: &str| match name {
            "null" => value.is_null(),
            "integer" => value.is_u64() || value.is_i64(),
            "number" => value.is_number(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("{at}: there is no type {other}"),
        };
        match part.get("type") {
            Some(Value::String(name)) if !is_of(name) => return error("is of another type"),
            Some(Value::Array(names)) if !names.iter().any(|name| is_of(name.as_str().unwrap())) => {
                return error("is of another type");
            }
            _ => {}
        }
        for (key, fits_one) in [("oneOf", true), ("anyOf", false)] {
            let Some(branches) = part.get(key).and_then(Value::as_array) else { continue };
            let (mut fitting, mut errors) = (Vec::new(), Vec::new());
            for index in 0..branches.len() {
                let mut seen = Sightings::new();
                match self.fit(&format!("{at}/{key}/{index}"), value, place, &mut seen) {
                    Ok(()) => fitting.push(seen),
                    Err(why) => errors.push(why),
                }
            }
            if fitting.is_empty() || fits_one && fitting.len() > 1 {
                return Err(format!("{place}: {} of {key} fit\n{}", fitting.len(), errors.join("\n")));
            }
            sightings.extend(fitting.remove(0));
        }
        if let Some(members) = value.as_object() {
            self.fit_members(at, members, place, sightings)?;
        }
        for (index, item) in value.as_array().into_iter().flatten().enumerate() {
            let below = match part.get("prefixItems").and_then(|first| first.get(index)) {
                Some(_) => format!("{at}/prefixItems/{index}"),
                None if part.get("items").is_some() => format!("{at}/items"),
                None => continue,
            };
            self.fit(&below, item, &format!("{place}/{index}"), sightings)?;
        }
        Ok(())
    }

    fn fit_members(
        &self,
        at: &str,
        members: &serde_json::Map<String, Value>,
        place: &str,
        sightings: &mut Sightings,
    ) -> Result<(), String> {
        let part = self.part(at);
        for name in part.get("required").and_then(Value::as_array).into_iter().flatten() {
            if !members.contains_key(name.as_str().unwrap()) {
                return Err(format!("{place}: it has no {name} ({at})"));
            }
        }
        let properties = part.get("properties").and_then(Value::as_object);
        for name in properties.into_iter().flat_map(serde_json::Map::keys) {
            let form = match members.get(name) {
                None => PropertyForm::Absent,
                Some(Value::Null) => PropertyForm::Null,
                Some(_) => PropertyForm::Value,
            };
            sightings.insert((format!("{at}/properties/{name}"), form));
        }
        for (name, member) in members {
            let below = match properties {
                Some(properties) if properties.contains_key(name) => format!("{at}/properties/{name}"),
                _ if part.get("additionalProperties").is_some() => format!("{at}/additionalProperties"),
                _ => continue,
            };
            self.fit(&below, member, &format!("{place}/{name}"), sightings)?;
        }
        Ok(())
    }
}
